"""The parts of a metadata image: streams with their owners and own objects, nodes with their ordered lists.

All parts are immutable and checked when they are made: a lookup need not ask again whether ranges overlap or two
objects share a place. A contradiction is refused with `ImageRefused`, which names the stream or the node.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accel.errors import ImageRefused
from loaders.lifetime import Lazy
from loaders.object_ref import UNKNOWN, ObjectRef

OPEN_END = -1
"""As the end of a range: no end yet. As the end of a request: as far as there is data."""


@dataclass(frozen=True, slots=True)
class OwnershipRange:
    """Stream offsets [start, end) were written by one node; the last range of a stream has no end, whatever it says."""

    range_index: int
    start: int
    end: int
    node_id: int


@dataclass(frozen=True, slots=True)
class StreamObject:
    """An object that holds offsets [start, end) of one stream, and nothing else."""

    ref: ObjectRef
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StreamImage:
    """One stream: its first kept offset, who wrote it, and the objects that are its own.

    `ranges` and `stream_objects` ascend by start; `range_starts` and `object_starts` repeat those starts for bisection.
    """

    stream_id: int
    start_offset: int
    ranges: tuple[OwnershipRange, ...]
    stream_objects: tuple[StreamObject, ...]
    range_starts: tuple[int, ...]
    object_starts: tuple[int, ...]

    def owner(self, offset: int) -> OwnershipRange | None:
        """The range that holds ``offset``; the last one has no end. Complexity: O(log ranges)."""
        index = bisect.bisect_right(self.range_starts, offset) - 1
        if index < 0:
            return None
        found = self.ranges[index]
        is_last = index == len(self.ranges) - 1
        return found if is_last or offset < found.end else None


@dataclass(frozen=True, eq=False)
class NodeImage:
    """One node's stream set objects in the order of their order ids, as columns.

    What only lookups ask for (`position_of`, `ref`, `refs`) is made when it is first asked for, and kept: an image of
    many long lists costs little until its nodes are read from. Threads: any.

    Args:
        node_id: the node.
        object_ids: in list order.
        order_ids: strictly ascending.
        sizes_bytes, index_sizes_bytes, attributes, tail_checksums: as in `ObjectRef`, -1 where unknown.
    """

    node_id: int
    object_ids: NDArray[np.int64]
    order_ids: NDArray[np.int64]
    sizes_bytes: NDArray[np.int64]
    index_sizes_bytes: NDArray[np.int64]
    attributes: NDArray[np.int64]
    tail_checksums: NDArray[np.int64]
    _by_id: NDArray[np.int64] = field(repr=False)
    _made: dict[int, ObjectRef] = field(repr=False, init=False, default_factory=dict)

    def __len__(self) -> int:
        return len(self.object_ids)

    @Lazy
    def position_of(self) -> Mapping[int, int]:
        """Object id -> position in the list."""
        return dict(zip(self.object_ids.tolist(), range(len(self)), strict=True))

    @Lazy
    def refs(self) -> tuple[ObjectRef, ...]:
        """The same objects one by one; `ref` makes single ones."""
        return tuple(map(ObjectRef, *(column.tolist() for column in self._columns_of_refs())))

    def ref(self, position: int) -> ObjectRef:
        """The object at a position."""
        try:
            return self._made[position]
        except KeyError:
            columns = (self.object_ids, self.sizes_bytes, self.index_sizes_bytes, self.attributes, self.tail_checksums)
            object_id, size, index_size, attributes, checksum = (int(column[position]) for column in columns)
            made = self._made[position] = ObjectRef(object_id, size, index_size, attributes, checksum)
            return made

    def positions(self, object_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of many ids at once, -1 for those that are not listed. Complexity: O(ids * log objects)."""
        if not len(self):
            return np.full(len(object_ids), -1, dtype=np.int64)
        slots = np.searchsorted(self.object_ids, object_ids, sorter=self._by_id)
        positions = self._by_id[np.minimum(slots, len(self) - 1)]
        return np.where(self.object_ids[positions] == object_ids, positions, -1)

    def same_list(self, other: NodeImage) -> bool:
        """Whether both list the same objects with the same facts in the same order."""
        pairs = zip(
            (self.order_ids, *self._columns_of_refs()), (other.order_ids, *other._columns_of_refs()), strict=True
        )
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def _columns_of_refs(self) -> tuple[NDArray[np.int64], ...]:
        return (self.object_ids, self.sizes_bytes, self.index_sizes_bytes, self.attributes, self.tail_checksums)


