"""The commands `accel job ...`: each has the options and the report of the command of that name without Spark.

`compact` merges each group in a task. `build-filters`, `build-snapshot` and `build-hints` build each node in a task.
`verify`, `gc` and `retention` do their bulk work in tasks. `run-all` is `compact`, `build-hints` and `gc`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial

import click

from accel.catalog import ObjectCatalog
from accel.catalog.verify import verify as verify_catalog
from accel.cli.catalog.compact import CompactionWork, compaction_options, show_foreign_plan
from accel.cli.catalog.gc import Collection, collection_options
from accel.cli.catalog.hints import HintWork, hint_options
from accel.cli.catalog.run_all import run_steps, shown_steps, steps_of
from accel.cli.catalog.verify import show_verification
from accel.cli.options import command, end_with, image_option, yes_option
from accel.cli.stream.options import data_elsewhere_option, moment_option, parse_name, read_by
from accel.cli.stream.retention import exit_code, shown_retention
from accel.errors import HostMissing
from accel.hint_building import HintPlan, HintReport
from accel.history.store import GivenSizes
from accel.image import MetadataImage
from accel.rendering import Output
from accel.streams.segment_directory import refuse_data_here
from accel.system import SYSTEM
from accel.units import count_text, time_text
from spark_jobs.cli.options import Command, JobChoice, job_options
from spark_jobs.compact import compact_on_spark, plan_on_spark
from spark_jobs.hints import build_hints_on_spark, plan_hints_on_spark
from spark_jobs.retention import STREAMS_A_TASK, list_streams, retain_on_spark
from spark_jobs.survey import SparkBulkScan
from spark_jobs.tasks import StoreSpec


@command(
    "Merge many small objects into few large ones.",
    "accel job compact s3://bucket/prefix --dry-run",
    "accel job compact s3://bucket/prefix --max-objects-per-node 500 --max-bytes 50GiB",
    "accel job compact s3://bucket/prefix --node 4 --rewrite-all --target-objects 1",
)
@compaction_options
@image_option
@job_options
def compact(*, job: JobChoice, work: CompactionWork, image: MetadataImage | None) -> None:
    """Merge many small objects into few large ones: `accel catalog compact`, each group merged in a task.

    Exits with 4 if some groups could not be compacted; run it again to retry them.
    With --image only --dry-run is possible, as with `accel catalog compact`.
    """
    if image is not None:
        show_foreign_plan(work, image, job.store.open(), job.output)
        return
    with ObjectCatalog.open(job.store.open()):
        pass  # raises the error of a bucket without a catalog before Spark is started
    with job.spark() as spark:
        code = work.carry_out(
            lambda settings, tell: plan_on_spark(spark, job.store, settings, at_once=job.tasks, progress=tell),
            lambda plan, tell: compact_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell),
            job.output,
        )
    end_with(code)


@command(
    "Write filter packs, so that readers start warm.",
    "accel job build-filters s3://bucket/prefix",
    "accel job build-filters s3://bucket/prefix --node 4 --only-bad --dry-run",
)
@hint_options(filters=True, snapshots=False)
@image_option
@job_options
def build_filters(*, job: JobChoice, work: HintWork, image: MetadataImage | None) -> None:
    """Bring each node's filter pack up to date: `accel catalog build-filters`, each node in a task.

    Exits with 4 if some filters could not be built.
    """
    _on_spark(job, work, image)


@command(
    "Write index snapshots, so that a cold read is one request.",
    "accel job build-snapshot s3://bucket/prefix",
    "accel job build-snapshot s3://bucket --node 4",
)
@hint_options(filters=False, snapshots=True)
@image_option
@job_options
def build_snapshot(*, job: JobChoice, work: HintWork, image: MetadataImage | None) -> None:
    """Write an index snapshot of each node: `accel catalog build-snapshot`, each node in a task.

    Exits with 4 if an object could not be opened (it is left out), or a node's snapshot could not be built.
    """
    _on_spark(job, work, image)


@command(
    "Write filter packs and index snapshots, opening each new object once.",
    "accel job build-hints s3://bucket/prefix",
    "accel job build-hints s3://bucket/prefix --dry-run",
    "accel job build-hints s3://bucket/prefix --image s3://bucket/image.json",
)
@hint_options(filters=True, snapshots=True)
@image_option
@job_options
def build_both(*, job: JobChoice, work: HintWork, image: MetadataImage | None) -> None:
    """Do what build-filters and build-snapshot do, in one pass: `accel catalog build-hints`, each node in a task.

    Exits with 4 if some hints could not be built.
    """
    _on_spark(job, work, image)


rebuild_filters = copy(build_filters)
rebuild_filters.name, rebuild_filters.hidden = "rebuild-filters", True  # its former name


def _on_spark(job: JobChoice, work: HintWork, image: MetadataImage | None) -> None:
    job.check_nodes(work.nodes, image)
    with job.spark() as spark:

        def plan_with(work: HintWork, tell: Callable[..., object]) -> HintPlan:
            return plan_hints_on_spark(
                spark, job.store, work.choice, nodes=work.nodes, image=image, at_once=job.tasks, progress=tell
            )

        def build_with(plan: HintPlan, tell: Callable[..., object]) -> HintReport:
            return build_hints_on_spark(spark, job.store, plan, image=image, at_once=job.tasks, progress=tell)

        code = work.carry_out(plan_with, build_with, job.output)
    end_with(code)


def _prefix_option(command: Command) -> Command:
    return click.option(
        "--prefix-digits",
        type=click.IntRange(1, 2),
        default=1,
        show_default=True,
        help="The number of first digits of keys by which the listing is divided: 1 for 16 tasks, 2 for 256.",
    )(command)


@command(
    "Check a catalog against itself and its bucket.",
    "accel job verify s3://bucket/prefix",
    "accel job verify s3://bucket/prefix --output json",
)
@_prefix_option
@job_options
def verify(*, job: JobChoice, prefix_digits: int) -> None:
    """Check a whole catalog: its lists, its streams, and every object that is live. Nothing is written.

    The same as `accel catalog verify`; tasks list the bucket and open the objects. Exits with 3 if there are problems,
    else with 1 if a check failed to run.
    """
    store = job.store.open()
    with ObjectCatalog.open(store) as catalog, job.spark() as spark, job.output.progress("verifying") as tell:
        scan = SparkBulkScan(spark, job.store, at_once=job.tasks, prefix_digits=prefix_digits)
        verification = verify_catalog(catalog, progress=tell, scan=scan)
    total = store.snapshot().total
    requests, bytes_read = total.requests + scan.requests, total.received_bytes + scan.bytes_read
    show_verification(verification, requests, bytes_read, job.output)


@command(
    "Delete objects that are no longer needed; a dry run without --yes.",
    "accel job gc s3://bucket/prefix",
    "accel job gc s3://bucket/prefix --yes --quiet",
)
@collection_options
@_prefix_option
@job_options
def gc(*, job: JobChoice, wanted: Collection, prefix_digits: int) -> None:
    """Delete retired objects after their retention, prepared ones after their deadline, and old orphans.

    The same as `accel catalog gc`; tasks list the bucket, and the driver deletes, 1,000 objects a request. Exits with 1
    if an object could not be deleted.
    """
    with ObjectCatalog.open(job.store.open()) as catalog, job.spark() as spark:
        scan = SparkBulkScan(spark, job.store, at_once=job.tasks, prefix_digits=prefix_digits)
        code = wanted.carry_out(catalog, job.output, scan)
    end_with(code)


@command(
    "Compact, build hints and collect garbage, with one report.",
    "accel job run-all s3://bucket/prefix --dry-run",
    "accel job run-all s3://bucket/prefix --max-bytes 50GiB --yes --output json",
    name="run-all",
)
@compaction_options
@collection_options
@_prefix_option
@job_options
def run_all(*, job: JobChoice, work: CompactionWork, wanted: Collection, prefix_digits: int) -> None:
    """Run compact, build-hints and gc, in this order, and print one report: `accel catalog run-all`, in tasks.

    gc deletes only with --yes; --dry-run shows all three plans and changes nothing. If compact fails, the other two are
    skipped; if build-hints fails, gc still runs. Exits with 1 if a step failed, else with 4 if a step was partly done.
    """
    job.check_nodes(work.settings.nodes)
    with job.spark() as spark:

        def compacts(work: CompactionWork, output: Output) -> int:
            return work.carry_out(
                lambda settings, tell: plan_on_spark(spark, job.store, settings, at_once=job.tasks, progress=tell),
                lambda plan, tell: compact_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell),
                output,
            )

        def builds(work: HintWork, output: Output) -> int:
            return work.carry_out(
                lambda work, tell: plan_hints_on_spark(
                    spark, job.store, work.choice, nodes=work.nodes, at_once=job.tasks, progress=tell
                ),
                lambda plan, tell: build_hints_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell),
                output,
            )

        def collects(wanted: Collection, output: Output) -> int:
            scan = SparkBulkScan(spark, job.store, at_once=job.tasks, prefix_digits=prefix_digits)
            with ObjectCatalog.open(job.store.open()) as catalog:
                return wanted.carry_out(catalog, output, scan)

        ended, code = run_steps(steps_of(work, wanted, (compacts, builds, collects)), job.output, SYSTEM.timer)
    job.output.show(shown_steps(ended))
    end_with(code)


@command(
    "Truncate streams by their policies; a dry run without --yes.",
    "accel job retention s3://bucket/prefix --scope shop",
    "accel job retention s3://bucket/prefix --scope shop --scope billing --yes --output json",
)
@yes_option()
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    callback=read_by(parse_name),
    help="All streams of this scope; may be repeated.",
)
@moment_option("--time", "Time of the cuts; by default the time when a stream is processed.")
@data_elsewhere_option
@click.option(
    "--streams-per-task",
    type=click.IntRange(min=1),
    default=STREAMS_A_TASK,
    show_default=True,
    help="The maximum number of streams of a task.",
)
@job_options
def retention(
    *,
    yes: bool,
    job: JobChoice,
    scopes: tuple[str, ...],
    time: int | None,
    data_elsewhere: bool,
    streams_per_task: int,
) -> None:
    """Record a cut at the end of each stream of some scopes, and truncate each by its policy.

    Without --yes it writes nothing, and shows what would be recorded and truncated, in the same form.
    Streams without a policy, and sealed ones, are skipped; so are streams in another workflow, until the next run. A
    stream that fails does not stop the others; the job then exits with 1.

    Only the process that holds the segments can determine their sizes: without --data-elsewhere the job is refused, and
    a broker runs retention in the streams that it holds. With --data-elsewhere, an unsealed segment counts as empty, so
    that streams are truncated by whole segments; streams whose data is in the bucket's catalog fail.
    """
    streams = list_streams(job.store, scopes)
    if streams and not data_elsewhere:
        raise HostMissing("run retention in streams", ", ".join(scopes))
    with job.spark() as spark, job.output.progress("retention", len(streams)) as tell:
        report = retain_on_spark(
            spark,
            job.store,
            streams,
            time_ms=time,
            host=partial(_elsewhere, job.store) if data_elsewhere else None,
            streams_a_task=streams_per_task,
            at_once=job.tasks,
            is_dry_run=not yes,
            progress=tell,
        )
    cost = f"{count_text(report.requests, 'request')}, {time_text(report.seconds)}"
    job.output.show(shown_retention(report.streams, is_dry_run=not yes, cost=report.row(), cost_text=cost))
    end_with(exit_code(report.streams))


def _elsewhere(store: StoreSpec) -> GivenSizes:
    """The host of a task: it refuses streams whose data is in the bucket's catalog."""
    return GivenSizes(refuse=partial(refuse_data_here, store.open()))
