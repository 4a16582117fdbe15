"""Hints: reads snapshots and packs, each byte range once for all callers, and keeps snapshots in bounded memory.

The entries of a stream have two uses. A lookup gets from them which objects of a list hold the stream, and which lack
it; the range index does not store the latter. A read of data gets from them where the stream's blocks are in an object,
so that it need not open the object's index. Old entries are still correct for their objects. Lookups use entries only
with the root that they were read with, since the root contains which objects they cover.

No error of a hint fails a lookup. An error of a hint, or of the store while a hint is read, becomes the `problem` of
the outcome and a count; the lookup continues without the hint.

Warming up before the first lookup loads roots of snapshots, and filters from packs, a few large reads at a time. Its
report contains the errors. Only filters of objects that the image lists with the same size as the pack are loaded.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from accel.errors import AccelError
from accel.image import MetadataImage, NodeImage, ObjectRef
from accel.lookup.search_requests import HintReply, ReadEntries, ReadFilters, SnapshotKnown
from accel.lookup.stats import Counters, HintKnown, HintStats, NodeHint, count_problem, trouble_of
from bloom import StreamFilter
from loaders.counting import CacheStats, CountedCache
from loaders.format import BlockRow
from loaders.hints import (
    ByteSpan,
    EntryColumns,
    HintProblem,
    HintTrouble,
    KnownRoot,
    PackRoot,
    RootCache,
    SnapshotRoot,
    StreamEntries,
    decode_entries,
    decode_pack_root,
    decode_pack_span,
    decode_snapshot_root,
    plan_pack_reads,
    read_span,
)
from loaders.hints.roots import fetch_root
from loaders.layout import HintKind, hint_root_key
from loaders.settings import HINT_ROOTS_SIZE_BYTES_MAX, HINT_TTL_SECONDS, MIB
from loaders.shared_loads import SharedLoads, done_future
from loaders.store import ObjectStore
from loaders.threads import run_bounded

BAD_SPANS_MAX = 1024
"""The maximum number of remembered unusable spans and rows; when it is reached, all are forgotten."""

FILTERS_NOTED_MAX = 1024
"""Nodes whose last load of filters is remembered."""

ENTRIES_SIZE_BYTES_MAX = 32 * MIB
"""Memory of the entries that were read from snapshots."""

MISSING_TTL_SECONDS = 600.0
"""How long a node without a snapshot, or without a pack, is assumed to have none."""

COVERED_MIN = 2
"""A hint that covers fewer listed objects is not used: opening these objects costs no more."""

T = TypeVar("T")

_ENTRY_SIZE_BYTES = 500  # memory of the kept entries of a stream besides their columns


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Entries of a stream, the sizes of their objects, and the ETag of their root."""

    entries: StreamEntries
    object_sizes: NDArray[np.int64]
    root_etag: str

    @property
    def nbytes(self) -> int:
        return self.entries.columns.nbytes + self.object_sizes.nbytes + _ENTRY_SIZE_BYTES


