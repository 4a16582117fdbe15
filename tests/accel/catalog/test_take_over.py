"""A stream is taken over from a node that may be alive: no commit is lost, none comes twice, and one node writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from accel.catalog import CatalogSettings
from accel.catalog.node_list import with_released
from accel.catalog.records import RELEASED, make_rows
from accel.catalog.takeover import move_streams
from accel.errors import AccelError, CommitRefused, SessionFenced, StreamsReleased
from accel.testing import Crash, CrashStore, Fault, FaultStore
from tests.world import World, spans_held

OLD, NEW, THIRD = 4, 5, 6
SETTINGS = CatalogSettings(parallel_requests=1, ids_block=8)


class Pair:
    """Node 4 has streams 1 to 3, all of them up to 10, and a session; node 5 has one without streams."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.catalog, self.other = world.open(), world.open()
        self.old = self.catalog.open_node(OLD)
        self.old.open_streams([1, 2, 3])
        world.upload(self.old, {1: (0, 10), 2: (0, 10), 3: (0, 10)})
        self.new = self.other.open_node(NEW)

    def released(self, *streams: int) -> None:
        """A taker dies after its release."""
        with self.world.open(CrashStore(self.world.store, 1)) as catalog, pytest.raises(Crash):
            move_streams(catalog.parts, NEW, self.new.session_number, dict.fromkeys(streams, OLD))


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair(World(settings=SETTINGS))
    yield made
    made.catalog.close()
    made.other.close()


def test_a_stream_goes_on_at_the_new_owner_where_its_data_ends(pair: Pair) -> None:
    assert pair.new.take_over({1: OLD}) == {1: 10}
    pair.world.upload(pair.new, {1: (10, 12)})
    assert spans_held(pair.catalog, 1) == [(0, 10), (10, 12)]


def test_a_commit_of_a_paused_owner_is_refused_and_the_other_streams_go_on(pair: Pair) -> None:
    pair.new.take_over({1: OLD})
    with pytest.raises(StreamsReleased) as raised:
        pair.world.upload(pair.old, {1: (10, 20), 2: (10, 20)})
    assert (raised.value.node_id, raised.value.stream_ids) == (OLD, (1,))
    assert (pair.old.end(1), pair.old.end(2)) == (None, 10)
    pair.world.upload(pair.old, {2: (10, 20), 3: (10, 20)})
    pair.world.upload(pair.new, {1: (10, 12)})
    assert [spans_held(pair.catalog, each)[-1] for each in (1, 2, 3)] == [(10, 12), (10, 20), (10, 20)]
    with pytest.raises(StreamsReleased):  # known by now, and refused without a request
        pair.world.upload(pair.old, {1: (10, 20)})
    with pytest.raises(CommitRefused, match=f"node {NEW}"):
        pair.old.open_streams([1])


def test_streams_that_are_sealed_behind_the_owners_back_are_not_closed_by_it(pair: Pair) -> None:
    pair.new.take_over({1: OLD})
    with pytest.raises(StreamsReleased) as raised:
        pair.old.close_streams([1, 2])
    assert raised.value.stream_ids == (1,)
    pair.world.upload(pair.new, {1: (10, 12)})
    assert pair.new.take_over({3: OLD}) == {3: 10}
    assert pair.other.refresh().streams[2].ranges[-1].end == 10


def test_a_stream_comes_back_to_an_owner_that_lives(pair: Pair) -> None:
    pair.new.take_over({1: OLD})
    pair.world.upload(pair.new, {1: (10, 12)})
    assert pair.old.take_over({1: NEW}) == {1: 12}
    pair.world.upload(pair.old, {1: (12, 15), 2: (10, 11)})
    assert not len(pair.old.node_list.released)
    with pytest.raises(StreamsReleased):
        pair.world.upload(pair.new, {1: (12, 13)})
    assert spans_held(pair.catalog, 1) == [(0, 10), (10, 12), (12, 15)]


def test_an_owner_takes_back_what_a_dead_taker_had_released(pair: Pair) -> None:
    pair.released(1)
    with pytest.raises(StreamsReleased):
        pair.world.upload(pair.old, {1: (10, 20)})
    pair.old.open_streams([1])
    assert pair.old.end(1) == 10
    pair.world.upload(pair.old, {1: (10, 20)})
    with pytest.raises(CommitRefused, match=f"node {THIRD}"):
        pair.new.take_over({1: THIRD})
    assert pair.new.take_over({1: OLD}) == {1: 20}


def test_a_new_session_of_the_owner_ends_a_take_over_that_is_half_way(pair: Pair) -> None:
    pair.released(1)
    again = pair.catalog.open_node(OLD)
    pair.world.upload(again, {1: (10, 20)})
    assert not len(again.node_list.released)
    with pytest.raises(SessionFenced):
        pair.world.upload(pair.old, {2: (10, 20)})


def test_a_checkpoint_of_the_owner_tells_the_end_of_a_released_stream(pair: Pair) -> None:
    pair.released(1)
    with pytest.raises(StreamsReleased):
        pair.world.upload(pair.old, {1: (10, 20)})
    pair.old.close()  # writes a checkpoint, without stream 1 among those that it may write
    assert pair.new.take_over({1: OLD, 2: OLD}) == {1: 10, 2: 10}


