"""Retention on hosts with a wrong clock: nothing goes early, nothing stays for ever, each outcome is true."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from accel.errors import InvalidArgument
from accel.history.rules.configuration import RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.states import StreamState
from accel.history.store.retention_workflow import Retained
from accel.testing import ClockStore, Crash, CrashStore, Fault, FaultStore
from tests.accel.history.store.bench import START_MS, Bench
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import places

if TYPE_CHECKING:
    from accel.history.store import StreamStore
    from accel.system import Components
    from loaders.store import ObjectStore

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
TOLERANCE_MS = 300_000
ROUNDING_MS = 5_000
"""A store reports whole seconds: cuts of a host with a wrong clock are late by up to one."""


@dataclass
class Hosts(Bench):
    """A bench whose store reports its time, and whose clients may run on a host with another clock.

    Attributes:
        ahead_ms: how far that clock is ahead.
        has_date: whether the store reports its time.
    """

    ahead_ms: int = 0
    has_date: bool = True

    def components(self) -> Components:
        return replace(super().components(), clock=lambda: (self.now_ms + self.ahead_ms) / 1000)

    def streams(self, around: ObjectStore | None = None) -> StreamStore:
        store = self.store if around is None else around
        return super().streams(ClockStore(store, lambda: self.now_ms / 1000) if self.has_date else store)

    def hour(self) -> Retained:
        """An hour in which each segment gets ten events; then retention."""
        self.append_all(10)
        self.tick(HOUR_MS + ROUNDING_MS)
        return self.stream().workflows.retention.retain()[0]


def hosts(policy: RetentionPolicy, *, has_date: bool = True) -> Hosts:
    """A stream of one segment with this policy."""
    bench = Hosts(has_date=has_date)
    bench.create(segments=1)
    bench.stream().configure(StreamConfiguration(min_segments=1, retention=policy))
    return bench


BY_TIME = RetentionPolicy(RetentionKind.TIME, 2 * HOUR_MS)
BY_SIZE = RetentionPolicy(RetentionKind.SIZE, 30)


@cache
def hours_by_a_right_clock() -> list[tuple[Retained, dict[int, int]]]:
    """What retention does in each of twelve hours, and the head then."""
    bench = hosts(BY_TIME)
    return [(bench.hour(), dict(bench.stream().head())) for _ in range(12)]


@pytest.mark.parametrize("ahead_ms", [YEAR_MS, -YEAR_MS, 24 * HOUR_MS, -24 * HOUR_MS])
def test_a_run_on_a_host_with_a_wrong_clock_is_like_any_other(ahead_ms: int) -> None:
    bench = hosts(BY_TIME)
    for hour, expected in enumerate(hours_by_a_right_clock()):
        bench.ahead_ms = ahead_ms if hour % 3 == 2 else 0
        assert (bench.hour(), dict(bench.stream().head())) == expected
    assert dict(bench.stream().head()) == {0: 100}


@pytest.mark.parametrize("policy", [BY_TIME, BY_SIZE])
def test_cuts_recorded_by_a_clock_a_year_ahead_are_removed_by_the_next_run(
    policy: RetentionPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    bench = hosts(policy, has_date=False)  # the machine is the store: nothing else knows the time
    for _ in range(3):
        bench.hour()
    bench.now_ms += YEAR_MS
    bench.stream().retention.run()
    ahead_ms = bench.stream().retention.read().times_ms.tolist()[-1]
    bench.now_ms -= YEAR_MS
    bench.append_all(10)
    bench.tick(HOUR_MS)
    planned = bench.stream().workflows.retention.plan()
    with caplog.at_level(logging.WARNING):
        assert bench.stream().workflows.retention.retain() == planned
    assert str(ahead_ms) in caplog.text
    for _ in range(6):
        bench.hour()
    times = bench.stream().retention.read().times_ms.tolist()
    assert max(times) == bench.now_ms
    assert bench.stream().parts.keys.cut(ahead_ms).read() is None
    kept = 20 if policy is BY_TIME else 30
    assert dict(bench.stream().head()) == {0: 100 - kept}


def test_a_run_that_records_nothing_does_not_say_that_it_did() -> None:
    bench = hosts(BY_TIME)
    assert bench.hour() is Retained.RECORDED
    before = bench.stream().retention.read()
    for time_ms in (bench.now_ms - 1, START_MS):
        assert bench.stream().workflows.retention.plan(time_ms) == (Retained.UNCHANGED, None)
        assert bench.stream().workflows.retention.retain(time_ms) == (Retained.UNCHANGED, None)
        assert bench.streams().retain(SCOPE, STREAM, time_ms).outcome is Retained.UNCHANGED
    assert bench.stream().retention.read() == before


def test_without_a_confirmed_clock_nothing_is_recorded_or_deleted() -> None:
    bench = hosts(BY_TIME)
    for _ in range(4):
        bench.hour()
    bench.append_all(10)
    bench.tick(HOUR_MS)
    before, head = bench.stream().retention.read(), bench.stream().head()
    mute = FaultStore(ClockStore(bench.store, lambda: bench.now_ms / 1000), operations={"date"})
    mute.schedule(*[Fault.TIMEOUT] * 100)
    bench.has_date = False
    workflow = bench.streams(mute).stream(SCOPE, STREAM).workflows.retention
    assert workflow.plan() == workflow.retain() == workflow.retain(bench.now_ms) == (Retained.NO_CLOCK, None)
    assert (bench.stream().retention.read(), bench.stream().head()) == (before, head)
    mute.clear()
    assert workflow.retain()[0] is Retained.TRUNCATED, "the store is asked again at once"


def test_a_time_after_now_is_refused_before_anything_is_written() -> None:
    bench = hosts(BY_TIME)
    bench.append_all(5)
    late_ms = bench.now_ms + TOLERANCE_MS + 1
    before = bench.stream().retention.read()
    for act in (
        bench.stream().workflows.retention.retain,
        bench.stream().workflows.retention.plan,
        lambda time_ms: bench.stream().workflows.retention.add(time_ms, 5, {0: 5}),
        lambda time_ms: bench.streams().retain(SCOPE, STREAM, time_ms),
        lambda time_ms: bench.streams().run_retention(SCOPE, time_ms),
    ):
        with pytest.raises(InvalidArgument, match="5 minutes from now"):
            act(late_ms)
    assert bench.stream().retention.read() == before
    assert bench.stream().workflows.retention.retain(late_ms - 1)[0] is Retained.RECORDED


@pytest.mark.parametrize("moved_ms", [0, HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS])
def test_a_run_that_died_is_finished_whatever_the_clock_says_then(moved_ms: int) -> None:
    prepared = hosts(BY_TIME)
    for _ in range(2):
        prepared.hour()
    prepared.append_all(10)
    prepared.tick(HOUR_MS + ROUNDING_MS)
    whole = CrashStore((bench := prepared.clone()).store, None)
    assert bench.streams(whole).retain(SCOPE, STREAM).outcome is Retained.TRUNCATED
    said = set()
    for number in places(whole.writes, 1 if moved_ms else None):
        bench = prepared.clone()
        with pytest.raises(Crash):
            bench.streams(CrashStore(bench.store, number)).retain(SCOPE, STREAM)
        was_truncated = len(bench.stream().truncation().cut) > 0 and bench.stream().state() is StreamState.ACTIVE
        bench.ahead_ms = moved_ms
        found = bench.streams().retain(SCOPE, STREAM)
        assert dict(bench.stream().head()) == {0: 10}
        said.add((was_truncated, found.outcome, None if found.point is None else found.point.recorded_size))
        bench.stream().recover()
        bench.ahead_ms = 0
        assert bench.hour() is Retained.TRUNCATED
        assert dict(bench.stream().head()) == {0: 20}
    # Where the run that died had truncated the stream, the next one has nothing left to truncate.
    assert said == {(False, Retained.TRUNCATED, 10), (True, Retained.RECORDED, None)}
