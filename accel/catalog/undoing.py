"""Undo: a node's list goes back to an earlier version of itself, and keeps what was uploaded since.

    1. the list as it stands is kept as one more version
    2. one conditional write, rebased on a lost race: see `list_undo`; before it, every object that would come back is
       opened, and none of them may be on its way to be deleted
    3. objects of one stream that waited in the list are retired in the buckets of their streams
    4. so are those that had reached their buckets; then the list forgets which commits were undone

A collector dooms an object in the list before it deletes it, and a doomed one never comes back: whichever of the two
writes the list first wins. An undo that ended half-way is finished by the next one. Which versions there are: one from
before each of the last few commits that took objects out, and one from before each undo.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from accel.catalog import list_rules, places, stream_rules
from accel.catalog.buckets import buckets_of
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.cell import Seen
from accel.catalog.compacting import erase_old_versions, keep_version
from accel.catalog.existing import open_each
from accel.catalog.list_undo import Undo
from accel.catalog.moving import move_stream_objects, read_list
from accel.catalog.parts import CatalogParts
from accel.catalog.records import ListVersion, NodeList, StreamBucket
from accel.catalog.rows import STREAM_OBJECT, Rows, no_rows, refs_of
from accel.errors import AccelError, MaintenanceRefused


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """An earlier version of a node's list.

    Args:
        sequence: of the list at that time; names the version.
        next_order_id: how many commits the list had seen.
        live: how many objects it had.
        size_bytes: of these objects together.
    """

    sequence: int
    next_order_id: int
    live: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UndoReport:
    """What an undo did.

    Args:
        node_id: whose list.
        sequence: of the version that it led to; None if only an earlier undo was finished.
        revived: ids of objects that came back.
        withdrawn: ids of objects of many streams that went.
        commits: the numbers of the commits that were taken back; none if the list was as the version says already.
    """

    node_id: int
    sequence: int | None
    revived: tuple[int, ...]
    withdrawn: tuple[int, ...]
    commits: tuple[int, ...]

    @property
    def is_changed(self) -> bool:
        """Whether the list was led back by this very call."""
        return bool(self.commits)


def versions(catalog: ObjectCatalog, node_id: int) -> list[KeptVersion]:
    """The earlier versions of a node's list that are kept, oldest first. One listing, and a request each."""
    return [
        KeptVersion(
            each.sequence,
            each.node_list.next_order_id,
            len(each.node_list.live),
            int(each.node_list.live["size_bytes"].sum()),
        )
        for each in _versions(catalog.parts, node_id)
    ]


def undo(catalog: ObjectCatalog, node_id: int, sequence: int | None = None) -> UndoReport:
    """Lead a node's list back to an earlier version, plus all that was uploaded since. Repeating it is safe.

    Args:
        catalog: whose list.
        node_id: the node.
        sequence: of the version; by default the newest one that has other objects than the list has now. If an
            undo ended half-way, that one is finished instead.

    Requests: one a version that is kept, one an object that comes back, three for the list and two a bucket.

    Raises:
        MaintenanceRefused: no such version, or an object that would come back does not exist as the list says.
        CommitRefused: an object that would come back is being deleted, or another undo lies between.
        CatalogMissing: the node has no list.
        StoreError, TableError: it stopped half-way; call it again.
    """
    parts = catalog.parts
    seen = read_list(parts.cells.node_list(node_id), node_id)
    kept = _versions(parts, node_id)
    if sequence is None and seen.value.withdrawn_commits:
        commits = seen.value.withdrawn_commits
        _finish(parts, seen.value, kept)
        return UndoReport(node_id, None, (), (), commits)
    version = _newest_other(parts, seen.value, kept) if sequence is None else _chosen(node_id, kept, sequence)
    done, seen = _lead_back(parts, seen, version)
    _finish(parts, seen.value, _versions(parts, node_id))
    if done is None:
        return UndoReport(node_id, version.sequence, (), (), ())
    revived, withdrawn = done.revived["object_id"].tolist(), done.withdrawn.tolist()
    return UndoReport(node_id, version.sequence, tuple(revived), tuple(withdrawn), done.commits)