def test_a_release_that_comes_too_late_does_not_bind(pair: Pair) -> None:
    """A taker read the shard, and paused; meanwhile the stream left the owner and came back."""
    pair.old.close_streams([1])
    pair.new.open_streams([1])
    pair.new.close_streams([1])
    pair.old.open_streams([1])
    key = pair.other.parts.keys.node_list(OLD)
    late = make_rows(RELEASED, stream_id=1, range_index=0)
    key.change(lambda now: None if now is None else with_released(now, late))
    pair.world.upload(pair.old, {1: (10, 20), 2: (10, 20)})
    assert not len(pair.old.node_list.released)
    assert spans_held(pair.catalog, 1) == [(0, 10), (10, 20)]


@pytest.mark.parametrize(
    ("streams", "expected"), [({9: OLD}, "found 9 in no stream shard"), ({1: THIRD}, "found .* of node 4")]
)
def test_what_is_not_open_on_that_node_is_not_taken(pair: Pair, streams: dict[int, int], expected: str) -> None:
    with pytest.raises(CommitRefused, match=expected):
        pair.new.take_over(streams)
    pair.world.upload(pair.old, {1: (10, 20)})
    assert not len(pair.old.node_list.released)


def test_a_take_over_costs_few_requests_whatever_the_number_of_streams() -> None:
    world = World(settings=CatalogSettings(parallel_requests=4, ids_block=64, checkpoint_commits=8))
    with world.open() as catalog, world.open() as other:
        old, new = catalog.open_node(OLD), other.open_node(NEW)
        old.open_streams(range(200))
        for at in range(20):  # checkpoints after 8 and 16: four objects since
            world.upload(old, dict.fromkeys(range(200), (at, at + 1)))
        world.store.reset()
        assert set(new.take_over(dict.fromkeys(range(200), OLD)).values()) == {20}
        shards, objects = 4, 4
        assert world.store.snapshot().total.requests == shards + 2 + 1 + objects + 2 * shards


def test_objects_that_do_not_hold_the_stream_are_not_opened() -> None:
    world = World(settings=CatalogSettings(parallel_requests=4, ids_block=64))
    with world.open() as catalog, world.open() as other:
        old, new = catalog.open_node(OLD), other.open_node(NEW)
        old.open_streams([1, 50_000])
        world.upload(old, {1: (0, 5)})
        for at in range(20):
            world.upload(old, {50_000: (at, at + 1)})
        world.store.reset()
        assert new.take_over({1: OLD}) == {1: 5}
        assert world.store.snapshot().total.requests == 1 + 2 + 1 + 1 + 2


# Deaths and lost replies

WRITES_OF_A_TAKE_OVER = 2


@pytest.mark.parametrize("number", range(WRITES_OF_A_TAKE_OVER + 1))
@pytest.mark.parametrize("who", ["the taker again", "the owner", "another node", "a new session of the owner"])
def test_a_taker_dies_before_any_of_its_writes(pair: Pair, number: int, who: str) -> None:
    with pair.world.open(CrashStore(pair.world.store, number)) as dying, suppress(Crash):
        move_streams(dying.parts, NEW, pair.new.session_number, {1: OLD})
        assert number == WRITES_OF_A_TAKE_OVER
    if who == "the taker again":
        with suppress(CommitRefused):  # taken by the session that wrote the move
            pair.new.take_over({1: OLD})
    elif who == "another node":
        third = pair.other.open_node(THIRD)
        third.take_over({1: pair.other.refresh().streams[1].ranges[-1].node_id})
        pair.world.upload(third, {1: (10, 15)})
    elif who == "a new session of the owner":
        pair.old = pair.catalog.open_node(OLD)
    else:
        with suppress(StreamsReleased):
            pair.world.upload(pair.old, {1: (10, 15)})
        with suppress(CommitRefused):
            pair.old.open_streams([1])
    for writer in (pair.old, pair.new):
        end = writer.end(1)
        if end is not None:
            with suppress(StreamsReleased):
                pair.world.upload(writer, {1: (end, end + 5)})
    found = spans_held(pair.catalog, 1)
    assert found[0] == (0, 10)
    assert [start for start, _ in found[1:]] == [end for _, end in found[:-1]]
    if who in ("the taker again", "another node") or number < WRITES_OF_A_TAKE_OVER:
        assert found[-1][1] > 10


def test_a_commit_whose_reply_was_lost_counts_although_the_stream_was_taken_over(pair: Pair) -> None:
    """It was in the list before the release: its writer is told so when it asks again, and nothing comes twice."""
    faults = FaultStore(pair.world.store)
    with pair.world.open(faults) as catalog:
        writer = catalog.open_node(THIRD)
        writer.open_streams([8])
        [object_id] = writer.prepare()
        ref, ranges = pair.world.put(object_id, [(8, 0, 5)])
        faults.schedule(None, Fault.LOST_REPLY, *[Fault.TIMEOUT] * 12)
        with pytest.raises(AccelError):
            writer.commit_upload(ref, ranges)
        faults.clear()
        assert pair.new.take_over({8: THIRD}) == {8: 5}
        writer.commit_upload(ref, ranges)
        with pytest.raises(StreamsReleased):
            pair.world.upload(writer, {8: (5, 6)})
        pair.world.upload(pair.new, {8: (5, 6)})
    assert spans_held(pair.catalog, 8) == [(0, 5), (5, 6)]
