"""Filter packs on Spark: which objects lack a filter, their filters built in tasks, a generation a node written here.

    plan = plan_filters_on_spark(spark, store)          a task a node; a dry run ends here
    report = build_filters_on_spark(spark, store, plan) a task for 64 objects

Wanted are filters of objects that are listed and have none, of those whose filter is foreign (built for an object of
another size), and where a data object of the pack is gone; on request also of those whose stored filter cannot be read
or is bad (docs/hints.md), which takes reading all of the pack. Other filters stay as they are; those of objects that
are listed no more are dropped.

Filters come back to the driver in the order of the nodes and go into one pack after the other, so it holds few of them
at a time: the results of twice as many tasks as run at once, and a data object of 16 MiB. An object that cannot be
opened gets no filter, is told, and is taken up by the next run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from accel.catalog import ObjectCatalog
from accel.catalog.records import Rows
from accel.errors import AccelError
from bloom import StreamFilter, class_for
from loaders.hints import (
    HintProblem,
    HintTrouble,
    PackRoot,
    delete_old_generations,
    is_bad,
    load_pack,
    next_generation,
    read_pack_root,
    write_pack,
)
from loaders.hints.packs import FilterEntry
from loaders.layout import HintKind, hint_node_prefix
from loaders.store import CountingStore
from spark_jobs.nodes import Chunk, FailedObject, chunk_count, chunks_of, listed_nodes, open_patiently
from spark_jobs.tasks import StoreSpec, TaskOutcome, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Depth(StrEnum):
    """Which filters are built."""

    MISSING = "missing"
    """Those of objects that have none of their id and size."""
    BAD = "bad"
    """Also those whose stored filter cannot be read or lets too much pass."""
    ALL = "all"
    """Every one."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeNeeds:
    """What a node's pack needs. Picklable.

    Args:
        node_id: whose pack.
        objects: how many objects are listed.
        wanted: LIVE rows of the objects to build filters for.
        previous: the root that the next generation builds on; None to write a whole pack.
        generation: of the root that lies there, if its number can be read.
        dropped: ids in that root that are not listed, or not with that size.
        bad: filters that are to be replaced: foreign, gone, bad or unreadable.
        problem: why the root that lies there cannot be used; empty if it can, or there is none.
        requests: what it took to find out.
    """

    node_id: int
    objects: int
    wanted: Rows
    previous: PackRoot | None
    generation: int | None
    dropped: tuple[int, ...]
    bad: int
    problem: str
    requests: int

    @property
    def kept(self) -> int:
        """Filters that stay."""
        return self.objects - len(self.wanted)

    @property
    def is_current(self) -> bool:
        """Whether nothing is to be done."""
        return self.previous is not None and not len(self.wanted) and not self.dropped


def find_needs(store: CountingStore, namespace: str, node_id: int, live: Rows, depth: Depth) -> NodeNeeds:
    """What a node's pack needs. Two requests, and with `Depth.BAD` those of reading the pack.

    Raises:
        StoreError: the store could not say.
    """
    previous, problem = _previous_root(store, namespace, node_id)
    generation = None if previous is None else previous.generation
    if previous is None or depth is Depth.ALL:
        return NodeNeeds(node_id, len(live), live, None, generation, (), 0, problem, store.snapshot().total.requests)
    held = previous.covers(live["object_id"], live["size_bytes"])
    listed = np.isin(previous.entries["object_id"], live["object_id"][held])
    there = held & _in_parts_that_are_there(store, previous, live["object_id"])
    foreign = int(np.isin(previous.entries["object_id"][~listed], live["object_id"]).sum())
    good = _good(store, previous, live[there]) if depth is Depth.BAD else live["object_id"][there]
    wanted = live[~np.isin(live["object_id"], good)]
    dropped = tuple(previous.entries["object_id"][~listed].tolist())
    bad = foreign + int(held.sum()) - len(good)
    requests = store.snapshot().total.requests
    return NodeNeeds(node_id, len(live), wanted, previous, generation, dropped, bad, "", requests)


def _previous_root(store: CountingStore, namespace: str, node_id: int) -> tuple[PackRoot | None, str]:
    try:
        return read_pack_root(store, namespace, node_id), ""
    except HintProblem as problem:
        return None, "" if problem.kind is HintTrouble.MISSING else str(problem)


