"""The range index against a simple implementation: the bytes of an entry.

Both sides insert objects of many streams, as uploads write them: each stream is in some of a node's objects. A node
uploads an object of about 9,000 streams at a time, so the entries of one stream are inserted far apart from each other.
Unless an index packs the data of a stream, these data are scattered over memory.

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
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from benchmarks.harness import AnswersDiffer, Comparison
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


ENTRIES_OF_STREAM = 20


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
