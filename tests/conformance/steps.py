"""Workflows step by step, as PDP-32 describes them: a caller stores a plan in a key, and carries out each step.

Recorded cases call these steps. They are made of the product's rules, and of what its workflows write epochs with; the
product itself has one way of carrying out a workflow (`accel.history.store.workflows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from accel.errors import IllegalState, InvalidArgument, NotInHistory, ScalePrecondition
from accel.history import records as forms
from accel.history.rules.epochs import NO_TRANSITION, EpochTransition
from accel.history.rules.requests import CommitPlan, TruncationPlan, WorkflowRequest
from accel.history.rules.retention import (
    TruncationRecord,
    after_truncation,
    place_truncation,
    refuse_truncation,
    with_planned_truncation,
    with_truncation,
)
from accel.history.rules.scaling import ScaleRequest, ScaleVerdict, after_start, is_outdated, scaled_epoch, with_request
from accel.history.rules.states import ACTIVE, StreamState, StreamStatus, after_step, refuse_sealed_truncation
from accel.history.rules.transactions import NO_COMMIT, CommittingTransactions, needs_rolling, with_rolling
from accel.history.store import Stream
from accel.history.store.workflows import PlanMaker
from loaders.tables import TypedKey, Versioned


def set_state(stream: Stream, wanted: StreamState) -> None:
    """Move a stream to a state, as if a workflow without an id had it.

    Raises:
        OperationNotAllowed: the step is not allowed.
        DataNotFound: there is no such stream.
    """
    stream.parts.status()
    stream.parts.keys.state().change(lambda now: None if now is None else after_step(now, wanted))


def create(stream: Stream) -> None:
    """Create the keys in which plans are stored."""
    scale_key(stream).create_if_absent(NO_TRANSITION)
    commit_key(stream).create_if_absent(NO_COMMIT)


# A scale


def scale_key(stream: Stream) -> TypedKey[EpochTransition]:
    return TypedKey(stream.parts.keys.metadata, "epochTransition", forms.EPOCH_TRANSITION)


def submit_scale(
    stream: Stream, request: ScaleRequest, versioned: Versioned[EpochTransition] | None = None
) -> Versioned[EpochTransition]:
    """Store a transition; a repeated request returns the same one.

    Raises:
        DataConflict: another version is stored than the caller read.
        AccelError: as `with_request`.
    """
    key, state = scale_key(stream), stream.parts.state()
    versioned = versioned or key.get()
    current = stream.workflows.epochs.current()
    least = stream.workflows.updating.read().configuration.min_segments
    try:
        transition = with_request(request, state, versioned.value, current, least)
    except ScalePrecondition:
        if is_outdated(request, current):
            key.write(NO_TRANSITION, versioned)  # other requests for the old epoch then fail on its version
        raise
    return versioned if transition == versioned.value else key.write(transition, versioned)


def start_scale(
    stream: Stream, versioned: Versioned[EpochTransition], *, is_manual: bool
) -> Versioned[EpochTransition]:
    """The transition to carry out, adapted if duplicates replaced its segments since.

    Raises:
        IllegalState: the stream has another epoch by now; transition and state are reset.
    """
    epochs = stream.workflows.epochs
    verdict, transition = after_start(versioned.value, epochs.current(), epochs.epoch, is_manual=is_manual)
    if verdict is ScaleVerdict.MIGRATED:
        return scale_key(stream).write(transition, versioned)
    if verdict is ScaleVerdict.DROPPED:
        complete_scale(stream, versioned.value)
        scaling = StreamStatus(StreamState.SCALING)
        stream.parts.keys.state().change(lambda now: ACTIVE if now == scaling else None)
    refuse_dropped(verdict, versioned.value)
    return versioned


def create_new_epoch(stream: Stream, transition: EpochTransition) -> None:
    """Write the new epoch, before the old segments are sealed; nothing if it is current already."""
    current, writing = stream.workflows.epochs.current(), stream.workflows.writing
    if current.epoch < transition.new_epoch:
        record = writing.write(scaled_epoch(transition, current), current)
        writing.seal_epochs(record, current)


def complete_scale(stream: Stream, transition: EpochTransition) -> None:
    """Empty the stored transition; an empty one is written again, so that who read it before finds another version."""
    scale_key(stream).change(
        lambda now: NO_TRANSITION if now is not None and (now.is_empty or now == transition) else None
    )


def reset_scale(stream: Stream) -> None:
    """Drop the stored transition."""
    scale_key(stream).change(lambda now: None if now is not None and now.is_empty else NO_TRANSITION)


def refuse_dropped(verdict: ScaleVerdict, stored: EpochTransition) -> None:
    """Refuse a scale whose epoch is not the current one any more."""
    if verdict is ScaleVerdict.DROPPED:
        raise IllegalState(f"expected a scale of the current epoch, found epoch {stored.active_epoch}: dropped")


# A commit


def commit_key(stream: Stream) -> TypedKey[CommittingTransactions]:
    return TypedKey(stream.parts.keys.metadata, "committingTxns", forms.COMMITTING_TRANSACTIONS)


def start_commit(stream: Stream, limit: int | None = None) -> CommittingTransactions:
    """Store the next commit, unless one is stored; empty if there is nothing to commit."""
    versioned, transactions = commit_key(stream).get(), stream.workflows.transactions
    if versioned.value.is_empty:
        committing = transactions.order.next_commit(transactions.read_many, limit)
        if committing.is_empty:
            return committing
        versioned = commit_key(stream).write(committing, versioned)
    transactions.order.remove(versioned.value.transaction_ids)
    return versioned.value


def start_rolling(stream: Stream, active_epoch: int) -> None:
    """Store the epoch from which the commit rolls.

    Raises:
        IllegalState: no commit is under way, or it rolls from another epoch.
    """
    commit_key(stream).change(lambda now: with_rolling(now or NO_COMMIT, active_epoch))


def complete_commit(stream: Stream) -> None:
    """End all transactions of the stored commit, and empty its record."""
    committing, transactions = commit_key(stream).get().value, stream.workflows.transactions
    for transaction_id in committing.transaction_ids:
        with suppress(NotInHistory):
            transactions.end(transaction_id)
    transactions.drop_epochs()
    ended = ((), committing.transaction_ids)
    commit_key(stream).change(lambda now: NO_COMMIT if now is not None and now.transaction_ids in ended else None)


def finish_commit(stream: Stream, time_ms: int) -> CommittingTransactions | None:
    """Let the product's workflow carry out a commit that was started step by step; None if there is none."""
    stored = commit_key(stream).get().value
    if stored.is_empty:
        return None
    epochs = stream.workflows.epochs
    current = epochs.current()
    if not stored.is_rolling and needs_rolling(current, epochs.epoch(stored.epoch)):
        stored = with_rolling(stored, current.epoch) or stored
    plan = CommitPlan(stored, current.epoch, time_ms)
    done = stream.workflows.commits.carry_out(_taken(stream, StreamState.COMMITTING_TXN, lambda _: plan))
    complete_commit(stream)
    return done


