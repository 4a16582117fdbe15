"""Import: a catalog for a bucket of objects that exist already.

    objects = bucket_objects(catalog)
    plan = plan_import(catalog, objects, ImportChoice(nodes=4))     reads; what it found stands in plan.report
    commit_import(catalog, plan)                                    writes

The catalog must be empty, and nobody may write to it, or to the bucket, meanwhile. The writes, in this order:

    1. the table of progress       from here on no collection begins: it would take the objects for orphans
    2. the counter of object ids   above all ids of the bucket; what it said before is written down first
    3. the buckets of streams, and checkpoints
    4. the lists of nodes          from here on the objects are listed
    5. the directory of nodes
    6. the table of progress goes

Each of them leaves alone what is done, so an import that died is repeated, and ends as if it had not. Ranges of epoch 0
come from imports only, sessions have higher ones: as long as no list is written, a repeated import of a bucket that has
changed replaces them, and `abandon_import` takes them away.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.import_plan import ImportPlan, empty_plan, make_plan
from accel.catalog.import_read import ImportChoice, ImportProgress, read_objects
from accel.catalog.keys import (
    DIRECTORY_KEY,
    NODE_CHECKPOINTS,
    NODES,
    STREAM_BUCKETS,
    node_key,
    parse_node_key,
    require,
    shard_key,
)
from accel.catalog.object_ids import check_counter
from accel.catalog.parts import CatalogParts
from accel.catalog.records import Checkpoint, NodeDirectory, NodeList, ObjectIdCounter, StreamShard
from accel.catalog.rows import Rows
from accel.catalog.survey import Progress, StoredObjects, list_node_ids, list_objects, must_read
from accel.errors import MaintenanceRefused

_LIST_ROWS = ("live", "prepared", "retired", "stream_objects")
_BUCKET_ROWS = ("streams", "ranges", "stream_objects", "retired")


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
    keep: bool = False,
    progress: Progress | None = None,
) -> ImportPlan:
    """Read all indexes, and find out what an import would write.

    Args:
        catalog: an empty one, or one that this very import has written, whole or in part.
        objects: of `bucket_objects`.
        choice: what is to be imported.
        keep: begin the import: write down what was read, so that nothing is read again if it has to be repeated.
            Otherwise nothing is written; what an earlier import has kept is used all the same.
        progress: called after each object, with the number so far.

    Requests: one or two an object, one or two for 64 objects, and one or two a list and bucket.

    Raises:
        MaintenanceRefused: the catalog is in use, objects without a node, or more than this program can do at once.
        StoreError, TableError: repeat it later.
    """
    parts = catalog.parts
    keep = keep and _begin(parts)
    found = read_objects(parts, objects, choice, keep=keep, progress=progress)
    plan = make_plan(found, parts.format.stream_buckets, skip_bad=choice.skip_bad)
    if not plan.report.hindrances:
        _check_buckets(parts, plan, is_new=not _refuse_other(parts, plan))
    return plan


def commit_import(catalog: ObjectCatalog, plan: ImportPlan) -> None:
    """Write what was planned. What is written already is left alone.

    Requests: about two a list, bucket and checkpoint, and ten more.

    Raises:
        MaintenanceRefused: something hinders it (see the plan's report), or the catalog is in use.
        StoreError, TableError: it stopped half-way; repeat the import.
    """
    if plan.report.hindrances:
        raise MaintenanceRefused("; ".join(plan.report.hindrances))
    parts = catalog.parts
    progress = ImportProgress(parts)
    if _begin(parts):
        is_new = not _refuse_other(parts, plan)
        _raise_counter(parts, progress, plan.next_object_id)
        _write_buckets(parts, plan, is_new=is_new)
        _drop_stale_checkpoints(parts, plan)
        for node_id in plan.lists:
            _write_node(parts, plan, node_id)
        parts.keys.directory().change(partial(_with_nodes, plan=plan))
    else:
        _refuse_unfinished(parts, plan)
    progress.drop()


def abandon_import(catalog: ObjectCatalog) -> bool:
    """Undo what an import that did not come to its end has written; the objects stay where they are.

    The counter of ids is led back as well: the objects would else look like orphans to a collector later on.

    Returns:
        Whether there was one.

    Raises:
        MaintenanceRefused: objects are listed already, so that only repeating the import helps; or somebody has taken
            ids, or opened streams, since it began.
        StoreError, TableError: it stopped half-way; repeat it.
    """
    parts = catalog.parts
    progress = ImportProgress(parts)
    if not progress.exists():
        return False
    plan = empty_plan(parts.format.stream_buckets)
    for node_id, node_list in _lists(parts).items():
        if not _is_empty(node_list):
            expected = "an empty one, so that the import can be abandoned"
            found = f"{_described(node_list)}: repeat the import to end it"
            raise MaintenanceRefused(f"list of node {node_id}: expected {expected}, found {found}")
    _write_buckets(parts, plan, is_new=True)
    _drop_stale_checkpoints(parts, plan)
    _lower_counter(parts, progress)
    progress.drop()
    return True


def _lists(parts: CatalogParts) -> dict[int, NodeList]:
    ids = list_node_ids(parts)
    read = parts.executor.map(lambda node_id: must_read(parts.keys.node_list(node_id)).value, ids)
    return dict(zip(ids, read, strict=True))


def _refuse_other(parts: CatalogParts, plan: ImportPlan) -> bool:
    """Refuse a catalog that is neither empty nor written by this import; gives whether a list is written."""
    is_written = False
    for node_id, node_list in _lists(parts).items():
        is_written |= _check_list(node_list, plan.lists.get(node_id)) is None and not _is_empty(node_list)
    return is_written


def _begin(parts: CatalogParts) -> bool:
    """Begin an import, or go on with one; False if lists are written and no import is under way: it has ended.

    The table of progress stops all collections, so a catalog that is in use must not get one.
    """
    progress = ImportProgress(parts)
    if not progress.exists():
        if any(not _is_empty(node_list) for node_list in _lists(parts).values()):
            return False
        _check_buckets(parts, empty_plan(parts.format.stream_buckets), is_new=False)
        progress.begin()
    return True


def _check_buckets(parts: CatalogParts, plan: ImportPlan, *, is_new: bool) -> None:
    """Refuse buckets that `_write_buckets` would refuse."""

    def check(number: int) -> None:
        bucket = must_read(parts.keys.shard(number)).value
        _check_bucket(bucket, wanted=plan.buckets[number], is_new=is_new)

    list(parts.executor.map(check, range(parts.format.stream_buckets)))


def _refuse_unfinished(parts: CatalogParts, plan: ImportPlan) -> None:
    """Refuse a catalog in use that is not just what this import has written.

    Raises:
        MaintenanceRefused: it is not.
    """
    _refuse_other(parts, plan)
    lists = _lists(parts)
    for node_id, wanted in plan.lists.items():
        if not _is_empty(wanted) and (node_id not in lists or _is_empty(lists[node_id])):
            raise MaintenanceRefused(
                f"list of node {node_id}: expected the one that this import writes ({_described(wanted)}), found none, "
                "while other lists are written: the catalog is in use"
            )


def _check_list(now: NodeList, wanted: NodeList | None) -> NodeList | None:
    """The list to write instead of this one; None if it is that already, but for its epoch.

    Raises:
        MaintenanceRefused: it is neither that nor empty.
    """
    if wanted is not None and _same(now, wanted, _LIST_ROWS) and now.next_order_id == wanted.next_order_id:
        return None
    if not _is_empty(now):
        would = "none" if wanted is None else _described(wanted)
        raise MaintenanceRefused(
            f"list of node {now.node_id}: expected an empty one, or the one that this import writes ({would}), "
            f"found {_described(now)}"
        )
    if wanted is None:
        return None
    return NodeList(now.node_id, now.epoch, wanted.next_order_id, wanted.live, wanted.prepared)


def _is_empty(node_list: NodeList) -> bool:
    return not node_list.next_order_id and not any(len(getattr(node_list, name)) for name in _LIST_ROWS)


def _described(node_list: NodeList) -> str:
    counts = {name.replace("_", " "): len(getattr(node_list, name)) for name in _LIST_ROWS}
    return f"{node_list.next_order_id} commits, " + ", ".join(f"{count} {name}" for name, count in counts.items())


def _same(one: object, wanted: object, names: tuple[str, ...]) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(wanted, name)) for name in names)


def _write_buckets(parts: CatalogParts, plan: ImportPlan, *, is_new: bool) -> None:
    def write(number: int) -> None:
        rule = partial(_check_bucket, wanted=plan.buckets[number], is_new=is_new)
        parts.keys.shard(number).change(rule)

    list(parts.executor.map(write, range(parts.format.stream_buckets)))


def _check_bucket(bucket: StreamShard | None, *, wanted: StreamShard, is_new: bool) -> StreamShard | None:
    now = require(bucket, f"table {STREAM_BUCKETS!r}, key {shard_key(wanted.bucket)!r}")
    leveled = StreamShard(now.bucket, now.streams, _without_epochs(now.ranges), now.stream_objects, now.retired)
    if _same(leveled, wanted, _BUCKET_ROWS):
        return None
    by_sessions = bool(now.ranges["epoch"].any()) or len(now.stream_objects) or len(now.retired)
    if len(now.streams) and (by_sessions or not is_new):
        raise MaintenanceRefused(
            f"bucket {now.bucket}: expected no streams, or the {len(wanted.streams)} that this import writes, found "
            f"{len(now.streams)} in {len(now.ranges)} ranges that are not the same"
        )
    return wanted


def _without_epochs(ranges: Rows) -> Rows:
    leveled = ranges.copy()
    leveled["epoch"] = 0
    return leveled


def _drop_stale_checkpoints(parts: CatalogParts, plan: ImportPlan) -> None:
    """Delete checkpoints of nodes without a commit that an earlier import has left: sessions would trust them."""
    table = parts.keys.tables.table(NODE_CHECKPOINTS)
    for node_id in map(parse_node_key, list(table.keys())):
        if node_id is None or node_id in plan.lists:
            continue
        seen = parts.keys.checkpoint(node_id).read()
        now = parts.keys.node_list(node_id).read()  # afterwards: a session writes it after its commits
        if seen is not None and seen.value.order_id >= 0 and (now is None or not now.value.next_order_id):
            table.delete(node_key(node_id), seen.version)


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


def _raise_counter(parts: CatalogParts, progress: ImportProgress, least: int) -> None:
    run = progress.note_counter(least)
    if run is None:
        return
    allowed = (run.counter_before, *run.raised_to)

    def rule(counter: ObjectIdCounter | None) -> ObjectIdCounter | None:
        now = check_counter(counter, -1, parts.keys.object_ids().where)
        if now not in allowed:
            raise MaintenanceRefused(f"expected a counter of object ids that nobody uses, found {now}: is it in use?")
        return None if now >= least else ObjectIdCounter(least)

    parts.keys.object_ids().change(rule)


def _lower_counter(parts: CatalogParts, progress: ImportProgress) -> None:
    run = progress.run()
    if run is None:
        return

    def rule(counter: ObjectIdCounter | None) -> ObjectIdCounter | None:
        now = check_counter(counter, -1, parts.keys.object_ids().where)
        if now not in (run.counter_before, *run.raised_to):
            said = f"{run.counter_before} or as the import has left it ({run.raised_to[-1]})"
            raise MaintenanceRefused(f"expected a counter of object ids of {said}, found {now}: ids were taken since")
        return None if now == run.counter_before else ObjectIdCounter(run.counter_before)

    parts.keys.object_ids().change(rule)
