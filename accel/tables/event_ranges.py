"""The parts of segments that lie between two cuts of a stream: what is read for the table `events`.

    cuts      0@0=10                       3@1=5 4@1=0
    ranges    0@0 from 10 to its end (40)  3@1 from 0 to 5

A range is a segment and an interval of its offsets; a cluster reads ranges in parallel. `StreamEvents.between` returns
those between two cuts. `StreamEvents.next_cut` returns where the next batch of a program that follows the stream ends:

    a batch begins      with the segments of its first cut; those that were read to their seal are replaced by their
                        successors
    and ends            at the seal of each segment, or at the end of its durable data, or where the limit is reached

So a batch never has events of a segment and of its successor, and the order of the events of each key holds if batches
are processed one after the other, although the ranges of a batch are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Final, NamedTuple

import numpy as np

from accel.errors import PositionTruncated, ReaderStalled
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.cuts import PlacedCut, later, refuse_unordered
from accel.history.rules.retention import place_truncation
from accel.history.rules.segments import Segments
from accel.history.rules.states import StreamState
from accel.history.rules.values import Cut, segment_text
from accel.history.store.cut_reading import as_cut
from accel.image_source import PolledImages
from accel.streams.connection import Connection
from accel.streams.rules.events import EventColumns
from accel.streams.rules.frontier import Frontier
from accel.streams.segment_directory import segment_tails
from accel.streams.segment_source import HISTORY_SECONDS, ObjectSegmentSource, cut_at
from accel.system import SYSTEM

OPEN: Final = 2**63
"""After all offsets: the end of a segment that is not sealed."""

SEALS_MAX: Final = 100
"""The number of seals that one call of `StreamEvents.next_cut` passes; a stream may have many empty segments."""


class SegmentRange(NamedTuple):
    """The events of a segment that begin at an offset from `start` on and before `end`."""

    segment_id: int
    start: int
    end: int


class StreamEvents:
    """Plans and reads ranges of one stream's events. Threads: one at a time.

    Args:
        streams: the connection, which remains the caller's. Only requests for reading are sent.
        scope, name: scope and name of the stream.
        skips_truncated: whether events that were truncated are skipped; otherwise `PositionTruncated` is raised.

    Raises:
        NotInHistory: there is no such stream.
        CatalogMissing: the store contains no catalog.
    """

    def __init__(self, streams: Connection, scope: str, name: str, *, skips_truncated: bool = False) -> None:
        self.stream = streams.stream(scope, name)
        self.name = scope, name
        self._streams = streams
        self._skips_truncated = skips_truncated
        self._tails = partial(segment_tails, streams.catalog, self.stream)
        self._idle: tuple[object, ...] = ()
        self._idle_seconds = 0.0

    @cached_property
    def source(self) -> ObjectSegmentSource:
        """Reads the events of segments."""
        return self._streams.source(self.stream)

    @cached_property
    def _images(self) -> PolledImages:
        return self._streams.catalog.images()

    @cached_property
    def unit(self) -> OffsetUnit:
        """What the stream's offsets count. 1 call."""
        return self.stream.configuration().offset_unit

    # Cuts

    def tail(self) -> dict[int, int]:
        """The cut at the end of the durable data. Requests: 3, and those of `segment_tails`."""
        return dict(self.stream.cuts.tail(self._tails) or {})

    def at_time(self, time_ms: int) -> dict[int, int]:
        """The last cut after which all events of a time or later are; requests and errors: see `cut_at`.

        Raises:
            InvalidArgument: no time in milliseconds since 1970, or one that is more than 5 minutes from now.
        """
        return cut_at(self.stream, self.source, self.stream.parts.store.time_ms("the time of a cut", time_ms))

    def checked(self, cut: Cut) -> dict[int, int]:
        """A cut that a user gave.

        Raises:
            InvalidArgument: not a valid cut of readers.
            NotInHistory: a cut of another stream.
            PositionBeyondEnd: a segment ends before its offset.
        """
        placed = self.stream.cuts.place_valid(cut)
        self.stream.cuts.refuse_beyond(placed.cut, self._tails)
        return dict(placed.cut)

    # Ranges

    def between(self, start: Cut, end: Cut) -> list[SegmentRange]:
        """The ranges between two cuts, ascending by segment. Empty ranges are left out.

        Raises:
            InvalidArgument: the end is before the start.
            PositionTruncated: some events were truncated.
            ReaderStalled: a segment that ends between the cuts has no size yet: a scale is under way.
        """
        first, last = self.stream.cuts.place_valid(start), self.stream.cuts.place_valid(end)
        refuse_unordered(first, last)
        first = self._kept(first)
        return list(self._ranges(first, later(first, last)))

    def next_cut(self, start: Cut, offsets_max: int | None = None, until: Cut | None = None) -> dict[int, int]:
        """The cut at the end of the next batch; equals the start if there is nothing to read.

        Segments share the limit evenly, except that none gets more than it has. A batch may be empty: if it only
        passes seals, at most `SEALS_MAX`, or skips truncated data.

        Requests: 4, those of the ends of the segments, 4 a seal. If there was nothing at this start before, and the
        catalog has not changed since, only those of following: none within a second of the last ones, else two
        listings. A stream that is idle shows new events within 2.5 seconds.

        Args:
            start: the cut at which the batch begins.
            offsets_max: the limit of the batch, in the stream's offset unit; None = all durable data.
            until: a cut that is not passed; None = none.

        Raises:
            PositionTruncated: the stream begins after the start, and events before its beginning were not read.
        """
        begun = dict(as_cut(start))
        asked = (self._images.current().version, begun, until)
        if asked == self._idle and SYSTEM.timer() - self._idle_seconds < HISTORY_SECONDS:
            return begun
        # During a workflow the history changes after the catalog: then no later image shows it.
        is_settled = self.stream.state() in (StreamState.ACTIVE, StreamState.SEALED)
        after = self._next_cut(start, offsets_max, until)
        self._idle, self._idle_seconds = asked if is_settled and after == begun else (), SYSTEM.timer()
        return after

    def _next_cut(self, start: Cut, offsets_max: int | None, until: Cut | None) -> dict[int, int]:
        first = self._kept(self.stream.cuts.place_valid(start))
        stop = None if until is None else later(first, self.stream.cuts.place_valid(until)).cut
        position = Frontier(first.segments, first.cut)
        self._pass_seals(position, () if stop is None else stop)
        ids = np.array(position.started, dtype=np.int64)
        ends = self.stream.cuts.ends(ids, self._tails)
        if stop is not None:
            ends |= {segment_id: min(end, stop.get(segment_id, end)) for segment_id, end in ends.items()}
        waiting = [max(0, ends.get(segment_id, 0) - position.offset(segment_id)) for segment_id in ids.tolist()]
        for segment_id, share in zip(ids.tolist(), shares(waiting, offsets_max), strict=True):
            position.advance(segment_id, position.offset(segment_id) + share)
        return dict(position.cut())

    def columns(self, part: SegmentRange) -> Iterator[tuple[SegmentRange, EventColumns]]:
        """The events of a range, read ahead; each piece with the range of its events that count.

        Raises (while iterating):
            PositionTruncated: some were truncated.
            AccelError: as `ObjectSegmentSource.columns`.
        """
        while part.start < part.end:
            at = part.start
            try:
                for columns in self.source.columns(part.segment_id, at, part.end):
                    at = int(columns.offsets[-1])
                    yield part, columns
            except PositionTruncated as error:
                if not self._skips_truncated:
                    raise
                head = error.head.get(part.segment_id, part.end)  # without an offset all of the segment is gone
                part = part._replace(start=max(at, head))
            else:
                return

    def _kept(self, start: PlacedCut) -> PlacedCut:
        """The start, or the stream's head where that is later."""
        head = place_truncation(self.stream.truncation())
        if head is None:
            return start
        moved = self.stream.cuts.place(later(start, head).cut)
        lost = next(self._ranges(start, moved), None)
        if lost is not None and not self._skips_truncated:
            raise PositionTruncated(self.stream.name, lost.segment_id, lost.start, dict(head.cut))
        return moved

    def _ranges(self, start: PlacedCut, end: PlacedCut) -> Iterator[SegmentRange]:
        if start.cut == end.cut:
            return
        ids = Segments.join(self.stream.cuts.between(start, end)).ascending().ids
        sizes = self.stream.cuts.sealed_sizes(ids[end.cut.positions_of(ids) < 0])
        for segment_id in ids.tolist():
            stop = end.cut.get(segment_id, sizes.get(segment_id))
            if stop is None:
                ended = f"{self.stream.name}: expected a size of segment {segment_text(segment_id)}, which has ended"
                raise ReaderStalled(f"{ended}, found none yet: it is being sealed")
            first = max(0, start.cut.get(segment_id, 0))
            if first < stop:
                yield SegmentRange(segment_id, first, stop)

    def _pass_seals(self, position: Frontier, kept: Iterable[int]) -> None:
        """Replace segments that were read to their seal by their successors, except for those of the last cut."""
        at_end = position.started
        passed = 0
        while at_end and passed < SEALS_MAX:
            sizes = self.stream.cuts.sealed_sizes(np.array(at_end, dtype=np.int64))
            looked, at_end = at_end, []
            for segment_id in looked:
                if segment_id in kept or position.offset(segment_id) < sizes.get(segment_id, OPEN):
                    continue
                if following := self.stream.epochs.successors(segment_id):  # none while a scale is under way
                    at_end += position.finish(segment_id, map(self.stream.epochs.segment, sorted(following)))
                    passed += 1


