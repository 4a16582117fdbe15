"""What commits tell lookups of a node's objects, beside where they lie: facts, each true of an object by its id.

    sketch    in the node's list: which streams the object certainly does not hold (`bloom.StreamSketch`). A reader that
              commits an object has its ids in hand: an upload the ranges that it claims, a compaction and an import the
              index of the object. An undo opens what comes back, and sketches it anew.
    ends      where an open stream ends on the node at least, from this process's own session and from checkpoints

A sketch is bound to its object as the list is: object ids are never used twice, and the row of the list that has
the id has the size. Where a sketch is missing the object may hold any stream. Releases that do not know sketches leave
all of them out of a list that they write; those of later commits are written again.

Facts save requests, and change no answer: what they exclude holds nothing of the stream.

**Ends.** An image says of an open stream only where its last range begins. A lookup then cannot tell whether
it lies at the head, in the middle or at the tail of a list of thousands of objects. Two know better:

    a session of this process    the end of each of its streams, now
    the checkpoint of a node     the ends as of one of its last commits (`session`, "Recovering the ends")

The checkpoint is one more key a node. It is read by followers (`ObjectCatalog.images`), and not by `refresh`: one GET a
node that has at least 64 objects when the following begins, and again once the node has made enough commits that it
must have written a newer one, 64 by default. So an idle follower sends none, and one that sees a commit a second sends
one a minute and node. It takes 7 bytes a stream of the node, and 16 in memory, which an accelerator counts with its own
(`stats().memory_bytes`) and which has a bound. One that cannot be read is left alone until then.

An end that is known here is a lower bound: no commit and no undo takes offsets away from an end. A lookup uses it to
choose what it opens first, and for nothing else, so that one that is out of date costs requests and changes no answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import CatalogKeys
from accel.catalog.records import SKETCH, Checkpoint, NodeList, Rows, positions_of
from accel.errors import AccelError
from accel.image_source import MemoryUse
from bloom import SketchColumns, StreamSketch
from loaders.lifetime import ProcessLock
from loaders.parallel import map_bounded
from loaders.settings import MIB


def sketch_rows(objects: Iterable[tuple[int, StreamSketch | None]]) -> Rows:
    """SKETCH rows of (object id, sketch) pairs, ascending by id; without those that have none."""
    rows = sorted((object_id, *astuple(sketch)) for object_id, sketch in objects if sketch is not None)
    return np.array(rows, dtype=SKETCH)


def sketches_of(live: Rows, *sketches: Rows) -> Rows:
    """The sketches of what is live, each once, ascending by object id; the first one counts. O(n log n)."""
    rows = np.concatenate(sketches)
    rows = rows[np.isin(rows["object_id"], live["object_id"])]
    first_ones: Rows = rows[np.unique(rows["object_id"], return_index=True)[1]]
    return first_ones


def sketch_columns(rows: Rows) -> SketchColumns:
    """SKETCH rows, ready to be asked."""
    return SketchColumns(*(np.ascontiguousarray(rows[name]) for name in ("form", "low", "rest")))


def hidden_streams(node_list: NodeList, object_id: int, stream_ids: NDArray[np.int64]) -> list[int]:
    """Which of the streams that an object holds its sketch excludes; none if the sketch is true, or there is none.

    Args:
        node_list: the list.
        object_id: of a live object.
        stream_ids: all streams that it holds, ascending.

    Complexity: O(streams), with a loop in Python only where the sketch is another one than would be built now.
    """
    at = int(np.searchsorted(node_list.sketches["object_id"], object_id))
    row = node_list.sketches[at : at + 1]
    sketch = sketch_columns(row[row["object_id"] == object_id])
    # A row with numbers that no sketch has excludes nothing, and is found where the list is looked at by itself.
    if not len(sketch) or len(sketch.wrong) or not len(stream_ids):
        return []
    _, *numbers = row[0].tolist()
    listed = StreamSketch(*numbers)
    if listed == StreamSketch.build(stream_ids):
        return []
    return [stream_id for stream_id in stream_ids.tolist() if listed.excludes(stream_id)]


class NodeFacts:
    """What is known of the objects of one list; an `accel.image.ObjectFacts`. Immutable: any thread may use it.

    Args:
        node_list: the list; positions are those of its live objects.
        end: stream id -> a lower bound of where it ends on this node; None where nothing is known.
    """

    def __init__(self, node_list: NodeList, end: Callable[[int], int | None] | None = None) -> None:
        self._end = end
        positions = positions_of(node_list.live["object_id"], node_list.sketches["object_id"])
        self._positions: NDArray[np.int64] = positions[positions >= 0]
        self._count = len(node_list.live)
        self._sketches = sketch_columns(node_list.sketches[positions >= 0])

    def excludes(self, stream_id: int) -> NDArray[np.bool_] | None:
        """By position, whether the object provably lacks the stream; None where no object has a sketch. O(objects)."""
        if not len(self._positions):
            return None
        excluded = np.zeros(self._count, dtype=np.bool_)
        excluded[self._positions] = self._sketches.excludes(stream_id)
        return excluded

    def end_of(self, stream_id: int) -> int | None:
        """A lower bound of where the stream ends on this node; None where nothing is known. It may rise."""
        return None if self._end is None else self._end(stream_id)


OBJECTS_MIN = 64
"""Shorter lists are searched in a few rounds, wherever one begins."""

ENDS_SIZE_BYTES_MAX = 64 * MIB
"""Ends of 4,000,000 streams."""

logger = logging.getLogger(__name__)

End = Callable[[int], int | None]
"""Stream id -> where it ends; None if that is not known."""


class KnownEnds:
    """What is known of ends, for all nodes of a catalog. Threads: any; what is known of a node is swapped as a whole.

    Args:
        commits: number of commits after which a node's checkpoint is read again, at least 1.
        size_bytes_max: of the ends of checkpoints, 16 bytes a stream; beyond it those that were read first go. A node
            whose ends went is searched as one without a checkpoint, until its next one is read.
    """

    def __init__(self, commits: int, size_bytes_max: int = ENDS_SIZE_BYTES_MAX) -> None:
        self._commits = commits
        self._size_bytes_max = size_bytes_max
        self._lock = ProcessLock()
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
        with self._lock:
            self._checkpoints.pop(checkpoint.node_id, None)
            self._checkpoints[checkpoint.node_id] = (ids, ends)  # the one that was read last stands last
            while self.memory().nbytes > self._size_bytes_max:
                del self._checkpoints[next(iter(self._checkpoints))]

    def memory(self) -> MemoryUse:
        """What the ends of checkpoints take, and may take. O(nodes)."""
        nbytes = sum(ids.nbytes + ends.nbytes for ids, ends in list(self._checkpoints.values()))
        return MemoryUse(nbytes, self._size_bytes_max)

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
