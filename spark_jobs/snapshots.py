"""Index snapshots on Spark: all entries of a node's objects, sorted by stream, as files of packed groups with a root.

    report = build_snapshots_on_spark(spark, store)

For each node, as one chain of Spark's own:

    1. tasks open 64 objects each and send their entries, each with the number of the file that its stream belongs to
    2. Spark shuffles: the entries of a file come together, sorted by (stream, start), on disk where memory is short
    3. a task a file writes it as it comes, under a name of its own
    4. here, in the driver: the root is written, which makes the files the node's snapshot, and old ones are deleted

A stream lies in one file. Where several files are wanted, their first streams are guessed from a few of the objects;
a wrong guess makes files of unequal size and nothing else.

An object that cannot be opened is left out: the snapshot does not cover it, so that readers open it themselves. It is
told, and the next run takes it up. What no attempt agrees on is not published (see `snapshot_tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from accel.catalog import ObjectCatalog
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.records import Rows, refs_of
from accel.errors import AccelError
from loaders.format.block_index import ROW_SIZE_BYTES
from loaders.hints import (
    CoveredObjects,
    HintProblem,
    HintTrouble,
    SnapshotRoot,
    decode_snapshot_root,
    delete_old_generations,
    finish_snapshot,
    next_generation,
)
from loaders.hints.roots import fetch_root
from loaders.layout import HintKind, hint_file_key, hint_node_prefix, hint_root_key
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore
from spark_jobs.nodes import OBJECTS_A_TASK, FailedObject, chunk_count, listed_nodes
from spark_jobs.tasks import StoreSpec, failed_attempts, failure_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.snapshot_tasks import FileNote, SnapshotWork

ENTRIES_A_FILE = 4_000_000
"""About 30 MB, and 2 s of one core to encode."""

NODES_AT_ONCE = 4
SAMPLE_OBJECTS = 16
"""How many of a node's objects tell how its streams are spread, where several files are wanted."""