class HintStore:
    """Snapshots in memory, for many lookups and reads at once.

    Args:
        namespace: of the cluster's objects; roots of another namespace are foreign.
        timer: seconds, from any start.
        is_open: whether an object's index is in memory.
        clock: seconds since 1970, for the age of hints.
        ttl_seconds: how long a root is used before it is read again.
        roots_size_bytes_max: memory of roots of snapshots; those of filter packs have a quarter of that in addition.
        entries_size_bytes_max: memory of entries; 73 bytes each.

    Threads: any. The lock is held for work in memory only.
    """

    def __init__(
        self,
        namespace: str,
        timer: Callable[[], float],
        is_open: Callable[[ObjectRef], bool] = lambda _: False,
        clock: Callable[[], float] | None = None,
        *,
        ttl_seconds: float = HINT_TTL_SECONDS,
        roots_size_bytes_max: int = HINT_ROOTS_SIZE_BYTES_MAX,
        entries_size_bytes_max: int = ENTRIES_SIZE_BYTES_MAX,
    ) -> None:
        self.namespace = namespace
        self.counters = Counters(HintStats)
        self.roots: RootCache[SnapshotRoot] = RootCache(
            snapshot_root_key,
            lambda data, node_id: decode_snapshot_root(data, namespace=namespace, node_id=node_id),
            timer,
            size_bytes_max=roots_size_bytes_max,
            ttl_seconds=ttl_seconds,
            missing_ttl_seconds=MISSING_TTL_SECONDS,
        )
        self.packs: RootCache[PackRoot] = RootCache(
            pack_root_key,
            lambda data, node_id: decode_pack_root(data, namespace=namespace, node_id=node_id),
            timer,
            size_bytes_max=roots_size_bytes_max // 4,
            ttl_seconds=0.0,  # a caller that reads a root needs to know whether it has changed
            missing_ttl_seconds=MISSING_TTL_SECONDS,
        )
        """Roots of loaded packs; conditional GETs show whether there are newer ones."""
        self._lock = threading.Lock()
        self._held: CountedCache[tuple[int, int], _Held] = CountedCache(
            entries_size_bytes_max, lambda held: held.nbytes
        )
        self._bad: set[tuple[str, ByteSpan]] = set()
        self._wrong: set[tuple[int, int, int]] = set()
        self._is_open = is_open
        self._clock = clock
        self._seen_root = self._seen_none = False
        self._timer = timer
        self._ttl_seconds = ttl_seconds
        self._filters_due: LRUCache[int, float] = LRUCache(FILTERS_NOTED_MAX)

    # -- used by lookups -----------------------------------------------------------------------------------------------

    @property
    def expected(self) -> bool:
        """Whether a node probably has a snapshot: not if all nodes read so far had none."""
        return self._seen_root or not self._seen_none

    def root(self, node_id: int) -> SnapshotKnown | None:
        """The known state of a node's snapshot; None: its root has to be read first."""
        return self.roots.known(node_id)

    def held(self, node_id: int, stream_id: int, known: SnapshotKnown) -> StreamEntries | None:
        """A stream's entries in this snapshot, if they are in memory."""
        held = self._look(node_id, stream_id)
        return held.entries if held is not None and held.root_etag == known.etag else None

    def may_load_filters(self, node_id: int) -> bool:
        """Whether the node may have a pack of filters, and no lookup has loaded it within the life of a root."""
        if self.packs.known(node_id) is not None:
            return False  # there is none
        with self._lock:
            return self._timer() >= self._filters_due.get(node_id, -math.inf)

    def is_bad(self, known: SnapshotKnown, span: ByteSpan) -> bool:
        """Whether these bytes of the snapshot were read before and could not be used."""
        with self._lock:
            return (known.etag, span) in self._bad

    # -- used by reads of data -----------------------------------------------------------------------------------------

    def find(self, node_id: int, ref: ObjectRef, stream_id: int) -> BlockRow | None:
        """The place of a stream's blocks in an object, as if they were one row of its index; None if not known.

        Returns a row only if the blocks are adjacent, without a hole between their offsets, and if the object's index,
        which has a row for each block, is not in memory. Complexity: O(entries of the stream).
        """
        held = self._look(node_id, stream_id)
        if held is None or self._is_open(ref) or (node_id, ref.object_id, stream_id) in self._wrong:
            return None
        columns = held.entries.columns
        rows = np.flatnonzero((columns.object_ids == ref.object_id) & (held.object_sizes == ref.size_bytes))
        if not len(rows) or columns.holed[rows[0]] or columns.positions[rows[0]] < 0:
            return None
        at = int(rows[0])
        numbers = (columns.starts, columns.ends, columns.record_counts, columns.positions, columns.sizes)
        return BlockRow(stream_id, *(int(column[at]) for column in numbers))

    def used(self, node_id: int, object_id: int, stream_id: int, *, right: bool) -> None:
        """Report that the bytes of a row were fetched; if they did not match the row, it is not returned again."""
        self.counters.add(spans_read=1, spans_wrong=int(not right))
        if not right:
            with self._lock:
                _add_bounded(self._wrong, (node_id, object_id, stream_id))

    # -- used by loads -------------------------------------------------------------------------------------------------

    def saw(self, known: SnapshotKnown) -> None:
        """Report the result of reading a root."""
        self._seen_root |= known.root is not None
        self._seen_none |= known.root is None

    def keep(self, node_id: int, known: SnapshotKnown, entries: StreamEntries) -> None:
        """Keep entries; they are copied, so that they do not keep a larger buffer in memory."""
        if known.root is None:
            return
        columns = EntryColumns.of(column.copy() for column in entries.columns.columns())
        covered = known.root.covered
        sizes = covered.sizes[covered.positions(columns.object_ids)] if len(columns) else columns.sizes
        kept = StreamEntries(entries.stream_id, columns, entries.low, entries.high)
        held = _Held(kept, sizes, known.etag)
        with self._lock:
            self._held.pop((node_id, entries.stream_id), None)
            if held.nbytes <= self._held.maxsize:
                self._held[node_id, entries.stream_id] = held

    def note_filters(self, node_id: int) -> None:
        """Report that a lookup begins to load filters of a node."""
        with self._lock:
            self._filters_due[node_id] = self._timer() + self._ttl_seconds

    def note_bad(self, known: SnapshotKnown, span: ByteSpan) -> None:
        """Report that these bytes cannot be used: they are not read again."""
        with self._lock:
            _add_bounded(self._bad, (known.etag, span))

    def give_up(self, node_id: int, problem: HintProblem) -> None:
        """Report that an object of the root is missing or different: the root is read again in a few seconds."""
        self.roots.give_up(node_id, problem)

    def stats(self) -> HintStats:
        """Counts, and the age of the oldest hint now."""
        return self.counters.stats(oldest_seconds=self._oldest_seconds())

    def caches(self) -> dict[str, CacheStats]:
        """Sizes, hits and evictions of the caches: roots of both kinds, and entries."""
        with self._lock:
            entries = self._held.stats()
        return {"snapshot_roots": self.roots.stats(), "pack_roots": self.packs.stats(), "snapshot_entries": entries}

    def _oldest_seconds(self) -> int | None:
        """The age of the oldest hint, None if there is none; a generation is the time of its build in ms, or later."""
        built_ms = [*self.roots.generations(), *self.packs.generations()]
        return None if self._clock is None or not built_ms else max(0, int(self._clock() - min(built_ms) / 1000))

    def states(self, nodes: Iterable[NodeImage], *, all_of_them: bool = True) -> tuple[NodeHint, ...]:
        """The state of the snapshot and the pack of each node; O(objects of these nodes).

        Args:
            nodes: the nodes.
            all_of_them: whether to include hints that were not read so far.
        """
        found = []
        for node in nodes:
            for kind, roots, unread in (
                ("snapshot", self.roots, "no lookup has needed it"),
                ("pack", self.packs, "warm() loads it"),
            ):
                known = roots.last_known(node.node_id)
                if known is not None or all_of_them:
                    found.append(_state_of(node, kind, known, unread))
        return tuple(found)

    def _look(self, node_id: int, stream_id: int) -> _Held | None:
        with self._lock:
            return self._held.get((node_id, stream_id))