def make_node(node_id: int, objects: Iterable[tuple[int, ObjectRef]]) -> NodeImage:
    """A node's list from (order id, object) pairs in any order.

    Raises:
        ImageRefused: two objects share an order id, or one object is listed twice.
    """
    pairs = sorted(objects, key=lambda pair: pair[0])
    return node_of_columns(
        node_id,
        object_ids=np.array([ref.object_id for _, ref in pairs], dtype=np.int64),
        order_ids=np.array([order for order, _ in pairs], dtype=np.int64),
        sizes_bytes=np.array([ref.size_bytes for _, ref in pairs], dtype=np.int64),
        index_sizes_bytes=np.array([ref.index_size_bytes for _, ref in pairs], dtype=np.int64),
        attributes=np.array([ref.attributes for _, ref in pairs], dtype=np.int64),
        tail_checksums=np.array([ref.tail_checksum for _, ref in pairs], dtype=np.int64),
    )


def node_of_columns(
    node_id: int,
    *,
    object_ids: NDArray[np.int64],
    order_ids: NDArray[np.int64],
    sizes_bytes: NDArray[np.int64],
    index_sizes_bytes: NDArray[np.int64],
    attributes: NDArray[np.int64],
    tail_checksums: NDArray[np.int64] | None = None,
) -> NodeImage:
    """A node's list from columns of equal length, in list order; they are kept, and made read-only.

    Without checksums of tails none is known.

    Raises:
        ImageRefused: order ids that do not ascend, or one object is listed twice.

    Complexity: O(n log n), no loop in Python.
    """
    behind = np.flatnonzero(order_ids[1:] <= order_ids[:-1])
    if len(behind):
        at = int(behind[0])
        raise ImageRefused(
            f"node {node_id}: expected each order id once, ascending, found {order_ids[at + 1]} after {order_ids[at]}"
        )
    by_id = np.argsort(object_ids, kind="stable")
    ascending = object_ids[by_id]
    repeated = np.flatnonzero(ascending[1:] == ascending[:-1])
    if len(repeated):
        raise ImageRefused(f"node {node_id}: expected each object once, found object {ascending[repeated[0]]} twice")
    checksums = np.full(len(object_ids), UNKNOWN, dtype=np.int64) if tail_checksums is None else tail_checksums
    columns = (object_ids, order_ids, sizes_bytes, index_sizes_bytes, attributes, checksums, by_id)
    return NodeImage(node_id, *map(frozen, columns))


def make_stream(
    stream_id: int,
    start_offset: int,
    ranges: Sequence[OwnershipRange],
    stream_objects: Sequence[StreamObject],
) -> StreamImage:
    """A stream from its parts in any order.

    Raises:
        ImageRefused: a negative or inverted range, or ownership ranges that overlap.
    """
    ordered = tuple(sorted(ranges, key=lambda one: one.range_index))
    for one in ordered:
        _check_span(f"stream {stream_id}, range {one.range_index}", one.start, one.end, may_be_open=True)
    for before, after in itertools.pairwise(ordered):
        if before.end == OPEN_END or before.end > after.start:
            raise ImageRefused(
                f"stream {stream_id}: expected range {after.range_index} to start at or after the end of range "
                f"{before.range_index}, found [{before.start}, {before.end}) and [{after.start}, {after.end})"
            )
    objects = tuple(sorted(stream_objects, key=lambda one: one.start))
    for each in objects:
        _check_span(f"stream {stream_id}, object {each.ref.object_id}", each.start, each.end, may_be_open=False)
    starts = tuple(one.start for one in ordered)
    return StreamImage(stream_id, start_offset, ordered, objects, starts, tuple(each.start for each in objects))


def frozen(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same array, no longer writable."""
    column.flags.writeable = False
    return column


def _check_span(what: str, start: int, end: int, *, may_be_open: bool) -> None:
    if start < 0 or (end < start and not (may_be_open and end == OPEN_END)):
        raise ImageRefused(f"{what}: expected 0 <= start <= end, found [{start}, {end})")
