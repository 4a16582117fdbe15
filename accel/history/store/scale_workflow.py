"""Scaling a stream, in steps that can each be repeated, by the same process or another one.

    1 take                 the plan is the transition; state SCALING            see `ownership`
    2 create segments      each is bound to a stream of the object layer; then the host creates them
    3 seal                 the host seals the old segments and returns their sizes
    4 write                records of the new epoch, which begins after their last events
    5 old_segments_sealed  sizes, the current epoch
    6 end                  state ACTIVE

A request may wait for hours, and segments take events until step 3: so the time of the epoch is decided after it.

`run` does all steps. A process without a host stores a request (`ask`), which any process with a host carries out
(`carry_out_request`).

Calls of one scale that seals s segments and creates c: at most 25 + s + c, and 2 for each shard of sizes; also 2 for
each block of ids, 1 if a part of the index of times becomes full, and 2 for each part of a leaf that becomes full.

Source: PDP-32; the order of the checks: `accel.history.rules.scaling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from accel.errors import ScalePrecondition
from accel.history.rules.epochs import NO_TRANSITION, EpochRecord, EpochTransition
from accel.history.rules.requests import RequestStatus, ScalePlan, WorkflowRequest
from accel.history.rules.scaling import (
    ScaleRequest,
    ScaleVerdict,
    after_start,
    needs_look,
    refuse_conflict,
    refuse_crowded,
    scaled_epoch,
    splits_towards,
    was_carried_out,
    with_request,
)
from accel.history.rules.states import StreamState, refuse_uncreated
from accel.history.store.epoch_store import EpochReading, EpochWriting
from accel.history.store.ownership import Ownership
from accel.history.store.parts import StreamParts

SPLITS_MAX: Final = 100
"""Scales of one call that makes a stream reach its minimum; the next call continues."""


@dataclass(frozen=True, slots=True, eq=False)
class ScaleWorkflow:
    """Scales one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        epochs: reads its epochs.
        writing: writes its epochs.
        ownership: takes the stream.
    """

    _parts: StreamParts
    _epochs: EpochReading
    _writing: EpochWriting
    _ownership: Ownership

    def seal(self, transition: EpochTransition) -> Mapping[int, int]:
        """Do step 3; return the sizes of the sealed segments."""
        return self._parts.host.seal(self._parts.name, transition.segments_to_seal.ids)

    def old_segments_sealed(self, transition: EpochTransition, sizes: Mapping[int, int]) -> None:
        """Do step 5.

        Args:
            transition: the transition that is carried out.
            sizes: sizes of the sealed segments, by id; a missing segment has size 0.
        """
        ids = transition.segments_to_seal.ids
        self._writing.write_sizes({segment_id: sizes.get(segment_id, 0) for segment_id in ids.tolist()})
        self._writing.advance(self._epochs.epoch(transition.new_epoch))

    def run(self, request: ScaleRequest, *, is_manual: bool = True) -> EpochRecord:
        """Carry out a scale, or finish the same scale that is under way. After a crash, repeat the same call.

        If this or another process carried the scale out before, the current epoch, its result, is returned.

        Args:
            request: the scale.
            is_manual: whether a person requested it: it then continues with duplicates that replaced its segments.

        Returns:
            The new epoch.

        Raises:
            OperationNotAllowed: another workflow has the stream.
            ScaleConflict: another scale has the stream.
            AccelError: as `accel.history.rules.scaling.with_request`. With each of these errors, the stream is
                unchanged.
        """
        self._parts.require_host("scale")

        def adopt(running: WorkflowRequest) -> None:
            refuse_conflict(request, _transition(running), by_number=is_manual)

        try:
            taken = self._ownership.take(StreamState.SCALING, lambda _: self._plan(request, is_manual=is_manual), adopt)
        except ScalePrecondition:
            current = self._epochs.current()
            if current.epoch > 0 and was_carried_out(request, current, self._epochs.epoch(current.epoch - 1)):
                return current
            raise
        return self._epochs.current() if taken is None else self.carry_out(taken)

    def carry_out(self, request: WorkflowRequest) -> EpochRecord:
        """Do steps 2 to 6 of a scale that has the stream; return the new epoch. May be repeated at any time."""
        transition = _transition(request)
        current = self._epochs.current()
        if current.epoch < transition.new_epoch:
            self._writing.create_segments(scaled_epoch(transition, current))
            sizes = self.seal(transition)
            record = scaled_epoch(transition, current, self._writing.last_events(transition.segments_to_seal.ids))
            self._writing.seal_epochs(self._writing.write(record, current), current)
            self.old_segments_sealed(transition, sizes)
        else:
            self._writing.show(current)  # a process may have died between the current epoch and the index of times
        self._ownership.end(request)
        self._writing.merge_times_after()
        return self._epochs.epoch(transition.new_epoch)

    def reach_minimum(self) -> bool:
        """Split segments if the stream has fewer than its configured minimum; return whether there were splits.

        1 call if the minimum is 1; 2 if the stream has it. A scale is of at most a few hundred segments, so that it
        always fits into its chunk of the history; others follow.

        Raises:
            AccelError: as `run`; another workflow has the stream, or it changed meanwhile: then the next call tries
                again.
        """
        self._parts.require_host("scale")
        is_split, least = False, self._least()
        for _ in range(SPLITS_MAX if least > 1 else 0):
            current = self._epochs.current()
            now_ms, size = self._parts.store.now_ms(), self._parts.layout.chunk_size
            request = splits_towards(least, current, now_ms, size)
            if request is None or self._parts.state() is not StreamState.ACTIVE:
                break
            self.run(request, is_manual=False)
            is_split = True
        return is_split

    # Requests of processes without a host

    def ask(self, request: ScaleRequest, *, is_manual: bool = True) -> WorkflowRequest:
        """Store a request that is valid now; any process with a host carries it out. 5 calls.

        Raises:
            AccelError: as `accel.history.rules.scaling.with_request`; nothing was written.
        """
        state, current = self._parts.state(), self._epochs.current()
        refuse_uncreated(state)
        transition = with_request(request, state, NO_TRANSITION, current, self._least())
        self._refuse_crowded(request, transition.new_epoch)
        return self._ownership.ask(ScalePlan(transition, is_manual=is_manual))

    def carry_out_request(self, workflow_id: UUID) -> WorkflowRequest:
        """Carry out a stored request, unless it has ended; return the request with its new status.

        Raises:
            NotInHistory: there is no such request.
            OperationNotAllowed: another workflow has the stream; the request still waits.
        """
        self._parts.require_host("scale")

        def plan(request: WorkflowRequest) -> ScalePlan | str:
            asked = request.plan_of(ScalePlan)
            stored, current = asked.transition, self._epochs.current()
            verdict, transition = after_start(stored, current, self._epochs.epoch, is_manual=asked.is_manual)
            if verdict in (ScaleVerdict.PROCEED, ScaleVerdict.MIGRATED):
                return replace(asked, transition=transition)
            return f"expected epoch {stored.active_epoch} to scale, found the stream in epoch {current.epoch}"

        request, is_mine = self._ownership.claim(workflow_id, plan)
        if is_mine:
            self.carry_out(request)
            return replace(request, status=RequestStatus.DONE)
        return request

    # Inside

    def _plan(self, request: ScaleRequest, *, is_manual: bool) -> ScalePlan | None:
        current = self._epochs.current()
        transition = with_request(request, StreamState.ACTIVE, NO_TRANSITION, current, self._least())
        self._refuse_crowded(request, transition.new_epoch)
        return ScalePlan(transition, is_manual=is_manual)

    def _least(self) -> int:
        return self._parts.keys.configuration().get().value.configuration.min_segments

    def _refuse_crowded(self, request: ScaleRequest, epoch: int) -> None:
        size = self._parts.layout.chunk_size
        if needs_look(request, size):
            versioned = self._parts.keys.chunk(epoch // size, size).read()
            refuse_crowded(request, epoch, None if versioned is None else versioned.value, size)


def _transition(request: WorkflowRequest) -> EpochTransition:
    return request.plan_of(ScalePlan).transition