def _add_bounded(few: set[T], one: T) -> None:
    if len(few) >= BAD_SPANS_MAX:
        few.clear()
    few.add(one)


def _state_of(
    node: NodeImage, kind: str, known: KnownRoot[SnapshotRoot] | KnownRoot[PackRoot] | None, unread: str
) -> NodeHint:
    def told(state: HintKnown, reason: str = "", covered: int = 0) -> NodeHint:
        return NodeHint(node.node_id, kind, state, covered, len(node), reason)

    if known is None:
        return told(HintKnown.NOT_READ, unread)
    if known.root is None:
        problem = known.problem
        if problem is None or problem.kind is HintTrouble.MISSING:
            return told(HintKnown.ABSENT, "none was built (accel catalog build-hints)")
        return told(HintKnown.UNUSABLE, f"{problem.kind}: {problem.detail}")
    covered = int(known.root.covers(node.object_ids, node.sizes_bytes).sum())
    if covered < min(COVERED_MIN, len(node)):
        return told(HintKnown.TOO_OLD, f"it covers {covered} of {len(node)} listed objects", covered)
    return told(HintKnown.USED, covered=covered)


def pack_root_key(node_id: int) -> str:
    """The key of the root of a node's pack."""
    return hint_root_key(HintKind.PACKS, node_id)


