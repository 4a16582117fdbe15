"""Numbers for streams, in the order in which they turn up: an index into columns that only grow.

Sorted ids are fast to search and slow to insert into. So most of them stand in one long sorted array, and new ones in
a short one beside it; when that has grown to an eighth of the long one, both are merged. All work is done for whole
arrays of ids; a dictionary would take a step and 100 bytes an id.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

NEW_MIN = 4096
"""So many new ids are gathered in any case before arrays are merged."""


class _Sorted:
    """Ascending ids, and the slot of each."""

    def __init__(self, ids: Integers, slots: Integers) -> None:
        self.ids = ids
        self.slots = slots

    def fill(self, wanted: Integers, found: Integers) -> None:
        """Put the slots of those ids that stand here in their places."""
        if not len(self.ids):
            return
        at = np.minimum(self.ids.searchsorted(wanted), len(self.ids) - 1)
        is_here = self.ids[at] == wanted
        found[is_here] = self.slots[at[is_here]]

    def merged(self, ids: Integers, slots: Integers) -> _Sorted:
        """These and others."""
        at = self.ids.searchsorted(ids)
        return _Sorted(np.insert(self.ids, at, ids), np.insert(self.slots, at, slots))


_NOTHING = _Sorted(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


class StreamSlots:
    """Gives each stream a slot: 0 to the first one, and so on. Threads: one. Memory: 16 bytes a stream."""

    def __init__(self) -> None:
        self._long = _NOTHING
        self._new = _NOTHING
        self._count = 0

    def __len__(self) -> int:
        """How many streams have a slot."""
        return self._count

    def slots_of(self, ids: Integers) -> tuple[Integers, Integers]:
        """The slots of streams, and which of these ids turned up for the first time.

        Args:
            ids: ascending, each once.

        Complexity: O(ids log streams), and now and then O(streams).
        """
        slots = np.full(len(ids), -1, dtype=np.int64)
        self._long.fill(ids, slots)
        self._new.fill(ids, slots)
        first_time = np.flatnonzero(slots < 0)
        if len(first_time):
            slots[first_time] = np.arange(self._count, self._count + len(first_time))
            self._count += len(first_time)
            self._add(ids[first_time], slots[first_time])
        return slots, ids[first_time]

    def _add(self, ids: Integers, slots: Integers) -> None:
        self._new = self._new.merged(ids, slots)
        if len(self._new.ids) > max(NEW_MIN, len(self._long.ids) // 8):
            self._long = self._long.merged(self._new.ids, self._new.slots)
            self._new = _NOTHING
