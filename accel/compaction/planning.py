"""Planning: chooses which neighbours of which nodes are merged.

    survey_catalog   reads the catalog's lists       which nodes have too many objects; opens no object
    plan_node        reads the indexes of one node   its groups; one node after another, or a task each
    assemble_plan    combines the plans              the groups that fit into the bytes of one run

A node is planned in two steps. One pass over its objects in list order finds the permitted runs of neighbours,
and the cheapest of these are chosen (`grouping`). Then the code of the merge simulates each chosen group: so
the plan contains the exact number of outputs, and a group that would not reduce the number of objects is left out.

**Data that is not needed any more**, on every node:

    all of an object            it is retired, by one write a node, before groups are merged (`catalog.dead_objects`):
                                neither read nor counted any more. The collector does the same each time
    part of an object that is   it does not count: the price and the size of a group are of the bytes that remain, so
    merged with others          objects of any size may be merged, and such groups come first
    `dead_share` of an object   it is rewritten alone
    any of an object, of a      likewise, whatever the share, if the stream is closed and wholly trimmed, as deleted
    deleted stream              streams are

Objects of a node below its limits are opened for this on one of `REWRITE_DAYS` days, by their ids, and only if their
sketches do not exclude all trimmed streams: an object with many short-lived streams is not rewritten for each of them.

The planner reads lists, not sessions: a node that left the cluster years ago is compacted like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog.argument_checks import refuse_unknown_nodes
from accel.catalog.bad_objects import BadObjects, objects_left_alone
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.dead_objects import FirstKept, may_hold, streams_of_node
from accel.catalog.parts import MILLISECONDS, ObjectAccess, open_each
from accel.catalog.records import STREAMS_AN_OBJECT_MAX, Rows, refs_of
from accel.compaction.grouping import (
    TOO_LARGE,
    GroupLimits,
    MergeCandidate,
    Run,
    StreamTrail,
    choose_groups,
    earliest_starts,
    obstacles,
)
from accel.compaction.plan import CompactionPlan, FailedNode, Group, NodeLeftAlone, NodePlan, Skipped, assemble_plan
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, FormatError
from loaders.format import BlockIndex
from loaders.merge.plan import plan_merge
from loaders.merge.transfer import ROW_SIZE_BYTES_MAX
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.store.bill import RequestCause, caused_by

Progress = Callable[[int, int], object]
"""Called with (done, total)."""

GROUP_INDEX_SIZE_BYTES_MAX = 6 << 20
"""Block indexes of one group together, because they are in memory at once."""

REWRITE_DAYS = 7
"""Each object is looked at on one of this number of days."""

DAY_MS, HOUR_MS = 86_400_000, 3_600_000

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
        first_kept: the first kept offsets of all trimmed streams.
        may_be_trimmed: by position in the list, whether the object may hold data of a trimmed stream.
        set_aside: ids of objects that earlier runs could not read, and that have not changed since.
    """

    node_id: int
    live: Rows
    target_objects: int
    surveyed_at_ms: int
    first_kept: FirstKept
    may_be_trimmed: NDArray[np.bool_]
    set_aside: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@caused_by(RequestCause.COMPACTION)
def plan_compaction(
    catalog: ObjectCatalog,
    settings: CompactionSettings,
    *,
    run: Callable[[Sequence[NodeSurvey]], Iterable[NodePlan | FailedNode]] | None = None,
    progress: Progress | None = None,
) -> CompactionPlan:
    """Plan a whole run.

    Requests: a refresh, and those of `plan_node` for each node with too many objects or trimmed streams.

    Args:
        catalog: of the objects.
        settings: when and how much.
        run: calls `plan_node` for each node elsewhere, and returns the plans, in any order; None = in this process.
        progress: called with the number of opened objects, and the number to open, of this process.

    Raises:
        UnknownNode: a node of the settings that the catalog does not have.
        MaintenanceRefused: the plan would make too many objects of one stream.
        StoreError: the catalog could not be read now. The plan names nodes that could not be planned.
    """
    found = survey_catalog(catalog, settings)
    merged = [len(survey.live) for survey in found.nodes if survey.target_objects < len(survey.live)]
    tell = _Tally(sum(merged), progress)
    run_all = run or (lambda surveys: plan_each(catalog.parts, surveys, settings, tell))
    nodes = list(run_all(found.nodes))
    return assemble_plan(catalog.parts.now_ms(), settings, nodes, found.left_alone)


