"""What docs/explanation/history.md says of states, calls and names is what the code has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import attrgetter

import pytest

from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.states import TRANSITIONS, StreamState
from accel.history.rules.values import parse_segment
from accel.history.store import HistorySettings, Stream, StreamStore
from accel.testing import MemorySegments
from loaders.store import CountingStore, MemoryStore
from tests.docs.pages import blocks, code, page_named, table_rows

PAGE = page_named("history")
SETTINGS = HistorySettings(part_epochs=2, leaf_parts=2)


def ids(text: str) -> list[int]:
    return [parse_segment(each) for each in text.split()]


def cut(text: str, *offsets: int) -> dict[int, int]:
    return dict(zip(ids(text), offsets, strict=True))


@pytest.fixture
def store() -> CountingStore:
    """A store with the stream of the picture, and some more epochs, so that its index has parts and leaves."""
    counting = CountingStore(MemoryStore())
    streams = StreamStore.open(counting, settings=SETTINGS, host=MemorySegments())
    streams.create_scope("shop")
    orders = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=2), time_ms=1_000)
    orders.scale(ids("0@0"), [(0.0, 0.25), (0.25, 0.5)], time_ms=2_000)
    orders.scale(ids("3@1 1@0"), [(0.25, 1.0)], time_ms=3_000)
    for number in range(5):
        orders.scale([orders.active_segments()[-1].id], [(0.25, 1.0)], time_ms=4_000 + number * 1_000)
    return counting


def cold(store: CountingStore) -> Stream:
    """The stream as a process sees it that has read nothing yet; requests count from here on."""
    stream = StreamStore.open(store, settings=SETTINGS, host=MemorySegments()).stream("shop", "orders")
    store.reset()
    return stream


def calls(store: CountingStore) -> int:
    return sum(each.requests for each in store.snapshot().by_operation.values())


QUESTIONS: dict[str, Callable[[Stream], object]] = {
    "current_epoch": lambda stream: stream.current_epoch(),
    "active_segments": lambda stream: stream.active_segments(),
    "epochs.epoch": lambda stream: stream.epochs.epoch(1),
    "epochs.segment": lambda stream: stream.epochs.segment(*ids("2@1")),
    "epochs.successors": lambda stream: stream.epochs.successors(*ids("0@0")),
    "epochs.predecessors": lambda stream: stream.epochs.predecessors(*ids("4@2")),
    "epochs.epoch_at": lambda stream: stream.epochs.epoch_at(2_500),
    "segments_at": lambda stream: stream.segments_at(2_500),
    "head": lambda stream: stream.truncate(cut("2@1 4@2", 0, 0)),
}


def told_calls() -> dict[str, int]:
    """How many calls the page says that a method takes, where it says a number alone."""
    rows = [row for row in table_rows(PAGE) if len(row) == 3 and code(row[1])]
    return {code(row[1])[0]: int(row[2][0]) for row in rows if row[2][0].isdigit()}


@pytest.mark.parametrize("method", [name for name in QUESTIONS if name != "head"])
def test_questions_cost_what_the_page_says(store: CountingStore, method: str) -> None:
    stream = cold(store)
    QUESTIONS[method](stream)
    assert calls(store) == told_calls()[method]


def test_the_head_costs_what_the_page_says(store: CountingStore) -> None:
    assert "| 1; 2 if it was never truncated |" in PAGE.read_text()
    never = cold(store)
    never.head()
    assert calls(store) == 2
    QUESTIONS["head"](never)
    truncated = cold(store)
    truncated.head()
    assert calls(store) == told_calls()["head"] == 1


def test_epochs_between_two_times_cost_what_the_page_says(store: CountingStore) -> None:
    stream = cold(store)
    assert len(list(stream.epochs.scales(2_500, 5_500))) == 4
    assert calls(store) <= told_calls()["epochs.scales"] + 1


def test_what_never_changes_costs_nothing_the_second_time(store: CountingStore) -> None:
    stream = cold(store)
    for method in ("epochs.epoch", "epochs.segment", "epochs.successors", "epochs.predecessors"):
        QUESTIONS[method](stream)
        store.reset()
        QUESTIONS[method](stream)
        assert calls(store) == 0, method


def test_a_split_takes_about_as_many_calls_as_the_page_says(store: CountingStore) -> None:
    told = re.search(r"A split of one segment into two takes about (\d+)", PAGE.read_text())
    assert told
    cold(store).scale(ids("2@1"), [(0.0, 0.125), (0.125, 0.25)], time_ms=60_000)
    assert calls(store) == pytest.approx(int(told[1]), abs=8)


def test_every_method_that_the_page_names_is_a_streams(store: CountingStore) -> None:
    stream = cold(store)
    rows = [row for row in table_rows(PAGE) if len(row) == 3 and row[1].startswith("`")]
    named = [name for row in rows for name in code(row[1])]
    assert len(named) >= 15
    assert all(callable(attrgetter(name)(stream)) for name in named)


def told_states() -> Iterator[tuple[str, list[str]]]:
    """Each state and where it leads: the arrows of the block that has the states."""
    [lines] = [each.text.splitlines() for each in blocks(PAGE, "text") if StreamState.SCALING.value in each.text]
    for before, after in (line.split("──►") for line in lines):
        for each in before.split(","):
            yield each.strip(), [wanted.strip() for wanted in after.split(",")]


def test_the_states_and_where_they_lead_stand_in_the_page() -> None:
    expected = {now.value: {each.value for each in wanted} for now, wanted in TRANSITIONS.items()}
    told = {now: set(wanted) for now, wanted in told_states()}
    assert told == {now: wanted for now, wanted in expected.items() if wanted}, "SEALED leads nowhere"
