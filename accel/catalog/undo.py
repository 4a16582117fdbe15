"""Returning to an earlier state: undo of commits to a list, and a catalog whose bucket was put back from a copy.

**Undo**: a node's list returns to an earlier version, and keeps the uploads since.

    1. the current list is kept as a version
    2. one conditional write, rebased after a lost race: see `node_list`; before it, every object to be restored is
       opened, and none of them may be delete pending
    3. stream objects of the undone commits are retired in the shards of their streams, including those that still
       waited in the list; then the list drops the numbers of the undone commits: see `shard_writes`

A collector marks an object in the list as delete pending before it deletes the object, and such an object is never
restored: of collector and undo, the first to write the list wins. An undo that ended half-way is finished by the next
undo, and by the next move of stream objects. The kept versions: one from before each of the last few commits that
removed objects, and one from before each undo.

**Restored**: a bucket, or a part of it, was put back from a copy. The copy is an earlier state, and running processes
have read later states; "the lost time" is the time in between. A new generation invalidates the later states:

    1. the format record gets a new generation: the time, and 16 random bytes
    2. the counter of object ids is raised far above every id in the bucket, in lists, in stream shards and in hints; so
       no id of an object of the lost time is allocated again
    3. the session number of each list is raised far above its value: sessions of the lost time are fenced
    4. the directory gets every node that has a list, and the new generation: readers read the directory at each
       refresh, drop their image and the cached facts about its objects, and read all keys again

Each step may be repeated; a repetition makes one more generation. Nothing is deleted. Until step 4, readers that were
running before raise `CatalogWentBack` where they detect the change; no reader serves from the old image.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.compact import erase_old_versions, keep_version
from accel.catalog.keys import must_read, require
from accel.catalog.node_list import Undo, after_undo
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.records import NodeDirectory, NodeList, Rows, refs_of
from accel.catalog.shard_writes import KeptList, kept_lists, move_stream_objects, read_list
from accel.catalog.sketches_and_ends import sketch_rows, sketches_of
from accel.catalog.whole_catalog import BulkScan, Progress, read_survey
from accel.errors import AccelError, CommitRefused, MaintenanceRefused
from bloom import StreamSketch
from loaders.hints import HintProblem
from loaders.hints.packs import read_pack_root
from loaders.hints.snapshots import SnapshotReader
from loaders.layout import HINTS_PREFIX
from loaders.tables import renew_format
from loaders.versions import Versioned

KEPT_AGAIN_MAX = 8
"""The maximum number of versions that an undo keeps because of commits in between that it must undo as well."""


Checked: TypeAlias = dict[int, AccelError | StreamSketch | None]
"""Object id -> the error why it cannot be restored; else its sketch, None if it has no stream."""


class Way(StrEnum):
    """Whether a list can return to a version."""

    OPEN = "possible"
    THERE = "as it is now"
    CLOSED = "not possible"


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """An earlier version of a node's list.

    Args:
        sequence: the sequence number of the list at that time; identifies the version.
        kept_at_ms: when it was kept, just before it was replaced; milliseconds since 1970, by the store's clock.
        next_order_id: the number of commits to the list by then.
        live: the number of its live objects.
        size_bytes: of these objects together.
        way: whether the list can return to it.
        reason: why it cannot; else empty.
    """

    sequence: int
    kept_at_ms: int
    next_order_id: int
    live: int
    size_bytes: int
    way: Way
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UndoReport:
    """The changes of an undo, or of a planned undo.

    Args:
        node_id: the node of the list.
        sequence: of the version that the list returned to; None if only an earlier undo was finished.
        revived: ids of the restored objects.
        withdrawn: ids of the objects of many streams that were withdrawn.
        commits: the numbers of the undone commits; empty if the list had the objects of the version already.
        finished: the numbers of commits of an earlier, unfinished undo.
    """

    node_id: int
    sequence: int | None
    revived: tuple[int, ...] = ()
    withdrawn: tuple[int, ...] = ()
    commits: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether this call changed the list."""
        return bool(self.commits)


class _NotKeptError(Exception):
    """Commits were made in between that must be undone, too; their stream objects are in no kept version yet."""


def versions(catalog: ObjectCatalog, node_id: int) -> list[KeptVersion]:
    """The kept versions of a node's list, oldest first, and whether the list can return to them.

    Requests: one for the list, one listing, one a version, and one for each object that would be restored.

    Raises:
        CatalogMissing: the node has no list.
    """
    parts = catalog.parts
    now = read_list(parts.keys.node_list(node_id), node_id).value
    kept = kept_lists(parts, node_id)
    missing: Checked = {}
    return [_described(parts, now, version, missing) for version in kept]


