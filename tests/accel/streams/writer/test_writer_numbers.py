"""Events of writers with ids come once: whoever repeats them, whoever dies in between, and wherever the segment is."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.catalog.records import WRITER_NUMBER, make_rows
from accel.history.rules.values import parse_segment
from accel.streams.acknowledgements import WriteFuture
from accel.streams.open_segments import SegmentSealed
from accel.streams.writer_numbers import (
    NOTHING,
    NUMBER_TABLE,
    REPEATED,
    Held,
    NumberedEvents,
    NumberTable,
    Progress,
    SegmentNumbers,
    WriterHeld,
    progress_of,
)
from loaders.errors import CorruptObject
from loaders.store import CountingStore
from tests.accel.streams.writer.world import NAME, Process, World
from tests.examples import examples

ALICE, BOB = UUID(int=0xA11CE).bytes, UUID(int=0xB0B).bytes


def append(
    process: Process, segment: str, numbers: Sequence[int], writer_id: bytes = ALICE, settled: int = 0
) -> list[WriteFuture]:
    """Append events whose payloads say their numbers."""
    payloads = [b"%d" % number for number in numbers]
    events = NumberedEvents(writer_id, numbers, [0.1] * len(numbers), settled)
    return process.host.append_numbered(NAME, parse_segment(segment), payloads, events)


def offsets(futures: list[WriteFuture]) -> list[int]:
    """Where they stand."""
    places = [future.result() for future in futures]
    return [place.offset for place in places if place is not None]


def test_events_that_come_again_are_acknowledged_and_not_written(world: World, process: Process) -> None:
    first = append(process, "0@0", [3, 7])
    again = append(process, "0@0", [3, 7, 9])  # the first ones are on their way
    assert offsets(first) == [0, 1]
    assert offsets(again) == [REPEATED, REPEATED, 2]
    assert offsets(append(process, "0@0", [7, 9])) == [REPEATED, REPEATED]
    assert offsets(append(process, "0@0", [7], BOB)) == [3]
    assert world.payloads() == [b"3", b"7", b"9", b"7"]


def test_a_new_session_knows_the_numbers_without_a_request(world: World) -> None:
    with world.process() as process:
        append(process, "0@0", [3, 7], settled=2)
        process.host.flush()
    for _ in range(2):
        store = CountingStore(world.store)
        with world.process(store) as process:
            process.host.open_segments(NAME, [parse_segment("0@0")])
            store.reset()
            assert process.host.held_by(NAME, parse_segment("0@0"), ALICE) == WriterHeld((Held(0.0, 1.0, 7),), 2)
            assert store.reset().total.requests == 0
            assert offsets(append(process, "0@0", [7])) == [REPEATED]
    assert world.payloads() == [b"3", b"7"]


def test_numbers_that_the_catalog_does_not_have_are_read_from_the_data(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.process() as process:
        append(process, "0@0", [3])
        process.host.flush()
        monkeypatch.setattr("accel.catalog.node_list.TIMES_MAX", 1)
        append(process, "0@0", [5])
        process.host.flush()
        append(process, "0@0", [9])
        process.host.flush()
    with world.process() as process:
        assert offsets(append(process, "0@0", [5, 9])) == [REPEATED, REPEATED]
    assert world.payloads() == [b"3", b"5", b"9"]


def test_a_segment_that_is_sealed_refuses_and_those_that_follow_know_what_it_had(world: World) -> None:
    with world.process() as process:
        stream = process.stream()
        append(process, "0@0", [3, 8])
        append(process, "1@0", [5])
        process.host.flush()
        stream.scale([parse_segment("0@0"), parse_segment("1@0")], [(0.0, 1.0)], int(world.seconds * 1000))
        with pytest.raises(SegmentSealed):
            append(process, "0@0", [8])
        merged = stream.active_segments().ids.tolist()[0]
        low, high = NumberedEvents(ALICE, [7, 9], [0.1, 0.1]), NumberedEvents(ALICE, [4, 7], [0.9, 0.9])
        assert offsets(process.host.append_numbered(NAME, merged, [b"4", b"7"], high)) == [REPEATED, 0]
        assert offsets(process.host.append_numbered(NAME, merged, [b"7", b"9"], low)) == [REPEATED, 1]
    with world.process() as process:
        held = process.host.held_by(NAME, merged, ALICE)
        assert held.held == (Held(0.0, 1.0, 9),)
        assert held.covering(0.0, 1.0) == 9


def test_writers_that_were_idle_the_longest_are_forgotten() -> None:
    numbers = SegmentNumbers(writers_max=2, idle_ms=100)
    for number, (writer, value) in enumerate([(1, 10), (2, 20), (3, 30)]):
        run = NumberedEvents(writer.to_bytes(16, "big"), [7], [0.5]).run()
        numbers.append(run, number + 1, value)
        numbers.settle(number + 1)
    assert [numbers.held_by(each.to_bytes(16, "big")).covering(0.0, 1.0) for each in (1, 2, 3)] == [NOTHING, 7, 7]
    numbers.append(NumberedEvents(ALICE, [1], [0.5]).run(), 4, 125)
    numbers.settle(4)
    assert [numbers.held_by(each.to_bytes(16, "big")).covering(0.0, 1.0) for each in (2, 3)] == [NOTHING, 7]


@pytest.mark.parametrize(
    "events",
    [
        NumberedEvents(b"short", [1], [0.5]),
        NumberedEvents(bytes(16), [1], [0.5]),
        NumberedEvents(ALICE, [1, 1], [0.5, 0.5]),
        NumberedEvents(ALICE, [-1], [0.5]),
        NumberedEvents(ALICE, [2**63 - 1], [0.5]),
        NumberedEvents(ALICE, [1], [0.5], -1),
        NumberedEvents(ALICE, [1, 2], [0.5]),
    ],
    ids=["id", "no id", "order", "below 0", "too high", "settled", "positions"],
)
def test_numbers_that_cannot_be_are_refused(process: Process, events: NumberedEvents) -> None:
    with pytest.raises(ValueError, match="expected"):
        process.host.append_numbered(NAME, 0, [b"x"] * len(events.numbers), events)


bounds = st.integers(0, 4).map(lambda quarter: quarter / 4)
helds = st.builds(Held, bounds, bounds, st.integers(0, 20))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(helds, max_size=5), bounds, bounds)
def test_the_number_that_covers_all_keys_is_the_least_of_the_highest_of_each(
    held: list[Held], low: float, high: float
) -> None:
    if low >= high:
        return
    expected = min(
        max((each.number for each in held if each.low <= key < each.high), default=NOTHING)
        for key in np.arange(low, high, 0.125).tolist()
    )
    assert WriterHeld(tuple(held), 0).covering(low, high) == expected


def test_a_producer_goes_on_where_all_is_durable() -> None:
    known = WriterHeld((Held(0.0, 1.0, 9),), 4)
    behind = WriterHeld((Held(0.0, 1.0, 5),), 3)
    assert progress_of([(0.0, 0.5, known), (0.5, 1.0, behind)]) == Progress(6, 10)
    assert progress_of([(0.0, 0.5, known), (0.5, 1.0, WriterHeld((), 0))]) == Progress(4, 10)
    assert progress_of([(0.0, 1.0, WriterHeld((), 0))]) == Progress(0, 0)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.booleans()
        ),
        max_size=5,
    )
)
def test_rows_of_any_numbers_do_no_more_harm_than_rows_of_others(rows: list[tuple[int, int, int, bool]]) -> None:
    numbers = SegmentNumbers(writers_max=10, idle_ms=100)
    own = NumberedEvents(ALICE, [7], [0.5])
    numbers.append(own.run(), 1, 2**63)
    numbers.settle(1)
    columns = dict.fromkeys(WRITER_NUMBER.names or (), 0)
    for writer, number, bits, is_own in rows:
        span = {"keys_from": bits, "keys_to": np.float64(1.0).view(np.int64) if is_own else bits}
        numbers.inherit(make_rows(WRITER_NUMBER, **{**columns, "writer_low": writer, "number": number, **span}))
    assert numbers.held_by(ALICE).covering(0.0, 1.0) == 7
    assert numbers.repeated(own) == {0: True}


def test_a_table_of_another_stream_is_corrupt() -> None:
    rows = make_rows(WRITER_NUMBER, **dict.fromkeys(WRITER_NUMBER.names or (), 3))
    table = NumberTable(3, 9, rows)
    assert NUMBER_TABLE.decode(NUMBER_TABLE.encode(table), "key").rows.tolist() == rows.tolist()
    stored = NUMBER_TABLE.encode(table)
    for damaged in (stored[:-1], stored[:40] + bytes([stored[40] ^ 1]) + stored[41:]):
        with pytest.raises(CorruptObject):
            NUMBER_TABLE.decode(damaged, "key")
    with pytest.raises(ValueError, match="expected rows of stream 4"):
        NumberTable(4, 9, rows)
