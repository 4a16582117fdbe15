"""Copies of slow tasks, lost executors, killed drivers and killed clients lose nothing, beside a live writer.

Spark starts a copy of a task on another host only: the cluster of these tests has two workers, on two addresses.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.verify import Verdict, verify
from accel.compaction import compact, plan_compaction
from accel.system import SYSTEM
from accel.testing import ClockStore
from loaders.store import ObjectStore
from spark_jobs.tasks import StoreSpec
from tests.spark_jobs.clusters import connect_server, environment_of_spark, events, named, standalone
from tests.spark_jobs.on_executors import SETTINGS
from tests.spark_jobs.worlds import Spans, fill, make_catalog, put, records_crc

NODE_ID = 4
OBJECTS = 40
LIVE_STREAM = 9
PROGRAM_SECONDS = 240
DAYS = 2 * 86_400.0
"""After so long no id is prepared, and no reader has an image with the replaced objects any more."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers."""
    with standalone(tmp_path_factory.mktemp("cluster")) as master:
        yield master


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
    """Uploads to the node, several a second, while the block runs; yields the ids of its objects."""
    written: list[int] = []
    ended = Event()

    def write() -> None:
        with ObjectCatalog.open(store) as catalog, catalog.open_node(NODE_ID) as writer:
            writer.open_streams([LIVE_STREAM])
            while not ended.wait(0.3):
                [object_id] = writer.prepare()
                rows = [(LIVE_STREAM, len(written), len(written) + 1)]
                writer.commit_upload(*put(catalog, object_id, rows))
                written.append(object_id)

    thread = Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        ended.set()
        thread.join()


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`tests.spark_jobs.on_executors`, started; killed afterwards, if it has not ended."""
    command = [sys.executable, "-m", "tests.spark_jobs.on_executors", *arguments]
    with subprocess.Popen(  # noqa: S603 - our own
        command, env=environment_of_spark(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
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


def wait_for(condition: Callable[[], object], what: str, running: subprocess.Popen[str] | None = None) -> None:
    """Wait until a condition holds."""
    for _ in range(PROGRAM_SECONDS * 5):
        if condition():
            return
        if running is not None and running.poll() is not None:
            break
        time.sleep(0.2)  # noqa: TID251 - another process is waited for
    pytest.fail(f"{what}: {running.communicate()[1][-3000:] if running else ''}")


def is_gone(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_copies_of_slow_tasks_and_a_lost_executor_lose_and_double_nothing(cluster: str, tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.mkdir()
    scenarios = ("slow before", "slow after", "lost")
    worlds = {name: make(tmp_path, name) for name in scenarios}
    with ExitStack() as stack:
        written = [stack.enter_context(live_writer(worlds[name][0])) for name in scenarios]
        done = stack.enter_context(program(cluster, str(tmp_path), str(log), *scenarios))
        output, errors = done.communicate(timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, errors[-4000:]
    statuses = json.loads(output.splitlines()[-1])
    assert sorted(set(statuses["slow before"])) == ["committed"]
    assert sorted(set(statuses["slow after"])) == ["committed", "done by another attempt"]
    assert sorted(set(statuses["lost"])) == ["committed"]
    before, after, lost = tasks_by_stage(log)
    for started in (before, after):
        assert len({each["Index"] for each in started}) >= 8
        assert [each["Index"] for each in started if each["Speculative"]] == [0]
    assert sorted(each["Attempt"] for each in lost if each["Index"] == 0) == [0, 1]
    assert {each["Attempt"] for each in lost if each["Index"] != 0} == {0}, "only its item ran again"
    for name, ids in zip(scenarios, written, strict=True):
        check(*worlds[name], ids)


def tasks_by_stage(log: Path) -> list[list[dict[str, Any]]]:
    """The tasks that started, by stage, of the stages that merge groups; all of them have ended."""
    found = events(log)
    merging = [
        stage_id
        for each in named(found, "JobStart")
        if "merge groups" in each["Properties"].get("spark.job.description", "")
        for stage_id in each["Stage IDs"]
    ]
    ended = {each["Task Info"]["Task ID"] for each in named(found, "TaskEnd")}
    started = named(found, "TaskStart")
    assert {each["Task Info"]["Task ID"] for each in started} == ended
    return [[each["Task Info"] for each in started if each["Stage ID"] == stage_id] for stage_id in merging]


def test_what_a_killed_driver_did_not_do_the_next_run_does(cluster: str, tmp_path: Path) -> None:
    store, before = make(tmp_path, "waits")
    (tmp_path / "events").mkdir()
    mark = tmp_path / "waits.mark"
    arguments = (cluster, str(tmp_path), str(tmp_path / "events"), "waits")
    with live_writer(store) as written, program(*arguments) as driver:
        wait_for(mark.exists, "the attempt did not begin", driver)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        wait_for(lambda: is_gone(int(mark.read_text())), "the worker goes on")
        with ObjectCatalog.open(store) as catalog:
            report = compact(catalog, plan_compaction(catalog, SETTINGS))
    assert report.failed_groups == 0
    assert report.rewritten_objects > 0
    check(store, before, written)


def test_a_server_goes_on_when_its_client_is_killed(tmp_path: Path) -> None:
    store, before = make(tmp_path, "waits")
    mark = tmp_path / "waits.mark"
    with ExitStack() as stack:
        url = stack.enter_context(connect_server(tmp_path, {}))
        client = stack.enter_context(program(url, str(tmp_path), str(tmp_path), "waits"))
        wait_for(mark.exists, "the attempt did not begin", client)
        written = stack.enter_context(live_writer(store))  # now, so that the plan has all of the objects and no other
        client.send_signal(signal.SIGKILL)
        client.wait()
        with ObjectCatalog.open(store) as catalog:
            replaced = set(range(OBJECTS))
            wait_for(lambda: replaced.isdisjoint(catalog.refresh().nodes[NODE_ID].object_ids.tolist()), "it stopped")
    check(store, before, written)
