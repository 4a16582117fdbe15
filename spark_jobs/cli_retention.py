"""`accel job retention`: what `accel stream retention run` does to the streams of a scope, with many at a time."""

from __future__ import annotations

import click

from accel.cli.history_options import data_elsewhere_option, moment_option, parse_name, read_by
from accel.cli.history_retention import ShownRetention, yes_option
from accel.cli.options import examples
from accel.errors import HostMissing
from accel.history.store import GivenSizes
from accel.lookup.explain import count_text
from accel.units import time_text
from spark_jobs.cli_options import JobChoice, job_options
from spark_jobs.retention import STREAMS_A_TASK, list_streams, retain_on_spark


@click.command(
    short_help="Truncate streams as their owners want; a dry run without --yes.",
    epilog=examples(
        "accel job retention s3://bucket/prefix --scope shop",
        "accel job retention s3://bucket/prefix --scope shop --scope billing --yes --output json",
    ),
)
@yes_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    callback=read_by(parse_name),
    help="All streams of this scope; may be repeated.",
)
@moment_option("--time", "When; by default when it is a stream's turn.")
@data_elsewhere_option
@click.option(
    "--streams-per-task",
    type=click.IntRange(min=1),
    default=STREAMS_A_TASK,
    show_default=True,
    help="How many streams a task takes at most.",
)
@job_options
@click.pass_context
def retention(
    ctx: click.Context,
    /,
    *,
    yes: bool,
    job: JobChoice,
    scopes: tuple[str, ...],
    time: int | None,
    data_elsewhere: bool,
    streams_per_task: int,
) -> None:
    """Record a cut at the end of each stream of some scopes, and truncate each as its policy asks for.

    Without --yes it writes nothing, and shows what would be recorded and truncated, in the same form.
    Streams without a policy, and sealed ones, are left alone. Those that another workflow has are busy, and left to the
    next run. One that fails does not hold up the others; the job then ends with 1.

    How far segments reach is for those to say who hold them: without --data-elsewhere the job is refused, and a broker
    runs retention in the streams that it holds. With it segments count as empty until they are sealed, so that streams
    are truncated by whole segments.
    """
    streams = list_streams(job.store, scopes)
    if streams and not data_elsewhere:
        raise HostMissing("run retention in streams", ", ".join(scopes))
    with job.spark() as spark, job.progress("retention", len(streams)) as tell:
        report = retain_on_spark(
            spark,
            job.store,
            streams,
            time_ms=time,
            host=GivenSizes if data_elsewhere else None,
            streams_a_task=streams_per_task,
            at_once=job.tasks,
            is_dry_run=not yes,
            progress=tell,
        )
    cost = f"{count_text(report.requests, 'request')}, {time_text(report.seconds)}"
    shown = ShownRetention(report.streams, not yes, report.row(), cost)
    job.output.show(shown)
    ctx.exit(shown.exit_code)
