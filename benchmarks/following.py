"""What it costs to follow a catalog, and what following costs lookups.

`follow_idle` counts the requests of a reader that looks up ten times a second while nothing happens, and of one that
reads what is committed each second. The peer follows by refreshes, a conditional GET a key. Time is simulated, so the
numbers are the same in each run. `refresh` times the lookup that finds its image due, on a store as slow as S3. The
peer asks within the lookup.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from accel import PolledImages, ReadAccelerator
from accel.catalog import NodeWriter, ObjectCatalog
from accel.image_source import ImageSource
from accel.system import SYSTEM, Components
from accel.testing import LatencyStore
from benchmarks import catalog_refresh
from benchmarks.harness import AnswersDiffer, Comparison, interleave
from loaders.format import RecordBatch
from loaders.store import CountingStore, MemoryStore
from loaders.tables import FormatRecord

FORMAT = FormatRecord(namespace="bench")
STREAM = 7
IDLE_SECONDS = 3_600
FOLLOWED_SECONDS = 25
LOOKUPS_A_SECOND = 10
RECORDS = 100

IDLE_GOAL_REQUESTS_A_SECOND = 1.0
FOLLOWED_GOAL_REQUESTS = 120
DUE_GOAL_RATIO = 20.0

Follow = Callable[[ObjectCatalog], ImageSource]


@dataclass
class Clock:
    """Simulated time."""

    seconds: float = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Time goes by."""
        self.seconds += seconds

    def system(self) -> Components:
        """Components with this clock; what runs beside a lookup runs at once."""
        return replace(SYSTEM, timer=self, sleep=self.sleep, wait=None, start=lambda work, _: work())


def by_listings(catalog: ObjectCatalog) -> ImageSource:
    """Ours, as it comes."""
    return catalog.images()


def by_refreshes(catalog: ObjectCatalog) -> ImageSource:
    """A conditional GET a key, each second."""
    system = catalog.parts.system
    return PolledImages(catalog.refresh, timer=system.timer, sleep=system.sleep)


def run_idle(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - requests do not vary, so there is one round
    """Requests of a follower while nothing happens, and while something is committed each second."""
    ours, peer = (_idle_requests(follow) / IDLE_SECONDS for follow in (by_listings, by_refreshes))
    goal = peer / IDLE_GOAL_REQUESTS_A_SECOND
    (mine, ends), (theirs, their_ends) = _followed(by_listings), _followed(by_refreshes)
    if ends != their_ends or ends != FOLLOWED_SECONDS * RECORDS:
        raise AnswersDiffer(f"followed to {ends}, the peer to {their_ends}")
    name, other = "follow_idle: 10 nodes, 32 shards", "a conditional GET a key, each second"
    return [
        Comparison.exact(f"{name}, nothing happens", ours, "requests a second", other, peer, goal),
        Comparison.exact(
            f"follow_idle: 2 nodes, a commit each second, {FOLLOWED_SECONDS} s at the tail",
            mine,
            "requests",
            other,
            theirs,
            theirs / FOLLOWED_GOAL_REQUESTS,
        ),
    ]


def run_refresh(rounds: int = 7) -> list[Comparison]:
    """The time of a warm lookup whose image is due to be asked for again."""
    memory, clock = MemoryStore(), Clock()
    _make(memory)
    store = LatencyStore(memory, random.Random(1), _sleep)
    beside = replace(SYSTEM, timer=clock)
    sides = []
    for system in (beside, replace(beside, start=lambda work, _: work())):
        catalog = ObjectCatalog.open(store, system=system)
        accelerator = ReadAccelerator(catalog.images(), store, system=system)
        accelerator.get_objects(STREAM, 0, RECORDS, 1)
        sides.append(partial(accelerator.get_objects, STREAM, 0, RECORDS, 1))
    ours, peer = (_DueLookup(side, clock) for side in sides)
    timings = interleave(ours, peer, rounds=3 * rounds)
    seconds = replace(timings, ours_seconds=ours.seconds[1:], peer_seconds=peer.seconds[1:])
    return [
        seconds.compare("refresh: a lookup whose image is due", peer="asking within it", unit="ms", goal=DUE_GOAL_RATIO)
    ]


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


class _DueLookup:
    """Lets the image fall due, times one lookup, and lets the question end that it has started."""

    def __init__(self, look_up: Callable[[], object], clock: Clock) -> None:
        self._look_up = look_up
        self._clock = clock
        self.seconds: list[float] = []

    def __call__(self) -> object:
        self._clock.seconds += 3.0
        started = time.perf_counter()
        answer = self._look_up()
        self.seconds.append(time.perf_counter() - started)
        _sleep(0.3)
        return answer


def _idle_requests(follow: Follow) -> int:
    clock, store = Clock(), CountingStore(MemoryStore())
    system = clock.system()
    ObjectCatalog.init(store, FORMAT, system=system)
    with ObjectCatalog.open(store, system=system) as catalog:
        catalog_refresh.fill(catalog)
        with ReadAccelerator(follow(catalog), store, system=system) as accelerator:
            store.reset()
            for _ in range(IDLE_SECONDS * LOOKUPS_A_SECOND):
                clock.seconds += 1 / LOOKUPS_A_SECOND
                accelerator.image_version  # noqa: B018 - what each lookup begins with
            return store.snapshot().total.requests


def _followed(follow: Follow) -> tuple[int, int]:
    """Requests of a reader at the tail, and where it has come to."""
    clock, memory = Clock(), MemoryStore()
    writer = _make(memory, system := clock.system())
    store = CountingStore(memory)
    with (
        ObjectCatalog.open(store, system=system) as catalog,
        ReadAccelerator(follow(catalog), store, system=system) as accelerator,
    ):
        store.reset()
        end = RECORDS
        for tick in range(FOLLOWED_SECONDS * LOOKUPS_A_SECOND):
            clock.seconds += 1 / LOOKUPS_A_SECOND
            if tick % LOOKUPS_A_SECOND == 0 and tick:
                _upload(writer)
            found = accelerator.get_objects(STREAM, end)
            end = found.resume_offset
        return store.snapshot().total.requests, end


def _make(store: MemoryStore, system: Components = SYSTEM) -> NodeWriter:
    """A catalog of two nodes, and the writer of one of them; it has uploaded once."""
    ObjectCatalog.init(store, FORMAT, system=system)
    catalog = ObjectCatalog.open(store, system=system)
    catalog.open_node(5).open_streams([STREAM + 1])
    writer = catalog.open_node(4)
    writer.open_streams([STREAM])
    _upload(writer)
    return writer


def _upload(writer: NodeWriter) -> None:
    start = writer.end(STREAM) or 0
    writer.upload({STREAM: [RecordBatch(STREAM, epoch=1, base_offset=start, count=RECORDS, payload=b"x")]})
