"""The life of a stream: its creation and deletion, and the allowed steps from one state to another.

**Names.** Each name has one record, which contains the scope or stream of that name:

    stream    (none) or FREE ---> CREATING ---> LIVE ---> DELETING ---> FREE
                                      |                      ^
                                      +----------------------+

    scope     (none) ---> CREATING ---> LIVE <--> CLOSING ---> DELETING ---> (none)
                              |                      ^
                              +----------------------+

Every arrow is one compare-and-set on the one key of the name. So if two processes decide differently, one process loses
and reads again. Any process can do the work of a phase, also a second time:

    CREATING   the entry contains all data for the creation, so that all processes that help do the same
    LIVE       the creation is acknowledged
    CLOSING    scopes only: the scope is deleted if it has no streams, and set to LIVE again otherwise
    DELETING   the scope or stream is being deleted, for good
    FREE       streams only: the stream is deleted; its entry contains the highest number that a segment had

A stream consists of many keys. Each is created if absent, so that another process can continue after a crash. The first
process decides on the time of creation, which is read back before other data is derived from it. A stream that is
created again under the same name gets new tables, and its segment numbers continue after those of the old stream, so
remaining keys of the old stream cannot be mistaken for keys of the new one.

**States.**

    UNKNOWN -> CREATING -> ACTIVE <-> SCALING, TRUNCATING, COMMITTING_TXN, UPDATING
                              |
                              +---> SEALING -> SEALED

The state separates workflows: each takes the stream from ACTIVE to its own state and back. `StreamStatus` contains the
state and the id of the workflow that has the stream, so that a late process cannot end the workflow of another one. A
stream that is being sealed stays SEALING while it commits transactions; the status contains the id of the present
commit.

Threads: the records are immutable.

Source: PDP-35 and the upstream system; docs/explanation/history.md, "Workflow ownership".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, unique
from typing import Final
from uuid import UUID

import numpy as np

from accel.errors import IllegalState, InvalidArgument, OperationNotAllowed
from accel.history.rules.configuration import SEGMENTS_MAX, StreamConfiguration
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.segments import Segments, initial_ranges
from accel.history.rules.values import NUMBER_MAX, checked_integer, checked_time


@unique
class StreamState(Enum):
    """The state of a stream."""

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
"""The states that may follow each state; a step to the same state is also allowed."""


WORKFLOW_STATES: Final = frozenset(
    {
        StreamState.SCALING,
        StreamState.TRUNCATING,
        StreamState.COMMITTING_TXN,
        StreamState.UPDATING,
        StreamState.SEALING,
    }
)
"""The states that may have a workflow's id."""


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The state of a stream, and the workflow that has it.

    Args:
        state: the state of the stream.
        workflow_id: the workflow that has the stream; None = none.

    Raises:
        ValueError: a workflow in a state without workflows.
    """

    state: StreamState
    workflow_id: UUID | None = None

    def __post_init__(self) -> None:
        if self.workflow_id is not None and self.state not in WORKFLOW_STATES:
            raise ValueError(f"expected a state of a workflow, found {self.state.value} with {self.workflow_id}")


ACTIVE: Final = StreamStatus(StreamState.ACTIVE)


def may_become(now: StreamState, wanted: StreamState) -> bool:
    """Whether a stream may go from one state to another, or stay in it."""
    return now is wanted or wanted in TRANSITIONS[now]


def next_state(now: StreamState, wanted: StreamState) -> StreamState | None:
    """The state to write; None if the stream has it already.

    Raises:
        OperationNotAllowed: the step is not allowed; another workflow is under way, or the stream is sealed.
    """
    if not may_become(now, wanted):
        raise OperationNotAllowed(f"expected a stream that may become {wanted.value}, found {now.value}")
    return None if now is wanted else wanted


def after_step(now: StreamStatus, wanted: StreamState) -> StreamStatus | None:
    """The status to write for a step of no workflow; None if the stream has it already.

    Raises:
        OperationNotAllowed: the step is not allowed, or a workflow has the stream that only its own id ends.
    """
    if now.workflow_id is not None:
        raise OperationNotAllowed(
            f"expected a stream without a workflow, found {now.state.value} of workflow {now.workflow_id}"
        )
    state = next_state(now.state, wanted)
    return None if state is None else StreamStatus(state)


def with_workflow(now: StreamStatus, workflow: StreamState, workflow_id: UUID) -> StreamStatus:
    """The status to write for a workflow that begins.

    A commit may begin while the stream is being sealed; the state then stays SEALING.

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


def without_workflow(now: StreamStatus, workflow_id: UUID) -> StreamStatus | None:
    """The status to write when a workflow ends; None if it does not have the stream (any more)."""
    if now.workflow_id != workflow_id:
        return None
    return StreamStatus(StreamState.SEALING) if now.state is StreamState.SEALING else ACTIVE


def after_seal_start(now: StreamStatus) -> StreamStatus | None:
    """The status to write when the stream is to be sealed; None if it is being sealed, or is sealed.

    Raises:
        OperationNotAllowed: a workflow has the stream.
    """
    if now.state in (StreamState.SEALING, StreamState.SEALED):
        return None
    return after_step(now, StreamState.SEALING)


def after_seal_end(now: StreamStatus | None) -> StreamStatus | None:
    """The status to write at the end of a sealing; None while a commit has the stream, or if it is sealed."""
    return StreamStatus(StreamState.SEALED) if now == StreamStatus(StreamState.SEALING) else None


def refuse_uncreated(now: StreamState) -> None:
    """Refuse queries about active segments before the stream is created.

    Raises:
        IllegalState: the stream is not created.
    """
    if now in (StreamState.UNKNOWN, StreamState.CREATING):
        raise IllegalState(f"expected a created stream, found {now.value}")


