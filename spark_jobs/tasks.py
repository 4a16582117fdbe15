"""Runs a function on many items as one query of Spark: one job of one stage, in which each item is a task.

    outcomes = run_items(spark, partial(build_node, store), nodes, weights=seconds, name="build hints")
    outcomes[3].item, outcomes[3].result or outcomes[3].error            in the order of the items

The items are rows of a data frame, one row a partition, heaviest first, and `mapInArrow` runs the function on each. So
the cluster decides how many run at once, dynamic allocation sees all of them, and a lost executor costs only its items.
There is no shuffle: after one, Spark may run an item twice at once, both as the first attempt. Items that take less
than a second share a task, as a task costs 29 ms by itself.

The result of each item is one row, `ROWS`. No item raises in its task: an error is a row, too, and the items whose
errors are retryable run once more, in a second query. But Spark fails a whole query if the process of a task ends in
each of its attempts, for example for want of memory. No row arrives then, although some items were done: all outcomes
have `SparkGaveUp` as their error, which names the item, and the caller has to find out what was done.

The query is collected exactly once, and its frame is never handed out: counting or sorting it would run the function
again. `outcome_frame` makes a frame of the rows that were collected.

The function and the items are sent to the executors by Spark's own serializer, so both must be picklable. A client of
S3, with its connections and locks, is not picklable, but its settings are: a `StoreSpec` is sent, and opens the store
in the task. Credentials are not sent: each process finds them on its own machine, as AWS tools do. Creating a client
takes longer than many tasks, so all tasks of one process, which Spark keeps, share a client.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import count
from os import getpid
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakSet

from accel.errors import AccelError, MissingExtra
from accel.system import SYSTEM, release_version
from loaders.store import CountingStore, ObjectStore, StoreSettings, open_store
from loaders.threads import start_thread
from spark_jobs.session import context_of, is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.shell.progress import StageInfo

STORES_KEPT_MAX = 8
"""The maximum number of clients in one process."""

PACK_SECONDS = 1.0
"""Items that take less time share a task that takes about as long."""

NODE_SECONDS = 0.3
OBJECTS_A_SECOND = 1_000
"""How long the plan or the hints of a node take, roughly: which is begun first, and which share a task."""

PACK_ITEMS_MAX = 1_000
"""The maximum number of items in a task."""

QUERY_BYTES_MAX = 256 * 1024 * 1024
"""Items of more bytes in all are divided among several queries: the driver keeps the items of a query in memory."""

ITEM_BYTES_MAX = 64 * 1024 * 1024
"""The maximum size of one item; Spark sends no task above 128 MiB (`spark.rpc.message.maxSize`)."""

SECOND_PASS_SECONDS = 2.0
"""The pause before the second pass, in which a busy store recovers."""

SECOND_PASS = 100
"""The number of the first attempt in the second pass; in the first pass attempts count from 0."""

PROGRESS_SECONDS = 0.5
REASON_SIZE_MAX = 2_000
"""The maximum number of characters of a failure's reason: Spark adds the stack of each layer."""

ROWS: Final = (
    "item BIGINT, partition BIGINT, attempt BIGINT, seconds DOUBLE, requests BIGINT, bytes BIGINT, "
    "error STRING, retryable BOOLEAN"
)
"""The columns of a row: the number of the item in the caller's order, the partition, the attempt (`Attempt.number`),
the duration of the function, requests and bytes (sent and received) of the stores that it opened by `StoreSpec.open`,
the error (null if there is none), and whether another attempt may help. A further column, `result`, has the pickled
result.
"""

_FAILED_TASK = re.compile(
    r"Task (\d+) in stage \S+ failed (\d+) times, most recent failure: Lost task \S+ in stage \S+ \([^)]*\) \([^)]*\): "
)
_JOB_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
_NAMES = count(1)

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], object]
"""Called with (number of items done, total number), in any thread."""


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
        counted = CountingStore(_shared_store(self))
        if _running is not None and _running.process_id == getpid():
            _running.stores.append(counted)
        return counted


@lru_cache(maxsize=STORES_KEPT_MAX)
def _shared_store(spec: StoreSpec) -> ObjectStore:
    return open_store(spec.url, spec.settings)


class TaskFailed(AccelError):
    """An item failed in its task."""

    advice = "the message contains the error of the task"


class SparkGaveUp(TaskFailed):
    """Spark gave up on a whole query, so it is unknown which items were done."""

    advice = (
        "run the job again: what was done is not repeated; if a task ended for want of memory, raise memoryOverhead"
    )


