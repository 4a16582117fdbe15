"""Retention on Spark: all streams of some scopes, each as its owner wants, many at a time.

    streams = list_streams(store, ["shop", "billing"])
    report = retain_on_spark(spark, store, streams)

The driver lists the streams; a task opens the store and runs retention in its share of them, one after the other. What
is wrong with a stream, or in its way, stands in the report, and the others go on (`StreamStore.retain`). A task that
dies is tried again by Spark, and a job that dies, or runs twice at once, is safe: a run of retention may be repeated,
by any process, and then records another cut.

How far segments reach is for those to say who hold them, so a host is needed. `GivenSizes` is one for data that lies
elsewhere: segments count as empty until they are sealed, so that streams are truncated by whole segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from accel.errors import HostMissing
from accel.history.store import SegmentHost, StreamStore
from accel.history.store.hosts import StreamName
from accel.history.store.retention_workflow import Retained, StreamRetention
from accel.system import SYSTEM
from spark_jobs.tasks import StoreSpec, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_AT_ONCE = 8
STREAMS_A_TASK = 64
"""About 25 requests a stream, so half a minute of a store that answers in 20 ms."""

Progress = Callable[[int, int], object]
"""Told (done, in all)."""

Batch: TypeAlias = tuple[StreamName, ...]

HostMaker: TypeAlias = Callable[[], SegmentHost]
"""Makes what holds the segments, where a task runs; travels there, so it must be picklable."""


@dataclass(frozen=True, slots=True, eq=False)
class RetentionReport:
    """What a run did.

    Args:
        streams: what became of each, by scope and name.
        failed_tasks: attempts that failed.
        requests: of tasks; the listing of streams is not among them.
        seconds: from start to end.
    """

    streams: tuple[StreamRetention, ...]
    failed_tasks: int
    requests: int
    seconds: float

    def row(self) -> dict[str, int | float]:
        """What it took, as one row of numbers."""
        return {"failed_tasks": self.failed_tasks, "requests": self.requests, "seconds": self.seconds}


def list_streams(store: StoreSpec, scopes: Iterable[str]) -> list[StreamName]:
    """The streams of some scopes, each once. 3 requests a scope, and 1 for 1,000 streams.

    Raises:
        NotInHistory: there is no such scope.
        StoreError: the store cannot be read now.
    """
    streams = StreamStore.open(store.open())
    return sorted({(scope, name) for scope in scopes for name in streams.streams(scope)})


def retain_on_spark(  # noqa: PLR0913 - choices of one run, by name
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
    """Run retention in streams; what fails stands in the report.

    Args:
        spark: the session; a classic one.
        store: where the streams lie.
        streams: scopes and names, as `list_streams` gives them.
        time_ms: when, milliseconds since 1970; None = when it is a stream's turn.
        host: makes what holds the segments; None = nobody does, which is refused.
        streams_a_task: how many a task takes at most.
        at_once: tasks that run at the same time.
        is_dry_run: write nothing, and only tell what would become of them.
        progress: told how many streams are done.

    Raises:
        ValueError: less than one stream a task, or task at once.
        HostMissing: there is no host, and there are streams; nothing was changed.
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
    """What became of some streams, and how many requests it took."""
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
