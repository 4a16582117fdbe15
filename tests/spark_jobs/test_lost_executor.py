"""An executor is lost in the middle of a job, and slow tasks run twice at once: nothing is lost or done twice."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.verify import Verdict, verify
from spark_jobs.tasks import StoreSpec
from tests.examples import examples
from tests.spark_jobs.on_executors import NODE_ID
from tests.spark_jobs.worlds import Spans, fill, make_catalog, records_crc

OBJECTS = 48
PROGRAM_SECONDS = 240


@pytest.mark.skipif(
    examples(1000) < 1000, reason="three JVMs for a minute: `make soak-tests` runs it, or ACCEL_TEST_EXAMPLES_FACTOR=1"
)
def test_a_lost_executor_and_tasks_that_run_twice_lose_nothing(bucket_on_s3: StoreSpec) -> None:
    bucket = bucket_on_s3
    store = bucket.open()
    make_catalog(store)
    objects: list[Spans] = [
        [(1, at * 10, at * 10 + 10), (2 + at % 3, at // 3 * 5, at // 3 * 5 + 5)] for at in range(OBJECTS)
    ]
    fill(store, NODE_ID, objects)
    with ObjectCatalog.open(store) as catalog:
        before = records_crc(store, catalog.image())
    command = [sys.executable, "-m", "tests.spark_jobs.on_executors", bucket.url, str(bucket.settings.endpoint_url)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)  # noqa: S603 - our own
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["killed"], "an executor was killed"
    assert told["killed"]["commits"] < told["groups"], "it was killed before the job had ended"
    assert told["failed_groups"] == 0
    with ObjectCatalog.open(store) as catalog:
        image = catalog.refresh()
        assert verify(catalog).outcome in (Verdict.CLEAN, Verdict.ADVICE)
    assert len(image.nodes[NODE_ID]) < OBJECTS / 2
    assert records_crc(store, image) == before
