"""Retention on Spark does what it does in one process, to many streams at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from accel.errors import NotInHistory
from accel.history.rules.configuration import RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.states import StreamState
from accel.history.rules.values import Integers
from accel.history.store import GivenSizes, Retained, StreamStore
from spark_jobs.retention import list_streams, retain_on_spark
from spark_jobs.tasks import StoreSpec
from tests.spark_jobs.worlds import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from accel.history.store.hosts import StreamName

KEPT = StreamConfiguration(retention=RetentionPolicy(RetentionKind.TIME, 1_000))
STREAMS = [("bills", "paid"), ("shop", "carts"), ("shop", "free"), ("shop", "orders")]


class Growing(GivenSizes):
    """Segments reach as far as their stream's name is long."""

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        return dict.fromkeys(ids.tolist(), len(stream[1]))


@pytest.fixture
def streams(bucket: StoreSpec) -> StreamStore:
    """Two scopes; all streams but one have a policy."""
    store = StreamStore.open(bucket.open())
    for scope in ("bills", "shop"):
        store.create_scope(scope)
    for scope, name in STREAMS:
        store.create_stream(scope, name, StreamConfiguration() if name == "free" else KEPT, 1_000)
    return store


def test_streams_of_several_scopes_are_listed_once(bucket: StoreSpec, streams: StreamStore) -> None:
    assert list_streams(bucket, ["shop", "bills", "shop"]) == STREAMS
    streams.create_scope("empty")
    assert list_streams(bucket, ["empty"]) == []
    with pytest.raises(NotInHistory):
        list_streams(bucket, ["shop", "nope"])


@pytest.mark.usefixtures("spark")
def test_the_job_tells_what_became_of_each_stream(bucket: StoreSpec, streams: StreamStore) -> None:
    scopes = ("--scope", "shop", "--scope", "bills", "--streams-per-task", "2", "--data-elsewhere", "--yes")
    dry = job(bucket, "retention", *scopes[:-1], "--time", "2000", "--output", "json")
    assert (json.loads(dry.stdout)["dry_run"], json.loads(dry.stdout)["totals"]["recorded"]) == (True, 3)
    assert len(streams.stream("shop", "orders").retention.read()) == 0
    first = job(bucket, "retention", *scopes, "--time", "2000", "--output", "json")
    assert first.exit_code == 0
    streams.stream("shop", "carts").set_state(StreamState.SCALING)
    streams.stream("bills", "paid").workflows.retention.add(2_500, 7, {0: 7})
    second = job(bucket, "retention", *scopes, "--data-elsewhere", "--time", "3000", "--output", "json")
    assert second.exit_code == 1
    found = json.loads(second.stdout)
    assert [(each["stream"], each["outcome"], each["recording_time_ms"]) for each in found["streams"]] == [
        ("bills/paid", "failed", None),
        ("shop/carts", "busy", None),
        ("shop/free", "no policy", None),
        ("shop/orders", "truncated", 2000),
    ]
    assert found["streams"][0]["error"].startswith("InvalidArgument: ")
    assert {name: count for name, count in found["totals"].items() if count} == {
        "truncated": 1, "no policy": 1, "busy": 1, "failed": 1,
    }  # fmt: skip
    assert found["failed_tasks"] == 0
    assert found["requests"] > 30
    assert dict(streams.stream("shop", "orders").head()) == {0: 0}


@pytest.mark.usefixtures("spark", "streams")
def test_people_see_a_table_and_a_sentence(bucket: StoreSpec) -> None:
    first, found = (
        job(bucket, "retention", "--scope", "bills", "--data-elsewhere", "--time", time, "--yes")
        for time in ("2000", "3000")
    )
    assert (first.exit_code, found.exit_code) == (0, 0)
    assert first.stdout.startswith("1 stream: 1 recorded; ")
    assert "bills/paid truncated 1970-01-01T00:00:02.000Z 0" in " ".join(found.stdout.split())
    assert "1 stream: 1 truncated; " in found.stdout
    assert "requests, " in found.stdout


