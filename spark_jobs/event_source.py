"""Events of a stream for Spark: the table `events` of the data source, for `spark.read` and `spark.readStream`.

    spark.read.format("streamset").option("table", "events").option("scope", "shop").option("stream", "orders")
        .option("from", "24h ago").load("s3://bucket/prefix")

    | option              | meaning                                                                 | default         |
    |---------------------|-------------------------------------------------------------------------|-----------------|
    | scope, stream       | scope and name of the stream                                            |                 |
    | from                | where to begin: head, tail, a cut (0@0=5 1@0=7, or JSON as in           | head            |
    |                     | checkpoints) or a moment (2026-11-21T17:00:00Z, 24h ago); a streaming   |                 |
    |                     | query with a checkpoint continues there                                 |                 |
    | to                  | where to end                                                            | tail; for       |
    |                     |                                                                         | streams: no end |
    | offsets-per-task    | the number of offsets that one task reads                               | 100,000, or     |
    |                     |                                                                         | 32 MiB          |
    | failOnDataLoss      | false: events that were truncated are skipped                           | true            |
    | maxEventsPerTrigger | the limit of a batch of a streaming query, if offsets count events      | none            |
    | maxBytesPerTrigger  | the same, if offsets count bytes                                        | none            |

A partition is a list of ranges of offsets (`accel.tables.event_ranges`). Tasks look objects up by themselves, so that a
plan outlives compaction; all tasks of one process, which Spark keeps, share an image of the catalog and its caches.

The offset of a streaming query is a cut with the id of the stream, as JSON with sorted keys, because Spark compares the
text: {"cut": {"0@0": 120, "1@0": 7}, "stream": "..."}. A batch never has events of a segment and of its successor: it
ends at the seal, whatever the limit is. So the order of the events of a key holds from batch to batch. `availableNow`
continues with further batches up to the end that the stream had when the query started; `once` takes one batch.

Nothing depends on `commit`. Spark stores the offsets of a batch before it runs the batch, and the same offsets return
the same events; with a sink that ignores or replaces a repeated batch each event is written exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from accel.cli.stream.notation import HEAD, TAIL, Place, moment_ms, numbers_by_segment, parse_place
from accel.errors import InvalidArgument, PositionTruncated, StreamDeleted
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.values import Cut, parse_segment
from accel.streams.connection import Connection, connect
from accel.tables.event_batches import event_batches
from accel.tables.event_ranges import SegmentRange, StreamEvents, packed
from spark_jobs.tasks import StoreSpec

EVENT_OPTIONS = frozenset(
    {"from", "to", "offsets-per-task", "failondataloss", "maxeventspertrigger", "maxbytespertrigger"}
)
"""Options of this table only, in lower case, as Spark passes them."""

OFFSETS_A_TASK = {OffsetUnit.RECORDS: 100_000, OffsetUnit.BYTES: 32 << 20}

STREAMS_KEPT_MAX = 4
"""The number of streams that a process keeps open for its tasks."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream, and how it is read.

    Args:
        store: the store of the catalog.
        scope, stream: scope and name of the stream.
        skips_truncated: whether truncated events are skipped.
    """

    store: StoreSpec
    scope: str
    stream: str
    skips_truncated: bool

    def open(self, streams: Connection | None = None) -> StreamEvents:
        """Open the stream, with a connection of its own if none is given. Raises as `StreamEvents`."""
        streams = connect(self.store.open()) if streams is None else streams
        return StreamEvents(streams, self.scope, self.stream, skips_truncated=self.skips_truncated)


@dataclass(frozen=True, slots=True)
class EventOptions:
    """What a query reads of a stream.

    Args:
        spec: the stream.
        start: where to begin.
        stop: where to end; None = the end when the query is planned; for a streaming query, no end.
        offsets_a_task: None = `OFFSETS_A_TASK`.
        events_max, bytes_max: the limit of a batch of a streaming query.
    """

    spec: StreamSpec
    start: Place
    stop: Place | None
    offsets_a_task: int | None
    events_max: int | None
    bytes_max: int | None

    @classmethod
    def of(cls, store: StoreSpec, given: Mapping[str, str]) -> EventOptions:
        """Read and check options.

        Raises:
            ValueError: no scope or stream, an invalid place or number, or two limits.
        """
        if not {"scope", "stream"} <= given.keys():
            raise ValueError("table events: expected the options scope and stream, found one of them or none")
        if "maxeventspertrigger" in given and "maxbytespertrigger" in given:
            raise ValueError("expected maxEventsPerTrigger or maxBytesPerTrigger, found both")
        return cls(
            StreamSpec(store, given["scope"], given["stream"], not flag_of("failOnDataLoss", given, "true")),
            _place("from", given.get("from", HEAD)),
            _place("to", given["to"]) if "to" in given else None,
            *(
                number_of(name, given[name.lower()], 1) if name.lower() in given else None
                for name in ("offsets-per-task", "maxEventsPerTrigger", "maxBytesPerTrigger")
            ),
        )

    def partitions(self, events: StreamEvents, start: Cut, end: Cut) -> list[InputPartition]:
        """The partitions between two cuts; raises as `StreamEvents.between`."""
        size = self.offsets_a_task or OFFSETS_A_TASK[events.unit]
        with _naming_the_option():
            ranges = events.between(start, end)
        return [EventPartition(events.stream.unique_id, task) for task in packed(ranges, size)]


@contextmanager
def _naming_the_option() -> Iterator[None]:
    """Adds to the error of truncated events which option skips them: Spark shows no more than its text."""
    try:
        yield
    except PositionTruncated as error:
        error.args = (f"{error}: the option failOnDataLoss=false skips truncated events",)
        raise


def _place(name: str, text: str) -> Place:
    try:
        return parse_place(text)
    except ValueError as error:
        raise ValueError(f"the option {name}: {error}") from error


def number_of(name: str, text: str, least: int = 0) -> int:
    """The number in an option."""
    if not (text.isascii() and text.isdigit() and least <= int(text) < 1 << 63):
        raise ValueError(f"expected a number of at least {least} in the option {name}, found {text!r}")
    return int(text)


def flag_of(name: str, given: Mapping[str, str], default: str) -> bool:
    """The value of an option that is true or false."""
    text = given.get(name.lower(), default).lower()
    if text not in {"true", "false"}:
        raise ValueError(f"expected true or false in the option {name}, found {text!r}")
    return text == "true"


def _cut(events: StreamEvents, place: Place) -> dict[int, int]:
    at = place.at
    if isinstance(at, dict):
        return events.checked(at)
    if at == HEAD:
        return dict(events.stream.head())
    if at == TAIL or isinstance(at, str):
        return events.tail()
    return events.at_time(moment_ms(at, events.stream.parts.store.now_ms))


@dataclass
class EventPartition(InputPartition):
    """The ranges that one task reads, and the id of their stream: there may be a new stream of its name by then."""

    stream_id: UUID
    ranges: list[SegmentRange]


@lru_cache(maxsize=STREAMS_KEPT_MAX)
def _opened(spec: StreamSpec, stream_id: UUID) -> StreamEvents:
    """The stream in a process of tasks."""
    events = spec.open()
    _check_stream(events, str(stream_id))
    return events


def _check_stream(events: StreamEvents, planned: str) -> None:
    if str(events.stream.unique_id) != planned:
        raise StreamDeleted(events.stream.name, planned)


class _Reader:
    """Reads a partition in a task. Both readers are sent from the driver to the tasks."""

    def __init__(self, options: EventOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, batch by batch."""
        if not isinstance(partition, EventPartition):
            raise TypeError(f"expected a partition of events, found {type(partition).__name__}")
        if partition.ranges:
            with _naming_the_option():
                yield from event_batches(_opened(self.options.spec, partition.stream_id), partition.ranges)