def unfinished_commits(catalog: ObjectCatalog, node_id: int) -> tuple[int, ...]:
    """The numbers of commits of an unfinished undo; usually none. One request."""
    return read_list(catalog.parts.keys.node_list(node_id), node_id).value.withdrawn_commits


def finish_undo(catalog: ObjectCatalog, node_id: int) -> UndoReport:
    """Finish an undo that ended half-way, and nothing else. Two requests a shard, and a few for the list.

    Raises:
        CatalogMissing: the node has no list.
        StoreError, TableError: it stopped half-way again.
    """
    unfinished = unfinished_commits(catalog, node_id)
    if unfinished:
        _finish(catalog.parts, node_id)
    return UndoReport(node_id, None, finished=unfinished)


def plan_undo(catalog: ObjectCatalog, node_id: int, sequence: int | None = None) -> UndoReport:
    """The changes that `undo` would make now. Nothing is written; arguments, read requests and errors as in `undo`."""
    parts = catalog.parts
    now = read_list(parts.keys.node_list(node_id), node_id).value
    if sequence is None and now.withdrawn_commits:
        return UndoReport(node_id, None, finished=now.withdrawn_commits)
    version = _wanted(parts, now, sequence)
    undo = after_undo(now, version.version.node_list, parts.now_ms())
    if undo is not None:
        _refuse_missing(parts, undo.revived, node_id)
    return _report(node_id, version.version.sequence, undo, now.withdrawn_commits)


def undo(catalog: ObjectCatalog, node_id: int, sequence: int | None = None) -> UndoReport:
    """Return a node's list to an earlier version, plus all uploads since. Repeating it is safe.

    Args:
        catalog: the catalog of the list.
        node_id: the node.
        sequence: of the version; by default the newest version whose objects differ from the current ones. If an
            earlier undo is unfinished, it is finished instead.

    Requests: one a kept version, one an object that is restored, three for the list and two a shard.

    Raises:
        MaintenanceRefused: no such version, or an object to be restored does not exist as in the list.
        CommitRefused: an object to be restored is being deleted, or another undo was made in between.
        CatalogMissing: the node has no list.
        StoreError, TableError: it stopped half-way; call it again.
    """
    parts = catalog.parts
    seen = read_list(parts.keys.node_list(node_id), node_id)
    unfinished = seen.value.withdrawn_commits
    if sequence is None and unfinished:
        return finish_undo(catalog, node_id)
    version = _wanted(parts, seen.value, sequence)
    done = _lead_back(parts, seen, version.version.node_list)
    _finish(parts, node_id)
    return _report(node_id, version.version.sequence, done, unfinished)


def _report(node_id: int, sequence: int, done: Undo | None, unfinished: tuple[int, ...]) -> UndoReport:
    if done is None:
        return UndoReport(node_id, sequence, finished=unfinished)
    revived, withdrawn = tuple(done.revived["object_id"].tolist()), tuple(done.withdrawn.tolist())
    return UndoReport(node_id, sequence, revived, withdrawn, done.commits, unfinished)


def _described(parts: CatalogParts, now: NodeList, kept: KeptList, missing: Checked) -> KeptVersion:
    then = kept.version.node_list
    way, reason = Way.OPEN, ""
    try:
        undo = after_undo(now, then, parts.now_ms())
        way = Way.THERE if undo is None else Way.OPEN
        if undo is not None:
            _refuse_missing(parts, undo.revived, now.node_id, missing)
    except (CommitRefused, MaintenanceRefused) as error:
        way, reason = Way.CLOSED, str(error)
    size_bytes = int(then.live["size_bytes"].sum())
    number = kept.version.sequence
    return KeptVersion(number, kept.kept_at_ms, then.next_order_id, len(then.live), size_bytes, way, reason)


def _wanted(parts: CatalogParts, now: NodeList, sequence: int | None) -> KeptList:
    kept = kept_lists(parts, now.node_id)
    return _newest_other(parts, now, kept) if sequence is None else _chosen(now.node_id, kept, sequence)


def _newest_other(parts: CatalogParts, now: NodeList, kept: list[KeptList]) -> KeptList:
    for version in reversed(kept):
        if after_undo(now, version.version.node_list, parts.now_ms()) is not None:
            return version
    found = f"{len(kept)} versions that have the same objects"
    raise MaintenanceRefused(f"list of node {now.node_id}: expected an earlier version to go back to, found {found}")


def _chosen(node_id: int, kept: list[KeptList], sequence: int) -> KeptList:
    for version in kept:
        if version.version.sequence == sequence:
            return version
    known = ", ".join(str(version.version.sequence) for version in kept) or "none"
    raise MaintenanceRefused(f"list of node {node_id}: expected one of the versions {known}, found {sequence}")


