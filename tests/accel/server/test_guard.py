"""Who may ask, how much and for how long; what is told while things fail; and how it ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from accel.errors import InvalidArgument
from accel.image_source import ImageSource
from accel.rendering import JsonLines
from accel.server import Sidecar, SidecarSettings
from accel.server.guard import App
from accel.server.serving import make_server
from loaders.store import Fetched, MemoryStore
from tests.accel.server.asking import AUTHORISED, STREAM, TOKEN, ask, asked, filled, post, serving

Asking = Callable[[App, Sidecar], Awaitable[None]]

OBJECTS = f"/v1/objects?stream_id={STREAM}&start=0&end=100"


def run(work: Asking, *args: Any, **options: Any) -> None:
    async def main() -> None:
        async with serving(*(args or (filled(2),)), **options) as (app, sidecar):
            await work(app, sidecar)

    asyncio.run(main())


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8480", "127.0.0.1.evil.example", ""])
@asked(allowed_hosts=frozenset({"broker-7"}))
async def test_on_loopback_no_other_host_is_answered(app: App, host: str) -> None:
    assert (await ask(app, OBJECTS, headers={"host": host})).status == 421
    assert (await ask(app, OBJECTS, headers={"host": "[::1]:8480"})).status == 200
    assert (await ask(app, OBJECTS, headers={"host": "broker-7:8480"})).status == 200


@asked()
async def test_no_page_of_elsewhere_is_answered_even_if_it_only_reads(app: App) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:9999"):
        assert (await ask(app, OBJECTS, headers={"origin": origin})).status == 403
    assert (await ask(app, OBJECTS, headers={"origin": "http://127.0.0.1:8480"})).status == 200


@pytest.mark.parametrize("path", ["/v1/refresh", "/v1/objects:committed"])
def test_what_writes_needs_the_token_on_loopback_too(path: str) -> None:
    async def work(app: App, _: Sidecar) -> None:
        assert (await post(app, path, {})).status == 401
        assert (await post(app, path, {}, {"authorization": "Bearer another token, not ours"})).status == 401
        assert (await post(app, path, {}, AUTHORISED)).status in {200, 400}

    async def without(app: App, _: Sidecar) -> None:
        assert (await post(app, path, {}, AUTHORISED)).status == 403

    run(work)
    run(without, token=None)


@asked(host="0.0.0.0")  # noqa: S104 - nothing listens
async def test_other_addresses_need_the_token_to_read_and_tell_only_that_they_live(app: App) -> None:
    for path in (OBJECTS, "/metrics", "/v1/stats", "/openapi.json"):
        refused = await ask(app, path)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await ask(app, path, headers=AUTHORISED)).status == 200
    assert (await ask(app, "/healthz")).json == {"status": "ok"}
    assert (await ask(app, "/readyz")).json == {"state": "ready", "reasons": []}


def test_an_address_for_all_without_a_token_has_to_be_asked_for() -> None:
    with pytest.raises(InvalidArgument, match="expected a token"):
        SidecarSettings(host="0.0.0.0")  # noqa: S104 - nothing listens
    with pytest.raises(InvalidArgument, match="16 characters"):
        SidecarSettings(token="short")  # noqa: S106 - it is refused
    assert SidecarSettings(host="10.0.0.1", is_open=True).is_open
    assert TOKEN not in repr(SidecarSettings(token=TOKEN))


@asked()
async def test_every_answer_keeps_browsers_from_guessing_and_framing(app: App) -> None:
    for path in (OBJECTS, "/healthz", "/nothing"):
        headers = (await ask(app, path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_bodies_and_batches_are_bounded_and_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.server.lookups.BATCH_MAX", 2)
    monkeypatch.setattr("accel.server.lookups.BATCH_OBJECTS_MAX", 10)
    monkeypatch.setattr("accel.server.lookups.OBJECTS_MAX", 8)
    monkeypatch.setattr("accel.server.operations.BODY_BYTES_MAX", 1000)
    lookup = {"stream_id": STREAM, "start": 0}

    async def work(app: App, _: Sidecar) -> None:
        assert (await post(app, "/v1/objects:batch", {"lookups": [lookup] * 3})).status == 400
        assert (await post(app, "/v1/objects:batch", {"lookups": [lookup] * 100})).status == 413
        assert (await post(app, "/v1/objects:batch", {"lookups": [lookup | {"limit": 6}] * 2})).status == 400
        assert (await post(app, "/v1/objects:batch", {"lookups": [lookup, lookup | {"limit": 9}]})).status == 400
        assert (await post(app, "/v1/objects:batch", {"lookups": [lookup], "unknown": 1})).status == 400
        typed = {"content-type": "text/plain"}
        assert (await ask(app, "/v1/objects:batch", "POST", b"{}", typed)).status == 415
        assert (await post(app, "/v1/objects:batch", {"lookups": [lookup]})).status == 200

    run(work)


class HeldStore(MemoryStore):
    """Reads of an object's tail wait until they are let go."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__()
        self.inner, self.let_go, self.asked = inner, threading.Event(), threading.Event()

    def __getattribute__(self, name: str) -> Any:
        if name in {"get", "get_if_changed", "list_page"}:
            return getattr(object.__getattribute__(self, "inner"), name)
        return object.__getattribute__(self, name)

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        self.asked.set()
        assert self.let_go.wait(60)
        return self.inner.get_range(key, start, end)


