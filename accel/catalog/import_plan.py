"""What an import would write, and what it has to say about it. Pure: rows in, records and a report out.

    lists          each node's objects, with the numbers 0, 1, 2 ... as order ids
    buckets        streams with their first offsets, and who wrote them from where to where; the last range stays open,
                   with epoch 0, so that the next session of that node goes on
    checkpoints    where the open streams of each node end, so that this session has no object to open

What stands in the bucket but is not listed is promised in a list, without an end: the collector takes what nobody knows
of for an orphan, and an import must not be the reason why anything is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accel.catalog.import_order import ListOrder, order_of
from accel.catalog.import_runs import RunFolder, furthest_before, spans_of_nodes
from accel.catalog.records import INT64_MAX, Checkpoint, NodeList, StreamBucket
from accel.catalog.rows import LIVE, NO_COMMIT, OWNED_RANGE, PREPARED, STREAM, STREAM_END, Dtype, Rows, make_rows
from accel.catalog.stream_shards import buckets_of
from accel.errors import MaintenanceRefused
from loaders.object_ref import UNKNOWN

SHOWN_MAX = 1000
"""Overlaps, holes, streams and objects that a report names; it counts all of them."""

LEFT_OUT_MAX = 5000
"""Objects that one list may promise for an import: half of all that it can."""

NEVER_MS = INT64_MAX
"""The deadline of a promise that does not run out."""

OPEN = -1

FOUND_OBJECT: Dtype = np.dtype(
    [
        (name, "<i8")
        for name in ("object_id", "node_id", "size_bytes", "index_size_bytes", "tail_checksum", "modified_ms")
    ]
)
"""An object that was opened, and whose it is."""

LEFT_OUT: Dtype = np.dtype([("object_id", "<i8"), ("node_id", "<i8")])
"""An object that is not to be listed; the node is -1 if nobody knows it."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Offsets [start, end) of a stream that are held twice.

    Args:
        stream_id: the stream.
        start: the first of these offsets.
        end: one past the last.
        earlier_ids: the first and the last object of a run of neighbours that holds them.
        later_ids: likewise, of the other run.
    """

    stream_id: int
    start: int
    end: int
    earlier_ids: tuple[int, int]
    later_ids: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hole:
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
    """What one node gets."""

    node_id: int
    objects: int
    size_bytes: int
    open_streams: int


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was found. Of each kind at most 1,000 are named; `counts` has their true numbers.

    Args:
        nodes: ascending by id.
        counts: `keys` in the bucket that are objects, `objects` to be listed, `bytes` of these, `streams`, `overlaps`,
            `holes`, `crossed`, `unlistable`, `left_out`.
        overlaps: offsets held twice: nothing can be imported.
        crossed: streams whose offsets ascend in no order of their node's objects: likewise.
        holes: missing offsets; they do not hinder.
        unlistable: objects that could not be opened, and composite ones; they hinder unless they are to be skipped.
        skip_bad: whether they are.
        is_by_id: whether every list is in the order of ids.
    """

    nodes: tuple[ImportedNode, ...]
    counts: dict[str, int]
    overlaps: tuple[Overlap, ...]
    crossed: tuple[int, ...]
    holes: tuple[Hole, ...]
    unlistable: tuple[Unlistable, ...]
    skip_bad: bool
    is_by_id: bool

    @property
    def hindrances(self) -> list[str]:
        """Why nothing can be imported, one sentence each; empty if it can."""
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
    """What an import would write; lists, buckets and checkpoints are empty if something hinders it.

    Args:
        report: what was found.
        lists: node id -> its list.
        buckets: all of them.
        checkpoints: node id -> its checkpoint.
        next_object_id: above all ids in the bucket.
    """

    report: ImportReport
    lists: dict[int, NodeList]
    buckets: tuple[StreamBucket, ...]
    checkpoints: dict[int, Checkpoint]
    next_object_id: int


