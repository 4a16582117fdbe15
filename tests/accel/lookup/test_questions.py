"""What cannot be asked is refused in words, by each way of asking; and a range of no offsets holds no records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import Answer, Ending, MetadataImage, ReadAccelerator, Request, StaticImages, UnknownStream, accelerate
from accel.errors import InvalidRequest
from accel.image import OPEN_END
from loaders.store import CountingStore
from tests.accel.lookup.cluster import STREAM, Awaited, accelerator, line_image, line_store
from tests.examples import examples

OBJECTS, LENGTH = 3, 10
IMAGE = line_image(list(range(OBJECTS)))

NO_TIME = "expected a number of seconds of at least 0 as deadline_seconds"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a stream as text": ({"stream_id": str(STREAM)}, "expected an integer as stream_id, found '7'"),
    "no stream": ({"stream_id": None}, "expected an integer as stream_id, found None"),
    "no start": ({"start": None}, "expected an integer as start, found None"),
    "a start with a fraction": ({"start": 1.5}, "expected an integer as start, found 1.5"),
    "no end": ({"end": None}, "expected an integer as end, found None"),
    "an end as text": ({"end": "20"}, "expected an integer as end, found '20'"),
    "no limit": ({"limit": None}, "expected an integer as limit, found None"),
    "a negative limit": ({"limit": -1}, "expected a limit of at least 0, found -1"),
    "negative rounds": (
        {"max_fill_rounds": -1},
        "expected max_fill_rounds of at least 0, or None for no bound, found -1",
    ),
    "rounds as text": ({"max_fill_rounds": "1"}, "expected an integer as max_fill_rounds, found '1'"),
    "a negative deadline": ({"deadline_seconds": -1}, f"{NO_TIME}, found -1"),
    "a deadline as text": ({"deadline_seconds": "1"}, f"{NO_TIME}, found '1'"),
    "a deadline that is no number": ({"deadline_seconds": float("nan")}, f"{NO_TIME}, found nan"),
}
GOOD: dict[str, Any] = {"stream_id": STREAM, "start": 5, "end": 25, "limit": 4}


def many(one: Any, asked: dict[str, Any]) -> Any:
    """A call of many, of this request alone; the error that stands for an answer is raised."""
    rest = dict(asked)
    seconds = rest.pop("deadline_seconds", None)
    [outcome] = one.get_objects_many([Request(**rest)], deadline_seconds=seconds)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


WAYS: dict[str, Callable[[Any, dict[str, Any]], object]] = {
    "get_objects": lambda one, asked: one.get_objects(**asked),
    "explain": lambda one, asked: one.explain(**asked),
    "get_objects_many": many,
}


@pytest.fixture(scope="module", params=[ReadAccelerator, Awaited], ids=["threads", "asyncio"])
def either(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An accelerator of either driver."""
    with accelerator(line_store(OBJECTS), IMAGE, driver=request.param) as one:
        yield one


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_argument_is_refused_with_what_was_expected(way: str, wrong: str, either: Any) -> None:
    changed, text = WRONG[wrong]
    with pytest.raises(InvalidRequest) as refused:
        WAYS[way](either, GOOD | changed)
    assert str(refused.value).startswith(text)
    assert not isinstance(refused.value, UnknownStream)


@pytest.mark.parametrize("way", WAYS)
def test_numbers_of_numpy_are_numbers(way: str, either: Any) -> None:
    asked = {name: np.int64(value) for name, value in GOOD.items()}
    assert WAYS[way](either, asked | {"deadline_seconds": np.float64(5), "max_fill_rounds": np.int64(2)}) is not None


def test_what_memory_would_answer_is_refused_as_well() -> None:
    with accelerator(line_store(OBJECTS), IMAGE) as one:
        one.get_objects(**GOOD)
        with pytest.raises(InvalidRequest, match="found -1"):
            one.get_objects(**GOOD, deadline_seconds=-1)


def test_one_wrong_request_of_many_fails_alone() -> None:
    with accelerator(line_store(OBJECTS), IMAGE) as one:
        wrong: Any = Request("7", 0)  # type: ignore[arg-type]  # that is what is tested
        refused, answer = one.get_objects_many([wrong, Request(STREAM, 0)])
        assert isinstance(refused, InvalidRequest)
        assert isinstance(answer, Answer)


