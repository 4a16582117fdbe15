"""Repair of one stream: unreadable, missing and contradictory records are rebuilt from other records.

    1  read the state and its version
    2  read all records, without the cache; each wrong record is a finding, with a new record if others determine it
    3  read the state again: another version means that a workflow began or ended, and 1 to 3 are repeated
    4  with `apply`, write the new records, in the order in which they follow from each other

A run without `apply` ends before step 4, and writes nothing.

It may run beside workflows, and beside other repairs:

- A record that is readable and contradicts no other record is never written.
- Each write replaces only the content that was read in step 2: a missing key (create only), or the same bytes (a
  compare-and-set on their ETag). If a workflow wrote meanwhile, the repair's write is refused, and the finding says so.
- New records follow from epochs up to the current one. These epochs are complete, and no workflow changes them; a
  workflow that finds such a record treats its step as done.
- The current epoch is only rewritten with the number that it had, or ahead of that number over unreadable bytes.
- Records that only a workflow determines are checked only if no workflow has the stream in step 1 and step 3. Then no
  workflow had it in between, since each workflow changes the version of the state. A workflow that begins after step 3
  finds the record still damaged, and fails, or finds it rebuilt.
- The state itself is replaced only if its bytes cannot be read, and no request could have the stream.
- A table's marker is written only if the stream still has records; a deletion that runs meanwhile removes them.

So if a workflow stopped at a damaged record, the repair can still rebuild that record; `recover` carries the workflow
out afterwards.

Source: docs/operations/repair.md, "A record of a stream".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar
from uuid import UUID

from accel.errors import FormatError, IllegalState, OperationNotAllowed, StreamDeleted
from accel.history.rules.configuration import HistoryLayout
from accel.history.rules.requests import RequestStatus
from accel.history.rules.retention import RetentionSet, shard_numbers
from accel.history.rules.states import ACTIVE, StreamState, StreamStatus
from accel.history.rules.transactions import CommitOrder, TransactionStatus
from accel.history.rules.values import Integers, checked_numbers
from accel.history.store import keys
from accel.history.store.keys import MARK
from accel.history.store.parts import StreamParts
from accel.history.store.segment_host import GivenSizes, NoHost
from accel.history.store.stream_store import StreamStore
from accel.repair.epochs import AT_REST, EpochsRepair, Sizes
from accel.repair.findings import MISSING, Finding, Findings, Repair, RepairOutcome, RunIsFull
from loaders.errors import TableMissing
from loaders.layout import TABLE_MARKER
from loaders.tables import TypedKey, raw_key
from loaders.tables.typed_key import Inspected

T = TypeVar("T")

ROUNDS_MAX: Final = 4
"""Maximum number of times that the records are read, if workflows begin and end meanwhile."""

POSITIONS_LEFT_OUT: Final = 1 << 20
"""Number of positions that a rebuilt order of commits skips: transactions may have got positions not yet recorded."""

_COPY: Final = "restore the key from a version or a copy of the bucket"


def repair_stream(
    streams: StreamStore, scope: str, name: str, *, apply: bool = False, sizes: Mapping[int, int] | None = None
) -> Repair:
    """Find damaged, missing and contradictory records of a stream; rebuild those that follow from other records.

    It may run beside workflows. It reads all records of the stream from the store, not from a cache. A client that has
    already decoded a damaged record uses the record until it opens the stream again.

    Args:
        streams: contains the stream.
        scope: its scope.
        name: its name.
        apply: whether to write; otherwise nothing is changed.
        sizes: sizes of sealed segments, by id, for a lost shard of sizes; other sizes come from a host that holds the
            segments.

    Raises:
        NotInHistory: there is no such stream, or its creation was interrupted.
        StreamDeleted: it is being deleted.
        OperationNotAllowed: workflows began and ended during every attempt.
        InvalidArgument: invalid sizes.
    """
    given = checked_numbers("sizes of sealed segments", sizes or {}, 0)
    parts = streams.parts_of(scope, name)

    def known(ids: Integers) -> Mapping[int, int]:
        known = {segment_id: given[segment_id] for segment_id in ids.tolist() if segment_id in given}
        others = ids[given.positions_of(ids) < 0]
        if isinstance(parts.host, NoHost | GivenSizes) or not len(others):
            return known
        tails = parts.host.tails((scope, name), others)
        return {**known, **checked_numbers("sizes from the host", tails, 0)}

    try:
        return Repairing(parts, known).run(apply=apply)
    except TableMissing as error:
        raise StreamDeleted(str(parts.stream), str(parts.stream.unique_id)) from error


class Repairing:
    """Repairs one stream. Threads: one.

    Args:
        parts: the parts of the stream.
        sizes: returns the known sizes of sealed segments.
    """

    def __init__(self, parts: StreamParts, sizes: Sizes) -> None:
        self._store = parts.store
        self._stream = parts.stream
        self._sizes = sizes
        self._parts = replace(parts, layout=HistoryLayout(), host=NoHost())
        self._keys = self._parts.keys

    def run(self, *, apply: bool) -> Repair:
        """Find wrong records, and with `apply` write rebuilt records.

        Calls: 3 an epoch or fewer, 2 a segment, 1 for each other record; with `apply` 2 or 3 more for each one written.

        Raises:
            OperationNotAllowed: workflows began and ended during every attempt.
            IllegalState: the stream is still being created.
            TableMissing: the stream has no tables.
            StoreError: repeat the same call.
        """
        for _ in range(ROUNDS_MAX):
            before = self._keys.state().inspect()
            findings, is_complete = Findings(), True
            try:
                self._scan(before, findings)
            except RunIsFull:
                is_complete = False
            if self._keys.state().inspect().etag == before.etag:
                repair = findings.written() if apply else findings.seen()
                return Repair(str(self._stream), apply, repair, is_complete)
        raise OperationNotAllowed(f"expected no change of the state, found one in {ROUNDS_MAX} attempts: try again")

    # All records

    def _scan(self, status: Inspected[StreamStatus], findings: Findings) -> None:
        state = None if status.value is None else status.value.state
        if state in (StreamState.UNKNOWN, StreamState.CREATING):
            raise IllegalState(f"expected a created stream, found {self._stream} being created: recover it")
        if not self._check_tables(findings):
            raise RunIsFull  # the keys of a table without a marker cannot be listed
        if not self._check_layout(findings):
            return
        truncation = self._keys.truncation().inspect()
        epochs = EpochsRepair(self._parts, findings, truncation.value, self._sizes)
        epochs.run(state)
        if truncation.value is None:
            findings.lose(self._keys.truncation(), truncation, f"{_COPY}: no other record has the stream's start")
        self._check_creation(findings)
        self._check_retention(findings)
        self._check_transactions(findings, is_at_rest=state in AT_REST)
        self._check_groups(findings)
        requests = self._check_requests(findings, status)
        if status.value is None:
            self._check_state(findings, status, epochs, requests)

    # Tables

    def _check_tables(self, findings: Findings) -> bool:
        """Whether the tables that every stream has, and the table of reader groups, have valid markers.

        Raises:
            TableMissing: the stream was deleted: it has neither a marker nor records.
        """
        stream = self._stream
        is_marked = self._is_marked(stream.metadata_table, findings)
        if not is_marked and not self._has_records(stream.metadata_table):
            raise TableMissing(stream.metadata_table, "", "expected a table, found neither a marker nor records")
        others = [self._is_marked(stream.epochs_table, findings)]
        others.append(self._is_marked(stream.reader_groups_table, findings, is_optional=True))
        return is_marked and all(others)

    def _is_marked(self, table: str, findings: Findings, *, is_optional: bool = False) -> bool:
        """Whether a table has a valid marker; an optional table without records needs no marker."""
        tables, problem = self._store.tables, MISSING
        try:
            if tables.table_exists(table) or (is_optional and not self._has_records(table)):
                return True
        except FormatError as error:
            problem = str(error)
        finding = Finding(table, TABLE_MARKER, problem, "the records in the table", RepairOutcome.REBUILDABLE)
        findings.mend(finding, lambda: self._restore_table(table))
        return False

    def _has_records(self, table: str) -> bool:
        """Whether a table holds records, with or without a marker. 1 call for 1,000 keys, 1 for each tombstone."""
        opened = self._store.tables.table(table)
        keys_of_it = (key for _, key in self._store.tables.etags([table]))
        return any(not raw_key(opened, key).inspect().is_missing for key in keys_of_it)

    def _restore_table(self, table: str) -> None:
        if not self._has_records(self._stream.metadata_table):  # deleted meanwhile
            raise TableMissing(table, "", "expected records of the stream, found none")
        self._store.tables.restore_table(table)

    def _check_layout(self, findings: Findings) -> bool:
        stored = self._keys.layout().inspect()
        if stored.value is None:
            findings.lose(self._keys.layout(), stored, f"{_COPY}, and repair again: no other record was checked")
            return False
        self._parts = replace(self._parts, layout=stored.value)
        self._keys = self._parts.keys
        return True

    def _check_creation(self, findings: Findings) -> None:
        first, time = self._keys.epoch(0).inspect().value, self._keys.creation_time().inspect()
        if first is not None:
            self._expect(self._keys.creation_time(), time, first.creation_time_ms, keys.epoch_key(0), findings)
        elif time.value is None:
            findings.lose(self._keys.creation_time(), time, f"repair again after {keys.epoch_key(0)} is rebuilt")
        wanted = self._keys.configuration().inspect()
        if wanted.value is None:
            advice = f"{_COPY}; the stream's entry in its scope has only the configuration of its creation"
            findings.lose(self._keys.configuration(), wanted, advice)

    def _expect(self, key: TypedKey[T], found: Inspected[T], value: T, source: str, findings: Findings) -> None:
        if found.value != value:
            problem = "" if found.value is None else f"expected {value}, found {found.value}"
            findings.rebuild(key, found, value, source, problem)

    # Recorded cuts

    def _check_retention(self, findings: Findings) -> None:
        prefix = keys.cut_key(0)[:-1]
        entries = []
        for time_ms in sorted(int(number) for number in self._numbered(prefix)):
            cut = self._keys.cut(time_ms).inspect()
            if cut.value is not None:
                entries.append(cut.value.entry)
            elif not cut.is_missing:  # purged since it was listed
                advice = f"{_COPY}, or erase the key: retention then continues as if this cut had been purged"
                findings.lose(self._keys.cut(time_ms), cut, advice)
        found = self._keys.retention().inspect()
        if found.value is None:
            known = RetentionSet(
                [entry.recording_time_ms for entry in entries], [entry.recorded_size for entry in entries]
            )
            findings.rebuild(self._keys.retention(), found, known, "the existing recorded cuts")

    def _numbered(self, prefix: str) -> list[str]:
        """The numbers after a prefix in the keys with this prefix."""
        ends = (key.removeprefix(prefix) for key in self._keys.metadata.keys(prefix))
        return [end for end in ends if end.isdecimal()]

    # Transactions

    def _check_transactions(self, findings: Findings, *, is_at_rest: bool) -> None:
        committing: dict[int, UUID] = {}
        for epoch in self._epochs_with_transactions():
            self._check_mark(epoch, findings)
            if not self._is_marked(self._stream.transactions_table(epoch), findings, is_optional=True):
                raise RunIsFull  # the transactions to be committed are unknown until they can be listed
            with suppress(TableMissing):
                for transaction_id in filter(None, map(_uuid, self._keys.transactions(epoch).keys())):
                    self._look_at(epoch, transaction_id, committing, findings)
        found = self._keys.commit_order().inspect()
        known = CommitOrder() if found.value is None else found.value
        at = dict(zip(known.positions, known.transaction_ids, strict=True))
        lacking = {
            position: transaction_id
            for position, transaction_id in committing.items()
            if at.get(position) != transaction_id
        }
        if found.value is None or (lacking and is_at_rest):
            kept = sorted((at | committing).items())
            after = max(known.next_position, (kept[-1][0] + 1 if kept else 0) + POSITIONS_LEFT_OUT)
            order = CommitOrder(after, tuple(entry for entry, _ in kept), tuple(entry for _, entry in kept))
            problem = (
                "" if found.value is None else f"expected {len(lacking)} transactions to commit, found none of them"
            )
            source = "the transactions to commit, each with its position"
            findings.rebuild(self._keys.commit_order(), found, order, source, problem)

    def _epochs_with_transactions(self) -> list[int]:
        stream = self._stream
        names = self._store.tables.table_names(stream.transactions_prefix)
        with_table = {epoch for name in names if (epoch := stream.epoch_of_table(name)) is not None}
        marked = map(int, filter(str.isdecimal, self._keys.epochs.keys()))
        return sorted(with_table.union(marked))

    def _check_mark(self, epoch: int, findings: Findings) -> None:
        key = self._keys.epoch_mark(epoch)
        found = key.inspect()
        if found.seen is None:
            findings.rebuild(key, found, MARK, "the table of the epoch's transactions")

    def _look_at(self, epoch: int, transaction_id: UUID, committing: dict[int, UUID], findings: Findings) -> None:
        key = self._keys.transaction(epoch, transaction_id)
        found = key.inspect()
        value = found.value
        if value is not None and value.status is TransactionStatus.COMMITTING and value.commit_position is not None:
            committing[value.commit_position] = transaction_id
        elif found.error is not None:
            advice = f"{_COPY}: no other record contains whether to commit or abort it"
            findings.lose(key, found, advice)

    # Reader groups

    def _check_groups(self, findings: Findings) -> None:
        table = self._store.tables.table(self._stream.reader_groups_table)
        with suppress(TableMissing):
            names = table.keys()
            for name in names:
                found = raw_key(table, name).inspect()
                if found.error is not None:
                    advice = f"{_COPY}; or delete the group, and create it again at a cut"
                    findings.name(Finding(table.name, name, str(found.error), advice, RepairOutcome.LOST))

    # Workflows

    def _check_requests(self, findings: Findings, status: Inspected[StreamStatus]) -> str:
        """Check the requests; return why one of them may have the stream, or an empty text if none can."""
        owner = None if status.value is None else status.value.workflow_id
        reason = ""
        prefix = keys.REQUESTS_PREFIX
        names = [_uuid(key.removeprefix(prefix)) for key in self._keys.metadata.keys(prefix)]
        for workflow_id in filter(None, names):
            key = self._keys.request(workflow_id)
            found = key.inspect()
            if found.value is not None:
                if found.value.status is RequestStatus.CLAIMED:
                    reason = f"request {workflow_id} may have the stream"
                continue
            if found.is_missing:
                continue
            if status.value is None:
                reason = f"request {workflow_id} cannot be read, and may have the stream"
                findings.lose(key, found, "repair the state first: it says whether this workflow has the stream")
            elif owner != workflow_id:
                findings.rebuild(
                    key, found, None, "the state, which does not contain its id; repeat a request that waited"
                )
            else:
                self._lose_request(key, found, findings)
        if owner is not None and owner not in names:
            key = self._keys.request(owner)
            found = key.inspect()
            if found.is_missing:
                self._lose_request(key, found, findings)
        return reason

    def _lose_request(self, key: TypedKey[T], found: Inspected[T], findings: Findings) -> None:
        advice = f"{_COPY}, and recover: the stream's state names this workflow, and no other record has its plan"
        findings.lose(key, found, advice)

    # The state

    def _check_state(
        self, findings: Findings, found: Inspected[StreamStatus], epochs: EpochsRepair, requests: str
    ) -> None:
        key = self._keys.state()
        reason = requests or self._unfinished(epochs)
        if reason:
            findings.lose(key, found, f"{_COPY}: {reason}")
            return
        sizes = self._recorded_sizes(epochs)
        if sizes == 0:
            source = "no request or truncation is under way, and no active segment has a sealed size"
            findings.rebuild(key, found, ACTIVE, source)
        elif epochs.current is not None and sizes == len(epochs.current.segments):
            findings.rebuild(key, found, StreamStatus(StreamState.SEALED), "the sealed sizes of all active segments")
        else:
            findings.lose(key, found, f"{_COPY}: some active segments have sealed sizes, others do not")

    def _unfinished(self, epochs: EpochsRepair) -> str:
        """Why the stream may be in the middle of a workflow; empty if it is not."""
        current = self._keys.current_epoch().inspect().value
        if current is None or current.epoch != epochs.last or not epochs.is_whole:
            return "the current epoch is unreadable or not the last recorded epoch; write the rebuilt records first"
        truncation = self._keys.truncation().inspect().value
        if truncation is None or truncation.updating:
            return "a truncation may be under way"
        return ""

    def _recorded_sizes(self, epochs: EpochsRepair) -> int:
        """The number of active segments with a sealed size; -1 if a shard of their sizes is lost."""
        current, layout = epochs.current, self._parts.layout
        if current is None:
            return -1
        ids = current.segments.ids
        count = 0
        for number in set(shard_numbers(ids, layout.shard_size, layout.shard_by).tolist()):
            if number in epochs.damaged_shards:
                return -1
            found = self._keys.shard(number).inspect()
            count += 0 if found.value is None else int((found.value.positions_of(ids) >= 0).sum())
        return count


def _uuid(text: str) -> UUID | None:
    """The id in a key; None if the key has no valid id."""
    try:
        return UUID(text)
    except ValueError:
        return None
