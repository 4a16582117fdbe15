"""The load on a sidecar, small; and the judge of its answers finds what is wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.sidecar_load import (
    Client,
    Commit,
    Judge,
    Plan,
    Query,
    Replacing,
    Sample,
    Scanned,
    Tally,
    Truth,
    flatness,
    has_grown,
    summed,
)
from loaders.store import MemoryStore
from tests.accel.server.test_served import Served, served

SMALL = Plan(
    streams=20, objects=12, uploads=2, upload_streams=6, merges=1, merged=3, connections=8, batch=5, known_streams=5
)
ROUNDS, REQUESTS = 5, 16


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


def test_every_answer_under_load_is_right_while_images_are_replaced() -> None:
    store = MemoryStore()
    commits: SimpleQueue[Commit] = SimpleQueue()
    replacing = Replacing(store, SMALL, commits.put)
    truth = Truth()
    judge = Judge(truth)

    def hear() -> None:
        while not commits.empty():
            judge.commit(commits.get())

    async def load(one: Served) -> Tally:
        clients = [Client(one.port, SMALL, judge, truth, each, asks_known=False) for each in range(SMALL.connections)]

        async def ask(client: Client) -> None:
            for _ in range(REQUESTS):
                await client.ask()

        async def replace() -> None:
            await asyncio.to_thread(replacing.round)
            assert (await asyncio.to_thread(one.post, "/v1/refresh"))[0] == 200

        for _ in range(ROUNDS):
            await asyncio.gather(replace(), *map(ask, clients))
            hear()
        for client in clients:
            await client.close()
        return summed([client.tally for client in clients])

    hear()
    with served(LatencyStore(store, random.Random(1), _sleep)) as one:
        tally = asyncio.run(load(one))
    replacing.close()
    assert (tally.wrong, tally.failed, tally.problems, judge.waiting) == ([], [], {}, 0)
    assert sum(tally.answers.values()) == ROUNDS * REQUESTS * SMALL.connections
    assert set(tally.answers) == {"warm", "cold", "batch", "explain", "304"}
    assert len(tally.versions) >= ROUNDS


# Those who judge

FIRST = Commit(3, (7, 9), {7: {1: (0, 10), 2: (0, 5)}, 9: {1: (10, 20), 2: (8, 9)}})


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (Query(1, 0, -1, 4), Scanned([(7, 0, 10), (9, 10, 20)], "hole", 20)),
        (Query(1, 3, -1, 1), Scanned([(7, 0, 10)], "limit", 10)),
        (Query(1, 3, 10, 4), Scanned([(7, 0, 10)], "end", 10)),
        (Query(1, 15, 18, 4), Scanned([(9, 10, 20)], "end", 20)),
        (Query(2, 0, -1, 4), Scanned([(7, 0, 5)], "hole", 5)),
        (Query(2, 6, -1, 4), Scanned([], "hole", 6)),
        (Query(3, 0, -1, 4), Scanned([], "hole", 0)),
    ],
)
def test_the_plain_scan_walks_the_list(query: Query, answer: Scanned) -> None:
    truth = Truth()
    truth.add(FIRST)
    assert truth.answers(3, query) == [answer]
    assert truth.answers(4, query) == []


def test_an_answer_of_another_version_is_wrong_and_one_of_a_version_to_come_waits() -> None:
    truth, tally, query = Truth(), Tally(), Query(1, 0, -1, 4)
    judge = Judge(truth)
    judge.commit(FIRST)
    later = Scanned([(8, 0, 20)], "hole", 20)
    judge.compare(4, query, later, tally)
    assert (judge.waiting, tally.wrong) == (1, [])
    judge.commit(Commit(4, (8,), {8: {1: (0, 20)}}))
    assert (judge.waiting, tally.wrong, tally.unsure) == (0, [], 0)
    judge.compare(3, query, later, tally)
    assert len(tally.wrong) == 1


def test_versions_within_a_commit_are_of_either_list() -> None:
    truth, tally, query = Truth(), Tally(), Query(1, 0, -1, 4)
    judge = Judge(truth)
    judge.commit(FIRST)
    judge.commit(Commit(6, (8,), {8: {1: (0, 20)}}))
    judge.compare(5, query, Scanned([(8, 0, 20)], "hole", 20), tally)
    judge.compare(5, query, Scanned([(7, 0, 10), (9, 10, 20)], "hole", 20), tally)
    assert (tally.wrong, tally.unsure) == ([], 2)


def test_an_etag_is_of_one_version_and_a_version_has_one_etag() -> None:
    judge = Judge(Truth())
    assert judge.note_etag('"a"', 1)
    assert judge.note_etag('"a"', 1)
    assert not judge.note_etag('"a"', 2)
    assert not judge.note_etag('"b"', 1)


def test_growth_is_the_last_third_by_the_first_one() -> None:
    samples = [Sample(each, 100 + 10 * each, 5, 7, "ready") for each in range(9)]
    grown = {each.name: each.growth for each in flatness(samples)}
    assert grown == {"resident_mib": 170 / 110, "files": 1, "threads": 1}


@pytest.mark.parametrize(
    ("samples", "grown"),
    [
        (lambda at: Sample(at, 100, 5, 7, "ready"), []),
        (lambda at: Sample(at, 100 + 3 * at, 5, 7, "ready"), ["resident_mib"]),
        (lambda at: Sample(at, 100, 5 + at, 7, "ready"), ["files"]),
        (lambda at: Sample(at, 100, 5, 7 + at, "ready"), ["threads"]),
    ],
    ids=["level", "memory leaks", "files leak", "threads leak"],
)
def test_what_grows_is_found(samples: Callable[[int], Sample], grown: list[str]) -> None:
    found = flatness([samples(at) for at in range(12)])
    assert [each.name for each in found if has_grown(each)] == grown
