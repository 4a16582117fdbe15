"""Undo: a node's list goes back to an earlier version of itself, and keeps what was uploaded since.

    1. the list as it stands is kept as one more version
    2. one conditional write, rebased on a lost race: see `node_list`; before it, every object that would come back is
       opened, and none of them may be on its way to be deleted
    3. objects of one stream that the undone commits had made are retired in the shards of their streams, those that
       still waited in the list among them; then the list forgets which commits were undone: see `shard_writes`

A collector marks an object in the list as delete pending before it deletes it, and such an object never comes back: the
one of the two that writes the list first wins. An undo that ended half-way is finished by the next one, and by the next
move of objects of one stream. Versions that there are: one from before each of the last few commits that took objects
out, and one from before each undo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.compact import erase_old_versions, keep_version
from accel.catalog.facts import sketch_rows, sketches_of
from accel.catalog.keys import require
from accel.catalog.node_list import Undo, after_undo
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.records import NodeList, Rows, refs_of
from accel.catalog.shard_writes import KeptList, kept_lists, move_stream_objects, read_list
from accel.errors import AccelError, CommitRefused, MaintenanceRefused
from bloom import StreamSketch
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
