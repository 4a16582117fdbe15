"""Whatever a bucket holds, an import finds all overlaps and holes, and an order of each list if there is one."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.adoption.import_plan import (
    FOUND_OBJECT,
    LEFT_OUT,
    LEFT_OUT_MAX,
    NEVER_MS,
    RUN,
    FoundObjects,
    ImportPlan,
    RunFolder,
    make_plan,
)
from accel.catalog.node_list import check_list
from accel.catalog.records import SKETCH, make_rows, no_rows
from accel.catalog.stream_shards import check_shard
from accel.errors import MaintenanceRefused

BUCKETS = 3
Spans = Mapping[int, tuple[int, int]]
Bucket = dict[int, tuple[int, Spans]]
"""Object id -> its node, and stream id -> (start, end)."""


def found(bucket: Bucket, batches: Iterable[int] = (), left_out: Mapping[int, int] | None = None) -> FoundObjects:
    """What reading such a bucket gives, taken in so many objects at a time."""
    ids = sorted(bucket)
    folder, at = RunFolder(), 0
    for size in (*batches, len(ids)):
        rows = [
            (position, bucket[ids[position]][0], stream_id, *span)
            for position in range(at, min(at + size, len(ids)))
            for stream_id, span in bucket[ids[position]][1].items()
        ]
        at += size
        table = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        folder.add(
            make_rows(
                RUN, first=table[0], last=table[0], node_id=table[1], stream_id=table[2], start=table[3], end=table[4]
            )
        )
    objects = make_rows(
        FOUND_OBJECT,
        object_id=ids,
        node_id=[bucket[each][0] for each in ids],
        size_bytes=[100 + each for each in ids],
        index_size_bytes=36,
        tail_checksum=[7 * each for each in ids],
        modified_ms=[1000 * each for each in ids],
    ) if ids else np.empty(0, FOUND_OBJECT)  # fmt: skip
    out = left_out or {}
    left = make_rows(LEFT_OUT, object_id=list(out), node_id=list(out.values())) if out else np.empty(0, LEFT_OUT)
    return FoundObjects(objects, no_rows(SKETCH), folder, (), 0, left, (), 0, max(ids, default=-1) + 1)


def plan_of(bucket: Bucket, batches: Iterable[int] = (), left_out: Mapping[int, int] | None = None) -> ImportPlan:
    return make_plan(found(bucket, batches, left_out), BUCKETS, skip_bad=False)


def held(bucket: Bucket) -> dict[int, Counter[int]]:
    """Stream id -> how often each offset is held."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for _, spans in bucket.values():
        for stream_id, span in spans.items():
            counts[stream_id].update(range(*span))
    return counts


def best_order(bucket: Bucket, node_id: int) -> list[int] | None:
    """The first of all orders, by id, in which each stream of a node ascends; found by trying them all."""
    ids = sorted(object_id for object_id, (owner, _) in bucket.items() if owner == node_id)
    for order in itertools.permutations(ids):
        if ascends(bucket, order):
            return list(order)
    return None


def ascends(bucket: Bucket, order: Iterable[int]) -> bool:
    ends: dict[int, int] = {}
    for object_id in order:
        for stream_id, (start, end) in bucket[object_id][1].items():
            if start < ends.get(stream_id, 0):
                return False
            ends[stream_id] = end
    return True


spans = st.dictionaries(
    st.integers(1, 3),
    st.tuples(st.integers(0, 12), st.integers(1, 4)).map(lambda each: (each[0], sum(each))),
    max_size=3,
)
buckets = st.dictionaries(st.integers(0, 40), st.tuples(st.sampled_from([4, 7]), spans), max_size=6)


@st.composite
def divided(draw: st.DrawFn) -> Bucket:
    """Objects that share streams out among themselves, each offset at most once, in any order of ids."""
    ids = draw(st.lists(st.integers(0, 40), unique=True, min_size=1, max_size=6))
    nodes = {each: draw(st.sampled_from([4, 7])) for each in ids}
    contents: dict[int, dict[int, tuple[int, int]]] = {each: {} for each in ids}
    for stream_id in draw(st.sets(st.integers(1, 3), min_size=1)):
        at = draw(st.integers(0, 5))
        for object_id in draw(st.permutations(ids)):
            at += draw(st.sampled_from([0, 0, 0, 2]))
            if draw(st.booleans()):
                contents[object_id][stream_id] = (at, at + 3)
                at += 3
    return {each: (nodes[each], contents[each]) for each in ids}


@given(buckets, st.lists(st.integers(0, 3), max_size=4))
def test_overlaps_and_holes_are_those_that_counting_finds(bucket: Bucket, batches: list[int]) -> None:
    report = plan_of(bucket, batches).report
    counts = held(bucket)
    twice = {(stream_id, at) for stream_id, seen in counts.items() for at, number in seen.items() if number > 1}
    none = {(stream_id, at) for stream_id, seen in counts.items() for at in range(min(seen), max(seen)) if not seen[at]}
    assert {(each.stream_id, at) for each in report.overlaps for at in range(each.start, each.end)} == twice
    assert {(each.stream_id, at) for each in report.holes for at in range(each.start, each.end)} == none
    assert bool(report.counts["overlaps"]) == bool(twice)
    assert report.counts["streams"] == len(counts)
    assert sum(each.objects for each in report.nodes) == len(bucket) == report.counts["objects"]


