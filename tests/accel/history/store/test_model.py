"""Streams that change at random, and a naive model that keeps every epoch whole: all questions are answered alike."""

from __future__ import annotations

from random import Random

import pytest

from accel.errors import InvalidArgument
from accel.history.rules.configuration import HistoryLayout
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.segments import split_range
from accel.history.rules.values import segment_text
from accel.history.store import HistorySettings
from tests.accel.history.rules import naive
from tests.accel.history.store.bench import NAME, Bench
from tests.conformance.history_queries import everything
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import examples

STEPS = 25


class Play:
    """A stream, and what somebody remembers who watched it."""

    def __init__(self, seed: int, chunk_size: int) -> None:
        self.random = Random(seed)
        settings = HistorySettings(layout=HistoryLayout(chunk_size, 2), part_epochs=chunk_size, leaf_parts=2)
        self.bench = Bench(settings)
        self.bench.create(self.random.randint(1, 4))
        self.records = [self.bench.stream().current_epoch()]
        self.sizes: dict[int, int] = {}
        self.cut: dict[int, int] = {}
        self.open: list[str] = []

    def run(self) -> None:
        acts = [self.scale, self.scale, self.append, self.append, self.begin, self.decide, self.commit, self.truncate]
        for _ in range(STEPS):
            self.random.choice(acts)()
        for _ in range(3):
            self.ask()

    def scale(self) -> None:
        active = list(self.bench.stream().active_segments())
        first = self.random.randrange(len(active))
        active.sort(key=lambda each: each.key_start)
        chosen = active[first : first + self.random.randint(1, 3)]
        ranges = split_range(chosen[0].key_start, chosen[-1].key_end, self.random.randint(1, 3))
        self.bench.stream().scale(
            [each.id for each in chosen], list(ranges), self.bench.tick(self.random.randint(0, 9))
        )
        self.remember()

    def append(self) -> None:
        for each in self.bench.stream().active_segments().ids.tolist():
            if self.random.random() < 0.7:
                self.bench.host.append(NAME, each, self.random.randint(1, 9))

    def begin(self) -> None:
        name = f"t{len(self.bench.transactions)}"
        self.bench.transaction(name, self.random.randint(1, 5), commit=None)
        self.open.append(name)

    def decide(self) -> None:
        if self.open:
            name = self.open.pop(self.random.randrange(len(self.open)))
            stream = self.bench.stream()
            stream.transactions.seal(self.bench.transactions[name], commit=self.random.random() < 0.8)
            stream.transactions.abort_expired()

    def commit(self) -> None:
        self.bench.stream().commit(self.bench.tick(self.random.randint(0, 9)))
        self.remember()

    def truncate(self) -> None:
        wanted = self.any_cut()
        before = self.cut
        is_after = not before or naive.compare(self.records, wanted, before) == "EqualOrAfter"
        if is_after:
            self.bench.stream().truncate(wanted)
            self.cut = wanted
        else:
            with pytest.raises(InvalidArgument):
                self.bench.stream().truncate(wanted)

    def remember(self) -> None:
        stream = self.bench.stream()
        for number in range(len(self.records), stream.current_epoch().epoch + 1):
            self.records.append(stream.epochs.epoch(number))

    def any_cut(self) -> dict[int, int]:
        record: EpochRecord = self.random.choice(self.records)
        sizes = self.bench.host.tails(NAME, record.segments.ids)
        return {each: self.random.randint(0, sizes[each]) for each in record.segments.ids.tolist()}

    def ask(self) -> None:
        stream, records = self.bench.stream(), self.records
        assert list(stream.epochs.between(0, len(records) - 1)) == records
        one, other = self.any_cut(), self.any_cut()
        order = naive.compare(records, one, other)
        assert stream.cuts.compare(one, other).value == order
        assert dict(stream.cuts.span(one).epochs) == naive.span(records, one)
        assert stream.cuts.is_valid(one) == naive.is_valid(records, one)
        if naive.compare(records, other, one) == "EqualOrAfter":
            self.ask_between(one, other)
        at = self.random.randrange(len(records))
        time_ms = records[at].creation_time_ms
        assert stream.epochs.epoch_at(time_ms) == at
        assert stream.epochs.epoch_at(time_ms - 1) == max(at - 1, 0)
        seen = (
            naive.segments_at(records, at, self.cut)
            if self.cut
            else dict.fromkeys(records[at].segments.ids.tolist(), 0)
        )
        assert dict(stream.segments_at(time_ms)) == seen
        assert dict(stream.head()) == (self.cut or dict.fromkeys(records[0].segments.ids.tolist(), 0))
        self.ask_relatives(self.random.choice(records[at].segments).id)

    def ask_between(self, one: dict[int, int], other: dict[int, int]) -> None:
        stream = self.bench.stream()
        known = naive.between(self.records, one, other)
        assert set(stream.cuts.segments_between(one, other).tolist()) == known
        size = 0
        for each in known:
            sealed = stream.workflows.epochs.sealed_epoch(each) is not None
            whole = stream.workflows.cuts.shard(each >> 33).get(each, 0) if sealed else 0
            size += max(0, other.get(each, whole) - max(one.get(each, 0), 0))
        assert stream.cuts.size_between(one, other) == size

    def ask_relatives(self, segment_id: int) -> None:
        stream = self.bench.stream()
        having = [record.epoch for record in self.records if record.find(segment_id)]
        segment = self.records[having[0]].find(segment_id)
        assert segment is not None, segment_text(segment_id)
        if having[-1] + 1 == len(self.records):
            assert stream.epochs.successors(segment_id) == {}
            return
        sealing, before = self.records[having[-1] + 1], self.records[having[-1]]
        assert stream.epochs.successors(segment_id) == {
            each.id: [old.id for old in before.segments if old.overlaps(each)]
            for each in sealing.segments
            if each.overlaps(segment)
        }


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 1000])
def test_all_questions_are_answered_as_by_somebody_who_remembers_every_epoch(chunk_size: int) -> None:
    for seed in range(examples(6)):
        play = Play(seed, chunk_size)
        play.run()
        everything(play.bench)


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_that_changed_at_random_is_sealed_and_deleted_and_leaves_nothing(seed: int) -> None:
    play = Play(seed, 2)
    play.run()
    play.bench.stream().seal()
    play.bench.streams().delete_stream(SCOPE, STREAM)
    play.bench.streams().delete_scope(SCOPE)
    assert not [each for each in play.bench.live_keys() if "/_system" not in each]
