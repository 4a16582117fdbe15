"""A stream that is scaled, committed to, truncated, sealed, deleted and made again in any order, beside a model of it.

The model (`remembered`) keeps every epoch whole. After each step all questions are asked of one of two clients, each of
which keeps what it has read, and must be answered as the model says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from accel.errors import AccelError, IllegalState, InvalidArgument, ScaleInputInvalid, ScalePrecondition
from accel.history.rules.configuration import HistoryLayout, RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.segments import SegmentRecord, Segments, split_range
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.history.rules.values import make_id
from accel.history.store import HistorySettings, Stream
from loaders.errors import DataNotFound
from tests.accel.history.rules import naive
from tests.accel.history.store.bench import NAME, Bench
from tests.accel.history.store.remembered import (
    EQUAL_OR_AFTER,
    LEASE_MS,
    Remembered,
    RememberedTransaction,
    changes,
    first_record,
    last_number,
)
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import examples

CHUNK_SIZES = (1, 2, 3, 1000)
EXAMPLES = 10
STEPS = 30

SEEDS = st.integers(0, 2**32)
SMALL = st.integers(1, 3)
TICKS = st.integers(-9, 30)
"""Clocks of those who ask may be behind."""

POLICIES = st.none() | st.builds(
    lambda kind, least, more: RetentionPolicy(kind, least, None if more is None else least + more),
    st.sampled_from(RetentionKind),
    st.integers(0, 60),
    st.none() | st.integers(0, 60),
)

is_active = precondition(lambda self: not self.model.is_sealed)
is_sealed = precondition(lambda self: self.model.is_sealed)
has_grown = precondition(lambda self: not self.model.is_sealed and len(self.model.records) > 10)


class StreamLife(RuleBasedStateMachine):
    """A stream under one name, and again under the same name once it was deleted."""

    chunk_size: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        size = self.chunk_size
        self.bench = Bench(HistorySettings(layout=HistoryLayout(size, size), part_epochs=size, leaf_parts=2))
        self.turn = 0

    # Its life

    @initialize(segments=st.integers(1, 4), least=SMALL, policy=POLICIES)
    def create(self, segments: int, least: int, policy: RetentionPolicy | None) -> None:
        self.bench.streams().create_scope(SCOPE)
        self.create_stream(segments, least, policy, 0)

    def create_stream(self, segments: int, least: int, policy: RetentionPolicy | None, number: int) -> None:
        wanted = StreamConfiguration(min_segments=least, retention=policy)
        self.bench.streams().create_stream(SCOPE, STREAM, wanted, self.bench.now_ms, segments=segments)
        self.model = Remembered([first_record(segments, number, self.bench.now_ms)], least, policy)
        self.clients = [self.bench.stream(), self.bench.stream()]

    @property
    def stream(self) -> Stream:
        self.turn += 1
        return self.clients[self.turn % 2]

    @rule()
    def open_again(self) -> None:
        self.clients[0] = self.bench.stream()

    @rule()
    def recover(self) -> None:
        assert self.stream.recover() == []

    @has_grown
    @rule()
    def seal(self) -> None:
        self.stream.seal()
        self.model.seal(self.bench.now_ms)
        self.model.is_sealed = True

    @is_sealed
    @rule(seed=SEEDS)
    def ask_for_changes(self, seed: int) -> None:
        self.ask_cuts(Random(seed))
        for refused in (self.stream.transactions.begin, lambda: self.stream.truncate(self.model.tail)):
            with pytest.raises(IllegalState):
                refused()
        segment = self.model.current.segments[0]
        with pytest.raises(IllegalState):
            self.stream.scale([segment.id], [(segment.key_start, segment.key_end)], self.bench.now_ms)
        assert self.stream.retention.run(self.bench.tick()) is None
        assert self.stream.commit(self.bench.now_ms).is_empty

    @is_sealed
    @rule(segments=st.integers(1, 4), least=SMALL, policy=POLICIES)
    def delete_and_create(self, segments: int, least: int, policy: RetentionPolicy | None) -> None:
        stale, number = self.clients, last_number(self.model.current) + 1
        self.bench.streams().delete_stream(SCOPE, STREAM)
        self.bench.tick()
        self.bench.host = type(self.bench.host)()
        self.create_stream(segments, least, policy, number)
        for each in stale:
            with pytest.raises((DataNotFound, AccelError)):
                each.current_epoch()

    # Segments

    @is_active
    @rule(seed=SEEDS, parts=SMALL, count=SMALL, tick=TICKS)
    def scale(self, seed: int, parts: int, count: int, tick: int) -> None:
        chosen = self.neighbours(Random(seed), count)
        ranges = list(split_range(chosen[0].key_start, chosen[-1].key_end, parts))
        ids, time_ms = [each.id for each in chosen], self.bench.tick() + tick
        if len(self.model.current.segments) - len(ids) + parts < self.model.least:
            with pytest.raises(ScalePrecondition):
                self.stream.scale(ids, ranges, time_ms)
            return
        self.model.scale(ids, ranges, time_ms)
        assert self.stream.scale(ids, ranges, time_ms) == self.model.current

    @is_active
    @rule(seeds=st.lists(SEEDS, min_size=2, max_size=5))
    def grow(self, seeds: list[int]) -> None:
        """Some days of a stream at once: a transaction that is committed after several scales."""
        self.begin(1, commit=True)
        for seed in seeds:
            self.append(seed)
            self.scale(seed, parts=1 + seed % 3, count=1 + seed // 3 % 3, tick=0)
        self.commit(tick=0, limit=None)

    @is_active
    @rule(seed=SEEDS)
    def scale_wrongly(self, seed: int) -> None:
        random = Random(seed)
        chosen = self.neighbours(random, 2)
        ids, start, end = [each.id for each in chosen], chosen[0].key_start, chosen[-1].key_end
        for wrong in ([], [(start, (start + end) / 2)], [(start, end), (start, end)]):
            with pytest.raises(ScaleInputInvalid):
                self.stream.scale(ids, wrong, self.bench.now_ms)
        with pytest.raises(ScalePrecondition):
            self.stream.scale([make_id(self.model.current.epoch + 1, 0)], [(start, end)], self.bench.now_ms)

    def neighbours(self, random: Random, count: int) -> list[SegmentRecord]:
        tiles = sorted(self.model.current.segments, key=lambda each: each.key_start)
        first = random.randrange(len(tiles))
        return tiles[first : first + count]

    @is_active
    @rule(seed=SEEDS)
    def append(self, seed: int) -> None:
        random = Random(seed)
        for each in self.model.current.segments.ids.tolist():
            size = random.choice([0, 1, 5])
            self.bench.host.append(NAME, each, size)
            self.model.sizes[each] = self.model.size(each) + size

    # Transactions

    @is_active
    @rule(size=SMALL, commit=st.sampled_from([True, True, False, None]))
    def begin(self, size: int, commit: bool | None) -> None:
        transaction_id = self.stream.transactions.begin(lease_ms=LEASE_MS)
        self.bench.host.write(NAME, transaction_id, size)
        known = RememberedTransaction(self.model.current.reference_epoch, size, self.bench.now_ms + LEASE_MS)
        self.model.transactions[transaction_id] = known
        if commit is not None:
            self.decide(commit=commit)

    @precondition(lambda self: not self.model.is_sealed and self.model.with_status(TransactionStatus.OPEN))
    @rule(commit=st.booleans())
    def decide(self, commit: bool) -> None:
        chosen = self.model.with_status(TransactionStatus.OPEN)[-1]
        status = TransactionStatus.COMMITTING if commit else TransactionStatus.ABORTING
        self.model.transactions[chosen].status = status
        if commit:
            self.model.order.append(chosen)
        for _ in range(2):
            assert self.stream.transactions.seal(chosen, commit=commit) is status
        with pytest.raises(IllegalState):
            self.stream.transactions.seal(chosen, commit=not commit)

    @is_active
    @rule(tick=TICKS, limit=st.none() | SMALL)
    def commit(self, tick: int, limit: int | None) -> None:
        time_ms = self.bench.tick() + tick
        found = self.stream.commit(time_ms, limit)
        assert list(found.transaction_ids) == self.model.commit(time_ms, limit)

    @is_active
    @rule(wait=st.booleans())
    def abort(self, wait: bool) -> None:
        now_ms = self.bench.tick(LEASE_MS + 1 if wait else 1)
        assert set(self.stream.transactions.abort_expired()) == self.model.abort_expired(now_ms)

    # Cuts

    @is_active
    @rule(seed=SEEDS, odd=st.integers(0, 3))
    def truncate(self, seed: int, odd: int) -> None:
        random = Random(seed)
        cut = self.model.some_cut(random) if odd else self.model.odd_cut(random)
        if self.model.truncate(cut):
            self.stream.truncate(cut)
        else:
            with pytest.raises(InvalidArgument):
                self.stream.truncate(cut)

    @is_active
    @rule()
    def record_tail(self) -> None:
        time_ms = self.bench.tick()
        size = self.model.record_tail(time_ms)
        self.stream.workflows.retention.add(time_ms, size, self.model.tail)

    @is_active
    @rule(seed=SEEDS, has_readers=st.booleans(), again=st.booleans())
    def retain(self, seed: int, has_readers: bool, again: bool) -> None:
        time_ms = max(self.model.recorded) if again and self.model.recorded else self.bench.tick()
        read = self.model.some_cut(Random(seed)) if has_readers else None
        point = self.model.retain(time_ms, read)
        found = self.stream.retention.run(time_ms, read)
        assert (None if found is None else found.recording_time_ms) == point

    @precondition(lambda self: not self.model.is_sealed and self.model.recorded)
    @rule(seed=SEEDS)
    def delete_recorded(self, seed: int) -> None:
        time_ms = Random(seed).choice(sorted(self.model.recorded))
        self.stream.workflows.retention.delete_up_to(time_ms)
        self.model.recorded = {each: value for each, value in self.model.recorded.items() if each > time_ms}

    # Questions

    @invariant()
    def every_question_is_answered_alike(self) -> None:
        random = Random(self.turn)
        self.ask_state()
        self.ask_epochs(random)
        self.ask_times(random)
        self.ask_relatives(random.choice(sorted(self.model.known)))
        self.ask_cuts(random)
        self.ask_retention(random)

    def ask_state(self) -> None:
        stream, model = self.stream, self.model
        assert stream.state() is (StreamState.SEALED if model.is_sealed else StreamState.ACTIVE)
        assert stream.current_epoch() == model.current
        assert list(stream.active_segments()) == list(model.current.segments)
        assert dict(stream.head()) == model.head()
        found = stream.truncation()
        spanned = naive.span(model.records, model.cut) if model.cut else {}
        assert dict(found.cut) == model.cut
        assert dict(found.span.epochs) == spanned
        assert list(found.span.segments) == [model.known[each] for each in sorted(model.cut)]
        assert set(Segments.join(stream.cuts.deleted()).ids.tolist()) == model.deleted
        assert (found.deleted_count, found.to_delete_count) == (len(model.deleted), 0)
        assert list(stream.cuts.being_deleted()) == []
        assert (found.size_till, found.updating) == (model.size_till, False)
        assert set(self.bench.host.ids(NAME)) == set(model.known) - model.deleted

    def ask_epochs(self, random: Random) -> None:
        stream, records = self.stream, self.model.records
        low, high = sorted(random.choices(range(len(records)), k=2))
        assert stream.epochs.epoch(low) == records[low]
        assert list(stream.epochs.between(low, high)) == records[low : high + 1]
        with pytest.raises(AccelError):
            stream.epochs.epoch(len(records))
        segment = random.choice(records[high].segments)
        assert stream.epochs.segment(segment.id) == segment
        if self.model.transactions:
            chosen = random.choice(sorted(self.model.transactions))
            assert stream.transactions.status(chosen) is self.model.transactions[chosen].status

    def ask_times(self, random: Random) -> None:
        stream, records = self.stream, self.model.records
        first, last = records[0].creation_time_ms, records[-1].creation_time_ms
        times = [random.choice(records).creation_time_ms - random.randint(0, 1), random.randint(first - 9, last + 9)]
        for time_ms in times:
            epoch = self.model.epoch_at(time_ms)
            assert stream.epochs.epoch_at(time_ms) == epoch
            assert dict(stream.segments_at(time_ms)) == self.model.segments_at(time_ms)
        low, high = map(self.model.epoch_at, sorted(times))
        found = [(each.epoch, each.splits, each.merges) for each in stream.epochs.scales(*sorted(times))]
        steps = [changes(records[each - 1].segments, records[each].segments) for each in range(low + 1, high + 1)]
        assert found == [(low + at, *counts) for at, counts in enumerate([(0, 0), *steps])]

    def ask_relatives(self, segment_id: int) -> None:
        assert self.stream.epochs.successors(segment_id) == self.model.successors(segment_id)
        assert self.stream.epochs.predecessors(segment_id) == self.model.predecessors(segment_id)

    def ask_cuts(self, random: Random) -> None:
        stream, model = self.stream, self.model
        one, other, odd = model.some_cut(random), model.some_cut(random), model.odd_cut(random)
        for cut in (one, other, odd):
            assert stream.cuts.is_valid(cut) == naive.is_valid(model.records, cut)
            assert dict(stream.cuts.span(cut).epochs) == naive.span(model.records, cut)
        assert stream.cuts.compare(one, other).value == model.compare(one, other)
        assert stream.cuts.compare(one, one).value == EQUAL_OR_AFTER
        for start, end in ((one, other), ({}, one), (one, {}), ({}, {})):
            self.ask_between(start, end)

    def ask_between(self, start: dict[int, int], end: dict[int, int]) -> None:
        stream, model = self.stream, self.model
        asked: tuple[Callable[[], object], ...] = (
            lambda: stream.cuts.segments_between(start, end).tolist(),
            lambda: stream.cuts.size_between(start, end),
        )
        if end and not model.is_after(end, start):
            for ask in asked:
                with pytest.raises(InvalidArgument):
                    ask()
            return
        assert asked[0]() == sorted(model.between(start, end))
        assert asked[1]() == model.size_between(start, end)

    def ask_retention(self, random: Random) -> None:
        retention, recorded = self.stream.workflows.retention, self.model.recorded
        assert [(each.recording_time_ms, each.recorded_size) for each in retention.read()] == [
            (time, size) for time, (size, _) in recorded.items()
        ]
        cut = self.model.some_cut(random)
        found = retention.reference_before(cut)
        assert (None if found is None else found.recording_time_ms) == self.model.reference_before(cut)
        with suppress(IndexError):
            time_ms = random.choice(sorted(recorded))
            assert dict(retention.cut(time_ms).cut) == recorded[time_ms][1]
            at_time = retention.find_by_time(time_ms + random.randint(-1, 1))
            assert at_time is None or at_time.recording_time_ms in recorded
            by_size = retention.find_by_size(recorded[time_ms][0])
            assert by_size is not None
            assert by_size.recording_time_ms == max(
                time for time, (size, _) in recorded.items() if size == recorded[time_ms][0]
            )


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_whatever_becomes_of_a_stream_all_questions_are_answered_as_by_who_remembers_it(chunk_size: int) -> None:
    class StreamLifeInChunks(StreamLife):
        """One whose pieces are of this size."""

    StreamLifeInChunks.chunk_size = chunk_size
    chosen = settings(
        max_examples=examples(EXAMPLES),
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(StreamLifeInChunks, settings=chosen)
