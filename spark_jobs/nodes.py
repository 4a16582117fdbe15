"""Which nodes a job is about, and what they list."""

from __future__ import annotations

from accel.catalog import ObjectCatalog
from accel.catalog.rows import Rows


def listed_nodes(catalog: ObjectCatalog, nodes: frozenset[int] | None = None) -> dict[int, Rows]:
    """Node id -> LIVE rows of its list, ascending. Requests: a refresh.

    Args:
        catalog: whose nodes.
        nodes: only these; all by default.

    Raises:
        ValueError: a node that the catalog does not have.
        StoreError: the catalog cannot be read now.
    """
    lists = catalog.refresh_snapshot().node_lists()
    unknown = sorted((nodes or frozenset()) - lists.keys())
    if unknown:
        known = ", ".join(map(str, sorted(lists))) or "none"
        raise ValueError(f"expected nodes of this catalog ({known}), found {', '.join(map(str, unknown))}")
    return {node_id: lists[node_id].live for node_id in sorted(lists if nodes is None else nodes)}
