"""A stream in plain dicts, driven by the rules of `accel.history`: what cases and models are run on, in memory.

Every write goes through `World.put`, so that a test can let the process crash just before one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from accel.errors import InvalidArgument, NotInHistory
from accel.history.rules import cuts, epochs, retention, scaling, transactions
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.epochs import NO_TRANSITION, EpochRecord, EpochTransition, HistoryChunk
from accel.history.rules.retention import NO_TRUNCATION, RetentionEntry, RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.scaling import ScaleRequest, ScaleVerdict
from accel.history.rules.segments import Segments
from accel.history.rules.states import StreamState, first_epoch, next_state
from accel.history.rules.transactions import (
    NO_COMMIT,
    ActiveTransaction,
    CommitOrder,
    CommittingTransactions,
    CompletedTransaction,
    TransactionStatus,
)
from accel.history.rules.values import NO_IDS, NOTHING, IdMap, IdSet, Integers, epoch_of, make_transaction_id
from tests.conformance.steps import refuse_dropped

LEASE_MS = 1_000_000


class Crash(Exception):
    """The process died just before a write."""


class World:
    """One stream and its tables."""

    def __init__(self, chunk_size: int = 1000, shard_size: int = 1000) -> None:
        self.chunk_size = chunk_size
        self.shard_size = shard_size
        self.tables: dict[str, dict[Any, Any]] = {}
        self.writes_left: int | None = None
        self.writes = 0

    # tables

    def put(self, table: str, key: Any, value: Any) -> None:
        if self.writes_left is not None and self.writes >= self.writes_left:
            raise Crash
        self.writes += 1
        self.tables.setdefault(table, {})[key] = value

    def create(self, table: str, key: Any, value: Any) -> Any:
        if key not in self.tables.setdefault(table, {}):
            self.put(table, key, value)
        return self.tables[table][key]

    def remove(self, table: str, key: Any) -> None:
        if key in self.tables.get(table, {}):
            self.put(table, key, None)
            del self.tables[table][key]

    def get(self, table: str, key: Any, default: Any = None) -> Any:
        return self.tables.get(table, {}).get(key, default)

    # records

    @property
    def state(self) -> StreamState:
        return StreamState(self.get("one", "state").value)

    @property
    def current(self) -> EpochRecord:
        record: EpochRecord = self.get("one", "current")
        return record

    @property
    def transition(self) -> EpochTransition:
        record: EpochTransition = self.get("one", "transition")
        return record

    @property
    def truncation(self) -> TruncationRecord:
        record: TruncationRecord = self.get("one", "truncation")
        return record

    @property
    def committing(self) -> CommittingTransactions:
        record: CommittingTransactions = self.get("one", "committing")
        return record

    @property
    def order(self) -> CommitOrder:
        record: CommitOrder = self.get("one", "order")
        return record

    @property
    def retention(self) -> RetentionSet:
        record: RetentionSet = self.get("one", "retention")
        return record

    @property
    def configuration(self) -> StreamConfiguration:
        record: StreamConfiguration = self.get("one", "configuration")
        return record

    def epoch(self, number: int) -> EpochRecord:
        record: EpochRecord | None = self.get("epochs", number)
        if record is None:
            raise NotInHistory(f"expected an epoch of the stream, found {number}")
        return record

    def chunks(self, low: int, high: int) -> Iterator[HistoryChunk]:
        for number in epochs.chunk_numbers(low, high, self.chunk_size):
            chunk = self.get("chunks", number)
            if chunk is not None:
                yield chunk

    # creation, state

    def initialize(self, segments: int, time_ms: int, start_number: int = 0, min_segments: int | None = None) -> None:
        record = first_epoch(segments, time_ms, start_number)
        self.put("one", "configuration", StreamConfiguration(min_segments or segments))
        self.put("one", "transition", NO_TRANSITION)
        self.put("one", "truncation", NO_TRUNCATION)
        self.put("one", "committing", NO_COMMIT)
        self.put("one", "retention", RetentionSet())
        self.put("one", "order", CommitOrder())
        self.put("one", "counter", 0)
        self.put("epochs", 0, record)
        self.put("epochs with transactions", 0, True)
        self._record_history(record, None)
        self.put("one", "current", record)
        self.put("one", "state", StreamState.ACTIVE)

    def set_state(self, state: StreamState) -> None:
        changed = next_state(self.state, state)
        if changed is not None:
            self.put("one", "state", changed)

    def _record_history(self, record: EpochRecord, before: EpochRecord | None) -> None:
        delta = epochs.delta_of(record, before)
        number = record.epoch // self.chunk_size
        now: HistoryChunk | None = self.get("chunks", number)
        changed = HistoryChunk.of([delta]) if now is None else now.with_delta(delta)
        if changed is not None:
            self.put("chunks", number, changed)

    # scaling

    def submit_scale(self, request: ScaleRequest) -> EpochTransition:
        stored = self.transition
        if stored.is_empty and scaling.is_outdated(request, self.current):
            self.put("one", "transition", NO_TRANSITION)
        found = scaling.with_request(request, self.state, stored, self.current, self.configuration.min_segments)
        if found is not stored:
            self.put("one", "transition", found)
        return found

    def start_scale(self, *, is_manual: bool) -> tuple[ScaleVerdict, EpochTransition]:
        stored = self.transition
        verdict, transition = scaling.after_start(stored, self.current, self.epoch, is_manual=is_manual)
        if verdict is ScaleVerdict.MIGRATED:
            self.put("one", "transition", transition)
        if verdict is ScaleVerdict.DROPPED:
            self.put("one", "transition", NO_TRANSITION)
            self.set_state(StreamState.ACTIVE)
        refuse_dropped(verdict, stored)
        return verdict, transition

    def create_new_epoch(self, transition: EpochTransition) -> None:
        active = self.current
        if active.epoch >= transition.new_epoch:
            return
        record = self.create("epochs", transition.new_epoch, scaling.scaled_epoch(transition, active))
        self.create("epochs with transactions", record.epoch, True)
        self._record_history(record, active)
        self._record_sealing(epochs.sealed_by(record, active), record.epoch)

    def old_segments_sealed(self, transition: EpochTransition, sealed_sizes: Mapping[int, int]) -> None:
        known = {each: sealed_sizes.get(each, 0) for each in transition.segments_to_seal}
        self._record_sizes(known)
        self._advance(transition.new_epoch)

    def complete_scale(self) -> None:
        if not self.transition.is_empty:
            self.put("one", "transition", NO_TRANSITION)

    def scale(self, request: ScaleRequest, sealed_sizes: Mapping[int, int], *, is_manual: bool = True) -> None:
        if self.state is StreamState.SCALING and self.transition.is_empty:
            self.set_state(StreamState.ACTIVE)
            return
        self.submit_scale(request)
        self.set_state(StreamState.SCALING)
        verdict, transition = self.start_scale(is_manual=is_manual)
        if verdict is not ScaleVerdict.DONE:
            self.create_new_epoch(transition)
            self.old_segments_sealed(transition, sealed_sizes)
        self.complete_scale()
        self.set_state(StreamState.ACTIVE)

    def _record_sealing(self, segments: Segments, epoch: int) -> None:
        for segment_id in segments.ids.tolist():
            self.create("sealed in", segment_id, epoch)

    def _record_sizes(self, known: Mapping[int, int]) -> None:
        for number, part in retention.by_shard(IdMap.of(known), self.shard_size).items():
            changed = retention.with_sizes(self.get("shards", number, NOTHING), part)
            if changed is not None:
                self.put("shards", number, changed)

    def _advance(self, epoch: int) -> None:
        record = epochs.after_advance(self.current, self.epoch(epoch))
        if record is not None:
            self.put("one", "current", record)

    # transactions

    def create_transaction(self) -> UUID:
        epoch = transactions.epoch_to_begin_in(self.state, self.current)
        counter = self.get("one", "counter")
        self.put("one", "counter", counter + 1)
        transaction_id = make_transaction_id(epoch, counter)
        self.put("active", transaction_id, transactions.opened(0, LEASE_MS, LEASE_MS))
        return transaction_id

    def seal_transaction(self, transaction_id: UUID, *, commit: bool) -> TransactionStatus:
        now: ActiveTransaction | None = self.get("active", transaction_id)
        if now is None:
            return transactions.refuse_other_end(self.get("completed", transaction_id), commit=commit)
        if not transactions.is_sealed(now.status, commit=commit):
            now = (
                transactions.after_commit_start(now, self.append_order(transaction_id))
                if commit
                else transactions.after_abort_start(now)
            )
            self.put("active", transaction_id, now)
        return now.status

    def append_order(self, transaction_id: UUID) -> int:
        changed, position = transactions.with_transaction(self.order, transaction_id)
        self.put("one", "order", changed)
        return position

    def transaction_status(self, transaction_id: UUID) -> TransactionStatus:
        active: ActiveTransaction | None = self.get("active", transaction_id)
        completed: CompletedTransaction | None = self.get("completed", transaction_id)
        if active is None and completed is None:
            raise NotInHistory(f"expected a transaction, found {transaction_id}")
        return active.status if active is not None else completed.status if completed else TransactionStatus.UNKNOWN

    def ordered_committing(self, limit: int = 100) -> transactions.NextCommit:
        found = transactions.next_commit(self.order, self._transactions, limit)
        self._purge(found.to_purge)
        return found

    def _purge(self, positions: frozenset[int]) -> None:
        changed = transactions.without_positions(self.order, positions)
        if changed is not None:
            self.put("one", "order", changed)

    def _transactions(self, ids: Sequence[UUID]) -> dict[UUID, ActiveTransaction]:
        return {each: found for each in ids if (found := self.get("active", each)) is not None}

    def start_commit(self, limit: int = 100) -> CommittingTransactions:
        if self.committing.is_empty:
            found = self.ordered_committing(limit)
            if not found.committing.is_empty:
                self.put("one", "committing", found.committing)
        self._purge(transactions.positions_of(self.order, self.committing))
        return self.committing

    def start_rolling(self, active_epoch: int) -> None:
        changed = transactions.with_rolling(self.committing, active_epoch)
        if changed is not None:
            self.put("one", "committing", changed)

    def create_duplicates(self, now_ms: int, sealed_sizes: Mapping[int, int]) -> None:
        committing = self.committing
        if transactions.is_rolled(committing, self.current) or committing.active_epoch is None:
            return
        active = self.epoch(committing.active_epoch)
        wanted = transactions.repeat_transaction_epoch(active, self.epoch(committing.epoch), now_ms)
        first = self.create("epochs", wanted.epoch, wanted)
        self._record_history(first, active)
        second = self.create("epochs", wanted.epoch + 1, transactions.repeat_active_epoch(active, first))
        self._record_history(second, first)
        self._record_sealing(active.segments, first.epoch)
        self._record_sealing(first.segments, second.epoch)
        self._record_sizes({each: sealed_sizes.get(each, 0) for each in first.segments.ids.tolist()})

    def complete_rolling(self, sealed_sizes: Mapping[int, int]) -> None:
        committing = self.committing
        if transactions.is_rolled(committing, self.current) or committing.active_epoch is None:
            return
        active = self.epoch(committing.active_epoch)
        self._record_sizes({each: sealed_sizes.get(each, 0) for each in active.segments.ids.tolist()})
        self._advance(active.epoch + 2)

    def complete_commit(self, now_ms: int) -> None:
        for transaction_id in self.committing.transaction_ids:
            active: ActiveTransaction | None = self.get("active", transaction_id)
            if active is not None:
                self.create("completed", transaction_id, transactions.completion_of(active, now_ms))
                self.remove("active", transaction_id)
        for epoch in transactions.droppable_epochs(list(self.tables["epochs with transactions"]), self.current):
            if not any(make_transaction_id(epoch, 0).int >> 96 == each.int >> 96 for each in self.tables["active"]):
                self.remove("epochs with transactions", epoch)
        if not self.committing.is_empty:
            self.put("one", "committing", NO_COMMIT)

    def commit(
        self, now_ms: int, transaction_sizes: Mapping[int, int], active_sizes: Mapping[int, int]
    ) -> CommittingTransactions:
        committing = self.start_commit()
        if self.state is not StreamState.SEALING:
            self.set_state(StreamState.COMMITTING_TXN)
        if not committing.is_empty:
            rolls = transactions.needs_rolling(self.current, self.epoch(committing.epoch))
            if rolls or committing.is_rolling:
                self.start_rolling(self.current.epoch if committing.active_epoch is None else committing.active_epoch)
                self.create_duplicates(now_ms, transaction_sizes)
                self.complete_rolling(active_sizes)
            self.complete_commit(now_ms)
        if self.state is not StreamState.SEALING:
            self.set_state(StreamState.ACTIVE)
        return committing

    # cuts

    def place(self, cut: Mapping[int, int]) -> PlacedCut:
        offsets = IdMap.of(cut)
        low, high = epochs.creation_epochs(offsets)
        return epochs.place(offsets, self.epoch(low), self.chunks(low, high), self.epoch)

    def place_valid(self, cut: Mapping[int, int]) -> PlacedCut:
        placed = self.place(cut)
        cuts.refuse_invalid(placed, is_valid=self.is_valid(cut))
        return placed

    def is_valid(self, cut: Mapping[int, int]) -> bool:
        try:
            placed = self.place(cut)
        except NotInHistory:
            return False
        return cuts.is_valid(placed, self.segments_of(*epochs.creation_epochs(placed.cut)))

    def segments_of(self, low: int, high: int) -> Iterator[Segments]:
        return epochs.segments_of(self.epoch(low), self.chunks(low, high), self.epoch, high)

    def between(self, start: PlacedCut | None, end: PlacedCut | None) -> Iterator[Segments]:
        low = 0 if start is None else start.span.low
        high = self.current.epoch if end is None else end.span.high
        return cuts.between(self.segments_of(low, high), start, end)

    def place_given(self, cut: Mapping[int, int]) -> PlacedCut | None:
        return self.place_valid(cut) if cut else None

    def size_between(self, start: Mapping[int, int], end: Mapping[int, int]) -> int:
        first, last = self.place_given(start), self.place_given(end)
        cuts.refuse_unordered(first, last)
        return retention.size_between(self.between(first, last), IdMap.of(start), IdMap.of(end), self.sealed_sizes)

    def sealed_sizes(self, ids: Integers) -> dict[int, int]:
        numbers = retention.shard_numbers(ids, self.shard_size).tolist()
        known = {number: self.get("shards", number, NOTHING) for number in set(numbers)}
        pairs = zip(ids.tolist(), numbers, strict=True)
        return {each: known[number][each] for each, number in pairs if each in known[number]}

    # truncation, retention, queries

    def start_truncation(self, cut: Mapping[int, int]) -> None:
        now = self.truncation
        try:
            placed = self.place(cut)
        except NotInHistory as error:
            raise InvalidArgument("expected a cut of this stream") from error
        retention.refuse_truncation(now, placed, self.state, is_valid=self.is_valid(cut))
        before = retention.place_truncation(now)
        size = self.size_between(now.cut, cut)
        ending = retention.ending_before(placed, self.between(before, placed))
        self.put(
            "one",
            "truncation",
            retention.with_truncation(now, placed, sum(len(part) for part in ending), size, UUID(int=1)),
        )

    def being_deleted(self) -> IdSet:
        wanted = retention.place_truncation(self.truncation)
        if not self.truncation.updating or wanted is None:
            return NO_IDS
        last = retention.deleted_before(self.truncation)
        return _ids_in(retention.ending_before(wanted, self.between(last, wanted)))

    def deleted(self) -> IdSet:
        gone = retention.deleted_before(self.truncation)
        return NO_IDS if gone is None else _ids_in(retention.ending_before(gone, self.between(None, gone)))

    def complete_truncation(self) -> None:
        changed = retention.after_truncation(self.truncation)
        if changed is not None:
            self.put("one", "truncation", changed)

    def add_retention(self, record: StreamCutRecord) -> None:
        changed = retention.with_entry(self.retention, record.entry)
        if changed is not None:
            self.create("cuts", record.recording_time_ms, record)
            self.put("one", "retention", changed)

    def delete_retention(self, time_ms: int) -> None:
        for entry in retention.entries_up_to(self.retention, time_ms):
            self.remove("cuts", entry.recording_time_ms)
        changed = retention.without_up_to(self.retention, time_ms)
        if changed is not None:
            self.put("one", "retention", changed)

    def retention_before(self, cut: Mapping[int, int]) -> RetentionEntry | None:
        placed = self.place(cut)

        def is_before(entry: RetentionEntry) -> bool:
            recorded: StreamCutRecord = self.get("cuts", entry.recording_time_ms)
            return cuts.is_equal_or_after(placed, self.place(recorded.cut))

        return retention.reference_before(self.retention, is_before)

    def epoch_at(self, time_ms: int) -> int:
        found = 0
        for number in range(self.current.epoch + 1):
            if self.epoch(number).creation_time_ms <= time_ms:
                found = number
        return found

    def successors(self, segment_id: int) -> dict[int, list[int]]:
        sealing = self.get("sealed in", segment_id)
        if sealing is None:
            epochs.segment_in(self.epoch(epoch_of(segment_id)), segment_id)
            return {}
        return epochs.successors(segment_id, self.epoch(sealing), self.epoch(sealing - 1))

    def walk(self, low: int, high: int) -> Iterator[EpochRecord]:
        return epochs.replay(self.epoch(low), self.chunks(low, high), self.epoch, high)

    # crashes

    def copy(self) -> World:
        twin = World(self.chunk_size, self.shard_size)
        twin.tables = {name: dict(table) for name, table in self.tables.items()}
        return twin

    def crashed(self, workflow: Callable[[World], object]) -> Iterator[World]:
        """The same stream, as it stands after the workflow died before its first, second, ... write."""
        undisturbed = self.copy()
        workflow(undisturbed)
        for count in islice(range(undisturbed.writes + 1), undisturbed.writes):
            twin = self.copy()
            twin.writes_left = count
            try:
                workflow(twin)
            except Crash:
                twin.writes_left = None
                yield twin


def _ids_in(parts: Iterable[Segments]) -> IdSet:
    return IdSet.of(Segments.join(parts).ids.tolist())
