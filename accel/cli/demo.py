"""`accel demo`: lookups on this machine alone, and the cost of each policy; or a bucket to try commands on.

The node is the example of AutoMQ issue 2731, with a few other streams in each object, on an S3 server inside this
process. It has holes, which a session would refuse to commit: its objects are imported into a catalog, from which every
lookup takes its image.

Reads are made cold and warm under each policy, and compared with a scan of all objects. The store counts requests and
bytes, including requests that a lookup sent and then did not need. Latency is simulated: each request draws its time
from the model of `LatencyStore`; the requests of one round run in parallel over 64 connections, and rounds run one
after another. The mean of many draws is shown. No process sleeps.
"""

from __future__ import annotations

import math
import os
import random
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import attrgetter
from statistics import fmean
from textwrap import wrap
from threading import Event
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from msgspec import to_builtins
from rich import box
from rich.table import Table
from rich.text import Text

from accel.adoption.importing import ImportChoice, bucket_objects, commit_import, plan_import
from accel.catalog import ObjectCatalog
from accel.cli.embedded_s3 import embedded_s3
from accel.cli.options import command, end_with, output_options
from accel.errors import MissingExtra
from accel.image_source import ImageSource
from accel.lookup.accelerator import ReadAccelerator
from accel.lookup.answer import Request
from accel.lookup.explain import Explanation, Round
from accel.rendering import Folded, Output, Rendered, Shown
from accel.settings import Settings
from accel.streams.connection import connect
from accel.system import SYSTEM
from accel.testing import LatencyModel, VirtualClock
from accel.units import size_text, time_text
from loaders.errors import redacted
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_writer import ObjectWriter
from loaders.store import CountingStore, ObjectStore, S3Store, StoreSettings, open_store
from loaders.store.decorated import DecoratedStore, StoreCall, received_bytes
from loaders.tables import FormatRecord

NODE_ID = 4
STREAM_ID = 420_000
LIMIT = 4

ISSUE_READS = ((100, 200), (400, 600), (1000, 1600), (1980, -1))
"""The four reads of AutoMQ issue 2731, sections 3.1 to 3.4."""

ISSUE_OBJECTS = (
    *((0, 0, 105), (2, 105, 128), (3, 128, 259), (5, 259, 394), (7, 394, 456), (9, 456, 528), (10, 528, 636)),
    *((12, 636, 686), (14, 686, 833), (16, 833, 974), (18, 974, 1017), (20, 1017, 1056), (22, 1056, 1085)),
    *((26, 1128, 1196), (28, 1196, 1241), (30, 1241, 1350), (32, 1350, 1491), (34, 1491, 1624), (36, 1624, 1678)),
    *((38, 1678, 1732), (42, 1850, 2000)),
)
"""Object id, start and end offset of stream 420000: the example node of AutoMQ issue 2731."""

POLICIES = ("load-all", "window", "window+preload", "spread")
"""From the original policy to the default."""

EVENTS = 100
"""The events of the stream shop/orders in the bucket that is served."""

CONNECTIONS = 64
MODEL = LatencyModel()
DRAWS = 2000
"""Requests drawn for the mean latency of one read; at least four times the requests of the read."""

DIFFERENCES_SHOWN_MAX = 10
WIDTH = 80
"""Maximum width of the report."""

Contents = Mapping[int, tuple[int, int]]
"""Stream id -> (start, end): the ranges in one object."""

Found = list[tuple[int, int, int]]
"""Object id, start, end: the answer to a read."""

Reply = TypeVar("Reply")

_LAYOUT = ObjectLayout()
_FORMAT = FormatRecord(namespace=_LAYOUT.namespace, stream_buckets=4)
_FIXED_CLOCK = replace(SYSTEM, clock=lambda: 1_800_000_000.0)
"""The same seed gives the same tables: with the time of day in a list, its size would vary by some bytes."""

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
_OF_ITS_OWN: Mapping[str, str | None] = {
    **_CREDENTIALS,
    "AWS_SESSION_TOKEN": None,
    "AWS_PROFILE": None,
    "AWS_CONFIG_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1",
}
"""The server accepts any credentials, so real ones are not searched for, and no proxy is used."""


