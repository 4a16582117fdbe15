"""The records that an import would write, and a report. Pure: computes records and a report from rows.

    lists          each node's objects, with the numbers 0, 1, 2 ... as order ids
    shards         streams with their first offsets, and the ranges that each node wrote; the last range stays open,
                   with session number 0, so that the next session of that node continues it
    checkpoints    the ends of each node's open streams, so that this session has no object to open

Objects of the bucket that are not listed are prepared in a list, without a deadline: otherwise the collector would
delete them as orphans, and an import must not cause a loss of data.

**Runs.** An import needs, for each stream, the offsets that each node wrote, and the offsets that are missing or held
twice. It need not keep every range of every object for that. Objects are added by ascending id, and most objects
continue exactly at the end of the node's previous object; such ranges are joined to one run:

    objects of node 4    | 10: [0, 100) | 12: [100, 250) | 17: [300, 350) |
    runs of the stream   |  first 10, last 12: [0, 250)  | first 17 ...   |

So memory grows with the number of streams, moves and holes, and not with the number of objects. A run does not contain
the order of its objects; pairs of neighbours, each once, are kept separately (*steps*), because a node's list must have
them in that order.

**Order.** A writer allocates ids in the order in which it writes, so usually a stream's offsets ascend with the ids of
its objects, and the list is in the order of ids. An output of a compaction has a high id and old offsets. The bucket
does not contain its place in the list, but any order in which the offsets of every stream ascend gives the same
answers. Of these orders the one nearest to the order of ids is used: the next object is always the one with the lowest
id among all objects that may come next. There is no such order if two objects hold parts of two streams crosswise: the
report names these streams, and nothing is imported.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import (
    INT64_MAX,
    LIVE,
    NO_COMMIT,
    OPEN,
    OWNED_RANGE,
    PREPARED,
    SKETCH,
    STREAM,
    STREAM_END,
    Checkpoint,
    Dtype,
    NodeList,
    Rows,
    StreamShard,
    make_rows,
    no_rows,
)
from accel.catalog.sketches_and_ends import sketches_of
from accel.catalog.stream_shards import shards_of
from accel.errors import MaintenanceRefused
from loaders.object_ref import UNKNOWN

SHOWN_MAX = 1000
"""The maximum number of overlaps, holes, streams and objects that a report names; it counts all of them."""

LEFT_OUT_MAX = 5000
"""The maximum number of objects that one list prepares for an import: half of what a list can prepare."""

NEVER_MS = INT64_MAX
"""The deadline of a prepared object that is never collected."""

FOUND_OBJECT: Dtype = np.dtype(
    [
        (name, "<i8")
        for name in ("object_id", "node_id", "size_bytes", "index_size_bytes", "tail_checksum", "modified_ms")
    ]
)
"""An object that was opened, with its node."""

LEFT_OUT: Dtype = np.dtype([("object_id", "<i8"), ("node_id", "<i8")])
"""An object that is not listed; the node is -1 if it is unknown."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Offsets [start, end) of a stream that are held twice.

    Args:
        stream_id: the stream.
        start: the first of these offsets.
        end: one past the last.
        earlier_ids: the first and the last object of one run with these offsets.
        later_ids: the same of the other run.
    """

    stream_id: int
    start: int
    end: int
    earlier_ids: tuple[int, int]
    later_ids: tuple[int, int]


@dataclass(frozen=True, slots=True)
class StreamHole:
    """Offsets [start, end) of a stream that no object holds.

    Args:
        stream_id: the stream.
        start: the first of these offsets.
        end: one past the last.
        object_id: -1; or the object within whose range some offsets are missing.
    """

    stream_id: int
    start: int
    end: int
    object_id: int = -1


@dataclass(frozen=True, slots=True)
class Unlistable:
    """An object that cannot be listed, and why."""

    object_id: int
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportedNode:
    """The objects and open streams of one node."""

    node_id: int
    objects: int
    size_bytes: int
    open_streams: int


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The findings of an import. Of each kind at most 1,000 are named; `counts` has the total numbers.

    Args:
        nodes: ascending by id.
        counts: `keys` in the bucket that are objects, `objects` to be listed, `bytes` of these, `streams`, `overlaps`,
            `holes`, `crossed`, `unlistable`, `left_out`.
        overlaps: offsets held twice, which prevent the import.
        crossed: streams whose offsets ascend in no order of their node's objects, which prevent the import.
        holes: missing offsets, which do not prevent the import.
        unlistable: objects that could not be opened, and composite objects; they prevent the import unless `skip_bad`.
        skip_bad: whether unlistable objects are left out.
        is_by_id: whether every list is in the order of ids.
    """

    nodes: tuple[ImportedNode, ...]
    counts: dict[str, int]
    overlaps: tuple[Overlap, ...]
    crossed: tuple[int, ...]
    holes: tuple[StreamHole, ...]
    unlistable: tuple[Unlistable, ...]
    skip_bad: bool
    is_by_id: bool

    @property
    def hindrances(self) -> list[str]:
        """The reasons that prevent the import, one sentence each; empty if there are none."""
        return list(self._hindrances())

    def _hindrances(self) -> Iterator[str]:
        counts = self.counts
        if counts["overlaps"]:
            yield f"expected each offset in one object, found overlaps: {counts['overlaps']}"
        if counts["crossed"]:
            found = f"none for {counts['crossed']} of {counts['streams']} streams"
            yield f"expected an order of each node's objects in which its streams ascend, found {found}"
        if counts["unlistable"] and not self.skip_bad:
            yield f"expected objects that can be listed, found others: {counts['unlistable']}"


