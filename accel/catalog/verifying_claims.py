"""Which offsets the objects of a catalog claim, and where these claims contradict one another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accel.catalog.rows import Rows
from accel.catalog.survey import Ids
from accel.catalog.verification import Kind, Problem
from range_index import ObjectRanges

PROBLEMS_AN_OBJECT_MAX = 5


class Ends:
    """Where each stream has come to so far, on the way through a list. Threads: one."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._ids: Ids = np.empty(0, dtype=np.int64)
        self._ends: Ids = np.empty(0, dtype=np.int64)

    def follow(self, object_id: int, ranges: ObjectRanges) -> Iterator[Problem]:
        """What of an object does not follow the objects before it. O(streams so far)."""
        _, mine, theirs = np.intersect1d(self._ids, ranges.stream_ids, assume_unique=True, return_indices=True)
        wrong = np.flatnonzero(ranges.starts[theirs] < self._ends[mine])
        for at in wrong[:PROBLEMS_AN_OBJECT_MAX].tolist():
            stream_id = int(ranges.stream_ids[theirs[at]])
            expected = f"stream {stream_id} to go on at {int(self._ends[mine[at]])} or above"
            seen = f"{int(ranges.starts[theirs[at]])} in object {object_id}"
            yield Problem(Kind.ORDER, self._where, expected, seen)
        ids = np.union1d(self._ids, ranges.stream_ids)
        ends = np.full(len(ids), -1, dtype=np.int64)
        ends[np.searchsorted(ids, self._ids)] = self._ends
        places = np.searchsorted(ids, ranges.stream_ids)
        ends[places] = np.maximum(ends[places], ranges.ends)
        self._ids, self._ends = ids, ends


class Spans:
    """What is claimed of streams that have objects of their own. Threads: one.

    Args:
        rows: STREAM_OBJECT rows.
    """

    def __init__(self, rows: Rows) -> None:
        self._streams = np.unique(rows["stream_id"])
        self._columns = [[rows[name]] for name in ("stream_id", "start", "end", "object_id")]

    def add(self, object_id: int, ranges: ObjectRanges) -> None:
        """Note what an object of many streams claims; where it has a hole inside, its range does not say what."""
        chosen = np.isin(ranges.stream_ids, self._streams)
        chosen[ranges.holed] = False
        claimed = (ranges.stream_ids, ranges.starts, ranges.ends)
        for column, values in zip(self._columns, claimed, strict=False):
            column.append(values[chosen])
        self._columns[3].append(np.full(int(chosen.sum()), object_id, dtype=np.int64))

    def problems(self) -> Iterator[Problem]:
        """Neighbours that overlap, if any do. O(n log n)."""
        streams, starts, ends, objects = (np.concatenate(column) for column in self._columns)
        order = np.lexsort((starts, streams))
        streams, starts, ends, objects = streams[order], starts[order], ends[order], objects[order]
        for at in np.flatnonzero((streams[1:] == streams[:-1]) & (ends[:-1] > starts[1:])).tolist():
            seen = " and ".join(f"[{starts[each]}, {ends[each]}) of object {objects[each]}" for each in (at, at + 1))
            yield Problem(Kind.STREAM_OBJECT, f"stream {streams[at]}", "each offset in one live object", seen)
