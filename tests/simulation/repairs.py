"""Keys that are damaged for good, after everything is quiet, and repaired as docs/operations/repair.md says.

Some keys disappear, rot, or get the bytes of a neighbour, several at once: live objects, values and markers of the
catalog's tables, and records of a history. There is a copy of the bucket. An operator follows the page:

    verify             reports a problem, or raises one of our errors
    repair             until it rebuilds nothing more; keys that it cannot rebuild are put back from the copy
    repair --from      brings each live object back from the copy
    repair --stream    the same for the records of a stream

Each damaged key must be named by a finding. At the end all is compared as at quiet, and rebuilt records with those that
were there before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.keys import DIRECTORY_KEY, NODE_CHECKPOINTS, NODE_LIST_HISTORY, NODE_LISTS, TABLES
from accel.catalog.keys import NODES as NODES_TABLE
from accel.catalog.parts import catalog_parts, existing_format
from accel.catalog.verify import Verdict, verify
from accel.errors import AccelError
from accel.repair.catalog import repair
from accel.repair.findings import Finding, Repair, RepairOutcome
from accel.repair.objects import PutBackOutcome, put_back
from accel.repair.streams import repair_stream
from loaders.format import FOOTER_SIZE_BYTES
from loaders.layout import TABLE_MARKER, TABLES_PREFIX, encode_name, table_folder
from loaders.store import MemoryStore
from loaders.tables.conditional_write import TOMBSTONE_SIZE_BYTES
from tests.conformance.history_world import SCOPE, STREAM
from tests.simulation.blocking import SimulatedThreads
from tests.simulation.quiet import read_now
from tests.simulation.scheduler import Violation
from tests.simulation.world import CATALOG, NODES, World

ROUNDS_MAX = 6
"""Repairs in a row: one may make the next possible."""

DAMAGED_MAX = 4
VERSION_AT = 4
"""The place of the version in the bytes of a value."""

UNNOTICED_IF_GONE = {
    CATALOG: (f"{TABLES_PREFIX}{NODE_CHECKPOINTS}/", f"{TABLES_PREFIX}{NODE_LIST_HISTORY}/"),
    STREAM: (r"/retentionCuts-", r"transactionsInEpoch-", r"epochsWith[^/]*/\d+$"),
}
"""Keys that may be absent, as patterns: nothing else refers to them, or only a table that need not be there."""


class Lost(NamedTuple):
    """A key that is damaged for good.

    Args:
        key: the key.
        body: its bytes now; None = there is none.
    """

    key: str
    body: bytes | None


@dataclass(frozen=True)
class Disaster:
    """Damage to a quiet world, and the operator who repairs it."""

    world: World
    copy: MemoryStore
    random: Random

    @classmethod
    def strike(cls, world: World) -> Disaster:
        """With a copy of the bucket as it is now."""
        copy = MemoryStore()
        for info in world.memory.list(""):
            found = world.memory.get(info.key)
            copy.put(info.key, found.body, mark=found.mark)
        return cls(world, copy, Random(f"{world.seed}/disaster"))

    def damage(self, keys: list[str]) -> list[Lost]:
        """Damage some of them."""
        chosen = self.random.sample(keys, min(len(keys), self.random.randrange(1, DAMAGED_MAX + 1)))
        return [lost for key in chosen if (lost := self._damage(key, keys)) is not None]

    def _damage(self, key: str, keys: list[str]) -> Lost | None:
        found, memory, chance = self.copy.get(key), self.world.memory, self.random.random()
        right = bytes(found.body)
        if chance < 0.3 or not right:
            memory.delete(key)
            return Lost(key, None)
        wrong = self._rotten(key, right) if chance < 0.7 else self._of_a_neighbour(key, keys)
        if wrong == right:
            return None
        memory.put(key, wrong, mark=found.mark)
        return Lost(key, wrong)

    def _rotten(self, key: str, right: bytes) -> bytes:
        """One bit; of an object one of its footer: the checksum that the catalog has covers no payload.

        Not of the version of a value: a higher one is that of a newer release, which all that repairs refuses.
        """
        body = bytearray(right)
        first = 0 if key.startswith(TABLES_PREFIX) else len(body) - FOOTER_SIZE_BYTES
        at = self.random.randrange(first, len(body))
        body[at - (first == 0 and at == VERSION_AT)] ^= 1 << self.random.randrange(8)
        return bytes(body)

    def _of_a_neighbour(self, key: str, keys: list[str]) -> bytes:
        folder = key.rpartition("/")[0]
        beside = [each for each in keys if each.rpartition("/")[0] == folder and each != key] or keys
        return bytes(self.copy.get(self.random.choice(beside)).body)

    def bring_back(self, key: str) -> None:
        """With the store's own tools."""
        found = self.copy.get(key)
        self.world.memory.put(key, found.body, mark=found.mark)
        self.world.count("keys put back from the copy")

    def body(self, key: str) -> bytes | None:
        """The bytes at a key now."""
        found = next((info for info in self.world.memory.list(key) if info.key == key), None)
        return None if found is None else bytes(self.world.memory.get(key).body)

    def repair_all(self, find: Callable[[], Repair], lost: Iterable[Lost], may_be_gone: tuple[str, ...]) -> None:
        """Repair until nothing is found; what has no source is put back."""
        named: set[str] = set()
        by_key = {each.key: each for each in lost}
        findings: tuple[Finding, ...] = ()
        for _ in range(ROUNDS_MAX):
            found = find()
            findings = found.findings
            named |= {_key_of(each) for each in found.findings}
            if not found.findings and found.is_complete:
                break
            if found.count(RepairOutcome.REBUILT):
                self.world.count("records rebuilt", found.count(RepairOutcome.REBUILT))
                continue
            for key in named & set(by_key):
                if self.body(key) == by_key[key].body:
                    self.bring_back(key)
        else:
            raise Violation(f"expected a repair to end, found after {ROUNDS_MAX} of them {findings}")
        for key, each in by_key.items():
            if key in named or (
                each.body is None and (_may_be_gone(key, may_be_gone) or self._is_nameless(key, named))
            ):
                continue
            raise Violation(f"{key} is damaged, and no repair named it")

    def _is_nameless(self, key: str, named: set[str]) -> bool:
        """Whether it is the list of a node without any commit that only the directory named, which was damaged, too."""
        folder, _, name = key.rpartition("/")
        if folder != f"{TABLES_PREFIX}{NODE_LISTS}" or f"{TABLES_PREFIX}{NODES_TABLE}/{DIRECTORY_KEY}" not in named:
            return False
        with _opened(self.world, self.copy) as catalog:
            versioned = catalog.parts.keys.node_list(int(name)).read()
        return versioned is not None and versioned.value.next_order_id == 0


