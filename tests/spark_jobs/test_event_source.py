"""Events as a source of Spark: batches are those of the reader; a streaming query has each event once, and in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

import accel
from accel import tables
from accel.errors import InvalidArgument, PositionTruncated, StreamDeleted
from accel.streams.connection import Connection
from accel.streams.writer import StreamWriter
from loaders.store import CountingStore
from spark_jobs.event_source import EventStreamReader
from spark_jobs.source import SourceOptions
from spark_jobs.tasks import StoreSpec
from tests.spark_jobs.clusters import HANG_SECONDS, environment_of_spark
from tests.spark_jobs.killed_query import written_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 5
Rows = list[tuple[str, int, bytes]]


class Orders:
    """A stream of two segments with a writer.

    Attributes:
        written: of each key, the payloads in order.
    """

    def __init__(self, streams: Connection, bucket: StoreSpec) -> None:
        self.streams, self.bucket = streams, bucket
        streams.create_scope("shop")
        self.stream = streams.create_stream("shop", "orders", segments=2)
        self.writer: StreamWriter = streams.writer("shop", "orders")
        self.written: dict[int, list[bytes]] = {key: [] for key in range(KEYS)}
        self.count = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            key, payload = self.count % KEYS, b"%d:%d" % (self.count % KEYS, self.count)
            self.writer.write(payload, key=str(key))
            self.written[key].append(payload)
            self.count += 1
        self.writer.flush()

    def options(self, **more: str) -> dict[str, str]:
        return {"table": "events", "scope": "shop", "stream": "orders", **more}

    def load(self, spark: SparkSession, **more: str) -> DataFrame:
        return spark.read.format("streamset").options(**self.options(**more)).load(self.bucket.url)

    def follow(self, spark: SparkSession, **more: str) -> DataFrame:
        return spark.readStream.format("streamset").options(**self.options(**more)).load(self.bucket.url)


@pytest.fixture
def orders(bucket: StoreSpec) -> Iterator[Orders]:
    with accel.connect(bucket.url, create=True) as streams:
        yield Orders(streams, bucket)


def test_a_frame_has_the_events_of_the_table_in_as_many_tasks_as_the_option_says(
    spark: SparkSession, orders: Orders
) -> None:
    orders.write(50)
    cut = '{"0@0": 3, "1@0": 0}'
    orders.stream.split("0@0")
    orders.write(50)
    everything = orders.load(spark, **{"offsets-per-task": "30"})
    assert everything.rdd.getNumPartitions() == 4
    expected = tables.events(orders.streams.store, "shop", "orders").read_all()
    assert everything.toArrow().cast(expected.schema).equals(expected)
    part = orders.load(spark, **{"from": "0@0=2,1@0=0", "to": cut}).collect()
    assert [(row.segment, row.offset) for row in part] == [("0@0", 2)]
    with pytest.raises(PySparkException, match=r"NotInHistory.*found none named 'no-such-stream'"):
        orders.load(spark, stream="no-such-stream").collect()
    assert orders.load(spark, **{"from": "tail"}).collect() == []


class Batches:
    """A sink that keeps each batch."""

    def __init__(self) -> None:
        self.batches: list[Rows] = []

    def __call__(self, frame: DataFrame, _number: int) -> None:
        self.batches.append([(row.segment, row.offset, bytes(row.payload)) for row in frame.collect()])

    def by_key(self) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {key: [] for key in range(KEYS)}
        for rows in self.batches:
            for _, _, payload in sorted(rows, key=lambda row: row[:2]):
                found[int(payload.split(b":")[0])].append(payload)
        return found


def refuse_successors(orders: Orders, rows: Rows) -> None:
    segments = [orders.stream.epochs.segment(each) for each in {segment for segment, _, _ in rows}]
    assert not any(one.overlaps(other) for one, other in combinations(segments, 2))


def run(frame: DataFrame, sink: Callable[[DataFrame, int], None], folder: Path, **trigger: Any) -> None:
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder)).trigger(**trigger).start()
    query.awaitTermination()


def test_a_streaming_query_goes_on_from_seal_to_seal_with_each_event_once_and_in_order(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    sink, limited = Batches(), {"maxEventsPerTrigger": "24"}
    orders.write(30)
    orders.stream.split("0@0")
    orders.write(30)
    run(orders.follow(spark, **limited), sink, tmp_path, availableNow=True)
    assert sink.by_key() == orders.written
    assert all(len(rows) <= 24 for rows in sink.batches)
    orders.write(20)
    orders.stream.merge("2@1", "3@1")
    orders.write(20)
    run(orders.follow(spark, **limited), sink, tmp_path, once=True)
    count = len(sink.batches)
    assert sum(map(len, sink.batches)) < orders.count, "it ends at the seal"
    run(orders.follow(spark), sink, tmp_path, availableNow=True)
    assert len(sink.batches) > count
    assert sink.by_key() == orders.written
    for rows in sink.batches:
        refuse_successors(orders, rows)


def test_a_running_query_follows_splits_and_merges(spark: SparkSession, orders: Orders, tmp_path: Path) -> None:
    sink = Batches()
    writing = orders.follow(spark).writeStream.foreachBatch(sink)
    query = writing.option("checkpointLocation", str(tmp_path)).start()
    try:
        for first, *others in (["0@0"], ["2@1", "3@1"], ["1@0"]):
            orders.write(20)
            orders.stream.merge(first, *others) if others else orders.stream.split(first)
        orders.write(20)
        while query.isActive and sum(map(len, sink.batches)) < orders.count:
            query.awaitTermination(timeout=1)
    finally:
        query.stop()
    assert sink.by_key() == orders.written
    assert sum(not rows for rows in sink.batches) <= 3, "a batch without events only passes a seal"
    for rows in sink.batches:
        refuse_successors(orders, rows)


def test_any_session_reads_events_and_writes_those_that_follow_into_files(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    orders.write(40)
    batch = orders.load(spark, **{"offsets-per-task": "10"})
    orders.stream.split("0@0")
    orders.write(40)
    following = orders.follow(spark, **{"from": "0@0=0,1@0=0"})
    written_to(tmp_path, following).trigger(availableNow=True).start().awaitTermination()
    expected = tables.events(orders.streams.store, "shop", "orders").read_all().to_pylist()
    rows = sorted((row["segment"], row["offset"], row["payload"]) for row in expected)
    for frame in (batch, spark.read.parquet(f"{tmp_path}/out")):
        found = frame.collect()
        assert sorted((row.segment, row.offset, bytes(row.payload)) for row in found) == rows


def test_queries_that_are_killed_between_and_within_batches_write_each_event_once(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    orders.write(60)
    orders.stream.split("0@0")
    orders.write(60)
    payload = orders.written[0][-2].decode()
    command = [sys.executable, "-m", "tests.spark_jobs.killed_query", orders.bucket.url, str(tmp_path), payload]
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run(  # noqa: S603 - ours
            command, env=environment_of_spark(), stdout=log, stderr=log, timeout=HANG_SECONDS, check=False
        )
    assert done.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()[-4000:]
    assert batches(tmp_path / "between") == (1, 1)
    planned, committed = batches(tmp_path / "within")
    assert planned == committed + 1 > 2
    orders.stream.merge("2@1", "3@1")
    orders.write(30)
    rows = tables.events(orders.streams.store, "shop", "orders").read_all().to_pylist()
    assert len(rows) == orders.count
    expected = sorted((row["segment"], row["offset"], row["payload"]) for row in rows)
    for name in ("between", "within"):
        folder = tmp_path / name
        written_to(folder, orders.follow(spark)).trigger(availableNow=True).start().awaitTermination()
        found = spark.read.parquet(f"{folder}/out").collect()
        assert sorted((row.segment, row.offset, bytes(row.payload)) for row in found) == expected, name


def batches(folder: Path) -> tuple[int, int]:
    """The numbers of batches of a query that were planned, and that were committed."""
    found = (folder / "checkpoint" / name for name in ("offsets", "commits"))
    planned, committed = (sum(each.name.isdecimal() for each in one.iterdir()) for one in found)
    return planned, committed


# The reader of a streaming query, as Spark calls it


def stream_reader(orders: Orders, **more: str) -> EventStreamReader:
    given = {name.lower(): value for name, value in orders.options(**more).items()}
    options = SourceOptions.of({**given, "path": orders.bucket.url})
    assert options.events is not None
    return EventStreamReader(options.events)


def taken(reader: EventStreamReader, start: dict[str, Any]) -> tuple[list[bytes], dict[str, Any]]:
    """The payloads of the next batch, and its end."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    parts = reader.partitions(start, end) if end != start else []
    return [each for part in parts for batch in reader.read(part) for each in batch["payload"].to_pylist()], end