def _in_parts_that_are_there(store: CountingStore, root: PackRoot, object_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each object whether the data object lies there, whole, that its filter is in: hints may be deleted."""
    sizes = {info.key: info.size_bytes for info in store.list(hint_node_prefix(HintKind.PACKS, root.node_id))}
    parts = [sizes.get(root.part_key(number)) == part.size_bytes for number, part in enumerate(root.parts)]
    places = root.covered.positions(object_ids)
    of_none = len(parts)
    numbers = np.append(root.entries["part"], of_none)[places]
    is_there: NDArray[np.bool_] = np.array([*parts, False])[numbers]
    return is_there


def _good(store: CountingStore, root: PackRoot, live: Rows) -> NDArray[np.int64]:
    filters = load_pack(store, root, live["object_id"], live["size_bytes"])
    return np.array([object_id for object_id, stream_filter in filters if not is_bad(stream_filter)], dtype=np.int64)


TASKS_AT_ONCE = 8
Progress = Callable[[int, int], object]
"""Told (done, in all)."""


@dataclass(frozen=True, slots=True, eq=False)
class FilterPlan:
    """What is to be built, node by node."""

    nodes: tuple[NodeNeeds, ...]

    @property
    def tasks(self) -> int:
        """How many tasks that takes."""
        return sum(chunk_count(needs.wanted) for needs in self.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class NodeFilters:
    """What became of a node's pack.

    Args:
        needs: what was planned.
        added: filters that were written.
        unfit: objects that can have no filter: of no stream, or of more than 23,929.
        failures: objects that could not be opened.
        failed_tasks: attempts that failed.
        error: why the pack could not be written; empty if it was, or nothing was to be done.
    """

    needs: NodeNeeds
    added: int = 0
    unfit: int = 0
    failures: tuple[FailedObject, ...] = ()
    failed_tasks: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FilterReport:
    """What a run did.

    Args:
        nodes: what became of each.
        written_bytes: of data objects and roots.
        requests: of tasks and driver.
        seconds: from start to end.
    """

    nodes: tuple[NodeFilters, ...]
    written_bytes: int
    requests: int
    seconds: float

    @property
    def is_partial(self) -> bool:
        """Whether something was left undone."""
        return any(node.error or node.failures for node in self.nodes)

    def row(self) -> dict[str, int | float]:
        """The report as one row of numbers."""
        return {
            "nodes": len(self.nodes),
            "objects": sum(node.needs.objects for node in self.nodes),
            "added_filters": sum(node.added for node in self.nodes),
            "dropped_filters": sum(len(node.needs.dropped) for node in self.nodes if not node.error),
            "kept_filters": sum(node.needs.kept for node in self.nodes),
            "bad_filters": sum(node.needs.bad for node in self.nodes),
            "written_bytes": self.written_bytes,
            "requests": self.requests,
            "failed_objects": sum(len(node.failures) for node in self.nodes),
            "failed_nodes": sum(bool(node.error) for node in self.nodes),
            "failed_tasks": sum(node.failed_tasks for node in self.nodes),
            "seconds": self.seconds,
        }


def plan_filters_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    *,
    nodes: frozenset[int] | None = None,
    depth: Depth = Depth.MISSING,
    at_once: int = TASKS_AT_ONCE,
    progress: Progress | None = None,
) -> FilterPlan:
    """Find out which filters are missing, each node in a task of its own. Requests: a root a node; see `Depth`.

    Args:
        spark: the session.
        store: where the catalog lies.
        nodes: only these; all by default.
        depth: which filters to build.
        at_once: tasks that run at the same time.
        progress: told how many nodes are planned.

    Raises:
        ValueError: a node that the catalog does not have.
        TaskFailed: a node could not be planned.
        CatalogMissing, StoreError: the catalog cannot be read now.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        namespace, lists = catalog.format.namespace, listed_nodes(catalog, nodes)
    survey = partial(_survey_on_executor, store, namespace, depth)
    needs: list[NodeNeeds] = []
    for outcome in run_tasks(spark, survey, lists.items(), at_once=at_once, label=_survey_label):
        needs.append(outcome.required())
        if progress is not None:
            progress(len(needs), len(lists))
    return FilterPlan(tuple(sorted(needs, key=lambda node: node.node_id)))


def build_filters_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    plan: FilterPlan,
    *,
    at_once: int = TASKS_AT_ONCE,
    progress: Progress | None = None,
) -> FilterReport:
    """Build what a plan wants, and write a generation for each node that needs one; repeating it is safe.

    Args:
        spark: the session.
        store: where the catalog lies.
        plan: what to build.
        at_once: tasks that run at the same time.
        progress: told how many tasks are done.

    Raises:
        CatalogMissing, StoreError: the catalog cannot be read now. What fails later stands in the report.
    """
    counted = store.open()
    with ObjectCatalog.open(counted) as catalog:
        timer, namespace = catalog.parts.system.timer, catalog.format.namespace
        started, now_ms = timer(), catalog.parts.now_ms()
    chunks = (chunk for needs in plan.nodes for chunk in chunks_of(needs.node_id, needs.wanted))
    built = run_tasks(spark, partial(_build, store), chunks, at_once=at_once, label=_build_label, in_order=True)
    work = _Writing(counted, namespace, now_ms, _told(built, plan.tasks, progress))
    nodes = tuple(work.write(needs) for needs in plan.nodes)
    total = counted.snapshot().total
    requests = total.requests + work.task_requests + sum(needs.requests for needs in plan.nodes)
    return FilterReport(nodes, total.sent_bytes, requests, timer() - started)


