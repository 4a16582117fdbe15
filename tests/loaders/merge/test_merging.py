"""What a merge makes of a group: exactly what a merge row by row would make, and never a claim that is not true."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from accel.catalog.compact import check_compaction
from accel.catalog.records import STREAM, make_rows
from loaders.errors import FormatError, FormatLimit
from loaders.merge.plan import MergeLimits, check_conserved, plan_merge
from tests.accel.catalog.building import stream_objects
from tests.builders import COUNT_MAX, write_set_object
from tests.examples import examples
from tests.loaders.format.objects import opened, production_bytes, production_cases
from tests.loaders.merge.merged_objects import (
    MergeGroup,
    batches_by_stream,
    end_to_end,
    merge_groups,
    merge_limits,
    naive_merge,
    written_by,
)

LIMITS = MergeLimits()


def merged(group: MergeGroup, limits: MergeLimits = LIMITS) -> list[tuple[int | None, bytes]]:
    return [(output.stream_id, written_by(output, group.sources)) for output in group.plan(limits).outputs]


@given(merge_groups(), merge_limits())
@settings(max_examples=examples(120))
def test_the_outputs_are_those_of_a_merge_row_by_row_to_the_byte(group: MergeGroup, limits: MergeLimits) -> None:
    expected = naive_merge(group, limits)
    assert merged(group, limits) == [(output.stream_id, output.data) for output in expected]


@given(merge_groups(), merge_limits())
@settings(max_examples=examples(60))
def test_every_record_of_a_kept_row_is_in_the_outputs_once_and_no_other(group: MergeGroup, limits: MergeLimits) -> None:
    expected = [one for output in naive_merge(group, limits) for piece in output.pieces for one in piece.batches]
    found = [
        one for batches in batches_by_stream([data for _, data in merged(group, limits)]).values() for one in batches
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    everything = batches_by_stream(group.sources)
    by_stream = batches_by_stream([data for _, data in merged(group, limits)])
    for stream_id, batches in everything.items():
        kept = [one for one in batches if one.count and one.end_offset > group.trimmed.get(stream_id, 0)]
        here = [one for one in by_stream.get(stream_id, []) if one.count]
        assert [one for one in here if one.end_offset > group.trimmed.get(stream_id, 0)] == kept


@given(merge_groups(), merge_limits())
@settings(max_examples=examples(60))
def test_what_is_claimed_passes_the_check_of_the_catalog(group: MergeGroup, limits: MergeLimits) -> None:
    plan = group.plan(limits)
    rows = [
        (100 + number, output.stream_id, int(output.ranges.starts[0]), int(output.ranges.ends[0]))
        for number, output in enumerate(plan.outputs)
        if output.stream_id is not None
    ]
    shared = next((output.ranges for output in plan.outputs if output.stream_id is None), None)
    ids, starts = group.columns()
    streams = make_rows(STREAM, stream_id=ids, start_offset=starts)
    assert check_compaction(plan.kept_ranges(), shared, stream_objects(*rows), streams) == []
    assert all(not len(output.ranges.holed) for output in plan.outputs)


@given(merge_groups(), merge_limits())
@settings(max_examples=examples(60))
def test_the_sums_of_the_plan_are_those_of_the_rows(group: MergeGroup, limits: MergeLimits) -> None:
    plan = group.plan(limits)
    kept_bytes = sum(output.data_size_bytes for output in plan.outputs)
    assert kept_bytes + plan.dropped_bytes == sum(int(index.rows["size_bytes"].sum()) for index in group.indexes)
    assert plan.records == sum(
        len(each) for each in batches_by_stream([data for _, data in merged(group, limits)]).values()
    )
    assert [output.size_bytes for output in plan.outputs] == [len(data) for _, data in merged(group, limits)]
    assert plan.stream_object_count == sum(own is not None for own, _ in merged(group, limits))
    check_conserved(group.indexes, [output.index for output in plan.outputs], plan.left_out)


@given(merge_groups())
@settings(max_examples=examples(40))
def test_sections_end_to_end_hold_what_the_sources_hold(group: MergeGroup) -> None:
    data = end_to_end(group)
    plan = group.plan(MergeLimits(row_size_bytes_max=200))
    is_possible = [output.stream_id for output in plan.outputs] == [None] and not len(plan.left_out)
    assert (data is not None) == is_possible
    if data is not None:
        assert batches_by_stream([data]) == batches_by_stream(group.sources)


def test_rows_are_coalesced_only_as_far_as_their_fields_go() -> None:
    ranges = [(3, number * COUNT_MAX, (number + 1) * COUNT_MAX) for number in range(3)]
    group = MergeGroup([write_set_object([one]) for one in ranges])
    (output,) = group.plan(LIMITS).outputs
    assert [(row.start, row.end) for row in output.index] == [one[1:] for one in ranges]
    counts = MergeGroup([write_set_object([(3, 0, 5)]), write_set_object([(3, 5, 6)]), write_set_object([(3, 6, 8)])])
    (output,) = counts.plan(LIMITS).outputs
    assert [(row.start, row.end, row.record_count) for row in output.index] == [(0, 8, 3)]


def test_offsets_that_go_back_are_refused() -> None:
    group = MergeGroup([write_set_object([(3, 10, 20)]), write_set_object([(3, 5, 12)])])
    with pytest.raises(
        FormatError, match=r"found \[10, 20\) of stream 3 in source 0 before \[5, 12\) of stream 3 in source 1"
    ):
        group.plan(LIMITS)


def test_what_the_format_or_its_readers_cannot_hold_is_refused_by_name() -> None:
    group = MergeGroup([write_set_object([(stream, 0, 1) for stream in range(5)])])
    with pytest.raises(FormatLimit, match="at most 4 streams in an object, found 5"):
        group.plan(MergeLimits(streams_max=4))
    with pytest.raises(FormatLimit, match="an index of at most 100 bytes, found 180"):
        group.plan(MergeLimits(index_size_bytes_max=100))
    with pytest.raises(ValueError, match="at least 1"):
        MergeLimits(split_size_bytes=0)
    with pytest.raises(ValueError, match="columns of one length"):
        plan_merge([], np.array([1]), np.array([1, 2]))


def test_a_lost_a_doubled_and_a_stretched_row_are_found() -> None:
    group = MergeGroup([write_set_object([(3, 0, 10), (4, 0, 8)]), write_set_object([(4, 8, 9)])])
    plan = group.plan(LIMITS)
    (output,) = plan.outputs
    with pytest.raises(FormatError, match="found stream 3 on one side only"):
        check_conserved(group.indexes[1:], [output.index], plan.left_out)
    with pytest.raises(FormatError, match="expected sizes of stream 3"):
        check_conserved(group.indexes, [output.index, output.index], plan.left_out)
    rows = output.index.rows.copy()
    rows["end_delta"][1] += 1
    stretched = type(output.index)(rows.tobytes())
    with pytest.raises(FormatError, match="expected offsets of stream 4 as in the sources, 9, found 10"):
        check_conserved(group.indexes, [stretched], plan.left_out)


@pytest.mark.parametrize("split_size_bytes", [5_000, 8 << 20])
def test_every_record_of_a_production_writer_is_read_back(split_size_bytes: int) -> None:
    cases = [case for case in production_cases() if case["nodeId"] == 4]
    cases.sort(key=lambda case: int(case["orderId"]))
    group = MergeGroup([production_bytes(case["objectId"]) for case in cases])
    outputs = merged(group, MergeLimits(split_size_bytes=split_size_bytes))
    assert batches_by_stream([data for _, data in outputs]) == batches_by_stream(group.sources)
    assert all(not len(opened(data).object_ranges().holed) for _, data in outputs)
    assert outputs == [(each.stream_id, each.data) for each in naive_merge(group, MergeLimits(split_size_bytes))]
