"""Settings of writing: how many events are collected before an upload, how events are forwarded, when streams scale."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accel.history.store.parts import HistorySettings
from accel.settings import PREPARED_SECONDS, CatalogSettings, Settings
from accel.streams.rules.settings import ScalingSettings
from loaders.settings import MIB, check_settings

MOVED_RECORDS_MAX: Final = 65_536
"""Limit of records in one part of a time index: 1 MiB."""


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
        requests_seconds: a flush looks for requests of other processes if the last look is this long ago: four
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


OWNER_LEASE_SECONDS_MAX: Final = 3600.0
"""The longest lease of an owner. One that ends later was written by a process with a wrong clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersSettings:
    """Settings of one owner.

    Args:
        lease_seconds: the length of its lease, which is renewed after a third of this time. 15 s.

    Raises:
        ValueError: not above 0, or above an hour.
    """

    lease_seconds: float = 15.0

    def __post_init__(self) -> None:
        check_settings(self, most={"lease_seconds": OWNER_LEASE_SECONDS_MAX})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The settings of one connection, part by part. Threads: immutable.

    Args:
        catalog: settings of the catalog.
        segments: settings of the session that writes.
        scaling: how it follows the scaling policies of streams.
        history: settings of the histories of streams.
        lookups: settings of the accelerator.
        owners: settings of the registration.
        forwarding: settings of requests to and from other owners.
    """

    owners: OwnersSettings = field(default_factory=OwnersSettings)
    forwarding: ForwardingSettings = field(default_factory=ForwardingSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    segments: SegmentsSettings = field(default_factory=SegmentsSettings)
    scaling: ScalingSettings = field(default_factory=ScalingSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    lookups: Settings = field(default_factory=Settings)
