"""The engine `--spark` of the jobs of `accel catalog`, found through the entry-point group `accel.engines`.

    accel catalog compact s3://bucket/prefix --spark --dry-run          on this machine, with all its cores
    accel catalog compact s3://bucket/prefix --spark --master yarn      on a cluster
    spark-submit ... spark_jobs/submit.py compact s3://bucket/prefix    on any cluster, by the administrator's settings

`compact` merges each group in a task, and `build-hints` builds each node in a task. `verify` and `gc` list the bucket
and open objects in tasks. `run-all` is `compact`, `build-hints` and `gc`, in one session.

Without the extra `spark` the options exist, and the error of `--spark` says what to install.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from accel.catalog.job_runs import SPARK
from accel.cli.engines import Compaction, HintBuilding, Nodes
from accel.cli.options import StoreChoice, option, required_url
from accel.errors import MissingExtra
from accel.hint_building import listed_nodes, opened_catalog
from accel.image import MetadataImage
from spark_jobs.compact import compact_on_spark, plan_on_spark
from spark_jobs.hints import build_hints_on_spark, plan_hints_on_spark
from spark_jobs.session import active_session, context_of, session
from spark_jobs.survey import SparkBulkScan
from spark_jobs.tasks import StoreSpec, require_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from accel.adoption.controller import Elsewhere

Command = Callable[..., Any]

_EXTRA = "pip install 'accel-streams[spark]' (or 'accel-streams[spark,jvm]' if there is no Java)"


@dataclass(frozen=True, slots=True)
class OnSpark:
    """See `accel.cli.engines.Engine`.

    Args:
        store: the store that the user named.
        spec: the same, for tasks.
        master: of Spark; None = the master of spark-submit, else all cores of this machine.
        ui: whether Spark serves its pages during the job.
        prefix_digits: the number of first digits of keys by which a listing is divided.
    """

    store: StoreChoice
    spec: StoreSpec
    master: str | None
    ui: bool
    prefix_digits: int

    @property
    def name(self) -> str:
        """See `Engine`."""
        return SPARK

    @contextmanager
    def running(self, nodes: Nodes = None, image: MetadataImage | None = None) -> Iterator[None]:
        """The session of all work; a bucket without a catalog and unknown nodes are refused before it starts.

        Raises:
            click.UsageError: a package or a Java is missing.
            UnknownNode: the catalog or image does not have a node.
            CatalogMissing, StoreError: the catalog cannot be read now.
            SparkNotStarted: Spark does not start.
        """
        with opened_catalog(self.spec.open(), image) as catalog:
            if nodes is not None:
                listed_nodes(catalog, nodes)
        self.store.output.note("starting Spark")
        with ExitStack() as stack:
            try:
                spark = stack.enter_context(session(self.master, ui=self.ui))
                require_packages(spark)
            except MissingExtra as error:
                raise click.UsageError(str(error)) from error
            context = context_of(spark)
            if self.ui and context is not None:
                self.store.output.note(f"Spark's pages are at {context.uiWebUrl}")
            yield

    @contextmanager
    def compaction(self) -> Iterator[Compaction]:
        """See `Engine`."""
        spark = _active()
        yield Compaction(
            lambda settings, tell: plan_on_spark(spark, self.spec, settings, progress=tell),
            lambda plan, tell: compact_on_spark(spark, self.spec, plan, progress=tell),
        )

    @contextmanager
    def hint_building(self, image: MetadataImage | None) -> Iterator[HintBuilding]:
        """See `Engine`."""
        spark = _active()
        yield HintBuilding(
            lambda choice, nodes, tell: plan_hints_on_spark(
                spark, self.spec, choice, nodes=nodes, image=image, progress=tell
            ),
            lambda plan, tell: build_hints_on_spark(spark, self.spec, plan, image=image, progress=tell),
        )

    def elsewhere(self, image: MetadataImage) -> Elsewhere:
        """See `Engine`."""
        from spark_jobs.controller import controller_on_spark  # noqa: PLC0415 - `accel.adoption` is optional

        return controller_on_spark(_active(), self.spec, image.namespace)

    def scan(self) -> SparkBulkScan:
        """See `Engine`; tasks list the bucket and open objects, and the driver does the rest."""
        return SparkBulkScan(_active(), self.spec, prefix_digits=self.prefix_digits)


def spark_options(command: Command, *, lists: bool) -> Command:
    """`--spark`, and the options of Spark -> ``engine`` if `--spark` is given.

    Args:
        command: receives the engine.
        lists: whether the command lists the bucket.
    """

    @click.option("--spark", is_flag=True, help="Do the work in tasks of Spark, on one machine or a cluster.")
    @option(
        "--master", help="The master of Spark: local[*] (the default), local[4], yarn, k8s://..., spark://..., sc://..."
    )
    @click.option("--ui", is_flag=True, help="Serve Spark's pages during the job (not with sc://).")
    @functools.wraps(command)
    def wrapped(*args: Any, spark: bool, store: StoreChoice, **others: Any) -> Any:
        chosen = {name: others.pop(name) for name in ("master", "ui")}
        prefix_digits = others.pop("prefix_digits", 1)
        if not spark:
            _refuse_options_of_spark()
            return command(*args, store=store, **others)
        if find_spec("pyspark") is None:
            raise click.UsageError(f"--spark needs Spark, which is not installed: {_EXTRA}.")
        engine = OnSpark(store, _spec_of(store), **chosen, prefix_digits=prefix_digits)
        return command(*args, store=store, engine=engine, **others)

    if not lists:
        return wrapped
    return click.option(
        "--prefix-digits",
        type=click.IntRange(1, 2),
        default=1,
        show_default=True,
        help="Spark: the number of first digits of keys by which the listing is divided: 1 for 16 tasks, 2 for 256.",
    )(wrapped)


def _refuse_options_of_spark() -> None:
    ctx = click.get_current_context()
    for name in ("master", "ui", "prefix_digits"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"Expected '--spark' with '--{name.replace('_', '-')}'.")


def _spec_of(store: StoreChoice) -> StoreSpec:
    try:
        spec = StoreSpec(required_url(store.url), store.settings)
        spec.open()
    except (ValueError, ModuleNotFoundError) as error:
        raise click.BadParameter(str(error), param_hint="'--store'") from error
    return spec


def _active() -> SparkSession:
    spark = active_session()
    if spark is None:
        raise RuntimeError("expected a session of Spark, which `running` starts, found none")
    return spark
