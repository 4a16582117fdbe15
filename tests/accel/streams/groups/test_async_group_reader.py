"""The reader of a group for asyncio keeps what the one for threads keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from threading import Event as Signal
from typing import Any

import pytest

from accel import AsyncGroupReader, Event, GroupReader, ReaderGroup
from accel.errors import Closed, IllegalState, ReaderStalled
from accel.history.store import StreamStore
from accel.streams.rules.shares import Assignment
from loaders.store import MemoryStore
from tests.accel.streams.groups.team import NEVER_SECONDS, OFTEN_SECONDS, one_batch, written
from tests.accel.streams.reader.streams import QUICK, Shop, by_key, shop


@pytest.fixture
def orders() -> Iterator[Shop]:
    with shop(MemoryStore(), segments=3) as opened:
        yield opened


def reader(orders: Shop, group: ReaderGroup, name: str, **more: Any) -> AsyncGroupReader:
    return AsyncGroupReader(
        orders.stream, orders.source(), group, name, settings=QUICK, **{"rebalance_seconds": OFTEN_SECONDS, **more}
    )


def test_tasks_share_a_stream_through_a_scale(orders: Shop) -> None:
    written(orders, 60)
    orders.split()
    written(orders, 60)
    group = ReaderGroup.open(orders.stream, "team")

    given: list[Event] = []

    async def read(name: str) -> None:
        async with reader(orders, group, name, follow=False) as member:
            async for event in member:
                given.append(event)  # noqa: PERF401 - events of the tasks in the order in which they came

    async def all_of_them() -> None:
        await asyncio.gather(*map(read, "abc"))

    asyncio.run(all_of_them())
    assert by_key(given) == orders.written
    assert group.state().readers == ()


def test_what_was_not_committed_is_given_again(orders: Shop) -> None:
    one_batch(orders, *(b"0:%d" % number for number in range(6)))
    group = ReaderGroup.open(orders.stream, "team")

    async def read(name: str, count: int, commits_at: int, **more: Any) -> list[bytes]:
        found: list[bytes] = []
        async with reader(orders, group, name, **more) as member:
            while len(found) < count:
                found.append((await anext(member)).payload)
                if len(found) == commits_at:
                    await member.commit()
        return found

    assert asyncio.run(read("a", 4, 2, auto_commit=False)) == [b"0:0", b"0:1", b"0:2", b"0:3"]
    assert asyncio.run(read("b", 3, 0)) == [b"0:2", b"0:3", b"0:4"]
    assert asyncio.run(read("c", 2, 2)) == [b"0:4", b"0:5"]


def test_a_batch_a_commit_that_is_due_and_an_end(orders: Shop) -> None:
    one_batch(orders, b"0:1", b"0:2")
    orders.stream.seal()
    orders.catalog.refresh()
    group = ReaderGroup.open(orders.stream, "team")

    async def read() -> None:
        async with reader(orders, group, "a", auto_commit=False) as member:
            batch = await member.next_batch(timeout_seconds=20)
            assert [event.payload for event in batch or ()] == [b"0:1", b"0:2"]
            assert await member.next_batch() is None
            with pytest.raises(ReaderStalled, match="expected a commit"):
                await anext(member)
            await member.commit()
            assert [event async for event in member] == []
            assert member.is_finished

    asyncio.run(read())


def test_one_that_is_declared_offline_is_told_so_and_joins_again(orders: Shop) -> None:
    one_batch(orders, b"0:1")
    group = ReaderGroup.open(orders.stream, "team")

    async def read() -> None:
        async with reader(orders, group, "a", rebalance_seconds=NEVER_SECONDS) as member:
            assert (await anext(member)).payload == b"0:1"
            await asyncio.to_thread(group.reader_offline, "a")
            with pytest.raises(IllegalState, match="join again"):
                await member.rebalance()
            await member.leave()
            assert dict(member.position()) == {}
            assert (await anext(member)).payload == b"0:1"
            assert await member.skip_to_head() == member.position()

    asyncio.run(read())


class Slow(ReaderGroup):
    """A group whose `rebalance` waits until it is let go."""

    asked, may_answer = Signal(), Signal()
    calls = 0

    def rebalance(self, reader: str, positions: Mapping[int, int], lag: int | None, **more: Any) -> Assignment:
        self.calls += 1
        self.asked.set()
        self.may_answer.wait(20)
        return super().rebalance(reader, positions, lag, **more)


def test_a_task_that_is_cancelled_while_the_group_is_asked_misses_nothing(orders: Shop) -> None:
    one_batch(orders, b"0:1", b"0:2")
    group = Slow.open(orders.stream, "team")
    assert isinstance(group, Slow)

    async def read() -> list[bytes]:
        async with reader(orders, group, "a", rebalance_seconds=NEVER_SECONDS) as member:
            task = asyncio.ensure_future(anext(member))
            await asyncio.to_thread(group.asked.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            again = asyncio.ensure_future(anext(member))
            await asyncio.sleep(0)
            assert group.calls == 1, "the call that is under way is waited for first"
            group.may_answer.set()
            return [(await again).payload, (await anext(member)).payload]

    assert asyncio.run(read()) == [b"0:1", b"0:2"]


def test_both_readers_take_the_same_choices() -> None:
    choices: list[Callable[..., object]] = [GroupReader, AsyncGroupReader]
    assert len({str(signature(each)) for each in choices}) == 1
    public = [{name for name in dir(each) if not name.startswith("_")} for each in (GroupReader, AsyncGroupReader)]
    assert public[0] == public[1]


def test_a_reader_whose_stream_was_deleted_is_closed_without_an_error(orders: Shop) -> None:
    written(orders, 3)

    async def run() -> None:
        async with reader(orders, ReaderGroup.open(orders.stream, "team"), "a") as member:
            assert await member.next_event() is not None
            await asyncio.to_thread(orders.stream.seal)
            streams = StreamStore.open(orders.store, host=orders.host)
            await asyncio.to_thread(streams.delete_stream, *orders.stream.name.split("/"))
        with pytest.raises(Closed):
            await member.next_event()

    asyncio.run(run())
