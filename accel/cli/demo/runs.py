"""Runs the reads of a demo node cold and warm under each policy, counts their cost, and checks the answers.

The store counts requests and bytes, including requests that a lookup sent and then did not need. Latency is simulated:
each request draws its time from the model of `LatencyStore`; the requests of one round run in parallel over 64
connections, and rounds run one after another. The mean of many draws is shown. No process sleeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from accel.cli.demo.nodes import Contents, DemoNode, Found, ImageCost
from accel.lookup.accelerator import ReadAccelerator
from accel.lookup.answer import Request
from accel.lookup.explain import Explanation, Round
from accel.settings import Settings
from accel.testing import LatencyModel, VirtualClock
from loaders.store import CountingStore, ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall, received_bytes

CONNECTIONS = 64
MODEL = LatencyModel()
DRAWS = 2000
"""Requests drawn for the mean latency of one read; at least four times the requests of the read."""

Reply = TypeVar("Reply")

POLICIES = ("load-all", "window", "window+preload", "spread")
"""From the original policy to the default."""


@dataclass(frozen=True, slots=True)
class ReadCost:
    """The cost of one read, or the mean of several."""

    gets: float
    rounds: float
    size_bytes: float
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
    """An answer that differs from a scan of all objects, or from the recorded answer."""

    policy: str
    state: str
    request: Request
    expected: Found
    found: Found


@dataclass(frozen=True, slots=True)
class NodeRun:
    """Everything measured on one node."""

    title: str
    image: ImageCost
    rows: list[Row]
    differences: list[WrongAnswer]
    answers: int
    recorded_answers: int


def run_node(node: DemoNode, seed: int, advance: Callable[[], object]) -> NodeRun:
    """All reads of a node, cold and warm, under each policy; calls ``advance`` after each line of the table."""
    rows: list[Row] = []
    differences: list[WrongAnswer] = []
    for read in node.reads:
        for policy in POLICIES:
            costs: list[tuple[ReadCost, ReadCost]] = []
            for request in read.requests:
                with closing(_Measured(node, policy, seed)) as measured:
                    costs.append((measured.ask(request), measured.ask(request)))
                differences += measured.differences
            cold, warm = (_mean(column) for column in zip(*costs, strict=True))
            rows.append(Row(read.name, policy, cold, warm))
            advance()
    questions = [request for read in node.reads for request in read.requests]
    recorded = sum(request in node.recorded for request in questions)
    answers = 2 * len(POLICIES)
    return NodeRun(node.title, node.image_cost, rows, differences, answers * len(questions), answers * recorded)


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
        plain = plain_walk(self._node.contents, request)
        for expected in (plain, self._node.recorded.get(request, plain)):
            if answered != expected:
                self.differences.append(WrongAnswer(self._policy, state, request, expected, answered))
                return


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


def _mean(costs: Sequence[ReadCost]) -> ReadCost:
    columns = zip(*((cost.gets, cost.rounds, cost.size_bytes, cost.latency_seconds) for cost in costs), strict=True)
    return ReadCost(*(fmean(column) for column in columns))
