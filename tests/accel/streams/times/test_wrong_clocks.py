"""A clock that is wrong for a moment: times of events that follow are right, except in the segment that it wrote."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import accel
from accel.history.rules.values import segment_text
from accel.history.store import Stream
from accel.streams.connection import Connection
from accel.system import SYSTEM, Components
from accel.testing import ClockStore
from loaders.store import MemoryStore

if TYPE_CHECKING:
    from loaders.store import ObjectStore

DAY_SECONDS = 86_400.0
YEAR_SECONDS = 365 * DAY_SECONDS
KEYS = (b"anna", b"carl")
"""Of the upper and of the lower one of two segments."""


class Host:
    """A machine, whose clock may be ahead."""

    def __init__(self, *, has_date: bool) -> None:
        self.ahead_seconds = 0.0
        memory = MemoryStore()
        self.store: ObjectStore = ClockStore(memory, SYSTEM.clock) if has_date else memory

    def system(self) -> Components:
        return replace(SYSTEM, clock=lambda: SYSTEM.clock() + self.ahead_seconds)

    def connect(self) -> Connection:
        """A new process."""
        return accel.connect(self.store, create=True, system=self.system())


def write(connection: Connection, *keys: bytes, name: str = "orders") -> None:
    """Write an event for each key."""
    with connection.writer("shop", name) as writer:
        for key in keys:
            writer.write(key, key=key)


def ahead_by_segment(connection: Connection, name: str = "orders") -> dict[int, list[float]]:
    """How far the times of a stream's events are ahead of now, in seconds, by segment."""
    connection.accelerator.refresh()
    found: dict[int, list[float]] = defaultdict(list)
    now_seconds = SYSTEM.clock()
    with connection.reader("shop", name) as reader:
        for event in reader:
            found[event.segment_id].append(event.value / 1000 - now_seconds)
    return dict(found)


def made(connection: Connection) -> Stream:
    """Two streams of two segments, with an event in each segment."""
    connection.create_scope("shop")
    for name in ("orders", "carts"):
        connection.create_stream("shop", name, segments=2)
    write(connection, *KEYS)
    return connection.stream("shop", "orders")


@pytest.mark.parametrize("ahead", [DAY_SECONDS, YEAR_SECONDS, -DAY_SECONDS, -YEAR_SECONDS])
def test_on_a_store_with_a_clock_the_hosts_clock_is_of_no_matter(ahead: float) -> None:
    host = Host(has_date=True)
    with host.connect() as connection:
        made(connection)
        host.ahead_seconds = ahead
        write(connection, *KEYS)
        with host.connect() as other:  # a process that begins with the wrong clock
            write(other, *KEYS, name="carts")
        host.ahead_seconds = 0.0
        write(connection, *KEYS)
        for name in ("orders", "carts"):
            assert all(abs(each) < 60 for values in ahead_by_segment(connection, name).values() for each in values)


def test_a_time_that_was_stored_in_the_future_raises_its_own_segment_only(caplog: pytest.LogCaptureFixture) -> None:
    host = Host(has_date=False)
    with host.connect() as connection:
        made(connection)
        host.ahead_seconds = DAY_SECONDS
        write(connection, KEYS[0])
        host.ahead_seconds = 0.0
        write(connection, *KEYS)
        write(connection, *KEYS, name="carts")
    with host.connect() as connection:
        write(connection, *KEYS)
        write(connection, *KEYS, name="carts")
        found = ahead_by_segment(connection)
        assert sorted(max(values) > 3600 for values in found.values()) == [False, True]
        assert all(max(values) < 60 for values in ahead_by_segment(connection, "carts").values())
        with connection.writer("shop", "orders") as writer:
            transaction = writer.begin_transaction()
            for key in KEYS:
                writer.write(key, key=key, transaction=transaction)
            writer.commit_transaction(transaction)
        found = ahead_by_segment(connection)
        assert all(earlier <= later for each in found.values() for earlier, later in pairwise(each))
        assert sorted(max(values) > 3600 for values in found.values()) == [False, True]
        named = [each.getMessage() for each in caplog.records if "wrong clock" in each.getMessage()]
        poisoned = next(segment_id for segment_id, values in found.items() if max(values) > 3600)
        stream = connection.stream("shop", "orders")
        assert {segment_text(poisoned) in each and "shop/orders" in each for each in named} == {True}
        stream.split(poisoned)  # puts it right: its successors begin now
        write(connection, *KEYS)
        new = {each: values for each, values in ahead_by_segment(connection).items() if each not in found}
        assert new
        assert all(abs(each) < 60 for values in new.values() for each in values)
