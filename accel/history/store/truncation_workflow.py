"""Truncating a stream, in steps that can each be repeated, by the same process or another one.

    start       the record says where the stream begins now, and where it began before
    state       TRUNCATING
    carry out   the host forgets what lies before the cut, and the segments that end there, a chunk of history at a time
    complete    the record says that they are deleted
    state ACTIVE

Calls: those of finding both cuts and twice what lies between them (see `cut_reading`), and 8. Memory: one chunk.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from accel.errors import InvalidArgument, NotInHistory
from accel.history.cuts import PlacedCut
from accel.history.records import TruncationRecord
from accel.history.segments import Segments
from accel.history.states import StreamState
from accel.history.store.cut_reading import CutReading
from accel.history.store.parts import StreamParts
from accel.history.truncation import begun, completed, placed, refuse_sealed_truncation, refuse_truncation


class TruncationWorkflow:
    """Truncates one stream. Threads: any.

    Args:
        parts: of the stream.
        cuts: finds cuts.
    """

    def __init__(self, parts: StreamParts, cuts: CutReading) -> None:
        self._parts = parts
        self._cell = parts.cells.truncation()
        self._cuts = cuts

    def start(self, cut: Mapping[int, int]) -> TruncationRecord:
        """Store where the stream is to begin.

        Raises:
            InvalidArgument: a truncation is under way, the cut is not valid or lies before the last one.
            IllegalState: the stream is sealed; a truncation that was under way is completed.
            DataConflict: another one was begun meanwhile.
        """
        state = self._parts.state().value
        if state is StreamState.SEALED:
            self.complete()
            refuse_sealed_truncation(state)
        seen = self._cell.get()
        if seen.value.updating:
            raise InvalidArgument(f"expected no truncation under way, found one to {seen.value.cut}")
        wanted = self._placed(cut)
        refuse_truncation(seen.value, wanted, state, is_valid=self._cuts.is_valid_place(wanted))
        count, size = self.what_ends(placed(seen.value), wanted)
        return self._cell.write(begun(seen.value, wanted, count, size), seen).value

    def what_ends(self, last: PlacedCut | None, wanted: PlacedCut) -> tuple[int, int]:
        """How many segments end between the cut that the stream begins with and another, and how much lies there.

        Nothing of it is held: between the two may lie millions of segments.
        """
        count = 0

        def counted() -> Iterator[Segments]:
            nonlocal count
            for part in self._cuts.between(last, wanted):
                count += int(np.count_nonzero(wanted.cut.positions_of(part.ids) < 0))
                yield part

        size = self._cuts.size_of(counted(), last, wanted)
        return count, size

    def complete(self) -> TruncationRecord:
        """What was to be deleted is deleted; nothing if no truncation is under way. 2 calls."""
        return self._cell.change(lambda now: None if now is None else completed(now)).value

    def run(self, cut: Mapping[int, int]) -> TruncationRecord:
        """All of it. To be repeated as it is after a crash.

        Raises:
            OperationNotAllowed: another workflow has the stream.
            What `start` raises.
        """
        now = self._cell.get().value
        if not (now.updating and now.cut == cut):
            self.start(cut)
        return self.carry_out()

    def carry_out(self) -> TruncationRecord:
        """Finish a truncation that was started.

        Raises:
            OperationNotAllowed: another workflow has the stream.
        """
        self._parts.set_state(StreamState.TRUNCATING)
        now = self._cell.get().value
        if now.updating:
            self._parts.host.truncate(self._parts.name, now.cut)
            for part in self._cuts.being_deleted(now):
                self._parts.host.delete(self._parts.name, part.ids)
        state = self._parts.state()
        done = self.complete()
        self._parts.back_to_active(state, StreamState.TRUNCATING)
        return done

    def _placed(self, cut: Mapping[int, int]) -> PlacedCut:
        try:
            return self._cuts.place(cut)
        except NotInHistory as error:
            raise InvalidArgument(f"expected a cut of this stream: {error}") from error