def refuse_sealed(now: StreamState) -> None:
    """Refuse scales and transactions on a stream that is sealed or being sealed.

    Raises:
        IllegalState: the stream is sealed or being sealed.
    """
    if now in (StreamState.SEALING, StreamState.SEALED):
        raise IllegalState(f"expected a stream that takes writes, found {now.value}")


def refuse_sealed_truncation(now: StreamState) -> None:
    """Refuse to truncate a sealed stream.

    Raises:
        IllegalState: the stream is sealed.
    """
    if now is StreamState.SEALED:
        raise IllegalState("expected an unsealed stream to truncate, found SEALED")


def refuse_undeletable(now: StreamState) -> None:
    """Refuse to delete a stream unless it is sealed or half created.

    Raises:
        IllegalState: the stream is neither.
    """
    if now not in (StreamState.UNKNOWN, StreamState.CREATING, StreamState.SEALED):
        raise IllegalState(f"expected a stream that is sealed or half created, found {now.value}: seal it first")


@unique
class CreationOutcome(Enum):
    """The outcome of an attempt to create a stream."""

    NEW = "new"
    """This attempt created the stream, perhaps together with other processes."""

    EXISTS_CREATING = "exists, being created"
    """Another process creates the stream, with the stored configuration."""

    EXISTS_ACTIVE = "exists"
    """The stream was created before."""


def first_epoch(segments: int, time_ms: int, start_number: int = 0) -> EpochRecord:
    """The first epoch of a stream.

    Args:
        segments: number of segments.
        time_ms: the stored time of creation, milliseconds since 1970.
        start_number: number of the first segment.

    Raises:
        InvalidArgument: numbers out of bounds.
    """
    if not 0 <= start_number <= NUMBER_MAX - segments:
        raise InvalidArgument(f"expected room for {segments} segment numbers, found {start_number} as the first")
    ranges = initial_ranges(segments)
    ids = np.arange(start_number, start_number + segments, dtype=np.int64)
    return EpochRecord(0, 0, Segments.make(ids, time_ms, ranges.starts, ranges.ends), time_ms, splits=0, merges=0)


def creation_outcome(state: StreamState, stored_time_ms: int, time_ms: int) -> CreationOutcome:
    """The outcome of an attempt to create a stream.

    Args:
        state: the state of the stream.
        stored_time_ms: the stored time of creation.
        time_ms: the time of this attempt.
    """
    if state not in (StreamState.UNKNOWN, StreamState.CREATING):
        return CreationOutcome.EXISTS_ACTIVE
    return CreationOutcome.NEW if stored_time_ms == time_ms else CreationOutcome.EXISTS_CREATING


def last_number(current: EpochRecord) -> int:
    """The highest segment number of a stream that is to be deleted; it must be stored before tables are dropped."""
    return int(current.segments.numbers.max())


def start_number(recorded: int | None) -> int:
    """The number of the first segment of a new stream.

    Args:
        recorded: the last number of a deleted stream of this name; None = there was no such stream.
    """
    return 0 if recorded is None else recorded + 1


@unique
class NamePhase(Enum):
    """The phase of a scope or a stream in the entry of its name."""

    CREATING = "being created"
    LIVE = "there"
    CLOSING = "being deleted unless it has streams"
    DELETING = "being deleted"
    FREE = "gone"


@dataclass(frozen=True, slots=True)
class ScopeEntry:
    """The scope that has a name.

    Args:
        unique_id: distinguishes it from earlier scopes of its name.
        phase: its phase.
    """

    unique_id: UUID
    phase: NamePhase = NamePhase.CREATING

    def with_phase(self, phase: NamePhase) -> ScopeEntry:
        """The entry with another phase."""
        return replace(self, phase=phase)


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """The stream that has a name, and the data of its creation.

    Args:
        unique_id: distinguishes it from earlier streams of its name.
        phase: its phase.
        wanted: its configuration at its creation.
        time_ms: time of its creation, milliseconds since 1970.
        first_number: number of its first segment.
        segments: number of segments at first.
        last_number: highest number of any segment of this name, at its creation, or at its deletion.

    Raises:
        InvalidArgument: a number out of bounds.
    """

    unique_id: UUID
    phase: NamePhase
    wanted: StreamConfiguration
    time_ms: int
    first_number: int
    segments: int
    last_number: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "time_ms", checked_time("the time of creation", self.time_ms))
        segments = checked_integer("a number of segments", self.segments, 1, SEGMENTS_MAX)
        object.__setattr__(self, "segments", segments)
        first = checked_integer("the number of a first segment", self.first_number, 0, NUMBER_MAX - segments)
        object.__setattr__(self, "first_number", first)
        last = checked_integer("the highest number of a segment", self.last_number, first + segments - 1, NUMBER_MAX)
        object.__setattr__(self, "last_number", last)

    @classmethod
    def new(
        cls, unique_id: UUID, wanted: StreamConfiguration, time_ms: int, first_number: int, segments: int
    ) -> StreamEntry:
        """The entry of a stream that is to be created.

        Raises:
            InvalidArgument: a number out of bounds.
        """
        last = first_number + segments - 1
        return cls(unique_id, NamePhase.CREATING, wanted, time_ms, first_number, segments, last)

    def with_phase(self, phase: NamePhase) -> StreamEntry:
        """The entry with another phase."""
        return replace(self, phase=phase)

    def with_last_number(self, last_number: int) -> StreamEntry:
        """The entry with a last number that is at least `last_number`."""
        return replace(self, last_number=max(last_number, self.last_number))
