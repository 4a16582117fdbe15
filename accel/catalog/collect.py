"""The collector: deletes objects of this catalog that no reader and no commit needs any more, and nothing else.

    reason      which objects                                         before the objects are deleted
    retired     replaced, trimmed or withdrawn so long ago that       the rows are marked as delete pending in their
                no reader has an image with them                      list or shard: no undo restores them
    dead        every stream is deleted or trimmed beyond it          nothing: they are retired, and deleted later
    prepared    prepared for a writer that never committed them       the ids are removed: no commit can list them
    orphan      old objects of this catalog that are not in it,       nothing: an id that is not prepared cannot be
                left by writers and collectors that crashed           committed

A plan lists the objects to delete, with reasons; planning changes nothing, and a dry run is a plan that is not carried
out. Carrying a plan out begins with retiring dead objects (`dead_objects`), which a later collection deletes once no
reader needs them, and with the marks and removals of the table, in one conditional write a list or shard. Then, for
each batch of at most 1,000 objects:

    1. the whole catalog is read again, and its keys are compared (`whole_catalog`): where they contradict one another,
       the collection ends; objects that are live, prepared, or retired but not delete pending are left alone, and those
       of a node whose list is in doubt
    2. each object that the listing showed is proven to be this catalog's own (`proof`): retired objects by their mark,
       or by the size and checksum of their rows; the others by their mark alone
    3. a journal of the proven objects is written (`write_journal`)
    4. the proven objects are deleted
    5. the rows of retired objects that are gone are removed from lists and shards

A collector may crash between any two steps, and two may run at once: rows stay delete pending until their objects are
gone, and the objects of removed prepared ids become orphans. An object that nothing proves stays for ever: its row
stays delete pending, and reports count it. `find_stray` shows such an object, and `delete_stray` deletes it by its id.
An object whose id this catalog never allocated is foreign, perhaps waiting for an import: it is not even looked at.
While an import runs, nothing is collected.

On a full disk the marks and the journal would have no room. So the folder of a `file:` store keeps a reserve, which is
given up then; the next process that writes there keeps one again.

A node whose list is in doubt (missing, unreadable, behind another key, or empty for no known reason) is left alone, and
so are all objects that no key names: they may be of this list. The objects of the other nodes are collected.

**Unfinished uploads.** A store keeps the parts of multipart uploads that their processes left unfinished, and bills
them, for good. No listing of uploads shows their metadata, so that it does not prove whose they are. Uploads of a
catalog's objects are recorded below `accel/uploads/` before their first part (`loaders.object_writer.start_upload`),
and only recorded ones are aborted. A record that is as old as an orphan (`orphan_seconds`) belongs to a process that
has died, or cannot commit its object any more. Aborting an upload that was completed changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TypeVar

import numpy as np

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.dead_objects import DeadObjects, find_dead, retire_dead
from accel.catalog.job_runs import GC, RunningJob, recorded
from accel.catalog.keys import NODE_LISTS, STREAM_SHARDS, must_read
from accel.catalog.lost_objects import find_lost_dead
from accel.catalog.node_list import without_expired
from accel.catalog.parts import MILLISECONDS, CatalogParts, open_each
from accel.catalog.proof import Standing, prove_all
from accel.catalog.records import (
    NodeList,
    Record,
    Rows,
    StreamShard,
    joined_ids,
    refs_of,
    with_delete_pending,
    without_collected,
)
from accel.catalog.refresh import CatalogState
from accel.catalog.whole_catalog import BulkScan, Ids, Progress, StoredObjects, Survey, read_trusted, unreadable
from accel.errors import AccelError, MaintenanceRefused, MaintenanceStopped
from accel.system import StopRequested
from loaders.errors import StoreError, StoreFull
from loaders.layout import JOURNAL_PREFIX, UPLOADS_PREFIX, parse_upload_key
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.object_writer import fetch_mark
from loaders.store.base import DELETE_BATCH_KEYS_MAX
from loaders.store.bill import RequestCause, caused_by
from loaders.store.decorated import CountingStore, folder_of

T = TypeVar("T")

NO_SEQUENCE = -1
"""The sequence of an orphan, which no key lists."""


class Reason(StrEnum):
    """Why an object may be deleted."""

    RETIRED = "retired"
    PREPARED = "prepared"
    ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class Collectable:
    """One object that may be deleted.

    Args:
        object_id: the id of the object.
        key: the key of the object in the bucket.
        size_bytes: from the bucket's listing; 0 if the listing does not contain the object (any more).
        is_listed: whether the listing contains it; otherwise only its row goes.
        reason: why it may be deleted.
        since_ms: when it was retired, its deadline passed, or it was written; milliseconds since 1970.
        table: the table of the record with the object: `node-lists`, `stream-buckets`, or empty for an orphan.
        number: the node or shard there; -1 for an orphan.
        sequence: the sequence number of that record when it was read; -1 for an orphan.
    """

    object_id: int
    key: str
    size_bytes: int
    is_listed: bool
    reason: Reason
    since_ms: int
    table: str = ""
    number: int = -1
    sequence: int = NO_SEQUENCE


@dataclass(frozen=True, slots=True)
class ObjectTotals:
    """A number of objects, and the sum of their sizes."""

    objects: int
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class CollectionPlan:
    """The objects that a collection would delete.

    Args:
        planned_at_ms: when the plan was made, milliseconds since 1970; prepared ids whose deadline has passed are void.
        retired_before_ms: objects that were retired before this time may be deleted.
        objects: retired objects first, then prepared ones, then orphans.
        young: objects that are not in the catalog and are not old enough.
        foreign: objects with ids that this catalog never allocated; they are left alone.
        held_back: old objects that are not in the catalog, and may be of a node in doubt.
        doubts: nodes whose lists may lack objects, with the reasons; their objects are left alone.
        allow_empty_nodes: nodes whose list may have no live object although the node has committed before.
        dead: live objects that will be retired, because all their streams are deleted or trimmed beyond them.
    """

    planned_at_ms: int
    retired_before_ms: int
    objects: tuple[Collectable, ...]
    young: ObjectTotals
    foreign: ObjectTotals
    held_back: ObjectTotals
    doubts: Mapping[int, str]
    allow_empty_nodes: frozenset[int]
    dead: tuple[DeadObjects, ...] = ()

    def dead_total(self) -> ObjectTotals:
        """The number of dead objects, and their bytes."""
        return total_of(self.dead)

    def tallies(self) -> dict[Reason, ObjectTotals]:
        """The number of objects and bytes for each reason."""
        return tallies_of(self.objects)


@dataclass(frozen=True, slots=True, eq=False)
class CollectionReport:
    """The result of a collection.

    Args:
        deleted: the objects that were deleted.
        left_alone: planned objects that were not touched: needed again, or gone already.
        failed: objects that were not deleted, with the store's error; the next collection tries again.
        unproven: objects that may be another system's, with what was found: they are never deleted.
        journals: the keys of the journals of deleted objects.
        not_reached: planned objects that were not processed, because the collection ended half-way; empty otherwise.
        retired: dead objects that were retired; a collection after the retention deletes them.
    """

    deleted: tuple[Collectable, ...]
    left_alone: tuple[Collectable, ...]
    failed: tuple[tuple[Collectable, str], ...]
    unproven: tuple[tuple[Collectable, str], ...]
    journals: tuple[str, ...]
    not_reached: tuple[Collectable, ...] = ()
    retired: tuple[DeadObjects, ...] = ()


def total_of(dead: Iterable[DeadObjects]) -> ObjectTotals:
    """The number of dead objects, and their bytes."""
    sizes = [ref.size_bytes for each in dead for ref in each.refs]
    return ObjectTotals(len(sizes), sum(sizes))


def tallies_of(objects: Iterable[Collectable]) -> dict[Reason, ObjectTotals]:
    """The number of objects and bytes for each reason."""
    sizes: dict[Reason, list[int]] = {reason: [] for reason in Reason}
    for collectable in objects:
        sizes[collectable.reason].append(collectable.size_bytes)
    return {reason: ObjectTotals(len(of_reason), sum(of_reason)) for reason, of_reason in sizes.items()}


@caused_by(RequestCause.GC)
def plan_collection(
    catalog: ObjectCatalog,
    *,
    allow_empty_nodes: frozenset[int] = frozenset(),
    progress: Progress | None = None,
    scan: BulkScan | None = None,
) -> CollectionPlan:
    """Find the objects that may be deleted now. Nothing is written.

    Args:
        catalog: the catalog of the objects.
        allow_empty_nodes: nodes whose list may have no live object although the node has committed before, and no
            commit removed the last one: such a list is otherwise in doubt. Valid only if nothing else is.
        progress: called with the number of keys of the bucket that were listed so far.
        scan: lists the bucket; this process by default.

    Requests: one for 1,000 keys of the bucket, two a list, one a stream shard, and six more; and those of `find_dead`.

    Raises:
        MaintenanceRefused: all lists are in doubt, keys contradict one another (`survey.read_trusted`), or a shard or
            an object that may be dead could not be read.
    """
    parts = catalog.parts
    now_ms = parts.now_ms()
    retired_before_ms = now_ms - int(parts.format.retired_seconds * MILLISECONDS)
    try:
        stored = (scan or BulkScan()).list_objects(parts, progress)  # before the catalog: see `whole_catalog`
    except AccelError as error:
        raise unreadable(error) from error
    survey = read_trusted(parts, allow_empty_nodes)
    orphans, young, foreign = _divided(parts, stored.unknown_to(survey.known_ids()), now_ms)
    lists = [seen.value for seen in survey.trusted_lists().values()]
    is_emptied = any(each.is_empty_as_known and each.emptied for each in lists)
    if len(orphans.ids) and not len(survey.listed_ids()) and not is_emptied:
        found = f"none, and {len(orphans.ids)} objects in the bucket"
        raise MaintenanceRefused(f"expected a catalog that lists objects, found {found}: import them first")
    objects = (
        *_retired(parts, survey, stored, retired_before_ms),
        *_expired(parts, survey, stored, now_ms),
        *(() if survey.doubts else _as_collectable(parts, orphans)),
    )
    try:
        shards = [seen.value for seen in survey.shards]
        dead = (*find_dead(parts, lists, shards), *find_lost_dead(parts, lists, shards))
    except AccelError as error:
        raise unreadable(error) from error
    left = _tally(young), _tally(foreign), _tally(orphans) if survey.doubts else ObjectTotals(0, 0)
    return CollectionPlan(now_ms, retired_before_ms, objects, *left, survey.doubts, allow_empty_nodes, dead)


def count_waiting(parts: CatalogParts, state: CatalogState, now_ms: int) -> int:
    """How many objects a collection may delete, as lists and shards show. No request; O(rows).

    An estimate: objects that no key names are found by a listing only, and those that nothing proves to be ours count.
    """
    before_ms = now_ms - int(parts.format.retired_seconds * MILLISECONDS)
    lists = list(state.node_lists().values())
    retired = [each.retired for each in lists] + [seen.value.retired for seen in state.shards]
    gone = sum(int(((rows["delete_pending"] != 0) | (rows["retired_at_ms"] < before_ms)).sum()) for rows in retired)
    return gone + sum(int((each.prepared["deadline_ms"] <= now_ms).sum()) for each in lists)


def collect(catalog: ObjectCatalog, plan: CollectionPlan, *, progress: Progress | None = None) -> CollectionReport:
    """Carry a plan out; objects that are needed again since the plan was made are left alone. Repeating it is safe.

    The run is recorded (`job_runs`).

    Args:
        catalog: the catalog of the plan.
        plan: of `plan_collection`.
        progress: called with the number of objects that were processed so far. If it raises `StopRequested`, no further
            batch is processed, and the report names the objects that were not reached.

    Requests: three or four for each list with dead objects, two or three a list and one or two a shard in the
    beginning; then for each batch two a list and one a shard to check, one or two for each object that is listed, two
    to write and delete, and one for each list and shard with retired objects of the batch.

    Raises:
        MaintenanceRefused: a list is empty that should not be, keys contradict one another, or a key could not be
            read; nothing was changed.
        MaintenanceStopped: the same, or a failed write, after the first change. Finished batches stay finished; the
            error's `report` contains them.
    """
    counted = CountingStore(catalog.parts.store)
    with recorded(catalog.parts, GC) as job:
        try:
            report = _collect(replace(catalog.parts, store=counted), plan, progress)
        except MaintenanceStopped as error:
            _note(job, plan, error.report)
            raise
        finally:
            job.add(requests=counted.snapshot().total.requests)
        _note(job, plan, report)
        return report


def _note(job: RunningJob, plan: CollectionPlan, report: CollectionReport) -> None:
    job.add(items=len(report.deleted), size_bytes=sum(each.size_bytes for each in report.deleted))
    for why in (*(why for _, why in report.failed), *plan.doubts.values()):
        job.add(failures=1, reason=why)
    if report.not_reached:
        job.stop()


def _collect(parts: CatalogParts, plan: CollectionPlan, progress: Progress | None) -> CollectionReport:
    survey = read_trusted(parts, plan.allow_empty_nodes)
    round_ = _Round(parts, plan)
    try:
        for dead in plan.dead:
            _with_room(parts, partial(round_.retire, dead))
        _with_room(parts, lambda: _exclude_from_commits(parts, survey, plan))
        for number, start in enumerate(range(0, len(plan.objects), DELETE_BATCH_KEYS_MAX)):
            round_.do_batch(number, plan.objects[start : start + DELETE_BATCH_KEYS_MAX])
            if progress is not None:
                progress(round_.done)
    except StopRequested:
        return round_.report()
    except AccelError as error:
        report = round_.report()
        so_far = f"{len(report.deleted)} of {len(plan.objects)} objects deleted"
        if report.journals:
            so_far += f", journals up to {report.journals[-1]!r}"
        raise MaintenanceStopped(f"the collection ended half-way, with {so_far}: {error}", report) from error
    return round_.report()


def foresee(catalog: ObjectCatalog, plan: CollectionPlan, *, progress: Progress | None = None) -> CollectionReport:
    """What `collect` would do now: `deleted` are the objects that it would delete. Nothing is written.

    Requests: two a list and one a shard, and one or two for each planned object that is listed.

    Raises:
        MaintenanceRefused: as `collect`.
    """
    survey = read_trusted(catalog.parts, plan.allow_empty_nodes)
    round_ = _Round(catalog.parts, plan)
    with suppress(StopRequested):
        for start in range(0, len(plan.objects), DELETE_BATCH_KEYS_MAX):
            round_.foresee(survey, plan.objects[start : start + DELETE_BATCH_KEYS_MAX])
            if progress is not None:
                progress(round_.done)
    return round_.report()


# By id


@dataclass(frozen=True, slots=True)
class Stray:
    """An object that the catalog does not need, as an operator looks at it before it is deleted by its id.

    Args:
        found: the object; its reason is RETIRED if a row is delete pending, else ORPHAN, even if its id is not ours.
        etag: of the object.
        modified_ms: when it was written, by the store's clock, milliseconds since 1970.
        mark: its mark; None if it has none.
        tail: the streams and the checksum of its index, or why it has no index.
        row: what the row that is delete pending says; None without a row.
    """

    found: Collectable
    etag: str
    modified_ms: int
    mark: str | None
    tail: str
    row: ObjectRef | None


def find_stray(catalog: ObjectCatalog, object_id: int) -> Stray:
    """Look at an object that the catalog does not need. Requests: as of a check of a batch, and four.

    Raises:
        MaintenanceRefused: the catalog needs the object, or there is none; or as `collect`.
    """
    parts = catalog.parts
    survey = read_trusted(parts)
    if survey.doubts:
        raise MaintenanceRefused(next(iter(survey.doubts.values())))
    if object_id in survey.kept_ids():
        found = "one that is live, prepared, or retired and not delete pending"
        raise MaintenanceRefused(f"object {object_id}: expected one that the catalog does not need, found {found}")
    key = parts.layout.object_key(object_id)
    info = next((each for each in parts.store.list(key, limit=1) if each.key == key), None)
    if info is None:
        raise MaintenanceRefused(f"object {object_id}: expected an object at {key!r}, found none")
    modified_ms = int(info.modified_seconds * MILLISECONDS)
    reason, since_ms, place, row = Reason.ORPHAN, modified_ms, ("", -1, NO_SEQUENCE), None
    for table, number, sequence, rows in _retired_places(survey):
        for at in np.flatnonzero(rows["object_id"] == object_id)[:1]:
            reason, since_ms, place = Reason.RETIRED, int(rows["retired_at_ms"][at]), (table, number, sequence)
            [row] = refs_of(rows[at : at + 1])
    [(_, opened)] = open_each(parts, [(-1, ObjectRef(object_id))])
    if isinstance(opened, OpenedObject):
        tail = f"{len(opened.ranges)} streams, CRC-32 {opened.ref.tail_checksum:#010x}"
    else:
        tail = str(opened)
    return Stray(
        Collectable(object_id, key, info.size_bytes, True, reason, since_ms, *place),
        info.etag,
        modified_ms,
        fetch_mark(parts.store, key).mark,
        tail,
        row,
    )


def delete_stray(catalog: ObjectCatalog, stray: Stray) -> str:
    """Delete an object that nothing needs to prove, because an operator has looked at it; returns the journal's key.

    Requests: those of `find_stray`, a write, a delete, and one or two for its row.

    Raises:
        MaintenanceRefused: another object is at the key, or the catalog needs it now; nothing was changed.
        StoreError: it was not deleted.
    """
    parts = catalog.parts
    now = find_stray(catalog, stray.found.object_id)
    if now.etag != stray.etag:
        raise MaintenanceRefused(f"expected {stray.found.key!r} with ETag {stray.etag}, found {now.etag}: look again")
    journal = _with_room(parts, partial(write_journal, parts, parts.now_ms(), 0, [now.found]))
    parts.store.delete(now.found.key)
    _forget(parts, [now.found])
    return journal


class _Round:
    """Carries a plan out, batch by batch, and collects the results. Threads: one.

    Args:
        parts: of the catalog.
        plan: the plan.
    """

    def __init__(self, parts: CatalogParts, plan: CollectionPlan) -> None:
        self._parts = parts
        self._plan = plan
        self._deleted: list[Collectable] = []
        self._left_alone: list[Collectable] = []
        self._failed: list[tuple[Collectable, str]] = []
        self._unproven: list[tuple[Collectable, str]] = []
        self._journals: list[str] = []
        self._retired: list[DeadObjects] = []

    @property
    def done(self) -> int:
        """The number of objects that were processed so far."""
        return len(self._deleted) + len(self._left_alone) + len(self._failed) + len(self._unproven)

    def report(self) -> CollectionReport:
        """The results so far. Batches are processed in the plan's order, so the rest was not reached."""
        outcomes = tuple(self._deleted), tuple(self._left_alone), tuple(self._failed), tuple(self._unproven)
        return CollectionReport(
            *outcomes, tuple(self._journals), not_reached=self._plan.objects[self.done :], retired=tuple(self._retired)
        )

    def retire(self, dead: DeadObjects) -> None:
        """Retire the dead objects of a node that are still live."""
        retired = retire_dead(self._parts, dead)
        if retired:
            self._retired.append(DeadObjects(dead.node_id, retired))

    def do_batch(self, number: int, batch: Sequence[Collectable]) -> None:
        """Check a batch, prove its objects, write its journal, delete the objects, and remove their rows."""
        survey = read_trusted(self._parts, self._plan.allow_empty_nodes)
        going, absent = self._proven(survey, batch, _still_collectable(survey, batch))
        errors: dict[str, str] = {}
        if going:
            journal = partial(write_journal, self._parts, self._plan.planned_at_ms, number, going)
            self._journals.append(_with_room(self._parts, journal))
            failures = self._parts.store.delete_many([collectable.key for collectable in going])
            errors = {failure.key: str(failure.error) for failure in failures}
        gone = [collectable for collectable in going if collectable.key not in errors]
        self._failed += [(collectable, errors[collectable.key]) for collectable in going if collectable.key in errors]
        self._deleted += gone
        _forget(self._parts, [*absent, *gone])

    def foresee(self, survey: Survey, batch: Sequence[Collectable]) -> None:
        """Note what would become of a batch."""
        retired = set(joined_ids(rows["object_id"] for _, _, _, rows in _retired_places(survey)).tolist())
        going = dict.fromkeys(each for each in batch if each.reason is not Reason.RETIRED or each.object_id in retired)
        self._deleted += self._proven(survey, batch, going)[0]

    def _proven(
        self, survey: Survey, batch: Sequence[Collectable], going: Mapping[Collectable, None]
    ) -> tuple[list[Collectable], list[Collectable]]:
        """The objects that are ours, and those that are gone. All but ours are noted with their outcome."""
        listed = [collectable for collectable in going if collectable.is_listed]
        refs = {ref.object_id: ref for ref in _retired_refs(survey, listed)}
        wanted = [
            refs[each.object_id] if each.reason is Reason.RETIRED else ObjectRef(each.object_id) for each in listed
        ]
        verdicts = dict(zip(listed, prove_all(self._parts, wanted), strict=True))
        absent = [each for each in going if not each.is_listed or verdicts[each].standing is Standing.MISSING]
        self._left_alone += [*(each for each in batch if each not in going), *absent]
        for collectable, verdict in verdicts.items():
            if verdict.standing is Standing.UNPROVEN:
                self._unproven.append((collectable, verdict.reason))
            elif verdict.standing is Standing.UNREAD:
                self._failed.append((collectable, verdict.reason))
        return [each for each, verdict in verdicts.items() if verdict.standing is Standing.OURS], absent


