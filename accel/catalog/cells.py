"""Every key of the catalog, with the form of its value: the one place that joins tables, keys and records."""

from __future__ import annotations

from accel.catalog import places, records
from accel.catalog.cell import Cell
from accel.catalog.records import (
    Checkpoint,
    ImportRun,
    ListVersion,
    NodeDirectory,
    NodeList,
    ObjectIdCounter,
    ReadBatch,
    StreamBucket,
)
from loaders.tables import FormatRecord, Tables
from loaders.tables.format_record import FORMAT_FORM

DIRECTORY_SIZE_BYTES_MAX = 1 << 20
"""Of the directory: a node takes up to 9 bytes."""

COUNTER_SIZE_BYTES_MAX = 1 << 12
"""Of a counter, which is one number."""


class CatalogCells:
    """The catalog's keys. Threads: any."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def directory(self) -> Cell[NodeDirectory]:
        """Which nodes have a list."""
        table = self.tables.table(places.NODES, value_size_bytes_max=DIRECTORY_SIZE_BYTES_MAX)
        return Cell(table, places.DIRECTORY_KEY, records.NODE_DIRECTORY)

    def format_copy(self) -> Cell[FormatRecord]:
        """The choices with which the catalog was begun, beside the format record itself."""
        return Cell(self.tables.table(places.NODES), places.FORMAT_COPY_KEY, FORMAT_FORM)

    def node_list(self, node_id: int) -> Cell[NodeList]:
        """A node's objects."""
        return Cell(self.tables.table(places.NODE_LISTS), places.node_key(node_id), records.NODE_LIST)

    def list_version(self, node_id: int, sequence: int) -> Cell[ListVersion]:
        """A node's list as it stood at one of its sequence numbers."""
        key = places.list_version_key(node_id, sequence)
        return Cell(self.tables.table(places.NODE_LIST_HISTORY), key, records.LIST_VERSION)

    def bucket(self, number: int) -> Cell[StreamBucket]:
        """A part of the streams."""
        return Cell(self.tables.table(places.STREAM_BUCKETS), places.bucket_key(number), records.STREAM_BUCKET)

    def checkpoint(self, node_id: int) -> Cell[Checkpoint]:
        """Where a node's streams ended some commits ago."""
        return Cell(self.tables.table(places.NODE_CHECKPOINTS), places.node_key(node_id), records.CHECKPOINT)

    def object_ids(self) -> Cell[ObjectIdCounter]:
        """The next object id that nobody has."""
        table = self.tables.table(places.COUNTERS, value_size_bytes_max=COUNTER_SIZE_BYTES_MAX)
        return Cell(table, places.OBJECT_IDS_KEY, records.OBJECT_ID_COUNTER)

    def import_run(self) -> Cell[ImportRun]:
        """What an import that is under way has done to the counter of ids."""
        return Cell(self.tables.table(places.IMPORT_PROGRESS), places.IMPORT_RUN_KEY, records.IMPORT_RUN)

    def import_batch(self, key: str) -> Cell[ReadBatch]:
        """Indexes that an import has read."""
        return Cell(self.tables.table(places.IMPORT_PROGRESS), key, records.IMPORT_BATCH)
