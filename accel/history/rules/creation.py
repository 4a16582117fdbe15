"""How scopes and streams come to be and go: the entry of a name, and the records of a stream that is created.

Which scope, or which stream, has a name is one record a name:

    stream    (none) or FREE ---> CREATING ---> LIVE ---> DELETING ---> FREE
                                      |                      ^
                                      +----------------------+

    scope     (none) ---> CREATING ---> LIVE <--> CLOSING ---> DELETING ---> (none)
                              |                      ^
                              +----------------------+

Every arrow is one compare-and-set on the one key of the name. So of two processes that decide differently one loses,
and reads again. What follows from a phase can be done by any process, and twice:

    CREATING   all that the creation needs stands in the entry, so that all who help do the same
    LIVE       the creation is acknowledged
    CLOSING    of a scope: it is deleted if it has no streams, and opened again if it has
    DELETING   it goes, for good
    FREE       of a stream: it is gone. Its entry keeps the highest number that a segment had

A stream is made of many keys. Each is created if absent, so that another process can go on after a crash; the first
one decided on the time of creation, which is read back before anything else is derived from it. A stream that is
created again under the same name gets tables of its own, and its segments go on where the numbers of the last one
ended: nothing that lingers of the old ones can be taken for a new one.

Threads: the records are immutable.

Source: PDP-35 and the upstream system.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, unique
from uuid import UUID

import numpy as np

from accel.errors import InvalidArgument
from accel.history.rules.checks import checked_integer, checked_time
from accel.history.rules.configuration import SEGMENTS_MAX, StreamConfiguration
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.ids import NUMBER_MAX
from accel.history.rules.segments import Segments, initial_ranges
from accel.history.rules.states import StreamState


@unique
class CreationOutcome(Enum):
    """What came of an attempt to create a stream."""

    NEW = "new"
    """It is this attempt's, though others may have begun it."""

    EXISTS_CREATING = "exists, being created"
    """Somebody else is creating it, with the configuration that is stored."""

    EXISTS_ACTIVE = "exists"
    """It was created before."""


def first_epoch(segments: int, time_ms: int, start_number: int = 0) -> EpochRecord:
    """The epoch that a stream begins with.

    Args:
        segments: how many.
        time_ms: the time of creation as it is stored, milliseconds since 1970.
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
    """What an attempt came to.

    Args:
        state: where the stream stands.
        stored_time_ms: the time of creation that is stored.
        time_ms: that of this attempt.
    """
    if state not in (StreamState.UNKNOWN, StreamState.CREATING):
        return CreationOutcome.EXISTS_ACTIVE
    return CreationOutcome.NEW if stored_time_ms == time_ms else CreationOutcome.EXISTS_CREATING


def last_number(current: EpochRecord) -> int:
    """The highest segment number of a stream that is about to be deleted; to be recorded before anything is removed."""
    return int(current.segments.numbers.max())


def start_number(recorded: int | None) -> int:
    """The number of the first segment of a stream that is created.

    Args:
        recorded: the last number of the stream that was deleted under this name, if there was one.
    """
    return 0 if recorded is None else recorded + 1


@unique
class NamePhase(Enum):
    """Where a scope or a stream stands in its life, as its name tells."""

    CREATING = "being created"
    LIVE = "there"
    CLOSING = "being deleted unless it has streams"
    DELETING = "being deleted"
    FREE = "gone"


@dataclass(frozen=True, slots=True)
class ScopeEntry:
    """Which scope has a name.

    Args:
        unique_id: tells it from earlier ones of its name.
        phase: where it stands.
    """

    unique_id: UUID
    phase: NamePhase = NamePhase.CREATING

    def moved(self, phase: NamePhase) -> ScopeEntry:
        """The same in another phase."""
        return replace(self, phase=phase)


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """Which stream has a name, and how it was, or is to be, created.

    Args:
        unique_id: tells it from earlier ones of its name.
        phase: where it stands.
        wanted: what its owner wanted when it was created.
        time_ms: when that was, milliseconds since 1970.
        first_number: number of its first segment.
        segments: how many it had at first.
        last_number: no segment of this name has, or had, a higher one when it was created, or when it was deleted.

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
        """That of a stream which is to be created.

        Raises:
            InvalidArgument: a number out of bounds.
        """
        last = first_number + segments - 1
        return cls(unique_id, NamePhase.CREATING, wanted, time_ms, first_number, segments, last)

    def moved(self, phase: NamePhase) -> StreamEntry:
        """The same in another phase."""
        return replace(self, phase=phase)

    def remembering(self, last_number: int) -> StreamEntry:
        """The same with a number that is at least as high as another one."""
        return replace(self, last_number=max(last_number, self.last_number))