def _lead_back(parts: CatalogParts, seen: Versioned[NodeList], earlier: NodeList) -> Undo | None:
    node_id = seen.value.node_id
    key = parts.keys.node_list(node_id)
    checked: Checked = {}
    for _ in range(KEPT_AGAIN_MAX):
        way_back = _WayBack(parts, seen.value, earlier, checked)
        if way_back.change(seen.value) is None:
            return None
        keep_version(parts, seen)
        try:
            key.change(way_back.change, seen=seen)
        except _NotKeptError:
            seen = read_list(key, node_id)
        else:
            return way_back.done
    found = f"{KEPT_AGAIN_MAX} commits meanwhile that must be undone, too"
    raise MaintenanceRefused(f"list of node {node_id}: expected no new commits on the undone ones, found {found}")


class _WayBack:
    """One attempt to write an undone list. Threads: one.

    Args:
        parts: of the catalog.
        kept: the list that was kept as a version just before.
        earlier: the version to return to.
        checked: the results of objects that were opened before.
    """

    def __init__(self, parts: CatalogParts, kept: NodeList, earlier: NodeList, checked: Checked) -> None:
        self._parts = parts
        self._kept_ids = kept.stream_objects["object_id"]
        self._earlier = earlier
        self._checked = checked
        self.done: Undo | None = None

    def change(self, node_list: NodeList | None) -> NodeList | None:
        """The list after the undo; None if it was done before: by an earlier call, or by this one with a lost reply."""
        now = require(node_list, f"the list of node {self._earlier.node_id}")
        undo = after_undo(now, self._earlier, self._parts.now_ms())
        if undo is None:
            return None
        if not np.isin(undo.withdrawn_stream_objects["object_id"], self._kept_ids).all():
            raise _NotKeptError
        _refuse_missing(self._parts, undo.revived, now.node_id, self._checked)
        following = _sketched(undo, self._checked)
        self.done = replace(undo, node_list=following)
        return following


def _refuse_missing(parts: CatalogParts, revived: Rows, node_id: int, checked: Checked | None = None) -> None:
    known = {} if checked is None else checked
    fresh = revived[~np.isin(revived["object_id"], np.array(sorted(known), dtype=np.int64))]
    for ref, opened in open_each(parts, ((node_id, ref) for ref in refs_of(fresh))):
        known[ref.object_id] = opened if isinstance(opened, AccelError) else _sketch_of(opened.ranges.stream_ids)
    for object_id, error in _errors(revived["object_id"].tolist(), known):
        where = f"list of node {node_id}"
        raise MaintenanceRefused(
            f"{where}: expected object {object_id}, which must be restored, to exist, found {error}"
        ) from error


def _sketch_of(stream_ids: NDArray[np.int64]) -> StreamSketch | None:
    return StreamSketch.build(stream_ids) if len(stream_ids) else None


def _sketched(undo: Undo, checked: Checked) -> NodeList:
    """The list after the undo, with sketches of all restored objects, which were opened before."""
    found = ((object_id, checked[object_id]) for object_id in undo.revived["object_id"].tolist())
    sketches = sketch_rows((object_id, one) for object_id, one in found if isinstance(one, StreamSketch))
    following = undo.node_list
    return replace(following, sketches=sketches_of(following.live, sketches, following.sketches))


def _errors(object_ids: Iterable[int], known: Checked) -> Iterable[tuple[int, AccelError]]:
    return ((object_id, error) for object_id in object_ids if isinstance(error := known[object_id], AccelError))


def _finish(parts: CatalogParts, node_id: int) -> None:
    """Retire the stream objects of undone commits, moved to their shards or not, and erase old versions."""
    move_stream_objects(parts, node_id)
    erase_old_versions(parts, node_id)


IDS_PASSED_OVER = 1 << 20
"""The number of ids above the highest found id that are skipped: processes of the lost time may have had them."""

