"""What a client of HTTP may try that has no token: it fills no memory, holds no connection, and writes no log."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import io
import json
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from accel.rendering import JsonLines, TextLines, log_as
from accel.streams.shared.forwarding import PATH, ForwardingServer, SegmentService, forwarding_app
from accel.system import SYSTEM
from tests.accel.server.asking import TOKEN, ask, filled, serving
from tests.accel.server.test_served import served

SENT_MAX = 4 << 20
PIECE = b"a" * 65_536


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        yield one


def sent_until_refused(port: int, start: bytes, piece: bytes = PIECE) -> tuple[int, bytes]:
    """How much a server takes of a request without an end, and what it answers."""
    sent, answer = 0, b""
    with connected(port) as one, contextlib.suppress(ConnectionError):
        one.sendall(start)
        while sent < SENT_MAX:
            one.sendall(piece)
            sent += len(piece)
        answer = one.recv(100)
    return sent, answer


ENDLESS = {
    "a path": b"GET /",
    "a header": b"GET / HTTP/1.1\r\nX: ",
    "a name of a header": b"GET / HTTP/1.1\r\n",
    "a trailer": b"POST /v1/refresh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    "an extension": b"POST /v1/refresh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;x=",
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(filled(1)) as one:
        yield one.port


@pytest.mark.parametrize("start", ENDLESS.values(), ids=ENDLESS)
def test_a_request_without_an_end_is_cut_off(port: int, start: bytes) -> None:
    sent, _ = sent_until_refused(port, start)
    assert sent < SENT_MAX


def test_many_headers_are_cut_off(port: int) -> None:
    sent, _ = sent_until_refused(port, b"GET / HTTP/1.1\r\n", b"X: yyyyyyyyyyyyyyyyyyyy\r\n" * 2000)
    assert sent < SENT_MAX


def test_a_body_is_no_head_however_long_it_is(port: int) -> None:
    body = b" " * (1 << 20) + b"{}"
    with connected(port) as one:
        lines = ("POST /v1/objects:batch HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        one.sendall("\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode())
        for at in range(0, len(body), 50_000):
            one.sendall(body[at : at + 50_000])
        assert b" 400 " in one.recv(1000).partition(b"\r\n")[0]  # the body was read: it lacks a field


def wait_closed(one: socket.socket) -> None:
    """Until the server ends the connection; else the socket's own time runs out."""
    while one.recv(65_536):
        pass


def test_a_connection_without_a_whole_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.listening.BoundedHttp.head_seconds", 0.2)
    with served(filled(1), idle_seconds=0.5) as one:
        for start in (b"", b"GET / HTTP/1.1\r\nX: y"):
            with connected(one.port) as waiting:
                waiting.sendall(start)
                wait_closed(waiting)
        with connected(one.port) as waiting:
            waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert waiting.recv(65_536).startswith(b"HTTP/1.1 200")
            waiting.sendall(b"GET")
            wait_closed(waiting)


def test_a_connection_that_a_pool_opens_ahead_is_idle_as_long_as_one_between_two_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("accel.listening.BoundedHttp.head_seconds", 0.05)
    with served(filled(1)) as one, connected(one.port) as waiting:
        waiting.settimeout(0.5)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        waiting.settimeout(60)
        waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert waiting.recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/v1/stats", 421), ("/", 421)])
def test_a_probe_without_a_host_is_answered_and_nothing_else_is(port: int, path: str, status: int) -> None:
    with connected(port) as one:
        one.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert one.recv(1000).startswith(f"HTTP/1.1 {status} ".encode())


def test_owners_of_segments_listen_with_the_same_bounds() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    server = ForwardingServer(Starlette(), listening, SYSTEM)
    server.begin()
    try:
        sent, _ = sent_until_refused(listening.getsockname()[1], ENDLESS["a header"])
        assert sent < SENT_MAX
    finally:
        server.stop()


@pytest.mark.parametrize(
    "path",
    ["/../accel/tables", "/console.js/../../settings.py", "/v1/../metrics", "/%2e%2e/etc/passwd", "//etc/passwd"],
)
def test_no_path_leads_to_a_file(port: int, path: str) -> None:
    with connected(port) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert one.recv(1000).startswith(b"HTTP/1.1 404 ")


HOSTILE_NAMES = [
    "..",
    "../accel",
    "a/b",
    "_system",
    "\x1b[2J",
    "a\r\nSet-Cookie: x",
    "\u202e",
    "é",
    "a" * 201,
    "%2e%2e",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_scope_or_stream_of_another_form_is_refused_and_no_key_has_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, keys = filled(1), list[str]()
    read = store.get

    def noted(key: str, **options: Any) -> Any:
        keys.append(key)
        return read(key, **options)

    async def work() -> None:
        async with serving(store) as (app, _):
            monkeypatch.setattr(store, "get", noted)
            for path in ("scopes/{}/streams", "streams/{}/orders/epochs", "streams/shop/{}/epochs"):
                reply = await ask(app, "/v1/" + path.format(name))
                assert reply.status in {400, 404}
                assert all(value.isprintable() for value in reply.headers.values())

    asyncio.run(work())
    assert keys or "/" in name  # a path that has no route is no question
    assert all(key.isascii() and key.isprintable() and ".." not in key for key in keys)


NESTED = [b"[" * 1_000_000, b'{"lookups": ' + b"[" * 1_000_000, b'{"a":' * 500_000, b"[" + b"9" * 1_000_000 + b"]"]


@pytest.mark.parametrize("body", NESTED, ids=["lists", "lookups", "objects", "digits"])
def test_a_body_that_is_nested_without_end_is_refused(body: bytes) -> None:
    async def work() -> None:
        async with serving(filled(1)) as (app, _):
            assert (await ask(app, "/v1/objects:batch", "POST", body)).status == 400

    asyncio.run(work())


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    given = TOKEN[:-1] + "X"

    async def work() -> None:
        async with serving(filled(1)) as (app, _):
            headers = {"authorization": f"Bearer {given}"}
            assert (await ask(app, "/v1/refresh", "POST", b"", headers)).status == 401
        owner = forwarding_app(SegmentService(SimpleNamespace(system=SYSTEM), b"owner"), TOKEN)  # type: ignore[arg-type]  # it asks nothing else
        assert (await ask(owner, PATH, "POST", b"", headers)).status == 401

    asyncio.run(work())
    assert compared == [(given.encode(), TOKEN.encode())] * 2


FORGED = "no\n2030-01-01 ERROR accel: all is lost\x1b[2J\u202e\x9b31m"


def record_of(text: str) -> logging.LogRecord:
    error = ValueError(text)
    return logging.LogRecord("accel", logging.WARNING, "", 1, "GET %s failed", (text,), (ValueError, error, None))


def test_no_request_writes_a_record_of_its_own_into_a_log_for_people() -> None:
    first, *others = TextLines("%(asctime)s %(message)s").format(record_of(FORGED)).split("\n")
    assert "no\\n2030" in first
    assert others
    assert all(line.startswith("  ") for line in others)
    assert all(line.isprintable() for line in (first, *others))


def test_a_record_as_json_is_one_line_of_ascii() -> None:
    line = JsonLines().format(record_of(FORGED))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == f"GET {FORGED} failed"


def test_what_a_command_logs_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    log_as(TextLines())
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    handler = logging.lastResort
    assert handler is not None
    handler.handle(record_of(FORGED))
    assert all(line.isprintable() for line in told.getvalue().splitlines())