@dataclass(frozen=True, slots=True, eq=False)
class FoundObjects:
    """All that was read.

    Args:
        objects: FOUND_OBJECT rows, ascending by id; a run's positions are positions among them.
        folded: what they hold.
        holed: of ranges with a hole inside: at most 1,000.
        holed_count: how many there are.
        left_out: LEFT_OUT rows, the unlistable ones among them.
        unlistable: at most 1,000.
        unlistable_count: how many there are.
        next_object_id: above all ids in the bucket.
    """

    objects: Rows
    folded: RunFolder
    holed: tuple[Hole, ...]
    holed_count: int
    left_out: Rows
    unlistable: tuple[Unlistable, ...]
    unlistable_count: int
    next_object_id: int


def make_plan(found: FoundObjects, bucket_count: int, *, skip_bad: bool) -> ImportPlan:
    """Work out what to write.

    Args:
        found: what was read.
        bucket_count: of streams, as the format record says.
        skip_bad: leave out what cannot be listed, instead of importing nothing.

    Raises:
        MaintenanceRefused: more objects would be left out than lists can promise.
    """
    runs = found.folded.runs()
    order = order_of(len(found.objects), found.folded)
    spans = spans_of_nodes(runs)
    report = _report(found, runs, spans, order, skip_bad=skip_bad)
    if report.hindrances:
        return ImportPlan(report, {}, tuple(map(StreamBucket, range(bucket_count))), {}, found.next_object_id)
    lists = dict(_lists(found, order))
    return ImportPlan(
        report, lists, tuple(_buckets(spans, bucket_count)), dict(_checkpoints(lists, spans)), found.next_object_id
    )


def empty_plan(bucket_count: int) -> ImportPlan:
    """A plan that writes a catalog of nothing."""
    found = FoundObjects(np.empty(0, FOUND_OBJECT), RunFolder(), (), 0, np.empty(0, LEFT_OUT), (), 0, 0)
    return make_plan(found, bucket_count, skip_bad=False)


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


def _holes(runs: Rows, before: NDArray[np.int64], at: NDArray[np.int64]) -> Iterator[Hole]:
    for run, reach in zip(runs[at], before[at].tolist(), strict=True):
        yield Hole(int(run["stream_id"]), reach, int(run["start"]))


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
        promised = np.sort(left_out["object_id"][left_out["node_id"] == node_id])
        if len(promised) > LEFT_OUT_MAX:
            most = f"at most {LEFT_OUT_MAX} objects left out"
            raise MaintenanceRefused(f"list of node {node_id}: expected {most}, found {len(promised)}")
        prepared = make_rows(PREPARED, object_id=promised, deadline_ms=np.full(len(promised), NEVER_MS))
        yield node_id, NodeList(node_id, next_order_id=len(mine), live=_live(mine), prepared=prepared)


def _with_nodes(left_out: Rows, known: NDArray[np.int64]) -> Rows:
    # Whose promise it is does not matter; without any node there is no list to protect it, and no collector either.
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


def _buckets(spans: Rows, bucket_count: int) -> Iterator[StreamBucket]:
    is_first = np.roll(_is_last(spans), 1)  # one stream's first span follows the last one of the stream before
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
    of_ranges = buckets_of(ranges["stream_id"], bucket_count)
    of_streams = buckets_of(streams["stream_id"], bucket_count)
    for number in range(bucket_count):
        yield StreamBucket(number, streams[of_streams == number], ranges[of_ranges == number])


def _checkpoints(lists: dict[int, NodeList], spans: Rows) -> Iterator[tuple[int, Checkpoint]]:
    last = spans[_is_last(spans)]
    for node_id, node_list in lists.items():
        mine = last[last["node_id"] == node_id]
        ends = make_rows(STREAM_END, stream_id=mine["stream_id"], end=mine["end"])
        yield node_id, Checkpoint(node_id, node_list.next_order_id - 1, ends)


def _is_last(spans: Rows) -> NDArray[np.bool_]:
    found = np.ones(len(spans), dtype=np.bool_)
    found[:-1] = spans["stream_id"][1:] != spans["stream_id"][:-1]
    return found
