"""`accel demo`: the main job on this machine alone, and what each policy costs.

Three nodes: the example of the issue that Accel began with, written by the project's own writer; objects that a
production writer wrote; both on an S3 server inside this process. And a large generated node in memory. The image of
each comes from the catalog that lies beside its objects.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from accel.cli.demo_nodes import DemoNode, generated_nodes, issue_node, production_node
from accel.cli.demo_report import DemoReport
from accel.cli.demo_runs import POLICIES, NodeRun, run_node
from accel.cli.embedded_s3 import embedded_s3
from accel.cli.options import examples, output_options
from accel.cli.output import Output
from accel.errors import MissingExtra
from accel.system import SYSTEM
from accel.units import time_text
from loaders.store import MemoryStore, S3Settings, S3Store

_OF_ITS_OWN: Mapping[str, str | None] = {
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo",
    "AWS_SESSION_TOKEN": None,
    "AWS_PROFILE": None,
    "AWS_CONFIG_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1",
}
"""The server takes any credentials, so nobody's real ones are looked for; and no proxy leads to it."""


@click.command(
    short_help="Run the main job on an embedded S3, and compare policies.",
    epilog=examples("accel demo", "accel demo --objects tests/data/stream_set_objects", "accel demo --output json"),
)
@click.option(
    "--objects",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Objects of a production writer, with their manifest; without it that part is left out.",
)
@click.option(
    "--nodes-objects",
    type=click.IntRange(min=20),
    default=2000,
    show_default=True,
    help="Objects of the generated node.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same tables.")
@output_options
@click.pass_context
def demo(ctx: click.Context, *, objects: Path | None, nodes_objects: int, seed: int, output: Output) -> None:
    """Find the objects of some reads, cold and warm, under each policy, and print what that costs.

    Needs no account and leaves nothing behind: the S3 server runs inside this command. Ends with 1 if any policy gave
    another answer than a plain walk over all objects does.
    """
    rng = random.Random(seed)  # noqa: S311 - a demo that can be repeated, no secrets
    runs: list[NodeRun] = []
    with _embedded_buckets(output) as bucket, ExitStack() as opened:
        with _stage(output, "writing the example node of the issue to it, and a catalog of it"):
            node = opened.enter_context(issue_node(bucket("issue"), rng))
        runs += _run_all(output, [node], seed)
        if objects is not None:
            with _stage(output, "copying the objects of a production writer to it, and making a catalog of them"):
                node = opened.enter_context(production_node(objects, bucket("production")))
            runs += _run_all(output, [node], seed)
    with ExitStack() as opened:
        with _stage(output, f"writing and committing a node of {nodes_objects} objects to memory"):
            nodes = opened.enter_context(generated_nodes(MemoryStore(), nodes_objects, rng))
        runs += _run_all(output, nodes, seed)
    report = DemoReport(runs, seed)
    output.show(report)
    ctx.exit(0 if report.same_answers else 1)


def _run_all(output: Output, nodes: list[DemoNode], seed: int) -> list[NodeRun]:
    runs = []
    for node in nodes:
        questions = sum(len(read.requests) for read in node.reads)
        with _stage(output, f"{questions} reads, cold and warm, under each policy: {node.title}"):
            runs.append(_run(output, node, seed))
    return runs


def _run(output: Output, node: DemoNode, seed: int) -> NodeRun:
    with output.progress("reading", len(node.reads) * len(POLICIES)) as advance:
        return run_node(node, seed, advance)


@contextmanager
def _stage(output: Output, what: str) -> Iterator[None]:
    """Tell what is being done, once it is done, and how long it took."""
    started = SYSTEM.timer()
    yield
    output.note(f"{time_text(SYSTEM.timer() - started):>9}  {what}")


@contextmanager
def _embedded_buckets(output: Output) -> Iterator[Callable[[str], S3Store]]:
    """An S3 server, and a function that creates an empty bucket on it."""
    with ExitStack() as stack:
        stack.enter_context(_environment(_OF_ITS_OWN))
        with _stage(output, "starting an S3 server in this process"):
            try:
                url = stack.enter_context(embedded_s3())
            except ModuleNotFoundError as error:
                raise MissingExtra(str(error)) from error

        def create(name: str) -> S3Store:
            # Servers of one process share their buckets, and an earlier demo in it has left its own.
            unique_name = f"{name}-{SYSTEM.nonce().hex()}"
            store = S3Store(unique_name, S3Settings(endpoint_url=url, region="us-east-1"))
            store.create_bucket()
            return store

        yield create


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Variables of this process set, or with None unset, for a while."""
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
