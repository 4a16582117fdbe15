"""The objects that a catalog lists, as one array.

    node_id  object_id  order_id  kind  stream_id  start_offset  end_offset  sizes, attributes, time
    4        0          0         set   -1         -1            -1          ...
    4        17         -1        one   420000     0             900         ...

An object of one stream has no order id, and the catalog contains its range; the ranges of an object of many streams are
only in the object's index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import Rows
from accel.catalog.refresh import CatalogState
from loaders.object_ref import ObjectRef

NOTHING: Final = -1
"""The value of a column that does not apply to an object."""

STREAM_SET, STREAM = 0, 1

LISTED: Final = np.dtype(
    [
        (name, "<i8")
        for name in (
            "node_id",
            "object_id",
            "order_id",
            "kind",
            "stream_id",
            "start_offset",
            "end_offset",
            "size_bytes",
            "index_size_bytes",
            "attributes",
            "tail_checksum",
            "data_time_ms",
        )
    ]
)
"""One listed object."""

_FACTS = ("object_id", "size_bytes", "index_size_bytes", "attributes", "tail_checksum", "data_time_ms")
"""The columns that the catalog has for objects of both kinds."""

Listed: TypeAlias = NDArray[np.void]


def listed_objects(state: CatalogState) -> Listed:
    """All live objects of a catalog, ascending by node, kind, and order or stream and offset. No loop over objects."""
    lists = state.node_lists()
    sets = [_sets(node_id, node_list.live) for node_id, node_list in sorted(lists.items())]
    waiting = [node_list.stream_objects for node_list in lists.values()]
    ones = [_ones(rows) for rows in (*(seen.value.stream_objects for seen in state.shards), *waiting)]
    listed = np.concatenate([np.empty(0, dtype=LISTED), *sets, _each_once(ones)])
    ordered: Listed = listed[np.lexsort([listed[name] for name in ("start_offset", "order_id", "kind", "node_id")])]
    return ordered


def chosen_columns(listed: Listed, names: Sequence[str]) -> Mapping[str, NDArray[np.int64]]:
    """Some columns by name, to apply bounds to."""
    return {name: listed[name] for name in names}


def ref_of(row: np.void) -> ObjectRef:
    """The object of a row, in the form for loaders."""
    facts = int(row["attributes"]), int(row["tail_checksum"])
    return ObjectRef(int(row["object_id"]), int(row["size_bytes"]), int(row["index_size_bytes"]), *facts)


def _sets(node_id: int, live: Rows) -> Listed:
    rows = np.full(len(live), NOTHING, dtype=LISTED)
    for name in _FACTS:
        rows[name] = live[name]
    rows["order_id"] = live["order_id"]
    rows["node_id"], rows["kind"] = node_id, STREAM_SET
    return rows


def _ones(stream_objects: Rows) -> Listed:
    rows = np.full(len(stream_objects), NOTHING, dtype=LISTED)
    for name in ("node_id", "stream_id", *_FACTS):
        rows[name] = stream_objects[name]
    rows["kind"], rows["start_offset"], rows["end_offset"] = STREAM, stream_objects["start"], stream_objects["end"]
    return rows


def _each_once(parts: Sequence[Listed]) -> Listed:
    """Each object once: an object that is being moved from a list to its stream shard is in both for a while."""
    rows = np.concatenate([np.empty(0, dtype=LISTED), *parts])
    _, first = np.unique(rows["object_id"], return_index=True)
    once: Listed = rows[first]
    return once
