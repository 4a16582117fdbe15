"""Copies of slow tasks, lost executors, killed drivers and killed clients lose nothing, beside a live writer.

Spark starts a copy of a task on another host only: the cluster of these tests has two workers, on two addresses.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.verify import Verdict, verify
from accel.compaction import CompactionReport, compact, plan_compaction
from accel.system import SYSTEM
from accel.testing import ClockStore
from loaders.store import ObjectStore
from spark_jobs.tasks import StoreSpec
from tests.spark_jobs.clusters import SERVER_URL, environment_of_spark, events, named, standalone, wait_for
from tests.spark_jobs.on_executors import SETTINGS, SOURCES, WAITING_FROM
from tests.spark_jobs.worlds import Spans, fill, make_catalog, put, records_crc

NODE_ID = 4
OBJECTS = 40
LIVE_STREAM = 9
DAYS = 2 * 86_400.0
"""After so long no id is prepared, and no reader has an image with the replaced objects any more."""


def make(folder: Path, name: str) -> tuple[ObjectStore, dict[int, int]]:
    """A store with a node to compact; gives it, and what its streams hold."""
    store = StoreSpec(f"file://{folder}/{name}").open()
    make_catalog(store)
    objects: list[Spans] = [
        [(1, at * 10, at * 10 + 10), (2 + at % 3, at // 3 * 5, at // 3 * 5 + 5)] for at in range(OBJECTS)
    ]
    fill(store, NODE_ID, objects)
    with ObjectCatalog.open(store) as catalog:
        return store, records_crc(store, catalog.image())


@contextmanager
def live_writer(store: ObjectStore) -> Iterator[list[int]]:
    """Uploads to the node, several a second, while the block runs, at least one; yields the ids of its objects."""
    written: list[int] = []
    ended = Event()

    def write() -> None:
        with ObjectCatalog.open(store) as catalog, catalog.open_node(NODE_ID) as writer:
            writer.open_streams([LIVE_STREAM])
            while True:
                [object_id] = writer.prepare()
                rows = [(LIVE_STREAM, len(written), len(written) + 1)]
                writer.commit_upload(*put(catalog, object_id, rows))
                written.append(object_id)
                if ended.wait(0.3):
                    break

    thread = Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        ended.set()
        thread.join()


@contextmanager
def program(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`tests.spark_jobs.on_executors`, started; killed afterwards, if it has not ended. Its output is in a folder."""
    command = [sys.executable, "-m", "tests.spark_jobs.on_executors", *arguments]
    with (
        (folder / "output").open("wb") as output,
        (folder / "errors").open("wb") as errors,
        subprocess.Popen(command, env=environment_of_spark(), stdout=output, stderr=errors) as started,  # noqa: S603 - our own
    ):
        try:
            yield started
        finally:
            started.kill()


def check(store: ObjectStore, before: dict[int, int], written: list[int]) -> None:
    """Nothing is lost or doubled, and two days later nothing is left behind."""
    with ObjectCatalog.open(store) as catalog:
        image = catalog.refresh()
        assert verify(catalog).outcome in (Verdict.CLEAN, Verdict.ADVICE)
        found = records_crc(store, image)
        assert {stream_id: found[stream_id] for stream_id in before} == before
        assert written
        assert catalog.stream_end(LIVE_STREAM) == len(written)
    later = ClockStore(store, lambda: SYSTEM.clock() + DAYS)
    for _ in range(2):  # ids first, then the objects under them
        with ObjectCatalog.open(later) as catalog:
            collect(catalog, plan_collection(catalog))
    with ObjectCatalog.open(store) as catalog:
        image = catalog.refresh()
        key_of = catalog.parts.layout.object_key
        listed = {key_of(each) for node in image.nodes.values() for each in node.object_ids.tolist()}
        listed |= {key_of(each.ref.object_id) for stream in image.streams.values() for each in stream.stream_objects}
    assert {each.key for each in store.list("") if not each.key.startswith("accel/")} == listed


