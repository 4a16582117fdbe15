"""When readers of a group come to an end."""

from __future__ import annotations

import pytest

from tests.accel.streams.groups.team import Team, written
from tests.accel.streams.reader.streams import Shop, by_key


def test_who_does_not_follow_ends_when_all_is_read_by_all(orders: Shop, readers: Team) -> None:
    for _ in range(3):
        written(orders, 60)
        orders.split()
    written(orders, 60)
    for name in "abc":
        readers.join(name, follow=False)
    readers.until(lambda: all(each.is_finished for each in readers.members.values()))
    assert by_key(readers.events) == orders.written
    assert all(readers.own(name) for name in "abc")
    state = readers.group.state()
    assert state.readers == ()
    assert orders.stream.cuts.is_valid(state.position())
    assert all(next(each, None) is None for each in readers.members.values())


@pytest.mark.parametrize("segments", [1])
def test_who_has_nothing_waits_for_those_who_are_behind_and_shares_what_follows(orders: Shop, readers: Team) -> None:
    written(orders, 60)
    orders.split()
    written(orders, 60)
    readers.join("a", follow=False)
    readers.read(1)
    readers.members["a"].rebalance()
    readers.join("b", follow=False)
    for _ in range(10):
        assert not readers.ask("b")
    assert not readers.members["b"].is_finished
    readers.until(lambda: all(each.is_finished for each in readers.members.values()))
    assert by_key(readers.events) == orders.written
    assert readers.own("b")


def test_all_who_follow_end_when_the_stream_is_sealed_and_read(orders: Shop, readers: Team) -> None:
    for name in "abcd":
        readers.join(name)
    written(orders, 60)
    readers.read(30)
    orders.split()
    written(orders, 60)
    orders.stream.seal()
    orders.catalog.refresh()
    readers.until(lambda: all(each.is_finished for each in readers.members.values()))
    assert by_key(readers.events) == orders.written
    assert all(next(each, None) is None for each in readers.members.values())
