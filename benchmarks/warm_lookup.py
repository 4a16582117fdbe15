"""A lookup whose answer is in memory, against the algorithm of the production system with everything in memory too.

That algorithm, without a start hint, looks up the stream in the object index of each of the node's objects, and then
goes through the list. Here each of 5,000 indexes has 9,000 streams, as a sorted list of ids; the indexes share the
list, which keeps it in the processor's caches, in the peer's favour. Ours is the public call,
`ReadAccelerator.get_objects`, which finds the floor of the offset in the stream's view. Both return the same four
objects, which is checked between the rounds.

`warm_many`: `get_objects_many` of 1, 10 and 1,000 streams whose answers are in memory, against `get_objects` once for
each stream. Each stream has an entry in each of 40 objects, and the lookup is for four objects in the middle.

Both are measured in processor time of the thread: neither side waits, and on a shared machine the peer's rounds of
milliseconds would be interrupted more often than ours, in our favour.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from itertools import islice, pairwise

from accel import Answer, MetadataImage, ObjectRef, ReadAccelerator, Request, Settings, StaticImages
from benchmarks.cold_requests import NODE_ID, OBJECTS_MAX, STREAM_ID, Node, make_cold_node
from benchmarks.harness import Comparison, Timings, interleave
from loaders.store import MemoryStore

LIMIT = 4
LOOKUPS = 20
STREAMS_PER_OBJECT = 9_000
SEED = 20261122

Found = list[tuple[int, int, int]]


def run(rounds: int = 7) -> list[Comparison]:
    """Limit 4 at the head, in the middle and at the tail of 5,000 objects, and the three together."""
    node = make_cold_node(OBJECTS_MAX, 1.0, SEED)
    plain = _PlainSearch(node)
    places = {"head": 2, "middle": len(node.holders) // 2, "tail": len(node.holders) - LIMIT}
    starts = {name: [node.holders[index][1]] for name, index in places.items()}
    starts["mean"] = [start for of_place in list(starts.values()) for start in of_place]
    with ReadAccelerator(StaticImages(node.image), MemoryStore(), settings=Settings(parallel_loads=1)) as accelerator:
        for position, held in node.ranges.items():
            accelerator.object_committed(NODE_ID, ObjectRef(position), held)
        return [_compare(name, accelerator, plain, asked, rounds) for name, asked in starts.items()]


def _compare(
    name: str, accelerator: ReadAccelerator, plain: _PlainSearch, starts: list[int], rounds: int
) -> Comparison:
    # Ours is too fast to be timed once: it runs 20 times a round, the peer once.
    def ours() -> list[Answer]:
        for _ in range(LOOKUPS - 1):
            for start in starts:
                accelerator.get_objects(STREAM_ID, start, limit=LIMIT)
        return [accelerator.get_objects(STREAM_ID, start, limit=LIMIT) for start in starts]

    def theirs() -> list[Found]:
        return [plain.get_objects(start) for start in starts]

    timings = interleave(ours, theirs, rounds=rounds, same=_same, timer=time.thread_time)
    timings = Timings([seconds / LOOKUPS for seconds in timings.ours_seconds], timings.peer_seconds)
    peer = "look in all 5,000 objects, then walk"
    goal = 300 if name == "mean" else None
    return timings.compare(f"warm_lookup_{name}", peer=peer, unit="us", calls=len(starts), goal=goal)


def _same(ours: object, theirs: object) -> bool:
    assert isinstance(ours, list)
    return [[(found.object_id, found.start, found.end) for found in answer.objects] for answer in ours] == theirs


class _PlainSearch:
    """The production algorithm over plain Python data: every object's index as a sorted list of stream ids."""

    def __init__(self, node: Node) -> None:
        others = (stream_id for stream_id in range(1, 10**9, 97) if stream_id != STREAM_ID)
        stream_ids = sorted([STREAM_ID, *islice(others, STREAMS_PER_OBJECT - 1)])
        self._slot = stream_ids.index(STREAM_ID)
        spans = {position: (first, end) for position, first, end in node.holders}
        self._indexes = [(stream_ids, {self._slot: spans[position]}) for position in node.ranges]

    def get_objects(self, start: int) -> Found:
        """Up to four objects from ``start`` on, without a gap."""
        held = [(position, *span) for position, index in enumerate(self._indexes) if (span := _look(index)) is not None]
        begin = next(number for number, (_, first, end) in enumerate(held) if first <= start < end)
        answer = held[begin : begin + LIMIT]
        for (_, _, end), (_, first, _) in pairwise(answer):
            if end != first:
                raise AssertionError(f"expected no gap, found one from {end} to {first}")
        return answer


def _look(index: tuple[list[int], dict[int, tuple[int, int]]]) -> tuple[int, int] | None:
    stream_ids, spans = index
    slot = bisect_left(stream_ids, STREAM_ID)
    return spans.get(slot) if slot < len(stream_ids) and stream_ids[slot] == STREAM_ID else None


MANY_OBJECTS = 40
MANY_STREAMS = 1_000
MANY_GOALS = {1: None, 10: 1.0, MANY_STREAMS: 1.1}
"""Streams of one call -> the ratio to reach. A call of one has nothing to share."""

OFFSETS = 100
REPEATED_LOOKUPS = 1_000


def run_many(rounds: int = 7) -> list[Comparison]:
    """Calls of 1, 10 and 1,000 streams; the value is that of one stream."""
    ranges = [{"range_index": 0, "start": 0, "end": -1, "node_id": NODE_ID}]
    listed = [{"object_id": each, "order_id": each} for each in range(MANY_OBJECTS)]
    image = MetadataImage.from_dict(
        {
            "streams": [{"stream_id": each, "start_offset": 0, "ranges": ranges} for each in range(MANY_STREAMS)],
            "nodes": [{"node_id": NODE_ID, "stream_set_objects": listed}],
        }
    )
    with ReadAccelerator(StaticImages(image), MemoryStore(), settings=Settings(parallel_loads=1)) as accelerator:
        for each in range(MANY_OBJECTS):
            held = [(stream_id, each * OFFSETS, (each + 1) * OFFSETS) for stream_id in range(MANY_STREAMS)]
            accelerator.object_committed(NODE_ID, ObjectRef(each), held)
        return [_compare_many(accelerator, streams, goal, rounds) for streams, goal in MANY_GOALS.items()]


def _compare_many(accelerator: ReadAccelerator, streams: int, goal: float | None, rounds: int) -> Comparison:
    starts = [(stream_id, MANY_OBJECTS // 2 * OFFSETS + stream_id % OFFSETS) for stream_id in range(streams)]
    calls = REPEATED_LOOKUPS // streams  # so that a round of each size is long enough to be timed

    def ours() -> list[list[object]]:
        return [
            list(accelerator.get_objects_many([Request(stream_id, start, limit=LIMIT) for stream_id, start in starts]))
            for _ in range(calls)
        ]

    def theirs() -> list[list[object]]:
        return [
            [accelerator.get_objects(stream_id, start, limit=LIMIT) for stream_id, start in starts]
            for _ in range(calls)
        ]

    timings = interleave(ours, theirs, rounds=rounds, timer=time.thread_time)
    peer = f"get_objects once for each of {streams:,} streams"
    return timings.compare(f"warm_many_{streams}", peer=peer, unit="us", calls=calls * streams, goal=goal)
