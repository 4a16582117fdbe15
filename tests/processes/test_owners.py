"""Processes that share a stream's segments, one of which is killed: each key's events come once, and in their order.

Each process is one `accel.connect`: it owns some segments, takes events of the others over HTTP, and writes events of
all keys. When one is killed, the others take its segments over as soon as its lease is over.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import accel
from accel import ConnectionSettings, Event
from accel.errors import ForwardInDoubt, OwnerUnreachable
from accel.history.rules.configuration import StreamConfiguration
from accel.streams.settings import ForwardingSettings
from accel.streams.writer import StreamWriter
from accel.system import SYSTEM
from loaders.store import ObjectStore
from loaders.tables import FormatRecord
from tests.processes.children import CHILD_SECONDS
from tests.servers.stores import store_on_s3

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

SECRET = "a secret of the shop"  # noqa: S105 - of a test
NAME = ("shop", "orders")
SEGMENTS = 4
KEYS = 5
SETTINGS = ConnectionSettings(forwarding=ForwardingSettings(lease_seconds=3.0, timeout_seconds=10.0))


def free_port() -> int:
    """One that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def flush(writer: StreamWriter) -> None:
    """Until it succeeds, however long an owner is believed to live."""
    while True:
        try:
            return writer.flush()
        except (OwnerUnreachable, ForwardInDoubt):
            SYSTEM.sleep(0.1)


def live(store: ObjectStore, word: str, at: int, ports: list[int], told: Pipe[Any, Any]) -> None:
    """The body of a child: an owner that writes as many rounds as it is told, until it is told none."""
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    listen = f"127.0.0.1:{ports[at]}"
    with accel.connect(store, listen=listen, owners=addresses, secret=SECRET, settings=SETTINGS) as streams:
        streams.host().open_segments(NAME, [at * 2, at * 2 + 1])
        with streams.writer(*NAME) as writer:
            told.send(streams.node_id())
            number = 0
            while rounds := told.recv():
                for number in range(number, number + rounds):  # noqa: B020 - goes on where it was
                    for key in range(KEYS):
                        writer.write(f"{word}{key}/{number}".encode(), f"{word}{key}")
                    flush(writer)
                number += 1
                told.send(number)
    told.send("closed")


class Child:
    """A child, and the pipe to it."""

    def __init__(self, store: ObjectStore, word: str, at: int, ports: list[int]) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=live, args=(store, word, at, ports, theirs), daemon=True)
        self.process.start()

    def answer(self) -> Any:
        assert self.pipe.poll(CHILD_SECONDS), "expected an answer, found a process that hangs"
        return self.pipe.recv()


@pytest.fixture
def children(request: pytest.FixtureRequest) -> Iterator[tuple[ObjectStore, list[Child]]]:
    with store_on_s3(request, "boto3-moto") as store:
        with accel.connect(store, create=FormatRecord(namespace="shop", stream_buckets=2)) as streams:
            streams.create_scope(NAME[0])
            streams.create_stream(*NAME, StreamConfiguration(min_segments=1), segments=SEGMENTS)
        ports = [free_port(), free_port()]
        made = [Child(store, word, at, ports) for at, word in enumerate("ab")]
        yield store, made
        for child in made:
            child.process.kill()
            child.process.join()


def of_keys(events: Iterator[Event]) -> dict[str, list[int]]:
    """The numbers of each writer's keys, in the order in which a reader gets them."""
    numbers: dict[str, list[int]] = {}
    for event in events:
        key, _, number = event.payload.decode().rpartition("/")
        numbers.setdefault(key, []).append(int(number))
    return numbers


def test_two_processes_share_a_stream_and_one_is_killed(children: tuple[ObjectStore, list[Child]]) -> None:
    store, made = children
    nodes = [child.answer() for child in made]
    assert len(set(nodes)) == len(made)
    for child in made:
        child.pipe.send(2)
    assert [child.answer() for child in made] == [2, 2]
    with accel.connect(store) as streams:
        stream = streams.stream(*NAME)
        owned = [streams.catalog.refresh().streams[stream.segment_stream(each)] for each in range(SEGMENTS)]
        assert [each.ranges[-1].node_id for each in owned] == [nodes[0], nodes[0], nodes[1], nodes[1]]
        made[0].pipe.send(2)
        made[1].process.kill()  # perhaps with events of the other one on their way
        made[1].process.join()
        assert made[0].answer() == 4
        made[0].pipe.send(1)
        assert made[0].answer() == 5
        owned = [streams.catalog.refresh().streams[stream.segment_stream(each)] for each in range(SEGMENTS)]
        assert {each.ranges[-1].node_id for each in owned} == {nodes[0]}
        made[0].pipe.send(0)
        assert made[0].answer() == "closed"
        made[0].process.join(CHILD_SECONDS)
        assert made[0].process.exitcode == 0
        with streams.reader(*NAME) as reader:
            found = of_keys(reader)
    assert found == {
        f"{word}{key}": list(range(rounds)) for word, rounds in (("a", 5), ("b", 2)) for key in range(KEYS)
    }
