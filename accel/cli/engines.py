"""Where the jobs of `accel catalog` do their work: in this process, or on an engine that a package offers.

A package offers an engine by an entry point of the group `accel.engines`; its name is the flag that chooses it:

    [project.entry-points."accel.engines"]
    spark = "spark_jobs.engine:spark_options"

The entry point is a decorator of commands, with the argument ``lists``: whether the command lists the bucket. It adds
the flag and the engine's own options, and if the flag is given, it passes an `Engine` to the command as ``engine``. The
flag of an engine that cannot be loaded reports the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from accel.catalog import ObjectCatalog
from accel.catalog.job_runs import LOCAL, RunningJob, recorded
from accel.catalog.whole_catalog import BulkScan
from accel.cli.options import StoreChoice
from accel.cli.signals import Signals
from accel.compaction import (
    CompactionPlan,
    CompactionReport,
    CompactionSettings,
    Done,
    compact,
    compact_slices,
    plan_compaction,
)
from accel.hint_building import HintChoice, HintPlan, HintReport, build_hints, opened_catalog, plan_hints
from accel.image import MetadataImage

if TYPE_CHECKING:
    from accel.adoption.controller import Elsewhere

GROUP = "accel.engines"

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
Nodes = frozenset[int] | None
Tell = Callable[..., object]


class Compaction(NamedTuple):
    """How a compaction is planned and carried out; each call reports its progress.

    Args:
        plan: makes the plan.
        merge: runs a plan.
        merge_slices: compacts slices of long lists, before the plan of the whole; None if the engine does not.
        moved: returns the bytes sent over the network so far, if this process counts them.
    """

    plan: Callable[[CompactionSettings, Tell], CompactionPlan]
    merge: Callable[[CompactionPlan, Tell], CompactionReport]
    merge_slices: Callable[[CompactionSettings, Tell], Done] | None = None
    moved: Callable[[], int] | None = None


class HintBuilding(NamedTuple):
    """How hints are planned and built; each call reports its progress.

    Args:
        plan: makes the plan for some nodes; None for all.
        build: builds the hints of a plan.
        moved: as of `Compaction`.
    """

    plan: Callable[[HintChoice, Nodes, Tell], HintPlan]
    build: Callable[[HintPlan, Tell], HintReport]
    moved: Callable[[], int] | None = None


class Engine(Protocol):
    """Does the work of one command, within `running`. Threads: one."""

    @property
    def name(self) -> str:
        """Its name in the records of runs."""

    @property
    def store(self) -> StoreChoice:
        """The store that the user named."""

    def running(self, nodes: Nodes = None, image: MetadataImage | None = None) -> AbstractContextManager[object]:
        """Start what the work needs, and end it. May refuse nodes that the catalog or the image does not have."""

    def compaction(self) -> AbstractContextManager[Compaction]:
        """For one compaction."""

    def hint_building(self, image: MetadataImage | None) -> AbstractContextManager[HintBuilding]:
        """For one build of hints."""

    def elsewhere(self, image: MetadataImage) -> Elsewhere | None:
        """Plans and merges the objects of a controller in other processes; None = this process does."""

    def scan(self) -> BulkScan | None:
        """Lists the bucket, and opens objects; None = the scan of this process."""


@dataclass(frozen=True, slots=True)
class InThisProcess:
    """The engine of commands without the flag of another one."""

    store: StoreChoice

    @property
    def name(self) -> str:
        """See `Engine`."""
        return LOCAL

    def running(self, nodes: Nodes = None, image: MetadataImage | None = None) -> AbstractContextManager[object]:
        """Nothing needs to be started, and plans refuse nodes."""
        del nodes, image
        return nullcontext()

    @contextmanager
    def compaction(self) -> Iterator[Compaction]:
        """See `Engine`."""
        opened = self.store.open()
        with ObjectCatalog.open(opened) as catalog:
            yield Compaction(
                lambda settings, tell: plan_compaction(catalog, settings, progress=tell),
                lambda plan, tell: compact(catalog, plan, progress=tell),
                lambda settings, tell: compact_slices(catalog, settings, progress=tell),
                opened.moved_bytes,
            )

    @contextmanager
    def hint_building(self, image: MetadataImage | None) -> Iterator[HintBuilding]:
        """See `Engine`."""
        opened = self.store.open()
        with opened_catalog(opened, image) as catalog:
            yield HintBuilding(
                lambda choice, nodes, tell: plan_hints(catalog, choice, nodes=nodes, progress=tell),
                lambda plan, tell: build_hints(catalog, plan, progress=tell),
                opened.moved_bytes,
            )

    def elsewhere(self, image: MetadataImage) -> None:
        """See `Engine`."""

    def scan(self) -> None:
        """See `Engine`."""


@contextmanager
def recording(engine: Engine, kind: str, signals: Signals, *, is_recorded: bool) -> Iterator[RunningJob]:
    """Record a run of a job, its planning included; the library's calls in the block are parts of it.

    Args:
        engine: does the work.
        kind: one of `accel.catalog.job_runs.KINDS`.
        signals: that end the work.
        is_recorded: false for a dry run, and for an image from elsewhere.
    """
    if not is_recorded:
        yield RunningJob(kind, engine.name)
        return
    with ObjectCatalog.open(engine.store.open()) as catalog, recorded(catalog.parts, kind, engine.name) as job:
        yield job
        if signals:
            job.stop()


def engine_options(*, lists: bool = False) -> Decorator:
    """The options of all engines -> ``engine``, in place of ``store``. Must be placed below `store_options`.

    Args:
        lists: whether the command lists the bucket.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(*args: Any, store: StoreChoice, engine: Engine | None = None, **others: Any) -> Any:
            return command(*args, engine=engine or InThisProcess(store), **others)

        decorated: Command = wrapped
        for offer in _offered():
            decorated = offer(decorated, lists=lists)
        return decorated

    return decorate


@cache
def _offered() -> list[Callable[..., Command]]:
    return [_loaded(entry_point) for entry_point in metadata.entry_points(group=GROUP)]


def _loaded(entry_point: metadata.EntryPoint) -> Callable[..., Command]:
    try:
        offer: Callable[..., Command] = entry_point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - another package's error must not stop ours
        reason = f"{entry_point.value} could not be loaded: {type(error).__name__}: {error}"

        def refuse(_ctx: click.Context, _param: click.Parameter, is_given: bool) -> None:
            if is_given:
                raise click.UsageError(f"--{entry_point.name} is not available: {reason}")

        def offer(command: Command, *, lists: bool) -> Command:  # noqa: ARG001 - as of an engine
            text = f"(not available: {reason})"
            flag = click.option(f"--{entry_point.name}", is_flag=True, expose_value=False, callback=refuse, help=text)
            return flag(command)

    return offer
