"""`python -m benchmarks.service`: checks every event of a stream whose writers and readers are killed.

Writers share the segments of one stream; each event is sent to the process that owns the segment of its key. Readers of
one group share the stream, and commit the events that they have finished with. A scaler splits and merges segments.
Processes of each kind are killed (SIGKILL) and restarted, at random moments. At the end every event is checked:

    in the stream     each event is there once, the events of a key in the order of writing; no acknowledged event is
                      missing
    in the group      each event was returned to a reader, and never before an earlier event of its key. After a commit
                      returned, the events that it covers were not returned again. Events that a reader had not
                      committed when it was killed, or when its lease expired, are returned again: a group guarantees
                      at least once

Each process opens its own connection; processes share only the bucket and, between writers, HTTP on loopback. The
server is moto's, in a separate process, unless an endpoint is given.

    python -m benchmarks.service                                             200,000 events, 8 segments
    python -m benchmarks.service --endpoint http://127.0.0.1:8000 --bucket service      keys as AWS's tools find them
"""

from __future__ import annotations

import multiprocessing
import os
import random
import socket
import statistics
import sys
import tempfile
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import RawIOBase
from itertools import count
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic_ns, perf_counter
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

import boto3
import click

import accel
from accel import ConnectionSettings, FormatRecord, S3Settings, StreamConfiguration, open_store
from accel.errors import ForwardInDoubt, IllegalState, OperationNotAllowed, OwnerUnreachable, SegmentsElsewhere
from accel.history.store import Stream
from accel.streams.acknowledgements import WriteFuture
from accel.streams.rules.events import EventBatch
from accel.streams.settings import OwnersSettings
from accel.streams.writer import StreamWriter
from accel.system import SYSTEM
from benchmarks.stream_client import KEYS, server
from loaders.store import CountingStore, ObjectStore

SCOPE, NAME, GROUP = "service", "events", "billing"
SECRET: Final = "of the processes of one service"  # noqa: S105 - they listen on loopback, for as long as this runs
EVENT_BYTES: Final = 100
QUIET_SECONDS: Final = 300.0
"""A run fails if no process has sent a message for this time."""

PAUSE_SECONDS: Final = 0.2
"""The pause before a retry, and between checks of the owners of segments."""

KINDS: Final = ("writer", "reader", "scaler")
SCALE_SECONDS: Final = 0.3
"""A scaler is killed within this time after it received the command to scale."""

WAIT_SECONDS: Final = 1.0
"""The time that a reader waits for events before it commits."""

