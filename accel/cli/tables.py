"""`accel table`: look into the versioned tables of a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click
import msgspec

from accel.catalog import records
from accel.cli.options import StoreChoice, examples, output_options, store_options
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered, printable
from accel.system import SYSTEM
from loaders.tables import FORMAT_FORM, FormRegistry, Tables, encode_name

_AFTER_NAME = "/"  # tables come in the order of their encoded names with a slash behind


@dataclass(frozen=True, slots=True)
class Names:
    """Names of tables, or keys of one; ``more`` if others follow."""

    what: str
    names: list[str]
    more: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {self.what: self.names, "more": self.more}

    def render(self) -> Iterator[Rendered]:
        """One a line."""
        yield from map(printable, self.names)


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value of a table, decoded."""

    table: str
    key: str
    sequence: int
    form: str
    form_version: int
    size_bytes: int
    record: object
    left_out: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "table": self.table,
            "key": self.key,
            "sequence": self.sequence,
            "form": self.form,
            "form_version": self.form_version,
            "size_bytes": self.size_bytes,
            "record": self.record,
            "left_out": self.left_out,
        }

    def render(self) -> Iterator[Rendered]:
        """One line about the value, then the record as JSON."""
        form = f"form {self.form} version {self.form_version}"
        yield f"sequence {self.sequence}, {form}, {count_text(self.size_bytes, 'byte')}"
        yield msgspec.json.format(msgspec.json.encode(self.record), indent=2).decode()
        for name, count in self.left_out.items():
            yield f"{name}: {count_text(count, 'row')} more (--limit 0 shows all)"


@click.group("table")
def table_group() -> None:
    """Look into the versioned tables of a bucket."""


@table_group.command(
    "list",
    short_help="List tables, or the keys of one.",
    epilog=examples(
        "accel table list --store s3://bucket",
        "accel table list node-list-history --store s3://bucket --prefix 0000000004- --limit 10",
    ),
)
@click.argument("table", required=False)
@click.option("--prefix", default="", help="Only names that start so.")
@click.option("--after", default="", help="Only names that come after this one.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=1000, show_default=True, help="At most so many; 0 for all."
)
@store_options
@output_options
def list_names(*, table: str | None, prefix: str, after: str, limit: int, store: StoreChoice, output: Output) -> None:
    """List the tables, or the keys of one table, in the order of their encoded names."""
    tables = _tables(store, output)
    try:
        names = (
            _tables_after(tables.table_names(prefix), after) if table is None else _keys(tables, table, prefix, after)
        )
        found = list(islice(names, limit + 1 if limit else None))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    more = bool(limit) and len(found) > limit
    output.show(Names("tables" if table is None else "keys", found[:limit] if more else found, more))
    if more:
        output.note("there are more: go on with --after, or raise --limit")


@table_group.command(
    short_help="Show a value of a table.",
    epilog=examples(
        "accel table get node-lists 0000000004 --store s3://bucket",
        "accel table get counters object-ids --store s3://bucket --output json",
    ),
)
@click.argument("table")
@click.argument("key")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows of a list; 0 for all.")
@store_options
@output_options
def get(*, table: str, key: str, limit: int, store: StoreChoice, output: Output) -> None:
    """Show a value of a table: its sequence number, its form, and its record, columns as rows."""
    try:
        entry = _tables(store, output).table(table).get(key)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    left_out: dict[str, int] = {}
    where = f"table {table!r}, key {key!r}"
    form, form_version, record = _registry().decode_any(entry.value, where, limit or None, left_out)
    shown = ShownValue(table, key, entry.version.sequence, form, form_version, len(entry.value), record, left_out)
    output.show(shown)


def _tables(store: StoreChoice, output: Output) -> Tables:
    return Tables(store.open(output), nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)


def _keys(tables: Tables, table: str, prefix: str, after: str) -> Iterator[str]:
    return tables.table(table).keys(prefix, after)


def _tables_after(names: Iterable[str], after: str) -> Iterator[str]:
    last = encode_name(after) + _AFTER_NAME if after else ""
    return (name for name in names if encode_name(name) + _AFTER_NAME > last)


def _registry() -> FormRegistry:
    # Loaded here, so that other commands start without them.
    from accel.history import codecs  # noqa: PLC0415
    from accel.streams import groups  # noqa: PLC0415

    registry = FormRegistry()
    registry.register(FORMAT_FORM, *records.ALL_FORMS, *codecs.ALL_FORMS, groups.READER_GROUP)
    return registry
