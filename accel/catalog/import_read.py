"""Reads the indexes of a bucket's objects for an import: a bounded number at once, and none twice.

Objects are taken by ascending id, 64 at a time. What an earlier import has read of exactly these is taken from the
table of progress; else each index is opened, by one or two ranged GETs, and a finished batch is kept there. Its key is
a hash of ids, sizes and times of just these objects: a bucket that has changed since never meets what was read of other
objects, and what did not change is not read again. The table exists only while an import is under way, and no
collection begins while it is there (see `survey`).

An object that cannot be opened because of what it is (damaged, or made by a newer release) is noted and the others go
on; so is a composite one, which holds nothing itself. An object that cannot be read because of the store stops the
import: it is repeated later and goes on from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.catalog.import_plan import FOUND_OBJECT, LEFT_OUT, RUN, SHOWN_MAX, FoundObjects, Hole, RunFolder, Unlistable
from accel.catalog.keys import IMPORT_PROGRESS
from accel.catalog.object_ids import check_counter
from accel.catalog.parts import CatalogParts, open_bounded
from accel.catalog.records import INT64_MAX, READ_OBJECT, READ_RANGE, ImportRun, ReadBatch
from accel.catalog.rows import Rows, make_rows, some
from accel.catalog.survey import Progress, StoredObjects
from accel.errors import AccelError, FormatError, KeyMissing, MaintenanceRefused
from loaders.object_index import ObjectIndexLoader, OpenedObject
from loaders.object_ref import ObjectRef
from loaders.tables.columns import ROWS_MAX

BATCH_OBJECTS = 64
"""With 16,384 streams in each of them a batch has as many rows as one value may have."""


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """The table of an import. Threads: any.

    Args:
        parts: of the catalog.
    """

    parts: CatalogParts

    def exists(self) -> bool:
        """Whether an import is under way. One request."""
        return self.parts.keys.tables.table_exists(IMPORT_PROGRESS)

    def begin(self) -> None:
        """See to it that the table is there. One request; a few more if it is not."""
        if not self.exists():
            self.drop()  # what another import, which died while it dropped the table, has left
            self.parts.keys.tables.create_table(IMPORT_PROGRESS)

    def drop(self) -> None:
        """The import has come to its end."""
        self.parts.keys.tables.drop_table(IMPORT_PROGRESS)

    def find(self, stored: StoredObjects) -> ReadBatch | None:
        """What was read of just these objects; None if nothing was. One request."""
        seen = self.parts.keys.import_batch(batch_key(stored)).read()
        return None if seen is None else seen.value

    def keep(self, stored: StoredObjects, batch: ReadBatch) -> None:
        """Remember what was read of these objects; more than one value may have is not remembered. One request."""
        if len(batch.ranges) <= ROWS_MAX:
            self.parts.keys.import_batch(batch_key(stored)).create_if_absent(batch)

    def note_counter(self, least: int) -> ImportRun | None:
        """Write down what the counter of ids says, before it is raised; None if it need not be raised."""
        key = self.parts.keys.object_ids()
        seen = key.read()
        before = check_counter(None if seen is None else seen.value, -1, key.where)
        if before >= least:
            return None

        def noted(run: ImportRun | None) -> ImportRun | None:
            if run is None or before not in (run.counter_before, *run.raised_to):
                return ImportRun(before, (least,))
            raised = tuple(sorted({*run.raised_to, least}))
            return None if raised == run.raised_to else ImportRun(run.counter_before, raised)

        return self.parts.keys.import_run().change(noted).value

    def run(self) -> ImportRun | None:
        """What was written down about the counter. One request."""
        seen = self.parts.keys.import_run().read()
        return None if seen is None else seen.value


def batch_key(stored: StoredObjects) -> str:
    """The name of a batch of objects: ids, sizes and times of writing, hashed."""
    columns = (stored.ids, stored.sizes_bytes, stored.modified_ms)
    digest = hashlib.sha256(b"".join(column.astype("<i8").tobytes() for column in columns))
    return f"batch-{digest.hexdigest()[:40]}"


Nodes: TypeAlias = int | Mapping[int, int] | Callable[[int], int | None]
"""Whose an object is: one node for all, {object id: node id}, or a function that gives None where it does not know."""

NODE_ID_MAX = 10**10 - 1
"""The largest id that a key of the catalog can say."""


@dataclass(frozen=True, slots=True)
class ImportChoice:
    """What is to be imported.

    Args:
        nodes: whose the objects are.
        leave_out: ids of objects that are not to be listed, nor opened.
        skip_bad: leave out what cannot be listed, instead of importing nothing.
    """

    nodes: Nodes
    leave_out: Collection[int] = frozenset()
    skip_bad: bool = False


def nodes_of(ids: NDArray[np.int64], choice: ImportChoice) -> NDArray[np.int64]:
    """The node of each object; -1 for those that are to be left out and that nobody knows.

    Raises:
        MaintenanceRefused: objects without a node, or nodes that cannot be.
    """
    find = _finder(choice.nodes)
    owners = [find(object_id) for object_id in ids.tolist()]
    is_named = np.isin(ids, np.fromiter(choice.leave_out, dtype=np.int64))
    missing = ids[np.array([owner is None for owner in owners], dtype=np.bool_) & ~is_named]
    if len(missing):
        raise MaintenanceRefused(f"expected a node for each object of the bucket, found none for {some(missing)}")
    wrong = [owner for owner in owners if owner is not None and not 0 <= owner <= NODE_ID_MAX]
    if wrong:
        raise MaintenanceRefused(f"expected node ids of 0 to {NODE_ID_MAX}, found {wrong[0]}")
    return np.array([-1 if owner is None else owner for owner in owners], dtype=np.int64)


def read_objects(
    parts: CatalogParts, stored: StoredObjects, choice: ImportChoice, *, keep: bool, progress: Progress | None = None
) -> FoundObjects:
    """Find out what all objects hold.

    Args:
        parts: of the catalog.
        stored: all objects of the bucket.
        choice: what is to be imported.
        keep: write down what was read; the table of progress must be there. Else only what is there is used.
        progress: called with the number of objects so far, after each one.

    Requests: one for each 64 objects, and one more if they are kept; one or two an object that was not read before.

    Raises:
        MaintenanceRefused: see `nodes_of`; or an object vanished meanwhile.
        StoreError, TableError: repeat it later.
    """
    if len(stored.ids) and stored.ids[-1] == INT64_MAX:
        raise MaintenanceRefused(f"expected object ids with room above them, found {INT64_MAX}")
    nodes = nodes_of(stored.ids, choice)
    is_left_out = np.isin(stored.ids, np.fromiter(choice.leave_out, dtype=np.int64))
    table = ImportProgress(parts)
    gathered = _Gathered()
    gathered.leave_out(stored.ids[is_left_out], nodes[is_left_out])
    reader = _Reader(parts, table, keep=keep, recall=keep or table.exists(), progress=progress)
    wanted, owners = _chosen(stored, ~is_left_out), nodes[~is_left_out]
    for start in range(0, len(owners), BATCH_OBJECTS):
        part = slice(start, start + BATCH_OBJECTS)
        gathered.add(_chosen(wanted, part), owners[part], *reader.read(_chosen(wanted, part), owners[part]))
    return gathered.all(int(stored.ids[-1]) + 1 if len(stored.ids) else 0)


Read: TypeAlias = tuple[ReadBatch, list[Unlistable]]


class _Reader:
    """Reads batches of objects. Threads: one; it opens objects on those of the catalog."""

    def __init__(
        self, parts: CatalogParts, table: ImportProgress, *, keep: bool, recall: bool, progress: Progress | None
    ) -> None:
        self._parts = parts
        self._table = table
        self._keep = keep
        self._recall = recall
        self._progress = progress
        self._done = 0
        # A loader of its own: the catalog's remembers indexes, and here every object is opened once.
        self._loader = ObjectIndexLoader(parts.store, parts.layout, parts.executor, cache_bytes_max=0)

    def read(self, stored: StoredObjects, owners: NDArray[np.int64]) -> Read:
        """What these objects hold, and which of them cannot be listed."""
        known = self._table.find(stored) if self._recall else None
        if known is not None:
            for _ in stored.ids:
                self._tell()
            return known, []
        opened: list[OpenedObject] = []
        bad: list[Unlistable] = []
        refs = map(ObjectRef, stored.ids.tolist(), stored.sizes_bytes.tolist())
        wanted = zip(owners.tolist(), refs, strict=True)
        for ref, load in open_bounded(self._loader, wanted, self._parts.settings.parallel_requests):
            outcome = _result(ref, load)
            if isinstance(outcome, OpenedObject):
                opened.append(outcome)
            else:
                bad.append(Unlistable(ref.object_id, self._parts.layout.object_key(ref.object_id), outcome))
            self._tell()
        batch = _batch_of(opened)
        if self._keep and not bad:  # what is damaged may be repaired until the import is repeated
            self._table.keep(stored, batch)
        return batch, bad

    def _tell(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done)


def _result(ref: ObjectRef, load: Future[OpenedObject]) -> OpenedObject | str:
    try:
        opened = load.result()
    except FormatError as error:
        return str(error)
    except KeyMissing as error:
        found = "it gone: is somebody deleting?"
        raise MaintenanceRefused(f"expected object {ref.object_id} to stay where it is, found {found}") from error
    except AccelError as error:
        error.add_note(f"while reading the index of object {ref.object_id}; the import can be repeated")
        raise
    return "a composite object: it only links blocks of other ones" if opened.composite is not None else opened


def _batch_of(opened: list[OpenedObject]) -> ReadBatch:
    ranges = [one.ranges for one in opened]
    holed = [np.isin(np.arange(len(held)), held.holed) for held in ranges]
    return ReadBatch(
        make_rows(
            READ_OBJECT,
            object_id=[one.ref.object_id for one in opened],
            size_bytes=[one.ref.size_bytes for one in opened],
            index_size_bytes=[one.ref.index_size_bytes for one in opened],
            tail_checksum=[one.ref.tail_checksum for one in opened],
            streams=[len(held) for held in ranges],
        ),
        make_rows(
            READ_RANGE,
            stream_id=_joined([held.stream_ids for held in ranges]),
            start=_joined([held.starts for held in ranges]),
            end=_joined([held.ends for held in ranges]),
            holed=_joined([is_holed.astype(np.int64) for is_holed in holed]),
        ),
    )


def _joined(columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, dtype=np.int64), *columns])


@dataclass(slots=True, eq=False)
class _Gathered:
    """What was read so far. Threads: one."""

    folded: RunFolder = field(default_factory=RunFolder)
    objects: list[Rows] = field(default_factory=list)
    count: int = 0
    holed: list[Hole] = field(default_factory=list)
    holed_count: int = 0
    left_out: list[Rows] = field(default_factory=list)
    unlistable: list[Unlistable] = field(default_factory=list)
    unlistable_count: int = 0

    def leave_out(self, ids: NDArray[np.int64], owners: NDArray[np.int64]) -> None:
        """Note objects that are not to be listed."""
        self.left_out.append(make_rows(LEFT_OUT, object_id=ids, node_id=owners))

    def add(self, stored: StoredObjects, owners: NDArray[np.int64], batch: ReadBatch, bad: list[Unlistable]) -> None:
        """Take in a batch, whose objects come behind all before."""
        at = np.searchsorted(stored.ids, batch.objects["object_id"])
        self.objects.append(_found_objects(batch, owners[at], stored.modified_ms[at]))
        self._fold(batch, owners[at])
        self.count += len(batch.objects)
        bad_ids = np.array([unlistable.object_id for unlistable in bad], dtype=np.int64)
        self.leave_out(bad_ids, owners[np.searchsorted(stored.ids, bad_ids)])
        self.unlistable += bad[: SHOWN_MAX - len(self.unlistable)]
        self.unlistable_count += len(bad)

    def all(self, next_object_id: int) -> FoundObjects:
        """All of it."""
        return FoundObjects(
            objects=np.concatenate([np.empty(0, FOUND_OBJECT), *self.objects]),
            folded=self.folded,
            holed=tuple(self.holed),
            holed_count=self.holed_count,
            left_out=np.concatenate([np.empty(0, LEFT_OUT), *self.left_out]),
            unlistable=tuple(self.unlistable),
            unlistable_count=self.unlistable_count,
            next_object_id=next_object_id,
        )

    def _fold(self, batch: ReadBatch, owners: NDArray[np.int64]) -> None:
        owner_rows = np.repeat(np.arange(len(batch.objects)), batch.objects["streams"])
        ranges, positions = batch.ranges, owner_rows + self.count
        columns = {name: ranges[name] for name in ("stream_id", "start", "end")}
        self.folded.add(make_rows(RUN, node_id=owners[owner_rows], first=positions, last=positions, **columns))
        holed = np.flatnonzero(ranges["holed"])
        self.holed_count += len(holed)
        for at in holed[: SHOWN_MAX - len(self.holed)].tolist():
            stream_id, start, end, _ = ranges[at].tolist()
            self.holed.append(Hole(stream_id, start, end, int(batch.objects["object_id"][owner_rows[at]])))


def _found_objects(batch: ReadBatch, owners: NDArray[np.int64], modified_ms: NDArray[np.int64]) -> Rows:
    columns = {name: batch.objects[name] for name in ("object_id", "size_bytes", "index_size_bytes", "tail_checksum")}
    return make_rows(FOUND_OBJECT, node_id=owners, modified_ms=modified_ms, **columns)


def _chosen(stored: StoredObjects, which: NDArray[np.bool_] | slice) -> StoredObjects:
    return StoredObjects(stored.ids[which], stored.sizes_bytes[which], stored.modified_ms[which])


def _finder(nodes: Nodes) -> Callable[[int], int | None]:
    if isinstance(nodes, int):
        return lambda _: nodes
    return nodes.get if isinstance(nodes, Mapping) else nodes
