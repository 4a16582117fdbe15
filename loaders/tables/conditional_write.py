"""One conditional write, repeated until its outcome is certain, if that is possible.

A PUT with a condition has four kinds of answers, and only the first is certain:

    | answer                  | meaning                                                               |
    |-------------------------|-----------------------------------------------------------------------|
    | 200                     | written                                                               |
    | 412                     | the condition does not hold; perhaps because an earlier copy of this  |
    |                         | request was written, which a client or proxy had sent again           |
    | 409, 500                | another write was under way; written or not (Ceph answers losers 500) |
    | none (a lost reply),    | written, or not, or still under way                                   |
    | 503                     |                                                                       |

So after each other answer the key is read again, and the stored version decides. Each write has its own nonce, and
each stored value contains the nonces of the eight versions before it:

    1. The stored version has the nonce of this write: written.
    2. The key is unchanged (the old version, or still missing): the *same* bytes are sent again, so that an earlier
       copy and this one are the same write, whichever arrives first.
    3. A later version is stored, and contains the nonce of the version with this write's sequence number. If that nonce
       is this write's, the write happened and was overwritten. If not, this write did not happen and never can: its
       condition names a version that will not return.
    4. It does not contain that nonce (more than eight writes ago, or the key is missing). If all answers were 412, the
       write did not happen. Otherwise the outcome cannot be known: it is *ambiguous*.

A write that happened is never reported as failed, and a write that failed is never reported as done. A StoreError
that is raised here means: not written. If that is not certain, the outcome is ambiguous.

**Bytes.** The bytes around every stored value, which distinguish the versions of its key.

    | at  | bytes | field          | meaning                                                           |
    |-----|-------|----------------|-------------------------------------------------------------------|
    | 0   | 4     | magic          | AC 56 41 4C                                                       |
    | 4   | 1     | version        | of this envelope: 2                                               |
    | 5   | 1     | flags          | 1: a tombstone; 2: a final value                                  |
    | 6   | 2     | reserved       | zero                                                              |
    | 8   | 8     | sequence       | 1 for the first version of a key, +1 with every write             |
    | 16  | 16    | nonce          | random bytes of this write alone                                  |
    | 32  | 128   | ancestors      | nonces of the 8 versions before, newest first; zeros if missing   |
    | 160 | 4     | CRC-32         | of the value's place, then of all bytes but these four            |
    | 164 | 4     | value's length | not in a tombstone                                                |
    | 168 | n     | value          | not in a tombstone                                                |

All integers are big endian.

The *place* is table and key as in the S3 key, ``<table>/<key>``, in ASCII (``format`` of the format record). It is not
stored: a reader knows the place, and adds it. So a value, a tombstone or a marker at another key than the one it was
written for is as corrupt as one with a damaged byte. A prefix with all keys below it may be copied or moved.

A versioned delete writes a tombstone: 164 bytes, which no live value can have, so a listing distinguishes both by size.
The nonce makes the bytes of every write unique, and with them its ETag: a value that is written again does not look
unchanged to a writer that read it long ago. The nonces of earlier versions show the outcome of a write whose reply was
lost, even after other writers have overwritten it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from loaders.backoff import Backoff
from loaders.errors import (
    AccelError,
    CorruptObject,
    FormatLimit,
    FormatTooNew,
    KeyMissing,
    PreconditionFailed,
    RequestRefused,
    StoreUnavailable,
    WriteConflict,
)
from loaders.layout import place_of
from loaders.store.base import CreateOnly, Fetched, IfMatch, ObjectStore
from loaders.tables.probe import require_conditions
from loaders.versions import NONCE_SIZE_BYTES, UNKNOWN_ETAG, Entry, Version, Versioned

MAGIC = b"\xacVAL"
ENVELOPE_VERSION = 2
TOMBSTONE_SIZE_BYTES = 164
"""Size of a stored tombstone; no stored value has this size."""

VALUE_START = 168
VALUE_SIZE_BYTES_MAX = 64 << 20
"""Longest value, in one PUT and one GET, and in memory for both. Keys with smaller values have a lower limit."""

SEQUENCE_JUMP = 1 << 32
"""A value that replaces damaged bytes adds this to their sequence number: more than the number of writes of any key."""

_SEQUENCE_PLAUSIBLE_END = 1 << 62
_HEAD = struct.Struct(">4sBB2xQ16s128s")
_NUMBER = struct.Struct(">I")
_VERSION_AT = 4
_RESERVED = slice(6, 8)
_TOMBSTONE = 1
_FINAL = 2


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored value or tombstone.

    Args:
        value: the value; None for a tombstone.
        version: its version.
    """

    value: bytes | None
    version: Version

    @property
    def is_tombstone(self) -> bool:
        """Whether the key is deleted."""
        return self.value is None

    @property
    def entry(self) -> Entry | None:
        """The value with its version; None for a tombstone."""
        return None if self.value is None else Versioned(self.value, self.version)


