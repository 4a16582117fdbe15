"""Filter packs: the filters of all objects of a node, read in few requests and written generation by generation.

    root = read_pack_root(store, namespace, node_id)
    spans = plan_pack_reads(root, object_ids, sizes)                                    pure
    filters = decode_pack_span(root, span, body)                                        pure, for each span

    root = write_pack(store, namespace=..., node_id=7, generation=g, added=((ref, filter), ...))
    root = write_pack(..., generation=g2, added=newer, previous=root, dropped=ids)      writes only added filters

A pack holds the filters of a node's objects, each in its stored form (docs/reference/filters.md), end to end in a few
data objects. The root is a record (form ``pack-root``, version 1) in the envelope of every root:

    | field       | meaning                                                                           |
    |-------------|-----------------------------------------------------------------------------------|
    | namespace   | of the cluster's objects                                                          |
    | node_id     | the node of the list                                                              |
    | generation  | of the root                                                                       |
    | parts       | the data objects: generation and name (which make the key), size_bytes            |
    | entries     | packed columns, below: one row a filter, by ascending object id                   |

    | column      | meaning                                                                           |
    |-------------|-----------------------------------------------------------------------------------|
    | object_id, size_bytes | the object that the filter was built for; it is valid for no other      |
    | part        | number of the data object                                                         |
    | offset, length | the filter's bytes there                                                       |
    | crc32       | of these bytes                                                                    |
    | capacity    | ids that the filter was made for; also in the header of the filter                |

**Reading.** A filter excludes objects, so a wrong filter would be worse than none. A filter is used only for the object
that it was built for, size included, and only if its checksum is right and its contents are consistent; others are left
out and counted.

**Writing.** A generation writes the data objects of the added filters and two puts of the root; for other filters the
root names data objects of earlier generations. In two cases all filters are copied to new data objects: more than half
of the bytes belong to objects that were dropped since; or the number of data objects is above 8, and above the number
that a new pack would need plus 4. So a node of 5,000 objects of 9,000 streams, 60 MB, is always loaded by at most 8
reads of data objects. Memory holds one data object, of at most 16 MiB, and during a copy a second one that is read.

**Quality.** A stream that an object lacks passes its filter if in each slice the bit of its hash happens to be set: for
a random stream the probability is the product of the slices' shares of set bits. A filter made for 1 % that errs in
more than 1.25 % of cases was filled beyond its capacity, or is damaged in a way that keeps its form valid: it still
excludes nothing wrongly, but saves less than it costs to keep.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bloom import ERROR_RATE, Geometry, StreamFilter
from bloom.stream_filter import HEADER_SIZE_BYTES
from loaders.format.index import join_spans
from loaders.hints.roots import (
    ByteSpan,
    CoveredObjects,
    HintProblem,
    HintTrouble,
    check_identity,
    damage_told,
    fetch_root,
    open_root,
    read_span,
    seal_root,
    swap_root,
)
from loaders.layout import HINT_ROOT_NAME, HintKind, hint_file_key, hint_root_key
from loaders.object_ref import ObjectRef
from loaders.store.base import ObjectStore
from loaders.tables.columns import pack_columns, unpack_columns
from loaders.tables.records import RecordForm

PARTS_MAX = 10_000
PACK_ENTRY = np.dtype(
    [(name, "<i8") for name in ("object_id", "size_bytes", "part", "offset", "length", "crc32", "capacity")]
)
"""A filter in the root; ``part`` is the number of its data object in the root."""


class PackPart(msgspec.Struct, frozen=True):
    """One data object: generation and last segment of its key, and its length."""

    generation: int
    name: str
    size_bytes: int


class _StoredRoot(msgspec.Struct, frozen=True):
    namespace: str
    node_id: int
    generation: int
    parts: list[PackPart]
    entries: bytes


PACK_ROOT_FORM = RecordForm("pack-root", 1, _StoredRoot)
"""The stored form."""


@dataclass(frozen=True, slots=True, eq=False)
class PackRoot:
    """The root of one node's pack, checked. Threads: immutable.

    Args:
        namespace: of the cluster's objects.
        node_id: the node of the list.
        generation: of the root.
        parts: the data objects.
        entries: of dtype `PACK_ENTRY`, by ascending object id.
    """

    namespace: str
    node_id: int
    generation: int
    parts: tuple[PackPart, ...]
    entries: NDArray[np.void]

    def __post_init__(self) -> None:
        if flaw := _find_flaw(self):
            raise ValueError(flaw)

    @property
    def key(self) -> str:
        """The key of the root."""
        return hint_root_key(HintKind.PACKS, self.node_id)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.entries.nbytes + 200 * len(self.parts)

    @property
    def covered(self) -> CoveredObjects:
        """The objects that have a filter."""
        return CoveredObjects(self.entries["object_id"], self.entries["size_bytes"])

    @property
    def live_size_bytes(self) -> int:
        """Bytes of all filters in the root."""
        return int(self.entries["length"].sum())

    @property
    def dead_size_bytes(self) -> int:
        """Bytes of the data objects that belong to no filter in the root."""
        return sum(part.size_bytes for part in self.parts) - self.live_size_bytes

    def covers(self, object_ids: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each object, whether it has a filter, size included; O(n log objects)."""
        return self.covered.covers(object_ids, sizes)

    def part_key(self, part: int) -> str:
        """The key of a data object.

        Args:
            part: its number in the root.
        """
        named = self.parts[part]
        return hint_file_key(HintKind.PACKS, self.node_id, named.generation, named.name)

    def encode(self) -> bytes:
        """The encoded root.

        Raises:
            FormatLimit: more than 1,048,576 filters.
        """
        entries = pack_columns(self.entries)
        stored = _StoredRoot(self.namespace, self.node_id, self.generation, list(self.parts), entries)
        return seal_root(PACK_ROOT_FORM.encode(stored))


