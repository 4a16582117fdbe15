"""A compaction's outputs hold exactly what its sources hold, and each way to break that is named."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.catalog.compact import check_compaction, refuse_lossy_compaction
from accel.catalog.records import STREAM, Rows, make_rows, no_rows
from accel.errors import CommitRefused
from range_index import ObjectRanges
from tests.accel.catalog.building import stream_objects
from tests.examples import examples

Spans = list[tuple[int, int, int]]
NONE_TRIMMED = no_rows(STREAM)


def held(*spans: tuple[int, int, int]) -> ObjectRanges:
    return ObjectRanges.from_ranges(spans)


def with_hole(stream_id: int, start: int, end: int) -> ObjectRanges:
    ids, starts, ends = (np.array([each], dtype=np.int64) for each in (stream_id, start, end))
    return ObjectRanges.from_columns(ids, starts, ends, np.array([True]))


def trimmed(**starts: int) -> Rows:
    return make_rows(STREAM, stream_id=[int(name[1:]) for name in starts], start_offset=list(starts.values()))


def problems(
    sources: list[ObjectRanges], output: ObjectRanges | None, *own: tuple[int, int, int], streams: Rows = NONE_TRIMMED
) -> list[str]:
    rows = stream_objects(*((100 + number, *span) for number, span in enumerate(own)))
    return check_compaction(sources, output, rows, streams)


def test_runs_that_join_up_may_become_one() -> None:
    assert problems([held((3, 0, 10), (4, 5, 6)), held((3, 10, 25))], held((3, 0, 25), (4, 5, 6))) == []
    assert problems([held((3, 0, 10)), held((3, 10, 25))], None, (3, 0, 12), (3, 12, 25)) == []


def test_a_lost_range_is_found() -> None:
    sources = [held((3, 0, 10), (4, 5, 6)), held((3, 10, 25))]
    assert problems(sources, held((3, 0, 25))) == [
        "expected all kept offsets in the outputs, found [5, 6) of stream 4 of source 0 not claimed, or only in part"
    ]
    (one,) = problems(sources, held((3, 0, 24), (4, 5, 6)))
    assert "found [10, 25) of stream 3 of source 1 not claimed, or only in part" in one
    assert len(problems(sources, None)) == 3


def test_an_invented_range_is_found() -> None:
    (one,) = problems([held((3, 0, 10))], held((3, 0, 11)))
    assert one == "expected claims that the sources hold without a gap, found [0, 11) of stream 3"
    assert len(problems([held((3, 0, 10))], held((3, 0, 10), (4, 0, 1)))) == 1
    assert len(problems([held((3, 5, 10))], held((3, 4, 10)))) == 1


def test_a_bridged_hole_is_found_and_one_object_a_run_is_right() -> None:
    sources = [held((3, 0, 10)), held((4, 0, 9)), held((3, 40, 50))]
    assert problems(sources, held((3, 0, 50), (4, 0, 9))) == [
        "expected claims that the sources hold without a gap, found [0, 50) of stream 3"
    ]
    assert problems(sources, held((3, 0, 10), (4, 0, 9)), (3, 40, 50)) == []


def test_what_is_claimed_twice_is_found() -> None:
    (one,) = problems([held((3, 0, 10))], held((3, 0, 10)), (3, 9, 10))
    assert one == "expected each offset in one output, found [0, 10) of stream 3 and [9, 10) of stream 3"


@pytest.mark.parametrize("second", [(3, 9, 20), (3, 0, 5)])
def test_sources_in_which_a_stream_does_not_ascend_are_found(second: tuple[int, int, int]) -> None:
    (one,) = problems([held((3, 5, 10)), held(second)], held((3, 0, 20)))
    assert one.startswith(
        "expected ascending offsets through the sources, found [5, 10) of stream 3 in source 0 before"
    )


def test_offsets_below_the_first_kept_one_may_be_left_out_or_kept() -> None:
    sources = [held((3, 0, 10), (4, 0, 5)), held((3, 10, 25))]
    streams = trimmed(s3=12, s4=5)
    assert problems(sources, held((3, 12, 25)), streams=streams) == []
    assert problems(sources, held((3, 10, 25)), streams=streams) == []
    assert problems(sources, held((3, 0, 25), (4, 0, 5)), streams=streams) == []
    assert len(problems(sources, held((3, 13, 25)), streams=streams)) == 1
    assert problems([held((4, 0, 5))], None, streams=streams) == []


def test_a_source_with_a_hole_inside_may_not_become_one_piece() -> None:
    assert problems([with_hole(3, 0, 20)], None, (3, 0, 5), (3, 12, 20)) == []
    (one,) = problems([with_hole(3, 0, 20)], held((3, 0, 20)))
    assert (
        one == "expected no claim across the hole of a source, found [0, 20) of stream 3 of source 0 claimed as a whole"
    )
    assert len(problems([with_hole(3, 0, 20)], None, (3, 0, 5))) == 1
    assert len(problems([with_hole(3, 0, 20)], None, (3, 1, 5), (3, 12, 20))) == 1


def test_an_output_with_a_hole_is_found() -> None:
    found = problems([held((3, 0, 20))], with_hole(3, 0, 20))
    assert found == ["expected one run of each stream in the output, found a hole inside stream 3"]


def test_the_limits_of_the_format_are_kept() -> None:
    wide = held(*((stream_id, 0, 1) for stream_id in range(20_001)))
    assert problems([wide], wide) == ["expected at most 20000 streams in the output, found 20001"]
    many = [(stream_id, 0, 1) for stream_id in range(10_001)]
    assert problems([held(*many)], None, *many) == ["expected at most 10000 stream objects, found 10001"]


def test_many_problems_of_a_kind_are_named_a_few_times() -> None:
    found = problems([held(*((stream_id, 0, 1) for stream_id in range(500)))], None)
    assert len(found) == 10
    assert found[0].endswith("(500 in all)")


def test_a_commit_is_refused_with_all_problems_named() -> None:
    refuse_lossy_compaction([held((3, 0, 10))], held((3, 0, 10)), stream_objects(), NONE_TRIMMED)
    with pytest.raises(CommitRefused, match=r"expected outputs that hold exactly what the sources hold: .*; .*"):
        refuse_lossy_compaction([held((3, 0, 10))], held((4, 0, 10)), stream_objects(), NONE_TRIMMED)


RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=5)
"""(gap before it, length) of each source's run of one stream."""

