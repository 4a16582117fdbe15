"""Names of scopes and streams, and the unique ids behind them.

A scope is an entry in a table of all scopes, and a table of its streams. The entry comes first and goes last, so one
that was made halfway has an entry without a table, and is finished by whoever needs it.

A stream is an entry in its scope's table. It comes first, too, and goes last. An entry without tables of its own is a
stream that was made, or deleted, halfway: whoever creates the stream then gives it another unique id, so that nobody
who remembers the deleted one takes the new one for it.

Source: PDP-35.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar
from uuid import UUID

from accel.errors import IllegalState, NotInHistory, Sought
from accel.history.store import places
from accel.history.store.parts import StoreParts
from loaders.errors import TableMissing
from loaders.tables import Table

Answer = TypeVar("Answer")


class Names:
    """Scopes and streams by name. Threads: any.

    Args:
        parts: of the store.
    """

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._tables = parts.tables

    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there.

        Raises:
            InvalidArgument: not a name.
        """
        cell, drawn = self._parts.cells.scope(places.checked_name("scope", scope)), self._parts.drawn_id()
        scope_id = self._with_tables(lambda: cell.create(drawn)).value
        return self._tables.create_table(places.streams_table(scope, scope_id))

    def delete_scope(self, scope: str) -> None:
        """Delete a scope without streams; one that is not there counts as deleted.

        Raises:
            IllegalState: it has streams.
        """
        cell = self._parts.cells.scope(scope)
        seen = self._with_tables(cell.read)
        if seen is None:
            return
        first = next(_keys(self._parts.cells.streams(scope, seen.value)), None)
        if first is not None:
            raise IllegalState(f"expected a scope without streams, found {scope!r} with {first!r}")
        self._tables.drop_table(places.streams_table(scope, seen.value))
        cell.delete()

    def scopes(self) -> Iterator[str]:
        """All scopes, in the order of their encoded names."""
        return _keys(self._tables.table(places.SCOPES))

    def streams(self, scope: str) -> Iterator[str]:
        """The streams of a scope, half-created ones included.

        Raises:
            NotInHistory: there is no such scope.
        """
        return _keys(self._parts.cells.streams(scope, self._scope_id(scope)))

    def find(self, scope: str, name: str) -> places.StreamIdentity:
        """Which stream has a name. 2 calls.

        Raises:
            NotInHistory: none has.
        """
        try:
            seen = self._parts.cells.stream(scope, self._scope_id(scope), name).read()
        except TableMissing:
            seen = None
        if seen is None:
            raise NotInHistory(f"expected a stream of scope {scope!r}, found none named {name!r}", Sought.STREAM)
        return places.StreamIdentity(scope, name, seen.value)

    def reserve(self, scope: str, name: str, drop: Callable[[places.StreamIdentity], None]) -> places.StreamIdentity:
        """Which stream is to have a name: the one that has tables, or a new one. 5 calls.

        Args:
            scope: its scope.
            name: its name.
            drop: finishes dropping the tables of one that was made, or deleted, halfway.

        Raises:
            NotInHistory: there is no such scope.
            InvalidArgument: not a name.
        """
        scope_id = self._scope_id(scope)
        self._tables.create_table(places.streams_table(scope, scope_id))
        cell, drawn = (
            self._parts.cells.stream(scope, scope_id, places.checked_name("stream", name)),
            self._parts.drawn_id(),
        )
        found = places.StreamIdentity(scope, name, cell.create(drawn).value)
        if found.unique_id == drawn or self._tables.table_exists(found.metadata_table):
            return found
        drop(found)
        stands = cell.change(lambda now: drawn if now in (None, found.unique_id) else None)
        return places.StreamIdentity(scope, name, stands.value)

    def release(self, stream: places.StreamIdentity) -> None:
        """Nothing has the stream's name any more; unless another stream has it by now. 4 calls."""
        cell = self._parts.cells.stream(stream.scope, self._scope_id(stream.scope), stream.name)
        seen = cell.read()
        if seen is not None and seen.value == stream.unique_id:
            cell.delete(seen)

    def _scope_id(self, scope: str) -> UUID:
        seen = self._with_tables(self._parts.cells.scope(scope).read)
        if seen is None:
            raise NotInHistory(f"expected a scope, found none named {scope!r}", Sought.SCOPE)
        return seen.value

    def _with_tables(self, ask: Callable[[], Answer]) -> Answer:
        """Ask again with the tables that all streams share, in a bucket that has none yet."""
        try:
            return ask()
        except TableMissing:
            for name in places.SYSTEM_TABLES:
                self._tables.create_table(name)
        return ask()


def _keys(table: Table) -> Iterator[str]:
    try:
        yield from table.keys()
    except TableMissing:
        return
