"""Facts about a node's objects, besides their keys, that commits store for lookups; each is true of an object id.

    sketch    in the node's list: which streams the object certainly does not hold (`bloom.StreamSketch`). Every process
              that commits an object has its stream ids: an upload the claimed ranges, a compaction and an import the
              index of the object. An undo opens the restored objects and makes their sketches again.
    ends      lower bounds of the ends of a node's open streams, from this process's sessions and from checkpoints

A sketch belongs to its object like the other columns of the list: object ids are never used twice. An object without a
sketch may hold any stream. Older releases without sketches drop all sketches of a list that they write; later commits
of newer releases add sketches again.

Facts save requests, and change no answer: an object that they exclude holds no offset of the stream.

**Ends.** An image contains only the start of an open stream's last range. So a lookup does not know whether the stream
is at the head, in the middle or at the tail of a list of thousands of objects. There are two sources of ends:

    a session of this process    the current end of each of its streams
    the checkpoint of a node     the ends as of one of its last commits (`session`, "Recovering the ends")

The checkpoint is one more key a node. Followers read it (`ObjectCatalog.images`), `refresh` does not: one GET a node
that has at least 64 objects when the follower starts, and again each time after the number of commits between two
checkpoints, 64 by default. So an idle follower sends no such request, and a follower of a node with one commit a second
sends one a minute. A checkpoint takes 7 bytes a stream of the node, and 16 in memory, which an accelerator counts with
its own memory (`stats().memory_bytes`) and which has a bound. If a checkpoint cannot be read, the next try is after the
same number of commits.

A known end is a lower bound: no commit and no undo lowers an end. A lookup uses the end only to choose the objects that
it opens first, so an outdated end costs requests and changes no answer.
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
from accel.settings import ENDS_SIZE_BYTES_MAX
from bloom import SketchColumns, StreamSketch
from loaders.lifetime import ProcessLock
from loaders.threads import map_bounded


def sketch_rows(objects: Iterable[tuple[int, StreamSketch | None]]) -> Rows:
    """SKETCH rows of (object id, sketch) pairs, ascending by id; pairs without a sketch are left out."""
    rows = sorted((object_id, *astuple(sketch)) for object_id, sketch in objects if sketch is not None)
    return np.array(rows, dtype=SKETCH)


def sketches_of(live: Rows, *sketches: Rows) -> Rows:
    """The sketches of live objects, ascending by object id; of several for one object, the first counts. O(n log n)."""
    rows = np.concatenate(sketches)
    rows = rows[np.isin(rows["object_id"], live["object_id"])]
    first_ones: Rows = rows[np.unique(rows["object_id"], return_index=True)[1]]
    return first_ones


def sketch_columns(rows: Rows) -> SketchColumns:
    """SKETCH rows as columns that answer queries."""
    return SketchColumns(*(np.ascontiguousarray(rows[name]) for name in ("form", "low", "rest")))


def sketch_of(node_list: NodeList, object_id: int) -> StreamSketch | None:
    """The sketch of an object in a list; None without a row, or with numbers that no sketch has (see `check_list`)."""
    at = int(np.searchsorted(node_list.sketches["object_id"], object_id))
    row = node_list.sketches[at : at + 1]
    if not len(row) or row["object_id"][0] != object_id or len(sketch_columns(row).wrong):
        return None
    _, *numbers = row[0].tolist()
    return StreamSketch(*numbers)


def hidden_streams(node_list: NodeList, object_id: int, stream_ids: NDArray[np.int64]) -> list[int]:
    """The streams of an object that its sketch excludes; empty if the sketch is true, or there is none.

    Args:
        node_list: the list.
        object_id: of a live object.
        stream_ids: all streams of the object, ascending.

    Complexity: O(streams), with a loop in Python only where the sketch differs from one that is built now.
    """
    listed = sketch_of(node_list, object_id)
    if listed is None or not len(stream_ids) or listed == StreamSketch.build(stream_ids):
        return []
    return [stream_id for stream_id in stream_ids.tolist() if listed.excludes(stream_id)]


class NodeFacts:
    """The facts about the objects of one list; an `accel.image.ObjectFacts`. Immutable: any thread may use it.

    Args:
        node_list: the list; positions are those of its live objects.
        end: stream id -> a lower bound of its end on this node; None where no end is known.
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
        """A lower bound of the stream's end on this node; None where no end is known. The bound may rise."""
        return None if self._end is None else self._end(stream_id)


