"""Merging without touching the data: the sections of the sources one after another, and a new index behind them.

    source A   | a a a a | index |          source B   | b b b | index |
    output     | a a a a | b b b | index of both, sorted by (stream, offset); positions lead into either section |

Rows of an index are sorted by (stream, offset), but nothing says that their positions must ascend. So a store that can
copy bytes by itself makes the output, and only indexes pass through here. Objects become fewer, but a stream's blocks
stay as far apart as they were: reading one takes as many requests as before.

It works only where all of each source is kept, nothing goes to a stream object, and no byte of a section belongs to no
row: what is copied unseen must be what the index says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loaders.format.block_index import BlockIndex
from loaders.format.merging_rows import index_rows, row_firsts, run_firsts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loaders.format.merging import MergeLimits, MergePlan


def index_of_sections(
    sources: Sequence[BlockIndex], data_sizes: Sequence[int], plan: MergePlan, limits: MergeLimits
) -> BlockIndex | None:
    """The index of an output whose data is that of the sources end to end, or None where that is not possible.

    Complexity: O(n log n) in the rows of all sources, no loop over rows in Python.

    Args:
        sources: the indexes of the sources, in list order.
        data_sizes: bytes of each one's data section.
        plan: made of these sources.
        limits: those of the plan.
    """
    if len(plan.left_out) or len(plan.outputs) != 1 or plan.outputs[0].stream_id is not None:
        return None
    if not all(_fills(index, size_bytes) for index, size_bytes in zip(sources, data_sizes, strict=True)):
        return None
    copies = plan.outputs[0].copies
    section_starts = np.concatenate(([0], np.cumsum(np.array(data_sizes, dtype=np.int64))))
    positions = section_starts[copies["source"]] + copies["position"]
    begins = np.zeros(len(copies), dtype=np.bool_)
    begins[run_firsts(copies)] = True
    begins[1:] |= positions[1:] != positions[:-1] + copies["size_bytes"][:-1]
    firsts = row_firsts(copies, np.flatnonzero(begins), limits.row_size_bytes_max)
    index = BlockIndex(index_rows(copies, firsts, positions[firsts]).tobytes())
    return index if index.nbytes <= limits.index_size_bytes_max else None


def _fills(index: BlockIndex, data_size_bytes: int) -> bool:
    """Whether the rows lie end to end, in whatever order, and fill the section."""
    rows = index.rows
    starts = rows["position"].astype(np.int64)
    order = np.argsort(starts, kind="stable")
    ends = np.concatenate(([0], (starts + rows["size_bytes"])[order]))
    return bool((starts[order] == ends[:-1]).all()) and int(ends[-1]) == data_size_bytes
