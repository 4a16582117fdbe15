"""Asks an ASGI application in this event loop, as a server would; and sidecars over small stores."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import msgspec

from accel import ObjectCatalog
from accel.image_source import ImageSource
from accel.server import Sidecar, SidecarSettings, sidecar_app
from accel.server.guard import App
from accel.settings import Settings
from loaders.format import RecordBatch
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.tables import FormatRecord

NODE, STREAM = 4, 420000
TOKEN = "a token of some length"  # noqa: S105 - of a test
AUTHORISED = {"authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True)
class Reply:
    """What came of a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def ask(
    app: App, path: str, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Reply:
    path, _, query = path.partition("?")
    sent = {
        "host": "127.0.0.1:8480",
        **({} if body is None else {"content-type": "application/json"}),
        **(headers or {}),
    }
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8480),
    }
    messages: list[dict[str, Any]] = []

    given = [{"type": "http.request", "body": body or b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not given:
            await asyncio.Event().wait()  # the client stays
        return given.pop()

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return Reply(messages[0]["status"], found, b"".join(each.get("body", b"") for each in messages[1:]))


def post(app: App, path: str, value: Any, headers: Mapping[str, str] | None = None) -> Awaitable[Reply]:
    return ask(app, path, "POST", msgspec.json.encode(value), headers)


def filled(objects: int = 10) -> MemoryStore:
    """A store with a catalog, and objects of 100 offsets each of one stream."""
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="_kafka_test", stream_buckets=1))
    with ObjectCatalog.open(store) as catalog, catalog.open_node(NODE) as writer:
        writer.open_streams([STREAM])
        for number in range(objects):
            writer.upload({STREAM: [RecordBatch(STREAM, 1, number * 100, 100, b"records %d" % number)]})
    return store


@asynccontextmanager
async def serving(
    store: ObjectStore,
    *,
    images: Callable[[], ImageSource] | None = None,
    is_opened: bool = True,
    timer: Callable[[], float] | None = None,
    lookups: Settings = Settings(hedge_percent=0, parallel_loads=4, slow_lookup_seconds=0.5),  # noqa: B008 - frozen
    **settings: Any,
) -> AsyncIterator[tuple[App, Sidecar]]:
    """An application, opened as a server opens it."""
    counted = store if isinstance(store, CountingStore) else CountingStore(store, timer)
    chosen = SidecarSettings(**{"token": TOKEN, **settings})
    sidecar = Sidecar(counted, chosen, images=images, lookups=lookups)
    app = sidecar_app(sidecar)
    with patch("accel.server.sidecar.OPEN_RETRY_SECONDS", 0.01):
        async with _started(app):
            if is_opened:
                await sidecar.wait_opened()
            yield app, sidecar


@asynccontextmanager
async def _started(app: App) -> AsyncIterator[None]:
    """The application's own life, as servers begin and end it."""
    to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    await to_app.put({"type": "lifespan.startup"})
    life = asyncio.ensure_future(app({"type": "lifespan", "asgi": {"version": "3.0"}}, to_app.get, from_app.put))
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
        await life


def asked(**settings: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Makes a test of a coroutine that is given an application over a filled store, and the sidecar if it wants it."""

    def decorated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters

        def driven(**given: Any) -> None:
            async def main() -> None:
                async with serving(filled(), **settings) as (app, sidecar):
                    await test(app=app, **({"sidecar": sidecar} if "sidecar" in parameters else {}), **given)

            asyncio.run(main())

        others = [each for name, each in parameters.items() if name not in {"app", "sidecar"}]
        driven.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]  # pytest asks for it
        driven.__name__, driven.__module__ = test.__name__, test.__module__
        return driven

    return decorated
