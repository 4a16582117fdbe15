"""A sidecar on a port: it drains when it ends, carries other routes, and commands talk to it; requests at random."""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from accel.cli.main import main
from accel.server import Sidecar, SidecarSettings, sidecar_app
from accel.server.app import OPERATIONS
from accel.server.operations import STATUSES, Operation
from accel.server.serving import make_server
from loaders.store import CountingStore, MemoryStore, ObjectStore
from tests.accel.cli.worlds import run
from tests.accel.server.asking import AUTHORISED, STREAM, TOKEN, ask, filled, serving
from tests.accel.server.test_guard import HeldStore
from tests.examples import examples


class Served:
    """A sidecar that runs in a thread."""

    def __init__(self, store: ObjectStore, **chosen: Any) -> None:
        self.settings = SidecarSettings(port=0, token=TOKEN, **chosen)
        self.server = make_server(sidecar_app(Sidecar(CountingStore(store), self.settings), [other()]), self.settings)
        self.thread = threading.Thread(target=asyncio.run, args=(self.server.serve(),))

    @property
    def port(self) -> int:
        number: int = self.server.servers[0].sockets[0].getsockname()[1]
        return number

    def get(self, path: str) -> tuple[int, bytes]:
        return self.ask("GET", path)

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=AUTHORISED)
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
def served(store: ObjectStore, **chosen: Any) -> Iterator[Served]:
    one = Served(store, **chosen)
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


def test_a_request_that_is_under_way_is_answered_when_the_sidecar_ends() -> None:
    store = HeldStore(filled(2))
    replies: list[tuple[int, bytes]] = []
    with served(store, drain_seconds=60.0) as one:
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


def test_stats_of_a_running_sidecar_as_text_and_as_json(tmp_path: Path) -> None:
    with served(filled(2)) as one:
        one.get(f"/v1/objects?stream_id={STREAM}&start=0&end=100")
        address = f"http://127.0.0.1:{one.port}"
        text = run("stats", address)
        told = json.loads(run("stats", address, "--output", "json").stdout)
    assert (text.exit_code, "1 lookup" in text.stdout, "block_indexes" in text.stdout) == (0, True, True)
    assert (told["lookups"]["lookups"], told["state"]) == (1, "ready")
    gone = run("stats", address)
    assert (gone.exit_code, "no sidecar answers there" in gone.stderr) == (1, True)
    assert run("stats", "ftp://somewhere").exit_code == 2
    empty = tmp_path / "token"
    empty.write_text("\n")
    assert run("stats", address, "--token-file", str(empty)).exit_code == 1


def test_other_routes_are_behind_the_guard_with_a_secret_of_their_own() -> None:
    async def work() -> None:
        app = sidecar_app(Sidecar(CountingStore(MemoryStore()), SidecarSettings(token=TOKEN)), [other()])
        taken = await ask(app, "/accel/append", "POST", b"", {"authorization": "Bearer theirs"})
        assert taken.body == b"taken"
        foreign = {"authorization": "Bearer theirs", "host": "evil.example"}
        assert (await ask(app, "/accel/append", "POST", b"", foreign)).status == 421

    asyncio.run(work())


def test_serving_refuses_an_open_port_and_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCEL_TOKEN", raising=False)
    refused = run("serve", "memory://nothing", "--host", "0.0.0.0")  # noqa: S104 - it is refused
    assert (refused.exit_code, "--token-file" in refused.stderr) == (1, True)
    half = run("serve", "memory://nothing", "--tls-cert", "a.pem")
    assert (half.exit_code, "together" in half.stderr) == (2, True)
    for name in [each for each in sys.modules if each.startswith("accel.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.exceptions", None)
    missing = run("serve", "memory://nothing")
    assert (missing.exit_code, "accel-streams[server]" in missing.stderr) == (1, True)


def test_commands_of_the_sidecar_are_in_the_list() -> None:
    assert {"serve", "stats"} <= set(main.list_commands(click.Context(main)))


NUMBERS = st.one_of(st.integers(-2, 400), st.integers(), st.sampled_from(["", "x", "1.5", "true", "null", "9" * 40]))
WORDS = st.one_of(st.sampled_from(["shop", "orders", "0@0", "0@1", "", "x"]), st.text(max_size=5))


def parameters_of(operation: Operation) -> st.SearchStrategy[dict[str, Any]]:
    names = [] if operation.query is None else list(operation.query.__struct_fields__)
    return st.dictionaries(st.sampled_from([*names, "other"]), st.one_of(NUMBERS, WORDS), max_size=len(names) + 1)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None]:
    """Any operation, with parameters and bodies that mostly make no sense."""
    operation = draw(st.sampled_from(OPERATIONS))
    names = st.sampled_from(["shop", "orders", "a%20b"])
    parts = [draw(names) if part[:1] == "{" else part for part in operation.path.split("/")]
    query = "&".join(f"{name}={value}" for name, value in draw(parameters_of(operation)).items())
    values = st.recursive(st.one_of(NUMBERS, WORDS, st.none()), lambda inner: st.lists(inner, max_size=3), max_leaves=4)
    fields = [] if operation.body is None else list(operation.body.__struct_fields__)
    body = None
    if operation.method == "POST":
        drawn = draw(st.dictionaries(st.sampled_from([*fields, "other"]), values, max_size=3))
        body = draw(st.sampled_from([json.dumps(drawn).encode("utf-8", "replace"), b"{", b""]))
    return operation.method, "/".join(parts) + "?" + query.encode("ascii", "ignore").decode(), body


@settings(max_examples=examples(10))
@given(st.lists(requests(), min_size=5, max_size=25))
def test_whatever_is_asked_the_answer_is_one_that_the_document_has(asked: list[tuple[str, str, bytes | None]]) -> None:
    async def work() -> None:
        async with serving(filled(2)) as (app, _):
            for method, path, body in asked:
                reply = await ask(app, path, method, body, AUTHORISED)
                assert reply.status in {200, 304} or str(reply.status) in STATUSES.keys() - {"500"}, (path, reply.body)
                if reply.status >= 400:
                    assert reply.headers["content-type"] == "application/problem+json"
                    assert reply.json["type"].startswith("urn:accel:")

    asyncio.run(work())
