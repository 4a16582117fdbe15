"""The common parts of both accelerators: current image, caches, loaders, and the steps of lookups and reads.

The engine never waits for loads. A driver (`accelerator.py`, `async_accelerator.py`) takes the steps of a lookup from
the engine, lets it start the requests of a step (`UnderWay`), waits for them in its own way, and sends the replies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from accel.errors import AccelError, IllegalState
from accel.image import MetadataImage, NodeImage, ObjectRef, generation_of
from accel.image_source import ImageSource
from accel.lookup.answer import Answer, Request
from accel.lookup.following import ImageFollower
from accel.lookup.hints import FilterLoader, HintLoad, HintLoader, HintStore, PackFollower, Warming, WarmReport
from accel.lookup.hot import WHAT, HotStreams
from accel.lookup.index_cache import EmptyIndexCache, SharedIndexCache
from accel.lookup.lookup import Asking, begin
from accel.lookup.reading import Ranges, ReadSteps, Watch, read_range
from accel.lookup.search_requests import (
    Announce,
    AwaitMore,
    FetchSpan,
    HintReply,
    Inputs,
    OpenObject,
    OpenObjects,
    ReadEntries,
    ReadFilters,
    ReadRoot,
    Reply,
    SnapshotKnown,
)
from accel.lookup.stats import AcceleratorStats, LookupCounters, NodeHint, count_answer
from accel.settings import Settings
from accel.system import Components
from loaders.hints import StreamEntries
from loaders.layout import ObjectLayout
from loaders.lifetime import Lifetime
from loaders.object_index import Load, ObjectIndexLoader, OpenedObject
from loaders.plan import LoadAll, policy_of
from loaders.settings import BLOCK_INDEXES_SIZE_BYTES_MAX, HINT_TTL_SECONDS, MIB
from loaders.shared_loads import LastChunks, done_future
from loaders.store import ObjectStore
from loaders.store.bill import RequestCause, caused_by
from loaders.store.decorated import CountingStore, TracedStore, counting_store
from loaders.store.hedged import HedgedStore
from loaders.threads import Arrivals, SharedThreads, uninterrupted
from loaders.tracing import timed
from range_index import ObjectRanges

if TYPE_CHECKING:
    from accel.lookup.explain import Trace
    from accel.lookup.slow_lookups import SlowLookups


T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CHUNKS_SIZE_BYTES_MAX = 32 * MIB
"""Memory of the blocks that reads ended in, so that small reads, one after the other, do not fetch a block each."""

CHUNK_TTL_SECONDS = 10.0
"""How long such a block is kept."""

HINT = -1
"""The key of the hint among the positions of arrived objects."""


class UnderWay:
    """The requests of one lookup in a node's list whose results the lookup has not received yet.

    A request in another list replaces all of them; their loads continue, and the caches keep the results.

    Args:
        engine: starts the loads.
        stream_id: the stream of the lookup.

    Threads: one at a time.
    """

    def __init__(self, engine: Engine, stream_id: int) -> None:
        self._engine = engine
        self._stream_id = stream_id
        self._node: NodeImage | None = None
        self._loads: dict[int, Load] = {}
        self._hint: HintLoad | None = None
        self._arrivals: Arrivals[int] = Arrivals()
        self._is_new = False
        self.cost = RoundCost()

    def ask(self, step: OpenObjects) -> None:
        """Start all requests of a step."""
        if step.node is not self._node:
            self._node, self._loads, self._hint, self._arrivals = step.node, {}, None, Arrivals()
        if (hint := self._engine.read_hint(step)) is not None:
            self._hint = hint
            self._arrivals.expect(HINT, hint.result)
        for position in [each for each in step.positions if each not in self._loads]:
            ref = step.node.ref(position)
            self.cost.again += self._engine.index_cache.was_learned(ref.object_id)
            load = self._loads[position] = self._engine.open(step.node.node_id, ref, self._stream_id)
            self._arrivals.expect(position, load.result)
            self.cost.requests += load.started
            self.cost.joined += not (load.started or load.result.done())
        self._is_new |= not isinstance(step, AwaitMore)

    def signal(self) -> Future[None]:
        """A future that is done as soon as `take` has a result to return."""
        return self._arrivals.signal()

    def take(self) -> dict[int, Reply] | HintReply | None:
        """The results since the last call; None if there are none.

        Raises:
            BaseException: an error other than AccelError, as it was raised.
        """
        came = self._arrivals.take()
        if not came:
            return None
        objects = {position: self._object(self._loads.pop(position)) for position in came if position != HINT}
        if HINT not in came or self._hint is None:
            return objects
        hint, self._hint = self._hint, None
        reply = hint.result.result()
        if hint.started:
            self.cost.hint_requests += reply.requests
            self.cost.hint_bytes += reply.bytes_read
            node_id = None if self._node is None else self._node.node_id
            self._engine.hot.spend(self._stream_id, node_id, reply.requests, reply.bytes_read)
        return reply.beside(objects)

    def is_overdue(self) -> bool:
        """Whether the lookup is to be told that its requests are slow: true once after each new request."""
        was_new, self._is_new = self._is_new, False
        return was_new

    def _object(self, load: Load) -> Reply:
        reply = _reply(load)
        if load.started and not load.result.exception():
            opened = load.result.result()
            self.cost.requests += opened.requests - 1
            self.cost.bytes_read += opened.bytes_read
        return reply


@dataclass(slots=True)
class RoundCost:
    """The cost since the last measurement: requests, and bytes read.

    `joined` openings were begun by another lookup; `again`, memory had held the object before.
    """

    requests: int = 0
    bytes_read: int = 0
    hint_requests: int = 0
    hint_bytes: int = 0
    joined: int = 0
    again: int = 0


def _reply(load: Load) -> Reply:
    error = load.result.exception()
    if error is None:
        return load.result.result().ranges
    if isinstance(error, AccelError):
        return error
    raise error


class Engine:
    """The parts of an accelerator.

    Args:
        source: returns metadata images.
        store: contains the objects.
        settings: limits and options.
        system: clock, sleep and randomness.

    Threads: any.
    """

    def __init__(self, source: ImageSource, store: ObjectStore, *, settings: Settings, system: Components) -> None:
        self.settings = settings
        self.system = system
        self.lifetime = Lifetime("an accelerator", system.process_id)
        self.counters = LookupCounters()
        self.hot = HotStreams(system.timer)
        self._inside: set[int] = set()  # threads that are within a step
        self.executor = SharedThreads(
            settings.parallel_loads,
            "accel-load",
            slow_seconds=settings.max_wait_load_seconds,
            timer=system.timer,
            lifetime=self.lifetime,
        )
        self.images = ImageFollower(source, settings, system, self.counters, self._follow, self.executor)
        self.layout = ObjectLayout(namespace=self.images.image.namespace)
        counting = counting_store(store)
        if counting is None:
            counting = store = CountingStore(store, system.timer)
        self.counting = counting
        self.store = store = HedgedStore(
            TracedStore(store, system.timer),
            system.timer,
            self.layout.is_immutable,
            share=settings.hedge_percent / 100,
            threads_max=self.executor.threads_max,
        )
        self.index_cache = SharedIndexCache(settings, system.timer, system.jitter)
        self.chunks = LastChunks(CHUNKS_SIZE_BYTES_MAX, CHUNK_TTL_SECONDS, system.timer)
        self._fetches: dict[FetchSpan, Future[Any]] = {}
        self.loader = ObjectIndexLoader(
            store,
            self.layout,
            self.executor,
            cache_bytes_max=BLOCK_INDEXES_SIZE_BYTES_MAX,
            on_opened=self._learn,
            timer=system.timer,
        )
        self.hints = HintStore(
            self.layout.namespace, system.timer, self.loader.holds, system.clock, ttl_seconds=HINT_TTL_SECONDS
        )
        self._hint_loader = HintLoader(store, self.hints, self.executor.of, self._learn_entries)
        self._filter_loader = FilterLoader(store, self.hints, self.index_cache.add_filters, self.executor.of)
        self._pack_follower = PackFollower(
            store, self.hints, self.index_cache.add_filters, self.executor, system.timer, HINT_TTL_SECONDS
        )
        self._inputs = self._make_inputs()
        self.slow_lookups = self._make_slow_lookups()

    @property
    def policy_name(self) -> str:
        """The name of the policy in use."""
        return self._inputs.policy.name

    def begin_lookup(
        self, request: Request, image: MetadataImage, trace: Trace | None = None
    ) -> Answer | Asking[Answer]:
        """The answer of a lookup that begins with this image, if memory proves all of it; else the remaining steps."""
        return begin(request, image, self._inputs, trace)

    def start_read(
        self,
        stream_id: int,
        start: int,
        end: int,
        max_bytes: int,
        watch: Watch | None = None,
        ahead_bytes: int = 0,
        *,
        shares_chunks: bool,
    ) -> ReadSteps:
        """The steps of a read; ``watch`` records its lookups, ``shares_chunks`` is whether it uses the last chunks."""
        return read_range(
            stream_id,
            start,
            end,
            max_bytes,
            self._inputs,
            blocks=None if self._inputs.hints is None else self.hints,
            chunks=self.chunks if shares_chunks and not self.settings.bypass else None,
            watch=watch,
            ahead_bytes=ahead_bytes,
        )

    def read_hint(self, step: OpenObjects) -> HintLoad | None:
        """Start to read the part of the node's snapshot or pack that a step requests; None if it requests none.

        Since objects have to be opened, this also starts the check for newer filter packs, if it is due.
        """
        with timed(None):  # no lookup waits for it
            self._pack_follower.look_if_due(self.images.image)
        if isinstance(step, ReadRoot):
            return self._hint_loader.read_root(step.node.node_id)
        if isinstance(step, ReadFilters):
            return self._filter_loader.read(step)
        return self._hint_loader.read_entries(step) if isinstance(step, ReadEntries) else None

    def open(self, node_id: int, ref: ObjectRef, stream_id: int, share: Hashable = None) -> Load:
        """Start to open an object of a node for a stream, in this share of the threads, or the node's."""
        load = self.loader.open(node_id, ref, self.executor.of(node_id if share is None else share))
        if load.started:
            load.result.add_done_callback(partial(self._count_opened, stream_id, node_id))
        return load

    def begin(
        self, step: OpenObject | FetchSpan, share: Hashable, ranges: Ranges | None, stream_id: int
    ) -> Future[Any]:
        """Start to open one object, or to fetch a span of it from ``ranges``, or from the store if that is None.

        Args:
            step: the request.
            share: the group of the threads that make it.
            ranges: supplies bytes, and counts its requests itself.
            stream_id: the stream that is read.
        """
        executor = self.executor.of(share)
        if isinstance(step, OpenObject):
            return self.open(step.group, step.ref, stream_id, share).result
        if ranges is None:
            return self._start_fetch(step, executor, stream_id, share)
        key = self.layout.object_key(step.object_id)
        body = ranges.cached(key, step.start, step.end)
        return ranges.begin(key, step.start, step.end, executor) if body is None else done_future(body)

    def announce(self, step: Announce, ranges: Ranges | None) -> None:
        """Announce the bytes of a span to ``ranges``, for a later read; nothing if that is None."""
        if ranges is not None:
            key, executor = self.layout.object_key(step.span.object_id), self.executor.of(step.share)
            ranges.announce(key, step.span.start, step.span.end, executor)

    def _count_opened(self, stream_id: int, group: int, ended: Future[OpenedObject]) -> None:
        gets, size_bytes = (1, 0) if ended.exception() else (ended.result().requests, ended.result().bytes_read)
        self.hot.spend(stream_id, _node_of(group), gets, size_bytes)

    def _start_fetch(self, step: FetchSpan, executor: Executor, stream_id: int, share: Hashable) -> Future[Any]:
        running = self._fetches.get(step)
        if running is not None and running.running():  # it cannot be cancelled any more
            return running
        self.hot.spend(stream_id, _node_of(share), 1, step.end - step.start)
        begun = self._fetches[step] = executor.submit(self.fetch, step)
        begun.add_done_callback(partial(self._fetched, step))
        return begun

    def _fetched(self, step: FetchSpan, ended: Future[Any]) -> None:
        if self._fetches.get(step) is ended:
            self._fetches.pop(step, None)

    def fetch(self, step: FetchSpan) -> bytes | memoryview:
        """The bytes of a span, from the store; blocks.

        Raises:
            StoreError: from the store; also if the object is too short.
        """
        with caused_by(RequestCause.DATA):
            return self.store.get_range(self.layout.object_key(step.object_id), step.start, step.end).body

    def alone(self, step: Callable[[*Ts], T], *args: *Ts) -> T:
        """Carry out a step of a call, which waits for no other thread. Every access to what calls share is within one.

        Raises:
            IllegalState: this thread is within such a step.
        """
        thread = get_ident()
        if thread in self._inside:
            raise IllegalState(
                "expected a call that interrupts no other call of this accelerator, found one within another, as of a "
                "signal handler or of __del__"
            )
        try:
            self._inside.add(thread)
            return step(*args)
        finally:
            self._inside.discard(thread)

    def commit(self, node_id: int, ref: ObjectRef, ranges: ObjectRanges) -> None:
        """Add an object that this broker wrote itself to the index cache, so that it need not be opened."""
        uninterrupted(partial(self.index_cache.learn, node_id, ref, ranges))

    def finished(self, answer: Answer) -> Answer:
        """Count an answer, and return it."""
        count_answer(self.counters, answer)
        hot = self.hot
        hot.left -= 1
        if hot.left < 1:
            hot.count(answer)
        return answer

    def stats(self) -> AcceleratorStats:
        """Counts and sizes now."""
        known, source, hot = self.index_cache.stats(), self.images.memory(), self.hot.report()
        caches = {
            **self.index_cache.caches(),
            "block_indexes": self.loader.cache_stats(),
            **self.hints.caches(),
            "chunks": self.chunks.stats(),
        }
        return AcceleratorStats(
            image_version=self.images.image.version,
            image_age_seconds=self.images.installed_seconds_ago(),
            image_unconfirmed_seconds=self.images.age_seconds(),
            lookups=self.counters.stats(),
            knowledge=known,
            loader=self.loader.stats(),
            hints=self.hints.stats(),
            hedging=self.store.stats(),
            bill=self.counting.bill(),
            memory_bytes=sum(each.size_bytes for each in caches.values())
            + known.log_bytes
            + known.hashed_ids_bytes
            + source.nbytes,
            memory_bytes_max=sum(each.size_bytes_max for each in caches.values())
            + known.hashed_ids_bytes
            + source.nbytes_max,
            node_hints=self.hints.states(self.images.image.nodes.values(), all_of_them=False),
            caches=caches,
            is_source_failing=self.images.is_failing,
            slow_lookups={} if self.slow_lookups is None else self.slow_lookups.counts(),
            hot_shares={what: hot.share(what) for what in WHAT},
        )

    def warm(self, node_ids: Iterable[int] | None = None) -> WarmReport:
        """Load roots and packs of these nodes, by default of all nodes; blocks."""
        image = self.images.image
        chosen = image.nodes if node_ids is None else node_ids
        nodes = [image.node(node_id) for node_id in chosen]
        if self.settings.bypass or not self.settings.use_hints:
            return WarmReport(nodes=len(nodes))
        warming = Warming(self.store, self.hints, self._hint_loader, self.index_cache.add_filters, self.executor)
        report = warming.run(nodes, self.system.timer)
        self._pack_follower.follow(nodes)
        return report

    def hint_states(self, node_ids: Iterable[int]) -> tuple[NodeHint, ...]:
        """The states of the hints of these nodes; () if hints are not used."""
        if self._inputs.hints is None:
            return ()
        image = self.images.image
        return self.hints.states(image.node(node_id) for node_id in node_ids)

    def close(self) -> None:
        """Stop loading; waits for running requests, except queries to the image source."""
        self.images.close()
        self.executor.shutdown(wait=True, cancel_futures=False)
        self.store.close()

    def _make_slow_lookups(self) -> SlowLookups | None:
        settings, system = self.settings, self.system
        if settings.slow_lookup_seconds is None:
            return None
        from accel.lookup.slow_lookups import SlowLookups  # noqa: PLC0415 - it imports `explain`, which few need

        return SlowLookups(settings.slow_lookup_seconds, self.policy_name, system.timer, system.clock)

    def _make_inputs(self) -> Inputs:
        settings, key_of = self.settings, self.layout.object_key
        if settings.bypass:
            return Inputs(EmptyIndexCache(), LoadAll(), key_of, self.images.may_ask)
        hints = self.hints if settings.use_hints else None
        return Inputs(self.index_cache, policy_of(settings.policy), key_of, self.images.may_ask, hints)

    def _follow(self, before: MetadataImage, after: MetadataImage) -> None:
        self.index_cache.follow(before, after)
        if generation_of(before.version) != generation_of(after.version):
            self.chunks.clear()

    def _learn(self, node_id: int, opened: OpenedObject) -> None:
        if opened.composite is None and node_id >= 0 and _fits(self.images.image.node(node_id), opened.ref):
            self.index_cache.learn(node_id, opened.ref, opened.ranges)

    def _learn_entries(self, node_id: int, known: SnapshotKnown, entries: StreamEntries) -> None:
        if known.root is not None:
            self.index_cache.learn_snapshot(self.images.image.node(node_id), known.root, entries)


def _node_of(share: Hashable) -> int | None:
    """The node of a share of the threads, or of a group of objects; None for objects of one stream."""
    return share if isinstance(share, int) and share >= 0 else None


def _fits(node: NodeImage, ref: ObjectRef) -> bool:
    """Whether the newest list contains this object with the same size and attributes."""
    position = node.position_of.get(ref.object_id)
    if position is None:
        return False  # the object was removed while it was opened, and will not be listed again
    listed = node.ref(position)
    return listed.size_bytes in (-1, ref.size_bytes) and listed.attributes == ref.attributes