@dataclass(frozen=True, slots=True)
class ImageCost:
    """The cost of reading a whole image, and of checking for a newer one when there is none."""

    cold_requests: int
    cold_bytes: int
    unchanged_requests: int
    unchanged_bytes: int


@dataclass(frozen=True, slots=True)
class DemoNode:
    """The example node.

    Args:
        title: for people.
        images: of the catalog that lists its objects.
        image_cost: the cost of reading such an image.
        store: holds the objects.
        contents: the ranges in each object, in the order of the list.
    """

    title: str
    images: ImageSource
    image_cost: ImageCost
    store: ObjectStore
    contents: Sequence[tuple[int, Contents]]


@contextmanager
def issue_node(store: ObjectStore, rng: random.Random, where: str = "") -> Iterator[DemoNode]:
    """Write the example node to an empty store, and open its catalog as a reader does, while the context is open."""
    filler = _Filler(rng, streams=200, per_object=20)
    contents = [(object_id, {**filler.next(), STREAM_ID: (start, end)}) for object_id, start, end in ISSUE_OBJECTS]
    for object_id, held in contents:
        _write_object(store, object_id, held)
    ObjectCatalog.init(store, _FORMAT, system=_FIXED_CLOCK)
    with ObjectCatalog.open(store, system=_FIXED_CLOCK) as catalog:
        commit_import(catalog, plan_import(catalog, bucket_objects(catalog), ImportChoice(NODE_ID)))
        with catalog.open_node(NODE_ID) as writer:
            writer.close_streams([STREAM_ID])  # so that it has an end
    counting = CountingStore(store)
    with ObjectCatalog.open(counting) as catalog:
        catalog.refresh()
        cold = counting.reset().total
        catalog.refresh()
        again = counting.reset().total
        cost = ImageCost(cold.requests, cold.received_bytes, again.requests, again.received_bytes)
        title = f"the example node of AutoMQ issue 2731: 21 objects {where}".rstrip()
        yield DemoNode(title, catalog.images(), cost, store, contents)


def _write_object(store: ObjectStore, object_id: int, held: Contents) -> None:
    with ObjectWriter(store, _LAYOUT, object_id, nonce=_FIXED_CLOCK.nonce) as writer:
        for stream_id, (start, end) in sorted(held.items()):
            writer.write(stream_id, [RecordBatch(stream_id, 1, start, end - start, b"demo" * 16)])


