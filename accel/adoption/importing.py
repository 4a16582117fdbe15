"""Import: makes the catalog of a bucket whose objects exist already.

    objects = bucket_objects(catalog)
    plan = plan_import(catalog, objects, ImportChoice(nodes=4))     reads; plan.report contains the findings
    commit_import(catalog, plan)                                    writes

The catalog must be empty, and no other process may write to it, or to the bucket, meanwhile.

**Reading.** Each index is opened, by one or two ranged GETs, by ascending id, a bounded number at once. An object that
cannot be opened because of its bytes (damaged, or made by a newer release), or that the store refuses to read, is
reported, and the import goes on; so is a composite object, which has no data of its own. If a read fails for another
reason, or all or many are refused, the fault is that of the store, and the import stops; a repetition reads the indexes
again.

**Writing**, in this order:

    1. the marker of an import     from here on no collection begins: to it the objects would look like orphans
    2. the counter of object ids   raised above all ids of the bucket; it never falls
    3. the stream shards, and checkpoints
    4. the lists of nodes          from here on the objects are listed
    5. the directory of nodes
    6. the marker                  is deleted

`plan_import` sets the marker before it reads the indexes of an import that is to be written.

Each step skips what is done already, so an import that crashed is repeated, with the same result. Only imports make
ranges of epoch 0, sessions have higher numbers: until a list is written, a repeated import of a changed bucket replaces
these ranges, and `abandon_import` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.adoption.import_plan import (
    FOUND_OBJECT,
    LEFT_OUT,
    RUN,
    SHOWN_MAX,
    FoundObjects,
    ImportPlan,
    RunFolder,
    StreamHole,
    Unlistable,
    empty_plan,
    make_plan,
)
from accel.catalog.argument_checks import NODE_ID_MAX
from accel.catalog.bad_objects import BAD_OBJECTS_MAX, Cause, cause_of
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.keys import (
    DIRECTORY_KEY,
    IMPORT_PROGRESS,
    NODE_CHECKPOINTS,
    NODES,
    STREAM_SHARDS,
    must_read,
    parse_node_key,
    require,
    shard_key,
)
from accel.catalog.parts import CatalogParts, open_bounded
from accel.catalog.records import (
    INT64_MAX,
    SKETCH,
    Checkpoint,
    NodeDirectory,
    NodeList,
    Rows,
    StreamShard,
    make_rows,
    no_rows,
    some,
)
from accel.catalog.sketches_and_ends import sketch_rows
from accel.catalog.whole_catalog import Progress, StoredObjects, list_node_ids, list_objects
from accel.errors import AccelError, CatalogDamaged, FormatError, KeyMissing, MaintenanceRefused
from bloom import StreamSketch
from loaders.layout import ObjectLayout
from loaders.object_index import ObjectIndexLoader, OpenedObject
from loaders.object_ref import ObjectRef
from loaders.tables import check_counter
from loaders.threads import map_bounded

# Reading

BATCH_OBJECTS = 64
"""The number of opened indexes that are held before their ranges are added to the runs."""

Nodes: TypeAlias = int | Mapping[int, int] | Callable[[int], int | None]
"""The nodes of objects: one node for all, {object id: node id}, or a function that returns None for unknown objects."""


@dataclass(frozen=True, slots=True)
class ImportChoice:
    """The choices of an import.

    Args:
        nodes: the nodes of the objects.
        leave_out: ids of objects that are neither listed nor opened.
        skip_bad: leave out objects that cannot be listed, instead of refusing the import.
    """

    nodes: Nodes
    leave_out: Collection[int] = frozenset()
    skip_bad: bool = False


def nodes_of(ids: NDArray[np.int64], choice: ImportChoice) -> NDArray[np.int64]:
    """The node of each object; -1 for left-out objects without a node.

    Raises:
        MaintenanceRefused: objects without a node, or invalid node ids.
    """
    find = _finder(choice.nodes)
    owners = [find(object_id) for object_id in ids.tolist()]
    is_named = np.isin(ids, np.fromiter(choice.leave_out, dtype=np.int64))
    missing = ids[np.array([owner is None for owner in owners], dtype=np.bool_) & ~is_named]
    if len(missing):
        raise MaintenanceRefused(f"expected a node for each object of the bucket, found none for {some(missing)}")
    wrong = [owner for owner in owners if owner is not None and not 0 <= owner <= NODE_ID_MAX]
    if wrong:
        raise MaintenanceRefused(f"expected node ids of 0 to {NODE_ID_MAX}, found {wrong[0]}")
    return np.array([-1 if owner is None else owner for owner in owners], dtype=np.int64)


def read_objects(
    parts: CatalogParts, stored: StoredObjects, choice: ImportChoice, progress: Progress | None = None
) -> FoundObjects:
    """Read the ranges of all objects.

    Args:
        parts: of the catalog.
        stored: all objects of the bucket.
        choice: the choices of the import.
        progress: called after each object with the number of objects so far.

    Requests: one or two an object.

    Raises:
        MaintenanceRefused: see `nodes_of`; or an object was deleted meanwhile.
        StoreError, TableError: a request failed; repeat the call later.
    """
    if len(stored.ids) and stored.ids[-1] == INT64_MAX:
        raise MaintenanceRefused(f"expected object ids below 2^63 - 1, found {INT64_MAX}")
    nodes = nodes_of(stored.ids, choice)
    is_left_out = np.isin(stored.ids, np.fromiter(choice.leave_out, dtype=np.int64))
    gathered = _Gathered()
    gathered.leave_out(stored.ids[is_left_out], nodes[is_left_out])
    # A separate loader without a cache: here every object is opened once.
    loader = ObjectIndexLoader(parts.store, parts.layout, parts.executor, cache_bytes_max=0)
    wanted = np.flatnonzero(~is_left_out)
    refused = 0
    for start in range(0, len(wanted), BATCH_OBJECTS):
        batch = wanted[start : start + BATCH_OBJECTS]
        refs = map(ObjectRef, stored.ids[batch].tolist(), stored.sizes_bytes[batch].tolist())
        pairs = zip(nodes[batch].tolist(), refs, strict=True)
        read: list[OpenedObject | Unlistable] = []
        for ref, load in open_bounded(loader, pairs, parts.settings.parallel_requests):
            result = _result(parts.layout, ref, load)
            error = load.exception()
            if isinstance(error, AccelError) and cause_of(error) is Cause.DENIED:
                refused += 1
                if refused > BAD_OBJECTS_MAX or refused == len(wanted):
                    raise error  # of the store, not of these objects
            read.append(result)
            if progress is not None:
                progress(start + len(read))
        gathered.add(read, nodes[batch], stored.modified_ms[batch])
    return gathered.all(int(stored.ids[-1]) + 1 if len(stored.ids) else 0)


def _result(layout: ObjectLayout, ref: ObjectRef, load: Future[OpenedObject]) -> OpenedObject | Unlistable:
    reason = "a composite object: it only links blocks of other objects"
    try:
        opened = load.result()
        if opened.composite is None:
            return opened
    except FormatError as error:
        reason = str(error)
    except KeyMissing as error:
        found = "none: does another process delete objects?"
        raise MaintenanceRefused(f"expected object {ref.object_id} to stay at its key, found {found}") from error
    except AccelError as error:
        if cause_of(error) is Cause.DENIED:
            return Unlistable(ref.object_id, layout.object_key(ref.object_id), f"{Cause.DENIED.text}: {error}")
        error.add_note(f"while reading the index of object {ref.object_id}; the import can be repeated")
        raise
    return Unlistable(ref.object_id, layout.object_key(ref.object_id), reason)


@dataclass(slots=True, eq=False)
class _Gathered:
    """Collects the results of all batches. Threads: one."""

    sketches: list[Rows] = field(default_factory=list)
    folded: RunFolder = field(default_factory=RunFolder)
    objects: list[Rows] = field(default_factory=list)
    count: int = 0
    holed: list[StreamHole] = field(default_factory=list)
    holed_count: int = 0
    left_out: list[Rows] = field(default_factory=list)
    unlistable: list[Unlistable] = field(default_factory=list)
    unlistable_count: int = 0

    def leave_out(self, ids: NDArray[np.int64], owners: NDArray[np.int64]) -> None:
        """Add objects that are not listed."""
        self.left_out.append(make_rows(LEFT_OUT, object_id=ids, node_id=owners))

    def add(
        self, read: list[OpenedObject | Unlistable], owners: NDArray[np.int64], modified_ms: NDArray[np.int64]
    ) -> None:
        """Add a batch, whose object ids are above all before."""
        opened = [each for each in read if isinstance(each, OpenedObject)]
        bad = [each for each in read if isinstance(each, Unlistable)]
        is_opened = np.array([isinstance(each, OpenedObject) for each in read], dtype=np.bool_)
        self.leave_out(np.array([each.object_id for each in bad], dtype=np.int64), owners[~is_opened])
        self.unlistable += bad[: SHOWN_MAX - len(self.unlistable)]
        self.unlistable_count += len(bad)
        built = ((each.ref.object_id, StreamSketch.build(ids)) for each in opened if len(ids := each.ranges.stream_ids))
        self.sketches.append(sketch_rows(built))
        self._fold(opened, owners[is_opened])
        self.objects.append(_found_objects([each.ref for each in opened], owners[is_opened], modified_ms[is_opened]))
        self.count += len(opened)

    def all(self, next_object_id: int) -> FoundObjects:
        """The collected results."""
        return FoundObjects(
            objects=np.concatenate([np.empty(0, FOUND_OBJECT), *self.objects]),
            sketches=np.concatenate([no_rows(SKETCH), *self.sketches]),
            folded=self.folded,
            holed=tuple(self.holed),
            holed_count=self.holed_count,
            left_out=np.concatenate([np.empty(0, LEFT_OUT), *self.left_out]),
            unlistable=tuple(self.unlistable),
            unlistable_count=self.unlistable_count,
            next_object_id=next_object_id,
        )

    def _fold(self, opened: list[OpenedObject], owners: NDArray[np.int64]) -> None:
        runs = [no_rows(RUN)]
        for position, (each, owner) in enumerate(zip(opened, owners.tolist(), strict=True), self.count):
            ranges = each.ranges
            columns = {"stream_id": ranges.stream_ids, "start": ranges.starts, "end": ranges.ends}
            runs.append(make_rows(RUN, node_id=owner, first=position, last=position, **columns))
            self.holed_count += len(ranges.holed)
            for at in ranges.holed[: SHOWN_MAX - len(self.holed)].tolist():
                hole = (int(ranges.stream_ids[at]), int(ranges.starts[at]), int(ranges.ends[at]))
                self.holed.append(StreamHole(*hole, each.ref.object_id))
        self.folded.add(np.concatenate(runs))


def _found_objects(refs: list[ObjectRef], owners: NDArray[np.int64], modified_ms: NDArray[np.int64]) -> Rows:
    return make_rows(
        FOUND_OBJECT,
        object_id=[ref.object_id for ref in refs],
        node_id=owners,
        size_bytes=[ref.size_bytes for ref in refs],
        index_size_bytes=[ref.index_size_bytes for ref in refs],
        tail_checksum=[ref.tail_checksum for ref in refs],
        modified_ms=modified_ms,
    )


def _finder(nodes: Nodes) -> Callable[[int], int | None]:
    if isinstance(nodes, int):
        return lambda _: nodes
    return nodes.get if isinstance(nodes, Mapping) else nodes


# Writing

_LIST_ROWS = ("live", "prepared", "retired", "stream_objects")
_SHARD_ROWS = ("streams", "ranges", "stream_objects", "retired")


def bucket_objects(catalog: ObjectCatalog, progress: Progress | None = None) -> StoredObjects:
    """All objects in the namespace of a catalog. One request for 1,000 keys of the bucket.

    Args:
        catalog: the catalog.
        progress: called with the number of keys so far.
    """
    return list_objects(catalog.parts, progress)


def plan_import(
    catalog: ObjectCatalog,
    objects: StoredObjects,
    choice: ImportChoice,
    *,
    begin: bool = False,
    progress: Progress | None = None,
) -> ImportPlan:
    """Read all indexes, and plan the records that an import would write.

    Args:
        catalog: an empty catalog, or one that the same import has written, whole or in part.
        objects: of `bucket_objects`.
        choice: the choices of the import.
        begin: begin the import, so that no collection runs from here on. Otherwise nothing is written.
        progress: called after each object, with the number so far.

    Requests: one or two an object, and one or two a list and shard.

    Raises:
        MaintenanceRefused: the catalog is in use, objects have no node, or there are too many objects for one import.
        StoreError, TableError: a request failed; repeat the call later.
    """
    parts = catalog.parts
    if begin:
        _begin(parts)
    found = read_objects(parts, objects, choice, progress)
    plan = make_plan(found, parts.format.stream_buckets, skip_bad=choice.skip_bad)
    if not plan.report.hindrances:
        _check_shards(parts, plan, is_new=not _refuse_other(parts, plan))
    return plan


def commit_import(catalog: ObjectCatalog, plan: ImportPlan) -> None:
    """Write the records of a plan. Records that are written already are skipped.

    Requests: about two a list, stream shard and checkpoint, and ten more.

    Raises:
        MaintenanceRefused: the plan's report has hindrances, or the catalog is in use.
        StoreError, TableError: it stopped half-way; repeat the import.
    """
    if plan.report.hindrances:
        raise MaintenanceRefused("; ".join(plan.report.hindrances))
    parts = catalog.parts
    if _begin(parts):
        is_new = not _refuse_other(parts, plan)
        _raise_counter(parts, plan.next_object_id)
        _write_shards(parts, plan, is_new=is_new)
        _drop_stale_checkpoints(parts, plan)
        for node_id in plan.lists:
            _write_node(parts, plan, node_id)
        parts.keys.directory().change(partial(_with_nodes, plan=plan))
    else:
        _refuse_unfinished(parts, plan)
    parts.keys.tables.drop_table(IMPORT_PROGRESS)


def abandon_import(catalog: ObjectCatalog) -> bool:
    """Remove the records of an unfinished import; the objects of the bucket are not changed.

    The counter of ids stays where it is: without a mark of this catalog the objects are never taken for its orphans.

    Returns:
        Whether there was an unfinished import.

    Raises:
        MaintenanceRefused: objects are listed already, so that only repeating the import helps; or streams were opened
            since the import began.
        StoreError, TableError: it stopped half-way; repeat the call.
    """
    parts = catalog.parts
    if not parts.keys.is_importing():
        return False
    plan = empty_plan(parts.format.stream_buckets)
    for node_id, node_list in _lists(parts).items():
        if not _is_empty(node_list):
            expected = "an empty list, so that the import can be abandoned"
            found = f"{_described(node_list)}: repeat the import to end it"
            raise MaintenanceRefused(f"list of node {node_id}: expected {expected}, found {found}")
    _write_shards(parts, plan, is_new=True)
    _drop_stale_checkpoints(parts, plan)
    parts.keys.tables.drop_table(IMPORT_PROGRESS)
    return True


def _lists(parts: CatalogParts) -> dict[int, NodeList]:
    ids = list_node_ids(parts)
    read = map_bounded(parts.executor, lambda node_id: must_read(parts.keys.node_list(node_id)).value, ids)
    return dict(zip(ids, read, strict=True))


def _refuse_other(parts: CatalogParts, plan: ImportPlan) -> bool:
    """Refuse a catalog that is neither empty nor written by this import; returns whether a list is written."""
    is_written = False
    for node_id, node_list in _lists(parts).items():
        is_written |= _check_list(node_list, plan.lists.get(node_id)) is None and not _is_empty(node_list)
    return is_written


def _begin(parts: CatalogParts) -> bool:
    """Begin or continue an import; False if lists are written and no import is running: it has ended.

    The marker stops all collections, so it must not be made in a catalog that is in use.
    """
    if not parts.keys.is_importing():
        if any(not _is_empty(node_list) for node_list in _lists(parts).values()):
            return False
        _check_shards(parts, empty_plan(parts.format.stream_buckets), is_new=False)
        parts.keys.tables.create_table(IMPORT_PROGRESS)
    return True


def _check_shards(parts: CatalogParts, plan: ImportPlan, *, is_new: bool) -> None:
    """Refuse shards that `_write_shards` would refuse."""

    def check(number: int) -> None:
        shard = must_read(parts.keys.shard(number)).value
        _check_shard(shard, wanted=plan.shards[number], is_new=is_new)

    map_bounded(parts.executor, check, range(parts.format.stream_buckets))


def _refuse_unfinished(parts: CatalogParts, plan: ImportPlan) -> None:
    """Refuse a catalog in use that differs from the records of this import.

    Raises:
        MaintenanceRefused: the catalog differs.
    """
    _refuse_other(parts, plan)
    lists = _lists(parts)
    for node_id, wanted in plan.lists.items():
        if not _is_empty(wanted) and (node_id not in lists or _is_empty(lists[node_id])):
            raise MaintenanceRefused(
                f"list of node {node_id}: expected the list that this import writes ({_described(wanted)}), found "
                "none, while other lists are written: the catalog is in use"
            )


def _check_list(now: NodeList, wanted: NodeList | None) -> NodeList | None:
    """The list to write instead of the current one; None if they are equal except for the session number.

    Raises:
        MaintenanceRefused: the current list is neither equal nor empty.
    """
    if wanted is not None and _same(now, wanted, _LIST_ROWS) and now.next_order_id == wanted.next_order_id:
        return None
    if not _is_empty(now):
        would = "none" if wanted is None else _described(wanted)
        raise MaintenanceRefused(
            f"list of node {now.node_id}: expected an empty list, or the list that this import writes ({would}), "
            f"found {_described(now)}"
        )
    if wanted is None:
        return None
    return replace(wanted, epoch=now.epoch)


def _is_empty(node_list: NodeList) -> bool:
    return not node_list.next_order_id and not any(len(getattr(node_list, name)) for name in _LIST_ROWS)


def _described(node_list: NodeList) -> str:
    counts = {name.replace("_", " "): len(getattr(node_list, name)) for name in _LIST_ROWS}
    return f"{node_list.next_order_id} commits, " + ", ".join(f"{count} {name}" for name, count in counts.items())


def _same(one: object, wanted: object, names: tuple[str, ...]) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(wanted, name)) for name in names)


def _write_shards(parts: CatalogParts, plan: ImportPlan, *, is_new: bool) -> None:
    def write(number: int) -> None:
        rule = partial(_check_shard, wanted=plan.shards[number], is_new=is_new)
        parts.keys.shard(number).change(rule)

    map_bounded(parts.executor, write, range(parts.format.stream_buckets))


def _check_shard(shard: StreamShard | None, *, wanted: StreamShard, is_new: bool) -> StreamShard | None:
    now = require(shard, f"table {STREAM_SHARDS!r}, key {shard_key(wanted.bucket)!r}")
    leveled = StreamShard(now.bucket, now.streams, _without_epochs(now.ranges), now.stream_objects, now.retired)
    if _same(leveled, wanted, _SHARD_ROWS):
        return None
    by_sessions = bool(now.ranges["epoch"].any()) or len(now.stream_objects) or len(now.retired)
    if len(now.streams) and (by_sessions or not is_new):
        raise MaintenanceRefused(
            f"{now.where}: expected no streams, or the {len(wanted.streams)} that this import writes, found "
            f"{len(now.streams)} in {len(now.ranges)} ranges that differ"
        )
    return wanted


def _without_epochs(ranges: Rows) -> Rows:
    leveled = ranges.copy()
    leveled["epoch"] = 0
    return leveled


def _drop_stale_checkpoints(parts: CatalogParts, plan: ImportPlan) -> None:
    """Delete checkpoints that an earlier import has left for nodes without commits: a session would use them."""
    for node_id in map(parse_node_key, list(parts.keys.tables.table(NODE_CHECKPOINTS).keys())):
        if node_id is None or node_id in plan.lists:
            continue
        checkpoint = parts.keys.checkpoint(node_id)
        seen = checkpoint.read()
        now = parts.keys.node_list(node_id).read()  # after the checkpoint, which a session writes after its commits
        if seen is not None and seen.value.order_id >= 0 and (now is None or not now.value.next_order_id):
            checkpoint.delete(seen)


def _write_node(parts: CatalogParts, plan: ImportPlan, node_id: int) -> None:
    key = parts.keys.node_list(node_id)
    seen = key.read()
    wanted = plan.lists[node_id]

    def rule(node_list: NodeList | None) -> NodeList | None:
        return wanted if node_list is None else _check_list(node_list, wanted)

    if rule(None if seen is None else seen.value) is None:
        return
    parts.keys.checkpoint(node_id).change(partial(_replaced, wanted=plan.checkpoints[node_id]))
    key.change(rule, seen=seen)


def _replaced(checkpoint: Checkpoint | None, *, wanted: Checkpoint) -> Checkpoint | None:
    is_same = (
        checkpoint is not None
        and checkpoint.order_id == wanted.order_id
        and np.array_equal(checkpoint.ends, wanted.ends)
    )
    return None if is_same else wanted


def _with_nodes(directory: NodeDirectory | None, *, plan: ImportPlan) -> NodeDirectory | None:
    known = require(directory, f"table {NODES!r}, key {DIRECTORY_KEY!r}")
    node_ids = np.union1d(known.node_ids, np.fromiter(plan.lists, dtype=np.int64))
    return None if len(node_ids) == len(known.node_ids) else replace(known, node_ids=node_ids)


def _raise_counter(parts: CatalogParts, least: int) -> None:
    """Raise the counter of ids above all objects of the bucket; it never falls."""
    key = parts.keys.object_ids()

    def rule(counter: int | None) -> int | None:
        return None if check_counter(counter, -1, key.where, CatalogDamaged) >= least else least

    key.change(rule)
