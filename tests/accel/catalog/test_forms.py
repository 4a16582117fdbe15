"""Every record is read back as it was written, also from bytes of earlier releases; and lists are small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from accel.catalog import records
from accel.catalog.job_runs import JOB_RUNS_FORM
from accel.catalog.records import (
    LIVE,
    OWNED_RANGE,
    PREPARED,
    RETIRED,
    STREAM,
    STREAM_END,
    Checkpoint,
    NodeList,
    StreamShard,
    make_rows,
    retype_rows,
)
from accel.catalog.sketches_and_ends import sketch_rows
from bloom import StreamSketch
from loaders.errors import CorruptObject, FormatTooNew
from loaders.tables.columns import pack_columns
from loaders.tables.records import FormRegistry, RecordForm
from tests.accel.catalog.golden import golden_bytes, golden_facts

OBJECTS = 5_000


def list_of_objects(count: int) -> NodeList:
    """A list as a busy node has one: ids shared with other nodes, an object a minute, jitter of seconds."""
    chance = np.random.default_rng(20_251_121)
    live = make_rows(
        LIVE,
        object_id=np.cumsum(chance.integers(1, 51, count)) + 3_000_000,
        order_id=np.arange(count) + 70_000,
        last_order_id=np.arange(count) + 70_000,
        data_time_ms=1_760_000_000_000 + np.arange(count) * 60_000 + chance.integers(-5_000, 5_001, count),
        size_bytes=chance.integers(4 << 20, 12 << 20, count),
        index_size_bytes=36 * chance.integers(200, 9_001, count),
        attributes=-1,
        tail_checksum=-1,
        added_by=np.arange(count) + 70_000,
    )
    retired = retype_rows(
        live[:50], RETIRED, {"retired_at_ms": 1_760_000_900_000, "retired_by": 71_000, "delete_pending": 0}
    )
    prepared = make_rows(PREPARED, object_id=np.arange(8) + 9_000_000, deadline_ms=1_760_086_400_000)
    return NodeList(7, 3, 75_000, live[50:], prepared, retired)


FORMS: dict[str, RecordForm[Any]] = {
    "node-list-1": records.NODE_LIST,
    "list-version-1": records.LIST_VERSION,
    "stream-bucket-1": records.STREAM_SHARD,
    "node-checkpoint-1": records.CHECKPOINT,
    "node-checkpoint-1-times": records.CHECKPOINT,
    "node-checkpoint-1-numbers": records.CHECKPOINT,
    "node-directory-1": records.NODE_DIRECTORY,
    "object-id-counter-1": records.OBJECT_ID_COUNTER,
    "job-runs-1": JOB_RUNS_FORM,
}
every_form = pytest.mark.parametrize("name", FORMS)


def shown(data: bytes) -> tuple[str, int, object]:
    """The form of a record, its version, and what it says."""
    registry = FormRegistry()
    registry.register(JOB_RUNS_FORM, *records.ALL_FORMS)
    form, version, facts = registry.decode_any(data, "golden")
    return form, version, msgspec.json.decode(msgspec.json.encode(facts))


@every_form
def test_bytes_of_version_1_are_read_for_ever_and_shown_to_people(name: str) -> None:
    stored, form = golden_bytes(name), name.partition("-1")[0]
    assert shown(stored) == (form, 1, golden_facts(name))
    written = FORMS[name].encode(FORMS[name].decode(stored, "golden"))
    assert shown(written) == (form, 1, golden_facts(name))
    assert written[: len(form) + 3] == bytes([len(form)]) + form.encode() + b"\0\1"


@every_form
def test_damaged_bytes_are_refused_with_the_place_in_the_message(name: str) -> None:
    whole = golden_bytes(name)
    for cut in range(len(whole)):
        with pytest.raises(CorruptObject, match="table 'x', key 'y'"):
            FORMS[name].decode(whole[:cut], "table 'x', key 'y'")


@every_form
def test_a_newer_version_is_refused_as_too_new(name: str) -> None:
    form = name.partition("-1")[0]
    bytes_of_next = bytearray(golden_bytes(name))
    bytes_of_next[len(form) + 2] = 2
    with pytest.raises(FormatTooNew, match=form):
        FORMS[name].decode(bytes(bytes_of_next), "here")


@pytest.mark.parametrize(("form", "empty"), [(records.NODE_LIST, NodeList(0)), (records.STREAM_SHARD, StreamShard(3))])
def test_empty_records_are_read_back(form: RecordForm[Any], empty: object) -> None:
    stored = form.encode(empty)
    assert form.encode(form.decode(stored, "here")) == stored


def drawn_ids(count: int, neighbours: int, chance: np.random.Generator) -> NDArray[np.int64]:
    """So many of 200,000 ids, in runs of neighbours."""
    runs = chance.integers(0, 200_000 // neighbours, max(1, count // neighbours))
    ids: NDArray[np.int64] = np.unique(runs[:, None] * neighbours + np.arange(neighbours))
    return ids


@pytest.mark.parametrize("neighbours", [1, 16])
@pytest.mark.parametrize("streams", [10, 100, 1000])
def test_sketches_take_at_most_16_bytes_an_object(streams: int, neighbours: int) -> None:
    chance = np.random.default_rng(7)
    now = list_of_objects(1000)
    plain = len(records.NODE_LIST.encode(now))
    ids = now.live["object_id"].tolist()
    built = ((each, StreamSketch.build(drawn_ids(streams, neighbours, chance))) for each in ids)
    more = len(records.NODE_LIST.encode(replace(now, sketches=sketch_rows(built)))) - plain
    assert more <= 16 * len(ids), more / len(ids)


def test_sketches_of_objects_of_9000_streams_take_less_than_4_bytes_an_object() -> None:
    chance = np.random.default_rng(7)
    now = list_of_objects(200)
    plain = len(records.NODE_LIST.encode(now))
    built = ((each, StreamSketch.build(drawn_ids(9_000, 1, chance))) for each in now.live["object_id"].tolist())
    assert len(records.NODE_LIST.encode(replace(now, sketches=sketch_rows(built)))) - plain < 4 * len(now.live)


def test_a_list_keeps_the_times_and_numbers_of_its_checkpoint() -> None:
    told = records.CHECKPOINT.decode(golden_bytes("node-checkpoint-1-numbers"), "golden")
    golden = records.NODE_LIST.decode(golden_bytes("node-list-1"), "golden")
    listed = replace(golden, times=told.times, numbers=told.numbers)
    found = records.NODE_LIST.decode(records.NODE_LIST.encode(listed), "here")
    assert (found.times.tolist(), found.numbers.tolist()) == (told.times.tolist(), told.numbers.tolist())


def test_a_list_of_5000_objects_takes_less_than_60_kilobytes() -> None:
    size_bytes = len(records.NODE_LIST.encode(list_of_objects(OBJECTS)))
    assert size_bytes < 60_000, size_bytes
    assert len(records.NODE_LIST.encode(NodeList(7))) < 1_100


def test_a_bucket_of_6000_streams_takes_less_than_10_bytes_a_stream() -> None:
    chance = np.random.default_rng(7)
    ids = np.sort(chance.choice(200_000, 6_000, replace=False))
    starts = chance.integers(0, 10**7, len(ids)) * (chance.random(len(ids)) < 0.5)
    ranges = make_rows(
        OWNED_RANGE, stream_id=ids, range_index=0, epoch=chance.integers(1, 4, len(ids)), start=starts, end=-1,
        node_id=chance.integers(0, 10, len(ids)),
    )  # fmt: skip
    bucket = StreamShard(0, make_rows(STREAM, stream_id=ids, start_offset=starts), ranges)
    assert len(records.STREAM_SHARD.encode(bucket)) < 10 * len(ids)


def test_a_checkpoint_of_9000_streams_takes_less_than_7_bytes_a_stream() -> None:
    chance = np.random.default_rng(7)
    ids = np.sort(chance.choice(200_000, 9_000, replace=False))
    ends = make_rows(STREAM_END, stream_id=ids, end=chance.integers(0, 2**31, len(ids)))
    version = records.CHECKPOINT.encode(Checkpoint(7, 5, ends))
    assert len(version) < 7 * len(ids)


def test_rows_out_of_order_are_refused_as_corrupt() -> None:
    golden = records.NODE_LIST.decode(golden_bytes("node-list-1"), "golden")
    stored = records.NODE_LIST.decode_fields(golden_bytes("node-list-1"), "here")
    turned = msgspec.structs.replace(stored, live=pack_columns(golden.live[::-1].copy()))
    with pytest.raises(
        CorruptObject, match="list of node 7, live: expected ascending keys, each once, found 40 before 31"
    ):
        records.NODE_LIST.decode(records.NODE_LIST.encode_fields(turned), "here")
