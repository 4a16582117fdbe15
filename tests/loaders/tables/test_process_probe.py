"""Before its first conditional write, each process finds out whether a store obeys conditions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path

import pytest

from accel.testing import Fault, FaultStore
from loaders.errors import AccessDenied, RequestRefused, StoreError
from loaders.layout import CONDITIONS_KEY
from loaders.store import (
    ALWAYS,
    Body,
    Condition,
    CreateOnly,
    FileStore,
    IfMatch,
    MemoryStore,
    ObjectStore,
    PrefixedStore,
)
from loaders.store.base import STALE_ETAG
from loaders.store.decorated import CountingStore, DecoratedStore
from loaders.tables import Tables
from loaders.tables.probe import CONDITIONS_BODY, PROBES_MAX
from tests.loaders.tables.worlds import ReadOnly, World, new_nonce, no_sleep


class Gateway(DecoratedStore):
    """A server behind a network: nothing is known of its conditions; it ignores those of some kinds."""

    def __init__(self, store: ObjectStore, *ignored: type[Condition]) -> None:
        super().__init__(store)
        self.ignored = ignored
        self.puts: list[tuple[str, Condition]] = []

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        self.puts.append((key, condition))
        return super().put(key, body, condition=ALWAYS if isinstance(condition, self.ignored) else condition, mark=mark)

    @property
    def probes(self) -> list[Condition]:
        """The conditions of the writes to the probe key."""
        return [condition for key, condition in self.puts if key == CONDITIONS_KEY]


def write(store: ObjectStore, key: str = "k") -> None:
    """Write one value in a new client's table."""
    World(store).table().create(key, b"value")


def test_two_writes_that_must_be_refused_come_before_the_first_of_a_process() -> None:
    memory = MemoryStore()
    memory.put(CONDITIONS_KEY, CONDITIONS_BODY)
    gateway = Gateway(memory)
    write(gateway)
    write(CountingStore(gateway), "k2")
    write(PrefixedStore(gateway, "below/"), "k3")
    assert gateway.probes == [CreateOnly(), IfMatch(STALE_ETAG)]
    assert [key for key, _ in gateway.puts[:2]] == [CONDITIONS_KEY] * 2
    assert memory.get(CONDITIONS_KEY).body == CONDITIONS_BODY


def test_a_store_without_the_key_gets_it() -> None:
    memory = MemoryStore()
    gateway = Gateway(memory)
    write(gateway)
    assert gateway.probes == [CreateOnly(), CreateOnly(), IfMatch(STALE_ETAG)]
    assert memory.get(CONDITIONS_KEY).body == CONDITIONS_BODY


@pytest.mark.parametrize(
    ("ignored", "words"),
    [((CreateOnly,), "ignores If-None-Match"), ((IfMatch,), "ignores If-Match"), ((CreateOnly, IfMatch), "ignores")],
)
@pytest.mark.parametrize("has_key", [True, False])
def test_a_condition_that_is_ignored_stops_every_write_before_it_is_sent(
    ignored: Iterable[type[Condition]], words: str, has_key: bool
) -> None:
    memory = MemoryStore()
    World(memory).tables().create_table("t")
    if has_key:
        memory.put(CONDITIONS_KEY, CONDITIONS_BODY)
    before = [info.key for info in memory.list("accel/tables/")]
    gateway = Gateway(memory, *ignored)
    for _ in range(2):
        with pytest.raises(RequestRefused, match=words):
            World(gateway).tables().table("t").create("k", b"value")
    assert [info.key for info in memory.list("accel/tables/")] == before
    assert memory.get(CONDITIONS_KEY).body == CONDITIONS_BODY
    assert {key for key, _ in gateway.puts} == {CONDITIONS_KEY}


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.SERVER_ERROR, Fault.SLOW_DOWN, Fault.LOST_REPLY])
def test_an_answer_without_a_verdict_is_asked_for_again(fault: Fault) -> None:
    for position in range(3):
        gateway = Gateway(MemoryStore())
        faults = FaultStore(gateway, operations={"put"})
        faults.schedule(*[None] * position, fault)
        write(faults)
        assert gateway.probes[-1] == IfMatch(STALE_ETAG)


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.SERVER_ERROR, Fault.SLOW_DOWN])
def test_without_a_verdict_nothing_is_written_and_the_next_write_tries_again(fault: Fault) -> None:
    gateway = Gateway(MemoryStore())
    faults = FaultStore(gateway, operations={"put"})
    faults.schedule(*[fault] * PROBES_MAX)
    with pytest.raises(StoreError, match=fault.name):
        write(faults)
    assert gateway.puts == []
    write(faults)
    assert len(gateway.probes) == 3


def test_a_process_that_may_not_write_the_probe_is_refused_and_not_in_doubt() -> None:
    with pytest.raises(AccessDenied, match=CONDITIONS_KEY):
        write(ReadOnly(Gateway(MemoryStore())))


def test_readers_try_nothing() -> None:
    memory = MemoryStore()
    write(memory)
    gateway = Gateway(memory)
    assert World(gateway).tables().table("t").get("k").value == b"value"
    assert gateway.puts == []


def test_memory_and_folders_try_nothing(tmp_path: Path) -> None:
    for store in (MemoryStore(), FileStore(tmp_path, sleep=no_sleep)):
        write(CountingStore(PrefixedStore(store, "some/")))
        assert [info.key for info in store.list("some/accel/probe/")] == []


def _write_and_count(gateway: Gateway) -> int:
    gateway.puts.clear()
    write(gateway, str(os.getpid()))
    write(gateway, f"{os.getpid()} again")
    return len(gateway.probes)


def test_a_forked_process_asks_for_itself(tmp_path: Path) -> None:
    gateway = Gateway(FileStore(tmp_path, sleep=no_sleep))
    write(gateway)
    with get_context("fork").Pool(1) as pool:
        assert pool.apply(_write_and_count, (gateway,)) == 2


def test_the_etag_that_never_holds_differs_from_the_first_character_on() -> None:
    assert hashlib.md5(CONDITIONS_BODY, usedforsecurity=False).hexdigest()[0] != STALE_ETAG[0]


def test_a_pause_follows_each_answer_without_a_verdict() -> None:
    pauses: list[float] = []
    faults = FaultStore(Gateway(MemoryStore()), operations={"put"})
    faults.schedule(Fault.CONFLICT, Fault.CONFLICT)
    Tables(faults, nonce=new_nonce, sleep=pauses.append, jitter=lambda: 1.0).create_table("t")
    assert len(pauses) == 2
