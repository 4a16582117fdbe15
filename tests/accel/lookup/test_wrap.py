"""A wrapped lookup answers through the accelerator, or as before, or both ways with every difference told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accel import Answer, ReadAccelerator, accelerate
from accel.lookup.shadow import Difference, Mode
from tests.accel.lookup.cluster import STREAM, accelerator, line_image, line_store

Ids = list[int]


def ids(answer: Answer) -> Ids:
    return [each.object_id for each in answer.objects]


def plain(stream_id: int, start: int, end: int, limit: int) -> Ids:
    """The broker's own lookup."""
    if stream_id != STREAM:
        raise LookupError(stream_id)
    return list(range(start // 10, -(-end // 10)))[:limit]


def wrap(one: ReadAccelerator, mode: Mode | Callable[[], Mode], told: list[Difference[Ids]]) -> Callable[..., Ids]:
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


def test_the_mode_can_be_switched_while_running() -> None:
    modes: list[Mode] = ["bypass", "on"]
    with accelerator(line_store(10), line_image(list(range(5)))) as one:
        wrapped = wrap(one, modes.pop, [])
        assert wrapped(STREAM, 0, 90, 9) == [0, 1, 2, 3, 4]  # on: the image lists five
        assert wrapped(STREAM, 0, 90, 9) == list(range(9))


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
    assert "telling of a difference failed" in caplog.text


def test_in_shadow_an_error_of_both_is_no_difference_and_the_plain_one_is_raised() -> None:
    told: list[Difference[Ids]] = []
    with accelerator(line_store(10), line_image(list(range(10)))) as one, pytest.raises(LookupError):
        wrap(one, "shadow", told)(99, 0, 10, 9)
    assert told == []


def test_an_unknown_mode_or_a_shadow_that_tells_nobody_is_refused() -> None:
    with accelerator(line_store(1), line_image([0])) as one:
        with pytest.raises(ValueError, match="mode"):
            accelerate(plain, one, convert=ids, mode="off")  # type: ignore[arg-type]  # the point of the test
        with pytest.raises(ValueError, match="on_difference"):
            accelerate(plain, one, convert=ids, mode="shadow")
