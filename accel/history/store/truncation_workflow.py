"""Truncating a stream, in steps that can each be repeated, by the same process or another one.

    take        the plan: the new cut and the previous cut of the stream's head; state TRUNCATING     see `ownership`
    begin       the record contains the new cut and the previous cut
    delete      the host deletes data before the cut, and the segments that end there, a chunk of history at a time
    complete    the record says that the data is deleted
    end         state ACTIVE

The record contains the id of the truncation that wrote it: a late truncation finds another id, and changes nothing.

The plan refuses a cut beyond the end of a segment. Ends never fall, so a planned truncation can be carried out,
unless the bucket was restored, or the host did not know better. Before it writes the record and deletes data, the
truncation therefore asks once more, and is given up if the cut is beyond an end: the record is as before, and the state
ACTIVE. A record of such a truncation is put back.

Calls: to find both cuts, twice to find the segments between them and the ends (see `cut_reading`), and 10. Memory: one
chunk.

Source: PDP-32.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from accel.errors import InvalidArgument, NotInHistory, OperationNotAllowed, PositionBeyondEnd
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.requests import TruncationPlan, WorkflowRequest
from accel.history.rules.retention import (
    TruncationRecord,
    after_truncation,
    after_truncation_by,
    place_truncation,
    refuse_truncation,
    with_planned_truncation,
    with_truncation,
    without_truncation,
)
from accel.history.rules.segments import Segments
from accel.history.rules.states import StreamState
from accel.history.store.cut_reading import CutReading
from accel.history.store.ownership import Ownership
from accel.history.store.parts import StreamParts
from loaders.tables import TypedKey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class TruncationWorkflow:
    """Truncates one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        cuts: finds cuts.
        ownership: takes the stream.
    """

    _parts: StreamParts
    _cuts: CutReading
    _ownership: Ownership

    @property
    def _key(self) -> TypedKey[TruncationRecord]:
        return self._parts.keys.truncation()

    def what_ends(self, last: PlacedCut | None, wanted: PlacedCut) -> tuple[int, int]:
        """Number of the segments that end between two cuts, and the size of the stream between the cuts.

        Segments are not kept in memory: there may be millions of them.
        """
        count = 0

        def counted() -> Iterator[Segments]:
            nonlocal count
            for part in self._cuts.between(last, wanted):
                count += int(np.count_nonzero(wanted.cut.positions_of(part.ids) < 0))
                yield part

        size = self._cuts.size_of(counted(), last, wanted)
        return count, size

    def run(self, cut: Mapping[int, int]) -> TruncationRecord:
        """Truncate the stream, or finish the same truncation that is under way. After a crash, repeat the same call.

        Returns:
            The record of the completed truncation; the stored record if the stream begins at the cut already, since
            the truncation was carried out before.

        Raises:
            InvalidArgument: the cut is not valid, or is before the stream's beginning.
            PositionBeyondEnd: the cut is after the end of a segment.
            OperationNotAllowed: another workflow, or another truncation, has the stream.
            IllegalState: the stream is sealed. With each of these errors, the stream is unchanged.
        """
        self._parts.require_host("truncate")

        def adopt(running: WorkflowRequest) -> None:
            found = running.plan_of(TruncationPlan).record.cut
            if found != cut:
                raise OperationNotAllowed(f"expected no other truncation, found a truncation to {found} under way")

        taken = self._ownership.take(StreamState.TRUNCATING, lambda workflow_id: self._plan(cut, workflow_id), adopt)
        return self._key.get().value if taken is None else self.carry_out(taken)

    def carry_out(self, request: WorkflowRequest) -> TruncationRecord:
        """Do all steps of a truncation that has the stream; return its record. May be repeated at any time.

        Raises:
            PositionBeyondEnd: the cut is after the end of a segment; the truncation was given up.
        """
        plan, workflow_id = request.plan_of(TruncationPlan), request.workflow_id
        seen = self._key.get()
        if seen.value.workflow_id == plan.base_id or (seen.value.workflow_id == workflow_id and seen.value.updating):
            try:
                self._cuts.refuse_beyond(plan.record.cut)
            except PositionBeyondEnd:
                self._give_up(plan, workflow_id)
                self._ownership.end(request)
                raise
        stored = self._key.change(
            lambda now: None if now is None else with_planned_truncation(now, plan.record, plan.base_id), seen=seen
        ).value
        if stored.workflow_id == workflow_id and stored.updating:
            self._parts.host.truncate(self._parts.name, plan.record.cut)
            for part in self._cuts.being_deleted(plan.record):
                self._parts.host.delete(self._parts.name, part.ids)
            self._key.change(lambda now: None if now is None else after_truncation_by(now, workflow_id))
        self._ownership.end(request)
        return after_truncation(plan.record) or plan.record

    def finish(self, request: WorkflowRequest) -> bool:
        """As `carry_out`, for a process that did not ask for it; False if the truncation was given up."""
        try:
            self.carry_out(request)
        except PositionBeyondEnd as error:
            log.warning("a truncation was given up: %s", error)
            return False
        return True

    def finish_running(self) -> bool:
        """Finish a truncation that has the stream; return whether one was carried out.

        Raises:
            OperationNotAllowed: another workflow has the stream.
            HostMissing: there is no host; nothing was changed.
        """
        self._parts.require_host("truncate")
        taken = self._ownership.take(StreamState.TRUNCATING, lambda _: None, lambda running: running)
        return taken is not None and self.finish(taken)

    # Inside

    def _give_up(self, plan: TruncationPlan, workflow_id: UUID) -> None:
        record = plan.record
        last = PlacedCut(record.last_cut, record.last_span) if len(record.last_cut) else None
        _, size = self.what_ends(last, PlacedCut(record.cut, record.span))
        self._key.change(lambda now: None if now is None else without_truncation(now, workflow_id, plan.base_id, size))

    def _plan(self, cut: Mapping[int, int], workflow_id: UUID) -> TruncationPlan | None:
        now = self._key.get().value
        if len(now.cut) and now.cut == cut:
            return None
        return TruncationPlan(self._begun(now, cut, workflow_id), now.workflow_id)

    def _begun(self, now: TruncationRecord, cut: Mapping[int, int], workflow_id: UUID) -> TruncationRecord:
        if now.updating:
            raise InvalidArgument(f"expected no truncation under way, found one to {now.cut}")
        wanted = self._placed(cut)
        refuse_truncation(now, wanted, StreamState.ACTIVE, is_valid=self._cuts.is_valid_place(wanted))
        self._cuts.refuse_beyond(cut)
        count, size = self.what_ends(place_truncation(now), wanted)
        return with_truncation(now, wanted, count, size, workflow_id)

    def _placed(self, cut: Mapping[int, int]) -> PlacedCut:
        try:
            return self._cuts.place(cut)
        except NotInHistory as error:
            raise InvalidArgument(f"expected a cut of this stream: {error}") from error
