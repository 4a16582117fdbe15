"""Planning: chooses which neighbours of which nodes are merged.

    survey_catalog   reads the catalog's lists       which nodes have too many objects; opens no object
    plan_node        reads the indexes of one node   its groups; one node after another, or a task each
    assemble_plan    combines the plans              the groups that fit into the bytes of one run

A node is planned in two steps. One pass over its objects in list order finds the permitted runs of neighbours
(`facts`), and the cheapest of these are chosen (`grouping`). Then the code of the merge simulates each chosen group: so
the plan contains the exact number of outputs, and a group that would not reduce the number of objects is left out.

The planner reads lists, not sessions: a node that left the cluster years ago is compacted like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.parts import MILLISECONDS, ObjectAccess, open_each
from accel.catalog.records import STREAMS_AN_OBJECT_MAX, Rows, refs_of
from accel.compaction.facts import GroupLimits, MergeCandidate, StreamTrail, earliest_starts
from accel.compaction.grouping import Run, choose_groups
from accel.compaction.plan import CompactionPlan, Group, NodePlan, Skipped, SparedNode, assemble_plan
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, FormatError, KeyMissing
from loaders.format import BlockIndex
from loaders.merge.plan import plan_merge
from loaders.merge.reading import ROW_SIZE_BYTES_MAX
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef

Progress = Callable[[int, int], object]
"""Called with (done, total)."""

INDEXES_KEPT_BYTES_MAX = 64 << 20
"""Limit of indexes kept from the first step for the second; the others are opened twice."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeSurvey:
    """A node with too many objects: the input of `plan_node`, besides the objects. Picklable.

    Args:
        node_id: the node.
        live: LIVE rows of its list.
        target_objects: the number to reach.
        surveyed_at_ms: milliseconds since 1970; ages count from then.
        trimmed_ids: streams whose first kept offset is above 0, ascending.
        trimmed_starts: these offsets.
    """

    node_id: int
    live: Rows
    target_objects: int
    surveyed_at_ms: int
    trimmed_ids: NDArray[np.int64]
    trimmed_starts: NDArray[np.int64]


def plan_compaction(
    catalog: ObjectCatalog, settings: CompactionSettings, *, progress: Progress | None = None
) -> CompactionPlan:
    """Plan a whole run in this process.

    Requests: a refresh, and those of `plan_node` for each node with too many objects.

    Args:
        catalog: of the objects.
        settings: when and how much.
        progress: called with the number of opened objects, and the number to open.

    Raises:
        MaintenanceRefused: the plan would make too many objects of one stream.
        StoreError: something could not be read now.
    """
    found = survey_catalog(catalog, settings)
    tell = _Tally(sum(len(survey.live) for survey in found.nodes), progress)
    nodes = tuple(plan_node(catalog.parts, survey, settings, progress=tell) for survey in found.nodes)
    return assemble_plan(catalog.parts.now_ms(), settings, nodes, found.spared)


class CatalogSurvey(NamedTuple):
    """The result of reading all lists.

    Attributes:
        nodes: those with too many objects, ascending.
        spared: the others, and why they are left alone.
    """

    nodes: tuple[NodeSurvey, ...]
    spared: tuple[SparedNode, ...]