def _with_room(parts: CatalogParts, write: Callable[[], T]) -> T:
    """Write what must be written before objects may be deleted; a full folder gives up its reserve for that."""
    try:
        return write()
    except StoreFull:
        folder = folder_of(parts.store)
        if folder is None or not folder.give_up_reserve():
            raise
        return write()


def _divided(
    parts: CatalogParts, unknown: StoredObjects, now_ms: int
) -> tuple[StoredObjects, StoredObjects, StoredObjects]:
    """Orphans that are old enough, younger orphans, and foreign objects."""
    try:
        next_id = must_read(parts.keys.object_ids()).value
    except AccelError as error:
        raise unreadable(error) from error
    written_before_ms = now_ms - int(parts.format.orphan_seconds * MILLISECONDS)
    is_ours = unknown.ids < next_id
    is_old = unknown.modified_ms < written_before_ms
    old, young, foreign = (
        StoredObjects(unknown.ids[chosen], unknown.sizes_bytes[chosen], unknown.modified_ms[chosen])
        for chosen in (is_ours & is_old, is_ours & ~is_old, ~is_ours)
    )
    return old, young, foreign


def _tally(stored: StoredObjects) -> ObjectTotals:
    return ObjectTotals(len(stored.ids), int(stored.sizes_bytes.sum()))


