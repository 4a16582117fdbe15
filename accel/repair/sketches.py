"""Makes the missing and the wrong sketches of a list's objects again.

An object has no sketch if its commit did not contain its streams, or if an older release without sketches wrote the
list. Then lookups open the object to find out that it lacks their stream. A sketch that excludes a stream of its object
is damage (`verify` finds it): lookups do not find that stream's data in the object.

    1. the list is read, and all its live objects are opened
    2. one conditional write of the list, rebased after a lost race: sketches of objects that are live then are set

A true sketch stays. A repetition changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.keys import require
from accel.catalog.node_list import with_sketches
from accel.catalog.parts import CatalogParts
from accel.catalog.records import SKETCH, NodeList, Rows, no_rows, refs_of
from accel.catalog.shard_writes import read_list
from accel.catalog.sketches_and_ends import hidden_streams, sketch_columns, sketch_rows
from bloom import StreamSketch


@dataclass(frozen=True, slots=True)
class SketchReport:
    """The objects whose sketches were made, or would be.

    Args:
        node_id: the node of the list.
        objects: the number of live objects in the list; all of them were opened.
        missing: ids of the objects that had no sketch.
        wrong: ids of the objects whose sketch excluded a stream that they hold, or had numbers that no sketch has.
    """

    node_id: int
    objects: int
    missing: tuple[int, ...]
    wrong: tuple[int, ...]


def sketch_list(catalog: ObjectCatalog, node_id: int, *, is_dry_run: bool = False) -> SketchReport:
    """Set a true sketch for each live object of a node.

    Requests: one for the list, one an object (two if its index is large), and one conditional write if a sketch
    changed.

    Args:
        catalog: the catalog of the list.
        node_id: the node.
        is_dry_run: only report, write nothing.

    Raises:
        CatalogMissing: the node has no list.
        StoreError, CorruptObject, KeyMissing: an object could not be opened. Nothing was written.
        AmbiguousWrite, DataConflict: the list may have been written; repeat the call.
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
    """Objects that need a new sketch: (object id, its new row, whether it had no row)."""
    ids = node_list.sketches["object_id"]
    known, impossible = set(ids.tolist()), set(ids[sketch_columns(node_list.sketches).wrong].tolist())
    for opened in parts.open_all(node_list.node_id, refs_of(node_list.live)):
        object_id, stream_ids = opened.ref.object_id, opened.ranges.stream_ids
        is_missing = object_id not in known
        is_due = is_missing or object_id in impossible or hidden_streams(node_list, object_id, stream_ids)
        if is_due and len(stream_ids):
            yield object_id, sketch_rows([(object_id, StreamSketch.build(stream_ids))]), is_missing