NUDGES = st.sampled_from([0] * 12 + [-1, 1])


@settings(max_examples=examples(100))
@given(st.lists(RUNS, min_size=1, max_size=3), st.data())
def test_the_check_agrees_with_a_comparison_of_single_offsets(
    streams: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    sources: list[Spans] = [[] for _ in range(max(map(len, streams)))]
    for stream_id, runs in enumerate(streams):
        at = 0
        for number, (gap, length) in enumerate(runs):
            sources[number].append((stream_id, at + gap, at + gap + length))
            at += gap + length
    wanted = offsets(span for spans in sources for span in spans)
    claims = nearly_right_claims(data, wanted)
    claimed_each = [offsets([span]) for span in claims]
    claimed = {each for offsets_of_one in claimed_each for each in offsets_of_one}
    starts = data.draw(st.lists(st.sampled_from([0, 0, 0, 2, 5]), min_size=len(streams), max_size=len(streams)))
    kept = {(stream_id, offset) for stream_id, offset in wanted if offset >= starts[stream_id]}
    truthful = kept <= claimed <= wanted and len(claimed) == sum(map(len, claimed_each))
    given_starts = make_rows(STREAM, stream_id=np.arange(len(streams)), start_offset=starts)
    firsts = {stream_id: (stream_id, start, end) for stream_id, start, end in reversed(claims)}
    own = [span for span in claims if span not in firsts.values()]
    output = held(*firsts.values())
    found = problems([held(*spans) for spans in sources], output, *own, streams=given_starts)
    assert truthful == (not found), found


def nearly_right_claims(data: st.DataObject, wanted: set[tuple[int, int]]) -> Spans:
    """The runs of these offsets, cut here and there, with few ends that are one off."""
    claims: list[list[int]] = []
    for stream_id, offset in sorted(wanted):
        continues = claims and claims[-1][0] == stream_id and claims[-1][2] == offset
        if continues and not data.draw(st.sampled_from([False, False, False, True])):
            claims[-1][2] += 1
        else:
            claims.append([stream_id, offset, offset + 1])
    nudged = {
        (stream_id, max(start + data.draw(NUDGES), 0), end + data.draw(NUDGES)) for stream_id, start, end in claims
    }
    return sorted(span for span in nudged if span[1] < span[2])


def offsets(spans: Iterable[tuple[int, int, int]]) -> set[tuple[int, int]]:
    return {(stream_id, offset) for stream_id, start, end in spans for offset in range(start, end)}
