"""Reads a stream from cut to cut, its segments merged in the order of time: for threads and for asyncio.

    with StreamReader(stream, source) as reader:            async with AsyncStreamReader(stream, source) as reader:
        for event in reader:                                    async for event in reader:
            ...                                                     ...
            reader.position()       # StreamReader(stream, source, from_cut=...) goes on here

`rules.reader_core` decides. A few threads fill segments ahead (`ReaderBase`); the two drivers hand the answers on and
differ only in how they wait. Cuts are looked up when a reader is made, which asks the store: under asyncio, make it in
a thread (`asyncio.to_thread`) where that matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, unique
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self, TypeAlias

from accel.errors import AccelError, ReaderStalled
from accel.history.rules.cuts import refuse_unordered
from accel.history.rules.values import (
    Cut,
    IdMap,
    segment_text,
)
from accel.history.store import Stream
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import AskEnd, Fill, ReaderCore, ReaderSettings, SegmentEnd, SegmentEvents, Step
from accel.streams.segment_source import SegmentSource, WatchedSource
from accel.system import SYSTEM, Components
from accel.units import milliseconds
from loaders.lifetime import Lifetime, Threads

Answered: TypeAlias = tuple[Step, Future[SegmentEvents | SegmentEnd], float]
MILLISECONDS = 1000
RETRY_PAUSES_MAX = 20
"""The longest pause before a repetition, in multiples of the first one."""

log = logging.getLogger(__name__)


@unique
class Order(Enum):
    """In which order events of different segments come. Those of one segment, and of one key, keep theirs always."""

    TIME = "time"
    """As they arrived: events are held back for segments that may have older ones, within bounds on time and memory."""

    SEGMENT = "segment"
    """The oldest segment first, whatever the time: nothing is said about the order."""


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """What order cost a reader so far, and what it could not have.

    Args:
        held_seconds: for how long events at hand were held back for others that might be older.
        passes: how many requests were passed over that might have brought older events: ``"timed out"``, of a segment
            with one that took longer than `ReaderSettings.reorder_wait_seconds`; ``"failed"``, of one whose last
            request raised an error; ``"tail"``, at the stream's tail it was not answered as quickly as others are.
    """

    held_seconds: float
    passes: Mapping[str, int]


class ReaderBase:
    """What readers do with answers, for every source and every way to wait.

    Args:
        stream: which.
        source: where its events come from.
        core: decides; its settings are the reader's.
        system: the timer, and the clock that `lag` is measured by.

    A reader is of the process that made it, as its position is: elsewhere it raises WrongProcess. Closed before it has
    come to its end, it raises Closed when it is asked for more, so that nobody takes that for the end.
    """

    def __init__(self, stream: Stream, source: SegmentSource, core: ReaderCore, system: Components) -> None:
        self._lifetime = Lifetime(f"a reader of {stream.name}", system.process_id)
        self._stream = stream
        self._source = source
        self._core = core
        self._system = system
        self.settings = core.settings
        self._pool = Threads(self.settings.requests_max, "accel-reader", lifetime=self._lifetime)
        self._answers: SimpleQueue[Answered | None] = SimpleQueue()  # None: closed, so nothing is to be waited for
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
        self._failing: dict[int, tuple[float, int]] = {}  # since when, and how often
        self._later: list[tuple[float, Step]] = []

    def position(self) -> IdMap:
        """The stream cut behind the last event that was given: a reader that begins there gives all that follow."""
        cut = self._core.position()
        if self._batch is None or self._batch.segment_id not in cut:
            return cut
        return IdMap.of({**cut, self._batch.segment_id: self._at})

    def lag(self, segment_id: int | None = None) -> float:
        """How many seconds ago the last event arrived that was given; 0 before the first.

        Args:
            segment_id: of one segment; None = of the whole reader.
        """
        return self._core.lag(self._now_ms(), segment_id) / MILLISECONDS

    def lags(self) -> dict[int, float]:
        """The same of each segment that is being read."""
        return {segment_id: lag / MILLISECONDS for segment_id, lag in self._core.lags(self._now_ms()).items()}

    @property
    def is_finished(self) -> bool:
        """Whether all was given that was asked for: nothing comes any more."""
        return self._batch is None and self._core.is_finished

    @property
    def _is_waited_for(self) -> bool:
        """Whether more may come without the caller doing anything but ask."""
        return not self.is_finished

    @property
    def buffered_bytes(self) -> int:
        """Payload in memory, and what requests under way may bring."""
        return self._core.buffered_bytes

    def stats(self) -> ReaderStats:
        """How often, and for how long, events were held back or segments passed over, so far."""
        return ReaderStats(self._held_seconds, {cause.value: count for cause, count in self._core.passes.items()})

    def _now_ms(self) -> int:
        return milliseconds(self._system.clock())

    def _next_event(self) -> Event | None:
        """The next event of the batch at hand; None if it has no more."""
        for event in self._events:
            self._at = event.next_offset
            return event
        self._batch = None
        return None

    def _open_batch(self, batch: EventBatch) -> None:
        self._batch, self._events, self._at = batch, iter(batch), batch.offset

    def _rest(self) -> EventBatch | None:
        """What was not given yet of the batch at hand; counts as given from now on."""
        batch, self._batch, self._events = self._batch, None, iter(())
        left = None if batch is None else batch.within(self._at)
        return left or None

    def _hand_on(self) -> None:
        """Hand on what came, and ask for what is wanted.

        Raises:
            Exception: as `_answer`.
        """
        while not self._answers.empty():
            if (answered := self._answers.get()) is not None:
                self._answer(*answered)
        self._retry()
        now = self._pass_time()
        for step in self._core.next_steps():
            self._ask(step).add_done_callback(partial(self._arrived, step, now))

    def _ask(self, step: Step) -> Future[SegmentEvents | SegmentEnd]:
        if isinstance(step, Fill):
            return self._pool.submit(self._source.fill, step)
        return self._pool.submit(self._source.ask_end, step)

    def _arrived(self, step: Step, asked_seconds: float, done: Future[SegmentEvents | SegmentEnd]) -> None:
        """Called by the thread that has the answer."""
        if not done.cancelled():
            self._answers.put((step, done, self._system.timer() - asked_seconds))
            self._wake()

    def _check(self) -> None:
        """That more may be asked of it.

        Raises:
            WrongProcess: another process made it.
            Closed: it was closed, and has not come to its end.
        """
        self._lifetime.check_process()
        if not self.is_finished:
            self._lifetime.check()

    def _wake(self) -> None:
        """Wake a caller that waits for answers in another way than at the queue; by any thread."""

    def _close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._answers.put(None)
        self._wake()

    def _answer(self, step: Step, done: Future[SegmentEvents | SegmentEnd], took_seconds: float) -> None:
        """Hand an answer on.

        Raises:
            Exception: it did not work, and is not tried again by itself; it is wanted again, so a caller who goes on
                tries again.
        """
        self._pass_time()
        error = done.exception()
        if error is not None:
            self._fail(step, error)
            return
        self._failing.pop(step.segment_id, None)
        answer = done.result()
        if isinstance(step, Fill) and isinstance(answer, SegmentEvents):
            self._core.take_events(step, answer, took_seconds)
            if answer.batches:
                self._stalled_since = None
        elif isinstance(step, AskEnd) and isinstance(answer, SegmentEnd):
            self._core.take_end(step, answer, took_seconds)
            if step.segment_id not in self._core.position():
                self._stalled_since = None

    def _fail(self, step: Step, error: BaseException) -> None:
        """Try again after a pause, where that may help, and unless the segment has failed for too long.

        Raises:
            Exception: the error.
        """
        now = self._system.timer()
        since_seconds, times = self._failing.pop(step.segment_id, (now, 0))
        may_help = isinstance(error, AccelError) and error.retryable
        if may_help and now - since_seconds < self.settings.retry_seconds:
            if not times:
                log.warning("segment %s is read again after a pause: %s", segment_text(step.segment_id), error)
            self._failing[step.segment_id] = (since_seconds, times + 1)
            pause_seconds = self.settings.retry_pause_seconds * min(2 ** min(times, 8), RETRY_PAUSES_MAX)
            self._later.append((now + pause_seconds, step))
            return
        self._core.note_failure(step)
        if self._is_needed(step):
            raise error

    def _is_needed(self, step: Step) -> bool:
        """Whether what is asked for lies before the reader; not of a segment that was given up, or skipped, since."""
        at = self._core.position().get(step.segment_id)
        return at is not None and (isinstance(step, AskEnd) or step.offset >= at)

    def _take(self) -> EventBatch | None:
        """The next events, unless they are held back for others that may be older."""
        now = self._pass_time()
        self._left_seconds = self._core.hold_seconds()
        if self._left_seconds > 0:
            self._held_since = now if self._held_since is None else self._held_since
            return None
        if self._held_since is not None:
            self._held_seconds += now - self._held_since
            self._held_since = None
        return self._core.take()

    def _pass_time(self) -> float:
        now = self._system.timer()
        self._core.pass_time(now)
        return now

    def _retry(self) -> None:
        """Ask idle segments again when there may be more, or it is time, whether or not others have events at hand."""
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
        """One that follows is told when there may be more. Before segments are asked, so that nothing is missed."""
        if self._watched is not None and self._core.follows and (self._watch is None or self._watch.done()):
            self._watch = self._watched.watch()
            self._watch.add_done_callback(lambda _: self._nudge())

    def _nudge(self) -> None:
        """Have the reader look at what is to be done; by any thread."""
        self._answers.put(None)
        self._wake()

    def _wait_seconds(self) -> float | None:
        """How long nothing is to be done unless an answer comes; None = for ever.

        Raises:
            ReaderStalled: it waited too long for what must be there.
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
            told = ", ".join(
                f"{segment_text(segment_id)} at {at}" for segment_id, at in sorted(self._core.idle.items())[:20]
            )
            self._stalled_since = None
            raise ReaderStalled(f"{self._stream.name}: expected more in {told}, found none for a long time")


