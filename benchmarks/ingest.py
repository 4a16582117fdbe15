"""Indexing an object: parsing its block index, inserting its ranges, and building and probing its bloom filter.

`parse`: parsing the block indexes of ten objects, 9,000 rows each, into one range a stream.

Ours also checks every rule of the format; the peer, a loop over rows with struct, checks nothing.

`ingest`: indexing one object of 9,000 streams, after 100 others of its node.

Both sides start with the bytes of the object's block index, as from a GET, and end when every stream of it can be found
through the range index and through the object's bloom filter. Ours also checks every rule of the format. The ids were
hashed before, like the streams of a running broker; the peer cannot use hashes of other objects.

Each round indexes another object, so that no object is replaced.

`filter_build`: building the filters of ten objects of 9,000 streams each: ours at once, pybloom_live id by id.

Both end with the stored bytes, which must be equal. In the first line all ids are hashed; in the second the ids were
hashed before, for other objects, like most ids of a running broker (the peer cannot use these hashes).

`filter_probe`: one stream against the filters of a node's 5,000 objects: ours bit-sliced, pybloom_live one by one.

Both return the objects that may hold the stream. The first line has objects of 9,000 streams each; in the second the
sizes follow Zipf's law (the frequency of size n is proportional to 1 / n, from 1 to 20,000), so that the objects are in
nearly all capacity classes. The peer reads the same filters from their stored bytes.
"""

from __future__ import annotations

import io
import struct
import time
from bisect import bisect_right, insort

import numpy as np
import pybloom_live
from numpy.typing import NDArray

from benchmarks.harness import Comparison, interleave
from benchmarks.range_index import NODE, STREAMS_OF_OBJECT
from bloom import FilterMatrix, Geometry, PieceCache, StreamFilter, class_for, hash_ids
from loaders.format.index import BLOCK_SIZE_BYTES_MIN, FOOTER_SIZE_BYTES, ROW_DTYPE, decode_block_index
from range_index import StreamRangeIndex
from range_index.object_ranges import ObjectRanges

OBJECTS = 10
STREAMS_OF_CLUSTER = 200_000

_ROW = struct.Struct(">qqiiqi")

Ranges = dict[int, tuple[int, int, bool]]


def run_parse(rounds: int = 7) -> list[Comparison]:
    """One comparison; the value is that of one object."""
    indexes = [make_index_bytes(object_id) for object_id in range(OBJECTS)]

    def ours() -> list[ObjectRanges]:
        return [parsed(data) for data in indexes]

    def theirs() -> list[Ranges]:
        return [ranges_by_row_loop(data) for data in indexes]

    timings = interleave(ours, theirs, rounds=rounds, same=_same_ranges)
    peer = f"row loop with struct, {STREAMS_OF_OBJECT:,} rows"
    return [timings.compare("parse", peer=peer, unit="us", calls=OBJECTS, goal=12)]


def parsed(data: bytes) -> ObjectRanges:
    """Ours: the ranges of an object whose data section has the length of ``make_index_bytes``."""
    data_size_bytes = STREAMS_OF_OBJECT * BLOCK_SIZE_BYTES_MIN
    object_size_bytes = data_size_bytes + len(data) + FOOTER_SIZE_BYTES
    index = decode_block_index(
        data, data_size_bytes=data_size_bytes, key="benchmark", object_size_bytes=object_size_bytes
    )
    return index.object_ranges()


def ranges_by_row_loop(data: bytes) -> Ranges:
    """For each stream its start, its end, and whether there is a hole in between; row by row."""
    ranges: Ranges = {}
    for stream_id, start, end_delta, *_ in _ROW.iter_unpack(data):
        known = ranges.get(stream_id)
        if known is None:
            ranges[stream_id] = (start, start + end_delta, False)
        else:
            ranges[stream_id] = (known[0], start + end_delta, known[2] or start != known[1])
    return ranges


def _same_ranges(ours: object, theirs: object) -> bool:
    assert isinstance(ours, list)
    return [_as_dict(ranges) for ranges in ours] == theirs


def _as_dict(ranges: ObjectRanges) -> Ranges:
    holed = np.zeros(len(ranges), dtype=np.bool_)
    holed[ranges.holed] = True
    columns = zip(ranges.starts.tolist(), ranges.ends.tolist(), holed.tolist(), strict=True)
    return dict(zip(ranges.stream_ids.tolist(), columns, strict=True))


OBJECTS_BEFORE = 100
OFFSETS_OF_OBJECT = 200
COMPARED_STREAMS = 50


Answer = tuple[bytes, list[tuple[int, ...] | None]]
"""The filter's stored bytes, and for some streams the entry that holds their last offset."""


def run_ingest(rounds: int = 7) -> list[Comparison]:
    """One comparison; the value is that of one object."""
    ours, peer = OurNode(), PeerNode()
    for object_id in range(OBJECTS_BEFORE):
        data = make_index_bytes(object_id)
        ours.take_in(object_id, data)
        peer.take_in(object_id, data)
    later = range(OBJECTS_BEFORE, OBJECTS_BEFORE + rounds + 1)  # one round is not measured
    objects = [(object_id, make_index_bytes(object_id)) for object_id in later]
    our_objects, peer_objects = iter(objects), iter(objects)
    timings = interleave(
        lambda: ours.take_in(*next(our_objects)),
        lambda: peer.take_in(*next(peer_objects)),
        rounds=rounds,
        same=lambda taken, also_taken: taken == also_taken and _same(ours, peer, taken),
    )
    peer_name = "row loop + dict of lists with bisect + pybloom_live add loop"
    return [timings.compare("ingest", peer=peer_name, unit="us", goal=20)]


