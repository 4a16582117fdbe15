"""Tables that nobody names: what is left of streams and scopes whose creation was overtaken.

Who creates a stream enters its unique id under its name first, and makes tables with that id in their names then. If
somebody else finds the entry without tables meanwhile, the name gets another id, and the first one drops what it made.
Should it die before that, its tables stay. They are in nobody's way, as no id comes again; but nobody would ever delete
them, so recovery does.

An id is named before any table of it is made, and never again after another one took its place. So a table that was
listed, and whose id its name does not give *afterwards*, is of no use to anybody, now or later. A process that is still
at work on it finds it gone, as it would if the other one had dropped it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import groupby
from typing import Final
from uuid import UUID

from accel.history.rules.creation import NamePhase
from accel.history.store.parts import StoreParts
from loaders.errors import TableMissing

_TABLE: Final = re.compile(r"(?P<scope>[^/]+)/(?:(?P<stream>[^/]+)/)?[^/#]+\.#\.(?P<id>[0-9a-f-]{36})")
_NOBODY: Final = UUID(int=0)

Owner = tuple[str, str | None]
"""A scope and one of its streams; None for the scope itself."""


class Leftovers:
    """Finds and drops tables that nobody names. Threads: any.

    Args:
        parts: of the store.
    """

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts

    def drop(self, scope: str | None = None) -> list[str]:
        """Drop them, in one scope or in all; gives their names. 1 call a table at most, 2 for each scope and stream.

        Args:
            scope: whose tables; None = those of all scopes, also of such as are not there any more.
        """
        names = self._parts.tables.table_names("" if scope is None else f"{scope}/")
        dropped: list[str] = []
        # All tables of one owner are listed before it is asked which id it has.
        for owner, tables in groupby(filter(_owner, names), key=_owner):
            found = list(tables)
            named = self._named(*owner) if owner else None
            dropped += [each for each in found if named is not None and not each.endswith(str(named))]
        for each in dropped:
            self._parts.tables.drop_table(each)
        return dropped

    def _named(self, scope: str, stream: str | None) -> UUID | None:
        """The id behind a name; one that nothing has if there is none; None = that cannot be told."""
        cells = self._parts.cells
        with suppress(TableMissing):
            found = cells.scope(scope).read()
            if found is None or stream is None:
                return _NOBODY if found is None else found.value.unique_id
            seen = cells.stream(scope, found.value.unique_id, stream).read()
            return _NOBODY if seen is None or seen.value.phase is NamePhase.FREE else seen.value.unique_id
        return None


def _owner(table: str) -> Owner | None:
    found = _TABLE.fullmatch(table)
    return None if found is None else (found["scope"], found["stream"])
