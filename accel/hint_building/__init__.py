"""Building hints: filter packs and index snapshots of a catalog's nodes, in one pass over the new objects.

The catalog is Accel's own, or an image of a controller's metadata (`accel.catalog.from_image.ImageCatalog`).

    plan = plan_hints(catalog, HintChoice())          finds what is missing; a dry run ends here
    report = build_hints(catalog, plan)               opens each new object once, and writes a generation a node

Entries and filters of objects that are still listed are copied from the previous generation, so a run after 50 uploads
opens 50 objects. The work of one node is independent (`plan_node_hints`, `build_node_hints`): Spark runs it in tasks.
"""

from __future__ import annotations

from accel.hint_building.building import (
    FailedObject,
    HintChoice,
    HintPlan,
    HintReport,
    ListedNode,
    NodePlan,
    NodeReport,
    build_hints,
    build_node_hints,
    listed_nodes,
    nodes_to_plan,
    opened_catalog,
    plan_hints,
    plan_node_hints,
)
from accel.hint_building.filters import Depth, FilterNeeds, NodeFilters
from accel.hint_building.snapshots import NodeSnapshot, SnapshotNeeds

__all__ = [
    "Depth",
    "FailedObject",
    "FilterNeeds",
    "HintChoice",
    "HintPlan",
    "HintReport",
    "ListedNode",
    "NodeFilters",
    "NodePlan",
    "NodeReport",
    "NodeSnapshot",
    "SnapshotNeeds",
    "build_hints",
    "build_node_hints",
    "listed_nodes",
    "nodes_to_plan",
    "opened_catalog",
    "plan_hints",
    "plan_node_hints",
]
