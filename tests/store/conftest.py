"""Every store that has to keep the contract, by name."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from loaders.store import (
    CountingStore,
    FaultStore,
    LatencyStore,
    MemoryStore,
    ObjectStore,
    ObstoreStore,
    PrefixedStore,
    S3Settings,
    S3Store,
    VirtualClock,
)
from tests.servers.fixtures import Endpoint, drop_bucket, new_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IN_MEMORY: dict[str, Callable[[MemoryStore], ObjectStore]] = {
    "memory": lambda inner: inner,
    "prefixed": lambda inner: PrefixedStore(inner, "some/pre%fix/"),
    "counting": CountingStore,
    "latency": lambda inner: LatencyStore(inner, Random(1), VirtualClock().sleep),
    "faults": FaultStore,
}
ON_S3: dict[str, type[S3Store | ObstoreStore]] = {"boto3": S3Store, "obstore": ObstoreStore}
SERVERS = ("moto", "named") if "ACCEL_TEST_S3_ENDPOINT" in os.environ else ("moto",)


@pytest.fixture(params=[*IN_MEMORY, *(f"{client}-{server}" for server in SERVERS for client in ON_S3)])
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    """An empty store of each kind; those on S3 get a bucket of their own."""
    if request.param in IN_MEMORY:
        yield IN_MEMORY[request.param](MemoryStore(part_size_bytes_min=5 * 1024 * 1024))
        return
    kind, server = request.param.split("-")
    endpoint: Endpoint = request.getfixturevalue(f"{server}_endpoint")
    environment: pytest.MonkeyPatch = request.getfixturevalue("aws_environment")
    environment.setenv("AWS_ACCESS_KEY_ID", endpoint.access_key)
    environment.setenv("AWS_SECRET_ACCESS_KEY", endpoint.secret_key)
    bucket = new_bucket(endpoint.client)
    yield ON_S3[kind](bucket, S3Settings(endpoint_url=endpoint.url, etag_quotes=endpoint.etag_quotes))
    if endpoint.is_lasting:
        drop_bucket(endpoint.client, bucket)
