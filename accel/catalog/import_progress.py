"""What an import that is under way has read: a table that exists only meanwhile.

Its existence is a sign as well: no collection begins while it is there (see `survey`). The indexes of up to 64
neighbouring objects are one key, named by a hash of ids, sizes and times of just these objects. So a bucket that has
changed since never meets what was read of other objects, and what did not change is not read again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from accel.catalog.keys import IMPORT_PROGRESS
from accel.catalog.object_ids import check_counter
from accel.catalog.parts import CatalogParts
from accel.catalog.records import ImportRun, ReadBatch
from accel.catalog.survey import StoredObjects
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
        return self.parts.cells.tables.table_exists(IMPORT_PROGRESS)

    def begin(self) -> None:
        """See to it that the table is there. One request; a few more if it is not."""
        if not self.exists():
            self.drop()  # what another import, which died while it dropped the table, has left
            self.parts.cells.tables.create_table(IMPORT_PROGRESS)

    def drop(self) -> None:
        """The import has come to its end."""
        self.parts.cells.tables.drop_table(IMPORT_PROGRESS)

    def find(self, stored: StoredObjects) -> ReadBatch | None:
        """What was read of just these objects; None if nothing was. One request."""
        seen = self.parts.cells.import_batch(batch_key(stored)).read()
        return None if seen is None else seen.value

    def keep(self, stored: StoredObjects, batch: ReadBatch) -> None:
        """Remember what was read of these objects; more than one value may have is not remembered. One request."""
        if len(batch.ranges) <= ROWS_MAX:
            self.parts.cells.import_batch(batch_key(stored)).create_if_absent(batch, final=True)

    def note_counter(self, least: int) -> ImportRun | None:
        """Write down what the counter of ids says, before it is raised; None if it need not be raised."""
        cell = self.parts.cells.object_ids()
        seen = cell.read()
        before = check_counter(None if seen is None else seen.value, -1, cell.where)
        if before >= least:
            return None

        def noted(found: ImportRun | None) -> ImportRun | None:
            if found is None or before not in (found.counter_before, *found.raised_to):
                return ImportRun(before, (least,))
            raised = tuple(sorted({*found.raised_to, least}))
            return None if raised == found.raised_to else ImportRun(found.counter_before, raised)

        return self.parts.cells.import_run().change(noted).value

    def run(self) -> ImportRun | None:
        """What was written down about the counter. One request."""
        seen = self.parts.cells.import_run().read()
        return None if seen is None else seen.value


def batch_key(stored: StoredObjects) -> str:
    """The name of a batch of objects: ids, sizes and times of writing, hashed."""
    columns = (stored.ids, stored.sizes_bytes, stored.modified_ms)
    digest = hashlib.sha256(b"".join(column.astype("<i8").tobytes() for column in columns))
    return f"batch-{digest.hexdigest()[:40]}"