def _retired(parts: CatalogParts, survey: Survey, stored: StoredObjects, before_ms: int) -> Iterator[Collectable]:
    live = survey.live_ids()
    for table, number, sequence, rows in _retired_places(survey):
        chosen = (rows["delete_pending"] != 0) | (rows["retired_at_ms"] < before_ms)
        for row in rows[chosen & ~np.isin(rows["object_id"], live)]:
            object_id, since_ms = int(row["object_id"]), int(row["retired_at_ms"])
            where = _stored_at(parts, stored, object_id)
            yield Collectable(object_id, *where, Reason.RETIRED, since_ms, table, number, sequence)


def _stored_at(parts: CatalogParts, stored: StoredObjects, object_id: int) -> tuple[str, int, bool]:
    """The key and the size of an object, and whether it is listed."""
    size_bytes = stored.size_bytes(object_id)
    return parts.layout.object_key(object_id), size_bytes or 0, size_bytes is not None


def _retired_refs(survey: Survey, wanted: Iterable[Collectable]) -> Iterator[ObjectRef]:
    """The wanted objects as retired rows list them."""
    ids = np.array([collectable.object_id for collectable in wanted], dtype=np.int64)
    for _, _, _, rows in _retired_places(survey):
        yield from refs_of(rows[np.isin(rows["object_id"], ids)])


