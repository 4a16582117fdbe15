"""A typed key: one key of a versioned table, read and written as records of one class; the cache of records; counters.

    number = TypedKey(tables.table("counters"), "object-ids", NUMBER)
    number.create_if_absent(0)
    after = number.change(lambda now: now + 10).value      # again and again until no other writer came between

Tables keep bytes; a typed key joins table, key and codec. What it gives is a *versioned value*: the record, and which
version of its key it was. Of three kinds of keys there are two kinds of writes:

    | kind      | written by                              | who comes second                                         |
    |-----------|-----------------------------------------|----------------------------------------------------------|
    | immutable | `create_if_absent`                      | gets what stands there: it follows from other keys       |
    | versioned | `change`, `write`                       | decides again on what stands there, or is refused        |
    | deletable | `create_if_absent` or `change`, `delete`| likewise                                                 |

A versioned record may become immutable by growing full (a chunk of history): `is_final` tells so.

**Changing.** There is one loop for all changes, `Table.rewrite`, with one set of rules. A conflict is followed by
another attempt on what stands there by then, after a pause and within `RetrySettings.attempts`; what was read while the
write was settled saves a request. A lost reply is no failure: where the key tells what became of the write, that is the
result; where nobody can tell, the change is asked again and recognises its own work. If that attempt fails too, the
error is AmbiguousWrite and says that the write may have happened.

**Keeping.** With a `RecordCache`, records are decoded once, however many ask, and kept within one bound of bytes:

    | record                                       | asked again                                                    |
    |----------------------------------------------|----------------------------------------------------------------|
    | final: an epoch, a full chunk, a leaf, ...   | never                                                          |
    | growing: a chunk that is not full            | unless it tells enough already; on condition that it changed:  |
    |                                              | no body comes and nothing is decoded if not                    |
    | changing: `is_final` is `never`              | each time, on that condition                                   |

What this process writes is kept as well. Who asks for a final or growing record that is being read waits for that read.
It may have begun before the question, so that what it did not find, or not far enough, may stand there by now: then the
one who waited asks once more. Errors go to all who wait, and are not kept; but a reader that is killed takes nobody
along. Some final records are erased: `erase` and `forget_table` drop them, and what a read or a write brings that began
before. Erased by another process, a record may still be given out here. Records are known by table and key: a table
that may be made anew has a unique id in its name.

**Counters** are keys that hold the next id that nobody has. A process that needs ids raises a counter by a whole block
and gives them out from memory (`IdBlocks`); when it dies the rest of its block is lost, which costs nothing: ids are
63 bits long. A process that is forked has no ids until it takes a block of its own: those in memory are its parent's.
A counter is made once and never anew: one that is not there was deleted, and one that is not above an id in use was put
back from an older version. Both are errors, because the ids that they would give belong to somebody (`check_counter`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Lock
from typing import Final, Generic, TypeAlias, TypeVar, cast

from loaders.counting import CacheStats
from loaders.errors import AccelError, DataNotFound, FormatError, FormatTooNew, TableMissing
from loaders.lifetime import PerProcess
from loaders.shared_loads import Flight, SharedLoads
from loaders.tables.envelope import Stored
from loaders.tables.records import Codec
from loaders.tables.table import NewValue, Table, Unreadable
from loaders.versions import Version, Versioned

T = TypeVar("T")

RecordPlace: TypeAlias = tuple[str, str]
"""Names of table and key."""

VersionId: TypeAlias = tuple[int, bytes]
"""Sequence number and nonce."""

WentBack: TypeAlias = Callable[[str, VersionId, VersionId | None], AccelError]
"""Makes an error of a key, the version that was seen there, and the one that stands there now."""

RECORD_OVERHEAD_BYTES: Final = 1_100
"""What a kept record takes besides itself: its version, its place, its rows in the maps. Measured, rounded up."""


def always(_: object) -> bool:
    """Of records that are never written again."""
    return True


def never(_: object) -> bool:
    """Of records that may change, and of questions that only the newest version answers."""
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
    seen: Versioned[T] | None = None
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


class TypedKey(Generic[T]):
    """One key of a table, with the codec of its records. Threads: any.

    Args:
        table: its table.
        key: in that table.
        codec: turns records into bytes and back.
        is_final: whether a record is never written again, so that it may be kept for ever.
        cache: keeps records decoded; None = they are read and decoded each time.
        went_back: makes the error for a key that holds an earlier version than one that was seen, or one of another
            history, or none; None = that is not checked.
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
        """What stands there; None if nothing does. One request, none for a final record in the cache.

        Args:
            enough: whether a record that may still grow tells what is asked for: then a kept one is given as it is.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew: as their classes say.
        """
        if self._cache is None:
            return self.fetch(None)
        return self._cache.read_changing(self) if self._is_final is never else self._cache.read(self, enough)

    def get(self) -> Versioned[T]:
        """The same where something must stand.

        Raises:
            DataNotFound: nothing does; and as `read`.
        """
        seen = self.read()
        if seen is None:
            raise DataNotFound(self._table.name, self.key, "expected a value, found none")
        return seen

    def read_newer(self, seen: Versioned[T]) -> Versioned[T]:
        """What stands there now; the same object if nothing changed, and then no body was sent. One request.

        Raises:
            DataNotFound: nothing; or what `went_back` makes, for this and for an earlier version. And as `read`.
        """
        try:
            entry = self._table.get_if_newer(self.key, seen.version)
        except DataNotFound:
            self._refuse_earlier(seen, None)
            raise
        return seen if entry is None else self._decoded(entry, seen)

    def has(self, enough: Callable[[T], bool] = never) -> bool:
        """Whether reading it needs neither a request nor decoding."""
        return self._cache is not None and self._cache.has(self, enough)

    def fetch(self, known: Versioned[T] | None) -> Versioned[T] | None:
        """Read past the cache; None if nothing stands there. One request at most; no body if `known` still stands."""
        if known is None:
            entry = self._table.find(self.key)
            return None if entry is None else self._decoded(entry)
        try:
            entry = self._table.get_if_newer(self.key, known.version)
        except TableMissing:
            raise
        except DataNotFound:
            return None
        return known if entry is None else self._decoded(entry)

    # Writing

    def create_if_absent(self, value: T) -> Versioned[T]:
        """Write a record where there is none; gives what stands there afterwards, this one or another's. One request.

        Raises:
            TableMissing, AmbiguousWrite, StoreError: as their classes say.
        """
        kept = None if self._cache is None else self._cache.final(self)
        if kept is not None:
            return kept
        data, ticket = self._codec.encode(value), self._ticket()
        entry = self._table.create_if_absent(self.key, data, final=self._is_final(value))
        if entry.value is not data:
            return self._keep(self._decoded(entry), ticket)
        return self._keep(Versioned(value, entry.version), ticket)

    def write(self, value: T, seen: Versioned[T]) -> Versioned[T]:
        """Write a record over the one that was seen. One request.

        Raises:
            DataConflict: another one stands there by now.
            DataNotFound: it was deleted.
            AmbiguousWrite: the reply was lost, and what stands there does not tell.
        """
        data, ticket = self._codec.encode(value), self._ticket()
        version = self._table.update(self.key, data, seen.version, final=self._is_final(value))
        return self._keep(Versioned(value, version), ticket)

    def change(self, change: Callable[[T | None], T | None], *, seen: Versioned[T] | None = None) -> Versioned[T]:
        """Write what follows from what stands there, again until no other writer comes between. Two requests.

        Args:
            change: gives the successor of a record (None: there is none), or None where nothing is to be done. May be
                called many times, so it must recognise its own work. What it raises goes to the caller.
            seen: what the caller saw last; tried first, so that nothing is read if it still stands.

        Returns:
            What stands there now: `seen` itself if nothing was to be done about it.

        Raises:
            DataNotFound: nothing is there, and nothing came of it.
            DataConflict: too many lost races.
            AmbiguousWrite: it may have been written; the module has the rule.
            What `went_back` makes: a version earlier than `seen` stands there; nothing was written.
        """
        now = seen if seen is not None or self._cache is None else self.read()
        if seen is None and self._cache is None:
            start = self._table.look(self.key)
        else:
            start = None if now is None else Stored(b"", now.version)
        ticket = self._ticket()
        changed: T | None = None

        def rule(entry: Versioned[bytes] | None) -> NewValue | None:
            nonlocal now, changed
            if entry is None:
                self._refuse_earlier(seen, None)
                now = None
            elif now is None or entry.version is not now.version:
                now = self._decoded(entry, seen)
            changed = change(None if now is None else now.value)
            return None if changed is None else NewValue(self._codec.encode(changed), self._is_final(changed))

        written = self._table.rewrite(self.key, rule, start, repeatable=True, is_from_memory=now is not None)
        if changed is None:
            return cast("Versioned[T]", now)
        return self._keep(Versioned(changed, written.version), ticket)

    def delete(self, seen: Versioned[T] | None = None) -> None:
        """Delete what stands there, by a tombstone; not for final records. Nothing there counts as deleted.

        Args:
            seen: what may be deleted; None = whatever stands there.

        Raises:
            DataConflict: another record stands there.
        """
        try:
            self._table.delete(self.key, None if seen is None else seen.version)
        finally:
            self._forget()

    def erase(self) -> None:
        """Delete a record plainly: a final one, or one that is never written again. No tombstone stays."""
        try:
            self._table.erase(self.key)
        finally:
            self._forget()

    # Damaged keys

    def inspect(self) -> Inspected[T]:
        """What stands there, past all caches, damaged or not. One request.

        Raises:
            TableMissing, StoreError: as their classes say.
        """
        stands = self._table.inspect(self.key)
        if stands is None:
            return Inspected()
        if isinstance(stands, Unreadable):
            return Inspected(stands.etag, error=stands.error)
        try:
            return Inspected(stands.version.etag, self._decoded(stands))
        except FormatError as error:
            return Inspected(stands.version.etag, error=error)

    def restore(self, value: T | None, found: Inspected[T]) -> None:
        """Write a record in the place of what `inspect` found: nothing, bytes that are none, or another record.

        Args:
            value: the record; None = a tombstone.
            found: what is replaced, and nothing else is.

        Raises:
            DataExists, DataConflict, DataNotFound: something else stands there by now.
            AmbiguousWrite, StoreError: as their classes say.
        """
        data = None if value is None else self._codec.encode(value)
        is_final = value is not None and self._is_final(value)
        try:
            if found.is_missing:
                self._table.create(self.key, data or b"", final=is_final)
            else:
                is_sound = self._is_readable if found.seen is None else lambda stands: stands == data
                self._table.replace_unreadable(self.key, data, found.etag, final=is_final, is_sound=is_sound)
        finally:
            self._forget()

    # Inside

    def _decoded(self, entry: Versioned[bytes], seen: Versioned[T] | None = None) -> Versioned[T]:
        self._refuse_earlier(seen, entry.version)
        return Versioned(self._codec.decode(entry.value, self.where), entry.version)

    def _refuse_earlier(self, seen: Versioned[T] | None, stands: Version | None) -> None:
        if seen is None or self._went_back is None or (stands is not None and stands.follows(seen.version)):
            return
        found = None if stands is None else (stands.sequence, stands.nonce)
        raise self._went_back(self.where, (seen.version.sequence, seen.version.nonce), found)

    def _is_readable(self, data: bytes) -> bool:
        try:
            self._codec.decode(data, self.key)
        except FormatError:
            return False
        return True

    def _ticket(self) -> int:
        return 0 if self._cache is None else self._cache.ticket()

    def _keep(self, written: Versioned[T], ticket: int) -> Versioned[T]:
        if self._cache is not None:
            self._cache.keep(self, written, ticket)
        return written

    def _forget(self) -> None:
        if self._cache is not None:
            self._cache.forget(self.table_name, self.key)


