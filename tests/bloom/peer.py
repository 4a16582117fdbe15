"""The peer of all filter tests: pybloom_live, fed id by id."""

from __future__ import annotations

import io

import numpy as np
import pybloom_live
from numpy.typing import NDArray


def pybloom_filter(stream_ids: list[int], capacity: int, error_rate: float = 0.01) -> pybloom_live.BloomFilter:
    """Their filter after ``add`` of these ids in ascending order."""
    peer = pybloom_live.BloomFilter(capacity, error_rate)
    for stream_id in sorted(stream_ids):
        peer.add(stream_id)
    return peer


def stored(peer: pybloom_live.BloomFilter) -> bytes:
    """What ``tofile`` writes."""
    file = io.BytesIO()
    peer.tofile(file)
    return file.getvalue()


def sorted_ids(stream_ids: set[int] | list[int]) -> NDArray[np.int64]:
    """The ids as a filter wants them."""
    return np.array(sorted(stream_ids), dtype=np.int64)