class CutReader(ReaderBase):
    """A reader of a whole stream, from one cut to another.

    Args:
        stream: which.
        source: where its events come from.
        from_cut: where to begin; None = at the stream's head.
        to_cut: where to end; None = nowhere.
        follow: whether to wait for events that are not there yet; False = to end where the stream ends now.
        order: of events of different segments.
        settings: bounds.
        system: the timer, and the clock that `lag` is measured by.

    Raises:
        InvalidArgument: a cut that is not valid, or an end before the start.
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
        head = self._stream.cuts.place_valid(dict(self._stream.head()))
        self._core.skip(Frontier(head.segments, head.cut))
        self._rest()
        return self._core.position()


# For threads


class ThreadReader(ReaderBase, Iterator[Event]):
    """A reader that blocks while it waits. Threads: one at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Read no more; requests under way are not waited for."""
        self._close()

    def __next__(self) -> Event:
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout_seconds: float | None = None) -> Event | None:
        """The next event; None if there was none within the time. See `next_batch` for the time, and for None."""
        self._check()
        while (event := self._next_event()) is None:
            batch = ThreadReader.next_batch(self, timeout_seconds)
            if batch is None:
                return None
            self._open_batch(batch)
        return event

    def next_batch(self, timeout_seconds: float | None = None) -> EventBatch | None:
        """The events that were appended together next; None if there were none within the time.

        They count as given. Of a batch whose first events were given one by one, these are the others. Whether there
        will ever be more, `is_finished` says; without a time-out None comes at the end only.

        Args:
            timeout_seconds: how long to wait at most; None = until there are some, or all was given.
        """
        deadline = None if timeout_seconds is None else self._system.timer() + timeout_seconds
        self._lifetime.check_process()
        self._attend()
        self._check()
        rest = self._rest()
        while rest is None and self._is_waited_for:
            self._check()
            self._hand_on()
            self._attend()
            rest = self._take()
            if rest is not None or not self._is_waited_for:
                break
            left = None if deadline is None else max(0.0, deadline - self._system.timer())
            waits = [wait for wait in (self._wait_seconds(), left) if wait is not None]
            if not self._wait(min(waits) if waits else None) and left == 0:
                break
        return rest

    def _attend(self) -> None:
        """What is to be done before anything is given."""

    def _wait(self, seconds: float | None) -> bool:
        try:
            answered = self._answers.get(timeout=seconds)
        except Empty:
            return False
        if answered is not None:
            self._answer(*answered)
        return True


class StreamReader(ThreadReader, CutReader):
    """Events of a stream; see `CutReader` for the arguments. Threads: one at a time.

    An error leaves it as it was: asked for the next event again, it tries again, and gives no event twice.

    Raises:
        PositionTruncated (while iterating): the stream begins behind the position; `skip_to_head` goes on.
        ReaderStalled (while iterating): what must be there could not be found for `stall_seconds`.
        AccelError (while iterating): something could not be read.
    """

    def __next__(self) -> Event:
        self._check()
        event = self._next_event()  # at hand mostly: a call less for each event
        return super().__next__() if event is None else event

    def skip_to_head(self) -> IdMap:
        """Go on at the stream's head wherever that lies behind the position; gives the new position."""
        return self._skip_to_head()


