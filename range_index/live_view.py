"""A stream's view as the index keeps it: the entries, and what tells whether they are still good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from range_index.checking import require
from range_index.runs import Run, append, seal, unpack
from range_index.stream_view import Entry, StreamView

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from range_index.range_chunk import Rows

VIEW_OVERHEAD_BYTES: Final = 336
"""What a view takes besides its arrays: the object and its numbers, its places in a dictionary and in the use order."""


class LiveView(StreamView):
    """A view with its bookkeeping: the entries never change, the bookkeeping does.

    Args:
        run: the entries, keyed by start; the other columns are ends and object ids.
        holed: ids of the objects whose entry has a hole inside.
        object_id_max: the highest id of these objects, -1 if there is none.
        version: of the content.
        revision: of the node, up to which its changes are in.
        expires: when the view is too old, by the owner's timer.
        used: when it was asked for last, by the owner's timer.

    Threads: as a StreamView for whoever it is handed to; the bookkeeping is the owner's, under the owner's lock.
    """

    __slots__ = ("expires", "object_id_max", "revision", "used")

    def __init__(
        self,
        run: Run,
        holed: frozenset[int],
        object_id_max: int,
        *,
        version: int,
        revision: int,
        expires: float,
        used: float,
    ) -> None:
        self._set(run, holed, version)
        self.revision = revision
        self.expires = expires
        self.used = used
        self.object_id_max = object_id_max

    @classmethod
    def of(cls, rows: Rows, *, version: int, revision: int, expires: float, used: float) -> LiveView:
        """A view of these entries; O(entries) where their starts ascend already."""
        run = seal(rows.starts, rows.ends, rows.object_ids)
        highest = int(rows.object_ids.max(initial=-1))
        return cls(run, rows.holed, highest, version=version, revision=revision, expires=expires, used=used)

    @property
    def size_bytes(self) -> int:
        """Bytes that keeping it takes."""
        return self.nbytes + VIEW_OVERHEAD_BYTES

    def follow(self, entries: Sequence[Entry]) -> bool:
        """Whether these entries, in order of their starts, belong behind all others; O(new entries)."""
        before = self.packed[self.rows - 1] if self.rows else 0
        for entry in entries:
            if entry.start < before:
                return False
            before = entry.start
        return True

    def appended(self, entries: Sequence[Entry], *, version: int) -> LiveView:
        """A view with more entries, which follow, and are of ascending objects that this view lacks.

        Complexity: one copy of the arrays.
        """
        run = append(self.run, [entry[:3] for entry in entries])
        holed = [entry.object_id for entry in entries if entry.holed]
        return self._with(run, self.holed.union(holed), entries[-1].object_id, version)

    def merged(self, rows: Rows, *, without: Collection[int], version: int) -> LiveView:
        """A view without the entries of some objects, and with those of others.

        Complexity: O(entries log entries), no loop in Python over entries.

        Args:
            rows: entries to take in; they replace those of the same objects.
            without: ids of objects whose entries go.
            version: of the new view.
        """
        gone = np.fromiter(without, dtype=np.int64, count=len(without))
        old = unpack(self.packed).reshape(3, self.rows)
        kept = old[:, ~np.isin(old[2], np.concatenate([gone, rows.object_ids]))]
        starts, ends, object_ids = np.concatenate([kept, np.stack(rows[:3])], axis=1)
        replaced = frozenset(rows.object_ids.tolist()).union(without)
        holed = (self.holed - replaced) | rows.holed
        return self._with(seal(starts, ends, object_ids), holed, int(object_ids.max(initial=-1)), version)

    def _with(self, run: Run, holed: frozenset[int], object_id_max: int, version: int) -> LiveView:
        return LiveView(
            run,
            holed,
            object_id_max,
            version=version,
            revision=self.revision,
            expires=self.expires,
            used=self.used,
        )

    def check(self) -> None:
        """Walk every invariant; O(entries).

        Raises:
            AssertionError: one is broken; the message has the state.
        """
        super().check()
        highest = max(self.object_ids, default=-1)
        require(self.object_id_max == highest, "the highest object id is known", self.object_id_max, highest)
