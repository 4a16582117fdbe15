"""Objects for the benchmarks of the range index: many streams, each in some of a node's objects, as uploads leave them.

A node uploads an object of about 9,000 streams at a time, so the entries of one stream come far apart from each other.
That matters: whatever an index keeps for a stream is scattered over memory unless it packs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from range_index import ObjectRanges

STREAMS_OF_OBJECT = 9_000
NODE = 4


@dataclass(frozen=True, slots=True)
class MadeObject:
    """One object: its id and its rows, ascending by stream."""

    object_id: int
    stream_ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def ranges(self) -> ObjectRanges:
        """The same as arrays of its own, as a parser makes them."""
        return ObjectRanges.from_columns(self.stream_ids.copy(), self.starts.copy(), self.ends.copy())

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Stream id, start, end of each row, as a loop over rows reads them."""
        return zip(self.stream_ids.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)


def make_objects(streams: int, entries_of_stream: int, *, seed: int = 20) -> Iterator[MadeObject]:
    """Objects in order of upload, so that each stream is in ``entries_of_stream`` of them, offsets without gaps."""
    generator = np.random.default_rng(seed)
    next_offsets = generator.integers(0, 1000, streams)
    object_id = 0
    for _ in range(entries_of_stream):
        for group in np.array_split(generator.permutation(streams), max(1, round(streams / STREAMS_OF_OBJECT))):
            stream_ids = np.sort(group)
            starts = next_offsets[stream_ids]
            ends = starts + generator.integers(1, 200, len(stream_ids))
            next_offsets[stream_ids] = ends
            yield MadeObject(object_id, stream_ids, starts, ends)
            object_id += 1
