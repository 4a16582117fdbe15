"""What a reader keeps of the catalog, and how it catches up with few bytes.

    round 1    the directory of nodes, and each node's list      conditional GETs, all at once
    round 2    lists of nodes that are new in the directory      only then
    round 3    the buckets of streams                            conditional GETs, all at once

A key that did not change answers 304, without a body, and what was built from it stays. Lists are read before streams,
because writers write the other way round: an object of one stream appears in a bucket before a list drops what it
replaces, so a reader sees data twice rather than not at all.

What the buckets know of a node's sessions and commits, its list must have seen: if it has not, a session came in
between, and all is asked once more; or the list, or the directory, went back in time, and then the refresh fails.

An undo cannot keep that order: its first write is the list's. If one comes between rounds 1 and 3, the buckets have let
go of what it takes away, and the lists do not show yet what it brings back. That can be seen (`undoable`), and then all
is asked once more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from accel.catalog.cell import Cell, Seen
from accel.catalog.cells import CatalogCells
from accel.catalog.image_builder import BuiltImage, build_image
from accel.catalog.records import NodeDirectory, NodeList, StreamBucket
from accel.catalog.rows import Columns, highest_of_each
from accel.catalog.stream_rules import OPEN
from accel.catalog.undoable import is_led_back
from accel.errors import CatalogDamaged, CatalogWentBack
from accel.version import VersionVector, is_newer

T = TypeVar("T")
U = TypeVar("U")

REREADS_MAX = 3
"""So often a refresh asks again because of an undo or a new session that came in between."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All that was read of the catalog, with the image built from it. Not of one instant: see the module."""

    directory: Seen[NodeDirectory]
    lists: Mapping[int, Seen[NodeList]]
    buckets: tuple[Seen[StreamBucket], ...]
    version: VersionVector
    built: BuiltImage

    def node_lists(self) -> dict[int, NodeList]:
        """Node id -> its list."""
        return {node_id: seen.value for node_id, seen in self.lists.items()}


class Watch:
    """Keeps a snapshot, and catches up when asked.

    Args:
        cells: the catalog's keys.
        namespace: of the objects.
        bucket_count: buckets of streams, as the format record says.
        executor: sends the requests of a round.

    Threads: any. Two threads that refresh at once both ask; the newer answer stays.
    """

    def __init__(self, cells: CatalogCells, namespace: str, bucket_count: int, executor: Executor) -> None:
        self._cells = cells
        self._namespace = namespace
        self._bucket_count = bucket_count
        self._executor = executor
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """What was read last; reads if nothing was."""
        snapshot = self._snapshot
        return self.refresh() if snapshot is None else snapshot

    def refresh(self) -> Snapshot:
        """Catch up: one conditional GET a key, in two or three rounds.

        Where the directory names another generation than before (`restore`), nothing that was read before counts:
        all is read anew, and the image that comes of it is newer than every one of an earlier generation.

        Raises:
            StoreError: the catalog cannot be read now.
            CatalogWentBack: a key holds less than before, and the directory names no new generation.
            CatalogDamaged: a key is gone, or buckets know of nodes, sessions or commits that the lists do not.
            CorruptObject, FormatTooNew: it is not what it should be.
        """
        before = self._snapshot
        try:
            after = self._read(before)
        except CatalogWentBack:
            if before is None or not self._is_renewed(before):
                raise
            before, after = None, self._read(None)
        if before is not None and after.version.generation != before.version.generation:
            before, after = None, self._read(None)
        known = before
        for _ in range(REREADS_MAX):
            if not _is_torn(after, before) and _behind(after, known) is None:
                break
            before, after = after, self._read(after)
        else:
            behind = _behind(after, known)
            if behind is not None:
                raise CatalogDamaged(behind)
        with self._lock:
            if self._snapshot is None or is_newer(after.version, self._snapshot.version):
                self._snapshot = after
            return self._snapshot

    def _read(self, before: Snapshot | None) -> Snapshot:
        known = {} if before is None else dict(before.lists)
        asked = list(known.items())
        directory_flight = self._executor.submit(self._read_directory, before)
        lists = dict(zip(known, self._all(self._again, ((self._cells.node_list(n), s) for n, s in asked)), strict=True))
        directory = directory_flight.result()
        missing = [node_id for node_id in directory.value.node_ids.tolist() if node_id not in lists]
        lists.update(zip(missing, self._all(_there, map(self._cells.node_list, missing)), strict=True))
        buckets = tuple(self._read_buckets(before))
        version = _version(directory, lists, buckets)
        built = build_image(
            self._namespace,
            {node_id: seen.value for node_id, seen in lists.items()},
            [seen.value for seen in buckets],
            version,
            None if before is None else before.built,
        )
        return Snapshot(directory, lists, buckets, version, built)

    def _is_renewed(self, before: Snapshot) -> bool:
        return _there(self._cells.directory()).value.generation > before.version.generation

    def _read_directory(self, before: Snapshot | None) -> Seen[NodeDirectory]:
        cell = self._cells.directory()
        return _there(cell) if before is None else cell.read_newer(before.directory)

    def _read_buckets(self, before: Snapshot | None) -> list[Seen[StreamBucket]]:
        cells = [self._cells.bucket(number) for number in range(self._bucket_count)]
        if before is None:
            return self._all(_there, cells)
        return self._all(self._again, zip(cells, before.buckets, strict=True))

    def _all(self, read: Callable[[T], U], asked: Iterable[T]) -> list[U]:
        return list(self._executor.map(read, asked))

    @staticmethod
    def _again(asked: tuple[Cell[T], Seen[T]]) -> Seen[T]:
        cell, seen = asked
        return cell.read_newer(seen)


