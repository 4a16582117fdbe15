"""Carries out a plan: groups are merged, one after another or on many machines, and committed when they are ready.

    plan = plan_compaction(catalog, CompactionSettings())
    print(plan.to_dict())                        a dry run ends here
    report = compact(catalog, plan)

To distribute the work, pass a `run` that merges groups elsewhere (each by `run_group`, with a catalog opened there) and
returns the outcomes when they are ready. Commits are made only here, and for one attempt a group, whatever retries and
duplicates the engine has started. Progress is never lost: committed groups are done. After a crash, a new plan contains
the rest, and the same plan skips the groups that are done.

*Merging a group*: ids for its outputs are prepared, the sources read, the outputs written. Every attempt writes under
its own ids, so attempts and runs never conflict. One attempt is committed; the ids of the others expire, and the
collector deletes what was written under them.

*Committing a group* is one swap in its node's list, or no change. A commit that fails on the way may have happened. It
is repeated unchanged: if it was done before, it changes nothing. A commit that is refused cannot succeed any more,
because a source is gone (another compaction merged it) or the ids of the outputs have expired. Then the outputs are
discarded, and only that group is lost.

*A source that cannot be read* is set aside (`accel.catalog.bad_objects`), and its neighbours on either side are merged
as groups of their own, in the same run: by another round of `run`, at most `ROUNDS_MAX` in all. Where the store does
not answer for a source, the whole group is tried once more before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from accel.catalog.bad_objects import BadObject, Cause, cause_of, remember
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.compact import CompactionRanges
from accel.catalog.dead_objects import DeadObjects, retire_dead
from accel.catalog.from_image import ImageAccess
from accel.catalog.parts import ObjectAccess
from accel.catalog.records import NodeList
from accel.compaction.plan import CompactionPlan, Group
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, AmbiguousWrite, NamespaceShared, ObjectExists
from accel.image import StreamObject
from accel.system import StopRequested
from loaders.format import BlockIndex
from loaders.merge.merger import MergeResult, WrittenObject, merge_objects
from loaders.merge.plan import MergePlan, plan_merge
from loaders.merge.transfer import open_sources
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore
from range_index import ObjectRanges


class Status(StrEnum):
    """The result of a group."""

    COMMITTED = "committed"
    DONE_BEFORE = "done before"
    LOST = "lost"
    SET_ASIDE = "set aside"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, eq=False)
class GroupResult:
    """The result of one group, with details.

    Args:
        group: the group.
        status: committed; done before this run; lost to another compaction; one of its sources was set aside, and
            groups of the others follow; or failed.
        reason: why it was not committed; else empty.
        outcome: the merged group; None if it was not merged.
    """

    group: Group
    status: Status
    reason: str = ""
    outcome: GroupOutcome | None = None

    @property
    def is_failure(self) -> bool:
        """Whether the group is still to be compacted: neither this run nor another one did it."""
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
    """The result of a run.

    Args:
        rewritten_objects: sources of groups that this run committed.
        added_objects: their outputs with many streams.
        added_stream_objects: their outputs with one stream.
        rewritten_bytes: of the sources.
        added_bytes: of the outputs.
        requests: of merging, including failed attempts as far as they reported them; without those of the catalog.
        failed_groups: groups that were not compacted.
        failed_nodes: nodes that could not be planned.
        set_aside_objects: objects that this run could not read.
        lost_groups: groups that another compaction merged in the meantime, whole or in part.
        failed_tasks: attempts that failed, whether or not another one succeeded.
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
    failed_tasks: int
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
    run: RunGroups | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> CompactionReport:
    """Carry a plan out; repeating it is safe.

    Args:
        catalog: the catalog of the plan.
        plan: of `plan_compaction`.
        run: merges groups; by default in this process, one after another. Called again for the neighbours of sources
            that could not be read.
        progress: called after each group with (bytes of the groups so far, bytes of all groups). If it raises
            `StopRequested`, no further group is merged, and the report has those so far.

    Requests: a refresh; for each node with objects to retire those of `retire_dead`; for each group those of
    `run_group` and `commit_outcome`; those of `remember` for each node with objects that could not be read.

    Raises:
        StoreError: the catalog could not be read at the start. The report contains groups that fail later.
    """
    system = catalog.parts.system
    started = system.timer()
    work = _Work(catalog, plan, progress)
    work.retire()
    todo = work.still_to_do()
    try:
        for _ in range(ROUNDS_MAX):
            for outcome in run(todo) if run is not None else run_in_process(catalog, todo, plan.settings):
                work.take(outcome)
            todo = work.take_next()
            if not todo:
                break
    except StopRequested:
        work.why_not = "the run was stopped before it"
    work.remember()
    return work.report(system.timer() - started)


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
        self.why_not = "no attempt returned a result"
        self._next: list[Group] = []
        self._tried_again: set[str] = set()
        self._bad = {bad.object_id: bad for node in plan.nodes for bad in node.bad}
        self._sound: dict[int, list[int]] = {}
        self._retired: list[ObjectRef] = []
        self._failed_retirements = 0
        self._failed_tasks = 0
        self._requests = 0

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
        lists = self._catalog.refresh_state().node_lists()
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

    def take(self, attempt: GroupOutcome | GroupFailure) -> None:
        """Commit a merged group, unless another attempt at the same group was committed before."""
        known = self._results.get(attempt.group.name)
        if isinstance(attempt, GroupFailure):
            self._failed_tasks += 1
            self._requests += attempt.requests
            if known is None or (known.is_failure and attempt.bad is not None):
                self._fail(attempt)
            return
        self._requests += attempt.requests
        if known is not None and known.status in (Status.COMMITTED, Status.SET_ASIDE):
            give_up(self._catalog, attempt.group.node_id, attempt.object_ids)
            return
        why_not = commit_outcome(self._catalog, attempt)
        if not why_not:
            self._settle(GroupResult(attempt.group, Status.COMMITTED, outcome=replace(attempt, ranges=None)))
        else:
            status = Status.LOST if self._is_taken(attempt.group) else Status.FAILED
            self._settle(GroupResult(attempt.group, status, why_not))

    def _fail(self, attempt: GroupFailure) -> None:
        group, bad = attempt.group, attempt.bad
        if bad is not None and bad.cause is Cause.UNAVAILABLE and group.name not in self._tried_again:
            self._tried_again.add(group.name)
            self._next.append(group)
        elif bad is None or (bad.cause is Cause.MISSING and self._is_taken(group)):
            status = Status.FAILED if bad is None else Status.LOST
            self._settle(GroupResult(group, status, attempt.reason))
        else:
            self._bad[bad.object_id] = bad
            beside = group.beside(bad.object_id)
            self._next += beside
            self._groups += beside
            self._settle(GroupResult(group, Status.SET_ASIDE, attempt.reason))

    def take_next(self) -> list[Group]:
        """The groups of the next round."""
        following, self._next = self._next, []
        return following

    def remember(self) -> None:
        """Write the objects that could not be read to the lists of their nodes."""
        for node_id in sorted({bad.node_id for bad in self._bad.values()} | self._sound.keys()):
            bad = [each for each in self._bad.values() if each.node_id == node_id]
            remember(self._catalog.parts, node_id, bad, self._sound.get(node_id, ()))

    def _is_taken(self, group: Group) -> bool:
        """Whether another compaction removed sources of the group from the list, so that no work is left here."""
        try:
            lists = self._catalog.refresh_state().node_lists()
        except AccelError:
            return False  # not known: reported as a failure, not as the work of another run
        return not is_open(lists.get(group.node_id), group)

    def report(self, seconds: float) -> CompactionReport:
        """What was done."""
        groups = tuple(
            self._results.get(group.name) or GroupResult(group, Status.FAILED, self.why_not) for group in self._groups
        )
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
            failed_nodes=len(self._plan.failed),
            set_aside_objects=len(self._bad),
            lost_groups=sum(group.status is Status.LOST for group in groups),
            failed_tasks=self._failed_tasks,
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
            self._progress(done, self._source_bytes)


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class GroupOutcome:
    """A merged group, ready to be committed. Picklable.

    Args:
        group: the group.
        added: the object of many streams; None if all streams have their own objects, or no records are left.
        stream_objects: (stream id, object of that stream alone) pairs.
        ranges: of sources and outputs, as read from their indexes; None after the commit, to save memory.
        requests: of reading the sources and writing and checking the outputs.
        bytes_read: of the sources, and of the outputs' indexes.
        bytes_written: of the outputs, including those that the store copied itself.
        seconds: duration of the merge.
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
    """A failed attempt at a group. Picklable.

    Args:
        group: the group.
        reason: why it failed.
        requests: that the attempt made.
        bad: the source that could not be read; None if the reason is another one.
    """

    group: Group
    reason: str
    requests: int = 0
    bad: BadObject | None = None

    @classmethod
    def of(cls, access: ObjectAccess, group: Group, error: Exception, requests: int) -> GroupFailure:
        """From the error of a merge."""
        key, cause = getattr(error, "key", None), cause_of(error, is_merged=True)
        sources = (
            [] if cause is None else [ref for ref in group.sources if access.layout.object_key(ref.object_id) == key]
        )
        bad = BadObject.of(group.node_id, sources[0], cause, error) if sources and cause is not None else None
        return cls(group, f"{type(error).__name__}: {error}", requests, bad)


RunGroups = Callable[[Sequence[Group]], Iterable[GroupOutcome | GroupFailure]]
"""Merges groups, and yields the outcome of each attempt when it is ready, in any order."""


def run_group(
    catalog: ObjectCatalog, group: Group, settings: CompactionSettings, access: ObjectAccess | None = None
) -> GroupOutcome:
    """Merge a group; in the list of its node, only the ids of the outputs are prepared.

    Args:
        catalog: the catalog of the plan.
        group: of the plan.
        settings: the plan's.
        access: to the objects, if it is not that of the catalog.

    Requests: two or three for the ids, and those of `merge_objects`.

    Raises:
        StoreError: a source could not be read, or an output not written. Written outputs are discarded.
        CorruptObject: a source does not have the format, or contradicts its metadata.
        CommitRefused: too many ids are prepared in the node's list already.
    """
    ids: list[int] = []

    def prepare(count: int) -> Sequence[int]:
        ids.extend(catalog.prepare(group.node_id, count))
        return ids

    with _given_up_on_failure(catalog, group.node_id, ids):
        return merge_group(access or catalog.parts, group, settings, prepare)


def merge_group(
    access: ObjectAccess, group: Group, settings: CompactionSettings, prepare: Callable[[int], Sequence[int]]
) -> GroupOutcome:
    """Read a group's sources and write its outputs, which are not listed yet.

    Args:
        access: to the objects.
        group: of a plan.
        settings: the plan's.
        prepare: returns the requested number of unused object ids; not called if there are no outputs.

    Raises:
        StoreError: a source could not be read, or an output not written.
        CorruptObject: a source does not have the format, or contradicts its metadata.
        Errors of `prepare`.
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
        nonce=access.system.nonce,
        limits=settings.merge_limits,
        timer=access.system.timer,
    )
    opened = replace(group, sources=tuple(source.ref for source in sources))  # with checksums, for their rows
    return _outcome(opened, result, _held(indexes, plan))


