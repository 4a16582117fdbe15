"""The history of a stream that was scaled once a second for a year: 31,536,000 epochs, queried through `Stream`.

Values are generated when they are read (`YearStore`), so seconds include this: for a history chunk about as much as
reading it. Every answer is compared with the result computed from the epochs' numbers.

    lines                       the peer
    index of times              a list of 16 bytes an epoch, which each scale would write as a whole
    epoch at a time             a binary search over the chunks of the history, the upstream system's method
    segments, size between      the records of the epochs in between, one after another

There are four segments; epoch e seals the segment that is four epochs old and creates another one with its keys:

    epoch    0         1         2         3         4         5
    keys     0 1 2 3   . . . .   . . . .   . . . .   . . . .   . . . .
    new                4@1       5@2       6@3       7@4       8@5        number e + 3, quarter (e - 1) mod 4

Epochs begin a second apart, give or take 200 ms. Each segment's size, and so the size before any epoch, also follows
from its epoch. The 31,536,000 epochs are not stored: immutable values are computed from their keys, and values written
since the benchmark began are in a store in memory.
"""

from __future__ import annotations

import re
import statistics
import time
import tracemalloc
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accel.history import records as codecs
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.cuts import CutOrder
from accel.history.rules.epochs import EpochRecord, HistoryChunk
from accel.history.rules.segments import Segments
from accel.history.rules.values import NUMBER_BITS, IdMap
from accel.history.store import GivenSizes, Stream, StreamStore, keys
from benchmarks.harness import AnswersDiffer, Comparison
from loaders.errors import KeyMissing
from loaders.layout import TABLES_PREFIX, decode_name, place_of
from loaders.store import CountingStore, MemoryStore
from loaders.store.base import Fetched
from loaders.store.decorated import DecoratedStore
from loaders.tables.conditional_write import Stored, decode_stored, encode_stored
from loaders.versions import Version
from range_index.epoch_times import LEAF_PARTS, PART_EPOCHS, BlockTimes, EpochTimesRoot

EPOCHS: Final = 31_536_000
SEGMENTS: Final = 4
SECOND_MS: Final = 1_000
JITTER_MS: Final = 200
START_MS: Final = 1_760_000_000_000
CHUNK: Final = 1_000

SIZES: Final = 7

Integers = NDArray[np.int64]

