"""Verification and collection on Spark find and do what they find and do in one process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.verify import verify
from accel.catalog.whole_catalog import BulkScan
from accel.errors import AccelError, KeyMissing
from loaders.layout import ObjectLayout
from spark_jobs.survey import SparkBulkScan, key_prefixes
from spark_jobs.tasks import StoreSpec
from tests.accel.cli.worlds import run
from tests.spark_jobs.worlds import address, fill, job, live_rows, lose, make_catalog, split_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def filled(bucket: StoreSpec) -> StoreSpec:
    """Two nodes, one with an object of a stream of its own."""
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, [[(1, at, at + 1), (2, at, at + 1)] for at in range(8)])
    fill(store, 7, [[(8, 0, 5), (9, 0, 5)], [(9, 5, 6)]])
    split_off(store, 7, 8)
    return bucket


def own(bucket: StoreSpec, *arguments: str) -> Any:
    """The same command without Spark, as JSON."""
    return json.loads(run("catalog", *arguments, "--store", bucket.url, *address(bucket), "--output", "json").stdout)


def test_tasks_list_what_one_process_lists(spark: SparkSession, filled: StoreSpec) -> None:
    seen: list[int] = []
    with ObjectCatalog.open(filled.open()) as catalog:
        found = SparkBulkScan(spark, filled).list_objects(catalog.parts, seen.append)
        expected = BulkScan().list_objects(catalog.parts)
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.sizes_bytes.tolist() == expected.sizes_bytes.tolist()
    assert found.modified_ms.tolist() == expected.modified_ms.tolist()
    [keys] = seen
    assert keys > len(found.ids), "keys of the catalog were seen, too"


def test_objects_come_back_in_order_with_their_errors(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    ids = live_rows(store, 4)["object_id"].tolist()
    lose(store, ids[3])
    with ObjectCatalog.open(store) as catalog:
        wanted = [(4, ref) for ref in catalog.image().nodes[4].refs]
        scan = SparkBulkScan(spark, filled, objects_a_task=3)
        found = list(scan.open_objects(catalog.parts, wanted))
    assert [ref.object_id for ref, _ in found] == ids
    assert [ref.object_id for ref, each in found if isinstance(each, AccelError)] == [ids[3]]
    assert isinstance(found[3][1], KeyMissing)
    assert scan.requests == 8 + 3, "one an object and one a task"


@pytest.mark.usefixtures("spark")
def test_a_clean_catalog_is_found_clean(filled: StoreSpec) -> None:
    result = job(filled, "verify", "--output", "json")
    assert result.exit_code == 0
    found, expected = json.loads(result.stdout), own(filled, "verify")
    assert found["outcome"] == "clean"
    assert found["requests"] > expected["requests"]
    assert without_cost(found) == without_cost(expected)


@pytest.mark.usefixtures("spark")
def test_what_is_wrong_is_found_and_ends_with_3(filled: StoreSpec) -> None:
    store = filled.open()
    ids = live_rows(store, 4)["object_id"].tolist()
    lose(store, ids[3])
    with ObjectCatalog.open(store) as catalog:
        key = catalog.parts.layout.object_key(ids[5])
    store.put(key, bytes(len(store.get(key).body)))
    result = job(filled, "verify", "--output", "json")
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert [each["kind"] for each in found["problems"]] == ["missing", "damaged"]
    assert without_cost(found) == without_cost(own(filled, "verify"))


def test_a_task_that_fails_for_good_leaves_its_objects_unchecked(
    spark: SparkSession, bucket: StoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no disk")

    make_catalog(bucket.open())
    fill(bucket.open(), 4, [[(1, 0, 1)], [(1, 1, 2)]])
    monkeypatch.setattr("spark_jobs.survey._look", refuse)
    with ObjectCatalog.open(bucket.open()) as catalog:
        found = verify(catalog, scan=SparkBulkScan(spark, bucket))
    assert [each.reason.rpartition(": ")[2] for each in found.unchecked] == ["no disk"] * 2
    assert not found.problems


@pytest.mark.usefixtures("spark")
def test_a_collection_plans_what_one_process_plans(filled: StoreSpec) -> None:
    store = filled.open()
    with ObjectCatalog.open(store) as catalog:
        store.put(catalog.parts.layout.object_key(5000), b"somebody else's")
    found = json.loads(job(filled, "gc", "--output", "json").stdout)
    assert found["dry_run"]
    assert found["foreign"]["objects"] == 1
    expected = own(filled, "gc")
    assert {**found, "planned_at_ms": 0} == {**expected, "planned_at_ms": 0}
    assert job(filled, "gc", "--yes").exit_code == 0


@pytest.mark.parametrize("digits", [1, 2])
def test_the_key_of_each_object_is_listed_once(digits: int) -> None:
    layout, prefixes = ObjectLayout(namespace="shop"), key_prefixes(digits)
    for object_id in (*range(600), 2**32 - 1, 2**32, 2**63 - 1):
        assert sum(layout.object_key(object_id).startswith(prefix) for prefix in prefixes) == 1


def without_cost(found: dict[str, Any]) -> dict[str, Any]:
    """A verification without what it took, and without ages."""
    orphans = {**found["orphans"], "oldest": []}
    return {**found, "requests": 0, "bytes": 0, "orphans": orphans}


@pytest.mark.usefixtures("spark")
def test_all_of_it_is_carried_out_on_spark_with_one_report(filled: StoreSpec) -> None:
    result = job(filled, "run-all", "--max-objects-per-node", "4", "--min-age", "0s", "--output", "json")
    assert result.exit_code == 0, result.stderr
    compact, hints, gc = json.loads(result.stdout)["steps"]
    assert [each["status"] for each in (compact, hints, gc)] == ["done"] * 3
    assert compact["result"]["report"]["rewritten_objects"] > 0
    assert hints["result"]["report"]["covered_objects"] == len(live_rows(filled.open(), 4)) + len(
        live_rows(filled.open(), 7)
    )
    assert gc["result"]["dry_run"] is True
