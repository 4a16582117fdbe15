"""`accel table`: shows the versioned tables of a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import msgspec

from accel.catalog import records
from accel.cli.options import INTEGER, StoreChoice, command, store_options
from accel.rendering import Output, Shown, shown_names
from accel.system import SYSTEM
from accel.units import count_text
from loaders.layout import encode_name
from loaders.tables import FORMAT_FORM, FormRegistry, Tables

NAMES_MAX: Final = 1000
ROWS_MAX: Final = 20

_AFTER_NAME = "/"  # tables are sorted by their encoded names with a slash appended


@command(
    "Show the tables of a bucket, the keys of one, or a value.",
    "accel table --store s3://bucket",
    "accel table node-list-history --store s3://bucket --prefix 0000000004- --limit 10",
    "accel table node-lists 0000000004 --store s3://bucket --output json",
)
@click.argument("table", required=False)
@click.argument("key", required=False)
@click.option("--prefix", default="", help="Only names with this prefix.")
@click.option("--after", default="", help="Only names after this one.")
@click.option(
    "--limit",
    type=INTEGER,
    help=f"The maximum number of names, {NAMES_MAX} by default, or rows of a list in a value, {ROWS_MAX}; 0 for all.",
)
@store_options
def table(
    *,
    table: str | None,
    key: str | None,
    prefix: str,
    after: str,
    limit: int | None,
    store: StoreChoice,
    output: Output,
) -> None:
    """List the tables, or the keys of one table, in the order of their encoded names; or show a value.

    Of a value it shows the sequence number, the form, and the record, columns as rows.
    """
    tables = Tables(store.open(), nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)
    try:
        if table is not None and key is not None:
            output.show(_value(tables, table, key, ROWS_MAX if limit is None else limit))
            return
        names = (
            _tables_after(tables.table_names(prefix), after)
            if table is None
            else tables.table(table).keys(prefix, after)
        )
        shown = shown_names("tables" if table is None else "keys", names, NAMES_MAX if limit is None else limit)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    output.show(shown)
    if shown.data["more"]:
        output.note("there are more: continue with --after, or raise --limit")


def _value(tables: Tables, table: str, key: str, limit: int) -> Shown:
    entry = tables.table(table).get(key)
    left_out: dict[str, int] = {}
    where = f"table {table!r}, key {key!r}"
    form, form_version, record = _registry().decode_any(entry.value, where, limit or None, left_out)
    data = {"table": table, "key": key, "sequence": entry.version.sequence, "form": form, "form_version": form_version}
    data |= {"size_bytes": len(entry.value), "record": record, "left_out": left_out}
    return Shown(data, _lines(data))


def _lines(data: dict[str, Any]) -> Iterator[str]:
    """One line about the value, then the record as JSON."""
    form = f"form {data['form']} version {data['form_version']}"
    yield f"sequence {data['sequence']}, {form}, {count_text(data['size_bytes'], 'byte')}"
    yield msgspec.json.format(msgspec.json.encode(data["record"]), indent=2).decode()
    for name, count in data["left_out"].items():
        yield f"{name}: {count_text(count, 'row')} more (--limit 0 shows all)"


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
