"""The tables of docs/how-to/querying.md have the columns that they have in the code."""

from __future__ import annotations

import re

from accel.tables.schemas import TABLES, RowSource
from tests.docs.pages import page_named, table_rows

PAGE = page_named("querying")
TYPES = {
    "bigint": "int64",
    "string": "string",
    "timestamp": "timestamp[us, tz=UTC]",
    "boolean": "bool",
    "binary": "binary",
    "double": "double",
}


def test_the_columns_of_the_page_are_those_of_the_tables() -> None:
    told = {
        (table, name, TYPES[row[1]])
        for row in table_rows(PAGE)
        if len(row) == 4 and row[1] in TYPES
        for name in re.findall(r"`(\w+)`", row[0])
        for table in _tables_of(row[2])
    }
    assert told == {(table.name, each.name, str(each.type)) for table in TABLES.values() for each in table.columns}


def test_the_page_names_every_table() -> None:
    assert [row[0].strip("`") for row in table_rows(PAGE) if row[0].strip("`") in TABLES] == list(TABLES)


def _tables_of(cell: str) -> set[str]:
    named = set(re.findall(r"`(\w+)`", cell))
    if not cell.startswith("all of "):
        return named
    return {table.name for table in TABLES.values() if (table.source is RowSource.HISTORIES) == ("histories" in cell)}
