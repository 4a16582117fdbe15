"""A search over many objects at once finds what single searches find."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from range_index import range_chunk
from range_index.node_index import NodeRanges
from range_index.object_ranges import ObjectRanges
from range_index.range_chunk import Packing, RangeChunk, Widths, last_before
from range_index.stream_view import Entry
from tests.range_index.building import Holdings, ranges_of

BOUNDARIES = [2**16 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**47 - 1, 2**47, 2**62, 2**63 - 1]
"""Where a number takes one bit more than the columns of a narrow chunk have for it, and about there."""

streams = st.one_of(st.integers(0, 12), st.sampled_from(BOUNDARIES))
offsets = st.one_of(st.integers(0, 100), st.sampled_from(BOUNDARIES))


@st.composite
def holdings(draw: st.DrawFn) -> Holdings:
    held: Holdings = {}
    for stream_id in draw(st.sets(streams, max_size=8)):
        start = draw(offsets)
        held[stream_id] = (start, min(start + draw(offsets), 2**63 - 1), draw(st.booleans()))
    return held


def entries_in(chunk: RangeChunk, stream_id: int) -> list[Entry]:
    rows = chunk.find(stream_id)
    columns = (rows.starts.tolist(), rows.ends.tolist(), rows.object_ids.tolist())
    return [Entry(*row, row[2] in rows.holed) for row in zip(*columns, strict=True)]


def naive_entries(objects: dict[int, Holdings], stream_id: int) -> list[Entry]:
    found = [(object_id, held[stream_id]) for object_id, held in objects.items() if stream_id in held]
    return [Entry(start, end, object_id, holed) for object_id, (start, end, holed) in found]


@given(st.lists(st.lists(st.integers(0, 30), max_size=12).map(sorted), max_size=8), st.integers(-1, 31))
def test_slices_are_searched_in_step_as_they_are_one_by_one(slices: list[list[int]], wanted: int) -> None:
    values = np.array([*(value for part in slices for value in part), 0], dtype=np.int64)
    ends = np.cumsum([len(part) for part in slices], dtype=np.int64)
    begins = ends - np.array([len(part) for part in slices], dtype=np.int64)
    found = last_before(values, begins, ends, wanted)
    below = [sum(value < wanted for value in part) for part in slices]
    assert (found - begins).tolist() == [count - 1 for count in below]


@given(st.lists(holdings(), max_size=10), st.sets(st.integers(0, 9)), st.booleans(), st.sampled_from([0, 100]))
def test_a_chunk_finds_a_stream_in_all_its_objects(
    all_held: list[Holdings], gone: set[int], close: bool, single_searches_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_chunk, "SINGLE_SEARCHES_MAX", single_searches_max)
        check_a_chunk(all_held, gone, close=close)


def check_a_chunk(all_held: list[Holdings], gone: set[int], *, close: bool) -> None:
    packings = [Packing.of(ranges_of(held)) for held in all_held]
    widths = functools.reduce(Widths.joined, [packing.widths for packing in packings], Widths())
    chunk = RangeChunk(100, widths)
    for object_id, (held, packing) in enumerate(zip(all_held, packings, strict=True)):
        assert chunk.takes(ranges_of(held), packing)
        chunk.add(object_id, ranges_of(held), packing)
    objects = {object_id: held for object_id, held in enumerate(all_held) if object_id not in gone}
    for object_id in gone.intersection(range(len(all_held))):
        chunk.discard(object_id)
    if close:
        chunk.close_gaps()
        assert not chunk.is_mostly_gaps
    chunk.check()
    assert list(chunk.object_ids) == list(objects)
    assert chunk.entries == sum(map(len, objects.values()))
    for stream_id in (*range(13), *BOUNDARIES):
        expected = naive_entries(objects, stream_id)
        assert entries_in(chunk, stream_id) == expected
        singly = [chunk.entry_of(object_id, stream_id) for object_id in objects]
        assert [entry for entry in singly if entry is not None] == expected


def takes(chunk: RangeChunk, ranges: ObjectRanges) -> bool:
    return chunk.takes(ranges, Packing.of(ranges))


@pytest.mark.parametrize(
    ("held", "widths"),
    [
        ({2**32 - 1: (2**47 - 1, 2**47 - 1 + 2**16 - 1, False)}, Widths()),
        ({1: (2**39 - 1, 2**39 - 1 + 2**24 - 1, False)}, Widths()),
        ({1: (0, 2**63 - 1, False)}, Widths()),
        ({1: (2**63 - 1, 2**63 - 1, False)}, Widths()),
        ({2**32: (0, 9, False)}, Widths(wide_ids=True)),
        ({1: (2**47, 2**47 + 2**16 - 1, False)}, Widths(wide_spans=True)),
        ({1: (2**47, 2**47, False), 2: (0, 2**16, False)}, Widths(wide_spans=True)),
    ],
)
def test_a_chunk_takes_what_its_columns_are_wide_enough_for(held: Holdings, widths: Widths) -> None:
    ranges = ranges_of(held)
    assert Packing.of(ranges).widths == widths
    for wide_ids, wide_spans in itertools.product((False, True), repeat=2):
        chunk = RangeChunk(3, Widths(wide_ids, wide_spans))
        assert takes(chunk, ranges) == (wide_ids >= widths.wide_ids and wide_spans >= widths.wide_spans)


@pytest.mark.parametrize(
    ("first_id", "start", "length", "entry_bytes"),
    [(0, 2**47 - 1, 2**16 - 1, 12), (2**32, 5, 5, 16), (0, 2**47, 2**16, 20), (2**32, 2**47, 2**16, 24)],
)
def test_an_entry_takes_12_bytes_and_more_only_where_numbers_are_large(
    first_id: int, start: int, length: int, entry_bytes: int
) -> None:
    node = NodeRanges(chunk_bytes_max=1 << 20)
    ids = range(first_id, first_id + 9000)
    for object_id in range(4):
        node.insert(object_id, ObjectRanges.from_ranges((each, start, start + length) for each in ids), 0.0)
    assert entry_bytes <= node.nbytes / node.entries < entry_bytes + 0.2
    assert node.entries == 36_000
    node.check()
