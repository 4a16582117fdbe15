"""A typed key: one key of a versioned table, read and written as records of one class; the cache of records.

    number = TypedKey(tables.table("counters"), "object-ids", NUMBER)
    number.create_if_absent(0)
    after = number.change(lambda now: now + 10).value      # repeated until no other writer interferes

A typed key joins table, key and codec. It returns a *versioned value*: the record, and the version of the key that held
it; a write succeeds only if its writer has read the stored version. There are three kinds of keys and two kinds of
writes:

    | kind      | written by                              | the second of two concurrent writers                     |
    |-----------|-----------------------------------------|----------------------------------------------------------|
    | immutable | `create_if_absent`                      | gets the stored record: it follows from other keys       |
    | versioned | `change`, `write`                       | decides again on the stored record, or is refused        |
    | deletable | `create_if_absent` or `change`, `delete`| as above                                                 |

A versioned record may become immutable when it is full (a chunk of history): `is_final` decides that. The meaning of
each outcome:

    | error          | meaning                                      | written?  | what to do                       |
    |----------------|----------------------------------------------|-----------|----------------------------------|
    | DataExists     | there is a live value already                | no        | read it                          |
    | DataNotFound   | there is no live value                       | no        | create it, if it should exist    |
    | TableMissing   | (a DataNotFound) the table does not exist    | no        | create the table                 |
    | DataConflict   | another version than the caller's is stored  | no        | read, decide, write again        |
    | AmbiguousWrite | the reply was lost, and later writes hide it | not known | read, decide by the value        |
    | StoreError     | the store does not answer, or refuses        | no        | see its advice                   |

A read is one request. A write is one request if its reply is clear, and one more read for each unclear reply;
`conditional_write` has the rules.

**Changing.** One loop makes all changes. After a conflict it pauses, and tries again on the value that is stored by
then, at most `attempts` times. A value that was read while the write was settled saves a request. A lost
reply is no failure. If the key shows the outcome of the write, that outcome is the result. If it does not, the loop
calls the change again, and the change recognises its own work. If that attempt fails too, the error is AmbiguousWrite:
the write may have happened.

**Keeping.** With a `RecordCache`, records are decoded once for all readers, and kept within one bound of bytes:

    | record                                       | read again                                                     |
    |----------------------------------------------|----------------------------------------------------------------|
    | final: an epoch, a full chunk, a leaf, ...   | never                                                          |
    | growing: a chunk that is not full            | unless the kept one is enough; on condition that it changed:   |
    |                                              | if not, no body is sent and nothing is decoded                 |
    | changing: `is_final` is `never`              | each time, on that condition                                   |

The cache also keeps records that this process writes. If a final or growing record is being read, a second reader waits
for that read. The read may have begun before the second reader's call; if it found no record, or not enough of one, the
second reader reads once more. Errors are raised in all waiting readers, and are not kept; the death of a reading thread
does not fail the others. `erase` and `forget_table` drop final records, and also the results of reads and writes that
began earlier. If another process erases a record, this cache may still return it. Records are identified by table and
key: a table that may be created again has a unique id in its name.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, TypeAlias, TypeVar, cast

from loaders.counting import CacheStats
from loaders.errors import (
    AccelError,
    AmbiguousWrite,
    DataConflict,
    DataExists,
    DataNotFound,
    FormatError,
    FormatTooNew,
    KeyMissing,
    StoreError,
    TableMissing,
)
from loaders.shared_loads import Flight, SharedLoads
from loaders.tables.conditional_write import SEQUENCE_JUMP, Outcome, Stored, WriteResult, sequence_beyond
from loaders.tables.records import Codec
from loaders.tables.tables import Table
from loaders.versions import NONCE_SIZE_BYTES, UNKNOWN_ETAG, Entry, Version, Versioned

T = TypeVar("T")

RecordPlace: TypeAlias = tuple[str, str]
"""Names of table and key."""

VersionId: TypeAlias = tuple[int, bytes]
"""Sequence number and nonce."""

WentBack: TypeAlias = Callable[[str, VersionId, VersionId | None], AccelError]
"""Returns an error for a key, the version that was seen there, and the version that is there now."""

RECORD_OVERHEAD_BYTES: Final = 1_100
"""Memory of a kept record besides itself: version, place, entries of the maps. Measured, rounded up."""


FRESH_FROM_ATTEMPT: Final = 6
"""From this attempt on, the value is read again after the pause, and the change is applied to it."""


class _Unchanged:
    """The codec of bytes."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes, where: str) -> bytes:  # noqa: ARG002 - any value is valid
        return data


