"""Every store that has to keep the contract, by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from accel.testing import CrashStore, FaultStore, LatencyStore, VirtualClock
from loaders.store import CountingStore, FileStore, MemoryStore, ObjectStore, PrefixedStore
from tests.servers.stores import S3_STORES, store_on_s3

IN_MEMORY: dict[str, Callable[[MemoryStore], ObjectStore]] = {
    "memory": lambda inner: inner,
    "prefixed": lambda inner: PrefixedStore(inner, "some/pre%fix/"),
    "counting": CountingStore,
    "latency": lambda inner: LatencyStore(inner, Random(1), VirtualClock().sleep),
    "faults": FaultStore,
    "crashing": lambda inner: CrashStore(inner, None),
}


@pytest.fixture(params=[*IN_MEMORY, "file", *S3_STORES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty store of each kind; those on S3 get a bucket of their own."""
    if request.param in IN_MEMORY:
        yield IN_MEMORY[request.param](MemoryStore(part_size_bytes_min=5 * 1024 * 1024))
        return
    if request.param == "file":
        yield FileStore(tmp_path / "store", sleep=time.sleep, durable=False)  # noqa: TID251 - real threads race
        return
    with store_on_s3(request, request.param) as on_s3:
        yield on_s3