def snapshot_root_key(node_id: int) -> str:
    """The key of the root of a node's snapshot."""
    return hint_root_key(HintKind.SNAPSHOTS, node_id)


K = TypeVar("K")
V = TypeVar("V")

BodyOrProblem = bytes | HintProblem | AccelError

logger = logging.getLogger(__name__)

OnEntries = Callable[[int, SnapshotKnown, StreamEntries], None]
"""Called with (node, snapshot, entries) in the loading thread, before any caller gets the entries."""


@dataclass(frozen=True, slots=True)
class HintLoad:
    """A running read of a hint; ``started`` is true if this call started the requests."""

    result: Future[HintReply]
    started: bool


class HintLoader:
    """Reads roots and entries of snapshots.

    Args:
        store: contains the snapshots.
        hints: keeps the results.
        executor_of: returns what runs the reads of a node.
        on_entries: called with the entries.

    Threads: any. No lock is held over I/O.
    """

    def __init__(
        self, store: ObjectStore, hints: HintStore, executor_of: Callable[[int], Executor], on_entries: OnEntries
    ) -> None:
        self._store = store
        self._hints = hints
        self._executor_of = executor_of
        self._on_entries = on_entries
        # `hints` keeps the results; these objects only join concurrent reads, until the waiting callers have them.
        self._roots: SharedLoads[int, HintReply] = SharedLoads(0, lambda _: 1, callbacks_first=True)
        self._bodies: SharedLoads[ByteSpan, BodyOrProblem] = SharedLoads(0, lambda _: 1, callbacks_first=True)

    def read_root(self, node_id: int) -> HintLoad:
        """Start to read a node's root, or join a running read of it."""
        if (known := self._hints.root(node_id)) is not None:
            return HintLoad(done_future(HintReply(known, None, known.problem)), started=False)
        return HintLoad(*self._roots.start(node_id, self._executor_of(node_id), partial(self._fetch_root, node_id)))

    def read_entries(self, step: ReadEntries) -> HintLoad:
        """Start to read a stream's entries, or join a running read of the same bytes (of any stream)."""
        held = self._hints.held(step.node.node_id, step.stream_id, step.known)
        if held is not None and held.complete:  # another request has just loaded them
            return HintLoad(done_future(HintReply(step.known, held, None)), started=False)
        result: Future[HintReply] = Future()
        result.set_running_or_notify_cancel()  # from here on no waiting caller can cancel it
        mine: list[Future[BodyOrProblem]] = []
        load = partial(self._fetch_body, step.span)
        try:
            flight = self._bodies.join(step.span, mine)
            outcome = partial(self._outcome, step, started=flight.started)
            flight.result.add_done_callback(lambda body: _land(result, partial(outcome, body)))
            if flight.started:
                self._bodies.submit(self._executor_of(step.node.node_id), step.span, flight.result, load)
        except BaseException:
            self._bodies.rescue(step.span, mine, load)
            raise
        return HintLoad(result, flight.started)

    def _fetch_root(self, node_id: int) -> HintReply:
        counters = self._hints.counters
        counters.add(roots_asked=1, requests=1)
        try:
            known = self._hints.roots.read(self._store, node_id)
        except AccelError as error:
            count_problem(counters, error)
            return HintReply(None, None, error, 1, 0)
        self._hints.saw(known)
        counters.add(bytes_read=known.read_size_bytes)
        if known.problem is not None:
            count_problem(counters, known.problem)
        return HintReply(known, None, known.problem, 1, known.read_size_bytes)

    def _fetch_body(self, span: ByteSpan) -> bytes | HintProblem | AccelError:
        self._hints.counters.add(requests=1)
        try:
            body = read_span(self._store, span)
        except (HintProblem, AccelError) as problem:
            return problem
        self._hints.counters.add(bytes_read=len(body))
        return body

    def _outcome(self, step: ReadEntries, done: Future[BodyOrProblem], *, started: bool) -> HintReply:
        body = done.result()
        size_bytes = len(body) if isinstance(body, bytes) else 0
        entries = _decoded(step, body) if isinstance(body, bytes) else body
        self._hints.counters.add(entries_asked=1)
        if not isinstance(entries, StreamEntries):
            self._note(step, entries)
            return HintReply(step.known, None, entries, int(started), size_bytes * started)
        self._hints.counters.add(entries=len(entries))
        self._hints.keep(step.node.node_id, step.known, entries)
        self._on_entries(step.node.node_id, step.known, entries)
        return HintReply(step.known, entries, None, int(started), size_bytes * started)

    def _note(self, step: ReadEntries, problem: HintProblem | AccelError) -> None:
        count_problem(self._hints.counters, problem)
        if not isinstance(problem, HintProblem):
            return
        if problem.kind in {HintTrouble.STALE, HintTrouble.MIXED}:
            self._hints.give_up(step.node.node_id, problem)
        else:
            self._hints.note_bad(step.known, step.span)


