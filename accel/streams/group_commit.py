"""Group commit: the events of many callers become few objects, and each caller is notified when its event is durable.

    writers        events  e e e e e e e e e e e          `add`: no caller waits for an upload
    gather         when the first has waited for `linger_seconds`, `batch_bytes` wait, or a caller flushes; while
                   objects are under way, the next object begins one commit time after the previous one at the earliest
    uploads        object 7 |== put ==|                   `uploads_at_once`, side by side
                   object 8    |== put ==|
                   object 9       |== put ==|
    commit               |== 7 ==|== 8, 9 ==|             in their order; one conditional write for all written objects

So a single event is durable after two successive requests; and while many events arrive, a slower store makes larger
objects. Objects that begin more often than commits end are not listed sooner: they wait for the commit under way, and
for the slowest put before them (docs/decisions/0014-writers-and-groups.md). The order within a segment is the order of
writing: events are appended and get their offsets in that order, and objects are committed in the order in which they
were made.

If the system has a `wait`, background threads do this work. A system without `wait` (simulated time) has no such
threads: then a caller that writes too much, flushes or waits for a future does the work, with the same steps in the
same order.

A caller may be interrupted anywhere. So it changes nothing here: it hands work over, and one thread does it
(`hand_over`).

Background work that fails is tried again, with growing pauses, as long as the error is retryable; each failure is
raised by the flushes that wait. An error that retries cannot cure (the session is fenced, a commit is refused) ends all
work: every unresolved future fails with that error, and so do all later calls.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from threading import Event, Lock
from typing import Final, Protocol, TypeVar
from weakref import WeakSet

from accel.catalog.records import STREAMS_AN_OBJECT_MAX
from accel.errors import (
    AccelError,
    CatalogWentBack,
    Closed,
    CommitRefused,
    FormatError,
    NamespaceShared,
    SessionFenced,
    StreamsReleased,
    WriterStalled,
    WrongProcess,
)
from accel.streams.acknowledgements import Acknowledgements, EventPlace, FlushPoint, WriteFuture, call_guarded
from accel.streams.hand_over import Entry, HandedOver
from accel.streams.open_segments import AppendBuffer, Appended, OpenSegment, OpenSegments
from accel.streams.rules.routing import Events
from accel.streams.uploads import Upload, UploadParts, commit
from accel.system import Components
from loaders.backoff import Backoff
from loaders.errors import StoreUnavailable, WriteConflict
from loaders.lifetime import Lifetime
from loaders.threads import Threads

logger = logging.getLogger(__name__)
T = TypeVar("T")


class EventSource(Protocol):
    """A writer, in which events wait until they are appended. Threads: any.

    Attributes:
        pause_seconds: the pause between two calls of `settle`.
        troubles: the number of failures of `settle`; `trouble`: the last error. `GroupCommit` sets both.
    """

    pause_seconds: float
    troubles: int
    trouble: BaseException | None

    def drain(self) -> bool:
        """Append the events that segments take, without a request; returns whether events are left, for `settle`."""
        ...

    def settle(self) -> bool:
        """Look once for segments that take the events left; returns whether `drain` may go on.

        Raises:
            AccelError: a retryable error. Other errors were set as results of the events' futures.
        """
        ...

    def end_points(self, points: list[FlushPoint]) -> None:
        """Add the points that count all events so far and were not reported; later events count in a new one."""
        ...

    def return_events(self, segment_id: int, runs: Sequence[Events]) -> None:
        """Take back the last appends to a segment: they are not durable, because another node took the segment over.

        Append them to the segments that take them now, before all later events.
        """
        ...

    def fail(self, error: BaseException) -> None:
        """Fail all waiting events: none of them will ever be durable."""
        ...


_FINAL: Final = (SessionFenced, NamespaceShared, CommitRefused, CatalogWentBack, FormatError, Closed, WrongProcess)
"""Errors of uploads that no retry cures."""


PACE_SECONDS_MAX: Final = 0.1
"""The longest time for which objects under way delay the next object, however slow commits are."""

_PACE_WEIGHT: Final = 1 / 8


class GroupCommit:
    """Makes waiting events durable; see the module. Threads: any, in the process that opened it.

    Args:
        parts: the parts of the session.
        segments: the segments that the session writes.
        buffer: appended batches.
        lifetime: the lifetime of the host.
        system: clock, sleep, chance; without a `wait` there are no background threads.
    """

    def __init__(
        self, parts: UploadParts, segments: OpenSegments, buffer: AppendBuffer, lifetime: Lifetime, system: Components
    ) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._segments = segments
        self._buffer = buffer
        self._lifetime = lifetime
        self._system = system
        self._lock = Lock()  # guards all attributes below; never held over a request, nor taken by writes and flushes
        self._handed = HandedOver(system.timer)
        self.acks = Acknowledgements(lifetime)
        self._forming = Lock()  # objects are made one after the other; held for memory accesses only
        self._sources: dict[EventSource, None] = {}
        self._stuck: dict[EventSource, None] = {}
        self._known: WeakSet[EventSource] = WeakSet()
        self._gathering_bytes = 0
        self._held_bytes = 0
        self._since = 0.0
        self._formed_at = 0.0
        self._pace_seconds = 0.0  # duration of a commit, as a moving average
        self._is_urgent = self._is_committing = self._is_settling = False
        self._uploads: deque[Upload] = deque()
        self._formed = self._done = self._failures = 0
        self._failure: BaseException | None = None
        self._broken: BaseException | None = None
        self._has_ended = False  # whether no thread gathers any more
        self._room_listeners: dict[Callable[[], object], None] = {}  # in the order of registration
        self._stopped = Event()
        self._driving = Lock()  # without threads: one caller works, held over its requests
        self._pool: Threads | None = None
        if system.wait is not None:
            # The threads for puts, and one that looks for segments.
            self._pool = Threads(parts.settings.uploads_at_once + 1, "accel-uploads", process_id=system.process_id)
            self._handed.begin(self.serve, system, "accel-writes")
        else:
            self.acks.drive_by(self.drive)

    @property
    def has_threads(self) -> bool:
        """Whether background threads do the work."""
        return self._pool is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of events that wait for an object, without objects under way; includes 12 bytes for each event."""
        return self._gathering_bytes + self._handed.size_bytes

    # Room

    def await_room(self, size_bytes: int, timeout_seconds: float) -> None:
        """Wait for room for events that are about to be written.

        Raises:
            WriterStalled: not enough room became free in time.
            IllegalState: there is no room, and this thread makes events durable.
            AccelError: the error that ended all uploads; without background threads, also the error of making earlier
                events durable.
        """
        if self.has_room(size_bytes):
            return
        if not self._wait_until(lambda: self._broken is not None or self._fits(size_bytes), timeout_seconds):
            raise self.stalled(size_bytes, timeout_seconds)
        self._check_broken()

    def has_room(self, size_bytes: int) -> bool:
        """Whether there is enough room; without background threads there is. Errors as `await_room`."""
        self._check_broken()
        if self._pool is not None:
            held_bytes = self._held_bytes + self._handed.counted_bytes
            return held_bytes + size_bytes <= self._settings.waiting_bytes_max or self._fits(size_bytes)
        if self._is_due():
            self.drive()
        return True

    def when_freed(self, listener: Callable[[], object]) -> None:
        """Call the listener once, in any thread, when room becomes free or all work has ended. It must not wait."""
        with self._lock:
            self._room_listeners[listener] = None

    def forget(self, listener: Callable[[], object]) -> None:
        """Do not call this listener any more."""
        with self._lock:
            self._room_listeners.pop(listener, None)

    def stalled(self, size_bytes: int, timeout_seconds: float) -> WriterStalled:
        """Return the error for a caller that has waited for room in vain."""
        last = f"; an upload failed last with: {self._failure}" if self._failure is not None else ""
        return WriterStalled(
            f"expected room for {size_bytes} of {self._settings.waiting_bytes_max} bytes within {timeout_seconds} s,"
            f" found {self._held_bytes + self._handed.size_bytes} taken by events that are not durable{last}"
        )

    def _fits(self, size_bytes: int) -> bool:
        held_bytes = self._held_bytes + self._handed.size_bytes
        return held_bytes == 0 or held_bytes + size_bytes <= self._settings.waiting_bytes_max

    def _check_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _freed(self) -> list[Callable[[], object]]:
        self._handed.notify()
        listeners = list(self._room_listeners)
        self._room_listeners.clear()
        return listeners

    # Between callers and the thread that does their work

    def hand_over(self, size_bytes: int, work: Callable[[], object]) -> None:
        """Let work be done after all work handed over before, by the thread that gathers events; without one, here.

        Args:
            size_bytes: of the events that wait after it.
            work: accesses memory only, raises nothing, and notes the events.
        """
        self._handed.add(size_bytes, work)
        if self._pool is None or self._has_ended:
            self._handed.do_rest()

    def ask(self, work: Callable[[], T], size_bytes: int = 0) -> T:
        """Let work be done as by `hand_over`, and wait for it; returns its result, or raises its error."""

        def do() -> T:
            result = work()
            self.note(None, size_bytes)
            return result

        if not self.has_threads or self.acks.is_inside:
            return do()
        answer = WriteFuture(self.acks)

        def act() -> None:
            try:
                outcome: object = do()
            except BaseException as error:  # noqa: BLE001 - raised to the caller
                outcome = error
            self.conclude([(answer, outcome)], 0)

        self.hand_over(0, act)
        return answer.result()  # type: ignore[return-value]  # of `work`

    def note(self, source: EventSource | None, size_bytes: int) -> None:
        """Note that events with room wait at a source, or in the buffer; for work that was handed over."""
        with self._lock:
            if self._gathering_bytes == 0:
                self._since = self._system.timer()
            self._gathering_bytes += size_bytes
            self._held_bytes += size_bytes
            if source is not None:
                self._sources[source] = None

    def _wait_until(self, is_so: Callable[[], bool], seconds: float | None = None) -> bool:
        self.acks.check_outside()
        return self._handed.wait_until(is_so, seconds)

    # For writers

    def know(self, source: EventSource) -> None:
        """Register a new source; its `fail` is called if all work ends."""
        with self._lock:
            self._known.add(source)

    def add(self, source: EventSource) -> None:
        """Note that events with room wait at a source again. Does not wait."""
        self.hand_over(0, partial(self.note, source, 0))

    def refused(self, source: EventSource) -> None:
        """Note that a source's events cannot be appended now, and look for segments that take them."""
        with self._lock:
            begins = not self._is_settling
            self._is_settling = True
            self._stuck[source] = None
        if begins:
            self._submit(self._settle_sources)

    def troubled(self, source: EventSource, error: BaseException) -> None:
        """Note a retryable error of a source's events: flushes that wait raise it."""
        source.trouble = error
        source.troubles += 1
        self._handed.notify()

    def fail(self, futures: Iterable[WriteFuture], error: BaseException, size_bytes: int) -> None:
        """Settle futures of events that will never be durable, and free their room."""
        self.conclude(((future, error) for future in futures), size_bytes)

    def conclude(self, outcomes: Iterable[tuple[WriteFuture, object]], size_bytes: int) -> None:
        """Settle futures of events, and free their room."""
        with self._lock:
            heard = self.acks.settle(outcomes)
            self._held_bytes -= size_bytes
            listeners = self._freed()
        self.acks.tell(heard)
        _call(listeners)

    def acknowledge_repeated(self, repeated: Appended) -> None:
        """Settle events that were not appended because they were durable before."""
        self._settle_appended([repeated])

    def settle_alone(self, future: WriteFuture, outcome: object) -> None:
        """Settle the future of a transaction."""
        self.ask(lambda: self.conclude([(future, outcome)], 0))

    # For callers that wait

    def flush(self, source: EventSource) -> None:
        """Make the events of a source durable that were handed over before, and wait for these events only.

        Raises:
            AccelError: the error of an upload, which is tried again, or of an event.
        """
        if isinstance(self._broken, CatalogWentBack):
            raise self._broken  # also if no event waits: acknowledged events may be lost
        self.acks.check_outside()
        points: list[FlushPoint] = []
        failures, troubles = self._failures, source.troubles

        def begin() -> None:
            source.end_points(points)
            self.note(source, 0)
            self._is_urgent = True

        def is_done() -> bool:
            is_troubled = source.troubles != troubles
            return bool(points) and (is_troubled or all(point.settled == point.written for point in points))

        self.hand_over(0, begin)
        if not self.has_threads:
            self.drive()
        else:
            self._wait(is_done, failures)
            if source.troubles != troubles and source.trouble is not None:
                raise source.trouble
        errors = [point.error for point in points if point.error is not None]
        for point in points:
            point.is_reported = point.settled == point.written
        if errors:
            raise errors[0]

    def flush_appended(self) -> None:
        """Make all appended events durable, and finish all earlier uploads.

        Raises:
            As `flush`.
        """
        if not self.has_threads:
            with self._driving:
                self._carry_out()
                self._form()
                self._carry_out()
            return
        self._check_broken()
        failures = self._failures
        last = self.ask(self._form)
        self._wait(lambda: self._done >= last, failures)

    def flush_all(self) -> None:
        """Make all written and appended events durable.

        Raises:
            As `flush`.
        """
        if not self.has_threads:
            self.drive()
            return
        self.ask(self._drain)
        self.flush_appended()

    def carry_out(self, make: Callable[[], Upload]) -> None:
        """Make one separate upload, the next one in order, and wait for it.

        Raises:
            StreamsReleased: another node took segments of a merge over: no part of it was merged, nor will be.
            As `flush`, and the errors of `make`.
        """
        if not self.has_threads:
            with self._driving:
                upload, _ = self._enqueue(make)
                self._carry_out()
            _check_abandoned(upload)
            return
        failures = self._failures
        upload, number = self.ask(lambda: self._enqueue(make))
        self._wait(lambda: self._done >= number, failures)
        _check_abandoned(upload)

    def _wait(self, is_done: Callable[[], bool], failures: int) -> None:
        self._wait_until(lambda: is_done() or self._broken is not None or self._failures != failures)
        if is_done():
            return
        self._check_broken()
        if self._failure is not None:
            raise self._failure

    # Without threads

    def drive(self) -> None:
        """Do all pending work in this thread.

        Raises:
            AccelError: no events are lost; the next call continues.
        """
        with self._driving:
            self._carry_out()
        is_left = True
        while is_left:  # events of segments that another node took over come back
            for source in self._taken_sources():
                self._drive_source(source)
            with self._driving:
                self._form()
                self._carry_out()
            with self._lock:
                is_left = bool(self._sources)

    def _drive_source(self, source: EventSource) -> None:
        try:
            while source.drain():
                if not source.settle():  # a scale in another thread flushes, too
                    self._system.sleep(source.pause_seconds)
        except BaseException:
            with self._lock:
                self._sources[source] = None
            raise

    def _carry_out(self) -> None:
        while self._uploads:
            upload = self._uploads[0]
            if not upload.is_committed:
                upload.put()
                self._list([upload])
            self._conclude(upload)
            self._upkeep()

    def _is_due(self) -> bool:
        with self._lock:
            waited = self._system.timer() - self._since
            is_old = self._gathering_bytes > 0 and waited >= self._settings.linger_seconds and waited > 0
            return is_old or self._gathering_bytes >= self._settings.batch_bytes

    # With threads

    def serve(self, entry: Entry) -> bool:
        """See `HandedOver.begin`: makes objects until no events wait."""
        with self.acks.inside():
            try:
                self._handed.do(entry)
                self._handed.do_next(0.0)
                while self._broken is None and (self._sources or self._gathering_bytes):
                    self._go_on()
            except BaseException as error:  # noqa: BLE001 - raised to all waiting callers
                self._break(error)
            if self._broken is None:
                return False
            self._fail_all(self._broken)
            self._has_ended = True  # later work is done by those who hand it over
            self._handed.do_rest()
            self._handed.notify()
            return True

    def _go_on(self) -> None:
        """Make an object if one is due, or wait for work until then."""
        is_due, left = self._due_in()
        if len(self._uploads) >= self._settings.uploads_at_once:
            self._handed.do_next(None)
        elif is_due or left <= 0:
            self._is_urgent = False
            self._drain()
            self._form()
        else:
            self._handed.do_next(left)

    def _drain(self) -> None:
        for source in self._taken_sources():
            if source.drain():
                self.refused(source)

    def _due_in(self) -> tuple[bool, float]:
        """Whether an object is to be made at once, and the seconds until one is due otherwise."""
        now = self._system.timer()
        left = self._settings.linger_seconds - (now - self._since)
        if self._gathering_bytes >= self._settings.batch_bytes:
            return True, 0.0
        if self._uploads:
            left = max(left, self._formed_at + min(self._pace_seconds, PACE_SECONDS_MAX) - now)
            return False, left
        return self._is_urgent, left

    def _taken_sources(self) -> list[EventSource]:
        with self._lock:
            sources = list(self._sources)
            self._sources.clear()
            self._gathering_bytes = 0
            self._formed_at = self._system.timer()
            return sources

    def _form(self) -> int:
        """Make uploads of all waiting batches, and start the uploads; returns how many were ever made."""
        made = []
        with self._forming:
            for taken in self._buffer.take(STREAMS_AN_OBJECT_MAX):
                made.append(Upload(self._parts, taken))
                with self._lock:
                    self._uploads.append(made[-1])
                    self._formed += 1
            formed = self._formed
        for upload in made:
            self._submit(partial(self._put, upload))
        return formed

    def _enqueue(self, make: Callable[[], Upload]) -> tuple[Upload, int]:
        with self._forming:
            upload = make()
            with self._lock:
                self._check_broken()
                self._uploads.append(upload)
                self._formed += 1
                number = self._formed
        self._submit(partial(self._put, upload))
        return upload, number

    def _put(self, upload: Upload, attempt: int = 1) -> None:
        if self._broken is not None:
            return
        with self.acks.inside():
            try:
                upload.put()
            except BaseException as error:  # noqa: BLE001 - raised to all waiting callers
                self._retry(error, partial(self._put, upload), attempt)
                return
            with self._lock:
                if self._is_committing:
                    return
                self._is_committing = True
            self._commit()

    def _commit(self, attempt: int = 1) -> None:
        try:
            while group := self._next_group():
                began = self._system.timer()
                self._list(group)
                self._keep_pace(self._system.timer() - began)
                attempt = 1
        except BaseException as error:  # noqa: BLE001 - raised to all waiting callers
            self._retry(error, self._commit, attempt)

    def _keep_pace(self, seconds: float) -> None:
        with self._lock:
            self._pace_seconds += (min(seconds, PACE_SECONDS_MAX) - self._pace_seconds) * _PACE_WEIGHT

    def _list(self, group: Sequence[Upload]) -> None:
        """Commit uploads together, without segments that other nodes have taken over."""
        while True:
            left = self._without_released(group)
            try:
                if left:
                    commit(self._parts, left)
            except StreamsReleased as error:
                for upload in group:
                    if upload.is_committed:
                        self._acknowledge(upload)  # only events that were not committed go back or fail
                gone = [segment for segment in self._segments.listed() if segment.stream_id in error.stream_ids]
                if not gone:
                    raise
                self._drop(gone, error)
            else:
                return

    def _without_released(self, group: Sequence[Upload]) -> list[Upload]:
        """Return the uploads to commit, written without segments that other nodes have taken over."""
        for upload in group:
            if upload.is_broken_merge:  # a merge is atomic: undo its appends to the other segments
                segments = list(upload.segments)
                self._drop(segments, upload.abandon())
        for upload in group:
            upload.leave_out_released()
            if not upload.is_committed:
                upload.put()  # no request if it is written
        return [upload for upload in group if not upload.is_committed]

    def _drop(self, gone: Sequence[OpenSegment], error: BaseException) -> None:
        """Return events that are not durable, of segments that another node took over, to their writers, or fail them.

        The events are back before the segment is forgotten, and until then no writer looks for the new owner; so the
        order of writing is kept.
        """
        self._buffer.release(gone)
        for segment in gone:
            runs: dict[EventSource, list[Events]] = {}
            for appended in self._buffer.unacknowledged(segment):
                if appended.takes_back is not None:
                    runs.setdefault(appended.takes_back.source, []).append(appended.takes_back.events)
            for source, taken in runs.items():
                source.return_events(segment.segment_id, taken)
        left = self._buffer.give_up(gone)
        self._segments.forget(gone)
        self._fail_appended([appended for appended in left if appended.takes_back is None], error)
        for source in {appended.takes_back.source: None for appended in left if appended.takes_back is not None}:
            self.add(source)

    def _next_group(self) -> list[Upload]:
        """Conclude committed uploads and return the next ones to commit; an empty list ends the committing."""
        while (first := self._first()) is not None and first.is_committed:
            self._conclude(first)
        self._upkeep()
        with self._lock:
            group = list(takewhile(lambda upload: upload.was_written, self._uploads))
            self._is_committing = bool(group)
            return group

    def _first(self) -> Upload | None:
        with self._lock:
            return self._uploads[0] if self._uploads else None

    def _upkeep(self) -> None:
        """Do the work that is due after commits, once their futures are settled."""
        with self._parts.turn():
            self._parts.node.upkeep()

    def _conclude(self, upload: Upload) -> None:
        """Settle the futures of a committed upload, and do the remaining work of the upload."""
        self._acknowledge(upload)
        upload.finish()
        self._move_times(upload)
        with self._lock:
            self._uploads.popleft()
            self._done += 1
        self._handed.notify()
        if self.has_threads:
            self._handed.look()  # the next object may be due

    def _acknowledge(self, upload: Upload) -> None:
        done: list[Appended] = []
        for segment, batches in upload.segments.items():
            done += self._buffer.acknowledge(segment, batches[-1].end_offset)
        if done:
            self._settle_appended(done)

    def _settle_appended(self, done: Sequence[Appended]) -> None:
        outcomes = (
            (future, EventPlace(appended.segment_id, offset))
            for appended in done
            for future, offset in zip(appended.futures, appended.offsets, strict=False)
        )
        self.conclude(outcomes, sum(appended.size_bytes for appended in done))

    def _move_times(self, done: Upload) -> None:
        least = self._segments.move_records_min
        due = [segment for segment in done.segments if segment.index.records_in_memory >= least]
        try:
            self._segments.move_times(due)
        except (StoreUnavailable, WriteConflict):  # the data is durable; the records are moved with later records
            logger.warning("time indexes of %d segments stay in memory for now", len(due), exc_info=True)

    def _settle_sources(self) -> None:
        """Look for segments for the sources whose events were refused, until all sources have some."""
        try:
            while stuck := self._listed_stuck():
                for source in stuck:
                    self._settle(source)
                self._wait_stopped(min(source.pause_seconds for source in stuck))
        except BaseException as error:  # noqa: BLE001 - raised to all waiting callers
            self._break(error)

    def _settle(self, source: EventSource) -> None:
        try:
            is_settled = source.settle()
        except AccelError as error:
            self.troubled(source, error)
            return
        if is_settled:
            with self._lock:
                self._stuck.pop(source, None)
            self.add(source)

    def _listed_stuck(self) -> list[EventSource]:
        with self._lock:
            stuck = list(self._stuck) if self._broken is None else []
            self._is_settling = bool(stuck)
            return stuck

    # Errors

    def _retry(self, error: BaseException, again: Callable[[int], object], attempt: int) -> None:
        if isinstance(error, _FINAL) or not isinstance(error, AccelError):
            self._break(error)
            return
        with self._lock:
            self._failures += 1
            self._failure = error
        self._handed.notify()
        with suppress(BaseException):  # of a handler of logging
            logger.warning("an upload is tried again: %s", error)
        self._pause(attempt)
        self._submit(lambda: again(attempt + 1))

    def _pause(self, attempt: int) -> None:
        Backoff(self._wait_stopped, self._system.jitter).pause(attempt)

    def _wait_stopped(self, seconds: float) -> None:
        if self._system.wait is not None:
            self._system.wait(self._stopped, seconds)

    def _submit(self, work: Callable[[], object]) -> None:
        """Let a thread do work; without one, as at the end of the program or of threads, this thread does it."""
        if self._pool is None:
            return
        once = iter([work])

        def do() -> None:
            for each in once:
                each()

        try:
            self._pool.submit(do)
        except BaseException:  # noqa: BLE001 - the work is done all the same
            do()

    def _break(self, error: BaseException) -> None:
        """End all work, and all waiting and later calls; the thread that gathers fails all that is not durable."""
        with self._lock:
            if self._broken is None:
                self._broken = error
        self._handed.notify()
        self._handed.look()
        self._stopped.set()

    def _fail_all(self, error: BaseException) -> None:
        with self._lock:
            sources = list(self._known)
        for source in sources:
            source.fail(error)
        self._fail_appended(self._buffer.give_up(), error)

    def _fail_appended(self, left: Sequence[Appended], error: BaseException) -> None:
        futures = (future for appended in left for future in appended.futures)
        self.fail(futures, error, sum(appended.size_bytes for appended in left))

    def stop(self) -> None:
        """End all threads, after requests that are under way; events that are not durable are lost."""
        if not self._lifetime.is_here:
            return
        self._break(Closed("expected a host of segments that is open until the event is durable, found it closed"))
        if self._pool is None:
            self._fail_all(self._broken or AssertionError())
            return
        self._wait_until(lambda: self._has_ended)
        self._pool.shutdown(wait=True)


def _check_abandoned(upload: Upload) -> None:
    if upload.abandoned is not None:
        raise upload.abandoned


def _call(listeners: Iterable[Callable[[], object]]) -> None:
    for listener in listeners:
        call_guarded(listener, listener)
