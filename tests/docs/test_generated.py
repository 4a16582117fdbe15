"""Generated pages explain every form, field and column; the page on querying names every table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accel.tables.schemas import TABLES, RowSource
from loaders.tables import FormRegistry
from loaders.tables.columns import unpack_any
from loaders.tables.records import RecordForm
from tests.docs import metadata_tables, records
from tests.docs.pages import page_named, table_rows

DATA = Path(__file__).parents[1] / "data"
FORMS = {
    each.name: each
    for each in (*records.CATALOG_FORMS, *records.STREAM_FORMS, *records.HISTORY_FORMS, *records.HINT_FORMS)
}
ROOT_HEADER_SIZE_BYTES = 16
"""Of a root of hints, before its record."""


def golden(form: RecordForm[Any]) -> Iterator[dict[str, Any]]:
    """The stored fields of the form's golden files."""
    names = (f"{form.name}-{form.version}.bin", f"{form.name}-{form.version}-leases.bin")
    for path in (each for name in names for each in DATA.rglob(name)):
        data = path.read_bytes()[ROOT_HEADER_SIZE_BYTES * (form in records.HINT_FORMS) :]
        start = 1 + data[0] + 2
        yield msgspec.msgpack.decode(data[start:])


def test_every_form_of_the_catalog_and_of_histories_is_in_the_page() -> None:
    registry = FormRegistry()
    registry.register(*FORMS.values())
    page = records.page()
    assert [name for name in registry.names() if f"### {name}\n" not in page] == []


def test_each_field_has_a_meaning() -> None:
    told = [(name, field, meaning) for name, form in FORMS.items() for field, _, meaning in records.fields(form)]
    assert [(name, field) for name, field, meaning in told if not meaning] == []


@pytest.mark.parametrize("name", FORMS)
def test_rows_are_of_the_kind_that_the_page_names(name: str) -> None:
    kinds = {**records.KINDS, **records.HISTORY_KINDS, **records.HINT_KINDS}
    told = {field: kind for (form, field), kind in records.ROWS.items() if form == name}
    assert told.keys() <= set(FORMS[name].struct.__struct_fields__)
    for stored in golden(FORMS[name]):
        found = {field: value for field, value in stored.items() if isinstance(value, bytes) and value[:4] == b"ACol"}
        for field, value in found.items():
            assert unpack_any(value, field).dtype.names == kinds[told[field]].names, field


def test_each_column_of_the_catalog_is_explained() -> None:
    assert records.COLUMNS.keys() == {name for dtype in records.KINDS.values() for name in dtype.names or ()}


def test_each_column_of_hints_is_explained() -> None:
    assert [*records.HINT_COLUMNS] == [
        (of, name) for of, rows in records.HINT_KINDS.items() for name in rows.names or ()
    ]


def test_each_field_of_a_swap_is_explained() -> None:
    page = records.page()
    for swap in records.SWAPS:
        assert all(f"| `{name}` | {meant} |" in page and meant for name, meant in records.struct_fields(swap))


def test_each_version_is_in_the_page() -> None:
    rows = {what: (reads, writes) for what, _, reads, writes in records.versions()}
    assert {f"`{name}`" for name in FORMS} < rows.keys()
    assert rows["envelope"] == ("2", "2")


QUERYING = page_named("querying")


def test_the_page_names_every_table() -> None:
    assert [row[0].strip("`") for row in table_rows(QUERYING) if row[0].strip("`") in TABLES] == list(TABLES)


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
        RowSource.EVENTS: set(),
    }


def test_the_generated_page_has_a_section_for_each_table() -> None:
    lines = metadata_tables.page().splitlines()
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == list(TABLES)
    assert sum(line.startswith("| `") for line in lines) == sum(len(table.columns) for table in TABLES.values())
