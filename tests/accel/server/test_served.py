"""A sidecar on a port: it drains when it ends, carries other routes, and commands talk to it."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from accel import Settings
from accel.server import Sidecar, SidecarSettings, sidecar_app
from accel.server.serving import Tls, make_server
from loaders.store import CountingStore, MemoryStore, ObjectStore
from tests.accel.cli.worlds import run
from tests.accel.server.asking import AUTHORISED, STREAM, TOKEN, ask, filled
from tests.accel.server.test_guard import HeldStore


class Served:
    """A sidecar that runs in a thread."""

    def __init__(
        self,
        store: ObjectStore,
        tls: Tls | None = None,
        *,
        lookups: Settings | None = None,
        images: Any = None,
        **chosen: Any,
    ) -> None:
        self.settings = SidecarSettings(port=0, token=TOKEN, **chosen)
        app = sidecar_app(Sidecar(CountingStore(store), self.settings, lookups=lookups, images=images), [other()])
        self.server = make_server(app, self.settings, tls)
        self.server.config.host = "127.0.0.1"  # whatever the settings say that it is for
        self.trusted = None if tls is None else ssl.create_default_context(cafile=str(tls.certificate))
        self.thread = threading.Thread(target=asyncio.run, args=(self.server.serve(),))

    @property
    def port(self) -> int:
        number: int = self.server.servers[0].sockets[0].getsockname()[1]
        return number

    def get(self, path: str) -> tuple[int, bytes]:
        return self.ask("GET", path)

    def post(self, path: str) -> tuple[int, bytes]:
        return self.ask("POST", path, AUTHORISED)

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        if self.trusted is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.trusted)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()


def other() -> Route:
    """A route with a secret of its own."""

    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("taken" if request.headers.get("authorization") == "Bearer theirs" else "refused")

    return Route("/accel/append", answer, methods=["POST"])


@contextmanager
def served(store: ObjectStore, tls: Tls | None = None, **chosen: Any) -> Iterator[Served]:
    one = Served(store, tls, **chosen)
    one.thread.start()
    pause = threading.Event()
    while not one.server.started:
        pause.wait(0.01)
    while b"ready" not in one.get("/readyz")[1]:
        pause.wait(0.01)
    try:
        yield one
    finally:
        one.server.should_exit = True
        one.thread.join(60)


def test_a_request_that_is_under_way_is_answered_when_the_sidecar_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.server.serving.DRAIN_SECONDS", 60)
    store = HeldStore(filled(2))
    replies: list[tuple[int, bytes]] = []
    with served(store) as one:
        asking = threading.Thread(
            target=lambda: replies.append(one.get(f"/v1/objects?stream_id={STREAM}&start=0&end=100"))
        )
        asking.start()
        assert store.asked.wait(60)
        one.server.should_exit = True
        store.let_go.set()
        asking.join(60)
    assert [status for status, _ in replies] == [200]
    assert not one.thread.is_alive()


def answered(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/healthz")
    reply = connection.getresponse()
    reply.read()
    return reply.status


def test_a_connection_beyond_the_bound_ends_the_one_that_has_longest_had_no_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served(filled(1), connections_max=2) as one, ExitStack() as stack:
        first, second, third = (stack.enter_context(closing_connection(one)) for _ in range(3))
        assert [answered(each) for each in (first, second, third)] == [200, 200, 200]
        with pytest.raises(ConnectionError):
            answered(first)
        assert answered(third) == 200
        for _ in range(20):
            assert answered(stack.enter_context(closing_connection(one))) == 200
    assert caplog.text.count("connections are taken") == 1


def test_a_connection_beyond_those_that_have_a_request_under_way_is_ended_itself() -> None:
    store = HeldStore(filled(2))
    replies: list[int] = []
    with served(store, connections_max=1) as one:
        path = f"/v1/objects?stream_id={STREAM}&start=0&end=100"
        asking = threading.Thread(target=lambda: replies.append(one.get(path)[0]))
        asking.start()
        assert store.asked.wait(60)
        with pytest.raises(ConnectionError):
            one.get("/healthz")
        store.let_go.set()
        asking.join(60)
    assert replies == [200]


def test_idle_connections_leave_files_to_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 8))
    with served(filled(1)) as one, ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(socket.create_connection(("127.0.0.1", one.port)))
        assert one.get("/healthz")[0] == 200
        assert len(one.server.server_state.connections) <= 4


def closing_connection(one: Served) -> AbstractContextManager[http.client.HTTPConnection]:
    return closing(http.client.HTTPConnection("127.0.0.1", one.port, timeout=60))


def test_other_routes_are_behind_the_guard_with_a_secret_of_their_own() -> None:
    async def work() -> None:
        app = sidecar_app(Sidecar(CountingStore(MemoryStore()), SidecarSettings(token=TOKEN)), [other()])
        taken = await ask(app, "/accel/append", "POST", b"", {"authorization": "Bearer theirs"})
        assert taken.body == b"taken"
        foreign = {"authorization": "Bearer theirs", "host": "evil.example"}
        assert (await ask(app, "/accel/append", "POST", b"", foreign)).status == 421

    asyncio.run(work())


def test_an_address_of_all_says_which_family_of_addresses_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    not_run = SimpleNamespace(run=lambda: None, signals=[])
    monkeypatch.setattr("accel.server.serving.make_server", lambda *_, **__: not_run)
    monkeypatch.setattr("accel.server.serving.log_to_stderr", lambda *_: None)
    hosts = {
        "::": "on none of IPv4",
        "0.0.0.0": "on none of IPv6",  # noqa: S104 - no port is opened
        "fe80::1%eth0": "http://[fe80::1%25eth0]:8480",
    }
    for host, words in hosts.items():
        served = run("serve", "memory://nothing", "--host", host, "--open")
        assert (served.exit_code, words in served.stderr) == (0, True)


def test_serving_refuses_an_open_port_and_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCEL_TOKEN", raising=False)
    refused = run("serve", "memory://nothing", "--host", "0.0.0.0")  # noqa: S104 - it is refused
    assert (refused.exit_code, "advice: give one (--token-file, ACCEL_TOKEN)" in refused.stderr) == (1, True)
    half = run("serve", "memory://nothing", "--tls-cert", "a.pem")
    assert (half.exit_code, "together" in half.stderr) == (2, True)
    for name in [each for each in sys.modules if each.startswith("accel.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.exceptions", None)
    missing = run("serve", "memory://nothing")
    assert (missing.exit_code, "accel-streams[server]" in missing.stderr) == (1, True)
    assert "in a checkout: pip install -e '.[NAME]'" in missing.stderr
