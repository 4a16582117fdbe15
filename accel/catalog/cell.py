"""One key of a table, as a value of one type.

Tables keep bytes; the catalog works with records. A cell joins the two, and lets whoever read a value try to write its
successor at once, without reading again: only a lost race costs another request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from accel.errors import CatalogDamaged, CatalogWentBack
from loaders.errors import AmbiguousWrite, DataConflict, DataNotFound
from loaders.tables import Entry, Table, Version
from loaders.tables.records import Codec

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Seen(Generic[T]):
    """A value as it stood in its key at some time."""

    value: T
    entry: Entry

    @property
    def version(self) -> Version:
        """Which version of the key it was."""
        return self.entry.version


def standing(found: T | None, where: str) -> T:
    """The value of a key that is made once and never deleted.

    Raises:
        CatalogDamaged: nothing stands there.
    """
    if found is None:
        raise CatalogDamaged(f"expected a value in {where}, found none: it was deleted")
    return found


class Cell(Generic[T]):
    """A typed key. Threads: any.

    Args:
        table: where it lies.
        key: in that table.
        codec: the form of its values.
    """

    def __init__(self, table: Table, key: str, codec: Codec[T]) -> None:
        self._table = table
        self._key = key
        self._codec = codec
        self.where = f"table {table.name!r}, key {key!r}"

    def read(self) -> Seen[T] | None:
        """What stands there; None if nothing does. One request.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew.
        """
        entry = self._table.find(self._key)
        return None if entry is None else Seen(self._codec.decode(entry.value, self.where), entry)

    def read_newer(self, seen: Seen[T]) -> Seen[T]:
        """What stands there now; the same object if nothing changed, and then no body was sent. One request.

        Raises:
            CatalogWentBack: an earlier version stands there, or one of another history, or none; and as `read`.
        """
        try:
            entry = self._table.get_if_newer(self._key, seen.version)
        except DataNotFound as error:
            raise CatalogWentBack(self.where, (seen.version.sequence, seen.version.nonce), None) from error
        if entry is not None:
            self._refuse_earlier(seen.version, entry.version)
        return seen if entry is None else Seen(self._codec.decode(entry.value, self.where), entry)

    def create_if_absent(self, value: T, *, final: bool = False) -> Seen[T]:
        """Write a value where there is none; gives what stands there afterwards, this one or another's.

        Raises:
            TableMissing, AmbiguousWrite, StoreError.
        """
        entry = self._table.create_if_absent(self._key, self._codec.encode(value), final=final)
        return Seen(self._codec.decode(entry.value, self.where), entry)

    def change(self, change: Callable[[T | None], T | None], *, seen: Seen[T] | None = None) -> Seen[T]:
        """Write what follows from what stands there, again and again until no other writer came between.

        Args:
            change: gives the successor of a value (None: the key is not there), or None where nothing is to be done
                (not for an absent key). It must recognise its own work: after a lost reply it is asked again.
            seen: what the caller saw last; tried first, so that nothing is read if it still stands.

        Returns:
            What stands there now.

        Raises:
            Whatever `change` raises; DataConflict: too many lost races; StoreError.
            CatalogWentBack: a version earlier than `seen` stands there; nothing was written.
        """
        if seen is not None:
            changed = change(seen.value)
            if changed is None:
                return seen
            data = self._codec.encode(changed)
            try:
                return Seen(changed, Entry(data, self._table.update(self._key, data, seen.version)))
            except DataConflict as error:  # read again below, and decide by what stands there then
                if error.entry is None:
                    self.read_newer(seen)
                else:
                    self._refuse_earlier(seen.version, error.entry.version)
            except AmbiguousWrite:  # likewise
                self.read_newer(seen)
        return self._change_anew(change)

    def _refuse_earlier(self, seen: Version, found: Version) -> None:
        if not found.follows(seen):
            raise CatalogWentBack(self.where, (seen.sequence, seen.nonce), (found.sequence, found.nonce))

    def _change_anew(self, change: Callable[[T | None], T | None]) -> Seen[T]:
        decided: list[T] = []

        def on_bytes(data: bytes | None) -> bytes | None:
            value = None if data is None else self._codec.decode(data, self.where)
            changed = change(value)
            decided[:] = [each for each in (changed, value) if each is not None][:1]
            return None if changed is None else self._codec.encode(changed)

        entry = self._table.update_with(self._key, on_bytes, repeatable=True)
        return Seen(decided[0], entry)
