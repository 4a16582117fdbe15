"""Processes that share a stream's segments, one of which is killed: each key's events come once, and in their order.

Each process owns some segments, takes events of the others over HTTP, and writes events of all keys. When one is
killed, others take its segments over as soon as its lease is over. What was on its way to the dead one is in doubt: the
process reads what is there, once the segments cannot get more, and goes on behind it.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from accel import ReadAccelerator
from accel.catalog import ObjectCatalog
from accel.errors import CommitRefused, ForwardInDoubt, OwnerUnreachable
from accel.history.rules.configuration import OffsetUnit, StreamConfiguration
from accel.history.store import Stream, StreamStore
from accel.streams.forwarding import SegmentService, SharedStreamWriter, forwarding_app
from accel.streams.owners import (
    ForwardingClient,
    OwnersSettings,
    OwnersTable,
)
from accel.streams.rules.events import decode_events
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import ForwardingSettings
from accel.system import SYSTEM
from loaders.store import ObjectStore
from loaders.tables import FormatRecord
from tests.processes.children import CHILD_SECONDS
from tests.servers.stores import store_on_s3

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SECRET = "a secret of the shop"  # noqa: S105 - of a test
NAME = ("shop", "orders")
SEGMENTS = 4
KEYS = 5
ROUNDS = 2
LEASE = OwnersSettings(lease_seconds=4.0)
SHORT = ForwardingSettings(timeout_seconds=10.0)


def found(stream: Stream, catalog: ObjectCatalog, store: ObjectStore) -> dict[str, list[int]]:
    """The numbers of each writer's keys, in the order of their segments."""
    numbers: dict[str, list[int]] = {}
    streams = catalog.refresh().streams
    with ReadAccelerator(catalog.images(), store) as accelerator:
        for segment_id in stream.active_segments().ids.tolist():
            stream_id = stream.segment_stream(segment_id)
            for batch in accelerator.read(stream_id, 0) if stream_id in streams else ():
                for event in decode_events(batch, segment_id, OffsetUnit.RECORDS)[0]:
                    key, _, number = event.payload.decode().rpartition("/")
                    numbers.setdefault(key, []).append(int(number))
    return numbers


