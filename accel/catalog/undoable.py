"""Which commits of a node's list can still be undone, and how a reader notices that one has been."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import NodeList, StreamBucket
from accel.catalog.rows import NO_COMMIT, Rows, starts_of


def undoable_commits(now: NodeList) -> NDArray[np.int64]:
    """The numbers of commits whose sources are retired and not doomed: an undo can bring these back.

    Once a commit is not among them any more, it never is again.
    """
    commits = now.retired["retired_by"][now.retired["doomed"] == 0]
    found: NDArray[np.int64] = np.unique(commits[commits != NO_COMMIT])
    return found


def is_led_back(lists: Mapping[int, NodeList], bucket: StreamBucket) -> bool:
    """Whether an undo has reached a bucket and is not to be seen in the lists yet: they were read too early.

    Then an object of one stream is retired in the bucket, although the commit that made it stands in its list and can
    be undone. Trimming retires objects, too, but those end at their stream's start; and a merge does not touch what an
    undo may take away (`merging`).

    Args:
        lists: node id -> list, as they were read before the bucket.
        bucket: a bucket.

    Complexity: O(n log n) in the retired rows of the bucket and the lists; without such rows O(1).
    """
    rows = bucket.retired
    if not len(rows):
        return False
    rows = rows[(rows["added_by"] != NO_COMMIT) & (rows["end"] > starts_of(bucket.streams, rows["stream_id"]))]
    return any(_stands(lists[node_id], rows) for node_id in np.unique(rows["node_id"]).tolist() if node_id in lists)


def _stands(now: NodeList, rows: Rows) -> bool:
    commits = rows["added_by"][rows["node_id"] == now.node_id]
    return bool(np.isin(commits, undoable_commits(now)).any())
