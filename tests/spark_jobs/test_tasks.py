"""Tasks fail alone, are counted when they are tried again, and none is begun before it can be used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from spark_jobs.tasks import TaskFailed, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

in_order = partial(run_tasks, in_order=True)
RUNNERS = [run_tasks, in_order]


def square(value: int) -> int:
    return value * value


def fails_at_first(value: int) -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - as in a task

    context = TaskContext.get()
    if value == 0 and context is not None and context.attemptNumber() < 2:
        raise OSError("the network is down")
    return value


def fails_for_good(value: int) -> int:
    if value == 1:
        raise ValueError("one is not liked here")
    return value


def waits(value: int) -> int:
    if value == 1:
        threading.Event().wait(250)
    return value


def label(value: int) -> str:
    return f"test: value {value}"


@pytest.mark.parametrize("run", RUNNERS)
def test_each_value_has_its_result(spark: SparkSession, run: type) -> None:
    found = {each.value: each.result for each in run(spark, square, range(5), at_once=3, label=label)}
    assert found == {value: value * value for value in range(5)}


def test_attempts_that_failed_are_counted_and_results_keep_their_order(spark: SparkSession) -> None:
    found = list(in_order(spark, fails_at_first, [0, 1, 2, 3], at_once=2, label=label))
    assert [(each.result, each.failed_attempts) for each in found] == [(0, 2), (1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize("run", RUNNERS)
def test_a_task_that_fails_for_good_fails_alone(spark: SparkSession, run: type) -> None:
    found = {each.value: each for each in run(spark, fails_for_good, [0, 1, 2], at_once=2, label=label)}
    assert [found[value].result for value in (0, 2)] == [0, 2]
    failed = found[1]
    assert failed.result is None
    assert isinstance(failed.error, TaskFailed)
    assert str(failed.error) == "test: value 1: ValueError: one is not liked here"
    assert failed.failed_attempts == 4


def test_values_are_taken_as_tasks_become_free(spark: SparkSession) -> None:
    taken: list[int] = []

    def values() -> Iterator[int]:
        for value in range(9):
            taken.append(value)
            yield value

    outcomes = run_tasks(spark, square, values(), at_once=2, label=label)
    assert not taken
    next(outcomes)
    assert taken == [0, 1]
    ordered = in_order(spark, square, iter(values()), at_once=2, label=label)
    taken.clear()
    next(ordered)
    assert taken == [0, 1, 2, 3]
    outcomes.close()
    ordered.close()


def test_leaving_early_cancels_what_still_runs(spark: SparkSession) -> None:
    outcomes = run_tasks(spark, waits, [0, 1], at_once=2, label=label)
    assert next(outcomes).result == 0
    outcomes.close()
    tracker, pause = spark.sparkContext.statusTracker(), threading.Event()
    for _ in range(300):  # they end by themselves, once Spark has cancelled them
        if not tracker.getActiveJobsIds():
            return
        pause.wait(0.1)
    pytest.fail(f"jobs go on: {tracker.getActiveJobsIds()}")


@pytest.mark.parametrize("run", RUNNERS)
def test_at_least_one_task_runs_at_once(spark: SparkSession, run: type) -> None:
    with pytest.raises(ValueError, match="at least 1 task"):
        next(run(spark, square, [1], at_once=0, label=label))
