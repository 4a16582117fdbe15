"""Divides the writing of a merge into parts, and the reading into bands.

All outputs, one after another, are one long list of copies. It is cut twice, always between two copies:

    copies   ||||||||||||||||||||||||||||||||||||||||||||||||||||||||||
    parts    |-----|-----|-----|--|------|-----|---|-----|-----|------     what is sent with one request
    bands    |-----------------|-------------|-------------|----------     what is read before it is sent

A part ends with the copy that brings it to the part size, or with its output. A band is as many parts as memory is
allowed for. Within a source the copies of a band nearly always lie in one stretch, because the order of a source is
that of the outputs; then one request a source brings its share of the band.

Where bytes in between are not wanted (left out, or of another band) they are read along if they are few: a request
costs more than some kilobytes do. How many are few is found by trying: the largest allowance with which the band still
fits. Sources that were made by joining sections end to end have their share in one stretch a section.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatLimit
from loaders.format.merging import MergedOutput
from loaders.format.merging_rows import Copies
from loaders.format.spans import join_spans
from loaders.merge_reading import Source
from loaders.merge_settings import ROW_SIZE_BYTES_MAX, MergeSettings

GAP_ALLOWANCES_BYTES = (1 << 20, 1 << 16, 1 << 12, 0)


class Part(NamedTuple):
    """Some copies of one output.

    Attributes:
        output: the number of the output.
        number: of the part within it, from 1 on.
        first: its first copy, counted within the output.
        end: one past its last copy.
        size_bytes: of these copies; the last part has index and footer besides.
        is_last: whether the output ends with it.
    """

    output: int
    number: int
    first: int
    end: int
    size_bytes: int
    is_last: bool


class Span(NamedTuple):
    """Bytes ``[start, end)`` of one source."""

    source: int
    start: int
    end: int


class Located(NamedTuple):
    """Where the bytes of some copies are: for each the number of a chunk, and the place in it."""

    chunks: NDArray[np.int64]
    offsets: NDArray[np.int64]


def divide(outputs: Sequence[MergedOutput], settings: MergeSettings) -> list[list[Part]]:
    """Bands of parts, in the order of the outputs.

    Raises:
        FormatLimit: a row that is too large to be moved in memory.
    """
    bands: list[list[Part]] = []
    room = 0
    for part in _parts(outputs, settings.part_size_bytes):
        if not bands or part.size_bytes > room:
            bands.append([])
            room = settings.band_size_bytes // 2  # bytes that are read along come on top, and the allocator's own
        bands[-1].append(part)
        room -= part.size_bytes
    return bands


def _parts(outputs: Sequence[MergedOutput], part_size_bytes: int) -> Iterator[Part]:
    for output, merged in enumerate(outputs):
        sizes = merged.copies["size_bytes"].astype(np.int64)
        if (largest := int(sizes.max())) > ROW_SIZE_BYTES_MAX:
            raise FormatLimit(f"expected rows of at most {ROW_SIZE_BYTES_MAX} bytes to merge, found one of {largest}")
        totals = np.cumsum(sizes)
        first, done, number = 0, 0, 1
        while first < len(sizes):
            end = min(int(np.searchsorted(totals, done + part_size_bytes)) + 1, len(sizes))
            size_bytes = int(totals[end - 1]) - done
            yield Part(output, number, first, end, size_bytes, end == len(sizes))
            first, done, number = end, done + size_bytes, number + 1


def spans_of(copies: Copies, most: int) -> list[Span]:
    """The stretches of the sources to read for some copies, at least one, ascending by (source, start).

    Complexity: O(n log n), no loop over copies in Python; a step for each stretch.

    Args:
        copies: in any order.
        most: bytes to read at most, unless what is wanted is more by itself.
    """
    copies = copies[np.lexsort((copies["position"], copies["source"]))]
    sources, starts = copies["source"], copies["position"]
    ends = starts + copies["size_bytes"]
    spans: list[Span] = []
    for allowance in GAP_ALLOWANCES_BYTES:
        joined = join_spans(starts, ends, sources, gap_size_bytes_max=allowance)
        spans = [Span(int(sources[first]), int(starts[first]), int(ends[stop - 1])) for first, stop in joined]
        if sum(span.end - span.start for span in spans) <= most:
            break
    return spans


def locate(spans: Sequence[Span], sources: NDArray[np.int32], positions: NDArray[np.int64]) -> Located:
    """In which of these stretches, ascending by (source, start), each copy lies, and where in it."""
    table = np.array(spans, dtype=np.int64).reshape(len(spans), 3)
    # One number for (source, position), so that one binary search finds both.
    width = int(max(table[:, 2].max(), positions.max())) + 1
    places = table[:, 0] * width + table[:, 1]
    chunks = np.searchsorted(places, sources.astype(np.int64) * width + positions, side="right") - 1
    return Located(chunks, positions - table[chunks, 1])


def check_whole(source: Source, span: Span, body: bytes) -> None:
    """Refuse a stretch of which the store gave less than was asked for."""
    if len(body) != span.end - span.start:
        expected = f"bytes [{span.start}, {span.end})"
        raise source.corrupt(expected=expected, found=f"{len(body)} bytes from {span.start} on")
