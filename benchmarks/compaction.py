"""Merging objects: the work of a merge, and what becomes of a list in the course of 30 days.

`compaction_copy`: ten objects of 10 MB in memory, without a store: 9,000 streams of small blocks, 900 and 90 of larger
ones. Ours plans, copies, makes the new index, checks the header of every block, and hashes the bytes read and the bytes
to be sent: the whole work of a merge besides requests. The peer is a simple loop over the rows of `BlockIndex`: merged
by a heap, each block cut out, checked and appended, rows coalesced and encoded one by one. Each round must produce the
same object on both sides, byte for byte.

`compaction_aging`: 30 days of uploads in virtual time, without any bytes; the planning of compactions is what runs. The
results are exact: bytes that are rewritten for each uploaded one, the longest list, and the GETs of cold lookups in the
list that is left, against a list of as many objects of one size.

`compaction_uploads`: what a node's uploads wait for while 32 groups of its list are merged and committed at once, as
tasks of Spark do it: in threads that take turns in simulated time, so that the load of the machine changes nothing.
Each merge takes 3 s, and requests take what `LatencyModel` draws. The values are the 99th percentiles of 1,500 uploads,
one after another; the peer is the same list without a compaction, half of it before and half of it after. A ratio of
0.5 is the goal: at most twice as long. The lines are for requests that take effect at their start and within their
latency, and for tasks that take their ids themselves and commit when they are ready (300 uploads). Each line has the
number of groups a second.
"""

from __future__ import annotations

import heapq
import random
import statistics
import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from xxhash import xxh3_64

from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog.parts import catalog_parts, existing_format
from accel.catalog.verify import verify
from accel.compaction import (
    CompactionReport,
    CompactionSettings,
    GroupItem,
    GroupResult,
    Status,
    compact,
    plan_compaction,
    work_on,
)
from accel.compaction.grouping import GroupLimits, MergeCandidate, Run, choose_groups, earliest_starts
from accel.compaction.planning import GROUP_INDEX_SIZE_BYTES_MAX
from accel.image import MetadataImage, make_node
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, interleave
from benchmarks.lookups import (
    NODE_ID,
    OTHER_STREAM_ID,
    STREAM_ID,
    End,
    Node,
    empty_knowledge,
    filters_known,
    measure,
    with_end,
)
from loaders.format import BlockIndex, BlockRow, ObjectEncoder, RecordBatch, open_tail
from loaders.format.index import ROW_SIZE_BYTES, Footer
from loaders.format.object_encoder import STREAMS_MAX
from loaders.merge.merger import join_copies
from loaders.merge.plan import Copies, MergedOutput, MergeLimits, plan_merge
from loaders.merge.transfer import PartBuffer, Source, SourceSpan, divide, locate
from loaders.object_ref import ObjectRef
from loaders.plan import Spread
from loaders.settings import MergeSettings
from loaders.store import Body, MemoryStore, ObjectStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from loaders.threads import settle
from range_index import ObjectRanges

OBJECTS: Final = 10
OBJECT_SIZE_BYTES: Final = 10_000_000
SHAPES: Final = ((9_000, 1_100), (900, 2_780), (90, 13_900))
"""Streams of each object, and bytes of a block."""

LIMITS: Final = MergeLimits()
WHOLE: Final = MergeSettings(band_size_bytes=1 << 30)
NO_STREAMS: Final = np.empty(0, dtype=np.int64)

_HEADER = struct.Struct(">BBiiB")


class Group(NamedTuple):
    """Objects to merge, opened."""

    sources: list[Source]
    spans: list[SourceSpan]
    chunks: list[memoryview]
    buffers: dict[int, PartBuffer]

    @property
    def indexes(self) -> list[BlockIndex]:
        """The indexes of all sources."""
        return [source.index for source in self.sources]


def run(rounds: int = 7) -> list[Comparison]:
    """Each shape against a loop over rows; the values are those of the whole group."""
    return [_compare(streams, block_size_bytes, rounds) for streams, block_size_bytes in SHAPES]


