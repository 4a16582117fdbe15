"""Index snapshots on Spark: a snapshot holds just what the objects hold that it covers, sorted, each stream once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from accel.catalog import ObjectCatalog
from accel.system import SYSTEM
from loaders.hints import (
    EntryColumns,
    SnapshotReader,
    SnapshotRoot,
    decode_snapshot_root,
    object_entries,
    read_snapshot,
)
from loaders.layout import HintKind, hint_root_key
from loaders.store import ObjectStore
from spark_jobs.snapshot_tasks import Batches, SnapshotWork, Tally, file_writer
from spark_jobs.snapshots import SnapshotReport, build_snapshots_on_spark
from spark_jobs.tasks import StoreSpec, row_frame
from tests.spark_jobs.worlds import NAMESPACE, Spans, fill, job, live_rows, lose, make_catalog, split_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def objects(count: int, streams: int) -> list[Spans]:
    """Objects of which each holds every stream but one in three."""
    made: list[Spans] = []
    ends = [0] * streams
    for at in range(count):
        present = [each for each in range(streams) if each == 0 or (each + at) % 3]
        made.append([(each, ends[each], ends[each] + 10) for each in present])
        for each in present:
            ends[each] += 10
    return made


@pytest.fixture
def filled(bucket: StoreSpec) -> StoreSpec:
    """Two nodes."""
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, objects(12, 12))
    fill(store, 7, [[(80, 0, 5), (90, 0, 5)], [(90, 5, 6)]])
    return bucket


def root_of(store: ObjectStore, node_id: int) -> SnapshotRoot:
    """A node's snapshot."""
    body = store.get(hint_root_key(HintKind.SNAPSHOTS, node_id)).body
    return decode_snapshot_root(body, namespace=NAMESPACE, node_id=node_id)


def entries(store: ObjectStore, node_id: int) -> list[tuple[int, ...]]:
    """All entries of a node's snapshot, in order."""
    return as_rows(EntryColumns.join(list(read_snapshot(store, root_of(store, node_id)))))


def expected(store: ObjectStore, node_id: int, lost: frozenset[int] = frozenset()) -> list[tuple[int, ...]]:
    """The entries of all listed objects."""
    live = live_rows(store, node_id)
    orders = dict(zip(live["object_id"].tolist(), live["order_id"].tolist(), strict=True))
    with ObjectCatalog.open(store) as catalog:
        refs = [ref for ref in catalog.image().nodes[node_id].refs if ref.object_id not in lost]
        opened = list(catalog.parts.open_all(node_id, refs))
    parts = [object_entries(each.ref.object_id, orders[each.ref.object_id], each.index) for each in opened]
    return as_rows(EntryColumns.join(parts).sorted())


def as_rows(columns: EntryColumns) -> list[tuple[int, ...]]:
    """Entries as tuples."""
    return list(zip(*(column.tolist() for column in columns.columns()), strict=True))


def covered(store: ObjectStore, node_id: int) -> list[int]:
    """Objects that a node's snapshot covers."""
    found: list[int] = root_of(store, node_id).covered.object_ids.tolist()
    return found


def build(spark: SparkSession, bucket: StoreSpec, *, everything: bool = False) -> SnapshotReport:
    """Build what is needed."""
    return build_snapshots_on_spark(spark, bucket, everything=everything)