def make_pack_root(
    namespace: str, node_id: int, generation: int, parts: Iterable[PackPart], entries: NDArray[np.void]
) -> PackRoot:
    """A checked root of entries in any order, without the data objects that no entry names.

    Raises:
        ValueError: parts that contradict each other.
    """
    parts = tuple(parts)
    entries = entries[np.argsort(entries["object_id"], kind="stable")]
    named = np.unique(entries["part"])
    if len(named) and not 0 <= named[0] <= named[-1] < len(parts):
        raise ValueError(f"expected entries in one of {len(parts)} data objects, found {named.tolist()}")
    entries["part"] = named.searchsorted(entries["part"])
    return PackRoot(namespace, node_id, generation, tuple(parts[number] for number in named), entries)


def decode_pack_root(data: bytes, *, namespace: str, node_id: int) -> PackRoot:
    """Decode a root that `PackRoot.encode` of this or of another release encoded. O(size).

    Args:
        data: all bytes of the object at the node's root key.
        namespace: of the reader's cluster.
        node_id: the node of the requested root.

    Raises:
        HintProblem: corrupt; or foreign: of another cluster, node, or a newer release.
    """
    where = hint_root_key(HintKind.PACKS, node_id)
    stored = open_root(data, PACK_ROOT_FORM, where)
    check_identity(where, (stored.namespace, stored.node_id), (namespace, node_id))
    with damage_told(where):
        entries = unpack_columns(stored.entries, PACK_ENTRY, where)
        return PackRoot(namespace, node_id, stored.generation, tuple(stored.parts), entries)


def _find_flaw(root: PackRoot) -> str | None:
    if len(root.parts) > PARTS_MAX:
        return f"expected at most {PARTS_MAX} data objects, found {len(root.parts)}"
    hint_file_key(HintKind.PACKS, root.node_id, root.generation, HINT_ROOT_NAME)  # raises for numbers invalid in keys
    for number in range(len(root.parts)):
        root.part_key(number)
    entries = root.entries
    if not len(entries):
        return None
    _ = root.covered  # checks ids and sizes
    for name, most in (("part", len(root.parts) - 1), ("offset", 1 << 40), ("crc32", 2**32 - 1)):
        if not (entries[name].min() >= 0 and entries[name].max() <= most):
            return f"expected a {name} of 0 to {most} in each entry, found others"
    return _find_wrong_length(entries) or _find_misplaced(root)


def _find_misplaced(root: PackRoot) -> str | None:
    entries = root.entries
    part_sizes = np.array([part.size_bytes for part in root.parts], dtype=np.int64)
    if (entries["offset"] + entries["length"] > part_sizes[entries["part"]]).any():
        return "expected filters within their data objects, found others"
    entries = entries[np.lexsort((entries["offset"], entries["part"]))]
    before, after = entries[:-1], entries[1:]
    overlaps = (before["part"] == after["part"]) & (before["offset"] + before["length"] > after["offset"])
    return "expected filters that share no bytes, found others" if overlaps.any() else None


def _find_wrong_length(entries: NDArray[np.void]) -> str | None:
    """Check the filters' lengths, which follow from their capacities, since all filters of a pack are made for 1 %."""
    for capacity in np.unique(entries["capacity"]).tolist():
        lengths = entries["length"][entries["capacity"] == capacity]
        expected = HEADER_SIZE_BYTES + Geometry(capacity).filter_size_bytes
        if (lengths != expected).any():
            return f"expected filters of {expected} bytes for a capacity of {capacity}, found others"
    return None


