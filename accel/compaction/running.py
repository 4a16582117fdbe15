"""Carries out a plan: groups are merged and committed, one after another or on many machines.

    plan = plan_compaction(catalog, CompactionSettings())
    print(plan.to_dict())                        a dry run ends here
    report = compact(catalog, plan)

Each group is merged and committed by an attempt (`attempts`). To distribute the work, pass a `run` that calls `work_on`
for each item elsewhere, with a catalog opened there, and returns the results. What is done does not depend on these
results. A group without a result (its process was killed, or the engine gave up) is looked up in the list. After a
crash of the caller, a new plan contains the rest, and the same plan skips the groups that are done.

**Writes of a list** delay the uploads of its node: an upload that is overtaken has to be sent again. So where many
groups of a list are merged at once, the ids of all first attempts are prepared by one write (`IDS_AHEAD_MAX`), and
groups that run at the same time commit in different time slots: at most one commit a list in `SLOT_SECONDS`, whatever
the number of machines. If the clocks of machines differ, slots overlap; nothing else depends on them.

*A source that cannot be read* is set aside (`accel.catalog.bad_objects`), and its neighbours on either side are merged
as groups of their own, in the same run: by another round of `run`, at most `ROUNDS_MAX` in all. A group that failed for
a reason that may pass is tried once more, in the next round.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accel.catalog.bad_objects import BadObject, Cause, remember
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.dead_objects import DeadObjects, retire_dead
from accel.catalog.job_runs import COMPACT, RunningJob, recorded
from accel.catalog.node_list import PREPARED_MAX
from accel.catalog.records import NodeList
from accel.compaction.attempts import SLOTS_MAX, GroupItem, GroupResult, Status, TimeSlot, is_done, is_open, work_on
from accel.compaction.plan import CompactionPlan, Group
from accel.errors import AccelError
from accel.system import StopRequested
from loaders.object_ref import ObjectRef

logger = logging.getLogger(__name__)

IDS_AHEAD_MAX = PREPARED_MAX // 2
"""The maximum number of ids of a list that are prepared ahead, with those that are prepared already. The other half is
for uploads and further attempts, which would be refused."""


RunItems = Callable[[Sequence[GroupItem]], Iterable[GroupResult]]
"""Calls `work_on` for each item, and returns the results in any order; UNKNOWN, or none, where no attempt returned."""


@dataclass(frozen=True, slots=True, eq=False)
class CompactionReport:
    """The result of a run.

    Args:
        rewritten_objects: sources of groups that this run committed.
        added_objects: their outputs with many streams.
        added_stream_objects: their outputs with one stream.
        rewritten_bytes: of the sources.
        added_bytes: of the outputs.
        requests: of all attempts that returned, not of those that were killed; without those of the catalog, unless the
            engine has counted them.
        failed_groups: groups that were not compacted.
        failed_nodes: nodes that could not be planned.
        set_aside_objects: objects that this run could not read.
        lost_groups: groups that another compaction merged in the meantime, whole or in part.
        done_elsewhere_groups: groups that an attempt did which has not reported it; their objects are not counted.
        failed_tasks: attempts that failed and returned, whether or not another one succeeded.
        conflicts: writes of the catalog that were overtaken or failed, if the engine has counted them.
        discarded_objects: outputs that were written, and not committed; without those of attempts that were killed.
        retired_objects: of which nothing is needed any more, retired without a merge.
        retired_bytes: of these.
        failed_retirements: nodes whose objects of this kind were not retired.
        seconds: from start to end.
        groups: the result of each, in the plan's order; then those of neighbours of sources that were set aside.
        set_aside: the objects that this run could not read, of planning and of merging.
        reasons: of the plan: why nodes keep more objects than their target, or are left alone.
    """

    rewritten_objects: int
    added_objects: int
    added_stream_objects: int
    rewritten_bytes: int
    added_bytes: int
    requests: int
    failed_groups: int
    failed_nodes: int
    set_aside_objects: int
    lost_groups: int
    done_elsewhere_groups: int
    failed_tasks: int
    conflicts: int
    discarded_objects: int
    retired_objects: int
    retired_bytes: int
    failed_retirements: int
    seconds: float
    groups: tuple[GroupResult, ...]
    set_aside: tuple[BadObject, ...]
    reasons: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether any work is left."""
        return self.failed_groups + self.failed_nodes + self.failed_retirements + self.set_aside_objects > 0

    def row(self) -> dict[str, int | float]:
        """The report as one row of numbers."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("groups", "set_aside", "reasons")}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        groups, bad = [group.to_dict() for group in self.groups], [each.to_dict() for each in self.set_aside]
        return {**self.row(), "groups": groups, "set_aside": bad, "reasons": list(self.reasons)}


def compact(
    catalog: ObjectCatalog,
    plan: CompactionPlan,
    *,
    run: RunItems | None = None,
    at_once: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> CompactionReport:
    """Carry a plan out; repeating it is safe. The run is recorded (`accel.catalog.job_runs`).

    Args:
        catalog: the catalog of the plan.
        plan: of `plan_compaction`.
        run: calls `work_on` for each item elsewhere; None = in this process, one after another. Called again for groups
            that are tried again, and for the neighbours of sources that could not be read.
        at_once: the number of items that `run` works on at the same time.
        progress: called after each group with (bytes of the groups so far, bytes of all groups). If it raises
            `StopRequested`, no further group is begun here, and the report has those so far.

    Requests: a refresh; for each node with objects to retire those of `retire_dead`; for each group those of `work_on`;
    those of `remember` for each node with objects that could not be read. With `run` also those of
    `ObjectCatalog.prepare` for each node, and a refresh if a group has no result.

    Raises:
        StoreError: the catalog could not be read at the start. The report contains groups that fail later.
    """
    system = catalog.parts.system
    started = system.timer()
    with recorded(catalog.parts, COMPACT) as job:
        work = _Work(catalog, plan, progress)
        work.retire()
        todo = work.still_to_do()
        run_all = run or (lambda items: (work_on(catalog, item, plan.settings) for item in items))
        try:
            for number in range(ROUNDS_MAX):
                is_ahead = run is not None and number == 0
                items = work.with_ids_and_slots(todo, at_once) if is_ahead else [GroupItem(group) for group in todo]
                for result in run_all(items):
                    work.take(result)
                    if work.is_stopped and run is None:  # elsewhere all of them have ended
                        break
                work.settle_unknown(todo)
                todo = work.take_next()
                if not todo:
                    break
        except StopRequested:
            work.stop()
            work.settle_unknown(todo)
        work.remember()
        report = work.report(system.timer() - started)
        _note(job, plan, report, is_stopped=work.is_stopped)
    return report


def _note(job: RunningJob, plan: CompactionPlan, report: CompactionReport, *, is_stopped: bool) -> None:
    reasons = [node.reason for node in plan.failed] + [bad.reason for bad in report.set_aside]
    reasons += [each.reason for each in report.groups if each.is_failure]
    job.add(
        items=report.rewritten_objects + report.retired_objects,
        size_bytes=report.rewritten_bytes + report.retired_bytes,
        requests=report.requests,
        failures=report.failed_groups + report.failed_nodes + report.failed_retirements + report.set_aside_objects,
        reason=reasons[0] if reasons else "",
    )
    if plan.settings.nodes is None:
        job.note_limit(plan.settings.max_objects_per_node)
    if is_stopped:
        job.stop()


ROUNDS_MAX = 8
"""Rounds of one run. A group whose sources are still bad in the last one is left to the next run."""


class _Work:
    """The groups of a plan, and their results so far. Threads: one."""

    def __init__(
        self, catalog: ObjectCatalog, plan: CompactionPlan, progress: Callable[[int, int], object] | None
    ) -> None:
        self._catalog = catalog
        self._plan = plan
        self._groups = list(plan.groups)
        self._source_bytes = plan.source_bytes
        self._progress = progress
        self._results: dict[str, GroupResult] = {}
        self.is_stopped = False
        self._why_not = "no attempt returned a result"
        self._next: list[Group] = []
        self._tried_again: set[str] = set()
        self._bad = {bad.object_id: bad for node in plan.nodes for bad in node.bad}
        self._sound: dict[int, list[int]] = {}
        self._retired: list[ObjectRef] = []
        self._failed_retirements = 0
        self._counts: Counter[str] = Counter()
        self._lists: dict[int, NodeList] = {}

    def stop(self) -> None:
        """Begin no further group, and report no progress any more."""
        self.is_stopped, self._progress = True, None
        self._why_not = "the run was stopped before it"

    def retire(self) -> None:
        """Retire the objects of which nothing is needed any more, by one commit a node."""
        for node in self._plan.nodes:
            if not node.dead:
                continue
            try:
                self._retired += retire_dead(self._catalog.parts, DeadObjects(node.node_id, node.dead))
            except AccelError:
                self._failed_retirements += 1
                logger.warning("node %d: %d objects are not retired", node.node_id, len(node.dead), exc_info=True)

    def still_to_do(self) -> list[Group]:
        """The groups whose sources are all listed; the others are done or lost."""
        lists = self._lists = self._catalog.refresh_state().node_lists()
        for node in self._plan.nodes:
            if node.node_id in lists:
                rows = lists[node.node_id].set_aside
                if self._plan.settings.retry_set_aside:  # an index that can be read says nothing about the blocks
                    rows = rows[rows["cause"] != Cause.BLOCK]
                self._sound[node.node_id] = sorted({*rows["object_id"].tolist()}.intersection(node.read_ids))
        todo = []
        for group in self._groups:
            node_list = lists.get(group.node_id)
            if is_open(node_list, group):
                todo.append(group)
            elif is_done(node_list, group):
                self._settle(GroupResult(group, Status.DONE_BEFORE))
            else:
                self._settle(GroupResult(group, Status.LOST, "sources have left the list since it was planned"))
        return todo

    def with_ids_and_slots(self, groups: Sequence[Group], at_once: int) -> list[GroupItem]:
        """The items of groups that are merged at the same time; those with the most bytes first.

        Groups of a list that are at most ``at_once`` apart get different time slots, up to `SLOTS_MAX`.
        """
        ordered = sorted(groups, key=lambda group: group.source_bytes, reverse=True)
        slots = _slots_needed([group.node_id for group in ordered], at_once)
        ids = self._ids_ahead(ordered)
        seen: Counter[int] = Counter()
        items = []
        for group in ordered:
            in_all = min(slots[group.node_id], SLOTS_MAX)
            slot = TimeSlot(seen[group.node_id] % in_all, in_all)
            items.append(GroupItem(group, ids.get(group.name, ()), slot))
            seen[group.node_id] += 1
        return items

    def _ids_ahead(self, groups: Sequence[Group]) -> dict[str, tuple[int, ...]]:
        """Ids for the outputs of groups, by the names of the groups; groups above the limit of their list get none."""
        counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for group in groups:
            own = counts[group.node_id]
            outputs = group.set_objects + group.stream_objects
            if len(self._lists[group.node_id].prepared) + sum(own.values()) + outputs <= IDS_AHEAD_MAX:
                own[group.name] = outputs
        found: dict[str, tuple[int, ...]] = {}
        for node_id, wanted in counts.items():
            try:
                ids = iter(self._catalog.prepare(node_id, in_all) if (in_all := sum(wanted.values())) else ())
            except AccelError:
                logger.warning("node %d: no ids were prepared ahead", node_id, exc_info=True)
                continue
            found |= {name: tuple(next(ids) for _ in range(outputs)) for name, outputs in wanted.items()}
        return found

    def take(self, result: GroupResult) -> None:
        """Note the result of an attempt."""
        group, bad = result.group, result.bad
        known = self._results.get(group.name)
        self._counts.update(
            requests=result.requests,
            conflicts=result.conflicts,
            discarded=result.discarded_objects,
            failed=int(result.status in (Status.FAILED, Status.SET_ASIDE)),
        )
        if known is not None and not known.is_failure:
            return
        if result.status is Status.FAILED and result.is_retryable and group.name not in self._tried_again:
            self._tried_again.add(group.name)
            self._next.append(group)
        elif bad is not None and result.status in (Status.FAILED, Status.SET_ASIDE):
            self._bad[bad.object_id] = bad
            beside = group.beside(bad.object_id)
            self._next += beside
            self._groups += beside
            result = replace(result, status=Status.SET_ASIDE)
        self._settle(result)

    def settle_unknown(self, groups: Sequence[Group]) -> None:
        """Look the groups of a round that have no result up in the lists."""
        known = (self._results.get(group.name) or GroupResult(group, Status.UNKNOWN, self._why_not) for group in groups)
        unknown = [result for result in known if result.status is Status.UNKNOWN]
        if not unknown:
            return
        try:
            lists = self._catalog.refresh_state().node_lists()
        except AccelError as error:
            reasons = f", and the lists could not be read: {error}"
            settled = [replace(each, status=Status.FAILED, reason=each.reason + reasons) for each in unknown]
        else:
            settled = [_settled(lists.get(each.group.node_id), each) for each in unknown]
        for each in settled:
            self.take(each)

    def take_next(self) -> list[Group]:
        """The groups of the next round; none after a stop."""
        following, self._next = self._next, []
        return [] if self.is_stopped else following

    def remember(self) -> None:
        """Write the objects that could not be read to the lists of their nodes."""
        for node_id in sorted({bad.node_id for bad in self._bad.values()} | self._sound.keys()):
            bad = [each for each in self._bad.values() if each.node_id == node_id]
            remember(self._catalog.parts, node_id, bad, self._sound.get(node_id, ()))

    def report(self, seconds: float) -> CompactionReport:
        """What was done."""
        groups = tuple(
            self._results.get(group.name) or GroupResult(group, Status.FAILED, self._why_not) for group in self._groups
        )
        committed = [group for group in groups if group.status is Status.COMMITTED]
        return CompactionReport(
            rewritten_objects=sum(len(result.group.sources) for result in committed),
            added_objects=sum(result.added_objects for result in committed),
            added_stream_objects=sum(len(result.added_ids) - result.added_objects for result in committed),
            rewritten_bytes=sum(result.group.source_bytes for result in committed),
            added_bytes=sum(result.added_bytes for result in committed),
            requests=self._counts["requests"],
            failed_groups=sum(group.is_failure for group in groups),
            failed_nodes=len(self._plan.failed),
            set_aside_objects=len(self._bad),
            lost_groups=sum(group.status is Status.LOST for group in groups),
            done_elsewhere_groups=sum(group.status is Status.DONE_ELSEWHERE for group in groups),
            failed_tasks=self._counts["failed"],
            conflicts=self._counts["conflicts"],
            discarded_objects=self._counts["discarded"],
            retired_objects=len(self._retired),
            retired_bytes=sum(ref.size_bytes for ref in self._retired),
            failed_retirements=self._failed_retirements,
            seconds=seconds,
            groups=groups,
            set_aside=tuple(self._bad.values()),
            reasons=self._plan.reasons,
        )

    def _settle(self, result: GroupResult) -> None:
        self._results[result.group.name] = result
        if self._progress is not None:
            done = sum(
                each.group.source_bytes for each in self._results.values() if each.status is not Status.SET_ASIDE
            )
            try:
                self._progress(done, self._source_bytes)
            except StopRequested:
                self.stop()


def _slots_needed(node_ids: Sequence[int], at_once: int) -> Counter[int]:
    """By node, the most of its groups among any ``at_once`` that follow one another. O(n)."""
    running: deque[int] = deque()
    now: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for node_id in node_ids:
        if len(running) == at_once:
            now[running.popleft()] -= 1
        running.append(node_id)
        now[node_id] += 1
        most[node_id] = max(most[node_id], now[node_id])
    return most


def _settled(node_list: NodeList | None, unknown: GroupResult) -> GroupResult:
    """The result of a group of which no attempt has returned, by the list of its node."""
    if is_open(node_list, unknown.group):
        return replace(unknown, status=Status.FAILED, is_retryable=True)
    status = Status.DONE_ELSEWHERE if is_done(node_list, unknown.group) else Status.LOST
    return replace(unknown, status=status)
