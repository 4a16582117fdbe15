"""Metadata that is kept elsewhere, for what works on a catalog: where its objects lie, and its lists as rows.

    with ForeignCatalog(store, image) as foreign:
        plan = plan_hints(foreign, HintChoice())

A controller's image says what a catalog's lists say of objects: ids, order ids, sizes. Jobs that only read objects and
write hints need no more. Nothing here reads or writes a table, and nothing deletes an object.

Hints speak of objects by id and size, so an image for them has the size of each object, as AutoMQ's metadata does.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np

from accel.catalog.parts import CatalogSettings
from accel.catalog.records import LIVE, Rows
from accel.errors import MaintenanceRefused
from accel.image import MetadataImage, NodeImage
from accel.system import SYSTEM, Components
from loaders.layout import ObjectLayout
from loaders.lifetime import Threads
from loaders.object_ref import UNKNOWN
from loaders.store import ObjectStore

_NO_TIMES: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ForeignAccess:
    """An `accel.catalog.parts.ObjectAccess` without a catalog. Threads: any.

    Args:
        store: where the objects lie.
        layout: keys of objects.
        executor: sends requests of one step side by side.
        settings: how many requests may be under way.
        system: clock, sleep and chance.
    """

    store: ObjectStore
    layout: ObjectLayout
    executor: Executor
    settings: CatalogSettings
    system: Components


class ForeignCatalog:
    """An image from elsewhere, with threads to read its objects; close it, or use it as a context manager.

    Args:
        store: where the objects lie.
        image: the metadata; None = nodes are given by those who have them, as to a task.
        namespace: of the objects, where there is no image.
        system: clock, sleep and chance.

    Threads: any, but for `close`.
    """

    def __init__(
        self,
        store: ObjectStore,
        image: MetadataImage | None = None,
        *,
        namespace: str = "",
        system: Components = SYSTEM,
    ) -> None:
        self._nodes = {} if image is None else image.nodes
        settings = CatalogSettings()
        self._executor = Threads(settings.parallel_requests, "accel-foreign")
        layout = ObjectLayout(namespace=namespace if image is None else image.namespace)
        self.parts = ForeignAccess(store, layout, self._executor, settings, system)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; blocks until the requests that are under way have ended."""
        self._executor.shutdown()

    def live_rows(self) -> dict[int, Rows]:
        """Node id -> LIVE rows of its list.

        Raises:
            MaintenanceRefused: the image does not have the size of each object.
        """
        return {node_id: live_rows_of(node) for node_id, node in self._nodes.items()}


def live_rows_of(node: NodeImage, data_times_ms: Mapping[int, int] = _NO_TIMES) -> Rows:
    """LIVE rows of a node's list in an image.

    Args:
        node: the list.
        data_times_ms: object id -> milliseconds since 1970 of its oldest data; 0 where it is not there.

    Raises:
        MaintenanceRefused: the size of an object is not known.
    """
    if len(unknown := node.object_ids[node.sizes_bytes == UNKNOWN]):
        raise MaintenanceRefused(
            f"node {node.node_id}: expected the size of each object in the image, found none for {len(unknown)} of "
            f"{len(node)}, object {int(unknown[0])} among them"
        )
    rows = np.zeros(len(node), dtype=LIVE)
    rows["object_id"], rows["order_id"], rows["last_order_id"] = node.object_ids, node.order_ids, node.order_ids
    rows["size_bytes"], rows["index_size_bytes"] = node.sizes_bytes, node.index_sizes_bytes
    rows["attributes"], rows["tail_checksum"] = node.attributes, node.tail_checksums
    rows["data_time_ms"] = [data_times_ms.get(object_id, 0) for object_id in node.object_ids.tolist()]
    return rows
