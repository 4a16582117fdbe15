"""The world that all actors share: one bucket, its machines with their clocks, and what must be true of it.

Everything follows from one seed. The choices of a world (format record, settings, how often requests fail) are drawn
first; after that each machine has random sources of its own, for what its actor does, for how long its requests take,
and for what goes wrong with them. `Plan` leaves some of it out, and changes nothing else.

The oracle is outside of the code under test: it hears from those who write what was acknowledged, and from those who
trim what they asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from accel.catalog import CatalogSettings, ObjectCatalog, compact, writer
from accel.catalog.parts import catalog_parts, existing_format
from accel.system import Components
from accel.testing import ClockStore, Fault, Lie, LyingStore
from loaders.errors import CorruptObject
from loaders.format import MissingBytes, open_tail, tail_checksum
from loaders.layout import Mark, ObjectLayout
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.object_writer import create_object
from loaders.store import MemoryStore
from loaders.tables import FormatRecord
from range_index import ObjectRanges
from tests.builders import write_set_object
from tests.simulation.blocking import SimulatedThreads
from tests.simulation.machine_store import Listings, MachineStore
from tests.simulation.scheduler import Mortal, Scheduler, Task, Violation

if TYPE_CHECKING:
    from tests.simulation.damage import Damage
    from tests.simulation.histories import History
    from tests.simulation.streams import SharedStream

LAYOUT = ObjectLayout(namespace="sim")
STREAMS = tuple(range(100_001, 100_009))
"""Of nodes that upload; segments are streams with lower ids."""

NODES = (4, 5)
START_SECONDS = 1_800_000_000.0
HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS
HURT_SECONDS = 20.0
"""So long after damage a process may still report it."""
CATALOG, HISTORY, EVENTS = "catalog", "history", "events"

FAULTS = {
    Fault.LOST_REPLY: 0.01,
    Fault.PRECONDITION: 0.01,
    Fault.CONFLICT: 0.01,
    Fault.SERVER_ERROR: 0.005,
    Fault.TIMEOUT: 0.005,
    Fault.RESET: 0.003,
    Fault.SHORT_BODY: 0.003,
    Fault.SLOW_DOWN: 0.01,
}

LIES = {
    Lie.EMPTY_PAGE: 0.15,
    Lie.SHORT_PAGE: 0.15,
    Lie.START_AFTER_IGNORED: 0.1,
    **dict.fromkeys([Lie.NO_WAY_ON, Lie.PAGE_AGAIN, Lie.KEY_OUTSIDE, Lie.KEYS_ENCODED], 0.02),
    Lie.BATCH_REFUSED: 0.3,
    Lie.KEY_REFUSED: 0.1,
}
"""Those that must not cost data. A server without conditions does, and one without metadata deletes nothing."""

Span = tuple[int, int, int]
"""(stream id, start, end)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What of a world is left out, to find out whether a failure needs it.

    Args:
        without: names of actors.
        faults: whether requests go wrong.
        deaths: whether processes die.
        pauses: whether they are held up.
        skew: whether their clocks differ.
        rooms: whose actors there are; none = as the seed says.
    """

    without: frozenset[str] = frozenset()
    faults: bool = True
    deaths: bool = True
    pauses: bool = True
    skew: bool = True
    rooms: frozenset[str] = frozenset()

    @property
    def arguments(self) -> str:
        """As the command line says it."""
        said = [f"--without {each}" for each in sorted(self.without)]
        said += [f"--no-{each}" for each in ("faults", "deaths", "pauses", "skew") if not getattr(self, each)]
        said += [f"--room {each}" for each in sorted(self.rooms)]
        return " ".join(said)


WHOLE = Plan()


@dataclass(frozen=True, slots=True)
class Choices:
    """What a seed decides before anything happens: all within their bounds.

    Args:
        format: of the catalog.
        settings: of its processes.
        fault_factor: times the usual number of faults.
        listing_lag_seconds: how far listings may be behind.
        has_damage: whether keys of tables are damaged and put back.
        has_outages: whether the store is away, slow or busy now and then.
        has_lies: whether the store lies now and then (`LyingStore`).
        has_wrong_clocks: whether the clocks of processes are off by up to a year; the store's is right.
        rooms: whose actors there are: those of the catalog, of a history, or of both.
        ids_ahead: ids that a node's writer keeps prepared.
        stream_objects_in_list_max: objects of one stream that wait in a list.
        list_versions_kept: versions of a list that are kept.
    """

    format: FormatRecord
    settings: CatalogSettings
    fault_factor: float
    listing_lag_seconds: float
    has_damage: bool
    rooms: frozenset[str]
    has_outages: bool
    has_wrong_clocks: bool
    has_lies: bool
    ids_ahead: int
    stream_objects_in_list_max: int
    list_versions_kept: int

    @classmethod
    def drawn(cls, random: Random) -> Choices:
        """Draw them."""
        age, skew = random.choice([10.0, 12.0, 16.0]), random.choice([0.0, 1.0, 4.0])
        record = FormatRecord(
            namespace="sim",
            stream_buckets=random.choice([1, 2, 3]),
            max_image_age_seconds=age,
            retention_seconds=random.choice([2 * age, 2 * age, 36.0]),
            clock_skew_seconds=skew,
            prepared_seconds=random.choice([age + skew, 60.0, 120.0]),
            orphan_seconds=random.choice([60.0, 90.0]),
        )
        settings = CatalogSettings(
            parallel_requests=random.choice([1, 4]),
            ids_block=random.choice([1, 4, 16]),
            checkpoint_commits=random.choice([1, 5, 9]),
        )
        bounds = random.choice([0, 2, 4]), random.choice([1, 3, 8]), random.choice([1, 3, 5])
        lag = random.choice([0.0, 0.0, 3.0])
        factor, _ = random.choice([0.1, 0.5, 2.0]), random.random()  # the second is for seeds to stay what they are
        rooms = random.choice(
            [{CATALOG}, {CATALOG}, {HISTORY}, {EVENTS}, {CATALOG, EVENTS}, {CATALOG, HISTORY, EVENTS}]
        )
        has_damage, has_outages = random.random() < 0.25, random.random() < 0.25
        has_wrong_clocks, has_lies = random.random() < 0.4, random.random() < 0.25
        storage = (lag, has_damage, frozenset(rooms), has_outages, has_wrong_clocks, has_lies)
        return cls(record, settings, factor, *storage, *bounds)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The bounds of the catalog are these."""
        with (
            patch.object(writer, "IDS_AHEAD", self.ids_ahead),
            patch.object(writer, "STREAM_OBJECTS_IN_LIST_MAX", self.stream_objects_in_list_max),
            patch.object(compact, "LIST_VERSIONS_KEPT", self.list_versions_kept),
        ):
            yield


