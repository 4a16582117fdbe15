"""Runs of jobs: which ones there were, how they ended and what they did, for operators, tables and metrics.

    job-runs    compact, build-hints, gc, maintain    JobRuns    the last 100 runs of that kind

A run writes its record when it begins, and again when it ends. So a run that was killed, and one that still runs, is
shown as "not ended". Commands and calls of the library are recorded alike, on one machine and on Spark:

    with recorded(catalog.parts, COMPACT) as run:
        report = ...
        run.add(items=report.rewritten_objects)

Within such a block, another one of the same kind is a part of the run. So a command records its planning, too, and a
program that calls only `compact` records that call. Dry runs, `verify` and plans write nothing, and leave no record.
Nor does work for a controller's image: its bucket has no catalog.

A run of `maintain` is a process that begins the other three by itself (`accel.maintenance`): its record is its lease,
and the runs that it begins name their trigger.

A record is for people. No job reads it to decide what may be changed, and a record that cannot be written is a warning:
the work is done all the same. Runs are in the order in which they began to write, by no clock, so that a wrong clock
never keeps a record for longer, nor drops another one. Old catalogs get the table with their first run. A key that
cannot be read is not overwritten; after it was deleted by hand, the next run creates it again.

Requests of a run: three, four more in a catalog without the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from accel.catalog.keys import JOB_RUNS
from accel.catalog.parts import CatalogParts, ObjectAccess
from accel.errors import FormatError, TableMissing
from accel.image import MetadataImage
from accel.system import release_version
from loaders.errors import redacted
from loaders.store.bill import RequestCause, caused_by
from loaders.tables import RecordForm, Tables, TypedKey, Versioned
from loaders.tables.records import INT64_MAX

logger = logging.getLogger(__name__)

COMPACT: Final = "compact"
BUILD_HINTS: Final = "build-hints"
GC: Final = "gc"
MAINTAIN: Final = "maintain"
JOBS: Final = (COMPACT, BUILD_HINTS, GC)
"""The jobs, by the names of their commands."""

KINDS: Final = (*JOBS, MAINTAIN)
"""All kinds of runs that are recorded."""

CAUSES: Final = {COMPACT: RequestCause.COMPACTION, BUILD_HINTS: RequestCause.HINTS, GC: RequestCause.GC}
"""What the requests of these runs are counted as."""

LOCAL: Final = "local"
SPARK: Final = "spark"

DONE: Final = "done"
STOPPED: Final = "stopped"
FAILED: Final = "failed"

RUNS_MAX: Final = 100
"""Runs of one kind that are kept."""

TEXT_LENGTH_MAX: Final = 200
"""Characters of a reason or a trigger; the other texts are shorter."""

JOB_RUNS_SIZE_BYTES_MAX: Final = 1 << 18
"""The maximum size of the runs of one kind; a full one with short reasons has about 20 KiB."""

_TIME_MS_MAX: Final = 253_402_300_799_999  # the last moment of the year 9999, which is the last one that can be shown

_Number = Annotated[int, Meta(ge=0, le=INT64_MAX)]
_Time = Annotated[int, Meta(ge=0, le=_TIME_MS_MAX)]
_Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]


class JobRun(Struct, frozen=True, kw_only=True):
    """One run of a job. Immutable.

    Attributes:
        run_id: of this run alone.
        version: the release of Accel.
        engine: `local` or `spark`.
        began_ms: milliseconds since 1970, by the store's clock.
        ended_ms: the same; nil = it still runs, or was killed.
        outcome: `done`, `stopped` by a signal, or `failed` by an error; empty as long as it has not ended.
        items: objects that were merged or retired, opened for hints, or deleted; looks, of `maintain`.
        size_bytes: of merged and retired objects, of written hints, or of deleted objects.
        requests: as the job's report counts them; of a collection by a program, those for objects and journals.
        failures: groups, nodes and objects that could not be done, and the error that ended the run.
        reason: the first failure, at most 200 characters.
        max_objects_per_node: of a compaction of all nodes: a node with more objects is compacted; otherwise nil.
        trigger: why maintenance began it, at most 200 characters; of `maintain`, what it decided last; empty if a
            command or a program asked for the job.
    """

    run_id: _Text
    version: _Text
    engine: _Text
    began_ms: _Time
    ended_ms: _Time | None = None
    outcome: _Text = ""
    items: _Number = 0
    size_bytes: _Number = 0
    requests: _Number = 0
    failures: _Number = 0
    reason: _Text = ""
    max_objects_per_node: _Number | None = None
    trigger: _Text = ""

    @property
    def is_success(self) -> bool:
        """Whether all work was done."""
        return self.status == DONE

    @property
    def status(self) -> str:
        """The outcome for people: `not ended`, and `partial` if not all work was done."""
        return "partial" if self.outcome == DONE and self.failures else self.outcome or "not ended"


class JobRuns(Struct, frozen=True, kw_only=True):
    """The last runs of one kind. Immutable.

    Attributes:
        runs: in the order in which they began; at most 100.
    """

    runs: Annotated[tuple[JobRun, ...], Meta(max_length=RUNS_MAX)] = ()

    def including(self, run: JobRun) -> JobRuns:
        """The same runs with this one, in place of its earlier record; without the oldest if there are too many."""
        if any(each.run_id == run.run_id for each in self.runs):
            return JobRuns(runs=tuple(run if each.run_id == run.run_id else each for each in self.runs))
        return JobRuns(runs=(*self.runs, run)[-RUNS_MAX:])


JOB_RUNS_FORM: Final = RecordForm("job-runs", 1, JobRuns)


def runs_key(tables: Tables, kind: str) -> TypedKey[JobRuns]:
    """The key of the runs of one kind. Its version may go back, as records of runs decide nothing."""
    return TypedKey(tables.table(JOB_RUNS, value_size_bytes_max=JOB_RUNS_SIZE_BYTES_MAX), kind, JOB_RUNS_FORM)


class RunningJob:
    """A run, and its record. Threads: one.

    Args:
        kind: of the job.
        engine: that does the work.
        parts: of the catalog; None = nothing is recorded.
        trigger: why maintenance began it.
    """

    def __init__(self, kind: str, engine: str, parts: CatalogParts | None = None, trigger: str = "") -> None:
        self.kind = kind
        self._parts = parts
        self._seen: Versioned[JobRuns] | None = None
        run_id = "" if parts is None else parts.system.nonce().hex()
        self._run = JobRun(
            run_id=run_id,
            version=release_version(),
            engine=engine,
            began_ms=self._now_ms(),
            trigger=bounded_text(trigger),
        )

    @property
    def run(self) -> JobRun:
        """The record as it is now."""
        return self._run

    @property
    def requests(self) -> int:
        """The number of requests so far."""
        return self._run.requests

    def add(
        self, *, items: int = 0, size_bytes: int = 0, requests: int = 0, failures: int = 0, reason: str = ""
    ) -> None:
        """Add the result of a part of the run; the first reason is kept."""
        run = self._run
        self._set(
            items=run.items + items,
            size_bytes=run.size_bytes + size_bytes,
            requests=run.requests + requests,
            failures=run.failures + failures,
            reason=run.reason or bounded_text(reason),
        )

    def note_limit(self, max_objects_per_node: int) -> None:
        """Note the number of objects above which this compaction reduces any node."""
        self._set(max_objects_per_node=max_objects_per_node)

    def stop(self) -> None:
        """Note that a signal, or a progress callback, ends the run early."""
        self._set(outcome=STOPPED)

    def end(self, error: BaseException | None) -> None:
        """Write how the run ended."""
        if error is not None:
            is_failure = isinstance(error, Exception)  # no signal, and not `StopRequested`
            self._set(outcome=FAILED if is_failure else STOPPED)
            with suppress(Exception):  # text of another library's error may not be had, as of Spark's without its JVM
                self.add(reason=f"{type(error).__name__}: {error}")
            self.add(failures=int(is_failure), reason=type(error).__name__)
        self._set(ended_ms=self._now_ms(), outcome=self._run.outcome or DONE)
        self.write()

    def write(self) -> None:
        """Write the record as it is now; a failure is logged."""
        if self._parts is None:
            return
        tables = self._parts.keys.tables
        key = runs_key(tables, self.kind)

        def change(now: JobRuns | None) -> JobRuns | None:
            changed = (now or JobRuns()).including(self._run)
            return None if changed == now else changed  # written before: the reply was lost

        try:
            try:
                self._seen = key.change(change, seen=self._seen)
            except TableMissing:
                tables.create_table(JOB_RUNS)
                self._seen = key.change(change)
        except Exception as error:  # noqa: BLE001 - whatever it is, the work of the run is not affected
            logger.warning("this run of %s is not recorded in %s: %s", self.kind, key.where, error)

    def _set(self, **changes: object) -> None:
        self._run = replace(self._run, **changes)

    def _now_ms(self) -> int:
        return 0 if self._parts is None else min(max(0, self._parts.now_ms()), _TIME_MS_MAX)


def bounded_text(text: str) -> str:
    """One line that can be stored, without secrets."""
    line = " ".join(redacted(text[: 4 * TEXT_LENGTH_MAX]).split())
    return line[:TEXT_LENGTH_MAX].encode(errors="replace").decode()


_RUNNING: ContextVar[RunningJob | None] = ContextVar("running job", default=None)


@contextmanager
def recorded(parts: ObjectAccess, kind: str, engine: str = LOCAL, trigger: str = "") -> Iterator[RunningJob]:
    """Record a run of a job; within a run of the same kind the block is a part of it.

    Args:
        parts: of the catalog; of an image from elsewhere nothing is recorded.
        kind: one of `JOBS`.
        engine: `LOCAL` or `SPARK`.
        trigger: why maintenance began it.

    Errors of the block are noted, and raised; those of writing the record are logged.
    """
    outer = _RUNNING.get()
    if outer is not None and outer.kind == kind:
        yield outer
        return
    with caused_by(CAUSES[kind]):
        job = RunningJob(kind, engine, parts if isinstance(parts, CatalogParts) else None, trigger)
        job.write()
        token = _RUNNING.set(job)
        try:
            yield job
        except BaseException as error:
            job.end(error)
            raise
        else:
            job.end(None)
        finally:
            _RUNNING.reset(token)


@dataclass(frozen=True, slots=True)
class JobStats:
    """What metrics say of jobs.

    Args:
        success_age_seconds: by kind, since the end of the last run that did all its work; without kinds that have none.
        waiting_objects: of the listed objects, those above what compaction leaves; None if no image may be used.
    """

    success_age_seconds: Mapping[str, float]
    waiting_objects: int | None


@dataclass(frozen=True, slots=True)
class RecordedRuns:
    """All recorded runs.

    Args:
        by_kind: the runs of each kind that has any.
        unreadable: kinds whose runs are damaged, or written by a newer release.
    """

    by_kind: Mapping[str, Versioned[JobRuns]] = field(default_factory=dict)
    unreadable: Mapping[str, FormatError] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Each run as plain data, the last to begin first; `outcome` is one for people."""
        pairs = [(kind, run) for kind, seen in self.by_kind.items() for run in seen.value.runs]
        pairs.sort(key=lambda pair: -pair[1].began_ms)
        return [{"kind": kind, **asdict(run), "outcome": run.status} for kind, run in pairs]

    def stats(self, image: MetadataImage | None, now_ms: int, skew_seconds: float, default_max: int) -> JobStats:
        """What metrics say. O(runs + nodes).

        Args:
            image: the present one; None = there is none.
            now_ms: milliseconds since 1970.
            skew_seconds: a run that ended later than this after now has a wrong time, and is passed over.
            default_max: objects of a node above which it is compacted, if no run has recorded that.
        """
        ages: dict[str, float] = {}
        for kind in self.by_kind.keys() & JOBS:
            for run in self.by_kind[kind].value.runs:
                age_seconds = (now_ms - (run.ended_ms or 0)) / 1000
                if run.is_success and age_seconds >= -skew_seconds:
                    ages[kind] = max(0.0, age_seconds)
        compactions = self.by_kind[COMPACT].value.runs if COMPACT in self.by_kind else ()
        most = next(
            (run.max_objects_per_node for run in reversed(compactions) if run.max_objects_per_node), default_max
        )
        waiting = None if image is None else sum(max(0, len(node) - most) for node in image.nodes.values())
        return JobStats(ages, waiting)


def read_runs(tables: Tables, known: RecordedRuns | None = None) -> RecordedRuns:
    """Read all runs. A request for each of `KINDS`, without a body for what has not changed; two without the table.

    Args:
        tables: of the catalog.
        known: what was read last.

    Raises:
        StoreError: they cannot be read now.
    """
    by_kind: dict[str, Versioned[JobRuns]] = {}
    unreadable: dict[str, FormatError] = {}
    for kind in KINDS:
        try:
            seen = runs_key(tables, kind).fetch(None if known is None else known.by_kind.get(kind))
            if seen is not None:
                by_kind[kind] = seen
        except TableMissing:
            break
        except FormatError as error:
            unreadable[kind] = error
    return RecordedRuns(by_kind, unreadable)
