"""Readers of a group that die, are declared dead, or do not know whether their calls went through."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from threading import Event as Signal
from typing import Any, TypeVar

import pytest

from accel import GroupReader, ReaderGroup
from accel.errors import Closed, IllegalState
from accel.history.rules.segments import SegmentRecord
from accel.history.store import StreamStore
from accel.streams.rules.group_state import NO_LEASE, GroupMember, Lease
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from accel.streams.rules.shares import Assignment
from loaders.errors import StoreUnavailable
from loaders.store import MemoryStore
from tests.accel.streams.groups.team import NEVER_SECONDS, OFTEN_SECONDS, Team, one_batch, scale, team, written
from tests.accel.streams.reader.streams import Shop, by_key, shop
from tests.examples import examples

Answer = TypeVar("Answer")

IS_CARRIED_OUT = 0.2
"""Of a call with less luck, nothing is done before it fails."""

WORKS = 0.4
"""One with so much luck does not fail."""


@pytest.fixture
def orders() -> Iterator[Shop]:
    with shop(MemoryStore(), segments=3) as opened:
        yield opened


def test_a_member_that_dies_costs_what_it_gave_since_it_told_of_it_last(orders: Shop) -> None:
    with team(orders) as readers:
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


def test_who_is_declared_offline_is_told_so_once_and_joins_again(orders: Shop) -> None:
    written(orders, 60)
    with team(orders) as readers:
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


class Shaky(ReaderGroup):
    """A group whose calls fail now and then, some of them though they were carried out."""

    odds: Iterator[float] = itertools.repeat(WORKS)
    errors = 0

    def join(self, reader: str, lease: Lease = NO_LEASE, *, host: str = "", before: int = 0) -> GroupMember:
        return self._maybe(lambda: super(Shaky, self).join(reader, lease, host=host, before=before))

    def rebalance(self, reader: str, positions: Mapping[int, int], lag: int | None, **more: Any) -> Assignment:
        return self._maybe(lambda: super(Shaky, self).rebalance(reader, positions, lag, **more))

    def finish(
        self, reader: str, segment_id: int, successors: Iterable[SegmentRecord], *, offset: int, session: int = 0
    ) -> None:
        self._maybe(lambda: super(Shaky, self).finish(reader, segment_id, successors, offset=offset, session=session))

    def leave(self, reader: str, positions: Mapping[int, int] | None = None, *, session: int = 0) -> None:
        self._maybe(lambda: super(Shaky, self).leave(reader, positions or {}, session=session))

    def _maybe(self, call: Callable[[], Answer]) -> Answer:
        odds = next(self.odds)
        if odds < IS_CARRIED_OUT:
            self.fail()
        answer = call()
        if odds < WORKS:
            self.fail()
        return answer

    def fail(self) -> None:
        self.errors += 1
        raise StoreUnavailable("put", "somewhere", "out of order")


@pytest.mark.parametrize("seed", range(examples(5)))
def test_calls_of_which_nobody_knows_whether_they_went_through_repeat_nothing(seed: int) -> None:
    random = Random(seed)
    with shop(MemoryStore(), segments=3) as orders, team(orders, Shaky.open(orders.stream, "team")) as readers:
        group = shaky(readers)
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


def shaky(readers: Team) -> Shaky:
    assert isinstance(readers.group, Shaky)
    return readers.group


def test_who_does_not_know_what_came_of_a_call_gives_nothing_until_one_goes_through() -> None:
    with (
        shop(MemoryStore(), segments=2) as orders,
        team(orders, Shaky.open(orders.stream, "team")) as readers,
    ):
        written(orders, 60)
        unsure = readers.join("a", every_seconds=NEVER_SECONDS)
        newest = max(orders.stream.active_segments().ids.tolist())
        while not any(event.segment_id == newest for event in readers.events):
            readers.take_one("a")
        readers.join("b")
        readers.ask("b")
        shaky(readers).odds = itertools.repeat(IS_CARRIED_OUT)
        for ask in (unsure.rebalance, lambda: next(unsure), unsure.next_batch, unsure.leave, unsure.next_batch):
            with pytest.raises(StoreUnavailable):
                ask()
        shaky(readers).odds = itertools.repeat(WORKS)
        readers.until(lambda: newest in readers.members["b"].position())
        readers.read_all()
        assert by_key(readers.events) == orders.written


def test_who_does_not_know_whether_it_has_left_gives_nothing_until_that_is_known(orders: Shop) -> None:
    one_batch(orders, b"0:1", b"0:2")
    with team(orders, Shaky.open(orders.stream, "team")) as readers:
        unsure = readers.join("a", every_seconds=NEVER_SECONDS)
        first = next(unsure)
        unsure.commit()
        shaky(readers).odds = itertools.repeat(IS_CARRIED_OUT)
        for ask in (unsure.leave, lambda: next(unsure), unsure.next_batch):
            with pytest.raises(StoreUnavailable):
                ask()
        shaky(readers).odds = itertools.repeat(WORKS)
        assert [first.payload, next(unsure).payload] == [b"0:1", b"0:2"]


def test_who_leaves_with_an_end_that_it_could_not_tell_leaves_at_that_end(orders: Shop) -> None:
    written(orders, 60)
    with team(orders, Shaky.open(orders.stream, "team")) as readers:
        member = readers.join("a", every_seconds=NEVER_SECONDS)
        readers.read_all()
        orders.stream.seal()
        orders.catalog.refresh()
        shaky(readers).odds = itertools.repeat(0.0)
        with pytest.raises(StoreUnavailable):
            readers.until(lambda: False)
        with orders.reader() as reader:
            list(reader)
            ends = reader.position()
        assert by_key(readers.events) == orders.written
        assert member.position() == ends
        shaky(readers).odds = itertools.repeat(WORKS)
        member.leave()
        assert readers.group.position() == ends


def test_who_failed_to_leave_when_it_was_closed_gives_nothing_any_more(orders: Shop) -> None:
    one_batch(orders, b"0:1", b"0:2", b"0:3")
    with team(orders, Shaky.open(orders.stream, "team")) as readers:
        group = shaky(readers)
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


def test_what_fails_of_a_segment_that_was_given_up_meanwhile_is_nobodys_business(orders: Shop) -> None:
    source = Held()
    with team(orders) as readers:
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
def test_a_reader_whose_group_or_stream_was_deleted_is_closed_without_an_error(orders: Shop, is_stream: bool) -> None:
    with team(orders) as readers:
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
