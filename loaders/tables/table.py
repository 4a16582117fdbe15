"""One versioned table: values by key; a write succeeds only if its writer has read the stored version.

A table reads, creates, changes and deletes one key; `keys` lists many. The meaning of each outcome:

    | error          | meaning                                      | written?  | what to do                       |
    |----------------|----------------------------------------------|-----------|----------------------------------|
    | DataExists     | there is a live value already                | no        | read it                          |
    | DataNotFound   | there is no live value                       | no        | create it, if it should exist    |
    | TableMissing   | (a DataNotFound) the table does not exist    | no        | create the table                 |
    | DataConflict   | another version than the caller's is stored  | no        | read, decide, write again        |
    | AmbiguousWrite | the reply was lost, and later writes hide it | not known | read, decide by the value        |
    | StoreError     | the store does not answer, or refuses        | no        | see its advice                   |

A read is one request. A write is one request if its reply is clear, and one more
read for each unclear reply; `conditional_write` has the rules.

A table exists if its marker exists. The marker is read when a key is missing, before the first create and before the
first listing. Once it was found, it is never read again: a later drop by another process is not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, TypeAlias

from loaders.errors import (
    AmbiguousWrite,
    DataConflict,
    DataExists,
    DataNotFound,
    FormatError,
    KeyMissing,
    StoreError,
    TableMissing,
)
from loaders.layout import decode_name, encode_prefix, marker_key, value_key
from loaders.store.base import ObjectStore
from loaders.tables.conditional_write import (
    SEQUENCE_JUMP,
    TOMBSTONE_SIZE_BYTES,
    ConditionalWriter,
    Outcome,
    Settled,
    Stored,
    sequence_beyond,
)
from loaders.versions import NONCE_SIZE_BYTES, UNKNOWN_ETAG, Entry, Version, Versioned


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


@dataclass(frozen=True, slots=True)
class TableParts:
    """The parts that the tables of one `Tables` share.

    Args:
        store: contains the tables.
        writer: writes values, and finds the outcomes.
    """

    store: ObjectStore
    writer: ConditionalWriter


class TableFolder:
    """The keys of one table, for reading. Threads: any.

    Args:
        table: the table's name.
        prefix: the beginning of its keys.
        parts: shared with other tables.
        state: whether the table exists, as far as known.
    """

    def __init__(self, table: str, prefix: str, parts: TableParts, state: TableState) -> None:
        self.table = table
        self.parts = parts
        self.state = state
        self._prefix = prefix

    def store_key(self, key: str) -> str:
        """The store key of a key's value; ValueError for an invalid name."""
        return value_key(self._prefix, key)

    def check_exists(self) -> None:
        """Raise TableMissing unless the marker exists, or was found before. At most one request."""
        if self.state.marker is not None:
            return
        began_with = self.state.generation
        marker = self.parts.writer.with_limit(0).read(marker_key(self._prefix))
        if marker is None:
            raise TableMissing(self.table, "", "expected a table, found no marker")
        if self.state.generation is began_with:  # not dropped by this process meanwhile
            self.state.marker = marker.version.nonce

    def look(self, key: str, known: Version | None = None) -> Stored | None:
        """Return the current version at a key, tombstones included; None if there is none. At most one request.

        Args:
            key: the key.
            known: the version of the caller: if it is still current, it is returned with an empty value.
        """
        store_key = self.store_key(key)
        try:
            fetched = self.parts.writer.fetch(store_key, known)
        except KeyMissing:
            return None
        if fetched is None and known is not None:
            return Stored(b"", known)
        if fetched is None:
            raise ValueError("expected a body for an unconditional request, found 'not modified'")
        return self.parts.writer.decode(store_key, fetched)

    def listed(self, prefix: str, after: str) -> Iterator[str]:
        """Iterate over the live keys; see `Table.keys`."""
        self.check_exists()
        start_after = self._prefix + encode_prefix(after) if after else ""
        for info in self.parts.store.list(self._prefix + encode_prefix(prefix), start_after):
            key = _key_of(info.key[len(self._prefix) :])
            if key is not None and info.size_bytes != TOMBSTONE_SIZE_BYTES:
                yield key


def _key_of(segment: str) -> str | None:
    try:
        return decode_name(segment)
    except ValueError:
        return None  # the marker, or an object that no table wrote


Change: TypeAlias = Callable[[bytes | None], bytes | None]
"""Returns the new value for an old one. As argument, None is a missing value; as result, no change."""


class NewValue(NamedTuple):
    """The result of a rule."""

    value: bytes
    is_final: bool = False


Rule: TypeAlias = Callable[[Entry | None], NewValue | None]
"""A change of values with their versions."""