def _retired_places(survey: Survey) -> Iterator[tuple[str, int, int, Rows]]:
    for node_id, node in survey.trusted_lists().items():
        yield NODE_LISTS, node_id, node.version.sequence, node.value.retired
    for number, shard in enumerate(survey.shards):
        rows = shard.value.retired
        yield STREAM_SHARDS, number, shard.version.sequence, rows[~np.isin(rows["node_id"], list(survey.doubts))]


def _expired(parts: CatalogParts, survey: Survey, stored: StoredObjects, now_ms: int) -> Iterator[Collectable]:
    listed = survey.listed_ids()
    for node_id, seen in survey.trusted_lists().items():
        rows = seen.value.prepared
        void = (rows["deadline_ms"] <= now_ms) & ~np.isin(rows["object_id"], listed)
        for object_id, deadline_ms in zip(*(rows[void][name].tolist() for name in rows.dtype.names or ()), strict=True):
            where, place = _stored_at(parts, stored, object_id), (NODE_LISTS, node_id, seen.version.sequence)
            yield Collectable(object_id, *where, Reason.PREPARED, deadline_ms, *place)


def _as_collectable(parts: CatalogParts, orphans: StoredObjects) -> Iterator[Collectable]:
    columns = (orphans.ids.tolist(), orphans.sizes_bytes.tolist(), orphans.modified_ms.tolist())
    for object_id, size_bytes, modified_ms in zip(*columns, strict=True):
        yield Collectable(object_id, parts.layout.object_key(object_id), size_bytes, True, Reason.ORPHAN, modified_ms)


