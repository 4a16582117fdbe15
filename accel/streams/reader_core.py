"""What a reader of a whole stream decides: which segments to fill, what to give next, when a segment is done.

    wanted()   -> Fill(segment, offset, ...)    please read events of this segment      filled(...)
               -> Learn(segment)                nothing came: is it sealed, and what follows?   learned(...)
    take()     -> the next events, of the segment whose next events arrived first; None if none are at hand

Segments are filled ahead, each into a buffer of its own, within bounds on bytes and on requests under way. A segment
that has nothing in its buffer is passed over, so a slow one holds nobody up; one that is read to its end is let go at
once, as its successors wait for it.

| a segment | until | then |
|---|---|---|
| is filled | nothing comes | it is asked about: sealed at its end, it is done; else it is idle |
| is idle | `retry_idle` | it is filled again |
| is done | | its successors begin when nothing older is left at their keys (`frontier`) |
| has reached the end that was given for it | | it stays in the cut, and is not filled any more |

All of it is decided here and nothing is done: no I/O, no clock, no thread. So the reader with threads, the one for
asyncio and the simulations are the same reader.

Source: PDP-28, "Orderer"; PDP-32, on successors.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from accel.history.rules.ids import IdMap
from accel.history.rules.segments import SegmentRecord
from accel.streams.events import EventBatch
from accel.streams.frontier import Frontier
from accel.streams.orderer import Lag
from accel.streams.steps import Fill, Finished, Learn, ReaderSettings, SegmentEnd, SegmentEvents, Step
from range_index.time_search import NO_TOKEN


@dataclass(slots=True, eq=False)
class _Buffer:
    """What a reader has of one segment.

    A segment is idle from when it gave nothing until it gives something; it may be asked again only when it is told to.
    """

    offset: int
    end: int | None
    batches: deque[EventBatch] = field(default_factory=deque)
    size_bytes: int = 0
    token: int = NO_TOKEN
    under_way: Step | None = None
    must_learn: bool = False
    is_idle: bool = False
    may_ask: bool = True
    lag: Lag = field(default_factory=Lag)

    @property
    def is_complete(self) -> bool:
        """Whether all that was asked for is here."""
        return self.end is not None and self.offset >= self.end


class ReaderCore:
    """The state of one reader. Threads: one at a time.

    Args:
        frontier: where it stands; its segments begin at once.
        settings: bounds.
        stop: offsets at which segments end for this reader, by id; what follows those is not read. None = none do.
        follow: whether it waits for more at the end of what there is. If not, a segment that is not sealed ends there.
        is_member: whether it belongs to a group: then successors are not begun, but told by `finished`.
        by_time: whether events come in the order of their arrival; if not, of the segments that have events at hand the
            oldest goes first, and the others wait.
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
        self._askable: set[int] = set()
        self._ready: list[tuple[int, int, int, _Buffer]] = []
        self._serial = 0
        self._finished: list[Finished] = []
        self._under_way = 0
        self._bytes = 0
        self._lag = Lag()
        if not is_member:
            frontier.begin()
        for segment_id in frontier.started:
            self._start(segment_id)

    # What to do

    def wanted(self) -> list[Step]:
        """What is to be begun now; each counts as under way until it is answered. O(segments that want something).

        The emptiest come first: whoever has nothing holds no place in the order.
        """
        steps: list[Step] = []
        if self._under_way >= self.settings.requests_max:
            return steps
        for segment_id in sorted(self._askable, key=lambda each: (self._buffers[each].size_bytes, each)):
            if self._under_way >= self.settings.requests_max:
                break
            buffer = self._buffers[segment_id]
            step = self._step(segment_id, buffer)
            self._askable.discard(segment_id)  # one that is full is looked at again when something was taken of it
            if step is None:
                continue
            buffer.under_way, buffer.may_ask = step, False
            self._bytes += _reserved(step)
            self._under_way += 1
            steps.append(step)
        return steps

    def filled(self, fill: Fill, found: SegmentEvents) -> None:
        """Events came, or none."""
        buffer = self._answered(fill)
        if buffer is None:
            return
        buffer.token = found.token
        batches = [part for each in found.batches if len(part := each.within(buffer.offset, buffer.end))]
        if batches or found.next_offset > buffer.offset:
            self._keep(fill.segment_id, buffer, batches)
            buffer.offset, buffer.is_idle = max(buffer.offset, found.next_offset), False
        else:
            buffer.is_idle |= bool(buffer.batches)  # what is at hand may last for long; it is asked again meanwhile
            buffer.must_learn = not buffer.batches
        self._settle(fill.segment_id, buffer)

    def learned(self, learn: Learn, end: SegmentEnd) -> None:
        """A segment that gave nothing is sealed, or is not."""
        buffer = self._answered(learn)
        if buffer is None:
            return
        buffer.must_learn = False
        if end.is_stale:
            buffer.may_ask = True
            self._settle(learn.segment_id, buffer)
            return
        is_at_end = end.size is not None and buffer.offset >= end.size
        if is_at_end and (end.successors or self._is_member) and buffer.end is None:
            self._finish(learn.segment_id, end.successors)
            return
        buffer.is_idle = True  # one that is sealed, and has more than can be seen yet, is idle too
        if is_at_end or (end.size is None and not self._follow):
            buffer.end = buffer.offset  # nothing follows; it stays, so that the position still is a cut
        self._settle(learn.segment_id, buffer)

    def failed(self, step: Step) -> None:
        """It did not work: it is wanted again."""
        buffer = self._answered(step)
        if buffer is not None:
            buffer.may_ask = True
            self._settle(step.segment_id, buffer)

    def retry_idle(self) -> None:
        """Ask the idle segments again."""
        for segment_id, buffer in self._buffers.items():
            if buffer.is_idle and not buffer.may_ask:
                buffer.may_ask = True
                self._settle(segment_id, buffer)

    # What there is

    def take(self) -> EventBatch | None:
        """The events that are next: those of the lowest value, then of the lowest segment. O(log segments)."""
        while self._ready:
            _, segment_id, _, buffer = heapq.heappop(self._ready)
            if self._buffers.get(segment_id) is not buffer:
                continue  # the segment was given up meanwhile
            batch = buffer.batches.popleft()
            buffer.size_bytes -= batch.size_bytes
            self._bytes -= batch.size_bytes
            self._frontier.advance(segment_id, batch.next_offset)
            self._lag.read(batch.value)
            buffer.lag.read(batch.value)
            if not buffer.batches and buffer.is_idle:
                buffer.is_idle, buffer.may_ask = False, True
            self._offer(segment_id, buffer)
            self._settle(segment_id, buffer)
            return batch
        return None

    @property
    def awaited(self) -> list[int]:
        """The segments whose first events are on their way, or are about to be asked for. O(segments)."""
        waiting = (number for number, each in self._buffers.items() if not (each.batches or each.is_idle))
        return [number for number in waiting if not self._buffers[number].is_complete]

    @property
    def is_awaited(self) -> bool:
        """Whether there are any such segments. O(segments)."""
        return bool(self.awaited)

    @property
    def is_finished(self) -> bool:
        """Whether all was given that was asked for; of one that follows, once the stream is sealed. O(segments)."""
        return all(each.is_complete and not each.batches for each in self._buffers.values()) and not self._is_member

    @property
    def follows(self) -> bool:
        """Whether it waits for more at the end of what there is."""
        return self._follow

    @property
    def idle(self) -> dict[int, int]:
        """The segments that gave nothing when they were last asked, and where the reader stands in each."""
        waiting = (each for each in self._buffers.items() if each[1].is_idle and not each[1].batches)
        return {number: each.offset for number, each in waiting if not each.is_complete}

    @property
    def buffered_bytes(self) -> int:
        """Payload in the buffers, and what requests under way may bring."""
        return self._bytes

    def position(self) -> IdMap:
        """The stream cut behind the last events that were taken."""
        return self._frontier.cut()

    def lag(self, now: int, segment_id: int | None = None) -> int:
        """How much later it is than the last events arrived that were taken; 0 before the first.

        Args:
            now: what the clock says.
            segment_id: of one segment; 0 for one that is not being read.
        """
        if segment_id is None:
            return self._lag.at(now)
        buffer = self._buffers.get(segment_id)
        return 0 if buffer is None else buffer.lag.at(now)

    def lags(self, now: int) -> dict[int, int]:
        """The same of each segment that is being read."""
        return {each: buffer.lag.at(now) for each, buffer in self._buffers.items()}

    # Changes from outside

    def finished(self) -> list[Finished]:
        """Of a member of a group: the segments that were read to their ends since this was asked last."""
        done, self._finished = self._finished, []
        return done

    def add(self, segment: SegmentRecord, offset: int) -> None:
        """Read one segment more, from an offset on: a group gave it to this reader.

        Raises:
            InvalidArgument: it is read already, or the offset is below 0.
        """
        self._frontier.add(segment, offset)
        self._start(segment.id)

    def remove(self, segment_id: int) -> int:
        """Read a segment no more; gives the offset behind the last events that were taken of it.

        Raises:
            InvalidArgument: it is none of this reader's.
        """
        self._drop(segment_id)
        return self._frontier.remove(segment_id)

    def skip(self, head: Frontier) -> None:
        """Go on at the stream's head wherever this reader stands before it.

        Args:
            head: the segments that the stream begins with.
        """
        before = self._frontier.cut()
        self._frontier.skip(head)
        now = self._frontier.cut()
        for segment_id in list(self._buffers):
            if now.get(segment_id) != before.get(segment_id):
                self._drop(segment_id)
        for segment_id in self._frontier.started:
            if segment_id not in self._buffers:
                self._start(segment_id)

    def _start(self, segment_id: int) -> None:
        buffer = _Buffer(self._frontier.offset(segment_id), self._stop.get(segment_id))
        self._buffers[segment_id] = buffer
        self._settle(segment_id, buffer)

    def _step(self, segment_id: int, buffer: _Buffer) -> Step | None:
        if buffer.must_learn:
            return Learn(segment_id)
        fill_bytes, most = self.settings.fill_bytes, self.settings.buffer_bytes_max
        share = max(fill_bytes, most // len(self._buffers))
        is_full = buffer.size_bytes + fill_bytes > share or self._bytes + fill_bytes > most
        if is_full and buffer.batches:
            return None
        return Fill(segment_id, buffer.offset, fill_bytes, buffer.token, end=buffer.end)

    def _answered(self, step: Step) -> _Buffer | None:
        """The buffer that waits for this; None if the segment was given up, or begun anew, meanwhile."""
        self._under_way -= 1
        self._bytes -= _reserved(step)
        buffer = self._buffers.get(step.segment_id)
        if buffer is None or buffer.under_way is not step:
            return None
        buffer.under_way = None
        return buffer

    def _keep(self, segment_id: int, buffer: _Buffer, batches: list[EventBatch]) -> None:
        was_empty = not buffer.batches
        size_bytes = sum(each.size_bytes for each in batches)
        buffer.batches.extend(batches)
        buffer.size_bytes += size_bytes
        self._bytes += size_bytes
        buffer.may_ask = True
        if was_empty:
            self._offer(segment_id, buffer)

    def _offer(self, segment_id: int, buffer: _Buffer) -> None:
        if buffer.batches:
            self._serial += 1
            value = buffer.batches[0].value if self._by_time else 0
            heapq.heappush(self._ready, (value, segment_id, self._serial, buffer))

    def _settle(self, segment_id: int, buffer: _Buffer) -> None:
        """After any change of a segment: may it be asked for something, and has it reached its end?"""
        learns = buffer.must_learn and not buffer.batches
        fills = not buffer.must_learn and buffer.may_ask and not buffer.is_complete
        if buffer.under_way is None and (learns or fills):
            self._askable.add(segment_id)
        else:
            self._askable.discard(segment_id)
        if buffer.end is not None and buffer.is_complete and not buffer.batches:
            self._frontier.reach(segment_id, buffer.end)

    def _finish(self, segment_id: int, successors: tuple[SegmentRecord, ...]) -> None:
        if self._is_member:
            self._finished.append(Finished(segment_id, self.remove(segment_id), successors))
            return
        self._drop(segment_id)
        for begun in self._frontier.finish(segment_id, successors):
            self._start(begun)

    def _drop(self, segment_id: int) -> None:
        buffer = self._buffers.pop(segment_id, None)
        self._askable.discard(segment_id)
        if buffer is not None:
            self._bytes -= buffer.size_bytes


def _reserved(step: Step) -> int:
    return step.max_bytes if isinstance(step, Fill) else 0
