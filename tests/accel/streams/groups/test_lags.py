"""What is said of a group is true or absent: its lag where readers report, and how much is unread in any case."""

from __future__ import annotations

import pytest

from accel.streams.groups import ReaderGroup
from accel.streams.rules.group_state import REPORT_SECONDS, REPORT_SLACK_SECONDS, Lease
from accel.streams.segment_source import cut_at
from tests.accel.history.store.bench import Bench
from tests.accel.streams.groups.team import NEVER_SECONDS, Team, written
from tests.accel.streams.reader.streams import Shop

LEASE = Lease(7, 0, 30_000)
YEAR_MS = 365 * 86_400_000


@pytest.fixture
def bench() -> Bench:
    """A stream of two segments."""
    made = Bench(now_ms=2 * YEAR_MS)
    made.create(2)
    return made


def told(bench: Bench, name: str, lag: int | None, lease: Lease = LEASE, *, renews: bool = True) -> ReaderGroup:
    """A reader joins, and reports."""
    group = ReaderGroup.open(bench.stream(), "group")
    group.join(name, lease)
    group.rebalance(name, {}, lag, lease=lease, renews=renews)
    return group


@pytest.mark.parametrize(
    ("lease", "seconds"), [(LEASE, 30.0), (Lease(7, 0, 500), 0.5), (Lease(), REPORT_SECONDS)], ids=str
)
def test_the_lag_is_unknown_once_nobody_reported_within_its_lease(bench: Bench, lease: Lease, seconds: float) -> None:
    group = told(bench, "a", 40, lease, renews=any(lease))
    assert group.lag() == 40
    bench.now_ms += int(1000 * (seconds + REPORT_SLACK_SECONDS))
    assert group.lag() == 40
    bench.now_ms += 1
    assert group.lag() is None
    assert group.state().readers[0].lag == 40


def test_a_group_without_readers_has_no_lag(bench: Bench) -> None:
    group = told(bench, "a", 0)
    assert group.lag() == 0
    group.leave("a")
    assert group.lag() is None


def test_the_lag_is_unknown_while_segments_belong_to_a_reader_that_is_silent(bench: Bench) -> None:
    group = told(bench, "a", 40)
    bench.now_ms += 31_001
    told(bench, "b", 0, Lease(8, 0, 30_000))
    assert group.lag() is None, "nobody knows how far behind the segments of a are"
    group.reader_offline("a")
    group.rebalance("b", {}, 3, lease=Lease(8, 0, 30_000))
    assert group.lag() == 3


def test_a_member_that_does_not_know_its_lag_reports_none(orders: Shop, readers: Team) -> None:
    written(orders, 20)
    member = readers.join("a", every_seconds=NEVER_SECONDS)
    member.rebalance()
    member.rebalance()
    assert (member.reported_lag_seconds(), readers.group.lag()) == (None, None)
    state = readers.group.state()
    assert ([each.lag for each in state.readers], len(state.owned("a"))) == ([None], 2)
    assert sum(readers.ask("a") for _ in range(40)) == 20
    member.rebalance()
    assert (member.reported_lag_seconds(), readers.group.lag()) == (0.0, 0)


def test_the_lag_of_a_group_is_unknown_while_a_reader_does_not_know_that_of_its_segments(bench: Bench) -> None:
    group, lease = told(bench, "a", 40), Lease(8, 0, 30_000)
    told(bench, "b", None, lease)
    assert group.lag() == 40, "b has no segment yet"
    group.rebalance("a", {}, 40, lease=LEASE)
    group.rebalance("b", {}, None, lease=lease)
    assert group.lag() is None
    group.rebalance("b", {}, 3, lease=lease)
    assert group.lag() == 40


def test_who_takes_the_name_of_a_reader_does_not_take_its_lag(bench: Bench) -> None:
    group = told(bench, "a", 40)
    group.join("a", Lease(8, 0, 30_000))
    assert (group.state().readers[0].lag, group.lag()) == (None, None)


def test_a_report_without_news_is_not_written_but_a_renewal_is_one(bench: Bench) -> None:
    group = told(bench, "a", 0)
    first = group.state().readers[0].reported_ms
    bench.now_ms += 9_000
    group.rebalance("a", {}, 0, lease=LEASE)
    assert group.state().readers[0].reported_ms == first
    group.rebalance("a", {}, 0, lease=LEASE, renews=True)
    assert group.state().readers[0].reported_ms == first + 9_000


@pytest.mark.parametrize("shift_ms", [YEAR_MS, -YEAR_MS])
def test_a_report_by_a_wrong_clock_is_not_believed_and_drives_nobody_out(bench: Bench, shift_ms: int) -> None:
    bench.now_ms += shift_ms
    group = told(bench, "a", 40)
    bench.now_ms -= shift_ms
    assert group.lag() is None
    told(bench, "b", 0, Lease(8, 0, 30_000))
    assert [each.name for each in group.state().readers] == ["a", "b"]
    group.rebalance("a", {}, 40, lease=LEASE, renews=True)
    assert group.lag() == 40


def behind(orders: Shop, group: ReaderGroup) -> int:
    """How much is unread, as one sees it who asks for the newest image."""
    orders.accelerator.refresh()
    found = group.behind(cut_at(orders.stream, orders.source(), None))
    assert found is not None
    return found


def test_what_is_unread_is_known_whoever_reads(orders: Shop, readers: Team) -> None:
    written(orders, 30)
    member = readers.join("a", every_seconds=NEVER_SECONDS)
    for _ in range(12):
        next(member)
    member.commit()
    assert behind(orders, readers.group) == 18
    readers.die("a")
    written(orders, 5)
    assert behind(orders, readers.group) == 23
    readers.group.reader_offline("a")
    assert (readers.group.lag(), behind(orders, readers.group)) == (None, 23)
    readers.join("b")
    readers.read(23)
    readers.members["b"].commit()
    assert behind(orders, readers.group) == 0


def test_a_tail_that_is_older_than_the_position_leaves_nothing_unread(orders: Shop, readers: Team) -> None:
    written(orders, 30)
    early = cut_at(orders.stream, orders.source(), None)
    readers.join("a", every_seconds=NEVER_SECONDS)
    written(orders, 5)
    readers.read_all()
    readers.members["a"].commit()
    assert readers.group.behind(early) == 0