class Oracle:
    """What was promised to users of the bucket."""

    def __init__(self) -> None:
        self.committed: dict[int, list[tuple[int, int]]] = {each: [] for each in STREAMS}
        self.acknowledged_seconds: dict[int, list[float]] = {each: [] for each in STREAMS}
        self.trimmed = dict.fromkeys(STREAMS, 0)
        self.given: set[int] = set()
        self.counts: Counter[str] = Counter()

    def acknowledge(self, spans: Iterable[Span], seconds: float) -> None:
        """A commit of these has returned."""
        for stream_id, start, end in spans:
            self.committed[stream_id].append((start, end))
            self.acknowledged_seconds[stream_id].append(seconds)

    def committed_by(self, stream_id: int, seconds: float) -> list[tuple[int, int]]:
        """What was acknowledged at a time."""
        told = zip(self.committed[stream_id], self.acknowledged_seconds[stream_id], strict=True)
        return [span for span, then in told if then <= seconds]

    def end(self, stream_id: int) -> int:
        """Up to where data of a stream was acknowledged."""
        return max((end for _, end in self.committed[stream_id]), default=0)

    @property
    def live_anywhere(self) -> bool:
        """Whether something is there that was not trimmed."""
        return any(self.end(each) > self.trimmed[each] for each in STREAMS)

    def give(self, object_ids: Iterable[int]) -> list[int]:
        """Ids that somebody was given to write under."""
        ids = list(object_ids)
        if again := self.given & set(ids) or len(set(ids)) < len(ids):
            raise Violation(f"ids were given twice: {again} among {ids}")
        self.given |= set(ids)
        return ids