SPAN_SIZE_BYTES_MAX = 16 << 20
GAP_SIZE_BYTES_MAX = 1 << 20
SPANS_FREE = 8
"""The number of reads up to which the limit of gaps is not raised."""


class DecodedFilters(NamedTuple):
    """The filters of a span.

    Attributes:
        filters: object id and filter, by position in the data object.
        bad: the number of filters that were left out.
    """

    filters: list[tuple[int, StreamFilter]]
    bad: int


@dataclass(slots=True)
class PackLoad:
    """Counts and problems of loading a pack so far. Threads: one at a time."""

    requests: int = 0
    bytes_read: int = 0
    filters: int = 0
    bad: int = 0
    problems: list[HintProblem] = field(default_factory=list)


def read_pack_root(store: ObjectStore, namespace: str, node_id: int) -> PackRoot:
    """Read a node's root. One request.

    Raises:
        HintProblem: there is no usable root.
        StoreError: the request failed.
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
    """The spans to read for the filters of these objects: at most 8 spans, or one a data object of usual size.

    Complexity: O(filters log filters).

    Args:
        root: the node's root.
        object_ids: the requested objects, in any order; those that the root does not cover are left out.
        sizes: their sizes.
        gap_size_bytes_max: unneeded bytes read to save a request, 1 MiB by default, whose transfer takes about the time
            of a request. If filters are so scattered that this results in more than 8 spans, larger gaps are read too.
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
    """All valid filters in the bytes of a span; about 40 us a filter of 10,000 ids.

    Raises:
        HintProblem: mixed: another number of bytes than requested.
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
    """Read the filters of these objects, by one request a span, one after another.

    A span that cannot be used is left out and its problem added to `load`; then the next span is read. Filters of other
    objects in the spans are returned as well: they are valid too.

    Args:
        store: the store of the pack.
        root: its root.
        object_ids: the requested objects.
        sizes: their sizes.
        load: counts requests, bytes and filters, if given.

    Raises:
        StoreError: a request failed.
    """
    load = PackLoad() if load is None else load
    for span in plan_pack_reads(root, object_ids, sizes):
        load.requests += 1
        try:
            body = read_span(store, span)
            decoded = decode_pack_span(root, span, body)
        except HintProblem as problem:
            load.problems.append(problem)
            continue
        load.bytes_read += len(body)
        load.filters += len(decoded.filters)
        load.bad += decoded.bad
        yield from decoded.filters


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


PART_SIZE_BYTES_MAX = 16 << 20
PARTS_FREE = 8
"""Up to this number of data objects, their number is no reason to copy them."""

PARTS_EXTRA_MAX = 4

FilterEntry = tuple[ObjectRef, StreamFilter]
"""An object, and the filter that was built for it."""


def write_pack(  # noqa: PLR0913 - the arguments are independent
    store: ObjectStore,
    *,
    namespace: str,
    node_id: int,
    generation: int,
    added: Iterable[FilterEntry],
    previous: PackRoot | None = None,
    dropped: Collection[int] = (),
    attempt: str = "0",
    part_size_bytes_max: int = PART_SIZE_BYTES_MAX,
) -> PackRoot:
    """Write a generation of a node's pack and swap the node's root.

    Complexity: O(added) bytes written, or all bytes if all filters are copied; one put a data object and two.

    Args:
        store: the store of the pack.
        namespace: of the cluster's objects.
        node_id: the node of the pack.
        generation: higher than that of ``previous`` (`next_generation`).
        added: objects with their filters, consumed one by one; they replace filters of the previous generation.
        previous: the generation before; None to write a whole pack.
        dropped: ids of objects of the previous generation that are no longer listed.
        attempt: part of the data objects' names; different for each process that writes one generation of a node.
        part_size_bytes_max: of a data object, 16 MiB by default; a data object holds at least one filter of any size.

    Raises:
        ValueError: an object twice among the added, or of unknown size; a filter that is not made for 1 %; a generation
            that is not higher.
        StoreError: nothing was changed, unless the swap of the root failed.
    """
    if previous is not None and generation <= previous.generation:
        raise ValueError(f"expected a generation above {previous.generation}, found {generation}")
    parts = _PartWriter(store, node_id, generation, attempt, part_size_bytes_max)
    for ref, stream_filter in added:
        parts.add(ref.object_id, ref.size_bytes, stream_filter)
    parts.flush()
    root = _merged(namespace, node_id, generation, parts, previous, dropped)
    if previous is not None and is_worn(root, part_size_bytes_max):
        root = _copied(store, root, previous, parts)
    swap_root(store, HintKind.PACKS, node_id, generation, root.encode())
    return root


def is_worn(root: PackRoot, part_size_bytes_max: int = PART_SIZE_BYTES_MAX) -> bool:
    """Whether to copy a pack to new data objects: more than half of it is dead, or they are too many. O(entries)."""
    needed = -(-root.live_size_bytes // part_size_bytes_max)
    many = len(root.parts) > max(PARTS_FREE, needed + PARTS_EXTRA_MAX)
    return many or root.dead_size_bytes > root.live_size_bytes


class _PartWriter:
    """Writes filters end to end to data objects. One thread at a time."""

    def __init__(
        self, store: ObjectStore, node_id: int, generation: int, attempt: str, part_size_bytes_max: int
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._generation = generation
        self._attempt = attempt
        self._part_size_bytes_max = part_size_bytes_max
        self._pending = bytearray()
        self._rows: list[tuple[int, ...]] = []
        self._object_ids: set[int] = set()
        self.parts: list[PackPart] = []

    def add(self, object_id: int, size_bytes: int, stream_filter: StreamFilter) -> None:
        if object_id in self._object_ids:
            raise ValueError(f"expected one filter for object {object_id}, found two")
        if object_id < 0 or size_bytes < 0:
            raise ValueError(f"expected an object of known id and size, found {object_id} of {size_bytes} bytes")
        if stream_filter.geometry.error_rate != ERROR_RATE:
            raise ValueError(f"expected a filter for {ERROR_RATE:.0%}, found {stream_filter.geometry.error_rate}")
        self._object_ids.add(object_id)
        stored = stream_filter.to_bytes()
        if self._pending and len(self._pending) + len(stored) > self._part_size_bytes_max:
            self.flush()
        place = len(self.parts), len(self._pending), len(stored), zlib.crc32(stored), stream_filter.geometry.capacity
        self._rows.append((object_id, size_bytes, *place))
        self._pending += stored

    def flush(self) -> None:
        """Write the pending filters as a data object."""
        if not self._pending:
            return
        name = f"filters-{self._attempt}-{len(self.parts):05d}"
        self._store.put(hint_file_key(HintKind.PACKS, self._node_id, self._generation, name), self._pending)
        self.parts.append(PackPart(self._generation, name, len(self._pending)))
        self._pending = bytearray()

    @property
    def entries(self) -> NDArray[np.void]:
        return np.array(self._rows, dtype=PACK_ENTRY)


def _merged(
    namespace: str,
    node_id: int,
    generation: int,
    written: _PartWriter,
    previous: PackRoot | None,
    dropped: Collection[int],
) -> PackRoot:
    added = written.entries
    if previous is None:
        return make_pack_root(namespace, node_id, generation, written.parts, added)
    old_ids = previous.entries["object_id"]
    gone = np.isin(old_ids, np.fromiter(dropped, np.int64, len(dropped))) | np.isin(old_ids, added["object_id"])
    added["part"] += len(previous.parts)
    entries = np.concatenate([previous.entries[~gone], added])
    return make_pack_root(namespace, node_id, generation, [*previous.parts, *written.parts], entries)


def _copied(store: ObjectStore, root: PackRoot, previous: PackRoot, parts: _PartWriter) -> PackRoot:
    """The same pack in data objects of this generation; damaged filters of earlier generations are left out.

    Data objects that this generation has already written are kept.
    """
    fresh = {number for number, part in enumerate(root.parts) if part.generation == root.generation}
    old = root.entries[~np.isin(root.entries["part"], list(fresh))]
    sizes = dict(zip(old["object_id"].tolist(), old["size_bytes"].tolist(), strict=True))
    for object_id, stream_filter in _kept_filters(store, previous, old):
        if object_id in sizes:
            parts.add(object_id, sizes[object_id], stream_filter)
    parts.flush()
    return make_pack_root(root.namespace, root.node_id, root.generation, parts.parts, parts.entries)


def _kept_filters(store: ObjectStore, previous: PackRoot, old: NDArray[np.void]) -> Iterator[tuple[int, StreamFilter]]:
    return load_pack(store, previous, old["object_id"], old["size_bytes"])


BAD_SHARE = 0.0125
"""Expected false positives above which a filter is built again."""


def expected_false_positives(stream_filter: StreamFilter) -> float:
    """The share of absent streams that the filter fails to exclude; O(bits), about 50 us for 10,000 ids."""
    shape = stream_filter.geometry
    slices = stream_filter.unpacked_bits().reshape(shape.slices, shape.bits_per_slice)
    return float(np.prod(slices.mean(axis=1)))


def is_bad(stream_filter: StreamFilter) -> bool:
    """Whether more than 1.25 % of absent streams are expected to pass the filter."""
    return expected_false_positives(stream_filter) > BAD_SHARE
