"""Carrying out a plan: groups are merged, one after another or on many machines, and committed as they come.

    plan = plan_compaction(catalog, CompactionSettings())
    print(plan.to_dict())                        a dry run ends here
    report = compact(catalog, plan)

Whoever distributes the work passes a `run` that merges groups elsewhere (each by `run_group`, with a catalog opened
there) and gives the outcomes back as they come. Commits are made here and nowhere else: one attempt a group, whatever
retries and twins the engine has started.

Progress is never lost. What is committed is done; after a crash a new plan takes the rest, and the same plan knows
which of its groups are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from accel.catalog.catalog import ObjectCatalog
from accel.compaction.committing import Committed, commit_outcome, is_done, is_open
from accel.compaction.executing import GroupFailure, GroupOutcome, give_up, run_in_process
from accel.compaction.plan import CompactionPlan, Group

RunGroups = Callable[[Sequence[Group]], Iterable[GroupOutcome | GroupFailure]]
"""Merges groups, and gives the outcome of each attempt as it comes, in any order."""


class Status(StrEnum):
    """What became of a group."""

    COMMITTED = "committed"
    DONE_BEFORE = "done before"
    LOST = "lost"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, eq=False)
class GroupResult:
    """What became of one group.

    Args:
        group: the group.
        status: committed; done before this run; lost to another compaction; or failed.
        reason: why it is lost or failed; else empty.
        outcome: what was merged; None if nothing was.
    """

    group: Group
    status: Status
    reason: str = ""
    outcome: GroupOutcome | None = None

    @property
    def is_failure(self) -> bool:
        """Whether the group was to be compacted, and was not."""
        return self.status in {Status.LOST, Status.FAILED}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        added = [] if self.outcome is None else self.outcome.object_ids
        return {
            "node_id": self.group.node_id,
            "sources": [ref.object_id for ref in self.group.sources],
            "status": str(self.status),
            "reason": self.reason,
            "added": added if self.status is Status.COMMITTED else [],
        }


@dataclass(frozen=True, slots=True, eq=False)
class CompactionReport:
    """What a run did.

    Args:
        rewritten_objects: sources of groups that this run committed.
        added_objects: objects of many streams that came of them.
        added_stream_objects: objects of one stream that came of them.
        rewritten_bytes: of the sources.
        added_bytes: of what came of them.
        requests: that merging took, of attempts that came to nothing too as far as they told; those of the catalog
            are not among them.
        failed_groups: groups that were not compacted.
        failed_tasks: attempts that failed, whether or not another one succeeded.
        seconds: from start to end.
        groups: what became of each, in the plan's order.
    """

    rewritten_objects: int
    added_objects: int
    added_stream_objects: int
    rewritten_bytes: int
    added_bytes: int
    requests: int
    failed_groups: int
    failed_tasks: int
    seconds: float
    groups: tuple[GroupResult, ...]

    @property
    def is_partial(self) -> bool:
        """Whether something was left undone."""
        return self.failed_groups > 0

    def row(self) -> dict[str, int | float]:
        """The report as one row of numbers."""
        names = [each for each in self.__slots__ if each != "groups"]
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        return {**self.row(), "groups": [each.to_dict() for each in self.groups]}


def compact(
    catalog: ObjectCatalog,
    plan: CompactionPlan,
    *,
    run: RunGroups | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> CompactionReport:
    """Carry a plan out; repeating it is safe.

    Args:
        catalog: the plan's.
        plan: of `plan_compaction`.
        run: merges groups; in this process, one after another, by default.
        progress: told (groups dealt with, groups in all).

    Requests: a refresh; for each group those of `run_group` and `commit_outcome`.

    Raises:
        StoreError: the catalog could not be read at the start. Groups that fail later stand in the report.
    """
    system = catalog.parts.system
    started = system.timer()
    work = _Work(catalog, plan, progress)
    todo = work.still_to_do()
    for each in run(todo) if run is not None else run_in_process(catalog, todo, plan.settings):
        work.take(each)
    return work.report(system.timer() - started)


class _Work:
    """The groups of a plan, and what became of them so far. Threads: one."""

    def __init__(
        self, catalog: ObjectCatalog, plan: CompactionPlan, progress: Callable[[int, int], object] | None
    ) -> None:
        self._catalog = catalog
        self._groups = plan.groups
        self._progress = progress
        self._results: dict[str, GroupResult] = {}
        self._failed_tasks = 0
        self._requests = 0

    def still_to_do(self) -> list[Group]:
        """The groups whose sources are all there; the others are done or lost."""
        lists = self._catalog.refresh_snapshot().node_lists()
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

    def take(self, attempt: GroupOutcome | GroupFailure) -> None:
        """Commit what was merged, unless another attempt at the same group was committed already."""
        known = self._results.get(attempt.group.name)
        if isinstance(attempt, GroupFailure):
            self._failed_tasks += 1
            if known is None:
                self._settle(GroupResult(attempt.group, Status.FAILED, attempt.reason))
            return
        self._requests += attempt.requests
        if known is not None and known.status is Status.COMMITTED:
            give_up(self._catalog, attempt.group.node_id, attempt.object_ids)
            return
        ended = commit_outcome(self._catalog, attempt)
        if isinstance(ended, Committed):
            self._settle(GroupResult(attempt.group, Status.COMMITTED, outcome=replace(attempt, ranges=None)))
        else:
            self._settle(GroupResult(attempt.group, Status.LOST, ended.reason))

    def report(self, seconds: float) -> CompactionReport:
        """What was done."""
        groups = tuple(_result(self._results, group) for group in self._groups)
        committed = [each for each in groups if each.status is Status.COMMITTED]
        outcomes = [each.outcome for each in committed if each.outcome is not None]
        return CompactionReport(
            rewritten_objects=sum(len(each.group.sources) for each in committed),
            added_objects=sum(each.added is not None for each in outcomes),
            added_stream_objects=sum(len(each.stream_objects) for each in outcomes),
            rewritten_bytes=sum(each.group.source_bytes for each in committed),
            added_bytes=sum(each.output_bytes for each in outcomes),
            requests=self._requests,
            failed_groups=sum(each.is_failure for each in groups),
            failed_tasks=self._failed_tasks,
            seconds=seconds,
            groups=groups,
        )

    def _settle(self, result: GroupResult) -> None:
        self._results[result.group.name] = result
        if self._progress is not None:
            self._progress(len(self._results), len(self._groups))


def _result(results: Mapping[str, GroupResult], group: Group) -> GroupResult:
    return results.get(group.name) or GroupResult(group, Status.FAILED, "no attempt at it came back")
