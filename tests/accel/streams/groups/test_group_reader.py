"""Several readers of one group read a stream: every event comes once, whoever gives it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest

from accel.errors import Closed, HistoryError, InvalidArgument, PositionTruncated
from loaders.store import MemoryStore
from tests.accel.streams.groups.states import owners_of
from tests.accel.streams.groups.team import NEVER_SECONDS, Team, one_batch, scale, team, written
from tests.accel.streams.reader.streams import QUICK, Shop, by_key, shop
from tests.examples import examples


def check_shares(readers: Team) -> None:
    """Everything that is left is read by one member each."""
    held = [each for member in readers.members.values() for each in member.position()]
    assert len(held) == len(set(held))
    owners = owners_of(readers.group.state())
    assert None not in owners.values()
    assert len(held) == len(owners)


def test_what_follows_a_segment_begins_at_once_when_that_was_read(orders: Shop, readers: Team) -> None:
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


def test_iterated_event_by_event_a_member_rebalances_too(orders: Shop, readers: Team) -> None:
    one_batch(orders, *(b"0:%d" % number for number in range(50)))
    member = readers.join("a", every_seconds=1e-9)
    told = []
    for _ in range(5):
        event = next(member)
        told.append(readers.group.position()[event.segment_id])
    assert told == [0, 1, 2, 3, 4]


def test_a_group_behind_the_head_is_told_and_may_go_on_there(orders: Shop, readers: Team) -> None:
    written(orders, 60)
    orders.split()
    written(orders, 60)
    with orders.reader() as reader:
        for _ in range(90):
            next(reader)
        cut = reader.position()
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


def test_until_it_is_asked_for_an_event_a_reader_is_in_no_group(readers: Team) -> None:
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