def encode_stored(stored: Stored, place: str, value_size_bytes_max: int = VALUE_SIZE_BYTES_MAX) -> bytes:
    """The bytes to put. O(size); the ETag is not part of them.

    Args:
        stored: the value or tombstone.
        place: its place: the encoded names of table and key, with a slash between.
        value_size_bytes_max: the longest value that its readers accept.

    Raises:
        FormatLimit: the value is too long.
    """
    version, value = stored.version, stored.value
    flags = (_TOMBSTONE if value is None else 0) | (_FINAL if version.final else 0)
    ancestors = version.ancestors or bytes(128)
    head = _HEAD.pack(MAGIC, ENVELOPE_VERSION, flags, version.sequence, version.nonce, ancestors)
    body = b""
    if value is not None:
        if len(value) > value_size_bytes_max:
            raise FormatLimit(
                f"expected at most {value_size_bytes_max} bytes as the value at {place!r}, found {len(value)}"
            )
        body = _NUMBER.pack(len(value)) + value
    return b"".join((head, _NUMBER.pack(_checksum(place, head, body)), body))


def decode_stored(data: bytes, place: str, *, etag: str, where: str) -> Stored:
    """Decode the bytes at a key. O(size).

    Args:
        data: all bytes of the object.
        place: its place, as for `encode_stored`.
        etag: its ETag, which becomes part of the version.
        where: the object's key, for errors.

    Raises:
        FormatTooNew: a newer release wrote it.
        CorruptObject: damage, or the bytes of another key.

    Source: docs/reference/tables.md, "Envelope".
    """
    _check_head(data, place, where)
    _, _, flags, sequence, nonce, ancestors = _HEAD.unpack_from(data)
    version = Version(etag, sequence, nonce, bool(flags & _FINAL), ancestors)
    if flags & _TOMBSTONE:
        _expect(len(data) == TOMBSTONE_SIZE_BYTES, data, where, "a tombstone of 164 bytes", f"{len(data)}")
        return Stored(None, version)
    _expect(len(data) >= VALUE_START, data, where, f"at least {VALUE_START} bytes", f"{len(data)}")
    length = _NUMBER.unpack_from(data, TOMBSTONE_SIZE_BYTES)[0]
    _expect(length == len(data) - VALUE_START, data, where, f"a value of {length} bytes", f"{len(data) - VALUE_START}")
    return Stored(data[VALUE_START:], version)


def sequence_beyond(data: bytes) -> int:
    """A sequence number above those of all versions of a key whose bytes are damaged now.

    The number in the bytes may be damaged, or that of another key: the result is above that number, if it is plausible,
    and at least `SEQUENCE_JUMP`, which is more than the number of writes of any key.
    """
    known = int.from_bytes(data[8:16], "big") if data.startswith(MAGIC) and len(data) >= _HEAD.size else 0
    return SEQUENCE_JUMP + (known if known < _SEQUENCE_PLAUSIBLE_END else 0)


def _check_head(data: bytes, place: str, where: str) -> None:
    # The magic is checked first, then the version, then all that a newer version may have changed.
    known_start = len(data) > _VERSION_AT and data.startswith(MAGIC)
    _expect(known_start, data, where, f"a stored value, which begins with {MAGIC.hex()}", data[:8].hex() or "nothing")
    version = data[_VERSION_AT]
    if version > ENVELOPE_VERSION:
        raise FormatTooNew(f"object {where!r}: expected an envelope of version {ENVELOPE_VERSION}, found {version}")
    _expect(version == ENVELOPE_VERSION, data, where, f"an envelope of version {ENVELOPE_VERSION}", f"{version}")
    _expect(len(data) >= TOMBSTONE_SIZE_BYTES, data, where, f"at least {TOMBSTONE_SIZE_BYTES} bytes", f"{len(data)}")
    checksum = _NUMBER.unpack_from(data, _HEAD.size)[0]
    actual = _checksum(place, data[: _HEAD.size], memoryview(data)[TOMBSTONE_SIZE_BYTES:])
    found = f"{checksum:#010x}: the bytes are damaged, or were written for another key"
    _expect(actual == checksum, data, where, f"a CRC-32 of {actual:#010x} over {place!r} and these bytes", found)
    flags = data[_VERSION_AT + 1]
    _expect(flags in {0, _TOMBSTONE, _FINAL}, data, where, "flags of 0, 1 or 2", f"{flags}")
    _expect(not any(data[_RESERVED]), data, where, "two zero bytes in reserve", data[_RESERVED].hex())
    _expect(any(data[8:16]), data, where, "a sequence number of at least 1", "0")