BYTES: Final[Codec[bytes]] = _Unchanged()
"""The codec of values that are bytes."""


def always(_: object) -> bool:
    """The predicate of records that are never written again."""
    return True


def never(_: object) -> bool:
    """The predicate of records that may change, and of reads that need the newest version."""
    return False


@dataclass(frozen=True, slots=True)
class Inspected(Generic[T]):
    """The content of a key, whether it can be read or not.

    Args:
        etag: of the bytes; empty = the key is missing.
        seen: the record, if it can be read.
        error: why it cannot be read; None if it can.
        sequence: a number above the sequence numbers of all versions of the key, or the number of a readable version.
        ancestors: nonces of the versions up to this one, if they can be read.
    """

    etag: str = ""
    seen: Versioned[T] | None = None
    error: FormatError | None = None
    sequence: int = 0
    ancestors: bytes = b""

    @property
    def value(self) -> T | None:
        """The record; None if the key holds no readable record."""
        return None if self.seen is None else self.seen.value

    @property
    def is_missing(self) -> bool:
        """Whether the key is missing."""
        return not self.etag

    @property
    def is_newer(self) -> bool:
        """Whether a newer release wrote it, as far as its bytes show."""
        return isinstance(self.error, FormatTooNew)


class TypedKey(Generic[T]):
    """One key of a table, with the codec of its records. Threads: any.

    Args:
        table: its table.
        key: the key in that table.
        codec: converts records to bytes and back.
        is_final: returns whether a record is never written again, so that it may be kept for ever.
        cache: keeps records decoded; None = they are read and decoded each time.
        went_back: returns the error for a key without a version, or with a version that does not follow the version
            that was read before; None = that is not checked.
    """

    def __init__(
        self,
        table: Table,
        key: str,
        codec: Codec[T],
        *,
        is_final: Callable[[T], bool] = never,
        cache: RecordCache | None = None,
        went_back: WentBack | None = None,
    ) -> None:
        self.key: Final = key
        self.where: Final = f"table {table.name!r}, key {key!r}"
        self._table = table
        self._writer = table.writer
        self._codec = codec
        self._is_final = is_final
        self._cache = cache
        self._went_back = went_back

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._table.name!r}, {self.key!r})"

    @property
    def table_name(self) -> str:
        """The name of its table."""
        return self._table.name

    # Reading

    def read(self, enough: Callable[[T], bool] = never) -> Versioned[T] | None:
        """Return the record; None if there is none. One request, none for a final record in the cache.

        Args:
            enough: returns whether a record that may still grow suffices: then a kept record is returned, not read.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew: see their classes.
        """
        if self._cache is None:
            return self.fetch(None)
        return self._cache.read_changing(self) if self._is_final is never else self._cache.read(self, enough)

    def get(self) -> Versioned[T]:
        """Return the record, which must exist.

        Raises:
            DataNotFound: it does not exist; and as for `read`.
        """
        seen = self.read()
        if seen is None:
            raise self._not_found()
        return seen

    def read_newer(self, seen: Versioned[T]) -> Versioned[T]:
        """Return the present record; `seen` itself, without reading the body, if it did not change. One request.

        Raises:
            DataNotFound: there is no record. If `went_back` is given, its error for this and for an earlier version.
            And as for `read`.
        """
        try:
            now = self._fetch(seen, seen)
        except TableMissing:
            self._refuse_earlier(seen, None)
            raise
        if now is None:
            self._refuse_earlier(seen, None)
            raise self._not_found()
        return now

    def has(self, enough: Callable[[T], bool] = never) -> bool:
        """Whether a read needs neither a request nor decoding."""
        return self._cache is not None and self._cache.has(self, enough)

    def fetch(self, known: Versioned[T] | None) -> Versioned[T] | None:
        """Read without the cache; None if the key is missing. At most one request; no body if `known` is current."""
        return self._fetch(known)

    # Writing

    def create(self, value: T) -> Versioned[T]:
        """Write a record if there is none. One request; three over a tombstone.

        Raises:
            DataExists: there is a record.
            TableMissing, AmbiguousWrite, StoreError: see their classes.
        """
        data, ticket = self._codec.encode(value), self._ticket()
        return self._keep(Versioned(value, self._created(data, final=self._is_final(value))), ticket)

    def create_if_absent(self, value: T) -> Versioned[T]:
        """Write a record if there is none; return the stored record, this one or another writer's. One request.

        Raises:
            TableMissing, AmbiguousWrite, StoreError: see their classes.
        """
        kept = None if self._cache is None else self._cache.final(self)
        if kept is not None:
            return kept
        data, ticket = self._codec.encode(value), self._ticket()
        settled = self._create(data, final=self._is_final(value))
        entry = None if settled.current is None else settled.current.entry
        if entry is not None and entry.value is not data:
            return self._keep(self._decoded(entry), ticket)
        version = self._version(settled) if entry is None else entry.version
        return self._keep(Versioned(value, version), ticket)

    def write(self, value: T, seen: Versioned[T]) -> Versioned[T]:
        """Replace the record `seen`. One request.

        Raises:
            DataConflict: another record is stored; the error's `entry` is its bytes.
            DataNotFound: the record was deleted.
            AmbiguousWrite: the reply was lost, and the stored record does not show the outcome.
            ValueError: the record is final.
        """
        data, ticket = self._codec.encode(value), self._ticket()
        version = self._replaced(data, seen.version, final=self._is_final(value))
        return self._keep(Versioned(value, version), ticket)

    def change(self, change: Callable[[T | None], T | None], *, seen: Versioned[T] | None = None) -> Versioned[T]:
        """Replace the stored record by its successor; repeat until no other writer interferes. Two requests.

        Args:
            change: returns the successor of a record (None: there is no record), or None for no change. It may be
                called many times, so it must recognise its own work. The call raises its errors.
            seen: the version that the caller read last; tried first, so that nothing is read if it is still current.

        Returns:
            The record that is stored now: `seen` itself if there was no change.

        Raises:
            DataNotFound: there is no record, and `change` returned None.
            DataConflict: too many lost races.
            AmbiguousWrite: it may have been written; see the module docstring.
            ValueError: the record is final.
            The error of `went_back`: the stored version is earlier than `seen`; nothing was written.
        """
        now = seen if seen is not None or self._cache is None else self.read()
        if seen is None and self._cache is None:
            stored = self._table.look(self.key)
        else:
            stored = None if now is None else Stored(b"", now.version)
        ticket = self._ticket()
        # If a record from memory is out of date, that is not a race: no pause follows.
        attempt, pauses_from = 0, 1 if now is None else 2
        doubtful: WriteResult | None = None
        try:
            for left in reversed(range(self._attempts)):
                attempt += 1
                now = self._present(stored, now, seen)
                changed = change(None if now is None else now.value)
                if changed is None:
                    return self._left_alone(now)
                data, is_final = self._codec.encode(changed), self._is_final(changed)
                if stored is None:
                    settled = self._create(data, final=is_final)
                else:
                    settled = self._send(data, stored.version, final=is_final)
                if settled.outcome is Outcome.WRITTEN or (settled.outcome is Outcome.AMBIGUOUS and not left):
                    return self._keep(Versioned(changed, self._version(settled)), ticket)
                if settled.outcome is Outcome.AMBIGUOUS:
                    doubtful = settled  # before the read, which may fail
                    stored, attempt, pauses_from = self._table.look(self.key), 0, 1
                    continue
                if attempt >= pauses_from:
                    self._pause(attempt)
                # The value that the write read saves a request, unless many writers replace it during the pause.
                stored = settled.current if attempt < FRESH_FROM_ATTEMPT else self._table.look(self.key)
            raise self._others_were_faster(stored)
        except (StoreError, DataConflict, DataNotFound) as error:
            if doubtful is None:
                raise
            raise self._ambiguous(
                doubtful
            ) from error  # these mean "not written", but the ambiguous write may have been

    def delete(self, seen: Versioned[T] | None = None) -> None:
        """Replace the record by a tombstone; a missing key is a success. One request with a version, two without.

        Args:
            seen: the version that may be deleted; None = any version.

        Raises:
            DataConflict: another record is stored.
            TableMissing, AmbiguousWrite: see their classes.
            ValueError: the record is final: use `erase`.
        """
        try:
            if seen is None:
                self._delete_any()
                return
            settled = self._delete(seen.version)
            if settled.outcome is Outcome.LOST and not settled.is_gone:
                self._lost(seen.version, settled)
        finally:
            self._forget()

    def erase(self) -> None:
        """Delete a key without a tombstone: for a final record, or a key that is never written again. One request.

        If the key may be written later, use `delete`: real servers lose plain deletes that race with conditional
        writes. A missing key is a success.

        Raises:
            TableMissing: the table does not exist.
        """
        store_key = self._table.store_key(self.key)
        try:
            self._table.check_exists()
            self._writer.backoff.ask(lambda: self._table.store.delete(store_key))
        finally:
            self._forget()

    # Damaged keys

    def inspect(self) -> Inspected[T]:
        """Return the content of the key without caches, damaged or not. One request, rarely two.

        Raises:
            TableMissing, StoreError: see their classes.
        """
        store_key = self._table.store_key(self.key)
        try:
            fetched = self._writer.fetch(store_key)
        except KeyMissing:
            self._table.check_exists()
            return Inspected()
        except FormatError as error:  # longer than any value: only a listing has its ETag
            listed = self._table.store.list(store_key)
            etag = next((info.etag for info in listed if info.key == store_key), "")
            return Inspected(etag, None, error, SEQUENCE_JUMP) if etag else Inspected()
        try:
            entry = self._writer.decode(store_key, fetched).entry
        except FormatError as error:
            return Inspected(fetched.etag, None, error, sequence_beyond(fetched.body))
        if entry is None:
            return Inspected()
        version = entry.version
        try:
            return Inspected(version.etag, self._decoded(entry), None, version.sequence, version.lineage)
        except FormatError as error:
            return Inspected(version.etag, None, error, version.sequence, version.lineage)

    def restore(self, value: T | None, found: Inspected[T]) -> None:
        """Replace the content that `inspect` found: a missing key, unreadable bytes, or another record. Two requests.

        The write is conditional on the ETag of those bytes. Its sequence number is above all earlier sequence numbers
        of the key, so that readers see only ascending versions.

        Args:
            value: the record; None = a tombstone.
            found: the content that may be replaced.

        Raises:
            DataExists, DataConflict, DataNotFound: the key has another content now.
            AmbiguousWrite, StoreError: see their classes.
        """
        data = None if value is None else self._codec.encode(value)
        is_final = value is not None and self._is_final(value)
        try:
            if found.is_missing:
                self._created(data or b"", final=is_final)
                return
            now = self.inspect()
            if now.is_missing:
                raise self._not_found()
            is_sound = now.seen is not None and (found.seen is None or self._codec.encode(now.seen.value) == data)
            if now.etag != found.etag or is_sound:
                raise self._conflict(f"expected unreadable bytes with ETag {found.etag}, found {now.etag}", None)
            # No version of any key has a nonce of zeros, so another write is never mistaken for these bytes.
            nothing = bytes(NONCE_SIZE_BYTES)
            base = Version(found.etag, now.sequence, nonce=nothing, final=False, ancestors=now.ancestors)
            self._replaced(data, base, final=is_final)
        finally:
            self._forget()

    # Private methods

    @property
    def _attempts(self) -> int:
        return self._writer.backoff.attempts_max

    def _pause(self, attempt: int) -> None:
        self._writer.backoff.pause(attempt)

    def _fetch(self, known: Versioned[T] | None, seen: Versioned[T] | None = None) -> Versioned[T] | None:
        if known is not None and known.version.final:
            return known
        stored = self._table.look(self.key, None if known is None else known.version)
        if stored is None:
            self._table.check_exists()
        if stored is None or stored.entry is None:
            return None
        return known if known is not None and stored.version == known.version else self._decoded(stored.entry, seen)

    def _present(
        self, stored: Stored | None, known: Versioned[T] | None, seen: Versioned[T] | None
    ) -> Versioned[T] | None:
        entry = None if stored is None else stored.entry
        if entry is None:
            self._refuse_earlier(seen, None)
            return None
        return known if known is not None and entry.version is known.version else self._decoded(entry, seen)

    def _created(self, data: bytes, *, final: bool) -> Version:
        settled = self._create(data, final=final)
        if settled.outcome is Outcome.LOST:
            raise DataExists(self.table_name, self.key, f"expected no value, found {_described(settled)}")
        return self._version(settled)

    def _create(self, data: bytes, *, final: bool) -> WriteResult:
        self._table.check_exists()
        base: Version | None = None
        for attempt in range(1, self._attempts + 1):
            settled = self._send(data, base, final=final)
            if settled.outcome is not Outcome.LOST or not settled.is_gone:
                return settled
            if base is not None:
                self._pause(attempt)
            # A create over a tombstone is an update of the tombstone.
            base = None if settled.current is None else settled.current.version
        raise self._others_were_faster(None)

    def _replaced(self, data: bytes | None, base: Version, *, final: bool) -> Version:
        settled = self._send(data, base, final=final)
        if settled.outcome is Outcome.LOST:
            self._lost(base, settled)
        return self._version(settled)

    def _delete_any(self) -> None:
        stored = self._table.look(self.key)
        for _ in self._writer.backoff.attempts():
            if stored is None:
                self._table.check_exists()
            if stored is None or stored.is_tombstone:
                return
            settled = self._delete(stored.version)
            if settled.outcome is not Outcome.LOST:
                return
            stored = settled.current
        raise self._others_were_faster(stored)

    def _delete(self, version: Version) -> WriteResult:
        settled = self._send(None, version)
        if settled.is_gone and settled.current is None:
            self._table.check_exists()
        if not settled.is_gone and settled.outcome is Outcome.AMBIGUOUS:
            self._version(settled)
        return settled

    def _send(self, data: bytes | None, base: Version | None, *, final: bool = False) -> WriteResult:
        store_key = self._table.store_key(self.key)
        if base is not None and base.final:
            raise ValueError(f"{self.where}: expected a value that is not final, found a final one")
        if base is not None and base.etag == UNKNOWN_ETAG:
            return WriteResult(Outcome.LOST, self._writer.read(store_key))
        return self._writer.write(store_key, data, base, final=final)

    def _version(self, settled: WriteResult) -> Version:
        if settled.version is None:
            raise self._ambiguous(settled) from settled.cause
        return settled.version

    def _left_alone(self, now: Versioned[T] | None) -> Versioned[T]:
        if now is None:
            self._table.check_exists()
            raise self._not_found()
        return now

    def _lost(self, version: Version, settled: WriteResult) -> NoReturn:
        if settled.current is None:
            self._table.check_exists()
        detail = f"expected version {version.sequence} ({version.nonce.hex()}), found {_described(settled)}"
        if settled.is_gone:
            raise DataNotFound(self.table_name, self.key, detail)
        raise self._conflict(detail, settled.current)

    def _not_found(self) -> DataNotFound:
        return DataNotFound(self.table_name, self.key, "expected a value, found none")

    def _ambiguous(self, settled: WriteResult) -> AmbiguousWrite:
        detail = "the reply was lost, and the stored value does not show whether it was written"
        return AmbiguousWrite(self.table_name, self.key, f"{detail}: {_described(settled)}")

    def _others_were_faster(self, current: Stored | None) -> DataConflict:
        return self._conflict(f"other writers wrote first, {self._attempts} times in a row", current)

    def _conflict(self, detail: str, current: Stored | None) -> DataConflict:
        error = DataConflict(self.table_name, self.key, detail)
        error.entry = None if current is None else current.entry
        return error

    def _decoded(self, entry: Entry, seen: Versioned[T] | None = None) -> Versioned[T]:
        self._refuse_earlier(seen, entry.version)
        return Versioned(self._codec.decode(entry.value, self.where), entry.version)

    def _refuse_earlier(self, seen: Versioned[T] | None, current: Version | None) -> None:
        if seen is None or self._went_back is None or (current is not None and current.follows(seen.version)):
            return
        found = None if current is None else (current.sequence, current.nonce)
        raise self._went_back(self.where, (seen.version.sequence, seen.version.nonce), found)

    def _ticket(self) -> int:
        return 0 if self._cache is None else self._cache.ticket()

    def _keep(self, written: Versioned[T], ticket: int) -> Versioned[T]:
        if self._cache is not None:
            self._cache.keep(self, written, ticket)
        return written

    def _forget(self) -> None:
        if self._cache is not None:
            self._cache.forget(self.table_name, self.key)


