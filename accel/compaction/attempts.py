"""One attempt at a group of a plan: merge its sources, and commit the outputs in their place.

    1 ask       whether all sources are still live: else the group is done, or lost to another compaction
    2 ids       for the outputs are prepared; an attempt writes under ids of its own
    3 merge     the sources are read, the outputs written and read back
    4 wait      for the time slot of the group, if other groups of the same list are merged at the same time
    5 commit    one swap in the node's list, or no change

Any number of attempts at a group may run, one after another or at once, and any of them may die: the list has the
sources until one swap replaces them, so one commit succeeds, and the others are refused. A refused attempt discards its
outputs and finds out from the list what happened: `is_done` distinguishes a group that another attempt did from one of
which another compaction took sources. A commit that fails on the way may have happened. It is repeated unchanged: if it
was done before, it changes nothing.

**What is left of attempts that died**: prepared ids, and objects under them. The ids expire after the catalog's
`prepared_seconds`; then the collector removes them from the list, and after that deletes the objects. An attempt whose
ids were prepared long ago takes others if less than half of that time is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from accel.catalog.bad_objects import BadObject, Cause, cause_of
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.compact import CompactionRanges
from accel.catalog.from_image import ImageAccess
from accel.catalog.parts import MILLISECONDS, ObjectAccess
from accel.catalog.records import NodeList
from accel.catalog.shard_writes import read_list
from accel.compaction.plan import Group
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, AmbiguousWrite, NamespaceShared, ObjectExists
from accel.image import StreamObject
from accel.system import Components
from loaders.errors import names_key
from loaders.format import BlockIndex
from loaders.merge.merger import merge_objects
from loaders.merge.plan import MergePlan, plan_merge
from loaders.merge.transfer import open_sources
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore
from range_index import ObjectRanges

logger = logging.getLogger(__name__)


class Status(StrEnum):
    """The result of a group."""

    COMMITTED = "committed"
    DONE_BEFORE = "done before"
    DONE_ELSEWHERE = "done by another attempt"
    LOST = "lost"
    SET_ASIDE = "set aside"
    FAILED = "failed"
    UNKNOWN = "unknown"


class TimeSlot(NamedTuple):
    """When an attempt may commit: in each `SLOT_SECONDS` whose number, modulo the number of slots, is this one.

    Attributes:
        number: from 0.
        slots: the number of slots, at most `SLOTS_MAX`.
    """

    number: int
    slots: int

    def wait_seconds(self, now_seconds: float) -> float:
        """Seconds until the slot begins; 0 in its first half, and for the only slot. At most one round of all slots."""
        all_seconds = self.slots * SLOT_SECONDS
        since = (now_seconds - self.number * SLOT_SECONDS) % all_seconds
        return 0.0 if self.slots == 1 or since < SLOT_SECONDS / 2 else all_seconds - since


SLOT_SECONDS = 0.25
SLOTS_MAX = 240
"""The maximum number of slots, so that an attempt waits for at most a minute."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupItem:
    """A group and what its first attempt needs; the argument of `work_on`. Picklable.

    Args:
        group: the group.
        ids: prepared for the outputs of the first attempt; empty = it takes its own, as further attempts do.
        slot: when its attempts may commit; None = at once.
    """

    group: Group
    ids: tuple[int, ...] = ()
    slot: TimeSlot | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GroupResult:
    """The result of an attempt at a group and, in a report, of the group. Picklable.

    Args:
        group: the group.
        status: committed; done before this run; done by another attempt; lost to another compaction; a source could not
            be read, and groups of the others follow; failed; or not known, as no attempt has returned: this one is
            looked up in the list.
        reason: why it was not committed; else empty.
        is_retryable: whether another attempt may succeed where this one failed.
        bad: the source that could not be read; None if there is none.
        added_ids: of the committed outputs.
        added_objects: the number of those with many streams.
        added_bytes: of the committed outputs.
        requests: that the attempt made; without those of the catalog, unless the engine has counted them.
        conflicts: writes of the catalog that were overtaken or failed, if the engine has counted them.
        discarded_objects: outputs that were written, and not committed.
    """

    group: Group
    status: Status
    reason: str = ""
    is_retryable: bool = False
    bad: BadObject | None = None
    added_ids: tuple[int, ...] = ()
    added_objects: int = 0
    added_bytes: int = 0
    requests: int = 0
    conflicts: int = 0
    discarded_objects: int = 0

    @property
    def is_failure(self) -> bool:
        """Whether the group is still to be compacted: neither this run nor another one did it."""
        return self.status in (Status.FAILED, Status.UNKNOWN)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        return {
            "node_id": self.group.node_id,
            "sources": [ref.object_id for ref in self.group.sources],
            "status": str(self.status),
            "reason": self.reason,
            "added": list(self.added_ids),
        }


