"""Which scope, or which stream, has a name: one record a name, and every step from one phase to the next.

    stream    (none) or FREE ---> CREATING ---> LIVE ---> DELETING ---> FREE
                                      |                      ^
                                      +----------------------+

    scope     (none) ---> CREATING ---> LIVE <--> CLOSING ---> DELETING ---> (none)
                              |                      ^
                              +----------------------+

Every arrow is one compare-and-set on the one key of the name. So of two processes that decide differently one loses,
and reads again. What follows from a phase can be done by any process, and twice:

    CREATING   whatever the creation needs stands in the entry, so that all who help do the same
    LIVE       the creation is acknowledged
    CLOSING    of a scope: it is deleted if it has no streams, and opened again if it has
    DELETING   it goes, for good
    FREE       of a stream: it is gone. What stays is the highest number that a segment had, so that whoever takes the
               name next, by compare-and-set on this very record, numbers its segments from there on

Threads: the records are immutable.

Source: PDP-35.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, unique
from uuid import UUID

from accel.history.checks import checked_integer, checked_time
from accel.history.configuration import SEGMENTS_MAX, StreamConfiguration
from accel.history.ids import NUMBER_MAX


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