def _compare(streams: int, block_size_bytes: int, rounds: int) -> Comparison:
    group = make_group(streams, block_size_bytes)
    megabytes = sum(source.ref.size_bytes for source in group.sources) / 1e6
    shape = f"{megabytes:,.0f} MB of {streams:,} streams, blocks of {block_size_bytes:,} bytes"

    merging = interleave(partial(merged, group), partial(merged_by_row_loop, group), rounds=rounds, same=_same_bytes)
    return merging.compare(f"compaction_copy_{streams}", peer=f"row by row, {shape}", unit="ms")


def make_group(streams: int, block_size_bytes: int) -> Group:
    """Objects that hold the same streams one after another, like the uploads of a node."""
    generator = np.random.default_rng(5)
    batches = OBJECT_SIZE_BYTES // (streams * block_size_bytes)
    sources = []
    for number in range(OBJECTS):
        payload = generator.bytes(block_size_bytes - 43)
        encoder = ObjectEncoder(1)
        parts = [
            encoder.write(stream_id, [RecordBatch(stream_id, 1, 10 * offset, 10, payload) for offset in offsets])
            for offsets in [range(number * batches, (number + 1) * batches)]
            for stream_id in range(streams)
        ]
        sources.append(_opened(number, b"".join([*parts, encoder.finish()])))
    spans = [SourceSpan(number, 0, source.ref.size_bytes) for number, source in enumerate(sources)]
    return Group(sources, spans, [memoryview(source.body or b"") for source in sources], {})


def _opened(number: int, body: bytes) -> Source:
    index = open_tail(body, object_size_bytes=len(body), key="benchmark")
    assert isinstance(index, BlockIndex)
    return Source(ObjectRef(number, len(body), index.nbytes), "benchmark", index, body)


def merged(group: Group) -> list[memoryview]:
    """Ours: the parts of the merged object."""
    (output,) = plan_merge(group.indexes, NO_STREAMS, NO_STREAMS, LIMITS).outputs
    return [_checked(group, number, copies, tail) for number, (copies, tail) in enumerate(_parts(output))]


def _parts(output: MergedOutput) -> Iterator[tuple[Copies, bytes]]:
    for part in (part for band in divide([output], WHOLE) for part in band):
        yield output.copies[part.first : part.end], output.tail if part.is_last else b""


def _checked(group: Group, number: int, copies: Copies, tail: bytes) -> memoryview:
    located = locate(group.spans, copies["source"], copies["position"])
    return join_copies(_buffer(group, number), group.sources, copies, located, group.chunks, tail).data


def _buffer(group: Group, number: int) -> PartBuffer:
    # A merge reuses two or three buffers; here each part has its own, as all parts are compared afterwards.
    buffer = group.buffers.setdefault(number, PartBuffer())
    buffer.clear()
    return buffer


def merged_by_row_loop(group: Group) -> list[Body]:
    """The same object by a loop over the sorted rows of all sources."""
    numbered = [[(row, number) for row in index] for number, index in enumerate(group.indexes)]
    data, index, read = bytearray(), bytearray(), xxh3_64()
    last: BlockRow | None = None
    for row, number in heapq.merge(*numbered):
        block = group.chunks[number][row.position : row.position + row.size_bytes]
        assert _HEADER.unpack_from(block) == (0x5A, 2, row.record_count, row.size_bytes - 10, 0x22)
        read.update(block)
        if last and joins(last, row):
            records, size_bytes = last.record_count + row.record_count, last.size_bytes + row.size_bytes
            last = last._replace(end=row.end, record_count=records, size_bytes=size_bytes)
        else:
            index += last.encode() if last else b""
            last = row._replace(position=len(data))
        data += block
    assert last is not None
    index += last.encode()
    assert xxh3_64(data).intdigest() == read.intdigest()
    return [data, index, Footer(len(data), len(index)).encode()]


def joins(last: BlockRow, row: BlockRow) -> bool:
    """Whether a row may be coalesced with the one before it."""
    is_next = last.stream_id == row.stream_id and last.end == row.start
    return is_next and last.size_bytes + row.size_bytes < LIMITS.row_size_bytes_max


def _same_bytes(ours: object, theirs: object) -> bool:
    return _digest(ours) == _digest(theirs)


