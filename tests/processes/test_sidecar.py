"""`accel serve` as a process, beside others that write: what they commit is found over HTTP once it is durable."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import accel
from accel.history.rules.configuration import StreamConfiguration
from accel.streams.connection import Connection
from accel.system import SYSTEM
from tests.processes.children import CHILD_SECONDS
from tests.processes.test_owners import free_port

TOKEN = "a token of some length"  # noqa: S105 - of a test
EVENTS = 50

Ask = Callable[..., Any]
"""Takes a path and a method, and gives the answer."""


@contextmanager
def serving(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    monkeypatch.setenv("ACCEL_TOKEN", TOKEN)
    port = free_port()

    def ask(path: str, method: str = "GET") -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=CHILD_SECONDS)) as connection:
            connection.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"})
            reply = connection.getresponse()
            return {"status": reply.status} | json.loads(reply.read())

    def is_ready() -> bool:
        try:
            return bool(ask("/readyz").get("state") == "ready")
        except OSError:
            return False

    command = [sys.executable, "-m", "accel.cli", "serve", url, "--port", str(port), "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
    try:
        while not is_ready():
            assert process.poll() is None
            SYSTEM.sleep(0.05)
        yield ask
    finally:
        process.terminate()
        process.wait(CHILD_SECONDS)


def write(streams: Connection, name: str) -> None:
    with streams.writer("shop", name) as writer:
        for number in range(EVENTS):
            writer.write(b"event %d" % number, f"key {number}")


def test_what_writers_of_other_processes_commit_is_found_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/store"
    with accel.connect(url, create=True) as first, serving(url, monkeypatch) as ask, accel.connect(url) as second:
        first.create_scope("shop")
        for name in ("orders", "refunds"):
            first.create_stream("shop", name, StreamConfiguration(min_segments=1))
        first.group("shop", "orders", "billing")

        def found_in(name: str, segment: str) -> tuple[int, set[int]]:
            """How far a segment was found, and the nodes of its objects."""
            ask("/v1/refresh", "POST")
            asked = ask(f"/v1/streams/shop/{name}/segment?segment={segment}")
            answer = ask(f"/v1/objects?stream_id={asked['stream_id']}&start=0&limit=100")
            return answer["resume_offset"], {each["node_id"] for each in answer["objects"]}

        for written in (1, 2):
            for name, streams in (("orders", first), ("refunds", second)):
                write(streams, name)
                assert found_in(name, "0@0") == (written * EVENTS, {streams.node_id()})
        first.stream("shop", "orders").split("0@0")
        now = ask("/v1/streams/shop/orders/segments")
        assert (now["epoch"], [each["segment"] for each in now["segments"]]) == (1, ["1@1", "2@1"])
        assert ask("/v1/streams/shop/orders/successors?segment=0@0")["neighbours"].keys() == {"1@1", "2@1"}
        unread: dict[str, Any] = {"lag_ms": None, "behind": 2 * EVENTS, "unit": "records", "readers": {}}
        assert ask("/v1/streams/shop/orders/lag?group=billing") == {"status": 200, "group": "billing", **unread}
        write(first, "orders")
        ends = [found_in("orders", each)[0] for each in ("1@1", "2@1")]
        assert (sum(ends), all(ends)) == (EVENTS, True)