def _decoded(step: ReadEntries, body: bytes) -> StreamEntries | HintProblem:
    root = step.known.root
    if root is None:
        raise ValueError("expected entries of a snapshot with a root, found none")
    try:
        return decode_entries(root, step.span, body, step.stream_id)
    except HintProblem as problem:
        return problem
    except Exception as error:
        # The checksum is right, but the bytes cannot be decoded: no error of a library may fail a lookup.
        logger.warning("entries of snapshot %s could not be decoded", step.span.key, exc_info=True)
        return HintProblem(HintTrouble.CORRUPT, step.span.key, f"{type(error).__name__}: {error}")


def _land(flight: Future[V], work: Callable[[], V]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the waiting callers must get every error
        flight.set_exception(error)
        return
    flight.set_result(result)


READS_AT_ONCE = 4
"""The number of concurrent reads of packs: each may use 16 MiB."""

ROOTS_AT_ONCE = 16
"""The number of concurrent reads of roots of snapshots, which are small."""


@dataclass(frozen=True, slots=True)
class WarmReport:
    """The result of warming up.

    Args:
        nodes: the number of requested nodes.
        snapshots: the number of these with a usable snapshot.
        packs: the number of these with a usable filter pack.
        filters: filters loaded into memory.
        filters_bad: damaged filters, which were ignored.
        requests: the number of requests.
        bytes_read: the bytes of these requests.
        seconds: total time.
        problems: hints that could not be used, as kind and text; a node without hints has the kind "missing".
        hints: for each node the state of its snapshot and of its pack: used, absent, too old or unusable, and why.
    """

    nodes: int = 0
    snapshots: int = 0
    packs: int = 0
    filters: int = 0
    filters_bad: int = 0
    requests: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    problems: tuple[tuple[str, str], ...] = ()
    hints: tuple[NodeHint, ...] = ()


class Warming:
    """One warm-up.

    Args:
        store: contains the hints.
        hints: keeps roots of snapshots, and counts.
        loader: reads roots of snapshots.
        add_filters: adds filters of a node to memory.
        executor: runs the reads.

    Threads: one; `run` waits for tasks of the executor, so it must not be such a task.
    """

    def __init__(
        self,
        store: ObjectStore,
        hints: HintStore,
        loader: HintLoader,
        add_filters: Callable[[int, Iterable[tuple[int, StreamFilter]]], None],
        executor: Executor,
    ) -> None:
        self._store = store
        self._hints = hints
        self._loader = loader
        self._add_filters = add_filters
        self._executor = executor
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("snapshots", "packs", "filters", "filters_bad", "requests", "bytes_read"), 0)
        self._problems: list[tuple[str, str]] = []

    def run(self, nodes: Sequence[NodeImage], timer: Callable[[], float]) -> WarmReport:
        """Load the hints of these nodes; blocks. Temporary memory: four reads of at most 16 MiB."""
        started = timer()
        self._read_snapshot_roots(nodes)
        for _ in self._some_at_once(self._reads(nodes), self._load_filters):
            pass
        self._hints.counters.add(**{name: self._counts[name] for name in ("packs", "filters", "filters_bad")})
        problems, states = tuple(self._problems), self._hints.states(nodes)
        return WarmReport(len(nodes), **self._counts, seconds=timer() - started, problems=problems, hints=states)

    def _read_snapshot_roots(self, nodes: Sequence[NodeImage]) -> None:
        for first in range(0, len(nodes), ROOTS_AT_ONCE):
            loads = [self._loader.read_root(node.node_id) for node in nodes[first : first + ROOTS_AT_ONCE]]
            for load in loads:
                outcome = load.result.result()
                self._count(requests=outcome.requests, bytes_read=outcome.bytes_read)
                if outcome.problem is None:
                    self._count(snapshots=1)
                else:
                    self._problems.append((trouble_of(outcome.problem), str(outcome.problem)))

    def _reads(self, nodes: Sequence[NodeImage]) -> Iterator[_PackRead]:
        for rooted in self._some_at_once(nodes, self._read_pack_root):
            if rooted is not None:
                node, root = rooted
                covered = root.covers(node.object_ids, node.sizes_bytes)
                wanted = frozenset(node.object_ids[covered].tolist())
                for span in plan_pack_reads(root, node.object_ids, node.sizes_bytes):
                    yield _PackRead(node.node_id, root, span, wanted)

    def _read_pack_root(self, node: NodeImage) -> tuple[NodeImage, PackRoot] | None:
        self._asked()
        try:
            fetched = fetch_root(self._store, pack_root_key(node.node_id))
            known = self._hints.packs.take(node.node_id, fetched)
        except (HintProblem, AccelError) as problem:
            self._note(problem)
            return None
        if known.root is None:
            if known.problem is not None:
                self._note(known.problem)
            return None
        self._count(packs=1)
        return node, known.root

    def _load_filters(self, read: _PackRead) -> None:
        self._asked()
        try:
            body = read_span(self._store, read.span)
            self._read_bytes(len(body))
            decoded = decode_pack_span(read.root, read.span, body)
        except (HintProblem, AccelError) as problem:
            self._note(problem)
            return
        taken = [(object_id, stored) for object_id, stored in decoded.filters if object_id in read.wanted]
        self._add_filters(read.node_id, taken)
        self._count(filters=len(taken), filters_bad=decoded.bad)

    def _some_at_once(self, items: Iterable[T], work: Callable[[T], V]) -> Iterator[V]:
        """The results of `work` for the items, in any order; `READS_AT_ONCE` of them run at a time."""
        begun = run_bounded(lambda item: self._executor.submit(work, item), items, READS_AT_ONCE, in_order=False)
        return (future.result() for future in begun)

    def _asked(self) -> None:
        self._count(requests=1)
        self._hints.counters.add(requests=1)

    def _read_bytes(self, size_bytes: int) -> None:
        self._count(bytes_read=size_bytes)
        self._hints.counters.add(bytes_read=size_bytes)

    def _note(self, problem: HintProblem | AccelError) -> None:
        count_problem(self._hints.counters, problem)
        with self._lock:
            self._problems.append((trouble_of(problem), str(problem)))

    def _count(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count


PACK_SIZE_BYTES_MAX = 64 << 20
"""A lookup does not load more bytes of filters than this."""


class FilterLoader:
    """Loads filters for lookups that open many objects in vain; lookups of one node share a load.

    Args:
        store: contains the packs.
        hints: keeps their roots, and counts.
        add_filters: adds filters of a node to memory.
        executor_of: returns what runs the loads of a node.

    Threads: any. No lock is held over I/O.
    """

    def __init__(
        self,
        store: ObjectStore,
        hints: HintStore,
        add_filters: Callable[[int, Iterable[tuple[int, StreamFilter]]], None],
        executor_of: Callable[[int], Executor],
    ) -> None:
        self._store = store
        self._hints = hints
        self._add_filters = add_filters
        self._executor_of = executor_of
        self._loads: SharedLoads[int, HintReply] = SharedLoads(0, lambda _: 1, callbacks_first=True)

    def read(self, step: ReadFilters) -> HintLoad:
        """Start to load filters, or join a running load of the same node."""
        node_id = step.node.node_id
        return HintLoad(*self._loads.start(node_id, self._executor_of(node_id), partial(self._load, step)))

    def _load(self, step: ReadFilters) -> HintReply:
        node_id, counters = step.node.node_id, self._hints.counters
        self._hints.note_filters(node_id)
        requests, size_bytes, loaded = 1, 0, 0
        try:
            known = self._hints.packs.read(self._store, node_id)
            size_bytes = known.read_size_bytes
            if known.root is None:
                raise known.problem or HintProblem(HintTrouble.MISSING, pack_root_key(node_id), "no root")
            wanted_ids, sizes = step.node.object_ids[step.wanted], step.node.sizes_bytes[step.wanted]
            spans = plan_pack_reads(known.root, wanted_ids, sizes)
            if requests + len(spans) >= step.opens or sum(span.size_bytes for span in spans) > PACK_SIZE_BYTES_MAX:
                counters.add(requests=requests, bytes_read=size_bytes)
                return HintReply(None, None, None, requests, size_bytes)
            wanted = frozenset(wanted_ids[known.root.covers(wanted_ids, sizes)].tolist())
            for span in spans:
                requests += 1
                body = read_span(self._store, span)
                size_bytes += len(body)
                decoded = decode_pack_span(known.root, span, body)
                taken = [(object_id, stored) for object_id, stored in decoded.filters if object_id in wanted]
                self._add_filters(node_id, taken)
                counters.add(filters=len(taken), filters_bad=decoded.bad)
                loaded += len(taken)
        except (HintProblem, AccelError) as problem:
            count_problem(counters, problem)
            counters.add(requests=requests, bytes_read=size_bytes)
            return HintReply(None, None, problem, requests, size_bytes, filters=loaded)
        counters.add(requests=requests, bytes_read=size_bytes, packs=1)
        return HintReply(None, None, None, requests, size_bytes, filters=loaded)


class PackFollower:
    """Checks for newer packs of warmed nodes, and loads new filters; in the background, one check at a time.

    A check costs a conditional GET for each node (without a body if the pack is unchanged), and the reads of the new
    filters. Failures are counted, and retried by the next check.

    Args:
        store: contains the packs.
        hints: keeps their roots, and counts.
        add_filters: adds filters of a node to memory.
        executor: runs the checks.
        timer: seconds, from any start.
        every_seconds: the time between two checks.

    Threads: any. The lock is held for work in memory only.
    """

    def __init__(
        self,
        store: ObjectStore,
        hints: HintStore,
        add_filters: Callable[[int, Iterable[tuple[int, StreamFilter]]], None],
        executor: Executor,
        timer: Callable[[], float],
        every_seconds: float,
    ) -> None:
        self._store = store
        self._hints = hints
        self._add_filters = add_filters
        self._executor = executor
        self._timer = timer
        self._every_seconds = every_seconds
        self._lock = threading.Lock()
        self._loaded: dict[int, int] = {}
        self._due_seconds = math.inf
        self._is_looking = False

    def follow(self, nodes: Iterable[NodeImage]) -> None:
        """Follow the packs of these nodes, which have just been loaded."""
        with self._lock:
            for node in nodes:
                known = self._hints.packs.last_known(node.node_id)
                self._loaded[node.node_id] = -1 if known is None or known.root is None else known.root.generation
            if self._loaded:
                self._due_seconds = min(self._due_seconds, self._timer() + self._every_seconds)

    def look_if_due(self, image: MetadataImage) -> None:
        """Begin a check if one is due; does not block."""
        if self._due_seconds == math.inf or self._timer() < self._due_seconds:
            return
        with self._lock:
            if self._is_looking or self._timer() < self._due_seconds:
                return
            self._is_looking = True
            self._loaded = {node_id: loaded for node_id, loaded in self._loaded.items() if node_id in image.nodes}
            followed = dict(self._loaded)
        try:
            self._executor.submit(self._look, image, followed)
        except BaseException:
            self._looked()
            raise

    def _look(self, image: MetadataImage, followed: dict[int, int]) -> None:
        try:
            for node_id, loaded in followed.items():
                self._look_at(image.node(node_id), loaded)
        finally:
            self._looked()

    def _looked(self) -> None:
        with self._lock:
            self._is_looking = False
            self._due_seconds = self._timer() + self._every_seconds

    def _look_at(self, node: NodeImage, loaded: int) -> None:
        counters = self._hints.counters
        if self._hints.packs.known(node.node_id) is not None:
            return  # the node has no pack, and this was checked recently
        counters.add(requests=1)
        try:
            known = self._hints.packs.read(self._store, node.node_id)
            counters.add(bytes_read=known.read_size_bytes)
            if known.root is None or known.root.generation == loaded:
                return
            self._load_newer(node, known.root, loaded)
        except (HintProblem, AccelError) as problem:
            count_problem(counters, problem)
            return
        counters.add(packs=1)
        with self._lock:
            self._loaded[node.node_id] = known.root.generation

    def _load_newer(self, node: NodeImage, root: PackRoot, loaded: int) -> None:
        """Load the filters in data objects that are newer than the loaded generation."""
        generations = np.array([part.generation for part in root.parts], dtype=np.int64)
        entries = root.entries[generations[root.entries["part"]] > loaded] if len(root.parts) else root.entries
        is_new = np.isin(node.object_ids, entries["object_id"])
        wanted_ids, sizes = node.object_ids[is_new], node.sizes_bytes[is_new]
        wanted = frozenset(wanted_ids[root.covers(wanted_ids, sizes)].tolist())
        for span in plan_pack_reads(root, wanted_ids, sizes):
            self._hints.counters.add(requests=1)
            body = read_span(self._store, span)
            decoded = decode_pack_span(root, span, body)
            taken = [(object_id, stored) for object_id, stored in decoded.filters if object_id in wanted]
            self._add_filters(node.node_id, taken)
            self._hints.counters.add(bytes_read=len(body), filters=len(taken), filters_bad=decoded.bad)


class _PackRead(NamedTuple):
    """A byte range of a node's pack to be read, and the ids of the objects whose filters are needed."""

    node_id: int
    root: PackRoot
    span: ByteSpan
    wanted: frozenset[int]