@dataclass(frozen=True, slots=True)
class RecordStats:
    """Counts since the start, and what is kept now.

    Args:
        loads: reads of a table that this process made, those that failed included.
        failed: those.
        waits: questions that waited for a read that was under way.
        hits: questions that were answered from memory, without a request and without decoding.
        kept_records: how many records are kept.
        kept_bytes: what they take.
        kept_bytes_max: what they may take.
    """

    loads: int
    failed: int
    waits: int
    hits: int
    kept_records: int
    kept_bytes: int
    kept_bytes_max: int


class RecordCache:
    """Records of typed keys, decoded. Threads: any. No lock is held over a request.

    Args:
        size_bytes_max: bound on what is kept; least recently used records go. 0 = nothing is kept.
        size_of: bytes of memory that a record takes.
    """

    def __init__(self, size_bytes_max: int, size_of: Callable[[object], int]) -> None:
        self._loads: SharedLoads[RecordPlace, Versioned[object] | None] = SharedLoads(
            size_bytes_max, lambda seen: RECORD_OVERHEAD_BYTES + (0 if seen is None else size_of(seen.value))
        )

    def read(self, source: TypedKey[T], enough: Callable[[T], bool] = never) -> Versioned[T] | None:
        """A record that is final, or grows until it is; None if there is none.

        One request at most, and one more of another thread's that is waited for; none if it is kept and final, or
        enough.

        Args:
            source: its key.
            enough: whether a record that may grow further tells what is asked for. Quick.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew: as their classes say.
        """
        suits = _suiting(enough)
        is_late = False  # a read that began before this question may be too old for it
        while True:
            asked = self._loads.ask(_place(source), suits)
            if not isinstance(asked, Flight):
                return cast("Versioned[T] | None", asked)
            if asked.started:
                return self._lead(source, asked)
            error = asked.result.exception()  # waits; what is raised here concerns only the one who waits
            if error is None and (is_late or suits(asked.result.result())):
                return cast("Versioned[T] | None", asked.result.result())
            if error is not None and _concerns_all(error, is_late=is_late):
                raise error
            is_late = True

    def cache_stats(self) -> CacheStats:
        """What is kept, and how it fared."""
        return self._loads.cache_stats()

    def read_changing(self, source: TypedKey[T]) -> Versioned[T] | None:
        """A record that may be written over; None if there is none. One request, without a body if it stands still.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew: as their classes say.
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
        """A record that is kept and final, if there is one."""
        return cast("Versioned[T] | None", self._loads.peek(_place(source))) if self.has(source) else None

    def ticket(self) -> int:
        """To be taken before a write whose record is kept."""
        return self._loads.ticket()

    def keep(self, source: TypedKey[T], written: Versioned[T], ticket: int) -> None:
        """Keep what was written, unless something was forgotten since the ticket was taken."""
        self._loads.keep(_place(source), cast("Versioned[object]", written), ticket)

    def forget(self, table: str, key: str) -> None:
        """Drop a record: after it was erased, before anybody is told so."""
        self._loads.forget((table, key))

    def forget_table(self, table: str) -> None:
        """Drop all records of a table: likewise. O(everything that is kept)."""
        self._loads.forget_all(lambda place: place[0] == table)

    def stats(self) -> RecordStats:
        """Counts so far."""
        counts = self._loads.counts()
        return RecordStats(
            loads=counts.landed + counts.failed,
            failed=counts.failed,
            waits=counts.joined,
            hits=counts.hits,
            kept_records=counts.kept,
            kept_bytes=counts.kept_bytes,
            kept_bytes_max=counts.kept_bytes_max,
        )

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
    """Whether the error of a read is one for those as well who joined it; otherwise they read for themselves.

    It is not if only the reading thread was killed or cancelled; nor if it found nothing, at a time before they asked.
    """
    if not isinstance(error, Exception) or isinstance(error, CancelledError):
        return False
    return is_late or not isinstance(error, DataNotFound)


# Counters

IDS_AT_ONCE_MAX: Final = 1 << 20


def check_counter(now: int | None, highest_id: int, where: str, damaged: Callable[[str], AccelError]) -> int:
    """The next id that nobody has, by a counter that was read after the ids in use.

    Args:
        now: what the counter says; None = it is not there.
        highest_id: the highest id in use that was seen; -1 = none was.
        where: the counter, for errors.
        damaged: makes the error.

    Raises:
        What `damaged` makes: there is no counter, or it is not above an id in use.
    """
    if now is None:
        raise damaged(f"expected a counter in {where}, found none: it was deleted")
    if now <= highest_id:
        expected = f"a number above {highest_id}, the highest id in use"
        raise damaged(f"{where}: expected {expected}, found {now}: it went back")
    return now


class _Free:
    """What one process knows: the ids that it has taken and not given out, and the highest in use that it has seen."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.blocks: list[range] = []
        self.highest_id = -1


