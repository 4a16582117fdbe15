"""One pass over a node's new objects: each is opened once, for its filter and its entries.

    plan     which objects lack a filter, which are not covered; a few requests a node, no object is opened
    build    open both kinds of objects, in list order; the pack is written during the pass (`filters`), the entries
             are sorted (`EntrySorter`) and then merged with those of the older snapshot (`snapshots`)

Nodes and kinds of hints fail independently: the report contains the failure of one, and the other continues.

An object is opened by one request. An object that cannot be opened is reported and left out; others are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog import ObjectCatalog
from accel.catalog.argument_checks import refuse_unknown_nodes
from accel.catalog.bad_objects import BAD_OBJECTS_MAX, BadObject, Cause, cause_of, objects_left_alone, remember
from accel.catalog.from_image import ImageAccess, ImageCatalog
from accel.catalog.job_runs import BUILD_HINTS, recorded
from accel.catalog.parts import MILLISECONDS, ObjectAccess, Opened, open_each
from accel.catalog.records import NodeList, Rows, refs_of
from accel.errors import AccelError
from accel.hint_building.filters import (
    Depth,
    FilterNeeds,
    NodeFilters,
    Overtaken,
    find_filter_needs,
    write_filters,
)
from accel.hint_building.snapshots import (
    NodeSnapshot,
    SnapshotBuild,
    SnapshotNeeds,
    find_snapshot_needs,
)
from accel.image import MetadataImage
from accel.system import StopRequested
from bloom import StreamFilter, class_for
from loaders.hints import EntrySorter, HintProblem, next_generation, object_entries
from loaders.hints.packs import FilterEntry
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore, ObjectStore
from loaders.store.bill import RequestCause, caused_by

REASON_SIZE_MAX = 2_000
"""Maximum characters of a failure's text."""


def listed_nodes(catalog: ObjectCatalog | ImageCatalog, nodes: frozenset[int] | None = None) -> dict[int, Rows]:
    """Node id -> LIVE rows of its list, ascending. Requests: a refresh; none of an image from elsewhere.

    Args:
        catalog: of the nodes.
        nodes: only these; all by default.

    Raises:
        UnknownNode: a node that the catalog does not have.
        StoreError: the catalog cannot be read now.
        MaintenanceRefused: an image from elsewhere does not have the size of each object.
    """
    return {node_id: listed.live for node_id, listed in _chosen(catalog, nodes).items()}


class _Listed(NamedTuple):
    live: Rows
    node_list: NodeList | None


def _chosen(catalog: ObjectCatalog | ImageCatalog, nodes: frozenset[int] | None) -> dict[int, _Listed]:
    lists = _lists(catalog)
    refuse_unknown_nodes(nodes, lists)
    return {node_id: lists[node_id] for node_id in sorted(lists if nodes is None else nodes)}


@dataclass(frozen=True, slots=True, eq=False)
class ListedNode:
    """A node whose hints are planned. Picklable.

    Args:
        node_id: the node.
        live: LIVE rows of its list.
        set_aside: ids of the objects that earlier runs could not open.
        left_alone: those of them that have not changed since; they are opened for no hint.
    """

    node_id: int
    live: Rows
    set_aside: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    left_alone: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def nodes_to_plan(catalog: ObjectCatalog | ImageCatalog, nodes: frozenset[int] | None = None) -> list[ListedNode]:
    """The nodes of `listed_nodes`, with the objects that were set aside; a request of one byte for each of these.

    Raises:
        Errors of `listed_nodes`.
    """
    found = []
    for node_id, (live, node_list) in _chosen(catalog, nodes).items():
        if isinstance(catalog, ImageCatalog) or node_list is None:
            found.append(ListedNode(node_id, live))
        else:
            rows = node_list.set_aside
            rows = rows[rows["cause"] != Cause.BLOCK]  # its index can be read
            left_alone = objects_left_alone(catalog.parts, replace(node_list, set_aside=rows))
            found.append(ListedNode(node_id, live, rows["object_id"], left_alone))
    return found


def opened_catalog(store: ObjectStore, image: MetadataImage | None) -> ObjectCatalog | ImageCatalog:
    """The stored catalog, or an image from elsewhere in its place; the caller closes it.

    Raises:
        CatalogMissing, StoreError: there is no image, and the catalog cannot be read now.
    """
    return ObjectCatalog.open(store) if image is None else ImageCatalog(store, image)


