"""One key of a table, as a record of one class.

Tables keep bytes; a cell joins a key and a form. Of three kinds of keys there are two kinds of writes:

    | kind      | written by                    | who comes second                                             |
    |-----------|-------------------------------|--------------------------------------------------------------|
    | immutable | `create`                      | gets what stands there: its content follows from other keys  |
    | versioned | `change`, `write`             | decides again on what stands there, or is refused            |
    | deletable | `create` or `change`, `delete`| likewise                                                     |

A versioned record may become immutable by growing full (a chunk of history): `is_final` tells so.

Records of the history are kept decoded: see `loaders.epoch_records`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from loaders.backoff import Backoff
from loaders.epoch_records import EpochRecords, RecordPlace, Seen, never_enough
from loaders.errors import (
    AmbiguousWrite,
    DataConflict,
    DataExists,
    DataNotFound,
    FormatError,
    FormatTooNew,
    TableMissing,
)
from loaders.tables import Table, Unreadable
from loaders.tables.records import Codec

__all__ = ["Cell", "Inspected", "Seen", "always", "never"]

T = TypeVar("T")


def always(_: object) -> bool:
    """Of records that are never written again."""
    return True


def never(_: object) -> bool:
    """Of records that may change."""
    return False


@dataclass(frozen=True, slots=True)
class Inspected(Generic[T]):
    """What stands at a key, whether it can be read or not.

    Args:
        etag: of the bytes; empty = nothing stands there.
        seen: the record, if it can be read.
        error: why it cannot.
    """

    etag: str = ""
    seen: Seen[T] | None = None
    error: FormatError | None = None

    @property
    def value(self) -> T | None:
        """The record; None if there is none that can be read."""
        return None if self.seen is None else self.seen.value

    @property
    def is_missing(self) -> bool:
        """Whether nothing stands there."""
        return not self.etag

    @property
    def is_newer(self) -> bool:
        """Whether a newer release wrote it, as far as its bytes tell."""
        return isinstance(self.error, FormatTooNew)


class Cell(Generic[T]):
    """A typed key. Threads: any.

    Args:
        table: where it lies.
        key: in that table.
        codec: turns its records into bytes.
        backoff: pauses between attempts.
        is_final: whether a record is never written again, so that it may be cached for ever.
        records: keeps records decoded; None = they are decoded at each read.
    """

    def __init__(
        self,
        table: Table,
        key: str,
        codec: Codec[T],
        backoff: Backoff,
        is_final: Callable[[T], bool] = never,
        records: EpochRecords | None = None,
    ) -> None:
        self._table = table
        self._key = key
        self._codec = codec
        self._backoff = backoff
        self._is_final = is_final
        self._records = records
        self._place: Final = RecordPlace(table, key, codec)
        self.where: Final = f"table {table.name!r}, key {key!r}"

    def read(self, enough: Callable[[T], bool] = never_enough) -> Seen[T] | None:
        """What stands there; None if nothing does. One call, none for a final record in the cache.

        Args:
            enough: whether a record that may still grow tells what is asked for: then a kept one is given as it is.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew.
        """
        if self._records is None:
            return self._place.fetch(None)
        if self._is_final is never:
            return self._records.read_changing(self._place)
        return self._records.read(self._place, enough)

    @property
    def key(self) -> str:
        """In its table."""
        return self._key

    @property
    def table(self) -> str:
        """The name of its table."""
        return self._table.name

    def inspect(self) -> Inspected[T]:
        """What stands there, past all caches, damaged or not. One call.

        Raises:
            TableMissing, StoreError.
        """
        found = self._table.inspect(self._key)
        if found is None:
            return Inspected()
        if isinstance(found, Unreadable):
            return Inspected(found.etag, error=found.error)
        try:
            return Inspected(found.version.etag, self._place.decode(found))
        except FormatError as error:
            return Inspected(found.version.etag, error=error)

    def restore(self, value: T | None, found: Inspected[T]) -> None:
        """Write a record in the place of what `inspect` found: nothing, bytes that are none, or another record.

        Args:
            value: the record; None = a tombstone.
            found: what is replaced, and nothing else is.

        Raises:
            DataExists, DataConflict, DataNotFound: something else stands there by now.
            AmbiguousWrite, StoreError.
        """
        data = None if value is None else self._codec.encode(value)
        is_final = value is not None and self._is_final(value)
        try:
            if found.is_missing:
                self._table.create(self._key, data or b"", final=is_final)
            else:
                is_sound = self._is_readable if found.seen is None else lambda stands: stands == data
                self._table.replace_unreadable(self._key, data, found.etag, final=is_final, is_sound=is_sound)
        finally:
            if self._records is not None:
                self._records.forget(self._table.name, self._key)

    def _is_readable(self, data: bytes) -> bool:
        try:
            self._codec.decode(data, self._key)
        except FormatError:
            return False
        return True

    def has(self, enough: Callable[[T], bool] = never_enough) -> bool:
        """Whether reading it needs neither a call nor decoding."""
        return self._records is not None and self._records.has(self._place, enough)

    def get(self) -> Seen[T]:
        """The same where something must stand.

        Raises:
            DataNotFound: nothing does; and as `read`.
        """
        seen = self.read()
        if seen is None:
            raise DataNotFound(self._table.name, self._key, "expected a value, found none")
        return seen

    def create(self, value: T) -> Seen[T]:
        """Write a record where there is none; gives what stands there afterwards, this one or another's. One call.

        Raises:
            TableMissing, AmbiguousWrite, StoreError.
        """
        data = self._codec.encode(value)
        return self._place.decode(self._table.create_if_absent(self._key, data, final=self._is_final(value)))

    def write(self, value: T, seen: Seen[T]) -> Seen[T]:
        """Write a record over the one that was seen. One call.

        Raises:
            DataConflict: another one stands there by now.
            DataNotFound: it was deleted.
            AmbiguousWrite: the reply was lost, and what stands there does not tell.
        """
        data = self._codec.encode(value)
        return Seen(value, self._table.update(self._key, data, seen.version, final=self._is_final(value)))

    def change(self, change: Callable[[T | None], T | None], *, seen: Seen[T] | None = None) -> Seen[T]:
        """Write what follows from what stands there, again until nobody comes between. Two calls if undisturbed.

        Args:
            change: gives the successor of a record (None: there is none), or None where nothing is to be done. May be
                called many times, so it must recognise its own work. What it raises goes to the caller.
            seen: what the caller saw last; tried first, so that nothing is read if it still stands.

        Returns:
            What stands there now.

        Raises:
            DataNotFound: nothing is there, and nothing came of it.
            DataConflict: too many lost races.
        """
        attempts = self._backoff.settings.attempts
        for attempt in range(1, attempts + 1):
            if seen is None:
                seen = self.read()
            value = change(None if seen is None else seen.value)
            if value is None:
                return self.get() if seen is None else seen
            try:
                return self._add(value) if seen is None else self.write(value, seen)
            except TableMissing:
                raise
            except (DataConflict, DataExists, DataNotFound, AmbiguousWrite):
                seen = None
            self._backoff.pause(attempt)
        raise DataConflict(self._table.name, self._key, f"others wrote first, {attempts} times in a row")

    def delete(self, seen: Seen[T] | None = None) -> None:
        """Delete what stands there, by a tombstone; not for final records. Nothing there counts as deleted.

        Args:
            seen: what may be deleted; None = whatever stands there.

        Raises:
            DataConflict: another record stands there.
        """
        self._table.delete(self._key, None if seen is None else seen.version)

    def erase(self) -> None:
        """Delete a record plainly: a final one, or one that is never written again. No tombstone stays."""
        try:
            self._table.erase(self._key)
        finally:
            if self._records is not None:
                self._records.forget(self._table.name, self._key)

    def _add(self, value: T) -> Seen[T]:
        data = self._codec.encode(value)
        return Seen(value, self._table.create(self._key, data, final=self._is_final(value)))
