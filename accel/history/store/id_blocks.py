"""Ids that are given out once: taken from a counter in blocks, by compare-and-set.

A key holds the next id that nobody has. Who needs ids raises it by a whole block and gives them out from memory; a
process that dies takes the rest of its block with it, which costs nothing. A process that is forked has no ids until it
takes a block of its own: those in memory are its parent's.
"""

from __future__ import annotations

from threading import Lock

from accel.history.store.cell import Cell
from loaders.lifetime import PerProcess


class _Free:
    """Ids that one process has taken and not given out."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.ids = range(0)


class IdBlocks:
    """Gives out ids of one counter. Threads: any; no lock is held over I/O.

    Args:
        cell: the counter.
        block: how many ids one write takes at least.
    """

    def __init__(self, cell: Cell[int], block: int) -> None:
        self._cell = cell
        self._block = block
        self._free = PerProcess("ids", _Free)

    def take(self, count: int = 1) -> range:
        """So many new ids, ascending. No call while the block lasts, else two.

        Raises:
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
        # Asked again after a lost reply it takes another block: the first one is burnt, which is fine.
        after = self._cell.change(lambda found: (found or 0) + count).value
        return range(after - count, after)


def pass_over_ids(counter: Cell[int], least: int, count: int) -> tuple[int | None, int]:
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
