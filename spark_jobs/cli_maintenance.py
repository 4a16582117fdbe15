"""`accel job verify` and `accel job gc`: as `accel catalog` has them, with the bulk scan done on Spark."""

from __future__ import annotations

from contextlib import ExitStack

import click

from accel.catalog import ObjectCatalog
from accel.catalog.verify import verify as verify_catalog
from accel.cli.catalog_gc import Collection, collection_options
from accel.cli.catalog_verify import EXIT_CODES, ShownVerification, VerificationBar
from accel.cli.options import examples
from spark_jobs.cli_options import Command, JobChoice, job_options
from spark_jobs.survey import SparkBulkScan


def _prefix_option(command: Command) -> Command:
    return click.option(
        "--prefix-digits",
        type=click.IntRange(1, 2),
        default=1,
        show_default=True,
        help="First digits of keys that divide the listing: 1 for 16 tasks, 2 for 256.",
    )(command)


@click.command(
    short_help="Check a catalog against itself and its bucket.",
    epilog=examples("accel job verify s3://bucket/prefix", "accel job verify s3://bucket/prefix --output json"),
)
@_prefix_option
@job_options
@click.pass_context
def verify(ctx: click.Context, /, *, job: JobChoice, prefix_digits: int) -> None:
    """Check a whole catalog: its lists, its streams, and every object that is live. Nothing is written.

    The same as `accel catalog verify`; tasks go through the bucket and open the objects. Ends with 3 if there are
    problems, else with 1 if something could not be checked.
    """
    store = job.store.open()
    with ObjectCatalog.open(store) as catalog, job.spark() as spark, ExitStack() as stack:
        scan = SparkBulkScan(spark, job.store, at_once=job.tasks, prefix_digits=prefix_digits)
        found = verify_catalog(catalog, progress=VerificationBar(job.output, stack), scan=scan)
    total = store.snapshot().total
    requests, bytes_read = total.requests + scan.requests, total.received_bytes + scan.bytes_read
    job.output.show(ShownVerification(found, requests, bytes_read, job.output.is_quiet))
    ctx.exit(EXIT_CODES[found.outcome])


@click.command(
    short_help="Delete what nobody needs any more; a dry run without --yes.",
    epilog=examples("accel job gc s3://bucket/prefix", "accel job gc s3://bucket/prefix --yes --quiet"),
)
@collection_options
@_prefix_option
@job_options
@click.pass_context
def gc(ctx: click.Context, /, *, job: JobChoice, wanted: Collection, prefix_digits: int) -> None:
    """Delete retired objects past their time, promised ones past their deadline, and old orphans.

    The same as `accel catalog gc`; tasks go through the bucket, and the driver deletes, 1,000 objects a request. Ends
    with 1 if something could not be deleted.
    """
    with ObjectCatalog.open(job.store.open()) as catalog, job.spark() as spark:
        scan = SparkBulkScan(spark, job.store, at_once=job.tasks, prefix_digits=prefix_digits)
        code = wanted.carry_out(catalog, job.output, scan)
    ctx.exit(code)