def _lists(catalog: ObjectCatalog | ImageCatalog) -> dict[int, _Listed]:
    if isinstance(catalog, ImageCatalog):
        return {node_id: _Listed(live, None) for node_id, live in catalog.live_rows().items()}
    lists = catalog.refresh_state().node_lists()
    return {node_id: _Listed(node_list.live, node_list) for node_id, node_list in lists.items()}


@dataclass(frozen=True, slots=True)
class FailedObject:
    """An object that could not be opened, and why; `bad` is None if the fault is that of the store."""

    node_id: int
    object_id: int
    reason: str
    bad: BadObject | None = None

    @classmethod
    def of(cls, node_id: int, ref: ObjectRef, error: AccelError) -> FailedObject:
        """A failure from an exception."""
        reason = f"{type(error).__name__}: {error}"[:REASON_SIZE_MAX]
        cause = cause_of(error)
        bad = None if cause is None else BadObject.of(node_id, ref, cause, error)
        return cls(node_id, ref.object_id, reason, bad)


def open_patiently(parts: ObjectAccess, node_id: int, refs: Iterable[ObjectRef]) -> Iterator[Opened]:
    """Open objects; after a temporary failure, an object is opened once more at the end.

    One ranged GET an object; for an object that cannot be opened, its error is yielded. In order, except for retries.
    """
    again = []
    for ref, opened in open_each(parts, ((node_id, ref) for ref in refs)):
        if isinstance(opened, AccelError) and opened.retryable:
            again.append(ref)
        else:
            yield ref, opened
    yield from open_each(parts, ((node_id, ref) for ref in again))


Progress = Callable[[int, int], object]
"""Called with (done, total)."""


@dataclass(frozen=True, slots=True)
class HintChoice:
    """Which hints are built.

    Args:
        filters: filter packs, by default.
        snapshots: index snapshots, by default.
        depth: how much of the stored hints is used; all by default.
    """

    filters: bool = True
    snapshots: bool = True
    depth: Depth = Depth.MISSING


@dataclass(frozen=True, slots=True, eq=False)
class NodePlan:
    """The hints of a node that must be built. Picklable.

    Args:
        node_id: the node.
        live: LIVE rows of its list.
        filters: the work for its pack; None if no filters are to be built.
        snapshot: the work for its snapshot; None if none is to be built.
        requests: of planning.
        set_aside: ids of objects that earlier runs could not read; those that have not changed since, and are in no
            hint, are not in `live`.
        error: why the node could not be planned; empty if it was.
    """

    node_id: int
    live: Rows
    filters: FilterNeeds | None
    snapshot: SnapshotNeeds | None
    requests: int
    set_aside: tuple[int, ...] = ()
    error: str = ""

    @property
    def to_open(self) -> Rows:
        """LIVE rows of the objects that are opened, in list order."""
        wanted = np.zeros(len(self.live), dtype=np.bool_)
        for needs in (self.filters, self.snapshot):
            if needs is not None:
                wanted |= needs.wanted
        return self.live[wanted]

    @property
    def is_current(self) -> bool:
        """Whether there is no work."""
        return not self.error and all(needs is None or needs.is_current for needs in (self.filters, self.snapshot))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        filters, snapshot = self.filters, self.snapshot
        return {
            "node_id": self.node_id,
            "objects": len(self.live),
            "to_open": len(self.to_open),
            "set_aside": list(self.set_aside),
            "error": self.error,
            "filters": filters
            and {
                "kept": filters.kept,
                "to_build": int(filters.wanted.sum()),
                "bad": filters.bad,
                "to_drop": len(filters.dropped),
                "problem": filters.problem,
            },
            "snapshot": snapshot
            and {
                "kept": snapshot.kept,
                "to_add": int(snapshot.wanted.sum()),
                "is_current": snapshot.is_current,
                "problem": snapshot.problem,
            },
        }