def _exclude_from_commits(parts: CatalogParts, survey: Survey, plan: CollectionPlan) -> None:
    """Mark retired rows as delete pending and remove expired ids: no undo and no commit can list the objects again."""

    def from_list(node_list: NodeList | None) -> NodeList | None:
        if node_list is None:
            return None
        freed, _ = without_expired(node_list, plan.planned_at_ms)
        pending, _ = with_delete_pending(freed or node_list, plan.retired_before_ms)
        return pending or freed

    def from_shard(shard: StreamShard | None) -> StreamShard | None:
        return None if shard is None else with_delete_pending(shard, plan.retired_before_ms)[0]

    for node_id, node in survey.trusted_lists().items():
        parts.keys.node_list(node_id).change(from_list, seen=node)
    for number, shard in enumerate(survey.shards):
        parts.keys.shard(number).change(from_shard, seen=shard)


def _still_collectable(survey: Survey, batch: Sequence[Collectable]) -> dict[Collectable, None]:
    ids = np.array([collectable.object_id for collectable in batch], dtype=np.int64)
    is_kept = np.isin(ids, survey.kept_ids())
    pending = joined_ids(rows["object_id"][rows["delete_pending"] != 0] for _, _, _, rows in _retired_places(survey))
    is_pending = np.isin(ids, pending)
    wants_pending = np.array([collectable.reason is Reason.RETIRED for collectable in batch], dtype=np.bool_)
    is_trusted = np.array([_is_trusted(survey, collectable) for collectable in batch], dtype=np.bool_)
    going = ~is_kept & is_trusted & (is_pending == wants_pending)
    return dict.fromkeys(collectable for collectable, goes in zip(batch, going.tolist(), strict=True) if goes)


