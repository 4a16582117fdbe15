"""Names of scopes and streams, the scope or stream with each name, and orphaned tables.

A name has one entry (`accel.history.rules.states`), written by compare-and-set. The scope or stream that has the name
is listed under a separate key, with the unique id in it:

    entry/<name>         the scope or stream with the name, its phase   written several times, never listed
    listed/<name>/<id>   empty                                          written once, erased without a tombstone

The entry is written first and deleted last. So a listed key whose id is not in the entry *afterwards* belongs to a
deleted scope or stream: an id is written to an entry once, before it is listed. Any process that finds such a key
erases it.
The entry of a deleted stream remains and contains its numbers. The entry of a deleted scope is replaced by a tombstone,
as the name may be used again. Neither is ever in a listing.

**Deleting a scope against creating a stream in it.** Two keys are involved, so the order decides:

    delete D   1 the scope's entry: CLOSING    2 lists its streams     3 none: DELETING, over the version of step 1;
                                                                         some: LIVE again, over that version
    create C   1 its own entry, and its key    2 reads the scope's entry: continues only if it is LIVE

If C reads LIVE after its key is written, then any CLOSING that leads to DELETING was written later, or was reverted;
so the list that follows CLOSING has C's key, and D sets the scope to LIVE again. If C does not read LIVE, it finishes
the deletion of D, and finds its own key, or the scope deleted. A late deleter fails: its write is conditional on a
version that is no longer current.

**Orphaned tables** are left by creations that were overtaken. A creator first writes its unique id into the entry, and
then creates tables with that id in their names. If another process finds the entry without tables meanwhile, the name
gets another id, and the first creator drops its tables; if the creator dies before that, its tables remain. They are
harmless, as no id is used again, but only recovery deletes them (`OrphanedTables`). An id is in the entry before any of
its tables is created, and never again after another id replaced it. So a listed table whose id is not in the entry
*afterwards* is unused for good. A process that still works on the table finds it missing, as if the first creator had
dropped it. The same holds for a dropped table of a deleted stream in which a write has left a key that came late.

Source: PDP-35.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeVar
from uuid import UUID

from accel.errors import IllegalState, NotInHistory, OperationNotAllowed, Sought, StreamDeleted
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.states import NamePhase, ScopeEntry, StreamEntry
from accel.history.store import keys
from accel.history.store.keys import MARK, make_system_tables
from accel.history.store.parts import StoreParts
from loaders.errors import AmbiguousWrite, DataConflict, DataNotFound, TableMissing
from loaders.tables import Table, TypedKey, Versioned, raw_key
from loaders.tables.typed_key import always

Answer = TypeVar("Answer")
Entry = TypeVar("Entry", ScopeEntry, StreamEntry)

ATTEMPTS_MAX: Final = 32
"""Maximum number of attempts when other processes change the entry of a name concurrently."""


@dataclass(frozen=True, slots=True)
class NamedStream:
    """The stream that had a name when its entry was read.

    Args:
        identity: the stream.
        scope_id: the unique id of its scope.
        seen: its versioned entry.
    """

    identity: keys.StreamIdentity
    scope_id: UUID
    seen: Versioned[StreamEntry]

    @property
    def entry(self) -> StreamEntry:
        """The entry without its version."""
        return self.seen.value


@dataclass(frozen=True, slots=True)
class WantedStream:
    """A stream that is to be created.

    Args:
        wanted: its configuration.
        time_ms: time of its creation, milliseconds since 1970.
        segments: number of segments at first.
        first_number: the lowest number that its first segment may have.
    """

    wanted: StreamConfiguration
    time_ms: int
    segments: int
    first_number: int


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Scopes and streams by name. Threads: any; processes: any, decided by compare-and-set on entries.

    Args:
        parts: the parts of the store.
    """

    _parts: StoreParts

    # Scopes

    def create_scope(self, scope: str) -> bool:
        """Create a scope, or finish its creation; return False if it exists.

        Raises:
            InvalidArgument: not a valid name.
        """
        key, drawn = self._parts.keys.scope(keys.checked_name("scope", scope)), self._drawn()
        made = False
        for attempt in range(1, ATTEMPTS_MAX + 1):
            versioned = self._with_tables(lambda: key.create_if_absent(ScopeEntry(drawn)))
            if versioned.value.phase is NamePhase.LIVE:
                return made or versioned.value.unique_id == drawn
            if versioned.value.phase is NamePhase.CREATING:
                made = self._finish_scope(scope, versioned) is not None
                continue
            self._finish_deleting(scope, versioned)
            self._parts.backoff.pause(attempt)
        raise _busy(f"scope {scope!r}")

    def delete_scope(self, scope: str) -> None:
        """Delete a scope without streams; a missing scope counts as deleted.

        Raises:
            IllegalState: it has streams.
        """
        key = self._parts.keys.scope(keys.checked_name("scope", scope))
        for attempt in range(1, ATTEMPTS_MAX + 1):
            versioned = self._with_tables(key.read)
            if versioned is None:
                return
            if versioned.value.phase in (NamePhase.CREATING, NamePhase.LIVE):
                self._refuse_streams(scope, versioned.value)  # before anything is written
                closing = _moved(key, versioned, versioned.value.with_phase(NamePhase.CLOSING))
                if closing is None:
                    self._parts.backoff.pause(attempt)
                    continue
                versioned = closing
            if self._finish_deleting(scope, versioned):
                return
            self._parts.backoff.pause(attempt)
        raise _busy(f"scope {scope!r}")

    def settle_scope(self, scope: str) -> str | None:
        """Finish an interrupted creation or deletion of a scope; return which, or None. 1 call if there is none."""
        versioned = self._with_tables(self._parts.keys.scope(scope).read)
        if versioned is None or versioned.value.phase is NamePhase.LIVE:
            return None
        if versioned.value.phase is NamePhase.CREATING:
            self._finish_scope(scope, versioned)
            return "create scope"
        self._finish_deleting(scope, versioned)
        return "delete scope"

    def scopes(self) -> Iterator[str]:
        """All scopes, in the order of their encoded names."""
        return _listed_names(self._parts.keys.scopes)

    # Streams

    def streams(self, scope: str, after: str = "") -> Iterator[str]:
        """The streams of a scope after a name; half-created and half-deleted streams are included.

        Raises:
            NotInHistory: there is no such scope.
        """
        return _listed_names(self._parts.keys.streams(scope, self._scope(scope).unique_id), after)

    def look(self, scope: str, name: str) -> NamedStream | None:
        """The stream that has, or last had, a name; None if no stream ever had it. 2 calls.

        Raises:
            NotInHistory: there is no such scope.
        """
        scope_id = self._scope(scope).unique_id
        try:
            versioned = self._parts.keys.stream(scope, scope_id, keys.checked_name("stream", name)).read()
        except TableMissing:
            return None
        return None if versioned is None else _named(scope, name, scope_id, versioned)

    def find(self, scope: str, name: str) -> keys.StreamIdentity:
        """The stream that has a name. 2 calls.

        Raises:
            NotInHistory: there is no such stream, or it is half created.
            StreamDeleted: the stream is being deleted.
        """
        named = self.look(scope, name)
        if named is None or named.entry.phase is NamePhase.FREE:
            raise NotInHistory(f"expected a stream of scope {scope!r}, found none named {name!r}", Sought.STREAM)
        if named.entry.phase is NamePhase.CREATING:
            raise NotInHistory(
                f"expected a stream, found {named.identity} half created: create it again", Sought.STREAM
            )
        if named.entry.phase is NamePhase.DELETING:
            raise StreamDeleted(str(named.identity), str(named.identity.unique_id))
        return named.identity

    def claim(self, scope: str, name: str, stream: WantedStream) -> NamedStream:
        """Return the stream that has a name, in any phase, or enter a new stream. 8 calls for a new stream.

        A returned stream in the phase CREATING is listed, and its scope was found LIVE after that.

        Raises:
            NotInHistory: there is no such scope.
            InvalidArgument: not a valid name, or numbers out of bounds.
        """
        drawn = self._drawn()
        keys.checked_name("stream", name)
        StreamEntry.new(drawn, stream.wanted, stream.time_ms, stream.first_number, stream.segments)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            scope_id = self._scope_to_create_in(scope)
            try:
                versioned = self._entered(scope, scope_id, name, drawn, stream)
                if versioned is not None and versioned.value.phase is NamePhase.CREATING:
                    listed = keys.listed_key(name, versioned.value.unique_id)
                    table = self._parts.keys.streams(scope, scope_id)
                    raw_key(table, listed, is_final=always).create_if_absent(MARK)
            except TableMissing:  # the scope was deleted meanwhile
                versioned = None
            if self._is_still(scope, scope_id) and versioned is not None:
                return _named(scope, name, scope_id, versioned)
            self._parts.backoff.pause(attempt)
        raise _busy(f"stream {scope}/{name}")

    def acknowledge(self, named: NamedStream) -> bool:
        """Set a created stream to LIVE; return False if another process decided otherwise. 1 call."""
        key = self._entry(named)
        if _moved(key, named.seen, named.entry.with_phase(NamePhase.LIVE)) is not None:
            return True
        versioned = self._read(key)
        is_same = versioned is not None and versioned.value.unique_id == named.identity.unique_id
        return is_same and versioned is not None and versioned.value.phase is NamePhase.LIVE

    def delete(self, named: NamedStream) -> NamedStream | None:
        """Set a stream to DELETING; return None if the entry was written since. 1 call."""
        versioned = _moved(self._entry(named), named.seen, named.entry.with_phase(NamePhase.DELETING))
        return (
            None if versioned is None else _named(named.identity.scope, named.identity.name, named.scope_id, versioned)
        )

    def remember(self, named: NamedStream, last_number: int) -> NamedStream | None:
        """Raise the last segment number, which outlives the stream; None if the entry was written since. 3 calls."""
        entry = named.entry.with_last_number(last_number)
        kept = self._parts.keys.last_number(named.identity.scope, named.identity.name)
        kept.change(lambda known: entry.last_number if known is None or entry.last_number > known else None)
        if entry == named.entry:
            return named
        versioned = _moved(self._entry(named), named.seen, entry)
        return (
            None if versioned is None else _named(named.identity.scope, named.identity.name, named.scope_id, versioned)
        )

    def release(self, named: NamedStream) -> None:
        """Erase the listed key of a stream without tables, and free its name if its entry is unchanged. 2 calls."""
        self.unlist(named)
        _moved(self._entry(named), named.seen, named.entry.with_phase(NamePhase.FREE))

    def unlist(self, named: NamedStream) -> None:
        """Erase the listed key of a stream. 1 call."""
        table = self._parts.keys.streams(named.identity.scope, named.scope_id)
        try:
            raw_key(table, keys.listed_key(named.identity.name, named.identity.unique_id)).erase()
        except TableMissing:
            return

    def is_gone(self, identity: keys.StreamIdentity) -> bool:
        """Whether a stream is being deleted or no longer exists. 2 calls."""
        try:
            named = self.look(identity.scope, identity.name)
        except NotInHistory:
            return True
        return (
            named is None
            or named.identity != identity
            or named.entry.phase is NamePhase.DELETING
            or (named.entry.phase is NamePhase.FREE)
        )

    def drop_stale_scope(self, scope: str) -> None:
        """Erase the listed keys of deleted scopes of a name. 2 calls, 1 for each key."""
        table = self._parts.keys.scopes
        listed = list(keys.listed(table, f"{keys.LISTED}{scope}/"))
        versioned = self._parts.keys.scope(scope).read()
        for key, _, unique_id in listed:
            if versioned is None or versioned.value.unique_id != unique_id:
                raw_key(table, key).erase()

    def drop_stale(self, scope: str, name: str) -> bool:
        """Erase the listed keys of deleted streams of a name; return whether there were any. 2 calls, 1 for each key.

        Raises:
            NotInHistory: there is no such scope.
        """
        keys.checked_name("stream", name)
        table = self._parts.keys.streams(scope, self._scope(scope).unique_id)
        listed = list(keys.listed(table, f"{keys.LISTED}{name}/"))
        named = self.look(scope, name)
        stale = [key for key, _, unique_id in listed if named is None or not _has_id(named.entry, unique_id)]
        for key in stale:
            raw_key(table, key).erase()
        return bool(stale)

    # Inside

    def _scope(self, scope: str) -> ScopeEntry:
        versioned = self._with_tables(self._parts.keys.scope(keys.checked_name("scope", scope)).read)
        if versioned is None:
            raise NotInHistory(f"expected a scope, found none named {scope!r}", Sought.SCOPE)
        return versioned.value

    def _scope_to_create_in(self, scope: str) -> UUID:
        """The unique id of a LIVE scope; its interrupted creation or deletion is finished first."""
        key = self._parts.keys.scope(keys.checked_name("scope", scope))
        for attempt in range(1, ATTEMPTS_MAX + 1):
            versioned = self._with_tables(key.read)
            if versioned is None:
                raise NotInHistory(f"expected a scope, found none named {scope!r}", Sought.SCOPE)
            if versioned.value.phase is NamePhase.LIVE:
                return versioned.value.unique_id
            self.settle_scope(scope)
            self._parts.backoff.pause(attempt)
        raise _busy(f"scope {scope!r}")

    def _is_still(self, scope: str, scope_id: UUID) -> bool:
        """Whether a scope still exists, and is LIVE; otherwise its table of streams is dropped."""
        try:
            if self._scope_to_create_in(scope) == scope_id:
                return True
        except NotInHistory:
            self._parts.drop_table(keys.streams_table(scope, scope_id))
            raise
        self._parts.drop_table(keys.streams_table(scope, scope_id))
        return False

    def _finish_scope(self, scope: str, versioned: Versioned[ScopeEntry]) -> Versioned[ScopeEntry] | None:
        self._listed_scope(scope, versioned.value.unique_id).create_if_absent(MARK)
        self._parts.tables.create_table(keys.streams_table(scope, versioned.value.unique_id))
        done = _moved(self._parts.keys.scope(scope), versioned, versioned.value.with_phase(NamePhase.LIVE))
        if done is None:
            self._drop_if_gone(scope, versioned.value.unique_id)
        return done

    def _listed_scope(self, scope: str, scope_id: UUID) -> TypedKey[bytes]:
        return raw_key(self._parts.keys.scopes, keys.listed_key(scope, scope_id), is_final=always)

    def _drop_if_gone(self, scope: str, scope_id: UUID) -> None:
        now = self._parts.keys.scope(scope).read()
        if now is None or now.value.unique_id != scope_id:
            self._parts.drop_table(keys.streams_table(scope, scope_id))
            self._listed_scope(scope, scope_id).erase()

    def _finish_deleting(self, scope: str, versioned: Versioned[ScopeEntry]) -> bool:
        """Continue from CLOSING or DELETING; return False if the entry was written since.

        Raises:
            IllegalState: the scope has streams, and is LIVE again.
        """
        key, scope_id = self._parts.keys.scope(scope), versioned.value.unique_id
        if versioned.value.phase is NamePhase.CLOSING:
            first = self._first_stream(scope, scope_id)
            if first is not None:
                _moved(key, versioned, versioned.value.with_phase(NamePhase.LIVE))
                return False
            deleting = _moved(key, versioned, versioned.value.with_phase(NamePhase.DELETING))
            if deleting is None:
                return False
            versioned = deleting
        self._parts.drop_table(keys.streams_table(scope, scope_id))
        self._listed_scope(scope, scope_id).erase()
        try:
            key.delete(versioned)
        except (DataConflict, AmbiguousWrite):
            return self._parts.keys.scope(scope).read() != versioned
        return True

    def _refuse_streams(self, scope: str, entry: ScopeEntry) -> None:
        first = self._first_stream(scope, entry.unique_id)
        if first is not None:
            raise IllegalState(f"expected a scope without streams, found {scope!r} with {first!r}")

    def _first_stream(self, scope: str, scope_id: UUID) -> str | None:
        """The first stream of a scope; listed keys of deleted streams are erased. 1 call for 1,000, 1 or 2 each."""
        table = self._parts.keys.streams(scope, scope_id)
        try:
            for key, name, unique_id in keys.listed(table):
                versioned = self._parts.keys.stream(scope, scope_id, name).read()
                if versioned is not None and _has_id(versioned.value, unique_id):
                    return name
                raw_key(table, key).erase()
        except TableMissing:
            return None
        return None

    def _entered(
        self, scope: str, scope_id: UUID, name: str, drawn: UUID, stream: WantedStream
    ) -> Versioned[StreamEntry] | None:
        """The entry of a name, new if no stream has the name; None if the entry was written since."""
        key = self._parts.keys.stream(scope, scope_id, name)
        versioned = key.read()
        if versioned is not None and versioned.value.phase is not NamePhase.FREE:
            return versioned
        if versioned is None:
            # The number of a stream in an earlier scope of this name: a deleted stream of this scope leaves its entry.
            kept = self._parts.keys.last_number(scope, name).read()
            last = -1 if kept is None else kept.value
        else:
            last = versioned.value.last_number
        first = max(stream.first_number, last + 1)
        entry = StreamEntry.new(drawn, stream.wanted, stream.time_ms, first, stream.segments)
        if versioned is not None:
            return _moved(key, versioned, entry)
        try:
            versioned = key.create_if_absent(entry)
        except AmbiguousWrite:
            return None
        return None if versioned.value.phase is NamePhase.FREE else versioned

    def _entry(self, named: NamedStream) -> TypedKey[StreamEntry]:
        return self._parts.keys.stream(named.identity.scope, named.scope_id, named.identity.name)

    def _read(self, key: TypedKey[StreamEntry]) -> Versioned[StreamEntry] | None:
        try:
            return key.read()
        except TableMissing:  # it was dropped with its scope
            return None

    def _drawn(self) -> UUID:
        return UUID(bytes=self._parts.system.nonce())

    def _with_tables(self, ask: Callable[[], Answer]) -> Answer:
        """Call `ask`; if the tables that all streams share are missing, create them and call `ask` again."""
        try:
            return ask()
        except TableMissing:
            make_system_tables(self._parts.keys, is_initialised=self._parts.is_initialised)
        return ask()


