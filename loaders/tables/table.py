"""One versioned table: whether it exists, and its keys; `TypedKey` reads and writes one of them.

A table exists if its marker exists. The marker is read when a key is missing, before the first create and before the
first listing. Once it was found, it is never read again: a later drop by another process is not detected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from loaders.errors import KeyMissing, TableMissing
from loaders.layout import decode_name, encode_prefix, marker_key, value_key
from loaders.store.base import ObjectStore
from loaders.tables.conditional_write import TOMBSTONE_SIZE_BYTES, ConditionalWriter, Stored
from loaders.versions import Version


@dataclass(slots=True)
class TableState:
    """Whether a table exists, as far as this process knows. Threads: any; each attribute is replaced as a whole.

    Attributes:
        marker: the nonce of its marker; None until the marker was read.
        generation: another object after each creation and drop by this process.
    """

    marker: bytes | None = None
    generation: object = field(default_factory=object)

    def forget(self) -> None:
        """Reset: the table was created or dropped."""
        self.marker = None
        self.generation = object()


class Table:
    """A table; `Tables.table` returns it, without a request. Threads: any.

    Args:
        name: its name.
        prefix: the beginning of the store keys of its keys.
        store: contains the table.
        writer: writes values, and finds the outcomes.
        state: whether the table exists, as far as known.
    """

    def __init__(
        self, name: str, prefix: str, store: ObjectStore, writer: ConditionalWriter, state: TableState
    ) -> None:
        self.name = name
        self.prefix = prefix
        self.store = store
        self.writer = writer
        self.state = state

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def keys(self, prefix: str = "", after: str = "") -> Iterator[str]:
        """Iterate over the live keys that begin with `prefix` and are after `after`, in the order of encoded names.

        Lazy: one request for 1,000 keys, tombstones included.

        Raises:
            TableMissing: the table does not exist; raised with the first key.
        """
        self.check_exists()
        start_after = self.prefix + encode_prefix(after) if after else ""
        for info in self.store.list(self.prefix + encode_prefix(prefix), start_after):
            key = _key_of(info.key[len(self.prefix) :])
            if key is not None and info.size_bytes != TOMBSTONE_SIZE_BYTES:
                yield key

    # For keys

    def store_key(self, key: str) -> str:
        """The store key of a key's value; ValueError for an invalid name."""
        return value_key(self.prefix, key)

    def check_exists(self) -> None:
        """Raise TableMissing unless the marker exists, or was found before. At most one request."""
        if self.state.marker is not None:
            return
        began_with = self.state.generation
        marker = self.writer.with_limit(0).read(marker_key(self.prefix))
        if marker is None:
            raise TableMissing(self.name, "", "expected a table, found no marker")
        if self.state.generation is began_with:  # not dropped by this process meanwhile
            self.state.marker = marker.version.nonce

    def look(self, key: str, known: Version | None = None) -> Stored | None:
        """Return the current version at a key, tombstones included; None if there is none. At most one request.

        Args:
            key: the key.
            known: the version of the caller: if it is still current, it is returned with an empty value.
        """
        store_key = self.store_key(key)
        if known is None:
            return self.writer.read(store_key)
        try:
            fetched = self.writer.fetch_newer(store_key, known)
        except KeyMissing:
            return None
        return Stored(b"", known) if fetched is None else self.writer.decode(store_key, fetched)


def _key_of(segment: str) -> str | None:
    try:
        return decode_name(segment)
    except ValueError:
        return None  # the marker, or an object that no table wrote
