"""Runs of jobs: what is recorded of each, whatever happens to it or to its record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.job_runs import (
    BUILD_HINTS,
    COMPACT,
    GC,
    JOB_RUNS_FORM,
    JOB_RUNS_SIZE_BYTES_MAX,
    RUNS_MAX,
    JobRun,
    JobRuns,
    read_runs,
    recorded,
    runs_key,
)
from accel.cli.objects.verify import EXIT_PROBLEMS
from accel.compaction import CompactionSettings, compact_slices
from accel.compaction import slices as slices_module
from accel.errors import StoreUnavailable
from accel.image import MetadataImage
from accel.system import SYSTEM, StopRequested
from accel.testing import ClockStore, Crash, CrashStore, Fault, FaultStore
from loaders.errors import AccessDenied
from loaders.layout import TABLES_PREFIX
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.tables import raw_key
from tests.accel.cli.worlds import Bucket
from tests.spark_jobs.worlds import fill, make_catalog

Answer = TypeVar("Answer")
NODE = 4


@pytest.fixture
def bucket() -> Bucket:
    """A catalog with a node of six objects."""
    bucket = Bucket()
    make_catalog(bucket.store)
    fill(bucket.store, NODE, [[(1, at, at + 1)] for at in range(6)])
    return bucket


def runs(store: ObjectStore, kind: str = COMPACT) -> list[JobRun]:
    with ObjectCatalog.open(store) as catalog:
        seen = read_runs(catalog.parts.keys.tables).by_kind.get(kind)
    return [] if seen is None else list(seen.value.runs)


def run_once(
    store: ObjectStore, kind: str = COMPACT, work: Callable[[], object] = lambda: None, *, items: int = 1
) -> None:
    with ObjectCatalog.open(store) as catalog, recorded(catalog.parts, kind) as job:
        job.add(items=items)
        work()


def raising(error: BaseException) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


COMPACT_ALL = "catalog compact --rewrite-all --target-objects 1 --min-age 0s"


def test_each_command_leaves_one_record_of_what_it_did_and_dry_runs_and_verify_none(bucket: Bucket) -> None:
    for line in (f"{COMPACT_ALL} --dry-run", "catalog build-hints --dry-run", "catalog gc", "catalog verify"):
        bucket.done(line)
    assert bucket.json("catalog runs") == {"runs": [], "runs_left_out": 0, "unreadable": {}}
    report = bucket.json(COMPACT_ALL)["report"]
    bucket.done("catalog run-all --yes")
    found = bucket.json("catalog runs", "--limit", "0")["runs"]
    assert sorted(each["kind"] for each in found) == [BUILD_HINTS, COMPACT, COMPACT, GC]
    assert {(each["outcome"], each["engine"], each["failures"]) for each in found} == {("done", "local", 0)}
    [first] = [each for each in found if each["items"] == 6]
    assert [first[name] for name in ("size_bytes", "requests")] == [report["rewritten_bytes"], report["requests"]]
    assert [(each["items"], each["requests"] > 0) for each in found if each["kind"] != COMPACT] in (
        [(1, True), (0, True)],
        [(0, True), (1, True)],
    )
    assert bucket.json("catalog runs", "--kind", GC)["runs"] == [each for each in found if each["kind"] == GC]
    assert "4 runs" in bucket.done("catalog runs")


def test_a_job_that_fails_while_it_plans_is_recorded_with_the_reason(bucket: Bucket) -> None:
    assert bucket.run("catalog build-hints --node 9").exit_code != 0
    assert runs(bucket.store, BUILD_HINTS)[0].status == "failed"
    assert "found 9" in bucket.done("catalog runs")


def test_slices_of_a_long_list_are_one_run_of_a_program(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices_module, "LIST_OBJECTS_MIN", 2)
    monkeypatch.setattr(slices_module, "SLICE_OBJECTS", 3)
    settings = CompactionSettings(max_objects_per_node=2, min_age_seconds=0)
    with ObjectCatalog.open(bucket.store) as catalog:
        done = compact_slices(catalog, settings)
    [run] = runs(bucket.store)
    assert run.items == sum(each.rewritten_objects for each in done.reports) > 0
    assert (run.status, run.max_objects_per_node) == ("done", 2)


def test_a_collection_by_a_program_records_its_requests_for_objects(bucket: Bucket) -> None:
    bucket.done(COMPACT_ALL)
    with ObjectCatalog.open(ClockStore(bucket.store, lambda: SYSTEM.clock() + 86_400.0)) as catalog:
        deleted = collect(catalog, plan_collection(catalog)).deleted
    [run] = runs(bucket.store, GC)
    assert run.items == len(deleted) > 0
    assert run.requests >= len(deleted) + 2, "a proof of each, a journal, and their deletion"


class Silent(Exception):
    """An error of another library whose text cannot be had."""

    def __str__(self) -> str:
        raise OSError


def test_an_error_is_raised_and_recorded_whatever_its_text(bucket: Bucket) -> None:
    for error in (Silent(), ValueError("of file \udc80\n at http://me:secret@host")):
        with pytest.raises(type(error)):
            run_once(bucket.store, COMPACT, raising(error))
    assert [each.reason for each in runs(bucket.store)] == ["Silent", "ValueError: of file ? at http://***@host"]


def test_runs_that_end_at_the_same_time_are_all_there(bucket: Bucket) -> None:
    together = threading.Barrier(8)
    threads = [threading.Thread(target=run_once, args=(bucket.store, GC, together.wait)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = runs(bucket.store, GC)
    assert len({each.run_id for each in found}) == len(found) == 8
    assert {each.status for each in found} == {"done"}


def test_a_lost_reply_makes_no_second_record(bucket: Bucket) -> None:
    run_once(bucket.store)
    store = FaultStore(bucket.store, operations=WRITES)
    store.schedule(Fault.LOST_REPLY, Fault.LOST_REPLY)
    run_once(store)
    assert (sum(store.injected.values()), [each.status for each in runs(bucket.store)]) == (2, ["done", "done"])


def test_the_last_hundred_runs_of_a_kind_stay_and_fit_whatever_their_reasons(bucket: Bucket) -> None:
    fails = raising(StoreUnavailable("get", "\U0001f600" * 10_000, "no answer"))
    for number in range(RUNS_MAX + 1):
        with pytest.raises(StoreUnavailable):
            run_once(bucket.store, GC, fails, items=number)
    run_once(bucket.store)
    found = runs(bucket.store, GC)
    assert [each.items for each in found] == list(range(1, RUNS_MAX + 1))
    assert len(runs(bucket.store)) == 1
    worst = replace_texts(found[0], "\U0001f600" * 200)
    assert len(JOB_RUNS_FORM.encode(JobRuns(runs=(worst,) * RUNS_MAX))) < JOB_RUNS_SIZE_BYTES_MAX


def replace_texts(run: JobRun, text: str) -> JobRun:
    most = 2**63 - 1
    return JobRun(
        run_id=run.run_id,
        version=run.version,
        engine=run.engine,
        reason=text,
        outcome=run.outcome,
        began_ms=run.began_ms,
        ended_ms=run.ended_ms,
        items=most,
        size_bytes=most,
        requests=most,
        failures=most,
        max_objects_per_node=most,
        trigger=text,
    )


def test_a_killed_run_stays_not_ended_and_an_interrupted_one_is_stopped(bucket: Bucket) -> None:
    run_once(bucket.store)
    dying = CrashStore(bucket.store, 1)
    with pytest.raises(Crash):
        run_once(dying, COMPACT, lambda: dying.put("work", b""))
    with pytest.raises(StopRequested):
        run_once(bucket.store, COMPACT, raising(StopRequested()))
    assert [each.status for each in runs(bucket.store)] == ["done", "not ended", "stopped"]
    assert "not ended" in bucket.done("catalog runs")


class Refusing(DecoratedStore):
    """Refuses each write of the table of runs."""

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation in WRITES and call.key.startswith(f"{TABLES_PREFIX}job-runs/"):
            raise AccessDenied(call.operation, call.key, "no right to write")
        return send()


def damaged(store: ObjectStore, data: bytes) -> None:
    with ObjectCatalog.open(store) as catalog:
        key = raw_key(catalog.parts.keys.tables.table("job-runs"), COMPACT)
        key.write(data, key.get())


def stores(bucket: Bucket) -> Iterator[ObjectStore]:
    yield Refusing(bucket.store)
    run_once(bucket.store)
    newer = bytearray(JOB_RUNS_FORM.encode(JobRuns()))
    newer[len("job-runs") + 2] = 2
    for data in (b"of another program", bytes(newer)):
        damaged(bucket.store, data)
        yield bucket.store


def test_a_record_that_cannot_be_written_is_a_warning_and_the_work_is_done(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    done = []
    for store in stores(bucket):
        caplog.clear()
        run_once(store, COMPACT, lambda: done.append(1))
        assert "this run of compact is not recorded in table 'job-runs', key 'compact'" in caplog.text
    assert len(done) == 3
    run_once(bucket.store, GC)
    found = bucket.json("catalog runs", code=EXIT_PROBLEMS)
    assert [each["kind"] for each in found["runs"]] == [GC]
    assert [*found["unreadable"]] == [COMPACT]
    assert "UNREADABLE: compact" in bucket.done("catalog runs", code=EXIT_PROBLEMS)


def test_stats_pass_over_times_after_now_and_count_what_is_above_the_limit_of_the_last_run() -> None:
    def run(ended_ms: int | None, failures: int = 0, max_objects_per_node: int | None = None) -> JobRun:
        outcome = "" if ended_ms is None else "done"
        return JobRun(
            run_id="",
            version="",
            engine="",
            began_ms=0,
            ended_ms=ended_ms,
            outcome=outcome,
            failures=failures,
            max_objects_per_node=max_objects_per_node,
        )

    rows = (run(5_000), run(9_000, max_objects_per_node=2), run(10**12), run(20_000, failures=1), run(None))
    store = MemoryStore()
    make_catalog(store)
    with ObjectCatalog.open(store, system=replace(SYSTEM)) as catalog:
        tables = catalog.parts.keys.tables
        nothing = read_runs(tables).stats(None, 30_000, 60, 1_000)
        tables.create_table("job-runs")
        for kind, some in ((COMPACT, rows), (GC, rows[2:])):
            runs_key(tables, kind).create(JobRuns(runs=some))
        found = read_runs(tables)
        assert read_runs(tables, found).by_kind[GC] is found.by_kind[GC]  # an unchanged record is not read again
    listed = [{"object_id": each, "order_id": each, "size": 1} for each in range(5)]
    image = MetadataImage.from_dict({"streams": [], "nodes": [{"node_id": 4, "stream_set_objects": listed}]})
    stats = found.stats(image, 30_000, 60, 1_000)
    assert (stats.success_age_seconds, stats.waiting_objects) == ({COMPACT: 21.0}, 3)
    assert (nothing.success_age_seconds, nothing.waiting_objects) == ({}, None)