class _Wandering:
    """Yields the ranges of a stream object by object, at a varying rate: no position follows from an offset."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rate = 100.0
        self.end = 0

    def next(self) -> tuple[int, int]:
        """The next range."""
        self._rate = min(10_000.0, max(1.0, self._rate * math.exp(self._rng.gauss(0, 0.2))))
        start, self.end = self.end, self.end + self._rng.randint(1, int(self._rate) + 1)
        return start, self.end


class _Filler:
    """Yields ranges of some other streams for each object, as in a real bucket."""

    def __init__(self, rng: random.Random, *, streams: int, per_object: int) -> None:
        self._rng = rng
        self._per_object = per_object
        self._streams = {STREAM_ID - 1000 + 5 * number: _Wandering(rng) for number in range(streams // 2)}
        self._streams |= {STREAM_ID + 1000 + 5 * number: _Wandering(rng) for number in range(streams // 2)}
        self._ids = sorted(self._streams)

    def next(self) -> dict[int, tuple[int, int]]:
        """Their ranges in the next object."""
        chosen = sorted(self._rng.sample(self._ids, self._rng.randint(1, self._per_object * 2 - 1)))
        return {stream_id: self._streams[stream_id].next() for stream_id in chosen}


@dataclass(frozen=True, slots=True)
class ReadCost:
    """The cost of one read."""

    gets: int
    rounds: int
    size_bytes: int
    latency_seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """One read under one policy: cold, and then again."""

    read: str
    policy: str
    cold: ReadCost
    warm: ReadCost


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """An answer that differs from a scan of all objects."""

    policy: str
    state: str
    request: Request
    expected: Found
    found: Found


@dataclass(frozen=True, slots=True)
class NodeRun:
    """Everything measured on the node."""

    rows: list[Row]
    differences: list[WrongAnswer]
    answers: int


def run_node(node: DemoNode, seed: int, advance: Callable[[], object]) -> NodeRun:
    """All reads of the node, cold and warm, under each policy; calls ``advance`` after each line of the table."""
    rows: list[Row] = []
    differences: list[WrongAnswer] = []
    for start, end in ISSUE_READS:
        request = Request(STREAM_ID, start, end, LIMIT)
        for policy in POLICIES:
            with closing(_Measured(node, policy, seed)) as measured:
                read = f"[{start}, {'…' if end == -1 else end})"
                rows.append(Row(read, policy, measured.ask(request), measured.ask(request)))
            differences += measured.differences
            advance()
    return NodeRun(rows, differences, 2 * len(rows))


def plain_walk(contents: Iterable[tuple[int, Contents]], request: Request) -> Found:
    """The answer of a scan: open every object in order, and take the ranges that join up."""
    joined: Found = []
    offset = request.start
    for object_id, held in contents:
        start, end = held.get(request.stream_id, (0, 0))
        if end <= offset:
            continue
        if start > offset or (start < offset and joined) or len(joined) == request.limit:
            break
        joined.append((object_id, start, end))
        offset = end
        if request.end != -1 and offset >= request.end:
            break
    return joined


class _SizeLog(DecoratedStore):
    """Records key and size of each body. Threads: any."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.sizes: list[tuple[str, int]] = []

    def _around(self, call: StoreCall, send: Callable[[], Reply]) -> Reply:
        reply = send()
        self.sizes.append((call.key, call.sent_bytes + received_bytes(reply)))
        return reply


class _Measured:
    """An accelerator with an image and empty caches, over a store that counts.

    The image comes from the catalog through another store: only the requests of lookups are counted.
    """

    def __init__(self, node: DemoNode, policy: str, seed: int) -> None:
        self.differences: list[WrongAnswer] = []
        self._node = node
        self._policy = policy
        self._seed = seed
        self._log = _SizeLog(node.store)
        self._store = CountingStore(self._log)
        # One thread: time is simulated, and several would not read objects in memory faster.
        settings = Settings(policy=policy, parallel_loads=1, hedge_percent=0, hashed_ids_max=16_384, use_hints=False)
        self._accelerator = ReadAccelerator(node.images, self._store, settings=settings)

    def close(self) -> None:
        """Stop loading."""
        self._accelerator.close()

    def ask(self, request: Request) -> ReadCost:
        """One read: its cost, and a difference if its answer is not that of a scan."""
        before = self._store.snapshot()
        self._log.sizes.clear()
        told = self._accelerator.explain(request.stream_id, request.start, request.end, request.limit)
        self._accelerator.wait_idle()
        counts = self._store.snapshot() - before
        self._compare(told, "warm" if before.gets else "cold")
        rounds = _divided(self._log.sizes, told.trace.rounds)
        rng = random.Random(self._seed)  # noqa: S311 - simulated latencies, no secrets
        return ReadCost(
            counts.gets, told.answer.rounds, counts.total.received_bytes, _mean_latency_seconds(rounds, rng)
        )

    def _compare(self, told: Explanation, state: str) -> None:
        request = told.answer.request
        answered = [(location.object_id, location.start, location.end) for location in told.answer.objects]
        expected = plain_walk(self._node.contents, request)
        if answered != expected:
            self.differences.append(WrongAnswer(self._policy, state, request, expected, answered))


def _divided(sizes: Iterable[tuple[str, int]], rounds: Sequence[Round]) -> list[list[int]]:
    """The sizes, by the round that requested the object."""
    round_of = {opened.object_id: index for index, one in enumerate(rounds) for opened in one.opened}
    divided: list[list[int]] = [[] for _ in rounds]
    for key, size in sizes:
        divided[round_of[int(key.rpartition("/")[2])]].append(size)
    return divided


