"""One conditional write, brought to a certain end where that is possible.

A PUT with a condition is answered in four ways, and only the first is plain:

    | answer                  | what it says                                                          |
    |-------------------------|-----------------------------------------------------------------------|
    | 200                     | written                                                               |
    | 412                     | the condition does not hold; perhaps because an earlier copy of this  |
    |                         | very request, which something on the way sent again, was written      |
    | 409, 500                | another write was under way; written or not (Ceph tells losers a 500) |
    | none (a lost reply),    | written, or not, or still on its way                                  |
    | 503                     |                                                                       |

So after all but the first the key is read again, and what stands there decides. Each write has a nonce of its own, and
each stored value names the nonces of the eight versions before it:

    1. The nonce that stands there is mine: written.
    2. Nothing changed (the old version is there, or still nothing): the *same* bytes are sent again, so that an earlier
       copy and this one are the same write, whichever arrives first.
    3. A later version stands there, and names the version that has my sequence number: it is mine, so it was written
       and then written over; or it is another's, so mine was not and can never be: its condition named a version that
       will not come back.
    4. It does not name it (that was more than eight writes ago, or the key is gone). If all answers were 412, it was
       not written. Otherwise nobody can know: the outcome is *ambiguous*.

Never does a write that happened count as failed, nor one that did not as done. An error of the store that leaves here
means: not written. Where that cannot be said, the outcome is ambiguous.
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
from loaders.versions import NONCE_SIZE_BYTES, UNKNOWN_ETAG, Version


class Outcome(Enum):
    """How a write ended."""

    WRITTEN = auto()
    LOST = auto()  # another version stands there; not written
    AMBIGUOUS = auto()


@dataclass(frozen=True, slots=True)
class Settled:
    """How a write ended, and what was seen on the way.

    Args:
        outcome: how.
        current: what stands at the key now; None = nothing, or not known. After a write that went well, that write.
        version: of the write; None unless it happened. Without an ETag if it was written over before that was learned.
        cause: of an ambiguous outcome.
        is_current_known: whether the last look at the key succeeded.
    """

    outcome: Outcome
    current: Stored | None
    version: Version | None = None
    cause: AccelError | None = None
    is_current_known: bool = True

    @property
    def is_gone(self) -> bool:
        """Whether no live value stands at the key now."""
        return self.is_current_known and (self.current is None or self.current.is_tombstone)


class ConditionalWriter:
    """Writes and settles. Threads: any.

    Args:
        store: which never repeats a conditional write by itself.
        nonce: draws 16 bytes, each time others.
        backoff: how often, and how long in between.
        root: what every key begins with; the rest of a key is the place that its value is bound to.
        value_size_bytes_max: longer values are neither written nor read.
        if_match_quotes: how this endpoint wants If-Match; None = what the store's settings say.
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
        """Write a value, or with None a tombstone, over `base`; with None, where nothing is. Usually one request.

        Raises:
            StoreError: not written, and not to be settled by trying again.
            CorruptObject, FormatTooNew: not written; what stands there cannot be read.
            FormatLimit: the value is too long.
        """
        return _Write(self, store_key, self._new(value, base, final=final), base).settle()

    def read(self, store_key: str) -> Stored | None:
        """What stands at a key; None = nothing. One request."""
        try:
            fetched = self.fetch(store_key)
        except KeyMissing:
            return None
        return None if fetched is None else self.decode(store_key, fetched)

    def fetch(self, store_key: str, known: Version | None = None) -> Fetched | None:
        """The bytes at a key; None if the known version still stands there, and then no body is sent. One request.

        Raises:
            KeyMissing: nothing stands there.
            CorruptObject: something longer than any value; its body was not read.
            StoreError: the store could not say.
        """
        most = VALUE_START + self.value_size_bytes_max
        if known is None or known.etag == UNKNOWN_ETAG:
            return self._store.get(store_key, size_bytes_max=most)
        return self._store.get_if_changed(store_key, known.etag, size_bytes_max=most)

    def with_limit(self, value_size_bytes_max: int) -> ConditionalWriter:
        """The same for keys whose values are no longer than this."""
        return ConditionalWriter(
            self._store,
            self._nonce,
            self.backoff,
            self._root,
            value_size_bytes_max=value_size_bytes_max,
            if_match_quotes=self._quotes,
        )

    def decode(self, store_key: str, fetched: Fetched) -> Stored:
        """What was fetched from a key, if it was written for that key.

        Raises:
            FormatTooNew, CorruptObject: as `decode_stored`.
        """
        return decode_stored(fetched.body, self._place(store_key), etag=fetched.etag, where=store_key)

    def encode(self, store_key: str, new: Stored) -> bytes:
        """The bytes to put at a key; FormatLimit for a value that is too long."""
        return encode_stored(new, self._place(store_key), self.value_size_bytes_max)

    def read_surely(self, store_key: str) -> Stored | None:
        """The same, patiently: a write waits for it."""
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
            raise ValueError(f"a nonce has {NONCE_SIZE_BYTES} bytes, this one {len(nonce)}")
        sequence, ancestors = (1, b"") if base is None else (base.sequence + 1, base.lineage)
        return Stored(value, Version(UNKNOWN_ETAG, sequence, nonce, final, ancestors))


class _Write:
    """One write on its way. Threads: one."""

    def __init__(self, writer: ConditionalWriter, store_key: str, new: Stored, base: Version | None) -> None:
        self._writer = writer
        self._store_key = store_key
        self._new = new
        self._base = base
        self._body = writer.encode(store_key, new)
        self._reply_lost = False  # a copy may be on its way to this moment
        self._undecided = False  # the last copy was answered, but not with yes or no
        self._error: AccelError | None = None

    def settle(self) -> Settled:
        for attempt in range(self._writer.backoff.settings.settle_attempts):
            if attempt:  # written out: a write that is decided at once, as nearly all are, knows no backoff
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
        stands = self._writer.read_surely(self._store_key)
        if self._is_unchanged(stands):
            self._undecided = False  # an answered request is over: it did not write, and will not
            return None
        if stands is None:
            return self._unknown(stands)
        at_mine = stands.version.nonce_at(self._new.version.sequence)
        if stands.version.nonce == self._new.version.nonce:
            return self._written(stands.version.etag)
        if at_mine == self._new.version.nonce:
            return Settled(Outcome.WRITTEN, stands, self._new.version)
        return self._unknown(stands) if at_mine is None else Settled(Outcome.LOST, stands)

    def _is_unchanged(self, stands: Stored | None) -> bool:
        if stands is None or self._base is None:
            return stands is None and self._base is None
        return stands.version.nonce == self._base.nonce

    def _written(self, etag: str) -> Settled:
        version = replace(self._new.version, etag=etag)
        return Settled(Outcome.WRITTEN, Stored(self._new.value, version), version)

    def _unknown(self, stands: Stored | None) -> Settled:
        if self._may_be_written:
            return Settled(Outcome.AMBIGUOUS, stands, cause=self._error)
        return Settled(Outcome.LOST, stands)

    def _give_up(self) -> Settled:
        if self._reply_lost or self._error is None:
            return _unsettled(self._error)
        if isinstance(self._error, PreconditionFailed):
            detail = (
                "the store says that the condition does not hold, and nothing changed: "
                f"does it want If-Match with or without quotes? ({self._error.detail})"
            )
            raise RequestRefused("put", self._store_key, detail) from self._error
        raise self._error


def _unsettled(cause: AccelError | None) -> Settled:
    return Settled(Outcome.AMBIGUOUS, None, cause=cause, is_current_known=False)
