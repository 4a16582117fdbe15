"""Where each stream of a node ends: what an upload must continue.

A node's writer keeps one number a stream, and checks a whole upload against them at once, however many streams it has:
two sorted columns and two searches, no request. The columns are never changed in place: an upload that fails leaves
the ends as they were.

    stream_ids   [ 17,  23, 420000]       the streams that this node may write
    ends         [100,   0,   1620]       the next offset of each
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accel.errors import CommitRefused
from range_index import ObjectRanges


def _no_ids() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class StreamEnds:
    """The next offset of each stream. Threads: immutable, any.

    Args:
        stream_ids: ascending, each once.
        ends: of the same length.
    """

    stream_ids: NDArray[np.int64] = field(default_factory=_no_ids)
    ends: NDArray[np.int64] = field(default_factory=_no_ids)

    @classmethod
    def of(cls, stream_ids: NDArray[np.int64], ends: NDArray[np.int64]) -> StreamEnds:
        """From columns in any order; of a stream that stands there more than once, the highest end counts.

        Complexity: O(n log n).
        """
        order = np.lexsort((ends, stream_ids))
        ids, highest = stream_ids[order], ends[order]
        last_of_stream = np.ones(len(ids), dtype=np.bool_)
        last_of_stream[:-1] = ids[1:] != ids[:-1]
        return cls(ids[last_of_stream], highest[last_of_stream])

    def __len__(self) -> int:
        return len(self.stream_ids)

    def end(self, stream_id: int) -> int | None:
        """The next offset of a stream; None if it is not among these. Complexity: O(log n)."""
        at = int(np.searchsorted(self.stream_ids, stream_id))
        if at == len(self) or self.stream_ids[at] != stream_id:
            return None
        return int(self.ends[at])

    def raised(self, stream_ids: NDArray[np.int64], ends: NDArray[np.int64]) -> StreamEnds:
        """With these ends where they are higher, and these streams added. Complexity: O(n log n)."""
        return StreamEnds.of(np.concatenate((self.stream_ids, stream_ids)), np.concatenate((self.ends, ends)))

    def only(self, stream_ids: NDArray[np.int64]) -> StreamEnds:
        """Without all other streams."""
        kept = np.isin(self.stream_ids, stream_ids)
        return StreamEnds(self.stream_ids[kept], self.ends[kept])

    def without(self, stream_ids: NDArray[np.int64]) -> StreamEnds:
        """Without these streams."""
        kept = ~np.isin(self.stream_ids, stream_ids)
        return StreamEnds(self.stream_ids[kept], self.ends[kept])

    def reach(self, stream_ids: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
        """Whether all these streams end at these offsets or further on. Complexity: O(m log n)."""
        if not len(self):
            return not len(stream_ids)
        at = np.minimum(np.searchsorted(self.stream_ids, stream_ids), len(self) - 1)
        return bool(((self.stream_ids[at] == stream_ids) & (self.ends[at] >= ends)).all())

    def continued_by(self, stream_ids: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Check that ranges [start, end) begin where their streams end.

        Args:
            stream_ids: ascending, each once.
            starts: of the same length.
            ends: of the same length.

        Raises:
            CommitRefused: a stream that is not open here, one that is not continued, or an empty range; the first one
                is named, with what was expected and what was found.

        Complexity: O(m log n) for m ranges, no loop in Python.
        """
        if len(stream_ids) and not len(self):
            raise CommitRefused(f"expected streams that are open on this node, found {stream_ids[0]}; none is open")
        at = np.minimum(np.searchsorted(self.stream_ids, stream_ids), max(len(self) - 1, 0))
        for wrong, expected in (
            (self.stream_ids[at] != stream_ids, "a stream that is open on this node"),
            (self.ends[at] != starts, "a start where the stream ended"),
            (ends <= starts, "an end above the start"),
        ):
            found = np.flatnonzero(wrong)
            if len(found):
                first = int(found[0])
                known = f"; the stream ended at {self.ends[at[first]]}" if expected.startswith("a start") else ""
                raise CommitRefused(
                    f"stream {stream_ids[first]}: expected {expected}, "
                    f"found [{starts[first]}, {ends[first]}){known} ({len(found)} streams alike)"
                )


def columns_of(ranges: ObjectRanges) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Stream ids, starts and ends of what an object holds."""
    starts = ranges.starts.astype(np.int64)
    return ranges.stream_ids, starts, starts + ranges.lengths.astype(np.int64)


def ends_of(spans: Mapping[int, int] | Iterable[tuple[int, int]]) -> StreamEnds:
    """From {stream id: end} or (stream id, end) pairs."""
    pairs = list(spans.items() if isinstance(spans, Mapping) else spans)
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return StreamEnds.of(table[:, 0], table[:, 1])
