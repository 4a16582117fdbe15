"""Workflows of a stream: which of them has the stream, and what each does.

**Ownership.** A workflow takes the stream, and releases it at its end.

S3 makes a write conditional on the version of its own key, not of other keys. So the key of the stream's state decides
which workflow has the stream: it holds the state and the workflow's id.

    plan    read the state (ACTIVE, version v), then the records that the plan depends on; refuse an invalid plan
    ask     write the request, a key named by a new id: the whole plan, and v                            create
    take    state := (SCALING, id)                                                        compare-and-set on v
    steps   the steps of the plan; any process that finds the id in the state carries out the same plan
    end     state := ACTIVE                                    compare-and-set on a version that holds the id
    erase   the request

Consequences:

- The plan is valid when it is carried out. Every workflow changes the state's version; if version v is still current
  when the stream is taken, no workflow has run since the plan was drawn up.
- A refused workflow has changed nothing. Until the state is taken, only the request is written, which has no effect.
- A process that finds the stream taken helps, or leaves it. `recover` reads the id, reads the request, and carries the
  plan out, perhaps beside the process that began the workflow.
- A process that is an hour late can end only its own workflow: the state then holds another id, or none. Its steps have
  no effect, since each is one of these (tests/accel/history/store/writes.md):
  created if absent, with content that follows from the plan and from records that never change;
  monotonic (the current epoch, the chunk of history, the index of times);
  a compare-and-set on a record that names its last workflow (truncation, configuration);
  or a call that the host accepts twice.
- The request is read **before** the state when it is to be erased as spent, and **after** it when it is to be carried
  out. If the state names a workflow without a request, the workflow has ended meanwhile: the state is read again.

A request without a state, or a state without a request, never outlives `recover` (`Recovering`).

**A scale**, in steps that can each be repeated, by the same process or another one.

    1 take                 the plan is the transition; state SCALING
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

**A commit**, in steps that can each be repeated, by the same process or another one.

    take               the plan: which transactions, and whether the commit rolls; state COMMITTING_TXN, or still
                       SEALING if the stream is being sealed
    merge              the transactions are removed from the order of commits; the host appends their data to the
                       segments of the epoch in the plan, and the start offsets are stored in their records. Those that
                       are merged, have ended or were given up since are left out. Or, if the stream has other segments
                       than when the transactions began:

      create duplicates        the host creates the segments of T = A + 1 and N = A + 2, merges the data into T's, and
                               seals those of T and A
      create_duplicate_epochs  records of T and N, which begin after the last events of A and T; sizes of T
      complete_rolling         sizes of A, the current epoch becomes N

    complete           record the end of each transaction, remove its entry, drop tables of older epochs
    end                state ACTIVE, or SEALING

A transaction is recorded as committed only when its data can be read. `accel.history.rules.transactions` defines T and
N.

**A truncation**, in steps that can each be repeated, by the same process or another one.

    take        the plan: the new cut and the previous cut of the stream's head; state TRUNCATING
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

Source: docs/explanation/history.md, "Workflow ownership"; PDP-32 and the upstream system; the order of the checks of a
scale: `accel.history.rules.scaling`. tests/accel/history/store/test_interleavings.py checks the argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np

from accel.errors import (
    IllegalState,
    InvalidArgument,
    NotInHistory,
    OperationNotAllowed,
    PositionBeyondEnd,
    ScalePrecondition,
    Sought,
)
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.epochs import NO_TRANSITION, EpochRecord, EpochTransition
from accel.history.rules.requests import (
    CommitPlan,
    Plan,
    RequestStatus,
    ScalePlan,
    TruncationPlan,
    WorkflowRequest,
    is_spent,
)
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
from accel.history.rules.segments import Segments
from accel.history.rules.states import StreamState, StreamStatus, refuse_uncreated, with_workflow, without_workflow
from accel.history.rules.transactions import (
    NO_COMMIT,
    CommittingTransactions,
    TransactionStatus,
    is_rolled,
    needs_rolling,
    repeat_active_epoch,
    repeat_transaction_epoch,
    with_rolling,
)
from accel.history.rules.values import checked_integer, checked_time
from accel.history.store.cut_reading import CutReading
from accel.history.store.epoch_store import EpochReading, EpochWriting
from accel.history.store.parts import StreamParts
from accel.history.store.transaction_store import TransactionStore
from loaders.errors import DataConflict, StoreError
from loaders.tables import TypedKey, Versioned

PlanMaker: TypeAlias = Callable[[UUID], Plan | None]
"""Draws up the plan of a workflow with this id; None if there is nothing to do. Raises if the workflow is refused."""

Adopt: TypeAlias = Callable[[WorkflowRequest], object]
"""Checks a workflow of the same kind that has the stream; raises unless the caller may carry it out instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Ownership:
    """Takes one stream for workflows, and releases it. Threads and processes: any.

    Args:
        parts: the parts of the stream.
    """

    _parts: StreamParts

    def take(self, workflow: StreamState, plan: PlanMaker, adopt: Adopt) -> WorkflowRequest | None:
        """Take the stream for a workflow, or return one of its kind that is under way, to be carried out instead.

        Calls: 3, and those of the plan; 3 more for each workflow that ran meanwhile.

        Args:
            workflow: the state of the stream during the workflow.
            plan: draws up the plan of the workflow.
            adopt: decides about a workflow of this kind that is under way.

        Returns:
            The request to carry out and to `end`; None if there is nothing to do.

        Raises:
            OperationNotAllowed: another workflow has the stream, or other workflows took it first in all attempts. The
                stream was not changed.
            AmbiguousWrite: the reply was lost, and later writes hide which workflow had the stream.
            AccelError: as `plan` and `adopt`; the stream was not changed.
        """
        for _ in self._parts.store.backoff.attempts():
            versioned = self._parts.status()
            running = self.running(versioned)
            if running is not None and running.workflow is workflow:
                adopt(running)
                return running
            if versioned.value.workflow_id is None or running is not None:
                workflow_id = self._parts.store.drawn_id()
                status = with_workflow(versioned.value, workflow, workflow_id)
                planned = plan(workflow_id)
                if planned is None:
                    return None
                request = WorkflowRequest(workflow_id, planned, base=versioned.version.nonce)
                if self._is_taken(request, status, versioned):
                    return request
        raise self._others_first()

    def running(self, versioned: Versioned[StreamStatus]) -> WorkflowRequest | None:
        """The workflow in a status; None if it has none, or one that has ended since. 1 call if it has one."""
        workflow_id = versioned.value.workflow_id
        return None if workflow_id is None else self.read(workflow_id)

    def read(self, workflow_id: UUID) -> WorkflowRequest | None:
        """A request; None if there is none, or if it has ended and is not kept. 1 call."""
        stored = self._parts.keys.request(workflow_id).read()
        return None if stored is None else stored.value

    def end(self, request: WorkflowRequest) -> None:
        """Release the stream, if this workflow still has it. 3 calls; 2 more for a request that is kept."""
        key = self._parts.keys.request(request.workflow_id)
        if request.is_kept:
            key.change(lambda now: None if now is None or now.has_ended else replace(now, status=RequestStatus.DONE))
        self._parts.keys.state().change(lambda now: None if now is None else without_workflow(now, request.workflow_id))
        if not request.is_kept:
            with suppress(StoreError):  # the stream is released; `recover` erases a remaining request
                key.erase()

    # Requests that are carried out by another process

    def ask(self, plan: Plan) -> WorkflowRequest:
        """Store a request for a process with a host. 1 call."""
        request = WorkflowRequest(self._parts.store.drawn_id(), plan, RequestStatus.WAITING, is_kept=True)
        return self._parts.keys.request(request.workflow_id).create_if_absent(request).value

    def claim(self, workflow_id: UUID, plan: Callable[[WorkflowRequest], Plan | str]) -> tuple[WorkflowRequest, bool]:
        """Take the stream for a stored request, unless the request has ended. 4 calls, and those of the plan.

        Two processes may claim a request at once. Both draw up the same plan if they read the same version of the
        status; otherwise the process that read the older version cannot take the stream any more.

        Args:
            workflow_id: the id of the request.
            plan: draws up its plan from the present state of the stream; a text refuses the request for good.

        Returns:
            The request, and whether it has the stream and is to be carried out.

        Raises:
            NotInHistory: there is no such request.
            OperationNotAllowed: another workflow has the stream.
        """
        key = self._parts.keys.request(workflow_id)
        for _ in self._parts.store.backoff.attempts():
            stored = key.read()
            if stored is None:
                found = f"none with id {workflow_id}"
                raise NotInHistory(f"expected a request of this stream, found {found}", Sought.REQUEST)
            if stored.value.has_ended:
                return stored.value, False
            versioned = self._parts.status()
            if versioned.value.workflow_id == workflow_id:
                # Read again: the request was claimed between both reads, perhaps with another plan.
                claimed = self.read(workflow_id)
                return (stored.value, False) if claimed is None else (claimed, not claimed.has_ended)
            wanted = self._claimed(versioned.value, stored.value)
            if isinstance(wanted, str):
                stored = self._planned(stored, wanted, versioned.version.nonce)
            elif stored.value.base != versioned.version.nonce:
                stored = self._planned(stored, plan(stored.value), versioned.version.nonce)
            if stored is not None and stored.value.has_ended:
                return stored.value, False
            if stored is not None and not isinstance(wanted, str) and self._is_written(wanted, versioned):
                return stored.value, True
        raise self._others_first()

    def erase_spent(self, workflow_id: UUID) -> bool:
        """Erase a request that can have no effect any more; return whether it was erased. 3 calls at most."""
        stored = self.read(workflow_id)
        if stored is None:
            return False
        now = self._parts.status()  # read after the request: see `is_spent`
        if stored.is_kept or not is_spent(stored, now.version.nonce, now.value.workflow_id):
            return False
        self._parts.keys.request(workflow_id).erase()
        return True

    # Inside

    def _others_first(self) -> OperationNotAllowed:
        attempts = self._parts.store.backoff.attempts_max
        return OperationNotAllowed(f"expected to take the stream, found other workflows first in {attempts} attempts")

    def _claimed(self, now: StreamStatus, request: WorkflowRequest) -> StreamStatus | str:
        """The status to write for a stored request; a text, the reason of its refusal, if the stream is sealed."""
        try:
            return with_workflow(now, request.workflow, request.workflow_id)
        except IllegalState as error:
            return str(error)

    def _planned(
        self, stored: Versioned[WorkflowRequest], plan: Plan | str, base: bytes
    ) -> Versioned[WorkflowRequest] | None:
        """Write the plan or the refusal into a request; return None if another process wrote the request first."""
        if isinstance(plan, str):
            wanted = replace(stored.value, status=RequestStatus.REFUSED, reason=plan)
        else:
            wanted = replace(stored.value, plan=plan, status=RequestStatus.CLAIMED, base=base)
        try:
            return self._parts.keys.request(stored.value.workflow_id).write(wanted, stored)
        except DataConflict:
            return None

    def _is_taken(self, request: WorkflowRequest, status: StreamStatus, versioned: Versioned[StreamStatus]) -> bool:
        key = self._parts.keys.request(request.workflow_id)
        key.create_if_absent(request)
        if self._is_written(status, versioned):
            return True
        # Only after a certain loss: a write with an unknown result may still take the stream for this request.
        with suppress(StoreError):  # `recover` erases it
            key.erase()
        return False

    def _is_written(self, status: StreamStatus, versioned: Versioned[StreamStatus]) -> bool:
        try:
            self._parts.keys.state().write(status, versioned)
        except DataConflict:
            return False
        return True


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


