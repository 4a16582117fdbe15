"""Hosts scale the streams that they write as the policies want: one owner, two owners, crashes, on a virtual clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count, islice, pairwise
from unittest.mock import patch

import pytest

from accel.catalog import ObjectCatalog
from accel.errors import Closed, WrongProcess
from accel.history.rules.configuration import ScalingKind, ScalingPolicy, StreamConfiguration
from accel.history.rules.states import StreamState
from accel.history.store import Stream
from accel.streams.connection import connect
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import StreamWriterSettings
from accel.streams.shared import auto_scale, scaling_rates
from accel.streams.shared.auto_scale import AutoScaler, AutoScaleStats
from accel.streams.writer import StreamWriter
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.store import CountingStore, MemoryStore
from loaders.threads import start_thread
from tests.accel.streams.writer.world import NAME, NODE, SMALL, Process, World
from tests.conformance.steps import set_state
from tests.examples import places

OTHER = NODE + 1
REST_SECONDS = 60.0
TICK = 30.0
PATIENT = StreamWriterSettings(pause_seconds=2.0)
EVENTS = ScalingPolicy(ScalingKind.EVENTS, 1, 4)
TARGET = int(TICK)
"""Events of one tick at which one segment has its wanted load."""


@contextmanager
def measuring(
    tick_seconds: float, look_seconds: float, windows_seconds: tuple[float, float], rest_seconds: float
) -> Iterator[None]:
    """Rates are measured over other times; what is new or was scaled is left alone for so long."""
    with (
        patch.multiple(auto_scale, TICK_SECONDS=tick_seconds, LOOK_SECONDS=look_seconds),
        patch.multiple(scaling_rates, WINDOWS_SECONDS=windows_seconds, HOT_FACTORS=(2.0, 1.25)),
        patch.multiple(scaling_rates, YOUNG_SECONDS=rest_seconds, COOLDOWN_SECONDS=rest_seconds),
    ):
        yield


def quickly() -> AbstractContextManager[None]:
    """As by default, in a tenth of the time: the longest window is 2 minutes."""
    return measuring(TICK, auto_scale.LOOK_SECONDS, (60.0, 120.0), REST_SECONDS)


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with quickly():
        yield


def bucket(segments: int = 1, scaling: ScalingPolicy = EVENTS, least: int = 1) -> World:
    """A bucket with a stream of this policy."""
    world = World()
    with world.process() as process:
        process.streams.create_scope(NAME[0])
        wanted = StreamConfiguration(min_segments=least, scaling=scaling)
        process.streams.create_stream(*NAME, wanted, int(world.seconds * 1000), segments=segments)
    return world


class Load:
    """Writes to the stream, and lets time go by; each event is another one, their keys are even."""

    def __init__(self, world: World, process: Process) -> None:
        self.world, self.process = world, process
        self.writer: StreamWriter = process.writer(PATIENT)
        self.numbers = count(int(world.seconds) * 1_000_000)
        self.durable: list[bytes] = []

    def run(self, ticks: int, events: int) -> None:
        """Ticks with so many events each."""
        for _ in range(ticks):
            written = [(b"%d" % number, b"key-%d" % number) for number in islice(self.numbers, events)]
            self.writer.write_many(written)
            self.writer.flush()
            self.durable += [payload for payload, _ in written]
            self.world.seconds += TICK
            self.process.scaling.step()


def widths(stream: Stream) -> list[float]:
    return sorted(segment.key_end - segment.key_start for segment in stream.active_segments())


def stats(process: Process) -> AutoScaleStats:
    return process.scaling.stats()


def test_a_hot_stream_is_split_to_its_target_and_merged_to_its_least_again() -> None:
    world = bucket(segments=2, least=2)
    with world.process() as process:
        load = Load(world, process)
        load.run(10, 36 * TARGET // 10)
        stream = process.stream()
        assert widths(stream) == [0.25] * 4
        assert stats(process).splits == 2
        epoch = stream.current_epoch().epoch
        load.run(12, 36 * TARGET // 10)
        assert stream.current_epoch().epoch == epoch  # it has its target
        load.run(14, TARGET // 10)
        assert widths(stream) == [0.5] * 2
        assert stats(process).merges == 2
        assert stats(process).last_scale_ms is not None
        load.run(12, 0)
        assert widths(stream) == [0.5] * 2
        assert (stats(process).failures, stats(process).refusals, stats(process).last_error) == (0, 0, "")
        process.host.close()
    assert Counter(world.payloads()) == Counter(load.durable)
    world.check_times()


def test_kilobytes_are_measured_where_the_policy_counts_them() -> None:
    world = bucket(scaling=ScalingPolicy(ScalingKind.BYTES, 1, 4))
    with world.process() as process:
        load = Load(world, process)
        load.run(10, TARGET)  # a few bytes each
        assert len(process.stream().active_segments()) == 1
        for _ in range(10):
            load.writer.write_many([(b"x" * 1024, b"key-%d" % number) for number in range(2 * TARGET)])
            load.run(1, 0)
        assert len(process.stream().active_segments()) in (2, 3)


def test_forwarded_events_count_at_the_host_that_appends_them() -> None:
    world = bucket()
    with world.process() as process:
        host = process.host
        for _ in range(12):
            stream = process.stream()
            for segment in stream.active_segments():
                size = int((segment.key_end - segment.key_start) * 2 * TARGET)
                host.append(NAME, segment.id, [b"event"] * size)  # what a service of segments does
            host.flush()
            world.seconds += TICK
            process.scaling.step()
        assert len(process.stream().active_segments()) == 2


def test_a_changed_policy_is_followed_from_the_next_look_on() -> None:
    world = bucket(scaling=ScalingPolicy())
    with world.process() as process:
        load, stream = Load(world, process), process.stream()
        load.run(12, 4 * TARGET)
        assert len(stream.active_segments()) == 1
        stream.configure(replace(stream.configuration(), scaling=EVENTS))
        load.run(12, 4 * TARGET)
        assert len(stream.active_segments()) == 4
        stream.configure(replace(stream.configuration(), scaling=ScalingPolicy()))
        load.run(12, 0)
        assert len(stream.active_segments()) == 4


def test_a_fixed_stream_costs_one_get_a_look_and_nothing_where_scaling_is_off() -> None:
    for is_on, most in ((True, 3 + 5), (False, 0)):  # 3 to open the stream
        world = bucket(scaling=ScalingPolicy())
        counting = CountingStore(world.store)
        with world.process(counting) as process:
            process.scaling = AutoScaler(process.host, is_on=is_on)
            process.host.scale_by(process.scaling)
            load = Load(world, process)
            load.run(1, 1)
            counting.reset()
            for _ in range(10):  # five looks
                world.seconds += TICK
                process.scaling.step()
            assert counting.snapshot().total.requests == most


def test_a_stream_that_a_workflow_has_is_left_alone() -> None:
    world = bucket()
    with world.process() as process:
        load, stream = Load(world, process), process.stream()
        load.run(3, 4 * TARGET)
        set_state(stream, StreamState.UPDATING)
        load.run(6, 4 * TARGET)
        assert stats(process).waits > 0
        assert len(stream.active_segments()) == 1
        set_state(stream, StreamState.ACTIVE)
        load.run(2, 4 * TARGET)
        assert len(stream.active_segments()) == 4


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.TIMEOUT, Fault.RESET])
def test_failures_are_counted_and_tried_again_later(fault: Fault) -> None:
    world = bucket()
    faults = FaultStore(world.store)
    with world.process(faults) as process:
        load = Load(world, process)
        load.run(3, 4 * TARGET)
        world.seconds += auto_scale.LOOK_SECONDS
        faults.schedule(*[fault] * 100)
        process.scaling.step()
        faults.clear()
        assert stats(process).failures == 1
        assert "shop/orders" in stats(process).last_error
        load.run(10, 4 * TARGET)
        assert len(process.stream().active_segments()) == 4


def test_a_stream_that_was_deleted_and_made_again_is_followed_as_another_one() -> None:
    world = bucket()
    with world.process() as process:
        load = Load(world, process)
        load.run(6, 1)
        process.stream().seal()
        process.streams.delete_stream(*NAME)
        wanted = StreamConfiguration(scaling=EVENTS)
        process.streams.create_stream(*NAME, wanted, int(world.seconds * 1000), segments=1)
        load.writer = process.writer(PATIENT)
        load.run(12, 4 * TARGET)
        assert len(process.stream().active_segments()) == 4


# Crashes


def hot(world: World, process: Process) -> Load:
    """A stream that is scaled by its next steps."""
    load = Load(world, process)
    load.run(3, 2 * TARGET)
    return load


def writes_of_a_scale() -> tuple[int, int]:
    world = bucket()
    counted = CrashStore(world.store, None)
    with quickly(), world.process(counted) as process:
        load = hot(world, process)
        first = counted.writes
        while not stats(process).scales:
            load.run(1, 2 * TARGET)
        return first, counted.writes


FIRST, STOP = writes_of_a_scale()
PLACES = [FIRST + place for place in places(STOP - FIRST, 0, every=5)]


@pytest.mark.parametrize("number", PLACES)
def test_after_a_crash_before_any_write_the_stream_is_scaled_once(number: int) -> None:
    world = bucket()
    crashing = CrashStore(world.store, number)
    with world.process(crashing) as process:
        load = hot(world, process)
        with pytest.raises(Crash):
            load.run(100, 2 * TARGET)
    with world.process() as process:
        again = Load(world, process)
        again.run(11, 2 * TARGET)
        stream = process.stream()
        assert (widths(stream), stream.current_epoch().epoch) == ([0.5, 0.5], 1)
        assert stream.state() is StreamState.ACTIVE
        process.host.close()
    counts = Counter(world.payloads())
    assert all(counts[payload] == 1 for payload in (*load.durable, *again.durable))
    assert max(counts.values()) == 1


# Two owners


def test_each_owner_merges_neighbours_of_its_own_and_no_others() -> None:
    world = bucket(segments=4)
    low, high = world.start(), world.start(node_id=OTHER)
    low.host.open_segments(NAME, [0, 1])
    high.host.open_segments(NAME, [2, 3])
    for _ in range(20):
        world.seconds += TICK
        for process in (low, high):
            process.scaling.step()
    assert widths(low.stream()) == [0.5, 0.5]
    assert (stats(low).merges, stats(high).merges) == (1, 1)
    assert stats(low).failures == stats(high).failures == 0
    low.die()
    high.die()


@pytest.mark.parametrize("ahead", [86_400.0, 365 * 86_400.0])
def test_a_scale_of_a_wrong_clock_stops_no_later_scale_and_is_cooled_down_from(ahead: float) -> None:
    world = bucket()
    world.seconds += ahead
    with world.process() as process:
        stream = process.stream()
        stream.split("0@0")
        world.seconds -= ahead
        with world.process(node_id=OTHER) as other:
            other.stream().recover()
    with world.process() as process:
        load, scales = Load(world, process), []
        for _ in range(24):
            load.run(1, 12 * TARGET)
            scales.append(process.scaling.stats().scales)
        assert scales[-1] >= 1
        ticks = [at for at, (before, after) in enumerate(pairwise(scales)) if after > before]
        assert all((later - earlier) * TICK >= REST_SECONDS for earlier, later in pairwise(ticks))
    assert sorted(world.payloads()) == sorted(load.durable)


# The minimum of segments


@pytest.mark.parametrize("scaling", [EVENTS, ScalingPolicy()])
def test_a_raised_minimum_is_reached_by_the_next_look_of_a_host_that_writes(scaling: ScalingPolicy) -> None:
    """With a policy or without; a lower one merges nothing by itself."""
    world = bucket(segments=2, scaling=scaling)
    with world.process() as process:
        load = Load(world, process)
        load.run(1, 4)
        stream = process.stream()
        stream.configure(replace(stream.configuration(), min_segments=5))
        assert len(stream.active_segments()) == 2
        load.run(3, 4)
        assert widths(stream) == pytest.approx([1 / 6] * 3 + [1 / 4] * 2)
        epoch = stream.current_epoch().epoch
        stream.configure(replace(stream.configuration(), min_segments=1))
        load.run(2, 4)
        assert stream.current_epoch().epoch == epoch
        assert stats(process).failures == 0
        process.host.close()
    assert Counter(world.payloads()) == Counter(load.durable)


# Beside the callers


def test_steps_are_taken_beside_the_callers_until_the_host_is_stopped() -> None:
    world = bucket()
    begun: list[Callable[[], object]] = []
    pauses: list[float] = []

    def start(work: Callable[[], object], name: str) -> None:
        begun.append(work) if name == f"accel-scale-{NODE}" else start_thread(work, name)

    def wait(_: object, seconds: float) -> None:
        pauses.append(seconds)
        world.seconds += seconds
        if len(pauses) == 5:
            host.stop()

    system = replace(world.system, wait=wait, start=start)
    with ObjectCatalog.open(world.store, system=system) as catalog:
        host = ObjectSegments(catalog, world.store, NODE, settings=SMALL, system=system)
        scaling = AutoScaler(host)
        host.scale_by(scaling)
        host.open_segments(NAME, [0])
        [work] = begun
        work()
        assert pauses == [TICK] * 5
        assert scaling.stats().looks == 1  # the fifth pause was its last
        with pytest.raises(Closed):
            scaling.step()


def test_a_connected_process_scales_by_itself() -> None:
    """Writes until it has; how long that takes is nobody's business."""
    with measuring(0.02, 0.02, (0.1, 0.2), 0.0), connect(MemoryStore(), create=True) as streams:
        streams.create_scope(NAME[0])
        stream = streams.create_stream(*NAME, StreamConfiguration(scaling=EVENTS))
        writer = streams.writer(*NAME)
        numbers = count()
        while len(stream.active_segments()) == 1:
            writer.write_many([(b"event", b"key-%d" % next(numbers)) for _ in range(10)])
            writer.flush()
    done = streams.scaling_stats()
    assert done is not None
    assert done.splits > 0


def test_in_another_process_no_step_is_taken() -> None:
    world = bucket()
    process_id = [1]
    world.system = replace(world.system, process_id=lambda: process_id[0])
    with world.process() as process:
        scaling = process.scaling
        process_id[0] = 2
        with pytest.raises(WrongProcess):
            scaling.step()
        scaling.wait_idle()
        process_id[0] = 1
