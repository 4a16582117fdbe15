"""The store behind a sidecar fails: what is answered, what is said of it, and that it recovers by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event

import pytest

from accel import ObjectCatalog
from accel.server import Sidecar
from accel.server.guard import App
from accel.testing import Fault, FaultStore
from loaders.errors import CredentialsExpired
from loaders.format import RecordBatch
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from loaders.threads import DaemonThreads
from tests.accel.server.asking import AUTHORISED, NODE, STREAM, ask, filled, serving

KNOWN = f"/v1/objects?stream_id={STREAM}&start=0&end=100"
UNKNOWN = f"/v1/objects?stream_id={STREAM}&start=200&end=300&limit=1"


class Clock:
    """Seconds that pass when they are told to."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


OUTAGE = "at the last request the store was unavailable, or did not accept the credentials"


class SilentStore(DecoratedStore):
    """Holds the requests that come while it is silent, until it is let go."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.is_silent = False
        self.is_holding, self.let_go = Event(), Event()

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:  # noqa: ARG002 - all are held
        if self.is_silent:
            self.is_holding.set()
            assert self.let_go.wait(60)
        return send()


def run(store: ObjectStore, work: Callable[[App, Sidecar], Awaitable[None]], clock: Clock | None = None) -> None:
    async def main() -> None:
        async with serving(store, timer=clock) as (app, sidecar):
            await work(app, sidecar)

    asyncio.run(main())


async def know_the_first_and_list_another(app: App, store: MemoryStore) -> None:
    """Memory knows the first objects; the image lists one more that nobody has opened."""
    assert (await ask(app, KNOWN)).status == 200
    with ObjectCatalog.open(store) as catalog, catalog.open_node(NODE) as writer:
        writer.upload({STREAM: [RecordBatch(STREAM, 1, 200, 100, b"more")]})
    assert (await refreshed(app)) is True


async def refreshed(app: App) -> bool:
    is_newer: bool = (await ask(app, "/v1/refresh", "POST", headers=AUTHORISED)).json["is_newer"]
    return is_newer


async def becomes_ready(app: App) -> None:
    """Ask until all is well: what was under way in the outage may end after what was asked since."""
    while (await ask(app, "/readyz")).json != {"state": "ready", "reasons": []}:
        await refreshed(app)


class RefusingStore(DecoratedStore):
    """Refuses the credentials while it is told to."""

    is_refusing = False

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self.is_refusing:
            raise CredentialsExpired(call.operation, call.key, "400 ExpiredToken")
        return send()


def test_while_credentials_are_refused_it_says_that_it_is_degraded_and_why() -> None:
    inner = filled(2)
    store = RefusingStore(inner)

    async def work(app: App, _: Sidecar) -> None:
        await know_the_first_and_list_another(app, inner)
        store.is_refusing = True
        failed = await ask(app, UNKNOWN)
        assert (failed.status, failed.json["retryable"]) == (503, True)
        assert failed.json["type"] == "urn:accel:CredentialsExpired"
        assert "token file" in failed.json["advice"]
        told = await ask(app, "/readyz")
        assert (told.status, told.json["state"]) == (200, "degraded")
        assert OUTAGE in told.json["reasons"]
        store.is_refusing = False
        assert (await ask(app, UNKNOWN)).status == 200
        await becomes_ready(app)

    run(store, work)


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.SERVER_ERROR, Fault.TIMEOUT, Fault.RESET])
def test_while_requests_fail_what_is_known_is_answered_and_the_rest_is_a_503(fault: Fault) -> None:
    inner = filled(2)
    store = FaultStore(inner)

    async def work(app: App, _: Sidecar) -> None:
        await know_the_first_and_list_another(app, inner)
        store.schedule(*[fault] * 1000)
        failed = await ask(app, UNKNOWN)
        assert (failed.status, failed.json["retryable"], failed.headers["retry-after"]) == (503, True, "1")
        assert [each["start"] for each in (await ask(app, KNOWN)).json["objects"]] == [0]
        told = await ask(app, "/readyz")
        assert (told.status, told.json["state"]) == (200, "degraded")
        assert OUTAGE in told.json["reasons"]
        lines = (await ask(app, "/metrics")).body.decode().splitlines()
        assert {'accel_sidecar_state{state="degraded"} 1.0', "accel_store_failing 1.0"} <= set(lines)
        store.clear()
        assert (await ask(app, UNKNOWN)).status == 200  # nobody has restarted anything
        await becomes_ready(app)
        assert 'accel_sidecar_state{state="ready"} 1.0' in (await ask(app, "/metrics")).body.decode()

    run(store, work)


def test_while_nothing_comes_back_what_is_known_is_answered_and_it_says_how_long() -> None:
    inner, clock = filled(2), Clock()
    store = SilentStore(inner)

    async def work(app: App, _: Sidecar) -> None:
        await know_the_first_and_list_another(app, inner)
        store.is_silent = True
        waiting = asyncio.ensure_future(ask(app, UNKNOWN))
        await asyncio.to_thread(store.is_holding.wait, 60)
        assert (await ask(app, "/readyz")).json == {"state": "ready", "reasons": []}
        clock.seconds += 7
        assert [each["start"] for each in (await ask(app, KNOWN)).json["objects"]] == [0]
        told = await ask(app, "/readyz")
        assert (told.status, told.json["state"]) == (200, "degraded")
        assert told.json["reasons"] == ["a request to the store has taken 7 s so far"]
        lines = (await ask(app, "/metrics")).body.decode().splitlines()
        assert {'accel_sidecar_state{state="degraded"} 1.0', "accel_store_oldest_request_seconds 7.0"} <= set(lines)
        store.is_silent = False
        store.let_go.set()
        assert (await waiting).status == 200
        await becomes_ready(app)

    run(store, work, clock)


def test_a_sidecar_ends_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    store = filled(1)

    async def work() -> None:
        monkeypatch.setattr("threading.Thread.start", refused)
        monkeypatch.setattr("loaders.threads.start_thread", DaemonThreads())  # none is idle
        async with serving(store, is_opened=False) as (app, _):
            told: dict[str, list[str]] = {"reasons": []}
            while not told["reasons"]:
                told = (await ask(app, "/readyz")).json
            assert "NoThread" in told["reasons"][0]
            assert (await ask(app, "/healthz")).status == 200

    asyncio.run(work())  # the lifespan ended without an error
