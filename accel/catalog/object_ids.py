"""Object ids: given out in blocks by compare-and-set, and never twice.

A key holds the next id that nobody has. A process that needs ids raises it by a whole block and then gives them out
from memory; when it dies the rest of its block is gone, which costs nothing: ids are 63 bits long. A process that is
forked has no ids until it takes a block of its own: those in memory are its parent's.

The counter is made with the catalog and never anew. One that is not there was deleted; one that is not above an id in
use was put back from an older version. Both are errors: the ids that it would give have objects already.
"""

from __future__ import annotations

from threading import Lock

from accel.catalog.records import ObjectIdCounter
from accel.errors import CatalogDamaged
from loaders.lifetime import PerProcess
from loaders.tables.typed_key import TypedKey

IDS_AT_ONCE_MAX = 1 << 20


class _Free:
    """What one process knows: the ids that it has taken and not given out, and the highest in use that it has seen."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.blocks: list[range] = []
        self.highest = -1


class ObjectIds:
    """Gives out ids. Threads: any; no lock is held over I/O.

    Args:
        key: the counter.
        block: how many ids one write takes at least.
    """

    def __init__(self, key: TypedKey[ObjectIdCounter], block: int) -> None:
        self._key = key
        self._block = block
        self._free = PerProcess("object ids", _Free)

    def note(self, highest_id: int) -> None:
        """Take notice of an id in use: a counter that is not above it is refused from now on."""
        with (free := self._free()).lock:
            free.highest = max(free.highest, highest_id)

    def refuse_lost(self) -> None:
        """Look whether the counter is there, and above the ids in use that were seen. One request.

        Raises:
            CatalogDamaged: it is not.
            StoreError, TableError, CorruptObject, FormatTooNew: it cannot be read.
        """
        with (free := self._free()).lock:
            highest_id = free.highest
        seen = self._key.read()
        check_counter(None if seen is None else seen.value, highest_id, self._key.where)

    def take(self, count: int) -> list[int]:
        """So many new ids, ascending. No request while the block lasts, else two.

        Raises:
            ValueError: a count below 1, or above 1,048,576.
            CatalogDamaged: the counter was deleted, or is not above the ids in use that were seen.
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
            return max((len(block) for block in free.blocks), default=0)

    def _take_free(self, count: int) -> list[int] | None:
        with (free := self._free()).lock:
            for at, block in enumerate(free.blocks):
                if len(block) >= count:
                    free.blocks[at : at + 1] = [rest for rest in [block[count:]] if rest]
                    return list(block[:count])
        return None

    def _allocate(self, count: int) -> range:
        with (free := self._free()).lock:
            highest_id = free.highest

        # Asked again after a lost reply it takes another block: the first one is burnt, which is fine.
        def raised(counter: ObjectIdCounter | None) -> ObjectIdCounter:
            return ObjectIdCounter(check_counter(counter, highest_id, self._key.where) + count)

        after = self._key.change(raised).value.next_object_id
        return range(after - count, after)


def check_counter(counter: ObjectIdCounter | None, highest_id: int, where: str) -> int:
    """The next id that nobody has, by a counter that was read after the ids in use.

    Raises:
        CatalogDamaged: there is no counter, or it is not above an id in use.
    """
    if counter is None:
        raise CatalogDamaged(f"expected a counter of object ids in {where}, found none: it was deleted")
    if counter.next_object_id <= highest_id:
        expected = f"a number above {highest_id}, the highest id in use"
        raise CatalogDamaged(f"{where}: expected {expected}, found {counter.next_object_id}: it went back")
    return counter.next_object_id
