"""The costs of a catalog that the pages state are what its requests add up to."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.records import OWNED_RANGE, STREAM, STREAM_SHARD, StreamShard, make_rows
from accel.catalog.stream_shards import shards_of
from benchmarks.catalog import NODES, run_catalog_refresh
from benchmarks.lookups import LONG_LIST_OBJECTS, mean_of, nodes_of
from loaders.layout import ObjectLayout
from loaders.object_ref import ObjectRef, Proof
from loaders.plan import Spread
from loaders.store import CountingStore, MemoryStore
from loaders.tables import FormatRecord
from loaders.tables.conditional_write import VALUE_START
from tests.docs.costs import STREAMS, USD_PER_GET, published_gets
from tests.docs.pages import listing_rows, page_named, table_rows

COST = page_named("cost")
MONTH_SECONDS = 30 * 86_400
GET_USD, PUT_USD = 0.0004 / 1000, 0.005 / 1000
UPLOADS = MONTH_SECONDS // 60


def rows_of(first_cell: str) -> list[list[str]]:
    """The rows of the page whose first cell matches."""
    return [row for row in listing_rows(COST) if re.fullmatch(first_cell, row[0])]


def requests_a_refresh(shards: int) -> int:
    return NODES + shards + 1


REFRESH_SECONDS = FormatRecord(namespace="any").max_image_age_seconds // 2
LISTINGS = 2


def reader_gets(shards: int = FormatRecord(namespace="any").stream_buckets) -> int:
    return int(requests_a_refresh(shards) * MONTH_SECONDS // REFRESH_SECONDS)


def reader_lists(poll_seconds: float) -> int:
    return int(LISTINGS * MONTH_SECONDS / poll_seconds)


@pytest.mark.parametrize(
    ("what", "gets", "puts", "lists"),
    [
        ("one reader that asks every 10 s", reader_gets(), 0, reader_lists(10)),
        ("one reader while nothing changes.*", reader_gets(), 0, reader_lists(2.5)),
        ("one reader while something changes.*", reader_gets(), 0, reader_lists(1)),
        ("one node's commits", UPLOADS // 64, UPLOADS + UPLOADS // 64, 0),
        ("one node's objects.*", 0, UPLOADS, 0),
        (
            "10 nodes that also read.*",
            10 * (reader_gets() + UPLOADS // 64),
            10 * (2 * UPLOADS + UPLOADS // 64),
            10 * reader_lists(10),
        ),
    ],
)
def test_the_costs_of_a_month_are_requests_times_prices(what: str, gets: int, puts: int, lists: int) -> None:
    [row] = rows_of(what)
    counts = ((gets, "GETs"), (puts, "PUTs"), (lists, "LISTs"))
    told = [f"{count:,} {verb}" for count, verb in counts if count]
    assert sorted(re.split(", (?=[0-9,]+ [A-Z])", row[1])) == sorted(told)
    assert row[2] == f"{gets * GET_USD + (puts + lists) * PUT_USD:.2f}"


def test_the_costs_of_a_day_are_those_of_the_published_table() -> None:
    load_all, spread = (published_gets("in 10 %", policy) for policy in ("load-all", "spread"))
    text = " ".join(COST.read_text().split())
    told = re.search(
        r"at ([0-9.]+) USD a million .*?: ([0-9,]+) GETs each with spread is ([0-9,]+) USD a day; "
        r"([0-9,]+) GETs each, opening everything, is ([0-9,]+)\.",
        text,
    )
    assert told
    price, *numbers = (float(each.replace(",", "")) for each in told.groups())
    assert price / 1_000_000 == pytest.approx(GET_USD)
    dollars = [round(gets * 10 * 86_400 * price / 1_000_000) for gets in (spread, load_all)]
    assert numbers == [spread, dollars[0], load_all, dollars[1]]
    assert f"8 to about {round(spread, -1):.0f} where a tenth" in text


def test_the_costs_of_long_lists_are_those_of_the_picture() -> None:
    text = " ".join(COST.read_text().split())
    found = re.search(
        r"with 20,000 objects a million cold lookups cost ([0-9,]+) USD without Accel, "
        r"(\d+) to (\d+) USD with it, and ([0-9.]+) USD with a snapshot",
        text,
    )
    rises = re.search(
        r"rises from (\d+) to (\d+) GETs, or from (\d+) to (\d+) where a tenth .*? stays at (\d+)\]", text
    )
    assert found
    assert rises
    dense, tenth = (published_gets(STREAMS[kind], "spread", LONG_LIST_OBJECTS) for kind in ("dense", "10 %"))
    short = (mean_of(nodes_of(kind, 50), "random", Spread())[0] for kind in ("dense", "10 %"))
    ends = [round(gets) for pair in zip(short, (dense, tenth), strict=True) for gets in pair]
    *told, snapshot_gets = (int(each) for each in rises.groups())
    assert told == ends
    assert f"of the node: {snapshot_gets};" in text
    dollars = [gets * USD_PER_GET * 1_000_000 for gets in (LONG_LIST_OBJECTS, dense, tenth, snapshot_gets)]
    assert [float(each.replace(",", "")) for each in found.groups()] == [
        *(dollars[0], round(dollars[1]), round(dollars[2])),
        dollars[3],
    ]
    assert pytest.approx(GET_USD) == USD_PER_GET


def test_the_costs_are_those_of_the_defaults() -> None:
    defaults = inspect.signature(ObjectCatalog.images).parameters
    assert [defaults[name].default for name in ("poll_seconds", "idle_poll_seconds")] == [1.0, 2.5]


def test_the_costs_of_buckets_are_requests_times_prices() -> None:
    rows = rows_of(r"\d+")
    assert len(rows) == 3
    for row in rows:
        shards = int(row[0])
        told = [str(requests_a_refresh(shards)), f"{reader_gets(shards) * GET_USD:.2f}"]
        assert [row[1], row[2], row[4]] == [*told, str(2 * shards)]


def shard_bytes(streams: int, shards: int) -> int:
    """What one of many shards takes, envelope included; first offsets at random, one open range a stream."""
    chance = np.random.default_rng(1)
    ids = np.arange(streams)
    mine = ids[shards_of(ids, shards) == 1]
    starts, nodes = chance.integers(0, 10_000_000, len(mine)), chance.integers(0, NODES, len(mine))
    ranges = make_rows(OWNED_RANGE, stream_id=mine, range_index=0, epoch=1, start=0, end=-1, node_id=nodes)
    bucket = StreamShard(1, make_rows(STREAM, stream_id=mine, start_offset=starts), ranges)
    return len(STREAM_SHARD.encode(bucket)) + VALUE_START


def test_the_bytes_of_a_shard_are_what_the_page_says() -> None:
    for row in rows_of(r"\d+"):
        told_kilobytes = int(row[3].removesuffix(" KB"))
        assert shard_bytes(200_000, int(row[0])) / 1000 == pytest.approx(told_kilobytes, rel=0.05)
    assert "a million of them in 32 shards make 170 KB each" in " ".join(COST.read_text().split())
    assert shard_bytes(1_000_000, 32) / 1000 == pytest.approx(170, rel=0.1)


def test_an_upload_is_one_put_and_a_64th_writes_a_checkpoint() -> None:
    store = CountingStore(MemoryStore())
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=1))
    with ObjectCatalog.open(store) as catalog, catalog.open_node(4) as writer:
        writer.open_streams([1])
        every = CatalogSettings().checkpoint_commits
        for number in range(3 * every):
            if number == every:
                store.reset()  # ids for a while are there, and so is a first checkpoint
            [object_id] = writer.prepare()
            proof = Proof(ObjectLayout(namespace="shop").object_key(object_id), store)  # as an `ObjectWriter` gives it
            writer.commit_upload(ObjectRef(object_id, 1000, 36, proof=proof), {1: (number, number + 1)})
        counted = store.snapshot().by_operation
    assert every == 64
    assert {name: count.requests for name, count in counted.items()} == {"put": 2 * every + 2}


def test_a_refresh_costs_what_the_catalog_page_says() -> None:
    found = {line.name + line.unit: line for line in run_catalog_refresh()}
    nothing, one = (f"catalog_refresh: {name}" for name in ("nothing new", "one node of ten changed"))
    text = page_named("catalog").read_text()
    told = {row[0]: row[1:] for row in table_rows(page_named("catalog")) if len(row) == 3}
    assert told["a cold image"][0] == f"{found[nothing + 'requests'].peer_value:,}"
    assert told["a refresh with nothing new"] == [f"{found[nothing + 'requests'].value:,}", "0"]
    idle, followed = (
        f"catalog_refresh: following, {name}requests" for name in ("nothing new", "one node of ten changed")
    )
    assert told["following, nothing new"] == [f"{found[idle].value:,}", "0"]
    assert told["following, after one upload"] == [f"{found[followed].value:,}", told["a refresh after one upload"][1]]
    assert told["a refresh after one upload"][0] == f"{found[one + 'requests'].value:,}"
    # What zstd makes of the same numbers differs a little from release to release.
    for line, key in (
        (found[one + "B"].value, "a refresh after one upload"),
        (found[one + "B"].peer_value, "a cold image"),
    ):
        assert int(told[key][1].replace(",", "")) == pytest.approx(line, rel=0.05)
    assert "python -m benchmarks catalog_refresh" in text
