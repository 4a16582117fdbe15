"""The range index against simple implementations: the time of a lookup, and the bytes of an entry.

Both sides insert objects of many streams, as uploads write them: each stream is in some of a node's objects. A node
uploads an object of about 9,000 streams at a time, so the entries of one stream are inserted far apart from each other.
Unless an index packs the data of a stream, these data are scattered over memory.

`floor`: which object holds this offset of this stream? 40,000 random lookups of warm streams.

Both sides have the same objects in the same order, and look up a node, a stream and an offset. The first peer is the
simplest implementation: dictionaries of a sorted list of (start, end, object id) for each stream, and bisect. The
second peer keeps the starts in separate lists beside the entries, so that bisect compares plain numbers.

Ours does more for each answer: it reads the clock, checks whether the node changed since, records the use and counts
it. Packing compensates for that, but only with many streams: with few streams, whose data are all in the processor's
cache, the dictionary of lists answers in half the time.

`index_memory`: bytes of an entry: 200,000 streams with 20 entries each, from 440 objects of about 9,000 streams. The
peer is a dictionary with a SortedDict for each stream, start -> (end, object id), Python's equivalent of a tree map per
stream. tracemalloc counts both sides, so that containers are counted with all their memory; our own count, ``nbytes``,
must agree with it except for the reserve below.

The first line is the index after the insertion of the objects: their packed arrays, and the free capacity of the newest
chunk, which is reserved address space until it is written to. The second adds the view of a stream, as if every stream
had been looked up within the time to live; it is measured on every fortieth stream.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from benchmarks.harness import AnswersDiffer, Comparison, interleave
from range_index import ObjectRanges, StreamRangeIndex
from range_index.stream_index import CHUNKS_OF_ALL

STREAMS_OF_OBJECT = 9_000
NODE = 4


@dataclass(frozen=True, slots=True)
class MadeObject:
    """One object: its id and its rows, ascending by stream."""

    object_id: int
    stream_ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def ranges(self) -> ObjectRanges:
        """The same as separate arrays, as a parser makes them."""
        return ObjectRanges.from_columns(self.stream_ids.copy(), self.starts.copy(), self.ends.copy())

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Stream id, start, end of each row, as a loop over rows reads them."""
        return zip(self.stream_ids.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)


def make_objects(streams: int, entries_of_stream: int, *, seed: int = 20) -> Iterator[MadeObject]:
    """Objects in order of upload, so that each stream is in ``entries_of_stream`` of them, offsets without gaps."""
    generator = np.random.default_rng(seed)
    next_offsets = generator.integers(0, 1000, streams)
    object_id = 0
    for _ in range(entries_of_stream):
        for group in np.array_split(generator.permutation(streams), max(1, round(streams / STREAMS_OF_OBJECT))):
            stream_ids = np.sort(group)
            starts = next_offsets[stream_ids]
            ends = starts + generator.integers(1, 200, len(stream_ids))
            next_offsets[stream_ids] = ends
            yield MadeObject(object_id, stream_ids, starts, ends)
            object_id += 1


FLOOR_STREAMS = 50_000
ENTRIES_OF_STREAM = 20
QUESTIONS = 40_000
INFINITY = float("inf")

Row = tuple[int, int, int]
Lists = dict[int, dict[int, list[Row]]]
Floor = Callable[[int, int, int], tuple[int, ...] | None]


def run_floor(rounds: int = 7) -> list[Comparison]:
    """Against dictionaries of lists, and against dictionaries of pairs of lists."""
    objects = list(make_objects(FLOOR_STREAMS, ENTRIES_OF_STREAM))
    questions = _make_questions(objects)
    ours = _our_index(objects).floor
    lists = _lists(objects)
    peer = _compare_floor("floor", ours, "dict of lists with bisect", _floor_in(lists), questions, rounds)
    split = _compare_floor(
        "floor_split", ours, "... starts in lists of their own", _floor_in_split(lists), questions, rounds
    )
    return [peer, split]


def _compare_floor(
    name: str, ours: Floor, peer_name: str, peer: Floor, questions: list[tuple[int, int]], rounds: int
) -> Comparison:
    for stream_id, offset in questions:
        entry, row = ours(NODE, stream_id, offset), peer(NODE, stream_id, offset)
        if (entry and entry[:3]) != row:
            raise AnswersDiffer(f"floor of {offset} in stream {stream_id}: ours {entry}, the peer {row}")
    timings = interleave(_asker(ours, questions), _asker(peer, questions), rounds=rounds)
    return timings.compare(name, peer=peer_name, unit="us", calls=len(questions), goal=1 if name == "floor" else None)


def _asker(floor: Floor, questions: list[tuple[int, int]]) -> Callable[[], int]:
    # The answers have been compared one by one; their sum shows that they stay the same, without storing them.
    def ask() -> int:
        total = 0
        for stream_id, offset in questions:
            entry = floor(NODE, stream_id, offset)
            if entry is not None:
                total += entry[2]
        return total

    return ask


