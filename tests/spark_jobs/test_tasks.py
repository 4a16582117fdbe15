"""Items run as one query, fail alone, and run again where it may help; nothing is run a second time by a reader."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from accel.errors import MissingExtra
from accel.system import StopRequested
from spark_jobs import tasks
from spark_jobs.session import context_of
from spark_jobs.tasks import (
    SECOND_PASS,
    Attempt,
    ItemOutcome,
    SparkGaveUp,
    StoreSpec,
    TaskFailed,
    outcome_frame,
    packed,
    run_items,
    this_attempt,
)
from tests.counting import ROOT
from tests.spark_jobs.clusters import HANG_SECONDS, events, named, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARALLELISM = "spark.sql.leafNodeDefaultParallelism"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SECOND_PASS_SECONDS", 0.0)


def square(value: int) -> int:
    return value * value


def where(value: object) -> tuple[int, Attempt]:
    del value
    return os.getpid(), this_attempt()


def fails(value: str) -> str:
    if value == "once" and this_attempt().number < SECOND_PASS:
        raise OSError("the network is down")
    if value == "always":
        raise OSError("the network is down")
    if value == "bug":
        raise ValueError("one is not liked here")
    return value


def is_killed(value: int) -> int:
    if value == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def leaves_a_mark(folder: Path, value: int) -> int:
    (folder / f"{value}-{os.urandom(8).hex()}").touch()
    return value


def waits(value: int) -> int:
    if value == 1:
        threading.Event().wait(HANG_SECONDS)
    return value


def moves(store: StoreSpec, value: int) -> None:
    opened = store.open()
    opened.put(f"key-{value}", bytes(10))
    opened.get(f"key-{value}")


def tasks_of(outcomes: list[ItemOutcome[Any, Any]]) -> list[int]:
    """The partition of each item."""
    return [each.row["partition"] for each in outcomes if each.row is not None]


def tasks_in(stage: dict[str, Any]) -> int:
    return int(stage["Stage Info"]["Number of Tasks"])


def test_each_item_has_its_result_in_order_and_a_partition(spark: SparkSession) -> None:
    seen: list[tuple[int, int]] = []
    found = run_items(spark, square, range(5), name="try", progress=lambda done, total: seen.append((done, total)))
    assert [(each.item, each.required(), each.row and each.row["attempt"]) for each in found] == [
        (n, n * n, 0) for n in range(5)
    ]
    assert tasks_of(found) == list(range(5))
    assert seen[-1] == (5, 5)
    assert run_items(spark, square, [], name="square") == []


def test_a_step_is_one_job_of_one_stage_whose_tasks_are_the_items(spark: SparkSession, event_log: Path) -> None:
    run_items(spark, square, [1], name="try")  # finds out whether executors have the packages
    run_items(spark, square, range(7), name="try")
    pause = threading.Event()
    while not (ended := named(log := events(event_log), "StageCompleted")) or tasks_in(ended[-1]) != 7:
        pause.wait(0.1)  # the log is written later
    assert [len(each["Stage IDs"]) for each in named(log, "JobStart")][-2:] == [1, 1]
    assert [tasks_in(each) for each in named(log, "StageSubmitted")][-2:] == [1, 7]
    started = [each for each in named(log, "TaskStart") if each["Stage ID"] == ended[-1]["Stage Info"]["Stage ID"]]
    assert sorted(each["Task Info"]["Partition ID"] for each in started) == list(range(7))


def test_executors_without_the_packages_or_with_another_version_are_refused_before_any_item(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "is_local", lambda _: False)
    monkeypatch.setattr(tasks, "_with_packages", set())
    marks, others = tmp_path / "marks", tmp_path / "others"
    marks.mkdir()
    others.mkdir()
    work = partial(leaves_a_mark, marks)
    with monkeypatch.context() as patched:
        patched.setattr(tasks, "release_version", lambda: "9.9")
        with pytest.raises(MissingExtra, match=r"expected Accel 9\.9 on the executors of Spark, found version "):
            run_items(spark, work, [1], name="try")
    other = others / "spark_jobs.py"
    other.write_text("")
    context, session = context_of(spark), spark.newSession()
    if context is None:
        session.addArtifacts(str(other), pyfile=True)
    else:
        for name, value in {"PYTHONPATH": f"{others}:{ROOT}", "PYTHONSAFEPATH": "1"}.items():
            monkeypatch.setitem(context.environment, name, value)
    with pytest.raises(
        MissingExtra, match=r"ModuleNotFoundError: No module named 'spark_jobs\.tasks'.*spark\.archives"
    ):
        run_items(session, work, [1], name="try")
    assert list(marks.iterdir()) == []


def test_items_fail_alone_and_run_again_where_it_may_help(spark: SparkSession) -> None:
    good, once, always, bug = run_items(spark, fails, ["good", "once", "always", "bug"], name="try")
    assert (good.result, good.failures) == ("good", 0)
    assert (once.result, once.error, once.row and once.row["attempt"], once.failures) == ("once", None, SECOND_PASS, 1)
    assert (str(always.error), always.failures) == ("try: OSError: the network is down", 2)
    assert (type(bug.error), bug.failures) == (TaskFailed, 1)
    assert str(bug.error).startswith("try: ValueError: one is not liked here (line ")
    with pytest.raises(TaskFailed, match="not liked"):
        bug.required()


def test_when_spark_gives_up_every_item_says_so_and_the_one_that_caused_it_is_known(spark: SparkSession) -> None:
    found = run_items(spark, is_killed, [0, 1, 2], name="try")
    assert [type(each.error) for each in found] == [SparkGaveUp] * 3
    assert [each.failures for each in found] == [0, 4, 0]
    assert "Spark gave up on this item's task after 4 attempts: Python worker exited" in str(found[1].error)
    assert "another item's task" in str(found[2].error)
    assert spark.conf.get(PARALLELISM, None) is None


def test_heavy_items_are_first_and_light_ones_share_a_task(spark: SparkSession) -> None:
    assert tasks_of(run_items(spark, square, range(5), name="try", weights=[0.4, 9, 0.5, 30, 0.2])) == [2, 1, 2, 0, 3]
    assert packed(dict.fromkeys(range(3), 0.0)) == [[0, 1, 2]]
    assert packed(dict.fromkeys(range(3), 2.0)) == [[0], [1], [2]]
    assert [len(pack) for pack in packed(dict.fromkeys(range(2_500), 0.0))] == [1_000, 1_000, 500]


def test_large_items_have_partitions_and_queries_of_their_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "1KB")
    monkeypatch.setattr(tasks, "QUERY_BYTES_MAX", 7_000)
    monkeypatch.setattr(tasks, "ITEM_BYTES_MAX", 4_000)
    try:
        found = run_items(spark, where, [bytes(size) for size in (2_000, 2_000, 2_000, 5_000, 2_000)], name="try")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.localRelationThreshold")
    assert tasks_of(found) == [0, 1, 2, 0]
    assert "expected items of at most 4000 bytes" in str(found[3].error)


def test_the_session_keeps_its_settings(spark: SparkSession) -> None:
    context = context_of(spark)
    if context is not None:
        context.setJobGroup("of the notebook", "mine")
    spark.conf.set(PARALLELISM, "3")
    try:
        other = partial(run_items, spark, square, range(9), name="b")
        threads = [threading.Thread(target=other) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert tasks_of(run_items(spark, square, range(4), name="a")) == [0, 1, 2, 3]
        for thread in threads:
            thread.join()
        assert spark.conf.get(PARALLELISM) == "3"
        assert context is None or context.getLocalProperty("spark.jobGroup.id") == "of the notebook"
    finally:
        spark.conf.unset(PARALLELISM)
        if context is not None:
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # removes it


def test_a_frame_of_outcomes_runs_nothing_again(spark: SparkSession, tmp_path: Path) -> None:
    found = run_items(spark, partial(leaves_a_mark, tmp_path), range(3), name="try")
    frame = outcome_frame(spark, found)
    assert (frame.count(), len(frame.orderBy("seconds").collect()), len(frame.head(2))) == (3, 3, 2)
    assert frame.agg({"item": "sum"}).first() == (3,)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_row_counts_the_requests_of_its_item(spark: SparkSession, bucket: StoreSpec) -> None:
    found = run_items(spark, partial(moves, bucket), range(2), name="try")
    assert [(each.row["requests"], each.row["bytes"]) for each in found if each.row] == [(2, 20)] * 2


def ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def stop() -> None:
    raise StopRequested


@pytest.mark.parametrize(("act", "expected"), [(ctrl_c, KeyboardInterrupt), (stop, StopRequested)])
def test_ctrl_c_and_progress_that_raises_cancel_what_still_runs(
    spark: SparkSession, event_log: Path, act: Callable[[], None], expected: type[BaseException]
) -> None:
    def react(done: int, total: int) -> None:
        del total
        if done == 1:
            act()

    def failed() -> int:
        return sum(each["Job Result"]["Result"] == "JobFailed" for each in named(events(event_log), "JobEnd"))

    before = failed()
    with pytest.raises(expected):
        run_items(spark, waits, [0, 1], name="try", progress=react)
    wait_for(lambda: failed() > before, lambda: "the job was not cancelled")
