"""Bytes an entry of the range index: 200,000 streams with 20 entries each, from 440 objects of about 9,000 streams.

The peer is a dictionary that has a SortedDict for each stream, start -> (end, object id): what a tree map per stream
is in Python. Both sides are counted by tracemalloc, so that every container counts with all that it takes; our own
count, ``nbytes``, must agree with it.

The first line is the index as it stands after the objects came: their packed arrays. The second adds the view of a
stream, as if every stream had been asked for within the time to live; it is measured on every fortieth.
"""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Callable

from sortedcontainers import SortedDict

from benchmarks.harness import AnswersDiffer, Comparison
from benchmarks.range_objects import NODE, MadeObject, make_objects
from range_index import StreamRangeIndex

STREAMS = 200_000
ENTRIES_OF_STREAM = 20
VIEWED_STREAMS = range(0, STREAMS, 40)
ARRAY_BYTES_MAX = 128 * 1024 * 1024

Trees = dict[int, SortedDict]


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - bytes do not vary, so there is one round
    """Without views, and with a view of every stream."""
    objects = list(make_objects(STREAMS, ENTRIES_OF_STREAM))
    index = StreamRangeIndex(timer=lambda: 0.0, jitter=lambda: 0.5, array_bytes_max=ARRAY_BYTES_MAX)
    array_bytes = _bytes_of(lambda: _insert(index, objects))
    view_bytes = _bytes_of(lambda: _ask(index))
    _compare_counts(index, array_bytes + view_bytes)
    trees: Trees = {}
    peer_bytes = _bytes_of(lambda: _plant(trees, objects))
    _compare_answers(index, trees)
    all_views_bytes = view_bytes * STREAMS // len(VIEWED_STREAMS)
    return [
        _line("index_memory", array_bytes, peer_bytes, goal=4),
        _line("index_memory_all_views", array_bytes + all_views_bytes, peer_bytes, goal=None),
    ]


def _line(name: str, our_bytes: int, peer_bytes: int, goal: float | None) -> Comparison:
    entries = STREAMS * ENTRIES_OF_STREAM
    return Comparison(
        name=name,
        value=our_bytes / entries,
        unit="B an entry",
        peer="dict of SortedDict",
        peer_value=peer_bytes / entries,
        ratio=peer_bytes / our_bytes,
        runs=1,
        goal=goal,
    )


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
    if not math.isclose(index.nbytes, traced_bytes, rel_tol=0.1):
        raise AnswersDiffer(f"bytes of the index: it counts {index.nbytes}, and takes {traced_bytes}")


def _compare_answers(index: StreamRangeIndex, trees: Trees) -> None:
    for stream_id in range(0, STREAMS, 997):
        ours = [entry[:3] for entry in index.view(NODE, stream_id)]
        theirs = [(start, *value) for start, value in trees[stream_id].items()]
        if ours != theirs:
            raise AnswersDiffer(f"entries of stream {stream_id}: ours {ours}, the peer {theirs}")
