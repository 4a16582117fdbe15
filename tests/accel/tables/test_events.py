"""Events as a table are those of the reader; batches of a program that follows lose and repeat none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import connect, tables
from accel.errors import (
    CatalogMissing,
    InvalidArgument,
    NotInHistory,
    PositionBeyondEnd,
    PositionTruncated,
    ReaderStalled,
)
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.values import parse_segment
from accel.streams.reader import Order
from accel.streams.rules.events import decode_columns, decode_events
from accel.streams.writer import StreamWriter
from accel.tables import event_batches
from accel.tables.event_ranges import SegmentRange, StreamEvents, packed, shares
from loaders.store import MemoryStore
from tests.accel.streams.reader.streams import NAME, SCOPE, Shop, by_key, shop
from tests.accel.streams.reader.test_event_columns import SEGMENT, columns_of, units, written
from tests.examples import examples

Rows = dict[int, list[tuple[int, bytes]]]


class Step(NamedTuple):
    """What happens to a stream: an action, and a number that it takes."""

    name: str
    number: int


ACTIONS = ["write", "write", "split", "merge", "transaction", "truncate"]
STEPS = st.lists(st.builds(Step, st.sampled_from(ACTIONS), st.integers(0, 40)), min_size=1, max_size=8)


def carry_out(orders: Shop, writer: StreamWriter, step: Step) -> None:
    if step.name == "write":
        orders.write(writer, step.number)
    elif step.name == "split":
        orders.split(step.number % len(orders.stream.active_segments()))
    elif step.name == "merge" and len(orders.stream.active_segments()) > 1:
        orders.merge()
    elif step.name == "transaction":
        transaction, events = orders.write_apart(writer, step.number)
        writer.commit_transaction(transaction)
        orders.committed(events)
    elif step.name == "truncate":
        cuts = [cut for cut, _ in walk(orders)]
        orders.stream.truncate(cuts[step.number % len(cuts)])
        orders.catalog.refresh()


def walk(orders: Shop) -> Iterator[tuple[Mapping[int, int], Any]]:
    """All positions of a reader of the stream from its head on, each with the event after it; None at the end."""
    orders.accelerator.refresh()
    with orders.reader(order=Order.SEGMENT) as reader:
        position = reader.position()
        for event in reader:
            yield position, event
            position = reader.position()
        yield position, None


@contextmanager
def events_of(orders: Shop, **options: bool) -> Iterator[StreamEvents]:
    with connect(orders.store) as streams:
        yield StreamEvents(streams, SCOPE, NAME, **options)


def table(orders: Shop, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.events(orders.store, SCOPE, NAME, **options).read_all().to_pylist()
    return found


def by_segment(rows: list[dict[str, Any]]) -> Rows:
    found: Rows = {}
    for row in rows:
        found.setdefault(parse_segment(row["segment"]), []).append((row["offset"], row["payload"]))
    return found


@settings(max_examples=examples(50), deadline=None)
@given(STEPS, units, st.data())
def test_events_are_those_of_the_reader_between_the_same_cuts(
    steps: list[Step], unit: OffsetUnit, data: st.DataObject
) -> None:
    with shop(MemoryStore(), unit=unit) as orders:
        with StreamWriter(orders.stream, orders.host) as writer:
            for step in steps:
                carry_out(orders, writer, step)
        if data.draw(st.booleans()):
            orders.stream.seal()
        places = list(walk(orders))
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(places) - 1)] * 2)))
        expected: Rows = {}
        for _, event in places[first:last]:
            expected.setdefault(event.segment_id, []).append((event.offset, event.payload))
        rows = table(orders, from_cut=places[first][0], to_cut=places[last][0])
        assert by_segment(rows) == expected
        assert list(dict.fromkeys(parse_segment(row["segment"]) for row in rows)) == sorted(expected)
        times = {(event.segment_id, event.offset): event.value for _, event in places[:-1]}
        found = {(parse_segment(row["segment"]), row["offset"]): row["time"] for row in table(orders)}
        assert {place: round(time.timestamp() * 1000) for place, time in found.items()} == times


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), unit=units, apart=st.booleans())
def test_rows_are_the_events_that_begin_in_the_range(data: st.DataObject, unit: OffsetUnit, *, apart: bool) -> None:
    batches = data.draw(written(unit))
    columns = decode_columns(columns_of(batches, apart=apart, prefix=b"other"), SEGMENT, unit)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, batches[-1].end_offset + 2)] * 2)))
    rows = event_batches._rows(
        cast("StreamEvents", SimpleNamespace(name=("a", "b"))), SegmentRange(SEGMENT, start, end), columns
    )
    events = [event for batch in batches for event in decode_events(batch, SEGMENT, unit)[0]]
    each = [event for event in events if start <= event.offset < end]
    assert [(row["offset"], row["payload"]) for row in rows.to_pylist()] == [(one.offset, one.payload) for one in each]
    is_known = [0 < one.value < 10**14 for one in each]
    assert rows["time"].is_valid().to_pylist() == is_known
    rows.validate(full=True)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, units, st.data())
def test_batches_of_a_follower_have_each_event_once_and_none_of_a_segment_with_its_successor(
    steps: list[Step], unit: OffsetUnit, data: st.DataObject
) -> None:
    with shop(MemoryStore(), unit=unit) as orders, events_of(orders) as events:
        cut: Mapping[int, int] = dict(orders.stream.head())
        read: dict[int, list[bytes]] = by_key([])

        def take(limit: int | None, until: Mapping[int, int] | None = None) -> bool:
            nonlocal cut
            after = events.next_cut(cut, limit, until)
            ranges = events.between(cut, after)
            assert limit is None or sum(part.end - part.start for part in ranges) <= limit
            segments = [orders.stream.epochs.segment(part.segment_id) for part in ranges]
            assert not any(one.overlaps(other) for one, other in combinations(segments, 2))
            for batch in event_batches.event_batches(events, ranges):
                for payload in batch["payload"].to_pylist():
                    read[int(payload.split(b":")[0])].append(payload)
            is_moved, cut = after != cut, after
            return is_moved

        with StreamWriter(orders.stream, orders.host) as writer:
            for step in steps:
                if step.name != "truncate":
                    carry_out(orders, writer, step)
                if data.draw(st.booleans()):
                    take(data.draw(st.integers(1, 50) | st.none()))
            target = events.tail()
            present = {key: list(payloads) for key, payloads in orders.written.items()}
            orders.split()
            orders.write(writer, 5)
            while take(data.draw(st.integers(1, 400)), target):
                pass
            assert read == present
        while take(None):
            pass
        assert read == orders.written


def rows_in(events: StreamEvents, ranges: list[SegmentRange]) -> int:
    events._streams.accelerator.refresh()  # an image from before a truncation still has the data
    return sum(map(len, event_batches.event_batches(events, ranges)))


def test_truncated_events_are_an_error_or_are_skipped() -> None:
    with shop(MemoryStore(), segments=1) as orders:
        orders.fill(10, flushes=2)
        at_seal, middle, kept = {0: 20}, {0: 5}, 3
        with events_of(orders) as strict, events_of(orders, skips_truncated=True) as lenient:
            [part] = strict.between({0: 0}, {0: 20})
            orders.stream.truncate(middle)
            with pytest.raises(PositionTruncated, match="0@0 at 0"):
                strict.next_cut({0: 0})
            with pytest.raises(PositionTruncated):
                table(orders, from_cut={0: 0})
            with pytest.raises(PositionTruncated):
                rows_in(strict, [part])
            assert lenient.next_cut({0: 0}) == at_seal
            assert rows_in(lenient, [part]) == 15
            assert len(table(orders)) == 15
            orders.split()
            orders.fill(kept)
            with StreamWriter(orders.stream, orders.host) as writer:
                head = dict.fromkeys(orders.stream.active_segments().ids.tolist(), 0)
                orders.stream.truncate(head)
                orders.write(writer, kept)
            assert strict.next_cut(at_seal, until=head) == head, "no event was lost"
            assert sum(part.end - part.start for part in strict.between(at_seal, strict.tail())) == 2 * kept
            with pytest.raises(PositionTruncated, match="0@0 at 19"):
                strict.between({0: 19}, strict.tail())
            assert sum(part.end - part.start for part in lenient.between({0: 19}, lenient.tail())) == 2 * kept
            assert rows_in(lenient, [part]) == 0


def test_many_empty_segments_are_passed_in_a_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.tables.event_ranges.SEALS_MAX", 2)
    with shop(MemoryStore(), segments=1) as orders:
        for _ in range(5):
            orders.split()
            orders.merge()
        orders.fill(4)
        with events_of(orders) as events:
            cut, count = dict(orders.stream.head()), 0
            while (after := events.next_cut(cut)) != cut:
                cut, count = after, count + 1
            assert cut == events.tail()
            assert 3 < count < 8


def test_times_are_cuts() -> None:
    with shop(MemoryStore()) as orders:
        orders.fill(8)
        middle = max(event.value for _, event in walk(orders) if event is not None) + 1
        while orders.stream.parts.store.now_ms() <= middle:
            pass
        orders.fill(8)
        assert len(table(orders, from_time_ms=middle)) == len(table(orders, to_time_ms=middle)) == 8
        assert table(orders, from_time_ms=middle, to_time_ms=middle) == []


def test_conditions_and_columns_save_requests() -> None:
    with shop(MemoryStore()) as orders:
        orders.fill(20)
        everything = table(orders)
        conditions = [("segment", "=", "1@0"), ("offset", ">=", 3), ("offset", "<", 7)]
        chosen = table(orders, columns=["offset", "payload"], filters=conditions)
        expected = [row for row in everything if row["segment"] == "1@0" and 3 <= row["offset"] < 7]
        assert chosen == [{"offset": row["offset"], "payload": row["payload"]} for row in expected] != []
        assert table(orders, filters=[("stream", "=", "another")]) == []


REFUSED: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "a cut and a time": (ValueError, "from_cut or from_time_ms", {"from_cut": {0: 0}, "from_time_ms": 5}),
    "a column": (ValueError, "found size", {"columns": ["size"]}),
    "a cut of half the keys": (InvalidArgument, "covers all keys", {"from_cut": {0: 1}}),
    "another stream's cut": (NotInHistory, "7@0", {"from_cut": {0: 1, 7: 1}}),
    "beyond the end": (PositionBeyondEnd, "1@0", {"to_cut": {0: 1, 1: 1000}}),
    "an end before the start": (
        InvalidArgument,
        "after the start",
        {"from_cut": {0: 2, 1: 1}, "to_cut": {0: 1, 1: 1}},
    ),
    "a time to come": (InvalidArgument, "5 minutes from now", {"to_time_ms": 10**14 - 1}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_at_the_call(case: str) -> None:
    kind, text, options = REFUSED[case]
    with shop(MemoryStore()) as orders:
        orders.fill(20)
        with pytest.raises(kind, match=text):
            tables.events(orders.store, SCOPE, NAME, **options)


def test_what_is_not_there_is_refused_at_the_call() -> None:
    with pytest.raises(CatalogMissing):
        tables.events(MemoryStore(), SCOPE, NAME)
    with shop(MemoryStore()) as orders, pytest.raises(NotInHistory, match="no-such-stream"):
        tables.events(orders.store, SCOPE, "no-such-stream")


def test_data_that_should_be_there_and_is_not_is_an_error() -> None:
    with shop(MemoryStore()) as orders, events_of(orders) as events:
        orders.fill(20)
        size = events.tail()[0]
        with pytest.raises(ReaderStalled, match=f"from {size} to {size + 2}"):
            list(events.columns(SegmentRange(0, 0, size + 2)))


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(0, 200))
def test_shares_use_the_limit_up_and_are_even(waiting: list[int], most: int) -> None:
    given_out = shares(waiting, most)
    assert sum(given_out) == min(most, sum(waiting))
    assert all(share <= wanted for share, wanted in zip(given_out, waiting, strict=True))
    cut_short = [share for share, wanted in zip(given_out, waiting, strict=True) if share < wanted]
    assert not cut_short or max(given_out) <= min(cut_short) + 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=6), st.integers(1, 20))
def test_tasks_have_all_ranges_in_order_and_no_more_than_they_may(spans: list[tuple[int, int]], size: int) -> None:
    ranges = [SegmentRange(number, start, start + count) for number, (start, count) in enumerate(spans)]
    tasks = packed(ranges, size)
    offsets = [(part.segment_id, at) for task in tasks for part in task for at in range(part.start, part.end)]
    assert offsets == [(part.segment_id, at) for part in ranges for at in range(part.start, part.end)]
    assert all(sum(part.end - part.start for part in task) <= size for task in tasks)
