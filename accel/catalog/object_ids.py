"""Object ids: given out in blocks by compare-and-set, and never twice.

A key holds the next id that nobody has. Who needs ids raises it by a whole block and then gives them out from memory;
a process that dies takes the rest of its block with it, which costs nothing: ids are 63 bits long. A process that is
forked has no ids until it takes a block of its own: those in memory are its parent's.
"""

from __future__ import annotations

from threading import Lock

from accel.catalog.cell import Cell
from accel.catalog.records import ObjectIdCounter
from loaders.lifetime import PerProcess

IDS_AT_ONCE_MAX = 1 << 20


class _Free:
    """Ids that one process has taken and not given out."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.blocks: list[range] = []


class ObjectIds:
    """Gives out ids. Threads: any; no lock is held over I/O.

    Args:
        cell: the counter.
        block: how many ids one write takes at least.
    """

    def __init__(self, cell: Cell[ObjectIdCounter], block: int) -> None:
        self._cell = cell
        self._block = block
        self._free = PerProcess("object ids", _Free)

    def take(self, count: int) -> list[int]:
        """So many new ids, ascending. No request while the block lasts, else two.

        Raises:
            ValueError: a count below 1, or above 1,048,576.
            StoreError, TableError: the counter could not be raised.
        """
        if not 1 <= count <= IDS_AT_ONCE_MAX:
            raise ValueError(f"expected 1 to {IDS_AT_ONCE_MAX} ids at once, found {count}")
        while True:
            taken = self._take_free(count)
            if taken is not None:
                return taken
            block = self._allocate(max(count, self._block))
            with (free := self._free()).lock:
                free.blocks.append(block)

    def free_now(self) -> int:
        """How many ids can be given out without a request."""
        with (free := self._free()).lock:
            return max((len(each) for each in free.blocks), default=0)

    def raise_to(self, least: int) -> None:
        """See to it that no id below this one is given out from now on, by anybody: they exist already."""

        def raised(counter: ObjectIdCounter | None) -> ObjectIdCounter | None:
            now = 0 if counter is None else counter.next_object_id
            return None if counter is not None and now >= least else ObjectIdCounter(max(now, least))

        self._cell.change(raised)
        with (free := self._free()).lock:
            free.blocks = [each for each in free.blocks if each.start >= least]

    def _take_free(self, count: int) -> list[int] | None:
        with (free := self._free()).lock:
            for at, each in enumerate(free.blocks):
                if len(each) >= count:
                    free.blocks[at : at + 1] = [rest for rest in [each[count:]] if rest]
                    return list(each[:count])
        return None

    def _allocate(self, count: int) -> range:
        # Asked again after a lost reply it takes another block: the first one is burnt, which is fine.
        def raised(counter: ObjectIdCounter | None) -> ObjectIdCounter:
            return ObjectIdCounter((0 if counter is None else counter.next_object_id) + count)

        after = self._cell.change(raised).value.next_object_id
        return range(after - count, after)
