"""The state behind the routes: the store, the accelerator and the histories of one bucket, opened by the event loop.

A sidecar listens before the store has answered, and retries opening it until it succeeds. From then on it answers from
what is loaded:

    | state     | means                                                                    | /readyz |
    |-----------|--------------------------------------------------------------------------|---------|
    | starting  | no image was loaded yet                                                  | 503     |
    | ready     | an image is loaded, and the last requests to store and source succeeded  | 200     |
    | degraded  | the store or the source of images fails, or a request to the store takes | 200     |
    |           | more than 5 s; answers come from memory                                  |         |
    | stale     | the image is too old to be used; lookups fail with `ImageTooOld`         | 503     |
    | draining  | it was stopped by SIGTERM; requests are answered for `drain_seconds`     | 503     |

It recovers by itself: each readiness request, like a lookup, queries the source for a newer image if one is due, and
the next request that succeeds ends the state.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from accel.catalog.job_runs import JobStats, RecordedRuns, read_runs
from accel.compaction import CompactionSettings
from accel.errors import AccelError, ImageTooOld, NoThread
from accel.image_source import ImageSource, PolledImages
from accel.lookup.async_accelerator import AsyncReadAccelerator
from accel.metrics import AccelCollector
from accel.server.problems import Refused
from accel.server.settings import SLOW_LOOKUP_SECONDS, SidecarSettings
from accel.settings import Settings
from accel.streams.connection import Connection, connect
from accel.streams.settings import ConnectionSettings
from accel.system import SYSTEM, Components
from accel.units import milliseconds
from loaders.counting import SECONDS_BOUNDS, Histogram
from loaders.errors import redacted
from loaders.store import CountingStore
from loaders.threads import Threads

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

KEYS_KEPT_MAX: Final = 65_536
"""Limit of object keys kept as text; 150 bytes each."""

THREADS: Final = 16
"""Requests about histories, and openings for places, at one time."""

SLOW_REQUEST_SECONDS: Final = 5.0
"""While a request to the store has taken longer than this, the sidecar reports that it is degraded."""

JOBS_INTERVAL_SECONDS: Final = 60.0
"""For metrics, the records of jobs are read again after this time at the earliest."""

JOBS_WAIT_SECONDS: Final = 1.0
"""How long a scrape waits for these records; later ones find them."""

OPEN_RETRY_SECONDS: Final = 1.0
"""Pause before opening the store is retried."""

RETRIES_GROW_TO: Final = 10
"""The longest pause between tries to open the store, in multiples of `OPEN_RETRY_SECONDS`."""


class State(StrEnum):
    """Whether requests are answered."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    STALE = "stale"
    DRAINING = "draining"


class Readiness(NamedTuple):
    """The state, and the reasons why it is not ready."""

    state: State
    reasons: list[str]

    @property
    def serves(self) -> bool:
        """Whether lookups are answered."""
        return self.state in {State.READY, State.DEGRADED}


