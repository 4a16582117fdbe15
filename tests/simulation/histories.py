"""Who changes the history of a stream: scalers, committers, truncators, retention, owners and `recover`, on one stream.

The host of the segments is one that lives (`MemorySegments`), asked over a network like the store: a call takes its
time, and the process may die before it. Clocks of these processes are off by hours, and jump.

Beside them the oracle remembers what it was told: which scale was carried out and which was refused, which transactions
are committed, and each epoch as it was when it was first current.
"""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from accel.errors import IllegalState, InvalidArgument, OperationNotAllowed, ScaleConflict, ScalePrecondition
from accel.history.rules.configuration import HistoryLayout, RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.transactions import TransactionStatus
from accel.history.store import HistorySettings, Stream, StreamStore
from accel.testing import MemorySegments
from loaders.errors import StoreError, TableError
from tests.accel.history.store.bench import Bench
from tests.accel.history.store.soundness import check_sound
from tests.conformance.history_world import SCOPE, STREAM
from tests.simulation.hosts import SteppingHost
from tests.simulation.names import Names, settle_names
from tests.simulation.scheduler import Violation
from tests.simulation.world import HISTORY, START_SECONDS, Actor

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.world import Machine, World

NAME = SCOPE, STREAM
SKEW_SECONDS = 3 * 3600.0
REFUSED = (IllegalState, InvalidArgument, OperationNotAllowed, ScaleConflict, ScalePrecondition)
"""What says that nothing of the stream was changed."""

CLOCK_ERROR_MS = 2000.0
"""A store reports its time in whole seconds, and a request takes one."""

PAUSE_SECONDS_MAX: defaultdict[str, float] = defaultdict(lambda: 30.0, recover=8.0)
"""After each act, so that some are alone and some meet others."""

WHOLE_EVERY = 40
"""Of the steps that wrote to the history, each so many the whole of it is read."""