def _checksum(place: str, head: bytes, body: bytes | memoryview) -> int:
    # No place contains the magic's first byte, so the end of the place is unambiguous.
    return zlib.crc32(body, zlib.crc32(head, zlib.crc32(place.encode("ascii"))))


def _expect(holds: bool, data: bytes, where: str, expected: str, found: str) -> None:
    if not holds:
        raise CorruptObject(where, len(data), expected=expected, found=found)


class Outcome(Enum):
    """The outcome of a write."""

    WRITTEN = auto()
    LOST = auto()  # another version is stored; not written
    AMBIGUOUS = auto()


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The outcome of a write, and the stored version that was read last.

    Args:
        outcome: written, lost or ambiguous.
        current: the version that is stored now; None = none, or not known. After a successful write, its version.
        version: of the write; None unless it happened. It has no ETag if the write was overwritten before a read.
        cause: the error behind an ambiguous outcome.
        is_current_known: whether the last read of the key succeeded.
    """

    outcome: Outcome
    current: Stored | None
    version: Version | None = None
    cause: AccelError | None = None
    is_current_known: bool = True

    @property
    def is_gone(self) -> bool:
        """Whether the key holds no live value now."""
        return self.is_current_known and (self.current is None or self.current.is_tombstone)


class ConditionalWriter:
    """Writes values conditionally, and finds the outcomes. Threads: any.

    Args:
        store: must not repeat a conditional write by itself.
        nonce: returns 16 random bytes, different each time.
        backoff: number of attempts, and the pauses between them.
        root: the beginning of every key; the rest of a key is the place in the checksum of its value.
        value_size_bytes_max: longer values are neither written nor read.
        if_match_quotes: whether this endpoint requires quotes in If-Match; None = as in the store's settings.
    """

    def __init__(
        self,
        store: ObjectStore,
        nonce: Callable[[], bytes],
        backoff: Backoff,
        root: str,
        *,
        value_size_bytes_max: int = VALUE_SIZE_BYTES_MAX,
        if_match_quotes: bool | None = None,
    ) -> None:
        self._store = store
        self._nonce = nonce
        self.backoff = backoff
        self._root = root
        self.value_size_bytes_max = value_size_bytes_max
        self._quotes = if_match_quotes

    def write(self, store_key: str, value: bytes | None, base: Version | None, *, final: bool = False) -> WriteResult:
        """Replace `base` (None: a missing key) by a value, or by a tombstone if `value` is None. Usually one request.

        Raises:
            StoreError: not written, and another attempt would not help; or the endpoint ignores conditions.
            CorruptObject, FormatTooNew: not written; the stored bytes cannot be read.
            FormatLimit: the value is too long.
        """
        write = _Write(self, store_key, self._new(value, base, final=final), base)
        require_conditions(self._store, self.backoff, self._quotes)
        return write.settle()

    def read(self, store_key: str) -> Stored | None:
        """Return the version at a key; None if the key is missing. One request."""
        try:
            return self.decode(store_key, self.fetch(store_key))
        except KeyMissing:
            return None

    def fetch(self, store_key: str) -> Fetched:
        """Return the bytes at a key. One request.

        Raises:
            KeyMissing: the key is missing.
            CorruptObject: the object is longer than any value; its body was not read.
            StoreError: the read failed.
        """
        return self._store.get(store_key, size_bytes_max=VALUE_START + self.value_size_bytes_max)

    def fetch_newer(self, store_key: str, known: Version) -> Fetched | None:
        """As `fetch`; None, without a body, if `known` is still current."""
        if known.etag == UNKNOWN_ETAG:
            return self.fetch(store_key)
        most = VALUE_START + self.value_size_bytes_max
        return self._store.get_if_changed(store_key, known.etag, size_bytes_max=most)

    def with_limit(self, value_size_bytes_max: int) -> ConditionalWriter:
        """Return this writer with another bound on the size of values."""
        return ConditionalWriter(
            self._store,
            self._nonce,
            self.backoff,
            self._root,
            value_size_bytes_max=value_size_bytes_max,
            if_match_quotes=self._quotes,
        )

    def decode(self, store_key: str, fetched: Fetched) -> Stored:
        """Decode bytes that were fetched from a key, and check that they were written for that key.

        Raises:
            FormatTooNew, CorruptObject: as `decode_stored`.
        """
        return decode_stored(fetched.body, self._place(store_key), etag=fetched.etag, where=store_key)

    def encode(self, store_key: str, new: Stored) -> bytes:
        """The bytes to put at a key; FormatLimit for a value that is too long."""
        return encode_stored(new, self._place(store_key), self.value_size_bytes_max)

    def read_surely(self, store_key: str) -> Stored | None:
        """As `read`, with repetition, since the outcome of a write depends on the result."""
        return self.backoff.ask(lambda: self.read(store_key))

    def send(self, store_key: str, body: bytes, base: Version | None) -> str:
        """Send one PUT, once."""
        condition = CreateOnly() if base is None else IfMatch(base.etag, self._quotes)
        return self._store.put(store_key, body, condition=condition)

    def _place(self, store_key: str) -> str:
        return place_of(store_key, self._root)

    def _new(self, value: bytes | None, base: Version | None, *, final: bool) -> Stored:
        nonce = self._nonce()
        if len(nonce) != NONCE_SIZE_BYTES:
            raise ValueError(f"expected a nonce of {NONCE_SIZE_BYTES} bytes, found {len(nonce)}")
        sequence, ancestors = (1, b"") if base is None else (base.sequence + 1, base.lineage)
        return Stored(value, Version(UNKNOWN_ETAG, sequence, nonce, final, ancestors))


class _Write:
    """One write under way. Threads: one."""

    def __init__(self, writer: ConditionalWriter, store_key: str, new: Stored, base: Version | None) -> None:
        self._writer = writer
        self._store_key = store_key
        self._new = new
        self._base = base
        self._body = writer.encode(store_key, new)
        self._reply_lost = False  # a copy may still be under way
        self._undecided = False  # the last copy was answered, but not with its outcome
        self._error: AccelError | None = None

    def settle(self) -> WriteResult:
        for attempt in range(self._writer.backoff.settle_attempts):
            if attempt:  # not by `backoff.attempts`, so that the usual single attempt has no overhead
                self._writer.backoff.pause(attempt)
            try:
                settled = self._send() or self._look()
            except AccelError as error:
                if not self._may_be_written:
                    raise
                return _unsettled(error)
            if settled is not None:
                return settled
        return self._give_up()

    @property
    def _may_be_written(self) -> bool:
        return self._reply_lost or self._undecided

    def _send(self) -> WriteResult | None:
        try:
            etag = self._writer.send(self._store_key, self._body, self._base)
        except PreconditionFailed as error:
            self._error = error
        except WriteConflict as error:
            self._error, self._undecided = error, True
        except StoreUnavailable as error:
            self._error, self._reply_lost = error, True
        else:
            return self._written(etag)
        return None

    def _look(self) -> WriteResult | None:
        stored = self._writer.read_surely(self._store_key)
        if self._is_unchanged(stored):
            self._undecided = False  # an answered request has ended: it did not write, and will not
            return None
        if stored is None:
            return self._unknown(stored)
        nonce = stored.version.nonce_at(self._new.version.sequence)
        if stored.version.nonce == self._new.version.nonce:
            return self._written(stored.version.etag)
        if nonce == self._new.version.nonce:
            return WriteResult(Outcome.WRITTEN, stored, self._new.version)
        return self._unknown(stored) if nonce is None else WriteResult(Outcome.LOST, stored)

    def _is_unchanged(self, stored: Stored | None) -> bool:
        if stored is None or self._base is None:
            return stored is None and self._base is None
        return stored.version.nonce == self._base.nonce

    def _written(self, etag: str) -> WriteResult:
        version = replace(self._new.version, etag=etag)
        return WriteResult(Outcome.WRITTEN, Stored(self._new.value, version), version)

    def _unknown(self, stored: Stored | None) -> WriteResult:
        if self._may_be_written:
            return WriteResult(Outcome.AMBIGUOUS, stored, cause=self._error)
        return WriteResult(Outcome.LOST, stored)

    def _give_up(self) -> WriteResult:
        if self._reply_lost or self._error is None:
            return _unsettled(self._error)
        if isinstance(self._error, PreconditionFailed):
            detail = (
                "the store reports that the condition does not hold, although the key is unchanged: "
                f"check whether it requires If-Match with or without quotes ({self._error.detail})"
            )
            raise RequestRefused("put", self._store_key, detail) from self._error
        raise self._error


def _unsettled(cause: AccelError | None) -> WriteResult:
    return WriteResult(Outcome.AMBIGUOUS, None, cause=cause, is_current_known=False)
