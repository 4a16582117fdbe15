"""Retired rows on their way out, in a node's list as in a bucket of streams: first doomed, then forgotten.

A doomed row is one that the collector is about to delete the object of: no undo brings it back any more.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from accel.catalog.rows import Rows, some
from accel.errors import CommitRefused


def doomed(retired: Rows, retired_before_ms: int) -> tuple[Rows | None, NDArray[np.int64]]:
    """Doom what was retired before a time.

    Args:
        retired: rows with `retired_at_ms` and `doomed`.
        retired_before_ms: what was retired at that very time is spared.

    Returns:
        The rows with the marks (None: all that is old enough has them), and the ids of all doomed objects, those of
        earlier rounds among them.
    """
    is_doomed = retired["doomed"] != 0
    fresh = ~is_doomed & (retired["retired_at_ms"] < retired_before_ms)
    ids: NDArray[np.int64] = retired["object_id"][is_doomed | fresh]
    if not fresh.any():
        return None, ids
    marked = retired.copy()
    marked["doomed"][fresh] = 1
    return marked, ids


def without_deleted(
    retired: Rows, live_ids: NDArray[np.int64], object_ids: Iterable[int] | NDArray[np.int64], where: str
) -> Rows | None:
    """Forget doomed objects that are deleted. Ids that do not stand there any more count as done; None if all do.

    Args:
        retired: rows with `doomed`.
        live_ids: of what is live in the same place.
        object_ids: of what was deleted.
        where: the list or bucket, for the error's sake.

    Raises:
        CommitRefused: an id that is not doomed.
    """
    ids = np.fromiter(object_ids, dtype=np.int64)
    gone = np.isin(retired["object_id"], ids)
    spared = retired["object_id"][gone & (retired["doomed"] == 0)]
    spared = np.concatenate((spared, ids[np.isin(ids, live_ids)]))
    if len(spared):
        raise CommitRefused(f"{where}: expected deleted objects to be doomed before, found {some(spared)} that are not")
    return retired[~gone] if gone.any() else None
