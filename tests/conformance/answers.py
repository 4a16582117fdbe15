"""What the production system answered over its own objects: ours must be the same, cold and warm, under each policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accel import MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.errors import InconsistentAnswer, InvalidRequest
from accel.lookup.answer import Kind
from loaders.layout import ObjectLayout
from loaders.store import MemoryStore
from tests.conformance.get_objects import POLICIES
from tests.conformance.report import Report, same

NODE_ID = 4
KINDS = {Kind.STREAM: "O", Kind.STREAM_SET: "S"}


def run(path: Path, data: dict[str, Any], report: Report) -> None:
    """All queries of a file; the objects and their manifest lie beside it."""
    manifest = json.loads((path.parent / "manifest.json").read_bytes())
    listed = [row for row in manifest["objects"] if row["nodeId"] == NODE_ID]
    store, layout = MemoryStore(), ObjectLayout()
    for row in listed:
        store.put(layout.object_key(row["objectId"]), (path.parent / f"{row['objectId']}.bin").read_bytes())
    for number, case in enumerate(data["cases"]):
        image = MetadataImage.from_dict(_metadata(case, listed))
        for policy in POLICIES:
            settings = Settings(policy=policy, parallel_loads=4)
            for query in case["queries"]:
                # One accelerator a query: its first answer is cold, the second one warm.
                with ReadAccelerator(StaticImages(image), store, settings=settings) as accelerator:
                    for state in ("cold", "warm"):
                        name = f"{path.name}: case {number}, {query['q']}, {policy}, {state}"
                        with report.check(name):
                            same("answer", _ask(accelerator, query["q"]), _expected(query[state]))


def _metadata(case: dict[str, Any], listed: list[dict[str, Any]]) -> dict[str, Any]:
    stream = {
        "stream_id": case["streamId"],
        "start_offset": case["startOffset"],
        "ranges": [
            {"range_index": index, "start": start, "end": end, "node_id": node}
            for index, start, end, node in case["ranges"]
        ],
        "stream_objects": [
            {"object_id": object_id, "start": start, "end": end} for object_id, start, end in case["streamObjects"]
        ],
    }
    objects = [{"object_id": row["objectId"], "order_id": row["orderId"], "size": row["size"]} for row in listed]
    return {"streams": [stream], "nodes": [{"node_id": NODE_ID, "stream_set_objects": objects}]}


def _ask(accelerator: ReadAccelerator, query: list[int]) -> object:
    try:
        answer = accelerator.get_objects(*query)
    except InvalidRequest:
        return "invalid"
    except InconsistentAnswer:
        return "error"
    return [[each.object_id, KINDS[each.kind], each.start, each.end] for each in answer.objects]


def _expected(recorded: dict[str, Any]) -> object:
    if "error" in recorded:
        return "error"
    return "invalid" if recorded["streamId"] == -1 else recorded["objects"]
