"""`accel serve` beside processes that write streams: what they commit is found over HTTP, as soon as it is durable."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import accel
from accel.history.rules.configuration import StreamConfiguration
from accel.system import SYSTEM
from loaders.store import open_store
from loaders.tables import FormatRecord
from tests.processes.children import CHILD_SECONDS
from tests.processes.test_owners import free_port

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

TOKEN = "a token of some length"  # noqa: S105 - of a test
EVENTS = 50


def write(url: str, name: str, told: Pipe) -> None:
    """The body of a writer: it writes some events whenever it is told to; told a segment, it splits it."""
    with accel.connect(open_store(url)) as streams, streams.writer("shop", name) as writer:
        told.send(streams.node_id())
        while (order := told.recv()) != "end":
            if order == "write":
                for number in range(EVENTS):
                    writer.write(b"event %d" % number, f"key {number}")
                writer.flush()
            else:
                streams.stream("shop", name).split(order)
            told.send(order)


class Writing:
    """A process that writes a stream."""

    def __init__(self, url: str, name: str) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=write, args=(url, name, theirs), daemon=True)
        self.process.start()

    def answer(self) -> Any:
        assert self.pipe.poll(CHILD_SECONDS), "expected an answer, found a process that hangs"
        return self.pipe.recv()

    def do(self, order: str) -> None:
        self.pipe.send(order)
        assert self.answer() == order


class Serving:
    """A sidecar in a process of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> Any:
        return self._asked("GET", path)

    def refresh(self) -> None:
        self._asked("POST", "/v1/refresh")

    def is_ready(self) -> bool:
        try:
            return bool(self.get("/readyz")["state"] == "ready")
        except (OSError, AssertionError):
            return False

    def _asked(self, method: str, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            connection.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"})
            reply = connection.getresponse()
            body = reply.read()
        assert reply.status == 200, body
        return json.loads(body)


@contextmanager
def serving(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setenv("ACCEL_TOKEN", TOKEN)
    port = free_port()
    command = [sys.executable, "-m", "accel.cli", "serve", url, "--port", str(port), "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
    try:
        one = Serving(port)
        while not one.is_ready():
            assert process.poll() is None
            SYSTEM.sleep(0.05)
        yield one
    finally:
        process.terminate()
        process.wait(CHILD_SECONDS)


def test_what_writers_of_other_processes_commit_is_found_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/store"
    with accel.connect(open_store(url), create=FormatRecord(namespace="shop", stream_buckets=1)) as streams:
        streams.create_scope("shop")
        for name in ("orders", "refunds"):
            streams.create_stream("shop", name, StreamConfiguration(min_segments=1))
        streams.group("shop", "orders", "billing")
    writers = {name: Writing(url, name) for name in ("orders", "refunds")}
    with serving(url, monkeypatch) as one:
        nodes = {name: writer.answer() for name, writer in writers.items()}
        assert len({*nodes.values()}) == 2
        for written in (1, 2):
            for name, writer in writers.items():
                writer.do("write")
                one.refresh()
                asked = one.get(f"/v1/streams/shop/{name}/segment?segment=0@0")
                found = one.get(f"/v1/objects?stream_id={asked['stream_id']}&start=0&limit=100")
                assert (asked["segment"], found["resume_offset"]) == ("0@0", written * EVENTS)
                assert {each["node_id"] for each in found["objects"]} == {nodes[name]}
        writers["orders"].do("0@0")
        now = one.get("/v1/streams/shop/orders/segments")
        assert (now["epoch"], [each["segment"] for each in now["segments"]]) == (1, ["1@1", "2@1"])
        assert one.get("/v1/streams/shop/orders/successors?segment=0@0")["neighbours"].keys() == {"1@1", "2@1"}
        unread: dict[str, object] = {"lag_ms": None, "behind": 2 * EVENTS, "unit": "records", "readers": {}}
        assert one.get("/v1/streams/shop/orders/lag?group=billing") == {"group": "billing", **unread}
        writers["orders"].do("write")
        one.refresh()
        ids = [one.get(f"/v1/streams/shop/orders/segment?segment={each}")["stream_id"] for each in ("1@1", "2@1")]
        ends = [one.get(f"/v1/objects?stream_id={each}&start=0&limit=100")["resume_offset"] for each in ids]
        assert (sum(ends), all(ends)) == (EVENTS, True)
        for writer in writers.values():
            writer.pipe.send("end")
            writer.process.join(CHILD_SECONDS)
