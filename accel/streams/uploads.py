"""The uploads of a session: objects of appended batches, and merges of transactions.

    1. the intent, if the object merges transactions       shows later whether the merge happened; before it, once
                                                           without a batch: then the records are read
    2. an id is prepared, the object written
    3. the commit: one conditional write
    4. the merge noted in the transactions' records        because the events are in the segments now
    5. data of the transactions deleted, and the intent
    6. records of the time indexes moved to objects

Each step may fail; the next call continues the upload there. A commit whose outcome is unknown is repeated for the same
object: the catalog finds out whether it had happened. Objects of one session are written side by side, and committed in
order (`group_commit`): each continues its segments at the end of the previous object.

Until a transaction is committed, its events are stored separately:

    accel/transactions/<stream>/<transaction>     the events; written once, before the transaction is committed
    accel/transactions/node-<n>/<session>-<merge> a `MergeIntent`, while an object that merges some is under way

By the commit each event goes to the segment that has its key now. A transaction adds one batch to each segment that
gets any of its events, with one clock value. All batches of a transaction are in one object, so the commit is atomic.

A transaction is merged once, even if a process dies. The object is committed by one write of the catalog, and after
that the merge is noted and the data deleted; a process that dies between these steps leaves the intent, which names one
of the batches: its stream, its offsets, and the session number of its writer. The next session of the node checks this
batch before it writes anything: if the batch is in the stream, in the node's range of it, all batches are, and the
merge is noted; otherwise no batch is there, and none ever will be, because sessions fence one another. A node that
merges in place of another one, whose segments it took over, checks the intents of the others in the same way, and then
reads the records again: an intent that is not there any more may be one whose merge was noted since.

A transaction's record says how many events there are, in how many bytes, and whether they are merged. So data that is
missing and not merged is damage (`TransactionDamaged`), never an empty transaction. If another program decided the
commit, the record may say nothing: then the data is what is found, and if nothing is found, that is noted first, so
that a writer that stores its events later learns that they are too late.

Source: docs/reference/events.md, "Data of a transaction".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import msgspec

from accel.catalog import NodeWriter
from accel.catalog.records import STREAMS_AN_OBJECT_MAX
from accel.errors import CommitRefused, IllegalState, StreamsReleased, TransactionDamaged
from accel.history.rules.segments import Segments
from accel.history.rules.transactions import NO_CONTENTS, ActiveTransaction, TransactionContents, TransactionStatus
from accel.history.store.segment_host import StreamName
from accel.image import Number
from accel.settings import PREPARED_SECONDS
from accel.streams.open_segments import AppendBuffer, OpenSegments, SegmentSealed, Taken, erase_keys
from accel.streams.rules.routing import KeyRouter, grouped
from accel.streams.rules.transaction_data import (
    SIZE_BYTES_MAX,
    TransactionEvents,
    decode_transaction,
    encode_transaction,
)
from accel.streams.segment_directory import node_of_offset, stream_spans
from accel.streams.settings import SegmentsSettings
from loaders.backoff import Backoff
from loaders.errors import (
    AccelError,
    AmbiguousWrite,
    CorruptObject,
    DataConflict,
    FormatLimit,
    KeyMissing,
    NamespaceShared,
    ObjectExists,
    PreconditionFailed,
    StoreUnavailable,
    WriteConflict,
)
from loaders.layout import MERGING_PREFIX, ObjectLayout, merging_key, merging_prefix, transaction_key
from loaders.object_ref import ObjectRef
from loaders.object_writer import ObjectWriter
from loaders.store import ObjectStore
from loaders.store.base import CreateOnly
from loaders.store.bill import RequestCause, caused_by
from loaders.tables.records import RecordForm
from range_index import ObjectRanges

# Data of transactions, and intents


class TransactionName(NamedTuple):
    """A transaction.

    Args:
        stream: the unique id of its stream.
        transaction: the transaction's id.
    """

    stream: UUID
    transaction: UUID

    @property
    def key(self) -> str:
        """The key of its data."""
        return transaction_key(self.stream, self.transaction)


class MergeIntent(msgspec.Struct, frozen=True):
    """The transactions that a session is about to merge.

    Attributes:
        node_id: the node of the session.
        epoch: the session number.
        number: the number of the merge in this session; no other merge of the session has it.
        stream_id: a stream of the object layer that gets some of the events;
        start: the first offset of the first batch that this stream gets;
        end: the end of that batch; the start, if the batch is not formed yet, and nothing was written.
        transactions: unique id of the stream and transaction id of each.
        scope: scope of the stream of the transactions;
        stream: its name.
    """

    node_id: Number
    epoch: Number
    number: Number
    stream_id: Number
    start: Number
    end: Number
    transactions: tuple[tuple[UUID, UUID], ...]
    scope: str = ""
    stream: str = ""

    @property
    def key(self) -> str:
        """The key of the intent."""
        return merging_key(self.node_id, self.epoch, self.number)

    @property
    def is_claim(self) -> bool:
        """Whether nothing was written yet."""
        return self.start == self.end

    @property
    def names(self) -> list[TransactionName]:
        """Its transactions."""
        return [TransactionName(*transaction) for transaction in self.transactions]


MERGE_INTENT: Final = RecordForm("merge-intent", 1, MergeIntent)

INTENT_SIZE_BYTES_MAX: Final = 64 << 20
"""The size limit of an intent that is read; a transaction takes 36 bytes."""

WasMerged = Callable[[MergeIntent], bool]
"""Returns whether the batch of an intent is in its stream."""


class TransactionRecords(Protocol):
    """The records of a stream's transactions: a `TransactionStore`."""

    def read_many(self, ids: Sequence[UUID]) -> Mapping[UUID, ActiveTransaction]:
        """See `TransactionStore.read_many`."""
        ...

    def record_merged(self, contents: Mapping[UUID, TransactionContents | None]) -> Mapping[UUID, ActiveTransaction]:
        """See `TransactionStore.record_merged`."""
        ...


