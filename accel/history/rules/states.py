"""Where a stream stands in its life, and which steps lead from where to where.

    UNKNOWN -> CREATING -> ACTIVE <-> SCALING, TRUNCATING, COMMITTING_TXN, UPDATING
                              |
                              +---> SEALING -> SEALED

The state keeps workflows from running into each other: each takes the stream from ACTIVE to its own state and back.
The workflow that has the stream is named beside the state (`StreamStatus`), so that a process which comes late cannot
end the workflow of another one. A stream that is being sealed stays SEALING while it commits transactions: each of
these commits is named there, one after the other.

A state without a name belongs to a workflow that its caller carries out step by step. To stay where one is is always
allowed then.

Source: PDP-35; docs/history.md, "Whose workflow it is".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final
from uuid import UUID

from accel.errors import IllegalState, OperationNotAllowed


@unique
class StreamState(Enum):
    """Where a stream stands."""

    UNKNOWN = "UNKNOWN"
    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    SCALING = "SCALING"
    TRUNCATING = "TRUNCATING"
    COMMITTING_TXN = "COMMITTING_TXN"
    UPDATING = "UPDATING"
    SEALING = "SEALING"
    SEALED = "SEALED"


_BACK_TO_ACTIVE: Final = frozenset({StreamState.ACTIVE})

TRANSITIONS: Final[Mapping[StreamState, frozenset[StreamState]]] = {
    StreamState.UNKNOWN: frozenset({StreamState.CREATING}),
    StreamState.CREATING: _BACK_TO_ACTIVE,
    StreamState.ACTIVE: frozenset(
        {
            StreamState.SCALING,
            StreamState.TRUNCATING,
            StreamState.COMMITTING_TXN,
            StreamState.UPDATING,
            StreamState.SEALING,
            StreamState.SEALED,
        }
    ),
    StreamState.SCALING: _BACK_TO_ACTIVE,
    StreamState.TRUNCATING: _BACK_TO_ACTIVE,
    StreamState.COMMITTING_TXN: _BACK_TO_ACTIVE,
    StreamState.UPDATING: _BACK_TO_ACTIVE,
    StreamState.SEALING: frozenset({StreamState.SEALED}),
    StreamState.SEALED: frozenset(),
}
"""From each state, where one may go; staying is allowed besides."""


WORKFLOW_STATES: Final = frozenset(
    {
        StreamState.SCALING,
        StreamState.TRUNCATING,
        StreamState.COMMITTING_TXN,
        StreamState.UPDATING,
        StreamState.SEALING,
    }
)
"""The states in which a workflow may be named."""


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """Where a stream stands, and which workflow has it.

    Args:
        state: where it stands.
        workflow_id: the workflow that has the stream; None = none, or one that its caller carries out step by step.

    Raises:
        ValueError: a workflow in a state that belongs to none.
    """

    state: StreamState
    workflow_id: UUID | None = None

    def __post_init__(self) -> None:
        if self.workflow_id is not None and self.state not in WORKFLOW_STATES:
            raise ValueError(f"expected a state of a workflow, found {self.state.value} with {self.workflow_id}")


ACTIVE: Final = StreamStatus(StreamState.ACTIVE)


def may_become(now: StreamState, wanted: StreamState) -> bool:
    """Whether a stream may go from one state to another, or stay."""
    return now is wanted or wanted in TRANSITIONS[now]


def next_state(now: StreamState, wanted: StreamState) -> StreamState | None:
    """The state to write; None if the stream stands there already.

    Raises:
        OperationNotAllowed: the step is not allowed; another workflow is under way, or the stream is sealed.
    """
    if not may_become(now, wanted):
        raise OperationNotAllowed(f"expected a stream that may become {wanted.value}, found {now.value}")
    return None if now is wanted else wanted


def moved_by_hand(now: StreamStatus, wanted: StreamState) -> StreamStatus | None:
    """The status to write for a caller who carries a workflow out step by step; None if the stream stands there.

    Raises:
        OperationNotAllowed: the step is not allowed, or a workflow has the stream that only its own id ends.
    """
    if now.workflow_id is not None:
        raise OperationNotAllowed(
            f"expected a stream that no workflow has, found {now.state.value} of workflow {now.workflow_id}"
        )
    state = next_state(now.state, wanted)
    return None if state is None else StreamStatus(state)


def taken(now: StreamStatus, workflow: StreamState, workflow_id: UUID) -> StreamStatus:
    """The status to write for a workflow that begins; one that was carried out by hand so far gets a name.

    A commit may begin while the stream is being sealed, which stays its state.

    Raises:
        OperationNotAllowed: another workflow has the stream.
        IllegalState: the stream is sealed, or (for a scale) is being sealed.
    """
    if workflow is StreamState.SCALING:
        refuse_sealed(now.state)
    if workflow is StreamState.TRUNCATING:
        refuse_sealed_truncation(now.state)
    is_within_seal = now.state is StreamState.SEALING and workflow is StreamState.COMMITTING_TXN
    if now.workflow_id is not None or not (is_within_seal or may_become(now.state, workflow)):
        raise OperationNotAllowed(f"expected a stream that may become {workflow.value}, found {now.state.value}")
    return StreamStatus(StreamState.SEALING if is_within_seal else workflow, workflow_id)


def given_back(now: StreamStatus, workflow_id: UUID) -> StreamStatus | None:
    """The status to write when a workflow ends; None if it does not have the stream (any more)."""
    if now.workflow_id != workflow_id:
        return None
    return StreamStatus(StreamState.SEALING) if now.state is StreamState.SEALING else ACTIVE


def sealing(now: StreamStatus) -> StreamStatus | None:
    """The status to write when the stream is to be sealed; None if it is being sealed, or is.

    Raises:
        OperationNotAllowed: a workflow has the stream.
    """
    if now.state in (StreamState.SEALING, StreamState.SEALED):
        return None
    return moved_by_hand(now, StreamState.SEALING)


def sealed(now: StreamStatus | None) -> StreamStatus | None:
    """The status to write when nothing is left to be sealed; None while a commit has the stream, or if it is sealed."""
    return StreamStatus(StreamState.SEALED) if now == StreamStatus(StreamState.SEALING) else None


def refuse_uncreated(now: StreamState) -> None:
    """Questions about active segments make sense once the stream is created.

    Raises:
        IllegalState: it is not.
    """
    if now in (StreamState.UNKNOWN, StreamState.CREATING):
        raise IllegalState(f"expected a stream that was created, found {now.value}")


def refuse_sealed(now: StreamState) -> None:
    """Scales and transactions are not begun on a stream that is being sealed, or is.

    Raises:
        IllegalState: it is.
    """
    if now in (StreamState.SEALING, StreamState.SEALED):
        raise IllegalState(f"expected a stream that takes writes, found {now.value}")


def refuse_sealed_truncation(now: StreamState) -> None:
    """A sealed stream is not truncated.

    Raises:
        IllegalState: it is sealed.
    """
    if now is StreamState.SEALED:
        raise IllegalState("expected a stream that is not sealed to truncate, found SEALED")


def refuse_undeletable(now: StreamState) -> None:
    """A stream is deleted when it is sealed, or when its creation was never finished.

    Raises:
        IllegalState: it is neither.
    """
    if now not in (StreamState.UNKNOWN, StreamState.CREATING, StreamState.SEALED):
        raise IllegalState(f"expected a stream that is sealed or was never finished, found {now.value}: seal it first")