PRELOADED: Final = [
    "benchmarks.stream_client",
    "accel.streams.connection",
    "accel.streams.shared.forwarding",
    "uvicorn",
    "starlette",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a run. Threads: immutable.

    Args:
        events: the number of events of all writers.
        segments: the number of segments at the beginning.
        writers, readers: the numbers of processes.
        kills: the number of kills, of the kinds in turn.
        scales: the number of splits and merges while events are written.
        keys: the number of keys of each writer.
        open_events: the number of events under way at which a writer waits.
        commit_events: the number of events after which a reader commits.
        lease_seconds: of owners and of readers.
        seed: of the moments of kills, and of the choice of segments to split and merge.
    """

    events: int = 200_000
    segments: int = 8
    writers: int = 3
    readers: int = 3
    kills: int = 9
    scales: int = 12
    keys: int = 50
    open_events: int = 2_000
    commit_events: int = 2_000
    lease_seconds: float = 15.0
    seed: int = 1

    @property
    def of_one(self) -> int:
        """The number of events of one writer."""
        return self.events // self.writers

    def key(self, number: int) -> int:
        """The key of an event, the same for each writer."""
        return number * 7919 % self.keys


class Bucket(NamedTuple):
    """The places of the service, for every process.

    Args:
        url: of the store.
        settings: of its client.
        environment: variables of the process, with the credentials.
        folder: on disk; readers log the returned events there.
    """

    url: str
    settings: S3Settings
    environment: dict[str, str]
    folder: str

    def open(self) -> ObjectStore:
        """A client of the store; needs the variables of `environment`."""
        return open_store(self.url, self.settings)


class Told(NamedTuple):
    """A message of a process.

    Args:
        what: "ready", "progress", "done" or "failed".
        reached: of a writer: durable events from the first on; of a reader: returned events; of the scaler: the epoch.
        requests: to the store since the last message.
        waits_ms: times until events were durable, since the last message.
        text: the error, or the command that was done.
    """

    what: str
    reached: int = 0
    requests: int = 0
    waits_ms: Sequence[float] = ()
    text: str = ""


# All processes


class Process:
    """One process of the service, from inside: its connection, and the pipe to the main process.

    Args:
        bucket: the places of the service.
        told: the pipe.
        plan: of the service.
        options: of `accel.connect`.
    """

    def __init__(self, bucket: Bucket, told: Connection, plan: Plan, **options: Any) -> None:
        self.store = CountingStore(bucket.open())
        settings = ConnectionSettings(owners=OwnersSettings(lease_seconds=plan.lease_seconds))
        self.streams = accel.connect(self.store, settings=settings, **options)
        self.told = told

    def tell(self, what: str, reached: int = 0, waits_ms: Sequence[float] = (), text: str = "") -> None:
        """Send a message with the progress."""
        requests = sum(each.requests for each in self.store.reset().by_operation.values())
        self.told.send(Told(what, reached, requests, waits_ms, text))


def _until_owners_are_there(act: Callable[[], object]) -> None:
    """Retry an action that needs the owners of segments until the leases of dead owners are over."""
    while True:
        try:
            act()
        except (OwnerUnreachable, SegmentsElsewhere, OperationNotAllowed):
            SYSTEM.sleep(PAUSE_SECONDS)
        else:
            return


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


# Writers


def write(bucket: Bucket, told: Connection, plan: Plan, ports: Sequence[int], number: int, is_first: bool) -> None:
    """The body of a writer: it continues after its last durable event, and serves as owner until it is told to end."""
    owners = [_address(port) for port in ports]
    me = Process(bucket, told, plan, listen=f"127.0.0.1:{ports[number]}", owners=owners, secret=SECRET)
    with me.streams as streams:
        if is_first:
            active = streams.stream(SCOPE, NAME).active_segments().ids.tolist()
            streams.host().open_segments((SCOPE, NAME), active[number :: plan.writers])
        me.tell("ready", text=str(streams.node_id()))
        told.recv()
        while True:
            try:
                with streams.writer(SCOPE, NAME, writer_id=UUID(int=number + 1)) as writer:
                    _write_all(me, writer, plan, number)
            except (OwnerUnreachable, SegmentsElsewhere, ForwardInDoubt):  # until the lease of a dead owner is over
                SYSTEM.sleep(PAUSE_SECONDS)
            else:
                break
        me.tell("done", plan.of_one)
        told.recv()


def _write_all(me: Process, writer: StreamWriter, plan: Plan, number: int) -> None:
    """Write the events that are not durable, with up to `open_events` under way, and report the progress."""
    under_way: deque[tuple[int, WriteFuture]] = deque()
    waits_ms: list[float] = []
    begin = writer.resume()
    me.tell("progress", begin)
    for each in range(begin, plan.of_one):
        key = f"{number}/{plan.key(each)}"
        under_way.append((monotonic_ns(), writer.write(payload(number, each), key, number=each)))
        while under_way and (len(under_way) >= plan.open_events or each == plan.of_one - 1):
            began_ns, future = under_way.popleft()
            future.result()
            waits_ms.append((monotonic_ns() - began_ns) / 1e6)
            if len(waits_ms) >= plan.open_events // 2 or not under_way:
                me.tell("progress", each + 1 - len(under_way), waits_ms)
                waits_ms = []


def payload(writer: int, number: int) -> bytes:
    """The payload of an event: its writer, its number, and the time of writing."""
    return f"{writer} {number} {monotonic_ns()} ".encode().ljust(EVENT_BYTES, b".")


class Written(NamedTuple):
    """An event, decoded from its payload."""

    writer: int
    number: int
    written_ns: int

    @classmethod
    def of(cls, text: bytes) -> Self:
        """Read a payload."""
        return cls(*map(int, text.split(b" ")[:3]))


# The scaler


def scale(bucket: Bucket, told: Connection, plan: Plan, ports: Sequence[int], seed: int) -> None:
    """The body of the scaler: it splits, merges and finally seals, each on command."""
    chance = random.Random(seed)
    me = Process(bucket, told, plan, owners=[_address(port) for port in ports], secret=SECRET)
    with me.streams as streams:
        stream = streams.stream(SCOPE, NAME)
        _until_owners_are_there(stream.recover)
        me.tell("ready")
        while (wanted := told.recv()) != "end":
            _until_owners_are_there(stream.seal if wanted == "seal" else _chosen_scale(stream, plan, chance))
            me.tell("done", stream.current_epoch().epoch, text=wanted)


def _chosen_scale(stream: Stream, plan: Plan, chance: random.Random) -> Callable[[], object]:
    active = sorted(stream.active_segments(), key=lambda each: each.key_start)
    if len(active) >= plan.segments + 3 or (len(active) > 2 and chance.random() < 0.5):
        at = chance.randrange(len(active) - 1)
        return lambda: stream.merge(active[at].id, active[at + 1].id)
    chosen = chance.choice(active).id
    return lambda: stream.split(chosen)


# Readers


def read(bucket: Bucket, told: Connection, plan: Plan, name: str, log: str) -> None:
    """The body of a reader: it logs events before it commits them, and ends with the stream."""
    me = Process(bucket, told, plan)
    lease, often = plan.lease_seconds, min(2.0, plan.lease_seconds / 5)
    with me.streams as streams, (Path(bucket.folder) / log).open("ab", 0) as out:
        reader = streams.group_reader(
            SCOPE, NAME, GROUP, name, auto_commit=False, lease_seconds=lease, rebalance_seconds=often
        )
        me.tell("ready")
        given = open_events = 0
        while not reader.is_finished:
            try:
                batch = reader.next_batch(WAIT_SECONDS)
                if batch is not None:
                    open_events += _note(out, batch)
                if batch is None or open_events >= plan.commit_events:
                    out.write(b"b\n")
                    reader.commit()
                    out.write(f"c {monotonic_ns()}\n".encode())
                    given, open_events = given + open_events, 0
                    me.tell("progress", given)
            except IllegalState:  # its lease is over: uncommitted events are returned again
                out.write(b"x\n")
                open_events = 0
        me.tell("done", given)
    told.recv()


def _note(out: RawIOBase, batch: EventBatch) -> int:
    events = [Written.of(event.payload) for event in batch]
    out.write(f"g {monotonic_ns()} {' '.join(':'.join(map(str, each)) for each in events)}\n".encode())
    return len(events)


class Giving(NamedTuple):
    """The return of an event to a reader.

    Args:
        event: the event.
        given_ns: the time of the return.
        committed_ns: the time when the commit that covers it returned; 0 = none did.
        is_unsure: whether a commit that covers it was under way when its reader ended.
    """

    event: Written
    given_ns: int
    committed_ns: int
    is_unsure: bool


def givings(lines: Iterable[str]) -> Iterator[Giving]:
    """Decode the log of one reader."""
    waiting: list[tuple[Written, int]] = []
    is_committing = False
    for line in lines:
        what, _, rest = line.partition(" ")
        if not line.endswith("\n"):
            break  # it was killed while it wrote this
        if what == "g":
            given_ns, *events = rest.split()
            waiting += [(Written(*map(int, each.split(":"))), int(given_ns)) for each in events]
        elif what == "b\n":
            is_committing = True
        else:
            committed_ns = int(rest) if what == "c" else 0
            yield from (Giving(event, given_ns, committed_ns, not committed_ns) for event, given_ns in waiting)
            waiting, is_committing = [], False
    yield from (Giving(event, given_ns, 0, is_committing) for event, given_ns in waiting)


# Checks


@dataclass(slots=True)
class Found:
    """Numbers of events by fault; all but `given_again` must be 0.

    Args:
        lost: not in the stream.
        doubled: more than once in the stream.
        reordered: in the stream after a later event of their key.
        never_given: returned to no reader of the group.
        not_committed: covered by no commit of the group.
        committed_again: returned to a reader after their commit had returned, or committed twice.
        given_early: returned before an earlier event of their key.
        given_again: returned more than once before they were committed, which "at least once" allows.
    """

    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    never_given: int = 0
    not_committed: int = 0
    committed_again: int = 0
    given_early: int = 0
    given_again: int = 0

    @property
    def is_right(self) -> bool:
        """Whether the guarantees were kept."""
        return replace(self, given_again=0) == Found()


def judge_stream(plan: Plan, events: Iterable[Written]) -> Found:
    """Check the events of the stream, which are in the order of a reader of the whole stream."""
    found = Found()
    counts: Counter[tuple[int, int]] = Counter()
    last: defaultdict[tuple[int, int], int] = defaultdict(lambda: -1)
    for event in events:
        at, key = (event.writer, event.number), (event.writer, plan.key(event.number))
        counts[at] += 1
        if counts[at] == 1:
            found.reordered += event.number < last[key]
            last[key] = max(last[key], event.number)
    expected = {(writer, number) for writer in range(plan.writers) for number in range(plan.of_one)}
    found.lost = len(expected - counts.keys())
    found.doubled = counts.total() - len(counts) + len(counts.keys() - expected)
    return found


def judge_group(plan: Plan, events: Iterable[Written], given: Iterable[Giving], found: Found) -> None:
    """Check the returns of events to the readers of the group, and add the faults to `found`."""
    before: dict[Written, Written | None] = {}
    last: dict[tuple[int, int], Written] = {}
    for event in events:
        key = event.writer, plan.key(event.number)
        before[event], last[key] = last.get(key), event
    of_events: defaultdict[Written, list[Giving]] = defaultdict(list)
    for each in sorted(given, key=lambda each: each.given_ns):
        of_events[each.event].append(each)
        earlier = before.get(each.event)
        found.given_early += earlier is not None and earlier not in of_events
    for event in before:
        times = of_events[event]
        committed = [each.committed_ns for each in times if each.committed_ns]
        is_late = any(each.given_ns > min(committed, default=each.given_ns) for each in times)
        found.never_given += not times
        found.not_committed += not committed and not any(each.is_unsure for each in times)
        found.given_again += len(times) > 1
        found.committed_again += is_late or len(committed) > 1


# Running it


class ServiceFailed(Exception):
    """A process of the service failed without being killed, or hangs."""


@dataclass(slots=True)
class Child:
    """A process, from outside.

    Args:
        kind, number: identify the process.
        process: the process.
        pipe: to the process.
        is_ready: whether it has opened its connection.
        is_busy: of a scaler: whether it executes a command.
        is_done: whether it has written or read all events.
        node_id: of a writer.
    """

    kind: str
    number: int
    process: Any
    pipe: Connection
    is_ready: bool = False
    is_busy: bool = False
    is_done: bool = False
    node_id: int = -1


@dataclass(slots=True)
class Report:
    """The result of a run, and its figures.

    Args:
        found: faults of events.
        write_seconds: from the first event until all were durable.
        read_seconds: from the first event until the group had read the sealed stream to its end.
        kills: the number of killed processes, by kind.
        epochs: of the stream; each scale adds one.
        requests: to the store by kind of process; of a killed process, up to its last message.
        take_over_seconds: for each killed writer, the time until other writers owned all its segments; they take a
            segment when they have events for it.
        durable_ms: from writing an event until its writer reports it as durable.
        seen_ms: from writing an event until it is returned to a reader of the group.
    """

    found: Found = field(default_factory=Found)
    write_seconds: float = 0.0
    read_seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    epochs: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    take_over_seconds: list[float] = field(default_factory=list)
    durable_ms: list[float] = field(default_factory=list)
    seen_ms: list[float] = field(default_factory=list)


class Service:
    """Runs a service from its first event to its last, and checks it. Threads: one.

    Args:
        plan: of the service.
        bucket: an empty bucket.
    """

    def __init__(self, plan: Plan, bucket: Bucket) -> None:
        self.plan, self.bucket = plan, bucket
        self.report = Report()
        self._chance = random.Random(plan.seed)
        self._context: Any = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._children: dict[tuple[str, int], Child] = {}
        self._ports: list[int] = []
        self._durable = [0] * plan.writers
        self._logs = count()
        self._due: deque[tuple[float, Callable[[], None]]] = deque()
        self._leaving: list[tuple[int, float]] = []
        self._streams = accel.connect(bucket.open(), create=FormatRecord(namespace=SCOPE))
        self._streams.create_scope(SCOPE)
        wanted = StreamConfiguration(min_segments=1)
        self._stream = self._streams.create_stream(SCOPE, NAME, wanted, segments=plan.segments)

    def run(self) -> Report:
        """Run the service.

        Raises:
            ServiceFailed: a process failed, or hangs.
        """
        with self._streams, ExitStack() as closing:
            closing.callback(self._kill_all)
            self._ports = [_free_port() for _ in range(self.plan.writers)]
            self._start_all()
            began = perf_counter()
            self._due = deque(self._acts())
            self._pump(lambda: not self._due and self._are_ready and self._are_done("writer"))
            self.report.write_seconds = perf_counter() - began
            self._leaving.clear()  # without events, segments of dead owners are taken over only by the seal
            self._tell_scaler("seal")
            self._pump(lambda: self._are_done("reader"))
            self.report.read_seconds = perf_counter() - began
            self._end_all()
            self._judge()
        return self.report

    def _start_all(self) -> None:
        for number in range(self.plan.readers):
            self._start("reader", number)
        for number in range(self.plan.writers):
            self._start("writer", number)
        self._start("scaler", 0)
        self._pump(lambda: self._are_ready)
        for number in range(self.plan.writers):
            self._children["writer", number].pipe.send("write")

    def _acts(self) -> list[tuple[float, Callable[[], None]]]:
        """The kills and scales, each with the share of durable events at which it is due."""
        plan, chance = self.plan, self._chance
        acts: list[tuple[float, Callable[[], None]]] = []
        for at in range(plan.kills):
            kind = KINDS[at % len(KINDS)]
            number = at // len(KINDS) % self._processes(kind)
            acts.append((0.1 + 0.75 * (at + chance.random()) / plan.kills, partial(self._kill, kind, number)))
        scale = partial(self._tell_scaler, "scale")
        acts += [(0.05 + 0.85 * (at + chance.random()) / plan.scales, scale) for at in range(plan.scales)]
        return sorted(acts, key=lambda act: act[0])

    def _processes(self, kind: str) -> int:
        return {"writer": self.plan.writers, "reader": self.plan.readers, "scaler": 1}[kind]

    def _are_done(self, kind: str) -> bool:
        return not self._scaler.is_busy and all(
            self._children[kind, number].is_done for number in range(self._processes(kind))
        )

    @property
    def _scaler(self) -> Child:
        return self._children["scaler", 0]

    @property
    def _are_ready(self) -> bool:
        return all(each.is_ready for each in self._children.values())

    def _pump(self, is_over: Callable[[], bool]) -> None:
        """Receive messages and do the acts that are due, until `is_over` returns true."""
        looked = told_last = perf_counter()
        while not is_over():
            pipes = {child.pipe: child for child in self._children.values()}
            for pipe in connection.wait(list(pipes), PAUSE_SECONDS):
                told_last = perf_counter()
                self._take_note(pipes[pipe])  # type: ignore[index]  # one of these pipes
            if perf_counter() - told_last > QUIET_SECONDS:
                raise ServiceFailed(f"expected a message within {QUIET_SECONDS} s, found none: {self._children}")
            progress = sum(self._durable) / (self.plan.of_one * self.plan.writers)
            if self._due and progress >= self._due[0][0] and self._are_ready and not self._scaler.is_busy:
                self._due.popleft()[1]()
            if perf_counter() - looked > PAUSE_SECONDS:
                looked = perf_counter()
                self._watch_leaving()

    def _take_note(self, child: Child) -> None:
        try:
            told: Told = child.pipe.recv()
        except EOFError:
            raise ServiceFailed(f"{child.kind} {child.number} ended unexpectedly") from None
        if told.what == "failed":
            raise ServiceFailed(f"{child.kind} {child.number}: {told.text}")
        self.report.requests[child.kind] += told.requests
        self.report.durable_ms += told.waits_ms
        if child.kind == "writer":
            self._durable[child.number] = max(told.reached, self._durable[child.number])
        if told.what == "ready":
            child.is_ready, child.node_id = True, int(told.text or -1)
        elif told.what == "done" and child.kind == "scaler":
            child.is_busy, self.report.epochs = False, told.reached
        elif told.what == "done":
            child.is_done = True

    def _start(self, kind: str, number: int) -> None:
        plan, ports = self.plan, self._ports
        body, arguments = {
            "writer": (write, (plan, ports, number, ("writer", number) not in self._children)),
            "reader": (read, (plan, f"reader-{number}", f"{next(self._logs)}.log")),
            "scaler": (scale, (plan, ports, self._chance.randrange(1 << 30))),
        }[kind]
        here, there = self._context.Pipe()
        process = self._context.Process(target=_told_failures, args=(body, self.bucket, there, *arguments), daemon=True)
        process.start()
        there.close()
        self._children[kind, number] = Child(kind, number, process, here)

    def _tell_scaler(self, what: str) -> None:
        self._scaler.is_busy = True
        self._scaler.pipe.send(what)

    def _kill(self, kind: str, number: int) -> None:
        child = self._children[kind, number]
        if kind == "scaler":  # while it is at work
            self._tell_scaler("scale")
            SYSTEM.sleep(self._chance.random() * SCALE_SECONDS)
        child.process.kill()
        child.process.join()
        with suppress(ServiceFailed, ConnectionResetError):  # messages that it sent before
            while child.pipe.poll():
                self._take_note(child)
        child.pipe.close()
        self.report.kills[kind] += 1
        self._start(kind, number)
        if kind == "writer":
            self._leaving.append((child.node_id, perf_counter()))
            self._children[kind, number].pipe.send("write")

    def _watch_leaving(self) -> None:
        """Record the take-over times of killed owners that have no segments any more."""
        if not self._leaving:
            return
        streams = self._streams.catalog.refresh().streams
        ids = [self._stream.segment_stream(each) for each in self._stream.active_segments().ids.tolist()]
        last = [streams[each].ranges[-1] for each in ids if each in streams]
        owners = {each.node_id for each in last if each.end == -1}
        gone = [(node_id, since) for node_id, since in self._leaving if node_id not in owners]
        self.report.take_over_seconds += [perf_counter() - since for _, since in gone]
        self._leaving = [each for each in self._leaving if each not in gone]

    def _end_all(self) -> None:
        for child in self._children.values():
            child.pipe.send("end")
        for child in self._children.values():
            child.process.join(QUIET_SECONDS)
            if child.process.exitcode != 0:
                raise ServiceFailed(
                    f"{child.kind} {child.number}: expected exit code 0, found {child.process.exitcode}"
                )

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.process.kill()
            child.process.join()
            child.pipe.close()

    def _judge(self) -> None:
        with self._streams.reader(SCOPE, NAME) as reader:
            events = [Written.of(event.payload) for event in reader]
        found = judge_stream(self.plan, events)
        given: list[Giving] = []
        for log in Path(self.bucket.folder).iterdir():
            with log.open() as lines:
                given += givings(lines)
        judge_group(self.plan, events, given, found)
        seen: dict[Written, float] = {}
        for each in sorted(given, key=lambda each: each.given_ns):
            seen.setdefault(each.event, (each.given_ns - each.event.written_ns) / 1e6)
        self.report.found, self.report.seen_ms = found, list(seen.values())


def _told_failures(body: Callable[..., None], bucket: Bucket, told: Connection, *arguments: object) -> None:
    os.environ.update(bucket.environment)
    try:
        body(bucket, told, *arguments)
    except Exception:
        told.send(Told("failed", text=traceback.format_exc()))
        raise


# The command


def lines_of(plan: Plan, report: Report) -> Iterator[str]:
    """The report, as text."""
    found, events = report.found, plan.of_one * plan.writers
    kills = ", ".join(f"{number} x {kind}" for kind, number in report.kills.items())
    yield f"events          {events:,} by {plan.writers} writers, {plan.readers} readers"
    yield f"killed          {kills or 'none'}; epochs: {report.epochs}"
    yield f"durable after   {report.write_seconds:.1f} s, {events / report.write_seconds:,.0f} a second"
    yield f"read after      {report.read_seconds:.1f} s"
    yield f"requests        {', '.join(f'{number:,} of {kind}s' for kind, number in report.requests.items())}"
    yield f"taken over in   {', '.join(f'{each:.1f}' for each in report.take_over_seconds) or '-'} s"
    yield f"durable         {_percentiles(report.durable_ms)}"
    yield f"seen            {_percentiles(report.seen_ms)}"
    yield f"in the stream   lost {found.lost}, doubled {found.doubled}, reordered {found.reordered}"
    yield (
        f"in the group    never returned {found.never_given}, not committed {found.not_committed}, returned after a"
        f" commit {found.committed_again}, returned early {found.given_early}; returned again, as allowed:"
        f" {found.given_again}"
    )


def _percentiles(milliseconds: Sequence[float]) -> str:
    cuts = statistics.quantiles(milliseconds, n=100)
    return f"p50 {cuts[49]:,.0f} ms, p99 {cuts[98]:,.0f} ms, max {max(milliseconds):,.0f} ms"


@contextmanager
def bucket_on(endpoint: str | None, name: str) -> Iterator[Bucket]:
    """Create a bucket at this endpoint, with the keys in the environment; None = on a new server."""
    with ExitStack() as closing:
        if endpoint is None:
            os.environ.update(KEYS)
            endpoint = closing.enter_context(server())
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
        folder = closing.enter_context(tempfile.TemporaryDirectory())
        keys = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
        yield Bucket(f"s3://{name}", S3Settings(endpoint_url=endpoint), keys, folder)


DEFAULTS: Final = Plan()


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--endpoint", help="An S3 server; keys as AWS's tools find them. By default moto's, in a new process.")
@click.option("--bucket", default="service", help="The bucket; it is created, and not deleted.")
@click.option("--events", default=DEFAULTS.events)
@click.option("--segments", default=DEFAULTS.segments)
@click.option("--writers", default=DEFAULTS.writers)
@click.option("--readers", default=DEFAULTS.readers)
@click.option("--kills", default=DEFAULTS.kills, help="The number of kills: writers, readers and the scaler in turn.")
@click.option("--scales", default=DEFAULTS.scales)
@click.option("--lease-seconds", default=DEFAULTS.lease_seconds)
@click.option("--seed", default=DEFAULTS.seed)
def main(endpoint: str | None, bucket: str, **chosen: Any) -> None:
    """Run a service of writers, readers and a scaler, kill some of each, and check every event."""
    plan = Plan(**chosen)
    with bucket_on(endpoint, bucket) as made:
        report = Service(plan, made).run()
    click.echo("\n".join(lines_of(plan, report)))
    sys.exit(0 if report.found.is_right else 1)


if __name__ == "__main__":
    main()