def try_group(
    catalog: ObjectCatalog, group: Group, settings: CompactionSettings, *, is_repeated: bool = False
) -> GroupOutcome | GroupFailure:
    """As `run_group`, but returns a failure as a value, so that it does not affect other groups.

    Args:
        catalog, group, settings: as for `run_group`.
        is_repeated: whether the caller repeats the call after a temporary failure that is not that of a source; then
            such a failure is raised.
    """
    parts = catalog.parts
    counted = CountingStore(parts.store)
    access = ImageAccess(counted, parts.layout, parts.executor, parts.settings, parts.system)
    try:
        return run_group(catalog, group, settings, access)
    except Exception as error:
        failure = GroupFailure.of(access, group, error, counted.snapshot().total.requests)
        if is_repeated and failure.bad is None and isinstance(error, AccelError) and error.retryable:
            raise
        logger.warning("%s: not compacted", group.name, exc_info=True)
        return failure


def run_in_process(
    catalog: ObjectCatalog, groups: Sequence[Group], settings: CompactionSettings
) -> Iterator[GroupOutcome | GroupFailure]:
    """Merge one group after another; yields each when it is merged."""
    return (try_group(catalog, group, settings) for group in groups)


def give_up(catalog: ObjectCatalog, node_id: int, object_ids: Iterable[int]) -> None:
    """Discard outputs that will not be committed; where that fails, their deadline passes."""
    ids = list(object_ids)
    if not ids:
        return
    try:
        catalog.discard(node_id, ids)
    except AccelError:
        logger.warning("node %d: %d outputs are kept until their deadline", node_id, len(ids), exc_info=True)


