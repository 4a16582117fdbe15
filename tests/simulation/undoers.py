"""Whoever finds out that a compaction was wrong: leads lists back while the others go on."""

from __future__ import annotations

from accel.catalog import ObjectCatalog
from accel.catalog.undo import undo
from accel.errors import CommitRefused, MaintenanceRefused
from tests.simulation.world import NODES, Actor


class Undoer(Actor):
    """Undoes the last commit that took objects out of a list, now and then."""

    def live(self, catalog: ObjectCatalog) -> None:
        """A process."""
        for _ in range(3):
            self.machine.scheduler.sleep(self.machine.random.uniform(2, 20))
            try:
                report = undo(catalog, self.machine.random.choice(NODES))
            except (CommitRefused, MaintenanceRefused):
                self.machine.count("undos refused")
            else:
                self.machine.count("undos" if report.commits else "undos finished")
