"""A session of writing: one write an upload, nothing lost, nothing twice, and only one session lives."""

from __future__ import annotations

from typing import TypeVar

import pytest

from accel.catalog import CatalogSettings
from accel.errors import CommitRefused, SessionFenced
from loaders.object_ref import ObjectRef
from tests.world import World, held

T = TypeVar("T")


def test_an_upload_is_one_conditional_write_whatever_its_number_of_streams(world: World) -> None:
    with world.session(*range(3000)) as (_, writer):
        world.upload(writer, dict.fromkeys(range(3000), (0, 5)))
        [object_id] = writer.prepare()
        ref, ranges = world.put(object_id, [(stream_id, 5, 9) for stream_id in range(3000)])
        world.store.reset()
        writer.commit_upload(ref, ranges)
        assert world.store.snapshot().total.requests == 1


def test_ids_are_prepared_ahead_by_the_write_of_a_commit(world: World) -> None:
    with world.session(1) as (_, writer):
        world.upload(writer, {1: (0, 1)})
        world.store.reset()
        [object_id] = writer.prepare()
        assert world.store.snapshot().total.requests == 0
        assert object_id in writer.node_list.prepared["object_id"]


def test_ids_that_do_not_last_long_enough_are_not_handed_out(world: World) -> None:
    with world.session(1) as (catalog, writer):
        world.upload(writer, {1: (0, 1)})
        seconds = catalog.format.prepared_seconds + 100
        [object_id] = writer.prepare(deadline_seconds=seconds)
        prepared = writer.node_list.prepared
        [deadline_ms] = prepared["deadline_ms"][prepared["object_id"] == object_id]
        assert deadline_ms >= (world.clock.seconds + seconds) * 1000


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ({1: (6, 9)}, "a start where the stream ended"),
        ({1: (4, 9)}, "a start where the stream ended"),
        ({2: (0, 1)}, "a stream that is open on this node"),
        ({1: (5, 5)}, "an end above the start"),
    ],
)
def test_an_upload_that_does_not_continue_its_streams_is_refused_without_a_write(
    spans: dict[int, tuple[int, int]], expected: str
) -> None:
    world = World()
    with world.session(1) as (catalog, writer):
        world.upload(writer, {1: (0, 5)})
        [object_id] = writer.prepare()
        before = catalog.refresh()
        with pytest.raises(CommitRefused, match=expected):
            writer.commit_upload(ObjectRef(object_id, 100, 36), spans)
        assert catalog.refresh() is before
        assert writer.end(1) == 5


def test_an_object_whose_sizes_are_unknown_is_refused(world: World) -> None:
    with world.session(1) as (_, writer):
        [object_id] = writer.prepare()
        with pytest.raises(CommitRefused, match="its size and index size"):
            writer.commit_upload(ObjectRef(object_id), {1: (0, 1)})


def test_an_id_that_was_never_prepared_is_refused(world: World) -> None:
    with world.session(1) as (_, writer), pytest.raises(CommitRefused, match="prepared"):
        writer.commit_upload(ObjectRef(999, 100, 36), {1: (0, 1)})


def test_a_listed_object_cannot_be_committed_with_other_ranges(world: World) -> None:
    with world.session(1) as (_, writer):
        ref = world.upload(writer, {1: (0, 5)})
        with pytest.raises(CommitRefused, match="listed"):
            writer.commit_upload(ref, {1: (5, 9)})
        assert writer.end(1) == 5


def test_a_newer_session_ends_the_older_one(world: World) -> None:
    with world.open() as catalog, world.open() as elsewhere:
        old = catalog.open_node(4)
        old.open_streams([1])
        [object_id] = old.prepare()
        ref, ranges = world.put(object_id, [(1, 0, 5)])
        new = elsewhere.open_node(4)
        with pytest.raises(SessionFenced):
            old.commit_upload(ref, ranges)
        with pytest.raises(SessionFenced):
            old.prepare(10)
        world.upload(new, {1: (0, 7)})
        with pytest.raises(SessionFenced):
            old.close_streams([1])
        assert [span for _, *span in held(catalog, 1)] == [[0, 7]]


