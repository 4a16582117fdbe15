"""What passes between what decides for a reader (`reader_core`) and what acts for it: requests, answers, and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from accel.history.rules.checks import check_settings
from accel.history.rules.segments import SegmentRecord
from accel.streams.events import EventBatch
from range_index.time_search import NO_TOKEN

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """How much a reader holds and asks for.

    Attributes:
        fill_bytes: payload that one request for a segment brings, about.
        buffer_bytes_max: payload in all buffers, requests under way included. Each segment may have one request of
            `fill_bytes` whatever this says, for else some would never be read.
        requests_max: requests under way at once.
        grace_seconds: how long a reader that has events waits for segments whose first events are on their way. The
            longer, the better the order; one that is idle is not waited for.
        idle_seconds: an idle segment is asked again after this time.
        stall_seconds: a reader that does not follow gives up when nothing has come for so long.

    Raises:
        ValueError: a number out of bounds.
    """

    fill_bytes: int = MEBIBYTE
    buffer_bytes_max: int = 64 * MEBIBYTE
    requests_max: int = 16
    grace_seconds: float = 0.05
    idle_seconds: float = 0.5
    stall_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_settings(self)
        if min(self.fill_bytes, self.buffer_bytes_max, self.requests_max) < 1:
            raise ValueError(f"expected bytes and requests of at least 1, found {self}")
        if not (0 <= self.grace_seconds <= 60 and 0 < self.idle_seconds <= 3600 and self.stall_seconds > 0):
            raise ValueError(f"expected a grace of 0 to 60 s and pauses of up to 3600 s, found {self}")


class Fill(NamedTuple):
    """Please read events of a segment from an offset on.

    Args:
        segment_id: which.
        offset: the first one wanted.
        max_bytes: of payload; about.
        token: where the last read left off in the segment's time index.
        end: one past the last offset wanted; None = as far as there is data.
    """

    segment_id: int
    offset: int
    max_bytes: int
    token: int = NO_TOKEN
    end: int | None = None


class Learn(NamedTuple):
    """Please say whether a segment is sealed, and what follows it."""

    segment_id: int


class SegmentEvents(NamedTuple):
    """What a `Fill` brought.

    Args:
        batches: events from the offset on, without a gap; none if there are none yet.
        next_offset: where the next read goes on.
        token: for that one.
    """

    batches: tuple[EventBatch, ...]
    next_offset: int
    token: int = NO_TOKEN


class SegmentEnd(NamedTuple):
    """What a `Learn` brought.

    Args:
        size: where the segment ends; None = it is not sealed.
        successors: the segments that follow it.
        is_stale: whether more is known now than when the segment gave nothing: it is to be filled once more.
    """

    size: int | None
    successors: tuple[SegmentRecord, ...] = ()
    is_stale: bool = False


Step: TypeAlias = Fill | Learn


class Finished(NamedTuple):
    """A segment that was read to its end, where that is, and the segments that follow it."""

    segment_id: int
    offset: int
    successors: tuple[SegmentRecord, ...]
