"""`python -m benchmarks.sidecar_load`: a sidecar under load while its images are replaced, each answer compared.

`accel serve` runs in a separate process over an S3 server with the latencies of `LatencyModel`. Another process commits
uploads and compactions, without a pause longer than a second. 64 connections of a third process send requests: lookups
anywhere and at the tail, batches, explained lookups, and repeated lookups with their ETag. All have default settings.

Each answer is compared with a plain scan of the lists of the image version in the answer, as reported by the process
that committed it:

    wrong       other objects, offsets, node, ending or offset to resume at
                an ETag of two versions, or a version with two ETags
                on one connection an older image than before; a 304 to an ETag that is no longer valid
    refused     a problem, which is no failure in an outage if it is retryable
    failed      any other answer, or none

If one commit takes several writes of the list, versions in between may have the list before the commit or after it, and
both are right; the report contains the number of these answers.

In addition, the sidecar's resident memory, open files and threads are sampled every half second. The first third of the
run is compared with the last third: growth above `GROWTH_MAX` is a failure.

    python -m benchmarks.sidecar_load                          60 seconds
    python -m benchmarks.sidecar_load --seconds 1800 --connections 16
                                                               half an hour
    python -m benchmarks.sidecar_load --outage-seconds 60      then the store fails for 60 s, in three ways: 503, no
                                                               answer, 5 s an answer; then it works again

In an outage half of the connections send lookups that are answered from the sidecar's memory, and these must succeed;
the other half send any lookups.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError

import boto3
import click
import msgspec
import numpy as np

from accel import ObjectCatalog, StoreSettings, open_store
from accel.compaction.attempts import commit_outcome, merge_group
from accel.compaction.plan import Group
from accel.compaction.settings import CompactionSettings
from accel.image import version_number
from accel.system import SYSTEM
from benchmarks.slow_s3 import KEYS, SlowS3, Weather, slow_s3
from loaders.format import RecordBatch
from loaders.store import ObjectStore
from loaders.tables import FormatRecord

NODE_ID: Final = 4
BUCKET: Final = "load"
SAMPLE_SECONDS: Final = 0.5
GROWTH_MAX: Final = 1.1
"""The limit of memory, files and threads in the last third of a run, as a multiple of the first third."""

HELD_KEPT_MAX: Final = 1_000
"""The number of pairs of stream and list whose scans are cached."""

OUTAGE: Final = (Weather.REFUSING, Weather.SILENT, Weather.SLOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The requests and the commits of a run. Threads: immutable.

    Args:
        streams: the number of streams of the node; each is in all of the first objects.
        objects: the number of objects at the beginning.
        offsets: of a stream in one object.
        uploads: in each round of commits.
        upload_streams: the number of streams in an upload, drawn from all.
        merges: compactions in each round, of `merged` neighbours each, so that the length of the list stays the same.
        merged: neighbours of a compaction.
        round_seconds: duration of a round of commits.
        connections: that send requests at the same time.
        batch: lookups in a batch.
        known_streams: the number of streams of the lookups that are answered from memory.
        seed: of all random choices.
    """

    streams: int = 500
    objects: int = 300
    offsets: int = 10
    uploads: int = 6
    upload_streams: int = 100
    merges: int = 2
    merged: int = 4
    round_seconds: float = 1.0
    connections: int = 64
    batch: int = 20
    known_streams: int = 50
    seed: int = 1


# Commits


class Commit(NamedTuple):
    """A version of the image, as reported by the process that committed it.

    Args:
        version: of the image.
        listed: ids of the node's objects, in the order of the list.
        made: the ranges of new objects: id -> stream -> [start, end).
    """

    version: int
    listed: tuple[int, ...]
    made: dict[int, dict[int, tuple[int, int]]]


