"""Objects of one stream move from a node's list, where they were committed, to the buckets of their streams.

They enter through the list so that one conditional write commits all of an upload or a compaction, and so that a writer
which was fenced cannot bring any. They do not stay there, because a list is read and written often and must be small.
Each step may be repeated, by this process or another one:

    1. what undone commits had made is retired in the buckets, be it there already or still on its way
    2. a bucket is read, then the list; rows that the list still has are added to the bucket
    3. when all buckets have theirs, the list forgets these rows

A slow mover cannot bring back what was moved, replaced and deleted meanwhile: whoever moved it wrote the bucket after
it was read here, so the write of step 2 loses its race, and the list, read again, has nothing to move any more. The
same holds for what an undo took out of the list before it had moved: step 1 finds these rows in the version of the list
that the undo kept, and writes them into their buckets as retired, whether anybody brings them there or not; only then
does the list forget that their commits were undone.

Readers see an object twice for a while, in the list and in the bucket, and never not at all, because they read lists
first.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from accel.catalog import list_rules, stream_rules
from accel.catalog.buckets import buckets_of
from accel.catalog.cell import Cell, Seen, standing
from accel.catalog.list_history import kept_lists, waited_for
from accel.catalog.parts import CatalogParts
from accel.catalog.records import NodeList, StreamBucket
from accel.errors import CatalogMissing


def move_stream_objects(parts: CatalogParts, node_id: int) -> Seen[NodeList]:
    """Move all that waits in a node's list; gives the list as it is then.

    Requests: one for the list; if something waits, three a bucket that is touched and one or two for the list; after an
    undo that was not finished one or two a bucket, and one a version of the list that is kept.

    Raises:
        CatalogMissing: the node has no list.
        StoreError, TableError: it stopped half-way; repeating it is safe.
    """
    cell = parts.cells.node_list(node_id)
    seen = read_list(cell, node_id)
    if seen.value.withdrawn_commits:
        seen = _withdraw(parts, cell, seen)
    waiting = seen.value.stream_objects
    if len(waiting):
        numbers = np.unique(buckets_of(waiting["stream_id"], parts.format.stream_buckets)).tolist()
        list(parts.executor.map(partial(_move_into, parts, cell, node_id), numbers))
        ids = waiting["object_id"]
        seen = cell.change(lambda now: list_rules.without_stream_objects(standing(now, cell.where), ids), seen=seen)
    return seen


def read_list(cell: Cell[NodeList], node_id: int) -> Seen[NodeList]:
    """A list that must exist.

    Raises:
        CatalogMissing: it does not.
    """
    seen = cell.read()
    if seen is None:
        raise CatalogMissing(f"expected a list of node {node_id}, found none: the node was never opened")
    return seen


def _move_into(parts: CatalogParts, cell: Cell[NodeList], node_id: int, number: int) -> None:
    bucket = parts.cells.bucket(number)

    def change(found: StreamBucket | None) -> StreamBucket | None:
        waiting = read_list(cell, node_id).value.stream_objects  # after the bucket was read: see the module
        here = buckets_of(waiting["stream_id"], parts.format.stream_buckets) == number
        return stream_rules.with_stream_objects(standing(found, bucket.where), waiting[here], parts.now_ms())

    bucket.change(change)


def _withdraw(parts: CatalogParts, cell: Cell[NodeList], seen: Seen[NodeList]) -> Seen[NodeList]:
    """Retire in all buckets what undone commits had made, so that none of it lies there or comes there as live."""
    node_id, commits = seen.value.node_id, seen.value.withdrawn_commits
    waited = waited_for(kept_lists(parts, node_id), commits)
    numbers = buckets_of(waited["stream_id"], parts.format.stream_buckets)

    def change(number: int) -> None:
        key = parts.cells.bucket(number)

        def rule(found: StreamBucket | None) -> StreamBucket | None:
            bucket, now_ms = standing(found, key.where), parts.now_ms()
            barred = stream_rules.with_withdrawn(bucket, waited[numbers == number], now_ms)
            return stream_rules.without_commits(barred or bucket, node_id, commits, now_ms) or barred

        key.change(rule)

    list(parts.executor.map(change, range(parts.format.stream_buckets)))
    return cell.change(lambda now: list_rules.without_withdrawn(standing(now, cell.where), commits), seen=seen)
