"""`accel table`: shows the versioned tables of a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from accel.catalog import records
from accel.cli.groups import CommandGroup
from accel.cli.options import StoreChoice, command, limit_option, store_options
from accel.rendering import Output, Shown, shown_names
from accel.system import SYSTEM
from accel.units import count_text
from loaders.layout import encode_name
from loaders.tables import FORMAT_FORM, FormRegistry, Tables

_AFTER_NAME = "/"  # tables are sorted by their encoded names with a slash appended


@click.group("table", cls=CommandGroup)
def table_group() -> None:
    """Show the versioned tables of a bucket."""


@command(
    "List tables, or the keys of one.",
    "accel table list --store s3://bucket",
    "accel table list node-list-history --store s3://bucket --prefix 0000000004- --limit 10",
    name="list",
    group=table_group,
)
@click.argument("table", required=False)
@click.option("--prefix", default="", help="Only names with this prefix.")
@click.option("--after", default="", help="Only names after this one.")
@limit_option(1000, "The maximum number; 0 for all.")
@store_options
def list_names(*, table: str | None, prefix: str, after: str, limit: int, store: StoreChoice, output: Output) -> None:
    """List the tables, or the keys of one table, in the order of their encoded names."""
    tables = _tables(store)
    try:
        names = (
            _tables_after(tables.table_names(prefix), after) if table is None else _keys(tables, table, prefix, after)
        )
        shown = shown_names("tables" if table is None else "keys", names, limit)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    output.show(shown)
    if shown.data["more"]:
        output.note("there are more: continue with --after, or raise --limit")


@command(
    "Show a value of a table.",
    "accel table get node-lists 0000000004 --store s3://bucket",
    "accel table get counters object-ids --store s3://bucket --output json",
    group=table_group,
)
@click.argument("table")
@click.argument("key")
@limit_option(20, "Rows of a list; 0 for all.")
@store_options
def get(*, table: str, key: str, limit: int, store: StoreChoice, output: Output) -> None:
    """Show a value of a table: its sequence number, its form, and its record, columns as rows."""
    try:
        entry = _tables(store).table(table).get(key)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    left_out: dict[str, int] = {}
    where = f"table {table!r}, key {key!r}"
    form, form_version, record = _registry().decode_any(entry.value, where, limit or None, left_out)
    data = {"table": table, "key": key, "sequence": entry.version.sequence, "form": form, "form_version": form_version}
    data |= {"size_bytes": len(entry.value), "record": record, "left_out": left_out}
    output.show(Shown(data, _lines(data)))


def _lines(data: dict[str, Any]) -> Iterator[str]:
    """One line about the value, then the record as JSON."""
    form = f"form {data['form']} version {data['form_version']}"
    yield f"sequence {data['sequence']}, {form}, {count_text(data['size_bytes'], 'byte')}"
    yield msgspec.json.format(msgspec.json.encode(data["record"]), indent=2).decode()
    for name, count in data["left_out"].items():
        yield f"{name}: {count_text(count, 'row')} more (--limit 0 shows all)"


def _tables(store: StoreChoice) -> Tables:
    return Tables(store.open(), nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)


def _keys(tables: Tables, table: str, prefix: str, after: str) -> Iterator[str]:
    return tables.table(table).keys(prefix, after)


def _tables_after(names: Iterable[str], after: str) -> Iterator[str]:
    last = encode_name(after) + _AFTER_NAME if after else ""
    return (name for name in names if encode_name(name) + _AFTER_NAME > last)


def _registry() -> FormRegistry:
    # Imported here, so that other commands start without them.
    from accel.history import records as history_records  # noqa: PLC0415
    from accel.streams import groups  # noqa: PLC0415

    registry = FormRegistry()
    registry.register(FORMAT_FORM, *records.ALL_FORMS, *history_records.ALL_FORMS, groups.READER_GROUP)
    return registry
