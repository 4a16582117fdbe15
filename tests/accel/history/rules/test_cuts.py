"""Where cuts lie: placed, compared, checked, and what lies between two of them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import assume, given, settings

from accel.errors import InvalidArgument, NotInHistory
from accel.history.rules import cuts
from accel.history.rules.cuts import CutOrder
from accel.history.rules.retention import TruncationRecord, segments_at
from accel.history.rules.values import make_id
from tests.accel.history.rules import naive
from tests.accel.history.rules.streams import Stream, by_id, new, replacing, streams
from tests.examples import examples

EXAMPLES = settings(max_examples=examples(100), deadline=None)
STATES_MAX = 300


def halves_then_merged() -> Stream:
    stream = new(2)
    stream.scale(replacing(["0@0", "1@0"], 0.0, 1.0))
    return stream


@EXAMPLES
@given(streams())
def test_a_reader_is_always_at_a_valid_cut(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    reader = stream.reader()
    for _ in range(4):
        assert stream.is_valid(reader.offsets)
        assert naive.is_valid(stream.records, reader.offsets)
        stream.advance(reader, random)


@EXAMPLES
@given(streams(changes_max=6))
def test_a_cut_is_valid_if_and_only_if_a_reader_can_be_at_it(given_stream: tuple[Stream, Random]) -> None:
    """A reader reads each segment to its end before the segments that continue it."""
    stream, random = given_stream
    records = stream.records
    states = naive.reachable(records, STATES_MAX)
    assume(states is not None)
    known = sorted(stream.reader().known)
    reader = stream.reader()
    for _ in range(12):
        stream.advance(reader, random)
        cut = dict(reader.offsets) if random.random() < 0.5 else dict.fromkeys(random.choice(records).segments.ids, 0)
        cut = {int(each): offset for each, offset in cut.items()}
        for each in random.sample(known, random.randint(0, min(2, len(known)))):
            overlapped = [other for other in cut if reader.known[other].overlaps(reader.known[each])]
            cut = {other: offset for other, offset in cut.items() if other not in overlapped}
            cut[each] = random.choice([-1, 0, 5])
        is_possible = naive.is_possible(records, cut, states or ())
        if stream.is_valid(cut):
            assert is_possible, cut
        elif not naive.has_idle(records, cut):
            assert not is_possible, cut


@EXAMPLES
@given(streams())
def test_who_reads_on_is_never_before_and_never_beside_where_they_were(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    reader = stream.reader()
    stream.advance(reader, random)
    for _ in range(3):
        before = dict(reader.offsets)
        stream.advance(reader, random)
        start, end = stream.place(before), stream.place(reader.offsets)
        assert cuts.is_equal_or_after(end, start)
        assert cuts.compare(start, end) is (CutOrder.EQUAL_OR_AFTER if before == reader.offsets else CutOrder.BEFORE)


@EXAMPLES
@given(streams())
def test_between_two_positions_lies_what_was_read_from_one_to_the_other(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    reader = stream.reader()
    stream.advance(reader, random)
    finished, before, read = set(reader.finished), dict(reader.offsets), stream.read_by(reader)
    stream.advance(reader, random)
    stream.advance(reader, random)
    start, end = stream.place(before), stream.place(reader.offsets)
    found = [each for part in stream.between(start, end) for each in part.ids.tolist()]
    assert len(found) == len(set(found))
    assert set(found) == (reader.finished - finished) | set(before) | set(reader.offsets)
    assert stream.size_between(before, reader.offsets) == stream.read_by(reader) - read
    assert stream.size_between({}, reader.offsets) == stream.read_by(reader)


def test_a_cut_equals_itself_even_while_a_segment_waits() -> None:
    stream = halves_then_merged()
    waiting = by_id({"0@0": 5, "2@1": -1})
    assert stream.is_valid(waiting)
    assert cuts.compare(stream.place(waiting), stream.place(waiting)) is CutOrder.EQUAL_OR_AFTER
    further = stream.place(by_id({"0@0": 7, "2@1": -1}))
    assert cuts.compare(stream.place(waiting), further) is CutOrder.BEFORE
    assert cuts.is_equal_or_after(further, stream.place(waiting))


@pytest.mark.parametrize(
    ("cut", "is_valid"),
    [
        ({"0@0": 1, "1@0": 1}, True),
        ({"2@1": 0}, True),
        ({"0@0": 1, "2@1": -1}, True),
        ({"2@1": -1}, True),
        ({"0@0": 1, "1@0": 1, "2@1": -1}, True),
        ({}, False),
        ({"0@0": 1}, False),
        ({"1@0": 1}, False),
        ({"0@0": -1, "1@0": 1}, True),
        ({"0@0": -1, "2@1": 1}, False),
        ({"0@0": 1, "2@1": 1}, False),
        ({"0@0": 1, "9@7": -1}, False),
        ({"0@0": 1, "3@1": -1}, False),
    ],
)
def test_stream_cut_validity(cut: dict[str, int], *, is_valid: bool) -> None:
    """Pitfall A22: cuts that end in future segments were refused (pravega issues 2569, 2572)."""
    assert halves_then_merged().is_valid(by_id(cut)) is is_valid


def test_a_gap_that_is_covered_in_part_makes_a_cut_invalid() -> None:
    """Pitfall D5: An uncovered first gap was once forgotten over a covered later one."""
    stream = new(4)
    stream.scale(replacing(["2@0", "3@0"], 0.5, 1.0))
    assert not stream.is_valid(by_id({"1@0": 3, "2@0": 3, "4@1": -1}))
    assert not stream.is_valid(by_id({"0@0": 3, "1@0": 3}))
    assert stream.is_valid(by_id({"0@0": 3, "1@0": 3, "2@0": 3, "4@1": -1}))


def merged_then_split() -> Stream:
    stream = halves_then_merged()
    stream.scale(replacing(["2@1"], 0.0, 1.0, 2))
    return stream


@pytest.mark.parametrize(
    ("cut", "is_valid"),
    [
        ({"1@0": 0, "3@2": 2}, False),
        ({"0@0": 5, "4@2": 0}, False),
        ({"0@0": 5, "1@0": 3}, True),
        ({"3@2": 0, "4@2": 0}, True),
        ({"1@0": 3, "2@1": -1}, True),
        ({"1@0": 3, "2@1": -1, "3@2": -1}, True),
        ({"1@0": 3, "3@2": -1}, False),
        ({"2@1": 4, "3@2": 0}, False),
        ({"0@0": 5, "4@2": -1}, False),  # the last quarter is not awaited while the first half is read
        ({"0@0": 5, "2@1": -1}, True),
        ({"3@2": 5, "4@2": -1}, True),
    ],
)
def test_no_reader_is_in_a_half_before_a_merge_and_in_a_half_after_it(cut: dict[str, int], *, is_valid: bool) -> None:
    """What both halves were merged into is read after either of them, and before what follows it."""
    assert merged_then_split().is_valid(by_id(cut)) is is_valid


def test_a_cut_that_no_reader_can_be_at_is_the_head_of_no_epoch_between_its_segments() -> None:
    stream = merged_then_split()
    placed = stream.place(by_id({"1@0": 0, "3@2": 2}))
    head = TruncationRecord(cut=placed.cut, span=placed.span)
    with pytest.raises(InvalidArgument, match="that a reader can be at"):
        segments_at(stream.epoch(1), head)


def test_what_lies_between_cuts_in_the_wrong_order_is_refused() -> None:
    stream = halves_then_merged()
    start, end = stream.place(by_id({"2@1": 0})), stream.place(by_id({"0@0": 1, "1@0": 1}))
    with pytest.raises(InvalidArgument, match="at or after the start"):
        cuts.refuse_unordered(start, end)
    cuts.refuse_unordered(end, start)
    cuts.refuse_unordered(None, end)


def test_an_unknown_segment_is_named() -> None:
    with pytest.raises(NotInHistory, match="7@0"):
        halves_then_merged().place({make_id(0, 7): 3, 0: 1})


def test_the_span_of_a_cut_is_the_highest_epoch_of_each_segment_below_its_newest() -> None:
    stream = new(2, chunk_size=2)
    for newest in ("1@0", "2@1", "3@2", "4@3"):
        stream.scale(replacing([newest], 0.5, 1.0))
    assert dict(stream.place(by_id({"0@0": 1, "3@2": 0})).span.epochs) == by_id({"0@0": 2, "3@2": 2})
    assert dict(stream.place(by_id({"0@0": 1, "1@0": 0})).span.epochs) == by_id({"0@0": 0, "1@0": 0})
    assert dict(stream.place(by_id({"1@0": 1, "5@4": 0})).span.epochs) == by_id({"1@0": 0, "5@4": 4})
