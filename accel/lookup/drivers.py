"""Carries out the steps of lookups and reads for both accelerators, as scripts: generators that yield only waits.

`search.py` and `reading.py` decide which objects to open and what the answer is. This module carries out their steps,
in the same way for threads and for asyncio. A script yields only a `Wait` for running loads and queries, and is sent
whether any of them is done. So each accelerator is a thin driver that waits in its own way.

`SideBySide` runs many lookups of one call concurrently, so that they share rounds and loads. Each lookup has the same
script as a single one; this module does not decide answers. An object that two lookups open at the same time is opened
once, as for lookups of two threads. A lookup that memory answers does not wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from accel.errors import AccelError, Closed, InvalidRequest, StillPending, UnknownStream
from accel.image import ImageVersion, MetadataImage, is_newer
from accel.lookup.answer import Answer, Ending, Request
from accel.lookup.engine import Engine, RoundCost, UnderWay
from accel.lookup.lookup import Asking, unconfirmed
from accel.lookup.reading import Batches, Ranges, ReadEnd, ReadSteps
from accel.lookup.search_requests import (
    Announce,
    Arrived,
    AwaitAny,
    AwaitMore,
    Begin,
    Begun,
    CurrentImage,
    LookupStep,
    NeedImage,
    OpenObjects,
    ReadSent,
    RefreshFailed,
    Sent,
    Step,
)
from loaders.format import BatchColumns, RecordBatch
from loaders.lifetime import unpickled
from loaders.threads import Arrivals
from loaders.tracing import Span, begin_span, current, timed

if TYPE_CHECKING:
    from accel.lookup.explain import Trace
    from accel.lookup.slow_lookups import ReadWatch


T = TypeVar("T")


ANSWER_SECONDS = 1.0
"""The minimum time that the image source has to answer a fetch, which asks it at least once, despite its timeout."""


IMAGE_HELD_SECONDS = 5.0
"""The maximum time for which a read uses one image; then the rest is looked up with the newest one."""


FOREVER_SECONDS: Final = 1e9
"""A timeout of this length or longer is unlimited: waits of threads do not support such times."""


class Deadline:
    """The time limit of a call; None for no limit.

    Args:
        timer: seconds, from any start.
        seconds: from now on; `FOREVER_SECONDS` or more is no limit.
        answer_seconds: the minimum time that the image source has to answer.
    """

    def __init__(self, timer: Callable[[], float], seconds: float | None, answer_seconds: float = 0.0) -> None:
        self._timer = timer
        self._end = None if seconds is None or seconds >= FOREVER_SECONDS else timer() + seconds
        self._answer_seconds = answer_seconds

    def left_seconds(self) -> float | None:
        """Seconds left, at least 0; None for no limit."""
        return None if self._end is None else max(0.0, self._end - self._timer())

    def answer_seconds(self) -> float | None:
        """Seconds that the image source has to answer; None for no limit."""
        left_seconds = self.left_seconds()
        return None if left_seconds is None else max(left_seconds, self._answer_seconds)


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until one of these futures is done, or this time has passed; None = no limit."""

    futures: Sequence[Future[Any]]
    timeout_seconds: float | None


Script = Generator[Wait, Any, T]
"""The work of an accelerator, except for the waiting."""