class Writing:
    """One process: an owner that serves, and writes round after round until it is told to end."""

    def __init__(self, store: ObjectStore, word: str, told: Connection[Any, Any]) -> None:
        self.store, self.word, self.told = store, word, told
        self.catalog = ObjectCatalog.open(store)
        self.owners = OwnersTable(self.catalog, settings=LEASE)
        listening = socket.create_server(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.registration = self.owners.register(address=address)
        self.registration.keep_alive()
        self.host = ObjectSegments(self.catalog, store, self.registration.node_id)
        self.stream = StreamStore.open(store, host=self.host).stream(*NAME)
        self.serve(listening)
        told.send((self.registration.node_id, address))
        mine, addresses = told.recv()
        self.client = ForwardingClient(addresses, SECRET, settings=SHORT)
        self.host.open_segments(NAME, mine)
        told.send("open")
        told.recv()
        self.writer = self.new_writer()

    def serve(self, listening: socket.socket) -> None:
        import uvicorn  # noqa: PLC0415 - in the child alone

        service = SegmentService(self.host, self.registration.owner.token, settings=SHORT)
        server = uvicorn.Server(uvicorn.Config(forwarding_app(service, SECRET), log_level="warning"))
        Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()

    def new_writer(self) -> SharedStreamWriter:
        return SharedStreamWriter(self.stream, self.host, self.owners, self.client, settings=SHORT)

    def run(self) -> None:
        number = 0
        while not self.told.poll():
            self.write_round(number, dict.fromkeys(range(KEYS), number))
            number += 1
            self.told.send(number)
        self.writer.close()
        self.host.close()

    def write_round(self, number: int, first: dict[int, int]) -> None:
        for key, start in first.items():
            for each in range(start, number + 1):
                self.writer.write(f"{self.word}{key}/{each}".encode(), f"{self.word}{key}")
        while True:
            try:
                self.writer.flush()
            except OwnerUnreachable:
                SYSTEM.sleep(0.2)
            except ForwardInDoubt as doubt:
                self.take_over(doubt.node_id)
                last = found(self.stream, self.catalog, self.store)
                self.writer = self.new_writer()
                mine = {key: last.get(f"{self.word}{key}", []) for key in range(KEYS)}
                return self.write_round(
                    number, {key: numbers[-1] + 1 if numbers else 0 for key, numbers in mine.items()}
                )
            else:
                return None

    def take_over(self, node_id: int) -> None:
        """Once the lease of a dead owner is over: then what it has is all that it will ever have."""
        while (owner := self.owners.find(node_id)) is not None and not owner.is_expired(self.owners.now_ms()):
            SYSTEM.sleep(0.1)
        for segment_id in self.stream.active_segments().ids.tolist():
            if self.host.node_of(NAME, segment_id) == node_id:
                with suppress(CommitRefused):  # another one came first
                    self.host.take_over(NAME, {segment_id: node_id})


def live(store: ObjectStore, word: str, told: Connection[Any, Any]) -> None:
    """The body of a child."""
    Writing(store, word, told).run()


class Child:
    """A child, and the pipe to it."""

    def __init__(self, store: ObjectStore, word: str) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=live, args=(store, word, theirs), daemon=True)
        self.process.start()
        self.rounds = 0

    def answer(self) -> Any:
        assert self.pipe.poll(CHILD_SECONDS), "expected an answer, found a process that hangs"
        return self.pipe.recv()

    def wait_for(self, rounds: int) -> None:
        """Until so many rounds are durable."""
        while self.rounds < rounds:
            self.rounds = self.answer()

    def drain(self) -> None:
        """What it told before it ended."""
        with suppress(EOFError, ConnectionResetError):
            while self.pipe.poll(1.0):
                self.rounds = self.pipe.recv()


@pytest.fixture
def children(request: pytest.FixtureRequest) -> Iterator[tuple[ObjectStore, list[Child]]]:
    with store_on_s3(request, "boto3-moto") as store:
        ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2))
        streams = StreamStore.open(store)
        streams.create_scope(NAME[0])
        streams.create_stream(*NAME, StreamConfiguration(min_segments=1), segments=SEGMENTS)
        made = [Child(store, word) for word in "ab"]
        yield store, made
        for child in made:
            child.process.kill()
            child.process.join()


def test_two_processes_share_a_stream_and_one_is_killed(children: tuple[ObjectStore, list[Child]]) -> None:
    store, made = children
    owners = [child.answer() for child in made]
    assert len({node_id for node_id, _ in owners}) == len(made)
    for child, mine in zip(made, ([0, 1], [2, 3]), strict=True):
        child.pipe.send((mine, [address for _, address in owners]))
    for child in made:
        assert child.answer() == "open"
    for child in made:
        child.pipe.send("write")
    for child in made:
        child.wait_for(ROUNDS)
    made[1].process.kill()
    made[1].process.join()
    made[1].drain()
    made[0].wait_for(made[0].rounds + ROUNDS)
    made[0].pipe.send("end")
    made[0].process.join(CHILD_SECONDS)
    assert made[0].process.exitcode == 0
    made[0].drain()
    with ObjectCatalog.open(store) as catalog:
        stream = StreamStore.open(store).stream(*NAME)
        numbers = found(stream, catalog, store)
        at = {
            each: catalog.refresh().streams[stream.segment_stream(each)].ranges[-1].node_id for each in range(SEGMENTS)
        }
    for child, word in zip(made, "ab", strict=True):
        for key in range(KEYS):
            given = numbers[f"{word}{key}"]
            assert given == list(range(len(given))), (word, key)
            assert len(given) >= child.rounds
    assert set(at.values()) == {owners[0][0]}
