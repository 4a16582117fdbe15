"""Lists of nodes and buckets of streams -> a metadata image, with all that did not change taken from the one before.

    NodeList      live        columns of a NodeImage
                  stream_objects, withdrawn_commits          looked at by the buckets that they concern
    StreamBucket  streams, ranges, stream_objects, retired   streams of the image, cut out when they are asked for

Readers catch up every second or so, and mostly a few lists changed and nothing else. What is untouched is shared by
identity: a list that is the same record, or lists the same objects, gives the same `NodeImage`, with all that lookups
found out about it; a bucket that is the same record gives the same streams. So comparing two images costs only what
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accel.catalog.image_streams import BucketedStreams, BucketStreams, Commits
from accel.catalog.records import NodeList, StreamBucket
from accel.catalog.rows import STREAM_OBJECT, Rows, by_stream, no_rows
from accel.catalog.stream_rules import buckets_of
from accel.errors import ImageRefused
from accel.image import ImageVersion, MetadataImage, NodeImage, node_of_columns


@dataclass(frozen=True, slots=True, eq=False)
class BuiltImage:
    """An image, and what it was built from: the start of the next one. Threads: any.

    Args:
        image: the image.
        lists: node id -> its list.
        parts: the streams of each bucket, in the order of the buckets' numbers.
    """

    image: MetadataImage
    lists: Mapping[int, NodeList]
    parts: tuple[BucketStreams, ...]


def build_image(
    namespace: str,
    lists: Mapping[int, NodeList],
    buckets: Sequence[StreamBucket],
    version: ImageVersion,
    previous: BuiltImage | None = None,
) -> BuiltImage:
    """An image of what lists and buckets say.

    Args:
        namespace: of the objects.
        lists: node id -> its list.
        buckets: all buckets of streams, in the order of their numbers.
        version: of the image.
        previous: what was built before, from earlier records of the same catalog; shared where it still holds.

    Raises:
        ImageRefused: a list or the row of buckets contradicts itself. A stream that does is refused when it is asked
            for, so that it harms no other one.

    Complexity: O(n log n) in the objects of lists that changed, no loop over objects or streams in Python.
    """
    for number, bucket in enumerate(buckets):
        if bucket.bucket != number:
            raise ImageRefused(f"expected bucket {number} of {len(buckets)}, found bucket {bucket.bucket} in its place")
    for node_id, each in lists.items():
        if each.node_id != node_id:
            raise ImageRefused(f"expected a list of node {node_id}, found one of node {each.node_id} in its place")
    nodes = {node_id: _node(each, previous) for node_id, each in lists.items()}
    parts = _parts(lists.values(), buckets, previous)
    unchanged = previous is not None and parts == previous.parts
    streams = previous.image.streams if previous is not None and unchanged else BucketedStreams(parts)
    return BuiltImage(MetadataImage(version, namespace, streams, nodes), dict(lists), parts)


def _node(now: NodeList, previous: BuiltImage | None) -> NodeImage:
    before = None if previous is None else previous.lists.get(now.node_id)
    if previous is not None and before is not None and (before is now or np.array_equal(before.live, now.live)):
        return previous.image.nodes[now.node_id]
    live = now.live
    return node_of_columns(
        now.node_id,
        object_ids=live["object_id"].copy(),  # contiguous, as searches need it
        order_ids=live["order_id"].copy(),
        sizes_bytes=live["size_bytes"].copy(),
        index_sizes_bytes=live["index_size_bytes"].copy(),
        attributes=live["attributes"].copy(),
        tail_checksums=live["tail_checksum"].copy(),
    )


def _parts(
    lists: Iterable[NodeList], buckets: Sequence[StreamBucket], previous: BuiltImage | None
) -> tuple[BucketStreams, ...]:
    lists = list(lists)
    late = _late_rows(lists, len(buckets))
    withdrawn = frozenset((each.node_id, commit) for each in lists for commit in each.withdrawn_commits)
    before = previous.parts if previous is not None and len(previous.parts) == len(buckets) else [None] * len(buckets)
    none = no_rows(STREAM_OBJECT)
    return tuple(
        _part(bucket, late.get(bucket.bucket, none), withdrawn, known)
        for bucket, known in zip(buckets, before, strict=True)
    )


def _part(bucket: StreamBucket, late: Rows, withdrawn: Commits, before: BucketStreams | None) -> BucketStreams:
    unchanged = before is not None and before.bucket is bucket and before.withdrawn == withdrawn
    if before is not None and unchanged and np.array_equal(before.late, late):
        return before
    return BucketStreams(bucket, late, withdrawn)


def _late_rows(lists: Iterable[NodeList], bucket_count: int) -> dict[int, Rows]:
    """Stream objects that still stand in lists, by the bucket where they belong."""
    found = [each.stream_objects for each in lists if len(each.stream_objects)]
    if not found or not bucket_count:
        return {}
    rows = by_stream(np.concatenate(found), "start")
    numbers = buckets_of(rows["stream_id"], bucket_count)
    return {int(number): rows[numbers == number] for number in np.unique(numbers)}
