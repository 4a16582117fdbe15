"""Ids that are given out once: taken from a counter in blocks, by compare-and-set.

A key holds the next id that nobody has. Who needs ids raises it by a whole block and gives them out from memory; a
process that dies takes the rest of its block with it, which costs nothing.
"""

from __future__ import annotations

import threading

from accel.history.store.cell import Cell


class IdBlocks:
    """Gives out ids of one counter. Threads: any; no lock is held over I/O.

    Args:
        cell: the counter.
        block: how many ids one write takes at least.
    """

    def __init__(self, cell: Cell[int], block: int) -> None:
        self._cell = cell
        self._block = block
        self._lock = threading.Lock()
        self._free = range(0)

    def take(self, count: int = 1) -> range:
        """So many new ids, ascending. No call while the block lasts, else two.

        Raises:
            StoreError, TableError: the counter could not be raised.
        """
        while True:
            with self._lock:
                if len(self._free) >= count:
                    taken, self._free = self._free[:count], self._free[count:]
                    return taken
            block = self._allocate(max(count, self._block))
            with self._lock:
                self._free = max(self._free, block, key=len)

    def _allocate(self, count: int) -> range:
        # Asked again after a lost reply it takes another block: the first one is burnt, which is fine.
        after = self._cell.change(lambda found: (found or 0) + count).value
        return range(after - count, after)
