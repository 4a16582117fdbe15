"""The lease of maintenance: of several processes that could maintain a catalog one does, and the others wait.

    job-runs    maintain    JobRuns    the last run that has not ended holds the lease

A lease is a run of the kind `maintain`, so `accel catalog runs` lists who maintained the catalog, and since when. Its
holder renews it by writing the record again; `items` counts its looks, and `trigger` is what it decided last. Another
process takes over when the run has ended, or when it has seen one version of the record for `LEASE_SECONDS` by its own
timer. No clock is compared with another one's, so a wrong clock neither keeps a lease nor loses one.

**The lease decides who works, not who may write.** A holder that was paused for longer finds its lease lost at its next
step, and stops; until then two processes do the same work. That costs requests, never data: the jobs commit by
conditional writes, and two of each kind may run at once.
"""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from accel.catalog.job_runs import DONE, MAINTAIN, JobRun, JobRuns, RunningJob, bounded_text, runs_key
from accel.catalog.keys import JOB_RUNS
from accel.catalog.parts import CatalogParts
from accel.errors import AccelError
from accel.maintenance.settings import LEASE_SECONDS
from loaders.errors import DataConflict, DataNotFound, TableMissing
from loaders.versions import Version, Versioned

logger = logging.getLogger(__name__)

RENEWALS_A_LEASE: Final = 3
"""How often a lease is renewed before it would expire."""


class MaintenanceLease:
    """The lease of one catalog, and whether this process holds it. Threads: one.

    Args:
        parts: of the catalog.
        engine: of the jobs that the holder begins.

    Attributes:
        is_held: whether this process held it when it last asked.
    """

    def __init__(self, parts: CatalogParts, engine: str) -> None:
        self._parts, self._engine = parts, engine
        self._timer = parts.system.timer
        self._key = runs_key(parts.keys.tables, MAINTAIN)
        self._mine: JobRun | None = None  # as last written, also if the reply was lost
        self._other: tuple[Version, float] | None = None
        self._renewed_seconds = 0.0
        self.is_held = False

    def is_due(self) -> bool:
        """Whether a third of the lease has passed."""
        return self._timer() - self._renewed_seconds >= LEASE_SECONDS / RENEWALS_A_LEASE

    def hold(self, decision: str | None = None) -> bool:
        """Take the lease, or renew it; returns whether this process holds it. 2 requests, 1 while another one holds it.

        Args:
            decision: what was decided since the last call; None = the same as before.

        Raises:
            StoreError, AmbiguousWrite: it is not known; `is_held` is as before. Call again.
            FormatError: the record is damaged, or a newer release wrote it.
        """
        seen = self._read()
        runs = JobRuns() if seen is None else seen.value
        last = runs.runs[-1] if runs.runs else None
        mine = self._mine
        if mine is None or last is None or last.run_id != mine.run_id:
            if self.is_held:
                logger.warning("another process has taken over the lease of maintenance; this one waits")
            self.is_held = False
            if last is not None and last.ended_ms is None and seen is not None and not self._is_silent(seen.version):
                return False
            mine = RunningJob(MAINTAIN, self._engine, self._parts).run
        text = mine.trigger if decision is None else bounded_text(decision)
        self._mine = replace(mine, items=mine.items + 1, trigger=text)
        self.is_held = self._is_written(runs.including(self._mine), seen)
        if self.is_held:
            self._other, self._renewed_seconds = None, self._timer()
        return self.is_held

    def end(self, decision: str) -> None:
        """End the lease, so that another process need not wait. 2 requests; without an answer the lease expires."""
        mine, self._mine, self.is_held = self._mine, None, False
        if mine is None:
            return
        try:
            seen = self._read()
            if seen is not None and seen.value.runs and seen.value.runs[-1].run_id == mine.run_id:
                ended_ms, text = max(mine.began_ms, self._parts.now_ms()), bounded_text(decision)
                ended = replace(mine, ended_ms=ended_ms, outcome=DONE, trigger=text)
                self._is_written(seen.value.including(ended), seen)
        except AccelError as error:
            logger.info("the lease of maintenance was not ended, and expires: %s", error)

    def _read(self) -> Versioned[JobRuns] | None:
        try:
            return self._key.read()
        except TableMissing:
            self._parts.keys.tables.create_table(JOB_RUNS)
            return None

    def _is_silent(self, version: Version) -> bool:
        """Whether the lease was not renewed for as long as it lasts, by the timer of this process."""
        if self._other is None or self._other[0] != version:
            self._other = version, self._timer()
        return self._timer() - self._other[1] >= LEASE_SECONDS

    def _is_written(self, runs: JobRuns, seen: Versioned[JobRuns] | None) -> bool:
        try:
            written = self._key.create_if_absent(runs) if seen is None else self._key.write(runs, seen)
        except (DataConflict, DataNotFound):
            return False  # another one was first: the next look reads who holds it
        return written.value == runs