class History:
    """A stream of a world, and what is known of it.

    Args:
        world: with the bucket.
        random: decides how small its pieces are.
    """

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.settings = HistorySettings(
            layout=HistoryLayout(random.choice([1, 2, 5]), random.choice([1, 2, 5])),
            part_epochs=random.choice([1, 2, 4]),
            leaf_parts=random.choice([2, 3]),
            ids_block=random.choice([1, 4]),
        )
        self.segments = MemorySegments()
        self.names = Names()
        self.transactions: dict[str, UUID] = {}
        self.acknowledged: dict[float, int] = {}
        self.refused: set[float] = set()
        self.committed: set[UUID] = set()
        self.truncations: list[dict[int, int]] = []
        self.epochs: dict[int, EpochRecord] = {}
        self.current = -1
        self._system = replace(world.system, sleep=lambda _: None)
        self._looks = 0
        self._create(random)

    def _create(self, random: Random) -> None:
        streams = self.streams()
        streams.create_scope(SCOPE)
        kind = random.choice([RetentionKind.SIZE, RetentionKind.TIME])
        least = random.choice([3, 20]) if kind is RetentionKind.SIZE else random.choice([5_000, 60_000])
        self.policy = RetentionPolicy(kind, least)
        wanted = StreamConfiguration(min_segments=1, retention=self.policy)
        streams.create_stream(SCOPE, STREAM, wanted, int(START_SECONDS * 1000), segments=random.randint(1, 3))

    def streams(self) -> StreamStore:
        """With nothing cached, past all faults."""
        return StreamStore.open(self.world.memory, system=self._system, settings=self.settings, host=self.segments)

    def check(self, *, whole: bool = False) -> None:
        """The current epoch has its record, segments tile the keys, times ascend, and nothing that was ever changes."""
        stream = self.streams().stream(SCOPE, STREAM)
        now = stream.current_epoch()
        if now.epoch < self.current:
            raise Violation(f"expected epoch {self.current} or a later one, found {now.epoch}")
        self._check_record(stream.epochs.epoch(now.epoch))
        self.current = now.epoch
        self._looks += 1
        if whole or self._looks % WHOLE_EVERY == 0:
            self._check_whole(stream)

    def _check_record(self, found: EpochRecord) -> None:
        known = self.epochs.setdefault(found.epoch, found)
        if known != found:
            raise Violation(f"expected epoch {found.epoch} as it was, {known}, found {found}")
        at = 0.0
        for each in sorted(found.segments, key=lambda each: each.key_start):
            if each.key_start != at:
                raise Violation(f"epoch {found.epoch}: expected a segment that begins at {at}, found {each}")
            at = each.key_end
        if at != 1.0:
            raise Violation(f"epoch {found.epoch}: expected segments up to 1.0, found them up to {at}")
        before = self.epochs.get(found.epoch - 1)
        if before is not None and before.creation_time_ms >= found.creation_time_ms:
            raise Violation(f"epoch {found.epoch} was made at {found.creation_time_ms}, the one before it: {before}")

    def _check_whole(self, stream: Stream) -> None:
        records = list(stream.epochs.between(0, self.current))
        if [each.epoch for each in records] != list(range(self.current + 1)):
            raise Violation(f"expected epochs 0 to {self.current}, found {[each.epoch for each in records]}")
        for each in records:
            self._check_record(each)
        self._check_transactions(stream, records)
        self._check_scales(records)
        self.world.count("histories compared")

    def _check_transactions(self, stream: Stream, records: list[EpochRecord]) -> None:
        known = {each for record in records for each in record.segments.ids.tolist()}
        for transaction_id in self.transactions.values():
            merged = self.segments._merged.get((NAME, transaction_id))
            status = stream.transactions.status(transaction_id)
            if transaction_id in self.committed and status is not TransactionStatus.COMMITTED:
                raise Violation(f"transaction {transaction_id} was told to be committed, and is {status}")
            if status is TransactionStatus.COMMITTED and (merged is None or not set(merged) <= known):
                raise Violation(f"transaction {transaction_id} is committed, and its data is in {merged}")
            if merged is not None and status in (TransactionStatus.OPEN, TransactionStatus.ABORTED):
                raise Violation(f"transaction {transaction_id} is {status}, and its data is in {merged}")

    def _check_scales(self, records: list[EpochRecord]) -> None:
        ends = {segment.key_end: record.epoch for record in records for segment in reversed(record.segments)}
        lost = {key: epoch for key, epoch in self.acknowledged.items() if key not in ends}
        if lost:
            raise Violation(f"expected scales that were told to be done, found nothing of {lost}")
        if done := self.refused & set(ends):
            raise Violation(f"expected nothing of scales that were refused, found {done}")

    def settle(self) -> None:
        """Recovered, everything agrees, at the host too, and the stream takes a scale."""
        now_ms = int((START_SECONDS + self.world.scheduler.seconds + 2 * SKEW_SECONDS) * 1000)
        bench = Bench(self.settings, self.world.memory, dict(self.transactions), host=self.segments, now_ms=now_ms)
        bench.stream().workflows.retention.purge()  # what one that failed has left, as the next run does
        try:
            check_sound(bench)
        except AssertionError as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise Violation(f"{STREAM} at the end: {error}, {at.name}: {at.line}") from error
        self.check(whole=True)
        if HISTORY in self.world.choices.rooms:
            settle_names(self.world)


