"""30 days with nobody but two maintainers: killed at any write, with clocks that are a year off, on a busy store.

A look is made each half hour instead of each minute, and a lease lasts three looks, as it does by default. Bounds:

    lists      `max_objects_per_node`, and the uploads of the time in which a dead holder is waited for
    hints      an object is in no hint for an hour at most, and the slack
    garbage    an object that was replaced, or never committed, is deleted a day after it may be deleted, and the slack

The slack is what two holders cost that die one after the other, a job that is repeated, and three looks that fail.

In the end nothing is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

import pytest

from accel.catalog.job_runs import JOBS, MAINTAIN, read_runs
from accel.compaction import CompactionSettings
from accel.errors import StoreUnavailable
from accel.hint_building.stored import stored_hints
from accel.maintenance import Maintainer, MaintenanceSettings, lease
from accel.maintenance import settings as limits
from accel.maintenance.settings import DAY_SECONDS, HINT_SECONDS, RETRY_SECONDS
from accel.testing import ClockStore, Crash, CrashStore, Fault, FaultStore
from loaders.store import ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.compaction.world import Cluster
from tests.world import FORMAT, HOUR_SECONDS, LAYOUT, World

Answer = TypeVar("Answer")

NODES, UPLOADS_A_DAY, RETENTION_DAYS = (4, 5), 12, 3
SETTINGS = MaintenanceSettings(compaction=CompactionSettings(max_objects_per_node=20))
LOOK_SECONDS = 1800.0
YEAR_SECONDS = 365 * DAY_SECONDS
LEASE_SECONDS = 3 * LOOK_SECONDS
SLACK_SECONDS = 2 * (LEASE_SECONDS + LOOK_SECONDS) + RETRY_SECONDS + 3 * LOOK_SECONDS


class Busy(DecoratedStore):
    """Refuses requests beyond a number in one second of the world's clock, on some days."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float], requests_max: int) -> None:
        super().__init__(store)
        self._clock, self._requests_max = clock, requests_max
        self._second, self._requests, self.refused = 0, 0, 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        second = int(self._clock())
        self._requests = self._requests + 1 if second == self._second else 1
        self._second = second
        if self._requests > self._requests_max and int(second // DAY_SECONDS) % 3 == 1:
            self.refused += 1
            raise StoreUnavailable(call.operation, call.key, "SlowDown: reduce your request rate")
        return send()


@dataclass
class Month:
    """Two nodes that upload, two processes that maintain, and what may not grow."""

    random: Random = field(default_factory=lambda: Random("thirty days"))
    counts: Counter[str] = field(default_factory=Counter)
    longest: int = 0
    unhinted_since: dict[int, float] = field(default_factory=dict)
    unlisted_since: dict[int, float] = field(default_factory=dict)
    worst_seconds: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.world = World()
        self.cluster = Cluster(self.world, self.world.open(self.world.memory))
        self.busy = Busy(self.world.memory, self.world.clock, 20)
        self.maintainers: dict[int, Maintainer] = {number: self.started(number) for number in (0, 1)}

    def started(self, number: int) -> Maintainer:
        """A new process, whose host's clock is a year off or right, and which dies before one of its writes."""
        off_seconds = self.random.choice([0.0, -YEAR_SECONDS, YEAR_SECONDS])
        system = replace(self.world.system, clock=lambda: self.world.clock() + off_seconds)
        faults = FaultStore(self.busy, rng=self.random, probabilities={Fault.SLOW_DOWN: 0.01, Fault.LOST_REPLY: 0.005})
        mortal = CrashStore(faults, self.random.randrange(20, 200))
        self.counts[f"started {number}"] += 1
        return Maintainer(ClockStore(mortal, self.world.clock), SETTINGS, system=system, tell=self.hear)

    def hear(self, line: str) -> None:
        self.counts[" ".join(line.split()[:2])] += 1

    def look(self) -> None:
        for number in self.random.sample((0, 1), 2):
            try:
                self.maintainers[number].look()
            except Crash:
                self.maintainers[number] = self.started(number)
            self.measure()

    def measure(self) -> None:
        """Note how long the lists are, and for how long objects are in no hint, or lie in the bucket unlisted."""
        now, state = self.world.clock(), self.cluster.catalog.refresh_state()
        unhinted, listed = set(), set()
        for node_id, node_list in state.node_lists().items():
            self.longest = max(self.longest, len(node_list.live))
            listed |= {*node_list.live["object_id"].tolist()}
            found = stored_hints(self.world.memory, LAYOUT.namespace, node_id, node_list.live, now_seconds=now)
            unhinted |= {node_id} if any(each.covered < each.listed for each in found) else set()
        self.note("hints", self.unhinted_since, unhinted)
        self.note("garbage", self.unlisted_since, self.world.object_ids() - listed)

    def note(self, what: str, since: dict[int, float], now_so: set[int]) -> None:
        now = self.world.clock()
        for each in since.keys() - now_so:
            del since[each]
        for each in now_so:
            self.worst_seconds[what] = max(self.worst_seconds[what], int(now - since.setdefault(each, now)))

    def run(self, days: int) -> None:
        ends: list[dict[int, int]] = []
        for hour in range(24 * days):
            for node in NODES if hour % (24 // UPLOADS_A_DAY) == 0 else ():
                self.cluster.upload(node, {10 * node: 2, 10 * node + 1: 2})
            if hour % 24 == 23:
                streams = [10 * node + number for node in NODES for number in (0, 1)]
                ends.append({each: self.cluster.writer(each // 10).end(each) or 0 for each in streams})
                if len(ends) > RETENTION_DAYS:
                    self.cluster.catalog.trim(ends[-RETENTION_DAYS - 1])
            self.look()
            began = self.world.clock()
            self.world.wait(HOUR_SECONDS - LOOK_SECONDS)
            self.look()
            self.world.wait(max(0.0, began + HOUR_SECONDS - self.world.clock()))


@pytest.mark.parametrize("days", [3, 30], ids=["3 days", "30 days"])
def test_lists_hints_and_garbage_stay_within_their_bounds(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", LEASE_SECONDS)
    monkeypatch.setattr(limits, "PARALLEL_REQUESTS", 1)  # so that faults strike the same requests in each run
    month = Month()
    month.run(days)
    print(month.counts, month.longest, month.worst_seconds, month.busy.refused)  # noqa: T201 - shown if it fails
    assert month.longest <= 20 + 2
    assert month.worst_seconds["hints"] <= HINT_SECONDS + SLACK_SECONDS
    assert month.worst_seconds["garbage"] <= DAY_SECONDS + FORMAT.orphan_seconds + SLACK_SECONDS
    found = read_runs(month.cluster.catalog.parts.keys.tables).by_kind
    runs = [run for kind in JOBS for run in found[kind].value.runs]
    assert all(run.trigger for run in runs)
    assert {run.status for kind in found for run in found[kind].value.runs} >= {"done", "not ended"}
    assert len(found[MAINTAIN].value.runs) > days
    assert month.busy.refused > 0
    month.cluster.check()
    month.cluster.check_ends()
