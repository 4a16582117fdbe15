"""What must be true of every bucket of streams, for `verify` and for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accel.catalog.buckets import buckets_of
from accel.catalog.problems import Kind, Mismatches, Problem
from accel.catalog.records import StreamBucket
from accel.catalog.rows import Rows, some, starts_of
from accel.catalog.stream_object_rows import described, overlapping

OPEN = -1


def check_bucket(bucket: StreamBucket, buckets: int | None = None) -> list[Problem]:
    """What is wrong with a bucket; empty if nothing is. Complexity: O(n log n).

    Args:
        bucket: the bucket.
        buckets: how many there are, to check that the streams belong here; None = not checked.
    """
    where = f"bucket {bucket.bucket}"
    mismatches = [mismatch for rule in _RULES for mismatch in rule(bucket)]
    if buckets is not None:
        mismatches += _placement(bucket, buckets)
    return [Problem(Kind.BUCKET, where, *mismatch) for mismatch in mismatches]


def _placement(bucket: StreamBucket, buckets: int) -> Mismatches:
    ids = bucket.streams["stream_id"]
    strangers = ids[buckets_of(ids, buckets) != bucket.bucket]
    if len(strangers):
        yield "streams that hash to it", some(strangers)


def _known_streams(bucket: StreamBucket) -> Mismatches:
    places = {"ranges": bucket.ranges, "stream objects": bucket.stream_objects, "retired": bucket.retired}
    known = bucket.streams["stream_id"]
    for name, rows in places.items():
        unknown = np.setdiff1d(rows["stream_id"], known)
        if len(unknown):
            yield f"{name} of known streams", f"some of {some(unknown)}"
    ownerless = np.setdiff1d(known, bucket.ranges["stream_id"])
    if len(ownerless):
        yield "an ownership range for each stream", f"none for {some(ownerless)}"


def _ranges(bucket: StreamBucket) -> Mismatches:
    rows = bucket.ranges
    yield from _first(rows, rows["start"] < 0, "starts of at least 0")
    yield from _first(rows, (rows["end"] != OPEN) & (rows["end"] < rows["start"]), "ranges that end after they start")
    followed = np.zeros(len(rows), dtype=np.bool_)
    followed[:-1] = rows["stream_id"][1:] == rows["stream_id"][:-1]
    yield from _first(rows, followed & (rows["end"] == OPEN), "only the last range of a stream to be open")
    overlaps = followed.copy()
    overlaps[:-1] &= rows["end"][:-1] > rows["start"][1:]
    yield from _first(rows, overlaps, "each range to end at or before the start of the next one")


def _first(rows: Rows, wrong: NDArray[np.bool_], expected: str) -> Mismatches:
    if wrong.any():
        row = rows[int(wrong.argmax())]
        range_text = f"[{row['start']}, {row['end']}) of node {row['node_id']}"
        yield expected, f"range {row['range_index']} of stream {row['stream_id']}: {range_text}"


def _objects(bucket: StreamBucket) -> Mismatches:
    rows = bucket.stream_objects
    for at in overlapping(rows):
        pair = f"{described(rows[at])} and {described(rows[at + 1])}"
        yield "objects of a stream that do not overlap", pair
    for row in rows[rows["end"] <= rows["start"]]:
        yield "an end above the start", described(row)
    for row in rows[rows["end"] <= starts_of(bucket.streams, rows["stream_id"])]:
        yield "objects above the first kept offset", described(row)


def _one_place_each(bucket: StreamBucket) -> Mismatches:
    both = np.intersect1d(bucket.stream_objects["object_id"], bucket.retired["object_id"])
    if len(both):
        yield "each object live or retired", f"{some(both)} both"
    for name, rows in (("live", bucket.stream_objects), ("retired", bucket.retired)):
        ids, counts = np.unique(rows["object_id"], return_counts=True)
        if len(ids[counts > 1]):
            yield "each object once", f"{some(ids[counts > 1])} {name} more than once"


_RULES = (_known_streams, _ranges, _objects, _one_place_each)
