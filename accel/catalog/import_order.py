"""In which order a node's list takes existing objects: by id where that is possible, else as their offsets demand.

A writer gives out ids in the order in which it writes, so mostly a stream's offsets ascend with the ids of its objects.
An object that compaction made has a high id and old offsets. Which place it had, the bucket does not say; but any order
in which the offsets of every stream ascend gives the same answers. Among those the one is taken that differs least from
the order of ids: of all objects that may come next, always the one with the lowest id.

There may be no such order, if two objects hold parts of two streams crosswise. These streams are named, and nothing is
imported.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accel.catalog.import_runs import RunFolder, crossings, same_stream

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ListOrder:
    """The order found.

    Args:
        positions: of the objects, in the order of their lists; of nodes mixed. Incomplete if a stream is crossed.
        crossed: ids of streams whose offsets ascend in no order; empty if all is well.
        is_by_id: whether it is simply that of the ids.
    """

    positions: Column
    crossed: Column
    is_by_id: bool


def order_of(object_count: int, folded: RunFolder) -> ListOrder:
    """Find the order of all objects; those of different nodes do not concern each other.

    Args:
        object_count: how many there are; positions are below it.
        folded: all of their ranges.

    Complexity: O(n log n) in the runs; a step of Python for each object and pair of neighbours, if ids do not do.
    """
    runs = crossings(folded.runs())
    joined = same_stream(runs)
    earlier, later = runs["last"][:-1][joined], runs["first"][1:][joined]
    by_id = np.arange(object_count, dtype=np.int64)
    if (earlier < later).all():  # the pairs within runs ascend anyway
        return ListOrder(by_id, np.empty(0, dtype=np.int64), is_by_id=True)
    inner_earlier, inner_later = folded.steps()
    positions = _sorted(object_count, np.concatenate((earlier, inner_earlier)), np.concatenate((later, inner_later)))
    stuck = np.setdiff1d(by_id, positions)
    against = (earlier >= later) & np.isin(earlier, stuck) & np.isin(later, stuck)
    return ListOrder(positions, np.unique(runs["stream_id"][1:][joined][against]), is_by_id=False)


def _sorted(object_count: int, earlier: Column, later: Column) -> Column:
    """Positions so that every `earlier` comes before its `later`, the lowest first; without those in a circle."""
    pairs = np.unique(np.stack((earlier, later)), axis=1)
    waiting_for = np.bincount(pairs[1], minlength=object_count)
    bounds = np.searchsorted(pairs[0], np.arange(object_count + 1)).tolist()
    followers = pairs[1].tolist()
    counts = waiting_for.tolist()
    ready = np.flatnonzero(waiting_for == 0).tolist()  # ascending, and so a heap
    found: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        found.append(position)
        for follower in followers[bounds[position] : bounds[position + 1]]:
            counts[follower] -= 1
            if not counts[follower]:
                heapq.heappush(ready, follower)
    return np.array(found, dtype=np.int64)