def contents_of(events: TransactionEvents) -> TransactionContents:
    """Return the number of events, and the size of their object; no size without events."""
    return TransactionContents(len(events), events.size_bytes) if len(events) else NO_CONTENTS


class TransactionObjects:
    """Writes and deletes data of transactions. Threads: any.

    Args:
        store: the store of the data.
        backoff: the pauses of writes with unknown outcome.
    """

    def __init__(self, store: ObjectStore, backoff: Backoff) -> None:
        self._store = store
        self._backoff = backoff

    def keep(self, name: TransactionName, events: TransactionEvents) -> None:
        """Write the data of a transaction, unless it exists. 1 request.

        Raises:
            DataConflict: the key has other data: two writers have one transaction.
            StoreError, FormatLimit.
        """
        body = encode_transaction(events)
        last = self._backoff.settle_attempts
        for attempt in self._backoff.attempts(last):
            try:
                self._store.put(name.key, body, condition=CreateOnly())
            except (PreconditionFailed, WriteConflict, StoreUnavailable):
                if self._stands(name, body):
                    return
                if attempt == last:
                    raise
            else:
                return

    def read(self, name: TransactionName, contents: TransactionContents | None) -> TransactionEvents | None:
        """Return the data of a transaction that is not merged. 1 request, none without events.

        Args:
            name: the transaction.
            contents: its contents, by its record; None = not known.

        Returns:
            The events; None if it has none, or if its contents are not known and there is no data.

        Raises:
            TransactionDamaged: the data is missing or damaged, or has other contents.
            StoreError.
        """
        if contents == NO_CONTENTS:
            return None

        def damaged(size_bytes: int, expected: str, found: str) -> TransactionDamaged:
            return TransactionDamaged(name.transaction, name.key, size_bytes, expected=expected, found=found)

        try:
            body = self._backoff.ask(lambda: self._store.get(name.key, size_bytes_max=SIZE_BYTES_MAX)).body
        except KeyMissing:
            if contents is None:
                return None
            raise damaged(-1, str(contents), "no object") from None
        try:
            events = decode_transaction(body, name.key)
        except CorruptObject as error:
            expected = error.expected if contents is None else f"{contents}, {error.expected}"
            raise damaged(len(body), expected, error.found) from error
        if contents not in (None, found := contents_of(events)):
            raise damaged(len(body), str(contents), str(found))
        return events

    def erase(self, names: Sequence[TransactionName]) -> None:
        """Delete the data of transactions. 1 request for 1,000 transactions."""
        erase_keys(self._store, [name.key for name in names])

    def intend(self, intent: MergeIntent) -> None:
        """Write an intent before the merge. 1 request."""
        body = MERGE_INTENT.encode(intent)
        self._backoff.ask(lambda: self._store.put(intent.key, body))

    def finish(self, intent: MergeIntent) -> None:
        """Delete the data of merged transactions, and then the intent. 2 requests."""
        self.erase(intent.names)
        erase_keys(self._store, [intent.key])

    def forget(self, intent: MergeIntent) -> None:
        """Delete an intent whose transactions were not merged, and will not be. 1 request."""
        erase_keys(self._store, [intent.key])

    def settle(
        self,
        node_id: int,
        was_merged: WasMerged,
        records_of: Callable[[MergeIntent], TransactionRecords | None],
    ) -> int:
        """Finish or forget the intents of earlier sessions of a node; returns their number.

        A session calls this before it writes anything. 1 request if there are no intents.

        Args:
            node_id: the node of the session.
            was_merged: returns whether the batch of an intent is in its stream.
            records_of: returns the records of the transactions of an intent; None if their stream was deleted.
        """
        intents = list(self.intents(merging_prefix(node_id)))
        for intent in intents:
            if was_merged(intent):
                self.settle_merged(intent.names, records_of(intent))
                self.finish(intent)
            else:
                self.forget(intent)
        return len(intents)

    def settle_merged(self, names: Sequence[TransactionName], records: TransactionRecords | None) -> None:
        """Note that transactions are merged, and delete their data. 3 requests each."""
        if records is not None:
            known = records.read_many([name.transaction for name in names])
            records.record_merged(
                {
                    name.transaction: known[name.transaction].contents or self._contents(name)
                    for name in names
                    if name.transaction in known
                }
            )
        self.erase(names)

    def intents(self, prefix: str = MERGING_PREFIX) -> Iterator[MergeIntent]:
        """Iterate over the intents below a prefix; of all nodes by default. 1 request, and 1 for each intent.

        Raises:
            CorruptObject, StoreError.
        """
        for info in self._backoff.ask(lambda: list(self._store.list(prefix))):
            with suppress(KeyMissing):  # its session has finished or forgotten it meanwhile
                fetched = self._store.get(info.key, size_bytes_max=INTENT_SIZE_BYTES_MAX)
                intent = MERGE_INTENT.decode(fetched.body, info.key)
                if intent.key != info.key:
                    expected = "an intent that names its own key"
                    raise CorruptObject(info.key, len(fetched.body), expected=expected, found=f"that of {intent.key!r}")
                yield intent

    def merge_begun(self, name: TransactionName) -> str | None:
        """Return which session has begun to merge a transaction, for people; None if none. Requests as `intents`."""
        for intent in self.intents():
            if name in intent.names:
                node = f"node {intent.node_id}"
                return f"that of session {intent.epoch} of {node}: the next session of {node} finds out how it ended"
        return None

    def _contents(self, name: TransactionName) -> TransactionContents | None:
        """The contents of merged data; None if it is deleted, or damaged since."""
        try:
            events = self.read(name, None)
        except TransactionDamaged:
            return None
        return None if events is None else contents_of(events)

    def _stands(self, name: TransactionName, body: bytes) -> bool:
        try:
            stored = self._backoff.ask(lambda: self._store.get(name.key, size_bytes_max=SIZE_BYTES_MAX)).body
        except KeyMissing:
            return False
        if stored != body:
            raise DataConflict("", name.key, "expected one writer of a transaction, found other data of it")
        return True


