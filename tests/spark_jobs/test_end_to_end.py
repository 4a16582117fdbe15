"""Everything one after another: 40 objects become 4, hints are built, old readers stay right, and nothing is lost."""

from __future__ import annotations

import json

import numpy as np
import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.collect import Reason, collect, plan_collection, tallies_of
from accel.system import SYSTEM
from accel.testing import ClockStore
from loaders.hints import SnapshotReader, read_pack_root
from loaders.layout import HINTS_PREFIX
from loaders.store import ObjectStore
from spark_jobs.session import active_session
from spark_jobs.survey import SparkBulkScan
from spark_jobs.tasks import StoreSpec
from tests.spark_jobs.worlds import NAMESPACE, Spans, fill, job, make_catalog, records_crc

COUNTS = {4: 30, 7: 10}
MOVED = 1
"""A stream that node 4 wrote, and then node 7."""

HOURS = 2 * 3600.0
"""After so long no reader has an image with the replaced objects any more."""


def objects(node_id: int) -> list[Spans]:
    """A node's objects: one stream in all of them, one that comes and goes."""
    made = []
    for at in range(COUNTS[node_id]):
        first = COUNTS[4] if node_id == 7 else 0
        rows = [(MOVED, (first + at) * 3, (first + at) * 3 + 3)]
        if at % 5 < 2:
            number = at // 5 * 2 + at % 5
            rows.append((node_id * 100, number * 7, number * 7 + 7))
        made.append(rows)
    return made


@pytest.mark.usefixtures("spark")
def test_forty_objects_become_four_and_nobody_notices(bucket_on_s3: StoreSpec) -> None:
    bucket = bucket_on_s3
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, objects(4))
    with ObjectCatalog.open(store) as catalog:
        catalog.close_streams([MOVED])
    fill(store, 7, objects(7))
    with ObjectCatalog.open(store) as catalog:
        old_image = catalog.image()
    before = records_crc(store, old_image)
    assert len(before) == 3

    compacted = job(bucket, "compact", "--max-objects", "5", "--min-age", "0s", "--output", "json")
    assert compacted.exit_code == 0, compacted.output
    report = json.loads(compacted.stdout)["report"]
    assert (report["failed_groups"], report["failed_tasks"], report["added_stream_objects"]) == (0, 0, 0)
    with ObjectCatalog.open(store) as catalog:
        image = catalog.image()
    assert {node_id: len(node) for node_id, node in image.nodes.items()} == {4: 3, 7: 1}
    assert records_crc(store, image) == before

    for kind in ("filters", "snapshots"):
        assert job(bucket, "build-hints", "--only", kind).exit_code == 0
    check_hints(store)
    assert records_crc(store, image) == before
    assert records_crc(store, old_image) == before, "readers with an old image find the old objects"

    assert json.loads(job(bucket, "gc", "--yes", "--output", "json").stdout)["done"]["deleted"]["objects"] == 0
    assert collected_later(bucket) == report["rewritten_objects"]
    assert records_crc(store, image) == before
    stored = [each.key for each in store.list("") if not each.key.startswith("accel/")]
    assert len(stored) == 4, "nothing is left behind"

    verified = job(bucket, "verify", "--output", "json")
    assert verified.exit_code == 0, verified.output
    found = json.loads(verified.stdout)
    assert (found["outcome"], found["checked"]["objects"], found["orphans"]["objects"]) == ("clean", 4, 0)


def check_hints(store: ObjectStore) -> None:
    """Hints speak of just the objects that are listed."""
    with ObjectCatalog.open(store) as catalog:
        lists = catalog.refresh_state().node_lists()
    reader = SnapshotReader(store, NAMESPACE, SYSTEM.timer)
    for node_id, listed in lists.items():
        live = np.sort(listed.live, order="object_id")
        for covered in (read_pack_root(store, NAMESPACE, node_id).covered, reader.read_root(node_id).covered):
            assert covered.object_ids.tolist() == live["object_id"].tolist()
            assert covered.sizes.tolist() == live["size_bytes"].tolist()
        assert len(reader.read_entries(node_id, MOVED)) == len(live)
    assert any(store.list(HINTS_PREFIX))


def collected_later(bucket: StoreSpec) -> int:
    """Collect what may go in two hours' time; gives how many replaced objects went."""
    spark = active_session()
    assert spark is not None
    store = ClockStore(bucket.open(), lambda: SYSTEM.clock() + HOURS)
    with ObjectCatalog.open(store) as catalog:
        plan = plan_collection(catalog, scan=SparkBulkScan(spark, bucket))
        report = collect(catalog, plan)
    assert not report.failed
    return tallies_of(report.deleted)[Reason.RETIRED].objects
