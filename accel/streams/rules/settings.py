"""The settings of a reader of a stream."""

from __future__ import annotations

from dataclasses import dataclass

from loaders.settings import MIB, check_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """Bounds of a reader's buffers and requests, and its waits.

    Attributes:
        fill_bytes: the approximate payload of one request for a segment; up to twice as much if the buffers have room
            for it, less if they have not: room for the requests under way, and one and a half for each segment.
        buffer_bytes_max: the limit of payload in all buffers, requests under way included. Each segment has room for
            one request; the segment whose events end first gets the rest. Batches are whole, so that each request may
            return more by one batch. While the number of segments grows, each may have one request beyond this limit,
            because otherwise some would never be read.
        requests_max: the limit of requests under way.
        history_wait_seconds: how long a reader with buffered events waits for a segment in history, which has older
            events, or was not seen at its end yet. Then it raises ReaderStalled. 120 s.
        passes_late_segments: whether it returns events without waiting for such a segment, instead of raising, once
            this time is over or the segment's request has failed for good; `ReaderStats.passes` counts each request
            that it did not wait for. An error is raised when no other segment has events.
        reorder_wait_seconds: the limit of the same wait at the tail, where a segment was empty shortly before: a reader
            waits no longer than requests usually take. 0 = it never waits, in history neither: then no order of time
            is promised.
        idle_seconds: the time after which an idle segment is read again.
        stall_seconds: the time without new events after which a reader that does not follow raises an error.
        retry_seconds: how long requests of a segment are repeated automatically after retryable errors; the first error
            after that is raised. 0 = each error is raised.

    Raises:
        ValueError: a number out of bounds.
    """

    fill_bytes: int = MIB
    buffer_bytes_max: int = 64 * MIB
    requests_max: int = 16
    history_wait_seconds: float = 120.0
    passes_late_segments: bool = False
    reorder_wait_seconds: float = 10.0
    idle_seconds: float = 0.5
    stall_seconds: float = 60.0
    retry_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_settings(
            self,
            least={"reorder_wait_seconds": 0, "retry_seconds": 0},
            most={"reorder_wait_seconds": 60, "idle_seconds": 3600},
        )
