"""Filter packs and index snapshots, built while everything moves, and damaged for good: no answer may change.

A builder runs as the jobs do. Lookups use whatever lies there: hints of an older list, of half a run, or bytes that are
none. That their answers are right is what `Looker` checks.
"""

from __future__ import annotations

from random import Random

from accel.catalog import ObjectCatalog
from accel.hint_building import HintChoice, build_hints, plan_hints
from accel.hint_building.filters import Depth
from loaders.layout import HINTS_PREFIX
from loaders.store import MemoryStore
from tests.simulation.world import Actor

DAMAGED = 0.3
"""Of the rounds of a builder, so many are followed by damage to something that was built."""


class HintBuilder(Actor):
    """Builds hints again and again."""

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: a few rounds."""
        random = self.machine.random
        for _ in range(random.randrange(1, 4)):
            kinds = random.choice([(True, True), (True, False), (False, True)])
            choice = HintChoice(*kinds, depth=random.choice(list(Depth)))
            report = build_hints(catalog, plan_hints(catalog, choice))
            self.machine.count("hints built", len(report.nodes))
            self.machine.count("hints that could not be built", sum(len(each.errors) for each in report.nodes))
            if random.random() < DAMAGED:
                self.machine.count("hints damaged", damage_one(self.machine.memory, random))
            self.machine.scheduler.sleep(random.uniform(1, 15))


def damage_one(memory: MemoryStore, random: Random) -> int:
    """Flip a bit of something that was built, put another one's bytes in its place, cut it off, or delete it."""
    keys = [info.key for info in memory.list(HINTS_PREFIX)]
    if not keys:
        return 0
    key, how = random.choice(keys), random.randrange(4)
    body = bytearray(memory.get(key).body)
    if how == 0:
        memory.delete(key)
        return 1
    if how == 1:
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
    elif how == 2:
        body = bytearray(memory.get(random.choice(keys)).body)
    else:
        del body[random.randrange(len(body)) :]
    memory.put(key, bytes(body))
    return 1
