"""`accel serve` as a process, beside others that write: what they commit is found over HTTP once it is durable."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import accel
from accel.history.rules.configuration import StreamConfiguration
from accel.streams.connection import Connection
from accel.system import SYSTEM
from loaders.store import open_store
from loaders.tables import FormatRecord
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


def test_a_stopped_sidecar_says_so_before_it_refuses_connections_and_sighup_loads_the_token_again(
    tmp_path: Path,
) -> None:
    store = open_store(f"file://{tmp_path}/store")
    accel.ObjectCatalog.init(store, FormatRecord(namespace="_kafka_test", stream_buckets=1))
    (tmp_path / "token").write_text(TOKEN)
    port = free_port()
    words = [
        "serve",
        f"file://{tmp_path}/store",
        "--port",
        str(port),
        "--token-file",
        str(tmp_path / "token"),
        "--drain",
        "2s",
    ]
    process = subprocess.Popen([sys.executable, "-m", "accel.cli", *words], stderr=subprocess.PIPE, text=True)  # noqa: S603 - ours

    def asked(method: str, path: str, token: str = TOKEN) -> tuple[int, str | None]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=CHILD_SECONDS)) as connection:
            connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
            reply = connection.getresponse()
            return reply.status, reply.getheader("connection")

    def wait_for(status: int, method: str, path: str, token: str = TOKEN) -> None:
        while True:
            with suppress(OSError):
                if asked(method, path, token)[0] == status:
                    return
            assert process.poll() is None
            SYSTEM.sleep(0.05)

    try:
        wait_for(200, "GET", "/readyz")
        (tmp_path / "token").write_text("another token of some length")
        process.send_signal(signal.SIGHUP)
        wait_for(200, "POST", "/v1/refresh", "another token of some length")
        assert asked("POST", "/v1/refresh")[0] == 401
        process.send_signal(signal.SIGTERM)
        wait_for(503, "GET", "/readyz")
        assert asked("GET", "/v1/stats") == (200, "close")
        assert asked("GET", "/healthz") == (200, "close")
    except BaseException:
        process.kill()
        raise
    finally:
        told = process.communicate(timeout=CHILD_SECONDS)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in told
