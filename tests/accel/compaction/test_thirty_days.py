"""30 days of a cluster: retention, deleted streams, and three objects that cannot be read any more.

Space, requests and lists stay within bounds that follow from the uploads of a day, U:

    space      (R + 2) U for R days of retention: the day that is being written, and what compactions have replaced,
               which waits for a day
    lists      `max_objects_per_node`
    requests   of a day's jobs: no more in the last days than in the days after the first deletions
    writing    two bytes for each uploaded one, by merges and rewrites together

In the end nothing is missing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from accel.catalog.bad_objects import Cause, set_aside_of
from accel.catalog.collect import collect, plan_collection
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.errors import AccessDenied
from loaders.store import CountingStore
from tests.accel.compaction.test_bad_objects import Faults
from tests.accel.compaction.world import Cluster
from tests.world import HOUR_SECONDS, LAYOUT, Watched, World

NODE, OTHERS = 4, (5, 6)
DAYS, RETENTION_DAYS, UPLOADS_A_DAY = 30, 5, 8
SETTINGS = CompactionSettings(max_objects_per_node=30)
BAD_FROM_DAY, BAD_UNTIL_DAY = 7, 7 + RETENTION_DAYS + 2
LENGTH = 4


@dataclass
class Month:
    """Three nodes with two streams each that last, and one that is deleted after three days.

    Args:
        has_bad_objects: whether an object of the first node is damaged, another denied, and another lost.
    """

    has_bad_objects: bool
    faults: Faults = field(default_factory=Faults)
    space_bytes: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    longest: dict[int, int] = field(default_factory=dict)
    bad: dict[int, Cause] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = World()
        self.store = CountingStore(Watched(self.world.memory, self.faults.refuse))
        self.cluster = Cluster(self.world, self.world.open(self.store))
        self.ends: deque[dict[int, int]] = deque(maxlen=RETENTION_DAYS)
        self.uploaded_bytes = self.rewritten_bytes = 0

    def day(self, day: int) -> None:
        """Uploads, a compaction after each, and then retention, deletions and a collection."""
        work = 0
        for _ in range(UPLOADS_A_DAY):
            self.world.wait(24 * HOUR_SECONDS / UPLOADS_A_DAY)
            for node in (NODE, *OTHERS):
                lasting = {10 * node: LENGTH, 10 * node + 1: LENGTH}
                ref = self.cluster.upload(node, {**lasting, self.passing(node, day): 1})
                self.uploaded_bytes += ref.size_bytes
                self.longest[node] = max(self.longest.get(node, 0), len(self.cluster.live_ids(node)))
            before = self.store.snapshot()
            with self.world.open(self.store) as catalog:
                self.rewritten_bytes += compact(catalog, plan_compaction(catalog, SETTINGS)).rewritten_bytes
            work += (self.store.snapshot() - before).total.requests
        self.let_go(day)
        before = self.store.snapshot()
        with self.world.open(self.store) as catalog:
            collect(catalog, plan_collection(catalog))
        self.requests.append(work + (self.store.snapshot() - before).total.requests)
        self.space_bytes.append(
            sum(info.size_bytes for info in self.world.memory.list("") if LAYOUT.parse_object_key(info.key) is not None)
        )

    def passing(self, node: int, day: int) -> int:
        """The stream that a node writes for three days."""
        return 1000 * node + day // 3

    def let_go(self, day: int) -> None:
        """Trim to the retention, and delete the stream that has ended."""
        if len(self.ends) == RETENTION_DAYS:
            self.cluster.catalog.trim(self.ends[0])
        streams = [10 * node + number for node in (NODE, *OTHERS) for number in (0, 1)]
        self.ends.append({each: self.cluster.writer(each // 10).end(each) or 0 for each in streams})
        if day % 3 == 2:
            for node in (NODE, *OTHERS):
                stream_id = self.passing(node, day)
                del self.cluster.owners[stream_id]
                [end] = self.cluster.writer(node).close_streams([stream_id]).values()
                self.cluster.trim(stream_id, end)

    def go_bad(self) -> None:
        """Damage a block of an object, deny another, and lose another."""
        damaged, denied, lost = (self.cluster.live_ids(NODE)[-place] for place in (12, 8, 4))
        body = self.world.memory.get(LAYOUT.object_key(damaged)).body
        self.world.memory.put(LAYOUT.object_key(damaged), bytes([body[0] ^ 0xFF]) + body[1:])
        self.faults.by_key[LAYOUT.object_key(denied)] = AccessDenied
        self.world.memory.delete(LAYOUT.object_key(lost))
        self.bad = {damaged: Cause.BLOCK, denied: Cause.DENIED, lost: Cause.MISSING}

    def run(self) -> None:
        for day in range(DAYS):
            if self.has_bad_objects and day == BAD_FROM_DAY:
                self.go_bad()
            self.day(day)
            if self.has_bad_objects and day == BAD_UNTIL_DAY:
                assert not self.bad.keys() & set(self.cluster.live_ids(NODE))
                state = self.cluster.catalog.refresh_state()
                assert [row for each in state.node_lists().values() for row in set_aside_of(each)] == []


@pytest.mark.parametrize("has_bad_objects", [False, True], ids=["all objects are sound", "three objects are bad"])
def test_space_requests_and_lists_stay_within_their_bounds_for_thirty_days(*, has_bad_objects: bool) -> None:
    month = Month(has_bad_objects)
    month.run()
    uploaded_a_day = month.uploaded_bytes / DAYS
    assert max(month.space_bytes) <= (RETENTION_DAYS + 2) * uploaded_a_day
    assert max(month.longest.values()) <= SETTINGS.max_objects_per_node
    assert month.rewritten_bytes <= 2 * month.uploaded_bytes
    settled = month.requests[BAD_UNTIL_DAY : BAD_UNTIL_DAY + 8]
    assert max(month.requests[-8:]) <= 1.2 * max(settled)
    month.cluster.check()
    month.cluster.check_ends()
