"""Retention on Spark: truncates all streams of some scopes by their policies, several at a time.

    streams = list_streams(store, ["shop", "billing"])
    report = retain_on_spark(spark, store, streams)

The driver lists the streams; each task opens the store and runs retention in its share of the streams, one after
another. If retention of a stream fails or is not possible now, this is in the report, and the other streams continue
(`StreamStore.retain`). Spark retries a failed task. A job may crash or run twice at once: retention may be repeated by
any process, and then records another cut.

Only the process that holds the segments can determine their sizes, so a host is needed. `GivenSizes` is the host for
data outside the catalog: unsealed segments count as empty, so that streams are truncated by whole segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from accel.errors import HostMissing
from accel.history.store import Retained, SegmentHost, StreamRetention, StreamStore
from accel.history.store.hosts import StreamName
from accel.system import SYSTEM
from spark_jobs.tasks import StoreSpec, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_AT_ONCE = 8
STREAMS_A_TASK = 64
"""The number of streams of a task. A stream takes about 25 requests, so 64 take half a minute at 20 ms a request."""

Progress = Callable[[int, int], object]
"""Called with (number done, total number)."""

Batch: TypeAlias = tuple[StreamName, ...]

HostMaker: TypeAlias = Callable[[], SegmentHost]
"""Creates the host of the segments in a task; it is sent to the executors, so it must be picklable."""


@dataclass(frozen=True, slots=True, eq=False)
class RetentionReport:
    """The result of a run.

    Args:
        streams: the result of each stream, sorted by scope and name.
        failed_tasks: the number of failed attempts of tasks.
        requests: the number of requests of tasks, without the listing of streams.
        seconds: from start to end.
    """

    streams: tuple[StreamRetention, ...]
    failed_tasks: int
    requests: int
    seconds: float

    def row(self) -> dict[str, int | float]:
        """The cost of the run, as one row of numbers."""
        return {"failed_tasks": self.failed_tasks, "requests": self.requests, "seconds": self.seconds}


def list_streams(store: StoreSpec, scopes: Iterable[str]) -> list[StreamName]:
    """The streams of some scopes, each once. 3 requests a scope, and 1 for 1,000 streams.

    Raises:
        NotInHistory: there is no such scope.
        StoreError: the store cannot be read now.
    """
    streams = StreamStore.open(store.open())
    return sorted({(scope, name) for scope in scopes for name in streams.streams(scope)})


def retain_on_spark(  # noqa: PLR0913 - the options of one run, by name
    spark: SparkSession,
    store: StoreSpec,
    streams: Sequence[StreamName],
    *,
    time_ms: int | None = None,
    host: HostMaker | None = None,
    streams_a_task: int = STREAMS_A_TASK,
    at_once: int = TASKS_AT_ONCE,
    is_dry_run: bool = False,
    progress: Progress | None = None,
) -> RetentionReport:
    """Run retention in streams; failures are in the report.

    Args:
        spark: the session; a classic one, not Spark Connect.
        store: the store of the streams.
        streams: scopes and names, as returned by `list_streams`.
        time_ms: time of the cuts, milliseconds since 1970; None = the time when a stream is processed.
        host: creates the host of the segments; None is refused if there are streams.
        streams_a_task: the maximum number of streams of a task.
        at_once: tasks that run at the same time.
        is_dry_run: write nothing, and only report what would be done.
        progress: called with the number of streams that are done.

    Raises:
        ValueError: `streams_a_task` or `at_once` is below 1.
        HostMissing: there are streams, and no host; nothing was changed.
    """
    if streams_a_task < 1:
        raise ValueError(f"expected at least 1 stream a task, found {streams_a_task}")
    if host is None:
        if streams:
            raise HostMissing("run retention in streams", _name(streams[0]))
        return RetentionReport((), 0, 0, 0.0)
    started = SYSTEM.timer()
    work = partial(_retain, store, host, time_ms, is_dry_run)
    batches = _batches(streams, min(streams_a_task, -(-len(streams) // max(at_once, 1))))
    retained: list[StreamRetention] = []
    failed_tasks = requests = 0
    for outcome in run_tasks(spark, work, batches, at_once=at_once, label=_label):
        failed_tasks += outcome.failed_attempts
        if outcome.result is not None:
            of_batch, requests_of_batch = outcome.result
            retained += of_batch
            requests += requests_of_batch
        if outcome.error is not None:
            retained += [
                StreamRetention.stopped(_name(stream), Retained.FAILED, outcome.error) for stream in outcome.value
            ]
        if progress is not None:
            progress(len(retained), len(streams))
    retained.sort(key=lambda row: row.stream)
    return RetentionReport(tuple(retained), failed_tasks, requests, SYSTEM.timer() - started)


def _retain(
    store: StoreSpec, host: HostMaker, time_ms: int | None, is_dry_run: bool, batch: Batch
) -> tuple[tuple[StreamRetention, ...], int]:
    """The results of some streams, and the number of requests."""
    counted = store.open()
    streams = StreamStore.open(counted, host=host())
    retained = tuple(streams.retain(scope, name, time_ms, is_dry_run=is_dry_run) for scope, name in batch)
    return retained, counted.snapshot().total.requests


def _batches(streams: Sequence[StreamName], size: int) -> Iterator[Batch]:
    for start in range(0, len(streams), max(size, 1)):
        yield tuple(streams[start : start + size])


def _name(stream: StreamName) -> str:
    return "/".join(stream)


def _label(batch: Batch) -> str:
    return f"accel: retention of {len(batch)} streams from {_name(batch[0])} on"
