"""Settings of writing: how many events are collected before an upload, how events are forwarded, when streams scale."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accel.history.store.settings import HistorySettings
from accel.settings import CatalogSettings, Settings
from loaders.settings import MIB, check_settings


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
    writers_max: int = 1000
    writer_idle_seconds: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        check_settings(self, least={"linger_seconds": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriterSettings:
    """Bounds of one `StreamWriter`.

    Args:
        batch_events_max: the limit of single writes to one segment that become one append, which has at most 1 MiB.
        room_seconds: how long a write waits for room before it raises `WriterStalled`; see `waiting_bytes_max`.
        wait_seconds: how long a write waits for a scale, or another workflow, that is under way.
        pause_seconds: the pause before it checks again.
        requests_seconds: a flush looks for requests of other processes if the last look is this long ago: four
            requests, one of them a listing. 30 s. Between flushes the writer does not look.

    Raises:
        ValueError: a number of 0 or below.
    """

    batch_events_max: int = 1000
    room_seconds: float = 60.0
    wait_seconds: float = 60.0
    pause_seconds: float = 0.05
    requests_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_settings(self)


OWNER_LEASE_SECONDS_MAX: Final = 3600.0
"""The longest lease of an owner. One that ends later was written by a process with a wrong clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingSettings:
    """The lease of an owner, and bounds of requests between owners and writers.

    Args:
        timeout_seconds: the time limit of a request.
        wait_seconds: how long events wait for an owner with a valid lease that does not answer, before they fail; and
            how long a workflow waits for other owners.
        lease_seconds: the length of an owner's lease, which is renewed after a third of this time. 15 s.

    Raises:
        ValueError: a number of 0 or below, or a lease of more than an hour.
    """

    timeout_seconds: float = 30.0
    wait_seconds: float = 60.0
    lease_seconds: float = 15.0

    def __post_init__(self) -> None:
        check_settings(self, most={"lease_seconds": OWNER_LEASE_SECONDS_MAX})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The settings of one connection, part by part. Threads: immutable.

    Args:
        catalog: settings of the catalog.
        segments: settings of the session that writes.
        scaling: whether it follows the scaling policies of the streams whose segments it has open. If not, it counts
            nothing, sends no requests and has no scaling thread.
        history: settings of the histories of streams.
        lookups: settings of the accelerator.
        forwarding: the lease of its registration, and requests to and from other owners.
    """

    forwarding: ForwardingSettings = field(default_factory=ForwardingSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    segments: SegmentsSettings = field(default_factory=SegmentsSettings)
    scaling: bool = True
    history: HistorySettings = field(default_factory=HistorySettings)
    lookups: Settings = field(default_factory=Settings)
