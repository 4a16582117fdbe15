"""When a compaction begins, and how far it goes."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.compaction import CompactionSettings

counts = st.dictionaries(st.integers(1, 9), st.integers(0, 5000), min_size=1)


def test_a_node_at_the_trigger_is_left_alone_and_one_above_it_goes_down_to_the_target() -> None:
    settings = CompactionSettings(max_objects_per_node=1000)
    assert settings.targets({1: 1000, 2: 1001, 3: 800}) == {2: 800}
    assert CompactionSettings(max_objects_per_node=10, target_objects=3).targets({1: 11}) == {1: 3}


def test_all_nodes_share_in_the_limit_of_the_cluster_by_what_they_have() -> None:
    settings = CompactionSettings(max_objects=1000)
    assert settings.targets({1: 600, 2: 400}) == {}
    assert settings.targets({1: 900, 2: 300, 3: 0}) == {1: 600, 2: 200}
    assert settings.targets({1: 9900, 2: 1}) == {1: 799}
    assert CompactionSettings(max_objects=4).targets({1: 1, 2: 1, 3: 1, 4: 6}) == {4: 1}  # no node is emptied


def test_of_two_limits_the_lower_target_holds() -> None:
    settings = CompactionSettings(max_objects_per_node=100, max_objects=100)
    assert settings.targets({1: 200, 2: 50}) == {1: 64, 2: 16}
    assert CompactionSettings(max_objects_per_node=100, max_objects=390).targets({1: 200, 2: 200}) == {1: 80, 2: 80}


@given(counts, st.integers(1, 5000))
def test_the_cluster_ends_at_or_below_its_limit(found: dict[int, int], max_objects: int) -> None:
    settings = CompactionSettings(max_objects_per_node=10**9, max_objects=max_objects)
    targets = settings.targets(found)
    after = found | targets
    assert all(1 <= targets[each] < found[each] for each in targets)
    assert sum(after.values()) <= max(max_objects, sum(1 for each in found.values() if each))


def test_only_the_nodes_that_were_named_are_compacted_but_all_count() -> None:
    settings = CompactionSettings(max_objects=100, nodes=frozenset({2}))
    assert settings.targets({1: 100, 2: 100}) == {2: 40}


def test_all_can_be_compacted_whatever_the_trigger_says() -> None:
    assert CompactionSettings(rewrite_all=True).targets({1: 5, 2: 1}) == {1: 1}
    assert CompactionSettings(rewrite_all=True, target_objects=3).targets({1: 5, 2: 3}) == {1: 3}


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_objects_per_node": 0},
        {"target_objects": 1001},
        {"max_objects": 0},
        {"max_bytes": -1},
        {"min_age_seconds": -1.0},
        {"max_sources_per_group": 1},
        {"max_stream_objects": -1},
        {"split_size_bytes": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CompactionSettings(**wrong)


def test_settings_travel_to_tasks_and_into_logs() -> None:
    settings = CompactionSettings(nodes=frozenset({4, 2}), max_bytes=1 << 30)
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - made in the line itself
    assert json.loads(json.dumps(settings.to_dict()))["nodes"] == [2, 4]