def refuse_readable(objects: TransactionObjects, name: TransactionName, contents: TransactionContents | None) -> str:
    """Refuse to give up a transaction whose events are there, or may be in the segments already.

    2 requests, and 1 for each intent.

    Args:
        objects: data of transactions.
        name: a transaction that is to be committed and is not merged, by its record.
        contents: its contents, by its record.

    Returns:
        What is wrong with the data, for people.

    Raises:
        IllegalState: the data can be read, or a session has begun to merge it.
    """
    if (merge := objects.merge_begun(name)) is not None:
        raise IllegalState(f"expected no merge of transaction {name.transaction}, found {merge}")
    try:
        events = objects.read(name, contents)
    except TransactionDamaged as error:
        return f"expected {error.expected}, found {error.found}"
    if events is None and contents is None:
        return "its contents are not recorded, and there is no object"
    raise IllegalState(
        f"expected a transaction whose events cannot be read, found {name.transaction} with"
        f" {NO_CONTENTS if events is None else contents_of(events)}: commit it, or recover the stream"
    )


# One object

COMMIT_ATTEMPTS: Final = 5
"""The number of attempts of a commit, or a write, of unknown outcome before its error is raised."""


@dataclass(frozen=True, slots=True, eq=False)
class UploadParts:
    """The common parts of the uploads of one session.

    Args:
        store: the store of the objects.
        layout: the keys of the objects.
        node: the session; one call at a time.
        turn: a lock for calls of the session.
        transactions: data of transactions.
        settings: bounds of the host.
        backoff: pauses between attempts.
        nonce: returns 16 random bytes.
    """

    store: ObjectStore
    layout: ObjectLayout
    node: NodeWriter
    turn: Callable[[], AbstractContextManager[None]]
    transactions: TransactionObjects
    settings: SegmentsSettings
    backoff: Backoff
    nonce: Callable[[], bytes]


