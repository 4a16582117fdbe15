"""What tasks do to build a snapshot: open objects into entries, and write sorted entries into a file.

    open_entries     a chunk of objects -> entries, each with the number of the file that its stream lies in
       (Spark brings the entries of a file together, and sorts them)
    write_file       sorted entries -> one file of packed groups in the bucket

Besides entries, each chunk sends a *note*: a row whose stream is -1, so that it comes first in file 0. It says which
objects were read, which could not be, and a tally of the entries that it sent: their number, and a sum over a hash of
each. The files tally what they are written from. Only if both agree does the snapshot cover what the notes say: Spark
may run a task again, and an object that could be read the first time may be missing the second time.

Imported only where Spark is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accel.catalog import ObjectCatalog
from accel.catalog.records import Rows, refs_of
from accel.errors import AccelError
from accel.system import SYSTEM
from loaders.hints import COLUMN_NAMES, EntryColumns, SnapshotFile, SnapshotFileWriter, object_entries
from loaders.hints.snapshots import GROUP, SnapshotFileName
from spark_jobs.nodes import FailedObject, open_patiently
from spark_jobs.tasks import StoreSpec

NO_STREAM = -1
"""As a stream: the row is a note."""

ENTRY_DDL = ", ".join(
    ["file INT", *(f"{name} {'BOOLEAN' if name == 'holed' else 'BIGINT'}" for name in COLUMN_NAMES), "note BINARY"]
)
"""Columns of what `open_entries` sends."""

FILE_DDL = "written BINARY"
"""Columns of what `write_file` sends."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_NAME_DIGITS = 8

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotWork:
    """A node's snapshot in the making: all that its tasks need. Picklable.

    Args:
        store: where the catalog lies.
        node_id: whose snapshot.
        generation: of it.
        live: LIVE rows of the node's list.
        bounds: the first stream of each file but the first, ascending.
        objects_a_task: how many objects a task opens.
    """

    store: StoreSpec
    node_id: int
    generation: int
    live: Rows
    bounds: NDArray[np.int64]
    objects_a_task: int


class Tally(msgspec.Struct, frozen=True):
    """How many entries, and a sum over a hash of each: the same in any order."""

    entries: int = 0
    checksum: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.entries + other.entries, (self.checksum + other.checksum) % 2**64)

    @classmethod
    def of(cls, columns: EntryColumns) -> Tally:
        """Of these entries; O(entries), no loop over them."""
        hashes = np.zeros(len(columns), dtype=np.uint64)
        for column in columns.columns():
            hashes = (hashes ^ column.astype(np.int64).view(np.uint64)) * _MULTIPLIER
            hashes ^= hashes >> _SHIFT
        return cls(len(columns), int(hashes.sum(dtype=np.uint64)))


class ChunkNote(msgspec.Struct, frozen=True):
    """What became of a chunk of objects.

    Attributes:
        read: (object id, size) of those all of whose entries were sent.
        failed: (object id, reason) of the others.
        tally: of the entries.
        requests: that it took.
    """

    read: list[tuple[int, int]]
    failed: list[tuple[int, str]]
    tally: Tally
    requests: int


class FileNote(msgspec.Struct, frozen=True):
    """A file that was written, and the notes that came with its entries.

    Attributes:
        name: of the file; empty if there was no entry, and so no file.
        size_bytes: of the file.
        groups: its row groups, as bytes of the dtype `GROUP`.
        tally: of the entries.
        notes: of chunks.
        requests: that it took.
    """

    name: str
    size_bytes: int
    groups: bytes
    tally: Tally
    notes: list[ChunkNote]
    requests: int

    @property
    def file(self) -> SnapshotFile | None:
        """As the root wants it."""
        if not self.name:
            return None
        groups = np.frombuffer(self.groups, dtype=GROUP)
        return SnapshotFile(SnapshotFileName(self.name, self.size_bytes), groups)


