"""Many small range reads from asyncio: our threads against obstore's native async, and against `asyncio.to_thread`.

    async_get, native               512 reads of 4 KiB; the peer awaits obstore's own coroutines, no thread a read
    async_get, native, processor    the same, in processor time, including obstore's threads
    async_get, to_thread            the same reads; the peer passes each to the threads of the event loop, as
                                    `asyncio.to_thread` does, of which there are 4 more than processors

Ours is the method of the accelerators: the store's blocking reads on a pool of 64 threads, awaited. All sides use
obstore and one server, with at most 64 reads at once, except for `to_thread`. The server is a separate process on
loopback and answers each request after the time that `LatencyModel` draws (half of them 15 ms, one in a hundred 100
ms). It serves only ranges of one object. Answers are compared.

A ratio above 1 means that ours is faster.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

import obstore
from obstore.store import S3Store as RustStore

from accel.testing import LatencyModel
from benchmarks.harness import Comparison, interleave
from loaders.store import ObstoreStore, S3Settings

READS: Final = 512
READ_BYTES: Final = 4096
AT_ONCE: Final = 64
BODY: Final = bytes(range(256)) * (READS * READ_BYTES // 256)
KEY: Final = "object"

Read = Callable[[int], Awaitable[bytes]]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    model = LatencyModel()
    while head := await reader.readuntil(b"\r\n\r\n"):
        asked = head.lower().split(b"range: bytes=")[1].split(b"\r\n")[0]
        first, last = map(int, asked.split(b"-"))
        await asyncio.sleep(model.seconds(rng, last + 1 - first))
        body = BODY[first : last + 1]
        writer.write(
            b"HTTP/1.1 206 Partial Content\r\n"
            b'ETag: "e"\r\nLast-Modified: Wed, 21 Oct 2026 07:28:00 GMT\r\n'
            b"Content-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n\r\n" % (len(body), first, last, len(BODY)) + body
        )
        await writer.drain()


async def _serve(told: Connection) -> None:
    rng = random.Random(16)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _answer(reader, writer, rng)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    told.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server(told: Connection) -> None:
    asyncio.run(_serve(told))


@contextmanager
def _endpoint() -> Iterator[str]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_server, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


async def _all(read: Read) -> list[bytes]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> bytes:
        async with places:
            return await read(number * READ_BYTES)

    return await asyncio.gather(*map(one, range(READS)))


def _finished(read: Read) -> list[bytes]:
    return asyncio.run(_all(read))


def _sides(url: str, threads: ThreadPoolExecutor) -> Sequence[Read]:
    settings = S3Settings(client="obstore", endpoint_url=url, region="us-east-1", no_sign_request=True)
    store = ObstoreStore("bucket", settings)
    native = RustStore(
        "bucket",
        config={
            "aws_endpoint_url_s3": url,
            "region": "us-east-1",
            "skip_signature": True,
            "virtual_hosted_style_request": False,
        },
        client_options={"allow_http": True, "timeout": timedelta(minutes=5), "pool_max_idle_per_host": "64"},
    )

    def blocking(start: int) -> bytes:
        return store.get_range(KEY, start, start + READ_BYTES).body

    async def ours(start: int) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(threads, blocking, start)

    async def awaited(start: int) -> bytes:
        answer = await obstore.get_async(native, KEY, options={"range": (start, start + READ_BYTES)})
        return bytes(await answer.bytes_async())

    async def handed(start: int) -> bytes:
        return await asyncio.to_thread(blocking, start)

    return ours, awaited, handed


def run(rounds: int) -> list[Comparison]:
    """Run all comparisons. Each round creates an event loop, as a program does, and waits for all reads."""
    with _endpoint() as url, ThreadPoolExecutor(AT_ONCE, thread_name_prefix="reads") as threads:
        ours, awaited, handed = (partial(_finished, read) for read in _sides(url, threads))
        native = interleave(ours, awaited, rounds=rounds)
        default = interleave(ours, handed, rounds=rounds)
        computed = interleave(ours, awaited, rounds=rounds, timer=time.process_time)
    coroutines = "obstore's coroutines, no thread a read"
    return [
        native.compare("async_get, native", peer=coroutines, unit="ms"),
        computed.compare("async_get, native, processor", peer=coroutines, unit="ms"),
        default.compare("async_get, to_thread", peer="asyncio.to_thread, the loop's own threads", unit="ms"),
    ]
