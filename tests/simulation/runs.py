"""All actors together, for so many steps, and then what must be true when everything is quiet."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from unittest.mock import patch

from accel.lookup import search
from tests.simulation.actors import Caretaker, CollectorActor, Compactor, Reader, Uploader, lives, processes
from tests.simulation.blocking import simulated
from tests.simulation.collectors import RIGHT, CollectorRules
from tests.simulation.damage import Lies, Outages, Rot, put_back
from tests.simulation.endings import Ender
from tests.simulation.hints import HintBuilder
from tests.simulation.histories import HISTORY_ACTORS, SKEW_SECONDS, History, HistoryActor
from tests.simulation.invariants import Invariants
from tests.simulation.lookups import Looker
from tests.simulation.moves import Mover
from tests.simulation.names import Gardener
from tests.simulation.quiet import STEPS_MAX, read_now, settle
from tests.simulation.repairs import repair_catalog, repair_history
from tests.simulation.scheduler import Violation, described
from tests.simulation.streams import OWNERS, EventReader, Member, OwnerActor, SharedStream, settle_stream
from tests.simulation.transaction_rot import TransactionRot
from tests.simulation.undoers import Undoer
from tests.simulation.world import CATALOG, EVENTS, HISTORY, NODES, WHOLE, Machine, Plan, World


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run was about.

    Args:
        steps: how many requests were made.
        trace: a hash of all that happened.
        counts: what happened how often.
        injected: what went wrong how often.
    """

    steps: int
    trace: str
    counts: Counter[str]
    injected: Counter[str]


@dataclass(frozen=True, slots=True)
class Faulty:
    """Mistakes that are planted in actors of a world.

    Args:
        collector: the rules that the collector keeps.
        merges: how likely a compactor merges neighbouring objects of one stream.
        bridges: whether it takes two ranges of a stream for one.
    """

    collector: CollectorRules = RIGHT
    merges: float = 0.35
    bridges: bool = False


NONE = Faulty()


class Failed(AssertionError):
    """A run that found something wrong.

    Args:
        seed: of the world.
        steps: so many were to be taken.
        world: as it was then.
        cause: what was wrong.
    """

    def __init__(self, seed: int, steps: int, plan: Plan, world: World, cause: BaseException) -> None:
        at = world.scheduler.steps
        arguments = f"--seed {seed} --steps {steps} {plan.arguments}".strip()
        super().__init__(
            f"seed {seed}, step {at}: {cause}\n"
            f"  replay: python -m tests.simulation {arguments}\n"
            f"  the last steps:\n{described(world.scheduler.trace.lines)}"
        )
        self.seed, self.steps, self.at, self.cause = seed, steps, at, cause
        self.plan = plan


Actor = Callable[[Machine, Faulty], Callable[[], None]]

CATALOG_ACTORS: dict[str, Actor] = {
    **{
        f"uploader-{node_id}": lambda each, _, node_id=node_id: processes(each, Uploader(each, node_id).live, dies=0.3)  # type: ignore[misc]
        for node_id in NODES
    },
    **{
        f"compactor-{number}": lambda each, faulty: processes(
            each, Compactor(each, faulty.merges, bridges=faulty.bridges).live, dies=0.2
        )
        for number in range(2)
    },
    "collector": lambda each, faulty: processes(each, CollectorActor(each, faulty.collector).live, dies=0.3),
    "caretaker": lambda each, _: processes(each, Caretaker(each).live, dies=0.2),
    "undoer": lambda each, _: processes(each, Undoer(each).live, dies=0.2),
    "hinter": lambda each, _: processes(each, HintBuilder(each).live, dies=0.2),
    "walker": lambda each, _: processes(each, Reader(each).live, dies=0),
    "looker": lambda each, _: processes(each, Looker(each).live, dies=0),
}
"""What each actor of a catalog does, by its name."""

MOVER = "mover"
EVENT_ACTORS: dict[str, Callable[[Machine], Callable[[], None]]] = {
    **{f"owner-{node_id}": lambda each, node_id=node_id: OwnerActor(each, node_id).live for node_id in OWNERS},  # type: ignore[misc]
    **{f"reader-{number}": lambda each: EventReader(each).live for number in range(2)},
    **{f"member-{number}": lambda each: Member(each).live for number in range(2)},
    "ender": lambda each: Ender(each).live,
    MOVER: lambda each: Mover(each).live,
    "transaction-rot": lambda each: TransactionRot(each).live,
}
"""What each actor of a stream of events does, by its name."""

GARDENERS = ("gardener-0", "gardener-1", "gardener-2")
"""Who creates and deletes streams."""

ACTORS = [*CATALOG_ACTORS, *HISTORY_ACTORS, *GARDENERS, *EVENT_ACTORS, "rot", "outages", "lies"]


