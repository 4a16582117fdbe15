"""Reads filter packs: a root, and then many filters in few requests.

    root = read_pack_root(store, namespace, node_id)
    spans = plan_pack_reads(root, object_ids, sizes)             pure
    filters = decode_pack_span(root, span, body)                 pure, for each span

A filter excludes objects, so a wrong one would be worse than none. Each is taken only for the object, size included,
that it was built for, if its checksum is right and the filter is sound in itself; any other is left out and counted.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bloom import StreamFilter
from loaders.format.spans import join_spans
from loaders.hints.byte_span import ByteSpan
from loaders.hints.errors import HintProblem, HintTrouble
from loaders.hints.pack_root import PackRoot, decode_pack_root
from loaders.hints.root_bytes import fetch_root
from loaders.hints.span_reading import read_span
from loaders.layout import HintKind, hint_root_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from loaders.store.base import ObjectStore

SPAN_SIZE_BYTES_MAX = 16 << 20
GAP_SIZE_BYTES_MAX = 1 << 20
SPANS_FREE = 8
"""So many reads are made before more is read in vain."""


class DecodedFilters(NamedTuple):
    """What a span held.

    Attributes:
        filters: object id and filter, by position in the data object.
        bad: how many were left out.
    """

    filters: list[tuple[int, StreamFilter]]
    bad: int


@dataclass(slots=True)
class PackLoad:
    """What loading a pack has met so far. Threads: one at a time."""

    requests: int = 0
    bytes_read: int = 0
    filters: int = 0
    bad: int = 0
    problems: list[HintProblem] = field(default_factory=list)


def read_pack_root(store: ObjectStore, namespace: str, node_id: int) -> PackRoot:
    """A node's root. One request.

    Raises:
        HintProblem: there is none that can be used.
        StoreError: the store could not say.
    """
    key = hint_root_key(HintKind.PACKS, node_id)
    fetched = fetch_root(store, key)
    if fetched is None:
        raise HintProblem(HintTrouble.MISSING, key, "no such object")
    return decode_pack_root(fetched.body, namespace=namespace, node_id=node_id)


def plan_pack_reads(
    root: PackRoot,
    object_ids: NDArray[np.int64],
    sizes: NDArray[np.int64],
    *,
    gap_size_bytes_max: int = GAP_SIZE_BYTES_MAX,
    span_size_bytes_max: int = SPAN_SIZE_BYTES_MAX,
) -> list[ByteSpan]:
    """Which bytes to read for the filters of these objects: at most 8 spans, or one a data object of usual size.

    Complexity: O(filters log filters).

    Args:
        root: the node's root.
        object_ids: the objects wanted, in any order; those that the root does not cover are left out.
        sizes: their sizes.
        gap_size_bytes_max: bytes read in vain to save a request, 1 MiB by default: about what a request costs in time.
            Where filters lie so scattered that more than 8 spans would come of it, larger gaps are read as well.
        span_size_bytes_max: longest read, 16 MiB by default: a data object in one request.
    """
    covered = root.covered
    places = covered.positions(object_ids)[covered.covers(object_ids, sizes)]
    wanted = root.entries[np.unique(places)]
    wanted = wanted[np.lexsort((wanted["offset"], wanted["part"]))]
    parts = np.unique(wanted["part"]).tolist()
    while True:
        limits = gap_size_bytes_max, span_size_bytes_max
        spans = [span for part in parts for span in _spans_of(root, part, wanted[wanted["part"] == part], *limits)]
        if len(spans) <= max(SPANS_FREE, len(parts)) or gap_size_bytes_max >= span_size_bytes_max:
            return spans
        gap_size_bytes_max = max(1, gap_size_bytes_max * 4)


def decode_pack_span(root: PackRoot, span: ByteSpan, body: bytes) -> DecodedFilters:
    """All sound filters in the bytes of a span; about 40 us a filter of 10,000 ids.

    Raises:
        HintProblem: mixed: not as many bytes as asked for.
    """
    if len(body) != span.size_bytes:
        raise HintProblem(HintTrouble.MIXED, span.key, f"expected {span.size_bytes} bytes, found {len(body)}")
    entries = _entries_by_offset(root, span.first)
    ends = entries["offset"] + entries["length"]
    inside = entries[(entries["offset"] >= span.start) & (ends <= span.end)]
    view, filters = memoryview(body), []
    columns = [inside[name].tolist() for name in ("object_id", "offset", "length", "crc32", "capacity")]
    for object_id, offset, length, crc32, capacity in zip(*columns, strict=True):
        start = offset - span.start
        found = _sound_filter(view[start : start + length], crc32, capacity)
        if found is not None:
            filters.append((object_id, found))
    return DecodedFilters(filters, len(inside) - len(filters))


def load_pack(
    store: ObjectStore,
    root: PackRoot,
    object_ids: NDArray[np.int64],
    sizes: NDArray[np.int64],
    load: PackLoad | None = None,
) -> Iterator[tuple[int, StreamFilter]]:
    """The filters of these objects, as they come; one request a span, one after the other.

    A span that cannot be used is left out, its problem noted, and the next one read. Filters of objects in between that
    nobody asked for come along: they are true as well.

    Args:
        store: where the pack lies.
        root: its root.
        object_ids: the objects wanted.
        sizes: their sizes.
        load: counts what happens, if given.

    Raises:
        StoreError: the store could not say.
    """
    load = PackLoad() if load is None else load
    for span in plan_pack_reads(root, object_ids, sizes):
        load.requests += 1
        try:
            body = read_span(store, span)
            found = decode_pack_span(root, span, body)
        except HintProblem as problem:
            load.problems.append(problem)
            continue
        load.bytes_read += len(body)
        load.filters += len(found.filters)
        load.bad += found.bad
        yield from found.filters


def _spans_of(
    root: PackRoot, part: int, wanted: NDArray[np.void], gap_size_bytes_max: int, span_size_bytes_max: int
) -> Iterator[ByteSpan]:
    starts = wanted["offset"].astype(np.int64)
    ends = starts + wanted["length"]
    key, size = root.part_key(part), root.parts[part].size_bytes
    joined = join_spans(starts, ends, gap_size_bytes_max=gap_size_bytes_max, span_size_bytes_max=span_size_bytes_max)
    for first, stop in joined:
        yield ByteSpan(key, int(starts[first]), int(ends[stop - 1]), size, part, part + 1)


def _entries_by_offset(root: PackRoot, part: int) -> NDArray[np.void]:
    entries = root.entries[root.entries["part"] == part]
    ordered: NDArray[np.void] = entries[np.argsort(entries["offset"])]
    return ordered


def _sound_filter(stored: memoryview, crc32: int, capacity: int) -> StreamFilter | None:
    if zlib.crc32(stored) != crc32:
        return None
    try:
        found = StreamFilter.from_bytes(stored)
    except ValueError:
        return None
    return found if found.geometry.capacity == capacity else None
