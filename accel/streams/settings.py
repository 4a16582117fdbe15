"""Settings of writing: how many events are collected before an upload, how events are forwarded, when streams scale."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accel.settings import PREPARED_SECONDS
from loaders.settings import MIB, check_settings

LISTENING_CONNECTIONS_MAX: Final = 1024
"""Limit of open connections of one server."""

HEAD_SECONDS: Final = 10.0
"""Time limit for receiving the request line and the headers."""

MOVED_RECORDS_MAX: Final = 65_536
"""Limit of records in one part of a time index: 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSettings:
    """How a host follows the scaling policies of the streams whose segments it has open; see `auto_scale`.

    Args:
        is_on: whether the host follows the policies. If not, it counts nothing, sends no requests and has no scaling
            thread.
        tick_seconds: the interval at which appends are counted. No request.
        look_seconds: the interval at which the configuration of a stream is read, if at most `looks_max` streams are
            due in one tick; also the pause of a stream after a failure.
        windows_seconds: the lengths of the windows over which rates are averaged, ascending.
        hot_factors: one for each of the first windows: a segment with a rate above this multiple of the target is hot.
        cold_factor: a segment whose rates are below this multiple of the target in all windows is cold.
        young_seconds: the time after its creation in which a segment is not scaled;
        cooldown_seconds: the same for a stream after a scale.
        mark_seconds: how long a cold marker is valid, which shows other owners that a segment is cold; it is renewed
            after half of this time.
        segments_max: the largest number of segments that one scale seals and creates together.
        looks_max: how many streams are checked in one tick, and how many segments of other owners in one check.

    Raises:
        ValueError: a number of 0 or below; windows or factors that do not fit each other; a pair of cold segments that
            would be hot, or a scale too small to split a segment.
    """

    is_on: bool = True
    tick_seconds: float = 10.0
    look_seconds: float = 60.0
    windows_seconds: tuple[float, ...] = (120.0, 300.0, 600.0, 1200.0)
    hot_factors: tuple[float, ...] = (5.0, 2.0, 1.25)
    cold_factor: float = 0.5
    young_seconds: float = 600.0
    cooldown_seconds: float = 120.0
    mark_seconds: float = 1200.0
    segments_max: int = 100
    looks_max: int = 16

    def __post_init__(self) -> None:
        check_settings(self, least={"segments_max": 3, "young_seconds": 0, "cooldown_seconds": 0})
        windows, factors = self.windows_seconds, self.hot_factors
        if not windows or windows[0] <= 0 or list(windows) != sorted(set(windows)):
            raise ValueError(f"expected windows_seconds above 0 that ascend, found {windows}")
        if not 1 <= len(factors) <= len(windows) or min(factors) < 1:
            raise ValueError(f"expected hot_factors of at least 1 for the first of {len(windows)}, found {factors}")
        if 2 * self.cold_factor > min(factors):
            raise ValueError(f"expected a cold_factor of at most half of {min(factors)}, found {self.cold_factor}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsSettings:
    """Bounds of one `ObjectSegments`.

    Args:
        linger_seconds: how long the first event waits for more events before an object is made; 1 ms. A longer time
            makes fewer and larger objects, and fewer requests; 0 = no waiting.
        batch_bytes: once this many bytes wait, an object is made without further waiting; 16 MiB. Also the byte limit
            of several transactions in one object; one transaction may be larger.
        uploads_at_once: the number of objects that are written side by side; meanwhile events collect for the next one.
        waiting_bytes_max: the limit of events in memory that are not durable, uploads under way included; 64 MiB, with
            12 bytes for each event. A write that would exceed it waits. A single event may be larger.
        prepared_seconds: how long a prepared object id is valid: the longest that writing and committing may take.
        commit_attempts: the number of attempts of a commit, or a write, of unknown outcome before its error is raised.
        move_records_min: the time index of a segment moves from memory to an object when it has this many records in
            memory whose data is durable; and whenever the segment is sealed or truncated, or the host is closed.
        moved_records_max: the limit of records in one such object; see `segment_index`.
        parallel_segments: how many segments are opened, or have their time indexes moved, side by side.
        cache_bytes: memory for parts of time indexes that are read.
        writers_max: how many writers with ids a segment remembers; the writers that were idle longest are forgotten.
        writer_idle_seconds: a writer that has written nothing for this time is forgotten; 7 days. A forgotten writer
            counts as new: events that it repeats are written again.
        scaling: how the host follows the scaling policies of streams.

    Raises:
        ValueError: a number of 0 or below; `linger_seconds` may be 0.
    """

    linger_seconds: float = 0.001
    batch_bytes: int = 16 * MIB
    uploads_at_once: int = 4
    waiting_bytes_max: int = 64 * MIB
    prepared_seconds: float = PREPARED_SECONDS
    commit_attempts: int = 5
    move_records_min: int = 1024
    moved_records_max: int = MOVED_RECORDS_MAX
    parallel_segments: int = 8
    cache_bytes: int = 16 * MIB
    writers_max: int = 1000
    writer_idle_seconds: float = 7 * 86_400.0
    scaling: ScalingSettings = field(default_factory=ScalingSettings)

    def __post_init__(self) -> None:
        check_settings(self, least={"linger_seconds": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriterSettings:
    """Bounds of one `StreamWriter`.

    Args:
        batch_events_max: the limit of single writes to one segment that become one append;
        batch_bytes_max: the limit of their bytes.
        room_seconds: how long a write waits for room before it raises `WriterStalled`; see `waiting_bytes_max`.
        transactions_bytes_max: the limit of memory for the open transactions of one writer together; 64 MiB.
        wait_seconds: how long a write waits for a scale, or another workflow, that is under way.
        pause_seconds: the pause before it checks again.
        requests_seconds: a flush looks for requests of other processes if the last look is this long ago: three
            requests, one of them a listing. 30 s. Between flushes the writer does not look.

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
    """Bounds of forwarding, for owners and for writers.

    Args:
        events_max: the limit of events in one request;
        body_bytes_max: the limit of bytes in one request; 8 MiB. A larger event cannot be forwarded.
        timeout_seconds: the time limit of a request.
        requests_max: the number of requests that an owner handles at one time; further requests are answered with BUSY.
        attempts: how often a request whose reply is lost is sent before flushes raise the error.
        connections_max: the limit of requests that a process has under way to other owners, one for each segment.
        wait_seconds: how long events wait for an owner with a valid lease that does not answer, before they fail; and
            how long a workflow waits for other owners.
        pause_seconds: the pause before the next request to the same owner.

    Raises:
        ValueError: a number of 0 or below.
    """

    events_max: int = 10_000
    body_bytes_max: int = 8 * MIB
    timeout_seconds: float = 30.0
    requests_max: int = 64
    attempts: int = 3
    connections_max: int = 16
    wait_seconds: float = 60.0
    pause_seconds: float = 0.2

    def __post_init__(self) -> None:
        check_settings(self)
