"""`accel job compact`: what `accel catalog compact` does, its groups merged on Spark."""

from __future__ import annotations

from accel.catalog import ObjectCatalog
from accel.cli.catalog.compact import CompactionWork, compaction_options
from accel.cli.options import command, end_with
from spark_jobs.cli.options import JobChoice, job_options
from spark_jobs.compact import compact_on_spark, plan_on_spark


@command(
    "Make few large objects of many small ones.",
    "accel job compact s3://bucket/prefix --dry-run",
    "accel job compact s3://bucket/prefix --max-objects-per-node 500 --max-bytes 50GiB",
    "accel job compact s3://bucket/prefix --node 4 --rewrite-all --target-objects 1",
)
@compaction_options
@job_options
def compact(*, job: JobChoice, work: CompactionWork) -> None:
    """Make few large objects of many small ones: `accel catalog compact`, its groups merged in tasks.

    Ends with 4 if some groups could not be compacted; running it again takes up what is left.
    """
    with ObjectCatalog.open(job.store.open()):
        pass  # a bucket without a catalog is told before Spark is started
    with job.spark() as spark:
        code = work.carry_out(
            lambda settings, tell: plan_on_spark(spark, job.store, settings, at_once=job.tasks, progress=tell),
            lambda plan, tell: compact_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell),
            job.output,
        )
    end_with(code)