@contextmanager
def _given_up_on_failure(catalog: ObjectCatalog, node_id: int, object_ids: list[int]) -> Iterator[None]:
    try:
        yield
    except (NamespaceShared, ObjectExists):
        # One of these ids is in use by another object, which `discard` would delete. After their deadline, the
        # collector deletes the unlisted ones.
        raise
    except Exception:
        give_up(catalog, node_id, object_ids)
        raise


def _held(indexes: Sequence[BlockIndex], plan: MergePlan) -> tuple[ObjectRanges, ...]:
    held = tuple(index.object_ranges() for index in indexes)
    if not any(len(ranges.holed) for ranges in held):
        return held
    # A range does not show where its hole is, nor whether it is below the first kept offset: the plan does.
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
"""Attempts at one commit; the table layer below also repeats each of its requests."""

FIRST_PAUSE_SECONDS = 0.2


def commit_outcome(catalog: ObjectCatalog, outcome: GroupOutcome) -> str:
    """Commit a group; if that is impossible, discard its outputs, and return the reason; else an empty text.

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
            return ""
    give_up(catalog, outcome.group.node_id, outcome.object_ids)
    return f"{type(error).__name__}: {error}"


def is_open(node_list: NodeList | None, group: Group) -> bool:
    """Whether all of a group's sources are still live, with their sizes."""
    if node_list is None:
        return False
    live = node_list.live
    sizes = dict(zip(live["object_id"].tolist(), live["size_bytes"].tolist(), strict=True))
    return all(sizes.get(ref.object_id) == ref.size_bytes for ref in group.sources)


def is_done(node_list: NodeList | None, group: Group) -> bool:
    """Whether one commit removed exactly this group's sources from the list. Known while commits are kept for undo."""
    if node_list is None:
        return False
    retired = node_list.retired
    by = dict(zip(retired["object_id"].tolist(), retired["retired_by"].tolist(), strict=True))
    commits = {by.get(ref.object_id) for ref in group.sources}
    if len(commits) != 1 or None in commits:
        return False
    return int((retired["retired_by"] == commits.pop()).sum()) == len(group.sources)
