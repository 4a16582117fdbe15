"""Scopes and streams: made, found, deleted and made again, whole or halfway."""

from __future__ import annotations

import pytest

from accel.errors import IllegalState, StreamDeleted
from accel.history.rules.configuration import ScalingKind, ScalingPolicy, StreamConfiguration
from accel.history.rules.states import StreamState
from tests.accel.history.store.bench import NAME, START_MS, Bench, ids
from tests.accel.history.store.workflows import WORKS
from tests.conformance.history_world import SCOPE, STREAM

# Scopes


def test_a_scope_is_listed_until_it_is_deleted() -> None:
    streams = Bench().streams()
    assert list(streams.scopes()) == []
    assert streams.create_scope("a")
    assert not streams.create_scope("a")
    streams.create_scope("b")
    assert list(streams.scopes()) == ["a", "b"]
    streams.delete_scope("a")
    streams.delete_scope("a")
    assert list(streams.scopes()) == ["b"]


def test_a_half_created_scope_is_finished_by_whoever_needs_it() -> None:
    """Pitfall A11: a scope stood there without its tables (pravega issues 5526, 5690)."""
    for _, bench in WORKS["create scope"].crashed():
        for scope in bench.streams().scopes():
            assert list(bench.streams().streams(scope)) == []
            bench.streams().create_stream(scope, STREAM)
            assert bench.stream().state() is StreamState.ACTIVE
        bench.streams().create_scope(SCOPE)


# Creating and deleting


def test_who_creates_a_stream_again_gets_the_one_that_is_there(bench: Bench) -> None:
    known = bench.stream()
    again = bench.streams().create_stream(SCOPE, STREAM, None, START_MS + 5, segments=7)
    assert (known.is_new, again.is_new) == (False, False)
    assert (again.unique_id, again.creation_time_ms()) == (known.unique_id, START_MS)
    assert again.configuration().min_segments == 1
    assert bench.streams().create_stream(SCOPE, STREAM, known.configuration()).unique_id == known.unique_id


def test_who_creates_a_stream_is_told_so_and_another_configuration_is_refused() -> None:
    bench = Bench()
    streams = bench.streams()
    streams.create_scope(SCOPE)
    policy = ScalingPolicy(ScalingKind.EVENTS, 100, 2)
    assert streams.create_stream(SCOPE, STREAM, StreamConfiguration(scaling=policy)).is_new
    differs = "expected scope/stream with min_segments 2, found it with min_segments 1"
    with pytest.raises(IllegalState, match=differs):
        streams.create_stream(SCOPE, STREAM, StreamConfiguration(min_segments=2, scaling=policy))
    assert streams.stream(SCOPE, STREAM).configuration() == StreamConfiguration(scaling=policy)


def test_a_stream_that_is_created_again_and_again_goes_on_with_its_numbers() -> None:
    """Pitfall A8: a stream of an old name met old segments and ids (pravega issues 1012, 1681, 2641, 3057, 4478)."""
    bench = Bench()
    bench.streams().create_scope(SCOPE)
    numbers, unique = [], set()
    for _ in range(10):
        stream = bench.streams().create_stream(SCOPE, STREAM, StreamConfiguration(min_segments=2))
        numbers.append(int(stream.active_segments().numbers[0]))
        unique.add(stream.unique_id)
        stream.seal()
        bench.streams().delete_stream(SCOPE, STREAM)
    assert numbers == list(range(0, 20, 2))
    assert len(unique) == 10


def test_another_client_with_warm_caches_sees_the_stream_that_was_created_anew(bench: Bench) -> None:
    """Pitfall A9: another process answered from its cache of the deleted stream (pravega pull request 3541)."""
    streams = bench.streams()
    before = streams.stream(SCOPE, STREAM)
    assert before.epochs.epoch(0).segments.ids.tolist() == ids("0@0", "1@0")
    bench.stream().seal()
    bench.streams().delete_stream(SCOPE, STREAM)
    bench.streams().create_stream(SCOPE, STREAM, time_ms=START_MS + 50)
    assert streams.stream(SCOPE, STREAM).epochs.epoch(0).segments.ids.tolist() == ids("2@0")
    with pytest.raises(StreamDeleted):
        before.current_epoch()


def test_a_stream_whose_creation_was_cut_short_can_be_deleted_wherever_that_was() -> None:
    """Pitfall A12: a half-created stream could be neither deleted nor listed (pravega issues 4246, 1510, 4564)."""
    for _, bench in WORKS["create"].crashed():
        assert set(bench.streams().streams(SCOPE)) <= {STREAM}
        bench.streams().delete_stream(SCOPE, STREAM)
        assert (list(bench.streams().streams(SCOPE)), bench.host.ids(NAME)) == ([], [])
        assert bench.streams().create_stream(SCOPE, STREAM).state() is StreamState.ACTIVE


def test_each_segment_is_bound_to_a_stream_of_its_own_before_its_epoch_is_there(bench: Bench) -> None:
    bench.scale_once()
    stream = bench.stream()
    bound = [stream.segment_stream(each) for each in ids("0@0", "1@0", "2@1")]
    assert len(set(bound)) == 3
    assert [bench.host.stream_ids[NAME, each] for each in ids("0@0", "1@0", "2@1")] == bound