def test_a_snapshot_holds_what_the_objects_hold(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    report = build_snapshots_on_spark(spark, filled, objects_a_task=5)
    for node_id in (4, 7):
        assert entries(store, node_id) == expected(store, node_id)
        assert covered(store, node_id) == sorted(live_rows(store, node_id)["object_id"].tolist())
        assert len(root_of(store, node_id).files) == 1
    [row] = row_frame(spark, report.row()).collect()
    assert (row.nodes, row.objects, row.covered_objects, row.files) == (2, 14, 14, 2)
    assert row.entries == len(expected(store, 4)) + 3
    assert row.requests == 14 + 4 + 2 * 7 + 8, "one an object, one a task, a node's roots and file, and the catalog"
    assert not report.is_partial


def test_a_reader_finds_a_stream_with_one_request(spark: SparkSession, filled: StoreSpec) -> None:
    build(spark, filled)
    store = filled.open()
    reader = SnapshotReader(store, NAMESPACE, SYSTEM.timer)
    reader.read_root(4)
    store.reset()
    found = reader.read_entries(4, 5)
    assert store.snapshot().gets == 1
    assert found.complete
    assert found.columns.starts.tolist() == [row[1] for row in expected(filled.open(), 4) if row[0] == 5]


def test_several_files_hold_each_stream_once(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    report = build_snapshots_on_spark(spark, filled, nodes=frozenset({4}), entries_a_file=25)
    root = root_of(store, 4)
    assert len(root.files) == report.nodes[0].files > 3
    assert entries(store, 4) == expected(store, 4)


def test_a_current_snapshot_is_left_alone_unless_it_is_wanted(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    build(spark, filled)
    before = [root_of(store, node_id).generation for node_id in (4, 7)]
    split_off(store, 7, 80)
    report = build(spark, filled)
    assert [each.is_current for each in report.nodes] == [True, False]
    assert root_of(store, 4).generation == before[0]
    assert root_of(store, 7).generation > before[1]
    assert entries(store, 7) == expected(store, 7)
    build(spark, filled, everything=True)
    assert root_of(store, 4).generation > before[0]


def test_a_snapshot_whose_file_is_gone_is_built_again(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    build(spark, filled)
    store.delete(root_of(store, 7).file_key(0))
    report = build(spark, filled)
    assert [each.is_current for each in report.nodes] == [True, False]
    assert entries(store, 7) == expected(store, 7)


def test_a_run_that_was_overtaken_publishes_nothing(
    spark: SparkSession, filled: StoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled.open()
    build(spark, filled)
    newest = root_of(store, 7).generation
    monkeypatch.setattr("spark_jobs.snapshots.next_generation", lambda *_: newest - 1)
    report = build_snapshots_on_spark(spark, filled, nodes=frozenset({7}), everything=True)
    assert "another run" in report.nodes[0].error
    assert root_of(store, 7).generation == newest


def test_old_generations_are_deleted(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    for _ in range(3):
        build_snapshots_on_spark(spark, filled, nodes=frozenset({7}), everything=True)
    files = [each.key for each in store.list("accel/hints/snapshots/node-7/") if "entries-" in each.key]
    assert len(files) == 2


@pytest.mark.usefixtures("spark")
def test_an_object_that_cannot_be_opened_is_not_covered(filled: StoreSpec) -> None:
    store = filled.open()
    lost = int(live_rows(store, 4)["object_id"][7])
    lose(store, lost)
    result = job(filled, "build-snapshot", "--output", "json")
    assert result.exit_code == 4
    report = json.loads(result.stdout)
    assert (report["objects"], report["covered_objects"], report["failed_objects"]) == (14, 13, 1)
    [failure] = [each for node in report["per_node"] for each in node["failures"]]
    assert failure["object_id"] == lost
    assert "KeyMissing" in failure["reason"]
    assert lost not in covered(store, 4)
    assert entries(store, 4) == expected(store, 4, frozenset({lost}))


@pytest.mark.usefixtures("spark")
def test_the_command_tells_what_it_did(filled: StoreSpec) -> None:
    result = job(filled, "build-snapshot", "--node", "7")
    assert result.exit_code == 0
    assert "snapshots of 1 node: 2 of 2 objects covered, 3 entries written" in result.stdout
    again = job(filled, "build-snapshot", "--node", "7")
    assert "current" in again.stdout


def test_what_two_attempts_do_not_agree_on_is_not_published(
    spark: SparkSession, filled: StoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.snapshots._agree", lambda _: False)
    report = build(spark, filled)
    assert all("attempts" in each.error for each in report.nodes)
    assert not [each for each in filled.open().list("accel/hints/") if each.key.endswith("/root")]


@pytest.mark.parametrize(("failures", "is_built"), [(1, True), (4, False)])
def test_tasks_that_fail_are_counted_and_told(
    spark: SparkSession, filled: StoreSpec, monkeypatch: pytest.MonkeyPatch, failures: int, *, is_built: bool
) -> None:
    def broken_writer(work: SnapshotWork) -> Callable[[Batches], Batches]:
        write = file_writer(work)

        def write_file(batches: Batches) -> Batches:
            from pyspark import TaskContext  # noqa: PLC0415 - as in a task

            context = TaskContext.get()
            if context is not None and context.attemptNumber() < failures:
                raise OSError("no disk")
            yield from write(batches)

        return write_file

    monkeypatch.setattr("spark_jobs.snapshot_tasks.file_writer", broken_writer)
    report = build_snapshots_on_spark(spark, filled, nodes=frozenset({7}))
    [node] = report.nodes
    assert (node.failed_tasks, report.is_partial) == (failures, not is_built)
    assert node.covered == (2 if is_built else 0)
    assert is_built or node.error.endswith("no disk")


def test_a_tally_is_the_same_in_any_order_and_no_other_way() -> None:
    numbers = np.arange(50, dtype=np.int64)
    columns = EntryColumns.of([*[numbers] * 8, numbers % 2 == 0])
    backwards = columns.take(np.arange(49, -1, -1))
    assert Tally.of(columns) == Tally.of(backwards)
    first, rest = columns.take(slice(0, 20)), columns.take(slice(20, None))
    assert Tally.of(first) + Tally.of(rest) == Tally.of(columns)
    for changed in range(9):
        altered = [column.copy() for column in columns.columns()]
        altered[changed][7] = altered[changed][8]
        assert Tally.of(EntryColumns.of(altered)) != Tally.of(columns)