@dataclass(frozen=True, slots=True, eq=False)
class CommitWorkflow:
    """Commits transactions of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        epochs: reads its epochs.
        writing: writes its epochs.
        transactions: its transactions.
        ownership: takes the stream.
    """

    _parts: StreamParts
    _epochs: EpochReading
    _writing: EpochWriting
    _transactions: TransactionStore
    _ownership: Ownership

    def create_duplicate_epochs(
        self, committing: CommittingTransactions, time_ms: int, sizes: Mapping[int, int]
    ) -> None:
        """Write the records of both epochs of a rolling commit, and sizes, unless the stream has rolled already.

        The segments of both epochs are sealed, so that their last events are known.

        Args:
            committing: the commit, which rolls.
            time_ms: milliseconds since 1970; ignored if another process has written the records.
            sizes: sizes of the segments of the first epoch, by id; a missing segment has size 0.
        """
        time_ms = checked_time("the time of a commit", time_ms)
        if is_rolled(committing, self._epochs.current()):
            return
        active = self._epochs.epoch(_active_epoch(committing))
        ended = self._writing.last_events(active.segments.ids)
        wanted = repeat_transaction_epoch(active, self._epochs.epoch(committing.epoch), time_ms, ended)
        merged = self._writing.write(wanted, active)
        ended = self._writing.last_events(merged.segments.ids)
        again = self._writing.write(repeat_active_epoch(active, merged, ended), merged)
        self._writing.seal_epochs(merged, active)
        self._writing.seal_epochs(again, merged)
        self._writing.write_sizes({segment_id: sizes.get(segment_id, 0) for segment_id in merged.segments.ids.tolist()})

    def complete_rolling(self, committing: CommittingTransactions, sizes: Mapping[int, int]) -> None:
        """Make the second epoch of a rolling commit the current one.

        Args:
            committing: the commit, which rolls.
            sizes: sizes of the segments that were active before, by id; a missing segment has size 0.
        """
        active = self._epochs.epoch(_active_epoch(committing))
        self._writing.write_sizes({segment_id: sizes.get(segment_id, 0) for segment_id in active.segments.ids.tolist()})
        self._writing.advance(self._epochs.epoch(active.epoch + 2))

    def run(self, time_ms: int | None = None, limit: int | None = None) -> CommittingTransactions:
        """Commit the next transactions, or finish the commit that is under way. After a crash, repeat the same call.

        Args:
            time_ms: milliseconds since 1970; None = now.
            limit: the maximum number of transactions; None = 1,000.

        Returns:
            The commit; empty if there was nothing to commit.

        Raises:
            OperationNotAllowed: another workflow has the stream; nothing was changed.
            InvalidArgument: a limit out of bounds.
        """
        self._parts.require_host("commit transactions")
        now_ms = self._parts.store.time_ms("the time of a commit", time_ms)
        if limit is not None:
            limit = checked_integer("a limit", limit, 1)
        try:
            taken = self._ownership.take(
                StreamState.COMMITTING_TXN, lambda _: self._plan(now_ms, limit), lambda running: running
            )
        except OperationNotAllowed:
            is_sealed = self._parts.status().value.state is StreamState.SEALED
            if not is_sealed or self._plan(now_ms, limit) is not None:
                raise
            return NO_COMMIT
        return NO_COMMIT if taken is None else self.carry_out(taken)

    def carry_out(self, request: WorkflowRequest) -> CommittingTransactions:
        """Carry out all steps of a commit that has the stream; return the commit. May be repeated at any time."""
        plan = request.plan_of(CommitPlan)
        committing = plan.committing
        self._transactions.order.remove(committing.transaction_ids)
        if committing.is_rolling:
            self._roll(committing, plan.time_ms)
        else:
            self._merge(self._epochs.epoch(plan.into_epoch), committing)
        self._end_all(committing)
        self._ownership.end(request)
        self._writing.merge_times_after()
        return committing

    def _end_all(self, committing: CommittingTransactions) -> None:
        for transaction_id in committing.transaction_ids:
            with suppress(NotInHistory):  # it ended so long ago that its end is not stored any more
                self._transactions.end(transaction_id)
        self._transactions.drop_epochs()

    def _plan(self, time_ms: int, limit: int | None) -> CommitPlan | None:
        committing = self._transactions.order.next_commit(self._transactions.read_many, limit)
        if committing.is_empty:
            return None
        current = self._epochs.current()
        if not committing.is_rolling and needs_rolling(current, self._epochs.epoch(committing.epoch)):
            committing = with_rolling(committing, current.epoch) or committing
        return CommitPlan(committing, current.epoch, time_ms)

    def _roll(self, committing: CommittingTransactions, time_ms: int) -> None:
        host, name = self._parts.host, self._parts.name
        active = self._epochs.epoch(_active_epoch(committing))
        if not is_rolled(committing, self._epochs.current()):
            merged, again = self._duplicates(committing, active, time_ms)
            self._writing.create_segments(merged)
            self._writing.create_segments(again)
            self._merge(merged, committing)
            merged_sizes = host.seal(name, merged.segments.ids)
            sizes = host.seal(name, active.segments.ids)
            self.create_duplicate_epochs(committing, time_ms, merged_sizes)
        else:
            sizes = host.seal(name, active.segments.ids)
        self.complete_rolling(committing, sizes)

    def _merge(self, epoch: EpochRecord, committing: CommittingTransactions) -> None:
        # Not those that ended, are merged, or were given up since the plan was drawn up.
        records = self._transactions.read_many(committing.transaction_ids)
        waiting = [
            transaction_id
            for transaction_id, record in records.items()
            if record.status is TransactionStatus.COMMITTING and not record.is_merged
        ]
        offsets = self._parts.host.merge(self._parts.name, epoch.segments.ids, waiting) if waiting else None
        # Stored at once: a process that continues after a crash does not merge again if the stream has rolled.
        self._transactions.record_offsets(offsets or {})

    def _duplicates(
        self, committing: CommittingTransactions, active: EpochRecord, time_ms: int
    ) -> tuple[EpochRecord, EpochRecord]:
        # Only segments and ids are used here; they do not depend on the recorded times.
        merged = repeat_transaction_epoch(active, self._epochs.epoch(committing.epoch), time_ms)
        return merged, repeat_active_epoch(active, merged)


def _active_epoch(committing: CommittingTransactions) -> int:
    if committing.active_epoch is None:
        raise ValueError(f"expected a commit that rolls, found {committing}")
    return committing.active_epoch


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
