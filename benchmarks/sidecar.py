"""A sidecar against the library: a batch in one process, and requests on loopback with 64 connections.

`sidecar_batch`: POST /v1/objects:batch of 1,000 streams whose answers are in memory, from the bytes of the request to
the bytes of the answer, against 1,000 calls of `AsyncReadAccelerator.get_objects` on the same event loop; processor
time of the thread.

`sidecar_requests`: GET /v1/objects of the same streams over loopback, 64 connections of one client process, against
the same number of calls of the library in one thread. Wall-clock time: both processes share the machine. The figure is
the time of one request: one second divided by the requests a second; `sidecar_latency` is the median of one request,
measured by the client while 64 are under way, against one call.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec
import uvicorn

from accel import MetadataImage, ObjectRef, StaticImages
from accel.image_source import ImageSource
from accel.server import Sidecar, SidecarSettings, sidecar_app
from accel.server.guard import App
from benchmarks.harness import Comparison, Timings, interleave
from loaders.store import CountingStore, MemoryStore

NODE_ID: Final = 4
STREAMS: Final = 1_000
OBJECTS: Final = 40
OFFSETS: Final = 100
CONNECTIONS: Final = 64
REQUESTS: Final = 4_096


def images() -> ImageSource:
    """1,000 streams in each of 40 objects of one node."""
    ranges = [{"range_index": 0, "start": 0, "end": -1, "node_id": NODE_ID}]
    listed = [{"object_id": each, "order_id": each} for each in range(OBJECTS)]
    return StaticImages(
        MetadataImage.from_dict(
            {
                "streams": [{"stream_id": each, "start_offset": 0, "ranges": ranges} for each in range(STREAMS)],
                "nodes": [{"node_id": NODE_ID, "stream_set_objects": listed}],
            }
        )
    )


async def opened() -> tuple[Sidecar, App]:
    """A sidecar with all objects in its index cache."""
    sidecar = Sidecar(CountingStore(MemoryStore()), SidecarSettings(port=0), images=images)
    await sidecar.open()
    await sidecar.wait_opened()
    for each in range(OBJECTS):
        held = [(stream_id, each * OFFSETS, (each + 1) * OFFSETS) for stream_id in range(STREAMS)]
        sidecar.accelerator.object_committed(NODE_ID, ObjectRef(each), held)
    return sidecar, sidecar_app(sidecar)


def start_of(stream_id: int) -> int:
    """An offset in the middle of a stream."""
    return OBJECTS // 2 * OFFSETS + stream_id % OFFSETS


def run_batch(rounds: int = 7) -> list[Comparison]:
    """A batch of 1,000."""
    loop = asyncio.new_event_loop()
    sidecar, app = loop.run_until_complete(opened())
    lookups = [{"stream_id": each, "start": start_of(each)} for each in range(STREAMS)]
    body = msgspec.json.encode({"lookups": lookups})

    async def library() -> list[int]:
        accelerator = sidecar.accelerator
        answers = [await accelerator.get_objects(each, start_of(each)) for each in range(STREAMS)]
        return [found.object_id for answer in answers for found in answer.objects]

    def same(ours: object, theirs: object) -> bool:
        told = msgspec.json.decode(ours) if isinstance(ours, bytes) else {}
        return [found["object_id"] for each in told["outcomes"] for found in each["answer"]["objects"]] == theirs

    def run(work: Callable[[], Awaitable[object]]) -> object:
        return loop.run_until_complete(_awaited(work))

    timings = interleave(
        lambda: run(lambda: _post(app, body)), lambda: run(library), rounds=rounds, same=same, timer=time.thread_time
    )
    loop.run_until_complete(sidecar.close())
    loop.close()
    return [timings.compare("sidecar_batch", peer="get_objects 1,000 times", unit="ms", goal=1 / 1.3)]


async def _awaited(work: Callable[[], Awaitable[object]]) -> object:
    return await work()


async def _post(app: App, body: bytes) -> bytes:
    parts: list[bytes] = []
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/objects:batch", "query_string": b"", "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        parts.append(message.get("body", b""))

    await app({**scope, "root_path": "", "scheme": "http", "http_version": "1.1"}, receive, send)
    return b"".join(parts)


def run(rounds: int = 7) -> list[Comparison]:
    """4,096 requests over 64 connections, and the same number of calls."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    port: int = here.recv()
    loop = asyncio.new_event_loop()
    sidecar, _ = loop.run_until_complete(opened())
    latencies: list[float] = []
    asked = [each % STREAMS for each in range(REQUESTS)]

    def ours() -> list[int]:
        return loop.run_until_complete(_ask_all(port, asked, latencies))

    async def call_all() -> list[int]:
        accelerator = sidecar.accelerator
        return [(await accelerator.get_objects(each, start_of(each))).objects[0].object_id for each in asked]

    timings = interleave(ours, lambda: loop.run_until_complete(call_all()), rounds=rounds)
    here.send("end")
    process.join(30)
    loop.run_until_complete(sidecar.close())
    loop.close()
    peer = f"{REQUESTS:,} calls of get_objects in one thread"
    requests = timings.compare("sidecar_requests", peer=peer, unit="us", calls=REQUESTS)
    median = statistics.median(latencies[REQUESTS:])
    calls = [seconds / REQUESTS for seconds in timings.peer_seconds]
    seen = Timings([median] * len(calls), calls).compare("sidecar_latency", peer="one call of get_objects", unit="us")
    return [requests, seen]


async def _ask_all(port: int, asked: list[int], latencies: list[float]) -> list[int]:
    found = dict.fromkeys(range(len(asked)), -1)
    left = iter(enumerate(asked))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number, stream_id in left:
            started = time.perf_counter()
            query = f"stream_id={stream_id}&start={start_of(stream_id)}"
            writer.write(f"GET /v1/objects?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            found[number] = msgspec.json.decode(await reader.readexactly(length))["objects"][0]["object_id"]
            latencies.append(time.perf_counter() - started)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return list(found.values())


def _serve(there: Connection) -> None:
    asyncio.run(_serve_until_told(there))


async def _serve_until_told(there: Connection) -> None:
    _, app = await opened()
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False, server_header=False)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for this
        await asyncio.sleep(0.01)
    there.send(server.servers[0].sockets[0].getsockname()[1])
    await asyncio.to_thread(there.recv)
    server.should_exit = True
    await task