@dataclass(frozen=True, slots=True)
class ItemOutcome(Generic[Item, Result]):
    """The outcome of one item.

    Args:
        item: the item.
        result: of the function; None if there is an error.
        error: why there is no result; `SparkGaveUp`: no row arrived, and the item may be done.
        failures: the failed attempts that are known: not those whose process ended before another one succeeded.
        row: the values of `ROWS`; None without a row.
    """

    item: Item
    result: Result | None
    error: TaskFailed | None
    failures: int = 0
    row: Mapping[str, Any] | None = None

    @property
    def requests(self) -> int:
        """Of the attempt that returned; 0 without a row."""
        return 0 if self.row is None else int(self.row["requests"])

    @property
    def moved_bytes(self) -> int:
        """Likewise."""
        return 0 if self.row is None else int(self.row["bytes"])

    def required(self) -> Result:
        """The result, for jobs that cannot continue without it.

        Raises:
            TaskFailed: there is an error.
        """
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # a function may return None


class Attempt(NamedTuple):
    """Which attempt of a task runs in this process.

    Args:
        partition: the number of the task in its query; heavier items have lower numbers.
        number: 0 for the first attempt, from `SECOND_PASS` on in the second pass. A copy of a slow task that Spark
            starts elsewhere has a number above 0, too.
    """

    partition: int = 0
    number: int = 0


@dataclass(slots=True)
class _Running:
    """The item that this process works on, and what it has opened."""

    process_id: int
    attempt: Attempt
    stores: list[CountingStore] = field(default_factory=list)

    def moved(self) -> tuple[int, int]:
        """Requests and bytes so far."""
        totals = [store.snapshot().total for store in self.stores]
        return sum(each.requests for each in totals), sum(each.sent_bytes + each.received_bytes for each in totals)


_running: _Running | None = None
"""Set in processes of tasks only; these run one item at a time."""


def this_attempt() -> Attempt:
    """The attempt that runs in this process, for functions of items; the first one outside of tasks."""
    return Attempt() if _running is None else _running.attempt


