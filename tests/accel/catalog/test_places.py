"""Where records and streams lie is part of the format: keys sort as their numbers do, buckets never change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.catalog.keys import (
    list_version_key,
    list_version_prefix,
    node_key,
    parse_list_version_key,
    parse_node_key,
    shard_key,
)
from accel.catalog.stream_shards import shard_of, shards_of

NODES = st.integers(0, 10**10 - 1)
SEQUENCES = st.integers(0, 2**64 - 1)
STREAMS = st.integers(0, 2**63 - 1)
WORD = (1 << 64) - 1


@given(NODES, NODES, SEQUENCES, SEQUENCES)
def test_keys_sort_as_their_numbers_do(node: int, other: int, sequence: int, later: int) -> None:
    assert (node_key(node) < node_key(other)) == (node < other)
    keys = (list_version_key(node, sequence), list_version_key(other, later))
    assert (keys[0] < keys[1]) == ((node, sequence) < (other, later))


@given(NODES, SEQUENCES)
def test_keys_are_parsed_back(node: int, sequence: int) -> None:
    assert parse_node_key(node_key(node)) == node
    assert parse_list_version_key(list_version_key(node, sequence)) == (node, sequence)
    assert list_version_key(node, sequence).startswith(list_version_prefix(node))


@pytest.mark.parametrize("key", ["", "4", "000000000x", "0000000004-", "0000000004-17", "00000000041", "٠٠٠٠٠٠٠٠٠٤"])
def test_other_keys_are_not_taken_for_ours(key: str) -> None:
    assert parse_node_key(key) is None
    assert parse_list_version_key(key) is None


def test_numbers_that_the_digits_cannot_say_are_refused() -> None:
    assert shard_key(99_999) == "99999"
    for node_id in (10**10, -1):
        with pytest.raises(ValueError, match=f"expected a node id of 0 to 9999999999, found {node_id}"):
            node_key(node_id)
    with pytest.raises(ValueError, match="expected a stream shard of 0 to 99999, found 100000"):
        shard_key(10**5)


def test_the_hash_of_streams_is_that_of_splitmix64() -> None:
    # The first number that the public generator gives for the seed 0.
    assert shard_of(0, 2**62) == 0xE220A8397B1DCDAF % 2**62


@given(STREAMS, st.integers(1, 10**5))
def test_a_bucket_follows_from_the_published_formula(stream_id: int, buckets: int) -> None:
    mixed = stream_id + 0x9E3779B97F4A7C15 & WORD
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & WORD
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & WORD
    assert shard_of(stream_id, buckets) == (mixed ^ mixed >> 31) % buckets


def test_neighbouring_streams_spread_evenly() -> None:
    counts = np.bincount(shards_of(np.arange(200_000, dtype=np.int64), 32), minlength=32)
    assert counts.min() > 0.95 * 200_000 / 32
    assert counts.max() < 1.05 * 200_000 / 32


def test_there_is_at_least_one_bucket() -> None:
    with pytest.raises(ValueError, match="expected at least one stream shard, found 0"):
        shard_of(3, 0)
