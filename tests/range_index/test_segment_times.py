"""The time index of a segment is a list of (end offset, value); this compares it with that list."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from range_index.segment_times import NO_TOKEN, RECORD_SIZE_BYTES, SegmentTimes, TimeRecords, TimesRead
from tests.examples import examples

Record = tuple[int, int]

steps = st.lists(st.tuples(st.integers(1, 60) | st.just(10), st.integers(0, 9)), max_size=60)


def records_of(pairs: list[tuple[int, int]], end: int = 0, value: int = 0) -> list[Record]:
    """Lengths and steps of the clock, as records."""
    records = []
    for length, step in pairs:
        end, value = end + length, value + step
        records.append((end, value))
    return records


def index_of(records: list[Record], first_record: int = 0, start_offset: int = 0) -> SegmentTimes:
    times = SegmentTimes(first_record, start_offset)
    for record in records:
        times.append(*record)
    return times


def of_ends(ends: NDArray[np.uint64]) -> TimeRecords:
    return TimeRecords(np.stack([ends, ends], axis=1).astype(">u8"))


def naive_read(records: list[Record], offset: int, count: int) -> tuple[int, list[int], int]:
    """The definition, one offset after the other."""
    ends = [end for end, _ in records]
    end = min(offset + count, ends[-1] if ends else 0)
    covering = sorted({bisect_right(ends, each) for each in range(offset, end)})
    covered = max(0, end - offset)
    return covered, [records[each][1] for each in covering], bisect_right(ends, offset + covered)


def plain(answer: TimesRead) -> tuple[int, list[int], int]:
    return answer.covered, answer.values.tolist(), answer.token


def test_the_stored_form_is_16_bytes_a_record_big_endian() -> None:
    data = index_of([(10, 100), (258, 65536)]).view().encode()
    assert data.hex() == "000000000000000a" + "0000000000000064" + "0000000000000102" + "0000000000010000"
    assert len(data) == 2 * RECORD_SIZE_BYTES


@given(steps, steps)
def test_concatenating_two_indexes_is_merging_them(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    first = index_of(records_of(one))
    second = index_of(records_of(two, first.end_offset, first.last_value), first.records, first.end_offset)
    data = first.view().encode() + second.view().encode()
    first.extend(second.view().encode())
    assert first.view().encode() == data == TimeRecords.decode(data).encode()
    assert (first.records, first.end_offset) == (second.records, second.end_offset)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ((20, 7), "above 20"),
        ((19, 7), "above 20"),
        ((21, 4), "at least 5"),
        ((2**64, 7), "below 2\\^64"),
        ((21, 2**64), "below 2\\^64"),
    ],
)
def test_offsets_ascend_and_values_never_fall(record: Record, text: str) -> None:
    times = index_of([(20, 5)])
    with pytest.raises(ValueError, match=text):
        times.append(*record)
    assert times.view().encode() == index_of([(20, 5)]).view().encode()


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([(0, 5)], "record 3: expected an end offset above 0, found 0"),
        ([(10, 1)], "record 3: expected a value of at least 2, found 1"),
        ([(10, 5), (10, 6)], "record 4: expected an end offset above 10 .* found 10 and 6"),
        ([(10, 5), (20, 6), (15, 7)], "record 5: .* found 15 and 7"),
        ([(10, 5), (20, 4)], "record 4: .* a value of at least 5, found 20 and 4"),
        ([(2**63 + 5, 5), (2**63 + 4, 5)], "record 4: expected"),
    ],
)
def test_damaged_bytes_are_refused_and_nothing_is_added(records: list[Record], text: str) -> None:
    data = b"".join(each.to_bytes(8, "big") for record in records for each in record)
    with pytest.raises(ValueError, match=text):
        TimeRecords.decode(data, first_record=3, value=2)
    times = SegmentTimes(3, 0, 2)
    with pytest.raises(ValueError, match=text):
        times.extend(data)
    assert (len(times), times.end_offset, times.last_value) == (0, 0, 2)


@pytest.mark.parametrize("length", [1, 15, 17])
def test_bytes_that_are_not_whole_records_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"found {length} bytes"):
        TimeRecords.decode(bytes(length))


def test_a_transaction_gets_one_record_and_an_empty_one_none() -> None:
    times = index_of([(10, 100)])
    assert times.merge(4010, 150)
    times.append(4011, 160)
    assert not times.merge(4011, 170)
    assert times.view().rows.tolist() == [[10, 100], [4010, 150], [4011, 160]]
    with pytest.raises(ValueError, match="above 4011"):
        times.merge(4010, 170)


@given(steps, st.integers(0, 700), st.integers(0, 400), st.integers(-3, 70))
@settings(max_examples=examples(400))
def test_reads_are_those_of_a_plain_list_whatever_the_token(
    pairs: list[tuple[int, int]], offset: int, count: int, token: int
) -> None:
    records = records_of(pairs)
    times = index_of(records).view()
    expected = naive_read(records, offset, count) if offset < times.end_offset else (0, [], len(records))
    assert plain(times.read(offset, count)) == expected
    assert plain(times.read(offset, count, token)) == expected
    assert times.locate(offset).record == bisect_right([end for end, _ in records], offset)


@given(steps, st.lists(st.integers(0, 90), max_size=40), st.data())
def test_reading_on_with_tokens_while_the_segment_grows_tells_every_value_in_order(
    pairs: list[tuple[int, int]], counts: list[int], data: st.DataObject
) -> None:
    records = records_of(pairs)
    times, added, offset, token = SegmentTimes(), 0, 0, NO_TOKEN
    for count in counts:
        more = data.draw(st.integers(0, 5))
        for record in records[added : added + more]:
            times.append(*record)
        added = min(len(records), added + more)
        answer = times.view().read(offset, count, token)
        assert plain(answer) == naive_read(records[:added], offset, count)
        offset, token = offset + answer.covered, answer.token


@given(steps, st.integers(0, 60), st.integers(0, 700))
def test_records_that_are_left_answer_as_before(pairs: list[tuple[int, int]], dropped: int, offset: int) -> None:
    records = records_of(pairs)
    times = index_of(records)
    whole, gone = times.view(), min(dropped, len(records))
    times.drop(gone)
    left = times.view()
    assert whole.encode() == index_of(records).view().encode()
    assert whole.encode()[gone * RECORD_SIZE_BYTES :] == left.encode()
    assert (left.records, left.end_offset) == (whole.records, whole.end_offset)
    if left.start_offset <= offset < left.end_offset:
        assert left.locate(offset)[:3] == whole.locate(offset)[:3]
        assert plain(left.read(offset, 50)) == plain(whole.read(offset, 50))
        assert left.ended_by(offset) == whole.ended_by(offset) - gone


def test_what_was_dropped_cannot_be_asked() -> None:
    times = index_of([(10, 1), (20, 2), (30, 3)])
    times.drop(2)
    with pytest.raises(ValueError, match="from 20 on, found 19"):
        times.view().locate(19)
    with pytest.raises(ValueError, match="record of 2 to 2, found 1"):
        times.view().end_of(1)
    with pytest.raises(ValueError, match="0 to 1 records"):
        times.drop(2)


@pytest.mark.parametrize(("offset", "count"), [(-1, 5), (0, -1)])
def test_negative_numbers_are_refused(offset: int, count: int) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        index_of([(10, 1)]).view().read(offset, count)
    with pytest.raises(ValueError, match="0 or more"):
        index_of([(10, 1)]).view().locate(-1)


@pytest.mark.parametrize("arguments", [(-1, 0, 0), (0, -1, 0), (0, 2**64, 0), (0, 0, -1), (0, 0, 2**64)])
def test_an_index_begins_within_64_bits(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        SegmentTimes(*arguments)


def test_adding_a_million_records_takes_no_more_memory_than_twice_their_bytes() -> None:
    times = SegmentTimes()
    data = of_ends(np.arange(1, 1_000_001, dtype=np.uint64)).encode()
    for at in range(0, len(data), 16_000):
        times.extend(data[at : at + 16_000])
    assert memory_of(times) <= 2 * len(data)
    times.drop(999_999)
    assert memory_of(times) < 1000


def memory_of(times: SegmentTimes) -> int:
    base = times.view().rows.base
    return 0 if base is None else base.nbytes
