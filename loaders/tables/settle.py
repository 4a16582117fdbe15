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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from loaders.backoff import Backoff
from loaders.errors import AccelError, KeyMissing, PreconditionFailed, RequestRefused, StoreUnavailable, WriteConflict
from loaders.layout import place_of
from loaders.store.base import CreateOnly, Fetched, IfMatch, ObjectStore
from loaders.tables.envelope import VALUE_SIZE_BYTES_MAX, VALUE_START, Stored, decode_stored, encode_stored
from loaders.tables.probe import require_conditions
from loaders.versions import NONCE_SIZE_BYTES, UNKNOWN_ETAG, Version


class Outcome(Enum):
    """The outcome of a write."""

    WRITTEN = auto()
    LOST = auto()  # another version is stored; not written
    AMBIGUOUS = auto()


@dataclass(frozen=True, slots=True)
class Settled:
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

    def write(self, store_key: str, value: bytes | None, base: Version | None, *, final: bool = False) -> Settled:
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
            fetched = self.fetch(store_key)
        except KeyMissing:
            return None
        return None if fetched is None else self.decode(store_key, fetched)

    def fetch(self, store_key: str, known: Version | None = None) -> Fetched | None:
        """Return the bytes at a key; None, without a body, if `known` is still current. One request.

        Raises:
            KeyMissing: the key is missing.
            CorruptObject: the object is longer than any value; its body was not read.
            StoreError: the read failed.
        """
        most = VALUE_START + self.value_size_bytes_max
        if known is None or known.etag == UNKNOWN_ETAG:
            return self._store.get(store_key, size_bytes_max=most)
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

    def settle(self) -> Settled:
        for attempt in range(self._writer.backoff.settings.settle_attempts):
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

    def _send(self) -> Settled | None:
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

    def _look(self) -> Settled | None:
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
            return Settled(Outcome.WRITTEN, stored, self._new.version)
        return self._unknown(stored) if nonce is None else Settled(Outcome.LOST, stored)

    def _is_unchanged(self, stored: Stored | None) -> bool:
        if stored is None or self._base is None:
            return stored is None and self._base is None
        return stored.version.nonce == self._base.nonce

    def _written(self, etag: str) -> Settled:
        version = replace(self._new.version, etag=etag)
        return Settled(Outcome.WRITTEN, Stored(self._new.value, version), version)

    def _unknown(self, stored: Stored | None) -> Settled:
        if self._may_be_written:
            return Settled(Outcome.AMBIGUOUS, stored, cause=self._error)
        return Settled(Outcome.LOST, stored)

    def _give_up(self) -> Settled:
        if self._reply_lost or self._error is None:
            return _unsettled(self._error)
        if isinstance(self._error, PreconditionFailed):
            detail = (
                "the store reports that the condition does not hold, although the key is unchanged: "
                f"check whether it requires If-Match with or without quotes ({self._error.detail})"
            )
            raise RequestRefused("put", self._store_key, detail) from self._error
        raise self._error


def _unsettled(cause: AccelError | None) -> Settled:
    return Settled(Outcome.AMBIGUOUS, None, cause=cause, is_current_known=False)
