"""Choices of those who write streams: how much is gathered before it is sent on."""

from __future__ import annotations

from dataclasses import dataclass

from loaders.settings import MIB, check_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsSettings:
    """Bounds of one `ObjectSegments`.

    Args:
        object_bytes: an append that finds this many bytes waiting writes an object of them first; 16 MiB. What one
            append brings comes on top, and as much again while an object is on its way.
        object_age_seconds: likewise if the oldest of them has waited for so long. Nobody looks between appends.
        prepared_seconds: how long a prepared object id is good for: the longest that writing and committing may take.
        commit_attempts: how often a commit, or a write, of unknown outcome is made before its error is raised.
        move_records_min: the time index of a segment moves from memory to an object when it has this many records there
            whose data is durable; and whenever the segment is sealed or truncated, or the host is closed.
        moved_records_max: records of one such object; see `segment_index`.
        parallel_segments: how many segments are opened, or have their time indexes moved, side by side.
        cache_bytes: memory for parts of time indexes that are read.

    Raises:
        ValueError: a number of 0 or below.
    """

    object_bytes: int = 16 * MIB
    object_age_seconds: float = 5.0
    prepared_seconds: float = 3600.0
    commit_attempts: int = 5
    move_records_min: int = 1024
    moved_records_max: int = 65_536
    parallel_segments: int = 8
    cache_bytes: int = 16 * MIB

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriterSettings:
    """Bounds of one `StreamWriter`.

    Args:
        batch_events_max: single writes to one segment become one append when there are this many;
        batch_bytes_max: or this many bytes of them;
        batch_age_seconds: or when the first of them has waited for so long. Nobody looks between writes.
        buffer_bytes_max: when this many bytes wait in all, what waits the longest is appended.
        transactions_bytes_max: what open transactions of one writer may hold in memory together; 64 MiB.
        wait_seconds: how long a write waits for a scale, or another workflow, that is under way.
        pause_seconds: how long it waits before it asks again.
        requests_seconds: a flush that finds the last look so long ago looks for requests of other processes: three
            requests, of which one is a listing. 30 s. Nobody looks between flushes.

    Raises:
        ValueError: a number of 0 or below.
    """

    batch_events_max: int = 1000
    batch_bytes_max: int = MIB
    batch_age_seconds: float = 1.0
    buffer_bytes_max: int = 16 * MIB
    transactions_bytes_max: int = 64 * MIB
    wait_seconds: float = 60.0
    pause_seconds: float = 0.05
    requests_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingSettings:
    """Bounds of forwarding, of the owner's side and of the writer's.

    Args:
        events_max: of one request;
        body_bytes_max: of one request; 8 MiB. A larger event cannot be forwarded.
        timeout_seconds: how long a request may take.
        requests_max: that an owner works on at one time; the next one is answered with BUSY.
        writers_max: writers and segments whose numbers an owner keeps; those that were idle the longest are forgotten.
        attempts: how often a request whose reply is lost is sent by one call.
        waiting_bytes_max: events that a writer holds; the write that comes then flushes.
        wait_seconds: how long a flush waits for owners, scales and leases.
        pause_seconds: before it asks again.
        requests_seconds: a flush that finds the last look so long ago looks for requests of other processes, as that of
            a `StreamWriter` does.

    Raises:
        ValueError: a number of 0 or below.
    """

    events_max: int = 10_000
    body_bytes_max: int = 8 * MIB
    timeout_seconds: float = 30.0
    requests_max: int = 64
    writers_max: int = 10_000
    attempts: int = 3
    waiting_bytes_max: int = 16 * MIB
    wait_seconds: float = 60.0
    pause_seconds: float = 0.2
    requests_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_settings(self)
