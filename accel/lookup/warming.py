"""Warming up before the first lookup: roots of snapshots, and filters out of packs, a few large reads at a time.

What is wrong with a hint, or with the store, fails nothing: it stands in the report, is counted, and the reader starts
without that hint. Only filters of objects that the image lists, with the size that the pack says, are taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from accel.errors import AccelError
from accel.image import NodeImage
from accel.lookup.hints import HintLoader, HintStore
from accel.lookup.stats import count_problem, trouble_of
from bloom import StreamFilter
from loaders.hints import ByteSpan, HintProblem, PackRoot, decode_pack_span, plan_pack_reads, read_pack_root, read_span
from loaders.parallel import run_bounded
from loaders.store import ObjectStore

T = TypeVar("T")
V = TypeVar("V")

READS_AT_ONCE = 4
"""Reads of packs under way at the same time: each may hold 16 MiB."""

ROOTS_AT_ONCE = 16
"""Roots of snapshots that are read at the same time: they are small."""


@dataclass(frozen=True, slots=True)
class WarmReport:
    """What warming up brought.

    Args:
        nodes: how many were asked for.
        snapshots: of these, so many have a snapshot that can be used.
        packs: of these, so many have a filter pack that can be used.
        filters: filters taken into memory.
        filters_bad: filters left out, as they were damaged.
        requests: made.
        bytes_read: by these.
        seconds: in all.
        problems: what could not be used, as kind and text; a node without hints is one of kind "missing".
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


class Warming:
    """One warm-up.

    Args:
        store: where the hints lie.
        hints: keeps roots of snapshots, and counts.
        loader: reads these.
        add_filters: takes filters of a node.
        executor: runs the reads.

    Threads: made and run by one; it waits for tasks of the executor, so it must not be one of them.
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
        """Load what there is for these nodes; blocks. Memory besides what is kept: four reads of at most 16 MiB."""
        started = timer()
        self._read_snapshot_roots(nodes)
        for _ in self._some_at_once(self._reads(nodes), self._load_filters):
            pass
        self._hints.counters.add(**{name: self._counts[name] for name in ("packs", "filters", "filters_bad")})
        return WarmReport(len(nodes), **self._counts, seconds=timer() - started, problems=tuple(self._problems))

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
            root = read_pack_root(self._store, self._hints.namespace, node.node_id)
        except (HintProblem, AccelError) as problem:
            self._note(problem)
            return None
        self._count(packs=1)
        return node, root

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
        """What work makes of the items, in any order; a few of them under way at a time."""
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


class _PackRead(NamedTuple):
    """A stretch of a node's pack to be read, and whose filters in it are wanted."""

    node_id: int
    root: PackRoot
    span: ByteSpan
    wanted: frozenset[int]