class IdBlocks:
    """Allocates ids of one counter, each once. Threads: any; no lock is held over I/O.

    Args:
        counter: the counter.
        block: how many ids one write takes at least.
        damaged: makes the error for a counter that is gone, or is not above the ids in use.
    """

    def __init__(self, counter: TypedKey[int], block: int, damaged: Callable[[str], AccelError]) -> None:
        self._counter = counter
        self._block = block
        self._damaged = damaged
        self._free = PerProcess("ids", _Free)

    def note(self, highest_id: int) -> None:
        """Take notice of an id in use: a counter that is not above it is refused from now on."""
        with (free := self._free()).lock:
            free.highest_id = max(free.highest_id, highest_id)

    def refuse_lost(self) -> None:
        """Look whether the counter is there, and above the ids in use that were seen. One request.

        Raises:
            What `damaged` makes: it is not.
            StoreError, TableError, CorruptObject, FormatTooNew: it cannot be read.
        """
        highest_id = self._highest_id()
        seen = self._counter.read()
        check_counter(None if seen is None else seen.value, highest_id, self._counter.where, self._damaged)

    def take(self, count: int = 1) -> list[int]:
        """A number of new ids, ascending. No request while the block lasts, else two.

        Raises:
            ValueError: a count below 1, or above 1,048,576.
            What `damaged` makes: the counter was deleted, or is not above the ids in use that were seen.
            StoreError, TableError: the counter could not be raised.
        """
        if not 1 <= count <= IDS_AT_ONCE_MAX:
            raise ValueError(f"expected 1 to {IDS_AT_ONCE_MAX} ids at once, found {count}")
        while True:
            taken = self._take_free(count)
            if taken is not None:
                return list(taken)
            block = self._allocate(max(count, self._block))
            with (free := self._free()).lock:
                free.blocks.append(block)

    def free_now(self) -> int:
        """How many ids can be given out without a request."""
        with (free := self._free()).lock:
            return max((len(block) for block in free.blocks), default=0)

    def _highest_id(self) -> int:
        with (free := self._free()).lock:
            return free.highest_id

    def _take_free(self, count: int) -> range | None:
        with (free := self._free()).lock:
            for at, block in enumerate(free.blocks):
                if len(block) >= count:
                    free.blocks[at : at + 1] = [rest for rest in [block[count:]] if rest]
                    return block[:count]
        return None

    def _allocate(self, count: int) -> range:
        highest_id = self._highest_id()

        # Asked again after a lost reply it takes another block: the first one is burnt, which is fine.
        def raised(now: int | None) -> int:
            return check_counter(now, highest_id, self._counter.where, self._damaged) + count

        try:
            after = self._counter.change(raised).value
        except TableMissing as error:
            raise self._damaged(f"expected a counter in {self._counter.where}, found no such table") from error
        return range(after - count, after)
