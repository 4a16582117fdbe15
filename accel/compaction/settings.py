"""The settings of a compaction: when it begins, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from accel.catalog.records import STREAMS_AN_OBJECT_MAX
from loaders.merge.plan import DEFAULT_LIMITS, MergeLimits
from loaders.merge.transfer import DEFAULT_SETTINGS
from loaders.settings import MergeSettings, check_settings

NOTHING_COMING: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Limits and choices of one compaction. Frozen and picklable: tasks on other machines get the same.

    Args:
        max_objects_per_node: a node whose list will have more objects within an hour, if it gets as many as in the last
            one, is compacted ...
        target_objects: ... down to this number; by default 80 % of `max_objects_per_node`, so that a node is not
            compacted again after each upload. Fewer are left where smaller groups would soon be rewritten (`grouping`).
        max_objects: limit for the lists of all nodes together. If they hold more, each node is reduced in proportion to
            its objects, until 80 % of the limit are left; None = no such limit.
        max_bytes: that one run may rewrite, without those that are not needed any more; None = no limit. The cheapest
            objects are merged first.
        min_age_seconds: objects whose oldest data is younger are left alone.
        target_object_size_bytes: the maximum bytes of a group's sources together, without data that is not needed any
            more. The default is the size that a merge reads with one request a source; larger groups are read in bands,
            with one request a source and band. A list of n objects has room for n / 2 times as much, or more.
        split_size_bytes: a stream with this many bytes in one group gets an object of its own.
        max_stream_objects: that one run may create; a plan with more is refused.
        max_sources_per_group: limits the work that is lost when a group fails.
        split_holes: whether a group may continue after a hole in a stream, whose runs then get their own objects. By
            default the group ends there.
        nodes: compact only these; None = all.
        rewrite_all: also compact nodes with fewer objects: to `target_objects`, or as far as possible.
        retry_set_aside: also read objects that earlier runs could not read, although they have not changed.
        dead_share: an object of which at least this share of the data is below first kept offsets is rewritten alone.
            Such rewrites cost (1 - share) / share bytes for each uploaded one, 1 by default; live data then is at least
            this share of all.
        merging: how a group is read and written.
    """

    max_objects_per_node: int = 1000
    target_objects: int | None = None
    max_objects: int | None = None
    max_bytes: int | None = None
    min_age_seconds: float = 3600.0
    target_object_size_bytes: int = DEFAULT_SETTINGS.band_size_bytes
    split_size_bytes: int = DEFAULT_LIMITS.split_size_bytes
    max_stream_objects: int = 1000
    max_sources_per_group: int = 1000
    split_holes: bool = False
    nodes: frozenset[int] | None = None
    rewrite_all: bool = False
    retry_set_aside: bool = False
    dead_share: float = 0.5
    merging: MergeSettings = DEFAULT_SETTINGS

    def __post_init__(self) -> None:
        least = {"max_stream_objects": 0, "min_age_seconds": 0, "max_sources_per_group": 2}
        check_settings(self, least=least, most={"dead_share": 1.0})
        if self.target_objects is not None and self.target_objects > self.max_objects_per_node:
            most = f"at most max_objects_per_node = {self.max_objects_per_node}"
            raise ValueError(f"expected target_objects of {most}, found {self.target_objects}")

    @property
    def merge_limits(self) -> MergeLimits:
        """The limits of a merged group."""
        return MergeLimits(split_size_bytes=self.split_size_bytes, streams_max=STREAMS_AN_OBJECT_MAX)

    def targets(self, counts: dict[int, int], coming: Mapping[int, int] = NOTHING_COMING) -> dict[int, int]:
        """The nodes with too many objects, and the number of objects that each keeps.

        Nodes share the cluster's limit in proportion to their objects: the largest are reduced most, and no node is
        emptied for the others. A node over both limits gets the lower target. O(n log n) in nodes.

        Args:
            counts: node id -> objects in its list, of all nodes; nodes that are not to be compacted count as well.
            coming: node id -> objects that its list will get until the next run.
        """
        expected = {node_id: count + coming.get(node_id, 0) for node_id, count in counts.items()}
        shares: dict[int, int] = {}
        if self.max_objects is not None and sum(expected.values()) > self.max_objects:
            shares = _shares(counts, _lowered(self.max_objects))
        targets: dict[int, int] = {}
        for node_id, count in counts.items():
            if self.nodes is not None and node_id not in self.nodes:
                continue
            wanted = [] if not self.rewrite_all else [self.target_objects or 1]
            if expected[node_id] > self.max_objects_per_node:
                wanted.append(self.target_objects or _lowered(self.max_objects_per_node))
            if node_id in shares:
                wanted.append(shares[node_id])
            if wanted and min(wanted) < count:
                targets[node_id] = min(wanted)
        return targets

    def reason_to_leave(self, node_id: int, count: int) -> str:
        """Why `targets` leaves out a node with this number of objects."""
        if self.nodes is not None and node_id not in self.nodes:
            return "it is not among the given nodes"
        if self.rewrite_all:
            return f"it has no more than target_objects = {self.target_objects or 1}"
        if count > self.max_objects_per_node:
            return f"it has no more than target_objects = {self.target_objects}"
        return f"it has no more than max_objects_per_node = {self.max_objects_per_node}, and in an hour, too"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        plain = {setting.name: getattr(self, setting.name) for setting in fields(self) if setting.name != "merging"}
        return plain | {"nodes": None if self.nodes is None else sorted(self.nodes)}


def _lowered(limit: int) -> int:
    return max(1, limit * 8 // 10)


def _shares(counts: dict[int, int], limit: int) -> dict[int, int]:
    """The share of each node with objects in a limit of all: at least 1; the largest shares are reduced for it."""
    total = sum(counts.values())
    shares = {node_id: max(1, count * limit // total) for node_id, count in counts.items() if count}
    excess = sum(shares.values()) - limit
    for node_id in sorted(shares, key=lambda node_id: (-shares[node_id], node_id)):
        given = min(max(excess, 0), shares[node_id] - 1)
        shares[node_id] -= given
        excess -= given
    return shares
