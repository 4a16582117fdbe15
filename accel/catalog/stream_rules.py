"""The rules of a bucket of streams, in one place to import from.

    buckets             bucket_of, buckets_of
    stream_ranges       with_open_ranges, with_closed_ranges, with_starts
    stream_objects      with_stream_objects, with_replacement, without_commits, with_withdrawn,
                        with_doomed_stream_objects, without_collected_stream_objects
    stream_checks       check_bucket

All rules are pure: a bucket and facts in, the next bucket out, or None where nothing is left to do.
"""

from __future__ import annotations

from accel.catalog.buckets import bucket_of, buckets_of
from accel.catalog.stream_checks import check_bucket
from accel.catalog.stream_objects import (
    with_doomed_stream_objects,
    with_replacement,
    with_stream_objects,
    with_withdrawn,
    without_collected_stream_objects,
    without_commits,
)
from accel.catalog.stream_ranges import (
    OPEN,
    with_closed_ranges,
    with_open_ranges,
    with_starts,
)

__all__ = [
    "OPEN",
    "bucket_of",
    "buckets_of",
    "check_bucket",
    "with_closed_ranges",
    "with_doomed_stream_objects",
    "with_open_ranges",
    "with_replacement",
    "with_starts",
    "with_stream_objects",
    "with_withdrawn",
    "without_collected_stream_objects",
    "without_commits",
]
