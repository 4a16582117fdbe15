"""Lookups of a process that maintains its catalog beside them, against the same lookups alone.

`maintenance`: two threads look up random offsets of a node of 600 objects, cold, 150 lookups each in a round; requests
have the latencies of `LatencyModel`, and the index cache begins empty for every 10 lookups. Ours runs a `Maintainer` on
the same store meanwhile, which compacts the node and builds its hints, within its default budget; it is begun anew,
on a fresh copy of the bucket, in each round. The values are the 99th percentiles of the lookups of a round. The goal is
a ratio of 0.83: at most 1.2 times as long.
"""

from __future__ import annotations

import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

from accel import MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.catalog import ObjectCatalog
from accel.catalog.job_runs import COMPACT
from accel.compaction import CompactionSettings
from accel.maintenance import Maintainer, MaintenanceSettings
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, Spread
from loaders.format import RecordBatch
from loaders.object_writer import ObjectWriter
from loaders.store import CountingStore, MemoryStore
from loaders.tables import FormatRecord

NODE_ID: Final = 4
OBJECTS: Final = 600
STREAMS: Final = 60
PAYLOAD_BYTES: Final = 1_000
THREADS: Final = 2
LOOKUPS: Final = 150
COLD_LOOKUPS: Final = 10
SEED: Final = 20261126
GOAL: Final = 1 / 1.2
KEPT: Final = MaintenanceSettings(compaction=CompactionSettings(max_objects_per_node=100, min_age_seconds=0))


def run(rounds: int = 7) -> list[Comparison]:
    """99th percentiles of lookups, of all rounds of both sides, alternately."""
    bucket, image = filled()
    ours: list[float] = []
    alone: list[float] = []
    for number in range(rounds + 1):
        pair = _round(bucket, image, number, is_maintained=True), _round(bucket, image, number, is_maintained=False)
        if number:
            ours.append(pair[0])
            alone.append(pair[1])
    value, peer = statistics.median(ours), statistics.median(alone)
    line = Comparison.exact("maintenance: lookups beside it, p99", value, "ms", "the same alone", peer, GOAL)
    return [replace(line, runs=rounds, spread=Spread.of(ours), peer_spread=Spread.of(alone))]


def filled() -> tuple[MemoryStore, MetadataImage]:
    """A bucket with a catalog of one node, whose objects all hold all streams, and its image."""
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="bench"))
    with ObjectCatalog.open(store) as catalog, catalog.open_node(NODE_ID) as node:
        node.open_streams(range(STREAMS))
        for number in range(OBJECTS):
            [object_id] = node.prepare()
            with ObjectWriter(store, catalog.parts.layout, object_id) as writer:
                for stream_id in range(STREAMS):
                    writer.write(stream_id, [RecordBatch(stream_id, 1, number, 1, b"p" * PAYLOAD_BYTES)])
            node.commit_upload(writer.ref, dict.fromkeys(range(STREAMS), (number, number + 1)))
        return store, catalog.image()


def _round(bucket: MemoryStore, image: MetadataImage, number: int, *, is_maintained: bool) -> float:
    """The 99th percentile of the lookups of a round, in milliseconds."""
    copy = MemoryStore()
    for info in bucket.list(""):
        found = bucket.get(info.key)
        copy.put(info.key, found.body, mark=found.mark)
    store = CountingStore(LatencyStore(copy, random.Random(SEED + number), _sleep), SYSTEM.timer)
    with Maintainer(store, KEPT) as maintainer:
        if is_maintained:
            maintainer.start()
        with ThreadPoolExecutor(THREADS) as threads:
            looked_up = partial(_look_up, store, image, number)
            seconds = [each for found in threads.map(looked_up, range(THREADS)) for each in found]
        if is_maintained and not maintainer.begun[COMPACT]:
            raise AnswersDiffer("expected a compaction beside the lookups, found none")
    return statistics.quantiles(seconds, n=100)[98] * 1e3


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


def _look_up(store: CountingStore, image: MetadataImage, number: int, thread: int) -> list[float]:
    chosen, seconds = random.Random(f"{number}/{thread}"), []
    for _ in range(LOOKUPS // COLD_LOOKUPS):
        with ReadAccelerator(StaticImages(image), store, settings=Settings(use_hints=False)) as accelerator:
            for _ in range(COLD_LOOKUPS):
                at, stream_id = chosen.randrange(OBJECTS), chosen.randrange(STREAMS)
                began = time.perf_counter()
                answer = accelerator.get_objects(stream_id, at, at + 1, 1)
                seconds.append(time.perf_counter() - began)
                if len(answer.objects) != 1:
                    raise AnswersDiffer(f"expected one object with offset {at}, found {len(answer.objects)}")
    return seconds
