"""Hashing many ids at once equals hashing each with the library, remembered or not."""

from __future__ import annotations

import hashlib

import numpy as np
import pybloom_live
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from bloom import PieceCache, hash_id, hash_ids
from bloom.geometry import NUMBER_END, SALT, SaltedDecimalHash

STREAM_IDS = st.one_of(
    st.integers(0, 2**63 - 1),
    st.integers(0, NUMBER_END - 1),
    st.integers(0, 18).flatmap(lambda power: st.integers(max(0, 10**power - 2), 10**power + 2)),
)


def library_pieces(stream_id: int) -> list[int]:
    digest = xxhash.xxh3_128_digest(SALT + str(stream_id).encode())
    return [int.from_bytes(digest[at : at + 2], "little") for at in range(0, 16, 2)]


@given(st.lists(STREAM_IDS, max_size=50))
def test_many_ids_hash_as_the_library_hashes_each(stream_ids: list[int]) -> None:
    pieces = hash_ids(np.array(stream_ids, dtype=np.int64))
    assert pieces.tolist() == [library_pieces(stream_id) for stream_id in stream_ids]


def test_every_number_of_digits_is_hashed_right_at_both_its_ends() -> None:
    ends = [10**power for power in range(19)]
    stream_ids = sorted({0, 2**63 - 1, *ends, *(end - 1 for end in ends)})
    for stream_id in stream_ids:
        assert hash_ids(np.array([stream_id])).tolist() == [library_pieces(stream_id)]
        assert hash_id(stream_id).tolist() == library_pieces(stream_id)


@given(st.binary(min_size=16, max_size=16), st.lists(st.integers(0, NUMBER_END - 1), min_size=1, max_size=20))
def test_any_salt_will_do(salt: bytes, numbers: list[int]) -> None:
    digests = SaltedDecimalHash(salt).digests(np.array(numbers))
    assert digests.tobytes() == b"".join(xxhash.xxh3_128_digest(salt + b"%d" % number) for number in numbers)


def test_a_salt_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="salt of 16 bytes, found 3"):
        SaltedDecimalHash(b"abc")


def test_two_hundred_thousand_ids_have_the_digest_that_they_always_had() -> None:
    digest = hashlib.sha256(hash_ids(np.arange(200_000)).tobytes()).hexdigest()
    assert digest == "951702d13f78a82bb52421bc350e811eb1fd0f180571b9914bf3e46250847c2d"


def test_the_first_pieces_are_the_positions_that_pybloom_live_uses() -> None:
    peer = pybloom_live.BloomFilter(9_000, 0.01)
    positions = [piece % peer.bits_per_slice for piece in hash_id(420_000).tolist()[: peer.num_slices]]
    assert positions == list(peer.make_hashes(420_000))


@given(st.lists(STREAM_IDS, min_size=1, max_size=20), st.integers(1, 40))
def test_wide_pieces_are_the_positions_that_pybloom_live_uses(stream_ids: list[int], ids_max: int) -> None:
    peer = pybloom_live.BloomFilter(100_000, 0.01)
    expected = [list(peer.make_hashes(stream_id)) for stream_id in stream_ids]
    cache = PieceCache(ids_max)
    for hash_many in (hash_ids, cache.hash_ids, cache.hash_ids):
        pieces = hash_many(np.array(stream_ids), is_wide=True)
        assert (pieces[:, : peer.num_slices] % peer.bits_per_slice).tolist() == expected
    assert hash_id(stream_ids[0], is_wide=True).tolist() == hash_ids(np.array(stream_ids), is_wide=True)[0].tolist()


def test_the_table_of_wide_pieces_is_made_when_it_is_asked_for() -> None:
    cache = PieceCache(64)
    cache.hash_ids(np.arange(9))
    assert cache.nbytes == 64 * 32
    cache.hash_ids(np.arange(9), is_wide=True)
    cache.hash_ids(np.arange(99), is_wide=True)
    assert cache.nbytes == 64 * 32 + 64 * 40


@pytest.mark.parametrize("stream_id", [-1, -(2**63), 2**63])
def test_an_impossible_stream_id_is_refused(stream_id: int) -> None:
    with pytest.raises(ValueError, match=f"found {stream_id}"):
        hash_id(stream_id)


def test_a_negative_id_among_many_is_refused() -> None:
    for hash_many in (hash_ids, PieceCache(16).hash_ids):
        with pytest.raises(ValueError, match="at least 0, found -1"):
            hash_many(np.array([5, -1, 7]))


@given(st.integers(1, 40), st.lists(st.lists(STREAM_IDS | st.integers(0, 20), max_size=30), max_size=8))
def test_a_cache_of_any_size_changes_no_hash(ids_max: int, calls: list[list[int]]) -> None:
    cache = PieceCache(ids_max)
    for stream_ids in calls:
        array = np.array(stream_ids, dtype=np.int64)
        assert cache.hash_ids(array).tolist() == hash_ids(array).tolist()


def test_ids_that_share_a_slot_in_one_call_are_remembered_rightly() -> None:
    cache = PieceCache(1)
    stream_ids = np.array([3, 1, 2, 2, 1])
    for _ in range(2):
        assert cache.hash_ids(stream_ids).tolist() == hash_ids(stream_ids).tolist()


def test_a_cache_never_grows_and_stays_under_its_bound() -> None:
    cache = PieceCache(1_000)
    size_before = cache.nbytes
    cache.hash_ids(np.arange(10_000))
    assert cache.nbytes == size_before == 512 * 32


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="expected ids_max of at least 1, found 0"):
        PieceCache(0)


def test_changing_what_a_cache_returned_changes_nothing_remembered() -> None:
    cache = PieceCache(16)
    stream_ids = np.arange(5)
    cache.hash_ids(stream_ids)[:] = 0
    cache.hash_ids(stream_ids)[:] = 0
    assert cache.hash_ids(stream_ids).tolist() == hash_ids(stream_ids).tolist()