@dataclass(frozen=True, slots=True, eq=False)
class HintPlan:
    """The hints to build, node by node, ascending."""

    nodes: tuple[NodePlan, ...]

    @property
    def to_open(self) -> int:
        """The number of objects to open."""
        return sum(len(node.to_open) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The result for a node's hints.

    Args:
        node_id: the node.
        objects: the number of objects in its list.
        opened: the number of objects that were opened for it.
        filters: the result for its pack; None if no filters were to be built.
        snapshot: the result for its snapshot; None if none was to be built.
        failures: objects that could not be opened.
        requests: of planning and building.
        written_bytes: of both kinds.
        error: why the node could not be planned; empty if it was.
        failed_attempts: before this one, if the engine retries.
    """

    node_id: int
    objects: int
    opened: int = 0
    filters: NodeFilters | None = None
    snapshot: NodeSnapshot | None = None
    failures: tuple[FailedObject, ...] = ()
    requests: int = 0
    written_bytes: int = 0
    error: str = ""
    failed_attempts: int = 0

    @property
    def errors(self) -> tuple[str, ...]:
        """The reasons why a hint was not written."""
        return (
            (self.error,)
            if self.error
            else tuple(each.error for each in (self.filters, self.snapshot) if each is not None and each.error)
        )

    @property
    def overtaken(self) -> tuple[str, ...]:
        """The kinds of hints that another run has written in the meantime."""
        kinds = {"pack": self.filters, "snapshot": self.snapshot}
        return tuple(kind for kind, each in kinds.items() if each is not None and each.is_overtaken)


@dataclass(frozen=True, slots=True, eq=False)
class HintReport:
    """The result of a run.

    Args:
        nodes: the result of each, ascending.
        requests: of planning and building.
        failed_tasks: failed attempts, if the engine retries.
        seconds: from start to end.
    """

    nodes: tuple[NodeReport, ...]
    requests: int
    failed_tasks: int
    seconds: float

    @property
    def is_partial(self) -> bool:
        """Whether any work is left."""
        return any(node.errors or node.failures for node in self.nodes)

    def row(self) -> dict[str, int | float]:
        """The report as one row of numbers."""
        packs = [node.filters for node in self.nodes if node.filters is not None]
        snapshots = [node.snapshot for node in self.nodes if node.snapshot is not None]
        return {
            "nodes": len(self.nodes),
            "objects": sum(node.objects for node in self.nodes),
            "opened_objects": sum(node.opened for node in self.nodes),
            "added_filters": sum(pack.added for pack in packs),
            "dropped_filters": sum(pack.dropped for pack in packs),
            "kept_filters": sum(pack.kept for pack in packs),
            "unfit_objects": sum(pack.unfit for pack in packs),
            "covered_objects": sum(snapshot.covered for snapshot in snapshots),
            "entries": sum(snapshot.entries for snapshot in snapshots),
            "written_bytes": sum(node.written_bytes for node in self.nodes),
            "requests": self.requests,
            "failed_objects": sum(len(node.failures) for node in self.nodes),
            "failed_nodes": sum(bool(node.errors) for node in self.nodes),
            "overtaken_nodes": sum(bool(node.overtaken) for node in self.nodes),
            "failed_tasks": self.failed_tasks,
            "seconds": self.seconds,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        return {**self.row(), "per_node": [asdict(node) for node in self.nodes]}


@caused_by(RequestCause.HINTS)
def plan_hints(
    catalog: ObjectCatalog | ImageCatalog,
    choice: HintChoice,
    *,
    nodes: frozenset[int] | None = None,
    progress: Progress | None = None,
) -> HintPlan:
    """Find the missing hints. Requests: a refresh; two a node for each kind of hint, see `Depth` for more.

    Args:
        catalog: of the nodes; or an image from elsewhere (`accel.catalog.from_image`).
        choice: which hints.
        nodes: only these; all by default.
        progress: called with the number of planned nodes.

    Raises:
        UnknownNode: a node that the catalog does not have.
        StoreError: the catalog could not be read now. The plan names nodes whose hints could not be read.
        MaintenanceRefused: an image from elsewhere does not have the size of each object.
    """
    listed = nodes_to_plan(catalog, nodes)
    planned = []
    for node in listed:
        planned.append(plan_node_hints(catalog.parts, node, choice))
        if progress is not None:
            progress(len(planned), len(listed))
    return HintPlan(tuple(planned))


def plan_node_hints(parts: ObjectAccess, node: ListedNode, choice: HintChoice) -> NodePlan:
    """Find which of one node's hints are missing; the result contains the error if they could not be read."""
    store, namespace, node_id = CountingStore(parts.store), parts.layout.namespace, node.node_id
    set_aside = tuple(node.set_aside.tolist())

    def needs(live: Rows) -> tuple[FilterNeeds | None, SnapshotNeeds | None]:
        return (
            find_filter_needs(store, namespace, node_id, live, choice.depth) if choice.filters else None,
            find_snapshot_needs(store, namespace, node_id, live, choice.depth) if choice.snapshots else None,
        )

    live = node.live
    try:
        found = needs(live)
        wanted = [each.wanted for each in found if each is not None]
        is_left_out = np.isin(live["object_id"], node.left_alone) & np.any([*wanted, np.zeros(len(live))], axis=0)
        if is_left_out.any():
            live = live[~is_left_out]
            found = needs(live)
    except AccelError as error:
        requests = store.snapshot().total.requests
        return NodePlan(node_id, live, None, None, requests, set_aside, _told(error))
    return NodePlan(node_id, live, *found, store.snapshot().total.requests, set_aside)


def build_hints(
    catalog: ObjectCatalog | ImageCatalog,
    plan: HintPlan,
    *,
    run: Callable[[Sequence[NodePlan]], Iterable[NodeReport]] | None = None,
    progress: Progress | None = None,
) -> HintReport:
    """Build the hints of a plan, one node after another; repeating it is safe. The run is recorded (`job_runs`).

    Args:
        catalog: the catalog of the plan.
        plan: the hints to build.
        run: calls `build_node_hints` for each node elsewhere, and returns the results; None = in this process.
        progress: called with the number of opened objects, and the number to open, of this process. If it raises
            `StopRequested`, the hints of that node are not written, and the report has the nodes before it.
    """
    timer = catalog.parts.system.timer
    started, in_all, done = timer(), plan.to_open, 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, in_all)

    built: list[NodeReport] = []
    run_all = run or (lambda nodes: (build_node_hints(catalog.parts, node, tell) for node in nodes))
    with recorded(catalog.parts, BUILD_HINTS) as job:
        try:
            built.extend(run_all(plan.nodes))
        except StopRequested:
            if run is not None:
                raise
            job.stop()
        nodes = tuple(sorted(built, key=lambda node: node.node_id))
        _remember_failures(catalog, plan, nodes)
        requests, failed_tasks = sum(node.requests for node in nodes), sum(node.failed_attempts for node in nodes)
        reasons = [reason for node in nodes for reason in (*node.errors, *(each.reason for each in node.failures))]
        job.add(
            items=sum(node.opened for node in nodes),
            size_bytes=sum(node.written_bytes for node in nodes),
            requests=requests,
            failures=len(reasons),
            reason=reasons[0] if reasons else "",
        )
    return HintReport(nodes, requests, failed_tasks, timer() - started)