class Replacing:
    """Commits uploads and compactions, and reports the resulting versions. One thread.

    Args:
        store: the store, without a catalog.
        plan: the commits.
        tell: called with each commit.
    """

    def __init__(self, store: ObjectStore, plan: Plan, tell: Callable[[Commit], object]) -> None:
        self._plan, self._tell = plan, tell
        self._rng = random.Random(plan.seed)
        ObjectCatalog.init(store, FormatRecord(namespace="_load", stream_buckets=1))
        self._catalog = ObjectCatalog.open(store)
        self._writer = self._catalog.open_node(NODE_ID)
        self._writer.open_streams(range(plan.streams))
        self._ends = [0] * plan.streams
        self._held: dict[int, dict[int, tuple[int, int]]] = {}
        for _ in range(plan.objects):
            self._upload(range(plan.streams))

    def round(self) -> None:
        """Commit the uploads and the compactions of one round."""
        for _ in range(self._plan.uploads):
            self._upload(self._rng.sample(range(self._plan.streams), self._plan.upload_streams))
        for _ in range(self._plan.merges):
            self._merge()

    def close(self) -> None:
        """End the session."""
        self._writer.close()
        self._catalog.close()

    def _upload(self, streams: Sequence[int]) -> None:
        count = self._plan.offsets
        held = {each: (self._ends[each], self._ends[each] + count) for each in streams}
        made = self._writer.upload({each: [RecordBatch(each, 1, held[each][0], count, b"records")] for each in streams})
        for each in streams:
            self._ends[each] += count
        self._committed({made.object_id: held})

    def _merge(self) -> None:
        refs = self._catalog.refresh().node(NODE_ID).refs
        first = self._rng.randrange(len(refs) - self._plan.merged)
        sources = refs[first : first + self._plan.merged]
        none = np.empty(0, np.int64)
        group = Group(NODE_ID, first, sources, none, none, self._plan.streams, 1, 0, 0, 0)
        prepare = partial(self._catalog.prepare, NODE_ID)
        outcome = merge_group(self._catalog.parts, group, CompactionSettings(), prepare)
        self._committed({})  # ids were prepared
        if (refusal := commit_outcome(self._catalog, outcome)) is not None:
            raise RuntimeError(f"expected to commit {group.name}, found {refusal}")
        merged: dict[int, tuple[int, int]] = {}
        for source in sources:
            for stream_id, (start, end) in self._held.pop(source.object_id).items():
                merged[stream_id] = (merged[stream_id][0] if stream_id in merged else start, end)
        self._committed({outcome.outputs[0].object_id: merged})

    def _committed(self, made: dict[int, dict[int, tuple[int, int]]]) -> None:
        self._held |= made
        image = self._catalog.refresh()
        self._tell(Commit(version_number(image.version), tuple(image.node(NODE_ID).object_ids.tolist()), made))


# The expected answers


class Query(NamedTuple):
    """A lookup."""

    stream_id: int
    start: int
    end: int
    limit: int

    def text(self) -> str:
        """The query as URL parameters."""
        return f"stream_id={self.stream_id}&start={self.start}&end={self.end}&limit={self.limit}"


class Scanned(NamedTuple):
    """The expected answer of a lookup: (object id, start, end) of each object, why it ends, where to resume."""

    objects: list[tuple[int, int, int]]
    ending: str
    resume_offset: int


class Truth:
    """All versions of the image, and the answers to lookups of each, by a plain scan. One thread."""

    def __init__(self) -> None:
        self._listed: dict[int, list[tuple[int, ...]]] = {}
        self._held: dict[int, dict[int, tuple[int, int]]] = {}
        self._held_of = lru_cache(HELD_KEPT_MAX)(self._find_held)
        self.newest = 0
        self.ends: dict[int, int] = {}

    def add(self, commit: Commit) -> None:
        """Add a commit; versions since the previous commit have its list, or the previous one."""
        before = self._listed[self.newest][-1:] if self.newest else []
        for version in range(self.newest + 1, commit.version):
            self._listed[version] = [*before, commit.listed]
        self._listed[commit.version] = [commit.listed]
        self._held |= commit.made
        self.newest = max(self.newest, commit.version)
        for held in commit.made.values():
            self.ends |= {each: max(end, self.ends.get(each, 0)) for each, (_, end) in held.items()}

    def answers(self, version: int, query: Query) -> list[Scanned]:
        """The right answers, usually one; none for a version that was never committed."""
        return [self._scan(listed, query) for listed in self._listed.get(version, ())]

    def _scan(self, listed: tuple[int, ...], query: Query) -> Scanned:
        found: list[tuple[int, int, int]] = []
        offset = query.start
        for each in self._held_of(listed, query.stream_id):
            _, begin, over = each
            if over <= offset:
                continue
            if begin != offset and (found or begin > offset):
                break
            found.append(each)
            offset = over
            if len(found) == query.limit or offset >= query.end != -1:
                break
        if offset >= query.end != -1 and found:
            return Scanned(found, "end", offset)
        return Scanned(found, "limit" if len(found) == query.limit else "hole", offset)

    def _find_held(self, listed: tuple[int, ...], stream_id: int) -> list[tuple[int, int, int]]:
        return [(each, *self._held[each][stream_id]) for each in listed if stream_id in self._held[each]]


