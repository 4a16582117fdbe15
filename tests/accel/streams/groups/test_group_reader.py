"""Several readers of one group read a stream: every event comes once, whoever gives it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from accel.errors import Closed, HistoryError, InvalidArgument, PositionTruncated
from accel.system import SYSTEM
from loaders.store import MemoryStore
from tests.accel.streams.groups.states import owners_of
from tests.accel.streams.groups.team import NEVER_SECONDS, Team, one_batch, scale, team, written
from tests.accel.streams.reader.streams import QUICK, Shop, by_key, shop
from tests.examples import examples


@pytest.fixture
def orders() -> Iterator[Shop]:
    with shop(MemoryStore(), segments=3) as opened:
        yield opened


def check_shares(readers: Team) -> None:
    """Everything that is left is read by one member each."""
    held = [each for member in readers.members.values() for each in member.position()]
    assert len(held) == len(set(held))
    owners = owners_of(readers.group.state())
    assert None not in owners.values()
    assert len(held) == len(owners)


def test_members_give_every_event_once_through_scales_a_join_and_a_leave(orders: Shop) -> None:
    with team(orders) as readers:
        readers.join("a")
        readers.join("b")
        written(orders, 60)
        readers.read(20)
        orders.split()
        written(orders, 60)
        readers.share()
        readers.join("c")
        readers.read(40)
        orders.merge()
        written(orders, 60)
        orders.split(at=1)
        readers.share()
        readers.leave("a")
        written(orders, 60)
        readers.read_all()
        assert by_key(readers.events) == orders.written
        assert all(readers.own(name) for name in "abc")
        check_shares(readers)


def test_what_follows_a_segment_begins_at_once_when_that_was_read() -> None:
    with shop(MemoryStore(), segments=2) as orders, team(orders) as readers:
        written(orders, 12)
        orders.split()
        for _ in range(3):
            written(orders, 12)
        readers.join("a", every_seconds=NEVER_SECONDS, settings=replace(QUICK, reorder_wait_seconds=10.0))
        readers.read_all()
        values = [event.value for event in readers.events]
        assert values == sorted(values)
        assert len({event.segment_id for event in readers.events}) > 2


@pytest.mark.parametrize("seed", range(examples(5)))
def test_whatever_happens_every_event_comes_once_and_keys_keep_their_order(seed: int) -> None:
    random, numbers = Random(seed), itertools.count()

    def join() -> None:
        readers.join(f"member-{next(numbers)}", every_seconds=random.choice([0.001, 0.02, NEVER_SECONDS]))

    def leave() -> None:
        if readers.members:
            readers.leave(random.choice(list(readers.members)))

    with shop(MemoryStore(), segments=random.randint(1, 4)) as orders, team(orders) as readers:
        acts = [lambda: written(orders, random.randint(1, 30)), lambda: scale(orders, random), join, leave]
        for _ in range(40):
            random.choices(acts, weights=[4, 2, 2, 1])[0]()
            for name in random.choices(list(readers.members), k=10 if readers.members else 0):
                random.choice([readers.ask, readers.take_one])(name)
        leave()
        readers.join("last")
        readers.read_all()
        assert by_key(readers.events) == orders.written


def test_a_batch_is_given_on_by_another_member_where_it_was_left(orders: Shop) -> None:
    one_batch(orders, b"0:1", b"0:2", b"0:3")
    with team(orders) as readers:
        first = next(readers.join("a"))
        assert list(readers.members["a"].position().values()).count(first.next_offset) == 1
        readers.leave("a")
        readers.join("b")
        readers.read(2)
        assert [first.payload, *(each.payload for each in readers.events)] == [b"0:1", b"0:2", b"0:3"]


def test_of_a_segment_that_is_given_up_the_rest_of_a_batch_is_not_given() -> None:
    with shop(MemoryStore(), segments=2) as orders, team(orders) as readers:
        written(orders, 60)
        only = readers.join("a", every_seconds=NEVER_SECONDS)
        both = set(orders.stream.active_segments().ids.tolist())
        while {event.segment_id for event in readers.events} != both:
            readers.take_one("a")
        readers.join("b")
        readers.ask("b")
        only.commit()
        [given_up] = both - set(only.position())
        readers.read_all()
        assert by_key(readers.events) == orders.written
        assert {each.segment_id for each in readers.own("b")} <= {given_up}  # none if its events were given before


def test_iterated_event_by_event_a_member_rebalances_too(orders: Shop) -> None:
    one_batch(orders, *(b"0:%d" % number for number in range(50)))
    with team(orders) as readers:
        member = readers.join("a", every_seconds=1e-9)
        told = []
        for _ in range(5):
            event = next(member)
            told.append(readers.group.position()[event.segment_id])
        assert told == [0, 1, 2, 3, 4]


def test_a_segment_that_is_free_goes_to_the_one_that_is_less_behind() -> None:
    for slow, quick in (("a", "b"), ("b", "a")):
        with shop(MemoryStore(), segments=3) as orders, team(orders) as readers:
            late = replace(SYSTEM, clock=lambda: SYSTEM.clock() + 3600)
            readers.join(slow, system=late, every_seconds=NEVER_SECONDS)
            readers.join(quick, every_seconds=NEVER_SECONDS)
            readers.join("c", every_seconds=NEVER_SECONDS)
            for _ in range(3):
                for each in readers.members.values():
                    each.rebalance()
            assert {len(each.position()) for each in readers.members.values()} == {1}
            written(orders, 60)
            for name in (slow, quick):
                while not readers.ask(name):
                    pass
                readers.members[name].rebalance()
            assert (readers.members[slow].reported_lag_seconds() or 0) >= 3600
            assert readers.group.lag() is None, "c has not looked at its segment"
            readers.leave("c")
            for name in (slow, quick):
                readers.members[name].rebalance()
            assert (len(readers.members[slow].position()), len(readers.members[quick].position())) == (1, 2)


def test_who_has_read_all_there_is_counts_as_not_behind(orders: Shop) -> None:
    written(orders, 12)
    with team(orders) as readers:
        member = readers.join("a", system=replace(SYSTEM, clock=lambda: SYSTEM.clock() + 3600))
        readers.read_all()
        readers.until(lambda: readers.group.lag() == 0)
        lag = member.lag()
        assert lag is not None
        assert lag < 60


def test_a_group_behind_the_head_is_told_and_may_go_on_there(orders: Shop) -> None:
    written(orders, 60)
    orders.split()
    written(orders, 60)
    with orders.reader() as reader:
        for _ in range(90):
            next(reader)
        cut = reader.position()
    with team(orders) as readers:
        for name in "ab":
            readers.join(name)
            readers.members[name].rebalance()
        orders.stream.truncate(cut)
        orders.catalog.refresh()
        orders.accelerator.refresh()
        with pytest.raises(PositionTruncated) as told:
            readers.read(orders.count)
        assert told.value.head == dict(cut)
        readers.given.clear()
        skipped = readers.members["a"].skip_to_head()
        assert all(offset >= cut.get(each, 0) for each, offset in skipped.items())
        readers.members["b"].rebalance()
        readers.read(30)
        rest = by_key(readers.events)
        assert rest == {key: payloads[len(payloads) - len(rest[key]) :] for key, payloads in orders.written.items()}
        check_shares(readers)


def test_until_it_is_asked_for_an_event_a_reader_is_in_no_group(orders: Shop) -> None:
    with team(orders) as readers:
        member = readers.join("a")
        member.leave()
        assert readers.group.state().readers == ()
        assert readers.ask("a") == 0
        assert [each.name for each in readers.group.state().readers] == ["a"]
        member.close()
        member.close()
        member.rebalance()
        assert readers.group.state().readers == ()
        with pytest.raises(Closed):
            next(member)


@pytest.mark.parametrize("seconds", [0, -1, 3601, float("nan")])
def test_a_time_that_makes_no_sense_is_refused(orders: Shop, seconds: float) -> None:
    with team(orders) as readers, pytest.raises(InvalidArgument, match=r"between calls|a finite number"):
        readers.join("a", every_seconds=seconds)


def test_a_name_that_is_none_is_refused_when_it_joins(orders: Shop) -> None:
    with team(orders) as readers, pytest.raises(HistoryError, match="reader"):
        next(readers.join("a/b"))
