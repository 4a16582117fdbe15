"""Keys that are not needed any more: late writes and crashes have left them.

    | key                                    | left by                          | provably unneeded if             |
    |----------------------------------------|----------------------------------|----------------------------------|
    | of a dropped table of a scope, stream  | a write after the dropping       | its id is in no entry            |
    |                                        |                                  | (`OrphanedTables`)               |
    | of a dropped batch of ends             | likewise                         | only newer batches have marks    |
    | data of a transaction                  | a writer that its deleted stream | its stream is not listed, and    |
    |                                        | outlived                         | has no table                     |
    | likewise, of an existing stream        | a writer whose transaction was   | its table has no entry of it, or |
    |                                        | ended by others, or a crash      | was dropped with its epoch       |
    | part of a time index, table of numbers | a host that the deletion of its  | no segment that is not deleted   |
    |                                        | segment outlived                 | has its stream                   |

Each key is listed **before** it is found out who owns it. A stream is listed in its scope before anything of it is
written, and its id is never used again; a transaction has an entry before it has data, and never again after its end.
So what has no owner afterwards has none for good, whatever other processes do meanwhile. `StreamStore.recover` sweeps.

What is missing by damage is not taken for an end: a table whose marker is missing although its epoch is named, a scope
whose table is missing, or a stream that is not listed and has tables. Nothing of these is deleted. Segments have no
name in keys of time indexes: of these nothing is deleted while one stream is damaged, or not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

from accel.errors import NotInHistory
from accel.history.rules.configuration import HistoryLayout
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.retention import place_truncation
from accel.history.rules.states import NamePhase
from accel.history.rules.values import transaction_epoch
from accel.history.store import keys
from accel.history.store.epoch_store import EpochReading
from accel.history.store.parts import StoreParts, StreamParts
from accel.history.store.segment_host import NoHost
from loaders.errors import DataNotFound, TableMissing
from loaders.layout import (
    TIMES_PREFIX,
    TRANSACTIONS_PREFIX,
    parse_number_table_key,
    parse_time_part_key,
    time_part_prefix,
    transaction_key,
)
from loaders.store.base import DELETE_BATCH_KEYS_MAX

if TYPE_CHECKING:
    from accel.history.store.stream import Stream

BATCH_PREFIX: Final = "_system/completedTransactionsBatch-"

WITH_STREAMS: Final = frozenset({NamePhase.LIVE, NamePhase.CLOSING})
"""The phases of scopes that have a table of streams."""


@dataclass(frozen=True, slots=True, eq=False)
class Leftovers:
    """Finds and deletes keys without an owner. Threads: any; processes: any.

    Args:
        parts: the parts of the store.
    """

    _parts: StoreParts

    def drop_batches(self) -> list[int]:
        """Drop what is left of dropped batches of ends of transactions; return the batches. 2 calls, 3 for each."""
        names = list(self._parts.tables.table_names(BATCH_PREFIX, with_dropped=True))
        marked = sorted(map(int, self._parts.keys.batches.keys()))
        numbers = [int(name.removeprefix(BATCH_PREFIX)) for name in names if name[len(BATCH_PREFIX) :].isdecimal()]
        older = [number for number in numbers if marked and number < marked[0]]
        # Only a read proves that a mark is missing: a listing may have left it out.
        dropped = [number for number in older if self._parts.keys.batch_mark(number).read() is None]
        for number in dropped:
            self._parts.drop_table(keys.completed_table(number))
        return dropped

    def delete_transactions(self) -> int:
        """Delete data of transactions of deleted streams, and of transactions that have ended; return the number.

        Calls: 1 for 1,000 objects; if there are any, also 1 for each scope, 2 for each stream with objects, and 1 for
        each object; and at most 1 a table if some stream is not listed.
        """
        count = 0
        listed = (key for info in self._parts.tables.store.list(TRANSACTIONS_PREFIX) if (key := _parsed(info.key)))
        while some := list(islice(listed, DELETE_BATCH_KEYS_MAX)):
            streams = {stream.unique_id: stream for stream in self._streams()}
            with_tables = set(self._with_tables()) if any(pair[0] not in streams for pair in some) else set()
            unneeded: list[str] = []
            for unique_id, pairs in groupby(some, key=lambda pair: pair[0]):
                owner = streams.get(unique_id)
                ids = [transaction_id for _, transaction_id in pairs]
                if owner is not None:
                    ids = self._ended(owner, ids)
                elif unique_id in with_tables:
                    continue
                unneeded += [transaction_key(unique_id, transaction_id) for transaction_id in ids]
            for failure in self._parts.tables.store.delete_many(unneeded) if unneeded else ():
                raise failure.error
            count += len(unneeded)
        return count

    def delete_times(self, opened: Callable[[str, str], Stream]) -> int:
        """Delete time indexes and tables of numbers of segments that no stream has any more; return the number of keys.

        Calls: 1 for 1,000 objects. If there are any, 1 for each scope, those of opening each stream and reading which
        segments it has, and 1 for each segment, until all objects belong to one; for the others, 1 for each table.

        Args:
            opened: opens a stream, by scope and name; raises NotInHistory if it is not whole.
        """
        store = self._parts.tables.store
        ids = {stream_id for info in store.list(TIMES_PREFIX) if (stream_id := _stream_id(info.key)) is not None}
        known = {scope_id for _, _, scope_id in keys.listed(self._parts.keys.scopes)}
        for identity in self._streams() if ids else ():
            known.add(identity.unique_id)
            try:
                ids -= _owned(opened(identity.scope, identity.name), ids)
            except (NotInHistory, DataNotFound):
                return 0
            if not ids:
                return 0
        if not ids or not known.issuperset(self._with_tables()):
            return 0
        unneeded = [
            info.key
            for stream_id in sorted(ids)
            for info in store.list(time_part_prefix(stream_id))
            if _stream_id(info.key) is not None
        ]
        for failure in store.delete_many(unneeded):
            raise failure.error
        return len(unneeded)

    def _streams(self) -> Iterator[keys.StreamIdentity]:
        """All listed streams. 1 call for 1,000 scopes, 2 for each scope."""
        for _, scope, scope_id in list(keys.listed(self._parts.keys.scopes)):
            try:
                for _, name, unique_id in keys.listed(self._parts.keys.streams(scope, scope_id)):
                    yield keys.StreamIdentity(scope, name, unique_id)
            except TableMissing:
                entry = self._parts.keys.scope(scope).read()
                if entry is not None and entry.value.unique_id == scope_id and entry.value.phase in WITH_STREAMS:
                    raise

    def _with_tables(self) -> Iterator[UUID]:
        """The ids in the names of all tables. At most 1 call a table."""
        for name in self._parts.tables.table_names():
            with suppress(ValueError):
                yield UUID(name.rpartition(keys.OWNED)[2])

    def _ended(self, stream: keys.StreamIdentity, ids: list[UUID]) -> list[UUID]:
        """Transactions of an existing stream that have certainly ended."""
        parts = StreamParts(self._parts, stream, HistoryLayout(), NoHost())
        try:
            current = EpochReading(parts).current()
            marked = set(map(int, parts.keys.epochs.keys()))
        except (DataNotFound, ValueError):
            return []
        ended = []
        for transaction_id in ids:
            epoch = transaction_epoch(transaction_id)
            try:
                if parts.keys.transaction(epoch, transaction_id).read() is None:
                    ended.append(transaction_id)
            except TableMissing:
                if epoch not in marked and epoch < current.reference_epoch:
                    ended.append(transaction_id)
        return ended


def _owned(stream: Stream, wanted: Collection[int]) -> set[int]:
    """Those of these streams of the object layer that have a segment which is not deleted; reads until all are found.

    Raises:
        DataNotFound: a segment without a stream.
    """
    head = stream.truncation()
    start = place_truncation(head)
    if head.updating:  # what is being deleted hands its numbers on first
        start = PlacedCut(head.last_cut, head.last_span) if len(head.last_cut) else None
    found: set[int] = set()
    for part in stream.cuts.between(start, None):
        ids = part.ids.tolist()
        for segment_id, stream_id in zip(ids, stream.segment_streams(ids), strict=True):
            if stream_id is None:
                table = stream.parts.stream.metadata_table
                raise DataNotFound(table, "", f"expected the stream of segment {segment_id}, found none")
            found.add(stream_id)
        if found.issuperset(wanted):
            break
    return found


def _stream_id(key: str) -> int | None:
    """The stream in the key of a part of a time index, or of a table of numbers; None for another key."""
    text = key.removeprefix(TIMES_PREFIX).partition("/")[0]
    try:
        stream_id = int(text) if text.isdecimal() else -1
        is_ours = parse_time_part_key(stream_id, key) is not None or parse_number_table_key(stream_id, key) is not None
    except ValueError:
        return None
    return stream_id if is_ours else None


def _parsed(key: str) -> tuple[UUID, UUID] | None:
    """The ids of stream and transaction in the key of a transaction's data; None for another key."""
    stream, _, transaction = key.removeprefix(TRANSACTIONS_PREFIX).partition("/")
    try:
        pair = UUID(stream), UUID(transaction)
    except ValueError:
        return None
    return pair if transaction_key(*pair) == key else None