def _make_questions(objects: list[MadeObject]) -> list[tuple[int, int]]:
    generator = np.random.default_rng(40_000)
    offset_max = max(int(one.ends.max()) for one in objects)
    stream_ids = generator.integers(0, FLOOR_STREAMS, QUESTIONS).tolist()
    return list(zip(stream_ids, generator.integers(0, offset_max, QUESTIONS).tolist(), strict=True))


def _our_index(objects: list[MadeObject]) -> StreamRangeIndex:
    index = StreamRangeIndex(timer=time.monotonic, jitter=lambda: 0.5, ttl_seconds=3600)  # noqa: TID251 - a timer passed in
    for one in objects:
        index.insert(NODE, one.object_id, one.ranges())
    for stream_id in range(FLOOR_STREAMS):
        index.view(NODE, stream_id)
    return index


def _lists(objects: list[MadeObject]) -> Lists:
    lists: Lists = {NODE: {}}
    for one in objects:
        for stream_id, start, end in one.rows():
            insort(lists[NODE].setdefault(stream_id, []), (start, end, one.object_id))
    return lists


def _floor_in(lists: Lists) -> Floor:
    def floor(node_id: int, stream_id: int, offset: int) -> Row | None:
        entries = lists[node_id][stream_id]
        position = bisect_right(entries, (offset, INFINITY))
        return entries[position - 1] if position else None

    return floor


def _floor_in_split(lists: Lists) -> Floor:
    split = {
        node_id: {stream_id: ([row[0] for row in entries], entries) for stream_id, entries in streams.items()}
        for node_id, streams in lists.items()
    }

    def floor(node_id: int, stream_id: int, offset: int) -> Row | None:
        starts, entries = split[node_id][stream_id]
        position = bisect_right(starts, offset)
        return entries[position - 1] if position else None

    return floor


MEMORY_STREAMS = 200_000
VIEWED_STREAMS = range(0, MEMORY_STREAMS, 40)
ARRAY_BYTES_MAX = 128 * 1024 * 1024

Trees = dict[int, SortedDict]


def run_memory(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - bytes do not vary, so there is one round
    """Without views, and with a view of every stream."""
    objects = list(make_objects(MEMORY_STREAMS, ENTRIES_OF_STREAM))
    index = StreamRangeIndex(timer=lambda: 0.0, jitter=lambda: 0.5, array_bytes_max=ARRAY_BYTES_MAX)
    array_bytes = _bytes_of(lambda: _insert(index, objects))
    view_bytes = _bytes_of(lambda: _ask(index))
    _compare_counts(index, array_bytes + view_bytes)
    trees: Trees = {}
    peer_bytes = _bytes_of(lambda: _plant(trees, objects))
    _compare_answers(index, trees)
    all_views_bytes = view_bytes * MEMORY_STREAMS // len(VIEWED_STREAMS)
    return [
        _line("index_memory", array_bytes, peer_bytes, goal=17.5),
        _line("index_memory_all_views", array_bytes + all_views_bytes, peer_bytes, goal=None),
    ]


def _line(name: str, our_bytes: int, peer_bytes: int, goal: float | None) -> Comparison:
    entries = MEMORY_STREAMS * ENTRIES_OF_STREAM
    ours, peers = our_bytes / entries, peer_bytes / entries
    return Comparison.exact(name, ours, "B an entry", "dict of SortedDict", peers, goal)


def _bytes_of(work: Callable[[], None]) -> int:
    gc.collect()
    tracemalloc.start()
    work()
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept


def _insert(index: StreamRangeIndex, objects: list[MadeObject]) -> None:
    for one in objects:
        index.insert(NODE, one.object_id, one.ranges())


def _ask(index: StreamRangeIndex) -> None:
    for stream_id in VIEWED_STREAMS:
        index.view(NODE, stream_id)


def _plant(trees: Trees, objects: list[MadeObject]) -> None:
    for one in objects:
        for stream_id, start, end in one.rows():
            tree = trees.get(stream_id)
            if tree is None:
                tree = trees[stream_id] = SortedDict()
            tree[start] = (end, one.object_id)


def _compare_counts(index: StreamRangeIndex, traced_bytes: int) -> None:
    reserve_bytes = ARRAY_BYTES_MAX // CHUNKS_OF_ALL
    if not 0.95 * index.nbytes <= traced_bytes <= 1.05 * index.nbytes + reserve_bytes:
        raise AnswersDiffer(f"bytes of the index: expected {traced_bytes}, as traced, found nbytes of {index.nbytes}")


def _compare_answers(index: StreamRangeIndex, trees: Trees) -> None:
    for stream_id in range(0, MEMORY_STREAMS, 997):
        ours = [entry[:3] for entry in index.view(NODE, stream_id)]
        theirs = [(start, *value) for start, value in trees[stream_id].items()]
        if ours != theirs:
            raise AnswersDiffer(f"entries of stream {stream_id}: ours {ours}, the peer {theirs}")
