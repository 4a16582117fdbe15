"""Segments that go to and fro between two processes within moments, by take-overs that are cut off half-way.

A take-over releases a segment in its owner's list, moves it, and reads the newest image: the taker may die between the
first two steps, and the store may be away between the last two. Then a process that lives opens the segment, although
the image of its reader is older than the end of the segment. Meanwhile two threads of one process refresh at once.

Whatever happens, a segment is opened up to its end, a refresh has all that was written before it began, and all that
was acknowledged can be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from accel.catalog import ObjectCatalog
from accel.catalog.keys import NODE_LISTS, STREAM_SHARDS
from accel.errors import AccelError, InconsistentAnswer
from accel.history.rules.configuration import StreamConfiguration
from accel.image import ImageVersion, is_newer
from accel.streams.acknowledgements import WriteFuture
from loaders.errors import Closed, StoreError, TableError
from loaders.layout import TABLES_PREFIX
from loaders.store.decorated import StoreCall
from tests.accel.streams.writer.world import CATALOG, NAME, Process, node_of
from tests.simulation.actors import kind_of
from tests.simulation.scheduler import Violation
from tests.simulation.streams import NOT_DONE, reading, threaded
from tests.simulation.world import Actor, Machine

T = TypeVar("T")

NODES = (11, 12)
SEGMENTS = 2
MOVES_MAX = 8
PAUSE_SECONDS = (5.0, 30.0)
NEAR = 0.02
"""Times the usual latency: what a reader was asked a moment ago it does not ask again."""

AWAY_SECONDS = 0.2
REFRESHES_AT_ONCE = 3
REFRESHES = 3
REPLY_SECONDS_MAX = 0.5
"""Of threads that refresh, while the other node goes on: what they have read is old when the reply comes."""


@dataclass(eq=False)
class Seat:
    """Where the processes of a node run, one after the other."""

    machine: Machine
    node_id: int
    process: Process | None = None


class Mover(Actor):
    """Two nodes: they create a stream, write to it, and take its segments from each other.

    Args:
        machine: where it is decided what they do.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.seats = [Seat(Machine(self.world, f"{machine.name}-{node_id}"), node_id) for node_id in NODES]
        self.lives = count()
        self.numbers = count()
        self.written: defaultdict[int, list[tuple[bytes, WriteFuture]]] = defaultdict(list)
        self.name = NAME

    def live(self) -> None:
        """One stream."""
        self.machine.scheduler.sleep(self.machine.random.uniform(*PAUSE_SECONDS))
        self.name = NAME[0], f"moved-{next(self.lives)}"
        self.written.clear()
        try:
            if self._has_begun():
                for _ in range(self.machine.random.randint(3, MOVES_MAX)):
                    self._move()
                    if self.machine.random.random() < 0.3:
                        self._refresh_at_once()
                with suppress(*NOT_DONE, StoreError, TableError):
                    self._compare()
        finally:
            for seat in self.seats:
                self._end(seat)

    def _has_begun(self) -> bool:
        nearness = self.machine.random.choice([NEAR, NEAR, 1.0])
        for seat in self.seats:
            seat.machine.start()
            seat.machine.store.nearness = nearness
            self._start(seat)
        seat = self.seats[0]
        wanted = StreamConfiguration(min_segments=1)
        self._do(seat, lambda process: process.streams.create_stream(*self.name, wanted, segments=SEGMENTS))
        return self._do(seat, lambda process: process.host.open_segments(self.name, range(SEGMENTS))) is not None

    def _move(self) -> None:
        """The owner of a segment writes, another one takes it over, or nearly, and whoever has it then goes on."""
        machine = self.machine
        segment_id = machine.random.randrange(SEGMENTS)
        asked = self._do(self.seats[0], lambda process: node_of(process.host, self.name, segment_id))
        owner = self.seats[0] if asked == NODES[0] else self.seats[1]
        taker = self.seats[1] if owner is self.seats[0] else self.seats[0]
        for _ in range(machine.random.randint(0, 3)):
            self._append(owner, segment_id)
        if (what := machine.random.randrange(3)) < 2:
            taker.machine.store.after_write = [self._dying, self._away][what](taker, owner)
        took = self._take(taker, segment_id, owner)
        taker.machine.store.after_write = None
        machine.count(f"moves that {'were not finished' if took is None else 'came to their end'}")
        machine.scheduler.sleep(AWAY_SECONDS)
        for seat in [owner, taker]:
            if seat.process is None:
                self._start(seat)
            self._append(seat, segment_id)
            if self._do(seat, lambda process: process.host.open_segments(self.name, [segment_id])) is not None:
                machine.count("segments opened again")
                self._append(seat, segment_id)

    def _take(self, taker: Seat, segment_id: int, owner: Seat) -> bool | None:
        def take(process: Process) -> bool:
            process.host.take_over(self.name, {segment_id: owner.node_id})
            return True

        return self._do(taker, take)

    def _dying(self, taker: Seat, owner: Seat) -> Callable[[StoreCall], None]:
        """The taker dies after the release, before the move."""
        prefix = f"{TABLES_PREFIX}{NODE_LISTS}/{owner.node_id:010}"

        def die(call: StoreCall) -> None:
            if call.key.startswith(prefix):
                self.machine.count("takers that died before the move")
                taker.machine.doom(1)

        return die

    def _away(self, taker: Seat, _: Seat) -> Callable[[StoreCall], None]:
        """The store is away after the move, when the taker reads the newest image."""
        store = taker.machine.store

        def be_away(call: StoreCall) -> None:
            if call.key.startswith(f"{TABLES_PREFIX}{STREAM_SHARDS}/") and self.world.plan.faults:
                self.machine.count("stores that were away after the move")
                store.away_until_seconds = self.machine.scheduler.seconds + AWAY_SECONDS

        return be_away

    def _append(self, seat: Seat, segment_id: int) -> None:
        payload = b"%d" % next(self.numbers)

        def append(process: Process) -> None:
            self.written[segment_id].append((payload, process.host.append(self.name, segment_id, [payload])))
            process.host.flush()

        self._do(seat, append)

    def _acknowledged(self, segment_id: int) -> set[bytes]:
        return {each for each, done in self.written[segment_id] if done.done() and done.exception() is None}

    def _refresh_at_once(self) -> None:
        """Threads of a third process refresh, while the nodes write and take segments."""
        machine, scheduler = self.machine, self.machine.scheduler
        machine.store.reply_seconds_max = 0.0
        with suppress(StoreError, TableError):
            catalog = machine.open(threaded(machine))
            machine.store.reply_seconds_max = REPLY_SECONDS_MAX
            threads = [
                scheduler.spawn(f"{machine.name} refresh {each}", lambda: self._refresh(catalog), machine.process)
                for each in range(REFRESHES_AT_ONCE)
            ]
            while not all(each.is_done for each in threads):
                segment_id, seats = machine.random.randrange(SEGMENTS), machine.random.sample(self.seats, 2)
                self._take(seats[0], segment_id, seats[1])
                self._append(seats[0], segment_id)
                scheduler.sleep(machine.random.uniform(0, 0.2))

    def _refresh(self, catalog: ObjectCatalog) -> None:
        scheduler, random = self.machine.scheduler, self.machine.random
        for _ in range(REFRESHES):
            scheduler.sleep(random.uniform(0, 0.3))
            with suppress(AccelError):  # somebody may have damaged what is read
                before, found = self._version_now(), catalog.refresh().version
                if found != before and not is_newer(found, before) and not self.world.is_hurt():
                    raise Violation(f"a refresh expected all of {before}, which was written before, found {found}")
                self.machine.count("refreshes compared")

    def _version_now(self) -> ImageVersion:
        with ObjectCatalog.open(self.world.memory, settings=CATALOG, system=self.world.system) as catalog:
            return catalog.refresh().version

    def _compare(self) -> None:
        acknowledged = {each for segment_id in range(SEGMENTS) for each in self._acknowledged(segment_id)}
        with reading(self.machine, name=self.name) as reader:
            found = [event.payload for event in reader]
        if lost := acknowledged - set(found):
            raise Violation(f"{len(lost)} acknowledged events of segments that moved were not read: {sorted(lost)[:5]}")
        if len(set(found)) < len(found):
            raise Violation("events of segments that moved were read twice")
        self.machine.count("events compared", len(found))

    # The processes

    def _start(self, seat: Seat) -> None:
        """A new process, if the store lets it."""
        nearness = seat.machine.store.nearness
        seat.machine.start().store.nearness = nearness
        view = self.shared.view(seat.machine)
        seat.process = self._done(seat, lambda: view.start(node_id=seat.node_id))

    def _end(self, seat: Seat) -> None:
        process, seat.process = seat.process, None
        if process is not None:
            process.host.stop()
        seat.machine.process.is_dead = True  # the end of a process ends its threads
        self.machine.scheduler.end_tasks_of(seat.machine.process)

    def _do(self, seat: Seat, what: Callable[[Process], T]) -> T | None:
        """What a thread of a node's process is asked to do; None if it did not, or has nothing to say."""
        process = seat.process
        return None if process is None else self._done(seat, lambda: what(process))

    def _done(self, seat: Seat, work: Callable[[], T]) -> T | None:
        scheduler, caller, came = self.machine.scheduler, self.machine.scheduler.current, list[T | None]()

        def body() -> None:
            try:
                came.append(work())
            except InconsistentAnswer as error:
                if not self.world.is_hurt():  # else it is said of what lies there
                    raise Violation(f"node {seat.node_id}: {error}") from error
            except NOT_DONE as error:
                self.machine.count(f"moves: {type(error).__name__}")
            except AccelError as error:
                is_ended = isinstance(error, Closed) and seat.process is None  # while the call ran
                self.machine.count("moves: ended" if is_ended else kind_of(seat.machine, error))
            finally:
                if caller is not None:
                    scheduler.wake(caller)

        task = scheduler.spawn(f"{seat.machine.name} call", body, seat.machine.process)
        while not task.is_done:
            scheduler.block(1.0)
        if seat.machine.process.is_dead:
            seat.process = None
        return came[0] if came else None