def _remember_failures(catalog: ObjectCatalog | ImageCatalog, plan: HintPlan, reports: Sequence[NodeReport]) -> None:
    """Set the objects that could not be opened aside, and forget those that could; not for an image from elsewhere.

    Requests: those of `accel.catalog.bad_objects.remember` for each node with such objects. A node of which no object
    could be opened, or more than `BAD_OBJECTS_MAX` could not, is passed over: the fault is that of the store.
    """
    if isinstance(catalog, ImageCatalog):
        return
    plans = {node.node_id: node for node in plan.nodes}
    for report in reports:
        bad = [each.bad for each in report.failures if each.bad is not None]
        if len(bad) > BAD_OBJECTS_MAX or (len(bad) > 1 and not report.opened):
            continue
        node, failed = plans[report.node_id], {each.object_id for each in report.failures}
        sound = {*node.set_aside}.intersection(node.to_open["object_id"].tolist()) - failed
        remember(catalog.parts, report.node_id, bad, sorted(sound))


def build_node_hints(parts: ObjectAccess, plan: NodePlan, tell: Callable[[], object] = lambda: None) -> NodeReport:
    """Build one node's hints; the result contains the failures.

    Requests: one for each object to open, and those of `write_filters` and `SnapshotBuild.write`. Memory: a data object
    of filters, and 64 MiB of entries, for a moment three times this size; further entries are in temporary files.

    Args:
        parts: of the catalog, or of an image from elsewhere.
        plan: the hints to build.
        tell: called for each opened object.
    """
    if plan.error:
        return NodeReport(plan.node_id, len(plan.live), requests=plan.requests, error=plan.error)
    if plan.is_current:
        return _current(plan)
    counted = CountingStore(parts.store)
    with EntrySorter() as sorter:
        access = ImageAccess(counted, parts.layout, parts.executor, parts.settings, parts.system)
        built = _NodeBuild(access, plan, sorter, tell).run()
    total = counted.snapshot().total
    return replace(built, requests=plan.requests + total.requests, written_bytes=total.sent_bytes)


def _current(plan: NodePlan) -> NodeReport:
    covered = len(plan.live)
    filters = None if plan.filters is None else NodeFilters(kept=plan.filters.kept)
    snapshot = None if plan.snapshot is None else NodeSnapshot(covered=covered, kept=covered, is_current=True)
    return NodeReport(plan.node_id, len(plan.live), 0, filters, snapshot, requests=plan.requests)


