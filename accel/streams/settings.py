"""Choices of those who write streams: how much is gathered before it is sent on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accel.settings import PREPARED_SECONDS
from loaders.settings import MIB, check_settings

LISTENING_CONNECTIONS_MAX: Final = 1024
"""Connections of one server at one time."""

HEAD_SECONDS: Final = 10.0
"""The longest time in which the line and the headers of a request may come."""

MOVED_RECORDS_MAX: Final = 65_536
"""Records of one part of a time index: 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSettings:
    """How a host follows the scaling policies of the streams whose segments it has open; see `auto_scale`.

    Args:
        is_on: whether it does. Off, it counts nothing, asks nothing, and has no thread for it.
        tick_seconds: how often appends are counted. No request.
        look_seconds: how long ago the configuration of a stream was read at most, if no more than `looks_max` streams
            are due in one tick; also how long a stream is left alone after a failure.
        windows_seconds: over which rates are averaged, ascending.
        hot_factors: of the first windows: a segment whose rate is above this multiple of the target is hot.
        cold_factor: a segment whose rates are below this multiple of the target in all windows is cold.
        young_seconds: how long a segment is left alone after its creation;
        cooldown_seconds: and a stream after a scale.
        mark_seconds: how long a cold marker tells other owners that a segment is cold; it is renewed after half of it.
        segments_max: how many segments one scale seals and creates together, at most.
        looks_max: how many streams are looked at in one tick, and how many segments of other owners in one look.

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
        linger_seconds: how long the first event waits for others before an object is made of them; 1 ms. Longer makes
            fewer and larger objects, and fewer requests; 0 waits for nothing.
        batch_bytes: when this many bytes wait, nothing is waited for; 16 MiB. Also what one object brings of several
            transactions, at least one of them.
        uploads_at_once: objects that are written side by side; while they are on their way, events gather for the
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
        writers_max: how many writers with ids a segment remembers; those that were idle the longest are forgotten.
        writer_idle_seconds: one that has written nothing for so long is forgotten; 7 days. A writer that was forgotten
            is a new one: what it repeats is written again.
        scaling: how the scaling policies of streams are followed.

    Raises:
        ValueError: a number of 0 or below, but for `linger_seconds`.
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
    attempts: int = 3
    connections_max: int = 16
    wait_seconds: float = 60.0
    pause_seconds: float = 0.2

    def __post_init__(self) -> None:
        check_settings(self)
