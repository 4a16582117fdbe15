"""Going back: a list to an earlier version of itself, or a bucket to a copy that was put back.

**Undo**: a node's list goes back to an earlier version of itself, and keeps what was uploaded since.

    1. the list as it stands is kept as one more version
    2. one conditional write, rebased on a lost race: see `node_list`; before it, every object that would come back is
       opened, and none of them may be on its way to be deleted
    3. objects of one stream that the undone commits had made are retired in the shards of their streams, those that
       still waited in the list among them; then the list forgets which commits were undone: see `shard_writes`

A collector marks an object in the list as delete pending before it deletes it, and such an object never comes back: the
one of the two that writes the list first wins. An undo that ended half-way is finished by the next one, and by the next
move of objects of one stream. Versions that there are: one from before each of the last few commits that took objects
out, and one from before each undo.

**Restored**: after a bucket, or a part of it, was put back from a copy, nothing of the lost time is to be taken for
true. A copy is a state of the past, and processes that lived on know a later one. They are told by a new generation:

    1. the format record gets a new generation: the time, and 16 random bytes
    2. the counter of object ids is raised far above every id that is found: in the bucket, in lists, in shards of
       streams, in hints; so no id is given out that an object of the lost time has had
    3. the epoch of each list is raised far above its own: sessions of the lost time are fenced
    4. the directory names every node that has a list, and the new generation: readers look there at each refresh, drop
       their image and what they know of its objects, and go on with what is there now

Each step may be repeated; a repetition makes one more generation. Nothing is deleted. Until step 4 readers that lived
through it raise `CatalogWentBack` where they can tell, and nobody serves from the old image.
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
from accel.catalog.facts import sketch_rows, sketches_of
from accel.catalog.keys import require
from accel.catalog.node_list import Undo, after_undo
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.records import NodeDirectory, NodeList, Rows, refs_of
from accel.catalog.shard_writes import KeptList, kept_lists, move_stream_objects, read_list
from accel.catalog.survey import BulkScan, Progress, must_read, read_survey
from accel.errors import AccelError, CommitRefused, MaintenanceRefused
from bloom import StreamSketch
from loaders.hints import HintProblem
from loaders.hints.packs import read_pack_root
from loaders.hints.snapshots import SnapshotReader
from loaders.layout import HINTS_PREFIX
from loaders.tables import renew_format
from loaders.versions import Versioned

KEPT_AGAIN_MAX = 8
"""So often an undo keeps the list anew, if commits come between that it takes back as well."""


Checked: TypeAlias = dict[int, AccelError | StreamSketch | None]
"""Object id -> why it cannot come back; else its sketch, None if it holds nothing."""


class Way(StrEnum):
    """Whether there is a way back to a version."""

    OPEN = "possible"
    THERE = "as it is now"
    CLOSED = "not possible"


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """An earlier version of a node's list.

    Args:
        sequence: of the list at that time; names the version.
        kept_at_ms: when it was kept, just before it was replaced; milliseconds since 1970, by the store's clock.
        next_order_id: how many commits the list had seen.
        live: how many objects it had.
        size_bytes: of these objects together.
        way: whether it can be put back.
        reason: why not, where it cannot.
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
    """What an undo did, or would do.

    Args:
        node_id: whose list.
        sequence: of the version that it led to; None if only an earlier undo was finished.
        revived: ids of objects that came back.
        withdrawn: ids of objects of many streams that went.
        commits: the numbers of the commits that were taken back; none if the list was as the version says already.
        finished: the numbers of commits that an earlier undo had taken back and not finished with.
    """

    node_id: int
    sequence: int | None
    revived: tuple[int, ...] = ()
    withdrawn: tuple[int, ...] = ()
    commits: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether the list was led back by this very call."""
        return bool(self.commits)


class _NotKeptError(Exception):
    """Commits came between that are to be taken back, too; what they made stands in no version yet."""


def versions(catalog: ObjectCatalog, node_id: int) -> list[KeptVersion]:
    """The earlier versions of a node's list that are kept, oldest first, and whether they can be put back.

    Requests: one for the list, one listing, one a version, and one an object that would come back.

    Raises:
        CatalogMissing: the node has no list.
    """
    parts = catalog.parts
    now = read_list(parts.keys.node_list(node_id), node_id).value
    kept = kept_lists(parts, node_id)
    missing: Checked = {}
    return [_described(parts, now, version, missing) for version in kept]


def unfinished_commits(catalog: ObjectCatalog, node_id: int) -> tuple[int, ...]:
    """The numbers of commits that an undo has taken back and not finished with; none as a rule. One request."""
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
    """What `undo` would do now. Nothing is written; arguments, requests for reading and errors as there."""
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
    """Lead a node's list back to an earlier version, plus all that was uploaded since. Repeating it is safe.

    Args:
        catalog: whose list.
        node_id: the node.
        sequence: of the version; by default the newest one that has other objects than the list has now. If an
            undo ended half-way, that one is finished instead.

    Requests: one a version that is kept, one an object that comes back, three for the list and two a shard.

    Raises:
        MaintenanceRefused: no such version, or an object that would come back does not exist as the list says.
        CommitRefused: an object that would come back is being deleted, or another undo lies between.
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
    found = f"{KEPT_AGAIN_MAX} commits meanwhile that would have to be taken back, too"
    raise MaintenanceRefused(f"list of node {node_id}: expected that nothing builds on what is undone, found {found}")


