"""What a table reads: one key, by way of the cache; the listing; the marker.

The marker is what makes a table exist. It is read when a key is missing, before the first create and before the first
listing, and never again once it was seen: whether somebody else dropped the table since is not asked each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

from loaders.errors import KeyMissing, TableMissing
from loaders.store.base import ObjectInfo, ObjectStore
from loaders.tables.cache import CacheKey, Ticket, ValueCache
from loaders.tables.envelope import TOMBSTONE_SIZE_BYTES, Stored
from loaders.tables.names import decode_name, encode_prefix, marker_key, value_key
from loaders.tables.settle import ConditionalWriter
from loaders.tables.versions import Entry, Version


@dataclass(slots=True)
class TableState:
    """What is known of a table's existence. Threads: any; each attribute is replaced as a whole.

    Attributes:
        marker: the nonce of its marker once that was seen.
        unseen_id: stands for the marker's nonce in the cache until then, and is like no other.
    """

    marker: bytes | None = None
    unseen_id: object = field(default_factory=object)

    @property
    def cache_id(self) -> object:
        """What tells this table from an earlier one of the same name."""
        return self.marker or self.unseen_id

    def forget(self) -> None:
        """Begin anew: the table was made or dropped."""
        self.marker = None
        self.unseen_id = object()


@dataclass(frozen=True, slots=True)
class TableParts:
    """What the tables of one `Tables` share.

    Args:
        store: where they lie.
        writer: writes and settles.
        cache: keeps values; None = nothing does.
        executor: fetches the values of `items`; None = the caller's thread does.
    """

    store: ObjectStore
    writer: ConditionalWriter
    cache: ValueCache | None
    executor: Executor | None


class TableFolder:
    """The keys of one table, for reading. Threads: any.

    Args:
        table: the table's name.
        prefix: what its keys begin with.
        parts: what it shares with other tables.
        state: what is known of its existence.
    """

    def __init__(self, table: str, prefix: str, parts: TableParts, state: TableState) -> None:
        self.table = table
        self.parts = parts
        self.state = state
        self._prefix = prefix

    def store_key(self, key: str) -> str:
        """Where a key's value lies; ValueError for names that are none."""
        return value_key(self._prefix, key)

    def check_exists(self) -> None:
        """Raise TableMissing unless the marker is there, or was seen before. At most one request."""
        if self.state.marker is not None:
            return
        began_with = self.state.unseen_id
        marker = self.parts.writer.limited(0).read(marker_key(self._prefix))
        if marker is None:
            raise TableMissing(self.table, "", "expected a table, found no marker of one")
        if self.state.unseen_id is began_with:  # not dropped by this process meanwhile
            self.state.marker = marker.version.nonce

    def look(self, key: str, known: Version | None = None) -> Stored | None:
        """What stands at a key now, tombstones included; None = nothing. At most one request.

        Args:
            key: the key.
            known: a version whose value the caller does not need: if it still stands there, it comes with an empty one.
        """
        store_key = self.store_key(key)
        kept = self.kept(key)
        if kept is not None:
            if kept.version.final:
                return Stored(kept.value, kept.version)
            known = kept.version
        ticket = self.ticket(key)
        try:
            fetched = self.parts.writer.fetch(store_key, known)
        except KeyMissing:
            self.forget(key)
            return None
        if fetched is None and known is not None:
            return Stored(kept.value if kept is not None else b"", known)
        if fetched is None:
            raise ValueError("a store said that nothing changed without having been asked")
        stored = self.parts.writer.decoded(store_key, fetched)
        self.keep(key, stored, ticket)
        return stored

    def listed(self, prefix: str, after: str) -> Iterator[tuple[str, ObjectInfo]]:
        """Go through the live keys; see `Table.keys`."""
        self.check_exists()
        start_after = self._prefix + encode_prefix(after) if after else ""
        for info in self.parts.store.list(self._prefix + encode_prefix(prefix), start_after):
            key = _key_of(info.key[len(self._prefix) :])
            if key is not None and info.size_bytes != TOMBSTONE_SIZE_BYTES:
                yield key, info

    # The cache

    def kept(self, key: str) -> Entry | None:
        """What the cache has, which may be out of date unless it is final."""
        return None if self.parts.cache is None else self.parts.cache.get(self._cache_key(key))

    def ticket(self, key: str) -> Ticket | None:
        """To be taken before a request whose result may be kept."""
        return None if self.parts.cache is None else self.parts.cache.ticket(self._cache_key(key))

    def keep(self, key: str, stored: Stored | None, ticket: Ticket | None) -> None:
        """Put a live value into the cache."""
        if self.parts.cache is not None and ticket is not None and stored is not None and stored.entry is not None:
            self.parts.cache.keep(self._cache_key(key), stored.entry, ticket)

    def forget(self, key: str) -> None:
        """Drop a value from the cache."""
        if self.parts.cache is not None:
            self.parts.cache.forget(self._cache_key(key))

    def _cache_key(self, key: str) -> CacheKey:
        return self.table, self.state.cache_id, key


def _key_of(segment: str) -> str | None:
    try:
        return decode_name(segment)
    except ValueError:
        return None  # the marker, or something that nobody wrote through a table
