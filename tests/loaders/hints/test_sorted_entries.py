"""Sorting and merging entries is what a plain sort of all of them gives, whatever is put aside on the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.errors import StoreUnavailable
from loaders.hints import EntryColumns, EntrySorter, HintProblem, HintTrouble, merge_sorted, read_snapshot
from loaders.store import CountingStore, MemoryStore
from tests.loaders.hints.builders import Node, Row, columns_of, nodes, rows_of, write_snapshot
from tests.loaders.hints.test_snapshot_files import noisy_columns
from tests.loaders.hints.test_snapshots import long_stream

KEYS = st.tuples(st.integers(0, 4), st.integers(0, 5))


def row_of(key: tuple[int, int], number: int) -> Row:
    stream_id, start = key
    return (stream_id, start, start + 1, number, number, -1, 0, 1, False)


def in_chunks(rows: list[Row], size: int) -> Iterator[EntryColumns]:
    for start in range(0, len(rows), size):
        yield columns_of(rows[start : start + size])
        yield EntryColumns.none()


def keys_of(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row[0], row[1]) for row in rows]


@given(st.lists(st.tuples(st.lists(KEYS, max_size=12), st.integers(1, 5)), max_size=5))
def test_merging_is_sorting_whatever_the_chunks(sources: list[tuple[list[tuple[int, int]], int]]) -> None:
    made = [[row_of(key, 100 * at + n) for n, key in enumerate(sorted(keys))] for at, (keys, _) in enumerate(sources)]
    chunks = [in_chunks(rows, size) for rows, (_, size) in zip(made, sources, strict=True)]
    found = [row for columns in merge_sorted(chunks) for row in rows_of(columns)]
    expected = sorted(row for rows in made for row in rows)
    assert sorted(found) == expected
    assert keys_of(found) == keys_of(expected)


@given(nodes(objects_max=8), st.sampled_from([1, 200, 1000, 1 << 20]))
def test_what_was_put_aside_comes_back(node: Node, size_bytes_max: int) -> None:
    with EntrySorter(size_bytes_max=size_bytes_max) as sorter:
        for ref in node.refs:
            sorter.add(columns_of(sorted(row for row in node.rows if row[3] == ref.object_id)))
        found = [row for columns in merge_sorted(sorter.runs()) for row in rows_of(columns)]
    assert sorted(found) == sorted(node.rows)
    assert keys_of(found) == keys_of(node.sorted_rows)
    assert sorter.entries == len(node.rows)


def test_a_sorter_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        EntrySorter(size_bytes_max=0)


@given(nodes(), st.sets(st.integers(0, 66)), st.integers(2, 40))
def test_a_whole_snapshot_is_read_in_its_order(node: Node, cuts: set[int], group_rows_max: int) -> None:
    store = MemoryStore()
    root = write_snapshot(store, node, cuts=sorted(cuts), group_rows_max=group_rows_max)
    found = [row for columns in read_snapshot(store, root) for row in rows_of(columns)]
    assert found == node.sorted_rows


def test_a_whole_snapshot_costs_a_request_for_16_mib() -> None:
    store = CountingStore(MemoryStore())
    node = long_stream(2000)
    root = write_snapshot(store, node, cuts=[5], group_rows_max=100)
    store.reset()
    assert sum(len(columns) for columns in read_snapshot(store, root)) == 6000
    assert (len(root.groups), store.reset().gets) == (60, 2)  # one for each file


def test_what_is_wrong_with_a_file_is_told() -> None:
    store, node = MemoryStore(), long_stream(200)
    root = write_snapshot(store, node, group_rows_max=100)
    key = root.file_key(0)
    body = store.get(key).body
    store.put(key, body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(HintProblem) as caught:
        list(read_snapshot(store, root))
    assert caught.value.kind is HintTrouble.CORRUPT
    store.delete(key)
    with pytest.raises(HintProblem) as caught:
        list(read_snapshot(store, root))
    assert caught.value.kind is HintTrouble.STALE


def test_memory_of_a_sort_is_that_of_its_bound() -> None:
    columns = noisy_columns(0, 10, 3000)
    with EntrySorter(size_bytes_max=columns.nbytes // 4) as sorter:
        for start in range(0, len(columns), 1000):
            sorter.add(columns.take(slice(start, start + 1000)))
        chunks = list(merge_sorted(sorter.runs()))
    assert max(map(len, chunks)) < len(columns) // 2
    assert sum(map(len, chunks)) == len(columns)


def test_errors_of_the_store_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    store, node = MemoryStore(), long_stream(20)
    root = write_snapshot(store, node)

    def refuse(key: str, _start: int, _end: int) -> None:
        raise StoreUnavailable("get_range", key, "not now")

    monkeypatch.setattr(store, "get_range", refuse)
    with pytest.raises(StoreUnavailable):
        list(read_snapshot(store, root))
