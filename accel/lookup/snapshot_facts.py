"""What a snapshot's entries of one stream say about one image's list.

A snapshot speaks of objects by id and size. Through the list of an image this becomes positions: of the objects that
the snapshot covers, those with an entry hold the stream, the others lack it. An object that the list has with another
size, or not at all, is none of the covered ones, and nothing is said of it.

    list position     0  1  2  3  4  5  6  7
    covered           x  x  x  x  x  x            6 and 7 came after the snapshot: candidates as ever
    entries              x        x               1 and 4 hold the stream: their ranges are known
    settled           x  x  x  x  x  x            nothing more is to be learnt of these

Of a stream so large that only a part of its entries was read, absence proves nothing: then only the objects with an
entry are settled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accel.image import NodeImage
from accel.lookup.chart import Mask, Rows
from loaders.hints import SnapshotRoot, StreamEntries


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotFacts:
    """Facts about one stream in one node's list. Threads: immutable.

    Args:
        rows: ranges of listed objects, ascending by start.
        settled: by position, whether all is known of the object that a lookup of the stream may ask.
        low: of which starts all entries are included: ``[low, high)``.
        high: see ``low``.
    """

    rows: Rows
    settled: Mask
    low: int
    high: int

    def answers(self, offset: int) -> bool:
        """Whether the snapshot has no more to say for this offset."""
        return self.low <= offset < self.high


def covered_objects(node: NodeImage, root: SnapshotRoot) -> Mask:
    """By position, whether the snapshot covers the object, size included; O(list log covered)."""
    return root.covers(node.object_ids, node.sizes_bytes)


def facts_of(node: NodeImage, covered: Mask, entries: StreamEntries) -> SnapshotFacts:
    """The entries as facts about this list; O(entries log list).

    Args:
        node: the list.
        covered: by position, which objects the snapshot covers.
        entries: of one stream.
    """
    columns = entries.columns
    positions = node.positions(columns.object_ids)
    usable = positions >= 0
    usable[usable] = covered[positions[usable]]
    rows = Rows(columns.starts[usable], columns.ends[usable], positions[usable], columns.holed[usable])
    settled = covered.copy() if entries.complete else np.zeros(len(node), dtype=np.bool_)
    settled[rows.positions] = True
    return SnapshotFacts(rows, settled, entries.low, entries.high)