def raw_key(table: Table, key: str, *, is_final: Callable[[bytes], bool] = never) -> TypedKey[bytes]:
    """A key whose values are bytes: a mark, or a key whose record does not matter."""
    return TypedKey(table, key, BYTES, is_final=is_final)


def _described(settled: WriteResult) -> str:
    if not settled.is_current_known:
        return "it cannot be read"
    if settled.current is None:
        return "nothing"
    version = settled.current.version
    kind = "a tombstone, version" if settled.current.is_tombstone else "version"
    return f"{kind} {version.sequence} ({version.nonce.hex()})"


class RecordCache:
    """A cache of decoded records of typed keys. Threads: any. No lock is held over a request.

    Args:
        size_bytes_max: bound on the kept bytes; least recently used records are dropped. 0 = nothing is kept.
        size_of: bytes of memory that a record takes.
    """

    def __init__(self, size_bytes_max: int, size_of: Callable[[object], int]) -> None:
        self._loads: SharedLoads[RecordPlace, Versioned[object] | None] = SharedLoads(
            size_bytes_max, lambda seen: RECORD_OVERHEAD_BYTES + (0 if seen is None else size_of(seen.value))
        )

    def read(self, source: TypedKey[T], enough: Callable[[T], bool] = never) -> Versioned[T] | None:
        """Return a record that is final, or grows until it is; None if there is none.

        At most one request, and one wait for a request of another thread; none if the kept record is final or suffices.

        Args:
            source: its key.
            enough: returns whether a record that may grow further suffices; must be quick.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew: see their classes.
        """
        suits = _suiting(enough)
        is_late = False  # a read that began before this call may be too old for it
        while True:
            mine: list[Future[Versioned[object] | None]] = []
            try:
                asked = self._loads.ask(_place(source), suits, mine)
                if not isinstance(asked, Flight):
                    return cast("Versioned[T] | None", asked)
                if asked.started:
                    return self._lead(source, asked)
            except BaseException as error:
                self._loads.give_up(_place(source), mine, error)
                raise
            failed = asked.result.exception()  # waits; an error raised here concerns only this thread
            if failed is None and (is_late or suits(asked.result.result())):
                return cast("Versioned[T] | None", asked.result.result())
            if failed is not None and _concerns_all(failed, is_late=is_late):
                raise failed
            is_late = True

    def cache_stats(self) -> CacheStats:
        """Counts of the cache: kept records, hits and misses."""
        return self._loads.cache_stats()

    def read_changing(self, source: TypedKey[T]) -> Versioned[T] | None:
        """Return a record that may be overwritten; None if there is none. One request, no body if it is unchanged.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew: see their classes.
        """
        known = cast("Versioned[T] | None", self._loads.peek(_place(source)))
        fetched = source.fetch(known)
        if fetched is None and known is not None:
            self._loads.forget(_place(source))
        elif fetched is not None and fetched is not known:
            self._loads.keep(_place(source), cast("Versioned[object]", fetched))
        return fetched

    def has(self, source: TypedKey[T], enough: Callable[[T], bool] = never) -> bool:
        """Whether `read` needs no request."""
        return _suiting(enough)(self._loads.peek(_place(source)))

    def final(self, source: TypedKey[T]) -> Versioned[T] | None:
        """The record if it is kept and final; otherwise None."""
        return cast("Versioned[T] | None", self._loads.peek(_place(source))) if self.has(source) else None

    def ticket(self) -> int:
        """Return a ticket; a writer takes it before a write whose record is kept."""
        return self._loads.ticket()

    def keep(self, source: TypedKey[T], written: Versioned[T], ticket: int) -> None:
        """Keep a written record, unless a record was dropped since the ticket was taken."""
        self._loads.keep(_place(source), cast("Versioned[object]", written), ticket)

    def forget(self, table: str, key: str) -> None:
        """Drop a record: after it was erased, before `erase` returns."""
        self._loads.forget((table, key))

    def forget_table(self, table: str) -> None:
        """Drop all records of a table, as `forget`. O(all kept records)."""
        self._loads.forget_all(lambda place: place[0] == table)

    def _lead(self, source: TypedKey[T], flight: Flight[Versioned[object] | None]) -> Versioned[T] | None:
        kept = cast("Versioned[T] | None", flight.kept)
        found = self._loads.lead(
            _place(source), flight.result, lambda: cast("Versioned[object] | None", source.fetch(kept))
        )
        return cast("Versioned[T] | None", found)


def _place(source: TypedKey[T]) -> RecordPlace:
    return source.table_name, source.key


def _suiting(enough: Callable[[T], bool]) -> Callable[[Versioned[object] | None], bool]:
    return lambda seen: seen is not None and (seen.version.final or enough(cast("T", seen.value)))


def _concerns_all(error: BaseException, *, is_late: bool) -> bool:
    """Whether the error of a read is raised in the waiting threads too; otherwise they read again themselves.

    It is not if only the reading thread was interrupted or cancelled, nor if the key was missing before they called.
    """
    if not isinstance(error, AccelError):
        return False
    return is_late or not isinstance(error, DataNotFound)
