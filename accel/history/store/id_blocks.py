"""Ids that are given out once: taken from a counter in blocks, by compare-and-set.

A key holds the next id that nobody has. A process that needs ids raises it by a whole block and then gives them out
from memory; when it dies the rest of its block is gone, which costs nothing. A process that is forked has no ids
until it takes a block of its own: those in memory are its parent's.

The counters are made together with the tables that all streams share (`make_system_tables`), and never anew: a counter
that is not there was deleted, and one that is lower than an id in use was put back. Both are errors, because the ids
that they would give belong to somebody. `pass_over_ids` mends them, for who says that the store was put back.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from accel.errors import CatalogDamaged
from accel.history.store import keys
from accel.history.store.keys import SystemCells
from loaders.errors import TableMissing
from loaders.lifetime import PerProcess
from loaders.tables import TypedKey

COUNTERS = (keys.TRANSACTION_IDS, keys.SEGMENT_STREAMS)
"""The counters of histories, as keys of their table."""


class _Free:
    """What one process knows: the ids that it has taken and not given out, and the highest in use that it has seen."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.ids = range(0)
        self.highest = -1


class IdBlocks:
    """Gives out ids of one counter. Threads: any; no lock is held over I/O.

    Args:
        cell: the counter.
        block: how many ids one write takes at least.
    """

    def __init__(self, cell: TypedKey[int], block: int) -> None:
        self._cell = cell
        self._block = block
        self._free = PerProcess("ids", _Free)

    def note(self, ids: Iterable[int]) -> None:
        """Take notice of ids in use: a counter that is not above them is refused from now on."""
        highest = max(ids, default=-1)
        with (free := self._free()).lock:
            free.highest = max(free.highest, highest)

    def take(self, count: int = 1) -> range:
        """So many new ids, ascending. No call while the block lasts, else two.

        Raises:
            CatalogDamaged: the counter was deleted, or is not above the ids in use that were seen.
            StoreError, TableError: the counter could not be raised.
        """
        while True:
            free = self._free()
            with free.lock:
                if len(free.ids) >= count:
                    taken, free.ids = free.ids[:count], free.ids[count:]
                    return taken
            block = self._allocate(max(count, self._block))
            with free.lock:
                free.ids = max(free.ids, block, key=len)

    def _allocate(self, count: int) -> range:
        with (free := self._free()).lock:
            highest = free.highest

        def raised(found: int | None) -> int:
            if found is None:
                raise CatalogDamaged(f"expected a counter in {self._cell.where}, found none: it was deleted")
            if found <= highest:
                raise CatalogDamaged(f"{self._cell.where}: expected a number above {highest}, found {found}")
            # Asked again after a lost reply it takes another block: the first one is burnt, which is fine.
            return found + count

        try:
            after = self._cell.change(raised).value
        except TableMissing as error:
            raise CatalogDamaged(f"expected a counter in {self._cell.where}, found no such table") from error
        return range(after - count, after)


def make_system_tables(cells: SystemCells, *, is_initialised: bool = False) -> None:
    """Make the tables that all streams share, and the counters in them. May be repeated, also after a crash.

    The table of scopes is made last. While it is not there, nobody has a scope, so the rest may be made anew; once it
    is there, what is missing was deleted.

    Args:
        cells: of the store.
        is_initialised: whether `accel catalog init` has made them before: then none may be missing.

    Requests: 3 if all is there, else two, those of a listing of tables, and one for each table and counter.

    Raises:
        CatalogDamaged: some of it is gone.
        StoreError, TableError.
    """
    tables = cells.tables
    if tables.table_exists(keys.SCOPES):
        refuse_lost_counters(cells)
        return
    if is_initialised:
        raise CatalogDamaged(f"expected table {keys.SCOPES!r}, which is made with the bucket, found none")
    owned = next((name for name in tables.table_names() if keys.OWNED in name), None)
    if owned is not None:
        if tables.table_exists(keys.SCOPES):  # made by another process meanwhile, and a scope after it
            return
        found = f"none, and table {owned!r}, which a scope or stream has"
        raise CatalogDamaged(f"expected table {keys.SCOPES!r}, found {found}")
    for name in keys.SYSTEM_TABLES:
        tables.create_table(name)
        for what in COUNTERS if name == keys.COUNTERS else ():
            cells.counter(what).create_if_absent(0)


def refuse_lost_counters(cells: SystemCells) -> None:
    """Look whether all counters are there. One request each.

    Raises:
        CatalogDamaged: one is not.
        StoreError, CorruptObject, FormatTooNew: one cannot be read.
    """
    for what in COUNTERS:
        cell = cells.counter(what)
        try:
            seen = cell.read()
        except TableMissing:
            seen = None
        if seen is None:
            raise CatalogDamaged(f"expected a counter in {cell.where}, found none: it was deleted")


def pass_over_ids(counter: TypedKey[int], least: int, count: int) -> tuple[int | None, int]:
    """Raise a counter far above every id that is in use: after a store was put back from a copy. Two calls.

    Args:
        counter: the counter; one that is not there is made.
        least: above every id that was found in use.
        count: how many ids above that are passed over: processes of the lost time may have had them.

    Returns:
        What it said before, None if it was not there, and what it says now.

    Raises:
        StoreError, TableError: the counter could not be raised.
    """
    seen: list[int | None] = []

    def raised(found: int | None) -> int:
        seen.append(found)
        return max(least, found or 0) + count

    after = counter.change(raised).value
    return seen[0], after
