"""Now is the time of the store, whatever a host's clock says."""

from __future__ import annotations

import logging
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.catalog import ObjectCatalog
from accel.catalog.collect import plan_collection
from accel.history.store import StreamStore
from accel.system import (
    CLOCK_INTERVAL_SECONDS,
    CLOCK_RETRY_SECONDS,
    SYSTEM,
    Components,
    StoreClock,
    clock_skew_seconds,
    of_store,
)
from accel.testing import ClockStore, Fault, FaultStore, MemorySegments
from loaders.settings import CLOCK_SKEW_SECONDS_MAX
from loaders.store import CountingStore, MemoryStore, PrefixedStore
from loaders.store.base import DatedStore
from loaders.tables import FormatRecord
from tests.world import FORMAT, World

START_SECONDS = 1_800_000_000.0
DAY_SECONDS = 86_400.0
YEAR_SECONDS = 365 * DAY_SECONDS


class Host:
    """A machine whose clock may be set, in a world whose time goes by."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.ahead = 0.0
        self.store = FaultStore(ClockStore(MemoryStore(), self.true), operations={"date"})

    def true(self) -> float:
        return START_SECONDS + self.passed

    def system(self) -> Components:
        """What a process on this machine is given."""
        return replace(SYSTEM, clock=lambda: self.true() + self.ahead, timer=lambda: self.passed)

    def clock(self) -> StoreClock:
        """The clock of the store, as this machine has it."""
        system = self.system()
        return StoreClock(self.store, system.clock, system.timer)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.mark.parametrize("ahead", [0.3, -0.3, 30.0, DAY_SECONDS, -DAY_SECONDS, YEAR_SECONDS, -YEAR_SECONDS])
def test_now_is_the_stores_time_to_a_second_whatever_the_hosts_clock_says(ahead: float, host: Host) -> None:
    host.passed, host.ahead = 0.25, ahead
    clock = host.clock()
    assert clock() == host.true() + ahead, "no request yet"
    assert clock.measure()
    for _ in range(3):
        assert abs(clock() - host.true()) <= 1
        assert (clock.skew_seconds > 0, clock.skew_seconds < 0) == (ahead > 1, ahead < -0.25)
        host.passed += 1000
        clock.measure()


def test_a_hosts_clock_that_is_right_keeps_its_milliseconds(host: Host) -> None:
    host.passed = 0.789
    clock = host.clock()
    clock.measure()
    assert clock() == host.true()


def test_a_clock_that_is_set_between_two_measurements_changes_nothing(host: Host) -> None:
    clock = host.clock()
    clock.measure()
    for ahead in (DAY_SECONDS, -YEAR_SECONDS, 0.0):
        host.passed += 1
        host.ahead = ahead
        assert abs(clock() - host.true()) <= 1
        clock.measure()
        assert abs(clock() - host.true()) <= 1


def test_the_store_is_asked_each_ten_minutes_and_when_the_hosts_clock_was_set(host: Host) -> None:
    counting = CountingStore(host.store)
    system = host.system()
    clock = StoreClock(counting, system.clock, system.timer)
    asked = []
    for passed in (0.0, CLOCK_INTERVAL_SECONDS - 1, 1.0, 1.0):
        host.passed += passed
        clock.measure()
        asked.append(counting.snapshot().by_operation["date"].requests)
    host.ahead = 2 * CLOCK_SKEW_SECONDS_MAX
    clock.measure()
    asked.append(counting.snapshot().by_operation["date"].requests)
    assert asked == [1, 1, 2, 2, 3]


def test_a_store_that_does_not_answer_leaves_the_time_unconfirmed(host: Host) -> None:
    host.ahead = DAY_SECONDS
    host.store.schedule(Fault.TIMEOUT)
    clock = host.clock()
    assert not clock.measure()
    assert not clock.is_confirmed
    host.passed += CLOCK_RETRY_SECONDS / 2
    host.store.schedule(Fault.TIMEOUT)
    assert not clock.measure(must_confirm=True)
    assert clock.measure(must_confirm=True)
    assert abs(clock() - host.true()) <= 1
    host.passed += CLOCK_INTERVAL_SECONDS
    host.store.schedule(Fault.TIMEOUT)
    assert not clock.measure()
    assert abs(clock() - host.true()) <= 1, "the last answer, and the timer since"
    host.passed += CLOCK_RETRY_SECONDS
    assert clock.measure()


def test_a_store_without_a_date_is_the_machine_and_costs_no_request(host: Host) -> None:
    counting = CountingStore(CountingStore(MemoryStore()))
    for store in (MemoryStore(), counting, PrefixedStore(counting, "a/")):
        clock = StoreClock(store, host.system().clock, host.system().timer)
        for ahead in (0.0, YEAR_SECONDS, -DAY_SECONDS):
            host.ahead = ahead
            assert (clock.measure(), clock(), clock.skew_seconds) == (True, host.true() + ahead, 0.0)
    assert counting.snapshot().by_operation == {}


def test_the_date_passes_through_all_wrappers(host: Host) -> None:
    store = PrefixedStore(CountingStore(CountingStore(host.store)), "a/")
    assert isinstance(store, DatedStore)
    assert store.date_seconds() == host.true()


@given(seed=st.integers(0, 2**32))
def test_values_fall_only_where_an_answer_shows_them_to_be_far_ahead(seed: int) -> None:
    rng, host = Random(seed), Host()
    clock = host.clock()
    clock.measure()
    last = clock()
    for _ in range(30):
        host.passed += rng.choice([0.0, 0.01, 10.0, CLOCK_INTERVAL_SECONDS])
        host.ahead = rng.choice([host.ahead, 0.0, rng.uniform(-2, 2), rng.uniform(-400, 400), YEAR_SECONDS])
        host.store.clear()
        host.store.schedule(rng.choice([None, Fault.TIMEOUT]))
        clock.measure()
        now = clock()
        assert last <= now
        assert abs(now - host.true()) <= 2
        last = now


def test_a_host_that_is_far_off_says_so_once(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    clock = host.clock()
    with caplog.at_level(logging.WARNING, "accel.system"):
        for ahead in (CLOCK_SKEW_SECONDS_MAX - 10, DAY_SECONDS, DAY_SECONDS, -DAY_SECONDS):
            host.ahead = ahead
            host.passed += CLOCK_INTERVAL_SECONDS
            clock.measure()
    messages = [record.getMessage() for record in caplog.records]
    assert [("ahead of" in each, "behind" in each) for each in messages] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("stamp", "before", "after", "skew"),
    [(10.0, 10.5, 10.9, 0.0), (10.0, 9.0, 12.0, 0.0), (10.0, 12.0, 12.5, 1.0), (10.0, 7.0, 7.5, -2.5)],
)
def test_a_skew_is_what_no_rounding_explains(stamp: float, before: float, after: float, skew: float) -> None:
    assert clock_skew_seconds(stamp, before, after) == skew


@pytest.mark.parametrize("ahead", [YEAR_SECONDS, -YEAR_SECONDS])
def test_catalogs_and_histories_use_the_stores_clock(ahead: float, host: Host) -> None:
    host.ahead = ahead
    ObjectCatalog.init(host.store, FormatRecord(namespace="shop"), system=host.system())
    with ObjectCatalog.open(host.store, system=host.system()) as catalog:
        streams = StreamStore.open(host.store, system=host.system(), host=MemorySegments())
        streams.create_scope("shop")
        created_ms = streams.create_stream("shop", "orders").creation_time_ms()
        assert [abs(each / 1000 - host.true()) <= 1 for each in (catalog.parts.now_ms(), created_ms)] == [True, True]


def test_a_system_has_one_clock_of_a_store(host: Host) -> None:
    system = of_store(host.store, host.system())
    assert of_store(host.store, system) is system


@pytest.mark.parametrize("ahead", [DAY_SECONDS, YEAR_SECONDS])
def test_a_collector_whose_host_is_ahead_deletes_nothing_early(ahead: float) -> None:
    world = World()
    store = ClockStore(world.store, world.clock)
    with world.open(store) as catalog:
        session = catalog.open_node(4)
        session.open_streams([7])
        world.upload(session, {7: (0, 5)})
        [prepared] = session.prepare()
        world.put(prepared, [(7, 5, 9)])
        late = replace(world.system, clock=lambda: world.clock() + ahead)
        with ObjectCatalog.open(store, settings=world.settings, system=late) as collector:
            assert plan_collection(collector).objects == ()
            world.clock.seconds += FORMAT.prepared_seconds + 60
            assert prepared in [each.object_id for each in plan_collection(collector).objects]
