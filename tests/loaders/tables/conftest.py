"""Every store that tables have to keep their contract on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from loaders.store import MemoryStore, ObjectStore, PrefixedStore
from loaders.tables import probe_conditions
from tests.loaders.tables.worlds import World, new_nonce
from tests.servers.stores import ON_S3, store_on_s3

IN_MEMORY: dict[str, Callable[[], ObjectStore]] = {
    "memory": MemoryStore,
    "prefixed": lambda: PrefixedStore(MemoryStore(), "some/pre%fix/"),
}


@pytest.fixture(params=[*IN_MEMORY, "cached", *ON_S3])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty store of each kind, and clients with a cache of records.

    Those on S3 are not told how their server wants If-Match: tables find out by the probe, and tell the store.
    """
    if request.param == "cached":
        yield World(MemoryStore(), is_cached=True)
        return
    if request.param in IN_MEMORY:
        yield World(IN_MEMORY[request.param]())
        return
    with store_on_s3(request, request.param, knows_quotes=False) as store:
        yield World(store, probe_conditions(store, new_nonce))


@pytest.fixture
def memory() -> World:
    """A store in memory, for what is the same on every store."""
    return World(MemoryStore())
