"""Which bucket a stream lies in.

Streams are spread over a fixed number of buckets by a hash of their ids, so that ids given out one after another, which
tend to be busy at the same time, do not meet in one bucket. The hash is the finalizer of splitmix64 (public domain, S.
Vigna): every bit of the id moves every bit of the result. It is part of the format: a bucket's number can never change
for a stream, and so the number of buckets stands in the format record.

    z = id + 0x9E3779B97F4A7C15
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9
    z = (z ^ z >> 27) * 0x94D049BB133111EB
    bucket = (z ^ z >> 31) mod buckets                  all modulo 2**64, unsigned
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_STEP = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_MASK = 2**64 - 1


def bucket_of(stream_id: int, buckets: int) -> int:
    """The bucket of one stream, 0 to buckets - 1. Complexity: O(1).

    >>> [bucket_of(stream_id, 32) for stream_id in (0, 1, 2, 420_000)]
    [15, 1, 14, 1]

    Args:
        stream_id: of at least 0, below 2**63.
        buckets: how many there are, as the format record says.

    Raises:
        ValueError: fewer than one bucket.

    Source: docs/formats.md, "Buckets of streams".
    """
    _check_count(buckets)
    # Plain integers: every lookup asks for one stream, and arrays take 20 times as long.
    mixed = stream_id + _STEP & _MASK
    for shift, factor in _MIX:
        mixed = (mixed ^ mixed >> shift) * factor & _MASK
    return (mixed ^ mixed >> 31) % buckets


def buckets_of(stream_ids: NDArray[np.int64], buckets: int) -> NDArray[np.int64]:
    """The bucket of each of many streams; see `bucket_of`. Complexity: O(n), no loop in Python.

    Args:
        stream_ids: n ids of at least 0.
        buckets: how many there are, as the format record says.

    Returns:
        n numbers of buckets, in the order of the ids.

    Raises:
        ValueError: fewer than one bucket.

    Source: docs/formats.md, "Buckets of streams".
    """
    _check_count(buckets)
    mixed = stream_ids.astype(np.uint64) + np.uint64(_STEP)
    for shift, factor in _MIX:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    found: NDArray[np.int64] = (mixed % np.uint64(buckets)).astype(np.int64)
    return found


def _check_count(buckets: int) -> None:
    if buckets < 1:
        raise ValueError(f"expected at least one bucket of streams, found {buckets}")
