"""Mistakes that are planted in the code under test of all processes, to show that a run finds them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from accel.catalog import node_list
from loaders.store.base import ALWAYS
from loaders.tables.conditional_write import ConditionalWriter, Stored
from loaders.tables.tables import Table
from loaders.versions import Version


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake, the roles of the processes that can show it, and a context in which the code has it."""

    what: str
    roles: str
    plant: Callable[[], AbstractContextManager[Any]] = nullcontext


def _without_condition(self: ConditionalWriter, store_key: str, body: bytes, base: Version | None) -> str:
    del base
    return self._store.put(store_key, body, condition=ALWAYS)


_look = Table.look
_found: dict[tuple[str, str], Stored] = {}


def _from_memory(self: Table, key: str, known: Version | None = None) -> Stored | None:
    stored = _found.get((self.name, key)) or _look(self, key, known)
    if stored is not None and stored.entry is not None:
        _found[self.name, key] = stored
    return stored


def _nothing(*_: object, **__: object) -> None:
    """In the place of a check."""


DEFECTS: dict[str, Planted] = {
    "": Planted("none", "all"),
    "etag-ignored": Planted(
        "a table overwrites any value", "tables", lambda: patch.object(ConditionalWriter, "send", _without_condition)
    ),
    "stale-reads": Planted(
        "a read returns the value that was read first, without asking the store whether it changed",
        "tables",
        lambda: patch.object(Table, "look", _from_memory),
    ),
    "fenced-sessions": Planted(
        "a commit of a session that another one has ended is taken",
        "catalog",
        lambda: patch.object(node_list, "_refuse_fenced", _nothing),
    ),
}
