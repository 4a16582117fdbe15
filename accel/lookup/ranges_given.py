"""What a broker says an object holds, in whichever form it has it, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from range_index import ObjectRanges

RangesGiven = ObjectRanges | Mapping[int, tuple[int, int]] | Iterable[tuple[int, int, int]]
"""What an object holds: ready, {stream id: (start, end)}, or (stream id, start, end) rows."""


def ranges_of(ranges: RangesGiven) -> ObjectRanges:
    """The ranges as arrays; those that are arrays already are given back as they are.

    Raises:
        ValueError: ranges that repeat a stream or are inverted.
    """
    if isinstance(ranges, ObjectRanges):
        return ranges
    rows = [(key, *span) for key, span in ranges.items()] if isinstance(ranges, Mapping) else list(ranges)
    return ObjectRanges.from_ranges((stream_id, start, end) for stream_id, start, end in rows)
