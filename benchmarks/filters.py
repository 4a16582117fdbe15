"""Bloom filters against pybloom_live: building them, and asking many of them at once.

`filter_build`: building the filters of ten objects of 9,000 streams each: ours at once, pybloom_live id by id.

Both end with the stored bytes, which must be equal. In the first line everything is hashed; in the second the ids were
hashed before, for other objects, as most are on a running broker (the peer has no way to profit from that).

`filter_probe`: one stream against the filters of a node's 5,000 objects: ours bit-sliced, pybloom_live one by one.

Both answer with the objects that may hold the stream. The first line has objects of 9,000 streams each; in the second
the sizes follow Zipf's law (of each size n there are as many as 1 / n says, from 1 to 20,000), so that objects lie in
nearly all capacity classes. The peer reads the very same filters from their stored bytes.
"""

from __future__ import annotations

import io

import numpy as np
import pybloom_live
from numpy.typing import NDArray

from benchmarks.harness import Comparison, interleave
from bloom import FilterMatrix, Geometry, PieceCache, StreamFilter, class_for, hash_ids

BUILT_OBJECTS = 10
STREAMS = 9_000
STREAMS_OF_CLUSTER = 200_000
CAPACITY = 9_000


def run_build(rounds: int = 7) -> list[Comparison]:
    """Hashing included, and ids hashed before; the values are those of one filter."""
    objects = [make_stream_ids(STREAMS, seed) for seed in range(BUILT_OBJECTS)]
    cache = PieceCache()
    cache.hash_ids(np.arange(STREAMS_OF_CLUSTER))
    return [
        _compare_build("filter_build", objects, None, rounds=rounds, goal=6),
        _compare_build("filter_build_hashed_before", objects, cache, rounds=rounds, goal=30),
    ]


def _compare_build(
    name: str, objects: list[NDArray[np.int64]], cache: PieceCache | None, *, rounds: int, goal: float
) -> Comparison:
    def ours() -> list[bytes]:
        return [StreamFilter.build(stream_ids, CAPACITY, cache=cache).to_bytes() for stream_ids in objects]

    def theirs() -> list[bytes]:
        return [pybloom_bytes(stream_ids, CAPACITY) for stream_ids in objects]

    peer = f"pybloom_live add loop, {STREAMS:,} ids"
    return interleave(ours, theirs, rounds=rounds).compare(name, peer=peer, unit="us", calls=BUILT_OBJECTS, goal=goal)


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


OBJECTS = 5_000
STREAMS_AN_OBJECT = 9_000
STREAMS_MAX = 20_000
PROBES = 20


def run_probe(rounds: int = 7) -> list[Comparison]:
    """Objects of one size, and of sizes by Zipf's law."""
    equal_sizes = np.full(OBJECTS, STREAMS_AN_OBJECT)
    return [
        _compare_probe("filter_probe", equal_sizes, f"all of {STREAMS_AN_OBJECT:,} ids", rounds=rounds, goal=150),
        _compare_probe("filter_probe_zipf", zipf_sizes(OBJECTS), "mixed (zipf) sizes", rounds=rounds, goal=60),
    ]


def zipf_sizes(objects: int, seed: int = 2) -> NDArray[np.int64]:
    """How many streams each object holds: size n with a probability in proportion to 1 / n."""
    sizes = np.arange(1, STREAMS_MAX + 1)
    weights = 1.0 / sizes
    return np.random.default_rng(seed).choice(sizes, objects, p=weights / weights.sum())


def make_filters(sizes: NDArray[np.int64], seed: int = 3) -> list[StreamFilter]:
    """A filter for each object, of streams drawn from those of the cluster; each id is hashed once for all."""
    generator = np.random.default_rng(seed)
    pieces = hash_ids(np.arange(STREAMS_OF_CLUSTER))
    filters = []
    for size in sizes.tolist():
        stream_ids = np.sort(generator.choice(STREAMS_OF_CLUSTER, size, replace=False, shuffle=False))
        filters.append(StreamFilter.from_pieces(pieces[stream_ids], Geometry(class_for(size) or size)))
    return filters


def _compare_probe(name: str, sizes: NDArray[np.int64], kind: str, *, rounds: int, goal: float) -> Comparison:
    filters = make_filters(sizes)
    matrix = FilterMatrix()
    for object_id, stream_filter in enumerate(filters):
        matrix.add(object_id, stream_filter)
    peers = [pybloom_live.BloomFilter.fromfile(io.BytesIO(one.to_bytes())) for one in filters]
    probes = np.random.default_rng(4).integers(0, STREAMS_OF_CLUSTER, PROBES).tolist()

    def ours() -> list[NDArray[np.int64]]:
        return [matrix.may_hold(stream_id) for stream_id in probes]

    def theirs() -> list[list[int]]:
        return [[number for number, peer in enumerate(peers) if stream_id in peer] for stream_id in probes]

    timings = interleave(ours, theirs, rounds=rounds, same=_same_objects)
    peer = f"pybloom_live in, {len(filters):,} filters, {kind}"
    return timings.compare(name, peer=peer, unit="us", calls=PROBES, goal=goal)


def _same_objects(ours: object, theirs: object) -> bool:
    assert isinstance(ours, list)
    assert isinstance(theirs, list)
    return [sorted(answer.tolist()) for answer in ours] == theirs
