"""Storage that goes bad while everybody works: outages, bytes that rot, and a key that has the bytes of its neighbour.

One key at a time is damaged for some seconds; then somebody puts it back, as an operator does who has a copy. Meanwhile
nobody may take what lies there for a value of that key: a process ends with an error, or waits. What is not put back
because it was written over is a violation: nothing may be built on bytes that cannot be read.

Values of tables are damaged, which tell by themselves. Objects are not: that flipped bits of a payload are not seen is
said in docs/operations/reliability.md, and so is that a key which went back in time may contradict nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loaders.errors import KeyMissing
from loaders.layout import TABLES_PREFIX
from tests.simulation.machine_store import Outage
from tests.simulation.scheduler import Violation

if TYPE_CHECKING:
    from tests.simulation.world import Machine, World

PAUSE_SECONDS_MAX = 25.0
DAMAGED_SECONDS_MAX = 4.0
OUTAGE_SECONDS, OUTAGE_PAUSE_SECONDS_MAX = 10.0, 60.0


class Damage(NamedTuple):
    """A key that is damaged now.

    Args:
        key: the key.
        right: its bytes as they were written.
        wrong: those that lie there.
    """

    key: str
    right: bytes
    wrong: bytes


class Outages:
    """For some seconds the store is away, slow or busy, for all machines; then it is well for a while.

    Args:
        machine: where it runs; it stands for the storage, so its calls are no requests.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine, self.world = machine, machine.world

    def live(self) -> None:
        """One outage."""
        random = self.machine.random
        self.machine.scheduler.sleep(random.uniform(0, OUTAGE_PAUSE_SECONDS_MAX))
        self.world.listings.outage = random.choice(list(Outage))
        self.machine.scheduler.sleep(OUTAGE_SECONDS)
        self.world.listings.outage = None
        self.machine.count("outages")


class Rot:
    """Damages keys, one at a time, and puts them back.

    Args:
        machine: where it runs; it stands for the storage, so its calls are no requests.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine, self.world = machine, machine.world

    def live(self) -> None:
        """One key."""
        random = self.machine.random
        self.machine.scheduler.sleep(random.uniform(0, PAUSE_SECONDS_MAX))
        keys = [info.key for info in self.world.memory.list("") if _can_be_told(info.key)]
        if not keys:
            return
        key = random.choice(keys)
        right = bytes(self.world.memory.get(key).body)
        wrong = self._rotten(right) if random.random() < 0.5 else self._of_a_neighbour(key, keys)
        if wrong == right or not right:
            return
        self.world.damage = Damage(key, right, wrong)
        self.world.memory.put(key, wrong)
        self.world.listings.injected["keys damaged"] += 1
        self.machine.scheduler.sleep(random.uniform(0, DAMAGED_SECONDS_MAX))
        put_back(self.world)

    def _rotten(self, right: bytes) -> bytes:
        body = bytearray(right)
        body[self.machine.random.randrange(len(body))] ^= 1 << self.machine.random.randrange(8)
        return bytes(body)

    def _of_a_neighbour(self, key: str, keys: list[str]) -> bytes:
        folder = key.rpartition("/")[0]
        beside = [each for each in keys if each.rpartition("/")[0] == folder and each != key] or [key]
        return bytes(self.world.memory.get(self.machine.random.choice(beside)).body)


def put_back(world: World) -> None:
    """Put a damaged key back, if one is.

    Raises:
        Violation: somebody wrote over what nobody could read.
    """
    damage, world.damage = world.damage, None
    if damage is None:
        return
    try:
        now = bytes(world.memory.get(damage.key).body)
    except KeyMissing:
        return  # it was due to be deleted, whatever lies there
    if now != damage.wrong:
        raise Violation(f"{damage.key} was damaged, and somebody wrote over it without having read it")
    world.memory.put(damage.key, damage.right)


def _can_be_told(key: str) -> bool:
    """Whether damage there is seen: values of tables have a checksum over bytes and place; markers have no value."""
    return key.startswith(TABLES_PREFIX) and not key.endswith("/!table")