class ReadingBase:
    """The common base of the reads of both accelerators: the loaded batches, the next wait, and the ending.

    `next_offset` is the offset after the batches returned so far, where a later read continues; `ending`, set when the
    iteration is over, is the reason: the end, the byte budget (LIMIT) or a hole. `stream_end` is the end of the stream
    if the read ended after all its data, as in `Answer`.

    A failed read raises the same error at every further step, so that it cannot be taken for a finished one; a new read
    from `next_offset` continues. A read that was interrupted while it waited, as by cancelling its task, loses no batch
    and may continue.
    """

    __reduce__ = unpickled("a read")

    def __init__(
        self,
        engine: Engine,
        stream_id: int,
        start: int,
        end: int,
        max_bytes: int,
        ranges: Ranges | None,
        *,
        ahead_bytes: int = 0,
    ) -> None:
        self._engine = engine
        slow = engine.slow_lookups
        watch = None if slow is None else slow.watch()
        ahead_bytes = 0 if ranges is None else ahead_bytes
        steps = engine.start_read(stream_id, start, end, max_bytes, watch, ahead_bytes, shares_chunks=ranges is None)
        self._script = _read(engine, stream_id, steps, ranges, watch)
        self._resume: Callable[[], Wait | Batches] = partial(next, self._script)
        self._waiting: Wait | None = None
        self._ready: list[RecordBatch] = []
        self._columns: deque[BatchColumns] = deque()
        self._error: BaseException | None = None
        self.next_offset = start
        self.ending: Ending | None = None
        self.stream_end: int | None = None

    def close(self) -> None:
        """Discard the read-ahead: loads that have not begun are cancelled. Does not block. Further steps raise Closed.

        A read that has ended or failed does not change. A read without references is closed as well.
        """
        if self.ending is None and self._error is None:
            self._error = Closed("expected a read that is open, found it closed")
            self._ready, self._waiting = [], None
            self._columns.clear()
        self._script.close()

    def _take(self) -> RecordBatch:
        if not self._ready:
            self._ready = list(self._columns[0])[::-1]
        batch = self._ready.pop()
        self.next_offset = max(self.next_offset, batch.end_offset)
        if not self._ready:
            self._columns.popleft()
        return batch

    def _take_columns(self) -> BatchColumns:
        columns = self._columns.popleft()
        if self._ready:
            columns = columns.after(len(columns) - len(self._ready))
            self._ready = []
        self.next_offset = max(self.next_offset, int(columns.end_offsets[-1]))
        return columns

    def _advance(self) -> Wait | None:
        """The next wait before there are more batches; None if there are some, or the read is over.

        Raises:
            The error of the read; WrongProcess if another process began it; Closed if the accelerator is closed.
        """
        self._engine.lifetime.check()
        if self._error is not None:
            raise self._error.with_traceback(None)
        while self._waiting is None and not self._columns and self.ending is None:
            self._go_on()
        return self._waiting

    def _go_on(self) -> None:
        try:
            step = self._resume()
        except StopIteration as stop:
            end: ReadEnd = stop.value
            self.ending, self.next_offset, self.stream_end = end.ending, end.next_offset, end.stream_end
            return
        except BaseException as error:
            self._error = error
            raise
        if isinstance(step, Batches):
            if len(step.columns):
                self._columns.append(step.columns)
            self._resume = partial(next, self._script)
        else:
            self._waiting = step

    def _came(self, is_any_done: bool) -> None:
        """Continue the script with the result of the wait."""
        self._waiting, self._resume = None, partial(self._script.send, is_any_done)