def test_offsets_are_cuts_of_one_stream_and_the_places_of_options_bound_a_query(orders: Orders) -> None:
    orders.write(20)
    begin = stream_reader(orders).initialOffset()
    assert begin == {"cut": {"0@0": 0, "1@0": 0}, "stream": str(orders.stream.unique_id)}
    bounded = stream_reader(orders, **{"from": "0@0=1 1@0=2", "to": json.dumps({"0@0": 3, "1@0": 4})})
    payloads, end = taken(bounded, bounded.initialOffset())
    assert (len(payloads), end["cut"]) == (4, {"0@0": 3, "1@0": 4})
    assert bounded.latestOffset(end, ReadAllAvailable()) is end
    tail = stream_reader(orders, **{"from": "tail"})
    start = tail.initialOffset()
    orders.write(10)
    tail.prepareForTriggerAvailableNow()
    orders.write(10)
    payloads, end = taken(tail, start)
    assert len(payloads) == 10
    assert taken(tail, end) == ([], end)
    later = stream_reader(orders)
    assert [len(taken(later, each)[0]) for each in (begin, start, end)] == [40, 20, 10]


def test_an_idle_trigger_costs_one_poll(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = CountingStore(orders.streams.store)
    monkeypatch.setattr(StoreSpec, "open", lambda _: counted)
    orders.write(10)
    reader = stream_reader(orders)
    _, end = taken(reader, reader.initialOffset())
    reader._events._images = reader._events._streams.catalog.images(1e-9, 1e-9)  # a poll at each call, not each second
    assert taken(reader, end) == ([], end)
    for _ in range(3):
        before = counted.snapshot().total.requests
        assert reader.latestOffset(end, ReadAllAvailable()) is end
        assert counted.snapshot().total.requests - before == 2, "two listings"
    orders.write(5)
    assert len(taken(reader, end)[0]) == 5


def test_truncated_data_is_an_error_or_is_skipped(orders: Orders) -> None:
    orders.write(20)
    strict, lenient = stream_reader(orders), stream_reader(orders, failOnDataLoss="FALSE")
    begin = strict.initialOffset()
    planned = strict.latestOffset(begin, ReadAllAvailable())
    orders.stream.truncate({"0@0": 2, "1@0": 3})
    with pytest.raises(PositionTruncated, match="option failOnDataLoss=false skips"):
        taken(strict, begin)
    with pytest.raises(PositionTruncated, match="option failOnDataLoss=false skips"):
        strict.partitions(begin, planned)
    assert len(taken(lenient, begin)[0]) == 15
    assert len([*lenient.partitions(begin, planned)]) == 1, "a batch that was planned before"


def test_a_checkpoint_of_an_earlier_stream_of_the_name_is_refused(orders: Orders) -> None:
    orders.write(10)
    begin = stream_reader(orders).initialOffset()
    orders.writer.close()
    orders.stream.seal()
    orders.streams.stream_store.delete_stream("shop", "orders")
    orders.streams.create_stream("shop", "orders", segments=2)
    with pytest.raises(StreamDeleted):
        stream_reader(orders).latestOffset(begin, ReadAllAvailable())


REFUSED = {
    "no stream": ({"table": "events", "scope": "shop"}, "scope and stream"),
    "an option of objects": ({"node-id": "4"}, "table events: expected options of this table, found node-id"),
    "another option of objects": ({"objects-per-task": "4"}, "found objects-per-task"),
    "an option of events": ({"table": "objects", "from": "head"}, "table objects: .*found from"),
    "a cut": ({"from": '{"0": "x"}'}, "the option from: expected offsets by segment"),
    "a moment": ({"to": "yesterday"}, "the option to: expected a cut .*found 'yesterday'"),
    "a number": ({"maxeventspertrigger": "0"}, "at least 1 in the option maxEventsPerTrigger"),
    "a flag": ({"failondataloss": "no"}, "true or false in the option failOnDataLoss"),
    "two limits": ({"maxeventspertrigger": "5", "maxbytespertrigger": "5"}, "found both"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_make_no_sense_are_refused_before_anything_is_read(case: str) -> None:
    options, message = REFUSED[case]
    events = {} if "table" in options else {"table": "events", "scope": "shop", "stream": "orders"}
    with pytest.raises(ValueError, match=message):
        SourceOptions.of({"path": "file:///nowhere", **events, **options})


def test_a_limit_in_another_unit_than_the_offsets_is_refused(orders: Orders) -> None:
    with pytest.raises(InvalidArgument, match="maxEventsPerTrigger for a stream whose offsets count records"):
        stream_reader(orders, maxBytesPerTrigger="100").getDefaultReadLimit()
    assert stream_reader(orders).getDefaultReadLimit() == ReadAllAvailable()
