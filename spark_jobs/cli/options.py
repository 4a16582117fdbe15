"""Options that all jobs share: which bucket, which Spark, how to print."""

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
    """Where a job runs, and on what.

    Args:
        store: the bucket.
        master: of Spark; None = what spark-submit says, else all cores of this machine.
        tasks: how many run at the same time.
        ui: whether Spark serves its pages meanwhile.
        output: how to print.
    """

    store: StoreSpec
    master: str | None
    tasks: int
    ui: bool
    output: Output

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        """The session that the job runs in.

        Raises:
            click.UsageError: there is no Java that will do.
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
        """Tell of a bucket without a catalog, and of nodes that it or an image does not have, before Spark is started.

        Raises:
            click.UsageError: a node that the catalog does not have.
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
    """The store and how to reach it, Spark, and how to print -> ``job``."""

    @option("--master", help="Where Spark runs: local[*] (the default), local[4], yarn, k8s://..., spark://...")
    @option("--tasks", type=click.IntRange(min=1), default=8, show_default=True, help="Tasks at the same time.")
    @click.option("--ui", is_flag=True, help="Let Spark serve its pages meanwhile.")
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