EPOCHS_PASSED_OVER = 1 << 20
"""The number of session numbers of a node that are skipped: sessions of the lost time may have had them."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The changes that `restored` makes.

    Args:
        generation: the current generation of the catalog; empty if it was never restored.
        highest_object_id: the highest id that was found; -1 if there is none.
        next_object_id: the value of the counter now; None if there is no counter.
        next_object_id_after: the minimum value of the counter afterwards.
        epochs: node id -> the session number of its list now.
        unnamed_nodes: nodes that have a list but are not in the directory.
        highest_stream_id: the highest stream id in the shards; -1 if there is none.
    """

    generation: str
    highest_object_id: int
    next_object_id: int | None
    next_object_id_after: int
    epochs: dict[int, int]
    unnamed_nodes: tuple[int, ...]
    highest_stream_id: int


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The changes that were made.

    Args:
        plan: the plan.
        generation: the new generation.
    """

    plan: RestorePlan
    generation: str


def plan_restored(
    catalog: ObjectCatalog, *, progress: Progress | None = None, scan: BulkScan | None = None
) -> RestorePlan:
    """Read the current state and plan the changes. Nothing is written.

    Args:
        catalog: the catalog that was put back.
        progress: called with the number of keys of the bucket that were listed so far.
        scan: lists the bucket; this process by default.

    Requests: one for 1,000 keys of the bucket, three a list, one a stream shard, and four more.

    Raises:
        MaintenanceRefused: an import is running.
        CatalogDamaged: a list, a shard or the directory is missing: put it back first.
        StoreError, TableError, CorruptObject, FormatTooNew: a key could not be read.
    """
    parts = catalog.parts
    stored = (scan or BulkScan()).list_objects(parts, progress)
    survey = read_survey(parts)
    directory = must_read(parts.keys.directory()).value
    hinted = max(hinted_ids(parts), default=-1)
    highest = max(int(stored.ids.max(initial=-1)), int(survey.known_ids().max(initial=-1)), hinted)
    counter = parts.keys.object_ids().read()
    now = None if counter is None else counter.value
    streams = [int(seen.value.streams["stream_id"].max(initial=-1)) for seen in survey.shards]
    return RestorePlan(
        generation=max(parts.format.generation, directory.generation),
        highest_object_id=highest,
        next_object_id=now,
        next_object_id_after=max(highest + 1, now or 0) + IDS_PASSED_OVER,
        epochs={node_id: seen.value.epoch for node_id, seen in survey.lists.items()},
        unnamed_nodes=tuple(sorted(set(survey.lists) - set(directory.node_ids.tolist()))),
        highest_stream_id=max(streams, default=-1),
    )


def restored(catalog: ObjectCatalog, plan: RestorePlan) -> RestoreReport:
    """Make a new generation of a catalog that was put back. Repeating it is safe, after any failure.

    The catalog must be opened again afterwards.

    Args:
        catalog: the catalog of the plan.
        plan: of `plan_restored`, made just before.

    Requests: two for the format record, the counter and the directory each, and two a list.

    Raises:
        CatalogDamaged: the directory or a list is gone.
        StoreError, TableError: it stopped half-way; make a new plan and repeat the call.
    """
    parts = catalog.parts
    generation = _next_generation(parts, plan.generation)
    system = parts.system
    renew_format(parts.store, generation, system.nonce, sleep=system.sleep, jitter=system.jitter)
    parts.keys.object_ids().change(lambda counter: max(plan.next_object_id_after, counter or 0))
    for node_id in plan.epochs:
        key = parts.keys.node_list(node_id)
        key.change(partial(_fenced, where=key.where))
    directory = parts.keys.directory()

    def named(named_before: NodeDirectory | None) -> NodeDirectory:
        known = require(named_before, directory.where)
        nodes = np.union1d(known.node_ids, np.array(sorted(plan.epochs), dtype=np.int64))
        return replace(known, node_ids=nodes, generation=generation)

    directory.change(named)
    return RestoreReport(plan, generation)


def _fenced(node_list: NodeList | None, *, where: str) -> NodeList:
    known = require(node_list, where)
    return replace(known, epoch=known.epoch + EPOCHS_PASSED_OVER)


def _next_generation(parts: CatalogParts, before: str) -> str:
    """A generation above the one before, even if this machine's clock is behind."""
    earlier_ms = int(before.partition("-")[0] or 0)
    return f"{max(parts.now_ms(), earlier_ms + 1):014d}-{parts.system.nonce().hex()}"


def hinted_ids(parts: CatalogParts) -> Iterator[int]:
    """The highest object id in each root of hints; unusable hints are skipped."""
    namespace = parts.layout.namespace
    snapshots = SnapshotReader(parts.store, namespace, parts.system.timer)
    for node_id in _hinted_nodes(parts):
        for read in (partial(read_pack_root, parts.store, namespace), snapshots.read_root):
            try:
                yield int(read(node_id).covered.object_ids.max(initial=-1))
            except HintProblem:
                continue


def _hinted_nodes(parts: CatalogParts) -> list[int]:
    node_ids = set()
    for info in parts.store.list(HINTS_PREFIX):
        folder = info.key[len(HINTS_PREFIX) :].split("/")[1:2]
        digits = folder[0].removeprefix("node-") if folder else ""
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            node_ids.add(int(digits))
    return sorted(node_ids)
