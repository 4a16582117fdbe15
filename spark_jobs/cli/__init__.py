"""`accel job`: the jobs, on Spark; found by the command `accel` through the entry-point group `accel.commands`.

    accel job compact s3://bucket/prefix --dry-run            on this machine, with all its cores
    accel job compact s3://bucket/prefix --master yarn        on a cluster
    spark-submit ... $(accel job script) compact s3://...     on any cluster, the way its administrator wants it

Without the extra `spark` the commands are there, and say what to install.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from accel.cli.options import CommandGroup
from spark_jobs.cli import compact, hints, upkeep

_EXTRA = "pip install 'accel-streams[spark]' (and jvm beside spark where there is no Java)"


@click.group("job", cls=CommandGroup)
@click.pass_context
def job_group(ctx: click.Context) -> None:
    """Jobs on Spark: compact, build filters and snapshots, verify, collect garbage, retain streams."""
    if find_spec("pyspark") is None and ctx.invoked_subcommand != "script":
        raise click.UsageError(f"The jobs run on Spark, which is not installed: {_EXTRA}.")


@job_group.command(short_help="Print the path of the script for spark-submit.")
def script() -> None:
    """Print the path of the script that spark-submit takes; its arguments are those of `accel job`."""
    click.echo(Path(__file__).parents[1] / "submit.py")


for command in (
    compact.compact,
    hints.build_filters,
    hints.build_snapshot,
    hints.rebuild_filters,
    upkeep.verify,
    upkeep.gc,
    upkeep.retention,
):
    job_group.add_command(command)
job_group.add_command(hints.build_both, "build-hints")
