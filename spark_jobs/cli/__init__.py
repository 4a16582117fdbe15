"""`accel job`: the jobs, on Spark; found by the command `accel` through the entry-point group `accel.commands`.

    accel job compact s3://bucket/prefix --dry-run            on this machine, with all its cores
    accel job compact s3://bucket/prefix --master yarn        on a cluster
    spark-submit ... $(accel job script) compact s3://...     on any cluster, with the administrator's settings

Without the extra `spark` the commands exist, and their error says what to install.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from accel.cli.groups import CommandGroup, LazyCommand

_EXTRA = "pip install 'accel-streams[spark]' (or 'accel-streams[spark,jvm]' if there is no Java)"


_FILTERS = "Write filter packs, so that readers start warm."

COMMANDS = {
    "build-filters": LazyCommand("spark_jobs.cli.jobs:build_filters", _FILTERS),
    "build-hints": LazyCommand(
        "spark_jobs.cli.jobs:build_both", "Write filter packs and index snapshots, opening each new object once."
    ),
    "build-snapshot": LazyCommand(
        "spark_jobs.cli.jobs:build_snapshot", "Write index snapshots, so that a cold read is one request."
    ),
    "compact": LazyCommand("spark_jobs.cli.jobs:compact", "Merge many small objects into few large ones."),
    "gc": LazyCommand("spark_jobs.cli.jobs:gc", "Delete objects that are no longer needed; a dry run without --yes."),
    "rebuild-filters": LazyCommand("spark_jobs.cli.jobs:rebuild_filters", _FILTERS, is_hidden=True),
    "retention": LazyCommand(
        "spark_jobs.cli.jobs:retention", "Truncate streams by their policies; a dry run without --yes."
    ),
    "run-all": LazyCommand("spark_jobs.cli.jobs:run_all", "Compact, build hints and collect garbage, with one report."),
    "verify": LazyCommand("spark_jobs.cli.jobs:verify", "Check a catalog against itself and its bucket."),
}
"""The jobs; the short help is that of the command."""


@click.group("job", cls=CommandGroup, lazy=COMMANDS)
@click.pass_context
def job_group(ctx: click.Context) -> None:
    """Run jobs on Spark: compact, build filters and snapshots, verify, collect garbage, truncate streams."""
    if find_spec("pyspark") is None and ctx.invoked_subcommand != "script":
        raise click.UsageError(f"The jobs need Spark, which is not installed: {_EXTRA}.")


@job_group.command(short_help="Print the path of the script for spark-submit.")
def script() -> None:
    """Print the path of the script for spark-submit; its arguments are those of `accel job`."""
    click.echo(Path(__file__).parents[1] / "submit.py")
