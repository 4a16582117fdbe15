"""Sorted runs and the indexes made of them: stream offsets -> objects. Pure: no I/O, no clock, no randomness."""

from range_index.object_ranges import ObjectRanges, RangesGiven, StreamRange
from range_index.stream_index import IndexStatistics, StreamRangeIndex
from range_index.stream_view import Entry, StreamView

__all__ = ["Entry", "IndexStatistics", "ObjectRanges", "RangesGiven", "StreamRange", "StreamRangeIndex", "StreamView"]
