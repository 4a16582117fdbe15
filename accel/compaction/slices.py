"""Compacts long lists slice by slice, so that a run that is cut off has done most of what it had time for.

A plan opens each object of a list before the first group is merged. So a long list is divided first, by the sizes in
the list alone, which costs no request:

    list      ..........................................................     sizes and ages are known
    runs         [-----] [------------]      [-----------][----]             the cheapest groups if nothing else counted
    slices       [--------------------]      [-----------------]             neighbouring runs of some objects together

Each slice is planned, merged and committed before the next one is opened, as a list of its own: it is to lose as many
objects as its runs would remove. Its groups are those that its indexes permit, which may be others, or fewer. What is
missing then is for the plan of the whole, which follows and finds a shorter list.

Shorter lists than `LIST_OBJECTS_MIN` are left to that plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.job_runs import COMPACT, recorded
from accel.catalog.parts import ObjectAccess
from accel.compaction.grouping import MergeCandidate, Run, choose_groups, earliest_starts, removed
from accel.compaction.plan import CompactionPlan, FailedNode, NodePlan, Skipped, assemble_plan
from accel.compaction.planning import NodeSurvey, are_mergeable, limits_of, plan_node, survey_catalog
from accel.compaction.running import CompactionReport, compact
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, MaintenanceRefused
from accel.system import StopRequested

LIST_OBJECTS_MIN = 256
"""A list is divided if it has at least this many objects that may be merged."""

SLICE_OBJECTS = 128
"""The number of objects of a slice, unless a single run has more."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A part of a node's list that is compacted by itself.

    Args:
        survey: of these objects, with the number that is to be left of them.
        source_bytes: of the runs in it.
        whole: the survey of the whole list.
    """

    survey: NodeSurvey
    source_bytes: int
    whole: NodeSurvey


def slices_of(access: ObjectAccess, survey: NodeSurvey, settings: CompactionSettings) -> list[Slice]:
    """The slices of a node, in list order; none if its list is short. No request. O(n log(n * bytes)) in objects.

    Args:
        access: to the objects.
        survey: of `survey_catalog`.
        settings: those of the survey; `max_bytes` limits all slices together.
    """
    mergeable = are_mergeable(access, survey, settings)
    wanted = len(survey.live) - survey.target_objects
    if wanted < 1 or int(mergeable.sum()) < LIST_OBJECTS_MIN:
        return []
    columns = (survey.live["size_bytes"].tolist(), survey.live["index_size_bytes"].tolist(), mergeable.tolist())
    facts = [
        MergeCandidate(size_bytes, max(0, index_size_bytes), is_excluded=not may_be)
        for size_bytes, index_size_bytes, may_be in zip(*columns, strict=True)
    ]
    sizes_bytes = columns[0]
    runs = choose_groups(
        sizes_bytes, earliest_starts(facts, limits_of(settings)), wanted, settings.max_bytes, once=settings.rewrite_all
    )
    return [
        Slice(
            _part(survey, group[0][0], group[-1][1], removed(group)),
            sum(sum(sizes_bytes[a:b]) for a, b in group),
            survey,
        )
        for group in _together(runs)
    ]


def _together(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Neighbouring runs, as many as `SLICE_OBJECTS` permit; a gap of objects that stay begins the next slice."""
    group: list[Run] = []
    for run in runs:
        if group and (run[1] - group[0][0] > SLICE_OBJECTS or run[0] - group[-1][1] > 1):
            yield group
            group = []
        group.append(run)
    if group:
        yield group


def _part(survey: NodeSurvey, first: int, end: int, removes: int) -> NodeSurvey:
    return replace(
        survey,
        live=survey.live[first:end],
        target_objects=end - first - removes,
        may_be_trimmed=survey.may_be_trimmed[first:end],
    )


