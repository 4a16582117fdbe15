"""Writes filter packs, whole or as a new generation beside an older one.

    root = write_pack(store, namespace=..., node_id=7, generation=g, added=((ref, filter), ...))
    root = write_pack(..., generation=g2, added=newer, previous=root, dropped=ids)      writes only what is added

A generation costs the data objects of what it adds and two puts of the root; the filters that stay are not touched.
Two things make it copy everything into new data objects instead: more than half of their bytes are those of objects
dropped since; or there are more data objects than 8, and than the filters would need anew plus 4. So a node of 5,000
objects of 9,000 streams, 60 MB, is loaded by at most 8 reads of data objects, whatever has happened to it.

Memory holds one data object, of at most 16 MiB, and while everything is copied another one that is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from bloom import ERROR_RATE, StreamFilter
from loaders.hints.pack_reader import load_pack
from loaders.hints.pack_root import PACK_ENTRY, PackPart, PackRoot, make_pack_root
from loaders.hints.root_bytes import swap_root
from loaders.layout import HintKind, hint_file_key
from loaders.object_ref import ObjectRef

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loaders.store.base import ObjectStore

PART_SIZE_BYTES_MAX = 16 << 20
PARTS_FREE = 8
"""Up to so many data objects are never copied for their number."""

PARTS_EXTRA_MAX = 4

FilterEntry = tuple[ObjectRef, StreamFilter]
"""An object, and the filter that was built for it."""


def write_pack(  # noqa: PLR0913 - what is there, what comes, what goes, and where
    store: ObjectStore,
    *,
    namespace: str,
    node_id: int,
    generation: int,
    added: Iterable[FilterEntry],
    previous: PackRoot | None = None,
    dropped: Collection[int] = (),
    attempt: str = "0",
    part_size_bytes_max: int = PART_SIZE_BYTES_MAX,
) -> PackRoot:
    """Write a generation of a node's pack and make it the node's root.

    Complexity: O(added) bytes written, or all of them when everything is copied; one put a data object and two.

    Args:
        store: where to.
        namespace: of the cluster's objects.
        node_id: whose pack.
        generation: higher than that of ``previous`` (`next_generation`).
        added: objects with their filters; taken one by one. One that the previous generation has is replaced.
        previous: the generation before; None to write a whole pack.
        dropped: ids of objects of the previous generation that are listed no more.
        attempt: part of the data objects' names; no two that write one generation of a node may use the same.
        part_size_bytes_max: of a data object, 16 MiB by default; at least one filter fits in any case.

    Raises:
        ValueError: an object twice among the added, or of unknown size; a filter that is not made for 1 %; a generation
            that is not higher.
        StoreError: nothing was changed, unless the root was just being swapped.
    """
    if previous is not None and generation <= previous.generation:
        raise ValueError(f"expected a generation above {previous.generation}, found {generation}")
    parts = _PartWriter(store, node_id, generation, attempt, part_size_bytes_max)
    for ref, stream_filter in added:
        parts.add(ref.object_id, ref.size_bytes, stream_filter)
    parts.flush()
    root = _merged(namespace, node_id, generation, parts, previous, dropped)
    if previous is not None and is_worn(root, part_size_bytes_max):
        root = _copied(store, root, previous, parts)
    swap_root(store, HintKind.PACKS, node_id, generation, root.encode())
    return root


def is_worn(root: PackRoot, part_size_bytes_max: int = PART_SIZE_BYTES_MAX) -> bool:
    """Whether a pack is to be copied into new data objects: half of it dead, or too many of them. O(entries)."""
    needed = -(-root.live_size_bytes // part_size_bytes_max)
    many = len(root.parts) > max(PARTS_FREE, needed + PARTS_EXTRA_MAX)
    return many or root.dead_size_bytes > root.live_size_bytes


class _PartWriter:
    """Puts filters end to end into data objects. One thread at a time."""

    def __init__(
        self, store: ObjectStore, node_id: int, generation: int, attempt: str, part_size_bytes_max: int
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._generation = generation
        self._attempt = attempt
        self._part_size_bytes_max = part_size_bytes_max
        self._pending = bytearray()
        self._rows: list[tuple[int, ...]] = []
        self._object_ids: set[int] = set()
        self.parts: list[PackPart] = []

    def add(self, object_id: int, size_bytes: int, stream_filter: StreamFilter) -> None:
        if object_id in self._object_ids:
            raise ValueError(f"expected one filter for object {object_id}, found two")
        if object_id < 0 or size_bytes < 0:
            raise ValueError(f"expected an object of known id and size, found {object_id} of {size_bytes} bytes")
        if stream_filter.geometry.error_rate != ERROR_RATE:
            raise ValueError(f"expected a filter for {ERROR_RATE:.0%}, found {stream_filter.geometry.error_rate}")
        self._object_ids.add(object_id)
        stored = stream_filter.to_bytes()
        if self._pending and len(self._pending) + len(stored) > self._part_size_bytes_max:
            self.flush()
        place = len(self.parts), len(self._pending), len(stored), zlib.crc32(stored), stream_filter.geometry.capacity
        self._rows.append((object_id, size_bytes, *place))
        self._pending += stored

    def flush(self) -> None:
        """Write what is pending as a data object."""
        if not self._pending:
            return
        name = f"filters-{self._attempt}-{len(self.parts):05d}"
        self._store.put(hint_file_key(HintKind.PACKS, self._node_id, self._generation, name), self._pending)
        self.parts.append(PackPart(self._generation, name, len(self._pending)))
        self._pending = bytearray()

    @property
    def entries(self) -> NDArray[np.void]:
        return np.array(self._rows, dtype=PACK_ENTRY)


def _merged(
    namespace: str,
    node_id: int,
    generation: int,
    written: _PartWriter,
    previous: PackRoot | None,
    dropped: Collection[int],
) -> PackRoot:
    added = written.entries
    if previous is None:
        return make_pack_root(namespace, node_id, generation, written.parts, added)
    old_ids = previous.entries["object_id"]
    gone = np.isin(old_ids, np.fromiter(dropped, np.int64, len(dropped))) | np.isin(old_ids, added["object_id"])
    added["part"] += len(previous.parts)
    entries = np.concatenate([previous.entries[~gone], added])
    return make_pack_root(namespace, node_id, generation, [*previous.parts, *written.parts], entries)


def _copied(store: ObjectStore, root: PackRoot, previous: PackRoot, parts: _PartWriter) -> PackRoot:
    """The same pack in data objects of its own; filters of earlier generations that are bad by now are left out.

    What this generation has written just now stays where it lies.
    """
    fresh = {number for number, part in enumerate(root.parts) if part.generation == root.generation}
    old = root.entries[~np.isin(root.entries["part"], list(fresh))]
    sizes = dict(zip(old["object_id"].tolist(), old["size_bytes"].tolist(), strict=True))
    for object_id, stream_filter in _kept_filters(store, previous, old):
        if object_id in sizes:
            parts.add(object_id, sizes[object_id], stream_filter)
    parts.flush()
    return make_pack_root(root.namespace, root.node_id, root.generation, parts.parts, parts.entries)


def _kept_filters(store: ObjectStore, previous: PackRoot, old: NDArray[np.void]) -> Iterator[tuple[int, StreamFilter]]:
    return load_pack(store, previous, old["object_id"], old["size_bytes"])