class _ReadFetcher:
    """Carries out the steps of one read. One thread at a time.

    Args:
        engine: loads objects.
        stream_id: the stream.
        ranges: supplies the bytes of blocks; None = the store.
        watch: records the cost of lookups; None if slow lookups are not recorded.
    """

    def __init__(self, engine: Engine, stream_id: int, ranges: Ranges | None, watch: ReadWatch | None) -> None:
        self._engine = engine
        self._stream_id = stream_id
        self._ranges = ranges
        self._watch = watch
        self._lookups = Fetcher(engine, stream_id, Deadline(engine.system.timer, None))
        self._looking: OpenObjects | None = None
        self._step_started = self._step_seconds = 0.0
        self._image_due_seconds = engine.system.timer() + IMAGE_HELD_SECONDS
        self._begun: dict[int, Future[Any]] = {}
        self._arrivals: Arrivals[int] = Arrivals()

    def answer(self, step: Step) -> Script[ReadSent]:
        """Carry out a step and return its reply."""
        if isinstance(step, CurrentImage):
            timer = self._engine.system.timer
            started_seconds = timer()
            self._image_due_seconds = started_seconds + IMAGE_HELD_SECONDS
            image = yield from current_image(self._engine, Deadline(timer, None))
            if self._watch is not None:
                self._watch.waited_for_image(timer() - started_seconds)
            return image
        if isinstance(step, Begin):
            return self._begin(step)
        if isinstance(step, Announce):
            self._engine.announce(step, self._ranges)
            return None
        if isinstance(step, AwaitAny) and step.lookup is None:
            return (yield from self._await(step))
        timer = self._engine.system.timer
        self._step_started = timer()
        if self._watch is not None:
            self._lookups.trace = self._watch.trace
        try:
            return (yield from (self._await(step) if isinstance(step, AwaitAny) else self._lookups.answer(step)))
        finally:
            self._waited(timer() - self._step_started)

    def leave(self) -> None:
        """Cancel begun requests that do not run yet. Does not wait for running ones."""
        for begun in self._begun.values():
            begun.cancel()
        self._begun.clear()
        self._lookups.leave()
        if self._watch is not None:
            self._watch.leave()

    def _waited(self, seconds: float) -> None:
        """Add the time of a wait for a lookup; the time of waits for blocks alone is not counted."""
        self._step_seconds += seconds
        if self._watch is not None:
            self._watch.waited(seconds)

    def _begin(self, step: Begin) -> Begun | None:
        begun = self._engine.begin(step.step, step.share, self._ranges, self._stream_id)
        if begun.done():
            return _outcome(begun)
        self._begun[step.ticket] = begun
        self._arrivals.expect(step.ticket, begun)
        return None

    def _await(self, step: AwaitAny) -> Script[Arrived]:
        if step.lookup is not None and step.lookup is not self._looking:
            self._look_up(step.lookup)
        slow_seconds = self._engine.settings.max_wait_load_seconds
        while True:
            begun = {ticket: _outcome(self._begun.pop(ticket)) for ticket in self._arrivals.take()}
            found = None if step.lookup is None else self._lookups.under_way.take()
            if found is not None:
                self._lookups.measure(self._step_seconds + self._engine.system.timer() - self._step_started)
            if begun or found is not None:
                return Arrived(begun, found, self._is_image_due())
            signals = [self._arrivals.signal()]
            if step.lookup is not None:
                signals.append(self._lookups.under_way.signal())
            if not (yield Wait(signals, slow_seconds)):
                self._engine.executor.go_on()
                if step.lookup is not None and self._lookups.under_way.is_overdue():
                    return Arrived({}, {})

    def _look_up(self, step: OpenObjects) -> None:
        self._lookups.begin(step)
        self._looking, self._step_seconds = step, 0.0

    def _is_image_due(self) -> bool:
        if self._engine.system.timer() < self._image_due_seconds:
            return False
        self._image_due_seconds = math.inf  # reported once, until another image is used
        return True


def _outcome(begun: Future[Any]) -> Begun:
    try:
        outcome: Begun = begun.result()
    except AccelError as error:
        return error
    return outcome


def _read(
    engine: Engine, stream_id: int, steps: ReadSteps, ranges: Ranges | None, watch: ReadWatch | None
) -> Generator[Wait | Batches, Any, ReadEnd]:
    sent: ReadSent = None
    fetcher = _ReadFetcher(engine, stream_id, ranges, watch)
    try:
        while True:
            step = steps.send(sent)
            sent = (yield step) if isinstance(step, Batches) else (yield from fetcher.answer(step))
    except StopIteration as stop:
        end: ReadEnd = stop.value
        if watch is not None:
            watch.leave("the read was complete before the lookup was over")
        return end
    finally:
        fetcher.leave()


