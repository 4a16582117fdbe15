"""Readers of a group that die, are declared dead, or do not know whether their calls went through."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from threading import Event as Signal

import pytest

from accel import GroupReader
from accel.errors import Closed, IllegalState
from accel.history.store import StreamStore
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from loaders.errors import StoreUnavailable
from tests.accel.streams.groups.team import (
    IS_CARRIED_OUT,
    NEVER_SECONDS,
    OFTEN_SECONDS,
    WORKS,
    Team,
    for_threads_and_tasks,
    one_batch,
    scale,
    written,
)
from tests.accel.streams.reader.streams import Shop, by_key
from tests.examples import examples


def test_a_member_that_dies_costs_what_it_gave_since_it_told_of_it_last(orders: Shop, readers: Team) -> None:
    readers.join("a")
    readers.join("b", every_seconds=NEVER_SECONDS)
    written(orders, 60)
    readers.share()
    written(orders, 60)
    readers.members["b"].rebalance()
    while not readers.ask("b"):
        pass
    told = readers.group.state().owned("b")
    repeated = [event for event in readers.own("b") if event.offset >= told.get(event.segment_id, event.offset + 1)]
    assert repeated
    readers.die("b")
    readers.group.reader_offline("b")
    readers.until(lambda: len(readers.given) >= orders.count + len(repeated))
    others = [event for name, event in readers.given if name == "a" or event not in repeated]
    assert by_key(others) == orders.written
    assert set(repeated) <= set(readers.own("a"))


@for_threads_and_tasks
def test_who_is_declared_offline_is_told_so_once_and_joins_again(orders: Shop, readers: Team) -> None:
    written(orders, 60)
    lost = readers.join("a")
    readers.read(1)
    first = len(readers.given)
    lost.commit()
    readers.group.reader_offline("a")
    with pytest.raises(IllegalState, match="declared offline"):
        lost.rebalance()
    assert dict(lost.position()) == {}
    assert [each.name for each in readers.group.state().readers] == []
    readers.read(60 - first)
    assert by_key(readers.events) == orders.written
    assert [each.name for each in readers.group.state().readers] == ["a"]


@pytest.mark.parametrize("seed", range(examples(5)))
@pytest.mark.parametrize("segments", [3])
def test_calls_of_which_nobody_knows_whether_they_went_through_repeat_nothing(
    orders: Shop, readers: Team, seed: int
) -> None:
    random = Random(seed)
    group = readers.group
    group.odds = iter(random.random, None)
    for name, seconds in (("a", OFTEN_SECONDS), ("b", 0.02), ("c", NEVER_SECONDS)):
        readers.join(name, every_seconds=seconds)
    for _ in range(5):
        written(orders, 24)
        scale(orders, random)
        for name in random.choices("abc", k=20):
            acts: list[Callable[[], object]] = [
                partial(readers.ask, name),
                partial(readers.take_one, name),
                readers.members[name].rebalance,
                partial(commit_and_leave, readers.members[name]),
            ]
            with suppress(StoreUnavailable):
                random.choices(acts, weights=[4, 4, 2, 1])[0]()
    assert group.errors
    group.odds = itertools.repeat(WORKS)
    readers.read_all()
    assert by_key(readers.events) == orders.written


def commit_and_leave(member: GroupReader) -> None:
    with suppress(StoreUnavailable):
        member.commit()
    member.leave()


def test_who_does_not_know_what_came_of_a_call_gives_nothing_until_one_goes_through(
    orders: Shop, readers: Team
) -> None:
    written(orders, 60)
    unsure = readers.join("a", every_seconds=NEVER_SECONDS)
    newest = max(orders.stream.active_segments().ids.tolist())
    while not any(event.segment_id == newest for event in readers.events):
        readers.take_one("a")
    readers.join("b")
    readers.ask("b")
    readers.group.odds = itertools.repeat(IS_CARRIED_OUT)
    for ask in (unsure.rebalance, lambda: next(unsure), unsure.next_batch, unsure.leave, unsure.next_batch):
        with pytest.raises(StoreUnavailable):
            ask()
    readers.group.odds = itertools.repeat(WORKS)
    readers.until(lambda: newest in readers.members["b"].position())
    readers.read_all()
    assert by_key(readers.events) == orders.written


def test_who_leaves_with_an_end_that_it_could_not_tell_leaves_at_that_end(orders: Shop, readers: Team) -> None:
    written(orders, 60)
    member = readers.join("a", every_seconds=NEVER_SECONDS)
    readers.read_all()
    orders.stream.seal()
    orders.catalog.refresh()
    readers.group.odds = itertools.repeat(0.0)
    with pytest.raises(StoreUnavailable):
        readers.until(lambda: False)
    with orders.reader() as reader:
        list(reader)
        ends = reader.position()
    assert by_key(readers.events) == orders.written
    assert member.position() == ends
    readers.group.odds = itertools.repeat(WORKS)
    member.leave()
    assert readers.group.position() == ends


def test_who_failed_to_leave_when_it_was_closed_gives_nothing_any_more(orders: Shop, readers: Team) -> None:
    one_batch(orders, b"0:1", b"0:2", b"0:3")
    group = readers.group
    member = readers.join("a")
    first = next(member)
    member.commit()
    group.odds = itertools.repeat(IS_CARRIED_OUT)
    for ask in (member.close, lambda: next(member), member.next_batch, member.close):
        with pytest.raises(StoreUnavailable):
            ask()
    group.odds = itertools.repeat(WORKS)
    with pytest.raises(Closed):
        next(member)
    del readers.members["a"]
    readers.join("b")
    readers.read(2)
    assert [first.payload, *(each.payload for each in readers.events)] == [b"0:1", b"0:2", b"0:3"]


class Held:
    """A source whose answers fail, once they are let go."""

    def __init__(self) -> None:
        self.asked, self.may_fail = Signal(), Signal()

    def fill(self, fill: Fill) -> SegmentEvents:
        self.asked.set()
        self.may_fail.wait(20)
        raise StoreUnavailable("get", f"segment {fill.segment_id}", "out of order")

    def ask_end(self, step: AskEnd) -> SegmentEnd:
        raise NotImplementedError(str(step))


def test_what_fails_of_a_segment_that_was_given_up_meanwhile_is_nobodys_business(readers: Team) -> None:
    source = Held()
    member = readers.join("a", source=source)
    readers.ask("a")
    source.asked.wait(20)
    member.leave()
    source.may_fail.set()
    readers.group.join("b")
    readers.group.rebalance("b", {}, 0)
    for _ in range(10):
        assert readers.ask("a") == 0


@pytest.mark.parametrize("is_stream", [False, True])
@for_threads_and_tasks
def test_a_reader_whose_group_or_stream_was_deleted_is_closed_without_an_error(
    orders: Shop, readers: Team, is_stream: bool
) -> None:
    member = readers.join("a")
    readers.ask("a")
    if is_stream:
        orders.stream.seal()
        StreamStore.open(orders.store, host=orders.host).delete_stream(*orders.stream.name.split("/"))
    else:
        readers.group.delete()
    member.close()
    member.close()
    with pytest.raises(Closed):
        next(member)