class _NodeBuild:
    """Builds one node's hints. Threads: one."""

    def __init__(self, parts: ObjectAccess, plan: NodePlan, sorter: EntrySorter, tell: Callable[[], object]) -> None:
        self._parts = parts
        self._plan = plan
        self._sorter = sorter
        self._tell = tell
        self._now_ms = int(parts.system.clock() * MILLISECONDS)
        self._order_ids = dict(zip(plan.live["object_id"].tolist(), plan.live["order_id"].tolist(), strict=True))
        self._with_filter = _ids_wanted(plan.live, plan.filters)
        self._with_entries = _ids_wanted(plan.live, plan.snapshot)
        self._opened = self._unfit = self._added = 0
        self._entered: list[ObjectRef] = []
        self._failures: list[FailedObject] = []

    def run(self) -> NodeReport:
        plan = self._plan
        coming = self._filters(plan.to_open)
        filters = self._written_filters(coming)
        for _ in coming:
            pass  # opens the objects that the pack did not take: there is no pack to write, or writing failed
        snapshot = self._written_snapshot()
        failures = tuple(self._failures)
        return NodeReport(plan.node_id, len(plan.live), self._opened, filters, snapshot, failures)

    def _filters(self, rows: Rows) -> Iterator[FilterEntry]:
        """Open objects; yield the filters to build, and pass the entries to the sorter."""
        for ref, opened in open_patiently(self._parts, self._plan.node_id, refs_of(rows)):
            self._tell()
            if isinstance(opened, AccelError):
                self._failures.append(FailedObject.of(self._plan.node_id, ref, opened))
                continue
            self._opened += 1
            if ref.object_id in self._with_entries:
                self._enter(opened)
            if ref.object_id not in self._with_filter:
                continue
            if class_for(len(opened.ranges)) is None:
                self._unfit += 1
                continue
            self._added += 1
            yield opened.ref, StreamFilter.build(opened.ranges.stream_ids)

    def _enter(self, opened: OpenedObject) -> None:
        object_id = opened.ref.object_id
        composite = opened.composite is not None
        self._sorter.add(object_entries(object_id, self._order_ids[object_id], opened.index, composite=composite))
        self._entered.append(ObjectRef(object_id, opened.ref.size_bytes))

    def _written_filters(self, coming: Iterator[FilterEntry]) -> NodeFilters | None:
        needs = self._plan.filters
        if needs is None:
            return None
        if needs.is_current:
            return NodeFilters(kept=needs.kept)
        namespace, node_id = self._parts.layout.namespace, self._plan.node_id
        try:
            write_filters(self._parts.store, namespace, node_id, needs, coming, self._now_ms)
        except Overtaken:
            return NodeFilters(kept=needs.kept, unfit=self._unfit, is_overtaken=True)
        except AccelError as error:
            return NodeFilters(kept=needs.kept, unfit=self._unfit, error=_told(error))
        return NodeFilters(self._added, len(needs.dropped), needs.kept, self._unfit)

    def _written_snapshot(self) -> NodeSnapshot | None:
        needs = self._plan.snapshot
        if needs is None:
            return None
        covered = len(self._plan.live)
        if needs.is_current:
            return NodeSnapshot(covered=covered, kept=covered, is_current=True)
        previous = needs.previous
        if previous is not None and not self._entered and len(previous.covered) == needs.kept:
            return NodeSnapshot(covered=needs.kept, kept=needs.kept, is_current=True)  # new objects cannot be opened
        try:
            return self._snapshot(needs)
        except Overtaken:
            return NodeSnapshot(problem=needs.problem, is_overtaken=True)
        except (AccelError, ValueError, OSError) as error:
            return NodeSnapshot(problem=needs.problem, error=_told(error))

    def _snapshot(self, needs: SnapshotNeeds) -> NodeSnapshot:
        kept = self._plan.live[~needs.wanted]
        build = self._build(needs)
        try:
            return build.write(kept, self._entered)
        except HintProblem as problem:
            needs = replace(needs, previous=None, problem=str(problem))
        # Objects whose entries were to be copied must be opened.
        self._with_entries |= set(kept["object_id"].tolist())
        self._with_filter = frozenset()
        for _ in self._filters(kept):
            pass
        return self._build(needs).write(kept[:0], self._entered)

    def _build(self, needs: SnapshotNeeds) -> SnapshotBuild:
        parts, node_id = self._parts, self._plan.node_id
        generation = next_generation(needs.generation, self._now_ms)
        nonce = parts.system.nonce
        return SnapshotBuild(parts.store, parts.layout.namespace, node_id, needs, generation, self._sorter, nonce)


def _ids_wanted(live: Rows, needs: FilterNeeds | SnapshotNeeds | None) -> frozenset[int]:
    return frozenset() if needs is None else frozenset(live["object_id"][needs.wanted].tolist())


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
