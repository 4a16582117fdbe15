"""All actors together, for so many steps, and then what must be true when everything is quiet."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.simulation.actors import Caretaker, CollectorActor, Compactor, Reader, Uploader, processes
from tests.simulation.blocking import simulated
from tests.simulation.collectors import RIGHT, CollectorRules
from tests.simulation.invariants import Invariants
from tests.simulation.lookups import Looker
from tests.simulation.quiet import settle
from tests.simulation.scheduler import described
from tests.simulation.undoers import Undoer
from tests.simulation.world import NODES, WHOLE, Machine, Plan, World


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
    """

    collector: CollectorRules = RIGHT
    merges: float = 0.35


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

ACTORS: dict[str, Actor] = {
    **{
        f"uploader-{node_id}": lambda each, _, node_id=node_id: processes(each, Uploader(each, node_id).live, dies=0.3)  # type: ignore[misc]
        for node_id in NODES
    },
    **{
        f"compactor-{number}": lambda each, faulty: processes(each, Compactor(each, faulty.merges).live, dies=0.2)
        for number in range(2)
    },
    "collector": lambda each, faulty: processes(each, CollectorActor(each, faulty.collector).live, dies=0.3),
    "caretaker": lambda each, _: processes(each, Caretaker(each).live, dies=0.2),
    "undoer": lambda each, _: processes(each, Undoer(each).live, dies=0.2),
    "walker": lambda each, _: processes(each, Reader(each).live, dies=0),
    "looker": lambda each, _: processes(each, Looker(each).live, dies=0),
}
"""What each actor does, by its name."""


def spawn_actors(world: World, faulty: Faulty) -> None:
    """All actors that the plan of a world does not leave out."""
    for name, actor in ACTORS.items():
        if name not in world.plan.without:
            world.scheduler.spawn(name, actor(Machine(world, name), faulty))


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
    with without_logs(), simulated(world.scheduler):
        spawn_actors(world, faulty)
        look = Invariants(world).check
        try:
            world.scheduler.run(steps, look)
            settle(world, look)
        except Exception as error:
            raise Failed(seed, steps, plan, world, error) from error
        finally:
            world.scheduler.halt()
    return Ran(world.scheduler.steps, world.scheduler.trace.digest, world.oracle.counts, world.injected)