class Sidecar:
    """One bucket, for requests over HTTP. Threads: one event loop, that of `open`.

    Args:
        store: the store; with a timer, metrics contain the latency of requests, and readiness reports slow ones.
        settings: bounds and access.
        images: returns the source of images, called in a thread; None = the catalog of the store.
        lookups: settings of the accelerator; by default slow lookups are recorded.
        system: clock, sleep and random source.
        warm: load filter packs and snapshots before the sidecar is ready.
        maintain: maintain the catalog of the store beside the lookups (`accel.maintenance`).
    """

    def __init__(
        self,
        store: CountingStore,
        settings: SidecarSettings | None = None,
        *,
        images: Callable[[], ImageSource] | None = None,
        lookups: Settings | None = None,
        system: Components = SYSTEM,
        warm: bool = False,
        maintain: bool = False,
    ) -> None:
        self.store = store
        self.settings = settings or SidecarSettings()
        self.system = system
        self._images = images
        self.lookups = lookups or Settings(slow_lookup_seconds=SLOW_LOOKUP_SECONDS)
        self._warm = warm
        made = ConnectionSettings(lookups=self.lookups)
        self._connection: Connection = connect(store, settings=made, maintain=maintain, system=system)
        self._opened: AsyncReadAccelerator | None = None  # perhaps not ready yet
        self._accelerator: AsyncReadAccelerator | None = None
        self._failed: BaseException | None = None
        self._source: ImageSource | None = None
        self._runs: RecordedRuns | None = None
        self._runs_due_seconds = -math.inf
        self._threads = Threads(THREADS, "accel-sidecar")
        self._opening: asyncio.Task[None] | None = None
        self._seconds: dict[tuple[str, int], Histogram] = {}
        self.is_draining = False
        self.key_of: Callable[[int], str] = str
        self.registry = CollectorRegistry()
        self.registry.register(_SidecarCollector(self))

    async def open(self) -> None:
        """Start to open the store; does not wait."""
        self._opening = asyncio.get_running_loop().create_task(self._keep_opening())

    def drain(self) -> None:
        """Say that the sidecar is not ready any more; requests are still answered, and their connections close."""
        self.is_draining = True

    async def wait_opened(self) -> None:
        """Wait until the store has been opened."""
        if self._opening is not None:
            await asyncio.shield(self._opening)

    async def close(self) -> None:
        """End requests under way, and close what was opened."""
        if self._opening is not None:
            self._opening.cancel()
        ending = Threads(1, "accel-sidecar-end")  # asyncio's own threads need one more to end
        for end in (self._threads.shutdown, self._connection.stop):
            try:
                await asyncio.wrap_future(ending.submit(end))
            except NoThread:  # the event loop has nothing else to do
                end()
            if self._opened is not None:
                await self._opened.close()

    @property
    def accelerator(self) -> AsyncReadAccelerator:
        """Answers lookups.

        Raises:
            Refused: 503 while no image is loaded.
        """
        if self._accelerator is None:
            why = "" if self._failed is None else f"; the last attempt failed: {_told(self._failed)}"
            detail = f"expected the first image to be loaded, found it loading{why}"
            raise Refused("NotReady", 503, "The sidecar is starting.", detail, retryable=True)
        return self._accelerator

    @property
    def connection(self) -> Connection:
        """Histories of streams. Its calls block: use `in_thread`."""
        return self._connection

    async def in_thread(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a blocking function in a thread."""
        submitted = self._threads.submit(work, *args, **options)
        return await asyncio.wrap_future(submitted)

    def readiness(self) -> Readiness:
        """Whether requests are answered. Starts to load a newer image if one is due; does not block."""
        accelerator = self._accelerator
        if self.is_draining:
            return Readiness(State.DRAINING, ["the sidecar is being stopped"])
        if accelerator is None:
            return Readiness(State.STARTING, [] if self._failed is None else [_told(self._failed)])
        try:
            version = accelerator.version_at_hand()
        except AccelError as error:
            return Readiness(State.STALE, [_told(error)])
        if version is None:
            return Readiness(State.STALE, [ImageTooOld.__name__])
        reasons = []
        if accelerator.is_source_failing:
            reasons.append("the last request to the source of images failed")
        if self.store.is_failing:
            reasons.append("at the last request the store was unavailable, or did not accept the credentials")
        if (seconds := self.store.oldest_request_seconds()) > SLOW_REQUEST_SECONDS:
            reasons.append(f"a request to the store has taken {seconds:.0f} s so far")
        return Readiness(State.DEGRADED if reasons else State.READY, reasons)

    def note(self, operation: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        histogram = self._seconds.get((operation, status))
        if histogram is None:
            histogram = self._seconds[operation, status] = Histogram(SECONDS_BOUNDS)
        histogram.add(seconds)

    def collect(self) -> Iterator[Metric]:
        """The metrics for Prometheus: of requests over HTTP, and those of `AccelCollector`."""
        told = {state.value: 0 for state in State} | {self.readiness().state.value: 1}
        states = GaugeMetricFamily("accel_sidecar_state", "1 for the state that the sidecar is in.", labels=("state",))
        for state, value in told.items():
            states.add_metric((state,), value)
        yield states
        labels = ("operation", "status")
        requests = CounterMetricFamily("accel_http_requests", "Requests that were answered.", labels=labels)
        seconds = HistogramMetricFamily("accel_http_request_duration_seconds", "Time to their answers.", labels=labels)
        for (operation, status), histogram in list(self._seconds.items()):
            stats = histogram.stats()
            buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in stats.cumulated()]
            requests.add_metric((operation, str(status)), stats.values)
            seconds.add_metric((operation, str(status)), buckets, stats.total)
        yield requests
        yield seconds
        connection = self._connection
        caches, clock = connection.cache_stats, connection.clock_skew_seconds
        yield from AccelCollector(self._accelerator, self.store, caches, clock=clock, jobs=self._jobs).collect()

    def _jobs(self) -> JobStats | None:
        """What metrics say of jobs, called by a scrape; None while it is not known, or the catalog is not ours."""
        source = self._source
        if self._images is not None or not isinstance(source, PolledImages):
            return None
        if self._runs_due_seconds <= (now_seconds := self.system.timer()):
            self._runs_due_seconds = now_seconds + JOBS_INTERVAL_SECONDS
            with suppress(NoThread):
                wait([self._threads.submit(self._read_runs)], JOBS_WAIT_SECONDS)
        if self._runs is None:
            return None
        parts = self._connection.catalog.parts
        now_ms, skew_seconds = milliseconds(parts.system.clock()), parts.format.clock_skew_seconds
        default_max = CompactionSettings().max_objects_per_node
        return self._runs.stats(source.cached(), now_ms, skew_seconds, default_max)

    def _read_runs(self) -> None:
        try:
            self._runs = read_runs(self._connection.catalog.parts.keys.tables, self._runs)
        except AccelError as error:
            logger.warning("the records of jobs could not be read, and are read again later: %s", _told(error))

    async def _keep_opening(self) -> None:
        pause_seconds = most = OPEN_RETRY_SECONDS
        most *= RETRIES_GROW_TO
        while True:
            try:
                accelerator = await self.in_thread(self._open_accelerator)
                if self._warm:
                    await accelerator.warm()
            except Exception as error:  # noqa: BLE001 - every error is logged, and opening is retried
                self._failed = error
                logger.warning("the store could not be opened, and is retried: %s", _told(error))
            else:
                self.key_of = lru_cache(KEYS_KEPT_MAX)(accelerator.object_key)
                self._accelerator, self._failed = accelerator, None
                logger.info("ready, with image version %s", accelerator.image_version)
                return
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, most)

    def _open_accelerator(self) -> AsyncReadAccelerator:
        if self._opened is None:  # else only warming it failed
            self._source = self._connection.catalog.images() if self._images is None else self._images()
            self._opened = AsyncReadAccelerator(self._source, self.store, settings=self.lookups, system=self.system)
        return self._opened


class _SidecarCollector(Collector):
    """Reads the metrics of a sidecar at each scrape; does nothing when it is registered."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        return self._sidecar.collect()


def _told(error: BaseException) -> str:
    return redacted(f"{type(error).__name__}: {error}")
