"""A search over many objects at once finds what single searches find."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from range_index import range_chunk
from range_index.node_index import NodeRanges
from range_index.range_chunk import RangeChunk, last_before
from range_index.stream_view import Entry
from tests.range_index.building import Holdings, ranges_of

streams = st.one_of(st.integers(0, 12), st.sampled_from([2**40, 2**63 - 1]))


@st.composite
def holdings(draw: st.DrawFn) -> Holdings:
    held: Holdings = {}
    for stream_id in draw(st.sets(streams, max_size=8)):
        start = draw(st.integers(0, 100))
        length = draw(st.one_of(st.integers(0, 100), st.sampled_from([2**32 - 1, 2**32])))
        held[stream_id] = (start, start + length, draw(st.booleans()))
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
    chunk = RangeChunk(100, wide=True)
    for object_id, held in enumerate(all_held):
        assert chunk.takes(ranges_of(held))
        chunk.add(object_id, ranges_of(held))
    objects = {object_id: held for object_id, held in enumerate(all_held) if object_id not in gone}
    for object_id in gone.intersection(range(len(all_held))):
        chunk.discard(object_id)
    if close:
        chunk.close_gaps()
        assert not chunk.is_mostly_gaps
    chunk.check()
    assert list(chunk.object_ids) == list(objects)
    assert chunk.entries == sum(map(len, objects.values()))
    for stream_id in (*range(13), 2**40, 2**63 - 1):
        expected = naive_entries(objects, stream_id)
        assert entries_in(chunk, stream_id) == expected
        singly = [chunk.entry_of(object_id, stream_id) for object_id in objects]
        assert [entry for entry in singly if entry is not None] == expected


def test_a_chunk_takes_what_fits() -> None:
    narrow = RangeChunk(3, wide=False)
    wide = RangeChunk(3, wide=True)
    long = ranges_of({1: (0, 2**32, False)})
    assert wide.takes(long)
    assert not narrow.takes(long)
    narrow.add(1, ranges_of({1: (0, 9, False), 2: (0, 9, False)}))
    assert narrow.takes(ranges_of({1: (0, 9, False)}))
    assert not narrow.takes(ranges_of({1: (0, 9, False), 2: (0, 9, False)}))


def test_a_node_searches_many_objects_as_it_does_few() -> None:
    generator = np.random.default_rng(5)
    node, objects = NodeRanges(chunk_entries_max=300), dict[int, Holdings]()
    for object_id in range(200):
        ids = generator.choice(40, 15, replace=False).tolist()
        held: Holdings = {stream_id: (object_id * 10, object_id * 10 + 5, stream_id % 7 == 0) for stream_id in ids}
        objects[object_id] = held
        node.insert(object_id, ranges_of(held), 0.0)
    for object_id in range(0, 200, 3):
        node.discard(object_id)
        del objects[object_id]
    node.check()
    assert len(node.chunks) > 1
    for stream_id in range(41):
        expected = naive_entries(objects, stream_id)
        rows = node.rows(stream_id, 1.0)
        assert rows.object_ids.tolist() == [entry.object_id for entry in expected]
        assert rows.starts.tolist() == [entry.start for entry in expected]
        assert rows.ends.tolist() == [entry.end for entry in expected]
        assert rows.holed == {entry.object_id for entry in expected if entry.holed}
        some = list(objects)[::2]
        assert set(node.rows_of(stream_id, some, 1.0).object_ids.tolist()) == {
            entry.object_id for entry in expected if entry.object_id in some
        }


def test_gaps_are_closed_before_they_are_most_of_the_memory() -> None:
    node = NodeRanges(chunk_entries_max=100_000)
    held: Holdings = dict.fromkeys(range(1000), (0, 9, False))
    for object_id in range(40):
        node.insert(object_id, ranges_of(held), 0.0)
    for object_id in range(39):
        node.discard(object_id)
        assert node.nbytes < 2 * 20 * node.entries + 40 * 256 + 8 * 2048
    node.check()
