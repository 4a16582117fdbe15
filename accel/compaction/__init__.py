"""Compaction by object count: many small objects of a node are merged into few; their contents stay the same.

`plan_compaction` finds the neighbours to merge, `compact` merges them, both in one process; an engine with several
processes runs `plan_node` and `work_on` there.
"""

from __future__ import annotations

from accel.compaction.attempts import GroupItem, GroupResult, Status, TimeSlot, work_on
from accel.compaction.plan import CompactionPlan, FailedNode, Group, NodeLeftAlone, NodePlan, Skipped, assemble_plan
from accel.compaction.planning import CatalogSurvey, NodeSurvey, plan_compaction, plan_node, survey_catalog
from accel.compaction.running import CompactionReport, RunItems, compact
from accel.compaction.settings import CompactionSettings
from accel.compaction.slices import Done, compact_slices

__all__ = [
    "CatalogSurvey",
    "CompactionPlan",
    "CompactionReport",
    "CompactionSettings",
    "Done",
    "FailedNode",
    "Group",
    "GroupItem",
    "GroupResult",
    "NodeLeftAlone",
    "NodePlan",
    "NodeSurvey",
    "RunItems",
    "Skipped",
    "Status",
    "TimeSlot",
    "assemble_plan",
    "compact",
    "compact_slices",
    "plan_compaction",
    "plan_node",
    "survey_catalog",
    "work_on",
]
