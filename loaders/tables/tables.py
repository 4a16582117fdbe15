"""All tables under one prefix of a store: creates, finds and drops them; one table lists its keys.

    from accel.system import SYSTEM
    from loaders.store import open_store
    from loaders.tables import BYTES, Tables, TypedKey

    tables = Tables(open_store("s3://bucket/prefix"), nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)
    tables.create_table("owners")
    owner = TypedKey(tables.table("owners"), "stream-7", BYTES)
    seen = owner.create(b"node 3")
    owner.write(b"node 4", seen)

A table exists if its marker exists. The marker is read when a key is missing, before the first create and before the
first listing. Once it was found, it is never read again: a later drop by another process is not detected. A name that
may be used again after a drop should have a unique part. Then no data of the old table can be mistaken for data of the
new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os.path import commonprefix
from threading import Lock

from cachetools import LRUCache

from loaders.backoff import ATTEMPTS, SETTLE_ATTEMPTS, Backoff
from loaders.errors import AmbiguousWrite, CorruptObject, KeyMissing, StoreUnavailable, TableMissing
from loaders.layout import TABLE_MARKER, TABLES_PREFIX, decode_name, encode_prefix, marker_key, table_folder, value_key
from loaders.lifetime import PerProcess
from loaders.store.base import DELETE_BATCH_KEYS_MAX, LIST_PAGE_KEYS_MAX, DeleteFailures, ObjectStore
from loaders.tables.conditional_write import (
    SEQUENCE_JUMP,
    TOMBSTONE_SIZE_BYTES,
    VALUE_SIZE_BYTES_MAX,
    ConditionalWriter,
    Outcome,
    Stored,
)
from loaders.versions import NONCE_SIZE_BYTES, Version

TABLE_STATES_MAX = 1024
"""The number of tables whose existence is kept in memory."""

# "name" and this character is after all keys in the folder "name/", and before all keys that follow the folder.
_AFTER_FOLDER = chr(ord("/") + 1)


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
            key = _name_of(info.key[len(self.prefix) :])
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


class Tables:
    """All tables under one prefix of a store. The constructor sends no request. Threads: any.

    Args:
        store: contains the tables.
        nonce: returns 16 random bytes; `accel.system.SYSTEM.nonce` is the real one.
        sleep: waits for a number of seconds, between repetitions.
        jitter: returns a random number in [0, 1).
        prefix: the beginning of all keys; ends with a slash.
        if_match_quotes: whether this endpoint requires quotes around the ETag of If-Match, as returned by
            `probe_conditions` and stored in the format record; None = as in the store's settings.
        attempts: how often a change is applied before it raises; 32.
        settle_attempts: how often one write is sent, and how often its key is read to find the outcome; 8.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        nonce: Callable[[], bytes],
        sleep: Callable[[float], object],
        jitter: Callable[[], float],
        prefix: str = TABLES_PREFIX,
        if_match_quotes: bool | None = None,
        attempts: int = ATTEMPTS,
        settle_attempts: int = SETTLE_ATTEMPTS,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._backoff = Backoff(sleep, jitter, attempts, settle_attempts)
        self._writer = ConditionalWriter(store, nonce, self._backoff, prefix, if_match_quotes=if_match_quotes)
        self._states = PerProcess("tables", _TableStates)

    def table(self, name: str, *, value_size_bytes_max: int = VALUE_SIZE_BYTES_MAX) -> Table:
        """The table of this name, whether it exists or not. No request.

        Args:
            name: its name.
            value_size_bytes_max: a longer value is refused before it is written, and before its body is read. 64 MiB
                by default.

        Raises:
            ValueError: not a name; see `loaders.layout`.
        """
        is_usual = value_size_bytes_max == VALUE_SIZE_BYTES_MAX
        writer = self._writer if is_usual else self._writer.with_limit(value_size_bytes_max)
        return Table(name, table_folder(self._prefix, name), self._store, writer, self._state(name))

    def create_table(self, name: str) -> bool:
        """Create a table; False if it exists already. One request, two if it exists already.

        Raises:
            AmbiguousWrite: the reply was lost, and the table does not exist afterwards.
        """
        settled = self._writer.with_limit(0).write(marker_key(table_folder(self._prefix, name)), b"", None, final=True)
        self._state(name).forget()
        if settled.outcome is Outcome.AMBIGUOUS and settled.current is None:
            raise AmbiguousWrite(name, "", "the reply was lost, and it is not known whether the table was created")
        return settled.outcome is Outcome.WRITTEN

    def restore_table(self, name: str) -> bool:
        """Create a table, or replace its unreadable marker; False if its marker is sound. At most four requests.

        Raises:
            AmbiguousWrite, StoreError: the table may have been created; call again.
        """
        with suppress(CorruptObject):
            return self.create_table(name)
        key = marker_key(table_folder(self._prefix, name))
        etag = next((info.etag for info in self._store.list(key, limit=1) if info.key == key), None)
        if etag is None:
            return self.create_table(name)
        # No version of any key has a nonce of zeros, so another write is never mistaken for these bytes.
        base = Version(etag, SEQUENCE_JUMP, bytes(NONCE_SIZE_BYTES), final=False, ancestors=b"")
        settled = self._writer.with_limit(0).write(key, b"", base, final=True)
        self._state(name).forget()
        return settled.outcome is Outcome.WRITTEN

    def drop_table(self, name: str) -> None:
        """Delete a table with all its keys, the marker first; a missing table is a success.

        A second call deletes the keys that an interrupted call left. Requests: 2, and 2 more for every 1,000 keys.

        Raises:
            StoreUnavailable: the table no longer exists, but some of its keys do. Drop it again.
        """
        folder = table_folder(self._prefix, name)
        state = self._state(name)
        state.forget()
        try:
            self._backoff.ask(lambda: self._store.delete(marker_key(folder)))
            last = ""
            while keys := [info.key for info in self._store.list(folder, last, limit=DELETE_BATCH_KEYS_MAX)]:
                self._delete([key for key in keys if _is_of_table(key[len(folder) :])])
                last = keys[-1]
        finally:
            state.forget()

    def table_exists(self, name: str) -> bool:
        """Whether there is a table of this name now. One request."""
        return self._writer.with_limit(0).read(marker_key(table_folder(self._prefix, name))) is not None

    @property
    def store(self) -> ObjectStore:
        """The store that contains the tables."""
        return self._store

    def table_names(self, prefix: str = "", *, with_dropped: bool = False) -> Iterator[str]:
        """Iterate over the tables whose names begin with `prefix`, in the order of their folders.

        That is the order of the encoded names with a slash appended: "a-b" is before "a". Lazy. At most one request a
        table, and fewer if tables are small: each request returns 1,000 keys.

        Args:
            prefix: the beginning of the names.
            with_dropped: whether to return dropped tables, too, if a key of them exists: a write that came late.
        """
        listed_prefix = self._prefix + encode_prefix(prefix)
        start_after, last_segment = "", ""
        while True:
            count = 0
            for info in self._store.list(listed_prefix, start_after, limit=LIST_PAGE_KEYS_MAX):
                count += 1
                segment, _, rest = info.key[len(self._prefix) :].partition("/")
                is_named = rest == TABLE_MARKER or (with_dropped and segment != last_segment)
                last_segment = segment
                if is_named and (name := _name_of(segment)) is not None:
                    yield name
            if count < LIST_PAGE_KEYS_MAX:
                return
            start_after = self._prefix + last_segment + _AFTER_FOLDER

    def etags(self, names: Sequence[str]) -> dict[tuple[str, str], str]:
        """The ETag of each key of some tables, tombstones included, from a listing: (table, key) -> ETag.

        One request for 1,000 keys between the first and the last of the tables' folders, so the tables should be
        neighbours. Some servers list a write late, so an ETag may be out of date.
        """
        folders = {table_folder(self._prefix, name): name for name in names}
        first, last = min(folders), max(folders)
        common = commonprefix([first, last])  # noqa: RUF071 - by characters, as in a listing
        found: dict[tuple[str, str], str] = {}
        for info in self._store.list(common, "" if first == last else first):
            folder, _, segment = info.key.rpartition("/")
            name = folders.get(f"{folder}/")
            if name is not None and (key := _name_of(segment)) is not None:
                found[name, key] = info.etag
            elif info.key > last and name is None:
                break
        return found

    def _state(self, name: str) -> TableState:
        with (states := self._states()).lock:
            return states.by_name.setdefault(name, TableState())

    def _delete(self, keys: list[str]) -> None:
        def delete() -> DeleteFailures:
            failures = self._store.delete_many(keys)
            if any(isinstance(failure.error, StoreUnavailable) for failure in failures):
                raise next(failure.error for failure in failures if isinstance(failure.error, StoreUnavailable))
            return failures

        for failure in self._backoff.ask(delete):
            raise failure.error


class _TableStates:
    """The tables that exist, as far as one process has read."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.by_name: LRUCache[str, TableState] = LRUCache(TABLE_STATES_MAX)


def _is_of_table(segment: str) -> bool:
    return segment == TABLE_MARKER or _name_of(segment) is not None


def _name_of(segment: str) -> str | None:
    try:
        return decode_name(segment)
    except ValueError:
        return None  # the marker, or an object that no table wrote