@pytest.mark.parametrize("checkpoint_commits", [1, 3, 1000])
def test_a_new_session_knows_where_streams_ended(checkpoint_commits: int) -> None:
    world = World(settings=CatalogSettings(parallel_requests=4, checkpoint_commits=checkpoint_commits))
    with world.open() as catalog:
        writer = catalog.open_node(4)
        writer.open_streams({1: None, 2: 100, 3: None})
        for number in range(7):
            world.upload(writer, {1: (number, number + 1), 2: (100 + 2 * number, 102 + 2 * number)})
    with world.session() as (catalog, successor):
        assert [successor.end(stream_id) for stream_id in (1, 2, 3, 4)] == [7, 114, 0, None]
        world.upload(successor, {1: (7, 8), 3: (0, 1)})


def test_a_checkpoint_spares_a_new_session_the_objects_before_it(world: World) -> None:
    with world.session(1) as (catalog, writer):
        for number in range(20):
            world.upload(writer, {1: (number, number + 1)})
    with world.open() as catalog:
        world.store.reset()
        catalog.open_node(4)
        assert world.store.snapshot().of("get_range").requests == 0


def test_compaction_behind_a_checkpoint_hides_no_end() -> None:
    world = World(settings=CatalogSettings(parallel_requests=4, checkpoint_commits=3))
    with world.session(1) as (catalog, writer):
        refs = [world.upload(writer, {1: (number, number + 1)}) for number in range(5)]
        [merged] = catalog.prepare(4, 1)
        ref, _ = world.put(merged, [(1, number, number + 1) for number in (1, 2, 3, 4)])
        catalog.commit_compaction(4, refs[1:], ref)  # objects before and after the checkpoint become one
    with world.open() as catalog:
        assert catalog.open_node(4).end(1) == 5


def test_streams_of_a_dead_owner_are_closed_at_the_tail_of_its_list(world: World) -> None:
    with world.session(1, 2) as (catalog, dead):
        world.upload(dead, {1: (0, 10), 2: (0, 3)})
        assert catalog.close_streams([1]) == {1: 10}
        assert catalog.close_streams([1]) == {1: 10}
        heir = catalog.open_node(7)
        heir.open_streams([1])
        world.upload(heir, {1: (10, 12)})
        with pytest.raises(SessionFenced):
            world.upload(dead, {2: (3, 4)})


def test_a_stream_in_two_objects_of_one_upload_is_refused(world: World) -> None:
    with world.session(1) as (_, writer):
        first, second = writer.prepare(2)
        ref, ranges = world.put(first, [(1, 0, 4)])
        with pytest.raises(CommitRefused, match="in two"):
            writer.commit_upload(ref, ranges, stream_objects={1: world.put_stream_object(second, 1, 4, 9)})


def test_trimming_lets_go_what_lies_below_and_never_more(world: World) -> None:
    with world.session(1) as (catalog, writer):
        world.upload(writer, {1: (0, 10)})
        writer.trim({1: 4})
        writer.trim({1: 2})
        assert catalog.refresh().streams[1].start_offset == 4
        with pytest.raises(CommitRefused, match="at most"):
            writer.trim({1: 11})
        with pytest.raises(CommitRefused, match="at most"):
            catalog.trim({1: 11})
        catalog.trim({1: 10})
        assert catalog.refresh().streams[1].start_offset == 10
        with world.open() as other:
            assert other.open_node(4).end(1) == 10


def test_a_second_call_at_the_same_time_is_refused(world: World) -> None:
    with world.session() as (_, writer), writer._turn(), pytest.raises(RuntimeError, match="one call at a time"):
        writer.prepare()
