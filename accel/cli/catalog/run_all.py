"""`accel catalog run-all`: compact, build hints and collect garbage, in this order and with one report; for schedulers.

A step is the command of its name, with its options, work and result.

    | step        | needs   | because                                                                              |
    |-------------|---------|--------------------------------------------------------------------------------------|
    | compact     |         |                                                                                      |
    | build-hints | compact | the hints cover the objects listed after it: filter packs and snapshots, in one pass |
    | gc          | compact | after a failed compaction, check the catalog before anything is deleted              |

With `--watch` the command stays, and begins each job when it is due, by itself (`accel.maintenance`).

A step fails by an error, or by exit code 1. A partial result (4: some groups or nodes failed) stops no other step: the
catalog is consistent, and the next run retries the rest. `gc` does not need hints: they never change an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from accel.cli.catalog.compact import CompactionWork, compaction_options
from accel.cli.catalog.gc import Collection, collection_options
from accel.cli.catalog.hints import HintWork
from accel.cli.ending import SIGNALLED
from accel.cli.engines import Engine, InThisProcess, engine_options
from accel.cli.options import EXIT_FAILED, EXIT_PARTIAL, command, end_with, log_option, store_options
from accel.cli.signals import noted_signals
from accel.errors import AccelError
from accel.hint_building import HintChoice
from accel.maintenance import Maintainer, MaintenanceSettings
from accel.rendering import Output, Rendered, Shown
from accel.system import SYSTEM
from accel.units import count_text, time_text


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the run.

    Args:
        name: of the command.
        needs: steps that must not have failed or been skipped.
        run: runs the command, prints its result to the output and returns its exit code.
    """

    name: str
    needs: tuple[str, ...]
    run: Callable[[Output], int]


@dataclass(frozen=True, slots=True)
class _Kept(Output):
    """Records what a step prints, for the report of all steps."""

    kept: list[Shown] = field(default_factory=list)

    def show(self, result: Shown) -> None:
        self.kept.append(result)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended.

    Attributes:
        name: of its command.
        status: "done", "partial", "stopped" by a signal, "failed" or "skipped".
        seconds: how long it took.
        why: the error, or the steps that caused it to be skipped; empty if there is no problem.
        shown: what it printed.
    """

    name: str
    status: str
    seconds: float = 0.0
    why: str = ""
    shown: Sequence[Shown] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data; `result` is the result of the command alone."""
        result = self.shown[-1].data if self.shown else None
        return {
            "step": self.name,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "why": self.why or None,
            "result": result,
        }


def run_steps(steps: Sequence[Step], output: Output, timer: Callable[[], float]) -> tuple[list[Ended], int]:
    """Run steps in order, except those that need a failed one; returns how each ended, and the exit code.

    Args:
        steps: in an order where each is after those that it needs.
        output: reports each step when it begins.
        timer: seconds.
    """
    ended: list[Ended] = []
    with noted_signals() as signals:
        for step in steps:
            stopped = [each.name for each in ended if each.name in step.needs and each.status in ("failed", "skipped")]
            if stopped or signals:
                why = f"it needs {', '.join(stopped)}" if stopped else "a signal ended the run"
                ended.append(Ended(step.name, "skipped", why=why))
                continue
            output.note(f"{step.name} ...")
            ended.append(_carried_out(step, output, timer))
        statuses = {each.status for each in ended}
        code = EXIT_FAILED if "failed" in statuses else EXIT_PARTIAL if "partial" in statuses else 0
        return ended, signals.code(code)


def shown_steps(ended: Sequence[Ended]) -> Shown:
    """The one report of a run."""
    return Shown({"steps": [each.to_dict() for each in ended]}, _lines(ended))


def steps_of(work: CompactionWork, wanted: Collection, engine: Engine) -> list[Step]:
    """The steps of a run; a dry run of the compaction makes all steps dry runs.

    Args:
        work: the options of the compaction; its nodes are also those of the hints.
        wanted: the options of the collection.
        engine: does the work.
    """
    hints = HintWork(HintChoice(), work.settings.nodes, work.is_dry_run)
    collection = Collection(wanted.yes and not work.is_dry_run, wanted.empty_nodes, wanted.limit)
    return [
        Step("compact", (), lambda output: work.carry_out(engine, output)),
        Step("build-hints", ("compact",), lambda output: hints.carry_out(engine, None, output)),
        Step("gc", ("compact",), lambda output: collection.carry_out(engine, output)),
    ]