@dataclass(frozen=True, slots=True, eq=False)
class ImportPlan:
    """The records that an import would write; lists, shards and checkpoints are empty if the report has hindrances.

    Args:
        report: the findings.
        lists: node id -> its list.
        shards: all stream shards.
        checkpoints: node id -> its checkpoint.
        next_object_id: above all ids in the bucket.
    """

    report: ImportReport
    lists: dict[int, NodeList]
    shards: tuple[StreamShard, ...]
    checkpoints: dict[int, Checkpoint]
    next_object_id: int


@dataclass(frozen=True, slots=True, eq=False)
class FoundObjects:
    """The results of reading all objects.

    Args:
        objects: FOUND_OBJECT rows, ascending by id; a run's positions are positions among them.
        sketches: SKETCH rows of the objects that have any stream.
        folded: the runs of the objects' ranges.
        holed: ranges with a hole inside, at most 1,000.
        holed_count: the number of all such ranges.
        left_out: LEFT_OUT rows, including the unlistable objects.
        unlistable: objects that cannot be listed, at most 1,000.
        unlistable_count: the number of all such objects.
        next_object_id: above all ids in the bucket.
    """

    objects: Rows
    sketches: Rows
    folded: RunFolder
    holed: tuple[StreamHole, ...]
    holed_count: int
    left_out: Rows
    unlistable: tuple[Unlistable, ...]
    unlistable_count: int
    next_object_id: int


def make_plan(found: FoundObjects, shard_count: int, *, skip_bad: bool) -> ImportPlan:
    """Compute the records to write.

    Args:
        found: the results of reading.
        shard_count: the number of stream shards in the format record.
        skip_bad: leave out objects that cannot be listed, instead of refusing the import.

    Raises:
        MaintenanceRefused: more objects would be left out than lists can prepare.
    """
    runs = found.folded.runs()
    order = order_of(len(found.objects), found.folded)
    spans = spans_of_nodes(runs)
    report = _report(found, runs, spans, order, skip_bad=skip_bad)
    if report.hindrances:
        return ImportPlan(report, {}, tuple(map(StreamShard, range(shard_count))), {}, found.next_object_id)
    lists = dict(_lists(found, order))
    return ImportPlan(
        report, lists, tuple(_shards(spans, shard_count)), dict(_checkpoints(lists, spans)), found.next_object_id
    )