@dataclass(frozen=True, slots=True)
class _Built:
    """What a task sends back.

    Args:
        filters: objects with their filters.
        unfit: objects that can have none.
        failures: objects that could not be opened.
        requests: that it took.
    """

    filters: tuple[FilterEntry, ...]
    unfit: int
    failures: tuple[FailedObject, ...]
    requests: int


def _survey_on_executor(store: StoreSpec, namespace: str, depth: Depth, node: tuple[int, Rows]) -> NodeNeeds:
    return find_needs(store.open(), namespace, *node, depth)


def _build(store: StoreSpec, chunk: Chunk) -> _Built:
    counted, unfit = store.open(), 0
    filters: list[FilterEntry] = []
    failures: list[FailedObject] = []
    with ObjectCatalog.open(counted) as catalog:
        for ref, opened in open_patiently(catalog.parts, chunk.node_id, chunk.refs):
            if isinstance(opened, AccelError):
                failures.append(FailedObject.of(chunk.node_id, ref, opened))
            elif class_for(len(opened.ranges)) is None:
                unfit += 1
            else:
                filters.append((opened.ref, StreamFilter.build(opened.ranges.stream_ids)))
    return _Built(tuple(filters), unfit, tuple(failures), counted.snapshot().total.requests)


def _survey_label(node: tuple[int, Rows]) -> str:
    return f"accel: look at the filters of node {node[0]}, {len(node[1])} objects"


def _build_label(chunk: Chunk) -> str:
    return f"accel: build filters of {chunk}"


def _told(
    outcomes: Iterator[TaskOutcome[Chunk, _Built]], total: int, progress: Progress | None
) -> Iterator[TaskOutcome[Chunk, _Built]]:
    for done, outcome in enumerate(outcomes, 1):
        if progress is not None:
            progress(done, total)
        yield outcome


@dataclass(slots=True, eq=False)
class _Writing:
    """Writes packs from outcomes that come in the order of nodes and their objects. Threads: one."""

    _store: CountingStore
    _namespace: str
    _now_ms: int
    _built: Iterator[TaskOutcome[Chunk, _Built]]
    task_requests: int = 0

    def write(self, needs: NodeNeeds) -> NodeFilters:
        """Write the next generation of a node's pack, if it needs one."""
        if needs.is_current:
            return NodeFilters(needs)
        mine = islice(self._built, chunk_count(needs.wanted))
        taken = _Taken()
        try:
            self._write_pack(needs, self._filters(mine, taken))
        except AccelError as error:
            deque(mine, maxlen=0)  # what comes next is another node's
            return taken.report(needs, f"{type(error).__name__}: {error}")
        return taken.report(needs)

    def _write_pack(self, needs: NodeNeeds, added: Iterator[FilterEntry]) -> None:
        first = list(islice(added, 1))
        if not first and needs.previous is not None and not needs.dropped:
            return  # the objects that lack a filter can have none
        write_pack(
            self._store,
            namespace=self._namespace,
            node_id=needs.node_id,
            generation=next_generation(needs.generation, self._now_ms),
            added=chain(first, added),
            previous=needs.previous,
            dropped=needs.dropped,
        )
        delete_old_generations(self._store, HintKind.PACKS, needs.node_id, namespace=self._namespace)

    def _filters(self, outcomes: Iterator[TaskOutcome[Chunk, _Built]], taken: _Taken) -> Iterator[FilterEntry]:
        for outcome in outcomes:
            taken.take(outcome)
            if outcome.result is not None:
                self.task_requests += outcome.result.requests
                yield from outcome.result.filters


class _Taken:
    """What a node's tasks have sent so far. Threads: one."""

    def __init__(self) -> None:
        self._added = self._unfit = self._failed_tasks = 0
        self._failures: list[FailedObject] = []

    def take(self, outcome: TaskOutcome[Chunk, _Built]) -> None:
        self._failed_tasks += outcome.failed_attempts
        if outcome.result is None:
            chunk, reason = outcome.value, str(outcome.error)
            self._failures += [FailedObject(chunk.node_id, ref.object_id, reason) for ref in chunk.refs]
            return
        self._added += len(outcome.result.filters)
        self._unfit += outcome.result.unfit
        self._failures += outcome.result.failures

    def report(self, needs: NodeNeeds, error: str = "") -> NodeFilters:
        added = 0 if error else self._added
        return NodeFilters(needs, added, self._unfit, tuple(self._failures), self._failed_tasks, error)
