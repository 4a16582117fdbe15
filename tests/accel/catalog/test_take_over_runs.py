"""Nodes that take streams from each other, in random orders of their requests, with faults, pauses and deaths.

Each node believes now and then that another one is dead, mostly wrongly, and takes some of its streams over; each goes
on to write what it believes to own. The oracle knows what was acknowledged: each of it is found once, in its place, and
streams have no hole. `tests.accel.catalog.simulation` has the scheduler and the bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from accel.catalog import NodeWriter, ObjectCatalog
from accel.errors import CommitRefused, SessionFenced, StreamsReleased
from loaders.errors import KeyMissing, StoreError, TableError
from tests.accel.catalog.simulation.bucket import Bucket
from tests.accel.catalog.simulation.scheduler import Died, Scheduler
from tests.accel.catalog.world import held
from tests.examples import examples

STREAMS = (1, 2, 3)
NODES = (4, 5, 6)
STEPS = 900
SETTLE_TRIES = 3


class Owner:
    """A node: session after session, each of which writes, takes over, pauses and dies."""

    def __init__(self, bucket: Bucket, node_id: int, acknowledged: dict[tuple[int, int], int]) -> None:
        self.bucket, self.node_id, self.acknowledged = bucket, node_id, acknowledged

    def body(self) -> None:
        random = self.bucket.random
        while True:
            self.bucket.scheduler.doom(random.randrange(5, 80) if random.random() < 0.4 else None)
            try:
                self.live(self.bucket.open())
            except Died:
                self.bucket.count("deaths")
            except (SessionFenced, CommitRefused) as error:
                self.bucket.count(type(error).__name__)
            except (StoreError, TableError) as error:
                self.bucket.count("keys missing" if isinstance(error, KeyMissing) else "store errors")
            self.bucket.scheduler.doom(None)

    def live(self, catalog: ObjectCatalog) -> None:
        random = self.bucket.random
        writer = catalog.open_node(self.node_id)
        for _ in range(random.randrange(5, 30)):
            if random.random() < 0.1:
                self.bucket.scheduler.stall(random.randrange(1, 6), random.uniform(0, 2))
            try:
                if random.random() < 0.35:
                    self.take(catalog, writer)
                else:
                    self.write(writer)
            except StreamsReleased as error:
                self.bucket.count("released")
                if random.random() < 0.5:
                    writer.open_streams(error.stream_ids)
                    self.bucket.count("taken back")

    def take(self, catalog: ObjectCatalog, writer: NodeWriter) -> None:
        random = self.bucket.random
        image = catalog.refresh()
        wanted = {}
        for stream_id in random.sample(STREAMS, random.randrange(1, 3)):
            if stream_id not in image.streams:
                writer.open_streams([stream_id])
            elif (last := image.streams[stream_id].ranges[-1]).end == -1 and last.node_id != self.node_id:
                wanted[stream_id] = last.node_id
        if wanted:
            writer.take_over(wanted)
            self.bucket.count("taken over")

    def write(self, writer: NodeWriter) -> None:
        random = self.bucket.random
        mine = {each: end for each in STREAMS if (end := writer.end(each)) is not None}
        if not mine:
            return
        spans = [(each, end, end + random.randrange(1, 4)) for each, end in mine.items() if random.random() < 0.7]
        if not spans:
            return
        [object_id] = writer.prepare()
        ref, ranges = self.bucket.write(object_id, spans)
        for attempt in range(SETTLE_TRIES):
            try:
                writer.commit_upload(ref, ranges)
            except (StoreError, TableError):
                if attempt == SETTLE_TRIES - 1:
                    raise
            else:
                for stream_id, start, end in spans:
                    assert (stream_id, start) not in self.acknowledged
                    self.acknowledged[stream_id, start] = end
                self.bucket.count("commits")
                return


def check(bucket: Bucket, acknowledged: dict[tuple[int, int], int]) -> None:
    with ObjectCatalog.open(bucket.memory, system=bucket.system) as catalog:
        for stream_id in set(STREAMS) & set(catalog.refresh().streams):
            found = [(start, end) for _, start, end in held(catalog, stream_id)]
            assert [start for start, _ in found] == [0, *(end for _, end in found)][: len(found)], (stream_id, found)
            told = {start: end for (each, start), end in acknowledged.items() if each == stream_id}
            assert told.items() <= set(found), (stream_id, sorted(told.items() - set(found)))
            end = 0
            for owned in catalog.refresh().streams[stream_id].ranges:
                assert owned.start == end
                end = owned.end


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """What the runs of this module were about, all together."""
    total: Counter[str] = Counter()
    yield total
    wanted = {"commits", "taken over", "released", "taken back", "deaths", "SessionFenced", "CommitRefused"}
    assert total["keys missing"] == 0
    assert not total or wanted - {what for what, number in total.items() if number} == set()


@pytest.mark.parametrize("block", range(examples(4)))
def test_each_acknowledged_commit_is_there_once_and_in_order(block: int, counts: Counter[str]) -> None:
    for seed in range(block * 3, block * 3 + 3):
        scheduler = Scheduler(seed)
        bucket = Bucket(seed, scheduler)
        acknowledged: dict[tuple[int, int], int] = {}
        for number, node_id in enumerate((*NODES, NODES[0])):  # the last one fences the first, and is fenced
            scheduler.spawn(f"node {node_id}, {number}", Owner(bucket, node_id, acknowledged).body)
        scheduler.run(STEPS, lambda: None)
        check(bucket, acknowledged)
        counts.update(bucket.oracle.counts)
