"""Where a stream stands in its life, and which steps lead from where to where.

    UNKNOWN -> CREATING -> ACTIVE <-> SCALING, TRUNCATING, COMMITTING_TXN, UPDATING
                              |
                              +---> SEALING -> SEALED

The state keeps workflows from running into each other: each takes the stream from ACTIVE to its own state and back. To
stay where one is is always allowed, so that a workflow can be taken up again.

Source: PDP-35; docs/history.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final

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


def refuse_undeletable(now: StreamState) -> None:
    """A stream is deleted when it is sealed, or when its creation was never finished.

    Raises:
        IllegalState: it is neither.
    """
    if now not in (StreamState.UNKNOWN, StreamState.CREATING, StreamState.SEALED):
        raise IllegalState(f"expected a stream that is sealed or was never finished, found {now.value}: seal it first")
