"""A map of one stream's objects and their known contents, for the sidecar's console and for explanations.

Nothing is loaded: the map is made from the current image, and from the index, filters and sketches in memory.

    marks   xxkkk?.??k      one for each listed object, oldest first
            k   known to hold the stream, with its offsets
            .   known not to hold it
            x   excluded, by a filter or by the list's sketch
            ?   unknown: a lookup may have to open it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from accel.errors import UnknownStream
from accel.image import OPEN_END, UNKNOWN, MetadataImage, NodeImage, StreamImage, version_number
from accel.lookup.known_ranges import KnownRanges, columns_of, join_ranges
from accel.lookup.search_requests import IndexCache

OBJECTS_MAX: Final = 20_000
"""The maximum number of objects of each node in a map, around an offset or at the end of the list."""

EXPLAINED_MAX: Final = 2_000
"""The maximum number of objects of each node in the map of an explanation, which notebooks store."""

Span = tuple[int, int]


class NodeMap(msgspec.Struct, frozen=True):
    """One node's list, with the known ranges of a stream.

    Args:
        node_id: the node.
        owned: [start, end) of the offsets that it owns; an end of -1 is open.
        listed: the number of objects in its list.
        first: position of the first mark: 0 unless the list has more than the 20,000 objects of a map.
        marks: one character for each object, see above.
        known: [position, object id, start, end] of each object that is known to hold the stream, by position.
        holes: [start, end) of owned offsets that provably no listed object holds.
    """

    node_id: int
    owned: list[Span]
    listed: int
    first: int
    marks: str
    known: list[tuple[int, int, int, int]]
    holes: list[Span]


class StreamMap(msgspec.Struct, frozen=True):
    """The map of a stream.

    Args:
        stream_id: the stream.
        start: its first kept offset.
        image_version: of the current image, as one number.
        nodes: the nodes that own, or owned, offsets of the stream, in that order.
        stream_objects: [object id, start, end] of its stream objects.
        listed_bytes: size of all objects of these lists, and of its stream objects; -1 if the image lacks a size.
    """

    stream_id: int
    start: int
    image_version: int
    nodes: list[NodeMap]
    stream_objects: list[tuple[int, int, int]]
    listed_bytes: int


def map_stream(
    image: MetadataImage,
    index_cache: IndexCache,
    stream_id: int,
    offset: int | None = None,
    *,
    objects_max: int = OBJECTS_MAX,
) -> StreamMap:
    """The map of a stream. Pure but for the index cache, whose lock it takes; loads nothing.

    Args:
        image: the current image.
        index_cache: index and filters.
        stream_id: the stream.
        offset: if a list has more than `objects_max` objects, the map has those around this offset; None = the last.
        objects_max: of each node.

    Raises:
        UnknownStream: the image does not have the stream.

    Complexity: O(objects of the nodes that own it + known ranges).
    """
    stream = image.streams.get(stream_id)
    if stream is None:
        raise UnknownStream(stream_id, str(image.version))
    own = [(each.ref.object_id, each.start, each.end) for each in stream.stream_objects]
    nodes = dict.fromkeys(owned.node_id for owned in stream.ranges)
    lists = [image.node(node_id) for node_id in nodes]
    maps = [_node_map(node, index_cache, stream, offset, objects_max) for node in lists]
    version = version_number(image.version)
    return StreamMap(stream_id, stream.start_offset, version, maps, own, _listed_bytes(lists, stream))


def _listed_bytes(lists: Iterable[NodeImage], stream: StreamImage) -> int:
    sizes = [*(node.size_bytes for node in lists), *(each.ref.size_bytes for each in stream.stream_objects)]
    return UNKNOWN if UNKNOWN in sizes else sum(sizes)


def _first_shown(ranges: KnownRanges, listed: int, offset: int | None, objects_max: int) -> int:
    """The first position of a map with the offset in its middle."""
    if offset is None or not len(ranges.positions):
        return max(0, listed - objects_max)
    at = min(int(np.searchsorted(ranges.starts, offset, side="right")), len(ranges.positions) - 1)
    return max(0, min(int(ranges.positions[at]) - objects_max // 2, listed - objects_max))


def _node_map(
    node: NodeImage, index_cache: IndexCache, stream: StreamImage, offset: int | None, objects_max: int
) -> NodeMap:
    facts = index_cache.facts(node, stream.stream_id)
    excluded = node.excludes(stream.stream_id)
    ruled_out = facts.filtered if excluded is None else facts.filtered | excluded
    ranges = join_ranges(columns_of(facts.view, node), ~(facts.loaded | ruled_out), {})
    marks = np.full(len(node), "?", dtype="<U1")
    marks[ruled_out] = "x"
    marks[facts.loaded] = "."
    marks[ranges.positions] = "k"
    owned = [(each.start, each.end) for each in stream.ranges if each.node_id == node.node_id]
    if stream.ranges[-1].node_id == node.node_id:
        owned[-1] = (owned[-1][0], OPEN_END)
    first = _first_shown(ranges, len(node), offset, objects_max)
    end = first + objects_max
    return NodeMap(
        node_id=node.node_id,
        owned=owned,
        listed=len(node),
        first=first,
        marks="".join(marks[first:end].tolist()),
        known=[row for row in _rows(ranges, node.object_ids) if first <= row[0] < end],
        holes=list(_holes(ranges, owned, stream)),
    )


def _rows(ranges: KnownRanges, object_ids: NDArray[np.int64]) -> list[tuple[int, int, int, int]]:
    columns = (ranges.positions, object_ids[ranges.positions], ranges.starts, ranges.ends)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def _holes(ranges: KnownRanges, owned: list[Span], stream: StreamImage) -> Iterator[Span]:
    """Offsets between two known neighbours without unknown objects between them, without parts of other holders."""
    if not ranges.ordered:
        return
    unknown = np.cumsum(ranges.unknown)
    before = unknown[ranges.positions[:-1]]
    after = unknown[ranges.positions[1:]]
    proven = (ranges.ends[:-1] < ranges.starts[1:]) & (before == after)
    own = [(each.start, each.end) for each in stream.stream_objects]
    for at in np.flatnonzero(proven).tolist():
        start, end = max(int(ranges.ends[at]), stream.start_offset), int(ranges.starts[at + 1])
        for low, high in owned:
            upper = end if high == OPEN_END else min(end, high)
            yield from _without((max(start, low), upper), own)


def _without(span: Span, taken: Iterable[Span]) -> Iterator[Span]:
    """The parts of a span outside others, which ascend."""
    start, end = span
    for low, high in taken:
        if low >= end:
            break
        if start < low:
            yield start, low
        start = max(start, high)
    if start < end:
        yield start, end
