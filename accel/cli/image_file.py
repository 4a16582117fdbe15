"""A metadata image as the JSON that `--image` reads; see `MetadataImage.from_dict` for the form."""

from __future__ import annotations

from typing import Any

from accel.image import MetadataImage, NodeImage, StreamImage, version_number
from loaders.object_ref import UNKNOWN, ObjectRef


def image_data(image: MetadataImage) -> dict[str, Any]:
    """An image as plain data. Complexity: O(objects + streams); a version of many keys becomes its total."""
    return {
        "namespace": image.namespace,
        "version": version_number(image.version),
        "streams": [_stream(image.streams[stream_id]) for stream_id in sorted(image.streams)],
        "nodes": [_node(image.nodes[node_id]) for node_id in sorted(image.nodes)],
        "unordered_streams": sorted(image.unordered_streams),
    }


def _stream(stream: StreamImage) -> dict[str, Any]:
    return {
        "stream_id": stream.stream_id,
        "start_offset": stream.start_offset,
        "ranges": [
            {"range_index": each.range_index, "start": each.start, "end": each.end, "node_id": each.node_id}
            for each in stream.ranges
        ],
        "stream_objects": [
            {**_object(each.ref), "start": each.start, "end": each.end} for each in stream.stream_objects
        ],
    }


def _node(node: NodeImage) -> dict[str, Any]:
    orders = node.order_ids.tolist()
    objects = [{**_object(ref), "order_id": order} for ref, order in zip(node.refs, orders, strict=True)]
    return {"node_id": node.node_id, "stream_set_objects": objects}


def _object(ref: ObjectRef) -> dict[str, int]:
    facts = {"size": ref.size_bytes, "index_size": ref.index_size_bytes, "attributes": ref.attributes}
    return {"object_id": ref.object_id} | {name: value for name, value in facts.items() if value != UNKNOWN}