def _is_trusted(survey: Survey, collectable: Collectable) -> bool:
    """Whether no list in doubt may have the object."""
    if collectable.reason is Reason.ORPHAN:
        return not survey.doubts
    return collectable.table != NODE_LISTS or collectable.number not in survey.doubts


def _forget(parts: CatalogParts, gone: Iterable[Collectable]) -> None:
    by_place: dict[tuple[str, int], list[int]] = {}
    for collectable in gone:
        if collectable.reason is Reason.RETIRED:
            by_place.setdefault((collectable.table, collectable.number), []).append(collectable.object_id)
    for (table, number), object_ids in by_place.items():
        ids = np.array(object_ids, dtype=np.int64)
        if table == NODE_LISTS:
            parts.keys.node_list(number).change(partial(_without, ids))
        else:
            parts.keys.shard(number).change(partial(_without, ids))


def _without(ids: Ids, now: Record | None) -> Record | None:
    return None if now is None else without_collected(now, ids)


def write_journal(parts: CatalogParts, planned_at_ms: int, number: int, going: Iterable[Collectable]) -> str:
    """Write the journal of the objects about to be deleted, and return its key. One request.

    Args:
        parts: of the catalog.
        planned_at_ms: the time of the plan, milliseconds since 1970.
        number: of the batch.
        going: the objects.

    Raises:
        StoreError: the journal could not be written.
    """
    nonce = parts.system.nonce().hex()[-16:]
    key = f"{JOURNAL_PREFIX}{planned_at_ms:015d}-{number:06d}-{nonce}.jsonl"
    now_ms = parts.now_ms()
    parts.store.put(key, "".join(_journal_line(collectable, now_ms) for collectable in going).encode())
    return key


