"""Choices of those who write streams: how much is gathered before it is sent on."""

from __future__ import annotations

from dataclasses import dataclass

from loaders.settings import MIB, check_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsSettings:
    """Bounds of one `ObjectSegments`.

    Args:
        linger_seconds: how long the first event waits for others before an object is made of them; 1 ms. Longer makes
            fewer and larger objects, and fewer requests; 0 waits for nothing.
        batch_bytes: when this many bytes wait, nothing is waited for; 16 MiB. Also what one object brings of several
            transactions, at least one of them.
        uploads_at_once: objects that are written side by side; while so many are on their way, events gather for the
            next one.
        waiting_bytes_max: what may be in memory and not durable, uploads under way included; 64 MiB, with 12 for each
            event. A write that finds no room waits. One event may be larger.
        prepared_seconds: how long a prepared object id is good for: the longest that writing and committing may take.
        commit_attempts: how often a commit, or a write, of unknown outcome is made before its error is raised.
        move_records_min: the time index of a segment moves from memory to an object when it has this many records there
            whose data is durable; and whenever the segment is sealed or truncated, or the host is closed.
        moved_records_max: records of one such object; see `segment_index`.
        parallel_segments: how many segments are opened, or have their time indexes moved, side by side.
        cache_bytes: memory for parts of time indexes that are read.

    Raises:
        ValueError: a number of 0 or below, but for `linger_seconds`.
    """

    linger_seconds: float = 0.001
    batch_bytes: int = 16 * MIB
    uploads_at_once: int = 4
    waiting_bytes_max: int = 64 * MIB
    prepared_seconds: float = 3600.0
    commit_attempts: int = 5
    move_records_min: int = 1024
    moved_records_max: int = 65_536
    parallel_segments: int = 8
    cache_bytes: int = 16 * MIB

    def __post_init__(self) -> None:
        check_settings(self, least={"linger_seconds": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriterSettings:
    """Bounds of one `StreamWriter`.

    Args:
        batch_events_max: how many single writes to one segment become one append at most;
        batch_bytes_max: or how many bytes of them.
        room_seconds: how long a write waits for room, before it raises `WriterStalled`; see `waiting_bytes_max`.
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
    room_seconds: float = 60.0
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
        attempts: how often a request whose reply is lost is sent before those who flush are told.
        connections_max: requests that a process has under way to others at one time, one for each segment.
        wait_seconds: how long events wait for an owner that lives and does not answer, before they fail; and how long a
            workflow waits for other owners.
        pause_seconds: before an owner is asked again.

    Raises:
        ValueError: a number of 0 or below.
    """

    events_max: int = 10_000
    body_bytes_max: int = 8 * MIB
    timeout_seconds: float = 30.0
    requests_max: int = 64
    writers_max: int = 10_000
    attempts: int = 3
    connections_max: int = 16
    wait_seconds: float = 60.0
    pause_seconds: float = 0.2

    def __post_init__(self) -> None:
        check_settings(self)