@dataclass(frozen=True, slots=True, eq=False)
class GroupOutcome:
    """A merged group, ready to be committed. Picklable.

    Args:
        group: the group.
        added: the object of many streams; None if all streams have their own objects, or no records are left.
        stream_objects: (stream id, object of that stream alone) pairs.
        ranges: of sources and outputs, as read from their indexes.
    """

    group: Group
    added: ObjectRef | None
    stream_objects: tuple[tuple[int, StreamObject], ...]
    ranges: CompactionRanges

    @property
    def outputs(self) -> list[ObjectRef]:
        """All outputs."""
        return ([] if self.added is None else [self.added]) + [each.ref for _, each in self.stream_objects]


def bad_source(access: ObjectAccess, group: Group, error: Exception) -> BadObject | None:
    """The source that a failed merge could not read; None if it failed for another reason."""
    cause = cause_of(error, is_merged=True)
    if cause is None:
        return None
    sources = [ref for ref in group.sources if names_key(error, access.layout.object_key(ref.object_id))]
    return BadObject.of(group.node_id, sources[0], cause, error) if sources else None


def work_on(catalog: ObjectCatalog, item: GroupItem, settings: CompactionSettings, *, attempt: int = 0) -> GroupResult:
    """Merge a group and commit it, as one of any number of attempts; see the module docstring.

    A failure is a result, so that it does not affect other groups. Outputs that are not committed are discarded, as far
    as this attempt lives to do it.

    Args:
        catalog: the catalog of the plan.
        item: the group.
        settings: the plan's.
        attempt: 0 = the first, which alone uses the ids of the item.

    Requests: one or two for the list; two or three for the ids, if they were not prepared before; those of
    `merge_objects`; those of `ObjectCatalog.commit_compaction`, without opening any object.
    """
    return _Attempt(catalog, item, settings, attempt).result()


