"""What a reader finds in a snapshot is what the objects hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.hints import (
    CoveredObjects,
    EntryColumns,
    HintProblem,
    HintTrouble,
    SnapshotReader,
    StreamEntries,
    decode_entries,
    decode_snapshot_root,
    finish_snapshot,
    object_entries,
    plan_entries,
)
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore, MemoryStore
from tests.builders import write_set_object
from tests.examples import examples
from tests.loaders.format.objects import opened
from tests.loaders.hints.builders import (
    GENERATION,
    NAMESPACE,
    NODE,
    OBJECT_SIZE_BYTES,
    Node,
    Row,
    columns_of,
    nodes,
    rows_of,
    write_file,
    write_snapshot,
)


def long_stream(entries: int, *, stream_id: int = 5) -> Node:
    """A stream with an entry in each of many objects, between two short ones."""
    node = Node()
    for number in range(entries):
        node.refs.append(ObjectRef(number, OBJECT_SIZE_BYTES))
        row = (stream_id, number * 10, number * 10 + 10, number, number, 40 * number, 40, 3, False)
        node.rows.append(row)
        node.rows.append((stream_id - 1, number, number + 1, number, number, -1, 0, 1, True))
        node.rows.append((stream_id + 1, number, number + 1, number, number, -1, 0, 1, True))
    return node


@settings(max_examples=examples(75))
@given(nodes(), st.sets(st.integers(0, 66)), st.integers(2, 40), st.integers(0, 400))
def test_the_entries_of_any_stream_are_those_of_a_plain_list(
    node: Node, cuts: set[int], group_rows_max: int, offset: int
) -> None:
    store = MemoryStore()
    write_snapshot(store, node, cuts=sorted(cuts), group_rows_max=group_rows_max)
    reader = SnapshotReader(store, NAMESPACE, lambda: 0.0)
    for stream_id in range(70):
        found = reader.read_entries(NODE, stream_id, offset)
        assert found.complete
        assert rows_of(found.columns) == node.of_stream(stream_id)


@settings(max_examples=examples(100))
@given(st.integers(1, 40), st.integers(0, 420), st.integers(200, 9000), st.integers(3, 12))
def test_of_a_stream_too_large_to_read_whole_come_all_entries_of_the_starts_that_are_named(
    entries: int, offset: int, span_size_bytes_max: int, group_rows_max: int
) -> None:
    node, store = long_stream(entries), MemoryStore()
    root = write_snapshot(store, node, group_rows_max=group_rows_max)
    span = plan_entries(root, 5, offset, span_size_bytes_max=span_size_bytes_max)
    assert span is not None
    found = decode_entries(root, span, store.get_range(span.key, span.start, span.end).body, 5)
    expected = node.of_stream(5)
    assert promised(found, rows_of(found.columns)) == promised(found, expected)
    assert set(rows_of(found.columns)) <= set(expected)
    floor = max(row[1] for row in expected if row[1] <= offset)
    assert found.low <= floor < found.high
    assert span.size_bytes <= span_size_bytes_max or span.stop == span.first + 1


def promised(found: StreamEntries, rows: list[Row]) -> list[Row]:
    return [row for row in rows if found.low <= row[1] < found.high]


def test_equal_starts_in_two_groups_are_not_cut() -> None:
    node, store = Node(), MemoryStore()
    for number in range(200):
        node.refs.append(ObjectRef(number, OBJECT_SIZE_BYTES))
        node.rows.append((5, 100 if number > 20 else number, 200, number, number, -1, 0, 1, False))
    root = write_snapshot(store, node, group_rows_max=30)
    span = plan_entries(root, 5, 150, span_size_bytes_max=1)
    assert span is not None
    found = decode_entries(root, span, store.get_range(span.key, span.start, span.end).body, 5)
    assert found.low < found.high
    assert promised(found, rows_of(found.columns)) == promised(found, node.of_stream(5))


def test_a_stream_that_straddles_groups_is_one_request() -> None:
    node, memory = long_stream(300), MemoryStore()
    root = write_snapshot(memory, node, group_rows_max=50)
    store = CountingStore(memory)
    reader = SnapshotReader(store, NAMESPACE, lambda: 0.0)
    assert len(root.groups) > 5
    assert len(reader.read_entries(NODE, 5)) == 300
    assert store.reset().total.requests == 2
    assert len(reader.read_entries(NODE, 5, 2000)) == 300
    assert store.reset().total.requests == 1
    assert len(reader.read_entries(NODE, 77)) == 0
    assert store.reset().total.requests == 0


def test_an_empty_node_has_a_snapshot_that_proves_absence() -> None:
    store = MemoryStore()
    root = write_snapshot(store, Node(refs=[ObjectRef(1, 10)]))
    assert root.covers(np.array([1, 1, 2]), np.array([10, 11, 10])).tolist() == [True, False, False]
    found = SnapshotReader(store, NAMESPACE, lambda: 0.0).read_entries(NODE, 3)
    assert found.complete
    assert len(found) == 0


@given(nodes(), st.lists(st.tuples(st.integers(0, 2**41), st.integers(0, 3))))
def test_covered_is_who_has_the_id_and_the_size(node: Node, others: list[tuple[int, int]]) -> None:
    known = {(ref.object_id, ref.size_bytes) for ref in node.refs}
    asked = [*known, *others, *((ref.object_id, ref.size_bytes + 1) for ref in node.refs)]
    ids, sizes = (np.array([pair[at] for pair in asked], dtype=np.int64) for at in (0, 1))
    assert node.covered.covers(ids, sizes).tolist() == [pair in known for pair in asked]


def test_a_root_says_after_a_round_trip_what_it_said_before() -> None:
    root = write_snapshot(MemoryStore(), long_stream(30), cuts=[5, 6], group_rows_max=11)
    again = decode_snapshot_root(root.encode(), namespace=NAMESPACE, node_id=NODE)
    assert again.files == root.files
    assert (again.groups == root.groups).all()
    assert again.entries == 90
    assert again.encode() == root.encode()


def test_entries_of_an_object_are_its_streams_with_their_bytes() -> None:
    data = write_set_object([(3, 10, 20), (9, 0, 5)], gaps={9: (2, 3)})
    index = opened(data)
    found = object_entries(42, 17, index)
    rows = list(index)
    sizes = [rows[0].size_bytes, rows[1].size_bytes + rows[2].size_bytes]
    assert rows_of(found) == [
        (3, 10, 20, 42, 17, rows[0].position, sizes[0], 1, False),
        (9, 0, 5, 42, 17, rows[1].position, sizes[1], 2, True),
    ]
    linked = object_entries(42, 17, index, composite=True)
    assert linked.positions.tolist() == [-1, -1]
    assert linked.sizes.tolist() == [0, 0]


def test_blocks_that_do_not_lie_together_have_no_span() -> None:
    index = opened(write_set_object([(3, 0, 9), (5, 0, 9)], gaps={3: (4, 5), 5: (4, 5)}))
    rows = index.rows.copy()
    rows["position"][[1, 2]] = rows["position"][[2, 1]]  # as after a copy of whole sources: order is not position
    moved = type(index)(rows.tobytes())
    found = object_entries(1, 1, moved)
    assert found.positions.tolist() == [-1, -1]
    assert found.record_counts.tolist() == [2, 2]


def test_tables_of_rows_become_columns_whatever_their_widths() -> None:
    table = {name: np.array([3], dtype=np.int32) for name in ("stream_id", "start_offset", "end_offset")}
    table |= {name: np.array([1], dtype=np.uint8) for name in ("object_id", "order_id", "position", "size_bytes")}
    with pytest.raises(ValueError, match="none named record_count, holed"):
        EntryColumns.from_mapping(table)
    table |= {"record_count": np.array([1]), "holed": np.array([0])}
    assert rows_of(EntryColumns.from_mapping(table)) == [(3, 3, 3, 1, 1, 1, 1, 1, False)]


A_ROW: Row = (5, 10, 20, 1, 1, 0, 40, 1, False)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([(-1, 10, 20, 1, 1, 0, 40, 1, False)], "stream_id of at least 0"),
        ([(5, 10, 9, 1, 1, 0, 40, 1, False)], "ends that are no lower"),
        ([(5, 10, 20, 1, 1, -2, 40, 1, False)], "position of at least -1"),
        ([(5, 10, 20, 1, 1, -1, 40, 1, False)], "size of 0 if and only if"),
        ([A_ROW, (4, 10, 20, 2, 2, 0, 40, 1, False)], "sorted by stream and offset"),
        ([A_ROW, (5, 9, 20, 2, 2, 0, 40, 1, False)], "sorted by stream and offset"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2])
def test_entries_that_make_no_sense_are_not_written(rows: list[Row], text: str, chunk: int) -> None:
    store = MemoryStore()
    with pytest.raises(ValueError, match=text):
        write_file(store, rows, chunk=chunk)
    assert list(store.list("")) == []


def finish_with(store: MemoryStore, *parts: list[Row], covered: list[ObjectRef]) -> None:
    files = [write_file(store, rows, name=f"{number:05d}") for number, rows in enumerate(parts)]
    finish_snapshot(
        store, namespace=NAMESPACE, node_id=NODE, generation=GENERATION, files=files, covered=CoveredObjects.of(covered)
    )


def test_two_files_must_not_share_a_stream() -> None:
    later: Row = (5, 30, 40, 2, 2, 0, 40, 1, False)
    with pytest.raises(ValueError, match="each stream in one file"):
        finish_with(MemoryStore(), [A_ROW], [later], covered=[ObjectRef(1, 99), ObjectRef(2, 99)])


@pytest.mark.parametrize(
    ("rows", "covered"),
    [
        ([A_ROW], [ObjectRef(2, 99)]),  # of an object that is not covered
        ([A_ROW], [ObjectRef(1, 39)]),  # blocks beyond the object's end
        ([A_ROW, (5, 20, 30, 1, 1, 50, 40, 1, False)], [ObjectRef(1, 99)]),  # twice in one object
    ],
)
def test_entries_that_contradict_the_covered_objects_are_refused(rows: list[Row], covered: list[ObjectRef]) -> None:
    store = MemoryStore()
    finish_with(store, rows, covered=covered)
    with pytest.raises(HintProblem) as caught:
        SnapshotReader(store, NAMESPACE, lambda: 0.0).read_entries(NODE, 5)
    assert caught.value.kind is HintTrouble.CORRUPT


def test_covered_objects_must_be_distinct_and_of_known_size() -> None:
    for refs in ([ObjectRef(1, 5), ObjectRef(1, 6)], [ObjectRef(1)], [ObjectRef(-4, 5)]):
        with pytest.raises(ValueError, match="expected"):
            CoveredObjects.of(refs)


def test_columns_must_fit_each_other() -> None:
    columns = columns_of([A_ROW]).columns()
    with pytest.raises(ValueError, match="of one length"):
        EntryColumns.of([*columns[:-1], np.array([True, False])])
    with pytest.raises(ValueError, match="of int64"):
        EntryColumns.of([columns[0].astype(np.int32), *columns[1:]])
