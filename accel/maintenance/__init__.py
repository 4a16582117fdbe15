"""Maintenance by itself: compaction, hints and garbage collection begin when they are due, in a process that runs.

    accel catalog run-all --watch --yes --store s3://bucket      a process of its own
    accel serve s3://bucket --maintain                           beside the lookups of a sidecar
    accel.connect("s3://bucket", maintain=True)                  beside the reads and writes of a program

All three run a `Maintainer`. It looks at the image and at the records of runs, and begins what a threshold asks for
(`maintainer`), while it holds the lease (`lease`), within a budget that yields to the other requests of its process
(`budget`).
"""

from __future__ import annotations

from accel.maintenance.maintainer import Maintainer
from accel.maintenance.settings import MaintenanceSettings

__all__ = ["Maintainer", "MaintenanceSettings"]