def _key_of(finding: Finding) -> str:
    folder = table_folder("accel/tables/", finding.table)
    return folder + (TABLE_MARKER if finding.key == TABLE_MARKER else encode_name(finding.key))


def _may_be_gone(key: str, patterns: tuple[str, ...]) -> bool:
    return any(re.search(each, key) for each in patterns)


def repair_catalog(world: World) -> None:
    """Damage objects and keys of a catalog, and repair both."""
    if CATALOG not in world.choices.rooms:
        return
    disaster = Disaster.strike(world)
    tables = [f"{TABLES_PREFIX}{encode_name(name)}/" for name in TABLES]
    keys = [info.key for info in world.memory.list("")]
    values = [key for key in keys if any(key.startswith(each) for each in tables)]
    objects = [key for key in keys if not key.startswith("accel/")]
    lost, lost_objects = disaster.damage(values), disaster.damage(objects)
    with _opened(world, world.memory) as catalog:
        _verify_damaged(world, catalog, lost + lost_objects)
        disaster.repair_all(lambda: repair(catalog, apply=True), lost, UNNOTICED_IF_GONE[CATALOG])
        _put_back(disaster, catalog, lost_objects)
        found = verify(catalog)
        if found.outcome is not Verdict.CLEAN:
            raise Violation(f"expected a catalog that is sound again, found {found.problems} {found.unchecked}")
        for node_id in NODES:
            if catalog.parts.keys.node_list(node_id).read() is not None:
                catalog.open_node(node_id).close()
    read_now(world)
    world.count("catalogs repaired")


def _verify_damaged(world: World, catalog: ObjectCatalog, lost: list[Lost]) -> None:
    try:
        found = verify(catalog)
    except AccelError:
        world.count("verifications that damage ended")
        return
    seen = [each for each in lost if not (each.body is None and _may_be_gone(each.key, UNNOTICED_IF_GONE[CATALOG]))]
    if seen and found.outcome is Verdict.CLEAN:
        raise Violation(f"expected problems of {[each.key for each in seen]}, found none")


def _put_back(disaster: Disaster, catalog: ObjectCatalog, lost: list[Lost]) -> None:
    report = put_back(catalog, disaster.copy, is_dry_run=False)
    done = {each.key for each in report.found if each.outcome is PutBackOutcome.PUT_BACK}
    if done != {each.key for each in lost}:
        raise Violation(f"expected that {[each.key for each in lost]} are put back, found {report}")
    disaster.world.count("objects put back", len(done))


@contextmanager
def _opened(world: World, store: MemoryStore) -> Iterator[ObjectCatalog]:
    record, settings = existing_format(store), CatalogSettings(parallel_requests=1)
    threads, system = (SimulatedThreads(), SimulatedThreads()), replace(world.system, sleep=lambda _: None)
    with ObjectCatalog(lambda: catalog_parts(store, record, settings, system, threads), system) as catalog:
        yield catalog


def repair_history(world: World) -> None:
    """Damage records of a history, and repair it; `History.settle` looks at it afterwards."""
    disaster = Disaster.strike(world)
    start = TABLES_PREFIX + encode_name(f"{SCOPE}/{STREAM}/")
    infos = world.memory.list(start)
    keys = [info.key for info in infos if info.size_bytes != TOMBSTONE_SIZE_BYTES]
    lost = disaster.damage(keys)
    streams = world.history.streams()
    disaster.repair_all(lambda: repair_stream(streams, SCOPE, STREAM, apply=True), lost, UNNOTICED_IF_GONE[STREAM])
    for key in (each.key for each in lost if "/retentionCuts-" in each.key):
        if disaster.body(key) is None:  # retention goes on without it; the oracle reads each cut that the set lists
            disaster.bring_back(key)
    world.count("histories repaired")
