"""What a client gets: the library's answers, records and places, histories, problems, and 304 while nothing changed."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import accel
from accel import MetadataImage, ObjectCatalog, ReadAccelerator, StaticImages
from accel.catalog.job_runs import COMPACT, recorded
from accel.server import Sidecar
from accel.server.app import OPERATIONS
from accel.server.guard import App
from accel.streams.groups import ReaderGroup
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.store.decorated import GETS, DecoratedStore, StoreCall
from tests.accel.server.asking import AUTHORISED, NODE, STREAM, ask, asked, filled, post, serving

Answer = TypeVar("Answer")
Asking = Callable[[App, Sidecar], Awaitable[None]]


def run(work: Asking, *args: Any, **options: Any) -> None:
    """Ask an application over a filled store."""

    async def main() -> None:
        async with serving(*(args or (filled(),)), **options) as (app, sidecar):
            await work(app, sidecar)

    asyncio.run(main())


def test_objects_are_those_of_the_library_cold_and_warm() -> None:
    store = filled()
    rng = random.Random(7)
    reads = [(rng.randrange(1000), rng.choice([-1, 1000]), rng.randrange(1, 6)) for _ in range(20)]
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as library:
        expected = [library.get_objects(STREAM, *read) for read in reads]

    async def work(app: App, sidecar: Sidecar) -> None:
        for answer in [*expected, *expected]:
            asked = answer.request
            query = f"stream_id={STREAM}&start={asked.start}&end={asked.end}&limit={asked.limit}"
            told = (await ask(app, f"/v1/objects?{query}")).json
            found = [(each["object_id"], each["start"], each["end"]) for each in told["objects"]]
            assert found == [(each.object_id, each.start, each.end) for each in answer.objects]
            assert (told["ending"], told["resume_offset"]) == (answer.ending.value, answer.resume_offset)
            assert all(sidecar.store.get_tail(each["key"], 8).object_size_bytes for each in told["objects"])

    run(work, store)


@asked()
async def test_a_warm_lookup_asks_the_store_nothing_and_changes_no_thread(app: App, sidecar: Sidecar) -> None:
    path = f"/v1/objects?stream_id={STREAM}&start=250&end=500"
    await ask(app, path)
    sidecar.store.reset()
    threads = threading.active_count()
    coroutine = ask(app, path)
    with pytest.raises(StopIteration) as stop:
        coroutine.__await__().send(None)  # it never waits for anything
    assert stop.value.value.json["rounds"] == 0
    assert (sidecar.store.snapshot().total.requests, threading.active_count()) == (0, threads)


def test_an_unchanged_image_is_a_304_and_a_new_object_ends_it() -> None:
    store = filled(3)

    async def work(app: App, _: Sidecar) -> None:
        path = f"/v1/objects?stream_id={STREAM}&start=0&end=200"
        first = await ask(app, path)
        etag = {"if-none-match": first.headers["etag"]}
        unchanged = await ask(app, path, headers=etag)
        assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, b"", etag["if-none-match"])
        with ObjectCatalog.open(store) as catalog, catalog.open_node(NODE) as writer:
            writer.upload({STREAM: [RecordBatch(STREAM, 1, 300, 100, b"more")]})
        assert (await ask(app, "/v1/refresh", "POST", headers=AUTHORISED)).json["is_newer"]
        changed = await ask(app, path, headers=etag)
        assert (changed.status, changed.json["objects"]) == (200, first.json["objects"])
        hole = await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&end=900&limit=20")
        assert (hole.json["ending"], "etag" in hole.headers) == ("hole", False)

    run(work, store)


@asked()
async def test_a_batch_answers_each_and_none_fails_the_others(app: App) -> None:
    lookups = [{"stream_id": STREAM, "start": 150}, {"stream_id": 9, "start": 0}, {"stream_id": STREAM, "start": 5}]
    outcomes = (await post(app, "/v1/objects:batch", {"lookups": lookups})).json["outcomes"]
    assert [list(each) for each in outcomes] == [["answer"], ["problem"], ["answer"]]
    assert outcomes[1]["problem"]["type"] == "urn:accel:UnknownStream"
    single = (await ask(app, f"/v1/objects?stream_id={STREAM}&start=150")).json
    assert outcomes[0]["answer"]["objects"] == single["objects"]


def test_records_come_in_their_stored_form_and_places_hold_the_same_bytes() -> None:
    store = filled()
    expected = b"".join(
        RecordBatch(STREAM, 1, number * 100, 100, b"records %d" % number).encode() for number in range(2, 6)
    )

    async def work(app: App, sidecar: Sidecar) -> None:
        records = await ask(app, f"/v1/records?stream_id={STREAM}&start=250&end=600")
        assert (records.status, records.headers["content-type"]) == (200, "application/octet-stream")
        assert records.body == expected
        told = (await ask(app, f"/v1/records/places?stream_id={STREAM}&start=250&end=600")).json
        assert (told["next_offset"], told["ending"]) == (600, "end")
        spans = [(each["key"], each["start_byte"], each["end_byte"]) for each in told["places"]]
        fetched = [sidecar.store.get_range(*span).body for span in spans]
        assert all(b"records %d" % number in body for number, body in enumerate(fetched, 2))
        few = (await ask(app, f"/v1/records/places?stream_id={STREAM}&start=0&max_bytes=1")).json
        assert (len(few["places"]), few["next_offset"], few["ending"]) == (1, 100, "limit")

    run(work, store)


@asked()
async def test_a_position_after_the_end_of_a_stream_names_the_end(app: App) -> None:
    whole = (await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&limit=100")).json
    end = whole["resume_offset"]
    assert (whole["ending"], whole["stream_end"]) == ("hole", end)
    asked = f"stream_id={STREAM}&start={end + 1}&end={end + 9}"
    beyond = (await ask(app, f"/v1/objects?{asked}")).json
    assert (beyond["objects"], beyond["stream_end"]) == ([], end)
    outcomes = (await post(app, "/v1/objects:batch", {"lookups": [{"stream_id": STREAM, "start": end + 1}]})).json
    assert outcomes["outcomes"][0]["answer"]["stream_end"] == end
    records = await ask(app, f"/v1/records?{asked}")
    assert (records.status, records.body, records.headers["accel-stream-end"]) == (200, b"", str(end))
    assert (await ask(app, f"/v1/records/places?{asked}")).json["stream_end"] == end
    few = (await ask(app, f"/v1/records/places?stream_id={STREAM}&start=0&max_bytes=1")).json
    assert (few["ending"], few["stream_end"]) == ("limit", None)
    assert (await ask(app, f"/v1/explain?{asked}")).json["answer"]["stream_end"] == end


@asked()
async def test_an_own_upload_is_known_without_being_opened(app: App) -> None:
    first = (await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&limit=20")).json["objects"][4]
    told = {"node_id": NODE, "object_id": first["object_id"], "size_bytes": first["size_bytes"]}
    rows = {**told, "ranges": [[STREAM, first["start"], first["end"]]]}
    reply = await post(app, "/v1/objects:committed", rows, AUTHORISED)
    assert (reply.status, reply.json) == (200, {"ranges": 1})
    wrong = {**told, "ranges": [[STREAM, 5, 3]]}
    assert (await post(app, "/v1/objects:committed", wrong, AUTHORISED)).status == 400


def test_histories_tell_what_the_library_tells() -> None:
    store = filled(1)
    with accel.connect(store) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
        stream = connection.stream("shop", "orders")
        stream.split("0@0")
        connection.group("shop", "orders", "billing")
        epoch = stream.current_epoch().epoch
        active = [str(each) for each in stream.current_epoch().segments]
        created_ms = stream.creation_time_ms()

    async def work(app: App, _: Sidecar) -> None:
        base = "/v1/streams/shop/orders"
        now = (await ask(app, f"{base}/segments")).json
        assert ([each["segment"] for each in now["segments"]], now["epoch"]) == (active, epoch)
        then = (await ask(app, f"{base}/segments?at_ms={created_ms}")).json
        assert [(each["segment"], each["offset"]) for each in then["segments"]] == [("0@0", 0)]
        following = (await ask(app, f"{base}/successors?segment=0@0")).json["neighbours"]
        assert following == {segment: ["0@0"] for segment in active}
        epochs = (await ask(app, f"{base}/epochs?limit=1")).json
        assert ([each["epoch"] for each in epochs["epochs"]], epochs["more"]) == ([0], True)
        assert (await ask(app, f"{base}/cuts")).json == {"cuts": [], "more": False, "unit": "records"}
        told = (await ask(app, f"{base}/lag?group=billing")).json
        assert told == {"group": "billing", "lag_ms": None, "behind": 0, "unit": "records", "readers": {}}
        assert (await ask(app, f"{base}/lag?group=nobody")).json["type"] == "urn:accel:NotInHistory"
        assert (await ask(app, "/v1/scopes/shop/streams")).json == {"names": ["orders"], "more": False}
        missing = await ask(app, "/v1/streams/shop/nothing/segments")
        assert missing.status == 404, missing.body

    run(work, store)


def test_numbers_of_a_sealed_stream_are_true_and_no_offset_is_below_minus_one() -> None:
    store = filled(1)
    with accel.connect(store) as streams:
        streams.create_scope("shop")
        orders = streams.create_stream("shop", "orders", segments=2)
        with streams.writer("shop", "orders") as writer:
            for number in range(8):
                writer.write(b"event", key=f"key {number}")
        ReaderGroup.open(orders, "billing")
        orders.seal()

    async def work(app: App, _: Sidecar) -> None:
        base = "/v1/streams/shop/orders"
        lag = await ask(app, f"{base}/lag?group=billing")
        assert (lag.status, lag.json["lag_ms"], lag.json["behind"]) == (200, None, 8)
        for path in ("segments?at_ms=-1", "segments?at_ms=999999999999999999", "epochs?from_ms=-5", "lag?group=nobody"):
            assert (await ask(app, f"{base}/{path}")).status in {400, 404}
        assert (await ask(app, "/v1/streams/shp/orders/segments")).status == 404

    run(work, store)


def test_recorded_cuts_are_told_the_last_ones_and_each_is_read_once() -> None:
    store = filled(1)
    with accel.connect(store) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
        stream = connection.stream("shop", "orders")
        for number in range(5):
            stream.retention.add(1_000 + number, 10 * number, {0: 10 * number})
        stream.retention.delete_up_to(1_000)

    async def work(app: App, sidecar: Sidecar) -> None:
        base = "/v1/streams/shop/orders/cuts"
        last = [{"recorded_ms": 1_000 + at, "size": 10 * at, "cut": {"0@0": 10 * at}} for at in range(1, 5)]
        assert (await ask(app, base)).json == {"cuts": last, "more": False, "unit": "records"}
        few = (await ask(app, f"{base}?limit=2")).json
        assert (few["cuts"], few["more"]) == (last[2:], True)
        costs = []
        for limit in (1, 4):
            sidecar.store.reset()
            await ask(app, f"{base}?limit={limit}")
            costs.append(sidecar.store.reset().total.requests)
        assert costs[0] == costs[1], "a recorded cut never changes: what was read is not read again"
        assert (await ask(app, f"{base}?limit=101")).status == 400

    run(work, store)


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        (f"/v1/objects?stream_id={STREAM}", 400, "InvalidRequest"),
        (f"/v1/objects?stream_id={STREAM}&start=0&strat=1", 400, "InvalidRequest"),
        (f"/v1/objects?stream_id={STREAM}&start=0&start=1", 400, "InvalidRequest"),
        (f"/v1/objects?stream_id={STREAM}&start=9&end=3", 400, "InvalidRequest"),
        (f"/v1/objects?stream_id={STREAM}&start=x", 400, "InvalidRequest"),
        (f"/v1/objects?stream_id={STREAM}&start=0&limit=10001", 400, "InvalidRequest"),
        (f"/v1/objects?stream_id={STREAM}&start=0&limit=0", 400, "InvalidRequest"),
        (f"/v1/explain?stream_id={STREAM}&start=0&limit=0", 400, "InvalidRequest"),
        (f"/v1/records?stream_id={STREAM}&start=0&max_bytes=999999999999", 400, "InvalidRequest"),
        ("/v1/objects?stream_id=5&start=0", 404, "UnknownStream"),
        ("/v1/stats?all=1", 400, "InvalidRequest"),
        ("/v1/nothing", 404, "NotFound"),
        ("/v1/refresh", 405, "MethodNotAllowed"),
    ],
)
@asked()
async def test_what_makes_no_sense_is_a_problem(app: App, path: str, status: int, kind: str) -> None:
    reply = await ask(app, path)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json"), reply.body
    told = reply.json
    assert (told["type"], told["status"]) == (f"urn:accel:{kind}", status)
    assert told["title"]
    assert told["detail"]


@asked()
async def test_the_document_is_openapi_and_has_every_route(app: App) -> None:
    document = (await ask(app, "/openapi.json")).json
    OpenAPIV31SpecValidator(document).validate()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(each.method, each.path) for each in OPERATIONS}


@asked()
async def test_metrics_and_stats_tell_of_requests(app: App) -> None:
    await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&end=10")
    await ask(app, "/v1/objects?stream_id=5&start=0")
    lines = (await ask(app, "/metrics")).body.decode().splitlines()
    assert 'accel_http_requests_total{operation="objects",status="200"} 1.0' in lines
    assert 'accel_http_requests_total{operation="objects",status="404"} 1.0' in lines
    assert 'accel_sidecar_state{state="ready"} 1.0' in lines
    assert any(line.startswith('accel_lookups_total{ending="end"}') for line in lines)
    stats = (await ask(app, "/v1/stats")).json
    assert (stats["state"], stats["lookups"]["lookups"]) == ("ready", 1)
    assert stats["store"]["get"]["requests"] > 0


class RunsRead(DecoratedStore):
    """Counts reads of the records of compactions."""

    count = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self.count += call.operation in GETS and call.key.endswith("/job-runs/compact")
        return send()


async def jobs_told(app: App) -> dict[str, str]:
    lines = (await ask(app, "/metrics")).body.decode().splitlines()
    return dict(line.split(" ") for line in lines if line.startswith(("accel_job", "accel_compaction")))


def test_metrics_tell_of_jobs_read_once_a_minute_and_of_a_job_without_a_run_nothing() -> None:
    waiting, age = "accel_compaction_waiting_objects", 'accel_job_success_age_seconds{kind="compact"}'

    async def main() -> None:
        store = RunsRead(filled())
        async with serving(store) as (app, sidecar):
            assert await jobs_told(app) == {waiting: "0.0"}
            with ObjectCatalog.open(store) as catalog, recorded(catalog.parts, COMPACT) as job:
                job.note_limit(4)
            store.count = 0
            assert await jobs_told(app) == {waiting: "0.0"}
            assert store.count == 0
            sidecar.system = replace(sidecar.system, timer=lambda: SYSTEM.timer() + 61)
            told = await jobs_told(app)
            assert (store.count, sorted(told), told[waiting]) == (1, [waiting, age], "6.0")
            assert 0 <= float(told[age]) < 3600
        elsewhere = StaticImages(MetadataImage.from_dict({"streams": [], "nodes": []}))
        async with serving(store, images=lambda: elsewhere) as (app, _):
            assert await jobs_told(app) == {}

    asyncio.run(main())