# A truncation


def start_truncation(stream: Stream, cut: Mapping[int, int]) -> None:
    """Store a new head.

    Raises:
        IllegalState: the stream is sealed; a truncation that was under way is completed.
        AccelError: as `Stream.truncate`.
    """
    state, key, cuts = stream.parts.state(), stream.parts.keys.truncation(), stream.workflows.cuts
    if state is StreamState.SEALED:
        complete_truncation(stream)
        refuse_sealed_truncation(state)
    versioned = key.get()
    try:
        wanted = cuts.place(cut)
    except NotInHistory as error:
        raise InvalidArgument(f"expected a cut of this stream: {error}") from error
    refuse_truncation(versioned.value, wanted, state, is_valid=cuts.is_valid_place(wanted))
    cuts.refuse_beyond(cut)
    count, size = stream.workflows.truncations.what_ends(place_truncation(versioned.value), wanted)
    key.write(with_truncation(versioned.value, wanted, count, size, stream.parts.store.drawn_id()), versioned)


def complete_truncation(stream: Stream) -> None:
    """Record that the data before the head is deleted."""

    def completed(now: TruncationRecord | None) -> TruncationRecord | None:
        return None if now is None else after_truncation(now)

    stream.parts.keys.truncation().change(completed)


# A process that takes the stream for a workflow of the product, and dies


def begin_scale(stream: Stream, request: ScaleRequest) -> WorkflowRequest:
    scales = stream.workflows.scales
    return _taken(stream, StreamState.SCALING, lambda _: scales._plan(request, is_manual=True))


def begin_commit(stream: Stream, time_ms: int) -> WorkflowRequest:
    commits = stream.workflows.commits
    return _taken(stream, StreamState.COMMITTING_TXN, lambda _: commits._plan(time_ms, None))


def begin_truncation(stream: Stream, cut: Mapping[int, int]) -> WorkflowRequest:
    """It has written its record."""
    truncations = stream.workflows.truncations
    request = _taken(stream, StreamState.TRUNCATING, lambda workflow_id: truncations._plan(cut, workflow_id))
    plan = request.plan_of(TruncationPlan)
    stream.parts.keys.truncation().change(
        lambda now: None if now is None else with_planned_truncation(now, plan.record, plan.base_id)
    )
    return request


def _taken(stream: Stream, workflow: StreamState, plan: PlanMaker) -> WorkflowRequest:
    taken = stream.workflows.ownership.take(workflow, plan, lambda running: running)
    if taken is None:
        raise AssertionError("expected a workflow that has the stream, found none")
    return taken