class EventReader(_Reader, DataSourceReader):
    """Plans one query. Threads: one at a time."""

    def partitions(self) -> Sequence[InputPartition]:
        """Find the ranges between the two places, and divide them among tasks."""
        with connect(self.options.spec.store.open()) as streams:
            events = self.options.spec.open(streams)
            start = _cut(events, self.options.start)
            end = events.tail() if self.options.stop is None else _cut(events, self.options.stop)
            return self.options.partitions(events, start, end) or [EventPartition(events.stream.unique_id, [])]


class EventStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a stream: one process plans the batches of a query, tasks read them. Threads: one at a time."""

    def __init__(self, options: EventOptions) -> None:
        super().__init__(options)
        self._until: dict[int, int] | None = None

    @cached_property
    def _events(self) -> StreamEvents:
        events = self.options.spec.open()
        if self.options.stop is not None:
            self._until = _cut(events, self.options.stop)
        return events

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return self._offset(_cut(self._events, self.options.start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of the options.

        Raises:
            InvalidArgument: the offsets of the stream count something else.
        """
        options = self.options
        limit: ReadLimit
        if options.events_max is not None:
            unit, limit = OffsetUnit.RECORDS, ReadMaxRows(options.events_max)
        elif options.bytes_max is not None:
            unit, limit = OffsetUnit.BYTES, ReadMaxBytes(options.bytes_max)
        else:
            return ReadAllAvailable()
        if unit is not self._events.unit:
            limits = "maxEventsPerTrigger for a stream whose offsets count records, maxBytesPerTrigger for bytes"
            raise InvalidArgument(f"expected {limits}; those of {options.spec.stream} count {self._events.unit.value}")
        return limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to the stream's present end only."""
        events = self._events
        self._until = events.tail() if self._until is None else self._until

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next batch ends: see `StreamEvents.next_cut`."""
        most = next((getattr(limit, name) for name in ("max_rows", "max_bytes") if hasattr(limit, name)), None)
        cut = self._cut(start)
        with _naming_the_option():
            after = self._events.next_cut(cut, most, self._until)
        return start if after == cut else self._offset(after)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a batch."""
        return self.options.partitions(self._events, self._cut(start), self._cut(end))

    def _offset(self, cut: Mapping[int, int]) -> dict[str, Any]:
        return {"cut": dict(sorted(numbers_by_segment(cut).items())), "stream": str(self._events.stream.unique_id)}

    def _cut(self, offset: Mapping[str, Any]) -> dict[int, int]:
        """The cut of an offset.

        Raises:
            StreamDeleted: the checkpoint is of an earlier stream of this name: the query needs a new checkpoint.
        """
        _check_stream(self._events, offset["stream"])
        return {parse_segment(name): number for name, number in offset["cut"].items()}
