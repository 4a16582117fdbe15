"""Carrying out a plan: groups are merged, one after another or on many machines, and committed as they come.

    plan = plan_compaction(catalog, CompactionSettings())
    print(plan.to_dict())                        a dry run ends here
    report = compact(catalog, plan)

To distribute the work, pass a `run` that merges groups elsewhere (each by `run_group`, with a catalog opened there) and
gives the outcomes back as they come. Commits are made here and nowhere else: one attempt a group, whatever retries and
twins the engine has started. Progress is never lost: what is committed is done; after a crash a new plan takes the
rest, and the same plan knows which of its groups are done.

*Merging a group*: its outputs' ids are prepared, the sources read, the outputs written. Every attempt writes under ids
of its own, so two attempts at one group never meet, and neither do two runs. One of them is committed; the ids of the
others run out, and the collector deletes what was written under them.

*Committing a group* is one swap in its node's list, or none. A commit that fails on the way may have happened. It is
repeated as it is: done before, it changes nothing. A commit that is refused cannot succeed any more, because a source
is gone (another compaction took it) or the outputs' ids have run out. Then the outputs are discarded, and that group
alone is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.compact import CompactionRanges
from accel.catalog.parts import ObjectAccess
from accel.catalog.records import NodeList
from accel.compaction.plan import CompactionPlan, Group
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, AmbiguousWrite, ObjectExists
from accel.image import StreamObject
from loaders.format import BlockIndex
from loaders.merge.merger import MergeResult, WrittenObject, merge_objects
from loaders.merge.plan import MergePlan, plan_merge
from loaders.merge.reading import open_sources
from loaders.object_ref import ObjectRef
from range_index import ObjectRanges


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
        """Whether the group was to be compacted, and neither this run nor another one did it."""
        return self.status is Status.FAILED

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
        lost_groups: groups that another compaction took meanwhile, whole or in part.
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
    lost_groups: int
    failed_tasks: int
    seconds: float
    groups: tuple[GroupResult, ...]

    @property
    def is_partial(self) -> bool:
        """Whether something was left undone."""
        return self.failed_groups > 0

    def row(self) -> dict[str, int | float]:
        """The report as one row of numbers."""
        names = [name for name in self.__slots__ if name != "groups"]
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        return {**self.row(), "groups": [group.to_dict() for group in self.groups]}


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
        progress: told (bytes of the groups dealt with, bytes of all groups), after each group.

    Requests: a refresh; for each group those of `run_group` and `commit_outcome`.

    Raises:
        StoreError: the catalog could not be read at the start. Groups that fail later stand in the report.
    """
    system = catalog.parts.system
    started = system.timer()
    work = _Work(catalog, plan, progress)
    todo = work.still_to_do()
    for outcome in run(todo) if run is not None else run_in_process(catalog, todo, plan.settings):
        work.take(outcome)
    return work.report(system.timer() - started)


class _Work:
    """The groups of a plan, and what became of them so far. Threads: one."""

    def __init__(
        self, catalog: ObjectCatalog, plan: CompactionPlan, progress: Callable[[int, int], object] | None
    ) -> None:
        self._catalog = catalog
        self._groups = plan.groups
        self._source_bytes = plan.source_bytes
        self._progress = progress
        self._results: dict[str, GroupResult] = {}
        self._failed_tasks = 0
        self._requests = 0

    def still_to_do(self) -> list[Group]:
        """The groups whose sources are all there; the others are done or lost."""
        lists = self._catalog.refresh_state().node_lists()
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
            status = Status.LOST if self._is_taken(attempt.group) else Status.FAILED
            self._settle(GroupResult(attempt.group, status, ended.reason))

    def _is_taken(self, group: Group) -> bool:
        """Whether another compaction took sources of the group out of the list, so that nothing is left to do here."""
        try:
            lists = self._catalog.refresh_state().node_lists()
        except AccelError:
            return False  # not known: better told as a failure than as somebody else's work
        return not is_open(lists.get(group.node_id), group)

    def report(self, seconds: float) -> CompactionReport:
        """What was done."""
        groups = tuple(_result(self._results, group) for group in self._groups)
        committed = [group for group in groups if group.status is Status.COMMITTED]
        outcomes = [result.outcome for result in committed if result.outcome is not None]
        return CompactionReport(
            rewritten_objects=sum(len(result.group.sources) for result in committed),
            added_objects=sum(outcome.added is not None for outcome in outcomes),
            added_stream_objects=sum(len(outcome.stream_objects) for outcome in outcomes),
            rewritten_bytes=sum(result.group.source_bytes for result in committed),
            added_bytes=sum(outcome.output_bytes for outcome in outcomes),
            requests=self._requests,
            failed_groups=sum(group.is_failure for group in groups),
            lost_groups=sum(group.status is Status.LOST for group in groups),
            failed_tasks=self._failed_tasks,
            seconds=seconds,
            groups=groups,
        )

    def _settle(self, result: GroupResult) -> None:
        self._results[result.group.name] = result
        if self._progress is not None:
            done = sum(each.group.source_bytes for each in self._results.values())
            self._progress(done, self._source_bytes)