def test_beyond_so_many_requests_the_next_is_told_to_come_again() -> None:
    store = HeldStore(filled(2))

    async def work(app: App, _: Sidecar) -> None:
        first = asyncio.ensure_future(ask(app, OBJECTS))
        await asyncio.to_thread(store.asked.wait, 60)
        refused = await ask(app, OBJECTS)
        assert (refused.status, refused.headers["retry-after"], refused.json["retryable"]) == (429, "1", True)
        assert (await ask(app, "/healthz")).status == 200
        store.let_go.set()
        assert (await first).status == 200
        assert (await ask(app, OBJECTS)).status == 200

    run(work, store, requests_max=1)


def test_a_request_that_takes_too_long_is_a_504_and_the_next_is_answered() -> None:
    store = HeldStore(filled(2))

    async def work(app: App, _: Sidecar) -> None:
        late = await ask(app, OBJECTS)
        assert (late.status, late.json["type"]) == (504, "urn:accel:TimedOut")
        store.let_go.set()
        while (await ask(app, OBJECTS)).status == 504:
            pass  # a busy machine may need more than one try

    run(work, store, request_seconds=0.3)


def test_it_listens_before_the_store_answers_and_is_ready_once_it_does() -> None:
    store = MemoryStore()
    may_open = threading.Event()

    def images() -> ImageSource:
        assert may_open.wait(60)
        raise OSError("http://me:secret@10.0.0.1 does not answer")

    async def work(app: App, _: Sidecar) -> None:
        early = await ask(app, "/readyz")
        assert (early.status, early.json["state"]) == (503, "starting")
        refused = await ask(app, OBJECTS)
        assert (refused.status, refused.json["type"]) == (503, "urn:accel:NotReady")
        may_open.set()
        reasons: list[str] = []
        while not reasons:  # it is tried again and again; each look gives the others a turn
            await asyncio.sleep(0)
            reasons = (await ask(app, "/readyz")).json["reasons"]
        assert reasons == ["OSError: http://***@10.0.0.1 does not answer"]

    run(work, store, images=images, is_opened=False)


def test_a_catalog_that_comes_later_is_found() -> None:
    source = filled(2)
    store = HeldBack()

    async def work(app: App, sidecar: Sidecar) -> None:
        assert (await ask(app, "/readyz")).status == 503
        store.inner = source
        await sidecar.wait_opened()
        assert (await ask(app, OBJECTS)).status == 200

    run(work, store, is_opened=False)


class HeldBack(MemoryStore):
    """Empty, until there is a store inside."""

    inner: MemoryStore | None = None

    def __getattribute__(self, name: str) -> Any:
        inner = object.__getattribute__(self, "inner")
        if name in {"get", "get_range", "get_tail", "get_if_changed", "list_page"} and inner is not None:
            return getattr(inner, name)
        return object.__getattribute__(self, name)


def test_an_unknown_failure_tells_the_client_nothing_and_the_log_all(caplog: pytest.LogCaptureFixture) -> None:
    async def work(app: App, sidecar: Sidecar) -> None:
        def broken(_: int) -> str:
            raise RuntimeError("a secret detail")

        sidecar.key_of = broken
        reply = await ask(app, OBJECTS)
        assert (reply.status, reply.json["type"]) == (500, "urn:accel:InternalError")
        assert b"secret" not in reply.body

    run(work)
    assert "a secret detail" in caplog.text


def test_the_log_is_json_a_line_without_passwords_of_urls() -> None:
    error = ValueError("http://me:secret@host/ is wrong")
    told = (type(error), error, None)
    record = logging.LogRecord("accel", logging.ERROR, "", 1, "asked %s", ("http://me:secret@host/",), told)
    line = JsonLines().format(record)
    assert "\n" not in line
    assert "secret" not in line
    assert '"level": "error"' in line


def test_a_server_has_the_bounds_of_the_settings() -> None:
    async def nothing(*_: Any) -> None:
        return

    config = make_server(nothing, SidecarSettings(connections_max=7)).config
    assert (config.timeout_graceful_shutdown, config.host) == (2, "127.0.0.1")
    assert not config.access_log
    assert not config.server_header
