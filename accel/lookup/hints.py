"""Index snapshots: reads them from the bucket, each byte range once for all callers, and keeps them in bounded memory.

The entries of a stream have two uses. A lookup gets from them which objects of a list hold the stream, and which lack
it; the range index does not store the latter. A read of data gets from them where the stream's blocks are in an object,
so that it need not open the object's index. Old entries are still correct for their objects. Lookups use entries only
with the root that they were read with, since the root contains which objects they cover.

No error of a hint fails a lookup. An error of a hint, or of the store while a hint is read, becomes the `problem` of
the outcome and a count; the lookup continues without the hint.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from accel.errors import AccelError
from accel.image import NodeImage, ObjectRef
from accel.lookup.stats import Counters, HintKnown, HintStats, NodeHint, count_problem
from accel.lookup.steps import HintReply, ReadEntries, SnapshotKnown
from accel.settings import Settings
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
    decode_snapshot_root,
    read_span,
)
from loaders.layout import HintKind, hint_root_key
from loaders.shared_loads import SharedLoads, done_future
from loaders.store import ObjectStore

BAD_SPANS_MAX = 1024
"""The maximum number of remembered unusable spans and rows; when it is reached, all are forgotten."""

FILTERS_NOTED_MAX = 1024
"""Nodes whose last load of filters is remembered."""

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
        settings: limits of memory and time.
        is_open: whether an object's index is in memory.
        clock: seconds since 1970, for the age of hints.

    Threads: any. The lock is held for work in memory only.
    """

    def __init__(
        self,
        namespace: str,
        timer: Callable[[], float],
        settings: Settings,
        is_open: Callable[[ObjectRef], bool] = lambda _: False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.namespace = namespace
        self.counters = Counters(HintStats)
        self.roots: RootCache[SnapshotRoot] = RootCache(
            snapshot_root_key,
            lambda data, node_id: decode_snapshot_root(data, namespace=namespace, node_id=node_id),
            timer,
            size_bytes_max=settings.hint_root_size_bytes_max,
            ttl_seconds=settings.hint_ttl_seconds,
            missing_ttl_seconds=settings.hint_missing_ttl_seconds,
        )
        self.packs: RootCache[PackRoot] = RootCache(
            pack_root_key,
            lambda data, node_id: decode_pack_root(data, namespace=namespace, node_id=node_id),
            timer,
            size_bytes_max=settings.hint_root_size_bytes_max // 4,
            ttl_seconds=0.0,  # a caller that reads a root needs to know whether it has changed
            missing_ttl_seconds=settings.hint_missing_ttl_seconds,
        )
        """Roots of loaded packs; conditional GETs show whether there are newer ones."""
        self._lock = threading.Lock()
        self._held: CountedCache[tuple[int, int], _Held] = CountedCache(
            settings.hint_entry_size_bytes_max, lambda held: held.nbytes
        )
        self._bad: set[tuple[str, ByteSpan]] = set()
        self._wrong: set[tuple[int, int, int]] = set()
        self._is_open = is_open
        self._clock = clock
        self._seen_root = self._seen_none = False
        self._timer = timer
        self._ttl_seconds = settings.hint_ttl_seconds
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

    def _oldest_seconds(self) -> int:
        """The age of the oldest hint; a generation is the time of its build in milliseconds, or slightly later."""
        built_ms = [*self.roots.generations(), *self.packs.generations()]
        return 0 if self._clock is None or not built_ms else max(0, int(self._clock() - min(built_ms) / 1000))

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
        self._roots: SharedLoads[int, HintReply] = SharedLoads(0, lambda _: 1, told_first=True)
        self._bodies: SharedLoads[ByteSpan, BodyOrProblem] = SharedLoads(0, lambda _: 1, told_first=True)

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
