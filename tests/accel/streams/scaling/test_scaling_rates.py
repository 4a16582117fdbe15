"""When a segment is hot or cold, and which scale follows: against a naive recomputation, and over hours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.history.rules.configuration import ScalingKind, ScalingPolicy, StreamConfiguration
from accel.history.rules.epochs import NO_TRANSITION, EpochRecord, EpochTransition
from accel.history.rules.scaling import ScaleRequest, scaled_epoch, with_request
from accel.history.rules.segments import SegmentRecord, Segments, initial_ranges
from accel.history.rules.states import StreamState
from accel.streams.shared.auto_scale import TICK_SECONDS
from accel.streams.shared.scaling_rates import (
    COLD_FACTOR,
    COOLDOWN_SECONDS,
    HOT_FACTORS,
    WINDOWS_SECONDS,
    YOUNG_SECONDS,
    SegmentLoad,
    SegmentRates,
    WantedScale,
    load_of,
    target_of,
    wanted_scale,
)
from tests.examples import examples

TICK = TICK_SECONDS
TARGET = 100
MINUTE = 60
LATER_MS = 10**9
"""When no segment is young, and no scale is recent."""


def wanted(least: int = 1, factor: int = 8, target: int = TARGET) -> StreamConfiguration:
    return StreamConfiguration(min_segments=least, scaling=ScalingPolicy(ScalingKind.EVENTS, target, factor))


def epoch(count: int, time_ms: int = 0) -> EpochRecord:
    ranges = initial_ranges(count)
    return EpochRecord(0, 0, Segments.make(range(count), time_ms, ranges.starts, ranges.ends), time_ms)


def measured(rates: Sequence[float], tick: float = TICK) -> SegmentRates:
    """After ticks of these rates."""
    now, total = 5_000.0, 17.0
    known = SegmentRates.begin(now, int(total))
    for rate in rates:
        now, total = now + tick, total + rate * tick
        known = known.after(now, int(total))
    return known


def steady(rate: float, minutes: float) -> SegmentRates:
    return measured([rate] * int(minutes * MINUTE / TICK))


def naive(ticks: Sequence[tuple[float, int]], window: float) -> float:
    """The weighted mean of the rates of all ticks, each moment weighted by its age."""
    now = sum(seconds for seconds, _ in ticks)
    weights = rates = begun = 0.0
    for seconds, count in ticks:
        weight = window * (math.exp(-(now - begun - seconds) / window) - math.exp(-(now - begun) / window))
        weights += weight
        rates += weight * count / seconds
        begun += seconds
    return rates / weights


TICKS = st.lists(st.tuples(st.floats(0.5, 400), st.integers(0, 10**9)), min_size=1, max_size=20)


@settings(max_examples=examples(100), deadline=None)
@given(TICKS)
def test_rates_are_weighted_means_of_all_ticks(ticks: list[tuple[float, int]]) -> None:
    now, total = 100.0, 3
    known = SegmentRates.begin(now, total)
    for seconds, count in ticks:
        now, total = now + seconds, total + count
        known = known.after(now, total)
    whole = [window for window in WINDOWS_SECONDS if window <= now - 100.0]
    assert known.rates() == pytest.approx([naive(ticks, window) for window in whole], rel=1e-6, abs=1e-6)


@settings(max_examples=examples(50), deadline=None)
@given(st.floats(0, 10**6), st.lists(st.floats(1, 100), min_size=1, max_size=10))
def test_a_steady_rate_is_the_rate_of_every_window_however_it_is_cut(rate: float, cuts: list[float]) -> None:
    known, now = SegmentRates.begin(0.0, 0), 0.0
    for _ in range(3):
        for seconds in (*cuts, 500.0):
            now += seconds
            known = known.after(now, round(rate * now))
    assert known.rates() == pytest.approx([rate] * len(known.rates()), rel=1e-3, abs=2)
    assert len(known.rates()) == 4


def test_a_sample_without_time_is_counted_by_the_next_one() -> None:
    begun = SegmentRates.begin(1.0, 5)
    assert begun.after(1.0, 9) is begun
    assert begun.after(301.0, 305).rates() == pytest.approx([1.0, 1.0])


def test_a_counter_that_fell_is_another_one() -> None:
    begun = measured([50.0] * 200)
    again = begun.after(begun.at_seconds + TICK, 0)
    assert again == SegmentRates.begin(begun.at_seconds + TICK, 0)
    assert again.rates() == ()


@pytest.mark.parametrize(
    ("minutes", "rate", "load"),
    [
        (1.5, 100 * TARGET, SegmentLoad()),  # no window is over
        (2, 5.5 * TARGET, SegmentLoad(parts=6)),
        (2, 4.5 * TARGET, SegmentLoad()),
        (5, 4.5 * TARGET, SegmentLoad(parts=5)),
        (5, 1.9 * TARGET, SegmentLoad()),
        (10, 1.9 * TARGET, SegmentLoad(parts=2)),
        (60, 1.2 * TARGET, SegmentLoad()),
        (60, 0.51 * TARGET, SegmentLoad()),
        (19, 0.1 * TARGET, SegmentLoad()),
        (20, 0.49 * TARGET, SegmentLoad(is_cold=True)),
        (20, 0, SegmentLoad(is_cold=True)),
    ],
)
def test_what_is_hot_and_what_is_cold(minutes: float, rate: float, load: SegmentLoad) -> None:
    assert load_of(steady(rate, minutes), TARGET) == load


def test_a_load_that_is_over_splits_nothing_and_its_end_is_not_cold_at_once() -> None:
    ticks = [10.0 * TARGET] * 60 + [0.0] * 60  # ten minutes each
    assert load_of(measured(ticks), TARGET) == SegmentLoad()
    assert load_of(measured(ticks + [0.0] * 600), TARGET).is_cold


def test_kilobytes_are_1024_bytes() -> None:
    assert target_of(StreamConfiguration(scaling=ScalingPolicy(ScalingKind.BYTES, 3, 2))) == 3072
    assert target_of(wanted()) == TARGET
    assert target_of(StreamConfiguration()) == 0


HOT, COLD = SegmentLoad(parts=3), SegmentLoad(is_cold=True)


def asked(
    current: EpochRecord,
    loads: dict[int, SegmentLoad],
    configuration: StreamConfiguration | None = None,
    now_ms: int = LATER_MS,
) -> tuple[tuple[int, ...], list[tuple[float, float]]] | None:
    scale = wanted_scale(current, loads, configuration or wanted(), now_ms)
    return None if scale is None else (scale.seal, list(scale.new_ranges))


def test_hot_segments_are_split_and_cold_pairs_merged_in_one_scale() -> None:
    loads = {0: COLD, 1: COLD, 2: HOT, 3: COLD}
    thirds = [(0.5, 0.5 + 0.25 / 3), (0.5 + 0.25 / 3, 0.5 + 2 * (0.25 / 3)), (0.5 + 2 * (0.25 / 3), 0.75)]
    assert asked(epoch(4), loads) == ((0, 1, 2), [(0.0, 0.5), *thirds])


def test_an_epoch_of_a_wrong_clock_is_not_waited_for() -> None:
    current = epoch(1)
    year_ms = 365 * 86_400_000
    for ahead_ms, is_waited_for in ((1, True), (300_000, True), (300_001, False), (year_ms, False)):
        assert (asked(current, {0: HOT}, now_ms=current.creation_time_ms - ahead_ms) is None) is is_waited_for


def test_a_split_has_at_most_as_many_parts_as_the_policy_says() -> None:
    assert asked(epoch(1), {0: SegmentLoad(parts=50)}, wanted(factor=2)) == ((0,), [(0.0, 0.5), (0.5, 1.0)])


def test_no_merge_leaves_fewer_than_the_least() -> None:
    cold = dict.fromkeys(range(4), COLD)
    assert asked(epoch(4), cold, wanted(least=2)) == ((0, 1, 2, 3), [(0.0, 0.5), (0.5, 1.0)])
    assert asked(epoch(4), cold, wanted(least=3)) == ((0, 1), [(0.0, 0.5)])
    assert asked(epoch(4), cold, wanted(least=4)) is None
    assert asked(epoch(4), cold, wanted(least=5)) is None


def test_neighbours_only_are_merged() -> None:
    assert asked(epoch(4), {0: COLD, 2: COLD}) is None
    assert asked(epoch(4), {0: COLD, 1: SegmentLoad(), 2: COLD, 3: COLD}) == ((2, 3), [(0.5, 1.0)])


def test_a_stream_is_left_alone_after_a_scale_and_a_segment_while_it_is_young() -> None:
    now_ms = int(YOUNG_SECONDS * 1000)
    assert asked(epoch(1, time_ms=1), {0: HOT}, now_ms=now_ms) is None
    assert asked(epoch(1), {0: HOT}, now_ms=now_ms) is not None
    scaled = EpochRecord(1, 1, epoch(1).segments, now_ms - int(COOLDOWN_SECONDS * 1000) + 1)
    assert asked(scaled, {0: HOT}, now_ms=now_ms) is None


def test_one_scale_changes_a_bounded_number_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.streams.shared.scaling_rates.SCALE_SEGMENTS_MAX", 10)
    hot = asked(epoch(8), dict.fromkeys(range(8), HOT))
    cold = asked(epoch(8), dict.fromkeys(range(8), COLD))
    assert hot is not None
    assert len(hot[0]) + len(hot[1]) <= 10
    assert cold is not None
    assert (len(cold[0]), len(cold[1])) == (6, 3)


def test_a_segment_with_too_few_keys_is_left_as_it_is() -> None:
    low = math.nextafter(0.0, 1.0)
    rows = Segments.of([SegmentRecord(0, 0, 0.0, low), SegmentRecord(1, 0, low, 1.0)])
    assert asked(EpochRecord(0, 0, rows, 0), {0: HOT}) is None


class Simulation:
    """One owner of a stream whose load is even over the keys; hours of it in a moment."""

    def __init__(self, count: int, configuration: StreamConfiguration) -> None:
        self.current, self.configuration = epoch(count), configuration
        self.now_seconds = 0.0
        self.totals: dict[int, float] = {}
        self.rates: dict[int, SegmentRates] = {}
        self.scales: list[tuple[float, WantedScale]] = []

    def run(self, minutes: float, rate: Callable[[float], float]) -> None:
        """Ticks, at a load that is told by the minute."""
        for tick in range(int(minutes * MINUTE / TICK)):
            self.now_seconds += TICK
            for segment in self.current.segments:
                width = segment.key_end - segment.key_start
                total = self.totals.get(segment.id, 0.0) + rate(self.now_seconds / MINUTE) * width * TICK
                self.totals[segment.id] = total
                known = self.rates.get(segment.id)
                self.rates[segment.id] = (
                    SegmentRates.begin(self.now_seconds, int(total))
                    if known is None
                    else known.after(self.now_seconds, int(total))
                )
            if tick % 6 == 0:
                self.look()

    def look(self) -> None:
        """What an owner does once a minute."""
        target = target_of(self.configuration)
        ids = self.current.segments.ids.tolist()
        loads = {each: load_of(self.rates[each], target) for each in ids}
        now_ms = int(self.now_seconds * 1000)
        scale = wanted_scale(self.current, loads, self.configuration, now_ms)
        if scale is not None:
            request = ScaleRequest(scale.seal, scale.new_ranges, now_ms)
            least = self.configuration.min_segments
            transition: EpochTransition = with_request(request, StreamState.ACTIVE, NO_TRANSITION, self.current, least)
            self.current = scaled_epoch(transition, self.current)
            self.scales.append((self.now_seconds / MINUTE, scale))

    @property
    def count(self) -> int:
        return len(self.current.segments)


@settings(max_examples=examples(24), deadline=None)
@given(
    st.integers(1, 6), st.floats(0.05, 5.0), st.lists(st.floats(0.9, 1.1), min_size=1, max_size=7), st.integers(1, 3)
)
def test_at_a_steady_load_nothing_changes_to_and_fro(
    count: int, targets: float, noise: list[float], least: int
) -> None:
    """Whatever the load is: split or merged until it fits, and no scale undoes another one."""
    stream = Simulation(max(count, least), wanted(least))
    stream.run(150, lambda minute: targets * TARGET * noise[int(minute * 6) % len(noise)])
    assert not (any(scale.splits for _, scale in stream.scales) and any(scale.merges for _, scale in stream.scales))
    assert all(minute < 120 for minute, _ in stream.scales)
    assert stream.count >= least
    widths = [each.key_end - each.key_start for each in stream.current.segments]
    assert max(widths) * targets * TARGET <= 1.4 * TARGET


def test_windows_and_factors_fit_each_other() -> None:
    """Also a pair of cold segments is not hot."""
    assert list(WINDOWS_SECONDS) == sorted(set(WINDOWS_SECONDS))
    assert len(HOT_FACTORS) <= len(WINDOWS_SECONDS)
    assert min(HOT_FACTORS) >= 2 * COLD_FACTOR
