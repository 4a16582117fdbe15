"""Reads the sources of a merge within a bound of memory: opens them, and divides the work into bands.

    a small group      one request an object reads all of it, including its index
    a large group      one request reads the index (two if its size is unknown and the guess is too small);
                       the blocks are read later, band by band

Objects that link others (composite ones) are refused: they do not contain their blocks. A node's list never has any.

All outputs, one after another, are one long list of copies. The list is cut twice, always between two copies:

    copies   ||||||||||||||||||||||||||||||||||||||||||||||||||||||||||
    parts    |-----|-----|-----|--|------|-----|---|-----|-----|------     each is sent with one request
    bands    |-----------------|-------------|-------------|----------     each is read before it is sent

A part ends with the copy that brings it to the part size, or with its output. A band has as many parts as the memory
limit allows. Within a source the copies of a band are nearly always one range of bytes, because a source has the order
of the outputs; then one request a source reads its share of the band. In sources that were made by joining sections end
to end, the share is one range a section.

Unneeded bytes in between (left out, or of another band) are read as well if they are few: a request costs more than
some kilobytes do. The largest allowed gap with which the band still fits is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loaders.errors import CorruptObject, FormatError, FormatLimit
from loaders.format import (
    FOOTER_SIZE_BYTES,
    BlockIndex,
    guess_tail_size_bytes,
)
from loaders.format.index import join_spans
from loaders.layout import ObjectLayout
from loaders.merge.plan import Copies, MergedOutput
from loaders.object_index import fetch_tail, open_fetched
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.parallel import map_bounded
from loaders.settings import MergeSettings
from loaders.store import ObjectStore

ROW_SIZE_BYTES_MAX = 64 << 20
"""A row of an index with more bytes is refused: rows are moved whole, and memory is bounded.
A writer closes a block at half a mebibyte, so only a single huge record makes such a row."""


DEFAULT_SETTINGS = MergeSettings()

GAP_ALLOWANCES_BYTES = (1 << 20, 1 << 16, 1 << 12, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An object to be merged. Threads: immutable.

    Args:
        ref: the object, with its true sizes and the checksum of its tail.
        key: its key in the store.
        index: its rows.
        body: all its bytes, or None if they are to be read band by band.
        requests: the number of requests to open it.
        bytes_read: bytes read to open it.
    """

    ref: ObjectRef
    key: str
    index: BlockIndex
    body: bytes | None
    requests: int
    bytes_read: int

    @property
    def data_size_bytes(self) -> int:
        """Bytes before the index."""
        return self.ref.size_bytes - self.index.nbytes - FOOTER_SIZE_BYTES

    def corrupt(self, *, expected: str, found: str) -> CorruptObject:
        """The error that names this object."""
        return CorruptObject(self.key, self.ref.size_bytes, expected=expected, found=found)


def open_sources(
    store: ObjectStore,
    layout: ObjectLayout,
    refs: Sequence[ObjectRef],
    settings: MergeSettings = DEFAULT_SETTINGS,
    *,
    executor: Executor,
) -> list[Source]:
    """Open a group of objects, in their order.

    Requests: one an object; one more if the metadata do not contain the size of its index, and the guess is too small.

    Args:
        store: the store of the objects.
        layout: the keys of objects in the store.
        refs: the objects; whole objects are read if the sizes of all are known and fit one band, and the store is not
            to copy the data itself.
        settings: `band_size_bytes`, `parallel_requests` and `server_side` are used.
        executor: of threads; runs the requests.

    Raises:
        FormatError: a composite object.
        CorruptObject: an object contradicts the format or its metadata.
        KeyMissing, StoreUnavailable and the like: from the store.
    """
    sizes = [ref.size_bytes for ref in refs]
    copies_itself = settings.server_side and store.can_copy_parts
    whole = UNKNOWN not in sizes and sum(sizes) <= settings.band_size_bytes and not copies_itself
    opener = _Opener(store, layout, whole=whole)
    return map_bounded(executor, opener.open, refs, settings.parallel_requests)


