"""Joins neighbouring bytes of objects into few spans, each of them one ranged GET.

A request costs about as much as a few hundred kilobytes of transfer. So bytes that are close to each other are read
together, and the bytes in between are discarded, as long as the gaps and the spans stay small:

    needed   |== 0 ==|== 1 ==|  |= 2 =|                 |== 3 ==|== 4 ==|
    spans    |=======================|                  |===============|      (0, 3) and (3, 5)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from loaders.format.block_index import BlockIndex, BlockRow
from loaders.format.composite import CompositeObject

Numbers = NDArray[np.int64]


def join_spans(
    starts: Numbers,
    ends: Numbers,
    objects: NDArray[np.integer] | None = None,
    *,
    gap_size_bytes_max: int = 0,
    span_size_bytes_max: int | None = None,
) -> list[tuple[int, int]]:
    """Choose the neighbours to read together, as numbers ``(first, stop)``.

    A span reaches from ``starts[first]`` to ``ends[stop - 1]``. It ends before an item of another object, before an
    item that starts below the span's end, and at the bounds.

    Complexity: O(n), a loop in Python over the few resulting spans.

    Args:
        starts: first byte of each item.
        ends: one past the last byte of each item.
        objects: the number of each item's object; None = one object.
        gap_size_bytes_max: unneeded bytes that may be read between two neighbours.
        span_size_bytes_max: length of a span; a single item may be longer. None = any.
    """
    gaps = starts[1:] - ends[:-1]
    is_break = (gaps < 0) | (gaps > gap_size_bytes_max)
    if objects is not None:
        is_break |= objects[1:] != objects[:-1]
    stops = [*(np.flatnonzero(is_break) + 1).tolist(), len(starts)] if len(starts) else []
    if span_size_bytes_max is None:
        return list(zip([0, *stops[:-1]], stops, strict=True)) if stops else []
    spans: list[tuple[int, int]] = []
    first = 0
    for neighbours_stop in stops:
        while first < neighbours_stop:
            limit = int(starts[first]) + span_size_bytes_max
            # Not numpy's search, which releases the GIL: beside busy threads each call would wait for the GIL again.
            fitting = bisect_right(ends, limit, first, neighbours_stop)
            spans.append((first, max(fitting, first + 1)))
            first = spans[-1][1]
    return spans


def block_spans(
    index: BlockIndex, composite: CompositeObject | None, numbers: Sequence[int], span_size_bytes_max: int
) -> Iterator[tuple[int | None, list[BlockRow]]]:
    """Spans of adjacent blocks: the id of the linked object that holds them (None = the object itself), and their rows.

    Args:
        index: of the object.
        composite: the links of the object, if it has no blocks of its own.
        numbers: of the rows.
        span_size_bytes_max: of the blocks of a span; a single row may be longer.
    """
    chosen = index.rows[np.asarray(numbers, dtype=np.int64)]
    starts = chosen["position"].astype(np.int64)
    linked = None if composite is None else [composite.locate(number).object_id for number in numbers]
    objects = None if linked is None else np.array(linked, dtype=np.int64)
    joined = join_spans(starts, starts + chosen["size_bytes"], objects, span_size_bytes_max=span_size_bytes_max)
    for first, stop in joined:
        yield None if linked is None else linked[first], [index.row(number) for number in numbers[first:stop]]