@dataclass(slots=True, eq=False)
class Done:
    """What was planned and done so far.

    Args:
        plans: in order.
        reports: of these plans.
        failed: nodes with a slice that could not be planned.
        is_stopped: whether a progress callback ended the run.
    """

    plans: list[CompactionPlan] = field(default_factory=list)
    reports: list[CompactionReport] = field(default_factory=list)
    failed: dict[int, FailedNode] = field(default_factory=dict)
    is_stopped: bool = False

    def settings_left(self, settings: CompactionSettings) -> CompactionSettings:
        """The settings of the rest of the run: limits without what was made."""
        made = sum(report.added_stream_objects for report in self.reports)
        spent = sum(report.rewritten_bytes for report in self.reports)
        most = settings.max_bytes
        return replace(
            settings,
            max_stream_objects=max(0, settings.max_stream_objects - made),
            max_bytes=None if most is None else max(1, most - spent),
        )

    def plan(self, settings: CompactionSettings) -> CompactionPlan:
        """One plan of all: each node once, with the objects and the target before the first slice."""
        nodes: dict[int, NodePlan] = {}
        for node in (node for plan in self.plans for node in plan.nodes):
            nodes[node.node_id] = _joined(nodes[node.node_id], node) if node.node_id in nodes else node
        failed = {node.node_id: node for plan in self.plans for node in plan.failed} | self.failed
        last = self.plans[-1]
        ordered = tuple(nodes[node_id] for node_id in sorted(nodes))
        left_alone = tuple(each for each in last.left_alone if each.node_id not in nodes)
        return CompactionPlan(last.planned_at_ms, settings, ordered, left_alone, tuple(failed.values()))

    def report(self) -> CompactionReport:
        """One report of all: sums, and the results of the groups in their order."""
        first, *others = self.reports
        for other in others:
            columns = {each.name: getattr(first, each.name) + getattr(other, each.name) for each in fields(first)}
            first = CompactionReport(**columns | {"reasons": other.reasons})
        failed = {node.node_id for plan in self.plans for node in plan.failed} | self.failed.keys()
        return replace(first, failed_nodes=len(failed))


def _joined(before: NodePlan, after: NodePlan) -> NodePlan:
    skipped: dict[Skipped, None] = dict.fromkeys((*before.skipped, *after.skipped))
    return replace(
        after,
        objects=before.objects,
        groups=before.groups + after.groups,
        skipped=tuple(skipped),
        bad=before.bad + after.bad,
        read_ids=(),
        dead=before.dead + after.dead,
    )


def compact_slices(
    catalog: ObjectCatalog, settings: CompactionSettings, *, progress: Callable[[int, int], object] | None = None
) -> Done:
    """Compact the slices of all nodes with long lists, one after another; nothing if there are none.

    Requests: those of `survey_catalog`; for each slice those of `plan_node` and `compact`.

    Args:
        catalog: of the objects.
        settings: when and how much.
        progress: called with the number of objects of slices that were looked at, and of all. If it raises
            `StopRequested`, the result is what was done so far.

    Raises:
        MaintenanceRefused: the first slice with groups would make too many objects of one stream.
        StoreError: the catalog could not be read.
    """
    done = Done()
    surveys = survey_catalog(catalog, settings).nodes
    slices = [part for survey in surveys for part in slices_of(catalog.parts, survey, settings)]
    in_all, looked_at = sum(len(part.survey.live) for part in slices), 0

    def tell(*_: object) -> None:
        if progress is not None:
            progress(min(looked_at, in_all), in_all)

    def step() -> None:
        nonlocal looked_at
        looked_at += 1
        tell()

    if not slices:
        return done
    with recorded(catalog.parts, COMPACT) as job:
        try:
            for part in slices:
                if part.whole.node_id not in done.failed:
                    _compact_slice(catalog, settings, done, part, step, tell)
                    tell()
        except StopRequested:
            done.is_stopped = True
            job.stop()
        for node in done.failed.values():
            job.add(failures=1, reason=node.reason)
    return done


def _compact_slice(
    catalog: ObjectCatalog,
    settings: CompactionSettings,
    done: Done,
    part: Slice,
    step: Callable[[], object],
    tell: Callable[..., object],
) -> None:
    left, whole = done.settings_left(settings), part.whole
    if left.max_bytes is not None:
        left = replace(left, max_bytes=min(left.max_bytes, part.source_bytes))
    try:
        node = plan_node(catalog.parts, part.survey, left, progress=step)
        plan = assemble_plan(catalog.parts.now_ms(), left, (node,))
    except AccelError as error:
        if isinstance(error, MaintenanceRefused) and not done.reports:
            raise
        done.failed[whole.node_id] = FailedNode.of(whole.node_id, len(whole.live), error)
        return
    [planned] = plan.nodes
    shown = replace(planned, objects=len(whole.live), target_objects=whole.target_objects)
    done.plans.append(replace(plan, nodes=(shown,)))
    done.reports.append(compact(catalog, plan, progress=tell))