Progress = Callable[[int, int], object]
"""Told (done, in all)."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeSnapshot:
    """What became of a node's snapshot.

    Args:
        node_id: whose.
        objects: how many objects are listed.
        covered: how many of them the snapshot covers.
        entries: in it.
        files: in it.
        size_bytes: of the files.
        is_current: it covered just these objects already, and was left alone.
        problem: why the root that lay there could not be used; empty if it could, or there was none.
        failures: objects that could not be opened.
        failed_tasks: attempts that failed.
        requests: of tasks.
        error: why there is no new snapshot; empty if there is.
    """

    node_id: int
    objects: int
    covered: int = 0
    entries: int = 0
    files: int = 0
    size_bytes: int = 0
    is_current: bool = False
    problem: str = ""
    failures: tuple[FailedObject, ...] = ()
    failed_tasks: int = 0
    requests: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotReport:
    """What a run did.

    Args:
        nodes: what became of each, ascending.
        requests: of tasks and driver.
        seconds: from start to end.
    """

    nodes: tuple[NodeSnapshot, ...]
    requests: int
    seconds: float

    @property
    def is_partial(self) -> bool:
        """Whether something was left undone."""
        return any(node.error or node.failures for node in self.nodes)

    def row(self) -> dict[str, int | float]:
        """The report as one row of numbers."""
        return {
            "nodes": len(self.nodes),
            "objects": sum(node.objects for node in self.nodes),
            "covered_objects": sum(node.covered for node in self.nodes),
            "entries": sum(node.entries for node in self.nodes),
            "files": sum(node.files for node in self.nodes),
            "size_bytes": sum(node.size_bytes for node in self.nodes),
            "requests": self.requests,
            "failed_objects": sum(len(node.failures) for node in self.nodes),
            "failed_nodes": sum(bool(node.error) for node in self.nodes),
            "failed_tasks": sum(node.failed_tasks for node in self.nodes),
            "seconds": self.seconds,
        }


def build_snapshots_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    *,
    nodes: frozenset[int] | None = None,
    everything: bool = False,
    entries_a_file: int = ENTRIES_A_FILE,
    objects_a_task: int = OBJECTS_A_TASK,
    progress: Progress | None = None,
) -> SnapshotReport:
    """Build a snapshot of each node whose snapshot does not cover just the objects that are listed.

    Requests: one an object, and a few a node, a task and a file.

    Args:
        spark: the session; a classic one.
        store: where the catalog lies.
        nodes: only these; all by default.
        everything: build those that are current as well.
        entries_a_file: about how many; a node with fewer has one file.
        objects_a_task: how many objects a task opens.
        progress: told how many nodes are done.

    Raises:
        ValueError: a node that the catalog does not have; less than one entry a file, or object a task.
        CatalogMissing, StoreError: the catalog cannot be read now. What fails later stands in the report.
    """
    if min(entries_a_file, objects_a_task) < 1:
        found = f"{entries_a_file} and {objects_a_task}"
        raise ValueError(f"expected at least 1 entry a file and 1 object a task, found {found}")
    counted = store.open()
    with ObjectCatalog.open(counted) as catalog, ThreadPoolExecutor(NODES_AT_ONCE, "accel-snapshot") as threads:
        timer = catalog.parts.system.timer
        started = timer()
        lists = listed_nodes(catalog, nodes)
        parts = catalog.parts
        building = _Building(spark, store, counted, parts, parts.now_ms(), entries_a_file, objects_a_task, everything)
        flights = [threads.submit(building.build, node_id, live) for node_id, live in lists.items()]
        try:
            for done, _ in enumerate(as_completed(flights), 1):
                if progress is not None:
                    progress(done, len(flights))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            building.cancel(lists)
            raise
        built = tuple(flight.result() for flight in flights)
    requests = counted.snapshot().total.requests + sum(node.requests for node in built)
    return SnapshotReport(built, requests, timer() - started)


@dataclass(frozen=True, slots=True, eq=False)
class _Building:
    """Builds snapshots of single nodes. Threads: any."""

    _spark: SparkSession
    _store: StoreSpec
    _counted: CountingStore
    _parts: CatalogParts
    _clock_ms: int
    _entries_a_file: int
    _objects_a_task: int
    _everything: bool

    def build(self, node_id: int, live: Rows) -> NodeSnapshot:
        """A node's snapshot; what fails stands in the answer."""
        node = NodeSnapshot(node_id, len(live))
        try:
            root, problem = self._root(node_id)
            node = replace(node, problem=problem)
            if root is not None and not self._everything and _is_current(root, live) and self._is_whole(root):
                return replace(node, covered=len(root.covered), is_current=True)
            return self._rebuilt(node, live, None if root is None else root.generation)
        except (AccelError, ValueError) as error:
            return replace(node, error=f"{type(error).__name__}: {error}")

    def cancel(self, node_ids: Iterable[int]) -> None:
        """Stop the jobs of these nodes."""
        for node_id in node_ids:
            self._spark.sparkContext.cancelJobGroup(self._group(node_id))

    def _group(self, node_id: int) -> str:
        return f"accel-snapshot-{id(self):x}-{node_id}"

    def _root(self, node_id: int) -> tuple[SnapshotRoot | None, str]:
        key = hint_root_key(HintKind.SNAPSHOTS, node_id)
        try:
            fetched = fetch_root(self._counted, key)
            if fetched is None:
                return None, ""
            return decode_snapshot_root(fetched.body, namespace=self._parts.format.namespace, node_id=node_id), ""
        except HintProblem as problem:
            return None, "" if problem.kind is HintTrouble.MISSING else str(problem)

    def _is_whole(self, root: SnapshotRoot) -> bool:
        """Whether its files lie there: hints may be deleted."""
        prefix = hint_node_prefix(HintKind.SNAPSHOTS, root.node_id)
        sizes = {info.key: info.size_bytes for info in self._counted.list(prefix)}
        keys = [hint_file_key(HintKind.SNAPSHOTS, root.node_id, root.generation, file.name) for file in root.files]
        return all(sizes.get(key) == file.size_bytes for key, file in zip(keys, root.files, strict=True))

    def _rebuilt(self, node: NodeSnapshot, live: Rows, previous: int | None) -> NodeSnapshot:
        from spark_jobs.snapshot_tasks import SnapshotWork  # noqa: PLC0415 - takes Arrow, which comes with the extra

        generation = next_generation(previous, self._clock_ms)
        bounds = file_bounds(self._parts, node.node_id, live, self._entries_a_file)
        work = SnapshotWork(self._store, node.node_id, generation, live, bounds, self._objects_a_task)
        files, reason = self._run(work)
        failed_tasks = failed_attempts(self._spark.sparkContext, self._group(node.node_id))
        node = _with_notes(replace(node, failed_tasks=failed_tasks), files)
        if reason or not _agree(files):
            return replace(node, error=reason or "attempts at one task read different objects: run it again")
        newer, _ = self._root(node.node_id)
        if newer is not None and newer.generation > generation:
            return replace(node, error="another run has published a newer snapshot meanwhile, and deleted the files")
        return self._published(node, work, files)

    def _run(self, work: SnapshotWork) -> tuple[list[FileNote], str]:
        """What the tasks wrote, or why they failed."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with the extra
        from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

        from spark_jobs.snapshot_tasks import (  # noqa: PLC0415 - likewise
            ENTRY_DDL,
            FILE_DDL,
            decode_file_note,
            entry_opener,
            file_writer,
        )

        chunks = chunk_count(work.live, work.objects_a_task)
        if not chunks:
            return [], ""
        label = f"accel: snapshot of node {work.node_id}, {len(work.live)} objects"
        self._spark.sparkContext.setJobGroup(self._group(work.node_id), label, interruptOnCancel=True)
        entries = self._spark.range(0, chunks, 1, chunks).mapInArrow(entry_opener(work), ENTRY_DDL)
        laid = entries.repartitionById(len(work.bounds) + 1, "file").sortWithinPartitions("stream_id", "start_offset")
        try:
            rows = laid.mapInArrow(file_writer(work), FILE_DDL).collect()
        except (PySparkException, Py4JJavaError) as error:
            return [], failure_reason(error)
        return [decode_file_note(bytes(row.written)) for row in rows], ""

    def _published(self, node: NodeSnapshot, work: SnapshotWork, files: list[FileNote]) -> NodeSnapshot:
        read = [ObjectRef(object_id, size) for file in files for note in file.notes for object_id, size in note.read]
        namespace = self._parts.format.namespace
        root = finish_snapshot(
            self._counted,
            namespace=namespace,
            node_id=work.node_id,
            generation=work.generation,
            files=[file.file for file in files],
            covered=CoveredObjects.of(read),
        )
        delete_old_generations(self._counted, HintKind.SNAPSHOTS, work.node_id, namespace=namespace)
        return replace(node, covered=len(read), entries=root.entries, files=len(root.files), size_bytes=root.size_bytes)


def file_bounds(parts: CatalogParts, node_id: int, live: Rows, entries_a_file: int) -> NDArray[np.int64]:
    """The first stream of each file but the first; none where one file is enough. Requests: up to 16, or none."""
    known = live["index_size_bytes"][live["index_size_bytes"] >= 0]
    if not len(known):
        return np.empty(0, dtype=np.int64)
    files = int(-(-float(known.mean()) * len(live) // (ROW_SIZE_BYTES * entries_a_file)))
    if files <= 1:
        return np.empty(0, dtype=np.int64)
    chosen = np.unique(np.linspace(0, len(live) - 1, SAMPLE_OBJECTS).astype(np.int64))
    opened = [index for _, index in open_each(parts, ((node_id, ref) for ref in refs_of(live[chosen])))]
    streams = [index.ranges.stream_ids for index in opened if not isinstance(index, AccelError)]
    ids = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *streams]))
    at = np.arange(1, files) * len(ids) // files
    return np.unique(ids[at]) if len(ids) else ids


def _is_current(root: SnapshotRoot, live: Rows) -> bool:
    return len(root.covered) == len(live) and bool(root.covers(live["object_id"], live["size_bytes"]).all())


def _with_notes(node: NodeSnapshot, files: list[FileNote]) -> NodeSnapshot:
    notes = [note for file in files for note in file.notes]
    failures = [FailedObject(node.node_id, *failed) for note in notes for failed in note.failed]
    requests = sum(file.requests for file in files) + sum(note.requests for note in notes)
    return replace(node, failures=tuple(failures), requests=requests)


def _agree(files: list[FileNote]) -> bool:
    """Whether the files were written from just the entries that the notes speak of."""
    from spark_jobs.snapshot_tasks import Tally  # noqa: PLC0415 - takes Arrow, which comes with the extra

    written = sum((file.tally for file in files), Tally())
    return written == sum((note.tally for file in files for note in file.notes), Tally())