OBJECTS_MIN = 64
"""The minimum length of lists whose checkpoints are read; shorter lists are searched in a few rounds anyway."""

logger = logging.getLogger(__name__)

End = Callable[[int], int | None]
"""Stream id -> its end; None if the end is not known."""


class KnownEnds:
    """The known ends of streams, for all nodes of a catalog. Threads: any; the ends of a node are replaced as a whole.

    Args:
        commits: number of commits after which a node's checkpoint is read again, at least 1.
        size_bytes_max: memory for the ends of checkpoints, 16 bytes a stream; above it, the checkpoints that were read
            first are dropped. A node whose checkpoint was dropped counts as a node without one until the next is read.
    """

    def __init__(self, commits: int, size_bytes_max: int = ENDS_SIZE_BYTES_MAX) -> None:
        self._commits = commits
        self._size_bytes_max = size_bytes_max
        self._lock = ProcessLock()
        self._sessions: dict[int, End] = {}
        self._checkpoints: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._due: dict[int, int] = {}

    def tell_session(self, node_id: int, end: End) -> None:
        """Add a session of this process that writes for the node; any thread may call `end` at any time."""
        self._sessions[node_id] = end

    def tell_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint that was read."""
        columns = (checkpoint.ends["stream_id"], checkpoint.ends["end"])
        ids, ends = map(np.ascontiguousarray, columns)
        with self._lock:
            self._checkpoints.pop(checkpoint.node_id, None)
            self._checkpoints[checkpoint.node_id] = (ids, ends)  # the checkpoint that was read last is the last entry
            while self.memory().nbytes > self._size_bytes_max:
                del self._checkpoints[next(iter(self._checkpoints))]

    def memory(self) -> MemoryUse:
        """The memory of the ends of checkpoints, and its bound. O(nodes)."""
        nbytes = sum(ids.nbytes + ends.nbytes for ids, ends in list(self._checkpoints.values()))
        return MemoryUse(nbytes, self._size_bytes_max)

    def end(self, node_id: int, stream_id: int) -> int | None:
        """A lower bound of a stream's end on a node; None if no end is known. O(log streams)."""
        session, checkpoint = self._sessions.get(node_id), self._checkpoints.get(node_id)
        ends = [None if session is None else session(stream_id)]
        if checkpoint is not None:
            ids, columns = checkpoint
            at = int(ids.searchsorted(stream_id))
            ends.append(int(columns[at]) if at < len(ids) and ids[at] == stream_id else None)
        return max((end for end in ends if end is not None), default=None)

    def catch_up(self, keys: CatalogKeys, executor: Executor, lists: Mapping[int, NodeList]) -> None:
        """Read the checkpoints of nodes that must have newer ones than are known. One GET each, in parallel."""
        due = [now for now in lists.values() if self._is_due(now)]
        for now, checkpoint in zip(due, map_bounded(executor, lambda now: _read(keys, now), due), strict=True):
            self._due[now.node_id] = now.next_order_id + self._commits
            if checkpoint is not None:
                self.tell_checkpoint(checkpoint)

    def _is_due(self, now: NodeList) -> bool:
        has_session = now.node_id in self._sessions
        return len(now.live) >= OBJECTS_MIN and not has_session and now.next_order_id >= self._due.get(now.node_id, 0)


def _read(keys: CatalogKeys, now: NodeList) -> Checkpoint | None:
    """The node's checkpoint; None if there is none, it cannot be read, or it covers more commits than this list."""
    try:
        seen = keys.checkpoint(now.node_id).read()
    except AccelError as error:
        logger.debug("node %d: no ends from its checkpoint: %s", now.node_id, error)
        return None
    return None if seen is None or seen.value.order_id >= now.next_order_id else seen.value
