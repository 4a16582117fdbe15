"""`accel catalog runs`: the last runs of the jobs of a catalog."""

from __future__ import annotations

from collections.abc import Iterator

import click

from accel.catalog import ObjectCatalog
from accel.catalog.job_runs import KINDS, read_runs
from accel.cli.objects.verify import EXIT_PROBLEMS
from accel.cli.options import StoreChoice, command, end_with, limit_option, store_options
from accel.rendering import Column, Fields, Output, Rendered, Shown, left_out, table_of, word
from accel.units import age_text, count_text, moment_text, size_text


def _took_text(run: Fields) -> str:
    return "" if run["ended_ms"] is None else age_text((run["ended_ms"] - run["began_ms"]) / 1000)


_COLUMNS: tuple[Column[Fields], ...] = (
    word("began", lambda run: moment_text(run["began_ms"])),
    word("job", "kind"),
    Column("took", _took_text),
    word("outcome", "outcome"),
    Column("size", lambda run: size_text(run["size_bytes"])),
    *(Column(name, name) for name in ("items", "requests", "failures")),
    *(word(name, name) for name in ("engine", "version")),
)


@command(
    "List the last runs of the jobs, and why they began.",
    "accel catalog runs --store s3://bucket",
    "accel catalog runs --kind compact --limit 0 --output json --store s3://bucket",
    name="runs",
)
@click.option("--kind", type=click.Choice(KINDS), help="Only runs of this job.")
@limit_option(20, "Runs to show; 0 for all.")
@store_options
def runs(*, kind: str | None, limit: int, store: StoreChoice, output: Output) -> None:
    """List the last 100 runs of each job, newest first; dry runs are not recorded.

    A run that has not ended still runs, or was killed: so may be one that another machine began. Items are objects that
    were merged or retired, opened for hints, or deleted. A run is partial if it has failures. Times are those of the
    store's clock. Runs that maintenance began show their reason; `maintain` are the processes that had its lease. Exits
    with 3 if the runs of a job cannot be read: they are damaged, or a newer release wrote them.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        found = read_runs(catalog.parts.keys.tables)
    every = [row for row in found.rows() if kind in {None, row["kind"]}]
    shown = every[: limit or None]
    unreadable = {job: str(error) for job, error in found.unreadable.items() if kind in {None, job}}
    data = {"runs": shown, "runs_left_out": len(every) - len(shown), "unreadable": unreadable}
    output.show(Shown(data, _lines(data, len(every))))
    if unreadable:
        end_with(EXIT_PROBLEMS)


def _lines(data: Fields, count: int) -> Iterator[Rendered]:
    """A table of the runs, the reasons of failures, what cannot be read, and the number."""
    if data["runs"]:
        yield table_of(data["runs"], *_COLUMNS)
        yield ""
    for run in data["runs"]:
        if run["reason"]:
            yield f"{run['outcome']}: {run['kind']} of {moment_text(run['began_ms'])}: {run['reason']}"
        if run["trigger"]:
            yield f"by itself: {run['kind']} of {moment_text(run['began_ms'])}: {run['trigger']}"
    yield from (f"UNREADABLE: {job}: {error}" for job, error in data["unreadable"].items())
    yield from left_out(count, len(data["runs"]), "runs")
    yield count_text(count, "run") if count else "no run is recorded"
