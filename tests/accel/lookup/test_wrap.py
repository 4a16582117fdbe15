"""A wrapped lookup answers through the accelerator, or as before, or both ways with every difference told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from accel import Answer, AsyncReadAccelerator, ReadAccelerator, StaticImages, accelerate
from accel.errors import LookupTimedOut
from accel.lookup.shadow import Difference, Mode
from loaders.store import CountingStore, Fetched
from tests.accel.lookup.cluster import STREAM, accelerator, line_image, line_store, system
from tests.accel.lookup.driving import Clock
from tests.accel.lookup.test_accelerator import Gate

Ids = list[int]


def ids(answer: Answer) -> Ids:
    return [each.object_id for each in answer.objects]


def plain(stream_id: int, start: int, end: int, limit: int) -> Ids:
    """The broker's own lookup."""
    if stream_id != STREAM:
        raise LookupError(stream_id)
    return list(range(start // 10, -(-end // 10)))[:limit]


def wrap(one: ReadAccelerator, mode: Mode, told: list[Difference[Ids]]) -> Callable[..., Ids]:
    return accelerate(plain, one, convert=ids, mode=mode, on_difference=told.append)


def test_on_answers_through_the_accelerator_and_bypass_does_not() -> None:
    store = line_store(10)
    with accelerator(store, line_image(list(range(10)))) as one:
        assert wrap(one, "bypass", [])(STREAM, 5, 25, 9) == [0, 1, 2]
        assert store.snapshot().gets == 0
        assert wrap(one, "on", [])(STREAM, 5, 25, 9) == [0, 1, 2]
        assert store.snapshot().gets > 0


def test_a_wrapped_function_keeps_its_name() -> None:
    with accelerator(line_store(1), line_image([0])) as one:
        assert accelerate(plain, one, convert=ids).__name__ == "plain"


def test_shadow_gives_the_plain_answer_and_tells_of_differences() -> None:
    told: list[Difference[Ids]] = []
    with accelerator(line_store(10), line_image(list(range(5)))) as one:
        wrapped = wrap(one, "shadow", told)
        assert wrapped(STREAM, 0, 30, 9) == [0, 1, 2]
        assert told == []
        assert wrapped(STREAM, 0, 90, 9) == list(range(9))
        assert told == [Difference(STREAM, 0, 90, 9, list(range(9)), [0, 1, 2, 3, 4])]


def test_in_shadow_an_error_of_the_accelerator_is_told_and_never_raised() -> None:
    told: list[Difference[Ids]] = []
    with accelerator(line_store(10), line_image(list(range(10)))) as one:
        assert wrap(one, "shadow", told)(STREAM, -5, 10, 9) == [-1, 0]
        assert isinstance(told[0].accelerated, ValueError)


def test_in_shadow_nobody_suffers_from_a_failing_report(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Difference[Ids]) -> None:
        raise RuntimeError("no disk")

    with accelerator(line_store(10), line_image(list(range(5)))) as one:
        wrapped = accelerate(plain, one, convert=ids, mode="shadow", on_difference=fail)
        assert wrapped(STREAM, 0, 90, 9) == list(range(9))
    assert "on_difference failed" in caplog.text


def test_in_shadow_an_error_of_both_is_no_difference_and_the_plain_one_is_raised() -> None:
    told: list[Difference[Ids]] = []
    with accelerator(line_store(10), line_image(list(range(10)))) as one, pytest.raises(LookupError):
        wrap(one, "shadow", told)(99, 0, 10, 9)
    assert told == []


def test_an_unknown_mode_or_a_shadow_that_tells_nobody_is_refused() -> None:
    with accelerator(line_store(1), line_image([0])) as one:
        with pytest.raises(ValueError, match="mode"):
            accelerate(plain, one, convert=ids, mode="off")  # type: ignore[call-overload]  # the point of the test
        with pytest.raises(ValueError, match="on_difference"):
            accelerate(plain, one, convert=ids, mode="shadow")


class Broken(CountingStore):
    """A store that fails in a way that nobody foresaw."""

    def get_tail(self, key: str, length: int) -> Fetched:
        raise OSError(f"boom: the last {length} bytes of {key}")


def refuse(_: Answer) -> Ids:
    raise RuntimeError("a form that this broker does not have")


@pytest.mark.parametrize(
    ("store", "question", "convert"),
    [
        (Broken(line_store(10)), (STREAM, 0, 30, 9), ids),
        (line_store(10), (STREAM, -5, 10, 9), ids),
        (line_store(10), (STREAM, 0, 30, 9), refuse),
    ],
    ids=["store", "request", "convert"],
)
def test_any_error_falls_back_to_the_broker_if_told_so_and_the_log_tells_once_a_minute(
    store: CountingStore,
    question: tuple[int, int, int, int],
    convert: Callable[[Answer], Ids],
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    with accelerator(store, line_image(list(range(10)))) as one:
        wrapped = accelerate(plain, one, convert=convert, fall_back=True, system=system(clock))
        for _ in range(3):
            assert wrapped(*question) == plain(*question)
        clock.seconds = 60.0
        assert wrapped(*question) == plain(*question)
        told = [record.getMessage() for record in caplog.records if record.name == "accel.lookup.shadow"]
        assert ["(1 times" in told[0], "(3 times" in told[1], len(told)] == [True, True, 2]
        with pytest.raises((OSError, ValueError, RuntimeError)):
            accelerate(plain, one, convert=convert)(*question)


def test_the_brokers_own_error_is_raised_after_a_fall_back() -> None:
    with accelerator(line_store(10), line_image(list(range(10)))) as one, pytest.raises(LookupError):
        accelerate(plain, one, convert=ids, fall_back=True)(99, 0, 10, 9)


def test_who_finds_nothing_in_its_time_gives_no_answer_that_looks_like_a_hole() -> None:
    gate = Gate(line_store(10))
    with accelerator(gate, line_image(list(range(10)))) as one:
        try:
            hurried = accelerate(plain, one, convert=ids, deadline_seconds=0)
            with pytest.raises(LookupTimedOut, match="expected the first object from 5 on within 0 s"):
                hurried(STREAM, 5, 25, 9)
            told: list[Difference[Ids]] = []
            shadow = accelerate(plain, one, convert=ids, mode="shadow", on_difference=told.append, deadline_seconds=0)
            assert shadow(STREAM, 5, 25, 9) == [0, 1, 2]
            assert isinstance(told[0].accelerated, LookupTimedOut)
            assert accelerate(plain, one, convert=ids, fall_back=True, deadline_seconds=0)(STREAM, 5, 25, 9) == [
                0,
                1,
                2,
            ]
        finally:
            gate.opened.set()


def test_a_coroutine_function_is_sent_to_the_accelerator_for_asyncio() -> None:
    async def awaited(*question: int) -> Ids:
        return plain(*question)

    with accelerator(line_store(1), line_image([0])) as one, pytest.raises(TypeError, match="AsyncReadAccelerator"):
        accelerate(awaited, one, convert=ids)


def test_the_twin_for_asyncio_does_the_same() -> None:
    async def own(*question: int) -> Ids:
        return plain(*question)

    async def scenario() -> None:
        told: list[Difference[Ids]] = []
        store = line_store(10)
        source = StaticImages(line_image(list(range(5))))
        async with AsyncReadAccelerator(source, store, system=system()) as one:

            def wrapped_in(mode: Mode) -> Callable[..., Awaitable[Ids]]:
                return accelerate(own, one, convert=ids, mode=mode, on_difference=told.append, system=system())

            assert wrapped_in("on").__name__ == "own"
            assert await wrapped_in("bypass")(STREAM, 0, 90, 9) == list(range(9))
            assert store.snapshot().gets == 0
            assert await wrapped_in("on")(STREAM, 0, 90, 9) == [0, 1, 2, 3, 4]
            assert await wrapped_in("shadow")(STREAM, 0, 90, 9) == list(range(9))
            assert told == [Difference(STREAM, 0, 90, 9, list(range(9)), [0, 1, 2, 3, 4])]
            falling = accelerate(own, one, convert=refuse, fall_back=True)
            assert await falling(STREAM, 0, 30, 9) == [0, 1, 2]
            with pytest.raises(RuntimeError):
                await accelerate(own, one, convert=refuse)(STREAM, 0, 30, 9)
            with pytest.raises(LookupError):
                await accelerate(own, one, convert=ids, mode="shadow", on_difference=print)(99, 0, 30, 9)

    asyncio.run(scenario())


def test_a_cancelled_task_does_not_fall_back() -> None:
    asked: list[int] = []

    async def own(*question: int) -> Ids:
        asked.append(question[0])
        return []

    async def scenario() -> None:
        gate = Gate(line_store(1))
        async with AsyncReadAccelerator(StaticImages(line_image([0])), gate, system=system()) as one:
            wrapped = accelerate(own, one, convert=ids, fall_back=True)
            task = asyncio.ensure_future(wrapped(STREAM, 0, 5, 1))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.opened.set()

    asyncio.run(scenario())
    assert asked == []
