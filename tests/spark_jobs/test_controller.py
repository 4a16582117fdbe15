"""A controller's objects on Spark: planned, merged and checked in tasks; ids and swaps are the driver's."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accel.adoption.controller import apply_to_image, swaps_from_json
from accel.image import MetadataImage
from loaders.layout import ObjectLayout
from tests.accel.cli.worlds import run
from tests.builders import write_set_object
from tests.spark_jobs.worlds import records_crc

if TYPE_CHECKING:
    from spark_jobs.tasks import StoreSpec

OBJECTS = 12
BROKER = """
import itertools, json, os
from pathlib import Path
from accel.adoption.controller import SwapRefused, apply_to_image
from accel.image import MetadataImage

ids, calls = itertools.count(1000), []
now = MetadataImage.from_dict(json.loads(Path({image!r}).read_text()))

def take_ids(count):
    calls.append(os.getpid())
    return list(itertools.islice(ids, count))

def commit(swap):
    global now
    calls.append(os.getpid())
    now = apply_to_image(now, swap)

def refuse(swap):
    raise SwapRefused("not now")
"""


@pytest.fixture
def image(bucket: StoreSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The file of an image of two nodes, beside a module `broker` of its controller."""
    store, nodes, object_id = bucket.open(), [], 0
    for node_id in (4, 7):
        listed = []
        for number in range(OBJECTS):
            body = write_set_object([(node_id, number * 5, number * 5 + 5)])
            store.put(ObjectLayout(namespace="DEFAULT").object_key(object_id), body)
            listed.append({"object_id": object_id, "order_id": object_id, "size": len(body)})
            object_id += 1
        nodes.append({"node_id": node_id, "stream_set_objects": listed})
    ranges = [
        {"stream_id": each, "start_offset": 3, "ranges": [{"range_index": 0, "start": 0, "end": -1, "node_id": each}]}
        for each in (4, 7)
    ]
    path = tmp_path / "image.json"
    path.write_text(json.dumps({"streams": ranges, "nodes": nodes}))
    name = f"broker_{request.node.name.partition('[')[0]}"
    (tmp_path / f"{name}.py").write_text(BROKER.format(image=str(path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tests.spark_jobs.test_controller.broker", name, raising=False)
    return path


broker = ""


def read(path: Path) -> MetadataImage:
    """The image as it is now."""
    return MetadataImage.from_dict(json.loads(path.read_text()))


def compact(bucket: StoreSpec, image: Path, *options: str, code: int = 0) -> dict[str, object]:
    """Run the command in the session that is there; returns the report."""
    chosen = ("--rewrite-all", "--min-age", "0s", "--target-object-size", "800", "--output", "json", "--spark")
    taken = ("--image", str(image), "--take-ids", f"{broker}:take_ids")
    result = run("adopt", "compact", bucket.url, *taken, *options, *chosen)
    assert result.exit_code == code, result.output
    report: dict[str, object] = json.loads(result.stdout)["report"]
    return report


@pytest.mark.usefixtures("spark")
def test_swaps_are_passed_to_a_callback_in_the_driver(bucket: StoreSpec, image: Path) -> None:
    store, old = bucket.open(), read(image)
    before = records_crc(store, old)
    report = compact(bucket, image, "--commit", f"{broker}:commit")
    assert report["failed_groups"] == report["refused_groups"] == 0
    controller = importlib.import_module(broker)
    assert sum(map(len, controller.now.nodes.values())) <= OBJECTS
    assert records_crc(store, controller.now) == records_crc(store, old) == before
    assert set(controller.calls) == {os.getpid()}


@pytest.mark.usefixtures("spark")
def test_swaps_are_written_to_a_file_and_a_refused_one_is_named(bucket: StoreSpec, image: Path, tmp_path: Path) -> None:
    store, old = bucket.open(), read(image)
    before = records_crc(store, old)
    refused = compact(bucket, image, "--commit", f"{broker}:refuse", code=4)
    groups = refused["groups"]
    assert isinstance(groups, list)
    assert {(each["status"], each["reason"]) for each in groups} == {("refused", "not now")}
    assert all(each["unlisted_ids"] == each["outputs"] for each in groups)
    compact(bucket, image, "--swaps", str(tmp_path / "swaps.json"))
    now = old
    for swap in swaps_from_json((tmp_path / "swaps.json").read_bytes()):
        now = apply_to_image(now, swap)
    assert sum(map(len, now.nodes.values())) <= OBJECTS
    assert records_crc(store, now) == before