@given(divided(), st.lists(st.integers(0, 3), max_size=4))
def test_lists_take_the_first_order_by_id_in_which_all_streams_ascend(bucket: Bucket, batches: list[int]) -> None:
    plan = plan_of(bucket, batches)
    orders = {node_id: best_order(bucket, node_id) for node_id, _ in bucket.values()}
    assert bool(plan.report.hindrances) == bool(plan.report.crossed) == (None in orders.values())
    if plan.report.hindrances:
        assert (plan.lists, plan.checkpoints) == ({}, {})
        assert not any(len(each.streams) for each in plan.shards)
        return
    assert {node_id: each.live["object_id"].tolist() for node_id, each in plan.lists.items()} == orders
    assert plan.report.is_by_id == all(order == sorted(order or []) for order in orders.values())


@given(divided(), st.lists(st.integers(0, 3), max_size=4))
def test_records_keep_the_rules_of_lists_and_buckets(bucket: Bucket, batches: list[int]) -> None:
    plan = plan_of(bucket, batches)
    assert [problem for each in plan.lists.values() for problem in check_list(each)] == []
    assert [problem for each in plan.shards for problem in check_shard(each, BUCKETS)] == []
    assert plan.next_object_id == max(bucket) + 1


@given(divided(), st.lists(st.integers(0, 3), max_size=4))
def test_ranges_name_the_node_that_holds_each_offset(bucket: Bucket, batches: list[int]) -> None:
    plan = plan_of(bucket, batches)
    if plan.report.hindrances:
        return
    ranges: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for each in plan.shards:
        for row in each.ranges:
            ranges[int(row["stream_id"])].append((int(row["start"]), int(row["end"]), int(row["node_id"])))
            assert row["range_index"] == len(ranges[int(row["stream_id"])]) - 1
    for node_id, contents in bucket.values():
        for stream_id, (start, end) in contents.items():
            owners = [
                owner for first, stop, owner in ranges[stream_id] if first <= start and (stop == -1 or end <= stop)
            ]
            assert owners == [node_id]
    counts = held(bucket)
    assert set(ranges) == set(counts)
    for stream_id, rows in ranges.items():
        assert rows[0][0] == min(counts[stream_id])
        assert [stop == -1 for _, stop, _ in rows] == [False] * (len(rows) - 1) + [True]
        [end] = [
            each.ends["end"][each.ends["stream_id"] == stream_id].tolist()
            for node_id, each in plan.checkpoints.items()
            if node_id == rows[-1][2]
        ]
        assert end == [max(counts[stream_id]) + 1]


def test_objects_that_hold_two_streams_crosswise_are_refused_by_the_names_of_the_streams() -> None:
    plan = plan_of({1: (4, {1: (0, 5), 2: (5, 9)}), 2: (4, {1: (5, 9), 2: (0, 5)}), 3: (4, {3: (0, 1)})})
    assert plan.report.crossed == (2,)
    assert plan.report.hindrances == [
        "expected an order of each node's objects in which its streams ascend, found none for 1 of 3 streams"
    ]


def test_what_is_left_out_is_promised_for_ever() -> None:
    plan = plan_of({1: (4, {1: (0, 5)}), 2: (7, {1: (5, 9)})}, left_out={3: 7, 9: -1})
    promises = {node_id: each.prepared.tolist() for node_id, each in plan.lists.items()}
    assert promises == {4: [(9, NEVER_MS)], 7: [(3, NEVER_MS)]}
    assert plan.report.counts["keys"] == 4


def test_more_than_a_list_can_promise_is_refused() -> None:
    out = dict.fromkeys(range(10, 11 + LEFT_OUT_MAX), 4)
    with pytest.raises(MaintenanceRefused, match="expected at most 5000 objects left out, found 5001"):
        plan_of({1: (4, {1: (0, 5)})}, left_out=out)


def test_runs_are_bounded() -> None:
    folder = RunFolder(runs_max=10)
    rows = make_rows(RUN, node_id=1, stream_id=1, start=np.arange(11) * 2, end=np.arange(11) * 2 + 1, first=0, last=0)
    with pytest.raises(MaintenanceRefused, match="at most 10 runs"):
        folder.add(rows)


def test_a_stream_that_goes_on_through_many_objects_is_one_run() -> None:
    folder = RunFolder(runs_max=2)
    for at in range(100):
        folder.add(make_rows(RUN, node_id=1, stream_id=[1, 2], start=at * 5, end=at * 5 + 5, first=at, last=at))
    assert folder.runs().tolist() == [(1, 1, 0, 500, 0, 99), (1, 2, 0, 500, 0, 99)]
