"""Changes of many streams at once: one conditional write for each bucket that they touch, side by side.

Buckets are independent keys, so a change of several buckets may stop half-way: some streams are changed, others not.
Every change may be repeated, and then leaves alone what it has done already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from accel.catalog import stream_rules
from accel.catalog.cell import standing
from accel.catalog.parts import CatalogParts
from accel.catalog.records import StreamBucket
from accel.errors import SessionFenced

OPEN = stream_rules.OPEN

Ids = NDArray[np.int64]
EditRule = Callable[[StreamBucket, Ids, Ids], StreamBucket | None]
"""(bucket, stream ids, an offset for each) -> the bucket that follows, or None."""


def open_ranges(parts: CatalogParts, node_id: int, epoch: int, wanted: Mapping[int, int | None]) -> tuple[Ids, Ids]:
    """Open streams on a node; gives their ids and the offsets at which their open ranges start.

    Raises:
        CommitRefused: see `stream_ranges.with_open_ranges`.
    """

    def rule(bucket: StreamBucket, ids: Ids, offsets: Ids) -> StreamBucket | None:
        return stream_rules.with_open_ranges(bucket, ids, node_id, epoch, offsets)

    asked = {stream_id: OPEN if start is None else start for stream_id, start in wanted.items()}
    buckets = edit_buckets(parts, asked, rule)
    rows = np.concatenate([bucket.ranges for bucket in buckets]) if buckets else StreamBucket(0).ranges
    rows = rows[(rows["end"] == OPEN) & np.isin(rows["stream_id"], np.fromiter(asked, dtype=np.int64))]
    return rows["stream_id"], rows["start"]


def close_ranges(parts: CatalogParts, node_id: int, epoch: int, ends: Mapping[int, int]) -> None:
    """Close streams on a node at these ends.

    Raises:
        SessionFenced: a newer session has taken them over.
        CommitRefused: see `stream_ranges.with_closed_ranges`.
    """

    def rule(bucket: StreamBucket, ids: Ids, offsets: Ids) -> StreamBucket | None:
        _refuse_fenced(bucket, ids, node_id, epoch)
        return stream_rules.with_closed_ranges(bucket, ids, node_id, offsets)

    edit_buckets(parts, ends, rule)


def trim_streams(parts: CatalogParts, offsets: Mapping[int, int]) -> None:
    """Let go what streams hold below these offsets; whether these lie within the streams is for the caller to know.

    Raises:
        CommitRefused: an unknown stream, or an offset beyond the end of a closed one.
    """

    def rule(bucket: StreamBucket, ids: Ids, starts: Ids) -> StreamBucket | None:
        return stream_rules.with_starts(bucket, ids, starts, parts.now_ms())

    edit_buckets(parts, offsets, rule)


def edit_buckets(parts: CatalogParts, offsets: Mapping[int, int], rule: EditRule) -> list[StreamBucket]:
    """Apply a rule to the streams of each bucket; gives these buckets as they are then.

    Requests: two a bucket that is touched.
    """
    ids = np.fromiter(offsets.keys(), dtype=np.int64)
    values = np.fromiter(offsets.values(), dtype=np.int64)
    numbers = stream_rules.buckets_of(ids, parts.format.stream_buckets)

    def edit(number: int) -> StreamBucket:
        here = numbers == number

        cell = parts.cells.bucket(number)

        def change(found: StreamBucket | None) -> StreamBucket | None:
            return rule(standing(found, cell.where), ids[here], values[here])

        return cell.change(change).value

    return list(parts.executor.map(edit, np.unique(numbers).tolist()))


def _refuse_fenced(bucket: StreamBucket, ids: Ids, node_id: int, epoch: int) -> None:
    ranges = bucket.ranges
    taken = (ranges["node_id"] == node_id) & (ranges["end"] == OPEN) & (ranges["epoch"] > epoch)
    taken &= np.isin(ranges["stream_id"], ids)
    if taken.any():
        first = ranges[int(taken.argmax())]
        raise SessionFenced(
            f"stream {first['stream_id']}: expected to be open for epoch {epoch} of node {node_id}, "
            f"found epoch {first['epoch']}: another session was opened"
        )