def _mean_latency_seconds(rounds: Sequence[Sequence[int]], rng: random.Random) -> float:
    requests = sum(map(len, rounds))
    if not requests:
        return 0.0
    return fmean(_latency_seconds(rounds, rng) for _ in range(max(4, DRAWS // requests)))


def _latency_seconds(rounds: Sequence[Sequence[int]], rng: random.Random) -> float:
    clock = VirtualClock(CONNECTIONS)
    for sizes in rounds:
        with clock.round():
            for size_bytes in sizes:
                clock.sleep(MODEL.seconds(rng, size_bytes))
    return clock.now_seconds


def shown_report(node: DemoNode, run: NodeRun, seed: int) -> Shown:
    """The table of the node, which figures are simulated, and whether all answers were the same."""
    data = {
        "seed": seed,
        "simulated": {
            "first_byte_median_seconds": MODEL.first_byte_median_seconds,
            "first_byte_p99_seconds": MODEL.first_byte_p99_seconds,
            "bytes_per_second": MODEL.bytes_per_second,
            "connections": CONNECTIONS,
        },
        "node": node.title,
        "image": asdict(node.image_cost),
        "rows": [_row_dict(row) for row in run.rows],
        "answers_checked": run.answers,
        "same_answers": not run.differences,
        "differences": [to_builtins(difference) for difference in run.differences],
    }
    return Shown(data, _lines(node, run))


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


def _lines(node: DemoNode, run: NodeRun) -> Iterator[Rendered]:
    yield ""
    yield Folded(Text(node.title, style="bold"))
    cost = node.image_cost
    yield (
        f"image from the catalog: {cost.cold_requests} requests, {size_text(cost.cold_bytes)}; "
        f"again, unchanged: {cost.unchanged_requests} requests, {size_text(cost.unchanged_bytes)}"
    )
    yield _table(run.rows)
    yield ""
    yield from wrap(
        "GETs and bytes are counted; warm: GETs of the same read again. Latency is simulated, the mean of many draws: "
        f"a first byte within {time_text(MODEL.first_byte_median_seconds)} (median), "
        f"{time_text(MODEL.first_byte_p99_seconds)} (99 %), then {MODEL.bytes_per_second / 1e6:.0f} MB/s a "
        f"connection; {CONNECTIONS} requests at once, rounds one after another.",
        WIDTH,
    )
    yield ""
    for shown in run.differences[:DIFFERENCES_SHOWN_MAX]:
        question = f"stream {shown.request.stream_id} [{shown.request.start}, {shown.request.end})"
        yield f"DIFFERENT  {shown.policy}, {shown.state}, {question}: expected {shown.expected}, found {shown.found}"
    if run.differences:
        text = f"{len(run.differences)} of {run.answers} answers differ from a scan of all objects."
        yield Folded(Text(text, style="bold red"))
        return
    yield Folded(Text("Every policy returned the same answer, cold and warm.", style="bold green"))
    yield f"{run.answers} answers were compared with a scan of all objects."


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
            cost = row.cold
            figures = (str(cost.gets), str(cost.rounds), size_text(cost.size_bytes), time_text(cost.latency_seconds))
            style = "bold" if cost.gets == fewest else None
            cells = (read if not number else "", row.policy, *figures, str(row.warm.gets))
            table.add_row(*cells, style=style, end_section=number == len(same) - 1)
    return table


@command(
    "Run lookups on an embedded S3, and compare policies.",
    "accel demo",
    "accel demo --output json",
    "accel demo --store file:///tmp/accel-demo",
    "accel demo --serve",
)
@click.option(
    "--store",
    "url",
    metavar="URL",
    help="Keep the objects: file:///folder or s3://bucket/prefix; without it they are lost with the embedded S3.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same tables.")
@click.option("--serve", is_flag=True, help="Serve an example bucket until the command is interrupted, instead.")
@output_options
def demo(*, url: str | None, seed: int, serve: bool, output: Output) -> None:
    """Find the objects of some reads, cold and warm, under each policy, and print the cost.

    Needs no account and leaves no data: the S3 server runs inside this command. With --store the objects and their
    catalog are kept below a new prefix, to try other commands on. Exits with 1 if an answer of a policy differs from a
    scan of all objects.

    With --serve it serves a bucket with 21 objects of stream 420000 in a catalog, and with the stream shop/orders, and
    prints the variables to export in another terminal.
    """
    if click.get_current_context().get_parameter_source("url") is ParameterSource.DEFAULT_MAP:
        url = None  # the store set for all commands is a real one: the demo does not write to it
    if serve:
        if url is not None:
            raise click.UsageError("Expected --store or --serve, found both.")
        _serve(output)
        return
    where = "on the embedded S3" if url is None else f"in {redacted(url)}"
    stores: AbstractContextManager[ObjectStore] = (
        _embedded_bucket("issue", output) if url is None else _kept(url, output)
    )
    with stores as store, ExitStack() as opened:
        with _stage(output, "writing the example node of the issue to it, and a catalog of it"):
            rng = random.Random(seed)  # noqa: S311 - a demo that can be repeated, no secrets
            node = opened.enter_context(issue_node(store, rng, where))
        reads = len(ISSUE_READS)
        with (
            _stage(output, f"{reads} reads, cold and warm, under each policy: {node.title}"),
            output.progress("reading", reads * len(POLICIES)) as advance,
        ):
            run = run_node(node, seed, advance)
    output.show(shown_report(node, run, seed))
    end_with(int(bool(run.differences)))


@contextmanager
def example_store(output: Output) -> Iterator[S3Store]:
    """An S3 server in this process that contains the example node in a catalog, and a stream with a history.

    Raises:
        MissingExtra: moto is not installed.
    """
    with _embedded_bucket("example", output) as store:
        with issue_node(store, random.Random(1)):  # noqa: S311 - the same objects each time, no secrets
            pass
        with connect(store) as streams:
            streams.create_scope("shop")
            streams.create_stream("shop", "orders")
            with streams.writer("shop", "orders") as writer:
                for number in range(EVENTS):
                    writer.write(b"order %d" % number, key=f"customer {number % 7}")
        yield store


def _serve(output: Output) -> None:
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with example_store(output) as store:
        variables = {
            **_CREDENTIALS,
            "AWS_DEFAULT_REGION": str(store.settings.region),
            "ACCEL_ENDPOINT_URL": str(store.settings.endpoint_url),
            "ACCEL_STORE": f"s3://{store.bucket}",
        }
        output.show(Shown(variables, [f"export {key}={shlex.quote(value)}" for key, value in variables.items()]))
        output.note(
            f"in another terminal: export these, then accel explain --stream {STREAM_ID} --start 1000 --end 1600"
        )
        ended.wait()


@contextmanager
def _stage(output: Output, what: str) -> Iterator[None]:
    """Report a step and its duration, after it ended."""
    started = SYSTEM.timer()
    yield
    output.note(f"{time_text(SYSTEM.timer() - started):>9}  {what}")


@contextmanager
def _kept(url: str, output: Output) -> Iterator[ObjectStore]:
    """An empty store below a URL; at the end it prints where it is."""
    place = f"{url.rstrip('/')}/issue-{SYSTEM.nonce().hex()[:8]}"
    try:
        store = open_store(place)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--store'") from error
    yield store
    output.note(f"kept: accel explain {place} --stream {STREAM_ID} --start 1000 --end 1600")


@contextmanager
def _embedded_bucket(name: str, output: Output) -> Iterator[S3Store]:
    """An empty bucket on an S3 server in this process."""
    with ExitStack() as stack:
        stack.enter_context(_environment(_OF_ITS_OWN))
        with _stage(output, "starting an S3 server in this process"):
            try:
                url = stack.enter_context(embedded_s3())
            except ModuleNotFoundError as error:
                raise MissingExtra(str(error)) from error
        # Servers of one process share their buckets, and an earlier demo has left its bucket.
        unique_name = f"{name}-{SYSTEM.nonce().hex()}"
        store = S3Store(unique_name, StoreSettings(endpoint_url=url, region="us-east-1"))
        store.create_bucket()
        yield store


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
