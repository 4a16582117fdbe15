"""Where the data of transactions lies until it has come into the segments, and what is being merged right now.

    accel/transactions/<stream>/<transaction>     the events; written once, before the transaction is committed
    accel/transactions/node-<n>/<epoch>           a `MergeIntent`, while an object is on its way that merges some

Merging is to happen once, whenever a process dies. The object that brings the events of some transactions into their
segments is committed by one write of the catalog, and after that their data is deleted. Between the two nobody would
know; so an intent comes first, and names one of the batches: its stream, its offsets, and the epoch of the session
that was to write it. The next session of the node looks there, before it writes anything: if that batch stands in the
stream, all of them do, and the data is deleted; otherwise none does, and never will, as sessions fence one another.

Source: docs/formats.md, "Data of a transaction".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from accel.streams.writing.transaction_data import (
    SIZE_BYTES_MAX,
    TransactionEvents,
    decode_transaction,
    encode_transaction,
)
from loaders.backoff import Backoff
from loaders.errors import CorruptObject, DataConflict, KeyMissing, PreconditionFailed, StoreUnavailable, WriteConflict
from loaders.layout import merging_key, merging_prefix, transaction_key
from loaders.store import ObjectStore
from loaders.store.base import CreateOnly
from loaders.tables.records import RecordForm


class TransactionName(NamedTuple):
    """A transaction.

    Args:
        stream: unique id of its stream.
        transaction: its id.
    """

    stream: UUID
    transaction: UUID

    @property
    def key(self) -> str:
        """Where its data lies."""
        return transaction_key(self.stream, self.transaction)


class MergeIntent(msgspec.Struct, frozen=True):
    """What a session is about to merge.

    Attributes:
        node_id: whose session.
        epoch: its epoch.
        stream_id: a stream of the object layer that gets some of it;
        start: the first offset of the first batch that it gets;
        end: where that batch ends.
        transactions: unique id of the stream and transaction id of each.
    """

    node_id: int
    epoch: int
    stream_id: int
    start: int
    end: int
    transactions: tuple[tuple[UUID, UUID], ...]

    @property
    def key(self) -> str:
        """Where it lies."""
        return merging_key(self.node_id, self.epoch)

    @property
    def names(self) -> list[TransactionName]:
        """Its transactions."""
        return [TransactionName(*each) for each in self.transactions]


MERGE_INTENT: Final = RecordForm("merge-intent", 1, MergeIntent)

INTENT_SIZE_BYTES_MAX: Final = 64 << 20
"""Longest intent that is read; a transaction takes 36 bytes of it."""

WasMerged = Callable[[MergeIntent], bool]


class TransactionObjects:
    """Keeps and deletes data of transactions. Threads: any.

    Args:
        store: where they lie.
        backoff: for writes whose outcome is unknown.
    """

    def __init__(self, store: ObjectStore, backoff: Backoff) -> None:
        self._store = store
        self._backoff = backoff

    def keep(self, name: TransactionName, events: TransactionEvents) -> None:
        """Write the data of a transaction, unless it is there. 1 request.

        Raises:
            DataConflict: other data is there: two writers have one transaction.
            StoreError, FormatLimit.
        """
        body = encode_transaction(events)
        attempt = 1
        while True:
            try:
                self._store.put(name.key, body, condition=CreateOnly())
            except (PreconditionFailed, WriteConflict, StoreUnavailable):
                if self._stands(name, body):
                    return
                if attempt >= self._backoff.settings.settle_attempts:
                    raise
                self._backoff.pause(attempt)
                attempt += 1
            else:
                return

    def read(self, name: TransactionName) -> TransactionEvents | None:
        """The data of a transaction; None if there is none: it was merged, or had none. 1 request.

        Raises:
            CorruptObject, StoreError.
        """
        try:
            body = self._backoff.ask(lambda: self._store.get(name.key, size_bytes_max=SIZE_BYTES_MAX)).body
        except KeyMissing:
            return None
        return decode_transaction(body, name.key)

    def erase(self, names: Sequence[TransactionName]) -> None:
        """Delete the data of transactions. 1 request for 1,000 of them."""
        erase_keys(self._store, [each.key for each in names])

    def intend(self, intent: MergeIntent) -> None:
        """Say what is about to be merged. 1 request."""
        body = MERGE_INTENT.encode(intent)
        self._backoff.ask(lambda: self._store.put(intent.key, body))

    def finish(self, intent: MergeIntent) -> None:
        """It was merged: the data goes, and then the intent. 2 requests."""
        self.erase(intent.names)
        erase_keys(self._store, [intent.key])

    def settle(self, node_id: int, was_merged: WasMerged) -> int:
        """Settle what earlier sessions of a node left behind; gives how many intents that were.

        To be done by a session before it writes anything. 1 request if there are none.

        Args:
            node_id: whose session.
            was_merged: tells whether the batch that an intent names stands in its stream.
        """
        intents = list(self._intents(node_id))
        for intent in intents:
            if was_merged(intent):
                self.finish(intent)
            else:
                erase_keys(self._store, [intent.key])
        return len(intents)

    def _intents(self, node_id: int) -> Iterator[MergeIntent]:
        for info in self._backoff.ask(lambda: list(self._store.list(merging_prefix(node_id)))):
            found = self._store.get(info.key, size_bytes_max=INTENT_SIZE_BYTES_MAX)
            intent = MERGE_INTENT.decode(found.body, info.key)
            if intent.key != info.key:
                expected = f"an intent of node {node_id} that names its own key"
                raise CorruptObject(info.key, len(found.body), expected=expected, found=f"that of {intent.key!r}")
            yield intent

    def _stands(self, name: TransactionName, body: bytes) -> bool:
        try:
            found = self._backoff.ask(lambda: self._store.get(name.key, size_bytes_max=SIZE_BYTES_MAX)).body
        except KeyMissing:
            return False
        if found != body:
            raise DataConflict("", name.key, "expected one writer of a transaction, found other data of it")
        return True


def erase_keys(store: ObjectStore, keys: Sequence[str]) -> None:
    """Delete objects, 1,000 a request and these in their order; those that are missing count as deleted.

    Raises:
        StoreError: some are still there.
    """
    failures = store.delete_many(keys) if keys else []
    if failures:
        raise failures[0].error
