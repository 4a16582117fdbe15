"""Which objects of one stream may be merged: those that no undo can take away any more.

A compaction can be undone as long as the objects that it replaced exist. Then these come back, and the objects of one
stream that it had made go. If one of them had been merged with others meanwhile, it could not go, and its offsets would
be found twice for ever: in the merged object and in what came back. So what a compaction made is left alone until the
collector has doomed its sources, which says for good that nobody undoes it. What uploads made may be merged at once:
uploads are never undone.
"""

from __future__ import annotations

import numpy as np

from accel.catalog.moving import read_list
from accel.catalog.parts import CatalogParts
from accel.catalog.rows import Rows, some
from accel.catalog.undoable import undoable_commits
from accel.errors import CommitRefused


def refuse_undoable(parts: CatalogParts, rows: Rows) -> None:
    """Refuse to merge what an undo may yet take away.

    Args:
        parts: of the catalog.
        rows: STREAM_OBJECT rows as their bucket has them. It was read before: an undo that comes between takes them out
            of the bucket, and whoever writes that loses its race.

    Requests: one a node whose commits made them.

    Raises:
        CommitRefused: the compaction that made one of them can still be undone, or was.
        CatalogMissing: the list of a node is not there.
    """
    for node_id in np.unique(rows["node_id"]).tolist():
        now = read_list(parts.cells.node_list(node_id), node_id).value
        mine = rows[rows["node_id"] == node_id]
        undone = np.array(now.withdrawn_commits, dtype=np.int64)
        wrong = mine[np.isin(mine["added_by"], np.concatenate((undoable_commits(now), undone)))]
        if len(wrong):
            raise CommitRefused(
                f"stream {wrong['stream_id'][0]}: expected objects to merge that no undo takes away, found "
                f"{some(wrong['object_id'])} of node {node_id}, made by a compaction whose sources are still there"
            )
