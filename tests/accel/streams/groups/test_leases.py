"""A reader that is silent for longer than its lease is dead for others, and finds it out before it stores anything."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import IllegalState, InvalidArgument
from accel.streams.rules.group_state import GroupMember, Lease
from accel.streams.rules.membership import LeaseWatch
from accel.system import SYSTEM, Components
from loaders.store import CountingStore, MemoryStore
from tests.accel.streams.groups.states import group, owners_of
from tests.accel.streams.groups.team import Team, one_batch, team, written
from tests.accel.streams.reader.streams import Shop, by_key, shop
from tests.examples import examples

LEASE_SECONDS = 10.0


@dataclass
class Hands:
    """A timer that is set by hand; each reader has one of its own, from a start of its own."""

    seconds: float = 0.0

    def components(self) -> Components:
        return replace(SYSTEM, timer=lambda: SYSTEM.timer() + self.seconds)


def pass_time(readers: Team, hands: Hands, seconds: float, name: str) -> None:
    """So much time passes for one reader, which is asked now and then."""
    for _ in range(round(seconds)):
        hands.seconds += 1.0
        readers.ask(name)


# What one sees of others


def member(name: str, session: int = 1, renewals: int = 0, milliseconds: int = 10_000) -> GroupMember:
    return GroupMember(name, lease=Lease(session, renewals, milliseconds))


def test_one_that_stands_still_for_longer_than_its_lease_is_silent() -> None:
    watch = LeaseWatch()
    for now in (100.0, 103.0, 106.0, 109.0):
        watch.look([member("a"), member("b")], now)
        assert watch.silent("a") == {}
    watch.look([member("a"), member("b")], 110.0)
    assert watch.silent("a") == {"b": Lease(1, 0, 10_000)}


@pytest.mark.parametrize("change", [{"renewals": 1}, {"session": 2}])
def test_one_that_changes_is_not(change: dict[str, int]) -> None:
    watch = LeaseWatch()
    for now in range(0, 30, 3):
        watch.look([member("b"), member("c")] if now < 9 else [member("b", **change), member("c")], float(now))
        assert "b" not in watch.silent("a") or now >= 9 + 10
    assert "c" in watch.silent("a")


def test_one_without_a_lease_is_never_silent() -> None:
    watch = LeaseWatch()
    for now in range(0, 1_000, 3):
        watch.look([GroupMember("b"), member("c", milliseconds=0)], float(now))
    assert watch.silent("a") == {}


def test_a_while_in_which_nobody_looked_does_not_count_in_full() -> None:
    """As after an hour without a store: all were silent, and nobody is dead."""
    watch = LeaseWatch()
    watch.look([member("b")], 0.0)
    watch.look([member("b")], 3_600.0)
    assert watch.silent("a") == {}
    watch.look([member("b", renewals=1)], 3_601.0)
    watch.look([member("b", renewals=1)], 3_609.0)
    assert watch.silent("a") == {}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=40))
def test_nobody_is_silent_that_was_seen_to_change_within_its_lease(looks: list[tuple[float, bool]]) -> None:
    watch, now, renewals, changed_at = LeaseWatch(), 0.0, 0, 0.0
    seen_since = 0
    for pause, renews in looks:
        now += pause
        if renews:
            renewals, changed_at, seen_since = renewals + 1, now, 0
        watch.look([member("b", renewals=renewals)], now)
        seen_since += 1
        if now - changed_at < LEASE_SECONDS - 1e-6 or seen_since <= 3:
            assert watch.silent("a") == {}


def test_who_renewed_since_it_was_looked_at_stays() -> None:
    state = group({"a": 1, "b": 1}).after_join("b", Lease(7, 0, 10_000)).with_renewal("b", Lease(7, 0, 10_000))
    seen = {"b": state.readers[1].lease}
    assert owners_of(state.after_silence(seen)) == {"0@0": "a", "1@0": None}
    renewed = state.with_renewal("b", Lease(7, 0, 10_000))
    assert renewed.after_silence(seen) == renewed
    assert state.after_silence({"nobody": Lease(1, 0, 10)}) == state


# Readers


def test_those_who_are_asked_for_events_stay_alive_however_long(orders: Shop, readers: Team) -> None:
    hands = {name: Hands(number * 1e6) for number, name in enumerate("abc")}
    for name, each in hands.items():
        readers.join(name, system=each.components())
    for _ in range(40):
        for name, each in hands.items():
            each.seconds += 1.0
            readers.ask(name)
    assert [each.name for each in readers.group.state().readers] == ["a", "b", "c"]
    written(orders, 24)
    readers.read_all()
    assert by_key(readers.events) == orders.written


@pytest.mark.parametrize("auto_commit", [True, False])
def test_one_that_was_paused_finds_out_before_its_position_is_stored(
    orders: Shop, readers: Team, auto_commit: bool
) -> None:
    one_batch(orders, *(b"0:%d" % number for number in range(6)))
    paused = readers.join("a", every_seconds=2.0, auto_commit=auto_commit)
    given = [next(paused) for _ in range(3)]
    hands = Hands()
    readers.join("b", system=hands.components())
    pass_time(readers, hands, 2 * LEASE_SECONDS, "b")
    while len(readers.own("b")) < 6:
        readers.ask("b")
    assert set(given) <= set(readers.own("b"))
    told = readers.group.position()
    with pytest.raises(IllegalState, match="silent for longer than its lease"):
        paused.commit()
    assert readers.group.position() == told
    assert readers.ask("a") == 0
    assert [each.name for each in readers.group.state().readers] == ["a", "b"]


def test_an_idle_reader_renews_a_few_times_in_its_lease_and_writes_nothing_else() -> None:
    store = CountingStore(MemoryStore())
    with shop(store, segments=1) as orders, team(orders) as readers:
        hands = Hands()
        readers.join("a", every_seconds=2.0, system=hands.components())
        readers.ask("a")
        pass_time(readers, hands, 4, "a")
        store.reset()
        pass_time(readers, hands, 60, "a")
        counts = store.snapshot().by_operation
        assert counts["put"].requests <= 60 * 4 / LEASE_SECONDS + 1
        assert "delete" not in counts


@pytest.mark.parametrize("seconds", [0, 1.9, 1e9, float("nan")])
def test_a_lease_that_makes_no_sense_is_refused(orders: Shop, seconds: float) -> None:
    with team(orders) as readers, pytest.raises(InvalidArgument, match=r"a lease of at least 2\.0 s|a finite number"):
        readers.join("a", every_seconds=1.0, lease_seconds=seconds)
