"""A bucket to try the commands of pages on: objects that a production writer wrote."""

from __future__ import annotations

import json

from accel.lookup.engine import UnderWay
from accel.lookup.search_requests import HintReply, Reply
from loaders.layout import ObjectLayout
from loaders.store import ObjectStore
from tests.docs.pages import ROOT

BUCKET = "bucket"
NODE_ID = 4
STREAM_ID = 420_000
OBJECTS = ROOT / "tests" / "data" / "stream_set_objects"


def fill(store: ObjectStore) -> str:
    """Copy the objects to a store; gives their image as JSON."""
    manifest = json.loads((OBJECTS / "manifest.json").read_bytes())
    rows = [row for row in manifest["objects"] if row["nodeId"] == NODE_ID]
    for row in rows:
        store.put(ObjectLayout().object_key(row["objectId"]), (OBJECTS / f"{row['objectId']}.bin").read_bytes())
    listed = [{"object_id": row["objectId"], "order_id": row["objectId"], "size": row["size"]} for row in rows]
    owned = {"range_index": 0, "start": 0, "end": 2000, "node_id": NODE_ID}
    image = {
        "version": 1,
        "namespace": "DEFAULT",
        "streams": [{"stream_id": STREAM_ID, "start_offset": 0, "ranges": [owned]}],
        "nodes": [{"node_id": NODE_ID, "stream_set_objects": listed}],
    }
    return json.dumps(image)


_take = UnderWay.take


def take_whole_rounds(one: UnderWay) -> dict[int, Reply] | HintReply | None:
    """All that is under way, waited for: else what a session shows would depend on what comes first."""
    came: dict[int, Reply] = {}
    while one._loads:
        part = _take(one)
        if part is None:
            one.signal().result()
        elif isinstance(part, HintReply):
            return part
        else:
            came |= part
    return came or _take(one)