def _result(results: Mapping[str, GroupResult], group: Group) -> GroupResult:
    return results.get(group.name) or GroupResult(group, Status.FAILED, "no attempt at it came back")


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class GroupOutcome:
    """A group that was merged and is ready to be committed. Picklable.

    Args:
        group: the group.
        added: the object of many streams; None if all streams have objects of their own, or nothing is left.
        stream_objects: (stream id, object of that stream alone) pairs.
        ranges: what sources and outputs hold, as it was read from them; None once it is committed, to save memory.
        requests: of reading the sources and writing and checking the outputs.
        bytes_read: of the sources, and of the outputs' indexes.
        bytes_written: of the outputs; those that the store copied by itself included.
        seconds: that it took.
    """

    group: Group
    added: ObjectRef | None
    stream_objects: tuple[tuple[int, StreamObject], ...]
    ranges: CompactionRanges | None
    requests: int
    bytes_read: int
    bytes_written: int
    seconds: float

    @property
    def object_ids(self) -> list[int]:
        """Ids of all outputs."""
        own = [] if self.added is None else [self.added.object_id]
        return own + [stream_object.ref.object_id for _, stream_object in self.stream_objects]

    @property
    def output_bytes(self) -> int:
        """Of all outputs."""
        own = 0 if self.added is None else self.added.size_bytes
        return own + sum(stream_object.ref.size_bytes for _, stream_object in self.stream_objects)


@dataclass(frozen=True, slots=True, eq=False)
class GroupFailure:
    """An attempt at a group that came to nothing. Picklable.

    Args:
        group: the group.
        reason: what went wrong.
    """

    group: Group
    reason: str


RunGroups = Callable[[Sequence[Group]], Iterable[GroupOutcome | GroupFailure]]
"""Merges groups, and gives the outcome of each attempt as it comes, in any order."""


def run_group(catalog: ObjectCatalog, group: Group, settings: CompactionSettings) -> GroupOutcome:
    """Merge a group; the list of its node is only told which ids are about to be written.

    Requests: two or three for the ids, and those of `merge_objects`.

    Raises:
        StoreError: a source could not be read, or an output not written. What was written is given up.
        CorruptObject: a source is not what the format or its metadata says.
        CommitRefused: too many ids are prepared in the node's list already.
    """
    ids: list[int] = []

    def prepare(count: int) -> Sequence[int]:
        ids.extend(catalog.prepare(group.node_id, count))
        return ids

    with _given_up_on_failure(catalog, group.node_id, ids):
        return merge_group(catalog.parts, group, settings, prepare)


def merge_group(
    access: ObjectAccess, group: Group, settings: CompactionSettings, prepare: Callable[[int], Sequence[int]]
) -> GroupOutcome:
    """Read a group's sources and write its outputs, which no list names yet.

    Args:
        access: where the objects lie.
        group: of a plan.
        settings: the plan's.
        prepare: returns a number of object ids that nothing else will ever use; not called if nothing is written.

    Raises:
        StoreError: a source could not be read, or an output not written.
        CorruptObject: a source is not what the format or its metadata says.
        What `prepare` raises.
    """
    sources = open_sources(access.store, access.layout, group.sources, settings.merging, executor=access.executor)
    indexes = [source.index for source in sources]
    plan = plan_merge(indexes, group.trimmed_ids, group.trimmed_starts, settings.merge_limits)
    result = merge_objects(
        access.store,
        access.layout,
        sources,
        plan,
        list(prepare(len(plan.outputs))) if plan.outputs else [],
        settings.merging,
        executor=access.executor,
        limits=settings.merge_limits,
        timer=access.system.timer,
    )
    return _outcome(group, result, _held(indexes, plan))


def try_group(catalog: ObjectCatalog, group: Group, settings: CompactionSettings) -> GroupOutcome | GroupFailure:
    """As `run_group`, with the failure as a value: one group's trouble is not the others'."""
    try:
        return run_group(catalog, group, settings)
    except Exception as error:
        logger.warning("%s: not compacted", group.name, exc_info=True)
        return GroupFailure(group, f"{type(error).__name__}: {error}")