_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""The rounds of SplitMix64, whose results cannot be compressed."""

_LEAF_EPOCHS = PART_EPOCHS * LEAF_PARTS
_NUMBERED = re.compile(r"([A-Za-z-]+?)-(\d+)")


def times_of(epochs: Integers) -> Integers:
    """The starts of epochs, milliseconds since 1970; the jitter of each follows from its number."""
    mixed = (epochs.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _MIXING:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    jitter = ((mixed >> np.uint64(40)) % np.uint64(2 * JITTER_MS + 1)).astype(np.int64) - JITTER_MS
    times: Integers = START_MS + epochs * SECOND_MS + jitter
    return times


def ids_of(created: Integers) -> Integers:
    """The segments that epochs created; numbers up to 0 stand for those of epoch 0."""
    return np.where(created > 0, (created << NUMBER_BITS) + created + SEGMENTS - 1, created + SEGMENTS - 1)


def sizes_of(created: Integers) -> Integers:
    """Sizes of the segments that epochs created, once they are sealed."""
    return SECOND_MS + created % SIZES


def size_before(created: int) -> int:
    """The total size of all segments created before this one, including those of epoch 0 (numbers -3 to 0)."""
    whole, rest = divmod(created + SEGMENTS - 1, SIZES)
    first = 1 - SEGMENTS
    around = int(sizes_of(np.arange(first, first + SIZES)).sum())
    return whole * around + int(sizes_of(np.arange(first, first + rest)).sum())


def rows_of(created: Integers) -> Segments:
    """The segments that epochs created."""
    quarter = (created - 1) % SEGMENTS / SEGMENTS
    times = times_of(np.maximum(created, 0))
    return Segments.make(ids_of(created), times, quarter, quarter + 1 / SEGMENTS)


def active_in(epoch: int) -> Integers:
    """The epochs in which the active segments of this epoch were created."""
    return np.arange(epoch - SEGMENTS + 1, epoch + 1, dtype=np.int64)


def epoch_record(epoch: int) -> EpochRecord:
    """The record of an epoch."""
    return EpochRecord(epoch, epoch, rows_of(active_in(epoch)), int(times_of(np.array([epoch]))[0]), 0, 0)


def cut_at(epoch: int) -> dict[int, int]:
    """A cut through the middle of all segments of an epoch."""
    created = active_in(epoch)
    return dict(zip(ids_of(created).tolist(), (sizes_of(created) // 2).tolist(), strict=True))


def size_till(epoch: int) -> int:
    """The size of the stream before that cut."""
    return size_before(epoch - SEGMENTS + 1) + sum(cut_at(epoch).values())


def chunk_of(number: int) -> HistoryChunk:
    """The changes of a thousand epochs."""
    epochs = np.arange(number * CHUNK, (number + 1) * CHUNK, dtype=np.int64)
    sealed = epochs[epochs > 0] - SEGMENTS
    created = epochs if number else np.concatenate((active_in(0), epochs[1:]))
    return HistoryChunk(
        number * CHUNK,
        epochs,
        times_of(epochs),
        sealed=rows_of(sealed),
        sealed_stops=np.cumsum(epochs > 0),
        created=rows_of(created),
        created_stops=np.cumsum(np.where(epochs > 0, 1, SEGMENTS)),
    )


def shard_of(number: int) -> IdMap:
    """Sealed sizes of the segments that a thousand epochs created."""
    created = np.arange(number * CHUNK, (number + 1) * CHUNK, dtype=np.int64)
    if not number:
        created = np.concatenate((active_in(0), created[1:]))
    created = created[created <= EPOCHS - 1 - SEGMENTS]
    return IdMap(ids_of(created), sizes_of(created))


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


class YearStore(DecoratedStore):
    """A bucket with one stream that is a year old. Threads: one.

    Args:
        store: in memory, with a stream that was created.
        metadata_prefix: the prefix of the keys of that stream's table.
    """

    def __init__(self, store: MemoryStore, metadata_prefix: str) -> None:
        super().__init__(store)
        self._prefix = metadata_prefix
        self._gone: set[str] = set()
        self.root = times_root()
        self._overwrite(keys.CURRENT_EPOCH, codecs.EPOCH_RECORD.encode(epoch_record(EPOCHS - 1)))
        self._overwrite(keys.TIMES_ROOT, codecs.EPOCH_TIMES.encode(self.root))
        for key in (keys.epoch_key(0), keys.chunk_key(0), keys.shard_key(0)):
            self._store.delete(self._prefix + key)

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """The written value of a key, or else the computed one."""
        try:
            return super().get(key, size_bytes_max=size_bytes_max)
        except KeyMissing:
            made = None if key in self._gone else self._made(key)
            if made is None:
                raise
            stored = encode_stored(
                Stored(made, Version("", 1, b"made for reading", final=True)), place_of(key, TABLES_PREFIX)
            )
            return Fetched(stored, "made", len(stored))

    def delete(self, key: str) -> None:
        """Delete a written or computed value."""
        self._gone.add(key)
        super().delete(key)

    def _made(self, key: str) -> bytes | None:
        if not key.startswith(self._prefix):
            return None
        match = _NUMBERED.fullmatch(decode_name(key.removeprefix(self._prefix)))
        return None if match is None else self._numbered(match[1], int(match[2]))

    def _numbered(self, kind: str, number: int) -> bytes | None:
        makers: dict[str, Callable[[], bytes | None]] = {
            "epochRecord": lambda: codecs.EPOCH_RECORD.encode(epoch_record(number)) if number < EPOCHS else None,
            "historyTimeSeriesChunk": lambda: codecs.HISTORY_CHUNK.encode(chunk_of(number)),
            "historyIndex-leaf": lambda: codecs.EPOCH_TIMES_BLOCK.encode(times_block(self.root, "leaf", number)),
            "historyIndex-part": lambda: codecs.EPOCH_TIMES_BLOCK.encode(times_block(self.root, "part", number)),
            "segmentsSealedSizeMapShard": lambda: codecs.SEALED_SIZES.encode(shard_of(number)),
        }
        return makers[kind]() if kind in makers else None

    def _overwrite(self, name: str, value: bytes) -> None:
        key = self._prefix + name
        before = self._store.get(key)
        version = decode_stored(before.body, place_of(key, TABLES_PREFIX), etag=before.etag, where=key).version
        self._store.put(key, encode_stored(Stored(value, version), place_of(key, TABLES_PREFIX)))


SCOPE, NAME = "bench", "year"
SEED = 20261121
TIMES = 10_000
PEER_TIMES = 100
WALK_EPOCHS = 10_000
MEMORY_MAX_BYTES = 64 * 2**20
MEGABYTE = 1e6
CURRENT_EPOCH = "currentEpochRecord"
PLACES = {"head": 0, "middle": EPOCHS // 2, "tail": EPOCHS - 1 - WALK_EPOCHS}


@dataclass(frozen=True)
class Asked:
    """The cost of a query."""

    calls: float
    seconds: float


@dataclass
class Year:
    """The stream, opened by a client with an empty cache, and a count of its requests."""

    store: CountingStore
    stream: Stream

    @classmethod
    def open(cls) -> Year:
        """Open the stream in a new bucket."""
        memory = MemoryStore()
        streams = StreamStore.open(memory)
        streams.create_scope(SCOPE)
        streams.create_stream(SCOPE, NAME, StreamConfiguration(min_segments=4), START_MS)
        current = next(info.key for info in memory.list("") if info.key.endswith(CURRENT_EPOCH))
        store = CountingStore(YearStore(memory, current.removesuffix(CURRENT_EPOCH)))
        host = GivenSizes(cut_at(EPOCHS - 1))
        return cls(store, StreamStore.open(store, host=host).stream(SCOPE, NAME))

    def ask(self, question: Callable[[Stream], object], expected: object) -> Asked:
        """Send a query to the stream, and compare the answer.

        Raises:
            AnswersDiffer: the answer is not the expected one.
        """
        before, start = self.store.snapshot().total.requests, time.perf_counter()
        answer = question(self.stream)
        seconds = time.perf_counter() - start
        if answer != expected:
            raise AnswersDiffer(f"expected {str(expected)[:80]}, found {str(answer)[:80]}")
        return Asked(self.store.snapshot().total.requests - before, seconds)


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - times are queried thousands of times, the rest is long
    """Run all comparisons."""
    return [index_line(), *time_lines(), *cut_lines(), memory_line()]


def index_line() -> Comparison:
    """The size of the index of times."""
    root = times_root()
    first_part = root.first_part
    blocks = [times_block(root, "leaf", number) for number in range(len(root.leaf_starts))]
    blocks += [times_block(root, "part", first_part + number) for number in range(len(root.part_starts))]
    size_bytes = len(codecs.EPOCH_TIMES.encode(root)) + sum(map(len, map(codecs.EPOCH_TIMES_BLOCK.encode, blocks)))
    return _line("index of times", size_bytes / MEGABYTE, "MB", "16 B an epoch", 16 * EPOCHS / MEGABYTE)


def time_lines() -> list[Comparison]:
    """Epochs at random times: of a client that reads each leaf for the first time, then of a client with all cached."""
    random = np.random.default_rng(SEED)
    drawn = random.integers(START_MS - SECOND_MS, START_MS + EPOCHS * SECOND_MS, TIMES)
    asked = list(zip(drawn.tolist(), _epochs_at(drawn).tolist(), strict=True))
    year, peer = Year.open(), Year.open()
    searched = [peer.ask(partial(_searched, time_ms=time_ms), epoch) for time_ms, epoch in asked[:PEER_TIMES]]
    lines = []
    for name in ("first time", "again"):
        costs = [year.ask(partial(_told, time_ms=time_ms), epoch) for time_ms, epoch in asked]
        lines += _lines(f"epoch at a time, {name}", costs, "binary search over chunks", searched)
    return lines


def cut_lines() -> list[Comparison]:
    """Two cuts that are 10,000 epochs apart, at the head, in the middle and at the tail."""
    lines = []
    for name, first in PLACES.items():
        last = first + WALK_EPOCHS
        one, other = cut_at(first), cut_at(last)
        ids = ids_of(np.arange(first - 3, last + 1)).tolist()
        walked = Year.open().ask(partial(_walked, first=first, last=last), ids)
        between = Year.open().ask(lambda stream: stream.cuts.segments_between(one, other).tolist(), ids)  # noqa: B023 - called at once
        size = Year.open().ask(partial(_size, start=one, end=other), size_till(last) - size_till(first))
        order = Year.open().ask(partial(_order, one=one, other=other), CutOrder.BEFORE)
        for what, cost in (("segments between", between), ("size between", size), ("compare", order)):
            lines += _lines(f"{what}, {name}", [cost], "the record of each epoch", [walked])
    return lines


def memory_line() -> Comparison:
    """The peak memory of adding up 10,000 epochs, beside the client's caches."""
    first = PLACES["middle"]
    year, one, other = Year.open(), cut_at(first), cut_at(first + WALK_EPOCHS)
    tracemalloc.start()
    year.stream.cuts.size_between(one, other)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    name = "memory of size between"
    return _line(name, peak_bytes / MEGABYTE, "MB", "the promise", MEMORY_MAX_BYTES / MEGABYTE)


