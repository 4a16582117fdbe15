"""Planning: chooses which neighbours of which nodes are merged.

    survey_catalog   reads the catalog's lists       which nodes have too many objects; opens no object
    plan_node        reads the indexes of one node   its groups; one node after another, or a task each
    assemble_plan    combines the plans              the groups that fit into the bytes of one run

A node is planned in two steps. One pass over its objects in list order finds the permitted runs of neighbours
(`facts`), and the cheapest of these are chosen (`grouping`). Then the code of the merge simulates each chosen group: so
the plan contains the exact number of outputs, and a group that would not reduce the number of objects is left out.

**Data that is not needed any more** also goes from objects that are not merged with others, on every node: an object is
rewritten alone, without this data, if at least a quarter of its bytes are below first kept offsets; and whatever the
share, if it has data of a stream that is closed and wholly trimmed, as deleted streams are. An object is looked at on
one of `REWRITE_DAYS` days, by its id, and only if its sketch does not exclude all trimmed streams: so an object with
many short-lived streams is not opened or rewritten for each of them. Objects that no record is kept of are left to the
collector, which retires them without reading their data (`accel.catalog.dead_objects`).

The planner reads lists, not sessions: a node that left the cluster years ago is compacted like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog.bad_objects import BadObjects, objects_left_alone
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.dead_objects import FirstKept, may_hold, streams_of_node
from accel.catalog.parts import MILLISECONDS, ObjectAccess, open_each
from accel.catalog.records import STREAMS_AN_OBJECT_MAX, Rows, refs_of
from accel.compaction.facts import GroupLimits, MergeCandidate, StreamTrail, earliest_starts
from accel.compaction.grouping import Run, choose_groups
from accel.compaction.plan import CompactionPlan, FailedNode, Group, NodePlan, Skipped, SparedNode, assemble_plan
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, FormatError
from loaders.format import BlockIndex
from loaders.merge.plan import plan_merge
from loaders.merge.reading import ROW_SIZE_BYTES_MAX
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef

Progress = Callable[[int, int], object]
"""Called with (done, total)."""

DEAD_SHARE = 0.25
"""An object of which at least this share of the bytes is below first kept offsets is rewritten alone."""

REWRITE_DAYS = 7
"""Each object is looked at on one of this number of days."""

DAY_MS = 86_400_000

INDEXES_KEPT_BYTES_MAX = 64 << 20
"""Limit of indexes kept from the first step for the second; the others are opened twice."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeSurvey:
    """A node to be planned: the input of `plan_node`, besides the objects. Picklable.

    Args:
        node_id: the node.
        live: LIVE rows of its list.
        target_objects: the number to reach.
        surveyed_at_ms: milliseconds since 1970; ages count from then.
        trimmed_ids: streams whose first kept offset is above 0, ascending.
        trimmed_starts: these offsets.
        gone_ids: those of these streams that are closed and trimmed to their ends, ascending.
        may_be_trimmed: by position in the list, whether the object may hold data of a trimmed stream; None = objects
            are not rewritten alone.
        set_aside: ids of objects that earlier runs could not read, and that have not changed since.
    """

    node_id: int
    live: Rows
    target_objects: int
    surveyed_at_ms: int
    trimmed_ids: NDArray[np.int64]
    trimmed_starts: NDArray[np.int64]
    gone_ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    may_be_trimmed: NDArray[np.bool_] | None = None
    set_aside: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def plan_compaction(
    catalog: ObjectCatalog, settings: CompactionSettings, *, progress: Progress | None = None
) -> CompactionPlan:
    """Plan a whole run in this process.

    Requests: a refresh, and those of `plan_node` for each node with too many objects or trimmed streams.

    Args:
        catalog: of the objects.
        settings: when and how much.
        progress: called with the number of opened objects, and the number to open.

    Raises:
        MaintenanceRefused: the plan would make too many objects of one stream.
        StoreError: the catalog could not be read now. The plan names nodes that could not be planned.
    """
    found = survey_catalog(catalog, settings)
    merged = [len(survey.live) for survey in found.nodes if survey.target_objects < len(survey.live)]
    tell = _Tally(sum(merged), progress)
    nodes: list[NodePlan] = []
    failed: list[FailedNode] = []
    for survey in found.nodes:
        try:
            nodes.append(plan_node(catalog.parts, survey, settings, progress=tell))
        except AccelError as error:
            failed.append(FailedNode.of(survey.node_id, len(survey.live), error))
    return assemble_plan(catalog.parts.now_ms(), settings, tuple(nodes), found.spared, tuple(failed))