def _digest(parts: object) -> int:
    # Joining the parts would need so much memory that the next round would have to allocate it from the system again.
    assert isinstance(parts, list)
    digest = xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.intdigest()


# A list in the course of 30 days


@dataclass(frozen=True, slots=True)
class Aged:
    """A node's list after some days of uploads, each compaction that was due carried out.

    Args:
        uploads: of each object of the list, the number of uploads that it was merged from.
        rewritten: uploads that were rewritten, as often as they were.
        longest: the largest number of objects in the list.
    """

    uploads: list[int]
    rewritten: int
    longest: int

    @property
    def amplification(self) -> float:
        """Bytes that were rewritten for each uploaded one."""
        return self.rewritten / sum(self.uploads)


DAYS: Final = 30
STREAMS_EACH: Final = 1_000
RUN_HOURS: Final = {12: 1.0, 60: 1.0, 600: 0.25}
"""Uploads an hour -> hours between two compactions: 600 young objects and 600 more are too many for a list of 1,000."""


def age(
    uploads_an_hour: int, size_bytes: int, settings: CompactionSettings, run_hours: float, days: int = DAYS
) -> Aged:
    """Age a list in virtual time; no bytes are moved. Every object holds the same 1,000 streams.

    Args:
        uploads_an_hour: evenly spread.
        size_bytes: of each.
        settings: of the compactions; only limits are used.
        run_hours: hours from one compaction to the next.
        days: of uploads.
    """
    uploads: list[int] = []
    ages_hours: list[float] = []
    rewritten = longest = made = 0
    for number in range(1, int(24 * days / run_hours) + 1):
        now_hours, before = number * run_hours, made
        made = round(uploads_an_hour * now_hours)
        uploads += [1] * (made - before)
        ages_hours += [now_hours - run_hours * at / (made - before) for at in range(made - before)][::-1]
        longest = max(longest, len(uploads))
        coming = len(ages_hours) - bisect_left(ages_hours, now_hours - 1)
        target = settings.targets({1: len(uploads)}, {1: coming}).get(1)
        if target is None:
            continue
        old = bisect_right(ages_hours, now_hours - settings.min_age_seconds / 3600)
        for first, end in reversed(_chosen(uploads[:old], size_bytes, settings, len(uploads) - target)):
            merged = sum(uploads[first:end])
            uploads[first:end], ages_hours[first:end] = [merged], [ages_hours[first]]
            rewritten += merged
    return Aged(uploads, rewritten, longest)


