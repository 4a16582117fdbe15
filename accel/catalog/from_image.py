"""Metadata that is kept outside a catalog, in the form that jobs on a catalog need: access to objects, lists as rows.

    with ImageCatalog(store, image) as foreign:
        plan = plan_hints(foreign, HintChoice())

A controller's image contains the same facts about objects as a catalog's lists: ids, order ids, sizes. Jobs that only
read objects and write hints need no more. This module neither reads nor writes tables, and deletes no object.

Hints identify objects by id and size, so the image must have the size of each object, as AutoMQ's metadata has.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from accel.catalog.records import LIVE, Rows
from accel.errors import MaintenanceRefused
from accel.image import MetadataImage, NodeImage
from accel.settings import CatalogSettings
from accel.system import SYSTEM, Components
from loaders.layout import ObjectLayout
from loaders.lifetime import Closing
from loaders.object_ref import UNKNOWN
from loaders.store import ObjectStore
from loaders.threads import Threads

_NO_TIMES: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ImageAccess:
    """An `accel.catalog.parts.ObjectAccess` without a catalog. Threads: any.

    Args:
        store: the store of the objects.
        layout: the keys of objects.
        executor: sends the requests of one step in parallel.
        settings: settings with the maximum number of simultaneous requests.
        system: clock, sleep and random source.
    """

    store: ObjectStore
    layout: ObjectLayout
    executor: Executor
    settings: CatalogSettings
    system: Components


class ImageCatalog(Closing):
    """An image from elsewhere, with threads to read its objects; close it, or use it as a context manager.

    Args:
        store: the store of the objects.
        image: the metadata; None = callers pass nodes themselves, as in a task of a job.
        namespace: of the objects, if there is no image.
        system: clock, sleep and random source.

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
        self.parts = ImageAccess(store, layout, self._executor, settings, system)

    def _end_block(self, _: BaseException | None) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; blocks until running requests have ended."""
        self._executor.shutdown()

    def live_rows(self) -> dict[int, Rows]:
        """The LIVE rows of each node's list: node id -> rows.

        Raises:
            MaintenanceRefused: the image does not have the size of each object.
        """
        return {node_id: live_rows_of(node) for node_id, node in self._nodes.items()}


def live_rows_of(node: NodeImage, data_times_ms: Mapping[int, int] = _NO_TIMES) -> Rows:
    """LIVE rows of a node's list in an image.

    Args:
        node: the list.
        data_times_ms: object id -> milliseconds since 1970 of its oldest data; 0 for other objects.

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