def _moved(key: TypedKey[Entry], versioned: Versioned[Entry], entry: Entry) -> Versioned[Entry] | None:
    """Replace an entry; return None if another entry was found, or if the result of the write is unknown."""
    try:
        return key.write(entry, versioned)
    except (DataConflict, DataNotFound, AmbiguousWrite):
        return None


def _named(scope: str, name: str, scope_id: UUID, versioned: Versioned[StreamEntry]) -> NamedStream:
    return NamedStream(keys.StreamIdentity(scope, name, versioned.value.unique_id), scope_id, versioned)


def _has_id(entry: StreamEntry, unique_id: UUID) -> bool:
    return entry.unique_id == unique_id and entry.phase is not NamePhase.FREE


def _busy(what: str) -> OperationNotAllowed:
    return OperationNotAllowed(f"expected one process to change {what}, found several: try again")


def _listed_names(table: Table, after: str = "") -> Iterator[str]:
    """Listed names after a name, in order, each once."""
    last = None
    try:
        for _, name, _ in keys.listed(table, after=keys.listed_key(after, _LAST) if after else ""):
            if name != last:
                yield name
            last = name
    except TableMissing:
        return


_TABLE: Final = re.compile(r"(?P<scope>[^/]+)/(?:(?P<stream>[^/]+)/)?[^/#]+\.#\.(?P<id>[0-9a-f-]{36})")
_NO_ID: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)

