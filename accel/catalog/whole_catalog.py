"""The survey that maintenance reads: the whole catalog, whether its keys agree, and all objects of the bucket.

    read_survey            every list and stream shard, each key read once
    find_contradictions    contradictions between these keys, and between them and the catalog's other keys
    read_trusted           the first two, and the nodes whose lists are in doubt: their objects must not be deleted
    list_objects           the ids, sizes and times of all objects in a listing of the bucket
    open_each              the index of each object, opened again; no cache is used
    BulkScan               the last two, which take time: a cluster can divide the objects. Only `verify` and
                           `collect` decide what follows from a scan

Lists are read before shards: an object of one stream moves from a list to a shard and is added to the shard first, so
no listed object is missed. To find unlisted objects, list the bucket before reading the catalog: an object that was
prepared, written and committed meanwhile is then listed for sure.

A key that was deleted and made again, put back from a copy, or overwritten with the bytes of another key is valid by
itself. But keys are written in an order, and each implies conditions on the keys that were written before it:

    key                                 condition
    a checkpoint                        its node's list has its commits; the shards contain its streams
    a kept version of a list            the list's sequence is at least as high
    a stream shard                      its nodes have lists, with its session numbers and its commits
    a list that has commits             the directory contains the node
    lists and shards                    their object ids are below the counter, and no id is in two lists
    all of them                         an object is live in one place, and not live and retired

The result does not depend on the order of the reads: a key with a contradiction is read again, after the key that it
contradicts, and all values that are compared here only grow. So a contradiction is damage, and no object may be deleted
because of such a catalog. Two cases are not detected: a key that went back to a state that no later key implies (a list
between two checkpoints, a shard by streams that no checkpoint contains), and all shards that went back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import IMPORT_PROGRESS, NODE_LISTS, must_read, parse_node_key
from accel.catalog.node_list import check_list
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.problems import Problem, ProblemKind, Severity
from accel.catalog.records import (
    OPEN,
    Checkpoint,
    NodeList,
    Rows,
    StreamShard,
    highest_of_each,
    ids_of,
    joined_ids,
    some,
)
from accel.catalog.shard_writes import kept_places
from accel.catalog.stream_shards import check_shard, shards_of
from accel.errors import AccelError, MaintenanceRefused
from loaders.errors import FormatError, FormatTooNew, TableMissing
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.store import ObjectInfo
from loaders.threads import map_bounded
from loaders.versions import Versioned
from range_index import ObjectRanges

T = TypeVar("T")
Ids = NDArray[np.int64]
Progress = Callable[[int], object]
"""Called with the number of items done so far."""

_PAGE_KEYS = 1000
_OBJECT = np.dtype([("object_id", "<i8"), ("size_bytes", "<i8"), ("modified_ms", "<i8")])


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """The lists and shards of the catalog, each key read once. Threads: immutable.

    Args:
        lists: node id -> its list.
        shards: all stream shards, by number.
        doubts: of `read_trusted`: nodes whose lists may lack objects, ascending, with the reasons.
    """

    lists: dict[int, Versioned[NodeList]]
    shards: tuple[Versioned[StreamShard], ...]
    doubts: Mapping[int, str] = field(default_factory=dict)

    def trusted_lists(self) -> dict[int, Versioned[NodeList]]:
        """The lists that are not in doubt."""
        return {node_id: seen for node_id, seen in self.lists.items() if node_id not in self.doubts}

    def kept_ids(self) -> Ids:
        """Ids that must not be deleted: live, prepared, waiting for a shard, or retired and not delete pending."""
        waiting = (rows["object_id"][rows["delete_pending"] == 0] for rows in self._retired())
        return joined_ids([self.live_ids(), *self._prepared(), *waiting])

    def live_ids(self) -> Ids:
        """Ids of all objects that readers may find, including those that wait for a shard."""
        lists = [seen.value for seen in self.lists.values()]
        live = [rows["object_id"] for node_list in lists for rows in (node_list.live, node_list.stream_objects)]
        return joined_ids([*live, *(seen.value.stream_objects["object_id"] for seen in self.shards)])

    def listed_ids(self) -> Ids:
        """Ids of all objects that are or were live: all known ids except prepared ones."""
        return joined_ids([self.live_ids(), *(rows["object_id"] for rows in self._retired())])

    def known_ids(self) -> Ids:
        """All ids in the catalog."""
        return joined_ids([self.listed_ids(), *self._prepared()])

    def _prepared(self) -> Iterator[Ids]:
        return (seen.value.prepared["object_id"] for seen in self.lists.values())

    def _retired(self) -> Iterator[Rows]:
        yield from (seen.value.retired for seen in self.lists.values())
        yield from (seen.value.retired for seen in self.shards)


@dataclass(frozen=True, slots=True, eq=False)
class StoredObjects:
    """The objects that a listing of the bucket showed, ascending by id; other keys are left out.

    Args:
        ids: of the objects.
        sizes_bytes: of the same length.
        modified_ms: likewise, milliseconds since 1970, by the store's clock.
    """

    ids: Ids
    sizes_bytes: NDArray[np.int64]
    modified_ms: NDArray[np.int64]

    def size_bytes(self, object_id: int) -> int | None:
        """The size of an object; None if it is not among these objects. O(log n)."""
        at = int(np.searchsorted(self.ids, object_id))
        return int(self.sizes_bytes[at]) if at < len(self.ids) and self.ids[at] == object_id else None

    def unknown_to(self, known: Ids) -> StoredObjects:
        """The objects whose ids are not among the known ones."""
        chosen = ~np.isin(self.ids, known)
        return StoredObjects(self.ids[chosen], self.sizes_bytes[chosen], self.modified_ms[chosen])


def read_survey(parts: CatalogParts, unread: dict[int, AccelError] | None = None) -> Survey:
    """Read all lists and all shards. One request each, without a body for unchanged keys, and one or two more.

    A list counts even if the directory does not contain its node: the directory is written second.

    Args:
        parts: of the catalog.
        unread: takes the errors of lists that are missing or cannot be read, by node; None = they are raised.

    Raises:
        MaintenanceRefused: an import is running.
        CatalogDamaged: a list or a shard is missing.
        StoreError, TableError, CorruptObject, FormatTooNew: a key could not be read.
    """
    refuse_during_import(parts)  # first: the objects of an import that starts later are then read as listed
    node_ids = list_node_ids(parts)

    def read(node_id: int) -> Versioned[NodeList] | AccelError:
        try:
            return must_read(parts.keys.node_list(node_id))
        except AccelError as error:
            if unread is None or isinstance(error, FormatTooNew):
                raise
            return error

    lists = dict(zip(node_ids, map_bounded(parts.executor, read, node_ids), strict=True))
    by_node = {node_id: seen for node_id, seen in lists.items() if isinstance(seen, Versioned)}
    if unread is not None:
        unread |= {node_id: seen for node_id, seen in lists.items() if isinstance(seen, AccelError)}
    shards = map_bounded(
        parts.executor, lambda number: must_read(parts.keys.shard(number)), range(parts.format.stream_buckets)
    )
    return Survey(by_node, tuple(shards))


def refuse_during_import(parts: CatalogParts) -> None:
    """Refuse to run during an import, which lists its objects last: they would look like orphans. One request.

    Raises:
        MaintenanceRefused: an import is running or was interrupted.
    """
    if parts.keys.is_importing():
        found = f"an import that is running or was interrupted (table {IMPORT_PROGRESS!r})"
        raise MaintenanceRefused(f"expected a catalog at rest, found {found}: repeat the import, or abandon it")


def list_node_ids(parts: CatalogParts) -> list[int]:
    """All nodes that are in the directory or have a list, ascending."""
    directory = must_read(parts.keys.directory()).value
    return sorted(set(listed_node_ids(parts)) | set(directory.node_ids.tolist()))


def listed_node_ids(parts: CatalogParts) -> Iterator[int]:
    """All nodes that have a list, ascending. One request for 1,000 nodes."""
    keys = parts.keys.tables.table(NODE_LISTS).keys()
    return (node_id for node_id in map(parse_node_key, keys) if node_id is not None)


def list_objects(parts: CatalogParts, progress: Progress | None = None, prefix: str = "") -> StoredObjects:
    """List the objects of the bucket, or those with a prefix. One request for 1,000 keys; 24 bytes an object."""
    chunks = [np.empty(0, dtype=_OBJECT)]
    infos = parts.store.list(prefix)
    seen = 0
    while page := list(islice(infos, _PAGE_KEYS)):
        chunks.append(np.array(list(_objects_of(parts, page)), dtype=_OBJECT))
        seen += len(page)
        if progress is not None:
            progress(seen)
    return _stored(np.concatenate(chunks))


def joined_objects(parts: Iterable[StoredObjects]) -> StoredObjects:
    """The objects of several disjoint listings."""
    chunks = [np.empty(0, dtype=_OBJECT)]
    for objects in parts:
        rows = np.empty(len(objects.ids), dtype=_OBJECT)
        rows["object_id"], rows["size_bytes"], rows["modified_ms"] = (
            objects.ids,
            objects.sizes_bytes,
            objects.modified_ms,
        )
        chunks.append(rows)
    return _stored(np.concatenate(chunks))


def _stored(rows: NDArray[np.void]) -> StoredObjects:
    rows = np.sort(rows, order="object_id")
    return StoredObjects(rows["object_id"], rows["size_bytes"], rows["modified_ms"])


def _objects_of(parts: CatalogParts, page: Iterable[ObjectInfo]) -> Iterator[tuple[int, int, int]]:
    for info in page:
        object_id = parts.layout.parse_object_key(info.key)
        if object_id is not None:
            yield object_id, info.size_bytes, int(info.modified_seconds * 1000)


@dataclass(frozen=True, slots=True, eq=False)
class ExistingObject:
    """An object that exists and can be opened. Picklable, and small: 20 bytes a stream.

    Args:
        ranges: its ranges.
        index_size_bytes: of its block index; -1 for a composite object, which has none.
    """

    ranges: ObjectRanges
    index_size_bytes: int

    @classmethod
    def of(cls, opened: OpenedObject) -> ExistingObject:
        """The small form of an opened object."""
        return cls(opened.ranges, -1 if opened.composite is not None else opened.index.nbytes)


ScannedObject = tuple[ObjectRef, ExistingObject | AccelError]
"""An object as listed, and the opened object, or the error if it cannot be opened."""


class BulkScan:
    """Lists the bucket and opens all objects, with threads of this process; a subclass may use a cluster.

    Attributes:
        requests: that other processes have sent for it so far.
        bytes_read: that these have received, without listings.
    """

    requests: int = 0
    bytes_read: int = 0

    def list_objects(self, parts: CatalogParts, progress: Progress | None = None) -> StoredObjects:
        """All objects of the bucket; one request for 1,000 keys.

        Raises:
            AccelError: a part of the bucket could not be listed.
        """
        return list_objects(parts, progress)

    def open_objects(self, parts: CatalogParts, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[ScannedObject]:
        """Open the indexes of (node id, object) pairs, and yield the results in order; one ranged GET an object."""
        return (scanned(ref, opened) for ref, opened in open_each(parts, wanted))


def scanned(ref: ObjectRef, opened: OpenedObject | AccelError) -> ScannedObject:
    """The result of opening an object, in the small form."""
    return ref, ExistingObject.of(opened) if isinstance(opened, OpenedObject) else opened


# Contradictions

Wrong = Callable[[NodeList, int], Problem | None]
"""The problem of a list, given its sequence; None if there is none."""


def find_contradictions(parts: CatalogParts, survey: Survey, excused: frozenset[int] = frozenset()) -> list[Problem]:
    """All contradictions of lists and shards: within a record, between them, and with the catalog's other keys.

    Args:
        parts: of the catalog.
        survey: of the catalog, read just before.
        excused: nodes whose lists are not in the survey, because they cannot be read.

    Requests: one a checkpoint, one for 1,000 kept versions of lists, one each for the directory and the counter; one
    more for each key that seems to contradict another key.

    Raises:
        StoreError, TableError, CorruptObject, FormatTooNew: a key could not be read.
    """
    problems = [*contradictions_within(parts, survey), *contradictions_of_places(survey)]
    for _, _, check in CHECKS:
        problems += check(parts, survey, excused)
    return problems


def contradictions_within(parts: CatalogParts, survey: Survey) -> Iterator[Problem]:
    """The problems of each list and shard by itself. No request; O(n log n) in their rows."""
    for node_id, node in survey.lists.items():
        if node.value.node_id != node_id:
            found = f"those of node {node.value.node_id}"
            yield Problem(ProblemKind.LIST, f"list of node {node_id}", "its own rows", found, node_id)
        for problem in check_list(node.value):
            yield replace(problem, where=f"list of node {node_id}", node_id=node_id)
    is_whole = len(survey.shards) == parts.format.stream_buckets
    for number, shard in enumerate(survey.shards):
        if is_whole and shard.value.bucket != number:
            yield Problem(
                ProblemKind.SHARD, f"stream shard {number}", "its own rows", f"those of shard {shard.value.bucket}"
            )
        yield from check_shard(shard.value, parts.format.stream_buckets)


def contradictions_of_places(survey: Survey) -> Iterator[Problem]:
    """Objects that are live in more than one place, or live and retired. No request; O(n log n)."""
    lists, shards = [seen.value for seen in survey.lists.values()], [seen.value for seen in survey.shards]
    live = [node_list.live["object_id"] for node_list in lists] + [
        shard.stream_objects["object_id"] for shard in shards
    ]
    ids, counts = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *live]), return_counts=True)
    if (counts > 1).any():
        yield Problem(
            ProblemKind.PLACE, "catalog", "each live object in one place", f"{some(ids[counts > 1])} in more than one"
        )
    gone = [node_list.retired["object_id"] for node_list in lists] + [shard.retired["object_id"] for shard in shards]
    both = np.intersect1d(ids, joined_ids(gone))
    if len(both):
        yield Problem(ProblemKind.PLACE, "catalog", "each object live or retired", f"{some(both)} both")


def _went_back(parts: CatalogParts, survey: Survey, excused: frozenset[int]) -> Iterator[Problem]:
    """Lists that are behind a checkpoint, a kept version or a shard, and shards that lack streams of a checkpoint."""
    checkpoints = read_checkpoints(parts, survey)
    yield from _forgotten_streams(parts, survey, checkpoints)
    doubts: dict[int, list[Wrong]] = {}
    for node_id, wrong in (*_by_checkpoints(checkpoints), *_by_versions(parts), *_by_shards(survey)):
        seen = survey.lists.get(node_id)
        if node_id in excused:
            continue
        if seen is None or wrong(seen.value, seen.version.sequence) is not None:
            doubts.setdefault(node_id, []).append(wrong)
    for node_id, rules in sorted(doubts.items()):
        now = parts.keys.node_list(node_id).read()  # the list may have grown since; the other keys were read before
        if now is None:
            expected = "a list, because other keys name the node"
            yield Problem(ProblemKind.LIST, f"list of node {node_id}", expected, "none", node_id)
            continue
        yield from filter(None, (wrong(now.value, now.version.sequence) for wrong in rules))


def _by_checkpoints(checkpoints: dict[int, Checkpoint]) -> Iterator[tuple[int, Wrong]]:
    for node_id, checkpoint in checkpoints.items():
        known = checkpoint.order_id + 1
        expected = f"the {known} commits that its checkpoint contains"
        yield node_id, _least(lambda now, _: now.next_order_id, known, expected)


def _by_versions(parts: CatalogParts) -> Iterator[tuple[int, Wrong]]:
    newest: dict[int, int] = {}
    for node_id, sequence in kept_places(parts):
        newest[node_id] = max(sequence, newest.get(node_id, 0))
    for node_id, sequence in newest.items():
        yield (
            node_id,
            _least(lambda _, now: now, sequence, f"a sequence of at least {sequence}, because that version is kept"),
        )


def _by_shards(survey: Survey) -> Iterator[tuple[int, Wrong]]:
    epochs, commits = [], []
    for seen in survey.shards:
        shard = seen.value
        ranges = shard.ranges
        epochs.append((ranges["node_id"], np.where(ranges["end"] == OPEN, ranges["epoch"], 0)))
        commits += [(rows["node_id"], rows["added_by"] + 1) for rows in (shard.stream_objects, shard.retired)]
    for node_id, epoch in highest_of_each(epochs):
        yield node_id, _least(lambda now, _: now.epoch, epoch, f"session number {epoch} of an open range, or a later")
    for node_id, commit in highest_of_each(commits):
        expected = f"the {commit} commits that its stream objects refer to"
        yield node_id, _least(lambda now, _: now.next_order_id, commit, expected)


def _least(read: Callable[[NodeList, int], int], least: int, expected: str) -> Wrong:
    def wrong(now: NodeList, sequence: int) -> Problem | None:
        value = read(now, sequence)
        where = f"list of node {now.node_id}"
        if value >= least:
            return None
        return Problem(ProblemKind.LIST, where, expected, f"{value}: deleted, or put back?", now.node_id)

    return wrong


def read_checkpoints(parts: CatalogParts, survey: Survey) -> dict[int, Checkpoint]:
    """The checkpoints of all nodes that have both a list and a checkpoint. One request a node."""
    read = map_bounded(parts.executor, lambda node_id: parts.keys.checkpoint(node_id).read(), survey.lists)
    return {node_id: seen.value for node_id, seen in zip(survey.lists, read, strict=True) if seen is not None}


def _forgotten_streams(parts: CatalogParts, survey: Survey, checkpoints: dict[int, Checkpoint]) -> Iterator[Problem]:
    """Stream shards that lack a stream of a checkpoint: a stream is never removed from its shard."""
    ends = joined_ids(checkpoint.ends["stream_id"] for checkpoint in checkpoints.values())
    known = joined_ids(seen.value.streams["stream_id"] for seen in survey.shards)
    missing = np.setdiff1d(ends, known)
    numbers = shards_of(missing, parts.format.stream_buckets)
    for number in np.unique(numbers).tolist():
        now = must_read(parts.keys.shard(number)).value.streams["stream_id"]
        forgotten = np.setdiff1d(missing[numbers == number], now)
        if len(forgotten):
            expected = f"streams {some(forgotten)}, which a checkpoint contains"
            yield Problem(ProblemKind.SHARD, f"stream shard {number}", expected, "none of them: put back?")


def _unnamed_nodes(parts: CatalogParts, survey: Survey, _: frozenset[int]) -> Iterator[Problem]:
    """Nodes whose lists have commits and that are not in the directory: readers do not see their lists."""
    committed = [node_id for node_id, seen in survey.lists.items() if seen.value.next_order_id]
    directory = parts.keys.directory().read()  # a session adds its node there before it commits
    if directory is None:
        yield Problem(ProblemKind.DIRECTORY, "directory of nodes", "a record", "none: deleted?")
        return
    unnamed = sorted(set(committed) - set(directory.value.node_ids.tolist()))
    if unnamed:
        expected = f"nodes {some(unnamed)}, whose lists have commits"
        yield Problem(ProblemKind.DIRECTORY, "directory of nodes", expected, "none of them: put back?")


_NONE = np.empty(0, dtype=np.int64)


def _object_id_problems(parts: CatalogParts, survey: Survey, _: frozenset[int]) -> Iterator[Problem]:
    """Problems of the counter of object ids: ids that were allocated twice, or would be. One request.

    The counter is read after the ids with which it is compared; it only grows.

    Raises:
        StoreError: the counter could not be read.
    """
    key = parts.keys.object_ids()
    try:
        seen = key.read()
        highest = int(survey.known_ids().max(initial=-1))
        if seen is None:
            yield Problem(ProblemKind.COUNTER, key.where, "a counter", "none: deleted?")
        elif seen.value <= highest:
            expected = f"a number above {highest}, the highest id in use"
            yield Problem(ProblemKind.COUNTER, key.where, expected, f"{seen.value}: deleted, or put back?")
    except (FormatError, TableMissing) as error:
        yield Problem(ProblemKind.COUNTER, key.where, "a counter that can be read", str(error))
    ids, counts = np.unique(
        np.concatenate([_NONE, *(np.unique(ids_of(seen.value)) for seen in survey.lists.values())]), return_counts=True
    )
    if (counts > 1).any():
        found = f"{some(ids[counts > 1])} in the lists of more than one"
        yield Problem(ProblemKind.COUNTER, "catalog", "each object id allocated to one node", found)


CHECKS = (
    (ProblemKind.CHECKPOINT, "checkpoints, kept versions and shards against lists and streams", _went_back),
    (ProblemKind.DIRECTORY, "the directory of nodes against the lists", _unnamed_nodes),
    (ProblemKind.COUNTER, "the counter of object ids against lists and shards", _object_id_problems),
)
"""The comparisons of keys: the kind of the key that is read, a name for failures, and the check."""

# Doubts

DAMAGE_SHOWN_MAX = 3
"""The maximum number of problems that an error names; `verify` names all of them."""


def read_trusted(parts: CatalogParts, allow_empty_nodes: frozenset[int] = frozenset()) -> Survey:
    """Read the catalog, and find the nodes whose lists are in doubt; objects of the others may be deleted.

    In doubt is a list that cannot be read, is behind another key, or has no live object although the node has
    committed before and no commit removed its last object. Objects that no key names may be objects of such a list.

    Args:
        parts: of the catalog.
        allow_empty_nodes: nodes whose list may be empty for no known reason. Valid only if nothing else is in doubt.

    Returns:
        The survey with its doubts; without the lists that cannot be read, which are among these.

    Raises:
        MaintenanceRefused: an import is running, all lists are in doubt, or more than single lists is: keys contradict
            one another, or another key could not be read.
    """
    unread: dict[int, AccelError] = {}
    try:
        survey = read_survey(parts, unread)
        problems = find_contradictions(parts, survey, frozenset(unread))
    except MaintenanceRefused:
        raise
    except AccelError as error:
        raise unreadable(error) from error
    damage = [problem for problem in problems if problem.severity is Severity.DAMAGE]
    if any(problem.node_id is None for problem in damage):
        shown = "; ".join(map(str, damage[:DAMAGE_SHOWN_MAX]))
        more = f"; and {len(damage) - DAMAGE_SHOWN_MAX} more" if len(damage) > DAMAGE_SHOWN_MAX else ""
        raise MaintenanceRefused(f"expected a catalog whose keys agree, found damage: {shown}{more}")
    doubts = {
        node_id: f"list of node {node_id}: expected to read all of it, found {error}"
        for node_id, error in unread.items()
    }
    for problem in damage:
        doubts.setdefault(problem.node_id or 0, str(problem))
    empty = dict(_unexpectedly_empty(survey))
    if doubts or not empty.keys() <= allow_empty_nodes:
        doubts = {**empty, **doubts}
    if doubts and doubts.keys() >= survey.lists.keys() | unread.keys():
        raise MaintenanceRefused(next(iter(doubts.values())))
    return replace(survey, doubts=dict(sorted(doubts.items())))


def unreadable(error: AccelError) -> MaintenanceRefused:
    """The refusal because of a key that could not be read."""
    return MaintenanceRefused(f"expected to read all of the catalog and its bucket, found {error}")


def _unexpectedly_empty(survey: Survey) -> Iterator[tuple[int, str]]:
    for node_id, seen in survey.lists.items():
        node_list = seen.value
        if not len(node_list.live) and not node_list.is_empty_as_known:
            found = f"none after {node_list.next_order_id} commits"
            yield node_id, f"list of node {node_id}: expected live objects, found {found}: damaged?"
