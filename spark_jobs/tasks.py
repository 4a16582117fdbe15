"""Runs a function on many values, each in its own Spark task, and yields the results.

    for outcome in run_tasks(spark, run_group, groups, at_once=8, label=str):               in order of completion
        outcome.value, outcome.result or outcome.error, outcome.failed_attempts
    for outcome in run_tasks(spark, open_objects, chunks, at_once=8, label=str, in_order=True):   in order of the values

Each value is a Spark *job* with one task, and several jobs run at once. So a permanent failure affects one value only,
the driver can process each result while other tasks still run (for example, commit a group), and Spark's pages show
each task by name. Spark retries a failed task, and may run a slow task twice; the function must allow for both.

The function and the values are sent to the executors, so both must be picklable. A client of S3, with its connections
and locks, is not picklable, but its settings are: a `StoreSpec` is sent, and opens the store in the task. Credentials
are not sent: each process finds them on its own machine, as AWS tools do. Creating a client takes longer than many
tasks, so all tasks of one process, which Spark keeps, share a client.
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
from loaders.store import CountingStore, ObjectStore, StoreSettings, open_store
from loaders.threads import run_bounded

if TYPE_CHECKING:
    from pyspark import SparkContext, SparkJobInfo, StatusTracker
    from pyspark.sql import DataFrame, SparkSession

STORES_KEPT_MAX = 8
"""The maximum number of clients in one process."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A bucket, and the settings of its client.

    Args:
        url: as for `open_store`: s3://bucket/prefix.
        settings: of the client.
    """

    url: str
    settings: StoreSettings = field(default_factory=StoreSettings)

    def open(self) -> CountingStore:
        """Open the store in this process; its counts of requests start at 0.

        Raises:
            ValueError: not a URL of a store, or the URL of a store in the memory of this process.
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
"""The maximum number of characters of a failure's reason: Spark adds the stack of each layer."""

ACCOUNT_LOOKS_MAX = 50
ACCOUNT_PAUSE_SECONDS = 0.02

_GROUPS = count(1)


class TaskFailed(AccelError):
    """A task failed in all attempts that Spark made."""

    advice = "the message contains the last line of the error; Spark's logs of the executors contain the rest"


@dataclass(frozen=True, slots=True)
class Attempted(Generic[Result]):
    """The result of one task.

    Args:
        result: of the function.
        attempt: the number of the attempt, from 0.
    """

    result: Result
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskOutcome(Generic[Value, Result]):
    """The result of one value; exactly one of result and error is set.

    Args:
        value: the value.
        result: of the function; None if the task failed permanently.
        error: the reason of the failure.
        failed_attempts: the number of failed attempts; may be above 0 for tasks that succeeded.
    """

    value: Value
    result: Result | None
    error: TaskFailed | None
    failed_attempts: int

    def required(self) -> Result:
        """The result, for jobs that cannot continue without it.

        Raises:
            TaskFailed: the task failed permanently.
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
    """Run a function on each value in a Spark task; yields results in the order of completion.

    Values are taken from their iterable when tasks become free, never more than ``at_once`` ahead. Leaving the loop
    early cancels running tasks, and does not wait for them: see `loaders.threads`.

    Args:
        spark: the session; a classic one, as Spark Connect has no API for tasks.
        function: runs in each task.
        values: the arguments of the function, one a task.
        at_once: the number of tasks that run at the same time, at least 1.
        label: returns the name of a value's task on Spark's pages.
        in_order: yield results in the order of the values. A result that is ready early waits for those before it;
            values are taken up to twice ``at_once`` ahead, so at most this number of results waits.
    """
    if at_once < 1:
        raise ValueError(f"expected at least 1 task at once, found {at_once}")
    context = spark.sparkContext
    threads = ThreadPoolExecutor(at_once, thread_name_prefix="accel-spark")
    groups: dict[Future[TaskOutcome[Value, Result]], str] = {}

    def start(value: Value) -> Future[TaskOutcome[Value, Result]]:
        group = f"accel-{next(_GROUPS)}"  # unique: attempts are counted by group
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
    """The number of failed attempts of tasks of a job group, including tasks that succeeded in the end.

    Spark's status tracker is updated a moment later, but in order: when it reports the end of a job, it has counted all
    attempts of the job. This function waits for that, at most a second.
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
    """The last line of the Python traceback in Spark's message, which is the error itself."""
    text = str(error)
    before_java = text.partition("\n\tat ")[0]
    lines = [line.strip() for line in before_java.splitlines() if line.strip() and "SQLSTATE" not in line]
    return (lines[-1] if lines else text)[:REASON_SIZE_MAX]


def _run_one(
    context: SparkContext, function: Callable[[Value], Result], value: Value, group: str, description: str
) -> TaskOutcome[Value, Result]:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - installed with the extra
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
        from pyspark import TaskContext  # noqa: PLC0415 - installed with the extra

        context = TaskContext.get()
        return Attempted(function(value), 0 if context is None else context.attemptNumber())

    return run


def row_frame(spark: SparkSession, row: Mapping[str, int | float]) -> DataFrame:
    """A data frame with one row of integers, and `seconds` as a float.

    Args:
        spark: the session.
        row: of a report, by `report.row()`.
    """
    values = [float(value) if name == "seconds" else value for name, value in row.items()]
    columns = ", ".join(f"{name} {'DOUBLE' if name == 'seconds' else 'BIGINT'}" for name in row)
    return spark.createDataFrame([tuple(values)], columns)