def plan_each(
    access: ObjectAccess,
    surveys: Iterable[NodeSurvey],
    settings: CompactionSettings,
    progress: Callable[[], object] | None = None,
) -> Iterator[NodePlan | FailedNode]:
    """Plan one node after another; see `plan_node`."""
    for survey in surveys:
        try:
            yield plan_node(access, survey, settings, progress=progress)
        except AccelError as error:
            yield FailedNode.of(survey.node_id, len(survey.live), error)


class CatalogSurvey(NamedTuple):
    """The result of reading all lists.

    Attributes:
        nodes: those with too many objects, or with objects that may hold data of trimmed streams, ascending.
        left_alone: the others, and why they are left alone.
    """

    nodes: tuple[NodeSurvey, ...]
    left_alone: tuple[NodeLeftAlone, ...]


def survey_catalog(catalog: ObjectCatalog, settings: CompactionSettings) -> CatalogSurvey:
    """Find the nodes to be planned. Requests: a refresh, and one of one byte for each object that was set aside.

    Raises:
        UnknownNode: a node of the settings that the catalog does not have.
        StoreError: the catalog cannot be read now.
    """
    state = catalog.refresh_state()
    lists = state.node_lists()
    refuse_unknown_nodes(settings.nodes, lists)
    now_ms = catalog.parts.now_ms()
    shards = [seen.value for seen in state.shards]
    first_kept = FirstKept.of(shards)
    counts = {node_id: len(node_list.live) for node_id, node_list in sorted(lists.items())}
    targets = settings.targets(counts, {node_id: uploads_of_an_hour(lists[node_id].live, now_ms) for node_id in counts})
    surveys = []
    for node_id, count in counts.items():
        if settings.nodes is not None and node_id not in settings.nodes:
            continue
        held = may_hold(lists[node_id], streams_of_node(shards, node_id, first_kept.stream_ids))
        if node_id in targets or held.any():
            target = targets.get(node_id, count)
            set_aside = objects_left_alone(catalog.parts, lists[node_id])
            if settings.retry_set_aside:
                set_aside = set_aside[:0]
            surveys.append(NodeSurvey(node_id, lists[node_id].live, target, now_ms, first_kept, held, set_aside))
    nodes = tuple(surveys)
    planned = {survey.node_id for survey in nodes}
    left_alone = (
        NodeLeftAlone(node_id, count, settings.reason_to_leave(node_id, count))
        for node_id, count in counts.items()
        if node_id not in planned
    )
    return CatalogSurvey(nodes, tuple(left_alone))


def uploads_of_an_hour(live: Rows, now_ms: int) -> int:
    """How many objects of a list have data of the last hour only: as many as will be added until the next run."""
    return int((live["data_time_ms"] > now_ms - HOUR_MS).sum())


def plan_node(
    access: ObjectAccess,
    survey: NodeSurvey,
    settings: CompactionSettings,
    *,
    progress: Callable[[], object] | None = None,
) -> NodePlan:
    """Plan one node.

    Requests, if the node has too many objects: one for each object that is old enough and has such a neighbour, or may
    hold data of trimmed streams, and one more for each source of a group whose index was not kept. Else one for each
    object that may hold data of trimmed streams, if it is looked at on this day.

    Args:
        access: to the objects; `parts` of a catalog.
        survey: the node, of `survey_catalog`.
        settings: those of the survey.
        progress: called for each processed object.

    Raises:
        StoreError: the store failed (`BadObjects`). An object that cannot be read is left out of all groups instead.
    """
    return _NodePlanner(access, survey, settings).plan(progress or _nobody)


