"""The metadata image: which streams exist, who wrote which offsets, and which objects each node has.

An image is an immutable snapshot with a version. It does not say which offsets lie in which stream set object: that
would be too much to keep (that is why lookups open objects). It says

- per stream: the first offset that is still kept, the ownership ranges ("from this offset on, written by node n"), and
  the objects that hold this stream alone;
- per node: its stream set objects, in the order in which a stream's offsets ascend through them (the order id).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accel._image_data import read_image
from accel.image_parts import (
    OPEN_END,
    NodeImage,
    OwnershipRange,
    StreamImage,
    StreamObject,
    make_node,
    make_stream,
    node_of_columns,
)
from accel.version import ImageVersion
from loaders.object_ref import UNKNOWN, ObjectRef

__all__ = [
    "OPEN_END",
    "UNKNOWN",
    "MetadataImage",
    "NodeChange",
    "NodeImage",
    "ObjectRef",
    "OwnershipRange",
    "StreamImage",
    "StreamObject",
    "make_node",
    "make_stream",
    "node_of_columns",
]


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What one image's list of a node has that another's has not."""

    added: NDArray[np.int64]
    removed: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class MetadataImage:
    """An immutable snapshot of all streams and nodes. Any thread may read it.

    Args:
        version: images of one source ascend by it, as `is_newer` compares.
        namespace: part of every object's key.
        streams: stream id -> stream.
        nodes: node id -> its list.
        unordered_streams: streams whose offsets do not ascend through some node's list (`verify` finds them). Lookups
            open everything for these, in order, instead of trusting that order.
    """

    version: ImageVersion
    namespace: str
    streams: Mapping[int, StreamImage]
    nodes: Mapping[int, NodeImage]
    unordered_streams: frozenset[int] = frozenset()

    @classmethod
    def from_dict(cls, metadata: Mapping[str, Any], version: int = 0, namespace: str = "DEFAULT") -> MetadataImage:
        """Build an image from plain data, as it is read from JSON.

        Args:
            metadata: ``{"streams": [{stream_id, start_offset, ranges: [{range_index, start, end, node_id}],
                stream_objects: [{object_id, start, end}]}], "nodes": [{node_id, stream_set_objects: [{object_id,
                order_id}]}]}``. Objects may also carry ``size``, ``index_size`` and ``attributes``; at the top may
                stand ``unordered_streams``, and a set object may carry ``ranges``, which nobody reads here. Streams or
                nodes have to stand there, and may be empty; any other field is refused.
            version: the image's version; ``metadata["version"]`` wins over it.
            namespace: the objects' namespace; ``metadata["namespace"]`` wins over it.

        Raises:
            ImageRefused: something is missing, of the wrong type, or contradicts something else.

        Complexity: O(n log n) in objects and ranges.
        """
        parts = read_image(metadata, version, namespace)
        return cls(parts.version, parts.namespace, parts.streams, parts.nodes, parts.unordered_streams)

    def node(self, node_id: int) -> NodeImage:
        """The list of a node; an empty one for a node that this image does not know."""
        found = self.nodes.get(node_id)
        return make_node(node_id, []) if found is None else found

    def changes(self, newer: MetadataImage) -> dict[int, NodeChange]:
        """What lists gained and lost from this image to a newer one, for the nodes that differ.

        An object whose size or attributes changed counts as both removed and added. Nodes that share their `NodeImage`
        cost nothing. Complexity: O(n log n) in the objects of the nodes that differ.
        """
        changed = {}
        for node_id in self.nodes.keys() | newer.nodes.keys():
            before, after = self.nodes.get(node_id), newer.nodes.get(node_id)
            if before is after:
                continue
            change = _change(before or make_node(node_id, []), after or make_node(node_id, []))
            if len(change.added) or len(change.removed):
                changed[node_id] = change
        return changed


def _change(before: NodeImage, after: NodeImage) -> NodeChange:
    return NodeChange(added=_not_in(after, before), removed=_not_in(before, after))


def _not_in(these: NodeImage, those: NodeImage) -> NDArray[np.int64]:
    if not len(those):
        return these.object_ids
    positions = those.positions(these.object_ids)
    same = (
        (positions >= 0)
        & (those.sizes_bytes[positions] == these.sizes_bytes)
        & (those.attributes[positions] == these.attributes)
    )
    missing: NDArray[np.int64] = these.object_ids[~same]
    return missing