class _WayBack:
    """One attempt to write an undone list. Threads: one.

    Args:
        parts: of the catalog.
        kept: the list as it was kept just before.
        earlier: where to go.
        checked: what was found out of objects that were opened before.
    """

    def __init__(self, parts: CatalogParts, kept: NodeList, earlier: NodeList, checked: Checked) -> None:
        self._parts = parts
        self._kept_ids = kept.stream_objects["object_id"]
        self._earlier = earlier
        self._checked = checked
        self.done: Undo | None = None

    def change(self, node_list: NodeList | None) -> NodeList | None:
        """The list that follows; None if it was led back before: by an earlier call, or by this one unawares."""
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
            f"{where}: expected object {object_id}, which would come back, to exist, found {error}"
        ) from error


def _sketch_of(stream_ids: NDArray[np.int64]) -> StreamSketch | None:
    return StreamSketch.build(stream_ids) if len(stream_ids) else None


def _sketched(undo: Undo, checked: Checked) -> NodeList:
    """The list that follows, with sketches of all that comes back: these objects were opened."""
    found = ((object_id, checked[object_id]) for object_id in undo.revived["object_id"].tolist())
    sketches = sketch_rows((object_id, one) for object_id, one in found if isinstance(one, StreamSketch))
    following = undo.node_list
    return replace(following, sketches=sketches_of(following.live, sketches, following.sketches))


def _errors(object_ids: Iterable[int], known: Checked) -> Iterable[tuple[int, AccelError]]:
    return ((object_id, error) for object_id in object_ids if isinstance(error := known[object_id], AccelError))


def _finish(parts: CatalogParts, node_id: int) -> None:
    """Retire what undone commits had made, wherever it is on its way to its shard, and tidy up."""
    move_stream_objects(parts, node_id)
    erase_old_versions(parts, node_id)


IDS_PASSED_OVER = 1 << 20
"""Ids above the highest one that is found which are not given out: processes of the lost time may have had them."""

EPOCHS_PASSED_OVER = 1 << 20
"""Sessions of a node that may have been opened in the lost time."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What saying that a catalog was put back changes.

    Args:
        generation: that the catalog has now; empty in its first life.
        highest_object_id: of all that were found; -1 if none was.
        next_object_id: what the counter says now; None where there is no counter.
        next_object_id_after: what it will say at least.
        epochs: node id -> the epoch of its list now.
        unnamed_nodes: nodes that have a list, and that the directory does not name.
        highest_stream_id: of all streams that shards know; -1 if there is none.
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
    """What was changed.

    Args:
        plan: what was found before.
        generation: the new one.
    """

    plan: RestorePlan
    generation: str


def plan_restored(
    catalog: ObjectCatalog, *, progress: Progress | None = None, scan: BulkScan | None = None
) -> RestorePlan:
    """Find out what there is now. Nothing is written.

    Args:
        catalog: that was put back.
        progress: called with the number of keys of the bucket that were seen so far.
        scan: who goes through the bucket; this process by default.

    Requests: one for 1,000 keys of the bucket, three a list, one a stream shard, and four more.

    Raises:
        MaintenanceRefused: an import is under way.
        CatalogDamaged: a list, a shard or the directory is not there: put it back first.
        StoreError, TableError, CorruptObject, FormatTooNew: something could not be read.
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
    """Say that the catalog was put back. Repeating it is safe, wherever it ended.

    The catalog has to be opened anew afterwards.

    Args:
        catalog: the plan's.
        plan: of `plan_restored`, made just before.

    Requests: two for the format record, the counter and the directory each, and two a list.

    Raises:
        CatalogDamaged: the directory or a list is gone.
        StoreError, TableError: it ended half-way; plan and do it again.
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
    """Above the one before, whatever this machine's clock says."""
    earlier_ms = int(before.partition("-")[0] or 0)
    return f"{max(parts.now_ms(), earlier_ms + 1):014d}-{parts.system.nonce().hex()}"


def hinted_ids(parts: CatalogParts) -> Iterator[int]:
    """The highest id that each root of hints names; hints that cannot be used name none."""
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