@dataclass(frozen=True, slots=True)
class _Opener:
    store: ObjectStore
    layout: ObjectLayout
    whole: bool

    def open(self, ref: ObjectRef) -> Source:
        key = self.layout.object_key(ref.object_id)
        if ref.is_composite:
            raise _composite(key)
        fetched = self.store.get(key) if self.whole else fetch_tail(self.store, key, ref, _tail_size_bytes(ref))
        opened = open_fetched(self.store, key, ref, fetched)
        if opened is None:
            raise _composite(key)
        body = fetched.body if len(fetched.body) == fetched.object_size_bytes else None
        return Source(opened.ref, key, opened.index, body, opened.requests, opened.bytes_read)


def _tail_size_bytes(ref: ObjectRef) -> int:
    if ref.index_size_bytes != UNKNOWN:
        return ref.index_size_bytes + FOOTER_SIZE_BYTES
    return guess_tail_size_bytes(1 << 20 if ref.size_bytes == UNKNOWN else ref.size_bytes)


def _composite(key: str) -> FormatError:
    return FormatError(f"object {key!r}: expected blocks of its own to merge, found a composite object, which has none")


def check_whole(source: Source, span: SourceSpan, body: bytes) -> None:
    """Refuse a body that is not the whole span."""
    if len(body) != span.end - span.start:
        expected = f"bytes [{span.start}, {span.end})"
        raise source.corrupt(expected=expected, found=f"{len(body)} bytes from {span.start} on")


class Part(NamedTuple):
    """Some copies of one output.

    Attributes:
        output: the number of the output.
        number: of the part within the output, from 1 on.
        first: its first copy, counted within the output.
        end: one past its last copy.
        size_bytes: of these copies; the last part also contains index and footer.
        is_last: whether the output ends with it.
    """

    output: int
    number: int
    first: int
    end: int
    size_bytes: int
    is_last: bool


class SourceSpan(NamedTuple):
    """Bytes ``[start, end)`` of one source."""

    source: int
    start: int
    end: int


class LocatedCopies(NamedTuple):
    """The places of the bytes of copies: for each copy the number of a chunk, and the offset in the chunk."""

    chunks: NDArray[np.int64]
    offsets: NDArray[np.int64]


def divide(outputs: Sequence[MergedOutput], settings: MergeSettings) -> list[list[Part]]:
    """Divide the outputs into parts, and the parts into bands, in the order of the outputs.

    Raises:
        FormatLimit: a row is too large to be moved in memory.
    """
    bands: list[list[Part]] = []
    room = 0
    for part in _parts(outputs, settings.part_size_bytes):
        if not bands or part.size_bytes > room:
            bands.append([])
            room = settings.band_size_bytes // 2  # unneeded bytes that are read come on top, and the allocator's own
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


def spans_of(copies: Copies, most: int) -> list[SourceSpan]:
    """The spans of the sources to read for these copies, ascending by (source, start).

    Complexity: O(n log n), no loop over copies in Python; a step for each span.

    Args:
        copies: at least one, in any order.
        most: bytes to read at most, unless the copies themselves have more.
    """
    copies = copies[np.lexsort((copies["position"], copies["source"]))]
    sources, starts = copies["source"], copies["position"]
    ends = starts + copies["size_bytes"]
    spans: list[SourceSpan] = []
    for allowance in GAP_ALLOWANCES_BYTES:
        joined = join_spans(starts, ends, sources, gap_size_bytes_max=allowance)
        spans = [SourceSpan(int(sources[first]), int(starts[first]), int(ends[stop - 1])) for first, stop in joined]
        if sum(span.end - span.start for span in spans) <= most:
            break
    return spans


def locate(spans: Sequence[SourceSpan], sources: NDArray[np.int32], positions: NDArray[np.int64]) -> LocatedCopies:
    """Find for each copy its span among these spans, ascending by (source, start), and its offset in the span."""
    table = np.array(spans, dtype=np.int64).reshape(len(spans), 3)
    # One number for (source, position), so that one binary search finds both.
    width = int(max(table[:, 2].max(), positions.max())) + 1
    places = table[:, 0] * width + table[:, 1]
    chunks = np.searchsorted(places, sources.astype(np.int64) * width + positions, side="right") - 1
    return LocatedCopies(chunks, positions - table[chunks, 1])
