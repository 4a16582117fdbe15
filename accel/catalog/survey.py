"""What maintenance compares: the whole catalog, read afresh, and all objects of the bucket.

    read_survey        every list and bucket of streams, each key read once
    list_objects       the ids, sizes and times of all objects that a listing of the bucket shows
    open_each          the index of each object, opened anew; nothing is taken from memory
    BulkScan           the last two, which take time: each object by itself, so a cluster can divide them. What follows
                       from a scan is decided in one place, by `verify` and `collect`

Lists are read before buckets: an object of one stream moves from a list to a bucket and stands in the bucket first, so
nothing that is listed is missed. To learn which objects nobody lists, go through the bucket before the catalog: what
was prepared, written and committed meanwhile is then listed for sure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import IMPORT_PROGRESS, NODE_LISTS, parse_node_key
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.records import NodeList, StreamShard
from accel.catalog.rows import Rows
from accel.errors import AccelError, CatalogDamaged, MaintenanceRefused
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.store import ObjectInfo
from loaders.tables.typed_key import TypedKey
from loaders.versions import Versioned
from range_index import ObjectRanges

T = TypeVar("T")
Ids = NDArray[np.int64]
Progress = Callable[[int], object]
"""Called with how many are done so far."""

_PAGE_KEYS = 1000
_OBJECT = np.dtype([("object_id", "<i8"), ("size_bytes", "<i8"), ("modified_ms", "<i8")])


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What the catalog says, each key read once. Threads: immutable.

    Args:
        lists: node id -> its list.
        buckets: all of them, by number.
    """

    lists: dict[int, Versioned[NodeList]]
    buckets: tuple[Versioned[StreamShard], ...]

    def kept_ids(self) -> Ids:
        """Ids of all that must not be deleted: live, prepared, waiting for a bucket, retired and not delete pending."""
        waiting = (rows["object_id"][rows["doomed"] == 0] for rows in self._retired())
        return joined_ids([self.live_ids(), *self._prepared(), *waiting])

    def live_ids(self) -> Ids:
        """Ids of all that readers may be told of, those that wait for a bucket among them."""
        lists = [seen.value for seen in self.lists.values()]
        live = [rows["object_id"] for node_list in lists for rows in (node_list.live, node_list.stream_objects)]
        return joined_ids([*live, *(seen.value.stream_objects["object_id"] for seen in self.buckets)])

    def listed_ids(self) -> Ids:
        """Ids of all that is or was live: all that is known but those that are only prepared."""
        return joined_ids([self.live_ids(), *(rows["object_id"] for rows in self._retired())])

    def delete_pending_ids(self) -> Ids:
        """Ids of all that is being deleted."""
        return joined_ids(rows["object_id"][rows["doomed"] != 0] for rows in self._retired())

    def known_ids(self) -> Ids:
        """Ids of all that stands anywhere in the catalog."""
        return joined_ids([self.listed_ids(), *self._prepared()])

    def _prepared(self) -> Iterator[Ids]:
        return (seen.value.prepared["object_id"] for seen in self.lists.values())

    def _retired(self) -> Iterator[Rows]:
        yield from (seen.value.retired for seen in self.lists.values())
        yield from (seen.value.retired for seen in self.buckets)


@dataclass(frozen=True, slots=True, eq=False)
class StoredObjects:
    """The objects that a listing of the bucket showed, ascending by id; other keys are left out.

    Args:
        ids: of the objects.
        sizes_bytes: of the same length.
        modified_ms: likewise, milliseconds since 1970, by the store's clock.
    """

    ids: Ids
    sizes_bytes: NDArray[np.int64]
    modified_ms: NDArray[np.int64]

    def size_bytes(self, object_id: int) -> int | None:
        """The size of an object; None if it does not lie there. O(log n)."""
        at = int(np.searchsorted(self.ids, object_id))
        return int(self.sizes_bytes[at]) if at < len(self.ids) and self.ids[at] == object_id else None

    def unknown_to(self, known: Ids) -> StoredObjects:
        """Those whose ids are not among these."""
        chosen = ~np.isin(self.ids, known)
        return StoredObjects(self.ids[chosen], self.sizes_bytes[chosen], self.modified_ms[chosen])


def joined_ids(parts: Iterable[Ids]) -> Ids:
    """All ids, ascending, each once."""
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


def read_survey(parts: CatalogParts) -> Survey:
    """Read all lists and all buckets. One request each, without a body where nothing changed, and one or two more.

    A list counts even if the directory does not name its node: the directory is written second.

    Raises:
        MaintenanceRefused: an import is under way.
        CatalogDamaged: a list or a bucket is not there.
        StoreError, TableError, CorruptObject, FormatTooNew: something could not be read.
    """
    refuse_during_import(parts)  # before anything else: what an import lists afterwards is then read as listed
    node_ids = list_node_ids(parts)
    lists = parts.executor.map(lambda node_id: must_read(parts.keys.node_list(node_id)), node_ids)
    by_node = dict(zip(node_ids, lists, strict=True))
    buckets = parts.executor.map(lambda number: must_read(parts.keys.shard(number)), range(parts.format.stream_buckets))
    return Survey(by_node, tuple(buckets))