def _chosen(uploads: list[int], size_bytes: int, settings: CompactionSettings, wanted: int) -> list[Run]:
    limits = GroupLimits(
        settings.target_object_size_bytes,
        GROUP_INDEX_SIZE_BYTES_MAX,
        STREAMS_MAX,
        settings.max_sources_per_group,
    )
    facts = []
    for position, count in enumerate(uploads):
        rows = STREAMS_EACH * -(-count * size_bytes // (STREAMS_EACH * LIMITS.row_size_bytes_max))
        seen = np.arange(position - 1, position, dtype=np.int64)[: position > 0]
        counts = np.full(len(seen), STREAMS_EACH)
        facts.append(MergeCandidate(count * size_bytes, rows * ROW_SIZE_BYTES, STREAMS_EACH, -1, seen, counts))
    sizes_bytes = [known.size_bytes for known in facts]
    return choose_groups(sizes_bytes, earliest_starts(facts, limits), wanted, once=settings.rewrite_all)


LOAD_SIZES: Final = {"10 kB": 10_000, "1 MB": 1_000_000, "100 MB": 100_000_000}
AMPLIFICATION_MAX: Final = 3.0
GETS_RATIO_MIN: Final = 1 / 1.2


def group_size_for(uploads_an_hour: int, size_bytes: int) -> int:
    """The size of a group with which the uploads of 30 days fit the list, as a plan names it; at least the default.

    Groups that cannot be joined with their neighbours are half full or more. The young objects need places, too.
    """
    default = CompactionSettings()
    places = default.max_objects_per_node * 8 // 10 - uploads_an_hour
    return max(default.target_object_size_bytes, 2 * DAYS * 24 * uploads_an_hour * size_bytes // places)


def run_aging(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - counts are exact, so there is nothing to repeat
    """Bytes rewritten for each uploaded one, the longest list, and the GETs of cold lookups, after 30 days."""
    rows: list[Comparison] = []
    for name, size_bytes in LOAD_SIZES.items():
        for rate, run_hours in RUN_HOURS.items():
            group_bytes = group_size_for(rate, size_bytes)
            settings = CompactionSettings(target_object_size_bytes=group_bytes)
            aged = age(rate, size_bytes, settings, run_hours)
            what = f"compaction_aging, {rate} of {name} an hour, groups of {group_bytes / 2**20:,.0f} MiB"
            rows += _aging_rows(what, aged)
    for limit in (100, 30, 20):
        settings = CompactionSettings(max_objects_per_node=limit)
        grown, cheapest = (
            age(12, 1_000, replace(settings, rewrite_all=is_once, target_objects=limit * 8 // 10), 1.0)
            for is_once in (False, True)
        )
        what = f"compaction_aging, 12 an hour, limit {limit}: bytes rewritten for an uploaded one"
        rows.append(
            Comparison.exact(what, grown.amplification, "", "the cheapest groups of each run", cheapest.amplification)
        )
    return rows


def _aging_rows(what: str, aged: Aged) -> Iterator[Comparison]:
    limit = CompactionSettings().max_objects_per_node
    yield Comparison.exact(
        f"{what}: bytes rewritten for an uploaded one", aged.amplification, "", "the bound", AMPLIFICATION_MAX, 1.0
    )
    yield Comparison.exact(f"{what}: longest list", aged.longest, "", "max_objects_per_node", limit, 1.0)
    for share, kind in ((1.0, "all uploads"), (0.1, "10 % of them"), (0.1, "10 % of them, with filters")):
        gets, even = (
            _mean_gets(aged_node(uploads, share), with_filters="filters" in kind)
            for uploads in (aged.uploads, _evened(aged.uploads))
        )
        goal = GETS_RATIO_MIN if share == 1.0 else None
        yield Comparison.exact(f"{what}: GETs, a stream of {kind}", gets, "", "an even list as long", even, goal)


def _mean_gets(node: Node, *, with_filters: bool) -> float:
    known = filters_known(node) if with_filters else empty_knowledge()
    return statistics.fmean(cost.gets for cost in measure(node, Spread(), places_anywhere(node), known))


def _evened(uploads: list[int]) -> list[int]:
    ends = np.linspace(0, sum(uploads), len(uploads) + 1).round().astype(np.int64)
    evened: list[int] = np.diff(ends).tolist()
    return evened


OFFSETS_ANYWHERE: Final = 60


def places_anywhere(node: Node) -> list[int]:
    """Offsets anywhere in the stream."""
    draw = random.Random(5)
    return [draw.randrange(node.end) for _ in range(OFFSETS_ANYWHERE)]


def aged_node(uploads: list[int], share: float) -> Node:
    """A node whose objects were merged from so many uploads. A share of these held the stream; its rate varies."""
    generator = np.random.default_rng(5)
    steps = np.exp(generator.normal(0, 0.02, sum(uploads)).cumsum())
    lengths = np.where(generator.random(sum(uploads)) < share, 1 + (100 * steps).astype(np.int64) % 10_000, 0)
    ends = np.concatenate(([0], lengths.cumsum()))[np.concatenate(([0], np.cumsum(uploads)))].tolist()
    spans = [(at, start, end) for at, (start, end) in enumerate(pairwise(ends))]
    holders = [span for span in spans if span[2] > span[1]]
    held = {at: [(STREAM_ID, start, end)] if end > start else [] for at, start, end in spans}
    ranges = {at: ObjectRanges.from_ranges([(OTHER_STREAM_ID, at, at + 1), *rows]) for at, rows in held.items()}
    listed = make_node(NODE_ID, [(at, ObjectRef(at)) for at in range(len(uploads))])
    return with_end(Node(MetadataImage(0, "DEFAULT", {}, {NODE_ID: listed}), ranges, holders), End.TOLD)


UPLOADS: Final = 1_500
UPLOADS_OF_OTHERS: Final = 300
GROUPS_AT_ONCE: Final = 32
GROUPS: Final = 500
MERGE_SECONDS: Final = 3.0
START_SECONDS: Final = 1_800_000_000.0
SHARE_OF_GOAL: Final = 0.5


class _VirtualTime:
    """Threads in simulated time: one of them runs until it sleeps; then the one runs whose sleep ends first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleeps = 0
        self._sleeping: list[tuple[float, int, threading.Event]] = []
        self._threads: list[threading.Thread] = []

    def sleep(self, seconds: float) -> None:
        """Let the others run until these seconds have passed."""
        turn = self._turn_in(seconds)
        self._next()
        turn.wait()

    def start(self, work: Callable[[], object]) -> None:
        """Run a function in a thread, from now on."""
        turn = self._turn_in(0.0)

        def run() -> None:
            turn.wait()
            try:
                work()
            finally:
                self._next()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Wait for all threads."""
        self._next()
        for thread in self._threads:  # grows meanwhile
            thread.join()

    def _turn_in(self, seconds: float) -> threading.Event:
        turn = threading.Event()
        self._sleeps += 1  # of two sleeps that end at the same time, the earlier one
        heapq.heappush(self._sleeping, (self.now + seconds, self._sleeps, turn))
        return turn

    def _next(self) -> None:
        if self._sleeping:
            self.now, _, turn = heapq.heappop(self._sleeping)
            turn.set()


class _Inline(Executor):
    """Runs each call at once, in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Call it, and return the result or the error."""
        future: Future[Any] = Future()
        settle(future, partial(fn, *args, **named))
        return future


class _LateStore(LatencyStore):
    """Delays each request by the latency model; it takes effect at a random time within its latency."""

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        seconds = self._model.seconds(self._rng, call.sent_bytes)
        before = seconds * self._rng.random()
        self._sleep(before)
        try:
            return send()
        finally:
            self._sleep(seconds - before)


class _SlowMerges(DecoratedStore):
    """Delays each write of an object by the time that a merge takes."""

    def __init__(self, store: ObjectStore, sleep: Callable[[float], None]) -> None:
        super().__init__(store)
        self._sleep = sleep

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation == "put" and not call.key.startswith("accel/"):
            self._sleep(MERGE_SECONDS)
        return send()


class _UploadingNode:
    """A node with a list of small objects, which goes on to upload, in simulated time.

    Args:
        is_late: whether requests take effect within their latency, not at its start.
    """

    def __init__(self, *, is_late: bool) -> None:
        self.time = _VirtualTime()
        self.store = MemoryStore(clock=self._clock)
        self._is_late = is_late
        self._rng = random.Random(1)
        self._system = replace(
            SYSTEM,
            timer=lambda: self.time.now,
            sleep=self.time.sleep,
            clock=self._clock,
            jitter=self._rng.random,
            wait=None,
        )
        ObjectCatalog.init(self.store, namespace="bench", system=self._system)
        with self._open(self.store) as catalog, catalog.open_node(NODE_ID) as writer:
            writer.open_streams([STREAM_ID])
            for _ in range(2 * GROUPS):
                self._upload(writer)
            settings = CompactionSettings(rewrite_all=True, min_age_seconds=0, max_sources_per_group=2)
            self.plan = plan_compaction(catalog, settings)

    def uploads_seconds(self, uploads: int, is_over: Callable[[], object] = lambda: False) -> list[float]:
        """The durations of uploads, one after another."""
        found: list[float] = []
        with self._open(self._delayed()) as catalog, catalog.open_node(NODE_ID) as writer:
            writer.open_streams([STREAM_ID])
            while len(found) < uploads and not is_over():
                began = self.time.now
                self._upload(writer)
                found.append(self.time.now - began)
        return found

    def compacted(self, *, is_plain: bool, is_over: Callable[[], object]) -> CompactionReport:
        """Carry the plan out with tasks in threads, until it is over."""
        results: list[GroupResult] = []

        def work(items: Iterator[GroupItem]) -> None:
            for item in items:
                if is_over():
                    results.append(GroupResult(item.group, Status.FAILED, "the measurement is over"))
                    continue
                mine = GroupItem(item.group) if is_plain else item
                with self._open(_SlowMerges(self._delayed(), self.time.sleep)) as catalog:
                    results.append(work_on(catalog, mine, self.plan.settings))

        def run(items: Sequence[GroupItem]) -> Iterable[GroupResult]:
            left = iter(items)
            for _ in range(GROUPS_AT_ONCE):
                self.time.start(partial(work, left))
            while len(results) < len(items):
                self.time.sleep(1.0)
            return results

        with self._open(self._delayed()) as catalog:
            return compact(catalog, self.plan, run=run, at_once=GROUPS_AT_ONCE)

    def problems(self) -> Sequence[object]:
        """What is wrong with the catalog; empty if nothing is."""
        with ObjectCatalog.open(self.store, system=replace(SYSTEM, clock=self._clock)) as catalog:
            return verify(catalog).problems

    def _clock(self) -> float:
        return START_SECONDS + self.time.now

    def _delayed(self) -> ObjectStore:
        rng = random.Random(self._rng.random())
        made = _LateStore if self._is_late else LatencyStore
        return made(self.store, rng, self.time.sleep)

    def _open(self, store: ObjectStore) -> ObjectCatalog:
        """The catalog, as a process opens it that sends one request at a time."""
        record, threads, settings = existing_format(self.store), (_Inline(), _Inline()), CatalogSettings()
        return ObjectCatalog(lambda: catalog_parts(store, record, settings, self._system, threads), self._system)

    @staticmethod
    def _upload(writer: NodeWriter) -> None:
        writer.upload({STREAM_ID: [RecordBatch(STREAM_ID, 1, writer.end(STREAM_ID) or 0, 1, b"record")]})


def run_uploads(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - a percentile of many uploads is one round
    """The 99th percentile of uploads beside a compaction, against that without one."""
    return [
        _uploads_beside(UPLOADS),
        _uploads_beside(UPLOADS, is_late=True),
        _uploads_beside(UPLOADS_OF_OTHERS, is_plain=True),
    ]


def _uploads_beside(uploads: int, *, is_plain: bool = False, is_late: bool = False) -> Comparison:
    node = _UploadingNode(is_late=is_late)
    alone, beside = [], []
    ended, ended_seconds = threading.Event(), 0.0
    reports: list[CompactionReport] = []

    def upload() -> None:
        nonlocal ended_seconds
        alone.extend(node.uploads_seconds(uploads // 2))
        began = node.time.now
        node.time.start(lambda: reports.append(node.compacted(is_plain=is_plain, is_over=ended.is_set)))
        node.time.sleep(2 * MERGE_SECONDS)  # the first groups are committed
        beside.extend(node.uploads_seconds(uploads, lambda: reports))
        ended.set()
        while not reports:
            node.time.sleep(1.0)
        ended_seconds = node.time.now - began
        alone.extend(node.uploads_seconds(uploads // 2))

    node.time.start(upload)
    node.time.wait()
    problems = node.problems()
    if len(beside) < uploads or problems:
        raise AnswersDiffer(f"expected {uploads} uploads and no problem, found {len(beside)} and {problems}")
    done = sum(group.status is Status.COMMITTED for group in reports[0].groups)
    ours, peer = (1000 * statistics.quantiles(found, n=100)[98] for found in (beside, alone))
    name = "at any time, ids one by one" if is_plain else "in slots"
    late = ", effect within latency" if is_late else ""
    medians = f"medians {1000 * statistics.median(beside):.0f} and {1000 * statistics.median(alone):.0f} ms"
    return Comparison(
        name=f"compaction_uploads: 32 at once, {name}{late}: {done / ended_seconds:.1f} groups/s, {medians}",
        value=ours,
        unit="ms",
        peer=f"no compaction, {uploads:,} uploads a side",
        peer_value=peer,
        ratio=peer / ours,
        runs=1,
        goal=SHARE_OF_GOAL,
    )
