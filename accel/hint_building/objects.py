"""The nodes whose hints are built, their listed objects, and opening these objects.

An object is opened by one request. An object that cannot be opened is reported and left out; others are not affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog import ObjectCatalog
from accel.catalog.bad_objects import BadObject, Cause, cause_of, objects_left_alone
from accel.catalog.foreign import ForeignCatalog
from accel.catalog.parts import ObjectAccess, Opened, open_each
from accel.catalog.records import NodeList, Rows
from accel.errors import AccelError
from accel.image import MetadataImage
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore

REASON_SIZE_MAX = 2_000
"""Maximum characters of a failure's text."""


def listed_nodes(catalog: ObjectCatalog | ForeignCatalog, nodes: frozenset[int] | None = None) -> dict[int, Rows]:
    """Node id -> LIVE rows of its list, ascending. Requests: a refresh; none of an image from elsewhere.

    Args:
        catalog: of the nodes.
        nodes: only these; all by default.

    Raises:
        ValueError: a node that the catalog does not have.
        StoreError: the catalog cannot be read now.
        MaintenanceRefused: an image from elsewhere does not have the size of each object.
    """
    return {node_id: listed.live for node_id, listed in _chosen(catalog, nodes).items()}


class _Listed(NamedTuple):
    live: Rows
    node_list: NodeList | None


def _chosen(catalog: ObjectCatalog | ForeignCatalog, nodes: frozenset[int] | None) -> dict[int, _Listed]:
    lists = _lists(catalog)
    unknown = sorted((nodes or frozenset()) - lists.keys())
    if unknown:
        known = ", ".join(map(str, sorted(lists))) or "none"
        raise ValueError(f"expected nodes of this catalog ({known}), found {', '.join(map(str, unknown))}")
    return {node_id: lists[node_id] for node_id in sorted(lists if nodes is None else nodes)}


@dataclass(frozen=True, slots=True, eq=False)
class ListedNode:
    """A node whose hints are planned. Picklable.

    Args:
        node_id: the node.
        live: LIVE rows of its list.
        set_aside: ids of the objects that earlier runs could not open.
        left_alone: those of them that have not changed since; they are opened for no hint.
    """

    node_id: int
    live: Rows
    set_aside: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    left_alone: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def nodes_to_plan(catalog: ObjectCatalog | ForeignCatalog, nodes: frozenset[int] | None = None) -> list[ListedNode]:
    """The nodes of `listed_nodes`, with the objects that were set aside; a request of one byte for each of these.

    Raises:
        Errors of `listed_nodes`.
    """
    found = []
    for node_id, (live, node_list) in _chosen(catalog, nodes).items():
        if isinstance(catalog, ForeignCatalog) or node_list is None:
            found.append(ListedNode(node_id, live))
        else:
            rows = node_list.set_aside
            rows = rows[rows["cause"] != Cause.BLOCK]  # its index can be read
            left_alone = objects_left_alone(catalog.parts, replace(node_list, set_aside=rows))
            found.append(ListedNode(node_id, live, rows["object_id"], left_alone))
    return found


def opened_catalog(store: ObjectStore, image: MetadataImage | None) -> ObjectCatalog | ForeignCatalog:
    """The stored catalog, or an image from elsewhere in its place; the caller closes it.

    Raises:
        CatalogMissing, StoreError: there is no image, and the catalog cannot be read now.
    """
    return ObjectCatalog.open(store) if image is None else ForeignCatalog(store, image)


def _lists(catalog: ObjectCatalog | ForeignCatalog) -> dict[int, _Listed]:
    if isinstance(catalog, ForeignCatalog):
        return {node_id: _Listed(live, None) for node_id, live in catalog.live_rows().items()}
    lists = catalog.refresh_state().node_lists()
    return {node_id: _Listed(node_list.live, node_list) for node_id, node_list in lists.items()}


@dataclass(frozen=True, slots=True)
class FailedObject:
    """An object that could not be opened, and why; `bad` is None if the fault is that of the store."""

    node_id: int
    object_id: int
    reason: str
    bad: BadObject | None = None

    @classmethod
    def of(cls, node_id: int, ref: ObjectRef, error: AccelError) -> FailedObject:
        """A failure from an exception."""
        reason = f"{type(error).__name__}: {error}"[:REASON_SIZE_MAX]
        cause = cause_of(error)
        bad = None if cause is None else BadObject.of(node_id, ref, cause, error)
        return cls(node_id, ref.object_id, reason, bad)


def open_patiently(parts: ObjectAccess, node_id: int, refs: Iterable[ObjectRef]) -> Iterator[Opened]:
    """Open objects; after a temporary failure, an object is opened once more at the end.

    One ranged GET an object; for an object that cannot be opened, its error is yielded. In order, except for retries.
    """
    again = []
    for ref, opened in open_each(parts, ((node_id, ref) for ref in refs)):
        if isinstance(opened, AccelError) and opened.retryable:
            again.append(ref)
        else:
            yield ref, opened
    yield from open_each(parts, ((node_id, ref) for ref in again))
