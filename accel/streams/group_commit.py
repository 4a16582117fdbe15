"""Group commit: what many callers write becomes few objects, and each caller learns when its event is durable.

    writers        events  e e e e e e e e e e e          `add`: nobody waits for an upload
    gather         when the first has waited for `linger_seconds`, or `batch_bytes` wait, or somebody flushes; and not
                   sooner after the object before than a commit takes, while objects are on their way
    uploads        object 7 |== put ==|                   `uploads_at_once`, side by side
                   object 8    |== put ==|
                   object 9       |== put ==|
    commit               |== 7 ==|== 8, 9 ==|             in their order, all that are written by one conditional write

So an event that comes alone is durable after two requests, one after the other; and while many come, the more gather
for an object the slower the store is. Objects that begin more often than commits end are not listed sooner: they wait
for the commit under way, and for the slowest put before them (docs/decisions/0038-group-commit.md). Order within a
segment is that of writing: events are appended in it, offsets are given when they are appended, and objects are
committed in the order in which they were made.

Where the system has a `wait`, all this is done beside the callers, by threads that end when nothing is left to do. A
system without one (simulated time) has nobody who could wait: then who writes too much, flushes or asks a future for
its result does the work, with the same steps in the same order.

What goes wrong beside the callers is tried again, with growing pauses, for as long as it may help; a flush that waits
is told each time. What cannot be helped (the session is fenced, a commit is refused) ends all: every future that is not
resolved fails with that error, and so do all later calls.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from threading import Condition, Event, Lock
from typing import Final, Protocol
from weakref import WeakSet

from accel.catalog.records import STREAMS_AN_OBJECT_MAX
from accel.errors import (
    AccelError,
    Closed,
    CommitRefused,
    FormatError,
    SessionFenced,
    StreamsReleased,
    WriterStalled,
    WrongProcess,
)
from accel.streams.acknowledgements import Acknowledgements, EventPlace, FlushPoint, WriteFuture
from accel.streams.open_segments import AppendBuffer, Appended, OpenSegment, OpenSegments
from accel.streams.rules.routing import Events
from accel.streams.uploads import Upload, UploadParts, commit
from accel.system import Components
from loaders.backoff import DEFAULT_RETRY, Backoff
from loaders.errors import StoreUnavailable, WriteConflict
from loaders.lifetime import Lifetime, Threads

logger = logging.getLogger(__name__)


class EventSource(Protocol):
    """Where events wait until they are appended: a writer. Threads: any.

    Attributes:
        pause_seconds: between two calls of `settle`.
        troubles: how often `settle` failed; `trouble`: with what, the last time. Both are `GroupCommit`'s.
    """

    pause_seconds: float
    troubles: int
    trouble: BaseException | None

    def drain(self) -> bool:
        """Append what can be, without a request; gives whether something is left, for `settle`."""
        ...

    def settle(self) -> bool:
        """Look once for segments that take what is left; gives whether `drain` may go on.

        Raises:
            AccelError: it is to be tried again; what cannot be helped was told to those who wrote it.
        """
        ...

    def take_back(self, segment_id: int, runs: Sequence[Events]) -> None:
        """What was appended last to a segment is not durable: another node has taken the segment over.

        It is to be appended to the segments that take it now, before all that was written later.
        """
        ...

    def fail(self, error: BaseException) -> None:
        """Nothing that waits will ever be durable."""
        ...


_FINAL: Final = (SessionFenced, CommitRefused, FormatError, Closed, WrongProcess)
"""Errors of uploads against which no other attempt helps."""


PACE_SECONDS_MAX: Final = 0.1
"""Objects on their way hold the next one back for so long at most, however slow commits are."""

_PACE_WEIGHT: Final = 1 / 8


class GroupCommit:
    """Makes what waits durable; see the module. Threads: any, in the process that opened it.

    Args:
        parts: of the session.
        segments: that it writes.
        buffer: appended batches.
        lifetime: of the host.
        system: clock, sleep, chance; without a `wait` nothing is done beside the callers.
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
        self._changed = Condition(Lock())  # guards all of the following; never held over a request
        self.acks = Acknowledgements(lifetime, self._changed)
        self._forming = Lock()  # objects are made one after the other; held for memory alone
        self._sources: dict[EventSource, None] = {}
        self._stuck: dict[EventSource, None] = {}
        self._known: WeakSet[EventSource] = WeakSet()
        self._gathering_bytes = 0
        self._held_bytes = 0
        self._since = 0.0
        self._formed_at = 0.0
        self._pace_seconds = 0.0  # what a commit takes, as a moving average
        self._is_urgent = self._is_gathering = self._is_committing = self._is_settling = False
        self._uploads: deque[Upload] = deque()
        self._formed = self._done = self._failures = 0
        self._failure: BaseException | None = None
        self._broken: BaseException | None = None
        self._room_listeners: dict[Callable[[], object], None] = {}  # in the order in which they came
        self._stopped = Event()
        self._driving = Lock()  # without threads: one caller works, held over its requests
        self._pool: Threads | None = None
        if system.wait is not None:
            # Puts, the one that gathers, the one that looks for segments.
            self._pool = Threads(parts.settings.uploads_at_once + 2, "accel-uploads", process_id=system.process_id)
        else:
            self.acks.drive_by(self.drive)

    @property
    def is_beside(self) -> bool:
        """Whether the work is done beside the callers."""
        return self._pool is not None

    @property
    def waiting_bytes(self) -> int:
        """What waits for an object, without objects that are on their way; 12 bytes more for each event."""
        with self._changed:
            return self._gathering_bytes

    # Room

    def reserve(self, size_bytes: int, timeout_seconds: float) -> None:
        """Take room for events that are about to be written; it comes free when they are durable.

        Raises:
            WriterStalled: none came free in time.
            AccelError: what has ended all uploads; and, where nothing is done beside the callers, why what was written
                before could not be made durable.
        """
        if not self.is_beside:
            if self._is_due():
                self.drive()
            self._hold(size_bytes, always=True)
            return
        if self._hold(size_bytes):
            return
        with self._changed:
            self._changed.wait_for(lambda: self._broken or self._fits(size_bytes), timeout_seconds)
            if not self._broken and not self._fits(size_bytes):
                raise self._stalled(size_bytes, timeout_seconds)
            self._check_broken()
            self._held_bytes += size_bytes

    def try_reserve(self, size_bytes: int) -> bool:
        """Take room if there is some; errors as `reserve`."""
        if not self.is_beside:
            self.reserve(size_bytes, 0.0)
            return True
        return self._hold(size_bytes)

    def when_freed(self, listener: Callable[[], object]) -> None:
        """Call this once, when room comes free, or all has ended; in any thread. It must not wait."""
        with self._changed:
            self._room_listeners[listener] = None

    def forget(self, listener: Callable[[], object]) -> None:
        """Do not call this any more, if it was not called yet."""
        with self._changed:
            self._room_listeners.pop(listener, None)

    def stalled(self, size_bytes: int, timeout_seconds: float) -> WriterStalled:
        """The error for those who have waited for room in vain."""
        with self._changed:
            return self._stalled(size_bytes, timeout_seconds)

    def release(self, size_bytes: int) -> None:
        """Give room back that was taken for nothing."""
        with self._changed:
            self._held_bytes -= size_bytes
            listeners = self._freed()
        _call(listeners)

    def _hold(self, size_bytes: int, *, always: bool = False) -> bool:
        with self._changed:
            self._check_broken()
            if not always and not self._fits(size_bytes):
                return False
            self._held_bytes += size_bytes
            return True

    def _fits(self, size_bytes: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + size_bytes <= self._settings.waiting_bytes_max

    def _stalled(self, size_bytes: int, timeout_seconds: float) -> WriterStalled:
        last = f"; an upload failed last with: {self._failure}" if self._failure is not None else ""
        return WriterStalled(
            f"expected room for {size_bytes} of {self._settings.waiting_bytes_max} bytes within {timeout_seconds} s,"
            f" found {self._held_bytes} taken by events that are not durable{last}"
        )

    def _check_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _freed(self) -> list[Callable[[], object]]:
        self._changed.notify_all()
        listeners = list(self._room_listeners)
        self._room_listeners.clear()
        return listeners

    # Those who write

    def know(self, source: EventSource) -> None:
        """A source begins: it is told if all ends."""
        with self._changed:
            self._known.add(source)

    def add(self, source: EventSource | None, size_bytes: int) -> None:
        """Events wait at a source, or in the buffer, for which room was taken. Nobody waits in here."""
        with self._changed:
            if self._gathering_bytes == 0:
                self._since = self._system.timer()
            self._gathering_bytes += size_bytes
            if source is not None:
                self._sources[source] = None
            begins = self._begin_gathering()
            if not begins and self._gathering_bytes >= self._settings.batch_bytes:
                self._changed.notify_all()
        if begins:
            self._submit(self._gather)

    def refused(self, source: EventSource) -> None:
        """What waits at a source cannot be appended now: look for segments that take it."""
        with self._changed:
            begins = not self._is_settling
            self._is_settling = True
            self._stuck[source] = None
        if begins:
            self._submit(self._settle_sources)

    def troubled(self, source: EventSource, error: BaseException) -> None:
        """Something stands in the way of a source's events, and is tried again: those who flush are told."""
        with self._changed:
            source.trouble = error
            source.troubles += 1
            self._changed.notify_all()

    def fail(self, futures: Iterable[WriteFuture], error: BaseException, size_bytes: int) -> None:
        """Events will never be durable."""
        self.conclude(((future, error) for future in futures), size_bytes)

    def conclude(self, outcomes: Iterable[tuple[WriteFuture, object]], size_bytes: int) -> None:
        """Say what became of events, for which room was taken."""
        with self._changed:
            heard = self.acks.settle(outcomes)
            self._held_bytes -= size_bytes
            listeners = self._freed()
        self.acks.tell(heard)
        _call(listeners)

    def acknowledge_repeated(self, repeated: Appended) -> None:
        """Events that were not appended, because they were durable before."""
        self._settle_appended([repeated])

    def settle_alone(self, future: WriteFuture, outcome: object) -> None:
        """Say what became of a transaction."""
        with self._changed:
            heard = self.acks.settle([(future, outcome)])
        self.acks.tell(heard)

    # Those who wait

    def flush(self, source: EventSource, points: Sequence[FlushPoint]) -> None:
        """Make events durable, and wait for these alone.

        Args:
            source: that they were written to.
            points: count them; nothing more is written to these.

        Raises:
            AccelError: that of an upload which is to be tried again, and is, or what has become of an event.
        """
        if not self.is_beside:
            with self._changed:
                self._sources[source] = None
            self.drive()
        else:
            with self._changed:
                self._is_urgent = True
                self._sources[source] = None
                begins = self._begin_gathering()
                failures = self._failures
                troubles = source.troubles
                self._changed.notify_all()
            if begins:
                self._submit(self._gather)

            def is_done() -> bool:
                return source.troubles != troubles or all(point.settled == point.written for point in points)

            self._wait(is_done, failures)
            if source.troubles != troubles and source.trouble is not None:
                raise source.trouble
        for point in points:
            if point.error is not None:
                raise point.error

    def flush_appended(self) -> None:
        """Make everything durable that was appended before, and finish all uploads before these.

        Raises:
            As `flush`.
        """
        if not self.is_beside:
            with self._driving:
                self._carry_out()
                self._form()
                self._carry_out()
            return
        with self._changed:
            self._check_broken()
            failures = self._failures
        self._form()
        with self._changed:
            last = self._formed
        self._wait(lambda: self._done >= last, failures)

    def flush_all(self) -> None:
        """Make everything durable that was written and appended before.

        Raises:
            As `flush`.
        """
        if not self.is_beside:
            self.drive()
            return
        for source in self._taken_sources():
            if source.drain():
                self.refused(source)
        self.flush_appended()

    def carry_out(self, make: Callable[[], Upload]) -> None:
        """Make one upload by itself, the next one in order, and wait for it.

        Raises:
            StreamsReleased: another node takes segments of a merge over: nothing of it was merged, nor will be.
            As `flush`; what `make` raises.
        """
        if not self.is_beside:
            with self._driving:
                upload, _ = self._enqueue(make)
                self._carry_out()
            _check_abandoned(upload)
            return
        with self._changed:
            failures = self._failures
        upload, number = self._enqueue(make)
        self._submit(partial(self._put, upload))
        self._wait(lambda: self._done >= number, failures)
        _check_abandoned(upload)

    def _wait(self, is_done: Callable[[], bool], failures: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_done() or self._broken is not None or self._failures != failures)
            if is_done():
                return
            self._check_broken()
            if self._failure is not None:
                raise self._failure

    # Without threads

    def drive(self) -> None:
        """Do all that is to be done, in this thread.

        Raises:
            AccelError: nothing is lost by it; it goes on when it is called again.
        """
        with self._driving:
            self._carry_out()
        is_left = True
        while is_left:  # what another node takes over comes back
            for source in self._taken_sources():
                self._drive_source(source)
            with self._driving:
                self._form()
                self._carry_out()
            with self._changed:
                is_left = bool(self._sources)

    def _drive_source(self, source: EventSource) -> None:
        try:
            while source.drain():
                if not source.settle():  # a scale that another thread carries out flushes, too
                    self._system.sleep(source.pause_seconds)
        except BaseException:
            with self._changed:
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
        with self._changed:
            waited = self._system.timer() - self._since
            is_old = self._gathering_bytes > 0 and waited >= self._settings.linger_seconds and waited > 0
            return is_old or self._gathering_bytes >= self._settings.batch_bytes

    # With threads

    def _begin_gathering(self) -> bool:
        if not self.is_beside or self._is_gathering or self._broken is not None:
            return False
        self._is_gathering = True
        return True

    def _gather(self) -> None:
        """Make objects of what waits, until nothing does."""
        try:
            while self._await_due():
                for source in self._taken_sources():
                    if source.drain():
                        self.refused(source)
                self._form()
        except BaseException as error:  # noqa: BLE001 - goes to all who wait
            self._break(error)

    def _await_due(self) -> bool:
        with self._changed:
            while self._broken is None and (self._sources or self._gathering_bytes):
                is_due, left = self._due_in()
                if len(self._uploads) >= self._settings.uploads_at_once:
                    self._changed.wait()
                elif is_due or left <= 0:
                    self._is_urgent = False
                    return True
                else:
                    self._changed.wait(left)
            self._is_gathering = False
            return False

    def _due_in(self) -> tuple[bool, float]:
        """Whether an object is to be made at once, and else in how many seconds."""
        now = self._system.timer()
        left = self._settings.linger_seconds - (now - self._since)
        if self._gathering_bytes >= self._settings.batch_bytes:
            return True, 0.0
        if self._uploads:
            left = max(left, self._formed_at + min(self._pace_seconds, PACE_SECONDS_MAX) - now)
            return False, left
        return self._is_urgent, left

    def _taken_sources(self) -> list[EventSource]:
        with self._changed:
            sources = list(self._sources)
            self._sources.clear()
            self._gathering_bytes = 0
            self._formed_at = self._system.timer()
            return sources

    def _form(self) -> None:
        """Make uploads of all batches that wait, and begin them."""
        made = []
        with self._forming:
            for taken in self._buffer.take(STREAMS_AN_OBJECT_MAX):
                made.append(Upload(self._parts, taken))
                with self._changed:
                    self._uploads.append(made[-1])
                    self._formed += 1
        if self.is_beside:
            for upload in made:
                self._submit(partial(self._put, upload))

    def _enqueue(self, make: Callable[[], Upload]) -> tuple[Upload, int]:
        with self._forming:
            upload = make()
            with self._changed:
                self._check_broken()
                self._uploads.append(upload)
                self._formed += 1
                return upload, self._formed

    def _put(self, upload: Upload, attempt: int = 1) -> None:
        if self._broken is not None:
            return
        try:
            upload.put()
        except BaseException as error:  # noqa: BLE001 - goes to all who wait
            self._retry(error, partial(self._put, upload), attempt)
            return
        with self._changed:
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
        except BaseException as error:  # noqa: BLE001 - goes to all who wait
            self._retry(error, self._commit, attempt)

    def _keep_pace(self, seconds: float) -> None:
        with self._changed:
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
                        self._acknowledge(upload)  # what comes back, or fails, is what was not committed
                gone = [segment for segment in self._segments.listed() if segment.stream_id in error.stream_ids]
                if not gone:
                    raise
                self._let_go(gone, error)
            else:
                return

    def _without_released(self, group: Sequence[Upload]) -> list[Upload]:
        """Those to commit, written without segments that other nodes have taken over."""
        for upload in group:
            if upload.is_broken_merge:  # all of it comes, or nothing: what its other segments got in it is undone
                segments = list(upload.segments)
                self._let_go(segments, upload.abandon())
        for upload in group:
            upload.leave_out_released()
            if not upload.is_committed:
                upload.put()  # no request if it is written
        return [upload for upload in group if not upload.is_committed]

    def _let_go(self, gone: Sequence[OpenSegment], error: BaseException) -> None:
        """Events that are not durable of segments that another node takes over go back to their writers, or fail.

        They are back before the segment is forgotten, and while it has them no writer looks for another owner: what was
        written first comes first.
        """
        self._buffer.release(gone)
        for segment in gone:
            runs: dict[EventSource, list[Events]] = {}
            for appended in self._buffer.unacknowledged(segment):
                if appended.takes_back is not None:
                    runs.setdefault(appended.takes_back.source, []).append(appended.takes_back.events)
            for source, taken in runs.items():
                source.take_back(segment.segment_id, taken)
        left = self._buffer.give_up(gone)
        self._segments.forget(gone)
        self._fail_appended([appended for appended in left if appended.takes_back is None], error)
        for source in {appended.takes_back.source: None for appended in left if appended.takes_back is not None}:
            self.add(source, 0)

    def _next_group(self) -> list[Upload]:
        """The next uploads to commit, once those that are committed are concluded; none ends the work of committing."""
        while (first := self._first()) is not None and first.is_committed:
            self._conclude(first)
        self._upkeep()
        with self._changed:
            group = list(takewhile(lambda upload: upload.was_written, self._uploads))
            self._is_committing = bool(group)
            return group

    def _first(self) -> Upload | None:
        with self._changed:
            return self._uploads[0] if self._uploads else None

    def _upkeep(self) -> None:
        """What is due after commits, once those who waited for them are told."""
        with self._parts.turn():
            self._parts.node.upkeep()

    def _conclude(self, upload: Upload) -> None:
        """After the commit: those who wait are told, and what follows from it is done."""
        self._acknowledge(upload)
        upload.finish()
        self._move_times(upload)
        with self._changed:
            self._uploads.popleft()
            self._done += 1
            self._changed.notify_all()

    def _acknowledge(self, upload: Upload) -> None:
        done: list[Appended] = []
        for segment, batches in upload.segments.items():
            done += self._buffer.acknowledge(segment, batches[-1].end_offset)
        if done:
            self._settle_appended(done)

    def _settle_appended(self, done: Sequence[Appended]) -> None:
        with self._changed:
            heard = self.acks.settle(
                (future, EventPlace(appended.segment_id, offset))
                for appended in done
                for future, offset in zip(appended.futures, appended.offsets, strict=False)
            )
            self._held_bytes -= sum(appended.size_bytes for appended in done)
            listeners = self._freed()
        self.acks.tell(heard)
        _call(listeners)

    def _move_times(self, done: Upload) -> None:
        least = self._settings.move_records_min
        due = [segment for segment in done.segments if segment.index.records_in_memory >= least]
        try:
            self._segments.move_times(due)
        except (StoreUnavailable, WriteConflict):  # the data is durable; the records are moved with those that follow
            logger.warning("time indexes of %d segments stay in memory for now", len(due), exc_info=True)

    def _settle_sources(self) -> None:
        """Look for segments, for those whose events were refused, until all have some."""
        try:
            while stuck := self._listed_stuck():
                for source in stuck:
                    self._settle(source)
                self._wait_stopped(min(source.pause_seconds for source in stuck))
        except BaseException as error:  # noqa: BLE001 - goes to all who wait
            self._break(error)

    def _settle(self, source: EventSource) -> None:
        try:
            is_settled = source.settle()
        except AccelError as error:
            self.troubled(source, error)
            return
        if is_settled:
            with self._changed:
                self._stuck.pop(source, None)
            self.add(source, 0)

    def _listed_stuck(self) -> list[EventSource]:
        with self._changed:
            stuck = list(self._stuck) if self._broken is None else []
            self._is_settling = bool(stuck)
            return stuck

    # What goes wrong

    def _retry(self, error: BaseException, again: Callable[[int], object], attempt: int) -> None:
        if isinstance(error, _FINAL) or not isinstance(error, AccelError):
            self._break(error)
            return
        with self._changed:
            self._failures += 1
            self._failure = error
            self._changed.notify_all()
        logger.warning("an upload is tried again: %s", error)
        self._pause(attempt)
        self._submit(lambda: again(attempt + 1))

    def _pause(self, attempt: int) -> None:
        Backoff(DEFAULT_RETRY, self._wait_stopped, self._system.jitter).pause(attempt)

    def _wait_stopped(self, seconds: float) -> None:
        if self._system.wait is not None:
            self._system.wait(self._stopped, seconds)

    def _submit(self, work: Callable[[], object]) -> None:
        if self._pool is None:
            return
        try:
            self._pool.submit(work)
        except BaseException as error:  # noqa: BLE001 - goes to all who wait
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """Nothing that is not durable will be: say so to all who wait, now and later."""
        with self._changed:
            if self._broken is not None:
                return
            self._broken = error
            self._changed.notify_all()
            sources = list(self._known)
        self._stopped.set()
        for source in sources:
            source.fail(error)
        self._fail_appended(self._buffer.give_up(), error)

    def _fail_appended(self, left: Sequence[Appended], error: BaseException) -> None:
        futures = (future for appended in left for future in appended.futures)
        self.fail(futures, error, sum(appended.size_bytes for appended in left))

    def stop(self) -> None:
        """End all threads, after requests that are under way; what is not durable is lost."""
        if not self._lifetime.is_here:
            return
        self._break(Closed("expected a host of segments that is open until the event is durable, found it closed"))
        if self._pool is not None:
            self._pool.shutdown(wait=True)


def _check_abandoned(upload: Upload) -> None:
    if upload.abandoned is not None:
        raise upload.abandoned


def _call(listeners: Iterable[Callable[[], object]]) -> None:
    for listener in listeners:
        listener()
