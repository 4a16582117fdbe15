"""Questions of an operator at night: a situation is made, and the sidecar's answers are read."""

from __future__ import annotations

import asyncio
import re

import msgspec
import pytest

from accel.server.guard import App
from accel.testing import Fault, FaultStore
from loaders.store import CountingStore
from tests.accel.lookup.driving import Clock
from tests.accel.server.asking import STREAM, ask, filled, serving

THROTTLED = r'accel_store_requests_total\{operation="get\w*",outcome="StoreThrottled"\}'


async def samples_of(app: App) -> dict[str, float]:
    lines = (await ask(app, "/metrics")).body.decode().splitlines()
    return {name: float(value) for name, value in (each.rsplit(" ", 1) for each in lines if not each.startswith("#"))}


def added(samples: dict[str, float], name: str) -> float:
    return sum(value for key, value in samples.items() if re.fullmatch(rf"{name}(\{{.*\}})?", key))


def test_what_the_bill_is_made_of_is_in_stats_and_metrics_and_adds_up() -> None:
    async def work() -> None:
        clock = Clock()
        store = CountingStore(filled(30), clock)
        async with serving(store, currency="EUR", per_thousand_reads=1.0) as (app, _):
            await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&end=300")
            await ask(app, f"/v1/records?stream_id={STREAM}&start=0&end=300")
            first = msgspec.json.decode((await ask(app, "/v1/stats")).body)["bill"]
            clock.seconds += 100
            await samples_of(app)  # it reads the runs of jobs, after it has counted
            samples = await samples_of(app)
            bill = msgspec.json.decode((await ask(app, "/v1/stats")).body)["bill"]
        assert first["month_price"] is None
        own = store.snapshot().total
        assert {"lookup", "data", "refresh"} <= bill["by_cause"].keys()
        for figure, own_figure in (("requests", own.requests), ("received_bytes", own.received_bytes)):
            assert sum(part[figure] for part in bill["by_cause"].values()) == own_figure
        assert added(samples, "accel_cause_requests_total") == own.requests
        assert added(samples, "accel_cause_bytes_total") == own.received_bytes + own.sent_bytes
        lookups = bill["by_cause"]["lookup"]
        assert (bill["currency"], lookups["price"]) == ("EUR", lookups["requests"] / 1000)
        assert lookups["month_price"] == pytest.approx(lookups["price"] * 30 * 86_400 / bill["rate_seconds"])

    asyncio.run(work())


def test_a_store_that_throttles_is_named_with_its_operation_and_counted() -> None:
    async def work() -> None:
        faults = FaultStore(filled(30))
        store = CountingStore(faults, Clock())
        async with serving(store) as (app, _):
            faults.schedule(*[Fault.SLOW_DOWN] * 20)
            reply = await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&end=300")
            samples = await samples_of(app)
        assert reply.status == 503
        assert msgspec.json.decode(reply.body)["type"].endswith("StoreThrottled")
        throttled = added(samples, "accel_store_throttled_answers_total")
        outcomes = {
            key: value for key, value in samples.items() if 'outcome="StoreThrottled"' in key and "_requests" in key
        }
        assert throttled == sum(outcomes.values()) > 0

    asyncio.run(work())
