"""The nodes whose hints are built, their listed objects, and opening these objects.

An object is opened by one request. An object that cannot be opened is reported and left out; others are not affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel.catalog import ObjectCatalog
from accel.catalog.foreign import ForeignCatalog
from accel.catalog.parts import ObjectAccess, Opened, open_each
from accel.catalog.records import Rows
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
    lists = _live_rows(catalog)
    unknown = sorted((nodes or frozenset()) - lists.keys())
    if unknown:
        known = ", ".join(map(str, sorted(lists))) or "none"
        raise ValueError(f"expected nodes of this catalog ({known}), found {', '.join(map(str, unknown))}")
    return {node_id: lists[node_id] for node_id in sorted(lists if nodes is None else nodes)}


def opened_catalog(store: ObjectStore, image: MetadataImage | None) -> ObjectCatalog | ForeignCatalog:
    """The stored catalog, or an image from elsewhere in its place; the caller closes it.

    Raises:
        CatalogMissing, StoreError: there is no image, and the catalog cannot be read now.
    """
    return ObjectCatalog.open(store) if image is None else ForeignCatalog(store, image)


def _live_rows(catalog: ObjectCatalog | ForeignCatalog) -> dict[int, Rows]:
    if isinstance(catalog, ForeignCatalog):
        return catalog.live_rows()
    return {node_id: node_list.live for node_id, node_list in catalog.refresh_state().node_lists().items()}


@dataclass(frozen=True, slots=True)
class FailedObject:
    """An object that could not be opened, and why."""

    node_id: int
    object_id: int
    reason: str

    @classmethod
    def of(cls, node_id: int, ref: ObjectRef, error: AccelError) -> FailedObject:
        """A failure from an exception."""
        return cls(node_id, ref.object_id, f"{type(error).__name__}: {error}"[:REASON_SIZE_MAX])


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