@command(
    "Compact, build hints and collect garbage, with one report.",
    "accel catalog run-all --store s3://bucket --dry-run",
    "accel catalog run-all --store s3://bucket --max-bytes 50GiB --yes --output json",
    "accel catalog run-all --store s3://bucket --watch --yes",
    name="run-all",
)
@click.option("--watch", "is_watched", is_flag=True, help="Stay, and begin each job when it is due; needs --yes.")
@compaction_options
@collection_options
@store_options
@engine_options(lists=True)
@log_option
def run_all(*, work: CompactionWork, wanted: Collection, engine: Engine, is_watched: bool, output: Output) -> None:
    """Run compact, build-hints and gc, in this order, and print one report; for schedulers.

    gc deletes only with --yes; --dry-run shows all three plans and changes nothing. If compact fails, the other two are
    skipped; if build-hints fails, gc still runs. Exits with 1 if a step failed, else with 4 if a step was partly done.
    Ctrl-C and SIGTERM end the present step early, and skip the others; the report is printed, the code is 130 or 143.

    With --watch it stays until a signal, and looks once a minute at what is due. It sends at most 50 requests and
    32 MiB a second. Of several such processes one works, and the others wait. `accel catalog runs` lists each decision.
    """
    if is_watched:
        end_with(watch(work, wanted, engine, output))
    with engine.running(work.settings.nodes):
        ended, code = run_steps(steps_of(work, wanted, engine), output, SYSTEM.timer)
    output.show(shown_steps(ended))
    end_with(code)


def watch(work: CompactionWork, wanted: Collection, engine: Engine, output: Output) -> int:
    """Maintain the catalog until a signal; returns the exit code.

    Raises:
        click.UsageError: options that a process which stays does not have.
    """
    refused = {
        "--dry-run": work.is_dry_run,
        "--allow-empty-node": bool(wanted.empty_nodes),
        f"--{engine.name}": not isinstance(engine, InThisProcess),
    }
    if found := [name for name, is_given in refused.items() if is_given]:
        raise click.UsageError(
            f"Expected --watch without {found[0]}, found both: it decides by itself, in this process."
        )
    if not wanted.yes:
        raise click.UsageError("Expected --yes with --watch: it deletes what nothing needs.")

    def stay() -> bytes:
        maintainer.join()
        return b""

    settings = MaintenanceSettings(compaction=work.settings)
    with noted_signals() as signals, Maintainer(engine.store.open(), settings, tell=output.note) as maintainer:
        output.note("watching; Ctrl-C and SIGTERM end it")
        maintainer.start()
        signals.interrupted(stay)
    runs = [f"{count_text(number, 'run')} of {kind}" for kind, number in sorted(maintainer.begun.items())]
    output.show(Shown({"begun": dict(maintainer.begun)}, (f"begun: {', '.join(runs) or 'no run'}",)))
    return signals.code(0)


def _carried_out(step: Step, output: Output, timer: Callable[[], float]) -> Ended:
    kept = _Kept(output.is_json, output.is_quiet, output.is_verbose)
    started = timer()
    try:
        code, why = step.run(kept), ""
    except (AccelError, OSError, ValueError) as error:
        code, why = EXIT_FAILED, f"{type(error).__name__}: {error}"
    status = {0: "done", EXIT_PARTIAL: "partial"}.get(code, "stopped" if code > SIGNALLED else "failed")
    return Ended(step.name, status, timer() - started, why, kept.kept)


def _lines(ended: Sequence[Ended]) -> Iterator[Rendered]:
    for each in ended:
        yield f"== {each.name}"
        for shown in each.shown:
            yield from shown.lines
        if each.why:
            yield f"{each.status}: {each.why}"
        yield ""
    for each in ended:
        took = "" if each.status == "skipped" else time_text(each.seconds)
        yield f"{each.name:<12}{each.status:<9}{took}".rstrip()