# Clients


@dataclass(slots=True)
class Tally:
    """The results of requests. One thread.

    Args:
        answers: the number of compared answers, by kind.
        milliseconds: the latencies, by kind.
        problems: the number of retryable refusals by (status, type).
        wrong: the first wrong answers.
        failed: the first other answers, and requests without an answer.
        unsure: the number of answers of versions within a commit.
        versions: the image versions in the answers.
    """

    answers: Counter[str] = field(default_factory=Counter)
    milliseconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: Counter[tuple[int, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unsure: int = 0
    versions: set[int] = field(default_factory=set)


class Judge:
    """Compares answers with the right ones; answers of versions that are not reported yet wait. One thread."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._waiting: dict[int, list[tuple[Query, Scanned, Tally]]] = defaultdict(list)
        self._etags: dict[str, int] = {}
        self._versions: dict[int, str] = {}

    def note_etag(self, etag: str, version: int) -> bool:
        """Whether this ETag belongs only to this version."""
        return self._etags.setdefault(etag, version) == version and self._versions.setdefault(version, etag) == etag

    def compare(self, version: int, query: Query, found: Scanned, tally: Tally) -> None:
        """Compare an answer, now or when its version is known."""
        tally.versions.add(version)
        if version > self._truth.newest:
            self._waiting[version].append((query, found, tally))
            return
        right = self._truth.answers(version, query)
        tally.unsure += len(right) > 1
        if found not in right:
            tally.wrong.append(f"version {version}, {query}: expected {right}, found {found}")

    def commit(self, commit: Commit) -> None:
        """Add a commit, and compare the answers that waited for it."""
        self._truth.add(commit)
        for version in [each for each in self._waiting if each <= commit.version]:
            for query, found, tally in self._waiting.pop(version):
                self.compare(version, query, found, tally)

    @property
    def waiting(self) -> int:
        """The number of answers of versions that are not reported yet."""
        return sum(map(len, self._waiting.values()))


class Client:
    """One connection and its requests. One event loop.

    Args:
        port: of the sidecar.
        plan: the requests.
        judge: compares answers.
        truth: contains the ends of streams.
        number: of the connection.
        asks_known: whether it sends the same lookups of a few streams all the time.
    """

    def __init__(self, port: int, plan: Plan, judge: Judge, truth: Truth, number: int, *, asks_known: bool) -> None:
        self._port, self._plan, self._judge, self._truth = port, plan, judge, truth
        self._rng = random.Random(plan.seed * 1_000 + number)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._version, self._etag = 0, ""
        self._last = self._drawn()
        self.asks_known = asks_known
        self.tally = Tally()

    async def ask(self) -> None:
        """Send a random request, and compare its answer."""
        kinds = (self._revalidate, self._look_up, self._look_up_many, self._explain)
        act = self._rng.choices(kinds, (15, 75, 6, 4))[0] if not self.asks_known else self._look_up
        before = SYSTEM.timer()
        try:
            kind = await act()
        except (OSError, asyncio.IncompleteReadError, ValueError, KeyError) as error:
            self.tally.failed.append(f"{type(error).__name__}: {error}")
            await self.close()
            return
        took_ms = (SYSTEM.timer() - before) * 1000
        self.tally.answers[kind] += 1
        self.tally.milliseconds[kind].append(took_ms)

    async def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()
            with suppress(OSError):
                await self._streams[1].wait_closed()
        self._streams = None

    def _drawn(self) -> Query:
        if not self._truth.ends:
            return Query(0, 0, -1, 4)
        stream_id = self._rng.randrange(self._plan.streams)
        most = self._truth.ends[stream_id]
        tail = self._plan.offsets * 3
        start = (
            self._rng.randrange(max(0, most - tail), most) if self._rng.random() < 0.3 else self._rng.randrange(most)
        )
        end = self._rng.choice((-1, start + self._rng.randrange(1, 100)))
        return Query(stream_id, start, end, self._rng.choice((1, 4, 4, 8)))

    def _next(self) -> Query:
        if not self.asks_known:
            return self._drawn()
        stream_id = self._rng.randrange(self._plan.known_streams)
        return Query(stream_id, self._plan.offsets * (1 + stream_id % 5), -1, 4)

    async def _look_up(self) -> str:
        query = self._last = self._next()
        return await self._objects(query, "")

    async def _revalidate(self) -> str:
        given = f"If-None-Match: {self._etag}\r\n" if self._etag else ""
        return await self._objects(self._last, given)

    async def _objects(self, query: Query, headers: str) -> str:
        status, told, etag = await self._request("GET", f"/v1/objects?{query.text()}", headers)
        if status == 304:
            if etag != self._etag or not self._judge.note_etag(etag, self._version):
                self.tally.wrong.append(f"304 to {self._etag}: expected version {self._version}, found {etag}")
            return "304"
        if self._is_refused(status, told):
            return "refused"
        self._see(told["image_version"], etag, is_final=told["ending"] in ("limit", "end"))
        self._compare(query, told)
        return "warm" if told["rounds"] == 0 else "cold"

    async def _look_up_many(self) -> str:
        queries = [self._drawn() for _ in range(self._plan.batch)]
        body = msgspec.json.encode({"lookups": [query._asdict() for query in queries]})
        status, told, _ = await self._request("POST", "/v1/objects:batch", "Content-Type: application/json\r\n", body)
        if self._is_refused(status, told):
            return "refused"
        for query, outcome in zip(queries, told["outcomes"], strict=True):
            if "answer" in outcome:
                self._compare(query, outcome["answer"])
            else:
                self._is_refused(outcome["problem"]["status"], outcome["problem"])
        return "batch"

    async def _explain(self) -> str:
        query = self._drawn()
        status, told, _ = await self._request("GET", f"/v1/explain?{query.text()}")
        problem = {"status": 503, "type": (told.get("error") or {}).get("type", ""), "retryable": True}
        if self._is_refused(status, told) or (told["answer"] is None and self._is_refused(503, problem)):
            return "refused"
        answer = told["answer"]
        found = [(each["object_id"], each["start"], each["end"]) for each in answer["objects"]]
        scanned = Scanned(found, answer["ending"], answer["resume_offset"])
        self._judge.compare(told["image_versions"][-1], query, scanned, self.tally)
        return "explain"

    def _is_refused(self, status: int, told: Mapping[str, Any]) -> bool:
        if status == 200:
            return False
        if not told.get("retryable"):
            raise ValueError(f"{status}: {told}")
        self.tally.problems[status, told["type"].removeprefix("urn:accel:")] += 1
        return True

    def _see(self, version: int, etag: str, *, is_final: bool) -> None:
        if version < self._version:
            self.tally.wrong.append(f"version {version} after {self._version} on one connection")
        if bool(etag) != is_final or (etag and not self._judge.note_etag(etag, version)):
            self.tally.wrong.append(f"version {version}: found ETag {etag!r}, of another version or ending")
        self._version = version
        self._etag = etag

    def _compare(self, query: Query, told: Mapping[str, Any]) -> None:
        found = [(each["object_id"], each["start"], each["end"]) for each in told["objects"]]
        foreign = {(each["kind"], each["node_id"]) for each in told["objects"]} - {("stream_set", NODE_ID)}
        if foreign or told["stream_id"] != query.stream_id:
            self.tally.wrong.append(f"{query}: expected objects of node {NODE_ID}, found {told}")
        self._judge.compare(
            told["image_version"], query, Scanned(found, told["ending"], told["resume_offset"]), self.tally
        )

    async def _request(self, method: str, path: str, headers: str = "", body: bytes = b"") -> tuple[int, Any, str]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}{length}\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        status = int(lines[0].split(" ")[1])
        told = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        content = await reader.readexactly(int(told.get("content-length", 0)))
        return status, msgspec.json.decode(content) if content else None, told.get("etag", "")


def summed(tallies: Sequence[Tally]) -> Tally:
    """The sum of all tallies."""
    total = Tally()
    for each in tallies:
        total.answers += each.answers
        total.problems += each.problems
        total.unsure += each.unsure
        total.wrong += each.wrong
        total.failed += each.failed
        total.versions |= each.versions
        for kind, milliseconds in each.milliseconds.items():
            total.milliseconds[kind] += milliseconds
    return total


# The processes


class Sample(NamedTuple):
    """A sample of the sidecar's process: seconds since the beginning, memory, files, threads and state."""

    seconds: float
    resident_mib: float
    files: int
    threads: int
    state: str


def sample_of(process_id: int, since: float, state: str) -> Sample:
    """Sample a process from Linux's /proc."""
    folder = Path("/proc") / str(process_id)
    lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
    resident = int(lines["VmRSS"].split()[0]) / 1024
    files = len(list((folder / "fd").iterdir()))
    return Sample(SYSTEM.timer() - since, resident, files, int(lines["Threads"]), state)


def state_of(port: int) -> str:
    """The state that /readyz reports."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as reply:
            return str(json.load(reply)["state"])
    except HTTPError as error:
        return str(json.load(error)["state"])
    except (URLError, OSError):
        return "away"


def _replace(told: Connection, endpoint: str, plan: Plan) -> None:
    store = open_store(f"s3://{BUCKET}", StoreSettings(endpoint_url=endpoint))
    replacing = Replacing(store, plan, told.send)
    told.send(None)
    while not told.poll(plan.round_seconds):
        replacing.round()
    replacing.close()


@contextmanager
def replacing_process(endpoint: str, plan: Plan) -> Iterator[Connection]:
    """Another process that commits; it sends each `Commit`, and None when the first objects are committed."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_replace, args=(there, endpoint, plan), daemon=True)
    process.start()
    try:
        yield here
    finally:
        process.kill()
        process.join()


@contextmanager
def serving_process(endpoint: str) -> Iterator[tuple[int, int]]:
    """Run `accel serve`; yields its port and the id of its process when it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = ["serve", f"s3://{BUCKET}", "--endpoint-url", endpoint, "--port", str(port), "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "accel.cli", *command], stderr=subprocess.DEVNULL)  # noqa: S603 - ours
    try:
        while state_of(port) != "ready":
            if process.poll() is not None:
                raise RuntimeError(f"expected a running sidecar, found that it exited with {process.returncode}")
            SYSTEM.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


# A run


class Phase(NamedTuple):
    """A part of a run: the results of connections with any lookups, and of those with lookups answered from memory."""

    name: str
    seconds: float
    any: Tally
    known: Tally


class Run:
    """A run and its results. One event loop.

    Args:
        plan: of the run.
        server: the store.
    """

    def __init__(self, plan: Plan, server: SlowS3) -> None:
        self.plan, self.server = plan, server
        self.samples: list[Sample] = []
        self.phases: list[Phase] = []
        self.truth = Truth()
        self.judge = Judge(self.truth)
        self.clients: list[Client] = []
        self.is_over = False
        self.well_seconds: float | None = None

    async def go(self, seconds: float, outage_seconds: float) -> None:
        """Run all phases."""
        with replacing_process(self.server.quick, self.plan) as commits:
            while (commit := await asyncio.to_thread(commits.recv)) is not None:
                self.judge.commit(commit)
            with serving_process(self.server.slow) as (port, process_id):
                self.clients = [self._client(port, each, outage_seconds > 0) for each in range(self.plan.connections)]
                began = SYSTEM.timer()
                tasks = [asyncio.create_task(self._ask(client)) for client in self.clients]
                tasks += [
                    asyncio.create_task(self._hear(commits)),
                    asyncio.create_task(self._watch(port, process_id, began)),
                ]
                await self._phases(seconds, outage_seconds)
                self.is_over = True
                await asyncio.gather(*tasks)
                for client in self.clients:
                    await client.close()

    def _client(self, port: int, number: int, is_outage: bool) -> Client:
        known = is_outage and number % 2 == 0
        return Client(port, self.plan, self.judge, self.truth, number, asks_known=known)

    async def _phases(self, seconds: float, outage_seconds: float) -> None:
        await self._phase("fine", seconds)
        if outage_seconds:
            for weather in OUTAGE:
                self.server.turn(weather)
                await self._phase(weather.name.lower(), outage_seconds / len(OUTAGE))
            self.server.turn(Weather.FINE)
            self.well_seconds = self.samples[-1].seconds if self.samples else 0.0
            await self._phase("fine again", seconds)

    async def _phase(self, name: str, seconds: float) -> None:
        began = SYSTEM.timer()
        await asyncio.sleep(seconds)
        parts: dict[bool, list[Tally]] = {True: [], False: []}
        for client in self.clients:
            parts[client.asks_known].append(client.tally)
            client.tally = Tally()
        self.phases.append(Phase(name, SYSTEM.timer() - began, summed(parts[False]), summed(parts[True])))

    async def _ask(self, client: Client) -> None:
        while not self.is_over:
            await client.ask()

    async def _hear(self, commits: Connection) -> None:
        while not self.is_over or self.judge.waiting:
            while commits.poll():
                self.judge.commit(commits.recv())
            await asyncio.sleep(0.01)

    async def _watch(self, port: int, process_id: int, began: float) -> None:
        while not self.is_over:
            self.samples.append(sample_of(process_id, began, await asyncio.to_thread(state_of, port)))
            await asyncio.sleep(SAMPLE_SECONDS)


class Flatness(NamedTuple):
    """Medians of a quantity in the first and in the last third of a run."""

    name: str
    first: float
    last: float

    @property
    def growth(self) -> float:
        """The last median divided by the first."""
        return self.last / self.first


def flatness(samples: Sequence[Sample]) -> list[Flatness]:
    """Resident MiB, files and threads of the first and of the last third."""
    return [_thirds(name, [getattr(each, name) for each in samples]) for name in ("resident_mib", "files", "threads")]


def _thirds(name: str, values: Sequence[float]) -> Flatness:
    third = len(values) // 3
    return (
        Flatness(name, statistics.median(values[:third]), statistics.median(values[-third:]))
        if third
        else Flatness(name, 1, 1)
    )


def has_grown(each: Flatness) -> bool:
    """Whether the growth is above its limit."""
    return each.growth > GROWTH_MAX


def lines_of(run: Run) -> Iterator[str]:
    """The report, as text."""
    for phase in run.phases:
        for who, tally in (("any", phase.any), ("known", phase.known)):
            if not tally.answers:
                continue
            total = sum(tally.answers.values())
            yield f"{phase.name}, {who} lookups: {total:,} requests, {total / phase.seconds:,.0f} a second"
            for kind, count in sorted(tally.answers.items()):
                yield f"  {kind:<9} {count:>9,}   {_percentiles(tally.milliseconds[kind])}"
            yield (
                f"  wrong {len(tally.wrong)}, failed {len(tally.failed)}, of {len(tally.versions)} versions,"
                f" {tally.unsure:,} within a commit"
            )
            yield from (f"  {status} {kind}: {count:,}" for (status, kind), count in sorted(tally.problems.items()))
            yield from (f"  WRONG {each[:500]}" for each in tally.wrong[:3])
            yield from (f"  FAILED {each[:500]}" for each in tally.failed[:3])
    for each in flatness(run.samples):
        yield f"{each.name:<13} first third {each.first:,.0f}, last third {each.last:,.0f}, x {each.growth:.3f}"
    first, last = run.samples[0], run.samples[-1]
    yield f"resident MiB at the start {first.resident_mib:,.0f}, at the end {last.resident_mib:,.0f}"
    states = [each for at, each in enumerate(run.samples) if not at or run.samples[at - 1].state != each.state]
    yield "states        " + ", ".join(f"{each.state} at {each.seconds:.1f} s" for each in states)
    if run.well_seconds is not None:
        yield f"the store worked again at {run.well_seconds:.1f} s"


def is_right(run: Run) -> bool:
    """Whether no answer was wrong, failed, or refused outside an outage, and no quantity grew above its limit."""
    tallies = [tally for phase in run.phases for tally in (phase.any, phase.known)]
    refused = sum(sum(each.problems.values()) for each in (run.phases[0].any, *(phase.known for phase in run.phases)))
    grown = [each for each in flatness(run.samples) if has_grown(each)]
    is_ready = run.samples[-1].state == "ready"
    return is_ready and not refused and not grown and not any(each.wrong or each.failed for each in tallies)


def _percentiles(milliseconds: Sequence[float]) -> str:
    if len(milliseconds) < 2:
        return ""
    cuts = statistics.quantiles(milliseconds, n=100)
    return f"p50 {cuts[49]:,.1f} ms, p99 {cuts[98]:,.1f} ms, longest {max(milliseconds):,.0f} ms"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seconds", default=60.0, help="Duration of the load; with an outage, before it and again after it.")
@click.option("--outage-seconds", default=0.0, help="Duration of the outage, in three ways, one after another.")
@click.option("--connections", default=Plan().connections)
@click.option("--seed", default=1)
def main(seconds: float, outage_seconds: float, connections: int, seed: int) -> None:
    """Load a sidecar, compare each answer, and report latencies, and the process's memory, files and threads."""
    os.environ.update(KEYS)
    with slow_s3(seed) as server:
        boto3.client("s3", endpoint_url=server.quick).create_bucket(Bucket=BUCKET)
        run = Run(Plan(connections=connections, seed=seed), server)
        asyncio.run(run.go(seconds, outage_seconds))
    click.echo("\n".join(lines_of(run)))
    sys.exit(0 if is_right(run) else 1)


if __name__ == "__main__":
    main()