def survey_catalog(catalog: ObjectCatalog, settings: CompactionSettings) -> CatalogSurvey:
    """Find the nodes with too many objects. Requests: a refresh.

    Raises:
        StoreError: the catalog cannot be read now.
    """
    state = catalog.refresh_state()
    lists = state.node_lists()
    now_ms = catalog.parts.now_ms()
    streams = np.sort(np.concatenate([seen.value.streams for seen in state.shards]), order="stream_id")
    trimmed = streams[streams["start_offset"] > 0]
    ids, starts = trimmed["stream_id"].copy(), trimmed["start_offset"].copy()
    counts = {node_id: len(node_list.live) for node_id, node_list in sorted(lists.items())}
    targets = settings.targets(counts)
    nodes = tuple(
        NodeSurvey(node_id, lists[node_id].live, target, now_ms, ids, starts)
        for node_id, target in sorted(targets.items())
    )
    spared = (
        SparedNode(node_id, count, settings.reason_to_spare(node_id, count))
        for node_id, count in counts.items()
        if node_id not in targets
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

    Requests: one for each object that is old enough and has such a neighbour; one more for each source of a group whose
    index was not kept.

    Args:
        access: to the objects; `parts` of a catalog.
        survey: the node, of `survey_catalog`.
        settings: those of the survey.
        progress: called for each processed object.

    Raises:
        StoreError: an object could not be read now. One that is missing or corrupt is left out of all groups instead.
    """
    node = _NodePlanner(access, survey, settings)
    facts = node.facts(progress or _nobody)
    limits = GroupLimits(
        settings.target_object_size_bytes,
        settings.group_index_size_bytes_max,
        STREAMS_AN_OBJECT_MAX,
        settings.max_sources_per_group,
    )
    wanted = len(survey.live) - survey.target_objects
    sizes_bytes = [known.size_bytes for known in facts]
    runs = choose_groups(sizes_bytes, earliest_starts(facts, limits), wanted, settings.max_bytes)
    groups = tuple(group for run in runs for group in node.groups(run))
    return NodePlan(survey.node_id, len(survey.live), survey.target_objects, groups, tuple(node.skipped))


class _NodePlanner:
    """Plans one node. Threads: one."""

    def __init__(self, parts: ObjectAccess, survey: NodeSurvey, settings: CompactionSettings) -> None:
        self._parts = parts
        self._survey = survey
        self._settings = settings
        self._refs = refs_of(survey.live)
        self._kept = _KeptIndexes(INDEXES_KEPT_BYTES_MAX)
        self.skipped: list[Skipped] = []

    def facts(self, progress: Callable[[], object]) -> list[MergeCandidate]:
        """The facts about each object, in list order."""
        trail = StreamTrail(
            self._survey.trimmed_ids, self._survey.trimmed_starts, split_holes=self._settings.split_holes
        )
        candidates = self._candidates()
        wanted = ((self._survey.node_id, self._refs[at]) for at in np.flatnonzero(candidates).tolist())
        opened = open_each(self._parts, wanted)
        facts: list[MergeCandidate] = []
        for position, ref in enumerate(self._refs):
            result = next(opened)[1] if candidates[position] else None
            facts.append(self._facts_of(trail, position, ref, result))
            progress()
        return facts

    def groups(self, run: Run) -> Iterator[Group]:
        """The group of a run of neighbours; None if it does not reduce the number of objects."""
        refs = self._refs[run[0] : run[1]]
        indexes = self._indexes(refs)
        streams = _streams_of(indexes)
        is_here = np.isin(self._survey.trimmed_ids, streams)
        trimmed = self._survey.trimmed_ids[is_here], self._survey.trimmed_starts[is_here]
        try:
            merged = plan_merge(indexes, *trimmed, self._settings.merge_limits)
        except FormatError as error:
            self._skip(refs, f"they cannot be merged: {error}")
            return
        set_objects = len(merged.outputs) - merged.stream_object_count
        group = Group(
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
        if group.removed_objects > 0:
            yield group
        else:
            made = f"{group.set_objects} of many streams and {group.stream_objects} of one"
            self._skip(refs, f"{len(refs)} objects would become {made}")

    def _candidates(self) -> NDArray[np.bool_]:
        live = self._survey.live
        youngest_ms = self._survey.surveyed_at_ms - int(self._settings.min_age_seconds * MILLISECONDS)
        is_composite = np.array([ref.is_composite for ref in self._refs], dtype=np.bool_)
        self._skip_all(is_composite, "composite objects only link others")
        is_young = (live["data_time_ms"] > youngest_ms) & ~is_composite
        self._skip_all(is_young, f"younger than min_age_seconds = {self._settings.min_age_seconds:g}")
        candidates = ~is_young & ~is_composite
        has_neighbour = np.zeros(len(live), dtype=np.bool_)
        has_neighbour[1:] |= candidates[:-1]
        has_neighbour[:-1] |= candidates[1:]
        mergeable: NDArray[np.bool_] = candidates & has_neighbour
        return mergeable

    def _facts_of(
        self, trail: StreamTrail, position: int, ref: ObjectRef, result: OpenedObject | AccelError | None
    ) -> MergeCandidate:
        if isinstance(result, OpenedObject):
            obstacle = self._obstacle(result)
            if not obstacle:
                self._kept.keep(ref, result.index)
                return trail.add(position, result.ranges, ref.size_bytes, result.index.nbytes)
            self._skip([ref], obstacle)
        elif isinstance(result, KeyMissing | FormatError):
            self._skip([ref], f"it cannot be opened: {result}")
        elif result is not None:
            raise result
        return MergeCandidate(ref.size_bytes, is_excluded=True)

    def _obstacle(self, opened: OpenedObject) -> str:
        if len(opened.ranges.holed) and not self._settings.split_holes:
            return f"{len(opened.ranges.holed)} of its streams have holes inside"
        largest_row = int(opened.index.rows["size_bytes"].max(initial=0))
        if largest_row > ROW_SIZE_BYTES_MAX:
            return f"a row of its index has {largest_row} bytes, and the limit is {ROW_SIZE_BYTES_MAX}"
        return ""

    def _indexes(self, refs: Sequence[ObjectRef]) -> list[BlockIndex]:
        missing = [ref for ref in refs if ref not in self._kept]
        opened = {ref: source.index for ref, source in zip(missing, self._open_all(missing), strict=True)}
        return [opened[ref] if ref in opened else self._kept[ref] for ref in refs]

    def _open_all(self, refs: Sequence[ObjectRef]) -> Iterator[OpenedObject]:
        for _, result in open_each(self._parts, [(self._survey.node_id, ref) for ref in refs]):
            if isinstance(result, AccelError):
                raise result
            yield result

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


def _streams_of(indexes: Sequence[BlockIndex]) -> NDArray[np.int64]:
    columns = [index.rows["stream_id"].astype(np.int64) for index in indexes]
    return np.unique(np.concatenate([ids[np.flatnonzero(np.diff(ids, prepend=-1))] for ids in columns]))


def _nobody() -> None:
    """Discards reports of progress."""