def run_in_process(
    catalog: ObjectCatalog, groups: Sequence[Group], settings: CompactionSettings
) -> Iterator[GroupOutcome | GroupFailure]:
    """One group after another, each given when it is merged."""
    return (try_group(catalog, group, settings) for group in groups)


def give_up(catalog: ObjectCatalog, node_id: int, object_ids: Iterable[int]) -> None:
    """Discard outputs that will not be committed, as far as that is possible now; else their deadline passes."""
    ids = list(object_ids)
    if not ids:
        return
    try:
        catalog.discard(node_id, ids)
    except AccelError:
        logger.warning("node %d: %d outputs stay until their deadline", node_id, len(ids), exc_info=True)


@contextmanager
def _given_up_on_failure(catalog: ObjectCatalog, node_id: int, object_ids: list[int]) -> Iterator[None]:
    try:
        yield
    except ObjectExists:
        # Something of another lies under one of these ids, which `discard` would delete. Once their deadline has
        # passed, the collector deletes those that nothing lists.
        raise
    except Exception:
        give_up(catalog, node_id, object_ids)
        raise


def _held(indexes: Sequence[BlockIndex], plan: MergePlan) -> tuple[ObjectRanges, ...]:
    held = tuple(index.object_ranges() for index in indexes)
    if not any(len(ranges.holed) for ranges in held):
        return held
    # One range cannot say where its hole is, and whether it lies below the first kept offset: the plan can.
    kept = plan.kept_ranges()
    return tuple(whole if not len(whole.holed) else part for whole, part in zip(held, kept, strict=True))


def _outcome(group: Group, result: MergeResult, source_ranges: tuple[ObjectRanges, ...]) -> GroupOutcome:
    set_objects = [output for output in result.outputs if output.stream_id is None]
    own = [(output.stream_id, _stream_object(output)) for output in result.outputs if output.stream_id is not None]
    added = set_objects[0] if set_objects else None
    return GroupOutcome(
        group,
        None if added is None else added.ref,
        tuple(own),
        CompactionRanges(source_ranges, None if added is None else added.ranges),
        requests=result.requests,
        bytes_read=result.bytes_read,
        bytes_written=result.bytes_written + result.server_side_bytes,
        seconds=result.seconds,
    )


def _stream_object(written: WrittenObject) -> StreamObject:
    return StreamObject(written.ref, written.start, written.end)


ATTEMPTS_MAX = 5
"""How often one commit is tried; the table layer below repeats each of its requests besides."""

FIRST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Committed:
    """The group's sources are retired, and its outputs are listed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The group was not committed.

    Args:
        reason: why.
    """

    reason: str


def commit_outcome(catalog: ObjectCatalog, outcome: GroupOutcome) -> Committed | Lost:
    """Commit a group; if that is impossible, give up what was written for it.

    Requests: those of `ObjectCatalog.commit_compaction`, without opening any object.
    """
    system = catalog.parts.system
    error: AccelError | None = None
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            system.sleep(FIRST_PAUSE_SECONDS * 2**attempt * (0.5 + system.jitter()))
        try:
            catalog.commit_compaction(
                outcome.group.node_id,
                outcome.group.sources,
                outcome.added,
                outcome.stream_objects,
                ranges=outcome.ranges,
            )
        except AccelError as caught:
            error = caught
            if not (caught.retryable or isinstance(caught, AmbiguousWrite)):
                break
        else:
            return Committed()
    give_up(catalog, outcome.group.node_id, outcome.object_ids)
    return Lost(f"{type(error).__name__}: {error}")


def is_open(node_list: NodeList | None, group: Group) -> bool:
    """Whether all of a group's sources are still live, with their sizes."""
    if node_list is None:
        return False
    live = node_list.live
    sizes = dict(zip(live["object_id"].tolist(), live["size_bytes"].tolist(), strict=True))
    return all(sizes.get(ref.object_id) == ref.size_bytes for ref in group.sources)


def is_done(node_list: NodeList | None, group: Group) -> bool:
    """Whether one commit took exactly this group's sources out of the list. Known as long as they are kept for undo."""
    if node_list is None:
        return False
    retired = node_list.retired
    by = dict(zip(retired["object_id"].tolist(), retired["retired_by"].tolist(), strict=True))
    commits = {by.get(ref.object_id) for ref in group.sources}
    if len(commits) != 1 or None in commits:
        return False
    return int((retired["retired_by"] == commits.pop()).sum()) == len(group.sources)
