r"""The numbers of writers in one segment: which events of a writer are durable, so that no event is appended twice.

    writer A      3  4  7  8 | 9  12        its numbers ascend; events of other segments have the numbers between
                  durable    | uploading
    repeated         7  8  9    13          7 and 8 are durable, 9 is under way, 13 is appended

A writer with an id numbers its events, in the order of writing, across all segments of its stream. The events of a
segment arrive in this order. So the highest number is sufficient: every event of this segment's keys with a lower or
equal number was appended before. The numbers are stored with the events (`events.WriterRun`); this table is made of
them.

**Scales.** A segment inherits the numbers of its predecessors, each for the predecessor's keys:

    0@0  keys 0 to 0.5    number 8  \   2@1  keys 0 to 0.5: 8, keys 0.5 to 1: 5; and for all keys the highest number
    1@0  keys 0.5 to 1    number 5  /         of its own events. The highest of these counts for a key

**Settled.** Each batch contains a number below which all events of the writer were durable, in any segment, when the
batch was made. After a restart `Progress.next_number` is the higher one of this number and of the number that all keys
have: the producer continues there, and repeated events are skipped.

**Bounds.** At most `writers_max` writers of a segment are kept, and no writer that has been idle for `idle_ms`. A
forgotten writer that repeats numbers counts as a new writer. That a segment has forgotten writers is stored, too, so
that a writer that it does not know is warned (`WriterHeld.has_forgotten`).

**Storage.** Commits and checkpoints contain its rows (`accel.catalog.records.WRITER_NUMBER`), so that a session that
opens the segment has them without a request; missing rows are read from the data. When a segment leaves its node,
sealed or taken over, the table is written as an object beside the time index, at the end of the data. The number in a
row of the writer `NO_WRITER` is an offset: the rows are complete for all data below it, so no such object needs to be
read; `settled` is 1 in this row if writers were forgotten.

**Deletion.** Before a segment is deleted, each segment that follows it and has no table gets one, at offset 0
(`NumberTables.hand_on`). So numbers outlive the segments whose events had them, whatever is deleted in which order.

Source: docs/decisions/0014-writers-and-groups.md; docs/reference/events.md, "Numbers of writers".
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from struct import Struct
from threading import Lock
from typing import Annotated, Final, NamedTuple, Protocol
from uuid import UUID

import numpy as np

from accel.catalog.records import WRITER_NUMBER, Rows, no_rows
from accel.errors import IllegalState, InvalidArgument
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import checked_integer
from accel.history.store.segment_host import StreamName
from accel.streams.acknowledgements import WriteFuture
from accel.streams.rules.events import NO_WRITER, NUMBER_MAX, WRITER_ID_SIZE_BYTES, WriterRun, run_of
from accel.streams.settings import SegmentsSettings
from accel.system import Components
from loaders.backoff import Backoff
from loaders.errors import KeyMissing
from loaders.format import RecordBatch
from loaders.layout import number_table_key, number_tables_prefix, parse_number_table_key
from loaders.store import ObjectStore
from loaders.tables.records import Columns, RecordForm

NOTHING: Final = -1
"""Instead of a number: no event of the writer is known."""

REPEATED: Final = -1
"""Instead of an offset: the event was durable before, and its offset is not known."""

ALL_KEYS: Final = (0.0, 1.0)
HELD_MAX: Final = 1000
"""The limit of inherited key ranges that a segment keeps for one writer. With more of them, after merges of many
segments without writes, the oldest are forgotten."""

_VALUE_MAX: Final = 2**63 - 1
_HALVES: Final = Struct(">qq")
_FLOAT: Final = Struct(">d")
_POSITION: Final = Struct(">q")


class NumberedEvents(NamedTuple):
    """The writer and the numbers of events that are to be appended to one segment.

    Args:
        writer_id: 16 bytes, not all of them 0.
        numbers: the number of each event, ascending, 0 to `NUMBER_MAX`.
        positions: the position of each event's key.
        settled: all events of the writer below this number are durable.

    Raises (`check`):
        ValueError: other values.
    """

    writer_id: bytes
    numbers: Sequence[int]
    positions: Sequence[float]
    settled: int = 0

    def check(self, count: int) -> None:
        """Check that these are valid numbers of this number of events. O(events)."""
        check_writer_id(self.writer_id)
        if len(self.numbers) != count or len(self.positions) != count:
            raise ValueError(
                f"expected numbers and positions of {count} events, found {len(self.numbers)} and {len(self.positions)}"
            )
        numbers = np.fromiter(self.numbers, dtype=np.int64, count=count)
        if (np.diff(numbers) <= 0).any() or self.settled < 0 or not 0 <= numbers[0] <= numbers[-1] <= NUMBER_MAX:
            raise ValueError(f"expected ascending numbers of 0 to {NUMBER_MAX}, found {list(self.numbers)[:5]}")

    def chosen(self, places: Sequence[int]) -> NumberedEvents:
        """Return the same for the events at these indexes."""
        numbers, positions = [self.numbers[at] for at in places], [self.positions[at] for at in places]
        return self._replace(numbers=numbers, positions=positions)

    def run(self) -> WriterRun:
        """Return the run that is stored with the events."""
        first, last = self.numbers[0], self.numbers[-1]
        return WriterRun(self.writer_id, first, last, min(first, self.settled))


def check_writer_id(writer_id: bytes) -> None:
    """Check the id of a writer.

    Raises:
        ValueError: not 16 bytes, or zeros.
    """
    if len(writer_id) != WRITER_ID_SIZE_BYTES or writer_id == NO_WRITER:
        raise ValueError(
            f"expected a writer id of {WRITER_ID_SIZE_BYTES} bytes that are not all 0, found {writer_id!r}"
        )


class Progress(NamedTuple):
    """The progress of a writer.

    Args:
        next_number: all its events below this number are durable; the producer continues at this number.
        unused: a number above all its numbers that are known to be durable.
        has_forgotten: whether a segment does not know the writer, and has forgotten writers.
    """

    next_number: int = 0
    unused: int = 0
    has_forgotten: bool = False


class Held(NamedTuple):
    """A range of keys whose events up to a number are durable in a segment.

    Args:
        low: the first position; `high`: the end of the positions.
        number: the highest number.
    """

    low: float
    high: float
    number: int


class WriterHeld(NamedTuple):
    """The numbers of one writer in a segment.

    Args:
        held: numbers for ranges of keys, in any order; for each key the highest number counts.
        settled: all events below this number are durable, in any segment.
        has_forgotten: whether the segment has forgotten writers, or some keys of this one.
    """

    held: tuple[Held, ...]
    settled: int
    has_forgotten: bool = False

    def covering(self, low: float, high: float) -> int:
        """Return the highest number that all keys in [low, high) have; NOTHING if some keys have none."""
        inner = {each.low for each in self.held} | {each.high for each in self.held}
        bounds = [low, *sorted(bound for bound in inner if low < bound < high)]
        return min(
            max((each.number for each in self.held if each.low <= at < each.high), default=NOTHING) for at in bounds
        )


def progress_of(parts: Iterable[tuple[float, float, WriterHeld]]) -> Progress:
    """Return the progress of a writer in a stream.

    Args:
        parts: for each active segment its keys, and the writer's numbers in it.
    """
    known = list(parts)
    settled = max((each.settled for _, _, each in known), default=0)
    covered = min((each.covering(low, high) for low, high, each in known), default=NOTHING)
    highest = max((held.number for _, _, each in known for held in each.held), default=NOTHING)
    has_forgotten = any(each.has_forgotten and each.covering(low, high) == NOTHING for low, high, each in known)
    return Progress(max(settled, covered + 1), max(settled, highest + 1), has_forgotten)


class EventLostError(Exception):
    """An event will never be durable; if its writer has an id, no later event of the writer may be durable either.

    Args:
        error: why the event is lost.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class WriterNumbering:
    """Numbers the events of one writer. Threads: callers `check` numbers and hand events over; one takes the events.

    Args:
        writer_id: 16 bytes, not all of them 0.
        progress: the earlier progress of the writer.
        is_resumable: whether the writer resumes after its process has ended. Then a lost event ends all writing.

    Attributes:
        next_number: the number of the next event that is written without a number.
        error: the error of an event that will never be durable: then no later event may be written.
    """

    def __init__(self, writer_id: bytes, progress: Progress, *, is_resumable: bool = True) -> None:
        check_writer_id(writer_id)
        self.writer_id, self._progress = writer_id, progress
        self.is_resumable = is_resumable
        self.next_number = progress.unused
        self.error: BaseException | None = None
        self._is_begun = False
        self._least = 0  # of the numbers that a caller may give, as far as callers know
        self._next, self._least_taken = self.next_number, 0  # of the events in the order in which they are taken
        self._on_their_way: deque[tuple[int, WriteFuture]] = deque()

    def resume(self, expected: int | None = None) -> int:
        """Return the number at which the producer continues; events without a number get numbers from this one on.

        Args:
            expected: all events below this number were acknowledged to the producer; None = it does not know.

        Raises:
            InvalidArgument: events were written already, or an invalid number.
            IllegalState: the stream does not know events below `expected`.
        """
        if self._is_begun:
            raise InvalidArgument("expected a call before the first event is written, found events written")
        known = self._progress
        if expected is not None:
            expected = checked_integer("an expected number", expected, 0)
            found = known.next_number if known.has_forgotten else known.unused
            if found < expected:
                raise IllegalState(
                    f"expected the numbers of writer {UUID(bytes=self.writer_id)} up to {expected}, below which all its"
                    f" events were acknowledged, found them up to {found}: they were forgotten, or are another stream's"
                )
        self.next_number = self._next = known.next_number
        return self.next_number

    def check(self, count: int, number: int | None) -> int | None:
        """Check the number of the first of new events, before they are handed over; returns it, None if none was given.

        Args:
            count: the number of events, at least 1.
            number: the number of the first event; None = the next number.

        Raises:
            InvalidArgument: a number that is not above all earlier numbers, or too high.
            The error of an earlier event that will never be durable.
        """
        if self.error is not None:
            raise self.error
        first = self.next_number if number is None else checked_integer("a number of an event", number)
        self._check_range(first, count, self._least)
        self._is_begun = True
        return None if number is None else first

    def note_handed(self, count: int, number: int | None) -> None:
        """Note that events were handed over; not known if the caller is interrupted before: then `take` refuses."""
        self.next_number = self._least = (self.next_number if number is None else number) + count

    def take(self, futures: Sequence[WriteFuture], number: int | None) -> range:
        """Take the numbers for events that were handed over, which are not durable yet.

        Raises:
            InvalidArgument: as `check`; of events of one writer that several threads number, or of an interrupted call.
        """
        count, first = len(futures), self._next if number is None else number
        self._check_range(first, count, self._least_taken)
        self._next = self._least_taken = first + count
        numbers = range(first, first + count)
        self._on_their_way.extend(zip(numbers, futures, strict=True))
        return numbers

    @staticmethod
    def _check_range(first: int, count: int, least: int) -> None:
        if not least <= first <= NUMBER_MAX - count + 1:
            raise InvalidArgument(f"expected a number of {least} to {NUMBER_MAX - count + 1}, found {first}")

    def events(self, numbers: Sequence[int], positions: Sequence[float]) -> NumberedEvents:
        """Return the numbers of events to be appended. O(events that became durable since)."""
        waiting = self._on_their_way
        while waiting and waiting[0][1].done():
            if self.is_resumable and isinstance(waiting[0][1].outcome, BaseException):
                break
            waiting.popleft()
        return NumberedEvents(self.writer_id, numbers, positions, waiting[0][0] if waiting else numbers[0])


