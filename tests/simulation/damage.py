"""Storage that goes bad while all work: outages, lies, bytes that rot, and a key that has the bytes of its neighbour.

One key at a time is damaged for some seconds; then an operator who has a copy puts it back. Meanwhile no process may
take the bytes for a value of that key: it ends with an error, or waits. A damaged key that another process wrote over
is a violation: nothing may be built on bytes that cannot be read.

All this is done by the storage, so the calls of these actors are no requests.

Values of tables are damaged, which have a checksum, and objects: these disappear, get the bytes of another one, or rot
in the footer, and `accel repair --from` restores them while everything goes on. Flipped bits of a payload are not
noticed by all readers, and a key that went back in time may contradict nothing (docs/operations/reliability.md).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from accel.errors import AccelError
from accel.repair.objects import PutBackOutcome
from accel.repair.objects import put_back as catalog_put_back
from loaders.errors import KeyMissing
from loaders.format import FOOTER_SIZE_BYTES
from loaders.layout import ACCEL_PREFIX, TABLES_PREFIX
from loaders.store import MemoryStore
from tests.simulation.machine_store import Outage
from tests.simulation.scheduler import Violation
from tests.simulation.world import Actor

if TYPE_CHECKING:
    from tests.simulation.world import World

PAUSE_SECONDS_MAX = 25.0
DAMAGED_SECONDS_MAX = 4.0
OBJECTS = 0.4
"""Of the damaged keys, so many are objects."""

LYING_SECONDS = 40.0
OUTAGE_SECONDS, OUTAGE_PAUSE_SECONDS_MAX = 10.0, 60.0


class Damage(NamedTuple):
    """A key that is damaged now.

    Args:
        key: the key.
        right: its bytes as they were written.
        wrong: its bytes now; None = there are none.
        mark: of the object, which rot leaves as it is.
    """

    key: str
    right: bytes
    wrong: bytes | None
    mark: str | None


class Outages(Actor):
    """For some seconds the store is away, slow or busy, for all machines; then it is well for a while."""

    def live(self) -> None:
        """One outage."""
        random = self.machine.random
        self.machine.scheduler.sleep(random.uniform(0, OUTAGE_PAUSE_SECONDS_MAX))
        self.world.listings.outage = random.choice(list(Outage))
        self.machine.scheduler.sleep(OUTAGE_SECONDS)
        self.world.listings.outage = None
        self.machine.count("outages")


class Lies(Actor):
    """For some seconds the store lies to all machines; then it is honest for a while."""

    def live(self) -> None:
        """One time of lies."""
        self.machine.scheduler.sleep(self.machine.random.uniform(0, LYING_SECONDS))
        self.world.lying.is_lying = True
        self.machine.scheduler.sleep(LYING_SECONDS)
        self.world.lying.is_lying = False
        self.machine.count("times of lies")


class Rot(Actor):
    """Damages keys, one at a time, and puts them back."""

    def live(self) -> None:
        """One key."""
        random = self.machine.random
        self.machine.scheduler.sleep(random.uniform(0, PAUSE_SECONDS_MAX))
        choose = _is_object if random.random() < OBJECTS else _is_value
        keys = [info.key for info in self.world.memory.list("") if choose(info.key)]
        if not keys:
            return
        key = random.choice(keys)
        found = self.world.memory.get(key)
        right = bytes(found.body)
        wrong: bytes | None = self._rotten(key, right)
        if random.random() < 0.5:
            wrong = self._of_a_neighbour(key, keys)
        if _is_object(key) and (wrong == right or random.random() < 0.3):
            wrong = None
        if wrong == right or not right:
            return
        self._damage(Damage(key, right, wrong, found.mark))
        self.machine.scheduler.sleep(random.uniform(0, DAMAGED_SECONDS_MAX))
        if _is_object(key):
            self._put_object_back()
        put_back(self.world)

    def _damage(self, damage: Damage) -> None:
        memory = self.world.memory
        if damage.wrong is None:
            memory.delete(damage.key)
        else:
            memory.put(damage.key, damage.wrong, mark=damage.mark)
        self.world.damage = damage
        self.world.listings.injected["objects damaged" if _is_object(damage.key) else "keys damaged"] += 1

    def _put_object_back(self) -> None:
        """With `repair --from`, from a copy that has this object; one that is no longer live stays as it is."""
        damage, copy = self.world.damage, MemoryStore()
        if damage is None:
            return
        copy.put(damage.key, damage.right)
        with suppress(AccelError):  # the lists could not be read: the store's own tools do it
            report = catalog_put_back(self.machine.open(), copy, is_dry_run=False)
            self.machine.count("objects put back meanwhile", report.count(PutBackOutcome.PUT_BACK))

    def _rotten(self, key: str, right: bytes) -> bytes:
        body = bytearray(right)
        first = max(0, len(body) - FOOTER_SIZE_BYTES) if _is_object(key) else 0
        body[self.machine.random.randrange(first, len(body))] ^= 1 << self.machine.random.randrange(8)
        return bytes(body)

    def _of_a_neighbour(self, key: str, keys: list[str]) -> bytes:
        folder = key.rpartition("/")[0]
        beside = [each for each in keys if each.rpartition("/")[0] == folder and each != key] or [key]
        return bytes(self.world.memory.get(self.machine.random.choice(beside)).body)


def put_back(world: World) -> None:
    """Put a damaged key back, if one is."""
    damage, world.damage = world.damage, None
    if damage is None:
        return
    world.hurt[damage.key] = world.scheduler.seconds
    try:
        now = bytes(world.memory.get(damage.key).body)
    except KeyMissing:
        now = None
    if now is None and damage.wrong is not None:
        return  # it was due to be deleted, damaged or not
    if _is_object(damage.key) and now == damage.right:
        return  # `repair --from` did it
    if now != damage.wrong:
        raise Violation(f"{damage.key} was damaged, and a process wrote over it without having read it")
    world.memory.put(damage.key, damage.right, mark=damage.mark)


def _is_value(key: str) -> bool:
    """Whether a key has a value of a table: these have a checksum over bytes and place; markers have no value."""
    return key.startswith(TABLES_PREFIX) and not key.endswith("/!table")


def _is_object(key: str) -> bool:
    return not key.startswith(ACCEL_PREFIX)