def _there(cell: Cell[T]) -> Seen[T]:
    seen = cell.read()
    if seen is None:
        raise CatalogDamaged(f"expected a value in {cell.where}, found none: it was deleted")
    return seen


def _is_torn(after: Snapshot, before: Snapshot | None) -> bool:
    known = before.buckets if before is not None else (None,) * len(after.buckets)
    changed = [seen.value for seen, other in zip(after.buckets, known, strict=True) if seen is not other]
    lists = after.node_lists() if changed else {}
    return any(is_led_back(lists, bucket) for bucket in changed)


def _behind(after: Snapshot, before: Snapshot | None) -> str | None:
    """What buckets know of nodes that their lists do not; None if nothing. O(rows of the buckets that changed).

    Lists are read before buckets: a session or commit in between is no damage, and gone when all is asked again.
    """
    known = before.buckets if before is not None else (None,) * len(after.buckets)
    changed = [seen.value for seen, other in zip(after.buckets, known, strict=True) if seen is not other]
    for expected, columns in (("epoch", _epochs(changed)), ("next_order_id", _commits(changed))):
        for node_id, least in highest_of_each(columns):
            seen = after.lists.get(node_id)
            found = None if seen is None else getattr(seen.value, expected)
            if found is None or found < least:
                wanted = f"a list of node {node_id} with {expected} of at least {least}, as buckets of streams know"
                return f"expected {wanted}, found {'none in the directory' if found is None else found}: put back?"
    return None


def _epochs(buckets: Iterable[StreamBucket]) -> Columns:
    return [(each.ranges["node_id"], np.where(each.ranges["end"] == OPEN, each.ranges["epoch"], 0)) for each in buckets]


def _commits(buckets: Iterable[StreamBucket]) -> Columns:
    rows = (rows for each in buckets for rows in (each.stream_objects, each.retired))
    return [(each["node_id"], each["added_by"] + 1) for each in rows if len(each)]


def _version(
    directory: Seen[NodeDirectory], lists: Mapping[int, Seen[NodeList]], buckets: tuple[Seen[StreamBucket], ...]
) -> VersionVector:
    parts = {"directory": directory.version.sequence}
    parts |= {f"node/{node_id}": seen.version.sequence for node_id, seen in lists.items()}
    parts |= {f"bucket/{number}": seen.version.sequence for number, seen in enumerate(buckets)}
    return VersionVector(parts, directory.value.generation)
