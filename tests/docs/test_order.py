"""What docs/explanation/order.md and some docstrings say of settings, rules and calls is what the code has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from accel import (
    FormatRecord,
    MetadataImage,
    ObjectCatalog,
    ObjectSegments,
    ObjectSegmentSource,
    ReadAccelerator,
    ReaderGroup,
    StaticImages,
    Stream,
    StreamReader,
    StreamWriter,
)
from accel.history.rules.configuration import StreamConfiguration
from accel.history.store import StreamStore
from accel.testing import MemorySegments
from loaders.store import CountingStore, MemoryStore
from tests.docs.pages import page_named

PAGE = page_named("order")
TEXT = " ".join(PAGE.read_text().split())


@contextmanager
def group_calls() -> Iterator[tuple[ReaderGroup, Callable[[], int]]]:
    """A group of a stream with two segments, and what counts the calls since it was asked last."""
    store = CountingStore(MemoryStore())
    host = MemorySegments()
    streams = StreamStore.open(store, host=host)
    streams.create_scope("shop")
    orders = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=1), time_ms=1_000, segments=2)
    for number in range(2):
        host.append(orders.parts.name, number, 9)

    def calls() -> int:
        found = sum(each.requests for each in store.snapshot().by_operation.values())
        store.reset()
        return found

    calls()
    group = ReaderGroup.open(orders, "billing")
    assert calls() <= sum(told_calls(ReaderGroup.open))
    orders.truncate({0: 5, 1: 0})
    calls()
    yield group, calls


def told_calls(method: Callable[..., object]) -> list[int]:
    """The numbers of calls that the docstring of a method has."""
    found = re.findall(r"\b(\d+)(?= (?:calls?|if|more)\b)", inspect.getdoc(method) or "")
    assert found, method
    return [int(each) for each in found]


def test_calls_of_a_group_cost_what_their_docstrings_say() -> None:
    with group_calls() as (group, calls):
        group.join("one")
        assert calls() == told_calls(ReaderGroup.join)[0]
        group.rebalance("one", {}, 0)
        assert calls() == told_calls(ReaderGroup.rebalance)[0]
        group.rebalance("one", {0: 0, 1: 0}, 0)
        assert calls() == told_calls(ReaderGroup.rebalance)[1]
        group.finish("one", 1, (), offset=7)
        assert calls() == told_calls(ReaderGroup.finish)[0]
        group.position()
        assert calls() == told_calls(ReaderGroup.position)[0]
        group.skip_to_head()
        assert calls() == told_calls(ReaderGroup.skip_to_head)[0]
        group.leave("one", {0: 5})
        assert calls() == told_calls(ReaderGroup.leave)[0]


@pytest.fixture
def written() -> Iterator[tuple[CountingStore, Stream, ObjectSegments]]:
    """A stream of 16 segments, as a process sees it that knows it already."""
    store = CountingStore(MemoryStore())
    ObjectCatalog.init(store, FormatRecord(namespace="reading", stream_buckets=8))
    with ObjectCatalog.open(store) as catalog, ObjectSegments(catalog, store, node_id=4) as host:
        streams = StreamStore.open(store, host=host)
        streams.create_scope("shop")
        yield store, streams.create_stream("shop", "orders", StreamConfiguration(min_segments=1), segments=16), host


def test_a_flush_is_two_writes_whatever_the_number_of_segments(
    written: tuple[CountingStore, Stream, ObjectSegments],
) -> None:
    store, orders, host = written
    with StreamWriter(orders, host) as writer:
        for number in range(3):
            writer.write_many([(b"an order", f"customer {each}") for each in range(200)])
            if number:
                store.reset()
            writer.flush()
        by_operation = store.snapshot().by_operation
    assert {name: each.requests for name, each in by_operation.items() if each.requests} == {"put": 2}
    assert "A writer's flush is 2 PUTs" in TEXT


def test_making_a_reader_costs_what_the_page_says(written: tuple[CountingStore, Stream, ObjectSegments]) -> None:
    store, _, _ = written
    assert "| making a reader | 2 table calls at the head; with cuts, [1 or more]" in TEXT
    accelerator = ReadAccelerator(StaticImages(MetadataImage.from_dict({"streams": []})), store)
    with accelerator:
        for cut, calls in ((None, 2), (dict.fromkeys(range(16), 0), 1)):
            cold = StreamStore.open(store).stream("shop", "orders")
            store.reset()
            StreamReader(cold, ObjectSegmentSource(cold, accelerator, store), from_cut=cut).close()
            assert sum(each.requests for each in store.snapshot().by_operation.values()) == calls
