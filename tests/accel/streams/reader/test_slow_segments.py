"""Readers of which one segment is slow, fails or is lost: what they return, raise and say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event as Signal

import pytest

from accel import ObjectSegmentSource, StreamReader, StreamWriter
from accel.errors import AccelError, ObjectLost, PositionTruncated, ReaderStalled
from accel.history.store import StreamStore
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from accel.system import SYSTEM
from loaders.errors import StoreUnavailable
from loaders.store import CountingStore
from loaders.store.base import Fetched
from range_index.segment_times import NO_TOKEN
from tests.accel.streams.reader.streams import (
    NAME,
    QUICK,
    SCOPE,
    Around,
    Kind,
    Shop,
    by_key,
    drained,
    for_threads_and_tasks,
)
from tests.examples import is_whole

TIMEOUT_SECONDS = 30.0


class OneSlow(Around):
    """A source of which one segment is answered only once it may be, or fails."""

    def __init__(self, opened: Shop, segment_id: int, error: Callable[[], AccelError] | None = None) -> None:
        super().__init__(opened.source())
        self.segment_id, self.error = segment_id, error
        self.may_answer = Signal()

    def fill(self, fill: Fill) -> SegmentEvents:
        if fill.segment_id == self.segment_id and not self.may_answer.is_set():
            if self.error is not None:
                raise self.error()
            self.may_answer.wait(TIMEOUT_SECONDS)
        return super().fill(fill)


@contextmanager
def answering(source: OneSlow) -> Iterator[None]:
    try:
        yield
    finally:
        source.may_answer.set()


def slow_orders(orders: Shop, error: Callable[[], AccelError] | None = None) -> OneSlow:
    """Six flushes to two segments, of which the first is slow."""
    orders.fill(24, flushes=6)
    return OneSlow(orders, orders.stream.active_segments()[0].id, error)


HASTY = replace(QUICK, history_wait_seconds=0.05, retry_seconds=0.0)


@for_threads_and_tasks
def test_a_segment_that_hangs_in_history_is_named_after_the_wait_and_nothing_is_passed(
    orders: Shop, kind: Kind
) -> None:
    source = slow_orders(orders)
    with answering(source), orders.reader_of(kind, source, settings=HASTY) as reader:
        begun = reader.position()
        for _ in range(2):  # each call waits anew
            with pytest.raises(
                ReaderStalled, match=r"shop/orders: expected events of 0@0 at 0 within 0.05 s, found none"
            ):
                next(reader)
        assert reader.position() == begun
        source.may_answer.set()
        values = [event.value for event in drained(reader, ReaderStalled)]
    assert len(values) == orders.count
    assert values == sorted(values)
    assert reader.stats().passes == {"timed out": 0, "failed": 0, "tail": 0}
    assert reader.stats().held_seconds >= 0.1


def test_a_lost_segment_is_named_by_each_call_and_nothing_is_passed(orders: Shop) -> None:
    source = slow_orders(orders, lambda: ObjectLost(7, "an object", 4))
    with orders.reader(source=source, settings=HASTY) as reader:
        for _ in range(3):
            with pytest.raises(ObjectLost) as caught:
                next(reader)
            assert caught.value.__notes__ == ["while reading segment 0@0 of shop/orders"]
        assert reader.stats().passes == {"timed out": 0, "failed": 0, "tail": 0}
        source.may_answer.set()
        values = [event.value for event in drained(reader, ReaderStalled)]
    assert values == sorted(values)
    assert len(values) == orders.count


@pytest.mark.usefixtures("short_pauses")
@for_threads_and_tasks
def test_a_lost_segment_is_passed_where_the_reader_may_and_raised_when_nothing_else_is_left(
    orders: Shop, kind: Kind
) -> None:
    source = slow_orders(orders, lambda: ObjectLost(7, "an object", 4))
    settings = replace(QUICK, passes_late_segments=True, retry_seconds=0.0)
    found: list[Event] = []
    with orders.reader_of(kind, source, settings=settings) as reader:
        with pytest.raises(ObjectLost, match="an object") as caught:
            found.extend(reader)
        assert caught.value.__notes__ == ["while reading segment 0@0 of shop/orders"]
        assert source.segment_id not in {event.segment_id for event in found}
        source.may_answer.set()
        with suppress(ObjectLost):  # of a request that was sent before
            found.extend(reader)
        found.extend(reader)
        passes = reader.stats().passes
    assert passes["failed"] >= 1
    assert passes["timed out"] == 0
    assert by_key(found) == orders.written


def test_a_truncated_position_is_raised_though_the_reader_may_pass_late_segments(orders: Shop) -> None:
    source = slow_orders(orders, lambda: PositionTruncated("shop/orders", 0, 0, {0: 3}))
    with (
        orders.reader(source=source, settings=replace(HASTY, passes_late_segments=True)) as reader,
        pytest.raises(PositionTruncated),
    ):
        list(reader)


class Ticking(Around):
    """A timer that moves whenever somebody looks at it, and a source whose failures of one segment take a time each."""

    def __init__(self, opened: Shop, segment_id: int, failures_seconds: list[float]) -> None:
        super().__init__(opened.source())
        self.now_seconds, self._segment_id, self._left = 0.0, segment_id, failures_seconds

    def timer(self) -> float:
        self.now_seconds += 0.001
        return self.now_seconds

    def fill(self, fill: Fill) -> SegmentEvents:
        if fill.segment_id == self._segment_id and self._left:
            self.now_seconds += self._left.pop(0)
            raise StoreUnavailable("get", "key", "an outage")
        return super().fill(fill)


REPEATING = replace(QUICK, retry_seconds=60.0)


def until_failed(reader: StreamReader, caplog: pytest.LogCaptureFixture) -> None:
    """Call the reader until it knows of the first failure."""
    for _ in range(10_000):
        if "is read again after a pause" in caplog.text:
            return
        assert reader.next_batch(timeout_seconds=0.01) is None
    raise AssertionError("expected a failure")


def rest_of(reader: StreamReader, source: Ticking) -> list[Event]:
    """All further events, while time passes between calls."""
    found: list[Event] = []
    for _ in range(10_000):
        if reader.is_finished:
            return found
        event = reader.next_event(timeout_seconds=0.01)
        found += [] if event is None else [event]
        source.now_seconds += 0.1
    raise AssertionError("expected an end")


def test_a_caller_that_pauses_does_not_use_up_the_time_for_repetitions(
    orders: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    orders.fill(24)
    source = Ticking(orders, orders.stream.active_segments()[0].id, [0.0, 0.0])
    system = replace(SYSTEM, timer=source.timer)
    with orders.reader(source=source, settings=REPEATING, system=system) as reader:
        until_failed(reader, caplog)
        source.now_seconds += 100.0  # it does something else
        assert by_key(rest_of(reader, source)) == orders.written


def test_a_segment_that_was_given_up_while_it_failed_begins_with_new_failures(
    orders: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    orders.fill(24)
    first = orders.stream.active_segments()[0].id
    source = Ticking(orders, first, [0.0, 70.0])
    system = replace(SYSTEM, timer=source.timer)
    with orders.reader(source=source, settings=REPEATING, system=system) as reader:
        until_failed(reader, caplog)
        orders.stream.truncate({**orders.stream.head(), first: 3})
        reader.skip_to_head()
        found = rest_of(reader, source)
    assert min(event.offset for event in found if event.segment_id == first) == 3
    assert len(found) == orders.count - 3


# Ends that others' commits must not put off


def test_an_end_is_reached_though_there_is_a_newer_image_at_each_look(orders: Shop) -> None:
    """As on a slow store: by the time that the history has answered, another segment has got events."""
    clock = [0.0]
    source = orders.source(system=replace(SYSTEM, timer=lambda: clock[0]))
    segment_id = orders.stream.active_segments()[0].id
    ends = []
    with StreamWriter(orders.stream, orders.host) as writer:
        for _ in range(4):
            clock[0] += 2.0
            source.fill(Fill(segment_id, orders.count, 1))
            orders.write(writer, 24)
            orders.accelerator.refresh()
            ends.append(source.ask_end(AskEnd(segment_id)).is_stale)
    assert ends[1:] == [False] * 3


def test_the_history_is_asked_once_for_all_segments_though_its_answer_takes_longer_than_it_is_valid(
    orders: Shop,
) -> None:
    clock = [0.0]

    class Slow(CountingStore):
        def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
            clock[0] += 2.0
            return super().get(key, size_bytes_max=size_bytes_max)

    store = Slow(orders.store)
    stream = StreamStore.open(store).stream(SCOPE, NAME)
    source = ObjectSegmentSource(stream, orders.accelerator, store, system=replace(SYSTEM, timer=lambda: clock[0]))
    first, second = (segment.id for segment in orders.stream.active_segments())
    for segment_id in (first, second):
        source.fill(Fill(segment_id, 0, 1))
        source.ask_end(AskEnd(segment_id))  # the first question may be too early
    before = store.snapshot().total.requests
    for segment_id in (first, second):
        source.fill(Fill(segment_id, 0, 1))
        assert source.ask_end(AskEnd(segment_id)) == SegmentEnd(None)
    assert store.snapshot().total.requests == before


# Tokens


def test_the_first_read_of_a_peer_returns_a_token_wherever_it_begins(steady_orders: Shop) -> None:
    """The index moves each third time, so that offsets are in parts, after them, and at the end; or all offsets."""
    segment_id = steady_orders.stream.active_segments()[0].id
    with StreamWriter(steady_orders.stream, steady_orders.host) as writer:
        for flushed in range(1, 9):
            steady_orders.write(writer, 24)
            steady_orders.accelerator.refresh()
            batches = steady_orders.source().fill(Fill(segment_id, 0, 1 << 20)).batches
            assert len(batches) == flushed
            ends = [batch.next_offset for batch in batches]
            edges = {offset for end in [0, *ends] for offset in (end - 1, end)} - {-1}
            for offset in range(ends[-1] + 1) if is_whole() else sorted(edges):
                covering = sum(end <= offset for end in ends)
                assert_token(steady_orders, batches, offset, covering)


def assert_token(orders: Shop, batches: tuple[EventBatch, ...], offset: int, covering: int) -> None:
    """A first read returns the number of the record after the data that it returned."""
    segment_id = batches[0].segment_id
    whole = orders.source().read(segment_id, offset, 1 << 20)
    assert whole.token == len(batches)
    one = orders.source().read(segment_id, offset, 1)
    assert one.token == min(covering + 1, len(batches))
    for wrong in (77, -5):
        again = orders.source().read(segment_id, offset, 1, wrong)
        assert (again.data, again.values.tolist(), again.token) == (one.data, one.values.tolist(), one.token)


def test_a_peer_of_an_empty_segment_gets_the_first_token(steady_orders: Shop) -> None:
    segment_id = steady_orders.stream.active_segments()[0].id
    assert steady_orders.source().read(segment_id, 0, 1).token == 0


def test_a_time_index_that_is_damaged_costs_a_warning_and_the_token_of_a_peer_and_no_event(
    steady_orders: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    segment_id = steady_orders.stream.active_segments()[0].id
    steady_orders.fill(24, flushes=4)
    for info in list(steady_orders.store.list("accel/time/")):
        steady_orders.store.put(info.key, b"\xff" * info.size_bytes)
    steady_orders.accelerator.refresh()
    found = steady_orders.source().read(segment_id, 3, 1 << 20)
    assert found.data
    assert found.token == NO_TOKEN
    with steady_orders.reader() as reader:
        assert by_key(reader) == steady_orders.written
    assert "time index" in caplog.text


# Lag


def test_lag_is_zero_once_all_was_returned_however_long_ago(orders: Shop) -> None:
    orders.fill(24)
    system = replace(SYSTEM, clock=lambda: SYSTEM.clock() + 8 * 3600)
    with orders.reader(system=system) as reader:
        assert (reader.lag(), set(reader.lags().values())) == (None, {None})  # nothing was looked at yet
        first = next(reader)
        assert reader.lag(first.segment_id) == pytest.approx(8 * 3600, abs=60)  # of the next one
        for _ in reader:
            pass
        assert reader.lag() == 0
        assert set(reader.lags().values()) == {0.0}
        assert reader.lag(12345) is None


def test_the_rest_of_a_batch_counts_as_not_returned(orders: Shop) -> None:
    with StreamWriter(orders.stream, orders.host) as writer:
        writer.write_many([(b"%d:0" % number, "one key") for number in range(4)])
        orders.flush(writer)
    system = replace(SYSTEM, clock=lambda: SYSTEM.clock() + 3600)
    with orders.reader(system=system) as reader:
        for left in (3, 2, 1):
            event = next(reader)
            assert reader.lag(event.segment_id) == pytest.approx(3600, abs=60), left
