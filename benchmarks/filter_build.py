"""Building the filters of ten objects of 9,000 streams each: ours at once, pybloom_live id by id.

Both end with the stored bytes, which must be equal. In the first line everything is hashed; in the second the ids were
hashed before, for other objects, as most are on a running broker (the peer has no way to profit from that).
"""

from __future__ import annotations

import io

import numpy as np
import pybloom_live
from numpy.typing import NDArray

from benchmarks.harness import Comparison, interleave
from bloom import PieceCache, StreamFilter

OBJECTS = 10
STREAMS = 9_000
STREAMS_OF_CLUSTER = 200_000
CAPACITY = 9_000


def run(rounds: int = 7) -> list[Comparison]:
    """Hashing included, and ids hashed before; the values are those of one filter."""
    objects = [make_stream_ids(STREAMS, seed) for seed in range(OBJECTS)]
    cache = PieceCache()
    cache.hash_ids(np.arange(STREAMS_OF_CLUSTER))
    return [
        _compare("filter_build", objects, None, rounds=rounds, goal=6),
        _compare("filter_build_hashed_before", objects, cache, rounds=rounds, goal=30),
    ]


def _compare(
    name: str, objects: list[NDArray[np.int64]], cache: PieceCache | None, *, rounds: int, goal: float
) -> Comparison:
    def ours() -> list[bytes]:
        return [StreamFilter.build(stream_ids, CAPACITY, cache=cache).to_bytes() for stream_ids in objects]

    def theirs() -> list[bytes]:
        return [pybloom_bytes(stream_ids, CAPACITY) for stream_ids in objects]

    peer = f"pybloom_live add loop, {STREAMS:,} ids"
    return interleave(ours, theirs, rounds=rounds).compare(name, peer=peer, unit="us", calls=OBJECTS, goal=goal)


def make_stream_ids(count: int, seed: int = 1) -> NDArray[np.int64]:
    """Ascending ids of an object that holds ``count`` of the cluster's streams."""
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(STREAMS_OF_CLUSTER, count, replace=False)).astype(np.int64)


def pybloom_bytes(stream_ids: NDArray[np.int64], capacity: int) -> bytes:
    """The stored filter as pybloom_live builds it."""
    peer_filter = pybloom_live.BloomFilter(capacity, 0.01)
    for stream_id in stream_ids.tolist():
        peer_filter.add(stream_id)
    stored = io.BytesIO()
    peer_filter.tofile(stored)
    return stored.getvalue()
