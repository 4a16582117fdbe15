"""The bucket that all actors share: its store, its faults, and what must be true of it.

The oracle stands outside of the catalog: it hears from uploaders what was acknowledged, and from the trimmer what it
asked for. Every process has a catalog of its own, whose thread pools are replaced by the actor's thread.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any, TypeVar

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.parts import catalog_parts, existing_format
from accel.system import Components
from accel.testing import Fault, FaultStore
from loaders.format import MissingBytes, open_tail
from loaders.layout import ObjectLayout
from loaders.lifetime import Lifetime
from loaders.object_ref import ObjectRef
from loaders.store import MemoryStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.tables import FormatRecord
from range_index import ObjectRanges
from tests.accel.catalog.simulation.scheduler import Scheduler
from tests.builders import write_set_object

Answer = TypeVar("Answer")

LAYOUT = ObjectLayout(namespace="sim")
FORMAT = FormatRecord(
    namespace="sim",
    stream_buckets=2,
    max_image_age_seconds=12.0,
    retention_seconds=24.0,
    clock_skew_seconds=1.0,
    prepared_seconds=120.0,
    orphan_seconds=60.0,
)
SETTINGS = CatalogSettings(
    parallel_requests=4, ids_block=16, ids_ahead=2, checkpoint_commits=5, stream_objects_in_list_max=3
)
STREAMS = tuple(range(1, 9))
NODES = (4, 5)
START_SECONDS = 1_800_000_000.0
FAULTS = {
    Fault.LOST_REPLY: 0.01,
    Fault.PRECONDITION: 0.01,
    Fault.CONFLICT: 0.01,
    Fault.SERVER_ERROR: 0.005,
    Fault.TIMEOUT: 0.005,
    Fault.SLOW_DOWN: 0.01,
}

Span = tuple[int, int, int]
"""(stream id, start, end)."""


class Violation(AssertionError):
    """Something that must always be true is not."""


class InlineExecutor(ThreadPoolExecutor):
    """Does at once, in the caller's thread, what it is given."""

    def submit(self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any) -> Future[Answer]:
        """See `Executor.submit`; the death of the process is not kept for later."""
        future: Future[Answer] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)
        return future


class InlineThreads(InlineExecutor):
    """The same in the place of the threads of an accelerator or a catalog."""

    def __init__(self, threads_max: int, name: str, *, lifetime: Lifetime | None = None) -> None:
        super().__init__(threads_max, thread_name_prefix=name)
        self.lifetime = lifetime


class BatonStore(DecoratedStore):
    """Each request waits for the baton, and then happens at once."""

    def __init__(self, store: FaultStore, scheduler: Scheduler) -> None:
        super().__init__(store)
        self._scheduler = scheduler
        self.writes = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self._scheduler.step()
        self.writes += call.operation in WRITES
        return send()


class Oracle:
    """What was promised to users of the bucket."""

    def __init__(self) -> None:
        self.committed: dict[int, list[tuple[int, int]]] = {each: [] for each in STREAMS}
        self.trimmed = dict.fromkeys(STREAMS, 0)
        self.given: set[int] = set()
        self.counts: Counter[str] = Counter()

    def acknowledge(self, spans: Iterable[Span]) -> None:
        """A commit of these has returned."""
        for stream_id, start, end in spans:
            self.committed[stream_id].append((start, end))

    def end(self, stream_id: int) -> int:
        """Up to where data of a stream was acknowledged."""
        return max((end for _, end in self.committed[stream_id]), default=0)

    def give(self, object_ids: Iterable[int]) -> list[int]:
        """Ids that somebody was given to write under."""
        ids = list(object_ids)
        if again := self.given & set(ids) or len(set(ids)) < len(ids):
            raise Violation(f"ids were given twice: {again} among {ids}")
        self.given |= set(ids)
        return ids


class Bucket:
    """The shared store with its catalog, and one catalog object for each process.

    Args:
        seed: decides about faults and about what actors choose.
        scheduler: gives the baton, and the time.
    """

    def __init__(self, seed: int, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.memory = MemoryStore(clock=lambda: START_SECONDS + scheduler.seconds)
        self.oracle = Oracle()
        self.random = random.Random(seed)
        numbers = count(1)
        self.system = Components(
            timer=lambda: scheduler.seconds,
            sleep=scheduler.sleep,
            jitter=self.random.random,
            clock=lambda: START_SECONDS + scheduler.seconds,
            nonce=lambda: next(numbers).to_bytes(16, "big"),
            start=lambda work, _: work(),
        )
        ObjectCatalog.init(self.memory, FORMAT, settings=CatalogSettings(parallel_requests=1), system=self.system)
        self.faults = FaultStore(self.memory, rng=random.Random(seed + 1), probabilities=FAULTS)
        self.store = BatonStore(self.faults, scheduler)
        self.homeless = list(STREAMS)

    def open(self) -> ObjectCatalog:
        """The catalog, as a new process opens it."""
        threads = (InlineExecutor(1), InlineExecutor(1))
        record = existing_format(self.store)
        return ObjectCatalog(lambda: catalog_parts(self.store, record, SETTINGS, self.system, threads), self.system)

    def count(self, what: str) -> None:
        """Note that something happened, so that a run can show what it was about."""
        self.oracle.counts[what] += 1

    def write(self, object_id: int, spans: Iterable[Span]) -> tuple[ObjectRef, ObjectRanges]:
        """Write an object with real bytes; sent again if the store does not answer."""
        body = write_set_object(spans)
        self.store.put(LAYOUT.object_key(object_id), body)
        return opened(object_id, body)


def opened(object_id: int, body: bytes) -> tuple[ObjectRef, ObjectRanges]:
    """What an object's index says."""
    index = open_tail(body, object_size_bytes=len(body), key=str(object_id))
    if isinstance(index, MissingBytes):
        raise Violation(f"object {object_id} is cut off")
    return ObjectRef(object_id, len(body), index.nbytes), index.object_ranges()


def spans_of(ranges: ObjectRanges) -> list[Span]:
    """(stream id, start, end) rows of what an object holds."""
    starts, lengths = ranges.starts.tolist(), ranges.lengths.tolist()
    return [(s, a, a + n) for s, a, n in zip(ranges.stream_ids.tolist(), starts, lengths, strict=True)]
