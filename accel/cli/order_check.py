"""Whether each stream's offsets ascend through a node's list: what lookups rely on.

A lookup infers from two objects what lies between them in the list. That is sound only if in the list's order each
object's range of a stream starts at or after the end of every earlier one. The catalog guarantees it; an image that
somebody else made may break it for some streams, and those belong into its ``unordered_streams``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from range_index import ObjectRanges

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Disorder:
    """An object whose range of a stream starts before an earlier object's range ended."""

    stream_id: int
    node_id: int
    object_id: int
    start: int
    earlier_object_id: int
    earlier_end: int


class OrderCheck:
    """Walks through one node's list. One thread at a time.

    It keeps 24 bytes a stream, not a range, so that a list of any length can be walked.
    """

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._ids = np.empty(0, dtype=np.int64)
        self._ends = np.empty(0, dtype=np.int64)
        self._holders = np.empty(0, dtype=np.int64)

    def add(self, object_id: int, ranges: ObjectRanges) -> list[Disorder]:
        """The next object of the list; gives the streams that it breaks.

        Complexity: O(streams seen so far), no loop in Python but over what is given.
        """
        ids, starts, ends = ranges.stream_ids, ranges.starts, ranges.ends
        at = np.searchsorted(self._ids, ids)
        known = np.zeros(len(ids), dtype=np.bool_)
        inside = at < len(self._ids)
        known[inside] = self._ids[at[inside]] == ids[inside]
        slots = at[known]
        late = np.flatnonzero(starts[known] < self._ends[slots])
        rows = zip(
            ids[known][late], starts[known][late], self._holders[slots][late], self._ends[slots][late], strict=True
        )
        found = [
            Disorder(int(stream_id), self._node_id, object_id, int(start), int(holder), int(end))
            for stream_id, start, holder, end in rows
        ]
        later = ends[known] >= self._ends[slots]
        self._ends[slots[later]] = ends[known][later]
        self._holders[slots[later]] = object_id
        self._insert(at[~known], object_id, ids[~known], ends[~known])
        return found

    def _insert(self, at: NDArray[np.intp], object_id: int, ids: Column, ends: Column) -> None:
        if len(ids):
            self._ids = np.insert(self._ids, at, ids)
            self._ends = np.insert(self._ends, at, ends)
            self._holders = np.insert(self._holders, at, object_id)
