"""What maintenance begins by itself, and when it stops: the three ways to have it, thresholds, records, the lease."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

import accel
from accel.catalog import ObjectCatalog
from accel.catalog.job_runs import (
    BUILD_HINTS,
    COMPACT,
    GC,
    JOBS,
    MAINTAIN,
    JobRun,
    JobRuns,
    read_runs,
    recorded,
    runs_key,
)
from accel.compaction import CompactionSettings
from accel.errors import InvalidArgument, WrongProcess
from accel.maintenance import Maintainer, MaintenanceSettings
from accel.maintenance.budget import BudgetedStore
from accel.maintenance.settings import (
    COMPACT_SECONDS,
    DAY_SECONDS,
    GC_SECONDS,
    HINT_SECONDS,
    LEASE_SECONDS,
    LOOK_SECONDS,
    RETRY_SECONDS,
)
from accel.server import Sidecar, SidecarSettings
from accel.system import SYSTEM
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.store import CountingStore, ObjectStore, open_store
from loaders.store.decorated import StoreCall
from tests.accel.cli.worlds import Bucket
from tests.accel.compaction.world import Cluster
from tests.accel.server.asking import filled
from tests.processes.children import in_child
from tests.spark_jobs.worlds import fill, make_catalog
from tests.world import Watched, World

NODE = 4
SETTINGS = MaintenanceSettings(compaction=CompactionSettings(max_objects_per_node=8, min_age_seconds=0))


class Kept:
    """A node that uploads, and one maintainer, in simulated time."""

    def __init__(self) -> None:
        self.world = World()
        self.cluster = Cluster(self.world, self.world.open(self.world.memory))
        self.lines: list[str] = []

    def maintainer(self, store: ObjectStore | None = None) -> Maintainer:
        return Maintainer(store or self.world.memory, SETTINGS, system=self.world.system, tell=self.lines.append)

    def upload(self, number: int) -> None:
        for _ in range(number):
            self.world.wait(10.0)
            self.cluster.upload(NODE, {40: 1, 41: 1})

    def runs(self, *kinds: str) -> list[tuple[str, str]]:
        """Kinds and states of the runs."""
        found = read_runs(self.cluster.catalog.parts.keys.tables).by_kind
        return [(kind, run.status) for kind in kinds or JOBS if kind in found for run in found[kind].value.runs]

    def last(self, kind: str) -> JobRun:
        return read_runs(self.cluster.catalog.parts.keys.tables).by_kind[kind].value.runs[-1]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_job_begins_when_its_threshold_is_passed_and_its_record_says_why(kept: Kept) -> None:
    kept.upload(3)
    with kept.maintainer() as maintainer:
        assert maintainer.look() == LOOK_SECONDS
        first = kept.runs()
        maintainer.look()
        assert kept.runs() == first, "nothing is due again"
        kept.upload(9)
        kept.world.wait(COMPACT_SECONDS)
        maintainer.look()
        assert len(kept.cluster.live_ids(NODE)) <= 8
        assert "above 8 objects" in kept.last(COMPACT).trigger
        assert "new object" in kept.last(BUILD_HINTS).trigger
        kept.world.wait(kept.cluster.catalog.format.retired_seconds + GC_SECONDS)
        maintainer.look()
        assert "may be deleted" in kept.last(GC).trigger
        assert kept.last(GC).items > 0
        assert kept.last(GC).requests > 0
    assert {status for _, status in kept.runs(*JOBS, MAINTAIN)} == {"done"}
    assert all(kept.last(kind).trigger for kind in (*JOBS, MAINTAIN))
    assert maintainer.begun.total() == len(kept.runs()) == len(kept.lines)
    kept.cluster.check()


def test_a_list_that_grows_is_compacted_before_the_hour_has_passed(kept: Kept) -> None:
    kept.upload(10)
    with kept.maintainer() as maintainer:
        maintainer.look()
        assert kept.runs(COMPACT) == [(COMPACT, "done")]
        kept.upload(9)
        maintainer.look()
    assert kept.runs(COMPACT) == [(COMPACT, "done")] * 2


def test_hints_follow_a_few_new_objects_after_an_hour(kept: Kept) -> None:
    kept.upload(1)
    with kept.maintainer() as maintainer:
        maintainer.look()
        kept.upload(1)
        for seconds, number in ((HINT_SECONDS - 100, 1), (200, 2)):
            kept.world.wait(seconds)
            maintainer.look()
            assert len(kept.runs(BUILD_HINTS)) == number


@pytest.mark.parametrize("status", ["failed", "not ended", "done", "stopped"])
def test_a_run_of_somebody_else_is_respected_and_repeated_sooner_if_it_failed(kept: Kept, status: str) -> None:
    began_ms = int(kept.world.clock() * 1000)
    outcome, ended_ms = ("", None) if status == "not ended" else (status, began_ms)
    run = JobRun(run_id="a", version="", engine="local", began_ms=began_ms, ended_ms=ended_ms, outcome=outcome)
    with kept.world.open() as catalog, recorded(catalog.parts, GC):
        pass
    key = runs_key(kept.cluster.catalog.parts.keys.tables, COMPACT)
    key.change(lambda _: JobRuns(runs=(run,)))
    kept.upload(9)
    kept.world.wait(RETRY_SECONDS)
    with kept.maintainer() as maintainer:
        maintainer.look()
    assert (maintainer.begun[COMPACT] == 0) == (status == "done")


def test_a_record_of_a_clock_in_the_future_holds_nothing_up(kept: Kept) -> None:
    future_ms = int((kept.world.clock() + 365 * DAY_SECONDS) * 1000)
    run = JobRun(run_id="a", version="", engine="", began_ms=future_ms, ended_ms=future_ms, outcome="done")
    with kept.world.open() as catalog, recorded(catalog.parts, GC):
        pass
    for kind in JOBS:
        runs_key(kept.cluster.catalog.parts.keys.tables, kind).change(lambda _: JobRuns(runs=(run,)))
    kept.upload(9)
    with kept.maintainer() as maintainer:
        maintainer.look()
    assert maintainer.begun == {COMPACT: 1, BUILD_HINTS: 1, GC: 1}


# The lease


def test_a_second_one_waits_and_takes_over_when_the_first_ends(kept: Kept) -> None:
    kept.upload(9)
    first, second = kept.maintainer(), kept.maintainer()
    first.look()
    second.look()
    assert second.begun.total() == 0
    first.close()
    second.look()
    assert [status for _, status in kept.runs(MAINTAIN)] == ["done", "not ended"]


def test_a_dead_holder_is_replaced_after_its_lease_by_no_clock(kept: Kept) -> None:
    first, second = kept.maintainer(), kept.maintainer()
    first.look()
    second.look()
    kept.world.wait(LEASE_SECONDS - 1)
    second.look()
    assert len(kept.runs(MAINTAIN)) == 1
    kept.world.wait(1)
    second.look()
    assert len(kept.runs(MAINTAIN)) == 2
    first.look()  # it was only held up, and finds that it lost
    assert len(kept.runs(MAINTAIN)) == 2
    kept.world.wait(LEASE_SECONDS)
    second.look()
    first.close()
    assert kept.last(MAINTAIN).ended_ms is None, "who lost the lease does not end that of another one"


def test_a_holder_that_renews_keeps_the_lease_for_days(kept: Kept) -> None:
    first, second = kept.maintainer(), kept.maintainer()
    for _ in range(100):
        first.look()
        second.look()
        kept.world.wait(LOOK_SECONDS)
    assert len(kept.runs(MAINTAIN)) == 1
    assert kept.last(MAINTAIN).items >= 100


def test_a_lease_that_is_lost_within_a_job_ends_the_job_and_costs_no_data(kept: Kept) -> None:
    kept.upload(20)
    other = kept.maintainer()

    def take_over(call: StoreCall) -> None:
        if call.operation == "put" and "/job-runs/" not in call.key and not other.begun:
            other.look()
            kept.world.wait(LEASE_SECONDS)
            other.look()

    slow = kept.maintainer(Watched(kept.world.memory, take_over))
    slow.look()
    assert other.begun[COMPACT] == 0, "a job that still runs is not begun a second time at once"
    assert ("compact", "stopped") in kept.runs()
    kept.world.wait(RETRY_SECONDS)
    other.look()
    assert len(kept.cluster.live_ids(NODE)) <= 8
    kept.cluster.check()


def test_a_lost_reply_of_the_lease_neither_loses_it_nor_takes_it_twice(kept: Kept) -> None:
    store = FaultStore(kept.world.memory, operations={"put"})
    with kept.maintainer(store) as maintainer:
        store.schedule(*[Fault.LOST_REPLY] * 3)
        maintainer.look()
        maintainer.look()
    assert kept.runs(MAINTAIN) == [(MAINTAIN, "done")]


@pytest.mark.parametrize("number", range(0, 40, 3))
def test_a_maintainer_that_dies_at_any_write_is_continued_by_the_next_one(number: int) -> None:
    kept = Kept()
    kept.upload(12)
    with suppress(Crash):
        kept.maintainer(CrashStore(kept.world.memory, number)).look()
    kept.world.wait(RETRY_SECONDS)
    with kept.maintainer() as following:
        following.look()
        kept.world.wait(LEASE_SECONDS)
        following.look()
        assert len(kept.cluster.live_ids(NODE)) <= 8
    kept.cluster.check()


# The budget


def test_requests_stay_within_the_budget_and_halve_when_the_store_is_busy(kept: Kept) -> None:
    store = FaultStore(kept.world.memory)
    maintainer = kept.maintainer(CountingStore(store))
    began = kept.world.clock()
    maintainer.look()
    calls, quick = maintainer.store.requests, kept.world.clock() - began
    assert calls / quick <= SETTINGS.requests_per_second * 1.1
    store.schedule(*[Fault.SLOW_DOWN] * 3)
    maintainer.look()
    assert maintainer.store.share < 1
    assert "SlowDown" in kept.lines[-1] or "SLOW_DOWN" in kept.lines[-1]


def test_requests_of_many_threads_keep_the_budget(kept: Kept) -> None:
    kept.world.memory.put("key", b"x")
    store = BudgetedStore(kept.world.memory, SETTINGS, kept.world.system)
    began = kept.world.clock()
    threads = [threading.Thread(target=lambda: [store.get("key") for _ in range(50)]) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert store.requests == 400
    assert store._free_at_seconds - began > 399 / SETTINGS.requests_per_second, "no thread's time is lost"


def test_a_request_waits_for_those_of_others_and_not_for_ever(kept: Kept) -> None:
    entered, left = Event(), Event()
    slow = CountingStore(Watched(kept.world.memory, lambda call: held_up(call, entered, left)), kept.world.clock)
    other = threading.Thread(target=slow.get, args=("slow",), kwargs={})
    kept.world.memory.put("slow", b"x")
    with kept.maintainer(slow) as maintainer:
        maintainer.look()
        began = kept.world.clock()
        maintainer.look()
        alone = kept.world.clock() - began
        other.start()
        assert entered.wait(10)
        began = kept.world.clock()
        maintainer.look()
        assert kept.world.clock() - began > 2 * alone
        left.set()
        other.join()


def held_up(call: StoreCall, entered: Event, left: Event) -> None:
    if call.key == "slow":
        entered.set()
        assert left.wait(10)


# The three ways


def test_a_program_has_it_by_a_word_of_connect(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    with accel.connect(url, create=True, maintain=True) as streams:
        streams.create_scope("shop")
        assert came(lambda: MAINTAIN in read_runs(streams.catalog.parts.keys.tables).by_kind)
        threads = {each.name for each in threading.enumerate()}
    assert "accel-maintenance" in threads
    with ObjectCatalog.open(open_store(url)) as catalog:
        [run] = read_runs(catalog.parts.keys.tables).by_kind[MAINTAIN].value.runs
    assert run.status == "done"
    assert came(lambda: "accel-maintenance" not in {each.name for each in threading.enumerate()})


def test_a_command_stays_begins_what_is_due_and_ends_at_a_signal() -> None:
    bucket = Bucket()
    make_catalog(bucket.store)
    fill(bucket.store, NODE, [[(1, at, at + 1)] for at in range(6)])

    def signal_when_done() -> None:
        with ObjectCatalog.open(bucket.store) as catalog:
            came(lambda: BUILD_HINTS in read_runs(catalog.parts.keys.tables).by_kind)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=signal_when_done).start()
    found = bucket.run("catalog run-all --watch --yes --max-objects-per-node 3 --min-age 0s --output json")
    assert found.exit_code == 128 + signal.SIGTERM
    assert json.loads(found.stdout)["begun"].items() >= {COMPACT: 1, BUILD_HINTS: 1}.items()
    assert "above 3 objects" in found.stderr
    runs = bucket.json("catalog runs")["runs"]
    assert {each["kind"] for each in runs if each["trigger"]} >= {COMPACT, BUILD_HINTS, MAINTAIN}
    assert "maintain" in bucket.done("catalog runs --kind maintain")


@pytest.mark.parametrize("words", ["--watch", "--watch --yes --dry-run", "--watch --yes --allow-empty-node 4"])
def test_a_command_that_stays_refuses_what_it_does_not_do(words: str) -> None:
    assert Bucket().error(f"catalog run-all {words}")[0] == 2


def test_a_sidecar_has_it_by_a_flag() -> None:
    store = CountingStore(filled(), SYSTEM.timer)

    async def main() -> None:
        sidecar = Sidecar(store, SidecarSettings(), maintain=True)
        await sidecar.open()
        await sidecar.wait_opened()
        tables = sidecar.connection.catalog.parts.keys.tables
        assert await asyncio.to_thread(came, lambda: MAINTAIN in read_runs(tables).by_kind)
        await sidecar.close()

    asyncio.run(main())
    with ObjectCatalog.open(store) as catalog:
        [run] = read_runs(catalog.parts.keys.tables).by_kind[MAINTAIN].value.runs
    assert run.status == "done", "the lease has ended with the sidecar"
    assert Bucket().error("serve --maintain --image image.json")[0] == 2


def test_a_forked_process_maintains_nothing(kept: Kept) -> None:
    with kept.maintainer() as maintainer:
        maintainer.look()
        with pytest.raises(WrongProcess):
            in_child(maintainer.look)
        assert in_child(maintainer.close) is None
        assert kept.last(MAINTAIN).ended_ms is None
        assert maintainer.look() == LOOK_SECONDS


def came(so: Callable[[], bool]) -> bool:
    """Whether something becomes true within ten seconds."""
    return any(so() or Event().wait(0.02) for _ in range(500))


def test_without_the_word_nothing_is_maintained_and_other_words_are_refused(tmp_path: Path) -> None:
    with accel.connect(f"file://{tmp_path}", create=True) as streams:
        assert read_runs(streams.catalog.parts.keys.tables).by_kind == {}
    with pytest.raises(InvalidArgument, match="maintain"):
        accel.connect(f"file://{tmp_path}", maintain="yes")  # type: ignore[arg-type]  # what is tested
