"""A broker's read path under asyncio: consumers wait for records of streams, and no consumer blocks another.

    python examples/asyncio_broker.py s3://bucket/prefix 420000 1000 1600

Each stream is read by its own task; all tasks share one accelerator, its caches and its requests.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from accel import AsyncReadAccelerator, ObjectCatalog, open_store
from accel.errors import AccelError
from loaders.format import RecordBatch
from loaders.store import ObjectStore

RETRY_SECONDS = 0.2
TRIES = 5


class Broker:
    """Reads streams for consumers. Threads: one event loop."""

    def __init__(self, accelerator: AsyncReadAccelerator) -> None:
        self._accelerator = accelerator

    async def fetch(self, stream_id: int, start: int, end: int) -> list[RecordBatch]:
        """The record batches that hold offsets [start, end); retryable errors are retried."""
        for tried in range(TRIES):
            try:
                async with self._accelerator.read(stream_id, start, end) as batches:
                    return [batch async for batch in batches]
            except AccelError as error:
                if not error.retryable or tried == TRIES - 1:
                    raise
            await asyncio.sleep(RETRY_SECONDS * 2**tried)
        return []


async def consume(store: ObjectStore, reads: Iterable[tuple[int, int, int]]) -> list[list[RecordBatch]]:
    """Fetch (stream id, start, end) reads in parallel."""
    catalog = await asyncio.to_thread(ObjectCatalog.open, store)
    async with AsyncReadAccelerator(catalog.images(), store) as accelerator:
        broker = Broker(accelerator)
        try:
            async with asyncio.TaskGroup() as tasks:
                fetching = [tasks.create_task(broker.fetch(*read)) for read in reads]
        finally:
            await asyncio.to_thread(catalog.close)
    return [each.result() for each in fetching]


def main() -> None:
    """Run the read of the command line."""
    url, stream_id, start, end = sys.argv[1:]
    [batches] = asyncio.run(consume(open_store(url), [(int(stream_id), int(start), int(end))]))
    for batch in batches:
        print(f"[{batch.base_offset}, {batch.end_offset}) {len(batch.payload)} bytes")


if __name__ == "__main__":
    main()