class Upload:
    """One object, with the transactions that it merges. Threads: one at a time.

    Args:
        parts: the parts of the session.
        taken: batches by segment; at most 20,000 segments.
        intent: the transactions that it merges.
        note_merged: notes in their records that they are merged.

    Attributes:
        written: the object and its ranges, while it is written and up to date.
        was_written: whether it was ever written; then it may be committed, after another write if necessary.
        is_committed: whether it is listed; then all its batches are durable.
        is_doubtful: whether a commit of it was sent whose outcome is not known.
        abandoned: the error of a merge that was given up because another node took a segment over.
    """

    def __init__(
        self,
        parts: UploadParts,
        taken: Taken,
        intent: MergeIntent | None = None,
        note_merged: Callable[[], object] = lambda: None,
    ) -> None:
        self._parts = parts
        self._note_merged = note_merged
        self._taken = dict(sorted(taken.items(), key=lambda item: item[0].stream_id))
        self._intent = intent
        self._is_intended = intent is None
        self.written: tuple[ObjectRef, ObjectRanges] | None = None
        self.is_doubtful = False
        self.is_committed = False
        self.was_written = False
        self.abandoned: StreamsReleased | None = None

    @property
    def is_broken_merge(self) -> bool:
        """Whether it merges transactions, which is atomic, and another node has taken one of its segments over."""
        return self._intent is not None and any(segment.is_released for segment in self._taken)

    def abandon(self) -> StreamsReleased:
        """Give up a broken merge before its commit. 1 request, which must come before other data of its segments.

        Afterwards the upload is empty and counts as committed; returns the error.
        """
        if self._intent is not None:
            self._parts.transactions.forget(self._intent)
        ids = tuple(segment.stream_id for segment in self._taken if segment.is_released)
        self.abandoned = StreamsReleased(self._parts.node.node_id, ids)
        self._taken, self._intent, self.written = {}, None, None
        self.is_committed = True
        return self.abandoned

    @property
    def segments(self) -> Taken:
        """Its batches by segment, ascending by stream of the object layer."""
        return self._taken

    @caused_by(RequestCause.STREAM_WRITE)
    def put(self) -> None:
        """Write the object, unless it is written. Requests: 1 or those of its parts; 1 more for an intent.

        Usually an id is prepared already, because each commit prepares some. Otherwise 1 more conditional write.

        Raises:
            SessionFenced: a newer session writes for this node; data that is not durable will never be.
            NamespaceShared: another system writes objects under this namespace; likewise.
            AccelError: with a note about the data that is not durable yet; call again.
        """
        with self.noted():
            if not self._is_intended and self._intent is not None:
                self._parts.transactions.intend(self._intent)
                self._is_intended = True
            if self.written is None:
                # If the key has another object, this one is written under the next id.
                helps = (ObjectExists, AmbiguousWrite)
                self.written = self._parts.backoff.repeat(
                    self._write, lambda error: error.retryable or isinstance(error, helps), self._attempts
                )
        self.was_written = True

    def leave_out_released(self) -> None:
        """Before the commit, drop batches of segments that other nodes have taken over. No request.

        Then the object is written again, or counts as committed if no batch is left.
        """
        kept = {segment: batches for segment, batches in self._taken.items() if not segment.is_released}
        if len(kept) < len(self._taken) and self._intent is None:
            self._taken, self.written = kept, None
            self.is_committed = not kept

    def finish(self) -> None:
        """After the commit, note the merge in the transactions' records; delete their data, and the intent."""
        if self._intent is not None:
            self._note_merged()
            self._parts.transactions.finish(self._intent)
            self._intent = None

    @property
    def _attempts(self) -> int:
        return COMMIT_ATTEMPTS

    def _write(self) -> tuple[ObjectRef, ObjectRanges]:
        parts = self._parts
        object_id = self._object_id()
        try:
            with ObjectWriter(parts.store, parts.layout, object_id, backoff=parts.backoff, nonce=parts.nonce) as upload:
                for segment, batches in self._taken.items():
                    upload.write(segment.stream_id, batches)
        except NamespaceShared as error:
            parts.node.stop(error)
            raise
        return upload.ref, upload.ranges

    def _object_id(self) -> int:
        deadline_seconds = PREPARED_SECONDS
        object_id = self._parts.node.take_prepared(deadline_seconds)
        if object_id is None:
            with self._parts.turn():
                [object_id] = self._parts.node.prepare(deadline_seconds=deadline_seconds)
        return object_id

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Add a note to errors about the data that is not durable."""
        try:
            yield
        except AccelError as error:
            error.add_note(f"not durable yet, and still in memory: {self._text()}")
            raise

    def _text(self) -> str:
        size_bytes = sum(len(batch.payload) for batch in chain(*self._taken.values()))
        some = ", ".join(f"stream {segment.stream_id} up to {segment.end}" for segment in list(self._taken)[:5])
        return f"{size_bytes} bytes of {len(self._taken)} segments ({some})"


@caused_by(RequestCause.STREAM_WRITE)
def commit(parts: UploadParts, uploads: Sequence[Upload]) -> None:
    """List written objects, in order, by one conditional write. When it returns, all of them are durable.

    Raises:
        SessionFenced: a newer session writes for this node; data that is not durable will never be.
        CommitRefused: an object can no longer be committed, and the outcome of an earlier attempt is not known: a new
            session of the node finds out.
        StreamsReleased: another node took some of their streams over; no object was committed.
        AccelError: call again, with the same objects.
        In each case `is_committed` shows which objects were committed.
    """
    with uploads[0].noted():
        try:
            _commit_together(parts, uploads)
        except StreamsReleased:  # certainly not committed; the others can be, without these streams
            raise
        except CommitRefused:
            if len(uploads) > 1:  # commit each object alone, to find the one that is refused
                for upload in uploads:
                    commit(parts, [upload])
                return
            if uploads[0].is_doubtful:
                raise
            uploads[0].written = None  # its deadline may have passed while it could not be committed
            uploads[0].put()
            _commit_together(parts, uploads)


def _commit_together(parts: UploadParts, uploads: Sequence[Upload]) -> None:
    ids_ahead = 2 * parts.settings.uploads_at_once

    def ask() -> None:
        written = [upload.written for upload in uploads if upload.written is not None]
        with parts.turn():
            parts.node.commit_uploads(written, ids_ahead=ids_ahead, with_upkeep=False)

    def may_help(error: AccelError) -> bool:
        is_unknown = error.retryable or isinstance(error, AmbiguousWrite)
        for upload in uploads:
            upload.is_doubtful |= is_unknown
            if upload.written is not None:  # the store may be another one by now: the object is looked at
                upload.written = (replace(upload.written[0], proof=None), upload.written[1])
        return is_unknown

    parts.backoff.repeat(ask, may_help, COMMIT_ATTEMPTS)
    for upload in uploads:
        upload.is_committed = True


# Merging transactions

Group = list[tuple[TransactionName, TransactionEvents]]


class Merging:
    """Makes uploads of transactions. Threads: one at a time.

    Args:
        parts: the parts of the session.
        segments: the segments that the session writes.
        buffer: appends that wait for an upload.
    """

    def __init__(self, parts: UploadParts, segments: OpenSegments, buffer: AppendBuffer) -> None:
        self._parts = parts
        self._segments = segments
        self._buffer = buffer
        self._number = 0

    def groups(
        self, stream: UUID, records: TransactionRecords, transactions: Sequence[UUID], size_bytes: int
    ) -> Iterator[Group]:
        """Iterate over groups of transactions to merge, in order, each at most `size_bytes` or one transaction.

        Reads the data of a group when the group is requested. Skips transactions that are merged, have ended or were
        given up, and those without events.

        Raises:
            TransactionDamaged: the data of the next transaction is missing, damaged, or not what its record says.
        """
        group: Group = []
        waiting_bytes = 0
        known = records.read_many(transactions)
        for transaction in transactions:
            name = TransactionName(stream, transaction)
            events = self._events(name, known.get(transaction), records)
            if events is None:
                continue
            if group and waiting_bytes + events.size_bytes > size_bytes:
                yield group
                group, waiting_bytes = [], 0
            group.append((name, events))
            waiting_bytes += events.size_bytes
        if group:
            yield group

    def _events(
        self, name: TransactionName, record: ActiveTransaction | None, records: TransactionRecords
    ) -> TransactionEvents | None:
        while record is not None and record.status is TransactionStatus.COMMITTING and not record.is_merged:
            events = self._parts.transactions.read(name, record.contents)
            if events is not None or record.contents is not None:
                return events
            # Another program decided, and no writer has stored events. That is noted, and a writer that comes later is
            # refused; if a writer came first, the record has its contents now.
            record = records.record_merged({name.transaction: NO_CONTENTS}).get(name.transaction)
        return None

    def make(
        self, name: StreamName, segments: Segments, group: Group, records: TransactionRecords
    ) -> Callable[[], Upload] | None:
        """Find the segments that events of transactions go to. 2 requests, and those to find the segments.

        Args:
            name: scope and stream.
            segments: the segments of all keys.
            group: the transactions.
            records: their records.

        Returns:
            A function that appends the events, and takes all waiting batches of their segments as one object. It sends
            no request. The upload that it returns has to be the next one of the session. None if all of them were
            merged or given up since they were read.

        Raises:
            FormatLimit: events for more segments than one object can have.
            SegmentSealed: a segment takes no appends.
            SegmentsElsewhere: another node has a segment open.
        """
        routed = list(_routed(segments, group))
        ids = {segment_id for segment_id, _ in routed}
        if len(ids) > STREAMS_AN_OBJECT_MAX:
            raise FormatLimit(f"expected events for at most {STREAMS_AN_OBJECT_MAX} segments, found {len(ids)}")
        with self._parts.turn():
            located = self._segments.find(name, ids, is_step=True)
        located.refuse_elsewhere("merge transactions into", name)
        for sealed_id in located.sealed:
            raise SegmentSealed(name, sealed_id)
        claim = self._intent(name, group, (0, 0, 0))
        self._parts.transactions.intend(claim)
        left = self._left_to_merge(claim.names, records)
        if len(left) < len(group):
            group = [(each, events) for each, events in group if each in left]
            routed = list(_routed(segments, group))
        if not group:
            self._parts.transactions.forget(claim)
            return None
        contents = {each.transaction: contents_of(events) for each, events in group}

        def upload() -> Upload:
            appends = [(located.open[segment_id], payloads) for segment_id, payloads in routed]
            taken = self._buffer.append_and_take(appends)
            first = routed[0][0]
            proof = taken[located.open[first]][-sum(segment_id == first for segment_id, _ in routed)]
            intent = self._intent(name, group, (proof.stream_id, proof.base_offset, proof.end_offset))
            self._number += 1
            return Upload(self._parts, taken, intent, lambda: records.record_merged(contents))

        return upload

    def _intent(self, name: StreamName, group: Group, place: tuple[int, int, int]) -> MergeIntent:
        node, names = self._parts.node, tuple((each.stream, each.transaction) for each, _ in group)
        return MergeIntent(node.node_id, node.session_number, self._number, *place, names, *name)

    def _left_to_merge(self, names: Collection[TransactionName], records: TransactionRecords) -> set[TransactionName]:
        """Those of these transactions that no session has merged; 1 call each, 1 request, and 1 for each intent.

        Called once the segments are open here: what was not merged before never will be by another node. An intent is
        written before the records are read, and the process that ends a transaction that was given up looks at intents
        after that decision: so either it is left out here, or it is not ended before the merge is noted. Merges of
        nodes that died before they noted it are found by their intents; they are noted, and their data is deleted. The
        records are read after the intents: a session that finished meanwhile has noted its merge before it deleted its
        intent.
        """
        found: set[TransactionName] = set()
        for intent in self._parts.transactions.intents():
            theirs = set(intent.names).intersection(names)
            if theirs and intent.node_id != self._parts.node.node_id and self.was_merged(intent):
                found |= theirs
        if found:
            self._parts.transactions.settle_merged(sorted(found), records)
        known = records.read_many([name.transaction for name in names if name not in found])
        return {
            name
            for name in names
            if (record := known.get(name.transaction)) is not None
            and record.status is TransactionStatus.COMMITTING
            and not record.is_merged
        }

    def was_merged(self, intent: MergeIntent) -> bool:
        """Whether the batch of an intent is in its stream."""
        if intent.is_claim:
            return False
        stream_id = intent.stream_id
        span = stream_spans(self._segments.catalog.parts, [stream_id]).get(stream_id)
        if span is None:
            return False
        end = self._parts.node.end(stream_id) if span.is_open else span.end
        if end is not None and end < intent.end:
            return False
        if span.start > intent.start:
            return True  # a stream is truncated, or deleted, only after the end of a commit
        if node_of_offset(self._segments.catalog.parts, stream_id, intent.start) != intent.node_id:
            return False  # another node continued the stream before this offset, perhaps with the same session number
        wanted = (intent.start, intent.end, intent.epoch)
        batch = next(self._segments.accelerator.read(stream_id, intent.start, intent.end), None)
        if batch is None:  # perhaps only in the reader's image
            self._segments.refresh()
            batch = next(self._segments.accelerator.read(stream_id, intent.start, intent.end), None)
        return batch is not None and (batch.base_offset, batch.end_offset, batch.epoch) == wanted


def _routed(segments: Segments, group: Group) -> Iterator[tuple[int, list[bytes]]]:
    router = KeyRouter(segments)
    for _, events in group:
        for segment_id, places in grouped(router.route(events.positions)):
            yield segment_id, [events.payloads[at] for at in places]
