"""A process dies before a write, or loses the reply to it: who repeats its work finds it done once."""

from __future__ import annotations

from random import Random

import pytest

from accel.errors import HistoryError
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.errors import StoreError, TableError
from loaders.store.decorated import WRITES
from tests.accel.history.store.bench import Bench
from tests.accel.streams.groups.acts import MEETINGS, Act, Meeting, group, renews, state
from tests.examples import examples

WRITES_MAX = 10
ACTS = [(name, number) for name, meeting in MEETINGS.items() for number in range(len(meeting.acts))]
every_act = pytest.mark.parametrize(("name", "number"), ACTS)


def whole(meeting: Meeting, act: Act) -> tuple[Bench, int]:
    """How it ends if nothing goes wrong, and with how many writes."""
    bench = meeting.bench()
    counted = CrashStore(bench.store, None)
    act(bench, counted)
    return bench, counted.writes


@every_act
def test_work_that_is_repeated_after_a_crash_ends_as_if_nothing_had_happened(name: str, number: int) -> None:
    meeting = MEETINGS[name]
    act = meeting.acts[number]
    expected, writes = whole(meeting, act)
    assert writes < WRITES_MAX
    for at in range(writes):
        bench = meeting.bench()
        with pytest.raises(Crash):
            act(bench, CrashStore(bench.store, at))
        act(bench, bench.store)
        assert state(bench) == state(expected), f"crash before write {at}"
        assert bench.live_keys() == expected.live_keys()


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.SERVER_ERROR])
@every_act
def test_a_write_of_which_nobody_knows_is_settled_at_once(name: str, number: int, fault: Fault) -> None:
    meeting = MEETINGS[name]
    act = meeting.acts[number]
    expected, writes = whole(meeting, act)
    for at in range(writes):
        bench, undisturbed = meeting.bench(), meeting.bench()
        faulty = FaultStore(bench.store, operations=WRITES)
        faulty.schedule(*[None] * at, fault)
        assert act(bench, faulty) == act(undisturbed, undisturbed.store)
        assert state(bench) == state(expected), f"write {at}"


@every_act
def test_who_repeats_a_call_without_need_is_told_the_same_or_more(name: str, number: int) -> None:
    """All but `rebalance`, which gives up one more each time, and renews, do nothing the second time."""
    meeting = MEETINGS[name]
    bench, act = meeting.bench(), meeting.acts[number]
    act(bench, bench.store)
    once = state(bench)
    act(bench, bench.store)
    twice = state(bench)
    assert twice == once or twice.counts.tolist() == [2, 0] or meeting.acts[number] is renews
    assert twice.position() == once.position()


def test_a_reader_whose_call_was_carried_out_but_not_answered_learns_it_from_the_next() -> None:
    """It throws away what it has of the segments that it gave up, although it was never told so."""
    bench = MEETINGS["one gives up, one takes"].bench()
    reader = group(bench, bench.store)
    positions = dict.fromkeys(range(4), 5)
    reader.rebalance("a", positions, 0)  # the answer is lost
    group(bench, bench.store).rebalance("b", {}, 0)
    assert reader.rebalance("a", positions, 0).stop == (2, 3)
    assert not reader.rebalance("a", {0: 5, 1: 5}, 0).stop


def test_work_that_is_repeated_until_nothing_goes_wrong_is_done_once() -> None:
    for name, number in ACTS:
        meeting = MEETINGS[name]
        act = meeting.acts[number]
        expected, _ = whole(meeting, act)
        for seed in range(examples(2)):
            bench = meeting.bench()
            faults = {Fault.SLOW_DOWN: 0.02, Fault.LOST_REPLY: 0.1, Fault.SERVER_ERROR: 0.1, Fault.TIMEOUT: 0.02}
            faulty = FaultStore(bench.store, rng=Random(seed), probabilities=faults)
            for _ in range(100):
                try:
                    act(bench, faulty)
                except (StoreError, TableError):
                    continue
                except HistoryError:
                    pass
                break
            assert state(bench) == state(expected), f"{name}, {number}, seed {seed}"