def run_items(
    spark: SparkSession,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    name: str,
    weights: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> list[ItemOutcome[Item, Result]]:
    """Run a function on each item in a task of Spark; returns the outcomes in the order of the items.

    Never raises for an item: see `ItemOutcome`. Ctrl-C cancels the query, as does an exception of ``progress``, which
    this function raises.

    Raises:
        MissingExtra: of `require_packages`, before any item runs.

    Args:
        spark: the session, classic or of Spark Connect. While the query runs, its setting
            `spark.sql.leafNodeDefaultParallelism` is the number of tasks; several threads may share a session.
        function: runs in each task, perhaps several times and twice at once.
        items: the arguments of the function.
        name: of the step on Spark's pages and in errors: "build hints".
        weights: the expected seconds of each item: those that take less than `PACK_SECONDS` share a task of about this
            time; None = each item is a task of its own, in this order.
        progress: called each half second (classic), or as Spark Connect reports tasks that ended.
    """
    require_packages(spark)
    outcomes: dict[int, ItemOutcome[Item, Result]] = {}
    pickled: dict[int, bytes] = {}
    for number, item in enumerate(items):
        pickled[number] = _pickled(item)
        if len(pickled[number]) > ITEM_BYTES_MAX:
            found = f"{name}: expected items of at most {ITEM_BYTES_MAX} bytes, found {len(pickled.pop(number))}"
            outcomes[number] = ItemOutcome(item, None, TaskFailed(f"{found} for item {number}"))
    step = _Step(spark, function, items, name, len(items), progress)
    packs = [[each] for each in pickled]
    if weights is not None:
        packs = packed({number: weights[number] for number in pickled})
    for query in _queries(packs, pickled):
        outcomes |= step.run(query, pickled, 0)
    again = [number for number, outcome in outcomes.items() if outcome.row is not None and outcome.row["retryable"]]
    if again:
        SYSTEM.sleep(SECOND_PASS_SECONDS)
        for query in _queries([[number] for number in again], pickled):
            for number, outcome in step.run(query, pickled, SECOND_PASS).items():
                outcomes[number] = replace(outcome, failures=outcomes[number].failures + outcome.failures)
    return [outcomes[number] for number in range(len(items))]


_with_packages: WeakSet[SparkSession] = WeakSet()


def require_packages(spark: SparkSession) -> None:
    """Check by one task, once a session, that executors can import this package, in this version.

    The function of a task is sent by its name, so executors need the packages of the driver. In a local session they
    have them.

    Raises:
        MissingExtra: they cannot, or have another version; the message says what to do.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - installed with the extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

    context = context_of(spark)
    if spark in _with_packages or (context is not None and is_local(context.master or "")):
        return
    try:
        [row] = spark.range(0, 1, 1, 1).mapInArrow(_probe(), "found STRING").collect()
        found = row.found
    except (PySparkException, Py4JError) as error:
        _raise_interrupt_before(error)
        found = failure_of(error).reason
    version = release_version()
    if found != f"version {version}":
        raise MissingExtra(
            f"expected Accel {version} on the executors of Spark, found {found}: install "
            "'accel-streams[spark]' of this version in their Python, or send an environment by spark.archives"
        )
    _with_packages.add(spark)


def _probe() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # refers to nothing of this module
        import importlib  # noqa: PLC0415 - in the task

        import pyarrow as pa  # noqa: PLC0415 - likewise

        for _ in batches:
            try:
                found = f"version {importlib.import_module('spark_jobs.tasks').release_version()}"
            except Exception as error:  # noqa: BLE001 - whatever it is, the driver names it
                found = f"{type(error).__name__}: {error}"
            yield pa.RecordBatch.from_pydict({"found": [found]})

    return probe


def node_seconds(objects: int) -> float:
    """The expected seconds for a node with so many objects to look at."""
    return NODE_SECONDS + objects / OBJECTS_A_SECOND


def packed(weights: Mapping[int, float]) -> list[list[int]]:
    """The items of each task, heaviest task first; short ones share tasks.

    >>> packed({0: 0.4, 1: 9.0, 2: 0.5, 3: 30.0, 4: 0.2})
    [[3], [1], [2, 0], [4]]
    """
    packs: list[list[int]] = []
    left = 0.0
    for number in sorted(weights, key=lambda each: (-weights[each], each)):
        weight = weights[number]
        if not packs or weight > left or len(packs[-1]) == PACK_ITEMS_MAX:
            packs.append([])
            left = PACK_SECONDS
        packs[-1].append(number)
        left -= weight
    return packs


def _queries(packs: list[list[int]], pickled: Mapping[int, bytes]) -> Iterator[list[list[int]]]:
    query: list[list[int]] = []
    size = 0
    for pack in packs:
        added = sum(len(pickled[number]) for number in pack)
        if query and size + added > QUERY_BYTES_MAX:
            yield query
            query, size = [], 0
        query.append(pack)
        size += added
    if query:
        yield query


@dataclass(slots=True)
class _Step(Generic[Item, Result]):
    """Runs the queries of one call of `run_items`."""

    spark: SparkSession
    function: Callable[[Item], Result]
    items: Sequence[Item]
    name: str
    total: int
    progress: Progress | None
    done: int = 0
    stopped: BaseException | None = None
    """What `progress` has raised."""

    def run(
        self, packs: list[list[int]], pickled: Mapping[int, bytes], first_attempt: int
    ) -> dict[int, ItemOutcome[Item, Result]]:
        """One query; returns the outcome of each of its items, by number."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - installed with the extra
        from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

        numbers = [number for pack in packs for number in pack]
        table = _table([_pickled([(number, pickled[number]) for number in pack]) for pack in packs])
        try:
            with _as_partitions(self.spark, len(packs)), self._watched(len(packs), len(numbers), first_attempt):
                frame = self.spark.createDataFrame(table).mapInArrow(
                    _in_task(self.function, first_attempt), f"{ROWS}, result BINARY"
                )
                rows = frame.toArrow()
        except (PySparkException, Py4JError) as error:
            _raise_interrupt_before(error)
            if self.stopped is not None:
                raise self.stopped from None
            return self._without_rows(packs, failure_of(error))
        return {row["item"]: self._outcome(row) for row in rows.to_pylist()}

    def _outcome(self, row: dict[str, Any]) -> ItemOutcome[Item, Result]:
        data, text = row.pop("result"), row["error"]
        error = None if text is None else TaskFailed(f"{self.name}: {text}")
        result = None if data is None else _unpickled(data)
        return ItemOutcome(self.items[row["item"]], result, error, 0 if error is None else 1, row)

    def _without_rows(self, packs: list[list[int]], failure: Failure) -> dict[int, ItemOutcome[Item, Result]]:
        culprits = next(iter(packs[failure.partition :]), []) if failure.partition is not None else []
        found: dict[int, ItemOutcome[Item, Result]] = {}
        for number in (number for pack in packs for number in pack):
            which = "the job"
            if culprits:
                which = f"{'this' if number in culprits else 'another'} item's task after {failure.attempts} attempts"
            error = SparkGaveUp(f"{self.name}: Spark gave up on {which}: {failure.reason}")
            failures = failure.attempts if number in culprits else 0
            found[number] = ItemOutcome(self.items[number], None, error, failures)
        return found

    @contextmanager
    def _watched(self, tasks: int, items: int, first_attempt: int) -> Iterator[None]:
        """Names the query on Spark's pages and reports progress; cancels the query if another error ends the wait."""
        done_before = self.done if first_attempt == 0 else self.total - items

        def tell(tasks_done: int) -> None:
            try:
                if self.progress is not None:
                    self.progress(done_before + min(items, tasks_done * items // tasks), self.total)
            except BaseException as error:
                self.stopped = error
                raise

        described = f"accel: {self.name}, {items} items" + (", second pass" if first_attempt else "")
        context = context_of(self.spark)
        with _on_connect(self.spark, tell) if context is None else _on_classic(context, described, tell):
            yield
        self.done = done_before + items
        tell(tasks)


_leaves: dict[int, tuple[str | None, list[int]]] = {}
"""By session: the user's setting, and the numbers of tasks of the queries that run in it."""

_leaves_lock = Lock()


@contextmanager
def _as_partitions(spark: SparkSession, tasks: int) -> Iterator[None]:
    """While the block runs, each of up to ``tasks`` rows of a local table is a partition of its own.

    Spark makes as many partitions as this setting says, and never more than there are rows. So it may be larger than a
    query needs: several threads that share a session set the largest of their numbers.
    """
    with _leaves_lock:
        before, running = _leaves.setdefault(id(spark), (spark.conf.get(_PARALLELISM, None), []))
        running.append(tasks)
        spark.conf.set(_PARALLELISM, str(max(running)))
    try:
        yield
    finally:
        with _leaves_lock:
            running.remove(tasks)
            if not running:
                del _leaves[id(spark)]
                with suppress(Exception):  # of a session that has ended
                    spark.conf.unset(_PARALLELISM) if before is None else spark.conf.set(_PARALLELISM, before)


@contextmanager
def _on_classic(context: SparkContext, described: str, tell: Callable[[int], object]) -> Iterator[None]:
    group, ended = f"accel-{next(_NAMES)}", Event()
    kept = {key: context.getLocalProperty(key) for key in _JOB_PROPERTIES}  # a notebook may have its own group
    context.setJobGroup(group, described, interruptOnCancel=True)
    start_thread(partial(_tell_tasks_done, context, group, tell, ended), "accel-spark-progress")
    try:
        yield
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        ended.set()
        for key, value in kept.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None removes it


def _tell_tasks_done(context: SparkContext, group: str, tell: Callable[[int], object], ended: Event) -> None:
    tracker = context.statusTracker()
    with suppress(Exception):  # of a session that has ended
        while not ended.wait(PROGRESS_SECONDS):
            jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
            stages = filter(None, (tracker.getStageInfo(stage_id) for job in jobs for stage_id in job.stageIds))
            done = sum(stage.numCompletedTasks for stage in stages)
            if done and not ended.is_set():
                try:  # also if no further task has ended: what `progress` looks at may have changed
                    tell(done)
                except BaseException:  # noqa: BLE001 - the thread that waits for the query raises it
                    context.cancelJobGroup(group)
                    return


@contextmanager
def _on_connect(spark: SparkSession, tell: Callable[[int], object]) -> Iterator[None]:
    tag = f"accel-{next(_NAMES)}"

    def handle(stages: Iterable[StageInfo] | None, **_: object) -> None:
        tell(sum(stage.num_completed_tasks for stage in stages or ()))

    spark.addTag(tag)
    spark.registerProgressHandler(handle)  # type: ignore[arg-type]  # called with names
    try:
        yield
    except BaseException:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeProgressHandler(handle)  # type: ignore[arg-type]  # likewise
        spark.removeTag(tag)


def _raise_interrupt_before(error: BaseException) -> None:
    """Ctrl-C cancels the job, and PySpark raises the error of the cancelled job instead of the interrupt."""
    context = error.__context__
    while context is not None:
        if not isinstance(context, Exception):
            raise context
        context = context.__context__


class Failure(NamedTuple):
    """Why Spark gave up on a query.

    Args:
        reason: the error, one line.
        partition: the number of the task that failed too often; None if it was no task.
        attempts: of this task.
    """

    reason: str
    partition: int | None = None
    attempts: int = 0


def failure_of(error: Exception) -> Failure:
    """The reason in an error of Spark, which is several stacks of Java, often with one of Python."""
    text = str(error)
    failed = _FAILED_TASK.search(text)
    before_java = text[failed.end() if failed else 0 :].partition("\n\tat ")[0]
    lines = [line.strip() for line in before_java.splitlines() if line.strip() and "SQLSTATE" not in line] or [text]
    reason = (lines[-1] if "Traceback" in before_java else lines[0]).removeprefix("org.apache.spark.SparkException: ")
    if failed is None:
        return Failure(reason[:REASON_SIZE_MAX])
    return Failure(reason[:REASON_SIZE_MAX], int(failed[1]), int(failed[2]))


def _table(rows: list[bytes]) -> pa.Table:
    """A table whose rows are batches of their own.

    Above `spark.sql.execution.arrow.localRelationThreshold` a classic session makes a partition of each batch; below,
    of each row.
    """
    import pyarrow as pa  # noqa: PLC0415 - installed with the extra

    schema = pa.schema([("items", pa.binary())])
    return pa.Table.from_batches([pa.record_batch([pa.array([row], pa.binary())], schema) for row in rows], schema)


def _in_task(
    function: Callable[[Any], Any], first_attempt: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pack in batch.column(0).to_pylist():
                for number, item in _unpickled(pack):
                    yield _row(function, number, item, first_attempt)

    return run


def _row(function: Callable[[Any], Any], number: int, pickled: bytes, first_attempt: int) -> pa.RecordBatch:
    """Runs the function; returns one row. An error is a row, too, except one that ends the process."""
    global _running  # noqa: PLW0603 - a task has one item at a time, and its function takes only the item
    import pyarrow as pa  # noqa: PLC0415 - installed with the extra
    from pyspark import TaskContext  # noqa: PLC0415 - likewise

    context = TaskContext.get()
    partition, tried = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
    _running = _Running(getpid(), Attempt(partition, first_attempt + tried))
    started, result, error, is_retryable = SYSTEM.timer(), None, None, False
    try:
        result = _pickled(function(_unpickled(pickled)))
    except Exception as failed:  # noqa: BLE001 - whatever it is, the other items of the query go on
        error = f"{type(failed).__name__}: {failed}{_place(failed)}"[:REASON_SIZE_MAX]
        is_retryable = failed.retryable if isinstance(failed, AccelError) else isinstance(failed, OSError)
    requests, moved = _running.moved()
    values = [number, *_running.attempt, SYSTEM.timer() - started, requests, moved, error, is_retryable, result]
    _running = None
    kinds = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "STRING": pa.string(), "BOOLEAN": pa.bool_()}
    schema = pa.schema([(column, kinds[kind]) for column, kind in map(str.split, ROWS.split(", "))])
    schema = schema.append(pa.field("result", pa.binary()))
    return pa.record_batch([pa.array([value], each.type) for value, each in zip(values, schema, strict=True)], schema)


def _place(error: Exception) -> str:
    """Where an error that is none of Accel's was raised; the executors' logs do not have it."""
    if isinstance(error, AccelError | OSError):
        return ""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f" (line {last.lineno} of {last.filename})"


def _pickled(value: object) -> bytes:
    return bytes(_serializer().dumps(value))


def _unpickled(data: bytes) -> Any:
    return _serializer().loads(data)


@cache
def _serializer() -> Any:
    from pyspark import serializers  # noqa: PLC0415 - installed with the extra

    untyped: Any = serializers
    return untyped.CloudPickleSerializer()


def outcome_frame(spark: SparkSession, outcomes: Iterable[ItemOutcome[Any, Any]]) -> DataFrame:
    """A data frame of the rows of outcomes, with the columns of `ROWS`. It has values only: no item runs again."""
    rows = [tuple(outcome.row.values()) for outcome in outcomes if outcome.row is not None]
    return spark.createDataFrame(rows, ROWS)


def row_frame(spark: SparkSession, row: Mapping[str, int | float]) -> DataFrame:
    """A data frame with one row of integers, and `seconds` as a float.

    Args:
        spark: the session.
        row: of a report, by `report.row()`.
    """
    values = [float(value) if name == "seconds" else value for name, value in row.items()]
    columns = ", ".join(f"{name} {'DOUBLE' if name == 'seconds' else 'BIGINT'}" for name in row)
    return spark.createDataFrame([tuple(values)], columns)