@dataclass(slots=True)
class _Writer:
    """One writer: its highest appended and its highest durable number; its numbers inherited from predecessors."""

    appended: int = NOTHING
    durable: int = NOTHING
    settled: int = 0
    value: int = 0
    inherited: tuple[Held, ...] = ()

    def held(self) -> tuple[Held, ...]:
        """Return the durable numbers."""
        own = () if self.durable == NOTHING else (Held(*ALL_KEYS, self.durable),)
        return own + tuple(each for each in self.inherited if each.number > self.durable)


class _OnItsWay(NamedTuple):
    end: int
    run: WriterRun
    value: int


class SegmentNumbers:
    """The numbers of writers in one segment. Threads: any; no method sends requests.

    Args:
        writers_max: the limit of writers; the writers that were idle longest are forgotten.
        idle_ms: a writer that wrote nothing for this time, by the clock values of the segment, is forgotten.

    Attributes:
        is_loaded: whether the numbers of predecessors, and of this segment on other nodes, are loaded.
    """

    def __init__(self, writers_max: int, idle_ms: int, *, is_loaded: bool = False) -> None:
        self._writers_max, self._idle_ms = writers_max, idle_ms
        self._lock = Lock()
        self._writers: OrderedDict[bytes, _Writer] = OrderedDict()  # the first writer has been idle longest
        self._on_its_way: deque[_OnItsWay] = deque()
        self._newest_value = 0
        self._has_forgotten = False
        self.is_loaded = is_loaded

    # Appends; one at a time

    def repeated(self, events: NumberedEvents) -> dict[int, bool]:
        """Return the indexes of events that were appended before, each with whether it is durable. O(events)."""
        with self._lock:
            known = self._writers.get(events.writer_id)
            if known is None or (events.numbers[0] > known.appended and not known.inherited):
                return {}
            found = {}
            for at, (number, position) in enumerate(zip(events.numbers, events.positions, strict=True)):
                is_durable = any(each.low <= position < each.high and number <= each.number for each in known.held())
                if is_durable or number <= known.appended:
                    found[at] = is_durable
            return found

    def append(self, run: WriterRun, end: int, value: int) -> None:
        """Note a batch that was appended, up to an offset, with a clock value."""
        with self._lock:
            writer = self._begun(run.writer_id, value)
            writer.appended = max(writer.appended, run.last)
            self._on_its_way.append(_OnItsWay(end, run, value))

    def noting(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Iterate over durable batches, and note the numbers of each.

        Raises:
            CorruptObject: its events are damaged.
        """
        for batch in batches:
            found = run_of(batch)
            if found is not None:
                with self._lock:
                    self._add(_OnItsWay(batch.end_offset, *found))
            yield batch

    def settle(self, end: int) -> None:
        """Note that the appends up to an offset are durable."""
        with self._lock:
            while self._on_its_way and self._on_its_way[0].end <= end:
                self._add(self._on_its_way.popleft())

    # Queries

    def held_by(self, writer_id: bytes) -> WriterHeld:
        """Return the durable numbers of a writer."""
        with self._lock:
            writer = self._writers.get(writer_id, _Writer())
            return WriterHeld(writer.held(), writer.settled, self._has_forgotten)

    def between(self, stream_id: int, start: int, end: int) -> Rows:
        """Return rows of unsettled appends that end in (start, end]; without the commit."""
        with self._lock:
            runs = [each for each in self._on_its_way if start < each.end <= end]
            has_all = self.is_loaded and not any(writer.inherited for writer in self._writers.values())
            has_forgotten = self._has_forgotten
        rows = [_row(each.run.writer_id, Held(*ALL_KEYS, each.run.last), each.run.settled, each.value) for each in runs]
        if rows and has_all:
            rows.append(_says_all(end, runs[-1].value, has_forgotten=has_forgotten))
        return _rows(stream_id, rows)

    def rows(self, stream_id: int, end: int) -> Rows:
        """Return rows of the durable numbers up to an offset; none if no writer has numbers here. O(writers)."""
        with self._lock:
            self._forget_idle()
            writers = {writer_id: replace(writer) for writer_id, writer in self._writers.items()}
            for each in self._on_its_way:
                if each.end <= end:
                    _raise_to(writers.setdefault(each.run.writer_id, _Writer()), each)
            newest, is_loaded, has_forgotten = self._newest_value, self.is_loaded, self._has_forgotten
        rows = [
            _row(writer_id, held, writer.settled, writer.value)
            for writer_id, writer in writers.items()
            for held in writer.held()
        ]
        if (rows or has_forgotten) and is_loaded:
            rows.append(_says_all(end, newest, has_forgotten=has_forgotten))
        return _rows(stream_id, rows)

    # Stored rows

    def inherit(self, rows: Rows, low: float = 0.0, high: float = 1.0) -> None:
        """Take over rows of this segment, or of a predecessor that had some of its keys. O(rows).

        Args:
            rows: WRITER_NUMBER rows of one stream, including those for all keys.
            low: the first position of the keys for which the rows count;
            high: the end of these positions.
        """
        with self._lock:
            for row in rows:
                writer_id = _writer_id(int(row["writer_high"]), int(row["writer_low"]))
                if writer_id == NO_WRITER:
                    self._has_forgotten |= int(row["settled"]) > 0
                    continue
                writer = self._touched(writer_id, int(row["value"]))
                writer.settled = max(writer.settled, int(row["settled"]))
                span = (max(low, _position(int(row["keys_from"]))), min(high, _position(int(row["keys_to"]))))
                self._hold(writer, Held(*span, int(row["number"])))
            self._writers = OrderedDict(sorted(self._writers.items(), key=lambda each: each[1].value))
            self._forget()

    def note_forgotten(self) -> None:
        """Note that numbers of writers may be unknown here."""
        with self._lock:
            self._has_forgotten = True

    # Inside; under the lock

    def _hold(self, writer: _Writer, held: Held) -> None:
        if held.low >= held.high or held.number <= writer.durable:
            return
        if (held.low, held.high) == ALL_KEYS:
            writer.durable = held.number
            writer.appended = max(writer.appended, held.number)
            writer.inherited = tuple(each for each in writer.inherited if each.number > held.number)
            return
        others = {(each.low, each.high): each for each in writer.inherited}
        before = others.get((held.low, held.high), held)
        others[held.low, held.high] = max(before, held)
        writer.inherited = tuple(others.values())[-HELD_MAX:]
        self._has_forgotten |= len(others) > HELD_MAX

    def _begun(self, writer_id: bytes, value: int) -> _Writer:
        writer = self._touched(writer_id, value)
        self._forget()
        return writer

    def _touched(self, writer_id: bytes, value: int) -> _Writer:
        writer = self._writers.setdefault(writer_id, _Writer())
        writer.value = max(writer.value, value)
        self._newest_value = max(self._newest_value, value)
        self._writers.move_to_end(writer_id)
        return writer

    def _add(self, done: _OnItsWay) -> None:
        _raise_to(self._begun(done.run.writer_id, done.value), done)

    def _forget(self) -> None:
        """Forget the writers that have been idle longest; the last one, and those with events under way, stay."""
        surplus = len(self._writers) - self._writers_max
        if surplus > 0:
            last = next(reversed(self._writers))
            idle = (each for each, known in self._writers.items() if known.appended == known.durable and each != last)
            for writer_id in list(islice(idle, surplus)):
                del self._writers[writer_id]
                self._has_forgotten = True
        self._forget_idle()

    def _forget_idle(self) -> None:
        oldest = self._newest_value - self._idle_ms
        while self._writers and next(iter(self._writers.values())).value < oldest:
            self._writers.popitem(last=False)
            self._has_forgotten = True


def _raise_to(writer: _Writer, done: _OnItsWay) -> None:
    writer.durable = max(writer.durable, done.run.last)
    writer.appended = max(writer.appended, done.run.last)
    writer.settled = max(writer.settled, done.run.settled)
    writer.value = max(writer.value, done.value)


# Rows

_Row = tuple[int, int, int, int, int, int, int]


def known_end(rows: Rows) -> int:
    """Return the offset up to which rows of one stream are complete, inherited numbers included; NOTHING if unknown."""
    says_all = rows[(rows["writer_high"] == 0) & (rows["writer_low"] == 0)]
    return int(says_all["number"].max(initial=NOTHING))


def _row(writer_id: bytes, held: Held, settled: int, value: int) -> _Row:
    high, low = _HALVES.unpack(writer_id)
    span = (_POSITION.unpack(_FLOAT.pack(each))[0] for each in (held.low, held.high))
    return (high, low, *span, held.number, settled, min(value, _VALUE_MAX))


def _says_all(end: int, value: int, *, has_forgotten: bool) -> _Row:
    return (0, 0, 0, 0, end, int(has_forgotten), min(value, _VALUE_MAX))


def _rows(stream_id: int, rows: Sequence[_Row]) -> Rows:
    if not rows:
        return no_rows(WRITER_NUMBER)
    return np.array([(stream_id, *row, 0) for row in rows], dtype=WRITER_NUMBER)


def _writer_id(high: int, low: int) -> bytes:
    return _HALVES.pack(high, low)


def _position(bits: int) -> float:
    """Return a position; an invalid one, as in damaged rows, becomes 1.0, at which there is no key."""
    (position,) = _FLOAT.unpack(_POSITION.pack(bits))
    return position if 0.0 <= position <= 1.0 else 1.0


# The table of a segment that leaves its node


@dataclass(frozen=True, slots=True, eq=False)
class NumberTable:
    """The numbers of a segment's writers at an offset, stored beside its time index. Threads: immutable.

    Args:
        stream_id: the segment's stream of the object layer.
        end: the offset; the table covers all data below it.
        rows: WRITER_NUMBER rows of this stream.

    Raises:
        ValueError: rows of another stream, or a number below 0.
    """

    stream_id: int
    end: int
    rows: Annotated[Rows, Columns(WRITER_NUMBER)]

    def __post_init__(self) -> None:
        if self.stream_id < 0 or self.end < 0 or (self.rows["stream_id"] != self.stream_id).any():
            raise ValueError(
                f"expected rows of stream {self.stream_id} up to an offset, found other rows, or the end {self.end}"
            )


NUMBER_TABLE: Final = RecordForm("writer-numbers", 1, NumberTable)

TABLE_SIZE_BYTES_MAX: Final = 64 << 20
"""The size limit of a table that is read; a writer takes about 40 bytes."""

ANCESTORS_MAX: Final = 1000
"""The limit of earlier segments that are searched for the numbers of a segment's writers."""


class SegmentsBefore(Protocol):
    """Looks up streams, predecessors and successors of segments. Threads: any."""

    def stream_id(self, name: StreamName, segment_id: int) -> int:
        """Return the stream of the object layer that contains a segment."""
        ...

    def creation_time_ms(self, name: StreamName, segment_id: int) -> int:
        """Return the time of a segment's epoch, ms since 1970."""
        ...

    def predecessors(self, name: StreamName, segment_id: int, oldest_ms: float) -> list[SegmentRecord]:
        """Return the predecessors of a segment; none if they were sealed before `oldest_ms`, ms since 1970."""
        ...

    def successors(self, name: StreamName, segment_id: int) -> list[int]:
        """Return the ids of the segments that follow a segment."""
        ...


class NumberTables:
    """The tables of segments that left their nodes. Threads: any; no lock is held over I/O.

    Args:
        store: the store of the tables.
        directory: looks up neighbours of segments.
        backoff: the pauses after failed requests.
        settings: bounds of the host.
        system: clock.
    """

    def __init__(
        self,
        store: ObjectStore,
        directory: SegmentsBefore,
        backoff: Backoff,
        settings: SegmentsSettings,
        system: Components,
    ) -> None:
        self._store, self._directory, self._backoff, self._system = store, directory, backoff, system
        self._writers_max, self._idle_ms = settings.writers_max, int(settings.writer_idle_seconds * 1000)

    def new(self) -> SegmentNumbers:
        """Return empty numbers, with the bounds of the settings."""
        return SegmentNumbers(self._writers_max, self._idle_ms)

    def load(self, name: StreamName, segment_id: int, numbers: SegmentNumbers) -> None:
        """Add the numbers of a segment on other nodes, and those of its predecessors, of writers not forgotten yet.

        Requests: 1 listing, and 1 GET of a table; if there is no table, 4 calls of the history, and for each
        predecessor 1 call, and the same again. Where no predecessor has a table either, 1 more listing.

        Raises:
            StoreError, TableError, CorruptObject, NotInHistory.
        """
        keys: dict[int, tuple[float, float]] = {segment_id: ALL_KEYS}
        without: dict[int, list[int]] = {}
        to_visit, oldest_ms = deque([segment_id]), None
        while to_visit:
            each_id = to_visit.popleft()
            if self._has_inherited(name, each_id, keys, numbers):
                continue
            if oldest_ms is None:  # the earlier of both clocks: one of them may be wrong
                created_ms = self._directory.creation_time_ms(name, segment_id)
                oldest_ms = min(self._system.clock() * 1000, created_ms) - self._idle_ms
            earlier = self._directory.predecessors(name, each_id, oldest_ms)
            without[each_id] = [before.id for before in earlier]
            new = [before for before in earlier if before.id not in keys]
            if len(keys) + len(new) > ANCESTORS_MAX:
                numbers.note_forgotten()
                break
            keys |= {before.id: (before.key_start, before.key_end) for before in new}
            to_visit.extend(before.id for before in new)
        # Meanwhile a deletion may have handed tables on, from segments not looked at yet to segments looked at before.
        for each_id in sorted(each_id for each_id, ids in without.items() if not without.keys().isdisjoint(ids)):
            self._has_inherited(name, each_id, keys, numbers)
        numbers.is_loaded = True

    def hand_on(self, name: StreamName, segment_id: int) -> None:
        """Before a segment with a table is deleted: write tables of the segments that follow it and have none.

        Requests: 3 calls of the history, and for each segment that follows 1 listing, and `load` and 1 PUT for those
        without a table. Repeating it is safe.

        Args:
            name: scope and stream.
            segment_id: the segment; all its predecessors were deleted before.

        Raises:
            As `load`.
        """
        for after_id in self._directory.successors(name, segment_id):
            stream_id = self._directory.stream_id(name, after_id)
            if self._newest_key(stream_id) is None:
                numbers = self.new()
                self.load(name, after_id, numbers)
                self.keep(stream_id, 0, numbers)

    def keep(self, stream_id: int, end: int, numbers: SegmentNumbers) -> None:
        """Write the table of a segment at an offset, if numbers are known. 1 request; repeating it is safe."""
        rows = numbers.rows(stream_id, end)
        if len(rows):
            body = NUMBER_TABLE.encode(NumberTable(stream_id, end, rows))
            self._backoff.ask(lambda: self._store.put(number_table_key(stream_id, end), body))

    def _has_inherited(
        self, name: StreamName, segment_id: int, keys: Mapping[int, tuple[float, float]], numbers: SegmentNumbers
    ) -> bool:
        """Add the newest table of a segment, for its keys; return whether there is one."""
        stream_id = self._directory.stream_id(name, segment_id)
        key = self._newest_key(stream_id)
        if key is None:
            return False
        try:
            body = self._backoff.ask(lambda: self._store.get(key, size_bytes_max=TABLE_SIZE_BYTES_MAX)).body
        except KeyMissing:  # handed on and deleted meanwhile
            return False
        numbers.inherit(NUMBER_TABLE.decode(body, key).rows, *keys[segment_id])
        return True

    def _newest_key(self, stream_id: int) -> str | None:
        keys = self._backoff.ask(lambda: [info.key for info in self._store.list(number_tables_prefix(stream_id))])
        return next((key for key in reversed(keys) if parse_number_table_key(stream_id, key) is not None), None)
