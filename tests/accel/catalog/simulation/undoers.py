"""Whoever finds out that a compaction was wrong: leads lists back while the others go on."""

from __future__ import annotations

from accel.catalog import ObjectCatalog
from accel.catalog.undo import undo
from accel.errors import CommitRefused, MaintenanceRefused
from tests.accel.catalog.simulation.bucket import NODES, Bucket


class Undoer:
    """Undoes the last commit that took objects out of a list, now and then."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def live(self, catalog: ObjectCatalog) -> None:
        """A process."""
        for _ in range(3):
            self.bucket.scheduler.sleep(self.bucket.random.uniform(2, 20))
            try:
                report = undo(catalog, self.bucket.random.choice(NODES))
            except (CommitRefused, MaintenanceRefused):
                self.bucket.count("undos refused")
            else:
                self.bucket.count("undos" if report.commits else "undos finished")
