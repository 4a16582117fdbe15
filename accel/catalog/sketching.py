"""Sketching the objects of a list anew: those that have no sketch, and those whose sketch hides a stream.

An object has no sketch if its commit did not say what it holds, or if a release wrote the list that does not know
sketches. Then lookups open it to learn that it lacks their stream. A sketch that excludes a stream that its object
holds is damage (`verify` finds it): lookups do not find that stream's data there.

    1. the list is read, and all its live objects are opened
    2. one conditional write of the list, rebased on a lost race: sketches of objects that are live then are set

A sketch that is as true as a new one stays. Repeating it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.facts import hidden_streams, sketch_columns, sketch_rows
from accel.catalog.keys import require
from accel.catalog.node_list import with_sketches
from accel.catalog.parts import CatalogParts
from accel.catalog.records import SKETCH, NodeList, Rows, no_rows, refs_of
from accel.catalog.shard_writes import read_list
from bloom import StreamSketch


@dataclass(frozen=True, slots=True)
class SketchReport:
    """What was sketched, or would be.

    Args:
        node_id: whose list.
        objects: how many live objects it has; all of them were opened.
        missing: ids of those that had no sketch.
        wrong: ids of those whose sketch excluded a stream that they hold, or had numbers that no sketch has.
    """

    node_id: int
    objects: int
    missing: tuple[int, ...]
    wrong: tuple[int, ...]


def sketch_list(catalog: ObjectCatalog, node_id: int, *, is_dry_run: bool = False) -> SketchReport:
    """Give each live object of a node a true sketch.

    Requests: one for the list, one an object (two if its index is large), and one conditional write if there is
    anything to write.

    Args:
        catalog: whose list.
        node_id: the node.
        is_dry_run: only tell.

    Raises:
        CatalogMissing: the node has no list.
        StoreError, CorruptObject, KeyMissing: an object could not be opened. Nothing was written.
        AmbiguousWrite, DataConflict: it may have been written; repeat it.
    """
    parts = catalog.parts
    key = parts.keys.node_list(node_id)
    seen = read_list(key, node_id)
    due = list(_due(parts, seen.value))
    sketches = np.concatenate([no_rows(SKETCH), *(row for _, row, _ in due)])
    missing = tuple(object_id for object_id, _, is_missing in due if is_missing)
    wrong = tuple(object_id for object_id, _, is_missing in due if not is_missing)
    if len(sketches) and not is_dry_run:
        key.change(lambda now: with_sketches(require(now, key.where), sketches), seen=seen)
    return SketchReport(node_id, len(seen.value.live), missing, wrong)


def _due(parts: CatalogParts, node_list: NodeList) -> Iterator[tuple[int, Rows, bool]]:
    """Object id, its new row, and whether it had none, of objects that want a sketch."""
    ids = node_list.sketches["object_id"]
    known, impossible = set(ids.tolist()), set(ids[sketch_columns(node_list.sketches).wrong].tolist())
    for opened in parts.open_all(node_list.node_id, refs_of(node_list.live)):
        object_id, stream_ids = opened.ref.object_id, opened.ranges.stream_ids
        is_missing = object_id not in known
        is_due = is_missing or object_id in impossible or hidden_streams(node_list, object_id, stream_ids)
        if is_due and len(stream_ids):
            yield object_id, sketch_rows([(object_id, StreamSketch.build(stream_ids))]), is_missing
