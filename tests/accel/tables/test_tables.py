"""The catalog and its objects as tables of Arrow: they say what was written, and conditions spare requests."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import tables
from accel.catalog import ObjectCatalog
from accel.catalog.job_runs import COMPACT, GC, recorded
from accel.errors import CatalogMissing, KeyMissing
from loaders.errors import CorruptObject
from loaders.store import CountingStore, MemoryStore
from loaders.tables import raw_key
from tests.accel.history.store.bench import Bench
from tests.examples import examples
from tests.spark_jobs.worlds import fill, make_catalog, split_off

if TYPE_CHECKING:
    from accel.tables.bounds import Condition
    from loaders.store import ObjectStore

OBJECTS_OF_4 = [[(1, 0, 10), (1, 10, 12), (2, 0, 5)], [(1, 12, 20), (3, 0, 7)], [(1, 20, 30), (2, 5, 9)]]
OBJECTS_OF_7 = [[(8, 0, 100), (9, 0, 1)], [(9, 1, 2)]]

WITHOUT_NAMES = [name for name in tables.TABLES if name != "events"]
"""Those that need no name of a stream."""

READERS: dict[str, Callable[..., pa.RecordBatchReader]] = {name: getattr(tables, name) for name in WITHOUT_NAMES}


def filled() -> MemoryStore:
    """Two nodes, five objects, and one of a stream of its own; the history of a stream; and runs of two jobs."""
    store = MemoryStore()
    make_catalog(store)
    fill(store, 4, OBJECTS_OF_4)
    fill(store, 7, OBJECTS_OF_7)
    split_off(store, 7, 8)
    with ObjectCatalog.open(store) as catalog:
        for kind, failures in ((COMPACT, 1), (GC, 0), (GC, 2)):
            with recorded(catalog.parts, kind) as job:
                job.add(items=5, failures=failures)
    return store


@cache
def world() -> ObjectStore:
    """The same once, for tests that only read; with a history in the same bucket."""
    bench = Bench(store=filled())
    bench.create()
    for _ in range(4):
        bench.append_all(5)
        bench.stream().retention.run(bench.tick())
        bench.scale_once()
    return bench.store


def rows_of(reader: pa.RecordBatchReader) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.read_all().to_pylist()
    return found


def test_objects_are_those_that_the_catalog_lists() -> None:
    store = world()
    rows = rows_of(tables.objects(store))
    with ObjectCatalog.open(store) as catalog:
        image, layout = catalog.image(), catalog.parts.layout
    listed = {
        (node.node_id, object_id, order_id, size)
        for node in image.nodes.values()
        for object_id, order_id, size in zip(node.object_ids, node.order_ids, node.sizes_bytes, strict=True)
    }
    sets = [row for row in rows if row["kind"] == "stream_set"]
    assert {(row["node_id"], row["object_id"], row["order_id"], row["size_bytes"]) for row in sets} == listed
    assert all(row["stream_id"] is None and row["start_offset"] is None for row in sets)
    [one] = [row for row in rows if row["kind"] == "stream"]
    assert [one[name] for name in ("node_id", "order_id", "stream_id", "start_offset", "end_offset")] == [
        *(7, None, 8, 0, 100)
    ]
    assert all(row["key"] == layout.object_key(row["object_id"]) for row in rows)
    assert all(store.get(row["key"]).object_size_bytes == row["size_bytes"] for row in rows)


def test_runs_of_jobs_say_how_they_ended_and_damaged_ones_are_told_at_once() -> None:
    store = filled()
    found = rows_of(tables.job_runs(store, columns=["kind", "outcome", "items", "requests", "end_time"]))
    assert sorted((row["kind"], row["outcome"]) for row in found) == [
        *((COMPACT, "partial"), (GC, "done"), (GC, "partial"))
    ]
    assert {(row["items"], row["requests"], row["end_time"] is None) for row in found} == {(5, 0, False)}
    with ObjectCatalog.open(store) as catalog:
        key = raw_key(catalog.parts.keys.tables.table("job-runs"), GC)
        key.write(b"", key.get())
    with pytest.raises(CorruptObject, match="job-runs"):
        tables.job_runs(store)


def test_ranges_blocks_and_records_are_those_that_were_written() -> None:
    written = sorted(
        (node, *row) for node, rows in ((4, OBJECTS_OF_4), (7, OBJECTS_OF_7)) for part in rows for row in part
    )
    names = ("node_id", "stream_id", "start_offset", "end_offset")
    for table in ("blocks", "records"):
        rows = rows_of(READERS[table](world(), columns=names))
        assert sorted(tuple(row.values()) for row in rows) == written, table
    ranges = sorted(
        tuple(row.values()) for row in rows_of(tables.stream_ranges(world(), columns=[*names, "record_count"]))
    )
    assert (4, 1, 0, 12, 2) in ranges
    assert len(ranges) == len(written) - 1
    payloads = rows_of(tables.records(world(), columns=["payload"], filters=[("stream_id", "=", 3)]))
    assert payloads == [{"payload": b"3:0-7"}]


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(row: dict[str, Any], condition: Condition) -> bool:
    """A condition as it is read out: nothing compares with what is null."""
    name, sign, value = condition
    return row[name] is not None and COMPARE[sign](row[name], value)


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, list[Condition]]:
    """A table, and conditions of it with values that stand in it, or beside them."""
    table = draw(st.sampled_from(sorted(READERS)))
    columns = tables.TABLES[table].columns
    chosen = []
    for name in draw(st.lists(st.sampled_from(columns.names), min_size=1, max_size=3)):
        there = [row[name] for row in everything(table) if row[name] is not None]
        values = st.sampled_from(there) if there else st.nothing()
        if columns.field(name).type == pa.int64():
            values = st.one_of(values, st.integers(-2, 40))
        if not values.is_empty:
            chosen.append((name, draw(st.sampled_from(sorted(COMPARE))), draw(values)))
    return table, chosen


@cache
def everything(table: str) -> tuple[dict[str, Any], ...]:
    return tuple(rows_of(READERS[table](world())))


@settings(max_examples=examples(100), deadline=None)
@given(conditions())
def test_conditions_give_what_filtering_afterwards_gives(asked: tuple[str, list[Condition]]) -> None:
    table, filters = asked
    expected = [row for row in everything(table) if all(holds(row, each) for each in filters)]
    assert rows_of(READERS[table](world(), filters=filters)) == expected


def test_a_list_of_values_chooses_or_excludes() -> None:
    for table, column, values in (
        ("blocks", "stream_id", [1, 9]),
        ("epochs", "epoch", [2, 3]),
        ("blocks", "node_id", []),
    ):
        everywhere = everything(table)
        chosen = rows_of(READERS[table](world(), filters=[(column, "in", values)]))
        others = rows_of(READERS[table](world(), filters=[(column, "not in", values)]))
        assert chosen == [row for row in everywhere if row[column] in values]
        assert others == [row for row in everywhere if row[column] not in values]


def test_columns_come_in_the_order_asked_for_whatever_is_filtered_by() -> None:
    reader = tables.blocks(world(), columns=["end_offset", "node_id"], filters=[("stream_id", "=", 3)])
    assert reader.schema.names == ["end_offset", "node_id"]
    assert rows_of(reader) == [{"end_offset": 7, "node_id": 4}]


@pytest.mark.parametrize("table", sorted(READERS))
def test_a_table_has_its_columns_even_without_rows(table: str) -> None:
    store = MemoryStore()
    make_catalog(store)
    found = READERS[table](store).read_all()
    assert (found.schema, len(found)) == (tables.TABLES[table].columns, 0)


@pytest.mark.parametrize(
    ("columns", "filters", "message"),
    [
        (["strem_id"], [], "expected columns of node_id, .*found strem_id"),
        ([], [], "found none"),
        (None, [("size", "=", 1)], "found size"),
        (None, [("stream_id", "~", 1)], "expected conditions on its columns.*~"),
        (None, [("stream_id", "=", "seven")], "expected conditions on its columns.*seven"),
    ],
)
def test_what_a_table_cannot_answer_is_refused_at_once(
    columns: Sequence[str] | None, filters: list[Condition], message: str
) -> None:
    counted = CountingStore(world())
    with pytest.raises(ValueError, match=message):
        tables.blocks(counted, columns=columns, filters=filters)
    assert sent(counted) == 0


def test_a_store_without_a_catalog_is_told_at_once() -> None:
    with pytest.raises(CatalogMissing):
        tables.objects(MemoryStore())


def test_a_table_of_another_name_is_refused_with_those_that_there_are() -> None:
    assert tables.table_of("Stream_Ranges") is tables.TABLES["stream_ranges"]
    with pytest.raises(ValueError, match=r"objects, stream_ranges, blocks.*found 'ranges'"):
        tables.table_of("ranges")


def sent(counted: CountingStore) -> int:
    return counted.snapshot().total.requests


def requests_of(table: str, store: ObjectStore, **asked: Any) -> int:
    counted = CountingStore(store)
    READERS[table](counted, **asked).read_all()
    return sent(counted)


def test_conditions_spare_requests() -> None:
    catalog = requests_of("objects", world())
    first = everything("objects")[0]["object_id"]
    assert requests_of("stream_ranges", world()) == catalog + 6
    assert requests_of("stream_ranges", world(), filters=[("object_id", "=", first)]) == catalog + 1
    assert requests_of("blocks", world(), filters=[("node_id", ">", 7)]) == catalog
    # An object of one stream says what it holds; those of many are opened. Of the blocks only those that may have rows.
    assert requests_of("stream_ranges", world(), filters=[("stream_id", "=", 1)]) == catalog + 5
    assert requests_of("records", world(), filters=[("stream_id", "=", 3)]) == catalog + 5 + 1
    assert (
        requests_of("records", world(), filters=[("stream_id", "=", 1), ("start_offset", ">", 20)]) == catalog + 5 + 1
    )


def test_rows_are_read_as_they_are_taken() -> None:
    """However many objects there are, few are opened beyond the one whose rows are taken."""
    store = MemoryStore()
    make_catalog(store)
    fill(store, 4, [[(1, at, at + 1)] for at in range(40)])
    catalog = requests_of("objects", store)
    counted = CountingStore(store)
    reader = tables.stream_ranges(counted)
    assert sent(counted) == catalog
    assert len(reader.read_next_batch()) == 1
    assert sent(counted) <= catalog + 9
    assert len(reader.read_all()) == 39
    assert sent(counted) == catalog + 40


def test_an_object_that_is_gone_is_named_when_its_rows_are_taken() -> None:
    store = filled()
    [key] = [row["key"] for row in rows_of(tables.objects(store, filters=[("object_id", "=", 1)]))]
    reader = tables.blocks(store)
    store.delete(key)
    with pytest.raises(KeyMissing, match=key):
        reader.read_all()


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "accel.tables")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'accel-streams\[arrow\]'"):
        importlib.import_module("accel.tables")


def test_rows_of_many_nodes_are_complete() -> None:
    store = MemoryStore()
    make_catalog(store)
    nodes = examples(6)
    for node in range(nodes):
        fill(store, node, [[(100 + node, 0, 5)], [(100 + node, 5, 7)]])
    totals = rows_of(tables.stream_ranges(store, columns=["node_id", "record_count"]))
    assert sorted(row["node_id"] for row in totals) == sorted([*range(nodes)] * 2)
