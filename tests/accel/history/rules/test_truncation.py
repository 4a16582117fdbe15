"""Truncation: what it deletes, how it is begun and completed, and how older times are seen through it."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings

from accel.errors import IllegalState, InvalidArgument
from accel.history.rules import retention
from accel.history.rules.retention import NO_TRUNCATION, TruncationRecord
from accel.history.rules.segments import Segments
from accel.history.rules.states import StreamState
from tests.accel.history.rules import naive
from tests.accel.history.rules.streams import Stream, new, streams
from tests.examples import examples

EXAMPLES = settings(max_examples=examples(100), deadline=None)


def begun(stream: Stream, now: TruncationRecord, cut: dict[int, int]) -> TruncationRecord:
    """A truncation that has not deleted anything yet."""
    wanted, before = stream.place(cut), retention.place_truncation(now)
    retention.refuse_truncation(now, wanted, StreamState.ACTIVE, is_valid=stream.is_valid(cut))
    count = sum(map(len, retention.ending_before(wanted, stream.between(before, wanted))))
    return retention.with_truncation(now, wanted, count, stream.size_between(now.cut, cut), UUID(int=1))


def completed(now: TruncationRecord) -> TruncationRecord:
    done = retention.after_truncation(now)
    assert done is not None
    return done


@EXAMPLES
@given(streams())
def test_all_that_was_read_is_deleted_and_nothing_else(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    reader, now = stream.reader(), NO_TRUNCATION
    for _ in range(3):
        stream.advance(reader, random)
        running = begun(stream, now, reader.offsets)
        assert retention.deleted_before(running) == retention.place_truncation(now)
        assert running.to_delete_count == len(reader.finished) - now.deleted_count
        now = completed(running)
        gone = retention.deleted_before(now)
        assert gone is not None
        deleted = Segments.join(retention.ending_before(gone, stream.between(None, gone)))
        assert set(deleted.ids.tolist()) == reader.finished
        assert now.deleted_count == len(deleted) == len(reader.finished)
        assert now.size_till == stream.read_by(reader)
        assert retention.head(now, stream.epoch(0)) == reader.offsets


@EXAMPLES
@given(streams())
def test_older_epochs_are_seen_through_the_truncation(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    reader = stream.reader()
    stream.advance(reader, random)
    stream.advance(reader, random)
    now = begun(stream, NO_TRUNCATION, reader.offsets)
    for record in stream.records:
        assert retention.segments_at(record, now) == naive.segments_at(stream.records, record.epoch, reader.offsets)


def test_completing_twice_changes_nothing() -> None:
    assert retention.after_truncation(NO_TRUNCATION) is None


def test_a_cut_before_the_last_one_is_refused() -> None:
    stream = new(1)
    running = begun(stream, NO_TRUNCATION, {0: 7})
    with pytest.raises(InvalidArgument, match="under way"):
        begun(stream, running, {0: 8})
    done = completed(running)
    with pytest.raises(InvalidArgument, match="at or after"):
        begun(stream, done, {0: 6})
    begun(stream, done, {0: 7})
    placed = stream.place({0: 8})
    with pytest.raises(InvalidArgument, match="that a reader can be at"):
        retention.refuse_truncation(done, placed, StreamState.ACTIVE, is_valid=False)
    with pytest.raises(IllegalState):
        retention.refuse_truncation(done, placed, StreamState.SEALED, is_valid=True)
