"""Histories as tables of Arrow: they say what the questions about each stream say, for few requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from accel import tables
from accel.history.rules.values import segment_text
from accel.history.store import Stream
from accel.tables import history_batches
from loaders.store import CountingStore, MemoryStore
from tests.accel.history.store.bench import NAME, START_MS, Bench
from tests.conformance.history_world import SCOPE, STREAM


def rows_of(reader: pa.RecordBatchReader) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.read_all().to_pylist()
    return found


def time_of(time_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)


@pytest.fixture
def bench() -> Bench:
    """A stream that was scaled, split and merged, committed a transaction of an older epoch, and was truncated."""
    bench = Bench()
    bench.create()
    bench.append_all(5)
    bench.stream().retention.run(bench.tick())
    bench.transaction("t")
    bench.stream().split(bench.stream().active_segments()[0].id, 3, bench.tick())
    bench.stream().commit(bench.tick())
    bench.append_all(4)
    neighbours = sorted(bench.stream().active_segments(), key=lambda each: each.key_start)[:2]
    bench.stream().merge(*(each.id for each in neighbours), time_ms=bench.tick())
    for _ in range(5):
        bench.append_all(3)
        bench.stream().retention.run(bench.tick())
        bench.scale_once()
    return bench


def last_epoch(stream: Stream) -> int:
    return stream.current_epoch().epoch


def test_epochs_are_those_of_the_history(bench: Bench) -> None:
    stream = bench.stream()
    summaries = {each.epoch: each for each in stream.epochs.scales(0, bench.now_ms)}
    rows = rows_of(tables.epochs(bench.store))
    assert [row["epoch"] for row in rows] == list(range(last_epoch(stream) + 1))
    for row in rows:
        record, summary = stream.epochs.epoch(row["epoch"]), summaries[row["epoch"]]
        assert (row["scope"], row["stream"]) == (SCOPE, STREAM)
        assert row["reference_epoch"] == record.reference_epoch
        assert row["begin_time"] == time_of(record.creation_time_ms)
        assert row["segment_count"] == len(record.segments)
        assert (row["splits"], row["merges"]) == (summary.splits, summary.merges)
    assert sum(row["splits"] for row in rows) > 0 < sum(row["merges"] for row in rows)
    assert any(row["reference_epoch"] != row["epoch"] for row in rows), "a duplicate is among them"


def test_segments_are_all_that_there_ever_were_each_once(bench: Bench) -> None:
    stream = bench.stream()
    rows = rows_of(tables.segments(bench.store))
    known = {each.id: each for epoch in range(last_epoch(stream) + 1) for each in stream.epochs.epoch(epoch).segments}
    assert sorted(row["segment_id"] for row in rows) == sorted(known)
    for row in rows:
        segment = known[row["segment_id"]]
        sealed = stream.epochs.sealed_epoch(segment.id)
        assert row["segment"] == segment_text(segment.id)
        assert row["creation_epoch"] == segment.creation_epoch
        assert row["creation_time"] == time_of(segment.creation_time_ms)
        assert (row["key_start"], row["key_end"]) == (segment.key_start, segment.key_end)
        assert row["sealed_epoch"] == sealed
        sealed_ms = None if sealed is None else time_of(stream.epochs.epoch(sealed).creation_time_ms)
        assert row["sealed_time"] == sealed_ms
        assert row["size"] == stream.cuts.sealed_size(segment.id)
        assert row["stream_id"] == stream.segment_stream(segment.id)


def test_the_last_segments_of_a_sealed_stream_have_sizes_and_no_epoch_after_their_sealing(bench: Bench) -> None:
    bench.stream().seal()
    rows = rows_of(tables.segments(bench.store))
    last = [row for row in rows if row["segment_id"] in bench.stream().active_segments().ids.tolist()]
    assert last
    assert all(row["sealed_epoch"] is row["sealed_time"] is None for row in last)
    assert all(row["size"] is not None for row in rows)


def test_cuts_are_the_recorded_ones_and_where_the_stream_begins(bench: Bench) -> None:
    stream = bench.stream()
    rows = rows_of(tables.cuts(bench.store))
    found: dict[datetime | None, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row["recording_time"], {})[row["segment_id"]] = row["offset"]
    recorded = {entry.recording_time_ms: entry for entry in stream.retention.read()}
    assert len(recorded) > 1
    expected: dict[datetime | None, dict[int, int]] = {
        time_of(time_ms): dict(stream.retention.cut(time_ms).cut) for time_ms in recorded
    }
    assert found == expected | {None: dict(stream.head())}
    for row in rows:
        is_head = row["recording_time"] is None
        assert row["kind"] == ("head" if is_head else "recorded")
        assert row["segment"] == segment_text(row["segment_id"])
    sizes = {row["recording_time"]: row["size_before"] for row in rows}
    before: dict[datetime | None, int] = {time_of(time_ms): entry.recorded_size for time_ms, entry in recorded.items()}
    assert sizes == before | {None: stream.truncation().size_till}


def test_streams_that_are_chosen_are_the_only_ones_read(bench: Bench) -> None:
    streams = bench.streams()
    for scope, name in (("scope", "other"), ("shop", "orders"), ("shop", "stream")):
        streams.create_scope(scope)
        streams.create_stream(scope, name, time_ms=START_MS)

    def names(*filters: tuple[str, str, object]) -> tuple[list[tuple[str, str]], int]:
        counted = CountingStore(bench.store)
        rows = rows_of(tables.epochs(counted, columns=["scope", "stream"], filters=filters))
        return sorted({(row["scope"], row["stream"]) for row in rows}), counted.snapshot().total.requests

    everything, most = names()
    assert everything == [("scope", "other"), NAME, ("shop", "orders"), ("shop", "stream")]
    of_shop, some = names(("scope", "=", "shop"))
    assert of_shop == everything[2:]
    one, least = names(("scope", "=", "shop"), ("stream", "in", ["orders"]))
    assert one == [("shop", "orders")]
    assert least < some < most
    assert names(("scope", "=", "nobody's"))[0] == []


def test_epochs_that_no_row_is_asked_of_are_not_read() -> None:
    bench = Bench()
    bench.create()
    for _ in range(12):
        bench.scale_once()

    def asked(low: int, high: int) -> tuple[list[dict[str, Any]], int]:
        counted = CountingStore(bench.store)
        filters = [("epoch", ">=", low), ("epoch", "<=", high)]
        return rows_of(tables.epochs(counted, filters=filters)), counted.snapshot().total.requests

    everything = rows_of(tables.epochs(bench.store))
    few, requests = asked(5, 6)
    assert few == everything[5:7]
    assert requests < asked(0, 12)[1]
    assert asked(13, 99)[0] == []
    assert asked(6, 5)[0] == []


def test_columns_that_cost_requests_are_read_only_when_asked_for(bench: Bench) -> None:
    def requests(*columns: str) -> int:
        counted = CountingStore(bench.store)
        tables.segments(counted, columns=columns).read_all()
        return counted.snapshot().total.requests

    count = len(rows_of(tables.segments(bench.store)))
    least = requests("segment", "key_start")
    assert requests("segment", "stream_id") == least + count
    assert least < requests("segment", "size") < least + count
    by_size = rows_of(tables.segments(bench.store, columns=["segment"], filters=[("size", ">", 0)]))
    assert 0 < len(by_size) < count


def test_streams_that_are_gone_or_half_created_have_no_rows(bench: Bench) -> None:
    streams = bench.streams()
    streams.create_stream(SCOPE, "gone", time_ms=START_MS)
    streams.stream(SCOPE, "gone").seal()
    streams.delete_stream(SCOPE, "gone")
    assert {row["stream"] for row in rows_of(tables.segments(bench.store))} == {STREAM}


def test_a_bucket_without_histories_has_none() -> None:
    for read in (tables.epochs, tables.segments, tables.cuts):
        assert rows_of(read(MemoryStore())) == []


def test_batches_of_small_streams_are_joined_and_those_of_large_ones_divided(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        bench.streams().create_stream(SCOPE, f"small-{number}", time_ms=START_MS)
    for read in (tables.epochs, tables.segments, tables.cuts):
        whole = read(bench.store).read_all()
        assert len(whole.to_batches()) == 1
        monkeypatch.setattr(history_batches, "BATCH_ROWS", 3)
        parts = list(read(bench.store))
        assert pa.Table.from_batches(parts).equals(whole.combine_chunks())
        assert len(parts) > 3
        monkeypatch.undo()