def test_a_scope_that_is_not_there_is_told_before_spark_is_started(
    bucket: StoreSpec, streams: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.cli.options.session", lambda *_, **__: pytest.fail("it was started"))
    assert list(streams.scopes()) == ["bills", "shop"]
    found = job(bucket, "retention", "--scope", "nope")
    assert (found.exit_code, "nope" in found.stderr) == (1, True)


def test_without_a_host_nothing_is_begun(
    bucket: StoreSpec, streams: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.cli.options.session", lambda *_, **__: pytest.fail("it was started"))
    found = job(bucket, "retention", "--scope", "shop", "--output", "json")
    assert (found.exit_code, json.loads(found.stderr)["type"]) == (1, "HostMissing")
    assert not len(streams.stream("shop", "orders").retention.read())


def test_whoever_holds_the_segments_says_in_the_task_how_far_they_reach(
    spark: SparkSession, bucket: StoreSpec, streams: StreamStore
) -> None:
    retain_on_spark(spark, bucket, STREAMS, time_ms=2_000, host=Growing)
    report = retain_on_spark(spark, bucket, STREAMS, time_ms=3_000, host=Growing)
    points = {each.stream: each.point.recorded_size for each in report.streams if each.point is not None}
    assert points == {"bills/paid": 4, "shop/carts": 5, "shop/orders": 6}
    assert dict(streams.stream("shop", "orders").head()) == {0: 6}


def test_two_jobs_at_once_are_safe(spark: SparkSession, bucket: StoreSpec, streams: StreamStore) -> None:
    run = partial(retain_on_spark, spark, bucket, STREAMS, streams_a_task=1, at_once=2, host=Growing)
    run(time_ms=2_000)
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda time_ms: run(time_ms=time_ms), (3_000, 3_001)))
    outcomes = {each.outcome for report in both for each in report.streams if each.stream != "shop/free"}
    # A job that comes after the cut of 3,001 has nothing to record at 3,000.
    assert outcomes <= {Retained.TRUNCATED, Retained.RECORDED, Retained.UNCHANGED, Retained.BUSY}
    for scope, name in STREAMS:
        if name != "free":
            stream = streams.stream(scope, name)
            assert {3_001} <= set(stream.retention.read().times_ms.tolist()) <= {2_000, 3_000, 3_001}
    again = run(time_ms=5_000)
    assert {each.outcome for each in again.streams} <= {Retained.TRUNCATED, Retained.RECORDED, Retained.NO_POLICY}
    assert {streams.stream(*each).state() for each in STREAMS} == {StreamState.ACTIVE}


def test_a_task_that_fails_for_good_costs_its_own_streams(
    spark: SparkSession, bucket: StoreSpec, streams: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert streams.stream("shop", "orders").state() is StreamState.ACTIVE
    from spark_jobs.retention import _retain  # noqa: PLC0415 - before it is replaced

    def refuse(store: StoreSpec, host: type, time_ms: int, is_dry_run: bool, batch: tuple[StreamName, ...]) -> object:
        if batch[0][1] == "carts":
            raise OSError("no disk")
        return _retain(store, host, time_ms, is_dry_run, batch)

    monkeypatch.setattr("spark_jobs.retention._retain", refuse)
    told: list[tuple[int, int]] = []
    report = retain_on_spark(
        spark,
        bucket,
        STREAMS,
        time_ms=2_000,
        host=GivenSizes,
        streams_a_task=1,
        progress=lambda *each: told.append(each),
    )
    assert [each.stream for each in report.streams if each.outcome is Retained.FAILED] == ["shop/carts"]
    assert report.streams[1].error.endswith("no disk")
    assert report.failed_tasks == 4
    assert told[-1] == (4, 4)


def test_no_streams_are_no_work(spark: SparkSession, bucket: StoreSpec) -> None:
    assert retain_on_spark(spark, bucket, []).streams == ()
    with pytest.raises(ValueError, match="expected at least 1 stream a task"):
        retain_on_spark(spark, bucket, STREAMS, streams_a_task=0)
