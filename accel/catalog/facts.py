"""What commits tell lookups of a node's objects, beside where they lie: facts, each true of an object by its id.

    sketch    in the node's list: which streams the object certainly does not hold (`bloom.StreamSketch`). Whoever
              commits an object has its ids in hand: an upload the ranges that it claims, a compaction and an import the
              index of the object. An undo opens what comes back, and sketches it anew.
    ends      where an open stream ends on the node at least, from this process's own session and from checkpoints: see
              `ends`

A sketch is bound to its object as the list is: object ids are never given out twice, and the row of the list that has
the id has the size. Where a sketch is missing the object may hold any stream. Releases that do not know sketches leave
all of them out of a list that they write; those of later commits are written again.

Facts save requests, and change no answer: what they exclude holds nothing of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import SKETCH, NodeList, Rows, positions_of
from bloom import SketchColumns, StreamSketch


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
