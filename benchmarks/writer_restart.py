"""How long a writer takes to come back after its process was killed, on a store as slow as S3.

A stream of 8 segments, 300 flushes of 50 events of 100 bytes, then the process dies. Ours and the peer come back on
`LatencyStore` (half of all requests within 15 ms, 99 % within 100 ms), default settings: catalog, session of the node,
writer. The peer is the same on a catalog that was not told when appends arrived, as by earlier releases, so that the
time indexes are read from the data. Both must have the same time indexes then.

    writer_restart: seconds    from nothing to a writer that takes events
    writer_restart: requests   of the writer alone, whose session is open
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from accel import FormatRecord, ObjectCatalog, ObjectSegments, StreamConfiguration, StreamStore, StreamWriter
from accel.catalog.records import Checkpoint, NodeList
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import Comparison, interleave
from loaders.store import CountingStore, MemoryStore

NODE: Final = 4
SEGMENTS: Final = 8
FLUSHES: Final = 300
EVENTS: Final = [(bytes(100), f"key-{number}") for number in range(50)]
ROUNDS_MAX: Final = 3
REQUESTS_GOAL: Final = 30

Indexes = list[tuple[int, int, int]]
"""Of each segment: its id, records, and where the last one ends."""


class Killed:
    """A stream whose process was killed; it may come back any number of times.

    Args:
        is_told: whether its catalog knows when appends arrived.
    """

    def __init__(self, *, is_told: bool) -> None:
        self._memory = MemoryStore()
        self._is_told = is_told
        self._chance = random.Random(1)
        self.requests = 0
        _write(self._memory)

    def come_back(self) -> Indexes:
        """One restart, of which the process is killed at once."""
        if not self._is_told:
            _forget(self._memory)
        store = CountingStore(LatencyStore(self._memory, self._chance, _sleep))
        with ObjectCatalog.open(store) as catalog:
            host = ObjectSegments(catalog, store, node_id=NODE)
            stream = StreamStore.open(store, host=host).stream("bench", "events")
            store.reset()
            StreamWriter(stream, host)
            self.requests = store.snapshot().total.requests
            opened = sorted(host._segments.listed(), key=lambda segment: segment.segment_id)  # noqa: SLF001 - the time indexes themselves
            found = [(segment.segment_id, segment.index.records, segment.index.end_offset) for segment in opened]
            host.stop()
        return found


def run(rounds: int = 7) -> list[Comparison]:
    """Seconds and requests of a restart."""
    ours, peer = Killed(is_told=True), Killed(is_told=False)
    timings = interleave(ours.come_back, peer.come_back, rounds=min(rounds, ROUNDS_MAX))
    told = "time indexes read from the data"
    return [
        timings.compare("writer_restart: seconds", peer=told, unit="s"),
        Comparison.exact(
            "writer_restart: requests", ours.requests, "requests", told, peer.requests, peer.requests / REQUESTS_GOAL
        ),
    ]


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


def _write(store: MemoryStore) -> None:
    ObjectCatalog.init(store, FormatRecord(namespace="bench"))
    with ObjectCatalog.open(store) as catalog:
        host = ObjectSegments(catalog, store, node_id=NODE)
        streams = StreamStore.open(store, host=host)
        streams.create_scope("bench")
        stream = streams.create_stream("bench", "events", StreamConfiguration(min_segments=1), segments=SEGMENTS)
        writer = StreamWriter(stream, host)
        for _ in range(FLUSHES):
            writer.write_many(EVENTS)
            writer.flush()
        host.stop()


def _forget(store: MemoryStore) -> None:
    def without_times(now: NodeList | None) -> NodeList | None:
        return None if now is None else replace(now, times=now.times[:0])

    def checkpoint_without_times(now: Checkpoint | None) -> Checkpoint | None:
        return None if now is None else replace(now, times=now.times[:0])

    with ObjectCatalog.open(store) as catalog:
        catalog.parts.keys.node_list(NODE).change(without_times)
        catalog.parts.keys.checkpoint(NODE).change(checkpoint_without_times)
