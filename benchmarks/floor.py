"""Which object holds this offset of this stream? 40,000 random questions about warm streams.

Both sides are fed the same objects in the same order, and are asked for a node, a stream and an offset. The peer is
what one writes first: dictionaries that lead to a sorted list of (start, end, object id) for each stream, and bisect.
The second peer keeps the starts in a list of their own beside the entries, so that bisect compares plain numbers.

Ours does more for each answer: it looks at the time, asks whether the node changed since, notes the use and counts it.
It makes up for that by packing, which only shows when streams are many: on a handful of streams, where everything lies
in the processor's cache, the dictionary of lists answers in half the time.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections.abc import Callable

import numpy as np

from benchmarks.harness import AnswersDiffer, Comparison, interleave
from benchmarks.range_objects import NODE, MadeObject, make_objects
from range_index import StreamRangeIndex

STREAMS = 50_000
ENTRIES_OF_STREAM = 20
QUESTIONS = 40_000
INFINITY = float("inf")

Row = tuple[int, int, int]
Lists = dict[int, dict[int, list[Row]]]
Floor = Callable[[int, int, int], tuple[int, ...] | None]


def run(rounds: int = 7) -> list[Comparison]:
    """Against dictionaries of lists, and against dictionaries of pairs of lists."""
    objects = list(make_objects(STREAMS, ENTRIES_OF_STREAM))
    questions = _make_questions(objects)
    ours = _our_index(objects).floor
    lists = _lists(objects)
    peer = _compare("floor", ours, "dict of lists with bisect", _floor_in(lists), questions, rounds)
    split = _compare("floor_split", ours, "... starts in lists of their own", _floor_in_split(lists), questions, rounds)
    return [peer, split]


def _compare(
    name: str, ours: Floor, peer_name: str, peer: Floor, questions: list[tuple[int, int]], rounds: int
) -> Comparison:
    for stream_id, offset in questions:
        entry, row = ours(NODE, stream_id, offset), peer(NODE, stream_id, offset)
        if (entry and entry[:3]) != row:
            raise AnswersDiffer(f"floor of {offset} in stream {stream_id}: ours {entry}, the peer {row}")
    timings = interleave(_asker(ours, questions), _asker(peer, questions), rounds=rounds)
    return timings.compare(name, peer=peer_name, unit="us", calls=len(questions), goal=1 if name == "floor" else None)


def _asker(floor: Floor, questions: list[tuple[int, int]]) -> Callable[[], int]:
    # The answers have been compared one by one; their sum shows that they stay the same, without keeping them.
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
    stream_ids = generator.integers(0, STREAMS, QUESTIONS).tolist()
    return list(zip(stream_ids, generator.integers(0, offset_max, QUESTIONS).tolist(), strict=True))


def _our_index(objects: list[MadeObject]) -> StreamRangeIndex:
    index = StreamRangeIndex(timer=time.monotonic, jitter=lambda: 0.5, ttl_seconds=3600)  # noqa: TID251 - a timer passed in
    for one in objects:
        index.insert(NODE, one.object_id, one.ranges())
    for stream_id in range(STREAMS):
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