class CatalogSurvey(NamedTuple):
    """The result of reading all lists.

    Attributes:
        nodes: those with too many objects, or with objects that may hold data of trimmed streams, ascending.
        spared: the others, and why they are left alone.
    """

    nodes: tuple[NodeSurvey, ...]
    spared: tuple[SparedNode, ...]


def survey_catalog(catalog: ObjectCatalog, settings: CompactionSettings) -> CatalogSurvey:
    """Find the nodes to be planned. Requests: a refresh, and one of one byte for each object that was set aside.

    Raises:
        StoreError: the catalog cannot be read now.
    """
    state = catalog.refresh_state()
    lists = state.node_lists()
    now_ms = catalog.parts.now_ms()
    shards = [seen.value for seen in state.shards]
    first_kept = FirstKept.of(shards)
    columns = (now_ms, first_kept.stream_ids, first_kept.starts, first_kept.stream_ids[first_kept.is_gone])
    counts = {node_id: len(node_list.live) for node_id, node_list in sorted(lists.items())}
    targets = settings.targets(counts)
    surveys = []
    for node_id, count in counts.items():
        if settings.nodes is not None and node_id not in settings.nodes:
            continue
        held = may_hold(lists[node_id], streams_of_node(shards, node_id, first_kept.stream_ids))
        if node_id in targets or held.any():
            target = targets.get(node_id, count)
            left_alone = objects_left_alone(catalog.parts, lists[node_id])
            if settings.retry_set_aside:
                left_alone = left_alone[:0]
            surveys.append(
                NodeSurvey(node_id, lists[node_id].live, target, *columns, may_be_trimmed=held, set_aside=left_alone)
            )
    nodes = tuple(surveys)
    planned = {survey.node_id for survey in nodes}
    spared = (
        SparedNode(node_id, count, settings.reason_to_spare(node_id, count))
        for node_id, count in counts.items()
        if node_id not in planned
    )
    return CatalogSurvey(nodes, tuple(spared))


def plan_node(
    access: ObjectAccess,
    survey: NodeSurvey,
    settings: CompactionSettings,
    *,
    progress: Callable[[], object] | None = None,
) -> NodePlan:
    """Plan one node.

    Requests, if the node has too many objects: one for each object that is old enough and has such a neighbour, and one
    more for each source of a group whose index was not kept. One for each other object that may hold data of trimmed
    streams.

    Args:
        access: to the objects; `parts` of a catalog.
        survey: the node, of `survey_catalog`.
        settings: those of the survey.
        progress: called for each processed object.

    Raises:
        StoreError: the store failed (`BadObjects`). An object that cannot be read is left out of all groups instead.
    """
    node = _NodePlanner(access, survey, settings)
    wanted = len(survey.live) - survey.target_objects
    groups = tuple(node.merges(wanted, progress or _nobody)) if wanted > 0 else ()
    groups = tuple(sorted((*groups, *node.rewrites(groups)), key=lambda group: group.position))
    bad, counts = node.bad.check(), (len(survey.live), survey.target_objects)
    return NodePlan(survey.node_id, *counts, groups, tuple(node.skipped), bad, tuple(node.read_ids))


def _limits(settings: CompactionSettings) -> GroupLimits:
    return GroupLimits(
        settings.target_object_size_bytes,
        settings.group_index_size_bytes_max,
        STREAMS_AN_OBJECT_MAX,
        settings.max_sources_per_group,
    )


