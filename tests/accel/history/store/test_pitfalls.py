"""What went wrong in the system whose design this is, as its threads tell, done once more through `Stream`.

tests/accel/history/pitfalls.md lists all of them, with the tests in other files.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from accel.errors import ScaleInputInvalid
from accel.history.rules.cuts import CutOrder
from accel.history.rules.requests import CommitPlan
from accel.history.rules.segments import split_range
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.history.store import HistorySettings
from tests.accel.history.store.bench import NAME, START_MS, Bench, cut, ids
from tests.accel.history.store.watching import SlowReply
from tests.accel.history.store.workflows import WORKS, commit
from tests.conformance.history_world import SCOPE, STREAM, CallCounter
from tests.conformance.steps import begin_commit, set_state
from tests.examples import is_whole
from tests.world import Watched

if TYPE_CHECKING:
    from uuid import UUID

    from accel.history.store import Stream

READS_MAX = 30

# Epochs and scales


@pytest.mark.parametrize("end", [0.7, 0.9, 1.0])
def test_a_segment_can_be_split_into_any_number_of_parts(end: float) -> None:
    """Pitfall A4: start + count * width missed the stored end, so a hot segment never split (pravega issue 2543)."""
    bench = Bench()
    stream = bench.create(1)
    if end < 1.0:
        stream.scale([0], [(0.0, end), (end, 1.0)], bench.tick())
    missed = 0
    for parts in range(2, 51) if is_whole() else (2, 3, 6, 7, 14, 35, 49, 50):
        old = next(each for each in stream.active_segments() if each.key_start == 0.0)
        width = old.key_end / parts
        if parts * width != end:
            missed += 1
            with pytest.raises(ScaleInputInvalid):
                stream.scale([old.id], [(i * width, (i + 1) * width) for i in range(parts)], bench.tick())
        epoch = stream.scale([old.id], list(split_range(old.key_start, old.key_end, parts)), bench.tick())
        new = [each.id for each in epoch.segments if each.creation_epoch == epoch.epoch]
        assert len(new) == parts
        stream.scale(new, [(0.0, end)], bench.tick())
    assert missed > 0


def test_a_scale_costs_the_same_however_many_epochs_there_were() -> None:
    """Pitfall A5: splits and merges were counted over all epochs at each scale (pravega issue 5802)."""
    bench = Bench(HistorySettings())
    bench.create()
    costs = []
    for epochs in (3, 120):
        while bench.stream().current_epoch().epoch < epochs:
            bench.scale_once()
        counter = CallCounter(bench.store)
        stream = bench.stream(around=counter)
        first = stream.active_segments()[0]
        counter.calls = 0
        halves = list(split_range(first.key_start, first.key_end, 2))
        current = stream.scale([first.id], halves, bench.tick())
        costs.append(counter.calls)
        assert (current.splits, current.merges) == (len(costs), 0)
    assert costs[0] == costs[1]


def test_successors_are_nothing_or_right_at_every_moment_of_a_scale(bench: Bench) -> None:
    """Pitfall A20: candidates came as predecessors, or an error while a scale ran (pravega issues 1084, 1060, 1692)."""
    bench.scale_once()  # 2@1 for 0@0
    old, other, new = ids("1@0", "2@1", "3@2")
    seen = []

    def look() -> None:
        seen.append(bench.stream().epochs.successors(old))
        assert bench.stream().epochs.successors(ids("0@0")[0]) == {other: ids("0@0")}

    bench.stream(around=Watched(bench.store, lambda _: look())).scale([old, other], [(0.0, 1.0)], bench.tick())
    look()
    assert {str(each) for each in seen} == {"{}", str({new: sorted([old, other])})}
    assert bench.stream().epochs.predecessors(new) == {old: [new], other: [new]}


def test_what_was_before_belongs_to_the_history_from_then_on(bench: Bench) -> None:
    """Pitfall A19: the history lacked the epoch that the first moment lay in (pravega issue 1513)."""
    for _ in range(3):
        bench.scale_once()  # at 10, 20 and 30 after the start
    stream = bench.stream()
    found = list(stream.epochs.scales(START_MS + 15, START_MS + 25))
    assert [each.time_ms - START_MS for each in found] == [10, 20]
    assert (found[0].splits, found[0].merges) == (0, 0)
    assert [each.time_ms - START_MS for each in stream.epochs.scales(START_MS - 5, START_MS + 10)] == [0, 10]


def test_a_time_between_two_chunks_belongs_to_the_epoch_before_it() -> None:
    """Pitfall D1: between the last epoch of a chunk and the first of the next one, epoch 0 was told."""
    bench = Bench()
    bench.create()
    for _ in range(6):
        bench.tick(90)
        bench.scale_once()  # at 100, 200, ... after the start
    stream = bench.stream()
    assert [stream.epochs.epoch_at(START_MS + time_ms) for time_ms in range(50, 700, 100)] == [0, 1, 2, 3, 4, 5, 6]


def test_all_keys_of_a_stream_of_any_width_belong_to_somebody() -> None:
    """Pitfall D2: the last of 49, 98 or 103 segments ended below 1, and every cut was invalid."""
    for count in (49, 98, 103, 107, 161, 187):
        stream = Bench().create(count)
        segments = stream.active_segments()
        assert segments[count - 1].key_end == 1.0
        assert stream.cuts.is_valid(dict.fromkeys(segments.ids.tolist(), 0))


def test_how_two_cuts_lie_does_not_depend_on_the_order_of_their_segments(bench: Bench) -> None:
    """Pitfall D4: comparing stopped early, with both counts taken from the first cut."""
    bench.scale_once()
    bench.scale_once()
    stream = bench.stream()
    before, after = cut(s0_0=1, s1_0=1), cut(s2_1=1, s3_2=1)
    beside, other = cut(s0_0=1, s3_2=1), cut(s2_1=1, s1_0=1)
    for one, two, expected in (
        (before, after, CutOrder.BEFORE),
        (after, before, CutOrder.EQUAL_OR_AFTER),
        (beside, other, CutOrder.OVERLAPS),
        (other, beside, CutOrder.OVERLAPS),
        (beside, before, CutOrder.EQUAL_OR_AFTER),
        (beside, after, CutOrder.BEFORE),
    ):
        turned = dict(reversed(one.items())), dict(reversed(two.items()))
        assert stream.cuts.compare(one, two) is stream.cuts.compare(*turned) is expected


# Caches


@pytest.mark.parametrize("by_same_client", [True, False])
def test_a_reply_that_comes_late_does_not_bring_back_what_was_before(bench: Bench, *, by_same_client: bool) -> None:
    """Pitfall A10: a read that was under way filled the cache with what a write had replaced (pravega issue 3608)."""
    for reads in range(READS_MAX):
        here = bench.clone()
        slow = SlowReply(here.store)
        stream = here.streams(slow).stream(SCOPE, STREAM)
        answers_of(stream, here.now_ms)  # warm
        slow.arm(reads, partial(here.scale_once, stream if by_same_client else None))
        answers_of(stream, here.now_ms)
        if not slow.has_acted():
            break
        assert answers_of(stream, here.now_ms) == answers_of(here.stream(), here.now_ms)
    assert 5 < reads < READS_MAX - 1


def answers_of(stream: Stream, now_ms: int) -> list[object]:
    """What a client believes of records that change."""
    current = stream.current_epoch()
    return [
        current,
        stream.state(),
        stream.head(),
        stream.epochs.epoch_at(now_ms),
        list(stream.epochs.between(max(current.epoch - 2, 0), current.epoch)),
        stream.cuts.size_between({}, {}),
        stream.configuration(),
    ]


# Transactions


def test_positions_of_who_died_are_neither_in_the_way_nor_committed_twice(bench: Bench) -> None:
    """Pitfall A13: positions come before states, so some lead nowhere or come twice (pravega issue 3420)."""
    stream = bench.stream()
    order = stream.workflows.transactions.order
    still_open, twice, aborted, ended = [stream.transactions.begin() for _ in range(4)]
    for each in (twice, still_open, aborted, twice, ended, ended):
        order.add(each)
    stream.transactions.seal(ended, commit=True)
    stream.transactions.seal(twice, commit=True)
    stream.transactions.seal(aborted, commit=False)
    assert stream.commit(bench.tick()).transaction_ids == (ended, twice)
    assert set(order.read().transaction_ids) == {still_open}
    stream.transactions.seal(still_open, commit=True)
    assert stream.commit(bench.tick()).transaction_ids == (still_open,)
    assert order.read().positions == ()
    assert stream.transactions.status(aborted) is TransactionStatus.ABORTING


@pytest.mark.parametrize("scaled", [False, True])
def test_a_commit_that_died_is_taken_up_and_the_next_ones_follow(*, scaled: bool) -> None:
    """Pitfall A14: commits were stuck although transactions were to be committed (pravega issues 3755, 3958)."""
    bench = Bench()
    bench.create()
    first = bench.transaction("first")
    if scaled:
        bench.scale_once()
    started = begin_commit(bench.stream(), bench.tick()).plan_of(CommitPlan).committing
    second = bench.transaction("second")
    assert bench.stream().commit(bench.tick()).transaction_ids == started.transaction_ids == (first,)
    assert bench.stream().commit(bench.tick()).transaction_ids == (second,)
    assert bench.stream().commit(bench.tick()).is_empty
    stream = bench.stream()
    assert [stream.transactions.status(each) for each in (first, second)] == [TransactionStatus.COMMITTED] * 2
    assert stream.state() is StreamState.ACTIVE


def test_a_stream_is_sealed_whatever_its_transactions_of_old_and_new_epochs_wait_for(bench: Bench) -> None:
    """Pitfall A15: sealing waited for commits, and commits for the state (pravega issues 3122, 3730, 4529)."""
    wanted: dict[UUID, TransactionStatus] = {}

    def begin(name: str) -> None:
        for end, status in ((True, "COMMITTED"), (False, "ABORTED"), (None, "ABORTED")):
            wanted[bench.transaction(f"{name} {end}", commit=end)] = TransactionStatus[status]

    begin("old")
    bench.scale_once()
    begin("new")
    set_state(bench.stream(), StreamState.SEALING)  # and the process died
    assert not bench.stream().commit(bench.tick()).is_empty
    assert bench.stream().state() is StreamState.SEALING
    bench.stream().seal()
    stream = bench.stream()
    assert stream.state() is StreamState.SEALED
    assert {each: stream.transactions.status(each) for each in wanted} == wanted
    assert stream.workflows.transactions.active() == {}


def test_nobody_hears_of_a_commit_before_its_data_can_be_read() -> None:
    """Pitfall A16: committed was told before the older segments were sealed (pravega issue 2931)."""
    bench = WORKS["rolling commit"].bench()
    told = []

    def look() -> None:
        stream = bench.stream()
        statuses = [stream.transactions.status(bench.transactions[each]) for each in ("first", "second")]
        if TransactionStatus.COMMITTED not in statuses:
            return
        told.append(statuses)
        assert stream.current_epoch().epoch == 3
        sizes = [dict(stream.workflows.cuts.shard(number)) for number in (0, 1)]
        assert sizes[1] == dict.fromkeys(ids("0@2", "1@2"), 6)  # what both transactions wrote
        assert sizes[0] == dict.fromkeys(ids("0@0"), 7) | dict(zip(ids("1@0", "2@1"), (9, 2), strict=True))
        for each in ids("1@0", "2@1"):
            with pytest.raises(LookupError):
                bench.host.append(NAME, each, 1)

    commit(bench, Watched(bench.store, lambda _: look()), bench.now_ms)
    assert told