def empty_plan(shard_count: int) -> ImportPlan:
    """A plan without objects."""
    nothing = (np.empty(0, FOUND_OBJECT), no_rows(SKETCH))
    found = FoundObjects(*nothing, RunFolder(), (), 0, np.empty(0, LEFT_OUT), (), 0, 0)
    return make_plan(found, shard_count, skip_bad=False)


def _report(found: FoundObjects, runs: Rows, spans: Rows, order: ListOrder, *, skip_bad: bool) -> ImportReport:
    objects = found.objects
    earlier = furthest_before(runs)
    before = np.where(earlier >= 0, runs["end"][earlier], -1) if len(runs) else earlier
    doubled = np.flatnonzero(runs["start"] < before)
    holes = np.flatnonzero((before >= 0) & (runs["start"] > before))
    counts = {
        "keys": len(objects) + len(found.left_out),
        "objects": len(objects),
        "bytes": int(objects["size_bytes"].sum()),
        "streams": len(np.unique(runs["stream_id"])),
        "overlaps": len(doubled),
        "holes": len(holes) + found.holed_count,
        "crossed": len(order.crossed),
        "unlistable": found.unlistable_count,
        "left_out": len(found.left_out),
    }
    return ImportReport(
        nodes=tuple(_nodes(objects, spans)),
        counts=counts,
        overlaps=tuple(_overlaps(objects["object_id"], runs[earlier[doubled[:SHOWN_MAX]]], runs[doubled[:SHOWN_MAX]])),
        crossed=tuple(order.crossed[:SHOWN_MAX].tolist()),
        holes=(*_holes(runs, before, holes[:SHOWN_MAX]), *found.holed)[:SHOWN_MAX],
        unlistable=found.unlistable,
        skip_bad=skip_bad,
        is_by_id=order.is_by_id,
    )


def _overlaps(ids: NDArray[np.int64], earlier: Rows, later: Rows) -> Iterator[Overlap]:
    for one, other in zip(earlier, later, strict=True):
        names = [(int(ids[run["first"]]), int(ids[run["last"]])) for run in (one, other)]
        yield Overlap(int(other["stream_id"]), int(other["start"]), int(min(one["end"], other["end"])), *names)


def _holes(runs: Rows, before: NDArray[np.int64], at: NDArray[np.int64]) -> Iterator[StreamHole]:
    for run, reach in zip(runs[at], before[at].tolist(), strict=True):
        yield StreamHole(int(run["stream_id"]), reach, int(run["start"]))


def _nodes(objects: Rows, spans: Rows) -> Iterator[ImportedNode]:
    owners = spans["node_id"][_is_last(spans)]
    for node_id in np.unique(objects["node_id"]).tolist():
        sizes = objects["size_bytes"][objects["node_id"] == node_id]
        yield ImportedNode(node_id, len(sizes), int(sizes.sum()), int((owners == node_id).sum()))


def _lists(found: FoundObjects, order: ListOrder) -> Iterator[tuple[int, NodeList]]:
    ordered = found.objects[order.positions]
    left_out = _with_nodes(found.left_out, found.objects["node_id"])
    for node_id in np.union1d(ordered["node_id"], left_out["node_id"]).tolist():
        mine = ordered[ordered["node_id"] == node_id]
        prepared_ids = np.sort(left_out["object_id"][left_out["node_id"] == node_id])
        if len(prepared_ids) > LEFT_OUT_MAX:
            most = f"at most {LEFT_OUT_MAX} objects left out"
            raise MaintenanceRefused(f"list of node {node_id}: expected {most}, found {len(prepared_ids)}")
        prepared = make_rows(PREPARED, object_id=prepared_ids, deadline_ms=np.full(len(prepared_ids), NEVER_MS))
        live = _live(mine)
        sketches = sketches_of(live, found.sketches)
        yield node_id, NodeList(node_id, next_order_id=len(mine), live=live, prepared=prepared, sketches=sketches)