def refuse_during_import(parts: CatalogParts) -> None:
    """Nothing may be taken for needless while an import is under way: it lists its objects last. One request.

    Raises:
        MaintenanceRefused: one is.
    """
    if parts.keys.tables.table_exists(IMPORT_PROGRESS):
        found = f"an import that is under way or was broken off (table {IMPORT_PROGRESS!r})"
        raise MaintenanceRefused(f"expected a catalog at rest, found {found}: repeat the import, or abandon it")


def list_node_ids(parts: CatalogParts) -> list[int]:
    """All nodes that the directory names or that have a list, ascending."""
    directory = must_read(parts.keys.directory()).value
    return sorted(set(listed_node_ids(parts)) | set(directory.node_ids.tolist()))


def listed_node_ids(parts: CatalogParts) -> Iterator[int]:
    """All nodes that have a list, ascending. One request for 1,000 of them."""
    keys = parts.keys.tables.table(NODE_LISTS).keys()
    return (node_id for node_id in map(parse_node_key, keys) if node_id is not None)


def must_read(key: TypedKey[T]) -> Versioned[T]:
    """What stands in a key.

    Raises:
        CatalogDamaged: nothing does.
    """
    seen = key.read()
    if seen is None:
        raise CatalogDamaged(f"expected a value in {key.where}, found none: it was deleted")
    return seen


def list_objects(parts: CatalogParts, progress: Progress | None = None, prefix: str = "") -> StoredObjects:
    """Go through the bucket, or its keys with a prefix. One request for 1,000 keys; 24 bytes of memory an object."""
    chunks = [np.empty(0, dtype=_OBJECT)]
    infos = parts.store.list(prefix)
    seen = 0
    while page := list(islice(infos, _PAGE_KEYS)):
        chunks.append(np.array(list(_objects_of(parts, page)), dtype=_OBJECT))
        seen += len(page)
        if progress is not None:
            progress(seen)
    return _stored(np.concatenate(chunks))


def joined_objects(parts: Iterable[StoredObjects]) -> StoredObjects:
    """Objects of several listings that share none."""
    chunks = [np.empty(0, dtype=_OBJECT)]
    for objects in parts:
        rows = np.empty(len(objects.ids), dtype=_OBJECT)
        rows["object_id"], rows["size_bytes"], rows["modified_ms"] = (
            objects.ids,
            objects.sizes_bytes,
            objects.modified_ms,
        )
        chunks.append(rows)
    return _stored(np.concatenate(chunks))


def _stored(rows: NDArray[np.void]) -> StoredObjects:
    rows = np.sort(rows, order="object_id")
    return StoredObjects(rows["object_id"], rows["size_bytes"], rows["modified_ms"])


def _objects_of(parts: CatalogParts, page: Iterable[ObjectInfo]) -> Iterator[tuple[int, int, int]]:
    for info in page:
        object_id = parts.layout.parse_object_key(info.key)
        if object_id is not None:
            yield object_id, info.size_bytes, int(info.modified_seconds * 1000)


@dataclass(frozen=True, slots=True, eq=False)
class ExistingObject:
    """An object that is there and can be opened. Picklable, and small: 20 bytes a stream.

    Args:
        ranges: what it holds.
        index_size_bytes: of its block index; -1 for a composite object, which has none of its own.
    """

    ranges: ObjectRanges
    index_size_bytes: int

    @classmethod
    def of(cls, opened: OpenedObject) -> ExistingObject:
        """What matters of an opened object."""
        return cls(opened.ranges, -1 if opened.composite is not None else opened.index.nbytes)


ScannedObject = tuple[ObjectRef, ExistingObject | AccelError]
"""What was said of an object, and what was found: its error, if it cannot be opened."""


class BulkScan:
    """Goes through the bucket and opens all objects, with threads of this process; a subclass may use a cluster."""

    def list_objects(self, parts: CatalogParts, progress: Progress | None = None) -> StoredObjects:
        """All objects of the bucket; one request for 1,000 keys.

        Raises:
            AccelError: a part of the bucket could not be listed.
        """
        return list_objects(parts, progress)

    def open_objects(self, parts: CatalogParts, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[ScannedObject]:
        """Open indexes of (node id, object) pairs, and give what was found in this order; one ranged GET an object."""
        return (scanned(ref, opened) for ref, opened in open_each(parts, wanted))


def scanned(ref: ObjectRef, opened: OpenedObject | AccelError) -> ScannedObject:
    """What was found of an object, in the small form."""
    return ref, ExistingObject.of(opened) if isinstance(opened, OpenedObject) else opened
