"""The versions of a node's list that are kept, each an immutable key of its own.

One is written before each commit that takes objects out of the list, and one before each undo. `compact` writes and
erases them; `undo` leads back to them; and `moving` finds in them the objects of one stream that an undo took out of
the list before they had reached their buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accel.catalog import places
from accel.catalog.parts import MILLISECONDS, CatalogParts
from accel.catalog.records import ListVersion
from accel.catalog.rows import STREAM_OBJECT, Rows, no_rows
from loaders.layout import TABLES_PREFIX
from loaders.store import ObjectInfo
from loaders.tables.names import encode_prefix, table_folder


@dataclass(frozen=True, slots=True, eq=False)
class KeptList:
    """A version, and when it was kept: just before it was replaced, by the store's clock, milliseconds since 1970."""

    version: ListVersion
    kept_at_ms: int


def kept_lists(parts: CatalogParts, node_id: int) -> list[KeptList]:
    """The versions of a node's list, oldest first. One listing, and a request each unless the cache has it.

    Raises:
        StoreError, CorruptObject, FormatTooNew: they could not be read.
    """
    found = []
    for info, place in _listed(parts, places.list_version_prefix(node_id)):
        seen = None if place is None else parts.cells.list_version(*place).read()
        if seen is not None:  # one may be erased meanwhile
            found.append(KeptList(seen.value, int(info.modified_seconds * MILLISECONDS)))
    return found


def kept_places(parts: CatalogParts) -> Iterator[tuple[int, int]]:
    """(node, sequence) of all versions that are kept, even without the table's marker. One request for 1,000."""
    return (place for _, place in _listed(parts, "") if place is not None)


def _listed(parts: CatalogParts, prefix: str) -> Iterator[tuple[ObjectInfo, tuple[int, int] | None]]:
    folder = table_folder(TABLES_PREFIX, places.NODE_LIST_HISTORY)
    for info in parts.store.list(folder + encode_prefix(prefix)):
        yield info, places.parse_list_version_key(info.key.removeprefix(folder))


def waited_for(kept: list[KeptList], commits: tuple[int, ...]) -> Rows:
    """STREAM_OBJECT rows of these commits that stood in any of the versions, each once, in no order."""
    found = np.concatenate([no_rows(STREAM_OBJECT), *(each.version.node_list.stream_objects for each in kept)])
    found = found[np.isin(found["added_by"], np.array(commits, dtype=np.int64))]
    rows: Rows = found[np.unique(found["object_id"], return_index=True)[1]]
    return rows