def are_mergeable(access: ObjectAccess, survey: NodeSurvey, settings: CompactionSettings) -> NDArray[np.bool_]:
    """By position in the list, whether an object may be merged as far as the list shows. No request."""
    return _NodePlanner(access, survey, settings).mergeable()


def limits_of(settings: CompactionSettings) -> GroupLimits:
    """The limits of the sources of one group."""
    return GroupLimits(
        settings.target_object_size_bytes,
        GROUP_INDEX_SIZE_BYTES_MAX,
        STREAMS_AN_OBJECT_MAX,
        settings.max_sources_per_group,
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """What planning keeps of an opened object, besides its index.

    Args:
        dropped_bytes: of its blocks that are below first kept offsets, and of their rows.
        data_bytes: of all its blocks and rows.
        has_gone: whether some data is of a stream that is closed and wholly trimmed.
        is_holed: whether some of its streams have holes inside.
        obstacle: why it cannot be read and written again; else empty.
    """

    dropped_bytes: int
    data_bytes: int
    has_gone: bool
    is_holed: bool
    obstacle: str


class _NodePlanner:
    """Plans one node. Threads: one."""

    def __init__(self, parts: ObjectAccess, survey: NodeSurvey, settings: CompactionSettings) -> None:
        self._parts = parts
        self._survey = survey
        self._settings = settings
        self._refs = refs_of(survey.live)
        self._is_composite = np.array([ref.is_composite for ref in self._refs], dtype=np.bool_)
        self._is_old: NDArray[np.bool_] = survey.live["data_time_ms"] <= survey.surveyed_at_ms - int(
            settings.min_age_seconds * MILLISECONDS
        )
        is_its_day = (survey.live["object_id"] + survey.surveyed_at_ms // DAY_MS) % REWRITE_DAYS == 0
        self._is_aside = np.isin(survey.live["object_id"], survey.set_aside)
        self._may_be_opened = ~self._is_composite & ~self._is_aside
        self._may_be_rewritten = survey.may_be_trimmed & is_its_day & self._is_old & self._may_be_opened
        self._kept = _KeptIndexes(INDEXES_KEPT_BYTES_MAX)
        self._looks: dict[int, _Look] = {}
        self._dead: list[int] = []
        self._skipped: list[Skipped] = []
        self._bad = BadObjects(survey.node_id)
        self._read_ids: list[int] = []

    def plan(self, progress: Callable[[], object]) -> NodePlan:
        """What to retire, and the groups to merge or to rewrite."""
        survey, count = self._survey, len(self._refs)
        self._skip_all(self._is_aside, "set aside: earlier runs could not read it, and it has not changed")
        is_too_long = count > survey.target_objects
        mergeable = self.mergeable() if is_too_long else np.zeros_like(self._is_old)
        places, facts = self._look(mergeable, progress)
        wanted = count - len(self._dead) - survey.target_objects
        runs = self._runs(facts, wanted) if is_too_long else []
        merges = [group for first, end in runs if (group := self._merged(places[first:end])) is not None]
        merged = {ref.object_id for group in merges for ref in group.sources}
        groups = tuple(sorted((*merges, *self._rewrites(merged)), key=lambda group: group.position))
        dead = tuple(self._refs[at] for at in self._dead)
        found = self._bad.check(), tuple(self._read_ids)
        plan = NodePlan(survey.node_id, count, survey.target_objects, groups, tuple(self._skipped), *found, dead)
        return replace(plan, reason=self._reason(plan, facts, runs))

    def _look(
        self, mergeable: NDArray[np.bool_], progress: Callable[[], object]
    ) -> tuple[list[int], list[MergeCandidate]]:
        """Open what is needed: the positions of the objects that are not dead, and the facts about each of these."""
        kept = self._survey.first_kept
        trail = StreamTrail(kept.stream_ids, kept.starts, split_holes=self._settings.split_holes)
        wanted = mergeable | self._may_be_rewritten
        if mergeable.any():
            wanted |= self._survey.may_be_trimmed & self._may_be_opened
        opened = self._opened(self._refs[at] for at in np.flatnonzero(wanted).tolist())
        places: list[int] = []
        facts: list[MergeCandidate] = []
        for position in range(len(self._refs)):
            result = next(opened) if wanted[position] else None
            if result is not None:
                if kept.keeps_nothing_of(result.ranges):
                    self._dead.append(position)
                    progress()
                    continue
                self._looks[position] = self._seen(result)
            facts.append(self._facts_of(trail, len(places), position, result, may_be_merged=bool(mergeable[position])))
            places.append(position)
            progress()
        return places, facts

    def _seen(self, opened: OpenedObject) -> _Look:
        kept, ranges, rows = self._survey.first_kept, opened.ranges, opened.index.rows
        largest = int(rows["size_bytes"].max(initial=0))
        limit = f"a row of its index has {largest} bytes, and the limit is {ROW_SIZE_BYTES_MAX}"
        return _Look(
            kept.dropped_bytes(opened.index),
            int(rows["size_bytes"].sum(dtype=np.int64)) + opened.index.nbytes,
            bool(np.isin(ranges.stream_ids, kept.stream_ids[kept.is_gone]).any()),
            bool(len(ranges.holed)),
            limit if largest > ROW_SIZE_BYTES_MAX else "",
        )

    def _facts_of(
        self,
        trail: StreamTrail,
        place: int,
        position: int,
        result: OpenedObject | None,
        *,
        may_be_merged: bool,
    ) -> MergeCandidate:
        ref = self._refs[position]
        if result is not None:
            look = self._looks[position]
            self._kept.keep(ref, result.index)
            obstacle = look.obstacle
            if look.is_holed and not self._settings.split_holes:
                obstacle = f"{len(result.ranges.holed)} of its streams have holes inside"
            if may_be_merged and not obstacle:
                return trail.add(place, result.ranges, ref.size_bytes - look.dropped_bytes, result.index.nbytes)
            if may_be_merged:
                self._skip([ref], obstacle)
        return MergeCandidate(ref.size_bytes, is_excluded=True)

    def _runs(self, facts: list[MergeCandidate], wanted: int) -> list[Run]:
        """Runs of neighbours to be merged, which remove a number of objects, or as many as can be removed."""
        earliest = earliest_starts(facts, limits_of(self._settings))
        sizes_bytes = [known.size_bytes for known in facts]
        return choose_groups(sizes_bytes, earliest, wanted, self._settings.max_bytes, once=self._settings.rewrite_all)

    def _merged(self, positions: list[int]) -> Group | None:
        """The group of some neighbours; None if it cannot be merged, or would not have fewer objects."""
        group = self._group(positions)
        if group is None or group.removed_objects > 0:
            return group
        made = f"{group.set_objects} of many streams and {group.stream_objects} of one"
        self._skip(group.sources, f"{len(positions)} objects would become {made}")
        return None

    def _rewrites(self, merged: set[int]) -> Iterator[Group]:
        """Groups of one object each that is not merged, with too much data that is not needed any more."""
        for position in np.flatnonzero(self._may_be_rewritten).tolist():
            look = self._looks.get(position)
            if look is None or look.obstacle or self._refs[position].object_id in merged:
                continue
            if look.dropped_bytes and (
                look.has_gone or look.dropped_bytes >= self._settings.dead_share * look.data_bytes
            ):
                group = self._group([position])
                is_split = group is not None and group.stream_objects and look.is_holed
                if group is not None and not (is_split and not self._settings.split_holes):
                    yield group

    def _reason(self, plan: NodePlan, facts: list[MergeCandidate], runs: list[Run]) -> str:
        """Why the node keeps more objects than its target, or why nothing is done to it; else empty."""
        if plan.objects_after > plan.target_objects:
            found = obstacles(facts, limits_of(self._settings), runs)
            if found.get(TOO_LARGE):
                movable_bytes = [known.size_bytes for known in facts if not known.is_excluded]
                if (places := plan.target_objects - len(facts) + len(movable_bytes)) > 0:
                    enough = f"target_object_size_bytes = {2 * sum(movable_bytes) // places + 1}"
                    found[f"{TOO_LARGE} ({enough} leaves none)"] = found.pop(TOO_LARGE)
            causes = ", ".join(f"{count} {cause}" for cause, count in found.items() if count)
            return f"its target is {plan.target_objects}; pairs of neighbours that stay: {causes}"
        if plan.groups or plan.dead:
            return ""
        looked = int(self._may_be_rewritten.sum())
        return (
            f"it has few enough; {looked} of them were looked at for data of trimmed streams, each on one day of "
            f"{REWRITE_DAYS}, and none has a share of dead_share = {self._settings.dead_share:g}"
        )

    def _group(self, positions: list[int]) -> Group | None:
        """The group of some neighbours; None if it cannot be merged."""
        refs = tuple(self._refs[at] for at in positions)
        indexes = self._indexes(refs)
        if indexes is None:
            return None
        streams, kept = _streams_of(indexes), self._survey.first_kept
        is_here = np.isin(kept.stream_ids, streams)
        trimmed = kept.stream_ids[is_here], kept.starts[is_here]
        try:
            merged = plan_merge(indexes, *trimmed, self._settings.merge_limits)
        except FormatError as error:
            self._skip(refs, f"they cannot be merged: {error}")
            return None
        set_objects = len(merged.outputs) - merged.stream_object_count
        return Group(
            self._survey.node_id,
            positions[0],
            refs,
            *trimmed,
            streams=len(streams),
            set_objects=set_objects,
            stream_objects=merged.stream_object_count,
            output_bytes=sum(output.size_bytes for output in merged.outputs),
            dropped_bytes=sum(self._looks[at].dropped_bytes for at in positions),
        )

    def mergeable(self) -> NDArray[np.bool_]:
        """By position, whether an object may be merged as far as the list shows."""
        self._skip_all(self._is_composite, "composite objects only link others")
        is_young = ~self._is_old & ~self._is_composite
        self._skip_all(is_young, f"younger than min_age_seconds = {self._settings.min_age_seconds:g}")
        is_tied = _are_tied(self._survey.live["order_id"]) & ~is_young & ~self._is_composite
        self._skip_all(is_tied, "they share their order id with others: only a broker knows how their offsets follow")
        candidates = ~is_young & ~is_tied & self._may_be_opened
        has_neighbour = np.zeros(len(candidates), dtype=np.bool_)
        has_neighbour[1:] |= candidates[:-1]
        has_neighbour[:-1] |= candidates[1:]
        mergeable: NDArray[np.bool_] = candidates & has_neighbour
        return mergeable

    def _indexes(self, refs: Sequence[ObjectRef]) -> list[BlockIndex] | None:
        """The indexes of a run; None if one cannot be read any more, which the next run finds out anew."""
        missing = [ref for ref in refs if ref not in self._kept]
        opened = {ref: source.index for ref, source in zip(missing, self._opened(missing), strict=True) if source}
        if len(opened) < len(missing):
            return None
        return [opened[ref] if ref in opened else self._kept[ref] for ref in refs]

    def _opened(self, refs: Iterable[ObjectRef]) -> Iterator[OpenedObject | None]:
        """The opened objects, in order; None for one that cannot be read, which is noted and skipped."""
        for ref, first in open_each(self._parts, ((self._survey.node_id, ref) for ref in refs)):
            is_tried_again = isinstance(first, AccelError) and first.retryable
            result = next(open_each(self._parts, [(self._survey.node_id, ref)]))[1] if is_tried_again else first
            if isinstance(result, OpenedObject):
                self._read_ids.append(ref.object_id)
                self._bad.note_read()
                yield result
            else:
                self._bad.add(ref, result)
                self._skip([ref], f"it cannot be opened: {result}")
                yield None

    def _skip_all(self, chosen: NDArray[np.bool_], reason: str) -> None:
        if chosen.any():
            self._skip([self._refs[at] for at in np.flatnonzero(chosen).tolist()], reason)

    def _skip(self, refs: Sequence[ObjectRef], reason: str) -> None:
        self._skipped.append(Skipped(self._survey.node_id, tuple(ref.object_id for ref in refs), reason))


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
