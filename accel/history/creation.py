"""Creating a stream, and creating it again after it was deleted.

A stream is made of many keys. Each is created if absent, so that a process that crashed can be followed by another one;
who came first decided on the time of creation, which is read back before anything else is derived from it.

A stream that is created again under the same name gets tables of its own, and its segments go on where the numbers of
the last one ended: nothing that lingers of the old ones can be taken for a new one.

Source: PDP-35 and the upstream system.
"""

from __future__ import annotations

from enum import Enum, unique

import numpy as np

from accel.errors import InvalidArgument
from accel.history.ids import NUMBER_MAX
from accel.history.key_ranges import initial_ranges
from accel.history.records import EpochRecord
from accel.history.segments import Segments
from accel.history.states import StreamState


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


def refuse_falling_number(recorded: int | None, number: int) -> None:
    """Recorded numbers only rise.

    Raises:
        InvalidArgument: a number below the one that is recorded.
    """
    if recorded is not None and number < recorded:
        raise InvalidArgument(f"expected a last segment number of at least {recorded}, found {number}")
