"""Everything that writes to tables, one by one, and what a table looks like before and after."""

from __future__ import annotations

from collections.abc import Callable

from loaders.errors import TableMissing
from tests.loaders.tables.worlds import ByteTables, items_of


def prepare(tables: ByteTables, name: str) -> None:
    """A table with a value `k`, a tombstone `gone` and a final value `final`."""
    tables.create_table(name)
    table = tables.table(name)
    table.create("k", b"1")
    table.create("gone", b"g")
    table.delete("gone")
    table.create("final", b"f", final=True)


def picture(tables: ByteTables, name: str) -> object:
    """All that a reader can see of a table, except for nonces and ETags."""
    others = [each.removeprefix(name) for each in tables.table_names(name + "/")]
    try:
        items = {
            key: (value, version.sequence, version.final) for key, (value, version) in items_of(tables.table(name))
        }
    except TableMissing:
        return "no such table", others
    return items, others


VERBS: dict[str, Callable[[ByteTables, str], object]] = {
    "create": lambda tables, name: tables.table(name).create("new", b"n"),
    "create over a tombstone": lambda tables, name: tables.table(name).create("gone", b"n"),
    "create a final value": lambda tables, name: tables.table(name).create("new", b"n", final=True),
    "create_if_absent": lambda tables, name: tables.table(name).create_if_absent("new", b"n"),
    "update": lambda tables, name: tables.table(name).update("k", b"2", tables.table(name).get("k").version),
    "change": lambda tables, name: tables.table(name).change("k", lambda old: (old or b"") + b"+"),
    "change of nothing": lambda tables, name: tables.table(name).change("gone", lambda old: old or b"+"),
    "delete a version": lambda tables, name: tables.table(name).delete("k", tables.table(name).get("k").version),
    "delete": lambda tables, name: tables.table(name).delete("k"),
    "erase": lambda tables, name: tables.table(name).erase("final"),
    "create_table": lambda tables, name: tables.create_table(name + "/other"),
    "drop_table": lambda tables, name: tables.drop_table(name),
}
