"""Events in the payload of a record batch: the events that a producer sent together, with the time of their arrival.

Events that are appended to a segment together become one record batch of the object layer, so that they cost one header
and one record of the time index. The payload of the batch is a list of events:

    | at            | bytes     | type | field    | meaning                                                   |
    |---------------|-----------|------|----------|-----------------------------------------------------------|
    | 0             | 4         |      | magic    | "AEvt"                                                    |
    | 4             | 1         | u1   | version  | 1; 2 = the events have a run of numbers                   |
    | 5             | 3         |      |          | zeros                                                     |
    | 8             | 8         | u8   | value    | the host's clock when the events arrived                  |
    | 16            | 4         | u4   | count    | number of events, at least 1                              |
    | 20            | 0 or 40   |      | run      | only in version 2, see below                              |
    | then          | 4 * count | u4   | lengths  | bytes of each event                                       |
    | then          |           |      | events   | one after the other                                       |

Batches of a writer with an id contain the numbers of their events, so that a restarted writer finds which events are
durable (`writer_numbers`). The numbers of one batch ascend and belong to one writer; the run has the first and the last
number:

    | 20            | 16        |      | writer   | the writer's id                                           |
    | 36            | 8         | u8   | first    | number of the first event                                 |
    | 44            | 8         | u8   | last     | number of the last event                                  |
    | 52            | 8         | u8   | settled  | all events of the writer with numbers below it were       |
    |               |           |      |          | durable, in this segment or in others                     |

All integers are big endian. The value is stored with the data, so that a time index that was lost with the memory of
its host can be rebuilt identically from the data. A batch without a run is written as version 1.

The lists of many batches are decoded together, by numpy over the fetched bytes (`EventColumns`). An event becomes an
object only when a caller requests it.

An event takes 1 offset if the stream's offsets count records; if they count bytes, it takes its own size and the 4
bytes of its length. A batch of another producer has no such list: it is one event, as long as its batch.

The clock of a host gives arriving events values that never fall, even if its source falls:

    source      100   90   90  130
    now()       100  100  100  130

All segments of a host share one clock, so their values can be compared. Values of different hosts can be compared as
precisely as the hosts' clocks agree. After a restart the clock continues from the highest stored value.

Source: PDP-28, "we would add an additional long"; docs/reference/events.md, "Events".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise, repeat
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from accel.errors import CorruptObject, MissingExtra
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.values import segment_text
from accel.units import milliseconds
from loaders.errors import FormatLimit
from loaders.format import BatchColumns, RecordBatch

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC: Final = b"AEvt"
VERSION: Final = 1
NUMBERED_VERSION: Final = 2
HEADER: Final = struct.Struct(">4sB3xQI")
RUN: Final = struct.Struct(">16sQQQ")
WRITER_ID_SIZE_BYTES: Final = 16
NUMBER_MAX: Final = 2**63 - 2
"""The highest number of an event: the next number has to fit into 63 bits."""

NO_WRITER: Final = bytes(WRITER_ID_SIZE_BYTES)
"""An id that no writer may have."""

LENGTH_SIZE_BYTES: Final = 4
PAYLOAD_SIZE_BYTES_MAX: Final = 2**31 - 1
"""The limit of the length field of a record batch."""

_LENGTH: Final = np.dtype(">u4")
_VALUE_MAX: Final = 2**64 - 1
_COLUMNS: Final = np.dtype([("magic", "S4"), ("version", "u1"), ("zeros", "V3"), ("value", ">u8"), ("count", ">u4")])
_RUNS: Final = np.dtype([("writer", "V16"), ("first", ">u8"), ("last", ">u8"), ("settled", ">u8")])
_HEADER_BYTES: Final = np.arange(HEADER.size)
_RUN_BYTES: Final = np.arange(HEADER.size, HEADER.size + RUN.size)
Integers = NDArray[np.int64]


class WriterRun(NamedTuple):
    """The numbers of the events of one batch.

    Args:
        writer_id: 16 bytes, not all of them 0.
        first: the number of the first event, 0 to `NUMBER_MAX`.
        last: the number of the last event; the numbers between ascend, and may have gaps.
        settled: all events of the writer below this number were durable when the batch was made; at most `first`.
    """

    writer_id: bytes
    first: int
    last: int
    settled: int

    def is_valid(self, count: int) -> bool:
        """Whether this number of events can have these numbers."""
        is_writer = len(self.writer_id) == WRITER_ID_SIZE_BYTES and self.writer_id != NO_WRITER
        is_ascending = 0 <= self.settled <= self.first <= self.last - count + 1
        return is_writer and is_ascending and self.last <= NUMBER_MAX


class Event(NamedTuple):
    """One event.

    Args:
        segment_id: the segment of the event.
        offset: the event's offset in the segment.
        next_offset: the offset of the next event of the segment.
        value: the host's clock when the event arrived, usually milliseconds since 1970; 0 if unknown.
        payload: the bytes that the producer sent.
    """

    segment_id: int
    offset: int
    next_offset: int
    value: int
    payload: bytes

    def __repr__(self) -> str:
        where = f"{segment_text(self.segment_id)} at {self.offset}, next_offset={self.next_offset}"
        return f"Event({where}, value={self.value}, payload={self.payload!r})"

    @property
    def segment(self) -> str:
        """The segment as text: "3@1"."""
        return segment_text(self.segment_id)


_AS_EVENT: Final[Callable[[tuple[int, int, int, int, bytes]], Event]] = partial(tuple.__new__, Event)


class EventBatch(Sequence[Event]):
    """Events of one segment that arrived together, in order. Threads: immutable.

    Args:
        segment_id: their segment.
        value: the clock value of all events.
        offsets: the offset of each event, and the end of the last one; ascending.
        data: contains their bytes, one after the other. Batches that were read together share one piece of data, up to
            some MiB: a batch that is kept keeps all of it in memory.
        bounds: where each event begins in the data, and where the last one ends.

    Attributes:
        offset: the offset of the first event.
        next_offset: the end of the last event.
        size_bytes: the size of its events, without their lengths.
    """

    __slots__ = ("bounds", "data", "next_offset", "offset", "offsets", "segment_id", "size_bytes", "value")

    def __init__(self, segment_id: int, value: int, offsets: Integers, data: bytes, bounds: Integers) -> None:
        self.segment_id = segment_id
        self.value = value
        self.offsets = offsets
        self.data = data
        self.bounds = bounds
        self.offset = int(offsets[0])
        self.next_offset = int(offsets[-1])
        self.size_bytes = int(bounds[-1]) - int(bounds[0])

    def payloads(self) -> bytes:
        """Return the bytes of all its events, one after the other, without their lengths."""
        return self.data[int(self.bounds[0]) : int(self.bounds[-1])]

    def to_arrow(self) -> pa.RecordBatch:
        """Return its events as columns of Arrow; payloads are not copied. O(events).

        Columns: `segment_id`, `offset` and `next_offset` are int64, `value` is uint64, `payload` is large_binary.

        Raises:
            MissingExtra: pyarrow is not installed; the extra `arrow` installs it.
        """
        try:
            import pyarrow as pa  # noqa: PLC0415 - an optional dependency, for columns only
        except ModuleNotFoundError as error:
            raise MissingExtra(f"columns need pyarrow: pip install 'accel-streams[arrow]' ({error})") from error

        count = len(self)
        buffers = [None, pa.py_buffer(np.ascontiguousarray(self.bounds)), pa.py_buffer(self.data)]
        columns = {
            "segment_id": pa.array(np.full(count, self.segment_id, dtype=np.int64)),
            "offset": pa.array(self.offsets[:-1]),
            "next_offset": pa.array(self.offsets[1:]),
            "value": pa.array(np.full(count, self.value, dtype=np.uint64)),
            "payload": pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers),
        }
        return pa.RecordBatch.from_pydict(columns)

    def within(self, start: int, end: int | None = None) -> EventBatch:
        """Return the events that begin in [start, end); None = no end. May be empty."""
        if start <= self.offset and (end is None or end >= self.next_offset):
            return self
        first = int(np.searchsorted(self.offsets[:-1], start))
        stop = len(self) if end is None else max(first, int(np.searchsorted(self.offsets[:-1], end)))
        chosen = slice(first, stop + 1)
        return EventBatch(self.segment_id, self.value, self.offsets[chosen], self.data, self.bounds[chosen])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        start, end = int(self.bounds[at]), int(self.bounds[at + 1])
        offset, next_offset = int(self.offsets[at]), int(self.offsets[at + 1])
        return Event(self.segment_id, offset, next_offset, self.value, self.data[start:end])

    def __iter__(self) -> Iterator[Event]:
        offsets, bounds, data = self.offsets.tolist(), self.bounds.tolist(), self.data
        payloads = [data[start:end] for start, end in pairwise(bounds)]
        rows = zip(repeat(self.segment_id), offsets, offsets[1:], repeat(self.value), payloads, strict=False)
        return map(_AS_EVENT, rows)  # all in C: a stream has millions of events

    def __repr__(self) -> str:
        return f"<{len(self)} events at [{self.offset}, {self.next_offset}), value {self.value}>"


def encode_events(payloads: Sequence[bytes], value: int, run: WriterRun | None = None) -> bytes:
    """Return the payload of a batch. O(bytes).

    Args:
        payloads: the payloads of its events, at least one.
        value: the value of the host's clock.
        run: the numbers of the events; None = they have none, and the list has version 1.

    Raises:
        ValueError: no event, more bytes than a batch can have, or numbers that these events cannot have.
    """
    lengths = np.fromiter(map(len, payloads), dtype=np.int64, count=len(payloads))
    if run is not None and not run.is_valid(len(lengths)):
        raise ValueError(f"expected numbers of {len(lengths)} events of a writer, found {run}")
    numbers = b"" if run is None else RUN.pack(*run)
    size_bytes = HEADER.size + len(numbers) + LENGTH_SIZE_BYTES * len(lengths) + int(lengths.sum())
    if not len(lengths) or size_bytes > PAYLOAD_SIZE_BYTES_MAX:
        raise ValueError(
            f"expected events of at most {PAYLOAD_SIZE_BYTES_MAX} bytes, found {len(lengths)} of {size_bytes}"
        )
    header = HEADER.pack(MAGIC, VERSION if run is None else NUMBERED_VERSION, value, len(lengths))
    return b"".join((header, numbers, lengths.astype(_LENGTH).tobytes(), *payloads))


def span_of(payloads: Sequence[bytes], unit: OffsetUnit) -> int:
    """Return how many offsets events take."""
    if unit is OffsetUnit.RECORDS:
        return len(payloads)
    return sum(map(len, payloads)) + LENGTH_SIZE_BYTES * len(payloads)


def decode_events(batch: RecordBatch, segment_id: int, unit: OffsetUnit) -> tuple[EventBatch, bool]:
    """Return the events of a batch, and whether it contains their arrival time. O(events), without a Python loop.

    Args:
        batch: the batch as it was read.
        segment_id: the segment of the batch.
        unit: the unit of the stream's offsets.

    Returns:
        The events. A batch of a producer that does not write event lists is one event, with the value 0.

    Raises:
        CorruptObject: a list whose numbers contradict each other or the batch.
    """
    payload = batch.payload
    if not payload.startswith(MAGIC):
        offsets = np.array([batch.base_offset, batch.end_offset], dtype=np.int64)
        return EventBatch(segment_id, 0, offsets, payload, np.array([0, len(payload)], dtype=np.int64)), False
    value, lengths, run = _checked(batch)
    bounds = _running(_head_size_bytes(run) + LENGTH_SIZE_BYTES * len(lengths), lengths)
    if int(bounds[-1]) != len(payload):
        raise _corrupt(batch, f"events of {len(payload) - int(bounds[0])} bytes", f"{bounds[-1] - bounds[0]}")
    if unit is OffsetUnit.RECORDS:
        offsets = np.arange(batch.base_offset, batch.base_offset + len(bounds), dtype=np.int64)
    else:
        offsets = _running(batch.base_offset, lengths + LENGTH_SIZE_BYTES)
    if int(offsets[-1]) != batch.end_offset:
        raise _corrupt(batch, f"events up to offset {batch.end_offset}", f"an end at {offsets[-1]}")
    return EventBatch(segment_id, value, offsets, payload, bounds), True


def run_of(batch: RecordBatch) -> tuple[WriterRun, int] | None:
    """Return the numbers of a batch's events, and the clock value; None if they have no numbers. O(events).

    Raises:
        CorruptObject: as `decode_events`, but the bytes after the lengths are not checked.
    """
    if not batch.payload.startswith(MAGIC):
        return None
    value, _, run = _checked(batch)
    return None if run is None else (run, value)


class EventColumns(NamedTuple):
    """The events of consecutive record batches, as columns over the bytes of the batches.

    Args:
        segment_id: their segment.
        values: the stored clock value of each batch; uint64.
        offsets: for each batch, the offsets of its events and then the end of its last event.
        bounds: the same for positions in the data.
        firsts: the indexes in both columns at which the events of each batch begin, and the end of the last batch.
        data: the bytes.
        are_timed: whether all batches contain their arrival time.
    """

    segment_id: int
    values: NDArray[np.uint64]
    offsets: Integers
    bounds: Integers
    firsts: Integers
    data: bytes
    are_timed: bool = True

    def batches(self) -> list[EventBatch]:
        """Return the events of each batch, as views; O(batches)."""
        return [
            EventBatch(self.segment_id, value, self.offsets[first:after], self.data, self.bounds[first:after])
            for value, (first, after) in zip(self.values.tolist(), pairwise(self.firsts.tolist()), strict=True)
        ]


def decode_columns(batches: BatchColumns, segment_id: int, unit: OffsetUnit) -> EventColumns:
    """Return the events of many batches. O(events), without a Python loop over events or batches.

    Args:
        batches: at least one batch, as read. If any batch has no list of events, all are decoded one by one.
        segment_id: the segment of the batches.
        unit: the unit of the stream's offsets.

    Raises:
        CorruptObject: as `decode_events`.
    """
    owned = batches.owned()
    columns = _columns(owned, segment_id, unit)
    if columns is None:
        return _joined([decode_events(batch, segment_id, unit) for batch in owned], segment_id)
    return columns


def _columns(batches: BatchColumns, segment_id: int, unit: OffsetUnit) -> EventColumns | None:
    """Return the events; None if a batch has no list, or its list does not fit its size."""
    starts, ends = batches.starts, batches.ends
    room_bytes = ends - starts - HEADER.size
    if (room_bytes <= 0).any():
        return None
    data = np.frombuffer(batches.data, dtype=np.uint8)
    headers = data[starts[:, None] + _HEADER_BYTES].view(_COLUMNS).ravel()
    counts = headers["count"].astype(np.int64)
    is_numbered = headers["version"] == NUMBERED_VERSION
    room_bytes = room_bytes - RUN.size * is_numbered
    is_list = (headers["magic"] == MAGIC) & ((headers["version"] == VERSION) | is_numbered)
    if not (is_list & (counts > 0) & (counts <= room_bytes // LENGTH_SIZE_BYTES)).all():
        return None
    if is_numbered.any() and not _are_runs(data, starts[is_numbered], counts[is_numbered]):
        return None
    firsts = np.concatenate(([0], (counts + 1).cumsum()))
    lengths = _lengths(data, ends - room_bytes, counts)
    is_event = np.ones(int(firsts[-1]), dtype=bool)
    is_event[firsts[:-1]] = False
    bounds = _running_many(ends - room_bytes + LENGTH_SIZE_BYTES * counts, ends, lengths, is_event)
    spans = np.ones(len(lengths), dtype=np.int64) if unit is OffsetUnit.RECORDS else lengths + LENGTH_SIZE_BYTES
    end_offsets = batches.end_offsets
    offsets = _running_many(batches.base_offsets, end_offsets, spans, is_event)
    lasts = firsts[1:] - 1
    if (bounds[lasts] != ends).any() or (offsets[lasts] != end_offsets).any():
        return None
    values = headers["value"].astype(np.uint64)
    return EventColumns(segment_id, values, offsets, bounds, firsts, bytes(batches.data))


def _are_runs(data: NDArray[np.uint8], starts: Integers, counts: Integers) -> bool:
    """Whether the numbers of all these batches are valid, as `WriterRun.is_valid`."""
    runs = data[starts[:, None] + _RUN_BYTES].view(_RUNS).ravel()
    first, last, settled = (runs[name].astype(np.uint64) for name in ("first", "last", "settled"))
    is_valid = (runs["writer"] != np.void(NO_WRITER)) & (settled <= first) & (first <= last) & (last <= NUMBER_MAX)
    return bool((is_valid & (last - first >= (counts - 1).astype(np.uint64))).all())


def _lengths(data: NDArray[np.uint8], starts: Integers, counts: Integers) -> Integers:
    """Return the lengths of all events, read from the lists that begin at these positions."""
    before = counts.cumsum() - counts
    places = np.repeat(starts - LENGTH_SIZE_BYTES * before, counts)
    places += LENGTH_SIZE_BYTES * np.arange(len(places))
    return data[places[:, None] + np.arange(LENGTH_SIZE_BYTES)].view(_LENGTH).ravel().astype(np.int64)


def _running_many(starts: Integers, ends: Integers, sizes: Integers, is_size: NDArray[np.bool_]) -> Integers:
    """Return running sums of sizes, for each batch from its start on; valid if each batch ends at its `ends` value."""
    steps = np.empty(len(is_size), dtype=np.int64)
    steps[is_size] = sizes
    steps[~is_size] = starts - np.concatenate(([0], ends[:-1]))
    return steps.cumsum()


def _joined(decoded: list[tuple[EventBatch, bool]], segment_id: int) -> EventColumns:
    """Join batches that were decoded one by one."""
    parts = [events for events, _ in decoded]
    sizes = np.array([0, *(len(part) + 1 for part in parts)], dtype=np.int64)
    begins = np.array([0, *(len(part.data) for part in parts[:-1])], dtype=np.int64).cumsum()
    return EventColumns(
        segment_id,
        np.array([part.value for part in parts], dtype=np.uint64),
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.bounds + begin for part, begin in zip(parts, begins.tolist(), strict=True)]),
        sizes.cumsum(),
        b"".join(part.data for part in parts),
        all(is_timed for _, is_timed in decoded),
    )


def _checked(batch: RecordBatch) -> tuple[int, Integers, WriterRun | None]:
    """Return value, lengths and numbers of a batch."""
    payload = batch.payload
    if len(payload) < HEADER.size:
        raise _corrupt(batch, f"a header of {HEADER.size} bytes", f"{len(payload)} bytes")
    _, version, value, count = HEADER.unpack_from(payload)
    if version not in (VERSION, NUMBERED_VERSION):
        raise _corrupt(batch, f"version {VERSION} or {NUMBERED_VERSION} of events", f"{version}")
    run = _checked_run(batch, count) if version == NUMBERED_VERSION else None
    start = _head_size_bytes(run)
    room = len(payload) - start
    if not 0 < count <= room // LENGTH_SIZE_BYTES:
        raise _corrupt(batch, f"1 to {room // LENGTH_SIZE_BYTES} events", f"{count}")
    return value, np.frombuffer(payload, dtype=_LENGTH, count=count, offset=start).astype(np.int64), run


def _checked_run(batch: RecordBatch, count: int) -> WriterRun:
    least = HEADER.size + RUN.size
    if len(batch.payload) < least:
        raise _corrupt(batch, f"a header of {least} bytes", f"{len(batch.payload)} bytes")
    run = WriterRun(*RUN.unpack_from(batch.payload, HEADER.size))
    if not run.is_valid(count):
        raise _corrupt(batch, f"numbers of {count} events of a writer", f"{run}")
    return run


def _head_size_bytes(run: WriterRun | None) -> int:
    return HEADER.size if run is None else HEADER.size + RUN.size


def _running(start: int, sizes: Integers) -> Integers:
    bounds = np.empty(len(sizes) + 1, dtype=np.int64)
    bounds[0] = start
    sizes.cumsum(out=bounds[1:])
    bounds[1:] += start
    return bounds


def _corrupt(batch: RecordBatch, expected: str, found: str) -> CorruptObject:
    where = f"stream {batch.stream_id}, batch at offset {batch.base_offset}"
    return CorruptObject(where, len(batch.payload), expected=expected, found=found)


class HostClock:
    """A clock whose values never fall. Threads: any.

    A clock that was wrong for a moment must not raise the values of all segments, and those of other streams, until its
    time has come. So with `skew_max` a value that is further ahead of the source is from a wrong clock: it raises only
    its own segment (`SegmentTimeIndex.append`), and the values of this clock fall to those of the source again.

    Args:
        source: returns an integer, usually milliseconds since 1970. Its values may fall; many threads may call it.
        highest_stored: the highest value that the host stored before it was restarted; no value will be lower.
        skew_max: how far a value may be ahead of the source; None = any distance.

    Source: PDP-28, "a monotonic clock class ... shared across segment".
    """

    def __init__(self, source: Callable[[], int], highest_stored: int = 0, *, skew_max: int | None = None) -> None:
        _check_value(highest_stored)
        self._source = source
        self._skew_max = math.inf if skew_max is None else skew_max
        self._lock = Lock()
        self._last = highest_stored

    @classmethod
    def of_seconds(
        cls, clock: Callable[[], float], highest_stored: int = 0, *, skew_seconds_max: float | None = None
    ) -> HostClock:
        """Return a clock in milliseconds over a clock in seconds since 1970, such as `accel.system.SYSTEM.clock`."""
        skew_max = None if skew_seconds_max is None else milliseconds(skew_seconds_max)
        return cls(lambda: milliseconds(clock()), highest_stored, skew_max=skew_max)

    def now(self) -> int:
        """Return the value for events that arrive now: the highest value of the source, or of a segment, so far.

        Raises:
            ValueError: the value of the source does not fit into 64 bits.
        """
        value = self._source()
        if value > _VALUE_MAX:
            _check_value(value)
        with self._lock:
            self._last = max(value, 0 if self._last - value > self._skew_max else self._last)
            return self._last

    def seed(self, value: int) -> None:
        """Set a stored value as lower bound: no later value is lower, except if it is further ahead than allowed.

        Raises:
            ValueError: a value below 0 or beyond 64 bits.
        """
        _check_value(value)
        if self._skew_max == math.inf or value - self._source() <= self._skew_max:
            with self._lock:
                self._last = max(self._last, value)


def _check_value(value: int) -> None:
    if not 0 <= value <= _VALUE_MAX:
        raise ValueError(f"expected a clock value of 0 to {_VALUE_MAX}, found {value}")


def offsets_of(start: int, payloads: Sequence[bytes], unit: OffsetUnit) -> Sequence[int]:
    """Return the offsets of events, of which the first begins at `start`. O(1) for records, else O(events)."""
    if unit is OffsetUnit.RECORDS:
        return range(start, start + len(payloads))
    return list(accumulate((len(payload) + LENGTH_SIZE_BYTES for payload in payloads[:-1]), initial=start))


APPEND_SIZE_BYTES_MAX: Final = 1 << 30
"""The limit of one append; a block of an object, which has less than 2 GiB, may contain other batches before it."""


def check_append(payloads: Sequence[bytes]) -> None:
    """Check that events fit into one batch.

    Raises:
        TypeError: events that are not bytes.
        FormatLimit: no event, or more than 1 GiB.
    """
    if not set(map(type, payloads)) <= {bytes}:
        raise TypeError(f"expected events of bytes, found {sorted({type(payload).__name__ for payload in payloads})}")
    size_bytes = HEADER.size + LENGTH_SIZE_BYTES * len(payloads) + sum(map(len, payloads))
    if not payloads or size_bytes > APPEND_SIZE_BYTES_MAX:
        found = f"{len(payloads)} of {size_bytes}"
        raise FormatLimit(f"expected events of at most {APPEND_SIZE_BYTES_MAX} bytes together, found {found}")
