"""The nodes whose hints are built, and their objects: which are listed, and what opening them gives.

An object is opened by one request, and one that cannot be opened costs only itself: it is told, and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel.catalog import ObjectCatalog
from accel.catalog.parts import CatalogParts, Opened, open_each
from accel.catalog.records import Rows
from accel.errors import AccelError
from loaders.object_ref import ObjectRef

REASON_SIZE_MAX = 2_000
"""Characters of a failure that are kept."""


def listed_nodes(catalog: ObjectCatalog, nodes: frozenset[int] | None = None) -> dict[int, Rows]:
    """Node id -> LIVE rows of its list, ascending. Requests: a refresh.

    Args:
        catalog: whose nodes.
        nodes: only these; all by default.

    Raises:
        ValueError: a node that the catalog does not have.
        StoreError: the catalog cannot be read now.
    """
    lists = catalog.refresh_state().node_lists()
    unknown = sorted((nodes or frozenset()) - lists.keys())
    if unknown:
        known = ", ".join(map(str, sorted(lists))) or "none"
        raise ValueError(f"expected nodes of this catalog ({known}), found {', '.join(map(str, unknown))}")
    return {node_id: lists[node_id].live for node_id in sorted(lists if nodes is None else nodes)}


@dataclass(frozen=True, slots=True)
class FailedObject:
    """An object that could not be opened, and why."""

    node_id: int
    object_id: int
    reason: str

    @classmethod
    def of(cls, node_id: int, ref: ObjectRef, error: AccelError) -> FailedObject:
        """From what was raised."""
        return cls(node_id, ref.object_id, f"{type(error).__name__}: {error}"[:REASON_SIZE_MAX])


def open_patiently(parts: CatalogParts, node_id: int, refs: Iterable[ObjectRef]) -> Iterator[Opened]:
    """Open objects; those that failed for a reason that may pass are opened once more in the end.

    One ranged GET an object; an object that cannot be opened is given as its error. In order but for the repeated ones.
    """
    again = []
    for ref, opened in open_each(parts, ((node_id, ref) for ref in refs)):
        if isinstance(opened, AccelError) and opened.retryable:
            again.append(ref)
        else:
            yield ref, opened
    yield from open_each(parts, ((node_id, ref) for ref in again))