class _NodePlanner:
    """Plans one node. Threads: one."""

    def __init__(self, parts: ObjectAccess, survey: NodeSurvey, settings: CompactionSettings) -> None:
        self._parts = parts
        self._survey = survey
        self._settings = settings
        self._refs = refs_of(survey.live)
        self._kept = _KeptIndexes(INDEXES_KEPT_BYTES_MAX)
        self.skipped: list[Skipped] = []
        self._is_aside = np.isin(survey.live["object_id"], survey.set_aside)
        self._skip_all(self._is_aside, "set aside: earlier runs could not read it, and it has not changed")
        self.bad = BadObjects(survey.node_id)
        self.read_ids: list[int] = []

    def facts(self, progress: Callable[[], object]) -> list[MergeCandidate]:
        """The facts about each object, in list order."""
        trail = StreamTrail(
            self._survey.trimmed_ids, self._survey.trimmed_starts, split_holes=self._settings.split_holes
        )
        candidates = self._candidates()
        opened = self._opened(self._refs[at] for at in np.flatnonzero(candidates).tolist())
        facts: list[MergeCandidate] = []
        for position, ref in enumerate(self._refs):
            result = next(opened) if candidates[position] else None
            facts.append(self._facts_of(trail, position, ref, result))
            progress()
        return facts

    def merges(self, wanted: int, progress: Callable[[], object]) -> Iterator[Group]:
        """Groups of neighbours that together remove a number of objects, or as many as can be removed."""
        facts = self.facts(progress)
        sizes_bytes = [known.size_bytes for known in facts]
        runs = choose_groups(
            sizes_bytes,
            earliest_starts(facts, _limits(self._settings)),
            wanted,
            self._settings.max_bytes,
            once=self._settings.rewrite_all,
        )
        for run in runs:
            refs = self._refs[run[0] : run[1]]
            indexes = self._indexes(refs)
            group = None if indexes is None else self._group(run, indexes)
            if group is None:
                continue
            if group.removed_objects > 0:
                yield group
            else:
                made = f"{group.set_objects} of many streams and {group.stream_objects} of one"
                self._skip(refs, f"{len(refs)} objects would become {made}")

    def rewrites(self, groups: Sequence[Group]) -> Iterator[Group]:
        """Groups of one object each, outside of these groups, with too much data that is not needed any more."""
        survey = self._survey
        if survey.may_be_trimmed is None:
            return
        is_its_day = (survey.live["object_id"] + survey.surveyed_at_ms // DAY_MS) % REWRITE_DAYS == 0
        wanted = survey.may_be_trimmed & is_its_day & self._are_old(survey.live) & ~self._are_composite()
        wanted &= ~self._is_aside
        for merged in groups:
            wanted[merged.position : merged.position + len(merged.sources)] = False
        positions = np.flatnonzero(wanted).tolist()
        refs = [self._refs[at] for at in positions]
        for position, ref, result in zip(positions, refs, self._opened(refs), strict=True):
            if result is not None and not self._obstacle(result) and self._is_trimmed(result):
                group = self._group((position, position + 1), [result.index])
                if group is not None and self._is_worth_it(ref, result, group):
                    yield group

    def _opened(self, refs: Iterable[ObjectRef]) -> Iterator[OpenedObject | None]:
        """The opened objects, in order; None for one that cannot be read, which is noted and skipped."""
        for ref, first in open_each(self._parts, ((self._survey.node_id, ref) for ref in refs)):
            is_tried_again = isinstance(first, AccelError) and first.retryable
            result = next(open_each(self._parts, [(self._survey.node_id, ref)]))[1] if is_tried_again else first
            if isinstance(result, OpenedObject):
                self.read_ids.append(ref.object_id)
                self.bad.note_read()
                yield result
            else:
                self.bad.add(ref, result)
                self._skip([ref], f"it cannot be opened: {result}")
                yield None

    def _is_trimmed(self, opened: OpenedObject) -> bool:
        """Whether some data of an object is below first kept offsets."""
        survey, ids = self._survey, opened.ranges.stream_ids
        if not len(survey.trimmed_ids):
            return False
        at = np.minimum(survey.trimmed_ids.searchsorted(ids), len(survey.trimmed_ids) - 1)
        is_trimmed = survey.trimmed_ids[at] == ids
        return bool((is_trimmed & (opened.ranges.starts < survey.trimmed_starts[at])).any())

    def _is_worth_it(self, ref: ObjectRef, opened: OpenedObject, group: Group) -> bool:
        if not group.set_objects and not group.stream_objects:
            return False  # the collector retires it
        has_gone = bool(np.isin(opened.ranges.stream_ids, self._survey.gone_ids).any())
        return has_gone or group.dropped_bytes >= DEAD_SHARE * ref.size_bytes

    def _group(self, run: Run, indexes: Sequence[BlockIndex]) -> Group | None:
        """The group of a run of neighbours; None if it cannot be merged."""
        refs = self._refs[run[0] : run[1]]
        streams = _streams_of(indexes)
        is_here = np.isin(self._survey.trimmed_ids, streams)
        trimmed = self._survey.trimmed_ids[is_here], self._survey.trimmed_starts[is_here]
        try:
            merged = plan_merge(indexes, *trimmed, self._settings.merge_limits)
        except FormatError as error:
            self._skip(refs, f"they cannot be merged: {error}")
            return None
        set_objects = len(merged.outputs) - merged.stream_object_count
        return Group(
            self._survey.node_id,
            run[0],
            refs,
            *trimmed,
            streams=len(streams),
            set_objects=set_objects,
            stream_objects=merged.stream_object_count,
            output_bytes=sum(output.size_bytes for output in merged.outputs),
            dropped_bytes=merged.dropped_bytes,
        )

    def _candidates(self) -> NDArray[np.bool_]:
        live, is_composite = self._survey.live, self._are_composite()
        self._skip_all(is_composite, "composite objects only link others")
        is_young = ~self._are_old(live) & ~is_composite
        self._skip_all(is_young, f"younger than min_age_seconds = {self._settings.min_age_seconds:g}")
        is_tied = _are_tied(live["order_id"]) & ~is_young & ~is_composite
        self._skip_all(is_tied, "they share their order id with others: only a broker knows how their offsets follow")
        candidates = ~is_young & ~is_composite & ~is_tied & ~self._is_aside
        has_neighbour = np.zeros(len(live), dtype=np.bool_)
        has_neighbour[1:] |= candidates[:-1]
        has_neighbour[:-1] |= candidates[1:]
        mergeable: NDArray[np.bool_] = candidates & has_neighbour
        return mergeable

    def _are_composite(self) -> NDArray[np.bool_]:
        return np.array([ref.is_composite for ref in self._refs], dtype=np.bool_)

    def _are_old(self, live: Rows) -> NDArray[np.bool_]:
        youngest_ms = self._survey.surveyed_at_ms - int(self._settings.min_age_seconds * MILLISECONDS)
        is_old: NDArray[np.bool_] = live["data_time_ms"] <= youngest_ms
        return is_old

    def _facts_of(
        self, trail: StreamTrail, position: int, ref: ObjectRef, result: OpenedObject | None
    ) -> MergeCandidate:
        if result is not None:
            obstacle = self._obstacle(result)
            if not obstacle:
                self._kept.keep(ref, result.index)
                return trail.add(position, result.ranges, ref.size_bytes, result.index.nbytes)
            self._skip([ref], obstacle)
        return MergeCandidate(ref.size_bytes, is_excluded=True)

    def _obstacle(self, opened: OpenedObject) -> str:
        if len(opened.ranges.holed) and not self._settings.split_holes:
            return f"{len(opened.ranges.holed)} of its streams have holes inside"
        largest_row = int(opened.index.rows["size_bytes"].max(initial=0))
        if largest_row > ROW_SIZE_BYTES_MAX:
            return f"a row of its index has {largest_row} bytes, and the limit is {ROW_SIZE_BYTES_MAX}"
        return ""

    def _indexes(self, refs: Sequence[ObjectRef]) -> list[BlockIndex] | None:
        """The indexes of a run; None if one cannot be read any more, which the next run finds out anew."""
        missing = [ref for ref in refs if ref not in self._kept]
        opened = {ref: source.index for ref, source in zip(missing, self._opened(missing), strict=True) if source}
        if len(opened) < len(missing):
            return None
        return [opened[ref] if ref in opened else self._kept[ref] for ref in refs]

    def _skip_all(self, chosen: NDArray[np.bool_], reason: str) -> None:
        if chosen.any():
            self._skip([self._refs[at] for at in np.flatnonzero(chosen).tolist()], reason)

    def _skip(self, refs: Sequence[ObjectRef], reason: str) -> None:
        self.skipped.append(Skipped(self._survey.node_id, tuple(ref.object_id for ref in refs), reason))


class _KeptIndexes:
    """Indexes in memory, up to a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._left_bytes = bytes_max
        self._kept: dict[ObjectRef, BlockIndex] = {}

    def keep(self, ref: ObjectRef, index: BlockIndex) -> None:
        """Keep an index, if the limit allows it."""
        if index.nbytes <= self._left_bytes:
            self._left_bytes -= index.nbytes
            self._kept[ref] = index

    def __contains__(self, ref: ObjectRef) -> bool:
        return ref in self._kept

    def __getitem__(self, ref: ObjectRef) -> BlockIndex:
        return self._kept[ref]


class _Tally:
    """Counts and reports processed objects."""

    def __init__(self, in_all: int, progress: Progress | None) -> None:
        self._in_all = in_all
        self._done = 0
        self._progress = progress

    def __call__(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._in_all)


def _are_tied(order_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """By position, whether a neighbour has the same order id, as in lists of brokers."""
    same = np.zeros(len(order_ids) + 1, dtype=np.bool_)
    same[1:-1] = order_ids[1:] == order_ids[:-1]
    return same[1:] | same[:-1]


def _streams_of(indexes: Sequence[BlockIndex]) -> NDArray[np.int64]:
    columns = [index.rows["stream_id"].astype(np.int64) for index in indexes]
    return np.unique(np.concatenate([ids[np.flatnonzero(np.diff(ids, prepend=-1))] for ids in columns]))


def _nobody() -> None:
    """Discards reports of progress."""
