"""What docs/explanation/order.md and some docstrings say of settings, rules and calls is what the code has."""

from __future__ import annotations

import dataclasses
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
from accel.catalog.records import STREAMS_AN_OBJECT_MAX
from accel.history.rules.configuration import StreamConfiguration
from accel.history.store import StreamStore
from accel.streams.rules.group_state import READERS_MAX
from accel.streams.rules.membership import REBALANCE_SECONDS
from accel.streams.rules.settings import ReaderSettings
from accel.streams.rules.transaction_data import SIZE_BYTES_MAX
from accel.streams.settings import SegmentsSettings, StreamWriterSettings
from accel.testing import MemorySegments
from loaders.store import CountingStore, MemoryStore
from tests.docs.pages import page_named, table_rows

PAGE = page_named("order")
TEXT = " ".join(PAGE.read_text().split())
ROWS = table_rows(PAGE)


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


def test_limits_are_those_of_the_code() -> None:
    limits = {row[0]: row[1] for row in ROWS if len(row) == 2}
    assert limits["the data of a transaction"].startswith(f"{SIZE_BYTES_MAX >> 30} GiB")
    assert limits["segments in one object, or transaction"] == f"{STREAMS_AN_OBJECT_MAX:,}"
    assert limits["readers of a group"] == f"{READERS_MAX:,}"
    kept = SegmentsSettings()
    days = kept.writer_idle_seconds / 86_400
    assert limits["writers with ids that a segment remembers"] == f"{kept.writers_max:,}, for {days:g} days"


def test_defaults_of_settings_are_those_of_the_code() -> None:
    told = re.findall(r"`([a-z_]+)` \(([\d.]+)(?: (ms|MiB))?\)", TEXT)
    defaults: dict[str, float] = {"rebalance_seconds": REBALANCE_SECONDS}
    for settings in (ReaderSettings(), SegmentsSettings(), StreamWriterSettings()):
        defaults |= {each.name: getattr(settings, each.name) for each in dataclasses.fields(settings)}
    units = {"": 1.0, "ms": 0.001, "MiB": 1 << 20}
    assert len(told) >= 8
    assert [name for name, number, unit in told if float(number) * units[unit] != defaults[name]] == []
    assert "memory: 64 MiB of a host, 64 MiB of open transactions of a writer" in TEXT
    assert SegmentsSettings().waiting_bytes_max == StreamWriterSettings().transactions_bytes_max == 64 << 20
