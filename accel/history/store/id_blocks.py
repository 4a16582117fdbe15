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
