"""What a bucket's objects hold, folded into runs: the pure heart of an import.

An import must know, for each stream, which node wrote which offsets and where offsets are missing or held twice. It
need not remember every range of every object for that. Objects are taken in by ascending id, and most of them go on
exactly where the node's object before them stopped; such ranges melt into one *run*:

    objects of node 4    | 10: [0, 100) | 12: [100, 250) | 17: [300, 350) |
    runs of the stream   |  first 10, last 12: [0, 250)  | first 17 ...   |

So memory follows the number of streams, moves and holes, and not the number of objects. What a run forgets is which of
its objects came in which order; pairs of neighbours, each once, are kept beside it (*steps*), because a node's list
must have them in that order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from accel.catalog.rows import Rows, no_rows
from accel.errors import MaintenanceRefused

RUN: Final = np.dtype([(name, "<i8") for name in ("node_id", "stream_id", "start", "end", "first", "last")])
"""Offsets [start, end) of a stream that objects of one node hold without a gap; `first` and `last` are positions of
objects among all that are imported, ascending by id."""

RUNS_MAX: Final = 1 << 23
"""More runs than this are refused: 8,388,608, which take 400 MB."""

STEPS_MAX: Final = 1 << 24

Column = NDArray[np.int64]
_SHIFT: Final = 31
_MASK: Final = (1 << _SHIFT) - 1


class RunFolder:
    """Folds ranges of objects into runs. Threads: one.

    Args:
        runs_max: bound on runs that are kept.
    """

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._open = no_rows(RUN)
        self._closed: list[Rows] = []
        self._closed_count = 0
        self._steps = np.empty(0, dtype=np.int64)

    def add(self, rows: Rows) -> None:
        """Take in the ranges of some objects.

        Args:
            rows: RUN rows of one object each (`first` equals `last`), all of them behind those taken in before.

        Raises:
            MaintenanceRefused: more runs, or more pairs of neighbours, than this program keeps in memory.

        Complexity: O(n log n) in the rows and the streams so far; no loop in Python.
        """
        rows = np.concatenate((self._open, rows))
        rows = rows[np.lexsort((rows["first"], rows["stream_id"], rows["node_id"]))]
        if not len(rows):
            return
        follows = same_stream(rows)
        joins = follows & (rows["start"][1:] == rows["end"][:-1])
        self._note_steps(rows["last"][:-1][joins], rows["first"][1:][joins])
        heads = np.flatnonzero(np.concatenate(([True], ~joins)))
        tails = np.append(heads[1:], len(rows)) - 1
        runs = rows[heads].copy()
        runs["end"], runs["last"] = rows["end"][tails], rows["last"][tails]
        is_open = np.concatenate((~same_stream(runs), [True]))
        self._open = runs[is_open]
        self._closed.append(runs[~is_open])
        self._closed_count += len(self._closed[-1])
        _refuse_above(self._runs_max, self._closed_count + len(self._open), "runs of neighbouring offsets")

    def runs(self) -> Rows:
        """All runs, ascending by (stream id, start, end, first)."""
        rows = np.concatenate([*self._closed, self._open])
        found: Rows = rows[np.lexsort((rows["first"], rows["end"], rows["start"], rows["stream_id"]))]
        return found

    def steps(self) -> tuple[Column, Column]:
        """Pairs of objects (earlier, later) that hold neighbouring offsets within a run, each pair once."""
        return self._steps >> _SHIFT, self._steps & _MASK

    def _note_steps(self, earlier: Column, later: Column) -> None:
        self._steps = np.union1d(self._steps, (earlier << _SHIFT) | later)
        _refuse_above(STEPS_MAX, len(self._steps), "pairs of neighbouring objects")


def same_stream(rows: Rows) -> NDArray[np.bool_]:
    """For each row but the first: whether it is of the same node and stream as the row before."""
    found: NDArray[np.bool_] = (rows["stream_id"][1:] == rows["stream_id"][:-1]) & (
        rows["node_id"][1:] == rows["node_id"][:-1]
    )
    return found


def furthest_before(runs: Rows) -> Column:
    """For each run, which of the runs of the same stream before it reaches furthest; -1 for the first of a stream.

    Args:
        runs: as `RunFolder.runs` gives them.

    Complexity: O(n log n), no loop in Python.
    """
    found = np.full(len(runs), -1, dtype=np.int64)
    if len(runs):
        begins = np.concatenate(([True], runs["stream_id"][1:] != runs["stream_id"][:-1]))
        stream = (np.cumsum(begins) - 1) * len(runs)
        by_end = np.argsort(runs["end"], kind="stable")
        ranks = np.empty(len(runs), dtype=np.int64)
        ranks[by_end] = np.arange(len(runs))
        # A running maximum that starts anew with every stream: streams are told apart by the larger part of the key.
        highest = np.maximum.accumulate(stream + ranks) - stream
        found[1:] = by_end[highest[:-1]]
        found[begins] = -1
    return found


def spans_of_nodes(runs: Rows) -> Rows:
    """Neighbouring runs of one node and stream as one: who wrote a stream from where to where.

    Args:
        runs: as `RunFolder.runs` gives them, without overlaps.
    """
    if not len(runs):
        return runs
    heads = np.flatnonzero(np.concatenate(([True], ~same_stream(runs))))
    tails = np.append(heads[1:], len(runs)) - 1
    spans: Rows = runs[heads].copy()
    spans["end"], spans["last"] = runs["end"][tails], runs["last"][tails]
    return spans


def crossings(runs: Rows) -> Rows:
    """Runs by node, stream and start: neighbours of one node and stream must stand in its list in this order."""
    found: Rows = runs[np.lexsort((runs["first"], runs["end"], runs["start"], runs["stream_id"], runs["node_id"]))]
    return found


def _refuse_above(most: int, found: int, what: str) -> None:
    if found > most:
        raise MaintenanceRefused(f"expected at most {most} {what}, found {found}: import fewer objects at once")