def test_no_time_at_all_gives_what_memory_proves() -> None:
    with accelerator(line_store(OBJECTS), IMAGE) as one:
        whole = one.get_objects(**GOOD)
        assert one.get_objects(**GOOD, deadline_seconds=0).objects == whole.objects


@pytest.mark.parametrize("changed", [{"start": "5"}, {"end": None}, {"timeout_seconds": -0.5}])
def test_a_fetch_refuses_the_same(changed: dict[str, Any], either: Any) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        either.fetch(**GOOD | {"timeout_seconds": 0.0} | changed)


@pytest.mark.parametrize("changed", [{"stream_id": str(STREAM)}, {"start": None}, {"end": None}])
def test_a_read_refuses_the_same(changed: dict[str, Any], either: Any) -> None:
    with pytest.raises(InvalidRequest, match="expected an integer"):
        list(either.read(**{"stream_id": STREAM, "start": 5, "end": 25} | changed))


def test_a_wrapped_lookup_is_not_made_with_a_negative_time() -> None:
    def plain(stream_id: int, start: int, end: int, limit: int) -> None: ...

    async def plain_awaited(stream_id: int, start: int, end: int, limit: int) -> None: ...

    class Double:
        """Stands for an accelerator, and is never called."""

    doubled = Double()
    made: Any = accelerate
    for broker in (plain, plain_awaited):
        with pytest.raises(InvalidRequest, match="of at least 0 as deadline_seconds, found -1"):
            made(broker, doubled, convert=id, deadline_seconds=-1, fall_back=True)


# -- ranges of no offsets ----------------------------------------------------------------------------------------------


def read_gets(store: CountingStore) -> int:
    return store.snapshot().gets


@settings(max_examples=examples(60))
@given(st.integers(0, OBJECTS * LENGTH + 5), st.integers(0, 12), st.booleans())
def test_a_read_gives_the_batches_that_share_an_offset_with_its_range_and_no_offsets_share_none(
    start: int, length: int, warm: bool
) -> None:
    store = line_store(OBJECTS, length=LENGTH)
    with accelerator(store, IMAGE) as one:
        whole = [(each.base_offset, each.end_offset) for each in one.read(STREAM, 0)]
    assert whole[-1][1] == OBJECTS * LENGTH
    with accelerator(store, IMAGE) as one:
        if warm:
            list(one.read(STREAM, 0))
        store.reset()
        end = start + length
        reading = one.read(STREAM, start, end)
        given_out = [(each.base_offset, each.end_offset) for each in reading]
        assert given_out == [(first, last) for first, last in whole if first < end and start < last and length]
        if not length:
            assert (reading.ending, reading.next_offset, read_gets(store)) == (Ending.END, start, 0)


def test_a_range_of_no_offsets_is_still_checked() -> None:
    with accelerator(line_store(OBJECTS), IMAGE) as one:
        with pytest.raises(InvalidRequest, match="start of at least 0"):
            list(one.read(STREAM, -5, -5))
        with pytest.raises(UnknownStream):
            list(one.read(STREAM + 1, 5, 5))


def test_a_stream_of_a_newer_image_may_be_read_by_no_offsets() -> None:
    source = StaticImages(MetadataImage(0, IMAGE.namespace, {}, {}))
    with accelerator(line_store(OBJECTS), source) as one:
        source.push(line_image([0, 1], version=1))
        reading = one.read(STREAM, 5, 5)
        assert (list(reading), reading.ending) == ([], Ending.END)


def test_the_objects_of_a_range_of_no_offsets_are_those_that_cover_it() -> None:
    with accelerator(line_store(OBJECTS), IMAGE) as one:
        assert [each.object_id for each in one.get_objects(STREAM, 15, 15).objects] == [1]


def test_open_is_no_empty_range() -> None:
    with accelerator(line_store(OBJECTS), IMAGE) as one:
        assert list(one.read(STREAM, 5, OPEN_END))