class Fetcher:
    """Carries out the steps of one lookup. One thread at a time.

    The loads cannot be cancelled: a lookup that is cancelled, out of time or needs fewer of them stops waiting for
    them.
    """

    def __init__(
        self,
        engine: Engine,
        stream_id: int,
        deadline: Deadline,
        trace: Trace | None = None,
        images: Deadline | None = None,
    ) -> None:
        self._engine = engine
        self._stream_id = stream_id
        self._deadline = deadline
        self._images = images or deadline
        self.trace = trace
        self.under_way = UnderWay(engine, stream_id)
        self._has_asked = False
        self._told_seconds = 0.0
        self._span: Span | None = None
        self._round: Span | None = None

    def run(self, steps: Asking[T]) -> Script[T]:
        """Carry out all steps and return their result. It is a span, if spans are recorded."""
        self._span = begin_span("accel.lookup")
        failed: BaseException | None = None
        try:
            sent: Sent = None
            while True:
                try:
                    step = steps.send(sent)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                sent = yield from self.answer(step)
        except BaseException as error:
            failed = error
            raise
        finally:
            self.leave()
            if self._span is not None:
                self._span.end(failed)

    def leave(self) -> None:
        """End the span of the current round."""
        if self._round is not None:
            self._round.end()
            self._round = None

    def answer(self, step: LookupStep) -> Script[Sent]:
        """Carry out a step and return its reply; None if the time is over and there are no results."""
        if isinstance(step, NeedImage):
            self.under_way = UnderWay(self._engine, self._stream_id)  # the search begins again
            started_seconds = self._engine.system.timer()
            newer = yield from _ask_newer(self._engine, step.version, self._images)
            if self.trace is not None:
                self.trace.image_seconds += self._engine.system.timer() - started_seconds
            return newer
        if self._has_asked and not isinstance(step, AwaitMore) and self._deadline.left_seconds() == 0:
            return None
        self.begin(step)
        while (came := self.under_way.take()) is None:
            left_seconds = self._deadline.left_seconds()
            slow_seconds = self._engine.settings.max_wait_load_seconds
            is_last = left_seconds is not None and left_seconds <= slow_seconds
            timeout_seconds = left_seconds if is_last else slow_seconds
            if (yield Wait((self.under_way.signal(),), timeout_seconds)):
                continue
            if is_last:
                came = self.under_way.take()
                break
            self._engine.executor.go_on()
            if self.under_way.is_overdue():
                came = {}
                break
        self.measure(self._engine.system.timer() - self._told_seconds)
        return came

    def begin(self, step: OpenObjects) -> None:
        """Start the requests of a step."""
        self._has_asked = True
        if self.trace is not None:
            self._told_seconds = self._engine.system.timer()
        if not isinstance(step, AwaitMore):
            self.leave()
            begin, objects = (begin_span if self._span is None else self._span.begin), len(step.positions)
            self._round = begin("accel.round", objects=objects)
        with current(self._round), timed(None if self.trace is None else self.trace.times):
            self.under_way.ask(step)

    def measure(self, seconds: float) -> None:
        """Record the cost since the last call, and the time, in the trace if there is one."""
        cost, self.under_way.cost = self.under_way.cost, RoundCost()
        self.leave()
        if self.trace is not None:
            self.trace.joined += cost.joined
            self.trace.again += cost.again
            hint = (cost.hint_requests, cost.hint_bytes)
            self.trace.record_cost(cost.requests, cost.bytes_read, seconds, hint=hint)


def current_image(engine: Engine, deadline: Deadline) -> Script[MetadataImage]:
    """The current image; if no image may be used, the result of a query to the source.

    Raises:
        ImageTooOld: the source has no image that may be used, or did not answer within the deadline.
    """
    images = engine.images
    for _ in range(2):  # a query that began before may have failed while an image could still be used
        image = images.cached()
        if image is not None:
            return image
        asked = images.ask()
        if not (yield Wait([asked], deadline.answer_seconds())):
            break
        image = images.came(asked)
        if image is not None:
            return image
    raise images.too_late()


def _ask_newer(
    engine: Engine, version: ImageVersion, deadline: Deadline
) -> Script[MetadataImage | RefreshFailed | None]:
    """An image newer than this version; None if there is none, `RefreshFailed` if the source failed or timed out."""
    asked = engine.images.ask_newer(version)
    if not (yield Wait([asked], deadline.answer_seconds())):
        return RefreshFailed(engine.images.age_seconds(), "the image source did not answer within the deadline")
    return engine.images.newer(asked, version)


