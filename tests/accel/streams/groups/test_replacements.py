"""Readers of one name: the newer one takes over at once, the older one finds out and never comes back."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from functools import partial
from random import Random

import pytest

import accel
from accel.errors import IllegalState, ReaderReplaced
from accel.streams import group_readers
from accel.streams.group_readers import GroupReaderCounts, GroupReaderStats
from accel.streams.rules.group_state import REPLACED_MAX, GroupState, Lease
from loaders.errors import StoreUnavailable
from loaders.store import MemoryStore
from tests.accel.streams.groups.states import group, named
from tests.accel.streams.groups.team import (
    IS_CARRIED_OUT,
    NEVER_SECONDS,
    WORKS,
    Team,
    for_threads_and_tasks,
    one_batch,
    written,
)
from tests.accel.streams.groups.test_leases import LEASE_SECONDS, Hands, pass_time
from tests.accel.streams.reader.streams import Shop
from tests.examples import examples

FAILS_AFTER = (IS_CARRIED_OUT + WORKS) / 2
"""Luck with which a call is carried out, and fails."""


# The state


def joined(*sessions: int, state: GroupState | None = None) -> GroupState:
    """Readers named a, one after the other."""
    state = group({"a": 2, "b": 1}) if state is None else state
    for session in sessions:
        state = state.after_join("a", Lease(session, 0, 10_000), host=f"host-{session}", now_ms=1_000 * session)
    return state


def test_the_state_has_the_newer_one_and_knows_the_older_ones() -> None:
    state = joined(1, 2).with_positions("a", {0: 5})
    assert state.index("a", 2) == 0
    assert named(state.owned("a")) == {"0@0": 5, "1@0": 0}
    for earlier in (1, 7):
        with pytest.raises(ReaderReplaced, match="another 'a' that joined later on host host-2"):
            state.index("a", earlier)
    assert [tuple(each) for each in state.readers[0].replaced] == [(0, "", 1_000), (1, "host-1", 2_000)]


def test_its_own_join_seen_again_is_no_replacement() -> None:
    state = joined(1, 2)
    assert joined(2, state=state) is state
    assert state.after_join("a", Lease(2, 0, 10_000), before=1) is state
    again = state.after_join("a", Lease(3, 0, 10_000), before=2)
    assert (again.index("a", 3), again.readers[0].replaced) == (0, state.readers[0].replaced)


def test_a_join_that_was_carried_out_and_replaced_is_not_carried_out_again() -> None:
    for state in (joined(1, 2), joined(1, 2, 3)):
        with pytest.raises(ReaderReplaced):
            joined(1, state=state)


def test_who_was_in_the_group_before_replaces_nobody_but_may_come_back() -> None:
    state = joined(1)
    with pytest.raises(ReaderReplaced):
        state.after_join("a", Lease(9, 0, 10_000), before=8)
    back = state.after_leave("a").after_join("a", Lease(9, 0, 10_000), before=8)
    assert (back.index("a", 9), back.readers[0].replaced) == (0, ())


def test_a_reader_without_a_session_replaces_one_that_has_one() -> None:
    state = joined(1).after_join("a")
    with pytest.raises(ReaderReplaced):
        state.index("a", 1)
    assert state.after_leave("a", {0: 99}, session=1) is state


def test_the_state_knows_so_many_older_ones_at_most_and_how_many_within_a_lease() -> None:
    state = joined(*range(1, 30))
    [a, _] = state.readers
    assert [each.session for each in a.replaced] == list(range(29 - REPLACED_MAX, 29))
    assert (a.replacements(29_000), a.replacements(39_000), a.replacements(60_000)) == (8, 1, 0)


# Readers


@for_threads_and_tasks
def test_the_older_one_raises_for_good_and_its_commits_change_nothing(orders: Shop, readers: Team) -> None:
    one_batch(orders, *(b"0:%d" % number for number in range(4)))
    counts = GroupReaderCounts()
    first, second = (readers.join("a", every_seconds=NEVER_SECONDS, counts=counts) for _ in range(2))
    readers.gone.append(first)
    given = [next(first) for _ in range(3)]
    assert next(second).payload == given[0].payload
    second.commit()
    told = readers.group.state()
    for again in (first.commit, first.commit, first.rebalance, lambda: next(first), first.next_batch):
        with pytest.raises(ReaderReplaced, match="another 'a' that joined later"):
            again()
    with pytest.raises(ReaderReplaced):
        first.skip_to_head()
    first.leave()
    first.close()
    assert readers.group.state() == told
    assert [next(second).payload for _ in range(3)] == [b"0:1", b"0:2", b"0:3"]
    stats = counts.stats()
    assert (stats.readers, stats.replacing, stats.replaced) == (1, 1, 1)
    assert stats.lag_seconds is not None


def test_who_was_removed_and_finds_another_one_in_its_place_does_not_come_back(orders: Shop, readers: Team) -> None:
    written(orders, 30)
    paused = readers.join("a", every_seconds=2.0)
    readers.ask("a")
    readers.die("a")
    hands = Hands()
    readers.join("b", system=hands.components())
    pass_time(readers, hands, 2 * LEASE_SECONDS, "b")
    assert [each.name for each in readers.group.state().readers] == ["b"]
    with pytest.raises(IllegalState, match="silent for longer than its lease"):
        paused.rebalance()
    readers.join("a")
    readers.share()
    for _ in range(2):
        with pytest.raises(ReaderReplaced):
            paused.next_batch(0)
    assert {each.name for each in readers.group.state().readers} == {"a", "b"}
    written(orders, 30)
    readers.read_all()


def test_a_join_whose_reply_was_lost_is_repeated_and_replaces_nobody(readers: Team) -> None:
    odds, counts = readers.group, GroupReaderCounts()
    odds.odds = iter([FAILS_AFTER, *[WORKS] * 1_000])
    member = readers.join("a", counts=counts)
    with pytest.raises(StoreUnavailable):
        member.rebalance()
    member.rebalance()
    assert readers.group.state().readers[0].replaced == ()
    assert counts.stats().replacing == 0


@pytest.mark.parametrize("seed", range(examples(10)))
@pytest.mark.parametrize("segments", [3])
def test_of_readers_of_one_name_one_remains_whatever_becomes_of_their_calls(
    orders: Shop, readers: Team, seed: int
) -> None:
    random = Random(seed)
    odds = readers.group
    written(orders, 60)
    odds.odds = iter(random.random, None)
    members = [readers.join("a") for _ in range(4)]
    readers.gone += members[:-1]
    ended: Counter[int] = Counter()
    for _ in range(200):
        number = random.randrange(4)
        try:
            readers.keep(str(number), members[number].next_batch(0.001))
            assert not ended[number], "who was replaced gives nothing any more"
        except ReaderReplaced:
            ended[number] += 1
        except StoreUnavailable:
            pass
    odds.odds = itertools.repeat(WORKS)
    for number, member in enumerate(members):
        try:
            member.rebalance()
        except ReaderReplaced:
            ended[number] += 1
    [left] = set(range(4)) - ended.keys()
    for _ in range(2_000):
        readers.keep(str(left), members[left].next_batch(0.001))
        if {event.payload for event in readers.events} == {one for each in orders.written.values() for one in each}:
            break
    else:
        raise AssertionError(readers.describe())


def test_many_replacements_within_a_lease_are_logged_with_both_hosts(
    readers: Team, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, group_readers.__name__)
    for number in range(5):
        monkeypatch.setattr(group_readers, "gethostname", partial("pod-{}".format, number % 2))
        readers.gone.append(readers.join("a"))
        readers.ask("a")
        assert bool(caplog.records) is (number > 3)
    assert "one reader named 'a', found 4 that replaced one another" in caplog.text
    assert "on hosts pod-1 and pod-0" in caplog.text


def test_a_connection_counts_replacements_of_its_readers() -> None:
    with accel.connect(MemoryStore(), create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=1)
        assert streams.group_stats() == GroupReaderStats()
        one, other = (streams.group_reader("shop", "orders", "billing", "a") for _ in range(2))
        one.rebalance()
        other.rebalance()
        with pytest.raises(ReaderReplaced):
            one.rebalance()
        stats = streams.group_stats()
        assert (stats.readers, stats.replacing, stats.replaced) == (1, 1, 1)
