"""The reader of a group for asyncio keeps what the one for threads keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from inspect import signature
from threading import Event as Signal
from typing import Any

import pytest

from accel import AsyncGroupReader, Event, GroupReader, ReaderGroup
from accel.streams.rules.shares import Assignment
from tests.accel.streams.groups.team import NEVER_SECONDS, OFTEN_SECONDS, one_batch, written
from tests.accel.streams.reader.streams import QUICK, Shop, by_key


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