FRESH_FROM_ATTEMPT = 6
"""From this attempt on, the value is read again after the pause, and the change is applied to it."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes at a key that are not a valid value of this key.

    Args:
        etag: of the object.
        sequence: a number above the sequence numbers of all versions of the key.
        error: the error of a read: CorruptObject, or FormatTooNew if a newer release wrote the bytes.
    """

    etag: str
    sequence: int
    error: FormatError


class Table:
    """A table; `Tables.table` returns it, without a request. Threads: any.

    Args:
        folder: the table's keys, for reading.
    """

    def __init__(self, folder: TableFolder) -> None:
        self.name = folder.table
        self._folder = folder
        self._writer = folder.parts.writer

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # Reading one key

    def get(self, key: str) -> Entry:
        """Read a value. One request.

        Raises:
            DataNotFound: it does not exist, or was deleted.
            TableMissing: the table does not exist.
        """
        entry = self.find(key)
        if entry is None:
            raise self._not_found(key)
        return entry

    def find(self, key: str) -> Entry | None:
        """Read a value; None if there is none. Otherwise as `get`."""
        stored = self._folder.look(key)
        if stored is None:
            self._folder.check_exists()
            return None
        return stored.entry

    def get_if_newer(self, key: str, version: Version) -> Entry | None:
        """Read a value; None, without a body, if it still has this version. At most one request.

        Raises:
            DataNotFound, TableMissing: as for `get`.
        """
        if version.final:
            return None
        stored = self._folder.look(key, version)
        if stored is None:
            self._folder.check_exists()
        if stored is None or stored.entry is None:
            raise self._not_found(key)
        return None if stored.version == version else stored.entry

    def exists(self, key: str) -> bool:
        """Whether there is a live value. Costs as much as a read."""
        return self.find(key) is not None

    # Writing one key

    def create(self, key: str, value: bytes, *, final: bool = False) -> Version:
        """Write a value if there is none. One request; three over a tombstone.

        Args:
            key: its key.
            value: the value.
            final: whether the key will never be written again, so that its readers may keep the value for ever.

        Raises:
            DataExists: there is a value.
            TableMissing: the table does not exist.
            AmbiguousWrite: see the module docstring.
        """
        settled = self._create(key, value, final=final)
        if settled.outcome is Outcome.LOST:
            raise DataExists(self.name, key, f"expected no value, found {_described(settled)}")
        return self._version(key, settled)

    def create_if_absent(self, key: str, value: bytes, *, final: bool = False) -> Entry:
        """Write a value if there is none, and return the stored entry: this one, or another writer's.

        Raises:
            TableMissing: as for `create`.
            AmbiguousWrite: as for `create`, but only if the key is missing afterwards.
        """
        settled = self._create(key, value, final=final)
        if settled.current is not None and settled.current.entry is not None:
            return settled.current.entry
        return Versioned(value, self._version(key, settled))

    def update(self, key: str, value: bytes, version: Version, *, final: bool = False) -> Version:
        """Replace this version of a value. One request.

        Raises:
            DataNotFound: it does not exist any more, or was deleted.
            DataConflict: another version is stored; the error's `entry` is that version.
            TableMissing, AmbiguousWrite: as for `create`.
            ValueError: the version is final.
        """
        settled = self._write(key, value, version, final=final)
        if settled.outcome is Outcome.LOST:
            self._lost(key, version, settled)
        return self._version(key, settled)

    def delete(self, key: str, version: Version | None = None) -> None:
        """Replace a value by a tombstone. One request with a version, two without.

        Args:
            key: its key; a missing or deleted key is a success.
            version: the version that may be deleted; None = any version.

        Raises:
            DataConflict: another version is stored.
            TableMissing, AmbiguousWrite: as for `create`.
            ValueError: the value is final: use `erase`.
        """
        if version is not None:
            settled = self._delete(key, version)
            if settled.outcome is Outcome.LOST and not settled.is_gone:
                self._lost(key, version, settled)
            return
        stored = self._folder.look(key)
        for _ in self._writer.backoff.attempts():
            if stored is None:
                self._folder.check_exists()
            if stored is None or stored.is_tombstone:
                return
            settled = self._delete(key, stored.version)
            if settled.outcome is not Outcome.LOST:
                return
            stored = settled.current
        raise self._others_were_faster(key, stored)

    def erase(self, key: str) -> None:
        """Delete a key without a tombstone: for keys that are never written again. One request.

        If the key may be written later, use `delete`: real servers lose plain deletes that race with conditional
        writes. A missing key is a success.

        Raises:
            TableMissing: the table does not exist.
        """
        store_key = self._folder.store_key(key)
        self._folder.check_exists()
        self._writer.backoff.ask(lambda: self._folder.parts.store.delete(store_key))

    def update_with(self, key: str, change: Change, *, repeatable: bool = False) -> Entry:
        """Read, change and write; repeat until no other writer interferes. Two requests without interference.

        Args:
            key: its key.
            change: returns the new value for the old one (None: there is none); may be called many times. If it
                returns None, nothing is written. The call raises its errors.
            repeatable: the change returns None for a value that it has already changed. An ambiguous write is then
                followed by another attempt instead of an error.

        Returns:
            The written entry; or the stored one, if nothing was written.

        Raises:
            DataConflict: other writers were faster, `RetrySettings.attempts` times.
            DataNotFound: there is no value, and the change returned None.
            TableMissing, AmbiguousWrite: as for `create`.
            ValueError: the value is final.
        """

        def rule(entry: Entry | None) -> NewValue | None:
            value = change(None if entry is None else entry.value)
            return None if value is None else NewValue(value)

        return self.rewrite(key, rule, self.look(key), repeatable=repeatable)

    # For typed keys

    def look(self, key: str) -> Stored | None:
        """Return the current version at a key, tombstones included; None if there is none. At most one request."""
        return self._folder.look(key)

    def rewrite(
        self, key: str, rule: Rule, start: Stored | None, *, repeatable: bool, is_from_memory: bool = False
    ) -> Entry:
        """The loop of all changes: `update_with`, and `TypedKey.change`.

        Args:
            key: its key.
            rule: as the change of `update_with`, for values with their versions.
            start: the last version that the caller read; tried first. The rule gets it unchanged.
            repeatable: as for `update_with`.
            is_from_memory: whether `start` was read some time ago: if it is out of date, that is not a race, and no
                pause follows.

        Returns:
            The written entry; or the stored one, if nothing was written.

        Raises:
            AccelError: as for `update_with`.
        """
        pauses_from = 2 if is_from_memory else 1
        return self._rewrite(key, rule, start, self._attempts, repeatable=repeatable, pauses_from=pauses_from)

    # Damaged keys

    def inspect(self, key: str) -> Entry | Unreadable | None:
        """Return the content of a key: a value, unreadable bytes, or None. One request, rarely two.

        Raises:
            TableMissing: the table does not exist.
        """
        store_key = self._folder.store_key(key)
        try:
            fetched = self._writer.fetch(store_key)
        except KeyMissing:
            self._folder.check_exists()
            return None
        except FormatError as error:  # longer than any value: only a listing has its ETag
            listed = self._folder.parts.store.list(store_key)
            etag = next((info.etag for info in listed if info.key == store_key), None)
            return None if etag is None else Unreadable(etag, SEQUENCE_JUMP, error)
        if fetched is None:
            raise ValueError("expected a body for an unconditional request, found 'not modified'")
        try:
            return self._writer.decode(store_key, fetched).entry
        except FormatError as error:
            return Unreadable(fetched.etag, sequence_beyond(fetched.body), error)

    def replace_unreadable(
        self,
        key: str,
        value: bytes | None,
        etag: str,
        *,
        final: bool = False,
        is_sound: Callable[[bytes], bool] = lambda _: True,
    ) -> Version:
        """Replace bytes that cannot be read by a value, or by a tombstone (None). Two requests.

        The write is conditional on the ETag of those bytes, since they have no version. Its sequence number is above
        all earlier sequence numbers of the key (`Unreadable.sequence`), so that readers see only ascending versions.

        Args:
            key: its key.
            value: the value to write.
            etag: the ETag of the unreadable bytes, from `inspect`.
            final: as for `create`.
            is_sound: returns whether the bytes of a value are a record; other values are overwritten too, even final
                ones. By default every value is sound.

        Raises:
            DataConflict: the key holds a sound value, or has changed; the error's `entry` is the stored value.
            DataNotFound: the key is missing.
            TableMissing, AmbiguousWrite: as for `create`.
        """
        content = self.inspect(key)
        if content is None:
            raise self._not_found(key)
        entry = None if isinstance(content, Unreadable) else content
        now = content.etag if isinstance(content, Unreadable) else content.version.etag
        if now != etag or (entry is not None and is_sound(entry.value)):
            error = DataConflict(self.name, key, f"expected unreadable bytes with ETag {etag}, found {now}")
            error.entry = entry
            raise error
        # No version of any key has a nonce of zeros, so another write is never mistaken for these bytes.
        sequence = content.sequence if isinstance(content, Unreadable) else content.version.sequence
        ancestors = b"" if entry is None else entry.version.lineage
        base = Version(etag, sequence, bytes(NONCE_SIZE_BYTES), final=False, ancestors=ancestors)
        settled = self._write(key, value, base, final=final)
        if settled.outcome is Outcome.LOST:
            self._lost(key, base, settled)
        return self._version(key, settled)

    # Many keys

    def keys(self, prefix: str = "", after: str = "") -> Iterator[str]:
        """Iterate over the live keys that begin with `prefix` and are after `after`, in the order of encoded names.

        Lazy: one request for 1,000 keys, tombstones included.

        Raises:
            TableMissing: the table does not exist; raised with the first key.
        """
        return self._folder.listed(prefix, after)

    # Private methods

    @property
    def _attempts(self) -> int:
        return self._writer.backoff.settings.attempts

    def _create(self, key: str, value: bytes, *, final: bool = False) -> Settled:
        self._folder.check_exists()
        base: Version | None = None
        for attempt in range(1, self._attempts + 1):
            settled = self._write(key, value, base, final=final)
            if settled.outcome is not Outcome.LOST or not settled.is_gone:
                return settled
            if base is not None:
                self._writer.backoff.pause(attempt)
            # A create over a tombstone is an update of the tombstone.
            base = None if settled.current is None else settled.current.version
        raise self._others_were_faster(key, None)

    def _delete(self, key: str, version: Version) -> Settled:
        settled = self._write(key, None, version)
        if settled.is_gone and settled.current is None:
            self._folder.check_exists()
        if not settled.is_gone and settled.outcome is Outcome.AMBIGUOUS:
            self._version(key, settled)
        return settled

    def _rewrite(
        self, key: str, rule: Rule, stored: Stored | None, attempts: int, *, repeatable: bool, pauses_from: int = 1
    ) -> Entry:
        for attempt in range(1, attempts + 1):
            entry = None if stored is None else stored.entry
            new = rule(entry)
            if new is None:
                return self._left_alone(key, entry)
            if stored is None:
                settled = self._create(key, new.value, final=new.is_final)
            else:
                settled = self._write(key, new.value, stored.version, final=new.is_final)
            if settled.outcome is not Outcome.LOST:
                return self._rewritten(key, new.value, settled, rule if repeatable else None, attempts - attempt)
            if attempt >= pauses_from:
                self._writer.backoff.pause(attempt)
            # The value that the write read saves a request, unless many writers replace it during the pause.
            stored = settled.current if attempt < FRESH_FROM_ATTEMPT else self._folder.look(key)
        raise self._others_were_faster(key, stored)

    def _rewritten(self, key: str, value: bytes, settled: Settled, rule: Rule | None, attempts: int) -> Entry:
        if settled.outcome is Outcome.WRITTEN or rule is None or attempts == 0:
            return Versioned(value, self._version(key, settled))
        try:
            return self._rewrite(key, rule, self._folder.look(key), attempts, repeatable=True)
        except (StoreError, DataConflict, DataNotFound) as error:
            # These mean "not written", but the ambiguous write may have happened.
            raise self._ambiguous(key, settled) from error

    def _write(self, key: str, value: bytes | None, base: Version | None, *, final: bool = False) -> Settled:
        store_key = self._folder.store_key(key)
        if base is not None and base.final:
            raise ValueError(f"table {self.name!r}, key {key!r}: expected a value that is not final, found a final one")
        if base is not None and base.etag == UNKNOWN_ETAG:
            return Settled(Outcome.LOST, self._writer.read(store_key))
        return self._writer.write(store_key, value, base, final=final)

    def _version(self, key: str, settled: Settled) -> Version:
        if settled.version is None:
            raise self._ambiguous(key, settled) from settled.cause
        return settled.version

    def _left_alone(self, key: str, entry: Entry | None) -> Entry:
        if entry is None:
            self._folder.check_exists()
            raise self._not_found(key)
        return entry

    def _lost(self, key: str, version: Version, settled: Settled) -> NoReturn:
        if settled.current is None:
            self._folder.check_exists()
        detail = f"expected version {version.sequence} ({version.nonce.hex()}), found {_described(settled)}"
        if settled.is_gone:
            raise DataNotFound(self.name, key, detail)
        raise self._conflict(key, detail, settled.current)

    def _not_found(self, key: str) -> DataNotFound:
        return DataNotFound(self.name, key, "expected a value, found none")

    def _ambiguous(self, key: str, settled: Settled) -> AmbiguousWrite:
        detail = "the reply was lost, and the stored value does not show whether it was written"
        return AmbiguousWrite(self.name, key, f"{detail}: {_described(settled)}")

    def _others_were_faster(self, key: str, current: Stored | None) -> DataConflict:
        return self._conflict(key, f"other writers wrote first, {self._attempts} times in a row", current)

    def _conflict(self, key: str, detail: str, current: Stored | None) -> DataConflict:
        error = DataConflict(self.name, key, detail)
        error.entry = None if current is None else current.entry
        return error


def _described(settled: Settled) -> str:
    if not settled.is_current_known:
        return "it cannot be read"
    if settled.current is None:
        return "nothing"
    version = settled.current.version
    kind = "a tombstone, version" if settled.current.is_tombstone else "version"
    return f"{kind} {version.sequence} ({version.nonce.hex()})"
