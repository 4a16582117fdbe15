"""Index snapshots: which objects of a node are not covered, and the generation that covers all objects.

Entries of objects that are still listed, with the size in the snapshot, are copied from the previous generation, which
is read with 16 MiB a request, instead of opening the objects. Entries of other objects are read from the objects. All
entries are merged in the order of a snapshot (`loaders.hints.sorted_entries`) and written as one file.

If the previous generation turns out to be damaged, its objects are opened. An object that cannot be opened is left out:
the snapshot does not cover it, so that readers open it themselves, and the next run retries it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import Rows
from accel.hint_building.filters import Depth, Overtaken
from loaders.hints import (
    CoveredObjects,
    EntryColumns,
    EntrySorter,
    HintProblem,
    HintTrouble,
    SnapshotFile,
    SnapshotFileWriter,
    SnapshotRoot,
    decode_snapshot_root,
    delete_old_generations,
    finish_snapshot,
    merge_sorted,
    read_snapshot,
)
from loaders.hints.roots import fetch_root
from loaders.layout import HintKind, hint_file_key, hint_node_prefix, hint_root_key
from loaders.object_ref import ObjectRef
from loaders.store.base import ObjectStore

_NAME_DIGITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotNeeds:
    """The objects that a node's snapshot must add. Picklable.

    Args:
        wanted: for each listed object whether it is to be opened.
        previous: the root whose entries are copied; None to build a whole snapshot.
        generation: of the stored root, if its number can be read.
        problem: why the stored root cannot be used; empty if it can, or there is none.
        is_current: the snapshot covers exactly the listed objects.
    """

    wanted: NDArray[np.bool_]
    previous: SnapshotRoot | None
    generation: int | None
    problem: str
    is_current: bool

    @property
    def kept(self) -> int:
        """The number of objects whose entries are copied."""
        return int((~self.wanted).sum())


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The result for a node's snapshot.

    Args:
        covered: the number of listed objects that it covers.
        kept: of these, the number copied from the previous generation.
        entries: the number of its entries.
        size_bytes: of its file.
        is_current: it covered exactly these objects before, and was not changed.
        is_overtaken: another run has written a newer snapshot in the meantime; this one's was discarded.
        problem: why the previous generation could not be used; empty if it could, or there was none.
        error: why there is no new snapshot; empty if there is.
    """

    covered: int = 0
    kept: int = 0
    entries: int = 0
    size_bytes: int = 0
    is_current: bool = False
    is_overtaken: bool = False
    problem: str = ""
    error: str = ""


def find_snapshot_needs(store: ObjectStore, namespace: str, node_id: int, live: Rows, depth: Depth) -> SnapshotNeeds:
    """Find the objects that a node's snapshot lacks. Two requests.

    Raises:
        StoreError: the store failed.
    """
    everything = np.ones(len(live), dtype=np.bool_)
    root, problem = _previous_root(store, namespace, node_id)
    if root is None:
        return SnapshotNeeds(everything, None, None, problem, is_current=False)
    if depth is Depth.ALL:
        return SnapshotNeeds(everything, None, root.generation, "", is_current=False)
    if not _is_whole(store, root):
        return SnapshotNeeds(everything, None, root.generation, "files that it names are missing", is_current=False)
    wanted = ~root.covers(live["object_id"], live["size_bytes"])
    is_current = len(root.covered) == len(live) and not wanted.any()
    return SnapshotNeeds(wanted, root, root.generation, "", is_current)


def read_snapshot_root(store: ObjectStore, namespace: str, node_id: int) -> SnapshotRoot:
    """The root of a node's snapshot. One request.

    Raises:
        HintProblem: there is none, or it cannot be used.
        StoreError: the store failed.
    """
    key = hint_root_key(HintKind.SNAPSHOTS, node_id)
    fetched = fetch_root(store, key)
    if fetched is None:
        raise HintProblem(HintTrouble.MISSING, key, "no such object")
    return decode_snapshot_root(fetched.body, namespace=namespace, node_id=node_id)


def _previous_root(store: ObjectStore, namespace: str, node_id: int) -> tuple[SnapshotRoot | None, str]:
    try:
        return read_snapshot_root(store, namespace, node_id), ""
    except HintProblem as problem:
        return None, "" if problem.kind is HintTrouble.MISSING else str(problem)


