"""The decisions of a reader: its position, which segments to fill, which events are next, when a segment is finished.

    next_steps()  -> Fill(segment, offset, ...)    read events of this segment                      take_events(...)
                  -> AskEnd(segment)               after an empty answer: its end, its successors   take_end(...)
    hold_seconds() -> how long the buffered events still wait for segments that may have older events
    take()        -> the next events, of the segment whose next events arrived first; None if no events are buffered

Segments are filled ahead, each into its own buffer, within bounds on bytes and on requests under way. A segment that
was read to its end is dropped at once, because its successors wait for it.

    | a segment                               | until         | then                                              |
    |-----------------------------------------|---------------|---------------------------------------------------|
    | is filled                               | short answer  | in history, its end is requested: if it is sealed |
    |                                         |               | there, its successors are filled ahead            |
    | is filled                               | empty answer  | likewise; else it is idle                         |
    | is idle                                 | `retry_idle`  | it is filled again                                |
    | is sealed, and all its events were      |               | its successors begin when all older segments of   |
    | taken                                   |               | their keys are read (`Frontier`)                  |
    | has reached the reader's end cut        |               | it stays in the cut, and is not filled any more   |

A segment with an empty buffer may have older events than the buffered ones. Buffered events wait

    | while the segment                                                     | for this time at most                    |
    |-----------------------------------------------------------------------|------------------------------------------|
    | is in history: it was never seen at its end, or not for               | `history_wait_seconds`, then the segment |
    | `NEAR_TAIL_SECONDS`, or it is sealed at a later offset                | is overdue (`take_overdue`), or passed   |
    | was at its end, and may have more by now: the buffered events are of  | the usual time of requests that return   |
    | a newer image of the stream (`SegmentEvents`) than its end            | events (`ObservedTimes`), then it is     |
    |                                                                       | passed                                   |

They do not wait for a segment that is idle at its end, or whose last events arrived later. At the tail a segment whose
request failed is passed until a request is answered; in history it is not, while the request is repeated. Each segment
may always have one request, so waiting events never block a buffer that another segment needs, and every wait ends.

`frontier.py` contains the position of a reader, and decides which segments begin when one is finished.

No I/O, no clock, no thread: the reader with threads, the reader for asyncio and the simulations share this code.

Source: PDP-28, "Orderer"; PDP-32, on stream cuts and successors.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import IdMap
from accel.streams.rules.arrival_order import ObservedTimes, Orderer, PassCause, Standing
from accel.streams.rules.events import EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.settings import ReaderSettings
from accel.units import milliseconds
from range_index.segment_times import NO_TOKEN, NO_VALUE

# Requests, answers and bounds


class Fill(NamedTuple):
    """A request for events of a segment from an offset on.

    Args:
        segment_id: the segment.
        offset: the first offset to read.
        max_bytes: the approximate limit of payload.
        token: where the last read ended in the segment's time index.
        end: one past the last offset to read; None = as far as there is data.
        ahead_bytes: the approximate payload, after this request's, that is requested next: it may be fetched meanwhile.
    """

    segment_id: int
    offset: int
    max_bytes: int
    token: int = NO_TOKEN
    end: int | None = None
    ahead_bytes: int = 0


class AskEnd(NamedTuple):
    """A request for the end and the successors of a segment, if it is sealed.

    Args:
        segment_id: the segment.
        begun_at: the offset at which the reader began, if it has seen no event of the segment: it must not be after the
            segment's end. 0 = there is nothing to check.
    """

    segment_id: int
    begun_at: int = 0


class SegmentEvents(NamedTuple):
    """The answer to a `Fill`.

    Args:
        batches: events from the offset on, without a gap; none if there are none yet.
        next_offset: where the next read continues.
        token: the token for the next read.
        as_of: the number of an image of the stream; newer images have higher numbers. The answer contains all requested
            data of this image. 0 from a source that has no such number.
        newest: the number of the newest image that any of the data may come from, if it is higher.
        has_more: whether it ends because it contains as much as was requested; sources count bytes differently, so the
            payload may be less.
    """

    batches: tuple[EventBatch, ...]
    next_offset: int
    token: int = NO_TOKEN
    as_of: int = 0
    newest: int = 0
    has_more: bool = False


class SegmentEnd(NamedTuple):
    """The answer to an `AskEnd`.

    Args:
        size: the end of the segment; None = it is not sealed.
        successors: the segments that follow it.
        is_stale: whether a newer image, than that of the segment's empty answer, may have more: unless the segment was
            read to its end, it is filled once more.
    """

    size: int | None
    successors: tuple[SegmentRecord, ...] = ()
    is_stale: bool = False


Step: TypeAlias = Fill | AskEnd


class Finished(NamedTuple):
    """A segment that was read to its end, its end offset, and its successors."""

    segment_id: int
    offset: int
    successors: tuple[SegmentRecord, ...]


# The decisions


_NEVER: Final = -1

AHEAD_SHARE: Final = 0.5
"""The payload that is announced to a source before it is requested, as a share of the buffers; only for segments whose
last request returned as much as it could. A source fetches the payload within its own bound (`SharedChunks`)."""

AHEAD_PER_REQUEST: Final = 4
"""How many segments that have not begun are filled ahead, in multiples of the limit of requests under way,"""

AHEAD_PER_SEGMENT: Final = 2
"""and of the segments that are read, if that is more. When all end together, as in a rolling commit, a successor that
was not filled ahead begins only after the last event before it: such successors would be read one after the other."""

WAITING_PER_SEGMENT: Final = 1.5
"""How many requests' worth of events each segment may hold on average, beside the requests under way. In the order of
time the slowest request holds up all segments; with less than this the others soon have no room to go on meanwhile."""

VALUE_BITS: Final = 64
"""Clock values are below 2 to this power."""

NEAR_TAIL_SECONDS: Final = 10.0
"""A segment that was seen at its end longer than this before its next request counts as history again: a reader that
was not called for an hour may have missed an hour of its events."""


@dataclass(slots=True, eq=False)
class _Buffer:
    """The buffer and the state of one segment.

    A segment is idle from an empty answer until an answer with events; `may_ask` must be set before the next request.

    Attributes:
        batches: buffered events, each batch with the newest image that it may come from.
        following: the successors of a sealed segment, once all its events are buffered.
        is_early: whether its end is requested though no answer was empty.
        is_at_tail: whether it was seen at its end, not sealed, and gave no full answer since;
        seen_seconds: when the last request that showed this was begun; None = never.
        has_more: whether its last request returned as much as it could.
        as_of: the newest image all of whose data of the segment was received.
        news_as_of: the image because of which the segment was read again.
        asked_seconds: when its request was begun; before that, when the request became due.
        held_seconds: since when buffered events of others wait for it, as a segment in history; None = none wait.
        last_value: its next events have at least this value.
        reach: the value of its last event that was buffered; before its first one, that of the segment before it. The
            reader can return events up to this value without another request of the segment.
        reserved_bytes: the room in the buffers that is kept for its next request, beyond what it occupies.
        begun_at: the first offset, until the segment is known to reach it; then 0.
        is_lost: whether its request failed for good.
        passed: why the reader does not wait for the segment;
        is_counted: whether this was counted for its request.
    """

    offset: int
    end: int | None
    batches: deque[tuple[EventBatch, int]] = field(default_factory=deque)
    size_bytes: int = 0
    token: int = NO_TOKEN
    under_way: Step | None = None
    must_ask_end: bool = False
    is_early: bool = False
    is_idle: bool = False
    may_ask: bool = True
    following: tuple[SegmentRecord, ...] | None = None
    is_at_tail: bool = False
    seen_seconds: float | None = None
    has_more: bool = False
    as_of: int = _NEVER
    news_as_of: int = _NEVER
    asked_seconds: float = 0.0
    held_seconds: float | None = None
    last_value: int = 0
    reach: int = 0
    reserved_bytes: int = 0
    begun_at: int = 0
    is_lost: bool = False
    passed: PassCause | None = None
    is_counted: bool = False

    @property
    def held_bytes(self) -> int:
        """Buffered payload, and the payload that its request may return."""
        return self.size_bytes + (self.under_way.max_bytes if isinstance(self.under_way, Fill) else 0)

    @property
    def is_complete(self) -> bool:
        """Whether all requested events of the segment are buffered or taken."""
        return self.following is not None or (self.end is not None and self.offset >= self.end)

    def leave_tail(self, now_seconds: float) -> None:
        """Count the segment as history again if it was not seen at its end for a while."""
        if self.seen_seconds is not None and now_seconds - self.seen_seconds > NEAR_TAIL_SECONDS:
            self.is_at_tail = False


class ReaderCore:
    """The state of one reader. Threads: one at a time.

    Args:
        frontier: the position of the reader; its segments begin at once.
        settings: bounds of the reader.
        stop: offsets at which segments end for this reader, by id; their successors are not read. None = no end.
        follow: whether it waits for future events. If not, a segment that is not sealed ends at its present end.
        is_member: whether it belongs to a group: then successors do not begin; `take_finished` returns them.
        by_time: whether events are taken in the order of their arrival; if not, from the oldest segment with buffered
            events, while the other segments wait.
    """

    def __init__(
        self,
        frontier: Frontier,
        settings: ReaderSettings,
        *,
        stop: Mapping[int, int] | None = None,
        follow: bool = True,
        is_member: bool = False,
        by_time: bool = True,
    ) -> None:
        self.settings = settings
        self._by_time = by_time
        self._frontier = frontier
        self._stop = {} if stop is None else dict(stop)
        self._follow = follow
        self._is_member = is_member
        self._buffers: dict[int, _Buffer] = {}
        self._ahead: dict[int, _Buffer] = {}  # of segments that have not begun
        self._empty: set[int] = set()  # segments with empty buffers that are not complete
        self._askable: set[int] = set()
        self._orderer: Orderer[int] = Orderer()
        self._due: Orderer[int] = Orderer()  # the segments of `_askable`, by urgency
        self._times = ObservedTimes()
        self._passes: Counter[PassCause] = Counter()
        self._overdue: dict[int, int] = {}
        self._now_seconds = self._answered_seconds = 0.0
        self._finished: list[Finished] = []
        self._under_way = 0
        self._bytes = 0
        self._reserved_bytes = 0
        self._shared_by = 0  # the number of segments for which room is reserved
        if not is_member:
            frontier.begin()
        for segment_id in frontier.started:
            self._start(segment_id)

    def again(self, taken: EventBatch | None) -> ReaderCore:
        """A new core at the same position, for a reader whose call was interrupted anywhere; it reads ahead anew.

        Args:
            taken: the events that were taken last; None = all were returned.
        """
        for ended in self._finished:
            if ended.segment_id in self._frontier:
                self._frontier.remove(ended.segment_id)
        if taken is not None and taken.segment_id in self._frontier:
            self._frontier.reach(taken.segment_id, taken.next_offset)
        core = ReaderCore(
            self._frontier,
            self.settings,
            stop=self._stop,
            follow=self._follow,
            is_member=self._is_member,
            by_time=self._by_time,
        )
        core._passes, core._finished = self._passes, self._finished
        return core

    # Requests and answers

    def pass_time(self, now_seconds: float) -> None:
        """Set the time. Without this call no time passes, and events wait until all requests are answered."""
        self._now_seconds = now_seconds

    def next_steps(self) -> list[Step]:
        """Return the requests to begin now; each is under way until it is answered. O(requests x log segments).

        In the order of time the segment comes first whose buffered events end first, because it will run dry first; if
        there is no room for its request, the others wait, too. Requests that need no room come before those.
        """
        self._let_go()
        self._divide()
        steps: list[Step] = []
        while self._under_way < self.settings.requests_max and (first := self._due.choose()) is not None:
            segment_id = first.segment
            buffer = self._buffer_of(segment_id)
            step = None if buffer is None else self._step(segment_id, buffer)
            if buffer is None or step is None:
                break
            self._forget_due(segment_id)
            buffer.under_way, buffer.may_ask, buffer.asked_seconds = step, False, self._now_seconds
            if buffer.passed is not PassCause.FAILED:  # a repetition fills the gap of the first request
                buffer.leave_tail(self._now_seconds)
            self._bytes += step.max_bytes if isinstance(step, Fill) else 0
            self._under_way += 1
            self._reserve(segment_id, buffer)
            steps.append(step)
        return steps

    def take_events(self, fill: Fill, events: SegmentEvents, took_seconds: float = 0.0) -> None:
        """Process an answer with or without events.

        Args:
            fill: the request.
            events: the answer.
            took_seconds: the duration of the request.
        """
        buffer = self._answered(fill)
        if buffer is None:
            return
        buffer.token, buffer.is_lost = events.token, False
        batches = [part for batch in events.batches if len(part := batch.within(buffer.offset, buffer.end))]
        size_bytes = sum(batch.size_bytes for batch in batches)
        if batches or events.next_offset > buffer.offset:
            self._times.observe(took_seconds)
            self._bytes += size_bytes
            buffer.size_bytes += size_bytes
            newest = max(events.as_of, events.newest)
            buffer.batches.extend((batch, newest) for batch in batches)
            buffer.may_ask, buffer.is_idle, buffer.held_seconds = True, False, None
            buffer.offset, buffer.begun_at = max(buffer.offset, events.next_offset), 0
            buffer.reach = max(buffer.reach, *(batch.value for batch in batches[-1:]), 0)
        else:
            buffer.must_ask_end = True
        buffer.has_more = events.has_more or size_bytes >= fill.max_bytes
        if not buffer.has_more:
            buffer.as_of = max(buffer.as_of, buffer.news_as_of, events.as_of)
            buffer.seen_seconds = buffer.asked_seconds if buffer.is_at_tail else buffer.seen_seconds
            # Needs no room in the buffers, unlike an empty answer: so successors come before the last events are taken.
            buffer.is_early = bool(batches) and not buffer.is_at_tail and not buffer.is_complete
            buffer.must_ask_end |= buffer.is_early
        else:
            buffer.is_at_tail = False  # there is more than one answer could contain
        self._settle(fill.segment_id, buffer)

    def take_end(self, step: AskEnd, end: SegmentEnd) -> None:
        """Process the answer to an `AskEnd`."""
        buffer = self._answered(step)
        if buffer is None:
            return
        goes_on = end.is_stale or buffer.is_early
        buffer.must_ask_end = buffer.is_lost = buffer.is_early = False
        is_at_end = end.size is not None and buffer.offset >= end.size
        buffer.begun_at = buffer.begun_at if end.is_stale and end.size is None else 0
        if goes_on and not is_at_end:
            buffer.may_ask = True
        elif is_at_end and (end.successors or self._is_member) and buffer.end is None:
            buffer.following = end.successors
            self._fill_ahead(end.successors, buffer.reach)
        else:
            buffer.is_idle = True  # a sealed segment that has more data than is visible yet is idle, too
            buffer.is_at_tail = end.size is None
            if buffer.is_at_tail:
                buffer.seen_seconds, buffer.held_seconds = buffer.asked_seconds, None
            if is_at_end or (end.size is None and not self._follow):
                buffer.end = buffer.offset  # no successors; the segment stays, so that the position remains a cut
        self._settle(step.segment_id, buffer)
        self._let_go()

    def note_failure(self, step: Step) -> None:
        """Note that a request failed, so that it is made again."""
        if step.segment_id in self._ahead:
            self._drop(step.segment_id)  # it is read when it begins
        buffer = self._answered(step)
        if buffer is not None:
            buffer.may_ask, buffer.passed = True, PassCause.FAILED
            self._settle(step.segment_id, buffer)

    def note_lost(self, step: Step) -> None:
        """Note that a request failed for good; until `note_failure` it counts as under way, so it is not repeated."""
        buffer = self._buffer_of(step.segment_id)
        if buffer is not None and buffer.under_way is step:
            buffer.is_lost = True

    def retry_idle(self) -> None:
        """Read the idle segments again."""
        for segment_id, buffer in (*self._buffers.items(), *self._ahead.items()):
            if buffer.is_idle and not buffer.may_ask:
                buffer.may_ask = True
                buffer.leave_tail(self._now_seconds)
                self._settle(segment_id, buffer)

    # Events and state

    def hold_seconds(self) -> float:
        """Return how long the next events still wait, unless an answer comes; 0 = they may be taken.

        Complexity: O(segments with empty buffers).
        """
        self._let_go()
        first = self._orderer.choose()
        if first is None or not self._by_time or not self.settings.reorder_wait_seconds:
            return 0.0
        batch, as_of = self._buffers[first.segment].batches[0]
        longest = 0.0
        for segment_id in list(self._empty):
            buffer = self._buffers[segment_id]
            if buffer.last_value < batch.value:
                self._ask_of_news(segment_id, buffer, as_of)
                longest = max(longest, self._left_seconds(segment_id, buffer, as_of))
        return longest

    def take_overdue(self) -> dict[int, int]:
        """Return the segments in history that events have waited for too long, each with the reader's offset.

        The wait for them begins again.
        """
        overdue, self._overdue = self._overdue, {}
        return overdue

    def take(self, opened: Callable[[EventBatch], object] = lambda _: None) -> EventBatch | None:
        """Take the next events, waiting or not: of the lowest value, then of the lowest segment. O(log segments).

        Args:
            opened: called with them before the position moves.
        """
        self._let_go()
        first = self._orderer.choose()
        return None if first is None else self._take_from(first.segment, opened)

    @property
    def passes(self) -> dict[PassCause, int]:
        """How many requests that might have returned older events the reader did not wait for, by cause."""
        return {cause: self._passes[cause] for cause in PassCause}

    @property
    def awaited(self) -> list[int]:
        """The segments whose first events are requested, or are about to be, ascending. O(segments)."""
        return sorted(number for number in self._empty if not self._buffers[number].is_idle)

    @property
    def is_awaited(self) -> bool:
        """Whether `awaited` has any segments. O(segments)."""
        return any(not self._buffers[number].is_idle for number in self._empty)

    @property
    def is_finished(self) -> bool:
        """Whether all events were taken; for a reader that follows, only once the stream is sealed. O(segments)."""
        return (
            not self._is_member
            and not self._empty
            and all(not buffer.batches and buffer.following is None for buffer in self._buffers.values())
        )

    @property
    def follows(self) -> bool:
        """Whether it waits for future events."""
        return self._follow

    @property
    def idle(self) -> dict[int, int]:
        """The segments whose last answer was empty, each with the reader's offset."""
        waiting = (item for item in self._buffers.items() if item[1].is_idle and not item[1].batches)
        return {number: buffer.offset for number, buffer in waiting if not buffer.is_complete}

    @property
    def buffered_bytes(self) -> int:
        """Bytes of payload in the buffers, and of the payload that requests under way may return."""
        return self._bytes

    def position(self) -> IdMap:
        """Return the stream cut after the last events that were taken."""
        return self._frontier.cut()

    def lag(self, now: int) -> int | None:
        """Return the largest lag of a segment; None if no segment is being read, or the lag of one is not known."""
        lags = list(self.lags(now).values())
        known = [lag for lag in lags if lag is not None]
        return max(known) if known and len(known) == len(lags) else None

    def lags(self, now: int) -> dict[int, int | None]:
        """Return the lag of each segment that is being read: how long ago its first event arrived that was not taken.

        This is exact while such an event is buffered, and 0 at the end of the segment. Else it is the lower of two
        upper bounds: the time since the arrival of the last event that was taken, and the time since the request that
        showed the end of a segment that is not sealed. None if neither is known.

        Args:
            now: the time of the clock, in milliseconds.

        Source: PDP-28, "getLag() ... can return the data from the time index".
        """
        return {number: self._lag_of(buffer, now) for number, buffer in self._buffers.items()}

    def _lag_of(self, buffer: _Buffer, now: int) -> int | None:
        value = buffer.batches[0][0].value if buffer.batches else buffer.last_value
        bounds = [] if value == NO_VALUE else [max(0, now - value)]
        if not buffer.batches and buffer.seen_seconds is not None:
            bounds.append(milliseconds(self._now_seconds - buffer.seen_seconds))
        is_at_end = buffer.is_complete and buffer.following is None and not buffer.batches
        return 0 if is_at_end else min(bounds, default=None)

    # Changes from outside

    def take_finished(self, told: Callable[[list[Finished]], object] = lambda _: None) -> list[Finished]:
        """Return the segments that were read to their ends since the last call; for a member of a group.

        Args:
            told: called with them before they are forgotten here.
        """
        told(self._finished)
        done, self._finished = self._finished, []
        return done

    def add(self, segment: SegmentRecord, offset: int) -> None:
        """Start reading a segment from an offset on, because the group assigned it to this reader.

        Raises:
            InvalidArgument: the segment is being read already, or the offset is below 0.
        """
        self._frontier.add(segment, offset)
        self._start(segment.id)

    def remove(self, segment_id: int) -> int:
        """Stop reading a segment; returns the offset after the last events that were taken of it.

        Raises:
            InvalidArgument: the reader does not have the segment.
        """
        self._drop(segment_id)
        return self._frontier.remove(segment_id)

    def skip(self, head: Frontier) -> None:
        """Move positions before the stream's head to the head.

        Args:
            head: the position of the head.
        """
        before = self._frontier.cut()
        self._frontier.skip(head)
        now = self._frontier.cut()
        for segment_id in list(self._ahead):
            self._drop(segment_id)
        for segment_id in list(self._buffers):
            if now.get(segment_id) != before.get(segment_id):
                self._drop(segment_id)
        for segment_id in self._frontier.started:
            if segment_id not in self._buffers:
                self._start(segment_id)

    def _start(self, segment_id: int) -> None:
        offset = self._frontier.offset(segment_id)
        buffer = self._ahead.pop(segment_id, None)
        if buffer is None or offset:
            self._drop_buffer(buffer)
            buffer = _Buffer(offset, self._stop.get(segment_id), begun_at=offset)
        elif buffer.is_idle and not buffer.is_complete:
            buffer.may_ask = True
        self._buffers[segment_id] = buffer
        self._settle(segment_id, buffer)

    def _fill_ahead(self, successors: tuple[SegmentRecord, ...], reach: int) -> None:
        """Read successors before they begin; so many at most, in the room that is left."""
        most = max(AHEAD_PER_REQUEST * self.settings.requests_max, AHEAD_PER_SEGMENT * len(self._buffers))
        for segment in () if self._is_member else successors:
            if self._buffer_of(segment.id) is None and len(self._ahead) < most:
                self._ahead[segment.id] = buffer = _Buffer(0, self._stop.get(segment.id), reach=reach)
                self._settle(segment.id, buffer)

    def _buffer_of(self, segment_id: int) -> _Buffer | None:
        return self._buffers.get(segment_id) or self._ahead.get(segment_id)

    def _urgency(self, segment_id: int, buffer: _Buffer) -> int:
        """Return the place of a segment in the order of requests: those that need no room, or may not wait, first."""
        is_ahead = segment_id in self._ahead
        needs_room = not buffer.must_ask_end and (is_ahead or bool(buffer.batches))
        if self._by_time:
            return (needs_room << VALUE_BITS) + buffer.reach
        return ((needs_room + is_ahead) << VALUE_BITS) + buffer.size_bytes

    def _step(self, segment_id: int, buffer: _Buffer) -> Step | None:
        if buffer.must_ask_end:
            return AskEnd(segment_id, buffer.begun_at)
        fill_bytes = self._fill_bytes
        is_dry = not buffer.batches and segment_id in self._buffers
        if not is_dry and fill_bytes - buffer.reserved_bytes > self._room_bytes:
            return None  # not a smaller request: many small ones take longer
        ahead_bytes = self._ahead_bytes // max(1, len(self._buffers)) if buffer.has_more else 0
        return Fill(segment_id, buffer.offset, fill_bytes, buffer.token, buffer.end, ahead_bytes)

    @property
    def _room_bytes(self) -> int:
        """What is left for requests of segments that have events: the rest is for those that run dry."""
        return self.settings.buffer_bytes_max - self._bytes - self._reserved_bytes

    @property
    def _ahead_bytes(self) -> int:
        """The payload of all segments together that is announced before it is requested."""
        return int(self.settings.buffer_bytes_max * AHEAD_SHARE)

    @property
    def _fill_bytes(self) -> int:
        """The payload of one request, which a segment that ran dry may request whatever the others hold."""
        segments = max(1, len(self._buffers))
        at_once = min(segments, self.settings.requests_max)
        share_bytes = int(self.settings.buffer_bytes_max / (at_once + WAITING_PER_SEGMENT * segments))
        return max(1, min(2 * self.settings.fill_bytes, share_bytes))

    def _forget_due(self, segment_id: int) -> None:
        self._askable.discard(segment_id)
        self._due.forget(segment_id)

    def _divide(self) -> None:
        """Reserve room for each segment anew if their number changed. O(segments) then."""
        if self._shared_by != len(self._buffers):
            self._shared_by = len(self._buffers)
            for segment_id, buffer in self._buffers.items():
                self._reserve(segment_id, buffer)

    def _reserve(self, segment_id: int, buffer: _Buffer) -> None:
        """Reserve room for the next request of a segment; a complete one keeps it for its successors."""
        is_needed = segment_id in self._buffers and (buffer.following is not None or not buffer.is_complete)
        reserved_bytes = max(0, self._fill_bytes - buffer.held_bytes) if is_needed else 0
        self._reserved_bytes += reserved_bytes - buffer.reserved_bytes
        buffer.reserved_bytes = reserved_bytes

    def _answered(self, step: Step) -> _Buffer | None:
        """Return the buffer of the request; None if the segment was dropped, or begun again, meanwhile."""
        self._under_way -= 1
        self._bytes -= step.max_bytes if isinstance(step, Fill) else 0
        self._answered_seconds = self._now_seconds
        buffer = self._buffer_of(step.segment_id)
        if buffer is None or buffer.under_way is not step:
            return None
        buffer.under_way, buffer.passed, buffer.is_counted = None, None, False
        return buffer

    def _take_from(self, segment_id: int, opened: Callable[[EventBatch], object]) -> EventBatch:
        buffer = self._buffers[segment_id]
        batch, _ = buffer.batches.popleft()
        opened(batch)
        buffer.size_bytes -= batch.size_bytes
        self._bytes -= batch.size_bytes
        buffer.last_value = max(buffer.last_value, batch.value)
        self._frontier.advance(segment_id, batch.next_offset)
        self._settle(segment_id, buffer)
        return batch

    def _ask_of_news(self, segment_id: int, buffer: _Buffer, as_of: int) -> None:
        """Read an idle segment again, once per image, if its end is from an older image than the buffered events."""
        if buffer.is_idle and buffer.is_at_tail and max(buffer.as_of, buffer.news_as_of) < as_of:
            buffer.news_as_of = as_of  # the answer counts as at least this new, whatever its own `as_of` is
            buffer.is_idle, buffer.may_ask = False, True
            self._settle(segment_id, buffer)

    def _left_seconds(self, segment_id: int, buffer: _Buffer, as_of: int) -> float:
        """Return how much longer the reader waits for a segment with an empty buffer."""
        if not buffer.is_at_tail:
            return self._left_of_history(segment_id, buffer)
        if buffer.is_idle or buffer.as_of >= as_of:
            return 0.0
        if buffer.passed is not None:
            self._count_pass(buffer, buffer.passed)
            return 0.0
        # A segment whose request has not begun yet is late only if all requests under way are late.
        since = buffer.asked_seconds if buffer.under_way else max(buffer.asked_seconds, self._answered_seconds)
        left = since + min(self.settings.reorder_wait_seconds, self._times.seconds) - self._now_seconds
        if left <= 0:
            self._count_pass(buffer, PassCause.TAIL)
        return max(0.0, left)

    def _left_of_history(self, segment_id: int, buffer: _Buffer) -> float:
        """Return how much longer the reader waits for a segment in history."""
        may_pass = self.settings.passes_late_segments
        if may_pass and (buffer.is_lost or buffer.passed is PassCause.TIMED_OUT):
            self._count_pass(buffer, PassCause.FAILED if buffer.is_lost else PassCause.TIMED_OUT)
            return 0.0
        if buffer.held_seconds is None:
            buffer.held_seconds = self._now_seconds
        if buffer.under_way is None and not buffer.is_idle:  # it is late only if all requests under way are late
            buffer.held_seconds = max(buffer.held_seconds, self._answered_seconds)
        left = buffer.held_seconds + self.settings.history_wait_seconds - self._now_seconds
        if left > 0:
            return left
        if may_pass:
            self._count_pass(buffer, PassCause.TIMED_OUT)
            return 0.0
        self._overdue[segment_id] = buffer.offset
        buffer.held_seconds = self._now_seconds
        return self.settings.history_wait_seconds

    def _count_pass(self, buffer: _Buffer, cause: PassCause) -> None:
        """Count that the reader does not wait for a segment, once per request."""
        if not buffer.is_counted:
            buffer.passed, buffer.is_counted = cause, True
            self._passes[cause] += 1

    def _settle(self, segment_id: int, buffer: _Buffer) -> None:
        """Update a changed segment: whether a request is due, its standing, and whether it is at its end."""
        wants = buffer.must_ask_end or (buffer.may_ask and not buffer.is_complete)
        if wants and buffer.under_way is None:
            if segment_id not in self._askable:
                buffer.asked_seconds = self._now_seconds
            self._askable.add(segment_id)
            self._due.put(Standing(segment_id, self._urgency(segment_id, buffer)))
        else:
            self._forget_due(segment_id)
        self._reserve(segment_id, buffer)
        if segment_id not in self._buffers:
            return
        if buffer.batches or buffer.is_complete:
            self._empty.discard(segment_id)
        else:
            self._empty.add(segment_id)
        self._orderer.put(self._standing(segment_id, buffer))
        if buffer.end is not None and buffer.is_complete and not buffer.batches:
            self._frontier.reach(segment_id, buffer.end)

    def _standing(self, segment_id: int, buffer: _Buffer) -> Standing[int]:
        if buffer.batches:
            return Standing(segment_id, buffer.batches[0][0].value if self._by_time else 0)
        return Standing(segment_id, None, is_drained=buffer.following is not None)

    def _let_go(self) -> None:
        """Finish all sealed segments that were read to their ends; their successors begin.

        Called only when the caller requests more: before that, the last events of a segment may not all be processed.
        """
        while (first := self._orderer.choose()) is not None and first.is_drained:
            self._finish(first.segment, self._buffers[first.segment].following or ())

    def _finish(self, segment_id: int, successors: tuple[SegmentRecord, ...]) -> None:
        if self._is_member:
            self._finished.append(Finished(segment_id, self._frontier.offset(segment_id), successors))
            self.remove(segment_id)
            return
        self._drop(segment_id)
        for begun in self._frontier.finish(segment_id, successors):
            self._start(begun)

    def _drop(self, segment_id: int) -> None:
        self._drop_buffer(self._buffers.pop(segment_id, None))
        self._drop_buffer(self._ahead.pop(segment_id, None))
        self._forget_due(segment_id)
        self._empty.discard(segment_id)
        self._orderer.forget(segment_id)

    def _drop_buffer(self, buffer: _Buffer | None) -> None:
        if buffer is not None:
            self._bytes -= buffer.size_bytes
            self._reserved_bytes -= buffer.reserved_bytes
            buffer.reserved_bytes = 0
