r"""The numbers of writers in one segment: which events of a writer are durable, so that none is appended twice.

    writer A      3  4  7  8 | 9  12        its numbers ascend; keys of other segments take those in between
                  durable    | on its way
    repeated         7  8  9    13          7 and 8 are durable, 9 is on its way, 13 is appended

A writer with an id numbers its events, in the order of writing, across all segments of its stream. The events of a
segment come in that order. So the highest number says it all: whatever is at most that, and has a key of this segment,
is here already. The numbers stand beside the events (`events.WriterRun`); this table is made of them.

**Scales.** A segment that follows others takes over what they had, each for its keys:

    0@0  keys 0 to 0.5    number 8  \   2@1  keys 0 to 0.5: 8, keys 0.5 to 1: 5; and of its own, for all keys, the
    1@0  keys 0.5 to 1    number 5  /         highest number since. What counts for a key is the highest of these

**Settled.** With each batch comes a number of which its writer knew that all events below it were durable, in whatever
segment. After a restart `Progress.next_number` is the higher one of that and of what all keys have: the producer goes
on there, and what it repeats is left out.

**Bounds.** At most `writers_max` writers of a segment are kept, and none that has been idle for `idle_ms`. A writer
that was forgotten, and comes again with numbers that it had used, is taken for a new one.

**Where it is kept.** Commits and checkpoints have its rows (`accel.catalog.records.WRITER_NUMBER`), so that a session
which opens the segment knows it without a request; what these do not know is read from the data. When a segment leaves
its node, sealed or taken over, the table is written as an object beside the time index, at the end of the data. A row
of the writer `NO_WRITER` says that with this row, whose number is an offset, all is known below it, and no such object
needs to be read.

Source: docs/decisions/0047-writers-have-numbers.md; docs/reference/events.md, "Numbers of writers".
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from threading import Lock
from typing import Annotated, Final, NamedTuple, Protocol

import numpy as np

from accel.catalog.records import WRITER_NUMBER, Rows, no_rows
from accel.errors import InvalidArgument
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import checked_integer
from accel.history.store.hosts import StreamName
from accel.streams.acknowledgements import WriteFuture
from accel.streams.rules.events import NO_WRITER, NUMBER_MAX, WRITER_ID_SIZE_BYTES, WriterRun, run_of
from accel.streams.settings import SegmentsSettings
from accel.system import Components
from loaders.backoff import Backoff
from loaders.format import RecordBatch
from loaders.layout import number_table_key, number_tables_prefix
from loaders.store import ObjectStore
from loaders.tables.records import Columns, RecordForm

NOTHING: Final = -1
"""In the place of a number: no event of the writer is known."""

REPEATED: Final = -1
"""In the place of an offset: the event was durable before, and nobody keeps where."""

ALL_KEYS: Final = (0.0, 1.0)
HELD_MAX: Final = 1000
"""How many parts of its keys a segment tells apart for one writer. Beyond that, after merges of so many segments that
are not written to, the oldest are forgotten."""

_VALUE_MAX: Final = 2**63 - 1
_HALVES: Final = Struct(">qq")
_FLOAT: Final = Struct(">d")
_POSITION: Final = Struct(">q")


class NumberedEvents(NamedTuple):
    """What a writer says of events that are to be appended to one segment.

    Args:
        writer_id: 16 bytes, not all of them 0.
        numbers: of the events, ascending, 0 to `NUMBER_MAX`.
        positions: of their keys, as many.
        settled: all events of the writer below this number are durable.

    Raises (`check`):
        ValueError: something else.
    """

    writer_id: bytes
    numbers: Sequence[int]
    positions: Sequence[float]
    settled: int = 0

    def check(self, count: int) -> None:
        """Refuse what cannot be the numbers of these events. O(events)."""
        check_writer_id(self.writer_id)
        if len(self.numbers) != count or len(self.positions) != count:
            raise ValueError(
                f"expected numbers and positions of {count} events, found {len(self.numbers)} and {len(self.positions)}"
            )
        numbers = np.fromiter(self.numbers, dtype=np.int64, count=count)
        if (np.diff(numbers) <= 0).any() or self.settled < 0 or not 0 <= numbers[0] <= numbers[-1] <= NUMBER_MAX:
            raise ValueError(f"expected ascending numbers of 0 to {NUMBER_MAX}, found {list(self.numbers)[:5]}")

    def chosen(self, places: Sequence[int]) -> NumberedEvents:
        """Those at these places."""
        numbers, positions = [self.numbers[at] for at in places], [self.positions[at] for at in places]
        return self._replace(numbers=numbers, positions=positions)

    def run(self) -> WriterRun:
        """As it stands beside the events."""
        first, last = self.numbers[0], self.numbers[-1]
        return WriterRun(self.writer_id, first, last, min(first, self.settled))


def check_writer_id(writer_id: bytes) -> None:
    """Refuse what is no id of a writer.

    Raises:
        ValueError: not 16 bytes, or zeros.
    """
    if len(writer_id) != WRITER_ID_SIZE_BYTES or writer_id == NO_WRITER:
        raise ValueError(
            f"expected a writer id of {WRITER_ID_SIZE_BYTES} bytes that are not all 0, found {writer_id!r}"
        )


class Progress(NamedTuple):
    """How far a writer has come.

    Args:
        next_number: all of its events below this number are durable; what the producer goes on with.
        unused: above all of its numbers that are known to be durable.
    """

    next_number: int = 0
    unused: int = 0


class Held(NamedTuple):
    """That events with these keys, up to this number, are durable in a segment.

    Args:
        low: position of the first key; `high`: of the first one behind them.
        number: the highest one.
    """

    low: float
    high: float
    number: int


class WriterHeld(NamedTuple):
    """What a segment has of one writer.

    Args:
        held: for keys, in any order; for each key the highest number counts.
        settled: all events below it are durable, wherever.
    """

    held: tuple[Held, ...]
    settled: int

    def covering(self, low: float, high: float) -> int:
        """The highest number up to which all keys from one position to another are covered; NOTHING if some are not."""
        inner = {each.low for each in self.held} | {each.high for each in self.held}
        bounds = [low, *sorted(bound for bound in inner if low < bound < high)]
        return min(
            max((each.number for each in self.held if each.low <= at < each.high), default=NOTHING) for at in bounds
        )


def progress_of(parts: Iterable[tuple[float, float, WriterHeld]]) -> Progress:
    """How far a writer has come in a stream.

    Args:
        parts: for each active segment its keys, and what it has of the writer.
    """
    known = list(parts)
    settled = max((each.settled for _, _, each in known), default=0)
    covered = min((each.covering(low, high) for low, high, each in known), default=NOTHING)
    highest = max((held.number for _, _, each in known for held in each.held), default=NOTHING)
    return Progress(max(settled, covered + 1), max(settled, highest + 1))


class EventLostError(Exception):
    """An event will never be durable; of a writer with an id none that was written after it may be.

    Args:
        error: what has become of it.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class WriterNumbering:
    """Numbers the events of one writer. Threads: one at a time.

    Args:
        writer_id: 16 bytes, not all of them 0.
        progress: how far the writer had come before.
        is_resumable: whether the writer comes again after its process has ended. Then an event that is lost ends all.

    Attributes:
        next_number: of the next event that is written without one.
        error: why an event is not durable, and never will be: then no later one may come before it.
    """

    def __init__(self, writer_id: bytes, progress: Progress, *, is_resumable: bool = True) -> None:
        check_writer_id(writer_id)
        self.writer_id, self._progress = writer_id, progress
        self.is_resumable = is_resumable
        self.next_number = progress.unused
        self.error: BaseException | None = None
        self._is_begun = False
        self._on_their_way: deque[tuple[int, WriteFuture]] = deque()

    def resume(self) -> int:
        """The number that the producer goes on with; from then on events without a number get those from there on.

        Raises:
            InvalidArgument: events were written already.
        """
        if self._is_begun:
            raise InvalidArgument("expected to be asked before the first event is written, found events written")
        self.next_number = self._progress.next_number
        return self.next_number

    def take(self, count: int, number: int | None) -> range:
        """The numbers of these events.

        Args:
            count: how many, at least 1.
            number: of the first one; None = the next one.

        Raises:
            InvalidArgument: a number that is not above those before it, or too high.
            What has become of an earlier event, if it will never be durable.
        """
        if self.error is not None:
            raise self.error
        first = self.next_number if number is None else checked_integer("a number of an event", number)
        least = self.next_number if self._is_begun else 0
        if not least <= first <= NUMBER_MAX - count + 1:
            raise InvalidArgument(f"expected a number of {least} to {NUMBER_MAX - count + 1}, found {first}")
        self._is_begun, self.next_number = True, first + count
        return range(first, first + count)

    def written(self, numbers: Iterable[int], futures: Iterable[WriteFuture]) -> None:
        """Events with these numbers are on their way."""
        self._on_their_way.extend(zip(numbers, futures, strict=True))

    def events(self, numbers: Sequence[int], positions: Sequence[float]) -> NumberedEvents:
        """What is said of events that are to be appended. O(events that became durable since)."""
        waiting = self._on_their_way
        while waiting and waiting[0][1].done():
            if self.is_resumable and isinstance(waiting[0][1].outcome, BaseException):
                break
            waiting.popleft()
        return NumberedEvents(self.writer_id, numbers, positions, waiting[0][0] if waiting else numbers[0])


