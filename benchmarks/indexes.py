"""How large indexes are in memory and in a bucket, and how fast they are made.

`index_memory`: the range index against a simple implementation: the bytes of an entry.

Both sides insert objects of many streams, as uploads write them: each stream is in some of a node's objects. A node
uploads an object of about 9,000 streams at a time, so the entries of one stream are inserted far apart from each other.
Unless an index packs the data of a stream, these data are scattered over memory.

Measured are 200,000 streams with 20 entries each, from 440 objects of about 9,000 streams. The
peer is a dictionary with a SortedDict for each stream, start -> (end, object id), Python's equivalent of a tree map per
stream. tracemalloc counts both sides, so that containers are counted with all their memory; our own count, ``nbytes``,
must agree with it except for the reserve below.

The first line is the index after the insertion of the objects: their packed arrays, and the free capacity of the newest
chunk, which is reserved address space until it is written to. The second adds the view of a stream, as if every stream
had been looked up within the time to live; it is measured on every fortieth stream.

Indexing an object: parsing its block index, inserting its ranges, and building and probing its bloom filter.

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

`history_year`: the index of the times of a stream that was scaled once a second for a year: 31,536,000 epochs.

Epochs begin a second apart, give or take 200 ms. The peer is a list of 16 bytes an epoch, which each scale would write
as a whole.
"""

from __future__ import annotations

import gc
import io
import struct
import time
import tracemalloc
from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pybloom_live
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from accel.history import records as codecs
from benchmarks.harness import AnswersDiffer, Comparison, interleave
from bloom import FilterMatrix, Geometry, PieceCache, StreamFilter, class_for, hash_ids
from loaders.format.index import BLOCK_SIZE_BYTES_MIN, FOOTER_SIZE_BYTES, ROW_DTYPE, decode_block_index
from range_index import ObjectRanges, StreamRangeIndex
from range_index.epoch_times import LEAF_PARTS, PART_EPOCHS, BlockTimes, EpochTimesRoot
from range_index.stream_index import CHUNKS_OF_ALL

STREAMS_OF_OBJECT = 9_000
NODE = 4


@dataclass(frozen=True, slots=True)
class MadeObject:
    """One object: its id and its rows, ascending by stream."""

    object_id: int
    stream_ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def ranges(self) -> ObjectRanges:
        """The same as separate arrays, as a parser makes them."""
        return ObjectRanges.from_columns(self.stream_ids.copy(), self.starts.copy(), self.ends.copy())

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Stream id, start, end of each row, as a loop over rows reads them."""
        return zip(self.stream_ids.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)


def make_objects(streams: int, entries_of_stream: int, *, seed: int = 20) -> Iterator[MadeObject]:
    """Objects in order of upload, so that each stream is in ``entries_of_stream`` of them, offsets without gaps."""
    generator = np.random.default_rng(seed)
    next_offsets = generator.integers(0, 1000, streams)
    object_id = 0
    for _ in range(entries_of_stream):
        for group in np.array_split(generator.permutation(streams), max(1, round(streams / STREAMS_OF_OBJECT))):
            stream_ids = np.sort(group)
            starts = next_offsets[stream_ids]
            ends = starts + generator.integers(1, 200, len(stream_ids))
            next_offsets[stream_ids] = ends
            yield MadeObject(object_id, stream_ids, starts, ends)
            object_id += 1


ENTRIES_OF_STREAM = 20


MEMORY_STREAMS = 200_000
VIEWED_STREAMS = range(0, MEMORY_STREAMS, 40)
ARRAY_BYTES_MAX = 128 * 1024 * 1024

Trees = dict[int, SortedDict]


def run_memory(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - bytes do not vary, so there is one round
    """Without views, and with a view of every stream."""
    objects = list(make_objects(MEMORY_STREAMS, ENTRIES_OF_STREAM))
    index = StreamRangeIndex(timer=lambda: 0.0, jitter=lambda: 0.5, array_bytes_max=ARRAY_BYTES_MAX)
    array_bytes = _bytes_of(lambda: _insert(index, objects))
    view_bytes = _bytes_of(lambda: _view_some(index))
    _compare_counts(index, array_bytes + view_bytes)
    trees: Trees = {}
    peer_bytes = _bytes_of(lambda: _plant(trees, objects))
    _compare_answers(index, trees)
    all_views_bytes = view_bytes * MEMORY_STREAMS // len(VIEWED_STREAMS)
    return [
        _memory_line("index_memory", array_bytes, peer_bytes, goal=17.5),
        _memory_line("index_memory_all_views", array_bytes + all_views_bytes, peer_bytes, goal=None),
    ]


def _memory_line(name: str, our_bytes: int, peer_bytes: int, goal: float | None) -> Comparison:
    entries = MEMORY_STREAMS * ENTRIES_OF_STREAM
    ours, peers = our_bytes / entries, peer_bytes / entries
    return Comparison.exact(name, ours, "B an entry", "dict of SortedDict", peers, goal)


def _bytes_of(work: Callable[[], None]) -> int:
    gc.collect()
    tracemalloc.start()
    work()
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept


def _insert(index: StreamRangeIndex, objects: list[MadeObject]) -> None:
    for one in objects:
        index.insert(NODE, one.object_id, one.ranges())


def _view_some(index: StreamRangeIndex) -> None:
    for stream_id in VIEWED_STREAMS:
        index.view(NODE, stream_id)


def _plant(trees: Trees, objects: list[MadeObject]) -> None:
    for one in objects:
        for stream_id, start, end in one.rows():
            tree = trees.get(stream_id)
            if tree is None:
                tree = trees[stream_id] = SortedDict()
            tree[start] = (end, one.object_id)


def _compare_counts(index: StreamRangeIndex, traced_bytes: int) -> None:
    reserve_bytes = ARRAY_BYTES_MAX // CHUNKS_OF_ALL
    if not 0.95 * index.nbytes <= traced_bytes <= 1.05 * index.nbytes + reserve_bytes:
        raise AnswersDiffer(f"bytes of the index: expected {traced_bytes}, as traced, found nbytes of {index.nbytes}")


def _compare_answers(index: StreamRangeIndex, trees: Trees) -> None:
    for stream_id in range(0, MEMORY_STREAMS, 997):
        ours = [entry[:3] for entry in index.view(NODE, stream_id)]
        theirs = [(start, *value) for start, value in trees[stream_id].items()]
        if ours != theirs:
            raise AnswersDiffer(f"entries of stream {stream_id}: ours {ours}, the peer {theirs}")


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
        same=lambda taken, also_taken: taken == also_taken and _same_answers(ours, peer, taken),
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


def _same_answers(ours: OurNode, peer: PeerNode, object_id: object) -> bool:
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


EPOCHS: Final = 31_536_000
SECOND_MS: Final = 1_000
JITTER_MS: Final = 200
START_MS: Final = 1_760_000_000_000
MEGABYTE: Final = 1e6

Integers = NDArray[np.int64]

_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""The rounds of SplitMix64, whose results cannot be compressed."""