class World:
    """The shared store with its catalog, and the history of a stream.

    Args:
        seed: decides about everything.
        plan: what of it is left out.
    """

    history: History
    damage: Damage | None = None
    shared: SharedStream

    def __init__(self, seed: int, plan: Plan = WHOLE) -> None:
        self.seed, self.plan = seed, plan
        self.scheduler = Scheduler()
        self.memory = MemoryStore(clock=lambda: START_SECONDS + self.scheduler.seconds)
        self.oracle = Oracle()
        choices = Choices.drawn(Random(f"{seed}/choices"))
        self.choices = replace(choices, rooms=plan.rooms or choices.rooms)
        self.homeless = list(STREAMS)
        dated = ClockStore(self.memory, lambda: START_SECONDS + self.scheduler.seconds)
        self.lying = LyingStore(dated, Random(f"{seed}/lies"), LIES)
        self.lying.is_lying = False
        self.listings = Listings(self.lying, self.choices.listing_lag_seconds)
        self.stores: list[MachineStore] = []
        self._numbers = count(1)
        self.hurt: dict[str, float] = {}
        self.system = self.components(lambda: 0.0, Random(f"{seed}/system"))
        made = CatalogSettings(parallel_requests=1)
        ObjectCatalog.init(self.memory, self.choices.format, settings=made, system=self.system)

    def components(self, skew_seconds: Callable[[], float], random: Random) -> Components:
        """What a process is given whose clock is off by so much."""
        scheduler = self.scheduler
        return Components(
            timer=lambda: scheduler.seconds,
            sleep=scheduler.sleep,
            jitter=random.random,
            clock=lambda: START_SECONDS + scheduler.seconds + skew_seconds(),
            nonce=lambda: next(self._numbers).to_bytes(16, "big"),
            start=lambda work, _: work(),
        )

    def is_hurt(self, key: str = "") -> bool:
        """Whether a key, by default any object, is damaged or was until some seconds ago."""
        if self.damage is not None and (not key or self.damage.key == key):
            return True
        ends = self.hurt.values() if not key else [self.hurt.get(key, -math.inf)]
        return any(self.scheduler.seconds - end <= HURT_SECONDS for end in ends)

    def count(self, what: str, number: int = 1) -> None:
        """Note that something happened, so that a run can show what it was about."""
        self.oracle.counts[what] += number

    def becomes_quiet(self) -> None:
        """From now on nothing goes wrong any more: no faults, no deaths, no clock that is off."""
        self.plan = replace(self.plan, faults=False, deaths=False, pauses=False, skew=False)
        self.listings.lag_seconds, self.listings.outage, self.lying.is_lying = 0.0, None, False

    @property
    def injected(self) -> Counter[str]:
        """How often each fault struck."""
        told = Counter(self.listings.injected)
        told.update({f"lie: {lie.name}": number for lie, number in self.lying.injected.items()})
        for store in self.stores:
            told.update({fault.name: number for fault, number in store.faults.injected.items()})
        return told


@dataclass(eq=False)
class SimulatedProcess(Mortal):
    """One process of a machine.

    Args:
        system: its clock, its sleep and its chance.
        store: the bucket, as it sees it.
        is_dead: whether it is; has_threads: whether work is done beside its callers.
    """

    system: Components
    store: MachineStore
    is_dead: bool = False
    has_threads: bool = False


