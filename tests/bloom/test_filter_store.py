"""Filters of many nodes stay within their bound, and a missing filter never excludes an object."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloom import FilterStore, StreamFilter

SIZES = [1, 90, 120, 900]


def make_filter(seed: int, size: int) -> StreamFilter:
    return StreamFilter.build(np.sort(np.random.default_rng(seed).choice(1_000, size, replace=False)))


FILTERS = [make_filter(seed, size) for seed, size in enumerate(SIZES * 3)]

ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 40), st.sampled_from(FILTERS)),
    st.tuples(st.just("discard"), st.integers(1, 3), st.integers(0, 40), st.integers(0, 10)),
    st.tuples(st.just("discard_node"), st.integers(1, 3), st.none(), st.none()),
    st.tuples(st.just("absent"), st.integers(1, 3), st.integers(0, 999), st.none()),
)


@settings(deadline=None)
@given(st.integers(0, 60_000), st.lists(ACTIONS, max_size=40))
def test_a_bounded_store_excludes_only_what_an_unbounded_one_does(
    bytes_max: int, actions: list[tuple[str, int, int, object]]
) -> None:
    store = FilterStore(bytes_max)
    model: dict[tuple[int, int], StreamFilter] = {}
    for action, node_id, number, extra in actions:
        if action == "add":
            assert isinstance(extra, StreamFilter)
            store.add(node_id, number, extra)
            model[node_id, number] = extra
        elif action == "discard":
            assert isinstance(extra, int)
            store.discard(node_id, range(number, number + extra))
            model = {
                key: one for key, one in model.items() if key[0] != node_id or not number <= key[1] < number + extra
            }
        elif action == "discard_node":
            store.discard_node(node_id)
            model = {key: one for key, one in model.items() if key[0] != node_id}
        else:
            kept = [object_id for object_id in store.object_ids(node_id) if number not in model[node_id, object_id]]
            assert sorted(store.absent(node_id, number).tolist()) == sorted(kept)
        store.check()
        assert store.nbytes <= bytes_max
        assert all((node_id, object_id) in model for node_id in (1, 2, 3) for object_id in store.object_ids(node_id))


def test_without_a_bound_in_the_way_every_filter_is_kept() -> None:
    store = FilterStore()
    for node_id in range(3):
        for object_id in range(100):
            store.add(node_id, object_id, FILTERS[object_id % len(FILTERS)])
    assert len(store) == 300
    assert store.evicted == 0
    assert all(store.holds(node_id, object_id) for node_id in range(3) for object_id in range(100))


def test_nodes_do_not_see_each_others_objects() -> None:
    store = FilterStore()
    store.add(1, 7, StreamFilter.build(np.array([10])))
    store.add(2, 7, StreamFilter.build(np.array([20])))
    assert store.absent(1, 20).tolist() == [7]
    assert store.absent(2, 20).tolist() == []
    assert store.absent(3, 20).tolist() == []
    assert not store.holds(3, 7)
    store.discard(3, [7])
    store.discard_node(3)
    store.check()


def test_the_node_that_was_not_used_for_the_longest_time_loses_its_filters_first() -> None:
    unbounded = FilterStore()
    for node_id in (1, 2, 3):
        for object_id in range(8):
            unbounded.add(node_id, object_id, FILTERS[1])
    store = FilterStore(unbounded.nbytes)
    for node_id in (1, 2, 3):
        for object_id in range(8):
            store.add(node_id, object_id, FILTERS[1])
    store.absent(1, 5)
    store.add(3, 100, FILTERS[1])
    assert store.object_ids(2) == []
    assert len(store.object_ids(1)) == 8
    assert len(store.object_ids(3)) == 9
    assert store.evicted == 8


def test_a_node_alone_keeps_its_newest_filter() -> None:
    store = FilterStore(40_000)
    small = [one for one in FILTERS if one.nbytes < 300]
    for object_id in range(2_000):
        store.add(1, object_id, small[object_id % len(small)])
        assert store.holds(1, object_id)
    store.check()
    assert 30_000 < store.nbytes <= 40_000
    assert store.evicted == 2_000 - len(store)


def test_a_filter_that_does_not_fit_is_not_kept() -> None:
    store = FilterStore(1_000)
    store.add(1, 7, FILTERS[3])
    assert not store.holds(1, 7)
    assert (store.nbytes, len(store)) == (0, 0)


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0 bytes, found -1"):
        FilterStore(-1)