def wait_newer(engine: Engine, version: ImageVersion, deadline: Deadline) -> Script[bool]:
    """Wait until there is an image newer than this version; returns whether there is before the time is over.

    The source is asked at least once, however short the time; a call that shares a running query waits only for that
    time.
    """
    images = engine.images
    while True:
        left_seconds = deadline.left_seconds() or 0.0
        extra_seconds = 0.0 if images.is_next_asked else ANSWER_SECONDS
        asked = images.ask_next(version, left_seconds)
        is_done = yield Wait([asked], left_seconds + extra_seconds)
        if is_newer(images.image.version, version):
            return True
        if is_done:
            images.came(asked)
        if not deadline.left_seconds():
            return False


def refuse_unknown(engine: Engine, error: UnknownStream, deadline: Deadline) -> Script[None]:
    """For a fetch of a stream that an image does not have: request a newer image, and return if it has the stream.

    Raises:
        UnknownStream: the newest image does not have the stream either, or was not available.
    """
    if not error.retryable:
        raise error
    image = yield from current_image(engine, deadline)
    if error.stream_id in image.streams:
        return  # a query of another caller has just finished
    newer = yield from _ask_newer(engine, image.version, deadline)
    if isinstance(newer, RefreshFailed):
        raise unconfirmed(error, f"a newer one could not be had: {newer.reason}") from error
    if error.stream_id not in (newer or image).streams:
        raise UnknownStream(error.stream_id, str((newer or image).version)) from error


def still_pending(answer: Answer) -> StillPending:
    """The error of a fetch that timed out."""
    request = answer.request
    return StillPending(
        f"stream {request.stream_id}: expected offsets [{request.start}, {request.end}) in image version "
        f"{answer.image_version}, found none from {answer.resume_offset} on"
    )


REQUESTS_MAX: Final = 10_000
"""The maximum number of requests of one call."""

AT_ONCE_MAX: Final = 256
"""The maximum number of lookups of one call that wait at the same time."""


def checked_requests(requests: Iterable[Request]) -> list[Request]:
    """The requests as a list.

    Raises:
        InvalidRequest: more than `REQUESTS_MAX`.
    """
    checked = list(islice(requests, REQUESTS_MAX + 1))
    if len(checked) > REQUESTS_MAX:
        raise InvalidRequest(f"expected at most {REQUESTS_MAX} requests in one call, found more")
    return checked


class SideBySide:
    """Runs scripts of lookups concurrently in the calling thread.

    Args:
        timer: seconds, from any start.

    Threads: one.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._scripts: dict[int, Script[Answer]] = {}
        self._waiting: dict[int, tuple[Wait, float | None]] = {}
        self.outcomes: dict[int, Answer | AccelError] = {}
        """By the number of the script; complete after `finish`."""

    def start(self, number: int, script: Script[Answer]) -> None:
        """Start a script; if `AT_ONCE_MAX` scripts wait already, this waits until one of them continues."""
        while len(self._waiting) >= AT_ONCE_MAX:
            self._wait()
        self._scripts[number] = script
        self._go_on(number, None)

    def finish(self) -> None:
        """Wait until all scripts are done."""
        while self._waiting:
            self._wait()

    def _wait(self) -> None:
        futures = {future for waiting, _ in self._waiting.values() for future in waiting.futures}
        ends = [end for _, end in self._waiting.values() if end is not None]
        first_end = min(ends, default=None)
        timeout_seconds = None if first_end is None else max(0.0, first_end - self._timer())
        done = wait(futures, timeout_seconds, FIRST_COMPLETED).done
        for number, (waiting, end) in list(self._waiting.items()):
            has_come = not done.isdisjoint(waiting.futures)
            if has_come or (not done and end == first_end):
                self._go_on(number, has_come)

    def _go_on(self, number: int, sent: Any) -> None:
        """Continue a script until it waits, or is done."""
        script = self._scripts[number]
        self._waiting.pop(number, None)
        try:
            step = script.send(sent)
        except StopIteration as stop:
            self._end(number, stop.value)
        except AccelError as error:
            self._end(number, error)
        else:
            seconds = step.timeout_seconds
            self._waiting[number] = (step, None if seconds is None else self._timer() + seconds)

    def _end(self, number: int, outcome: Answer | AccelError) -> None:
        self.outcomes[number] = outcome
        del self._scripts[number]
