"""The plan of a compaction: groups of neighbours, and the result of each.

A plan is data. A dry run prints `to_dict()` of the same object that a run carries out. The plan is based on lists and
indexes at one time; a group whose sources are gone by now fails without affecting the others. So an old plan can be
carried out, also repeatedly: finished groups are recognised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from accel.catalog.bad_objects import BadObject
from accel.compaction.settings import CompactionSettings
from accel.errors import MaintenanceRefused
from accel.units import count_text
from loaders.lifetime import Lazy
from loaders.object_ref import ObjectRef


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Neighbours in a node's list that are merged and replaced by their outputs, in one commit.

    The object of many streams takes their place in the list: their lowest order id, and the time of their oldest data.

    Args:
        node_id: the node of the list.
        position: of the first source, when the plan was made.
        sources: in list order, with their sizes.
        trimmed_ids: streams of these sources whose first kept offset is above 0, ascending; lower offsets are dropped.
        trimmed_starts: these offsets.
        streams: the number of distinct streams of the sources.
        set_objects: outputs with many streams: 1, or 0 if all streams get their own objects.
        stream_objects: outputs with one stream.
        output_bytes: of all outputs. If the store copies the data itself, rows are not coalesced, and the index of the
            object is larger by the rows that coalescing would have saved.
        dropped_bytes: of the sources' blocks that are below first kept offsets, and of their rows.
    """

    node_id: int
    position: int
    sources: tuple[ObjectRef, ...]
    trimmed_ids: NDArray[np.int64]
    trimmed_starts: NDArray[np.int64]
    streams: int
    set_objects: int
    stream_objects: int
    output_bytes: int
    dropped_bytes: int

    @property
    def name(self) -> str:
        """A short name, the same in every run of the plan."""
        return f"node {self.node_id}, objects {self.sources[0].object_id} to {self.sources[-1].object_id}"

    @property
    def source_bytes(self) -> int:
        """Bytes of the sources, whether they remain or not."""
        return sum(ref.size_bytes for ref in self.sources)

    @property
    def remaining_bytes(self) -> int:
        """Bytes of the sources without those that are dropped: at most so many are written."""
        return self.source_bytes - self.dropped_bytes

    @property
    def removed_objects(self) -> int:
        """The number of objects that the group removes; outputs with one stream count."""
        return len(self.sources) - self.set_objects - self.stream_objects

    @property
    def bytes_per_removed_object(self) -> float:
        """The cost, of the bytes that remain: groups are carried out in this order, and the last are left out first."""
        return self.remaining_bytes / max(1, self.removed_objects)

    def beside(self, object_id: int) -> list[Group]:
        """Groups of the sources before and after one of them, if these are two or more; their outputs are guesses."""
        at = [ref.object_id for ref in self.sources].index(object_id)
        runs = [(0, at), (at + 1, len(self.sources))]
        return [
            replace(
                self,
                position=self.position + first,
                sources=self.sources[first:end],
                output_bytes=self.output_bytes * (end - first) // len(self.sources),
                dropped_bytes=self.dropped_bytes * (end - first) // len(self.sources),
            )
            for first, end in runs
            if end - first > 1
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        return {
            "node_id": self.node_id,
            "position": self.position,
            "sources": [ref.object_id for ref in self.sources],
            "source_bytes": self.source_bytes,
            "streams": self.streams,
            "set_objects": self.set_objects,
            "stream_objects": self.stream_objects,
            "output_bytes": self.output_bytes,
            "dropped_bytes": self.dropped_bytes,
            "trimmed_streams": len(self.trimmed_ids),
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """Objects that could have been compacted, and the reason why they are not.

    Args:
        node_id: the node of the list.
        object_ids: the objects.
        reason: the reason.
    """

    node_id: int
    object_ids: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NodeLeftAlone:
    """A node that is left alone.

    Args:
        node_id: the node.
        objects: in its list now.
        reason: the reason.
    """

    node_id: int
    objects: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailedNode:
    """A node that could not be planned; the others are.

    Args:
        node_id: the node.
        objects: in its list now.
        reason: the error.
    """

    node_id: int
    objects: int
    reason: str

    @classmethod
    def of(cls, node_id: int, objects: int, error: Exception) -> FailedNode:
        """From the error that ended its planning."""
        return cls(node_id, objects, f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True, eq=False)
class NodePlan:
    """The plan for one node's list.

    Args:
        node_id: the node.
        objects: in its list now.
        target_objects: the number to reach.
        groups: ascending by position.
        skipped: objects that are left alone although merging them could have helped.
        bad: those of them that could not be read; `compact` remembers them.
        read_ids: the objects that could be read.
        dead: objects of which nothing is needed any more, with their sizes; they are retired without a merge.
        reason: why it keeps more objects than `target_objects`, or why nothing is done to it; else empty.
    """

    node_id: int
    objects: int
    target_objects: int
    groups: tuple[Group, ...]
    skipped: tuple[Skipped, ...]
    bad: tuple[BadObject, ...] = ()
    read_ids: tuple[int, ...] = ()
    dead: tuple[ObjectRef, ...] = ()
    reason: str = ""

    @property
    def objects_after(self) -> int:
        """Objects in its list afterwards, without objects of one stream, which are not in the list."""
        return self.objects - len(self.dead) - sum(len(group.sources) - group.set_objects for group in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        return {
            "node_id": self.node_id,
            "objects": self.objects,
            "target_objects": self.target_objects,
            "objects_after": self.objects_after,
            "groups": len(self.groups),
            "stream_objects": sum(group.stream_objects for group in self.groups),
            "dead_objects": len(self.dead),
            "reason": self.reason,
        }


@dataclass(frozen=True, eq=False)
class CompactionPlan:
    """The plan of one run. Threads: immutable; picklable.

    Args:
        planned_at_ms: when it was made, milliseconds since 1970.
        settings: the settings that it was made with.
        nodes: those with too many objects, ascending.
        left_alone: the other nodes, ascending.
        failed: nodes that could not be planned, ascending.
    """

    planned_at_ms: int
    settings: CompactionSettings
    nodes: tuple[NodePlan, ...]
    left_alone: tuple[NodeLeftAlone, ...] = ()
    failed: tuple[FailedNode, ...] = ()

    @Lazy
    def groups(self) -> tuple[Group, ...]:
        """All groups, those with the lowest cost per removed object first."""
        return tuple(sorted((group for node in self.nodes for group in node.groups), key=_cost))

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Objects that are left alone although merging them could have helped."""
        return tuple(skipped for node in self.nodes for skipped in node.skipped)

    @property
    def dead(self) -> tuple[ObjectRef, ...]:
        """Objects of which nothing is needed any more; they are retired without a merge."""
        return tuple(ref for node in self.nodes for ref in node.dead)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nodes keep more objects than their target, or are left alone; one sentence a node."""
        planned = [(node.node_id, node.objects, node.reason) for node in self.nodes if node.reason]
        left_alone = [(other.node_id, other.objects, other.reason) for other in self.left_alone]
        found = sorted(planned + left_alone)
        return tuple(f"node {node_id}, {count_text(objects, 'object')}: {reason}" for node_id, objects, reason in found)

    @property
    def stream_objects(self) -> int:
        """Objects of one stream that the run will create."""
        return sum(group.stream_objects for group in self.groups)

    @property
    def source_bytes(self) -> int:
        """Bytes that the run will rewrite."""
        return sum(group.source_bytes for group in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what a dry run prints."""
        return {
            "planned_at_ms": self.planned_at_ms,
            "settings": self.settings.to_dict(),
            "nodes": [node.to_dict() for node in self.nodes],
            "groups": [group.to_dict() for group in self.groups],
            "skipped": msgspec.to_builtins(self.skipped),
            "left_alone": msgspec.to_builtins(self.left_alone),
            "failed": msgspec.to_builtins(self.failed),
            "bad_objects": [bad.to_dict() for node in self.nodes for bad in node.bad],
            "reasons": list(self.reasons),
            "dead_objects": len(self.dead),
            "dead_bytes": sum(ref.size_bytes for ref in self.dead),
            "rewritten_objects": sum(len(group.sources) for group in self.groups),
            "rewritten_bytes": self.source_bytes,
            "added_objects": sum(group.set_objects for group in self.groups),
            "added_stream_objects": self.stream_objects,
            "added_bytes": sum(group.output_bytes for group in self.groups),
        }


def assemble_plan(
    planned_at_ms: int,
    settings: CompactionSettings,
    found: Iterable[NodePlan | FailedNode],
    left_alone: tuple[NodeLeftAlone, ...] = (),
) -> CompactionPlan:
    """Combine plans of nodes: the cheapest groups of all, within the bytes that a run may rewrite.

    Raises:
        MaintenanceRefused: they would create more objects of one stream than settings allow.
    """
    ordered = sorted(found, key=lambda node: node.node_id)
    nodes = tuple(node for node in ordered if isinstance(node, NodePlan))
    failed = tuple(node for node in ordered if isinstance(node, FailedNode))
    whole = CompactionPlan(planned_at_ms, settings, nodes, left_alone, failed)
    plan = whole if settings.max_bytes is None else _within_bytes(whole, settings.max_bytes)
    if plan.stream_objects > settings.max_stream_objects:
        splits = {group for group in plan.groups if len(group.sources) == 1 and group.stream_objects}
        reason = f"it would be split, beyond max_stream_objects = {settings.max_stream_objects}"
        plan = replace(plan, nodes=tuple(_without(node, splits, reason) for node in plan.nodes))
    if plan.stream_objects > settings.max_stream_objects:
        sources = sum(len(group.sources) for group in plan.groups)
        raise MaintenanceRefused(
            f"expected a plan with at most max_stream_objects = {settings.max_stream_objects} objects of one stream, "
            f"found {plan.stream_objects} from {sources} objects in {len(plan.groups)} groups: raise that setting, "
            f"or split_size_bytes = {settings.split_size_bytes}"
        )
    return plan


def _within_bytes(plan: CompactionPlan, bytes_max: int) -> CompactionPlan:
    left, left_out = bytes_max, set()
    for group in plan.groups:
        if group.remaining_bytes <= left:
            left -= group.remaining_bytes
        else:
            left_out.add(group)
    reason = f"its bytes are more than what is left of max_bytes = {bytes_max}"
    return replace(plan, nodes=tuple(_without(node, left_out, reason) for node in plan.nodes))


def _without(node: NodePlan, left_out: set[Group], reason: str) -> NodePlan:
    skipped = tuple(
        Skipped(node.node_id, tuple(ref.object_id for ref in group.sources), reason)
        for group in node.groups
        if group in left_out
    )
    kept = tuple(group for group in node.groups if group not in left_out)
    return replace(node, groups=kept, skipped=node.skipped + skipped)


def _cost(group: Group) -> tuple[float, int, int]:
    return group.bytes_per_removed_object, group.node_id, group.position