def wait_beside(running: subprocess.Popen[bytes], folder: Path, condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds, while a program runs whose output is in a folder."""

    def found() -> str:
        return f"{what}: {(folder / 'errors').read_text()[-3000:]}"

    def holds() -> object:
        has_ended = running.poll() is not None  # before the look, which may find what it did last
        if not (answer := condition()) and has_ended:
            pytest.fail(found())
        return answer

    wait_for(holds, found)


def lines(folder: Path) -> list[str]:
    """What a program has written so far, line by line."""
    return (folder / "output").read_text().splitlines()


def merged(store: ObjectStore) -> int:
    """How many of the objects of `make` were replaced."""
    with ObjectCatalog.open(store) as catalog:
        return len(set(range(OBJECTS)) - set(catalog.image().nodes[NODE_ID].object_ids.tolist()))


def is_gone(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@dataclass(frozen=True)
class Killed:
    """What a program left that ran scenarios one after another, each beside a live writer, until it was killed in one.

    Args:
        worlds: of each scenario, its store and what the streams held before.
        written: of each scenario, the ids of the objects of the writer.
        statuses: of each scenario that ended, those of its groups.
        tasks: of each scenario, the tasks that merged groups and have started.
        ended: the ids of tasks that have ended.
        next_run: the report of a compaction of the last scenario's store by another program, beside the writer.
    """

    worlds: dict[str, tuple[ObjectStore, dict[int, int]]]
    written: dict[str, list[int]]
    statuses: dict[str, list[str]]
    tasks: dict[str, list[dict[str, Any]]]
    ended: set[int]
    next_run: CompactionReport

    def check(self, name: str) -> None:
        """Nothing is lost or doubled in a scenario, and nothing is left behind."""
        check(*self.worlds[name], self.written[name])


SCENARIOS = ("slow before", "slow after", "lost", "waits")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """All scenarios in one program, on a cluster of their own, as most of their time is that of starts of Java."""
    folder, log = tmp_path_factory.mktemp("scenarios"), tmp_path_factory.mktemp("events")
    worlds = {name: make(folder, name) for name in SCENARIOS}
    store = worlds["waits"][0]
    written = {}
    with standalone(folder) as cluster, program(folder, cluster, str(folder), str(log), *SCENARIOS) as driver:
        for done, name in enumerate(SCENARIOS[:-1], 1):
            with live_writer(worlds[name][0]) as written[name]:
                wait_beside(driver, folder, lambda: len(lines(folder)) >= done, f"{name} did not end")  # noqa: B023 - now
        with live_writer(store) as written["waits"]:
            begun, first = folder / "waits.begun", SOURCES * (WAITING_FROM - 1)
            wait_beside(driver, folder, begun.exists, "the last scenario did not begin")
            wait_beside(driver, folder, lambda: merged(store) >= first, f"expected {first} objects that were replaced")
            wait_beside(driver, folder, lambda: len(tasks_by_stage(log)) == len(SCENARIOS), "the log is not complete")
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            wait_for(lambda: is_gone(int(begun.read_text())), lambda: "the worker goes on")
            with ObjectCatalog.open(store) as catalog:
                report = compact(catalog, plan_compaction(catalog, SETTINGS))
    statuses = map(json.loads, lines(folder))
    return Killed(
        worlds,
        written,
        dict(zip(SCENARIOS, statuses, strict=False)),
        dict(zip(SCENARIOS, tasks_by_stage(log), strict=True)),
        {each["Task Info"]["Task ID"] for each in named(events(log), "TaskEnd")},
        report,
    )


def test_copies_of_slow_tasks_lose_and_double_nothing(killed: Killed) -> None:
    assert set(killed.statuses["slow before"]) == {"committed"}
    assert set(killed.statuses["slow after"]) == {"committed", "done by another attempt"}
    for name in ("slow before", "slow after"):
        started = killed.tasks[name]
        assert len({each["Index"] for each in started}) >= 8
        assert [each["Index"] for each in started if each["Speculative"]] == [0]
        assert {each["Task ID"] for each in started} <= killed.ended
        killed.check(name)


def test_a_lost_executor_loses_and_doubles_nothing(killed: Killed) -> None:
    started = killed.tasks["lost"]
    assert {each["Attempt"] for each in started if each["Index"] != 0} == {0}, "only its item ran again"
    again = [each for each in started if each["Index"] == 0 and not each["Speculative"]]
    assert len(again) == 2
    assert {each["Task ID"] for each in started} <= killed.ended
    assert set(killed.statuses["lost"]) <= {"committed", "done by another attempt"}
    killed.check("lost")


def test_what_a_killed_driver_did_not_do_the_next_run_does(killed: Killed) -> None:
    assert "waits" not in killed.statuses
    assert killed.next_run.failed_groups == 0
    assert killed.next_run.rewritten_objects > 0
    killed.check("waits")


def tasks_by_stage(log: Path) -> list[list[dict[str, Any]]]:
    """The tasks that started, by stage, of the stages that merge groups."""
    found = events(log)
    merging = [
        stage_id
        for each in named(found, "JobStart")
        if "merge groups" in each["Properties"].get("spark.job.description", "")
        for stage_id in each["Stage IDs"]
    ]
    started = named(found, "TaskStart")
    return [[each["Task Info"] for each in started if each["Stage ID"] == stage_id] for stage_id in merging]


def test_a_server_goes_on_when_its_client_is_killed(server: dict[str, str], tmp_path: Path) -> None:
    store, before = make(tmp_path, "waits")
    with program(tmp_path, server[SERVER_URL], str(tmp_path), str(tmp_path), "waits") as client:
        wait_beside(client, tmp_path, (tmp_path / "waits.begun").exists, "the attempt did not begin")
        client.send_signal(signal.SIGKILL)
        client.wait()
    assert merged(store) < OBJECTS
    with live_writer(store) as written:  # now, so that the plan has all of the objects and no other
        wait_for(lambda: written, lambda: "nothing was written")
        (tmp_path / "waits.go").touch()
        wait_for(lambda: merged(store) == OBJECTS, lambda: f"it stopped: {merged(store)} objects were replaced")
    check(store, before, written)
