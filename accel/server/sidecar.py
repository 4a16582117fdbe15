"""What requests ask: the store, the accelerator and the histories of one bucket, opened beside the event loop.

A sidecar begins to listen before the store has answered, and opens it again and again until it does. From then on it
answers from what it knows:

    | state     | means                                                                    | /readyz |
    |-----------|--------------------------------------------------------------------------|---------|
    | starting  | no image was loaded yet                                                  | 503     |
    | ready     | the image is at hand, and what was asked for last was answered           | 200     |
    | degraded  | the store or the source of images fails, or a request to the store takes | 200     |
    |           | more than `slow_request_seconds`; what memory knows is answered          |         |
    | stale     | no image may be served from any more; lookups fail with `ImageTooOld`    | 503     |

Nothing has to be done for it to recover: each question about readiness asks for a newer image where one is due, as a
lookup does, and the next request that succeeds ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from accel.errors import AccelError, ImageTooOld
from accel.image_source import ImageSource
from accel.lookup.async_accelerator import AsyncReadAccelerator
from accel.metrics import AccelCollector
from accel.server.problems import Refused
from accel.server.settings import SidecarSettings
from accel.settings import Settings
from accel.streams.connection import Connection, ConnectionSettings, connect
from accel.system import SYSTEM, Components
from loaders.counting import SECONDS_BOUNDS, Histogram
from loaders.errors import redacted
from loaders.lifetime import Threads
from loaders.store import CountingStore

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

KEYS_KEPT_MAX: Final = 65_536
"""Keys of objects that are kept as text; 150 bytes each."""

RETRIES_GROW_TO: Final = 10
"""The longest pause between tries to open the store, in multiples of `open_retry_seconds`."""


class State(StrEnum):
    """Whether requests are answered."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    STALE = "stale"


class Readiness(NamedTuple):
    """The state, and why it is not ready."""

    state: State
    reasons: list[str]

    @property
    def serves(self) -> bool:
        """Whether lookups are answered."""
        return self.state in {State.READY, State.DEGRADED}


class Sidecar:
    """One bucket, for requests over HTTP. Threads: one event loop, that of `open`.

    Args:
        store: the store; with a timer, metrics tell the latency of requests, and readiness tells of slow ones.
        settings: bounds and access.
        images: gives the source of images, called in a thread; None = the catalog of the store.
        lookups: settings of the accelerator.
        system: clock, sleep and chance.
        warm: load filter packs and snapshots before the sidecar says that it is ready.
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
    ) -> None:
        self.store = store
        self.settings = settings or SidecarSettings()
        self.system = system
        self._images = images
        self._lookups = lookups or Settings()
        self._warm = warm
        self._connection: Connection = connect(store, settings=ConnectionSettings(lookups=self._lookups), system=system)
        self._accelerator: AsyncReadAccelerator | None = None
        self._failed: BaseException | None = None
        self._threads = Threads(self.settings.history_threads, "accel-sidecar")
        self._opening: asyncio.Task[None] | None = None
        self._seconds: dict[tuple[str, int], Histogram] = {}
        self.key_of: Callable[[int], str] = str
        self.registry = CollectorRegistry()
        self.registry.register(_SidecarCollector(self))

    async def open(self) -> None:
        """Begin to open the store, beside the caller."""
        self._opening = asyncio.get_running_loop().create_task(self._keep_opening())

    async def wait_opened(self) -> None:
        """Wait until the store has been opened."""
        if self._opening is not None:
            await asyncio.shield(self._opening)

    async def close(self) -> None:
        """End what is under way, and close what was opened."""
        if self._opening is not None:
            self._opening.cancel()
        if self._accelerator is not None:
            await self._accelerator.close()
        await asyncio.to_thread(self._threads.shutdown, wait=True)
        await asyncio.to_thread(self._connection.stop)

    @property
    def accelerator(self) -> AsyncReadAccelerator:
        """Answers lookups.

        Raises:
            Refused: 503 while there is none yet.
        """
        if self._accelerator is None:
            why = "" if self._failed is None else f"; the last try failed: {_told(self._failed)}"
            detail = f"expected the first image to be loaded, found it on its way{why}"
            raise Refused("NotReady", 503, "The sidecar is starting.", detail, retryable=True)
        return self._accelerator

    @property
    def accelerator_or_none(self) -> AsyncReadAccelerator | None:
        """The same; None while there is none yet."""
        return self._accelerator

    @property
    def connection(self) -> Connection:
        """Histories of streams. Its calls block: `in_thread`."""
        return self._connection

    async def in_thread(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Do what may block in a thread."""
        submitted = self._threads.submit(work, *args, **options)
        return await asyncio.wrap_future(submitted)

    def readiness(self) -> Readiness:
        """Whether requests are answered. Starts the question for a newer image where one is due; does not block."""
        accelerator = self._accelerator
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
            reasons.append("the last question to the source of images failed")
        if self.store.is_failing:
            reasons.append("the last request to the store found it unavailable")
        if (seconds := self.store.oldest_request_seconds()) > self.settings.slow_request_seconds:
            reasons.append(f"a request to the store has taken {seconds:.0f} s until now")
        return Readiness(State.DEGRADED if reasons else State.READY, reasons)

    def note(self, operation: str, status: int, seconds: float) -> None:
        """A request was answered."""
        histogram = self._seconds.get((operation, status))
        if histogram is None:
            histogram = self._seconds[operation, status] = Histogram(SECONDS_BOUNDS)
        histogram.add(seconds)

    def collect(self) -> Iterator[Metric]:
        """What Prometheus is told: of requests over HTTP, and all that `AccelCollector` tells."""
        told = {state.value: 0 for state in State} | {self.readiness().state.value: 1}
        states = GaugeMetricFamily("accel_sidecar_state", "1 for the state that the sidecar is in.", labels=("state",))
        for state, value in told.items():
            states.add_metric((state,), value)
        yield states
        labels = ("operation", "status")
        requests = CounterMetricFamily("accel_http_requests", "Requests that were answered.", labels=labels)
        seconds = HistogramMetricFamily("accel_http_request_duration_seconds", "Time that they took.", labels=labels)
        for (operation, status), histogram in list(self._seconds.items()):
            stats = histogram.stats()
            buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in stats.cumulated()]
            requests.add_metric((operation, str(status)), stats.values)
            seconds.add_metric((operation, str(status)), buckets, stats.total)
        yield requests
        yield seconds
        yield from AccelCollector(self._accelerator, self.store, self._connection.cache_stats).collect()

    async def _keep_opening(self) -> None:
        pause_seconds = most = self.settings.open_retry_seconds
        most *= RETRIES_GROW_TO
        while True:
            try:
                accelerator = await self.in_thread(self._open_accelerator)
                if self._warm:
                    await accelerator.warm()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again, and told
                self._failed = error
                logger.warning("the store could not be opened, and is tried again: %s", _told(error))
            else:
                self.key_of = lru_cache(KEYS_KEPT_MAX)(accelerator.object_key)
                self._accelerator, self._failed = accelerator, None
                logger.info("ready, with image version %s", accelerator.image_version)
                return
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, most)

    def _open_accelerator(self) -> AsyncReadAccelerator:
        source = self._connection.catalog.images() if self._images is None else self._images()
        return AsyncReadAccelerator(source, self.store, settings=self._lookups, system=self.system)


class _SidecarCollector(Collector):
    """Asks a sidecar at each scrape, and nothing when it is registered."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        return self._sidecar.collect()


def _told(error: BaseException) -> str:
    return redacted(f"{type(error).__name__}: {error}")