# For asyncio


class AsyncReader(ReaderBase, AsyncIterator[Event]):
    """A reader that awaits. One task at a time.

    A task that was cancelled while it waited may ask again, and misses nothing.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _woken: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        """What is to be done at the end of its block."""
        self._close()

    async def __anext__(self) -> Event:
        event = await self.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next_event(self, timeout_seconds: float | None = None) -> Event | None:
        """The next event; None if there was none within the time. See `next_batch` for the time, and for None."""
        self._check()
        while (event := self._next_event()) is None:
            batch = await AsyncReader.next_batch(self, timeout_seconds)
            if batch is None:
                return None
            self._open_batch(batch)
        return event

    async def next_batch(self, timeout_seconds: float | None = None) -> EventBatch | None:
        """The events that were appended together next; None if there were none within the time.

        They count as given. Of a batch whose first events were given one by one, these are the others. Whether there
        will ever be more, `is_finished` says; without a time-out None comes at the end only.

        Args:
            timeout_seconds: how long to wait at most; None = until there are some, or all was given.
        """
        deadline = None if timeout_seconds is None else self._system.timer() + timeout_seconds
        self._lifetime.check_process()
        woken = self._listen()
        await self._attend()
        self._check()
        rest = self._rest()
        while rest is None and self._is_waited_for:
            self._check()
            woken.clear()
            self._hand_on()
            await self._attend()
            rest = self._take()
            if rest is not None or not self._is_waited_for:
                break
            left = None if deadline is None else max(0.0, deadline - self._system.timer())
            if left == 0:
                break
            waits = [wait for wait in (self._wait_seconds(), left) if wait is not None]
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(waits, default=None)):
                    await woken.wait()
        return rest

    async def _attend(self) -> None:
        """What is to be done before anything is given."""

    def _listen(self) -> asyncio.Event:
        loop = asyncio.get_running_loop()
        if self._woken is None or self._loop is not loop:
            self._loop, self._woken = loop, asyncio.Event()
        return self._woken

    def _wake(self) -> None:
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(woken.set)


class AsyncStreamReader(AsyncReader, CutReader):
    """Events of a stream, for ``async for``; arguments and errors are those of `StreamReader`. One task at a time.

    A task that was cancelled while it waited may ask again, and misses nothing.
    """

    async def __anext__(self) -> Event:
        self._check()
        event = self._next_event()  # likewise
        return await super().__anext__() if event is None else event

    def close(self) -> None:
        """Read no more; requests under way are not waited for."""
        self._close()

    async def skip_to_head(self) -> IdMap:
        """Go on at the stream's head wherever that lies behind the position; gives the new position."""
        return await asyncio.to_thread(self._skip_to_head)