def _journal_line(collectable: Collectable, now_ms: int) -> str:
    facts = {
        "object_id": collectable.object_id,
        "key": collectable.key,
        "size_bytes": collectable.size_bytes,
        "reason": collectable.reason.value,
        "time_ms": now_ms,
        "since_ms": collectable.since_ms,
        "table": collectable.table,
        "number": collectable.number,
        "sequence": collectable.sequence,
    }
    return json.dumps(facts, separators=(",", ":")) + "\n"


# Unfinished uploads


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A recorded upload.

    Args:
        object_id: of the object.
        upload_id: the store's name of the upload.
        record: the key of the record.
        since_ms: when it was begun, milliseconds since 1970, by the store's clock.
    """

    object_id: int
    upload_id: str
    record: str
    since_ms: int


def find_unfinished(parts: CatalogParts) -> list[UnfinishedUpload]:
    """The recorded uploads that are old enough to be aborted. One request for 1,000 records.

    Raises:
        StoreError: they could not be listed.
    """
    begun_before_ms = parts.now_ms() - int(parts.format.orphan_seconds * MILLISECONDS)
    found = []
    for info in parts.store.list(UPLOADS_PREFIX):
        since_ms, parsed = int(info.modified_seconds * MILLISECONDS), parse_upload_key(info.key)
        if parsed is not None and since_ms < begun_before_ms:
            found.append(UnfinishedUpload(*parsed, info.key, since_ms))
    return found


def abort_unfinished(parts: CatalogParts, uploads: list[UnfinishedUpload]) -> list[tuple[UnfinishedUpload, str]]:
    """Abort uploads and delete their records; return those that failed, with the errors. Two requests each."""
    failed = []
    for upload in uploads:
        try:
            parts.store.abort_multipart(parts.layout.object_key(upload.object_id), upload.upload_id)
            parts.store.delete(upload.record)
        except StoreError as error:
            failed.append((upload, str(error)))
    return failed