Owner = tuple[str, str | None]
"""A scope and one of its streams; None for the scope itself."""


@dataclass(frozen=True, slots=True, eq=False)
class OrphanedTables:
    """Finds and drops tables whose id is in no entry. Threads: any.

    Args:
        parts: the parts of the store.
    """

    _parts: StoreParts

    def drop(self, scope: str | None = None) -> list[str]:
        """Drop orphaned tables; return their names. 1 call a table at most, 2 for each scope and stream.

        Args:
            scope: the scope of the tables; None = all scopes, deleted scopes included.
        """
        names = self._parts.tables.table_names("" if scope is None else f"{scope}/", with_dropped=True)
        dropped: list[str] = []
        # All tables of an owner are listed before the owner's id is read.
        for owner, tables in groupby(filter(_owner, names), key=_owner):
            owned = list(tables)
            named = self._named(*owner) if owner else None
            dropped += [key for key in owned if named is not None and not key.endswith(str(named))]
        for table in dropped:
            self._parts.drop_table(table)
        return dropped

    def _named(self, scope: str, stream: str | None) -> UUID | None:
        """The id in the entry of a name; `_NO_ID` if there is no entry; None if it is unknown."""
        shared = self._parts.keys
        with suppress(TableMissing):
            in_scope = shared.scope(scope).read()
            if in_scope is None or stream is None:
                return _NO_ID if in_scope is None else in_scope.value.unique_id
            versioned = shared.stream(scope, in_scope.value.unique_id, stream).read()
            return _NO_ID if versioned is None or versioned.value.phase is NamePhase.FREE else versioned.value.unique_id
        return None


def _owner(table: str) -> Owner | None:
    match = _TABLE.fullmatch(table)
    return None if match is None else (match["scope"], match["stream"])
