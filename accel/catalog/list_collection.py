"""What leaves a node's list: expired promises, retired objects, stream objects that have moved to their buckets.

A collector deletes in two steps, so that nothing can be listed again while it is being deleted:

    retired ---- with_doomed ----> doomed ---- the objects are deleted ----> without_collected
    promised --- without_expired -> (not in the list) --- the objects are deleted

Doomed rows stay until their objects are gone: a collector that dies is followed by one that finds them again. Rules
that find nothing to do give None instead of a list. All of them are O(n log n) in the rows of the list, without a loop
over rows in Python; times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accel.catalog.dooming import doomed, without_deleted
from accel.catalog.records import NodeList


def without_expired(now: NodeList, now_ms: int) -> tuple[NodeList | None, NDArray[np.int64]]:
    """Take ids out of the promises whose deadline has come; from then on nobody can commit them.

    Args:
        now: the list.
        now_ms: the time; a deadline that equals it has come.

    Returns:
        The list without them (None: there are none), and these ids.
    """
    expired = now.prepared["deadline_ms"] <= now_ms
    ids: NDArray[np.int64] = now.prepared["object_id"][expired]
    return (replace(now, prepared=now.prepared[~expired]) if len(ids) else None), ids


def without_prepared(now: NodeList, object_ids: Iterable[int] | NDArray[np.int64]) -> NodeList | None:
    """Take ids out of the promises before their time: their writer gives them back, unused.

    Ids that are not promised are left as they are; None if none of them is.
    """
    given_back = np.isin(now.prepared["object_id"], np.fromiter(object_ids, dtype=np.int64))
    return replace(now, prepared=now.prepared[~given_back]) if given_back.any() else None


def with_doomed(now: NodeList, retired_before_ms: int) -> tuple[NodeList | None, NDArray[np.int64]]:
    """Doom what was retired before a time: from then on it cannot come back.

    Args:
        now: the list.
        retired_before_ms: what was retired at that very time is spared. The format record's `retired_seconds` ago.

    Returns:
        The list with the marks (None: all that is old enough has them), and the ids of all doomed objects, those of
        earlier rounds among them.
    """
    retired, ids = doomed(now.retired, retired_before_ms)
    return (None if retired is None else replace(now, retired=retired)), ids


def without_collected(now: NodeList, object_ids: Iterable[int] | NDArray[np.int64]) -> NodeList | None:
    """Forget doomed objects that are deleted. Ids that are not listed any more count as done; None if all do.

    Raises:
        CommitRefused: an id that is not doomed.
    """
    retired = without_deleted(now.retired, now.live["object_id"], object_ids, f"list of node {now.node_id}")
    return None if retired is None else replace(now, retired=retired)


def without_stream_objects(now: NodeList, object_ids: Iterable[int] | NDArray[np.int64]) -> NodeList | None:
    """Forget stream objects that lie in their buckets now; None if the list has none of these ids."""
    moved = np.isin(now.stream_objects["object_id"], np.fromiter(object_ids, dtype=np.int64))
    return replace(now, stream_objects=now.stream_objects[~moved]) if moved.any() else None


def without_withdrawn(now: NodeList, commits: Iterable[int]) -> NodeList | None:
    """Forget undone commits whose stream objects have been withdrawn from all buckets; None if there are none."""
    done = set(commits)
    left = tuple(commit for commit in now.withdrawn_commits if commit not in done)
    return replace(now, withdrawn_commits=left) if left != now.withdrawn_commits else None
