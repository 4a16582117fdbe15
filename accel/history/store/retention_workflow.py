"""Recorded cuts of a stream, and what follows from them: where it may be truncated.

A run of retention records a cut at the stream's end, finds the recorded cut that keeps what shall be kept, truncates
the stream there, and deletes the cuts before it. Deleting them may be cut short: what is left does no harm.

Source: PDP-32; which cut it is: `accel.history.retention`.
"""

from __future__ import annotations

from collections.abc import Mapping

from accel.errors import NotInHistory
from accel.history.cuts import PlacedCut, is_equal_or_after
from accel.history.id_columns import IdMap
from accel.history.records import RetentionEntry, RetentionSet, StreamCutRecord
from accel.history.retention import (
    find_by_size,
    find_by_time,
    reference_before,
    truncation_point,
    up_to,
    with_entry,
    without_up_to,
)
from accel.history.states import StreamState
from accel.history.store.cut_reading import CutReading, as_cut
from accel.history.store.epoch_reading import EpochReading
from accel.history.store.parts import StreamParts
from accel.history.store.truncation_workflow import TruncationWorkflow
from accel.history.truncation import placed


class RetentionWorkflow:
    """Recorded cuts of one stream. Threads: any.

    Args:
        parts: of the stream.
        epochs: reads its epochs.
        cuts: finds cuts.
        truncations: truncates it.
    """

    def __init__(
        self, parts: StreamParts, epochs: EpochReading, cuts: CutReading, truncations: TruncationWorkflow
    ) -> None:
        self._parts = parts
        self._cells = parts.cells
        self._epochs = epochs
        self._cuts = cuts
        self._truncations = truncations

    def read(self) -> RetentionSet:
        """When cuts were recorded, and the size before each. 1 call."""
        return self._cells.retention().get().value

    def cut(self, recording_time_ms: int) -> StreamCutRecord:
        """A recorded cut. 1 call.

        Raises:
            NotInHistory: there is none of that time.
        """
        seen = self._cells.cut(recording_time_ms).read()
        if seen is None:
            raise NotInHistory(f"expected a cut recorded at {recording_time_ms}, found none")
        return seen.value

    def add(self, recording_time_ms: int, size: int, cut: Mapping[int, int]) -> RetentionSet:
        """Record a cut; not if one was recorded at that time or later. 3 calls.

        Args:
            recording_time_ms: milliseconds since 1970.
            size: how much lies before it, in the stream's offset unit.
            cut: offsets by segment id.
        """
        record = self._cells.cut(recording_time_ms).create(StreamCutRecord(recording_time_ms, size, as_cut(cut))).value
        return self._cells.retention().change(lambda now: with_entry(now or RetentionSet(), record.entry)).value

    def delete_up_to(self, recording_time_ms: int) -> RetentionSet:
        """Delete the cuts that were recorded at or before a time. 2 calls, 1 a cut."""
        gone = up_to(self.read(), recording_time_ms).times_ms.tolist()
        self._parts.each(lambda each: self._cells.cut(each).erase(), gone)

        def shorter(now: RetentionSet | None) -> RetentionSet | None:
            return None if now is None else without_up_to(now, recording_time_ms)

        return self._cells.retention().change(shorter).value

    def find_by_time(self, time_ms: int) -> RetentionEntry | None:
        """The last cut that was recorded at or before a time. 1 call."""
        return find_by_time(self.read(), time_ms)

    def find_by_size(self, size: int) -> RetentionEntry | None:
        """The cut with the greatest size before it that is not above one. 1 call."""
        return find_by_size(self.read(), size)

    def reference_before(self, cut: Mapping[int, int]) -> RetentionEntry | None:
        """The last recorded cut that a cut is equal to or after. O(log n) recorded cuts are read."""
        here = self._cuts.place(cut)
        return reference_before(self.read(), lambda entry: is_equal_or_after(here, self._place_of(entry)))

    def run(self, now_ms: int | None = None, read_by_all: Mapping[int, int] | None = None) -> RetentionEntry | None:
        """Record a cut at the stream's end, truncate the stream as its owner wants, and delete cuts before that.

        Calls: O(epochs since the last recorded cut / 1,000) chunks and shards, and those of a truncation.

        Args:
            now_ms: milliseconds since 1970; None = now.
            read_by_all: the cut up to which all readers have read, if there are some to wait for.

        Returns:
            The recorded cut to which the stream was truncated; None if it was not. One that is sealed, or about to be,
            is left alone.

        Raises:
            OperationNotAllowed: another workflow has the stream.
        """
        policy = self._cells.configuration().get().value.configuration.retention
        state = self._parts.state().value
        if policy is None or state in (StreamState.SEALING, StreamState.SEALED):
            return None
        if state is StreamState.TRUNCATING or self._epochs.truncation().updating:
            self._truncations.carry_out()  # the last run may have died in the middle of it
        time_ms = self._parts.store.now_ms() if now_ms is None else now_ms
        tail, size = self._tail()
        known = self.add(time_ms, size, tail)
        read = None if read_by_all is None else self.reference_before(read_by_all)
        point = truncation_point(known, policy, time_ms, size, read, has_readers=read_by_all is not None)
        if point is None:
            return None
        is_truncated = self._truncate(point)
        self.delete_up_to(point.recording_time_ms - 1)
        return point if is_truncated else None

    def _truncate(self, point: RetentionEntry) -> bool:
        here = self._place_of(point)
        before = placed(self._epochs.truncation())
        if before is not None and (before.cut == here.cut or not is_equal_or_after(here, before)):
            return False
        self._truncations.run(here.cut)
        return True

    def _tail(self) -> tuple[IdMap, int]:
        active = self._epochs.active_segments()
        tails = self._parts.host.tails(self._parts.name, active.ids)
        cut = IdMap.of({each: tails.get(each, 0) for each in active.ids.tolist()})
        recorded = self.read()
        if not len(recorded):
            return cut, self._cuts.size_till(cut)
        last = self.cut(recorded[-1].recording_time_ms)
        return cut, self._cuts.size_till(cut, last.cut, last.recorded_size)

    def _place_of(self, entry: RetentionEntry) -> PlacedCut:
        return self._cuts.place(self.cut(entry.recording_time_ms).cut)
