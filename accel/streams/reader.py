"""Reads a stream from one cut to another, its segments merged in the order of time: for threads; `aio` is for asyncio.

    with StreamReader(stream, source) as reader:            async with AsyncStreamReader(stream, source) as reader:
        for event in reader:                                    async for event in reader:
            ...                                                     ...
            reader.position()       # StreamReader(stream, source, from_cut=...) continues here

`rules.reader_core` decides what to read. A few threads read segments ahead (`ReaderBase`); the two drivers pass the
answers to it and differ only in how they wait. The constructor of a reader looks up its cuts, which sends requests to
the store: under asyncio, call it in a thread (`asyncio.to_thread`) if the event loop must not block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, unique
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar

from accel.errors import AccelError, PositionTruncated, ReaderStalled
from accel.history.rules.cuts import refuse_unordered
from accel.history.rules.values import (
    Cut,
    IdMap,
    checked_arguments,
    segment_text,
)
from accel.history.store import Stream
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import AskEnd, Fill, ReaderCore, SegmentEnd, SegmentEvents, Step
from accel.streams.rules.settings import ReaderSettings
from accel.streams.segment_source import SegmentSource, WatchedSource
from accel.system import SYSTEM, Components
from accel.units import milliseconds
from loaders.lifetime import Closing, Lifetime, unpickled
from loaders.settings import TimeLimit
from loaders.threads import Threads

Answer = TypeVar("Answer")
Asked: TypeAlias = Future[SegmentEvents | SegmentEnd]
Answered: TypeAlias = tuple[Step, Asked, float]
Answers: TypeAlias = "SimpleQueue[Answered | None]"  # None wakes the caller: closed, or new data
MILLISECONDS = 1000
RETRY_PAUSE_SECONDS = 0.1
"""The pause before the first repetition of a request; doubled each further time."""

RETRY_PAUSES_MAX = 20
"""The longest pause before a repetition, in multiples of the first one."""

log = logging.getLogger(__name__)


@unique
class Order(Enum):
    """The order of events of different segments. Events of one segment, and of one key, always keep their order."""

    TIME = "time"
    """In order of arrival: events wait for segments that may have older ones; at the tail only shortly."""

    SEGMENT = "segment"
    """The oldest segment first, without regard to time: no order is promised."""


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """How long a reader waited for the order of time, and how often it did not wait.

    Args:
        held_seconds: for how long buffered events waited for events that might be older.
        passes: the number of requests that the reader did not wait for although they might have returned older events:
            ``"tail"``, at the stream's tail the request was not answered as quickly as others are; ``"failed"``, at the
            tail the last request of the segment raised an error. Others only with
            `ReaderSettings.passes_late_segments`: ``"timed out"``, for a segment in history that events had waited for
            `ReaderSettings.history_wait_seconds`; ``"failed"``, for one whose request failed for good.
    """

    held_seconds: float
    passes: Mapping[str, int]


@checked_arguments
class ReaderBase:
    """How readers process answers, for every source and every way to wait.

    Args:
        stream: the stream to read.
        source: reads the events of segments.
        core: decides what to read; its settings are the reader's.
        system: the timer, and the clock by which `lag` is measured.

    A reader and its position belong to the process that made the reader: elsewhere it raises WrongProcess. A reader
    that was closed before its end raises Closed when the caller asks for more, so that this is not mistaken for the
    end.
    """

    __reduce__ = unpickled("a reader")

    def __init__(self, stream: Stream, source: SegmentSource, core: ReaderCore, system: Components) -> None:
        self._lifetime = Lifetime(f"a reader of {stream.name}", system.process_id)
        self._stream = stream
        self._source = source
        self._core = core
        self._system = system
        self.settings = core.settings
        self._pool = Threads(self.settings.requests_max, "accel-reader", lifetime=self._lifetime)
        self._answers: Answers = SimpleQueue()
        self._interrupts = _Interrupts()
        self._batch: EventBatch | None = None
        self._events: Iterator[Event] = iter(())
        self._at = 0
        self._stalled_since: float | None = None
        self._held_since: float | None = None
        self._held_seconds = 0.0
        self._left_seconds = 0.0
        self._retried_at = system.timer()
        self._watched = source if isinstance(source, WatchedSource) else None
        self._watch: Future[bool] | None = None
        self._failing: dict[int, tuple[float, int]] = {}  # time of repetitions and pauses, and how often
        self._later: list[tuple[float, Step]] = []
        self._lost: dict[int, BaseException] = {}  # errors of segments that are passed

    def position(self) -> IdMap:
        """The stream cut after the last returned event: a reader that begins there returns all later events."""
        cut = self._core.position()
        if self._batch is None or self._batch.segment_id not in cut:
            return cut
        return IdMap.of({**cut, self._batch.segment_id: self._at})

    def lag(self, segment_id: int | None = None) -> float | None:
        """How long ago the first event arrived that was not returned yet, in seconds; 0 if all events were returned.

        A reader that follows and has returned all events that it knows of returns how long ago it looked for more.
        This, and the time since the last returned event while more are requested, are upper bounds. None if not even a
        bound is known: before the first answers of the store, for events without a time, for a reader without segments.

        Args:
            segment_id: the segment to report on, None if it is not being read; None = the largest of all segments.
        """
        lags = self.lags()
        if segment_id is not None:
            return lags.get(segment_id)
        known = [lag for lag in lags.values() if lag is not None]
        return max(known) if known and len(known) == len(lags) else None

    def lags(self) -> dict[int, float | None]:
        """The lag of each segment that is being read; see `lag`."""
        self._pass_time()
        now = self._now_ms()
        lags = self._core.lags(now)
        batch = self._batch
        if batch is not None and batch.segment_id in lags and batch.value and self._at < batch.next_offset:
            lags[batch.segment_id] = max(0, now - batch.value)
        return {segment_id: None if lag is None else lag / MILLISECONDS for segment_id, lag in lags.items()}

    @property
    def is_finished(self) -> bool:
        """Whether the reader is at its end: all events were returned."""
        return not self._is_open and self._core.is_finished

    @property
    def _is_waited_for(self) -> bool:
        """Whether more events may come without another action of the caller."""
        return not self.is_finished

    @property
    def buffered_bytes(self) -> int:
        """Bytes of payload in memory, and of the payload that requests under way may return."""
        return self._core.buffered_bytes

    def stats(self) -> ReaderStats:
        """How long events were held back, and how often the reader did not wait for a segment, so far."""
        return ReaderStats(self._held_seconds, {cause.value: count for cause, count in self._core.passes.items()})

    def _now_ms(self) -> int:
        return milliseconds(self._system.clock())

    def _next_event(self) -> Event | None:
        """Return the next event of the current batch; None if it has no more."""
        for event in self._events:
            self._at = event.next_offset
            return event
        return None

    def _open_batch(self, batch: EventBatch) -> None:
        self._batch, self._events, self._at = batch, iter(batch), batch.offset

    @property
    def _is_open(self) -> bool:
        """Whether there are events that were taken and not returned."""
        return self._batch is not None and self._at < self._batch.next_offset

    def _rest(self) -> EventBatch | None:
        """Return the rest of the current batch; it counts as returned from now on."""
        rest, none = None if self._batch is None else self._batch.within(self._at), iter(())
        if rest:
            self._note_given(rest)
        self._batch, self._events = None, none  # last: an interrupt before this returns nothing, and loses nothing
        return rest

    def _note_given(self, given: Event | EventBatch) -> None:
        """Called with events before they count as returned."""

    def _mended(self) -> _Interrupts:
        """Begin again at the position, after a call that was interrupted at any place; notes other interrupts."""
        if not self._interrupts.is_torn:
            return self._interrupts
        batch = self._batch
        self._events = iter(()) if batch is None or not self._is_open else iter(batch.within(self._at))
        self._answers = SimpleQueue()
        self._failing, self._later, self._lost, self._watch = {}, [], {}, None
        self._stalled_since = self._held_since = None
        self._core = self._core.again(batch)
        self._interrupts.is_torn = False
        return self._interrupts

    def _hand_on(self) -> None:
        """Process the answers that arrived, and send the next requests.

        Raises:
            Exception: as `_answer`.
        """
        while not self._answers.empty():
            if (answered := self._answers.get()) is not None:
                self._answer(*answered)
        self._retry()
        now = self._pass_time()
        for step in self._core.next_steps():
            self._ask(step).add_done_callback(partial(self._arrived, self._answers, step, now))

    def _ask(self, step: Step) -> Future[SegmentEvents | SegmentEnd]:
        if isinstance(step, Fill):
            return self._pool.submit(self._source.fill, step)
        return self._pool.submit(self._source.ask_end, step)

    def _arrived(self, answers: Answers, step: Step, asked_seconds: float, done: Asked) -> None:
        """Queue the answer; the thread that has it calls this."""
        if not done.cancelled():
            answers.put((step, done, self._system.timer() - asked_seconds))
            self._wake()

    def _check(self) -> None:
        """Check that the caller may ask for more.

        Raises:
            WrongProcess: another process made the reader.
            Closed: the reader was closed before its end.
        """
        self._lifetime.check_process()
        if not self.is_finished:
            self._lifetime.check()

    def _wake(self) -> None:
        """Wake a caller that does not wait at the queue; any thread may call this."""

    def _close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._answers.put(None)
        self._wake()

    def _answer(self, step: Step, done: Future[SegmentEvents | SegmentEnd], took_seconds: float) -> None:
        """Pass an answer to the core.

        Raises:
            Exception: the request failed and is not repeated automatically; the next call of the caller repeats it.
        """
        self._pass_time()
        error = done.exception()
        if error is not None:
            self._fail(step, error, took_seconds)
            return
        self._failing.pop(step.segment_id, None)
        self._lost.pop(step.segment_id, None)
        answer = done.result()
        if isinstance(step, Fill) and isinstance(answer, SegmentEvents):
            self._core.take_events(step, answer, took_seconds)
            if answer.batches:
                self._stalled_since = None
        elif isinstance(step, AskEnd) and isinstance(answer, SegmentEnd):
            self._core.take_end(step, answer)
            if step.segment_id not in self._core.position():
                self._stalled_since = None

    def _fail(self, step: Step, error: BaseException, took_seconds: float) -> None:
        """Repeat a failed request after a pause, if the error is retryable and the segment has not failed for too long.

        Raises:
            Exception: the error, if the request is not repeated.
        """
        # Only what repetitions and pauses take: a caller that does something else meanwhile does not use up the time.
        spent_seconds, times = self._failing.pop(step.segment_id, (0.0, 0))
        spent_seconds += took_seconds if times else 0.0
        now = self._system.timer()
        may_help = isinstance(error, AccelError) and error.retryable
        if may_help and spent_seconds < self.settings.retry_seconds:
            if not times:
                log.warning("segment %s is read again after a pause: %s", segment_text(step.segment_id), error)
            pause_seconds = RETRY_PAUSE_SECONDS * min(2 ** min(times, 8), RETRY_PAUSES_MAX)
            self._failing[step.segment_id] = (spent_seconds + pause_seconds, times + 1)
            self._later.append((now + pause_seconds, step))
            return
        if self._may_pass(error):
            self._lost[step.segment_id] = error
            self._core.note_lost(step)
            self._later.append((now + RETRY_PAUSE_SECONDS * RETRY_PAUSES_MAX, step))
            return
        self._core.note_failure(step)
        if self._is_needed(step):
            error.add_note(f"while reading segment {segment_text(step.segment_id)} of {self._stream.name}")
            raise error

    def _may_pass(self, error: BaseException) -> bool:
        is_of_data = isinstance(error, AccelError) and not isinstance(error, PositionTruncated)
        return self.settings.passes_late_segments and is_of_data

    def _is_needed(self, step: Step) -> bool:
        """Whether the reader still needs the answer; not if the segment was given up, or skipped, since."""
        at = self._core.position().get(step.segment_id)
        return at is not None and (isinstance(step, AskEnd) or step.offset >= at)

    def _take(self) -> EventBatch | None:
        """Take the next events as the current batch, unless they wait for events that may be older.

        Raises:
            ReaderStalled: they have waited for too long.
            Exception: the error of a segment that was passed, if no other segment has, or requests, events.
        """
        now = self._pass_time()
        self._left_seconds = self._core.hold_seconds()
        if self._left_seconds > 0:
            self._held_since = now if self._held_since is None else self._held_since
            self._refuse_overdue()
            return None
        if self._held_since is not None:
            self._held_seconds += now - self._held_since
            self._held_since = None
        batch = self._core.take(self._open_batch)
        if batch is None and self._lost:
            self._raise_lost()
        return batch

    def _refuse_overdue(self) -> None:
        if overdue := self._core.take_overdue():
            expected = f"events of {_places_text(overdue)} within {self.settings.history_wait_seconds:g} s"
            raise ReaderStalled(f"{self._stream.name}: expected {expected}, found none; those of other segments wait")

    def _raise_lost(self) -> None:
        self._lost = {each: error for each, error in self._lost.items() if each in self._core.position()}
        if self._lost and self._lost.keys() >= {*self._core.awaited}:
            segment_id, error = self._lost.popitem()
            error.add_note(f"while reading segment {segment_text(segment_id)} of {self._stream.name}")
            raise error

    def _pass_time(self) -> float:
        now = self._system.timer()
        self._core.pass_time(now)
        return now

    def _retry(self) -> None:
        """Read idle segments again when more may have arrived or the pause is over, even if events are buffered."""
        now = self._system.timer()
        due = [step for due_seconds, step in self._later if due_seconds <= now]
        self._later = [later for later in self._later if later[0] > now]
        for step in due:
            self._core.note_failure(step)
        if self._watch is None:
            self._begin_watch()
        has_come = self._watch is not None and self._watch.done() and self._watch.result()
        if has_come or now - self._retried_at >= self.settings.idle_seconds:
            self._retried_at = now
            self._begin_watch()
            self._core.retry_idle()

    def _begin_watch(self) -> None:
        """Watch for new data if the reader follows. Called before segments are read, so that no data is missed."""
        if self._watched is not None and self._core.follows and (self._watch is None or self._watch.done()):
            self._watch = self._watched.watch()
            self._watch.add_done_callback(lambda _: self._nudge())

    def _nudge(self) -> None:
        """Wake the reader, so that it checks its pending work; any thread may call this."""
        self._answers.put(None)
        self._wake()

    def _wait_seconds(self) -> float | None:
        """The time until the next work that does not depend on an answer; None = no such work.

        Raises:
            ReaderStalled: the reader waited too long for data that must exist.
        """
        now = self._system.timer()
        waits = [self._left_seconds] if self._left_seconds > 0 else []
        waits += [max(0.0, due_seconds - now) for due_seconds, _ in self._later]
        if self._core.idle:
            self._refuse_stalled(now)
            waits.append(max(0.0, self._retried_at + self.settings.idle_seconds - now))
        else:
            self._stalled_since = None
        return min(waits) if waits else None

    def _refuse_stalled(self, now: float) -> None:
        if self._stalled_since is None:
            self._stalled_since = now
        if now - self._stalled_since >= self.settings.stall_seconds and not self._core.follows:
            idle = _places_text(self._core.idle)
            self._stalled_since = None
            raise ReaderStalled(f"{self._stream.name}: expected more events in {idle}, found none for a long time")


def _places_text(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{segment_text(segment_id)} at {at}" for segment_id, at in sorted(offsets.items())[:20])


class _Interrupts:
    """Notes that a call of a reader was interrupted, by an exception of a signal handler; the next call mends it."""

    def __init__(self) -> None:
        self.is_torn = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None and not isinstance(error, AccelError | asyncio.CancelledError):
            self.is_torn = True


@checked_arguments
class CutReader(ReaderBase):
    """A reader of a whole stream, from one cut to another.

    Args:
        stream: the stream to read.
        source: reads the events of segments.
        from_cut: where to begin; None = at the stream's head.
        to_cut: where to end; None = no end. A reader that follows waits for the end of a segment that is not sealed.
        follow: whether to wait for future events; False = end where the stream ends now.
        order: the order of events of different segments.
        settings: bounds of the reader.
        system: the timer, and the clock by which `lag` is measured.

    Raises:
        InvalidArgument: an invalid cut, or an end before the start.
        PositionBeyondEnd: `to_cut` is after the end of a segment.
        NotInHistory: a cut of another stream.
    """

    def __init__(
        self,
        stream: Stream,
        source: SegmentSource,
        *,
        from_cut: Cut | None = None,
        to_cut: Cut | None = None,
        follow: bool = False,
        order: Order = Order.TIME,
        settings: ReaderSettings | None = None,
        system: Components = SYSTEM,
    ) -> None:
        start = stream.cuts.place_valid(dict(stream.head()) if from_cut is None else from_cut)
        end = None if to_cut is None else stream.cuts.place_valid(to_cut)
        refuse_unordered(start, end)
        if end is not None:
            open_ids = stream.cuts.refuse_beyond(end.cut, ask=lambda _: {})
            for segment_id in () if follow else open_ids:
                source.ask_end(AskEnd(segment_id, end.cut[segment_id]))  # raises if the segment ends before
        core = ReaderCore(
            Frontier(start.segments, start.cut),
            settings or ReaderSettings(),
            stop=None if end is None else end.cut,
            follow=follow,
            by_time=order is Order.TIME,
        )
        super().__init__(stream, source, core, system)

    def _skip_to_head(self) -> IdMap:
        self._lifetime.check()
        with self._mended():
            head = self._stream.cuts.place_valid(dict(self._stream.head()))
            before, batch = self._core.position(), self._batch
            self._core.skip(Frontier(head.segments, head.cut))
            self._failing.clear()  # at the new position, failures are new ones
            position = self._core.position()
            if batch is not None:
                is_kept = position.get(batch.segment_id) == before.get(batch.segment_id)
                rest = batch.within(max(self._at, head.cut.get(batch.segment_id, 0))) if is_kept else None
                if rest:
                    self._open_batch(rest)
                else:
                    self._batch, self._events = None, iter(())
            return self.position()


# For threads


@checked_arguments
class ThreadReader(ReaderBase, Iterator[Event], Closing):
    """A reader whose calls block while it waits. Threads: one at a time."""

    def _end_block(self, _: BaseException | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading; does not wait for requests under way."""
        self._close()

    def __next__(self) -> Event:
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout_seconds: TimeLimit = None) -> Event | None:
        """Return the next event; None if none arrived in time. See `next_batch` for the time-out, and for None."""
        self._check()
        while (event := self._next_event()) is None:
            if not self._fill(timeout_seconds):
                return None
        return event

    def next_batch(self, timeout_seconds: TimeLimit = None) -> EventBatch | None:
        """Return the next batch, which is events that were appended together; None if none arrived in time.

        The events count as returned. If the first events of a batch were returned one by one, the result is the rest of
        the batch. `is_finished` shows whether more may come; without a time-out the result is None at the end only.

        Args:
            timeout_seconds: how long to wait at most; None = until there is a batch, or the reader is at its end.
        """
        return self._rest() if self._fill(timeout_seconds) else None

    def _fill(self, timeout_seconds: float | None) -> bool:
        """Wait until there are events to return; returns whether there are."""
        deadline = None if timeout_seconds is None else self._system.timer() + timeout_seconds
        self._lifetime.check_process()
        with self._mended():
            self._attend()
            self._check()
            self._batch = self._batch if self._is_open else None
            while self._batch is None and self._is_waited_for:
                self._check()
                self._hand_on()
                self._attend()
                if self._take() is not None or not self._is_waited_for:
                    break
                left = None if deadline is None else max(0.0, deadline - self._system.timer())
                waits = [wait for wait in (self._wait_seconds(), left) if wait is not None]
                if not self._wait(min(waits) if waits else None) and left == 0:
                    break
        return self._batch is not None

    def _attend(self) -> None:
        """Do the work that comes before the next event; a group reader calls its group here."""

    def _wait(self, seconds: float | None) -> bool:
        try:
            answered = self._answers.get(timeout=seconds)
        except Empty:
            return False
        if answered is not None:
            self._answer(*answered)
        return True


class StreamReader(ThreadReader, CutReader):
    """Iterates over the events of a stream; see `CutReader` for the arguments. Threads: one at a time.

    An error does not change the position: the next call tries again, and no event is returned twice.

    Raises:
        PositionTruncated (while iterating): the stream now begins after the position; `skip_to_head` continues.
        PositionBeyondEnd (while iterating): a segment ends before the position, by the newest metadata.
        ReaderStalled (while iterating): data that must exist was not found for `stall_seconds`, or a segment that may
            have older events was not read within `history_wait_seconds`.
        AccelError (while iterating): an object or a part of the history could not be read.
    """

    def __next__(self) -> Event:
        self._check()
        event = self._next_event()  # mostly in the current batch: saves a call for each event
        return super().__next__() if event is None else event

    def skip_to_head(self) -> IdMap:
        """Continue at the stream's head in segments where the position is before it; returns the new position."""
        return self._skip_to_head()
