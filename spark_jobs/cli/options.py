"""Options that all jobs share: the bucket, Spark's master, and the output."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from accel.cli.options import log_option, option, output_options, required_url, s3_options
from accel.errors import MissingExtra
from accel.hint_building import listed_nodes, opened_catalog
from accel.image import MetadataImage
from accel.rendering import Output
from loaders.store import S3Settings
from spark_jobs.session import session
from spark_jobs.tasks import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The options of a job.

    Args:
        store: the bucket.
        master: of Spark; None = the master of spark-submit, else all cores of this machine.
        tasks: the number of tasks that run at the same time.
        ui: whether Spark serves its pages during the job.
        output: prints the result.
    """

    store: StoreSpec
    master: str | None
    tasks: int
    ui: bool
    output: Output

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        """The session of the job.

        Raises:
            click.UsageError: there is no suitable Java.
        """
        self.output.note("starting Spark")
        with ExitStack() as stack:
            try:
                started = stack.enter_context(session(self.master, ui=self.ui))
            except MissingExtra as error:
                raise click.UsageError(str(error)) from error
            if self.ui:
                self.output.note(f"Spark's pages are at {started.sparkContext.uiWebUrl}")
            yield started

    def check_nodes(self, nodes: frozenset[int] | None, image: MetadataImage | None = None) -> None:
        """Refuse a bucket without a catalog and nodes that do not exist, before Spark is started.

        Raises:
            click.UsageError: the catalog or image does not have a node.
            CatalogMissing, StoreError: the catalog cannot be read now.
        """
        with opened_catalog(self.store.open(), image) as catalog:
            if nodes is None:
                return
            try:
                listed_nodes(catalog, nodes)
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint="'--node'") from error


def job_options(command: Command) -> Command:
    """The options of the store, of Spark and of the output -> ``job``."""

    @option("--master", help="The master of Spark: local[*] (the default), local[4], yarn, k8s://..., spark://...")
    @option("--tasks", type=click.IntRange(min=1), default=8, show_default=True, help="Tasks that run at once.")
    @click.option("--ui", is_flag=True, help="Serve Spark's pages during the job.")
    @s3_options
    @output_options
    @log_option
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        store: str | None,
        settings: S3Settings,
        master: str | None,
        tasks: int,
        ui: bool,
        output: Output,
        **others: Any,
    ) -> Any:
        return command(*args, job=JobChoice(_spec(store, settings), master, tasks, ui, output), **others)

    return wrapped


def _spec(store: str | None, settings: S3Settings) -> StoreSpec:
    try:
        spec = StoreSpec(required_url(store), settings)
        spec.open()
    except (ValueError, ModuleNotFoundError) as error:
        raise click.BadParameter(str(error), param_hint="'--store'") from error
    return spec
