"""The history of a stream that was scaled once a second for a year: 31,536,000 epochs, asked through `Stream`.

Values are made as they are asked for (`synthetic_year`), so seconds contain what making them takes: for a history chunk
about as much as reading it. Every answer is compared with what follows from the epochs' numbers.

    lines                       the peer
    index of times              a list of 16 bytes an epoch, which each scale would write as a whole
    epoch at a time             a binary search over the chunks of the history, as the upstream system does it
    segments, size between      the records of the epochs in between, one after the other
    cut before a position       looking at all recorded cuts
    a run of retention          the size counted from the stream's beginning, a chunk and a shard for each 1,000 epochs
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from accel.history import records as codecs
from accel.history.rules.configuration import RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.cuts import CutOrder
from accel.history.rules.retention import RetentionEntry
from accel.history.store import GivenSizes, Stream, StreamStore
from benchmarks.harness import AnswersDiffer, Comparison
from benchmarks.synthetic_year import (
    CHUNK,
    CUT_EPOCHS,
    CUTS,
    EPOCHS,
    SECOND_MS,
    START_MS,
    YearStore,
    cut_at,
    cut_times,
    ids_of,
    size_till,
    times_block,
    times_of,
    times_root,
)
from loaders.store import CountingStore, MemoryStore

SCOPE, NAME = "bench", "year"
SEED = 20261121
TIMES = 10_000
PEER_TIMES = 100
WALK_EPOCHS = 10_000
MEMORY_MAX_BYTES = 64 * 2**20
MEGABYTE = 1e6
CURRENT_EPOCH = "currentEpochRecord"
PLACES = {"head": 0, "middle": EPOCHS // 2, "tail": EPOCHS - 1 - WALK_EPOCHS}
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Asked:
    """What a question cost."""

    calls: float
    seconds: float


@dataclass
class Year:
    """The stream, opened by a client that has read nothing, and a count of what it asks."""

    store: CountingStore
    stream: Stream

    @classmethod
    def open(cls) -> Year:
        """In a new bucket. All of the year is kept but half an hour, which a run of retention deletes."""
        memory = MemoryStore()
        streams = StreamStore.open(memory)
        streams.create_scope(SCOPE)
        kept_ms = (CUTS - 1) * CUT_EPOCHS * SECOND_MS
        policy = RetentionPolicy(RetentionKind.TIME, kept_ms)
        streams.create_stream(SCOPE, NAME, StreamConfiguration(min_segments=4, retention=policy), START_MS)
        current = next(info.key for info in memory.list("") if info.key.endswith(CURRENT_EPOCH))
        store = CountingStore(YearStore(memory, current.removesuffix(CURRENT_EPOCH)))
        host = GivenSizes(cut_at(EPOCHS - 1))
        return cls(store, StreamStore.open(store, host=host).stream(SCOPE, NAME))

    def ask(self, question: Callable[[Stream], object], expected: object) -> Asked:
        """Ask the stream, and compare the answer.

        Raises:
            AnswersDiffer: it is another one.
        """
        before, start = self.store.snapshot().total.requests, time.perf_counter()
        found = question(self.stream)
        seconds = time.perf_counter() - start
        if found != expected:
            raise AnswersDiffer(f"expected {str(expected)[:80]}, found {str(found)[:80]}")
        return Asked(self.store.snapshot().total.requests - before, seconds)


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - times are asked thousands of times, the rest is long
    """All lines."""
    return [index_line(), *time_lines(), *cut_lines(), *recorded_cut_lines(), *retention_lines(), memory_line()]


def index_line() -> Comparison:
    """What the index of times takes."""
    root = times_root()
    first_part = root.first_part
    blocks = [times_block(root, "leaf", number) for number in range(len(root.leaf_starts))]
    blocks += [times_block(root, "part", first_part + number) for number in range(len(root.part_starts))]
    size_bytes = len(codecs.EPOCH_TIMES.encode(root)) + sum(map(len, map(codecs.EPOCH_TIMES_BLOCK.encode, blocks)))
    return _line("index of times", size_bytes / MEGABYTE, "MB", "16 B an epoch", 16 * EPOCHS / MEGABYTE)


def time_lines() -> list[Comparison]:
    """Epochs at random times: of a client that meets each leaf for the first time, then of one that has met all."""
    random = np.random.default_rng(SEED)
    drawn = random.integers(START_MS - SECOND_MS, START_MS + EPOCHS * SECOND_MS, TIMES)
    asked = list(zip(drawn.tolist(), _epochs_at(drawn).tolist(), strict=True))
    year, peer = Year.open(), Year.open()
    searched = [peer.ask(partial(_searched, time_ms=time_ms), epoch) for time_ms, epoch in asked[:PEER_TIMES]]
    lines = []
    for name in ("first time", "again"):
        found = [year.ask(partial(_told, time_ms=time_ms), epoch) for time_ms, epoch in asked]
        lines += _lines(f"epoch at a time, {name}", found, "binary search over chunks", searched)
    return lines


def cut_lines() -> list[Comparison]:
    """Two cuts that are 10,000 epochs apart, at the head, in the middle and at the tail."""
    lines = []
    for name, first in PLACES.items():
        last = first + WALK_EPOCHS
        one, other = cut_at(first), cut_at(last)
        ids = ids_of(np.arange(first - 3, last + 1)).tolist()
        walked = Year.open().ask(partial(_walked, first=first, last=last), ids)
        between = Year.open().ask(lambda stream: stream.cuts.segments_between(one, other).tolist(), ids)  # noqa: B023 - asked at once
        size = Year.open().ask(partial(_size, start=one, end=other), size_till(last) - size_till(first))
        order = Year.open().ask(partial(_order, one=one, other=other), CutOrder.BEFORE)
        for what, cost in (("segments between", between), ("size between", size), ("compare", order)):
            lines += _lines(f"{what}, {name}", [cost], "the record of each epoch", [walked])
    return lines


def recorded_cut_lines() -> list[Comparison]:
    """The last of 17,520 recorded cuts before a position."""
    found, looked = [], []
    for name in PLACES:
        number = {"head": 1, "middle": CUTS // 2, "tail": CUTS - 2}[name]
        position, recorded = cut_at(number * CUT_EPOCHS + 5), int(cut_times()[number])
        found.append(Year.open().ask(partial(_reference, cut=position), recorded))
        looked.append(Year.open().ask(partial(_looked, count=number + 1), number + 1))
    return _lines("recorded cut before a position", found, "all cuts up to there", looked)


def retention_lines() -> list[Comparison]:
    """A run that records a cut at the tail, and truncates by half an hour."""
    now_ms = START_MS + (EPOCHS + 1) * SECOND_MS
    second = RetentionEntry(int(cut_times()[1]), size_till(CUT_EPOCHS))
    cost = Year.open().ask(lambda stream: stream.retention.run(now_ms), second)
    return [_line("a run of retention", cost.calls, "calls", "size from the beginning", 2 * EPOCHS / CHUNK)]


def memory_line() -> Comparison:
    """The most that adding up 10,000 epochs takes beside what the client keeps."""
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
    return sorted({each for record in records for each in record.segments.ids.tolist()})


def _reference(stream: Stream, cut: dict[int, int]) -> int | None:
    found = stream.retention.reference_before(cut)
    return None if found is None else found.recording_time_ms


def _looked(stream: Stream, count: int) -> int:
    retention = stream.retention
    return sum(1 for each in retention.read()[:count] if len(retention.cut(each.recording_time_ms).cut))


def _lines(name: str, ours: list[Asked], peer: str, peers: list[Asked]) -> list[Comparison]:
    calls, peer_calls = (statistics.mean(each.calls for each in side) for side in (ours, peers))
    times, peer_times = (statistics.median(each.seconds for each in side) * 1e3 for side in (ours, peers))
    return [_line(name, calls, "calls", peer, peer_calls), _line(name, times, "ms", peer, peer_times)]


def _line(name: str, value: float, unit: str, peer: str, peer_value: float) -> Comparison:
    full_name = f"history_year: {name}"
    return Comparison(
        full_name, value=value, unit=unit, peer=peer, peer_value=peer_value, ratio=peer_value / value, runs=1
    )