def make_index_bytes(object_id: int) -> bytes:
    """A block index of 9,000 rows, each of another stream; the offsets follow those of the objects before."""
    generator = np.random.default_rng(object_id)
    rows = np.zeros(STREAMS_OF_OBJECT, dtype=ROW_DTYPE)
    rows["stream_id"] = np.sort(generator.choice(STREAMS_OF_CLUSTER, STREAMS_OF_OBJECT, replace=False))
    rows["start"] = object_id * OFFSETS_OF_OBJECT
    rows["end_delta"] = generator.integers(1, OFFSETS_OF_OBJECT, STREAMS_OF_OBJECT)
    rows["record_count"] = 1
    rows["position"] = np.arange(STREAMS_OF_OBJECT) * BLOCK_SIZE_BYTES_MIN
    rows["size_bytes"] = BLOCK_SIZE_BYTES_MIN
    return rows.tobytes()


class OurNode:
    """Parser, range index, filter and filter matrix of this project."""

    def __init__(self) -> None:
        self._index = StreamRangeIndex(timer=time.monotonic, jitter=lambda: 0.5)  # noqa: TID251 - a timer passed in
        self._matrix = FilterMatrix()
        self._pieces = PieceCache()
        self._pieces.hash_ids(np.arange(STREAMS_OF_CLUSTER))
        self._newest = StreamFilter.build(np.arange(1))

    def take_in(self, object_id: int, data: bytes) -> int:
        """Parse, index, build the filter and add it to the matrix."""
        ranges = parsed(data)
        self._index.insert(NODE, object_id, ranges)
        self._newest = StreamFilter.build(ranges.stream_ids, cache=self._pieces)
        self._matrix.add(object_id, self._newest)
        return object_id

    def answer(self, stream_ids: list[int], offset: int) -> Answer:
        """The stored filter and the entries of the newest object."""
        entries = [self._index.floor(NODE, stream_id, offset) for stream_id in stream_ids]
        return self._newest.to_bytes(), [entry and entry[:3] for entry in entries]


class PeerNode:
    """The same as loops over rows."""

    def __init__(self) -> None:
        self._entries: dict[int, list[tuple[int, int, int]]] = {}
        self._filters: dict[int, pybloom_live.BloomFilter] = {}
        self._capacity = class_for(STREAMS_OF_OBJECT)

    def take_in(self, object_id: int, data: bytes) -> int:
        """Row by row."""
        stream_filter = pybloom_live.BloomFilter(self._capacity, 0.01)
        for stream_id, (start, end, _) in ranges_by_row_loop(data).items():
            insort(self._entries.setdefault(stream_id, []), (start, end, object_id))
            stream_filter.add(stream_id)
        self._filters[object_id] = stream_filter
        return object_id

    def answer(self, stream_ids: list[int], offset: int) -> Answer:
        """The stored filter and the entries of the newest object."""
        stored = io.BytesIO()
        self._filters[max(self._filters)].tofile(stored)
        return stored.getvalue(), [self._floor(stream_id, offset) for stream_id in stream_ids]

    def _floor(self, stream_id: int, offset: int) -> tuple[int, int, int] | None:
        entries = self._entries.get(stream_id, [])
        position = bisect_right(entries, (offset, float("inf")))
        return entries[position - 1] if position else None


def _same(ours: OurNode, peer: PeerNode, object_id: object) -> bool:
    stream_ids = np.random.default_rng(0).integers(0, STREAMS_OF_CLUSTER, COMPARED_STREAMS).tolist()
    assert isinstance(object_id, int)
    offset = object_id * OFFSETS_OF_OBJECT
    return ours.answer(stream_ids, offset) == peer.answer(stream_ids, offset)


def run_build(rounds: int = 7) -> list[Comparison]:
    """Hashing included, and ids hashed before; the values are those of one filter."""
    objects = [make_stream_ids(STREAMS_OF_OBJECT, seed) for seed in range(OBJECTS)]
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
        return [StreamFilter.build(stream_ids, STREAMS_OF_OBJECT, cache=cache).to_bytes() for stream_ids in objects]

    def theirs() -> list[bytes]:
        return [pybloom_bytes(stream_ids, STREAMS_OF_OBJECT) for stream_ids in objects]

    peer = f"pybloom_live add loop, {STREAMS_OF_OBJECT:,} ids"
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


PROBED_OBJECTS = 5_000
STREAMS_MAX = 20_000
PROBES = 20


def run_probe(rounds: int = 7) -> list[Comparison]:
    """Objects of one size, and of sizes by Zipf's law."""
    equal_sizes = np.full(PROBED_OBJECTS, STREAMS_OF_OBJECT)
    return [
        _compare_probe("filter_probe", equal_sizes, f"all of {STREAMS_OF_OBJECT:,} ids", rounds=rounds, goal=150),
        _compare_probe("filter_probe_zipf", zipf_sizes(PROBED_OBJECTS), "mixed (zipf) sizes", rounds=rounds, goal=60),
    ]


def zipf_sizes(objects: int, seed: int = 2) -> NDArray[np.int64]:
    """The number of streams of each object: size n with a probability proportional to 1 / n."""
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
