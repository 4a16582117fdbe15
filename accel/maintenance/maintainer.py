"""The maintainer: looks at the catalog once a minute, and begins the jobs that are due.

    look      take or renew the lease; another one holds it: nothing else
              read the image, and the records of runs
    decide    by the thresholds of `settings`: compact, then build hints, then collect garbage
    do        in slices that each commit: a group, a node's hints, a thousand deleted objects. Between two slices the
              lease is renewed; if it is lost, or the maintainer is closed, the job ends there

Each decision to begin a job is the record of a run, with its trigger (`accel catalog runs`); the last decision is in
the record of the lease, too. So a new holder continues where a dead one ended: what is due follows from the catalog
and from these records. Only what makes a job worth repeating earlier (how much a list has grown since, which objects
the hints cover) is kept in memory, and found again by a plan.

After a compaction that fails no garbage is collected in that look, as with `run-all`. After an error the next look
follows after a longer pause.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accel.catalog import ObjectCatalog
from accel.catalog.collect import abort_unfinished, collect, count_waiting, find_unfinished, plan_collection
from accel.catalog.job_runs import BUILD_HINTS, COMPACT, DONE, GC, LOCAL, STOPPED, RecordedRuns, read_runs, recorded
from accel.catalog.parts import MILLISECONDS
from accel.catalog.refresh import CatalogState
from accel.compaction import compact, compact_slices, plan_compaction
from accel.compaction.planning import uploads_of_an_hour
from accel.errors import AccelError
from accel.hint_building import HintChoice, HintPlan, build_hints, plan_hints
from accel.maintenance import settings as limits
from accel.maintenance.budget import BudgetedStore
from accel.maintenance.lease import MaintenanceLease
from accel.maintenance.settings import MaintenanceSettings
from accel.settings import CatalogSettings
from accel.system import SYSTEM, Components, StopRequested, of_store
from accel.units import count_text
from loaders.errors import redacted
from loaders.lifetime import Closing, Lifetime
from loaders.store import ObjectStore

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 3.0
"""How long `close` waits for the present slice; a longer one ends with the process, and is repeated by the next one."""

Ids = NDArray[np.int64]


class Maintainer(Closing):
    """Maintains one catalog. Threads: `run` or `look` by one; `close` by any.

    It belongs to the process that made it. A catalog that is not there yet is waited for.

    Args:
        store: the store of the catalog; if it is a `CountingStore` with a timer, requests of its other users go first.
        settings: budget and limits.
        system: clock, sleep, threads.
        tell: called with a line for each decision, and for each error of a look; by default they are logged.

    Attributes:
        begun: how many runs of each job it has begun.
        store: the store within its budget.
    """

    def __init__(
        self,
        store: ObjectStore,
        settings: MaintenanceSettings | None = None,
        *,
        system: Components = SYSTEM,
        tell: Callable[[str], object] = logger.info,
    ) -> None:
        self.settings = settings or MaintenanceSettings()
        self._system, self._tell = of_store(store, system), tell
        self._lifetime = Lifetime("a maintainer", system.process_id)
        self.store = BudgetedStore(store, self.settings, self._system)
        self._stopped, self._ended = Event(), Event()
        self._is_running = False
        self.begun: Counter[str] = Counter()
        self._catalog: ObjectCatalog | None = None
        self._lease: MaintenanceLease | None = None
        self._runs: RecordedRuns | None = None
        self._failed_looks = 0
        self._decision = ""
        self._tried: dict[str, tuple[float, bool]] = {}  # by job: when it ended, and whether without an error
        self._counts: dict[int, int] = {}  # by node: objects after the last compaction
        self._hinted: dict[int, tuple[Ids, float]] = {}  # by node: what its hints were built for, and when
        self._hints_tried_seconds: dict[int, float] = {}

    def _end_block(self, _: BaseException | None) -> None:
        self.close()

    # Running

    def start(self) -> None:
        """Run in a thread that does not keep the process alive. Without a `wait` (simulated time) the caller looks."""
        self._lifetime.check()
        if self._system.wait is not None and not self._is_running:
            self._is_running = True
            self._system.start(self.run, "accel-maintenance")

    def run(self) -> None:
        """Look again and again, until `close`."""
        self._is_running = True
        try:
            while not self._stopped.is_set():
                pause_seconds = self.look()
                if self._system.wait is not None:
                    self._system.wait(self._stopped, pause_seconds)
        finally:
            self._end()
            self._ended.set()

    def stop(self) -> None:
        """End after the present slice, without waiting for it. No request."""
        self._lifetime.close()
        self.store.hurry()
        self._stopped.set()

    def join(self) -> None:
        """Wait until `run` has ended."""
        self._ended.wait()

    def close(self) -> None:
        """End after the present slice, and end the lease; waits for `CLOSE_SECONDS` at most. May be repeated."""
        if not self._lifetime.is_here:
            return
        self.stop()
        if not self._is_running:
            self._end()
        elif self._system.wait is not None:
            self._system.wait(self._ended, CLOSE_SECONDS)

    def _end(self) -> None:
        if self._lease is not None:
            self._lease.end(self._decision)
        if self._catalog is not None:
            self._catalog.close()

    # Looking

    def look(self) -> float:
        """Look once, and do what is due; returns the seconds until the next look. Errors are told, and not raised."""
        self._lifetime.check_process()
        try:
            if not self._stopped.is_set():
                self._look()
        except StopRequested:  # what was stopped is continued at the next look
            self._tried = {kind: tried for kind, tried in self._tried.items() if tried[1]}
        except Exception as error:  # whatever it is, the next look follows
            self._tell(redacted(f"maintenance: {type(error).__name__}: {error}"))
            logger.debug("a look of maintenance failed", exc_info=True)
            pause_seconds: float = min(limits.FAILED_LOOK_SECONDS_MAX, limits.LOOK_SECONDS * 2**self._failed_looks)
            self._failed_looks = min(self._failed_looks + 1, 8)
            return pause_seconds
        self._failed_looks = 0
        return limits.LOOK_SECONDS

    def _look(self) -> None:
        if self._catalog is None:
            settings = CatalogSettings(parallel_requests=limits.PARALLEL_REQUESTS)
            self._catalog = ObjectCatalog.open(self.store, settings=settings, system=self._system)
            self._lease = MaintenanceLease(self._catalog.parts, LOCAL)
        catalog, lease = self._catalog, self._lease
        if lease is None or not lease.hold(self._decision):
            return
        self._runs = read_runs(catalog.parts.keys.tables, self._runs)
        state, failed = catalog.refresh_state(), None
        for job in (self._compact, self._build_hints, self._collect):
            self._check()
            try:
                if job(catalog, state):
                    state = catalog.refresh_state()
            except AccelError as error:
                if job == self._compact:
                    raise
                failed = failed or error
        if failed is not None:
            raise failed

    def _check(self, *_: object) -> None:
        """The progress of all jobs: ends them if the maintainer is closed, or another one has the lease.

        Raises:
            StopRequested: then.
        """
        if self._stopped.is_set():
            raise StopRequested
        with suppress(AccelError):  # it is renewed at the next step, or lost
            if self._lease is not None and self._lease.is_due():
                self._lease.hold(self._decision)
        if self._lease is None or not self._lease.is_held:
            raise StopRequested

    def _begin(self, kind: str, why: str) -> str:
        self._decision = f"{kind}: {why}"
        self.begun[kind] += 1
        self._tell(f"maintenance: {self._decision}")
        return why

    def _is_due(self, kind: str, pause_seconds: float, now_ms: int) -> bool:
        """Whether a job may begin: so long after the last try, by this process's timer and by the records of runs."""
        tries = [] if kind not in self._tried else [self._tried[kind]]
        tries = [(self._system.timer() - ended, is_done) for ended, is_done in tries]
        seen = None if self._runs is None else self._runs.by_kind.get(kind)
        for run in () if seen is None else seen.value.runs[-1:]:
            passed = (now_ms - (run.ended_ms or run.began_ms)) / MILLISECONDS
            if passed >= 0 and run.outcome != STOPPED:  # a time that is still to come is that of a wrong clock
                tries.append((passed, run.outcome == DONE))
        return all(passed >= (pause_seconds if is_done else limits.RETRY_SECONDS) for passed, is_done in tries)

    def _did(self, kind: str, *, is_done: bool) -> None:
        self._tried[kind] = self._system.timer(), is_done

    # Compaction

    def _compact(self, catalog: ObjectCatalog, state: CatalogState) -> bool:
        now_ms, settings = catalog.parts.now_ms(), self.settings.compaction
        lists = state.node_lists()
        counts = {node_id: len(node_list.live) for node_id, node_list in lists.items()}
        coming = {node_id: uploads_of_an_hour(node_list.live, now_ms) for node_id, node_list in lists.items()}
        long = [node_id for node_id, target in settings.targets(counts, coming).items() if counts[node_id] > target]
        step = max(1, settings.max_objects_per_node // limits.COMPACT_GROWTHS)
        grown = [each for each in long if self._counts and counts[each] - self._counts.get(each, 0) >= step]
        if (grown and self._is_due(COMPACT, 0.0, now_ms)) or (
            long and self._is_due(COMPACT, limits.COMPACT_SECONDS, now_ms)
        ):
            most_allowed, most = settings.max_objects_per_node, max(counts[each] for each in long)
            why = f"{count_text(len(long), 'node')} above {most_allowed} objects within an hour, now {most}"
        elif counts and self._is_due(COMPACT, limits.DAY_SECONDS, now_ms):
            why = "a day since the last one: data of deleted and truncated streams"
        else:
            return False
        self._did(COMPACT, is_done=False)
        with recorded(catalog.parts, COMPACT, LOCAL, self._begin(COMPACT, why)) as job:
            job.note_limit(settings.max_objects_per_node)
            done = compact_slices(catalog, settings, progress=self._check)
            self._check()
            plan = plan_compaction(catalog, done.settings_left(settings), progress=self._check)
            compact(catalog, plan, progress=self._check)
            self._check()
        self._did(COMPACT, is_done=True)
        after = catalog.refresh_state().node_lists()
        self._counts = {node_id: len(node_list.live) for node_id, node_list in after.items()}
        return True

    # Hints

    def _build_hints(self, catalog: ObjectCatalog, state: CatalogState) -> bool:
        now = self._system.timer()
        only = self.settings.compaction.nodes
        lists = {node_id: each for node_id, each in state.node_lists().items() if only is None or node_id in only}
        listed = {node_id: node_list.live["object_id"] for node_id, node_list in lists.items()}
        due = {node_id: ids for node_id, ids in listed.items() if self._needs_hints(node_id, ids, now)}
        if not due:
            return False
        plan = plan_hints(catalog, HintChoice(), nodes=frozenset(due), progress=self._check)
        busy = tuple(node for node in plan.nodes if not node.is_current)
        failed: set[int] = set()
        if busy:
            self._hints_tried_seconds |= dict.fromkeys((node.node_id for node in busy), now)
            opened = count_text(sum(len(node.to_open) for node in busy), "new object")
            why = self._begin(BUILD_HINTS, f"{count_text(len(busy), 'node')} with {opened}")
            with recorded(catalog.parts, BUILD_HINTS, LOCAL, why):
                report = build_hints(catalog, HintPlan(busy), progress=self._check)
            failed = {node.node_id for node in busy} - {node.node_id for node in report.nodes if not node.errors}
        self._hinted |= {node_id: (ids, now) for node_id, ids in due.items() if node_id not in failed}
        self._hinted = {node_id: of for node_id, of in self._hinted.items() if node_id in listed}
        return False

    def _needs_hints(self, node_id: int, ids: Ids, now: float) -> bool:
        if now - self._hints_tried_seconds.get(node_id, -limits.HINT_RETRY_SECONDS) < limits.HINT_RETRY_SECONDS:
            return False
        if node_id not in self._hinted:
            return True
        before, built_seconds = self._hinted[node_id]
        changed = len(np.setxor1d(before, ids))
        return changed >= limits.HINT_OBJECTS or (changed > 0 and now - built_seconds >= limits.HINT_SECONDS)

    # Garbage

    def _collect(self, catalog: ObjectCatalog, state: CatalogState) -> bool:
        parts = catalog.parts
        now_ms = parts.now_ms()
        waiting = count_waiting(parts, state, now_ms)
        if waiting and self._is_due(GC, limits.GC_SECONDS, now_ms):
            why = f"{count_text(waiting, 'object')} may be deleted"
        elif self._is_due(GC, limits.DAY_SECONDS, now_ms):
            why = "a day since the last one: objects that no key names, and unfinished uploads"
        else:
            return False
        self._did(GC, is_done=False)
        before = self.store.requests
        with recorded(parts, GC, LOCAL, self._begin(GC, why)) as job:
            try:
                plan = plan_collection(catalog, progress=self._check)
                collect(catalog, plan, progress=self._check)
                self._check()
                for _, error in abort_unfinished(parts, find_unfinished(parts)):
                    job.add(failures=1, reason=error)
            finally:
                job.add(requests=self.store.requests - before)
        self._did(GC, is_done=True)
        return True
