"""Truncation: what it deletes, how it is begun and completed, and how older times are seen through it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from accel.errors import IllegalState, InvalidArgument
from accel.history.rules import retention
from accel.history.rules.retention import NO_TRUNCATION
from accel.history.rules.states import StreamState
from tests.accel.history.rules import naive
from tests.accel.history.rules.interpreter import by_id
from tests.accel.history.rules.streams import Stream, streams
from tests.accel.history.rules.world import World

EXAMPLES = settings(max_examples=60, deadline=None)


@EXAMPLES
@given(streams())
def test_all_that_was_read_is_deleted_and_nothing_else(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    world, reader = stream.world, stream.reader()
    for _ in range(3):
        stream.advance(reader, random)
        world.start_truncation(reader.offsets)
        before, gone = set(world.being_deleted()), set(world.deleted())
        assert before | gone == reader.finished
        assert not before & gone
        assert (len(before), len(gone)) == (world.truncation.to_delete_count, world.truncation.deleted_count)
        world.complete_truncation()
        assert world.deleted() == reader.finished
        assert world.truncation.deleted_count == len(reader.finished)
        assert not world.being_deleted()
        assert world.truncation.size_till == stream.read_by(reader)
        assert retention.head(world.truncation, world.epoch(0)) == reader.offsets


@EXAMPLES
@given(streams())
def test_older_epochs_are_seen_through_the_truncation(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    reader = stream.reader()
    stream.advance(reader, random)
    stream.advance(reader, random)
    stream.world.start_truncation(reader.offsets)
    now = stream.world.truncation
    for record in stream.records:
        assert retention.segments_at(record, now) == naive.segments_at(stream.records, record.epoch, reader.offsets)


def test_a_sealed_stream_is_not_truncated() -> None:
    world = World()
    world.initialize(1, 1000)
    world.set_state(StreamState.SEALED)
    with pytest.raises(IllegalState):
        world.start_truncation(by_id({"0@0": 3}))


def test_completing_twice_changes_nothing() -> None:
    assert retention.after_truncation(NO_TRUNCATION) is None


def test_a_cut_before_the_last_one_is_refused() -> None:
    world = World()
    world.initialize(1, 1000)
    world.start_truncation({0: 7})
    with pytest.raises(InvalidArgument, match="under way"):
        world.start_truncation({0: 8})
    world.complete_truncation()
    with pytest.raises(InvalidArgument, match="at or after"):
        world.start_truncation({0: 6})
    with pytest.raises(InvalidArgument, match="of this stream"):
        world.start_truncation({0: 9, 7: 0})
    with pytest.raises(InvalidArgument, match="covers all keys"):
        world.start_truncation({})
    world.start_truncation({0: 7})
