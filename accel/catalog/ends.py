"""Where open streams end, as far as this process knows without asking anybody for it: a lookup's first guess.

An image says of an open stream only where its last range begins. Whoever looks for an offset then cannot tell whether
it lies at the head, in the middle or at the tail of a list of thousands of objects. Two know better:

    a session of this process    the end of each of its streams, now
    the checkpoint of a node     the ends as of one of its last commits (`session`, "Recovering the ends")

The checkpoint is one more key a node. It is read by followers (`ObjectCatalog.images`), and not by `refresh`: one GET a
node that has at least 64 objects when the following begins, and again when the node has made so many commits that it
must have written a newer one, 64 by default. So an idle follower sends none, and one that sees a commit a second sends
one a minute and node. It takes 7 bytes a stream of the node. One that cannot be read is left alone until then.

An end that is known here is a lower bound: no commit and no undo takes offsets away from an end. A lookup uses it to
choose what it opens first, and for nothing else, so that one that is out of date costs requests and changes no answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import CatalogKeys
from accel.catalog.records import Checkpoint, NodeList
from accel.errors import AccelError
from loaders.parallel import map_bounded

OBJECTS_MIN = 64
"""Shorter lists are searched in a few rounds, wherever one begins."""

logger = logging.getLogger(__name__)

End = Callable[[int], int | None]
"""Stream id -> where it ends; None if that is not known."""


class KnownEnds:
    """What is known of ends, for all nodes of a catalog. Threads: any; what is known of a node is swapped as a whole.

    Args:
        commits: so many commits after a look at its checkpoint a node has another one, at least 1.
    """

    def __init__(self, commits: int) -> None:
        self._commits = commits
        self._sessions: dict[int, End] = {}
        self._checkpoints: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._due: dict[int, int] = {}

    def tell_session(self, node_id: int, end: End) -> None:
        """A session of this process writes for the node; `end` is asked by any thread, at any time."""
        self._sessions[node_id] = end

    def tell_checkpoint(self, checkpoint: Checkpoint) -> None:
        """A checkpoint was read."""
        columns = (checkpoint.ends["stream_id"], checkpoint.ends["end"])
        ids, ends = map(np.ascontiguousarray, columns)
        self._checkpoints[checkpoint.node_id] = (ids, ends)

    def end(self, node_id: int, stream_id: int) -> int | None:
        """A lower bound of where a stream ends on a node; None if nothing is known. O(log streams)."""
        session, checkpoint = self._sessions.get(node_id), self._checkpoints.get(node_id)
        ends = [None if session is None else session(stream_id)]
        if checkpoint is not None:
            ids, columns = checkpoint
            at = int(ids.searchsorted(stream_id))
            ends.append(int(columns[at]) if at < len(ids) and ids[at] == stream_id else None)
        return max((end for end in ends if end is not None), default=None)

    def catch_up(self, keys: CatalogKeys, executor: Executor, lists: Mapping[int, NodeList]) -> None:
        """Read the checkpoints of nodes that must have newer ones than are known. One GET each, side by side."""
        due = [now for now in lists.values() if self._is_due(now)]
        for now, checkpoint in zip(due, map_bounded(executor, lambda now: _read(keys, now), due), strict=True):
            self._due[now.node_id] = now.next_order_id + self._commits
            if checkpoint is not None:
                self.tell_checkpoint(checkpoint)

    def _is_due(self, now: NodeList) -> bool:
        has_session = now.node_id in self._sessions
        return len(now.live) >= OBJECTS_MIN and not has_session and now.next_order_id >= self._due.get(now.node_id, 0)


def _read(keys: CatalogKeys, now: NodeList) -> Checkpoint | None:
    """The node's checkpoint, if there is one that can be read and is of this list."""
    try:
        seen = keys.checkpoint(now.node_id).read()
    except AccelError as error:
        logger.debug("node %d: no ends from its checkpoint: %s", now.node_id, error)
        return None
    return None if seen is None or seen.value.order_id >= now.next_order_id else seen.value
