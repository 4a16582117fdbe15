"""A group goes on elsewhere: at a cut, at the head, at the tail, at a time; and what its readers notice of it."""

from __future__ import annotations

import pytest

from accel.errors import IllegalState
from tests.accel.streams.groups.team import NEVER_SECONDS, Team, written
from tests.accel.streams.reader.streams import Shop, by_key


def test_a_group_without_readers_goes_back_and_forth(orders: Shop, readers: Team) -> None:
    written(orders, 24)
    assert by_key(readers.join("a", follow=False)) == orders.written
    tail = readers.group.position()
    assert readers.group.reset() == {0: 0, 1: 0}
    assert by_key(readers.join("b", follow=False)) == orders.written
    assert readers.group.reset() == {0: 0, 1: 0}
    assert readers.group.reset(tail) == tail == readers.group.position()
    assert list(readers.join("c", follow=False)) == []
    assert readers.group.reset_to_time(orders.source(), None) == tail


def test_a_group_with_readers_is_not_reset_unless_they_are_sent_away(orders: Shop, readers: Team) -> None:
    written(orders, 24)
    member = readers.join("a", every_seconds=NEVER_SECONDS)
    before = [next(member) for _ in range(5)]
    with pytest.raises(IllegalState, match=r"without readers, or evict=True, found 1: a"):
        readers.group.reset()
    assert [each.name for each in readers.group.state().readers] == ["a"]
    readers.group.reset(evict=True)
    with pytest.raises(IllegalState, match="join again"):
        member.commit()  # nothing of before is stored
    assert readers.group.position() == {0: 0, 1: 0}
    readers.read_all()
    assert by_key(readers.events) == orders.written
    assert set(before) <= set(readers.own("a"))


def test_a_group_goes_on_where_events_of_a_time_begin(orders: Shop, readers: Team) -> None:
    """Through a scale: those of segments that were sealed by then do not come again."""
    for _ in range(3):
        written(orders, 12)
    orders.split()
    written(orders, 12)
    with orders.reader() as reader:
        events = list(reader)
    times = sorted({event.value for event in events})
    for time_ms in (times[0], times[len(times) // 2], times[-1]):
        readers.group.reset_to_time(orders.source(), time_ms)
        name = f"reader-{time_ms}"
        found = list(readers.join(name, follow=False))
        assert {each for each in events if each.value >= time_ms} <= set(found)
        assert len(found) == len(set(found))
    readers.group.reset_to_time(orders.source(), times[-1] + 1)
    assert list(readers.join("late", follow=False)) == []
