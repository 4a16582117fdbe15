"""What the index cache keeps as images come and go: what they list, and what was just told of others."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from accel.image import MetadataImage, VersionVector, make_node
from accel.lookup.index_cache import SharedIndexCache
from bloom import StreamFilter
from loaders.object_ref import ObjectRef
from range_index import ObjectRanges
from tests.accel.lookup.driving import index_cache, make_ranges

NODE = 4
SIZE = 100
FILTER = StreamFilter.build(np.array([7]))
RANGES = make_ranges([(7, 0, 10)])


def image_of(version: int, object_ids: set[int] | range, node_id: int = NODE, size: int = SIZE) -> MetadataImage:
    listed = [(object_id, ObjectRef(object_id, size, 36, 0)) for object_id in object_ids]
    return MetadataImage(version, "DEFAULT", {}, {node_id: make_node(node_id, listed)})


def learn(cache: SharedIndexCache, object_id: int, ranges: ObjectRanges = RANGES) -> None:
    cache.learn(NODE, ObjectRef(object_id, SIZE, 36, 0), ranges)


def filters_and_arrays(cache: SharedIndexCache) -> tuple[int, int]:
    caches = cache.caches()
    return caches["filters"].entries, caches["object_indexes"].entries


def held(cache: SharedIndexCache, object_ids: range) -> set[int]:
    """Which of these objects the cache excludes for a stream that none of them holds."""
    node = image_of(0, object_ids).node(NODE)
    facts = cache.facts(node, 999)
    return set(node.object_ids[facts.filtered].tolist())


def test_an_object_of_more_streams_than_one_hash_reaches_has_a_filter_too() -> None:
    cache = index_cache()
    learn(cache, 1, make_ranges([(stream_id, 0, 10) for stream_id in range(24_000)]))
    cache.add_filters(NODE, [(2, FILTER)])
    node = image_of(1, {1, 2}).node(NODE)
    for stream_id, absent in ((7, [False, False]), (23_999, [False, True]), (10**9, [True, True])):
        assert cache.facts(node, stream_id).filtered.tolist() == absent


def test_filters_that_come_while_a_compaction_takes_their_objects_out_do_not_stay() -> None:
    cache = index_cache()
    before, after = image_of(1, range(300)), image_of(2, {1000})
    cache.add_filters(NODE, [(object_id, FILTER) for object_id in range(260)])
    cache.follow(before, after)
    cache.add_filters(NODE, [(object_id, FILTER) for object_id in range(260, 300)])  # read as of the image before
    for object_id in range(260, 270):
        learn(cache, object_id)
    images = [after, image_of(3, {1000}), image_of(4, {1000})]
    for earlier, later in itertools.pairwise(images):
        assert filters_and_arrays(cache) == (40, 10)
        cache.follow(earlier, later)
    assert filters_and_arrays(cache) == (0, 0)


def test_entries_of_objects_that_two_images_do_not_list_leave_the_known_ranges() -> None:
    cache = index_cache()
    cache.add_entries(NODE, 7, [0, 10], [10, 20], [1, 2])
    images = [image_of(version, {1}) for version in range(3)]
    cache.follow(images[0], images[1])
    assert list(cache.view(NODE, 7).object_ids) == [1, 2]
    cache.follow(images[1], images[2])
    assert list(cache.view(NODE, 7).object_ids) == [1]


def test_of_a_catalog_that_went_back_nothing_is_kept() -> None:
    cache = index_cache()
    learn(cache, 1)
    learn(cache, 50)
    older = MetadataImage(VersionVector({"list": 1}), "DEFAULT", {}, image_of(1, {1}).nodes)
    cache.follow(older, MetadataImage(VersionVector({"list": 1}, "put back"), "DEFAULT", {}, older.nodes))
    assert filters_and_arrays(cache) == (0, 0)


class CacheAgainstSets(RuleBasedStateMachine):
    """Objects are told of at any time; images list any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = index_cache()
        self.image = image_of(0, set())
        self.listed: list[set[int]] = [set(), set()]
        self.told: dict[int, int] = {}
        self.expected: set[int] = set()

    @rule(object_ids=st.sets(st.integers(0, 15), max_size=6))
    def filters_come(self, object_ids: set[int]) -> None:
        self.cache.add_filters(NODE, [(object_id, FILTER) for object_id in object_ids])
        self.tell(object_ids)

    @rule(object_id=st.integers(0, 15))
    def an_object_is_opened(self, object_id: int) -> None:
        learn(self.cache, object_id)
        self.tell({object_id})

    @rule(object_ids=st.sets(st.integers(0, 15)))
    def a_newer_image_comes(self, object_ids: set[int]) -> None:
        newer = image_of(len(self.listed), object_ids)
        before = self.listed[-1]
        self.cache.follow(self.image, newer)
        self.image = newer
        self.listed.append(object_ids)
        for object_id in self.expected - object_ids:
            self.told[object_id] += 1
        self.expected = {
            object_id
            for object_id in self.expected
            if object_id in object_ids or (object_id not in before and self.told[object_id] < 2)
        }
        for object_id in object_ids & self.expected:
            self.told[object_id] = 0

    @invariant()
    def just_that_is_kept(self) -> None:
        assert held(self.cache, range(16)) == self.expected

    def tell(self, object_ids: set[int]) -> None:
        for object_id in object_ids - self.expected:
            self.told[object_id] = 0
        self.expected |= object_ids


TestCacheAgainstSets = CacheAgainstSets.TestCase
TestCacheAgainstSets.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
