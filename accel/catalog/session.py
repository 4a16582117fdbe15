"""The opening of a session: from the moment it returns, nobody else commits for this node.

    1. the node's list      its epoch is raised; every later commit of an older session meets it and is refused
    2. the directory        the node is added, if it is new
    3. the stream buckets   the epoch of the node's open ranges is raised, so that an older session cannot close one of
                            its streams any more at an end that is out of date
    4. the ends             where each of these streams ended (`learning`)

A crash in between leaves a node without a session, and the next opening starts over.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from accel.catalog.cell import Seen
from accel.catalog.learning import OPEN, Learned, learn_ends
from accel.catalog.list_rules import opened
from accel.catalog.parts import CatalogParts
from accel.catalog.records import NodeDirectory, NodeList, StreamBucket


def open_session(parts: CatalogParts, node_id: int) -> tuple[Seen[NodeList], Learned]:
    """Fence older sessions of a node, and learn what a new one has to know.

    Requests: two for the list, one or two for the directory, one or two a bucket, one for the checkpoint, and one an
    object that was committed after the checkpoint.

    Raises:
        StoreError, TableError: the catalog could not be read or written.
        CorruptObject, KeyMissing: an object committed after the checkpoint could not be opened.
    """
    seen = parts.cells.node_list(node_id).change(lambda found: opened(found or NodeList(node_id)))
    parts.cells.directory().change(partial(_with_node, node_id=node_id))
    adopt = partial(_adopt, parts, node_id, seen.value.epoch)
    buckets = [each.value for each in parts.executor.map(adopt, range(parts.format.stream_buckets))]
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


def _with_node(found: NodeDirectory | None, *, node_id: int) -> NodeDirectory | None:
    known = NodeDirectory() if found is None else found
    if found is not None and node_id in known.node_ids:
        return None
    return replace(known, node_ids=np.union1d(known.node_ids, np.array([node_id], dtype=np.int64)))


def _adopt(parts: CatalogParts, node_id: int, epoch: int, number: int) -> Seen[StreamBucket]:
    def change(bucket: StreamBucket | None) -> StreamBucket | None:
        return with_epoch(bucket or StreamBucket(number), node_id, epoch)

    cell = parts.cells.bucket(number)
    seen = cell.read()
    return cell.change(change, seen=seen)
