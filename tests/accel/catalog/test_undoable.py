"""Undo next to readers and mergers: no image without what it brings back, no merge of what it may take away."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TypeVar

import pytest

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.keys import STREAM_SHARDS
from accel.catalog.node_list import is_led_back, undoable_commits
from accel.catalog.undo import undo
from accel.errors import CommitRefused
from accel.image import MetadataImage
from loaders.store.decorated import StoreCall
from tests.world import FORMAT, Interrupted, World, list_of_node

Answer = TypeVar("Answer")


class Compacted:
    """Node 4 has offsets [0, 40) of stream 1; its second and third object went into two objects of the stream alone."""

    def __init__(self) -> None:
        self.world = World(settings=CatalogSettings(parallel_requests=1, ids_block=64))
        self.catalog = self.world.open()
        writer = self.catalog.open_node(4)
        writer.open_streams([1])
        self.refs = [self.world.upload(writer, {1: (start, start + 10)}) for start in range(0, 40, 10)]
        self.ids = self.catalog.prepare(4, 2)
        spans = [(10, 20), (20, 30)]
        own = [(1, self.world.put_stream_object(each, 1, *at)) for each, at in zip(self.ids, spans, strict=True)]
        self.catalog.commit_compaction(4, self.refs[1:3], None, own)

    def merge(self) -> None:
        """Merge the two objects into one."""
        [whole] = self.catalog.prepare(4, 1)
        merged = self.world.put_stream_object(whole, 1, 10, 30)
        self.catalog.register_stream_object(1, merged, self.ids)

    def spans(self, image: MetadataImage) -> list[tuple[int, int]]:
        """What an image has of the stream, found by opening everything."""
        found = [(each.start, each.end) for each in image.streams[1].stream_objects]
        held = [each.ranges.range_of(1) for each in self.catalog.parts.open_all(4, image.nodes[4].refs)]
        return sorted(found + [(each.start, each.end) for each in held if each is not None])


@pytest.fixture
def compacted() -> Compacted:
    return Compacted()


def is_of_a_shard(call: StoreCall) -> bool:
    return f"/{STREAM_SHARDS}/" in call.key


@pytest.mark.parametrize("is_cold", [True, False])
def test_an_image_into_whose_reading_an_undo_comes_lacks_nothing(compacted: Compacted, *, is_cold: bool) -> None:
    skipped = 0 if is_cold else FORMAT.stream_buckets
    store = Interrupted(compacted.world.memory, partial(undo, compacted.catalog, 4), skipped, is_of_a_shard)
    with compacted.world.open(store) as reader:
        if not is_cold:
            reader.refresh()
        assert store.fitting == skipped
        assert compacted.spans(reader.refresh()) == [(0, 10), (10, 20), (20, 30), (30, 40)]
        assert store.fitting > skipped


def test_an_image_shows_twice_rather_than_not_at_all_while_an_undo_is_under_way(compacted: Compacted) -> None:
    reader = compacted.world.open()
    before = reader.refresh_state()
    assert not any(is_led_back(before.node_lists(), seen.value) for seen in before.shards)
    undo(compacted.catalog, 4)
    after = reader.refresh_state()
    assert not any(is_led_back(after.node_lists(), seen.value) for seen in after.shards)
    assert any(is_led_back(before.node_lists(), seen.value) for seen in after.shards)
    assert all(first[1] >= second[0] for first, second in pairwise(compacted.spans(after.built.image)))


def test_a_refresh_asks_once_after_trimming_too(compacted: Compacted) -> None:
    keys = 1 + 1 + FORMAT.stream_buckets
    compacted.catalog.refresh()
    compacted.catalog.trim({1: 20})
    with ObjectCatalog.open(compacted.world.store, settings=compacted.world.settings) as reader:
        compacted.world.store.reset()
        reader.refresh()
        assert compacted.world.store.snapshot().total.requests == keys


def test_a_commit_can_be_undone_until_its_sources_are_delete_pending(compacted: Compacted) -> None:
    assert undoable_commits(list_of_node(compacted.catalog)).tolist() == [4]
    compacted.world.clock.seconds += FORMAT.retired_seconds + 1
    collect(compacted.catalog, plan_collection(compacted.catalog))
    assert undoable_commits(list_of_node(compacted.catalog)).tolist() == []


def test_what_a_compaction_made_is_merged_when_nobody_can_undo_it_any_more(compacted: Compacted) -> None:
    with pytest.raises(CommitRefused, match="stream 1: expected objects to merge that no undo removes, found"):
        compacted.merge()
    compacted.world.clock.seconds += FORMAT.retired_seconds + 1
    with pytest.raises(CommitRefused, match="a compaction whose sources are still there"):
        compacted.merge()  # the time alone does not decide: an undo may be under way
    collect(compacted.catalog, plan_collection(compacted.catalog))
    compacted.merge()
    assert compacted.spans(compacted.catalog.refresh()) == [(0, 10), (10, 30), (30, 40)]
    with pytest.raises(CommitRefused):
        undo(compacted.catalog, 4)


def test_what_an_undone_compaction_made_is_not_merged(compacted: Compacted) -> None:
    undo(compacted.catalog, 4)
    with pytest.raises(CommitRefused, match="gone"):
        compacted.merge()
    assert compacted.spans(compacted.catalog.refresh()) == [(0, 10), (10, 20), (20, 30), (30, 40)]