def _is_whole(store: ObjectStore, root: SnapshotRoot) -> bool:
    """Whether all files of a root exist: hints may be deleted."""
    sizes = {info.key: info.size_bytes for info in store.list(hint_node_prefix(HintKind.SNAPSHOTS, root.node_id))}
    keys = [hint_file_key(HintKind.SNAPSHOTS, root.node_id, root.generation, file.name) for file in root.files]
    return all(sizes.get(key) == file.size_bytes for key, file in zip(keys, root.files, strict=True))


def kept_entries(store: ObjectStore, root: SnapshotRoot, kept: Rows) -> Iterator[EntryColumns]:
    """Entries of these objects in an older snapshot, in order; with the order ids that are listed now.

    Args:
        store: the store of its files.
        root: of the older snapshot, which covers all of these objects.
        kept: LIVE rows of the objects.

    Raises:
        HintProblem: a file is missing or damaged.
        StoreError: the store failed.
    """
    if not len(kept):
        return
    by_id = kept[np.argsort(kept["object_id"])]
    ids, order_ids = np.ascontiguousarray(by_id["object_id"]), np.ascontiguousarray(by_id["order_id"])
    for columns in read_snapshot(store, root):
        places = np.minimum(ids.searchsorted(columns.object_ids), len(ids) - 1)
        is_kept = ids[places] == columns.object_ids
        found = columns.take(np.flatnonzero(is_kept))
        yield found.with_order_ids(order_ids[places[is_kept]])


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotBuild:
    """Builds one node's snapshot. Threads: one.

    Args:
        store: the store to write to.
        namespace: of the cluster's objects.
        node_id: the node.
        needs: the result of planning.
        generation: the number of the new generation.
        sorter: contains the entries of the opened objects.
        nonce: returns a name that no other attempt uses.
    """

    store: ObjectStore
    namespace: str
    node_id: int
    needs: SnapshotNeeds
    generation: int
    sorter: EntrySorter
    nonce: Callable[[], bytes]

    def write(self, kept: Rows, opened: list[ObjectRef]) -> NodeSnapshot:
        """Write the file and the root, and delete old generations.

        Requests: those of reading the older file, a part of 16 MiB each and two more to write, one to check whether
        another run was faster, two for the root, and four to delete old generations.

        Args:
            kept: LIVE rows of the objects whose entries are copied.
            opened: the objects whose entries are in the sorter.

        Raises:
            HintProblem: the older snapshot is damaged: nothing was written.
            Overtaken: another run was faster.
            StoreError: the root may or may not have been swapped.
        """
        file = self._write_file(kept)
        newer, _ = _previous_root(self.store, self.namespace, self.node_id)
        if newer is not None and newer.generation > self.generation:
            self._drop(file)
            raise Overtaken
        taken = [ObjectRef(int(row["object_id"]), int(row["size_bytes"])) for row in kept]
        root = finish_snapshot(
            self.store,
            namespace=self.namespace,
            node_id=self.node_id,
            generation=self.generation,
            files=[file],
            covered=CoveredObjects.of([*taken, *opened]),
        )
        delete_old_generations(self.store, HintKind.SNAPSHOTS, self.node_id, namespace=self.namespace)
        covered = len(kept) + len(opened)
        return NodeSnapshot(covered, len(kept), root.entries, root.size_bytes, problem=self.needs.problem)

    def _write_file(self, kept: Rows) -> SnapshotFile | None:
        sources = self.sorter.runs()
        if self.needs.previous is not None and len(kept):
            sources.insert(0, kept_entries(self.store, self.needs.previous, kept))
        # A run may be started twice, and stop at any time: each attempt has its own file, and the root names one file.
        name = f"entries-{self.nonce().hex()[:_NAME_DIGITS]}"
        with SnapshotFileWriter(self.store, node_id=self.node_id, generation=self.generation, name=name) as writer:
            for columns in merge_sorted(sources):
                writer.write(columns)
        return writer.file

    def _drop(self, file: SnapshotFile | None) -> None:
        if file is not None:
            self.store.delete(hint_file_key(HintKind.SNAPSHOTS, self.node_id, self.generation, file.file.name))
