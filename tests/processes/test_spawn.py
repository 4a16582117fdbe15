"""Processes of `multiprocessing`: what they may be sent, and what refuses to be copied."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from accel import ReadAccelerator, StaticImages
from accel.catalog import ObjectCatalog
from accel.errors import AccelError, WrongProcess
from accel.system import SYSTEM
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from tests.accel.lookup.cluster import line_image
from tests.processes.children import CHILD_SECONDS
from tests.servers.stores import S3_STORES, store_on_s3

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def streams_of(store: ObjectStore, told: Connection[Any, Any]) -> None:
    """Open the catalog of a store, look something up, and write: in another process."""
    try:
        with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
            answer = accelerator.get_objects(1, 0)
            with catalog.open_node(4) as writer:
                told.send((sorted(catalog.refresh().streams), len(answer.objects), writer.prepare()))
    except AccelError as error:
        told.send(error)


def run(method: str, act: Callable[..., None], *sent: Any) -> Any:
    """Run something in a process that is started by this method; it is ended if it hangs."""
    context: Any = multiprocessing.get_context(method)
    receives, sends = context.Pipe(duplex=False)
    process = context.Process(target=act, args=(*sent, sends))
    process.start()
    try:
        assert receives.poll(CHILD_SECONDS), "expected an answer, found a process that hangs"
        return receives.recv()
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("name", [each for each in S3_STORES if "named" not in each])
def test_a_store_is_sent_and_the_catalog_opened_there(request: pytest.FixtureRequest, method: str, name: str) -> None:
    with store_on_s3(request, name) as store:
        ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2))
        with ObjectCatalog.open(store) as catalog, catalog.open_node(4) as writer:
            writer.open_streams([1, 2])
            ids = writer.prepare()
            streams, objects, other_ids = run(method, streams_of, CountingStore(store))
        assert (streams, objects) == ([1, 2], 0)
        assert set(ids).isdisjoint(other_ids)


def test_sessions_and_accelerators_refuse_to_be_copied() -> None:
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2))
    with (
        ObjectCatalog.open(store) as catalog,
        catalog.open_node(4) as writer,
        ReadAccelerator(StaticImages(line_image([])), store) as accelerator,
    ):
        for each in (store, catalog, writer, accelerator, catalog.images(), accelerator.read(7, 0)):
            with pytest.raises(WrongProcess, match="copied") as caught:
                pickle.dumps(each)
            assert "send the store" in caught.value.advice


def test_the_error_itself_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(WrongProcess("expected this")))  # noqa: S301 - made here
    assert (type(error), str(error)) == (WrongProcess, "expected this")


def test_a_session_goes_by_the_process_id_that_it_is_given() -> None:
    now = [100]
    system = replace(SYSTEM, process_id=lambda: now[0])
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2), system=system)
    with ObjectCatalog.open(store, system=system) as catalog:
        writer = catalog.open_node(4)
        now[0] = 101
        with pytest.raises(WrongProcess, match="opened it, 100, found process 101"):
            writer.prepare()
        assert catalog.refresh().version == catalog.image().version
        with catalog.open_node(5) as other:
            other.prepare()
        now[0] = 100
        assert writer.prepare()
