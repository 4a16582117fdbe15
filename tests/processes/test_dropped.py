"""Objects that are dropped without `close`: what they held is given back, and nothing grows with their number."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import accel
from accel import ObjectCatalog, ReadAccelerator
from accel.errors import OwnerUnreachable
from accel.streams.connection import Connection
from accel.streams.shared.owners import Registration
from loaders.store import MemoryStore, ObjectStore
from tests.processes.children import in_child

WAIT_SECONDS = 60.0
IDLE = "accel-idle"


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    made = MemoryStore()
    gc.collect()
    gc.disable()  # so that the test collects
    BEFORE.clear()
    BEFORE.update(each for each in threading.enumerate() if each.name != IDLE)
    with accel.connect(made, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=1)
    yield made
    gc.enable()


BEFORE: set[threading.Thread] = set()
"""The threads before the test."""


def ours() -> list[threading.Thread]:
    """The threads of Accel that work since the test began."""
    now = [each for each in threading.enumerate() if each.name.startswith("accel-") and each.name != IDLE]
    return [each for each in now if each not in BEFORE]


def until(is_so: Callable[[], bool]) -> bool:
    """Whether something becomes so: the work of threads may end a moment later."""
    for _ in range(1_000):
        if is_so():
            return True
        threading.Event().wait(0.01)
    return False


def live() -> int:
    gc.collect()
    return sum(type(each).__name__ in ("Connection", "ReadAccelerator") for each in gc.get_objects())


def dropped(*, warns: str = "") -> list[str]:
    """Collect until the threads of what was dropped have ended, and return the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(1_000):
            gc.collect()  # again: a thread that has just stored events holds their writer for a moment
            if not ours():
                break
            threading.Event().wait(0.01)
    return [str(each.message) for each in caught if each.category is ResourceWarning and warns in str(each.message)]


def write(streams: Connection, payload: bytes) -> None:
    streams.writer("shop", "orders").write(payload, key="anna").result(WAIT_SECONDS)


def payloads(store: ObjectStore) -> list[bytes]:
    with accel.connect(store) as streams, streams.reader("shop", "orders") as reader:
        return [event.payload for event in reader]


def test_the_next_connection_writes_at_once_after_one_was_dropped(store: ObjectStore) -> None:
    streams = accel.connect(store)
    write(streams, b"1")
    del streams
    assert [each.partition(" was dropped")[0] for each in dropped()] == [f"Connection({store!r})"]
    with accel.connect(store) as after:
        write(after, b"2")
    assert payloads(store) == [b"1", b"2"]
    assert until(lambda: not ours())


def test_the_next_connection_collects_what_was_dropped_by_itself(store: ObjectStore) -> None:
    with warnings.catch_warnings(action="ignore"):
        for payload in (b"1", b"2", b"3"):
            streams = accel.connect(store)
            write(streams, payload)
            del streams
    assert payloads(store) == [b"1", b"2", b"3"]
    dropped()


def test_connections_that_only_read_are_dropped_without_a_word(store: ObjectStore) -> None:
    streams = accel.connect(store)
    reader = streams.reader("shop", "orders")
    assert list(reader) == []
    del streams, reader
    assert dropped() == []


def test_dropping_many_leaves_no_thread_and_no_object(store: ObjectStore) -> None:
    before = live()
    for number in range(5):
        streams = accel.connect(store)
        write(streams, b"%d" % number)
        accelerator = ReadAccelerator(ObjectCatalog.open(store).images(), store)
        accelerator.refresh()
        del streams, accelerator
        dropped()
    assert until(lambda: not ours())
    assert live() <= before


@pytest.mark.parametrize("keep", ["writer", "stream", "transaction"])
def test_what_a_user_keeps_keeps_its_connection(store: ObjectStore, keep: str) -> None:
    streams = accel.connect(store)
    kept: list[Any] = []
    if keep == "stream":
        kept.append(streams.stream("shop", "orders"))
        write(streams, b"0")
    else:
        kept.append(streams.writer("shop", "orders"))
    del streams
    gc.collect()
    if keep == "stream":
        kept[0].carry_out_requests()
    elif keep == "transaction":
        transaction = kept[0].begin_transaction()
        gc.collect()
        kept[0].write(b"0", key="anna", transaction=transaction)
        kept[0].commit_transaction(transaction)
    else:
        kept[0].write(b"0", key="anna").result(WAIT_SECONDS)
    assert payloads(store) == [b"0"]
    kept.clear()
    assert len(dropped()) == 1


def test_a_writer_for_tasks_keeps_its_connection(store: ObjectStore) -> None:
    async def write_later() -> None:
        writer = await accel.connect(store)._for_tasks.writer("shop", "orders")
        gc.collect()
        await (await writer.write(b"0", key="anna"))

    asyncio.run(write_later())
    assert payloads(store) == [b"0"]
    assert len(dropped()) == 1


def test_events_that_wait_are_stored_before_their_connection_is_given_up(store: ObjectStore) -> None:
    streams = accel.connect(store)
    futures = [streams.writer("shop", "orders").write(b"%d" % number, key="anna") for number in range(20)]
    del streams
    gc.collect()
    for future in futures:
        future.result(WAIT_SECONDS)
    del futures, future
    dropped()
    assert len(payloads(store)) == 20


def test_a_dropped_reader_leaves_nothing_and_a_running_iterator_keeps_its_reader(store: ObjectStore) -> None:
    with accel.connect(store) as streams:
        write(streams, b"1")
        write(streams, b"2")
    events = iter(accel.connect(store).reader("shop", "orders"))
    gc.collect()
    assert [next(events).payload, next(events).payload] == [b"1", b"2"]
    del events
    dropped()
    assert until(lambda: not ours())


def test_what_could_not_be_given_back_is_logged(
    store: ObjectStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(registration: Registration) -> None:
        registration.stop()
        raise OSError("no answer")

    monkeypatch.setattr(Registration, "end", refuse)
    streams = accel.connect(store)
    write(streams, b"1")
    del streams
    with caplog.at_level(logging.WARNING):
        dropped()
        assert until(lambda: any("could not be closed" in each for each in caplog.messages))


def test_a_forked_child_that_drops_a_connection_gives_nothing_back(store: ObjectStore) -> None:
    held = [accel.connect(store)]
    write(held[0], b"1")

    def drop() -> int:
        held.clear()
        return len(dropped())

    assert in_child(drop) == 0
    write(held[0], b"2")
    held[0].close()
    assert payloads(store) == [b"1", b"2"]


def test_the_error_of_a_segment_of_another_connection_says_that_it_is_in_this_process(store: ObjectStore) -> None:
    with accel.connect(store) as first, accel.connect(store) as second:
        write(first, b"1")
        writer = second.writer("shop", "orders")
        writer.write(b"2", key="anna")
        with pytest.raises(OwnerUnreachable, match="another connection of this process: close it"):
            writer.flush()
        second.stop()


def test_nothing_grows_with_readers_and_groups_that_were_closed(store: ObjectStore) -> None:
    with accel.connect(store) as streams:
        write(streams, b"1")
        counts = []
        for _ in range(3):
            for number in range(20):
                with streams.reader("shop", "orders") as reader:
                    next(reader)
                with streams.group_reader("shop", "orders", "billing", f"r{number % 2}", follow=False) as member:
                    member.next_batch(timeout_seconds=0)
            gc.collect()
            kinds = ("StreamReader", "GroupReader", "Threads", "ObjectSegmentSource")
            counts.append(sum(type(each).__name__ in kinds for each in gc.get_objects()))
        assert max(counts) < counts[0] + 10, "found more for each of 40 readers of a round"