class HistoryActor(Actor):
    """A process that does one thing to the stream, again and again.

    Args:
        acts: what it does, with weights.
    """

    def __init__(self, machine: Machine, *acts: str) -> None:
        super().__init__(machine)
        self.acts: list[Callable[[Stream], None]] = [getattr(self, each) for each in acts]

    def live(self) -> None:
        """A process: some acts, with what it has cached."""
        history, machine = self.world.history, self.machine
        host: Any = SteppingHost(machine)
        streams = StreamStore.open(machine.store, system=machine.system, settings=history.settings, host=host)
        stream = streams.stream(SCOPE, STREAM)
        for _ in range(machine.random.randrange(1, 8)):
            act = machine.random.choice(self.acts)
            try:
                act(stream)
            except REFUSED as error:
                machine.count(f"{act.__name__}: {type(error).__name__}")
            except (StoreError, TableError):
                machine.count("requests that failed")
            if machine.random.random() < 0.1:
                machine.set_clock()
            machine.scheduler.sleep(machine.random.uniform(0, PAUSE_SECONDS_MAX[act.__name__]))

    def append(self, stream: Stream) -> None:
        """Write to what takes writes."""
        for each in stream.active_segments().ids.tolist():
            try:
                self.world.history.segments.append(NAME, each, self.machine.random.randint(0, 5))
            except LookupError:
                self.machine.count("appends to sealed segments")

    def split(self, stream: Stream) -> None:
        """Split a segment, at a key that no other scale has."""
        active = list(stream.active_segments())
        chosen = self.machine.random.choice(active)
        key = self.machine.random.uniform(chosen.key_start, chosen.key_end)
        if len(active) < 6 and chosen.key_start < key < chosen.key_end:
            self._scale(stream, [chosen.id], [(chosen.key_start, key), (key, chosen.key_end)], key)

    def merge(self, stream: Stream) -> None:
        """Merge two neighbours."""
        active = sorted(stream.active_segments(), key=lambda each: each.key_start)
        if len(active) > 1:
            at = self.machine.random.randrange(len(active) - 1)
            one, other = active[at], active[at + 1]
            self._scale(stream, [one.id, other.id], [(one.key_start, other.key_end)], None)

    def _scale(self, stream: Stream, ids: list[int], ranges: list[tuple[float, float]], key: float | None) -> None:
        history = self.world.history
        try:
            record = stream.scale(ids, ranges)
        except REFUSED:
            if key is not None:
                history.refused.add(key)
            raise
        self.machine.count("scales")
        if key is not None:
            history.acknowledged[key] = record.epoch

    def transact(self, stream: Stream) -> None:
        """Begin a transaction, write to it, and decide about it."""
        random, history = self.machine.random, self.world.history
        transaction_id = stream.transactions.begin(lease_ms=int(random.uniform(1, 600) * 1000))
        history.transactions[f"{self.machine.name}-{len(history.transactions)}"] = transaction_id
        self.machine.store.wait_for_other("write")
        history.segments.write(NAME, transaction_id, random.randint(1, 4))
        if random.random() < 0.8:
            stream.transactions.seal(transaction_id, commit=random.random() < 0.8)
            self.machine.count("transactions")

    def commit(self, stream: Stream) -> None:
        """Commit what is decided."""
        done = stream.commit(None, self.machine.random.choice([None, 1, 2]))
        self.world.history.committed |= set(done.transaction_ids)
        self.machine.count("commits of transactions", len(done.transaction_ids))

    def expire(self, stream: Stream) -> None:
        """Abort what nobody decided."""
        self.machine.count("transactions that expired", len(stream.transactions.abort_expired()))

    def truncate(self, stream: Stream) -> None:
        """To a place in an epoch that is over, or in the current one."""
        random, current = self.machine.random, stream.current_epoch().epoch
        chosen = stream.epochs.epoch(random.randint(max(0, current - 4), current)).segments.ids
        tails = self.world.history.segments.tails(NAME, chosen)
        cut = {each: random.randint(0, tails[each]) for each in chosen.tolist()}
        self.world.history.truncations.append(cut)
        stream.truncate(cut)
        self.machine.count("truncations")

    def retain(self, stream: Stream) -> None:
        """Retention, as a job runs it: by time, only what was recorded so long ago by the right clock is deleted.

        A run also ends a truncation that another process began; whoever began it decided how much is deleted.
        """
        history = self.world.history
        point = stream.retention.run()
        if point is None or dict(history.streams().stream(SCOPE, STREAM).head()) in history.truncations:
            return
        self.machine.count("truncations by retention")
        policy = history.policy
        least_ms = policy.minimum if policy.kind is RetentionKind.TIME else 0
        age_ms = (START_SECONDS + self.machine.scheduler.seconds) * 1000 - point.recording_time_ms
        if age_ms < least_ms - CLOCK_ERROR_MS:
            raise Violation(f"expected that retention keeps {least_ms} ms, found all deleted up to {age_ms:.0f} ms ago")

    def configure(self, stream: Stream) -> None:
        """Change what the owner wants."""
        wanted = replace(stream.configuration(), tags=(f"tag-{self.machine.random.randrange(9)}",))
        stream.configure(wanted)
        self.machine.count("configurations")

    def recover(self, stream: Stream) -> None:
        """End what others have begun."""
        self.machine.count("workflows recovered", len(stream.recover()))


HISTORY_ACTORS: dict[str, tuple[str, ...]] = {
    "scaler-0": ("split", "split", "merge", "append"),
    "scaler-1": ("split", "merge", "append", "configure"),
    "committer-0": ("transact", "transact", "commit", "append"),
    "committer-1": ("transact", "commit", "expire"),
    "truncator": ("truncate", "retain", "append"),
    "retention": ("retain", "retain", "configure"),
    "recoverer": ("recover",),
}
"""What each actor of a history does, by its name."""
