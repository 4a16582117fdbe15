"""`accel demo`: lookups on this machine alone, and the cost of each policy.

There are three nodes: the example of AutoMQ issue 2731, written by this project's writer, and objects of a production
writer, both on an S3 server inside this process; and a large generated node in memory. The image of each comes from the
catalog beside its objects. The report contains a table a node, which figures are simulated, and whether all answers
were the same.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from textwrap import wrap
from typing import Any

import click
from click.core import ParameterSource
from msgspec import to_builtins
from rich import box
from rich.table import Table
from rich.text import Text

from accel.cli.demo.nodes import (
    STREAM_ID,
    DemoNode,
    ImageCost,
    generated_nodes,
    issue_node,
    production_node,
    read_production_objects,
)
from accel.cli.demo.runs import CONNECTIONS, MODEL, POLICIES, NodeRun, ReadCost, Row, run_node
from accel.cli.embedded_s3 import embedded_s3
from accel.cli.options import command, end_with, output_options
from accel.errors import MissingExtra
from accel.rendering import Folded, Output, Rendered, Shown
from accel.system import SYSTEM
from accel.units import size_text, time_text
from loaders.errors import redacted
from loaders.store import MemoryStore, ObjectStore, S3Settings, S3Store, open_store

DIFFERENCES_SHOWN_MAX = 10
WIDTH = 80
"""Maximum width of the report."""


def shown_report(runs: list[NodeRun], seed: int) -> Shown:
    """All measurements of the demo; as text, the part after the tables."""
    data = {
        "seed": seed,
        "simulated": {
            "first_byte_median_seconds": MODEL.first_byte_median_seconds,
            "first_byte_p99_seconds": MODEL.first_byte_p99_seconds,
            "bytes_per_second": MODEL.bytes_per_second,
            "connections": CONNECTIONS,
        },
        "nodes": [
            {"node": run.title, "image": asdict(run.image), "rows": [_row_dict(row) for row in run.rows]}
            for run in runs
        ],
        "answers_checked": sum(run.answers for run in runs),
        "recorded_answers_checked": sum(run.recorded_answers for run in runs),
        "same_answers": same_answers(runs),
        "differences": [to_builtins(difference) for run in runs for difference in run.differences],
    }
    return Shown(data, _end_lines(runs))


def same_answers(runs: list[NodeRun]) -> bool:
    """Whether the answers of every policy, cold and warm, equal those of a scan of all objects."""
    return not any(run.differences for run in runs)


def _run_lines(run: NodeRun) -> Iterator[Rendered]:
    yield ""
    yield Folded(Text(run.title, style="bold"))
    yield _image_text(run.image)
    yield _table(run.rows)


def _end_lines(runs: list[NodeRun]) -> Iterator[Rendered]:
    yield ""
    yield from wrap(
        "GETs and bytes are counted; warm: GETs of the same read again. Latency is simulated, the mean of many draws: "
        f"a first byte within {time_text(MODEL.first_byte_median_seconds)} (median), "
        f"{time_text(MODEL.first_byte_p99_seconds)} (99 %), then {MODEL.bytes_per_second / 1e6:.0f} MB/s a "
        f"connection; {CONNECTIONS} requests at once, rounds one after another.",
        WIDTH,
    )
    yield ""
    answers, recorded = sum(run.answers for run in runs), sum(run.recorded_answers for run in runs)
    differences = [difference for run in runs for difference in run.differences]
    for shown in differences[:DIFFERENCES_SHOWN_MAX]:
        question = f"stream {shown.request.stream_id} [{shown.request.start}, {shown.request.end})"
        yield f"DIFFERENT  {shown.policy}, {shown.state}, {question}: expected {shown.expected}, found {shown.found}"
    if differences:
        text = f"{len(differences)} of {answers} answers differ from a scan of all objects."
        yield Folded(Text(text, style="bold red"))
        return
    yield Folded(Text("Every policy returned the same answer, cold and warm.", style="bold green"))
    also = f", {recorded} of them also with those of the production system" if recorded else ""
    yield from wrap(f"{answers} answers were compared with a scan of all objects{also}.", WIDTH)


def _image_text(cost: ImageCost) -> str:
    cold, unchanged = size_text(cost.cold_bytes), size_text(cost.unchanged_bytes)
    return (
        f"image from the catalog: {cost.cold_requests} requests, {cold}; "
        f"again, unchanged: {cost.unchanged_requests} requests, {unchanged}"
    )


def _table(rows: list[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("read", overflow="fold")
    table.add_column("policy", overflow="fold")
    for name in ("GETs", "rounds", "bytes", "latency", "warm"):  # within 80 columns
        table.add_column(name, justify="right", no_wrap=True, overflow="fold")
    for read, group in groupby(rows, key=attrgetter("read")):
        same = list(group)
        fewest = min(row.cold.gets for row in same)
        for number, row in enumerate(same):
            cells = (read if not number else "", row.policy, *_cells(row.cold), _number(row.warm.gets))
            style = "bold" if row.cold.gets == fewest else None
            table.add_row(*cells, style=style, end_section=number == len(same) - 1)
    return table


def _cells(cost: ReadCost) -> tuple[str, str, str, str]:
    size, latency = size_text(round(cost.size_bytes)), time_text(cost.latency_seconds)
    return _number(cost.gets), _number(cost.rounds), size, latency


def _number(value: float) -> str:
    """A count; a mean has one digit after the point."""
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _row_dict(row: Row) -> dict[str, Any]:
    return {
        "policy": row.policy,
        "read": row.read,
        "cold_gets": row.cold.gets,
        "rounds": row.cold.rounds,
        "bytes": row.cold.size_bytes,
        "simulated_latency_seconds": row.cold.latency_seconds,
        "warm_gets": row.warm.gets,
    }


_OF_ITS_OWN: Mapping[str, str | None] = {
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo",
    "AWS_SESSION_TOKEN": None,
    "AWS_PROFILE": None,
    "AWS_CONFIG_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1",
}
"""The server accepts any credentials, so real ones are not searched for, and no proxy is used."""


@command(
    "Run lookups on an embedded S3, and compare policies.",
    "accel demo",
    "accel demo --objects tests/data/stream_set_objects",
    "accel demo --output json",
    "accel demo --store file:///tmp/accel-demo",
)
@click.option(
    "--store",
    "url",
    metavar="URL",
    help="Keep the objects: file:///folder or s3://bucket/prefix; without it they are lost with the embedded S3.",
)
@click.option(
    "--objects",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Objects of a production writer, with their manifest; without it that part is omitted.",
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
def demo(*, url: str | None, objects: Path | None, nodes_objects: int, seed: int, output: Output) -> None:
    """Find the objects of some reads, cold and warm, under each policy, and print the cost.

    Needs no account and leaves no data: the S3 server runs inside this command. With --store the objects and their
    catalogs are kept below a new prefix each, to try other commands on. Exits with 1 if an answer of a policy differs
    from a scan of all objects.
    """
    if click.get_current_context().get_parameter_source("url") is ParameterSource.DEFAULT_MAP:
        url = None  # the store set for all commands is a real one: the demo does not write to it
    rng = random.Random(seed)  # noqa: S311 - a demo that can be repeated, no secrets
    produced = None if objects is None else read_production_objects(objects)  # a wrong folder is reported at once
    runs: list[NodeRun] = []
    where = "on the embedded S3" if url is None else f"in {redacted(url)}"
    buckets: AbstractContextManager[Callable[[str], ObjectStore]]
    buckets = embedded_buckets(output) if url is None else _kept(url, output)
    with buckets as bucket, ExitStack() as opened:
        with _stage(output, "writing the example node of the issue to it, and a catalog of it"):
            node = opened.enter_context(issue_node(bucket("issue"), rng, where))
        runs += _run_all(output, [node], seed)
        if produced is not None:
            with _stage(output, "copying the objects of a production writer to it, and making a catalog of them"):
                node = opened.enter_context(production_node(produced, bucket("production"), where))
            runs += _run_all(output, [node], seed)
    with ExitStack() as opened:
        with _stage(output, f"writing and committing a node of {nodes_objects} objects to memory"):
            nodes = opened.enter_context(generated_nodes(MemoryStore(), nodes_objects, rng))
        runs += _run_all(output, nodes, seed)
    output.show(shown_report(runs, seed))
    end_with(0 if same_answers(runs) else 1)


def _run_all(output: Output, nodes: list[DemoNode], seed: int) -> list[NodeRun]:
    runs = []
    for node in nodes:
        questions = sum(len(read.requests) for read in node.reads)
        with _stage(output, f"{questions} reads, cold and warm, under each policy: {node.title}"):
            runs.append(_run(output, node, seed))
        if not output.is_json:  # each table as soon as it is complete; JSON is one document, at the end
            output.show(Shown({}, _run_lines(runs[-1])))
    return runs


def _run(output: Output, node: DemoNode, seed: int) -> NodeRun:
    with output.progress("reading", len(node.reads) * len(POLICIES)) as advance:
        return run_node(node, seed, advance)


@contextmanager
def _stage(output: Output, what: str) -> Iterator[None]:
    """Report a step and its duration, after it ended."""
    started = SYSTEM.timer()
    yield
    output.note(f"{time_text(SYSTEM.timer() - started):>9}  {what}")


@contextmanager
def _kept(url: str, output: Output) -> Iterator[Callable[[str], ObjectStore]]:
    """A function that opens an empty store below a URL; at the end it prints where the stores are."""
    made: list[str] = []

    def create(name: str) -> ObjectStore:
        place = f"{url.rstrip('/')}/{name}-{SYSTEM.nonce().hex()[:8]}"
        try:
            store = open_store(place)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--store'") from error
        made.append(place)
        return store

    yield create
    for place in made:
        output.note(f"kept: accel explain {place} --stream {STREAM_ID} --start 1000 --end 1600")


@contextmanager
def embedded_buckets(output: Output) -> Iterator[Callable[[str], S3Store]]:
    """An S3 server, and a function that creates an empty bucket on it."""
    with ExitStack() as stack:
        stack.enter_context(_environment(_OF_ITS_OWN))
        with _stage(output, "starting an S3 server in this process"):
            try:
                url = stack.enter_context(embedded_s3())
            except ModuleNotFoundError as error:
                raise MissingExtra(str(error)) from error

        def create(name: str) -> S3Store:
            # Servers of one process share their buckets, and an earlier demo has left its bucket.
            unique_name = f"{name}-{SYSTEM.nonce().hex()}"
            store = S3Store(unique_name, S3Settings(endpoint_url=url, region="us-east-1"))
            store.create_bucket()
            return store

        yield create


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of this process, or unset those that are None, for a while."""
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