def spawn_actors(world: World, faulty: Faulty) -> None:
    """All actors of a world's rooms that its plan does not leave out."""
    for name, begin in _actors(world, faulty):
        if name not in world.plan.without:
            world.scheduler.spawn(name, begin())


def _actors(world: World, faulty: Faulty) -> Iterator[tuple[str, Callable[[], Callable[[], None]]]]:
    rooms = world.choices.rooms
    if CATALOG in rooms:
        yield from ((name, partial(_in_catalog, world, name, faulty)) for name in CATALOG_ACTORS)
    if HISTORY in rooms:
        yield from ((name, partial(_in_history, world, name)) for name in [*HISTORY_ACTORS, *GARDENERS])
    if world.choices.has_damage:
        yield "rot", partial(_in_storage, world, "rot", Rot)
    if world.choices.has_outages and world.plan.faults:
        yield "outages", partial(_in_storage, world, "outages", Outages)
    if world.choices.has_lies and world.plan.faults:
        yield "lies", partial(_in_storage, world, "lies", Lies)
    if EVENTS in rooms:
        yield from ((name, partial(_in_stream, world, name)) for name in EVENT_ACTORS)


def _in_catalog(world: World, name: str, faulty: Faulty) -> Callable[[], None]:
    return CATALOG_ACTORS[name](Machine(world, name), faulty)


def _in_history(world: World, name: str) -> Callable[[], None]:
    machine = Machine(world, name, SKEW_SECONDS)
    if name in GARDENERS:
        return lives(machine, Gardener(machine).live, dies=0.25)
    return lives(machine, HistoryActor(machine, *HISTORY_ACTORS[name]).live, dies=0.15)


def _in_storage(world: World, name: str, kind: type[Rot | Outages | Lies]) -> Callable[[], None]:
    machine = Machine(world, name, is_held_up=False)
    return lives(machine, kind(machine).live, dies=0)


def _in_stream(world: World, name: str) -> Callable[[], None]:
    machine = Machine(world, name)
    return lives(machine, EVENT_ACTORS[name](machine), dies=0.3, requests_max=400)


def settle_events(world: World) -> None:
    """The same for a stream of events."""
    if EVENTS in world.choices.rooms:
        machine = Machine(world, "owners at the end")
        world.scheduler.spawn(machine.name, lambda: settle_stream(machine))
        world.scheduler.run_until_done(machine.name, STEPS_MAX)
        world.scheduler.halt()


HINTS_WORTH_OBJECTS = 1
"""Nodes of these worlds have few objects; hints are asked for in the product from 32 candidates on."""


TASKS_MAX = 150
"""Of some twenty processes with a few threads each."""

FULL_READ_STEPS = 100
"""After so many steps somebody who knows nothing reads everything."""


class Watch:
    """Looks at a world after each of its steps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._catalog = Invariants(world)
        self._history_writes = 0
        self._reads_at_step = FULL_READ_STEPS

    def look(self) -> None:
        """What is cheap enough for each write."""
        if (tasks := self._world.scheduler.task_count) > TASKS_MAX:
            raise Violation(f"expected at most {TASKS_MAX} threads of all processes, found {tasks}")
        if self._world.damage is not None:  # what lies there now is nobody's word
            return
        self._catalog.check()
        if self._world.listings.history_writes != self._history_writes:
            self._history_writes = self._world.listings.history_writes
            self._world.history.check()
        if self._world.scheduler.steps >= self._reads_at_step and CATALOG in self._world.choices.rooms:
            self._reads_at_step = self._world.scheduler.steps + FULL_READ_STEPS
            read_now(self._world)


@contextmanager
def without_logs() -> Iterator[None]:
    """The code under test says what it met; so does the trace, and it takes less time."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate(seed: int, steps: int, plan: Plan = WHOLE, faulty: Faulty = NONE) -> Ran:
    """Run all actors for so many steps.

    Raises:
        Failed: something that must be true was not.
    """
    world = World(seed, plan)
    worth = patch.object(search, "ROOT_WORTH_OBJECTS", HINTS_WORTH_OBJECTS)
    with without_logs(), simulated(world.scheduler), worth, world.choices.applied():
        try:
            world.history = History(world, Random(f"{seed}/history"))
            if EVENTS in world.choices.rooms:
                world.shared = SharedStream(world)
            spawn_actors(world, faulty)
            look = Watch(world).look
            world.scheduler.run(steps, look)
            put_back(world)
            settle(world, look)
            world.history.settle()
            settle_events(world)
            repair_history(world)
            world.history.settle()
            repair_catalog(world)
        except Exception as error:
            raise Failed(seed, steps, plan, world, error) from error
        finally:
            world.scheduler.halt()
    return Ran(world.scheduler.steps, world.scheduler.trace.digest, world.oracle.counts, world.injected)