def _with_nodes(left_out: Rows, known: NDArray[np.int64]) -> Rows:
    # Any node's list will do. Without any node there is no list to protect the object, but no collector runs either.
    if not len(known):
        homeless: Rows = left_out[left_out["node_id"] >= 0]
        return homeless
    kept = left_out.copy()
    kept["node_id"][kept["node_id"] < 0] = known.min()
    return kept


def _live(mine: Rows) -> Rows:
    numbers = np.arange(len(mine), dtype=np.int64)
    return make_rows(
        LIVE,
        object_id=mine["object_id"],
        order_id=numbers,
        last_order_id=numbers,
        data_time_ms=np.maximum(mine["modified_ms"], 0),
        size_bytes=mine["size_bytes"],
        index_size_bytes=mine["index_size_bytes"],
        attributes=np.full(len(mine), UNKNOWN),
        tail_checksum=mine["tail_checksum"],
        added_by=np.full(len(mine), NO_COMMIT),
    )


def _shards(spans: Rows, shard_count: int) -> Iterator[StreamShard]:
    is_first = np.roll(_is_last(spans), 1)  # a stream's first span follows the last span of the previous stream
    heads = np.flatnonzero(is_first)
    ends = np.where(_is_last(spans), OPEN, spans["end"])
    index = np.arange(len(spans)) - heads[np.cumsum(is_first) - 1] if len(spans) else spans["stream_id"]
    ranges = make_rows(
        OWNED_RANGE,
        stream_id=spans["stream_id"],
        range_index=index,
        epoch=np.zeros(len(spans), dtype=np.int64),
        start=spans["start"],
        end=ends,
        node_id=spans["node_id"],
    )
    streams = make_rows(STREAM, stream_id=spans["stream_id"][heads], start_offset=spans["start"][heads])
    of_ranges = shards_of(ranges["stream_id"], shard_count)
    of_streams = shards_of(streams["stream_id"], shard_count)
    for number in range(shard_count):
        yield StreamShard(number, streams[of_streams == number], ranges[of_ranges == number])


def _checkpoints(lists: dict[int, NodeList], spans: Rows) -> Iterator[tuple[int, Checkpoint]]:
    last = spans[_is_last(spans)]
    for node_id, node_list in lists.items():
        mine = last[last["node_id"] == node_id]
        ends = make_rows(STREAM_END, stream_id=mine["stream_id"], end=mine["end"])
        yield node_id, Checkpoint(node_id, node_list.next_order_id - 1, ends)


def _is_last(spans: Rows) -> NDArray[np.bool_]:
    is_last = np.ones(len(spans), dtype=np.bool_)
    is_last[:-1] = spans["stream_id"][1:] != spans["stream_id"][:-1]
    return is_last


RUN: Final = np.dtype([(name, "<i8") for name in ("node_id", "stream_id", "start", "end", "first", "last")])
"""Offsets [start, end) of a stream that objects of one node hold without a gap; `first` and `last` are positions of
objects among all imported objects, ascending by id."""

RUNS_MAX: Final = 1 << 23
"""The maximum number of runs: 8,388,608, which take 400 MB."""

STEPS_MAX: Final = 1 << 24

Column = NDArray[np.int64]
_SHIFT: Final = 31
_MASK: Final = (1 << _SHIFT) - 1