def _epochs_at(times_ms: Integers) -> Integers:
    near = np.clip((times_ms - START_MS) // SECOND_MS, 1, EPOCHS - 2)
    begun = [(times_of(near + step) <= times_ms).astype(np.int64) for step in (-1, 0, 1)]
    epochs: Integers = np.maximum(near - 2 + sum(begun), 0)
    return epochs


def _told(stream: Stream, time_ms: int) -> int:
    return stream.epochs.epoch_at(time_ms)


def _searched(stream: Stream, time_ms: int) -> int:
    low, high = 0, EPOCHS // CHUNK
    times: Integers = np.empty(0, dtype=np.int64)
    while low < high:
        middle = (low + high) // 2
        (chunk,) = stream.epochs.chunks(middle * CHUNK, middle * CHUNK + CHUNK - 1)
        if chunk.times_ms[0] <= time_ms:
            low, times = middle + 1, chunk.times_ms
        else:
            high = middle
    return max(0, (low - 1) * CHUNK + int(np.searchsorted(times, time_ms, side="right")) - 1) if low else 0


def _size(stream: Stream, start: Mapping[int, int], end: Mapping[int, int]) -> int:
    return stream.cuts.size_between(start, end)


def _order(stream: Stream, one: Mapping[int, int], other: Mapping[int, int]) -> CutOrder:
    return stream.cuts.compare(one, other)


def _walked(stream: Stream, first: int, last: int) -> list[int]:
    records = map(stream.epochs.epoch, range(first, last + 1))
    return sorted({segment_id for record in records for segment_id in record.segments.ids.tolist()})


def _lines(name: str, ours: list[Asked], peer: str, peers: list[Asked]) -> list[Comparison]:
    calls, peer_calls = (statistics.mean(asked.calls for asked in side) for side in (ours, peers))
    times, peer_times = (statistics.median(asked.seconds for asked in side) * 1e3 for side in (ours, peers))
    return [_line(name, calls, "calls", peer, peer_calls), _line(name, times, "ms", peer, peer_times)]


def _line(name: str, value: float, unit: str, peer: str, peer_value: float) -> Comparison:
    return Comparison.exact(f"history_year: {name}", value, unit, peer, peer_value)