class _Attempt:
    """One attempt at a group. Threads: one."""

    def __init__(self, catalog: ObjectCatalog, item: GroupItem, settings: CompactionSettings, attempt: int) -> None:
        parts = catalog.parts
        self._catalog = catalog
        self._group = item.group
        self._slot = item.slot
        self._settings = settings
        self._system: Components = parts.system
        self._store = CountingStore(parts.store)
        self._access = ImageAccess(self._store, parts.layout, parts.executor, parts.settings, parts.system)
        self._ids = list(item.ids) if attempt == 0 else []

    def result(self) -> GroupResult:
        """Do all steps."""
        try:
            node_list = self._list()
            if not is_open(node_list, self._group):
                self._give_up(self._ids)
                return self._taken(node_list, "sources have left the list since it was planned")
            if not self._are_usable(node_list):
                self._ids = []  # they expire
            outcome = merge_group(self._access, self._group, self._settings, self._prepare)
        except Exception as error:
            logger.warning("%s: not compacted", self._group.name, exc_info=True)
            return self._not_merged(error)
        if self._slot is not None:
            self._system.sleep(self._slot.wait_seconds(self._system.clock()))
        refusal = commit_outcome(self._catalog, outcome)
        return self._committed(outcome) if refusal is None else self._refused(outcome, refusal)

    def _prepare(self, count: int) -> Sequence[int]:
        if len(self._ids) < count:
            self._ids += self._catalog.prepare(self._group.node_id, count - len(self._ids))
        return self._ids[:count]

    def _are_usable(self, node_list: NodeList) -> bool:
        """Whether the given ids are still prepared, for at least half of the time that the catalog gives them."""
        prepared = node_list.prepared
        needed_ms = self._catalog.parts.now_ms() + int(self._catalog.format.prepared_seconds * MILLISECONDS / 2)
        usable = prepared["object_id"][prepared["deadline_ms"] >= needed_ms]
        return bool(np.isin(self._ids, usable).all())

    def _list(self) -> NodeList:
        node_id = self._group.node_id
        return read_list(self._catalog.parts.keys.node_list(node_id), node_id).value

    def _committed(self, outcome: GroupOutcome) -> GroupResult:
        ids = tuple(ref.object_id for ref in outcome.outputs)
        self._give_up(set(self._ids).difference(ids))
        return replace(
            self._ended(Status.COMMITTED),
            added_ids=ids,
            added_objects=int(outcome.added is not None),
            added_bytes=sum(ref.size_bytes for ref in outcome.outputs),
        )

    def _refused(self, outcome: GroupOutcome, error: AccelError) -> GroupResult:
        """The commit was refused, or did not come through."""
        result = self._after(self._failed(error), outcome.added)
        if result.status is Status.COMMITTED:
            return self._committed(outcome)  # only the reply was lost
        self._give_up(self._ids)
        return replace(result, discarded_objects=len(outcome.outputs))

    def _not_merged(self, error: Exception) -> GroupResult:
        result = replace(self._failed(error), bad=bad_source(self._access, self._group, error))
        if result.bad is not None and not result.is_retryable:
            result = replace(result, status=Status.SET_ASIDE)
        if result.bad is None or result.bad.cause is Cause.MISSING:
            result = self._after(result)
        if not isinstance(error, NamespaceShared | ObjectExists):
            # Else one of these ids is in use by another object, which `discard` would delete. After their deadline, the
            # collector deletes the unlisted ones.
            self._give_up(self._ids)
        return result

    def _after(self, result: GroupResult, added: ObjectRef | None = None) -> GroupResult:
        """What the list says of a group after an attempt that failed."""
        try:
            node_list = self._list()
        except AccelError:
            return replace(result, is_retryable=True)  # not known: the next attempt asks first
        if added is not None and added.object_id in node_list.live["object_id"]:
            return replace(result, status=Status.COMMITTED)
        if not is_open(node_list, self._group):
            return self._taken(node_list, result.reason)
        if not np.isin(self._ids, node_list.prepared["object_id"]).all():
            return replace(result, is_retryable=True)  # the ids have expired, and the collector has taken the outputs
        return result

    def _failed(self, error: Exception) -> GroupResult:
        may_pass = isinstance(error, AccelError) and (
            error.retryable or isinstance(error, AmbiguousWrite | ObjectExists)  # the next attempt takes other ids
        )
        return replace(self._ended(Status.FAILED, f"{type(error).__name__}: {error}"), is_retryable=may_pass)

    def _taken(self, node_list: NodeList, reason: str) -> GroupResult:
        return self._ended(Status.DONE_ELSEWHERE if is_done(node_list, self._group) else Status.LOST, reason)

    def _ended(self, status: Status, reason: str = "") -> GroupResult:
        return GroupResult(self._group, status, reason, requests=self._store.snapshot().total.requests)

    def _give_up(self, object_ids: Iterable[int]) -> None:
        """Discard outputs that will not be committed; where that fails, their deadline passes."""
        ids = list(object_ids)
        if not ids:
            return
        try:
            self._catalog.discard(self._group.node_id, ids)
        except AccelError:
            node_id = self._group.node_id
            logger.warning("node %d: %d outputs are kept until their deadline", node_id, len(ids), exc_info=True)


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
    outputs = merge_objects(
        access.store,
        access.layout,
        sources,
        plan,
        list(prepare(len(plan.outputs))) if plan.outputs else [],
        settings.merging,
        executor=access.executor,
        nonce=access.system.nonce,
        limits=settings.merge_limits,
    )
    opened = replace(group, sources=tuple(source.ref for source in sources))  # with checksums, for their rows
    added = next((output for output in outputs if output.stream_id is None), None)
    own = [
        (output.stream_id, StreamObject(output.ref, output.start, output.end))
        for output in outputs
        if output.stream_id is not None
    ]
    ranges = CompactionRanges(_held(indexes, plan), None if added is None else added.ranges)
    return GroupOutcome(opened, None if added is None else added.ref, tuple(own), ranges)


def _held(indexes: Sequence[BlockIndex], plan: MergePlan) -> tuple[ObjectRanges, ...]:
    held = tuple(index.object_ranges() for index in indexes)
    if not any(len(ranges.holed) for ranges in held):
        return held
    # A range does not show where its hole is, nor whether it is below the first kept offset: the plan does.
    kept = plan.kept_ranges()
    return tuple(whole if not len(whole.holed) else part for whole, part in zip(held, kept, strict=True))


ATTEMPTS_MAX = 5
"""Attempts at one commit; the table layer below also repeats each of its requests."""

FIRST_PAUSE_SECONDS = 0.2


def commit_outcome(catalog: ObjectCatalog, outcome: GroupOutcome) -> AccelError | None:
    """Commit a group; if that is impossible, return the error. Nothing is discarded.

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
            return None
    return error


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