class RunFolder:
    """Folds ranges of objects into runs. Threads: one.

    Args:
        runs_max: the maximum number of runs.
    """

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._open = no_rows(RUN)
        self._closed: list[Rows] = []
        self._closed_count = 0
        self._steps = np.empty(0, dtype=np.int64)

    def add(self, rows: Rows) -> None:
        """Add the ranges of some objects.

        Args:
            rows: RUN rows of one object each (`first` equals `last`), with positions above all added before.

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
        runs: Rows = rows[np.lexsort((rows["first"], rows["end"], rows["start"], rows["stream_id"]))]
        return runs

    def steps(self) -> tuple[Column, Column]:
        """Pairs of objects (earlier, later) that hold neighbouring offsets within a run, each pair once."""
        return self._steps >> _SHIFT, self._steps & _MASK

    def _note_steps(self, earlier: Column, later: Column) -> None:
        self._steps = np.union1d(self._steps, (earlier << _SHIFT) | later)
        _refuse_above(STEPS_MAX, len(self._steps), "pairs of neighbouring objects")


def same_stream(rows: Rows) -> NDArray[np.bool_]:
    """For each row but the first: whether it has the same node and stream as the row before."""
    is_same: NDArray[np.bool_] = (rows["stream_id"][1:] == rows["stream_id"][:-1]) & (
        rows["node_id"][1:] == rows["node_id"][:-1]
    )
    return is_same


def furthest_before(runs: Rows) -> Column:
    """For each run, the earlier run of the same stream with the highest end; -1 for the first run of a stream.

    Args:
        runs: of `RunFolder.runs`.

    Complexity: O(n log n), no loop in Python.
    """
    furthest = np.full(len(runs), -1, dtype=np.int64)
    if len(runs):
        begins = np.concatenate(([True], runs["stream_id"][1:] != runs["stream_id"][:-1]))
        stream = (np.cumsum(begins) - 1) * len(runs)
        by_end = np.argsort(runs["end"], kind="stable")
        ranks = np.empty(len(runs), dtype=np.int64)
        ranks[by_end] = np.arange(len(runs))
        # A running maximum that starts again with every stream: the high part of the key is the stream.
        highest = np.maximum.accumulate(stream + ranks) - stream
        furthest[1:] = by_end[highest[:-1]]
        furthest[begins] = -1
    return furthest


def spans_of_nodes(runs: Rows) -> Rows:
    """Join neighbouring runs of the same node and stream: the ranges of a stream that each node wrote.

    Args:
        runs: of `RunFolder.runs`, without overlaps.
    """
    if not len(runs):
        return runs
    heads = np.flatnonzero(np.concatenate(([True], ~same_stream(runs))))
    tails = np.append(heads[1:], len(runs)) - 1
    spans: Rows = runs[heads].copy()
    spans["end"], spans["last"] = runs["end"][tails], runs["last"][tails]
    return spans


def crossings(runs: Rows) -> Rows:
    """Runs by node, stream and start: neighbours of the same node and stream must be in its list in this order."""
    ordered: Rows = runs[np.lexsort((runs["first"], runs["end"], runs["start"], runs["stream_id"], runs["node_id"]))]
    return ordered


def _refuse_above(most: int, count: int, what: str) -> None:
    if count > most:
        raise MaintenanceRefused(f"expected at most {most} {what}, found {count}: import fewer objects at once")


@dataclass(frozen=True, slots=True, eq=False)
class ListOrder:
    """The order of the objects.

    Args:
        positions: of the objects of all nodes, each node's in the order of its list. Incomplete if a stream is crossed.
        crossed: ids of streams whose offsets ascend in no order; empty if there are none.
        is_by_id: whether it is the order of ids.
    """

    positions: Column
    crossed: Column
    is_by_id: bool


def order_of(object_count: int, folded: RunFolder) -> ListOrder:
    """Find the order of all objects; the objects of different nodes are independent.

    Args:
        object_count: the number of objects; positions are below it.
        folded: the runs of all their ranges.

    Complexity: O(n log n) in the runs; if the order of ids does not fit, also a step of Python for each object and pair
    of neighbours.
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
    """Positions in an order with every `earlier` before its `later`, the lowest first; without positions in cycles."""
    pairs = np.unique(np.stack((earlier, later)), axis=1)
    waiting_for = np.bincount(pairs[1], minlength=object_count)
    bounds = np.searchsorted(pairs[0], np.arange(object_count + 1)).tolist()
    followers = pairs[1].tolist()
    counts = waiting_for.tolist()
    ready = np.flatnonzero(waiting_for == 0).tolist()  # ascending, and so a heap
    positions: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        positions.append(position)
        for follower in followers[bounds[position] : bounds[position + 1]]:
            counts[follower] -= 1
            if not counts[follower]:
                heapq.heappush(ready, follower)
    return np.array(positions, dtype=np.int64)
