"""Runs a function on many values, each a Spark task of its own, and gives the results as they come.

    for outcome in run_tasks(spark, run_group, groups, at_once=8, label=str):               as they are done
        outcome.value, outcome.result or outcome.error, outcome.failed_attempts
    for outcome in run_tasks(spark, open_objects, chunks, at_once=8, label=str, in_order=True):   as they were given

Each value is a Spark *job* with one task, and a few of them run at once. So one that fails for good fails alone, the
driver can act on each result while others still run (commit a group, say), and Spark's pages show each by name. Spark
tries a task again as it does any other, and may run a slow one twice; the function must be able to bear both.

The function and the values travel to the executors, so both have to be picklable. A client of S3 holds connections and
locks and is not; its settings are: a `StoreSpec` travels, and becomes a store where the task runs. Credentials do not
travel: each process finds them where it runs, as every AWS tool does. Making a client takes longer than many a task, so
the tasks of one process, which Spark keeps, share one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from accel.errors import AccelError
from accel.system import SYSTEM
from loaders.parallel import run_bounded
from loaders.store import CountingStore, ObjectStore, S3Settings, open_store

if TYPE_CHECKING:
    from pyspark import SparkContext, SparkJobInfo, StatusTracker
    from pyspark.sql import DataFrame, SparkSession

STORES_KEPT_MAX = 8
"""Clients that one process keeps."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A bucket, and how to reach it.

    Args:
        url: as `open_store` takes it: s3://bucket/prefix.
        settings: of the client.
    """

    url: str
    settings: S3Settings = field(default_factory=S3Settings)

    def open(self) -> CountingStore:
        """The store, in this process; counts its requests anew.

        Raises:
            ValueError: not a URL of a store, or of one in the memory of this process, which no task can see.
        """
        if self.url.lower().startswith("memory:"):
            raise ValueError(f"expected a store that every process can reach, found {self.url}")
        return CountingStore(_shared_store(self))


@lru_cache(maxsize=STORES_KEPT_MAX)
def _shared_store(spec: StoreSpec) -> ObjectStore:
    return open_store(spec.url, spec.settings)


Value = TypeVar("Value")
Result = TypeVar("Result")

REASON_SIZE_MAX = 2_000
"""Characters of a failure that are kept: Spark adds the stack of each layer."""

ACCOUNT_LOOKS_MAX = 50
ACCOUNT_PAUSE_SECONDS = 0.02

_GROUPS = count(1)


class TaskFailed(AccelError):
    """A task failed as often as Spark was told to try it."""

    advice = "the message has the last line of its error; Spark's logs of the executors have the rest"


@dataclass(frozen=True, slots=True)
class Attempted(Generic[Result]):
    """What one task sent back.

    Args:
        result: of the function.
        attempt: which attempt it was, counted from 0.
    """

    result: Result
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskOutcome(Generic[Value, Result]):
    """What became of one value; exactly one of result and error is there.

    Args:
        value: which.
        result: of the function; None if the task failed for good.
        error: why it failed.
        failed_attempts: attempts that failed, also of those that succeeded in the end.
    """

    value: Value
    result: Result | None
    error: TaskFailed | None
    failed_attempts: int

    def required(self) -> Result:
        """The result, where the job cannot go on without it.

        Raises:
            TaskFailed: the task failed for good.
        """
        if self.result is None:
            raise self.error or AssertionError("an outcome has a result or an error")
        return self.result


def run_tasks(
    spark: SparkSession,
    function: Callable[[Value], Result],
    values: Iterable[Value],
    *,
    at_once: int,
    label: Callable[[Value], str],
    in_order: bool = False,
) -> Generator[TaskOutcome[Value, Result], None, None]:
    """Run a function on each value in a Spark task; results come in the order in which they are done.

    Values are taken from their iterable as tasks become free, never more than ``at_once`` ahead. Leaving the loop early
    cancels what still runs, and does not wait for it: see `loaders.parallel`.

    Args:
        spark: the session; a classic one, as Spark Connect has no tasks of one's own.
        function: what a task does.
        values: what it is done to.
        at_once: how many tasks run at the same time, at least 1.
        label: what Spark's pages call the task of a value.
        in_order: give results in the order of the values. One that is done early waits for those before it; values are
            taken up to twice ``at_once`` ahead, so no more results than that ever wait.
    """
    if at_once < 1:
        raise ValueError(f"expected at least 1 task at once, found {at_once}")
    context = spark.sparkContext
    threads = ThreadPoolExecutor(at_once, thread_name_prefix="accel-spark")
    groups: dict[Future[TaskOutcome[Value, Result]], str] = {}

    def start(value: Value) -> Future[TaskOutcome[Value, Result]]:
        group = f"accel-{next(_GROUPS)}"  # never one that was there before: attempts are counted by group
        future = threads.submit(_run_one, context, function, value, group, label(value))
        groups[future] = group
        return future

    try:
        for future in run_bounded(start, values, 2 * at_once if in_order else at_once, in_order=in_order):
            outcome = future.result()
            del groups[future]
            yield outcome
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for future, group in groups.items():
            if not future.done():
                context.cancelJobGroup(group)


def failed_attempts(context: SparkContext, group: str) -> int:
    """How many attempts at tasks of a job group failed, also of those that succeeded in the end.

    Spark's own account follows what happens a moment later, in its order: when it has ended a job, it has counted all
    attempts before. That is waited for, a second at most.
    """
    tracker = context.statusTracker()
    for _ in range(ACCOUNT_LOOKS_MAX):
        if not any(job.status == "RUNNING" for job in _jobs(tracker, group)):
            break
        SYSTEM.sleep(ACCOUNT_PAUSE_SECONDS)
    stages = [tracker.getStageInfo(stage_id) for job in _jobs(tracker, group) for stage_id in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage is not None)


def _jobs(tracker: StatusTracker, group: str) -> list[SparkJobInfo]:
    infos = (tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForGroup(group))
    return [info for info in infos if info is not None]


def failure_reason(error: Exception) -> str:
    """The last line of the Python traceback in what Spark says, which is the error itself."""
    text = str(error)
    before_java = text.partition("\n\tat ")[0]
    lines = [line.strip() for line in before_java.splitlines() if line.strip() and "SQLSTATE" not in line]
    return (lines[-1] if lines else text)[:REASON_SIZE_MAX]


def _run_one(
    context: SparkContext, function: Callable[[Value], Result], value: Value, group: str, description: str
) -> TaskOutcome[Value, Result]:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with the extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

    context.setJobGroup(group, description, interruptOnCancel=True)
    try:
        [attempted] = context.parallelize([value], 1).map(_attempt(function)).collect()
    except (PySparkException, Py4JJavaError) as error:
        failed = TaskFailed(f"{description}: {failure_reason(error)}")
        return TaskOutcome(value, None, failed, failed_attempts(context, group))
    return TaskOutcome(value, attempted.result, None, attempted.attempt)


def _attempt(function: Callable[[Value], Result]) -> Callable[[Value], Attempted[Result]]:
    def run(value: Value) -> Attempted[Result]:
        from pyspark import TaskContext  # noqa: PLC0415 - comes with the extra

        context = TaskContext.get()
        return Attempted(function(value), 0 if context is None else context.attemptNumber())

    return run


def row_frame(spark: SparkSession, row: Mapping[str, int | float]) -> DataFrame:
    """One row of numbers: whole ones, and `seconds`.

    Args:
        spark: the session.
        row: of a report: `report.row()`.
    """
    values = [float(value) if name == "seconds" else value for name, value in row.items()]
    columns = ", ".join(f"{name} {'DOUBLE' if name == 'seconds' else 'BIGINT'}" for name in row)
    return spark.createDataFrame([tuple(values)], columns)