def entry_opener(work: SnapshotWork) -> Callable[[Batches], Batches]:
    """A function for Spark: numbers of chunks -> entries and notes."""

    def open_entries(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                first = number * work.objects_a_task
                yield from _opened(work, work.live[first : first + work.objects_a_task])

    return open_entries


def file_writer(work: SnapshotWork) -> Callable[[Batches], Batches]:
    """A function for Spark: the sorted entries of one file, with notes before them -> what was written."""

    def write_file(batches: Batches) -> Batches:
        note = _written(work, batches)
        yield pa.RecordBatch.from_pydict({"written": pa.array([msgspec.msgpack.encode(note)], pa.binary())})

    return write_file


def decode_file_note(data: bytes) -> FileNote:
    """What `write_file` sent."""
    return msgspec.msgpack.decode(data, type=FileNote)


def _opened(work: SnapshotWork, live: Rows) -> Batches:
    store = work.store.open()
    order_ids = dict(zip(live["object_id"].tolist(), live["order_id"].tolist(), strict=True))
    read: list[tuple[int, int]] = []
    failed: list[tuple[int, str]] = []
    tally = Tally()
    with ObjectCatalog.open(store) as catalog:
        for ref, opened in open_patiently(catalog.parts, work.node_id, refs_of(live)):
            if isinstance(opened, AccelError):
                failed.append((ref.object_id, FailedObject.of(work.node_id, ref, opened).reason))
                continue
            composite = opened.composite is not None
            columns = object_entries(ref.object_id, order_ids[ref.object_id], opened.index, composite=composite)
            read.append((ref.object_id, opened.ref.size_bytes))
            tally += Tally.of(columns)
            yield _entry_batch(columns, np.searchsorted(work.bounds, columns.stream_ids, side="right"))
    yield _note_batch(ChunkNote(read, failed, tally, store.snapshot().total.requests))


def _entry_batch(columns: EntryColumns, files: NDArray[np.intp]) -> pa.RecordBatch:
    named = zip(COLUMN_NAMES, columns.columns(), strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "file": pa.array(files.astype(np.int32)),
            **{name: pa.array(column) for name, column in named},
            "note": pa.nulls(len(columns), pa.binary()),
        }
    )


def _note_batch(note: ChunkNote) -> pa.RecordBatch:
    columns = {name: pa.array([0], pa.int64()) for name in COLUMN_NAMES}
    columns |= {"stream_id": pa.array([NO_STREAM], pa.int64()), "holed": pa.array([False])}
    told = {"note": pa.array([msgspec.msgpack.encode(note)], pa.binary())}
    return pa.RecordBatch.from_pydict({"file": pa.array([0], pa.int32()), **columns, **told})


def _written(work: SnapshotWork, batches: Batches) -> FileNote:
    store = work.store.open()
    notes: list[ChunkNote] = []
    tally = Tally()
    writer = SnapshotFileWriter(store, node_id=work.node_id, generation=work.generation, name=_fresh_name())
    with writer:
        for batch in batches:
            is_note = batch.column("stream_id").to_numpy() == NO_STREAM
            told = batch.column("note").filter(pa.array(is_note)).to_pylist()
            notes += [msgspec.msgpack.decode(note, type=ChunkNote) for note in told]
            columns = EntryColumns.from_arrow(batch.filter(pa.array(~is_note)))
            tally += Tally.of(columns)
            writer.write(columns)
    return _file_note(writer.file, tally, notes, store.snapshot().total.requests)


def _file_note(file: SnapshotFile | None, tally: Tally, notes: list[ChunkNote], requests: int) -> FileNote:
    if file is None:
        return FileNote("", 0, b"", tally, notes, requests)
    return FileNote(file.file.name, file.file.size_bytes, file.groups.tobytes(), tally, notes, requests)


def _fresh_name() -> str:
    # Spark may run a task again, or two of it at once: each attempt has a file of its own, and the root names one.
    return f"entries-{SYSTEM.nonce().hex()[: 2 * _NAME_DIGITS]}"