_LEAF_EPOCHS = PART_EPOCHS * LEAF_PARTS


def times_of(epochs: Integers) -> Integers:
    """The starts of epochs, milliseconds since 1970; the jitter of each follows from its number."""
    mixed = (epochs.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _MIXING:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    jitter = ((mixed >> np.uint64(40)) % np.uint64(2 * JITTER_MS + 1)).astype(np.int64) - JITTER_MS
    times: Integers = START_MS + epochs * SECOND_MS + jitter
    return times


def times_block(root: EpochTimesRoot, kind: str, number: int) -> BlockTimes:
    """A block of the index of times."""
    block = root.leaf(number) if kind == "leaf" else root.part(number)
    epochs = np.arange(block.first_epoch, block.first_epoch + block.epochs, dtype=np.int64)
    return BlockTimes(block, _column(times_of(epochs)))


def times_root() -> EpochTimesRoot:
    """The root as appends would have left it: the tail is never empty."""
    leaves, rest = divmod(EPOCHS - 1, _LEAF_EPOCHS)
    parts, tail = divmod(rest, PART_EPOCHS)
    first_part = leaves * _LEAF_EPOCHS
    first_tail = first_part + parts * PART_EPOCHS
    return EpochTimesRoot(
        _column(times_of(np.arange(first_tail, first_tail + tail + 1, dtype=np.int64))),
        _column(times_of(np.arange(first_part, first_tail, PART_EPOCHS, dtype=np.int64))),
        _column(times_of(np.arange(0, first_part, _LEAF_EPOCHS, dtype=np.int64))),
        visible_epochs=EPOCHS,
    )


def _column(times: Integers) -> array[int]:
    return array("q", times.tobytes())


def run_times(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - bytes do not vary
    """The size of the index of times."""
    root = times_root()
    first_part = root.first_part
    blocks = [times_block(root, "leaf", number) for number in range(len(root.leaf_starts))]
    blocks += [times_block(root, "part", first_part + number) for number in range(len(root.part_starts))]
    size_bytes = len(codecs.EPOCH_TIMES.encode(root)) + sum(map(len, map(codecs.EPOCH_TIMES_BLOCK.encode, blocks)))
    name, peer = "history_year: index of times", "16 B an epoch"
    return [Comparison.exact(name, size_bytes / MEGABYTE, "MB", peer, 16 * EPOCHS / MEGABYTE)]