@dataclass(slots=True)
class _Writer:
    """Of one writer: the highest number that was appended, and that is durable; what it had in segments before."""

    appended: int = NOTHING
    durable: int = NOTHING
    settled: int = 0
    value: int = 0
    inherited: tuple[Held, ...] = ()

    def held(self) -> tuple[Held, ...]:
        """What is durable."""
        own = () if self.durable == NOTHING else (Held(*ALL_KEYS, self.durable),)
        return own + tuple(each for each in self.inherited if each.number > self.durable)


class _OnItsWay(NamedTuple):
    end: int
    run: WriterRun
    value: int


class SegmentNumbers:
    """The numbers of writers in one segment. Threads: any; nothing in here asks a store.

    Args:
        writers_max: how many writers are kept; those that were idle the longest are forgotten.
        idle_ms: one that has written nothing for so long, by the clock values of the segment, is forgotten.

    Attributes:
        is_loaded: whether it has what the segments before had, and this one on other nodes.
    """

    def __init__(self, writers_max: int, idle_ms: int, *, is_loaded: bool = False) -> None:
        self._writers_max, self._idle_ms = writers_max, idle_ms
        self._lock = Lock()
        self._writers: OrderedDict[bytes, _Writer] = OrderedDict()  # the first one has been idle the longest
        self._on_its_way: deque[_OnItsWay] = deque()
        self._newest_value = 0
        self.is_loaded = is_loaded

    # Appends; one at a time

    def repeated(self, events: NumberedEvents) -> dict[int, bool]:
        """Which of these events, by place, were appended before, and of each whether it is durable. O(events)."""
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
        """Take notice of a batch that was appended, up to an offset, with a clock value."""
        with self._lock:
            writer = self._begun(run.writer_id, value)
            writer.appended = max(writer.appended, run.last)
            self._on_its_way.append(_OnItsWay(end, run, value))

    def noting(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """The same batches, which are durable; takes notice of each.

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
        """What was appended up to an offset is durable."""
        with self._lock:
            while self._on_its_way and self._on_its_way[0].end <= end:
                self._add(self._on_its_way.popleft())

    # What is known

    def held_by(self, writer_id: bytes) -> WriterHeld:
        """What is durable of a writer."""
        with self._lock:
            writer = self._writers.get(writer_id, _Writer())
            return WriterHeld(writer.held(), writer.settled)

    def between(self, stream_id: int, start: int, end: int) -> Rows:
        """Rows of what was appended between two offsets and is not settled; without the commit."""
        with self._lock:
            runs = [each for each in self._on_its_way if start < each.end <= end]
            has_all = self.is_loaded and not any(writer.inherited for writer in self._writers.values())
        rows = [_row(each.run.writer_id, Held(*ALL_KEYS, each.run.last), each.run.settled, each.value) for each in runs]
        if rows and has_all:
            rows.append(_says_all(end, runs[-1].value))
        return _rows(stream_id, rows)

    def rows(self, stream_id: int, end: int) -> Rows:
        """Rows of all that is durable, which reaches to an offset; none if nobody has numbers here. O(writers)."""
        with self._lock:
            self._forget_idle()
            writers = {writer_id: replace(writer) for writer_id, writer in self._writers.items()}
            for each in self._on_its_way:
                if each.end <= end:
                    _raise_to(writers.setdefault(each.run.writer_id, _Writer()), each)
            newest, is_loaded = self._newest_value, self.is_loaded
        rows = [
            _row(writer_id, held, writer.settled, writer.value)
            for writer_id, writer in writers.items()
            for held in writer.held()
        ]
        if rows and is_loaded:
            rows.append(_says_all(end, newest))
        return _rows(stream_id, rows)

    # What others have kept

    def inherit(self, rows: Rows, low: float = 0.0, high: float = 1.0) -> None:
        """Take over what rows say, of the same segment or of one that had some of its keys. O(rows).

        Args:
            rows: WRITER_NUMBER rows of one stream; those of its own, for all keys, too.
            low: the first position of the keys that they count for;
            high: the first one behind these.
        """
        with self._lock:
            for row in rows[np.argsort(rows["value"], kind="stable")]:
                writer_id = _writer_id(int(row["writer_high"]), int(row["writer_low"]))
                if writer_id == NO_WRITER:
                    continue
                writer = self._begun(writer_id, int(row["value"]))
                writer.settled = max(writer.settled, int(row["settled"]))
                span = (max(low, _position(int(row["keys_from"]))), min(high, _position(int(row["keys_to"]))))
                self._hold(writer, Held(*span, int(row["number"])))

    # Inside; within the lock

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

    def _begun(self, writer_id: bytes, value: int) -> _Writer:
        writer = self._writers.setdefault(writer_id, _Writer())
        writer.value = max(writer.value, value)
        self._newest_value = max(self._newest_value, value)
        self._writers.move_to_end(writer_id)
        if len(self._writers) > self._writers_max:
            idle = next((each for each, known in self._writers.items() if known.appended == known.durable), writer_id)
            if idle != writer_id:  # else all have events on their way, which are bounded
                del self._writers[idle]
        self._forget_idle()
        return writer

    def _add(self, done: _OnItsWay) -> None:
        _raise_to(self._begun(done.run.writer_id, done.value), done)

    def _forget_idle(self) -> None:
        oldest = self._newest_value - self._idle_ms
        while self._writers and next(iter(self._writers.values())).value < oldest:
            self._writers.popitem(last=False)


def _raise_to(writer: _Writer, done: _OnItsWay) -> None:
    writer.durable = max(writer.durable, done.run.last)
    writer.appended = max(writer.appended, done.run.last)
    writer.settled = max(writer.settled, done.run.settled)
    writer.value = max(writer.value, done.value)


# Rows

_Row = tuple[int, int, int, int, int, int, int]


def known_end(rows: Rows) -> int:
    """The offset up to which rows of one stream have all, also what segments before it had; NOTHING if none says so."""
    says_all = rows[(rows["writer_high"] == 0) & (rows["writer_low"] == 0)]
    return int(says_all["number"].max(initial=NOTHING))


def _row(writer_id: bytes, held: Held, settled: int, value: int) -> _Row:
    high, low = _HALVES.unpack(writer_id)
    span = (_POSITION.unpack(_FLOAT.pack(each))[0] for each in (held.low, held.high))
    return (high, low, *span, held.number, settled, min(value, _VALUE_MAX))


def _says_all(end: int, value: int) -> _Row:
    return (0, 0, 0, 0, end, 0, min(value, _VALUE_MAX))


def _rows(stream_id: int, rows: Sequence[_Row]) -> Rows:
    if not rows:
        return no_rows(WRITER_NUMBER)
    return np.array([(stream_id, *row, 0) for row in rows], dtype=WRITER_NUMBER)


def _writer_id(high: int, low: int) -> bytes:
    return _HALVES.pack(high, low)


def _position(bits: int) -> float:
    """A position; what is none, as damaged rows may have, is a place where no key is."""
    (position,) = _FLOAT.unpack(_POSITION.pack(bits))
    return position if 0.0 <= position <= 1.0 else 1.0


# The table of a segment that leaves its node


@dataclass(frozen=True, slots=True, eq=False)
class NumberTable:
    """What a segment has of its writers at an offset, as it is kept beside its time index. Threads: immutable.

    Args:
        stream_id: of the segment.
        end: the offset; all data below it counts.
        rows: WRITER_NUMBER rows of this stream.

    Raises:
        ValueError: rows of another stream, or a number below 0.
    """

    stream_id: int
    end: int
    rows: Annotated[Rows, Columns(WRITER_NUMBER)]

    def __post_init__(self) -> None:
        if self.stream_id < 0 or self.end < 0 or (self.rows["stream_id"] != self.stream_id).any():
            raise ValueError(f"expected rows of stream {self.stream_id} up to an offset, found others, or {self.end}")


NUMBER_TABLE: Final = RecordForm("writer-numbers", 1, NumberTable)

TABLE_SIZE_BYTES_MAX: Final = 64 << 20
"""Longest table that is read; a writer takes some 40 bytes of it."""

ANCESTORS_MAX: Final = 1000
"""How many segments before one are looked at for the numbers of its writers."""


class SegmentsBefore(Protocol):
    """Knows streams and segments. Threads: any."""

    def stream_id(self, name: StreamName, segment_id: int) -> int:
        """The stream of the object layer that a segment is kept as."""
        ...

    def predecessors(self, name: StreamName, segment_id: int, oldest_ms: float) -> list[SegmentRecord]:
        """The segments before one; none if they were sealed before some time, ms since 1970."""
        ...


class NumberTables:
    """The tables of segments that left their nodes. Threads: any; no lock is held over I/O.

    Args:
        store: where they lie.
        directory: knows which segments were before one.
        backoff: for requests that fail.
        settings: bounds.
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
        """Numbers of nobody, with the bounds of the settings."""
        return SegmentNumbers(self._writers_max, self._idle_ms)

    def load(self, name: StreamName, segment_id: int, numbers: SegmentNumbers) -> None:
        """Add what a segment had on other nodes, and what those before it had, so far as writers are remembered.

        Requests: 1 listing, and 1 GET of a table; where there is none, 3 calls of the history, and for each of the
        segments before 1 call, and the same again.

        Raises:
            StoreError, TableError, CorruptObject, NotInHistory.
        """
        to_visit, seen = deque([(segment_id, *ALL_KEYS)]), {segment_id}
        oldest_ms = self._system.clock() * 1000 - self._idle_ms
        while to_visit:
            each_id, low, high = to_visit.popleft()
            rows = self._newest(self._directory.stream_id(name, each_id))
            if rows is not None:
                numbers.inherit(rows, low, high)
                continue
            for before in self._directory.predecessors(name, each_id, oldest_ms):
                if before.id not in seen and len(seen) < ANCESTORS_MAX:
                    seen.add(before.id)
                    to_visit.append((before.id, before.key_start, before.key_end))
        numbers.is_loaded = True

    def keep(self, stream_id: int, end: int, numbers: SegmentNumbers) -> None:
        """Write what a segment has at an offset. 1 request; repeating it is safe."""
        body = NUMBER_TABLE.encode(NumberTable(stream_id, end, numbers.rows(stream_id, end)))
        self._backoff.ask(lambda: self._store.put(number_table_key(stream_id, end), body))

    def keep_rows(self, name: StreamName, segments: Mapping[int, int], ends: Mapping[int, int], rows: Rows) -> None:
        """Write what the lists of other nodes say of segments, with the tables that these segments have.

        Args:
            name: scope and stream.
            segments: {stream id: segment id}.
            ends: where the streams end, by id.
            rows: WRITER_NUMBER rows of these.
        """
        for stream_id in np.unique(rows["stream_id"]).tolist():
            numbers = self.new()
            numbers.inherit(rows[rows["stream_id"] == stream_id])
            # Rows may say to have all, and be of a time before others had the segment: the tables are read.
            self.load(name, segments[stream_id], numbers)
            self.keep(stream_id, ends[stream_id], numbers)

    def _newest(self, stream_id: int) -> Rows | None:
        keys = self._backoff.ask(lambda: [info.key for info in self._store.list(number_tables_prefix(stream_id))])
        if not keys:
            return None
        body = self._backoff.ask(lambda: self._store.get(keys[-1], size_bytes_max=TABLE_SIZE_BYTES_MAX)).body
        return NUMBER_TABLE.decode(body, keys[-1]).rows
