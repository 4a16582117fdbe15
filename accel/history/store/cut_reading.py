"""Queries about stream cuts: their segments, their order, and the segments between two cuts.

    calls                  1 for the first epoch, 1 for each chunk of history in the range, 1 for each duplicate epoch;
                           sizes: also 1 for each shard
    memory                 one chunk and the segments of the answer at a time, for any number of epochs in between

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from accel.errors import InvalidArgument, NotInHistory, PositionBeyondEnd, Sought
from accel.history.rules import cuts, retention
from accel.history.rules.cuts import CutOrder, CutSpan, PlacedCut
from accel.history.rules.epochs import creation_epochs, place, segments_of
from accel.history.rules.retention import TruncationRecord
from accel.history.rules.segments import Segments
from accel.history.rules.values import (
    NOTHING,
    Cut,
    IdMap,
    Integers,
    checked_id,
    checked_numbers,
    some_ids,
)
from accel.history.store.epoch_store import EpochReading
from accel.history.store.parts import StreamParts

Ends: TypeAlias = Callable[[Integers], Mapping[int, int]]
"""Returns the ends of segments, by id; those that are not known may be missing."""

SHARDS_KEPT_MAX = 64
"""Shards that are kept during a query. Segments come in the order of their epochs, so few shards are read twice."""


@dataclass(frozen=True, slots=True, eq=False)
class CutReading:
    """Answers queries about cuts of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        epochs: reads its epochs.
    """

    _parts: StreamParts
    _epochs: EpochReading

    def place(self, cut: Cut) -> PlacedCut:
        """A cut with its segments.

        Raises:
            NotInHistory: the cut contains a segment that the stream does not have.
            InvalidArgument: the cut contains an invalid id.
        """
        columns = as_cut(cut)
        if not len(columns):
            return cuts.NO_CUT
        low, high = creation_epochs(columns)
        try:
            return place(columns, self._epochs.epoch(low), self._epochs.chunks(low, high), self._epochs.epoch)
        except NotInHistory as error:
            if error.sought is Sought.SEGMENT:
                raise
            found = some_ids(columns.ids)
            raise NotInHistory(f"expected segments of this stream, found {found}: {error}", Sought.SEGMENT) from error

    def span(self, cut: Cut) -> CutSpan:
        """The segments of a cut, and the highest epoch that each belongs to. Raises as `place`."""
        return self.place(cut).span

    def compare(self, one: Cut, other: Cut) -> CutOrder:
        """The order of two valid cuts. Raises as `place_valid`."""
        return cuts.compare(self.place_valid(one), self.place_valid(other))

    def is_valid(self, cut: Cut) -> bool:
        """Whether a cut is a valid position of readers; False if it contains a segment that does not exist."""
        columns = as_cut(cut)
        try:
            placed = self.place(columns)
        except (NotInHistory, InvalidArgument):
            return False
        return self.is_valid_place(placed)

    def is_valid_place(self, placed: PlacedCut) -> bool:
        """Whether a cut whose segments were found is a valid position."""
        return cuts.is_valid(placed, self.segments(*creation_epochs(placed.cut)))

    def place_valid(self, cut: Cut) -> PlacedCut:
        """A valid cut with its segments.

        Raises:
            InvalidArgument: the cut is not valid.
            AccelError: as `place`.
        """
        placed = self.place(cut)
        cuts.refuse_invalid(placed, is_valid=self.is_valid_place(placed))
        return placed

    def segments(self, low: int, high: int) -> Iterator[Segments]:
        """All segments of the epochs from `low` to `high`, each once, in parts."""
        walk = self._epochs.walk(low, high)
        yield from segments_of(self._epochs.epoch(low), walk.chunks(), walk.epoch, high)

    def between(
        self, start: PlacedCut | None, end: PlacedCut | None, *, refuse_unordered: bool = True
    ) -> Iterator[Segments]:
        """The segments between two cuts, including the segments of both cuts, in parts.

        Args:
            start: None = the stream's beginning.
            end: None = its end.
            refuse_unordered: whether the end must be at or after the start.

        Raises:
            InvalidArgument: the end is before the start.
        """
        if refuse_unordered:
            cuts.refuse_unordered(start, end)
        low = 0 if start is None else start.span.low
        high = self._epochs.current().epoch if end is None else end.span.high
        return cuts.between(self.segments(low, high), start, end)

    def being_deleted(self, record: TruncationRecord | None = None) -> Iterator[Segments]:
        """The segments that a truncation under way deletes, in parts; no segment if no truncation is under way.

        Args:
            record: the truncation record; None = the stored one.
        """
        now = self._epochs.truncation() if record is None else record
        wanted = retention.place_truncation(now)
        if now.updating and wanted is not None:
            yield from self.ending(retention.deleted_before(now), wanted)

    def deleted(self) -> Iterator[Segments]:
        """The segments that truncations deleted, in parts; reads the history before the head. 1 call, 1 a chunk."""
        gone = retention.deleted_before(self._epochs.truncation())
        if gone is not None:
            yield from self.ending(None, gone)

    def ending(self, start: PlacedCut | None, end: PlacedCut) -> Iterator[Segments]:
        """The segments that end between two cuts, in parts: those between the cuts, without those of the end."""
        return retention.ending_before(end, self.between(start, end))

    def segments_between(self, start: Cut, end: Cut, *, refuse_unordered: bool = True) -> Integers:
        """Ids of the segments between two valid cuts, ascending; an empty cut means the stream's beginning, or its end.

        Raises:
            AccelError: as `place_valid`, and as `between`.
        """
        parts = self.between(self._bound(start), self._bound(end), refuse_unordered=refuse_unordered)
        return Segments.join(parts).ascending().ids

    def size_between(self, start: Cut, end: Cut) -> int:
        """The size of the stream between two cuts, in its offset unit; truncated data counts. As `segments_between`."""
        bounds = self._bound(start), self._bound(end)
        return self.size_of(self.between(*bounds), *bounds)

    def size_of(self, parts: Iterable[Segments], start: PlacedCut | None, end: PlacedCut | None) -> int:
        """The size of some segments between two cuts. 1 call a shard of sealed sizes."""
        shards: dict[int, IdMap] = {}

        def read(ids: Integers) -> Mapping[int, int]:
            return self._sealed_sizes(ids, shards)

        return retention.size_between(parts, _offsets(start), _offsets(end), read)

    def unread_size(self, position: Cut, end: Cut) -> int:
        """The size of the data between a position and a later cut that exists: truncated data does not count.

        Where the position is after the cut, as another process may know a later end, nothing is unread. Calls: as
        `size_between`, and 1 for the head.
        """
        start, stop = self.place_valid(position), self.place_valid(end)
        head = retention.place_truncation(self._epochs.truncation())
        first = start if head is None else cuts.later(start, head)
        last = cuts.later(first, stop)
        return self.size_of(self.between(first, last), first, last)

    def size_till(self, cut: Cut, reference: Cut | None = None, reference_size: int = 0) -> int:
        """The size of the stream before a cut: the size from an earlier cut, plus the size before the earlier cut.

        Args:
            cut: the cut.
            reference: an earlier cut; None = the stream's beginning.
            reference_size: the size before the earlier cut.
        """
        return retention.size_till(self.size_between(reference or {}, cut), reference_size)

    def sealed_size(self, segment_id: int) -> int | None:
        """The size of a sealed segment; None if the segment is not sealed yet. 1 call."""
        return self._sealed_sizes(np.array([checked_id(segment_id)], dtype=np.int64), {}).get(segment_id)

    def sealed_sizes(self, ids: Integers) -> dict[int, int]:
        """The sizes of those segments that are sealed, by id. 1 call a shard of sizes."""
        return self._sealed_sizes(ids, {})

    # The ends of segments

    def ends(self, ids: Integers, ask: Ends | None = None) -> dict[int, int]:
        """The ends of segments, by id, without those that are not known here. 1 call a shard of sizes.

        Args:
            ids: the segments.
            ask: returns the ends of segments that are not sealed; None = the host, if there is one.
        """
        known = self.sealed_sizes(ids)
        open_ids = ids[[segment_id not in known for segment_id in ids.tolist()]] if len(ids) else ids
        if ask is None and self._parts.has_host:
            ask = partial(self._parts.host.tails, self._parts.name)
        if ask is None or not len(open_ids):
            return known
        return {**known, **checked_numbers("ends from the host", ask(open_ids), 0)}

    def tail(self, ask: Ends | None = None) -> IdMap | None:
        """The cut at the stream's end; None if the end of a segment is not known here. 1 call, and those of `ends`."""
        ids = self._epochs.active_segments().ids
        ends = self.ends(ids, ask)
        return None if len(ends) < len(ids) else IdMap.of(ends)

    def refuse_beyond(self, cut: Cut, ask: Ends | None = None) -> list[int]:
        """Refuse a cut after the end of a segment; return the segments whose ends are not known here, ascending.

        A position may be ahead of what this process knows, and right: the newest metadata is read. Calls: `ends`.

        Args:
            cut: offsets by segment id.
            ask: as for `ends`.

        Raises:
            PositionBeyondEnd: a segment ends before its offset.
        """
        offsets = as_cut(cut)
        ids = offsets.ids[offsets.values_array > 0]
        ends = self.ends(ids, ask)
        for segment_id, end in sorted(ends.items()):
            if offsets[segment_id] > end:
                raise PositionBeyondEnd(str(self._parts.stream), segment_id, offsets[segment_id], end)
        return [segment_id for segment_id in ids.tolist() if segment_id not in ends]

    def shard(self, number: int) -> IdMap:
        """A shard of sealed sizes; empty if none of its segments was sealed. 1 call."""
        versioned = self._parts.keys.shard(number).read()
        return NOTHING if versioned is None else versioned.value

    def _sealed_sizes(self, ids: Integers, shards: dict[int, IdMap]) -> dict[int, int]:
        layout = self._parts.layout
        numbers = retention.shard_numbers(ids, layout.shard_size, layout.shard_by)
        if len(shards) > SHARDS_KEPT_MAX:
            shards.clear()
        wanted = sorted(set(numbers.tolist()) - shards.keys())
        shards.update(zip(wanted, self._parts.each(self.shard, wanted), strict=True))
        sizes: dict[int, int] = {}
        for number in set(numbers.tolist()):
            asked = ids[numbers == number]
            known = shards[number].positions_of(asked) >= 0
            sizes.update(zip(asked[known].tolist(), shards[number].get_many(asked[known], 0).tolist(), strict=True))
        return sizes

    def _bound(self, cut: Cut) -> PlacedCut | None:
        columns = as_cut(cut)
        return self.place_valid(columns) if len(columns) else None


def as_cut(cut: Cut) -> IdMap:
    """A cut as columns.

    Raises:
        InvalidArgument: an invalid id, or a number out of bounds; below 0 only -1 is an offset, of a future segment.
    """
    return checked_numbers("offsets of a cut", cut, cuts.FUTURE)


def _offsets(cut: PlacedCut | None) -> IdMap:
    return NOTHING if cut is None else cut.cut