@dataclass(eq=False)
class Machine:
    """Where the processes of one actor run, one after the other.

    Args:
        world: with the bucket.
        name: of the actor.
        skew_seconds_max: how far its clock may be off.
        is_held_up: whether its processes may be held up for hours.
    """

    world: World
    name: str
    skew_seconds_max: float | None = None
    is_held_up: bool = True
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        world = self.world
        self.random = Random(f"{world.seed}/{self.name}")
        self._latency = Random(f"{world.seed}/{self.name}/latency")
        self.scheduler, self.oracle, self.memory = world.scheduler, world.oracle, world.memory
        self.count, self.homeless = world.count, world.homeless
        self._skew_seconds = 0.0
        self.start()

    @property
    def stall_seconds_max(self) -> float:
        """How long a writer may be held up between saying when it retired something, and the write that says so."""
        record = self.world.choices.format
        return 0.6 * (record.retired_seconds - record.max_image_age_seconds - record.clock_skew_seconds)

    def begin(self) -> None:
        """From now on the current task is that of a new process."""
        self._own_task().process = self.start()

    def end(self) -> None:
        """From now on it is that of no process."""
        self._own_task().process = Mortal()

    def _own_task(self) -> Task:
        if self.scheduler.current is None:
            raise RuntimeError("expected a task, found none")
        return self.scheduler.current

    def start(self) -> SimulatedProcess:
        """A new process, which may have another clock."""
        world, factor = self.world, self.world.choices.fault_factor * self.world.plan.faults
        self.set_clock()
        system = world.components(lambda: self._skew_seconds, self.random)
        faults = {fault: chance * factor for fault, chance in FAULTS.items()}
        store = MachineStore(world.listings, self.name, self.scheduler, self._latency, faults)
        self.process = SimulatedProcess(system, store)
        store.process = self.process
        store.is_held_up_for_long = self.is_held_up and world.plan.pauses
        world.stores.append(store)
        return self.process

    def set_clock(self) -> None:
        """Let the clock jump."""
        most = (
            self.world.choices.format.clock_skew_seconds / 2 if self.skew_seconds_max is None else self.skew_seconds_max
        )
        if self.world.choices.has_wrong_clocks:
            most = self.random.choice([most, 600.0, DAY_SECONDS, 365 * DAY_SECONDS])
        drawn = self.random.uniform(-most, most)
        self._skew_seconds = drawn if self.world.plan.skew else 0.0

    @property
    def store(self) -> MachineStore:
        """The bucket, as the process sees it."""
        return self.process.store

    @property
    def system(self) -> Components:
        """Of the process."""
        return self.process.system

    def doom(self, requests: int | None) -> None:
        """Let the process die in place of its n-th request from now; None = it lives."""
        self.store.requests_to_live = requests if self.world.plan.deaths else None

    def stall(self, requests: int, seconds: float) -> None:
        """Let the process wait that long before its n-th request from now, as if its machine had paused."""
        if self.world.plan.pauses:
            self.store.stall = (requests, seconds)

    def open(self, system: Components | None = None) -> ObjectCatalog:
        """The catalog, as a new process opens it."""
        store, system, choices = self.store, system or self.system, self.world.choices
        threads = (SimulatedThreads(), SimulatedThreads())
        record = existing_format(store)
        return ObjectCatalog(lambda: catalog_parts(store, record, choices.settings, system, threads), system)

    def write(self, object_id: int, spans: Iterable[Span]) -> tuple[ObjectRef, ObjectRanges]:
        """Write an object with real bytes."""
        body = write_set_object(spans)
        mark = Mark(existing_format(self.memory).catalog_id, object_id, self.system.nonce().hex())
        create_object(self.store, LAYOUT.object_key(object_id), body, mark=str(mark))
        return opened(object_id, body)


@dataclass(eq=False)
class Actor:
    """Who does something on a machine: process after process."""

    machine: Machine

    @property
    def world(self) -> World:
        """All that there is."""
        return self.machine.world

    @property
    def shared(self) -> SharedStream:
        """The stream of events."""
        return self.world.shared


def opened(object_id: int, body: bytes) -> tuple[ObjectRef, ObjectRanges]:
    """What an object's index says."""
    index = open_tail(body, object_size_bytes=len(body), key=str(object_id))
    if isinstance(index, MissingBytes):
        raise Violation(f"object {object_id} is cut off")
    checksum = tail_checksum(body, object_size_bytes=len(body), index_size_bytes=index.nbytes)
    return ObjectRef(object_id, len(body), index.nbytes, tail_checksum=checksum), index.object_ranges()


def content_of(ref: ObjectRef, body: bytes) -> list[Span]:
    """What an object holds whose bytes are those that a list has the checksum of.

    Raises:
        CorruptObject: they are not.
    """
    found, ranges = opened(ref.object_id, body)
    if ref.tail_checksum not in (UNKNOWN, found.tail_checksum):
        expected, met = f"a tail with checksum {ref.tail_checksum}", str(found.tail_checksum)
        raise CorruptObject(LAYOUT.object_key(ref.object_id), len(body), expected=expected, found=met)
    return spans_of(ranges)


def spans_of(ranges: ObjectRanges) -> list[Span]:
    """(stream id, start, end) rows of what an object holds."""
    starts, lengths = ranges.starts.tolist(), ranges.lengths.tolist()
    return [(s, a, a + n) for s, a, n in zip(ranges.stream_ids.tolist(), starts, lengths, strict=True)]
