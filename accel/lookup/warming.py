"""Warming up before the first lookup: loads roots of snapshots, and filters from packs, a few large reads at a time.

An error of a hint or of the store is not raised: the report contains it, it is counted, and the reader starts without
that hint. Only filters of objects that the image lists with the same size as the pack are loaded.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from accel.errors import AccelError
from accel.image import MetadataImage, NodeImage
from accel.lookup.hints import HintLoad, HintLoader, HintStore, pack_root_key
from accel.lookup.stats import NodeHint, count_problem, trouble_of
from accel.lookup.steps import HintReply, ReadFilters
from bloom import StreamFilter
from loaders.hints import ByteSpan, HintProblem, HintTrouble, PackRoot, decode_pack_span, plan_pack_reads, read_span
from loaders.hints.roots import fetch_root
from loaders.shared_loads import SharedLoads
from loaders.store import ObjectStore
from loaders.threads import run_bounded

T = TypeVar("T")
V = TypeVar("V")

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
        self._loads: SharedLoads[int, HintReply] = SharedLoads(0, lambda _: 1, told_first=True)

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