def shares(waiting: Sequence[int], most: int | None) -> list[int]:
    """Divide a number among those who wait: evenly, but to none more than it waits for.

    >>> shares([5, 100, 1000], 50), shares([5, 1, 0], 1), shares([3, 4], None)
    ([5, 22, 23], [1, 0, 0], [3, 4])
    """
    given, left = list(waiting), sum(waiting) if most is None else most
    for rank, at in enumerate(sorted(range(len(given)), key=lambda at: given[at])):
        given[at] = min(given[at], left // (len(given) - rank))
        left -= given[at]
    return given


def packed(ranges: Iterable[SegmentRange], size: int) -> list[list[SegmentRange]]:
    """Divide ranges among tasks of at most `size` offsets: long ranges are divided, short ones are joined.

    >>> packed([SegmentRange(0, 0, 25), SegmentRange(1, 5, 8)], 10)[1:]  # doctest: +NORMALIZE_WHITESPACE
    [[SegmentRange(segment_id=0, start=10, end=20)],
     [SegmentRange(segment_id=0, start=20, end=25), SegmentRange(segment_id=1, start=5, end=8)]]
    """
    tasks: list[list[SegmentRange]] = []
    room = 0
    for segment_id, start, end in ranges:
        for at in range(start, end, size):
            part = SegmentRange(segment_id, at, min(end, at + size))
            if part.end - part.start > room:
                tasks.append([])
                room = size
            tasks[-1].append(part)
            room -= part.end - part.start
    return tasks
