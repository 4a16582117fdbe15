"""Records are checked when they are made, and equal if their content is."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from accel.history.rules.configuration import (
    RetentionKind,
    RetentionPolicy,
    ScalingKind,
    ScalingPolicy,
    StreamConfiguration,
)
from accel.history.rules.cuts import CutSpan
from accel.history.rules.epochs import NO_TRANSITION, EpochRecord, EpochTransition, HistoryChunk, HistoryDelta
from accel.history.rules.retention import NO_TRUNCATION, RetentionEntry, RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.segments import NO_SEGMENTS, KeyRanges, SegmentRecord, Segments
from accel.history.rules.states import first_epoch
from accel.history.rules.transactions import (
    NO_COMMIT,
    ActiveTransaction,
    CommitOrder,
    CommittingTransactions,
    CompletedTransaction,
    TransactionStatus,
)
from accel.history.rules.values import IdMap, IdSet, integers, make_id, make_transaction_id

FIRST = first_epoch(2, 1000)
HALVES = FIRST.segments
NEW = Segments.make([make_id(1, 2)], 1001, 0.5, 1.0)
SEALED = HALVES.where([1])
BEGUN = HistoryDelta(0, 0, NO_SEGMENTS, HALVES, 1000)
CHANGED = HistoryDelta(1, 1, SEALED, NEW, 1001)
REPEATED = HistoryDelta(2, 0, NO_SEGMENTS, NO_SEGMENTS, 1002)
IDS = st.integers(0, 2**62).filter(lambda each: each & 2**31 == 0)


def span(*epochs: int) -> CutSpan:
    return CutSpan(HALVES, IdMap([0, 1], epochs))


@pytest.mark.parametrize(
    "make",
    [
        lambda: EpochRecord(1, 2, HALVES, 1000),
        lambda: EpochRecord(-1, -1, HALVES, 1000),
        lambda: EpochRecord(0, 0, HALVES, -1),
        lambda: EpochRecord(0, 0, HALVES, 0, splits=-2),
        lambda: EpochRecord(0, 0, NO_SEGMENTS, 0),
        lambda: EpochRecord(0, 0, SEALED, 0),
        lambda: EpochRecord(0, 0, HALVES.where([1, 0]), 0),
        lambda: EpochRecord(1, 1, Segments.make([0, 1], 0, [0.0, 0.4], [0.5, 1.0]), 0),
        lambda: EpochRecord(1, 1, Segments.make([0, 1], 0, [0.0, 0.5], [0.5, 0.9]), 0),
        lambda: EpochRecord(1, 1, Segments.make([0, 1], 0, [0.1, 0.5], [0.5, 1.0]), 0),
        lambda: EpochRecord(0, 0, Segments.make([make_id(1, 0)], 0, 0.0, 1.0), 0),
        lambda: EpochRecord(2, 0, HALVES, 0),
        lambda: HistoryDelta(0, 0, SEALED, HALVES, 1000),
        lambda: HistoryDelta(1, 1, NO_SEGMENTS, NEW, 1000),
        lambda: HistoryDelta(1, 1, SEALED, NO_SEGMENTS, 1000),
        lambda: HistoryDelta(1, 0, SEALED, NEW, 1000),
        lambda: HistoryDelta(2, 2, SEALED, NEW, 1000),
        lambda: HistoryDelta(1, 1, NEW, NEW, 1000),
        lambda: HistoryChunk.of([]),
        lambda: HistoryChunk.of([BEGUN, REPEATED]),
        lambda: HistoryChunk.of([CHANGED, replace(REPEATED, time_ms=1001)]),
        lambda: CutSpan(HALVES, IdMap([0], [0])),
        lambda: CutSpan(NEW, IdMap([make_id(1, 2)], [0])),
        lambda: TruncationRecord(IdMap([0], [5]), span(0, 0)),
        lambda: TruncationRecord(to_delete_count=3),
        lambda: TruncationRecord(last_cut=IdMap([0], [5]), last_span=span(0, 0)),
        lambda: TruncationRecord(deleted_count=-1),
        lambda: TruncationRecord(size_till=-1),
        lambda: EpochTransition(0, 0, IdSet([1])),
        lambda: EpochTransition(0, 0, IdSet([1]), 2**31 - 1, KeyRanges([0.0], [1.0])),
        lambda: EpochTransition(-1, 0, IdSet([1]), 2, KeyRanges([0.0], [1.0])),
        lambda: EpochTransition(0, 0, IdSet([1]), 2, KeyRanges([0.0, 0.5], [0.5, float("nan")])),
        lambda: EpochTransition(0, 0, IdSet([1]), 2, KeyRanges([0.5], [0.5])),
        lambda: CommittingTransactions(0, (), active_epoch=3),
        lambda: CommittingTransactions(0, (make_transaction_id(0, 1),) * 2),
        lambda: CommittingTransactions(0, tuple(make_transaction_id(0, each) for each in range(10_001))),
        lambda: RetentionSet([1, 1], [0, 0]),
        lambda: RetentionSet([1], []),
        lambda: StreamCutRecord(0, -1, IdMap()),
        lambda: ActiveTransaction(-1, 4, 9),
        lambda: ActiveTransaction(5, 6, 9, commit_position=-1),
        lambda: ActiveTransaction(5, 4, 9),
        lambda: ActiveTransaction(5, 6, 9, TransactionStatus.COMMITTING),
        lambda: CompletedTransaction(5, TransactionStatus.OPEN),
        lambda: CommitOrder(1, (1,), (make_transaction_id(0, 1),)),
        lambda: CommitOrder(3, (1, 1), (make_transaction_id(0, 1),) * 2),
        lambda: CommitOrder(3, (1,), ()),
        lambda: StreamConfiguration(0),
        lambda: StreamConfiguration(tags=("b", "a")),
        lambda: ScalingPolicy(ScalingKind.BYTES),
        lambda: ScalingPolicy(ScalingKind.FIXED, 5),
        lambda: RetentionPolicy(RetentionKind.TIME, 5, 4),
        lambda: SegmentRecord(-1, 0, 0.0, 1.0),
        lambda: SegmentRecord(1, -1, 0.0, 1.0),
        lambda: SegmentRecord(1, 0, 0.5, 0.5),
        lambda: SegmentRecord(1, 0, 0.5, float("nan")),
        lambda: Segments.make([1], 0, float("nan"), 1.0),
        lambda: Segments.make([2**31], 0, 0.0, 1.0),
        lambda: Segments(np.zeros(3)),  # type: ignore[arg-type]  # must fail
        lambda: KeyRanges([0.0], []),
        lambda: IdMap([3, 2], [0, 0]),
        lambda: IdMap([2], []),
        lambda: IdSet([2, 2]),
        lambda: IdSet([2**31]),
        lambda: IdSet([[2]]),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        make()


@pytest.mark.parametrize(
    "record",
    [
        FIRST,
        CHANGED,
        HistoryChunk.of([BEGUN, CHANGED, REPEATED]),
        TruncationRecord(IdMap([0, 1], [5, 6]), span(0, 0), IdMap([0, 1], [1, 2]), span(0, 0), 7, 9, 3, updating=True),
        EpochTransition(3, 4, IdSet([1]), 2, KeyRanges([0.0], [1.0])),
        CommittingTransactions(1, (make_transaction_id(1, 5),), active_epoch=4),
        RetentionSet([1, 2], [3, 4]),
        StreamCutRecord(1, 2, IdMap([0], [5])),
        NO_TRUNCATION,
        NO_TRANSITION,
        NO_COMMIT,
    ],
)
def test_records_are_values(record: Any) -> None:
    again = pickle.loads(pickle.dumps(record))  # noqa: S301 - our own bytes
    assert again == record
    assert hash(again) == hash(record)
    assert record != object()
    assert repr(record) == repr(again)
    assert len(repr(record)) < 500


def test_columns_cannot_be_written_to() -> None:
    for column in (HALVES.rows, HALVES.ids, HALVES.ranges.starts, IdMap([1], [2]).values_array, IdSet([1]).ids):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def test_a_column_is_taken_over_and_cannot_be_changed() -> None:
    column = integers([1, 2])
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 0
    with pytest.raises(ValueError, match="expected one column of numbers, found 2 dimensions"):
        integers([[1], [2]])


def test_a_chunk_grows_by_the_next_epoch_only() -> None:
    chunk = HistoryChunk.of([BEGUN, CHANGED])
    assert chunk.with_delta(CHANGED) is None
    assert chunk.with_delta(BEGUN) is None
    grown = chunk.with_delta(REPEATED)
    assert grown == HistoryChunk.of([BEGUN, CHANGED, REPEATED])
    assert grown is not None
    assert list(grown) == [BEGUN, CHANGED, REPEATED]
    assert grown.duplicates.tolist() == [2]
    assert grown.sealing_epochs.tolist() == [1]
    assert grown.delta(3) is None
    for wrong in (replace(CHANGED, time_ms=1005), replace(REPEATED, epoch=3)):
        with pytest.raises(ValueError, match="expected epoch 2"):
            chunk.with_delta(wrong)
    with pytest.raises(ValueError, match="ascending times"):
        chunk.with_delta(replace(REPEATED, time_ms=1001))


def test_a_chunk_of_columns_is_checked_like_its_entries() -> None:
    with pytest.raises(ValueError, match="ascending ids"):
        HistoryChunk(0, [0], [5], sealed=NO_SEGMENTS, sealed_stops=[0], created=HALVES.where([1, 0]), created_stops=[2])
    with pytest.raises(ValueError, match="rows that end"):
        HistoryChunk(0, [0], [5], sealed=NO_SEGMENTS, sealed_stops=[0], created=HALVES, created_stops=[1])
    with pytest.raises(ValueError, match="of one length"):
        HistoryChunk(0, [0], [5], sealed=NO_SEGMENTS, sealed_stops=[], created=HALVES, created_stops=[2])
    with pytest.raises(ValueError, match="references"):
        HistoryChunk(0, [1], [5], sealed=NO_SEGMENTS, sealed_stops=[0], created=HALVES, created_stops=[2])


@given(st.dictionaries(IDS, st.integers(-5, 5), max_size=8), st.lists(IDS, max_size=5))
def test_columns_by_id_read_like_a_dict_and_a_set(values: dict[int, int], others: list[int]) -> None:
    known, ids = IdMap.of(values), IdSet.of(list(values))
    assert known == values
    assert list(known) == sorted(values)
    assert ids == set(values)
    asked = [*values, *others]
    assert known.get_many(asked, -9).tolist() == [values.get(each, -9) for each in asked]
    assert [each in ids for each in asked] == [each in values for each in asked]
    assert ids.without(np.array(others, dtype=np.int64)) == set(values) - set(others)
    with pytest.raises(KeyError):
        _ = known[-1]


def test_segments_read_as_a_sequence_of_records() -> None:
    both = list(HALVES)
    assert (both[0], both[1]) == (HALVES[0], HALVES[1])
    assert HALVES[1:] == SEALED
    assert Segments.of(both) == HALVES
    assert Segments.join([SEALED, HALVES]).ascending() == HALVES
    assert HALVES.find(1) == both[1]
    assert HALVES.find(7) is None
    assert both[0].overlaps(both[0])
    assert not both[0].overlaps(both[1])
    assert (both[1].number, both[1].creation_epoch, str(both[1])) == (1, 0, "1@0")


def test_a_stream_that_was_never_truncated_spans_nothing() -> None:
    assert (NO_TRUNCATION.span.low, NO_TRUNCATION.span.high) == (0, 0)
    assert (span(2, 5).low, span(2, 5).high) == (2, 5)
    assert RetentionSet([1, 2], [3, 4])[1] == RetentionEntry(2, 4)


def test_the_least_numbers_of_records_are_zeros() -> None:
    assert ActiveTransaction(0, 0, 0, TransactionStatus.COMMITTING, commit_position=0).commit_position == 0
    assert EpochTransition(active_epoch=0, time_ms=0, first_number=0) == NO_TRANSITION
