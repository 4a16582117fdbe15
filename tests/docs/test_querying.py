"""The page on querying names every table; the generated page of columns explains every column."""

from __future__ import annotations

from accel.tables.schemas import TABLES, RowSource
from tests.docs import metadata_tables
from tests.docs.pages import page_named, table_rows

PAGE = page_named("querying")


def test_the_page_names_every_table() -> None:
    assert [row[0].strip("`") for row in table_rows(PAGE) if row[0].strip("`") in TABLES] == list(TABLES)


def test_each_column_has_a_meaning() -> None:
    told = {table.name: list(metadata_tables.columns(table)) for table in TABLES.values()}
    assert {name: [row[0] for row in rows] for name, rows in told.items()} == {
        table.name: table.columns.names for table in TABLES.values()
    }
    assert [(table, row[0]) for table, rows in told.items() for row in rows if not row[2]] == []


def test_no_meaning_is_of_a_column_that_is_gone() -> None:
    columns = {(table.name, name) for table in TABLES.values() for name in table.columns.names}
    assert metadata_tables.OWN.keys() <= columns
    sources = {
        source: {name for table in TABLES.values() if table.source is source for name in table.columns.names}
        for source in RowSource
    }
    assert {source: set(told) - sources[source] for source, told in metadata_tables.COMMON.items()} == {
        RowSource.CATALOG: set(),
        RowSource.OBJECTS: set(),
        RowSource.HISTORIES: set(),
    }


def test_the_generated_page_has_a_section_for_each_table() -> None:
    lines = metadata_tables.page().splitlines()
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == list(TABLES)
    assert sum(line.startswith("| `") for line in lines) == sum(len(table.columns) for table in TABLES.values())
