"""Object ids: given out in blocks by compare-and-set, and never twice.

A key holds the next id that nobody has. A process that needs ids raises it by a whole block and then gives them out
from memory; when it dies the rest of its block is gone, which costs nothing: ids are 63 bits long.

The counter is made with the catalog and never anew. One that is not there was deleted; one that is not above an id in
use was put back from an older version. Both are errors: the ids that it would give have objects already.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from accel.catalog.cell import Cell
from accel.catalog.records import NodeList, ObjectIdCounter, StreamBucket
from accel.errors import CatalogDamaged

IDS_AT_ONCE_MAX = 1 << 20


class ObjectIds:
    """Gives out ids. Threads: any; no lock is held over I/O.

    Args:
        cell: the counter.
        block: how many ids one write takes at least.
    """

    def __init__(self, cell: Cell[ObjectIdCounter], block: int) -> None:
        self._cell = cell
        self._block = block
        self._lock = threading.Lock()
        self._free: list[range] = []
        self._highest = -1

    def note(self, highest_id: int) -> None:
        """Take notice of an id in use: a counter that is not above it is refused from now on."""
        with self._lock:
            self._highest = max(self._highest, highest_id)

    def refuse_lost(self) -> None:
        """Look whether the counter is there, and above the ids in use that were seen. One request.

        Raises:
            CatalogDamaged: it is not.
            StoreError, TableError, CorruptObject, FormatTooNew: it cannot be read.
        """
        with self._lock:
            highest_id = self._highest
        seen = self._cell.read()
        check_counter(None if seen is None else seen.value, highest_id, self._cell.where)

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
            with self._lock:
                self._free.append(block)

    def free_now(self) -> int:
        """How many ids can be given out without a request."""
        with self._lock:
            return max((len(each) for each in self._free), default=0)

    def raise_to(self, least: int) -> None:
        """See to it that no id below this one is given out from now on, by anybody: they exist already.

        This is how a counter that was lost comes back; nothing else makes one.
        """

        def raised(counter: ObjectIdCounter | None) -> ObjectIdCounter | None:
            now = 0 if counter is None else counter.next_object_id
            return None if counter is not None and now >= least else ObjectIdCounter(max(now, least))

        self._cell.change(raised)
        with self._lock:
            self._free = [each for each in self._free if each.start >= least]

    def _take_free(self, count: int) -> list[int] | None:
        with self._lock:
            for at, each in enumerate(self._free):
                if len(each) >= count:
                    self._free[at : at + 1] = [rest for rest in [each[count:]] if rest]
                    return list(each[:count])
        return None

    def _allocate(self, count: int) -> range:
        with self._lock:
            highest_id = self._highest

        # Asked again after a lost reply it takes another block: the first one is burnt, which is fine.
        def raised(counter: ObjectIdCounter | None) -> ObjectIdCounter:
            return ObjectIdCounter(check_counter(counter, highest_id, self._cell.where) + count)

        after = self._cell.change(raised).value.next_object_id
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


def ids_of(record: NodeList | StreamBucket) -> NDArray[np.int64]:
    """All object ids that stand in a list or a bucket, in no order. O(rows)."""
    rows = [record.stream_objects, record.retired]
    if isinstance(record, NodeList):
        rows += [record.live, record.prepared]
    return np.concatenate([each["object_id"] for each in rows])


def highest_id(*records: NodeList | StreamBucket) -> int:
    """The highest object id that stands anywhere in lists and buckets; -1 if none does. O(rows)."""
    return max((int(ids_of(each).max(initial=-1)) for each in records), default=-1)
