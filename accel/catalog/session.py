"""The opening of a session: from the moment it returns, nobody else commits for this node.

    1. the counter of ids   read after the node's list (those of the others, if the node is new): one that is not above
                            the ids in it went back
    2. the node's list      its epoch is raised; every later commit of an older session meets it and is refused
    3. the directory        the node is added, if it is new
    4. the stream buckets   the epoch of the node's open ranges is raised, so that an older session cannot close one of
                            its streams any more at an end that is out of date
    5. the ends             where each of these streams ended (`learning`)

A crash in between leaves a node without a session, and the next opening starts over.

Only a node that has never written gets a new list. If the directory names it, if a stream has a range of it, or if it
has a checkpoint, its list was deleted: an empty one in its place would begin the offsets of its streams anew, and all
its objects would look like orphans.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from accel.catalog.cell import Seen, standing
from accel.catalog.learning import OPEN, Learned, learn_ends
from accel.catalog.list_rules import opened
from accel.catalog.object_ids import highest_id
from accel.catalog.parts import CatalogParts
from accel.catalog.records import NodeDirectory, NodeList, StreamBucket
from accel.errors import AccelError, CatalogDamaged


def open_session(parts: CatalogParts, node_id: int) -> tuple[Seen[NodeList], Learned]:
    """Fence older sessions of a node, and learn what a new one has to know.

    Requests: two for the list, two or three for the directory, one for the counter, one or two a bucket, one for the
    checkpoint, and one an object that was committed after it; for a new node one more a bucket, and one a list.

    Raises:
        CatalogDamaged: the node's list, the directory, a bucket or the counter was deleted, or the counter is not above
            the ids in the list. Nothing was written.
        StoreError, TableError: the catalog could not be read or written.
        CorruptObject, KeyMissing: an object committed after the checkpoint could not be opened.
    """
    seen = _opened_list(parts, node_id)
    directory = parts.cells.directory()
    directory.change(lambda found: _with_node(standing(found, directory.where), node_id))
    adopt = partial(_adopt, parts, node_id, seen.value.epoch)
    buckets = [each.value for each in parts.executor.map(adopt, range(parts.format.stream_buckets))]
    parts.ids.note(highest_id(*buckets))
    return seen, learn_ends(parts, seen.value, buckets)


def with_epoch(bucket: StreamBucket, node_id: int, epoch: int) -> StreamBucket | None:
    """A bucket whose open ranges of this node are of this epoch; None if they are so already, or of a newer one."""
    ranges = bucket.ranges
    older = (ranges["node_id"] == node_id) & (ranges["end"] == OPEN) & (ranges["epoch"] < epoch)
    if not older.any():
        return None
    raised = ranges.copy()
    raised["epoch"][older] = epoch
    return StreamBucket(bucket.bucket, bucket.streams, raised, bucket.stream_objects, bucket.retired)


def _opened_list(parts: CatalogParts, node_id: int) -> Seen[NodeList]:
    directory = parts.cells.directory()
    found = directory.read()  # before the list: a first session writes it afterwards
    known = standing(None if found is None else found.value, directory.where)
    cell = parts.cells.node_list(node_id)
    seen = cell.read()
    if seen is None:
        _refuse_lost_list(parts, known, node_id, cell.where)
        _note_ids_of_others(parts, known)
        parts.ids.refuse_lost()
        return cell.change(lambda now: opened(now or NodeList(node_id)))
    parts.ids.note(highest_id(seen.value))
    parts.ids.refuse_lost()
    return cell.change(lambda now: opened(standing(now, cell.where)), seen=seen)


def _refuse_lost_list(parts: CatalogParts, directory: NodeDirectory, node_id: int, where: str) -> None:
    """Refuse a node that has written before, and has no list.

    Raises:
        CatalogDamaged: it is one.
    """
    traces = []
    if node_id in directory.node_ids:
        traces.append("the directory names the node")
    if parts.cells.checkpoint(node_id).read() is not None:
        traces.append("it has a checkpoint")
    buckets = parts.executor.map(partial(_bucket, parts), range(parts.format.stream_buckets))
    ranges = sum(int((each.value.ranges["node_id"] == node_id).sum()) for each in buckets)
    if ranges:
        traces.append(f"it has {ranges} ranges of streams")
    if traces and parts.cells.node_list(node_id).read() is None:  # another first session may have made it meanwhile
        raise CatalogDamaged(f"expected the list of node {node_id} in {where}, found none, but {' and '.join(traces)}")


def _note_ids_of_others(parts: CatalogParts, directory: NodeDirectory) -> None:
    # A new node has no list that shows which ids are in use. One of another node that cannot be read shows nothing.
    for node_id in directory.node_ids.tolist():
        with suppress(AccelError):
            seen = parts.cells.node_list(node_id).read()
            parts.ids.note(-1 if seen is None else highest_id(seen.value))


def _with_node(known: NodeDirectory, node_id: int) -> NodeDirectory | None:
    if node_id in known.node_ids:
        return None
    return replace(known, node_ids=np.union1d(known.node_ids, np.array([node_id], dtype=np.int64)))


def _adopt(parts: CatalogParts, node_id: int, epoch: int, number: int) -> Seen[StreamBucket]:
    seen = _bucket(parts, number)
    cell = parts.cells.bucket(number)
    return cell.change(lambda found: with_epoch(standing(found, cell.where), node_id, epoch), seen=seen)


def _bucket(parts: CatalogParts, number: int) -> Seen[StreamBucket]:
    cell = parts.cells.bucket(number)
    return standing(cell.read(), cell.where)