def _versions(parts: CatalogParts, node_id: int) -> list[ListVersion]:
    keys = list(parts.cells.tables.table(places.NODE_LIST_HISTORY).keys(places.list_version_prefix(node_id)))
    found = [place[1] for place in map(places.parse_list_version_key, keys) if place is not None]
    cells = [parts.cells.list_version(node_id, sequence) for sequence in found]
    read = [cell.read() for cell in cells]
    return [seen.value for seen in read if seen is not None]  # one may be erased meanwhile


def _newest_other(parts: CatalogParts, now: NodeList, kept: list[ListVersion]) -> ListVersion:
    for version in reversed(kept):
        if list_rules.undone(now, version.node_list, parts.now_ms()) is not None:
            return version
    found = f"{len(kept)} versions that have the same objects"
    raise MaintenanceRefused(f"list of node {now.node_id}: expected an earlier version to go back to, found {found}")


def _chosen(node_id: int, kept: list[ListVersion], sequence: int) -> ListVersion:
    for version in kept:
        if version.sequence == sequence:
            return version
    known = ", ".join(str(each.sequence) for each in kept) or "none"
    raise MaintenanceRefused(f"list of node {node_id}: expected one of the versions {known}, found {sequence}")


def _lead_back(parts: CatalogParts, seen: Seen[NodeList], version: ListVersion) -> tuple[Undo | None, Seen[NodeList]]:
    node_id = seen.value.node_id
    checked: set[int] = set()
    done: list[Undo] = []

    def change(found: NodeList | None) -> NodeList | None:
        now = NodeList(node_id) if found is None else found
        undo = list_rules.undone(now, version.node_list, parts.now_ms())
        if undo is None:  # done before: by an earlier call, or by this one, whose reply was lost
            return None
        done[:] = [undo]
        _refuse_missing(parts, undo.revived[~np.isin(undo.revived["object_id"], sorted(checked))], node_id)
        checked.update(undo.revived["object_id"].tolist())
        return undo.node_list

    if change(seen.value) is None:
        return None, seen
    keep_version(parts, seen)
    seen = parts.cells.node_list(node_id).change(change, seen=seen)
    return done[0], seen


def _refuse_missing(parts: CatalogParts, revived: Rows, node_id: int) -> None:
    for ref, opened in open_each(parts, ((node_id, ref) for ref in refs_of(revived))):
        if isinstance(opened, AccelError):
            where = f"list of node {node_id}"
            raise MaintenanceRefused(
                f"{where}: expected object {ref.object_id}, which would come back, to exist, found {opened}"
            ) from opened


def _finish(parts: CatalogParts, now: NodeList, kept: list[ListVersion]) -> None:
    """Retire what undone commits had made, wherever it is on its way to its bucket, and tidy up."""
    if now.withdrawn_commits:
        _retire_waiting(parts, now, kept)
    move_stream_objects(parts, now.node_id)
    erase_old_versions(parts, now.node_id)


def _retire_waiting(parts: CatalogParts, now: NodeList, kept: list[ListVersion]) -> None:
    # A slow mover may bring rows that it saw in the list before: known as retired in the bucket, they do not enter it.
    # The version that was kept in the beginning has them all, also for whoever finishes this after a crash.
    rows = _made_by(now.withdrawn_commits, kept)
    numbers = buckets_of(rows["stream_id"], parts.format.stream_buckets)

    def change(here: Rows, number: int, found: StreamBucket | None) -> StreamBucket | None:
        bucket = StreamBucket(number) if found is None else found
        return stream_rules.with_withdrawn(bucket, here, parts.now_ms())

    for number in np.unique(numbers).tolist():
        parts.cells.bucket(number).change(partial(change, rows[numbers == number], number))


def _made_by(commits: tuple[int, ...], kept: list[ListVersion]) -> Rows:
    found = np.concatenate([no_rows(STREAM_OBJECT), *(each.node_list.stream_objects for each in kept)])
    found = found[np.isin(found["added_by"], np.array(commits, dtype=np.int64))]
    return found[np.unique(found["object_id"], return_index=True)[1]]
