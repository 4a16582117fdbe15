"""How a new session learns where each of its node's streams ended.

Nobody keeps the end of an open stream in one place: that would be a write a stream and upload. It follows from

    the checkpoint of the node        ends as of some order id, written every so many commits
    objects of the list since then    their indexes, one GET each
    objects of one stream             in the buckets, and in the list until they are moved there
    the stream itself                 the start of its open range, and its first kept offset: data below that may be
                                      gone from all objects

The highest of these is the end. That holds while objects are compacted, too: an object that a compaction made counts
as "since" if any of its sources does (`last_order_id`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accel.catalog.buckets import buckets_of
from accel.catalog.parts import CatalogParts
from accel.catalog.records import NodeList, StreamBucket
from accel.catalog.rows import refs_of, some
from accel.catalog.stream_ends import StreamEnds, columns_of
from accel.catalog.survey import joined_ids, must_read
from accel.errors import CatalogDamaged

OPEN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """Where streams end, and how that was found out.

    Args:
        ends: of the streams that are open on the node.
        checkpoint_order_id: objects up to this order id were in the checkpoint; -1 without one.
        opened: indexes that had to be opened.
    """

    ends: StreamEnds
    checkpoint_order_id: int
    opened: int


def learn_ends(parts: CatalogParts, node_list: NodeList, buckets: Sequence[StreamBucket]) -> Learned:
    """Where the node's open streams end.

    Requests: one for the checkpoint, and one an object committed since (two if its index is large).

    Raises:
        CatalogDamaged: the checkpoint or a bucket knows of more commits than the list has seen, or the checkpoint or an
            object of streams that no bucket knows: one of them went back.
        StoreError, CorruptObject: an object that is listed could not be opened.
    """
    node_id = node_list.node_id
    for number, bucket in enumerate(buckets):
        for rows in (bucket.stream_objects, bucket.retired):
            mine = rows["added_by"][rows["node_id"] == node_id]
            _refuse_behind(parts, node_list, int(mine.max(initial=-1)), f"bucket {number} of streams")
    known = np.unique(np.concatenate([bucket.streams["stream_id"] for bucket in buckets]))
    owned, starts = _open_streams(node_id, buckets)
    ends = StreamEnds.of(owned, starts)
    checkpoint = parts.cells.checkpoint(node_id).read()
    covered = -1
    if checkpoint is not None:
        covered = checkpoint.value.order_id
        _refuse_behind(parts, node_list, covered, "its checkpoint")
        _refuse_strangers(parts, known, checkpoint.value.ends["stream_id"], f"the checkpoint of node {node_id}")
        ends = ends.raised(checkpoint.value.ends["stream_id"], checkpoint.value.ends["end"])
    since = node_list.live[node_list.live["last_order_id"] > covered]
    for opened in parts.open_all(node_id, refs_of(since)):
        stream_ids, _, object_ends = columns_of(opened.ranges)
        _refuse_strangers(parts, known, stream_ids, f"object {opened.ref.object_id} in the list of node {node_id}")
        ends = ends.raised(stream_ids, object_ends).only(owned)
    for rows in [node_list.stream_objects, *(bucket.stream_objects for bucket in buckets)]:
        ends = ends.raised(rows["stream_id"], rows["end"])
    for bucket in buckets:
        ends = ends.raised(bucket.streams["stream_id"], bucket.streams["start_offset"])
    return Learned(ends.only(owned), covered, len(since))


def _refuse_behind(parts: CatalogParts, node_list: NodeList, commit: int, witness: str) -> None:
    """Refuse a list that has not seen a commit which somebody else knows of.

    Raises:
        CatalogDamaged: it has not.
    """
    if commit < node_list.next_order_id:
        return
    now = parts.cells.node_list(node_list.node_id).read()  # a newer session may have committed it just now
    if now is None or commit >= now.value.next_order_id:
        seen = "no list" if now is None else f"{now.value.next_order_id}"
        where = f"list of node {node_list.node_id}"
        raise CatalogDamaged(
            f"{where}: expected the {commit + 1} commits that {witness} knows, found {seen}: put back?"
        )


def _refuse_strangers(
    parts: CatalogParts, known: NDArray[np.int64], stream_ids: NDArray[np.int64], witness: str
) -> None:
    """Refuse buckets that do not know a stream which somebody else knows: a bucket never forgets one.

    Raises:
        CatalogDamaged: they do not.
    """
    strangers = np.setdiff1d(stream_ids, known)
    numbers = np.unique(buckets_of(strangers, parts.format.stream_buckets)).tolist()
    now = [must_read(parts.cells.bucket(each)).value.streams["stream_id"] for each in numbers]
    strangers = np.setdiff1d(strangers, joined_ids(now))  # a newer session may have opened some just now
    if len(strangers):
        expected = f"streams {some(strangers)}, which {witness} knows"
        raise CatalogDamaged(f"buckets of streams: expected {expected}, found none of them: put back?")


def _open_streams(node_id: int, buckets: Sequence[StreamBucket]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.concatenate([bucket.ranges for bucket in buckets])
    mine = rows[(rows["node_id"] == node_id) & (rows["end"] == OPEN)]
    return mine["stream_id"], mine["start"]
