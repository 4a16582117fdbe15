"""Every record is read back as it was written, also from bytes of earlier releases; and lists are small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from accel.catalog import records
from accel.catalog.facts import sketch_rows
from accel.catalog.records import (
    LIVE,
    OWNED_RANGE,
    PREPARED,
    RETIRED,
    STREAM,
    STREAM_END,
    Checkpoint,
    ListVersion,
    NodeList,
    StreamShard,
    make_rows,
    retype_rows,
)
from bloom import StreamSketch
from loaders.errors import CorruptObject, FormatTooNew
from loaders.tables.columns import pack_columns
from loaders.tables.records import FormRegistry, RecordForm
from tests.accel.catalog import golden
from tests.accel.catalog.building import same_bucket, same_list, same_rows

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
    retired = retype_rows(live[:50], RETIRED, {"retired_at_ms": 1_760_000_900_000, "retired_by": 71_000, "doomed": 0})
    prepared = make_rows(PREPARED, object_id=np.arange(8) + 9_000_000, deadline_ms=1_760_086_400_000)
    return NodeList(7, 3, 75_000, live[50:], prepared, retired)


def same_version(first: Any, second: Any) -> bool:
    return first.sequence == second.sequence and same_list(first.node_list, second.node_list)


def same_checkpoint(first: Any, second: Any) -> bool:
    same = same_rows(first.ends, second.ends) and same_rows(first.times, second.times)
    same = same and same_rows(first.numbers, second.numbers)
    return (first.node_id, first.order_id) == (second.node_id, second.order_id) and same


def same_directory(first: Any, second: Any) -> bool:
    return bool(np.array_equal(first.node_ids, second.node_ids))


CASES: dict[str, tuple[RecordForm[Any], Callable[[], Any], Callable[[Any, Any], bool]]] = {
    "node-list": (records.NODE_LIST, golden.golden_list, same_list),
    "list-version": (records.LIST_VERSION, golden.golden_version, same_version),
    "stream-bucket": (records.STREAM_SHARD, golden.golden_bucket, same_bucket),
    "node-checkpoint": (records.CHECKPOINT, golden.golden_checkpoint, same_checkpoint),
    "node-directory": (records.NODE_DIRECTORY, golden.golden_directory, same_directory),
    "object-id-counter": (records.OBJECT_ID_COUNTER, golden.golden_counter, lambda first, second: first == second),
}
every_form = pytest.mark.parametrize("name", CASES)


@every_form
def test_bytes_of_version_1_are_read_for_ever(name: str) -> None:
    form, make, same = CASES[name]
    assert same(form.decode(golden.golden_bytes(f"{name}-1"), "golden"), make())


@every_form
def test_a_record_is_read_back_as_it_was_written(name: str) -> None:
    form, make, same = CASES[name]
    assert same(form.decode(form.encode(make()), "here"), make())


@every_form
def test_each_form_names_itself_and_its_version(name: str) -> None:
    form, make, _ = CASES[name]
    assert form.encode(make())[: len(name) + 3] == bytes([len(name)]) + name.encode() + b"\0\1"


@every_form
def test_damaged_bytes_are_refused_with_the_place_in_the_message(name: str) -> None:
    form, make, _ = CASES[name]
    whole = form.encode(make())
    for cut in range(len(whole)):
        with pytest.raises(CorruptObject, match="table 'x', key 'y'"):
            form.decode(whole[:cut], "table 'x', key 'y'")


@every_form
def test_a_newer_version_is_refused_as_too_new(name: str) -> None:
    form, make, _ = CASES[name]
    bytes_of_next = bytearray(form.encode(make()))
    bytes_of_next[len(name) + 2] = 2
    with pytest.raises(FormatTooNew, match=name):
        form.decode(bytes(bytes_of_next), "here")


def test_empty_records_are_read_back() -> None:
    assert same_list(records.NODE_LIST.decode(records.NODE_LIST.encode(NodeList(0)), "here"), NodeList(0))
    assert same_bucket(records.STREAM_SHARD.decode(records.STREAM_SHARD.encode(StreamShard(3)), "here"), StreamShard(3))


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


@pytest.mark.parametrize("kind", ["times", "numbers"])
def test_checkpoints_with_times_and_numbers_are_read_for_ever(kind: str) -> None:
    made = golden.golden_timed_checkpoint() if kind == "times" else golden.golden_numbered_checkpoint()
    stored = golden.golden_bytes(f"node-checkpoint-1-{kind}")
    assert same_checkpoint(records.CHECKPOINT.decode(stored, "golden"), made)
    assert same_checkpoint(records.CHECKPOINT.decode(records.CHECKPOINT.encode(made), "here"), made)
    listed = replace(golden.golden_list(), times=made.times, numbers=made.numbers)
    assert same_list(records.NODE_LIST.decode(records.NODE_LIST.encode(listed), "here"), listed)


def test_a_kept_version_has_the_sketches_of_its_list() -> None:
    sketches = sketch_rows([(950, StreamSketch.build(np.array([3, 17]))), (1200, StreamSketch.build(np.array([5])))])
    version = ListVersion(3, replace(golden.golden_list(), sketches=sketches))
    assert same_version(records.LIST_VERSION.decode(records.LIST_VERSION.encode(version), "here"), version)


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
    stored = records.NODE_LIST.decode_fields(records.NODE_LIST.encode(golden.golden_list()), "here")
    turned = msgspec.structs.replace(stored, live=pack_columns(golden.golden_list().live[::-1].copy()))
    with pytest.raises(
        CorruptObject, match="list of node 7, live: expected ascending keys, each once, found 40 before 31"
    ):
        records.NODE_LIST.decode(records.NODE_LIST.encode_fields(turned), "here")


def test_columns_of_another_kind_are_refused() -> None:
    stored = records.NODE_LIST.decode_fields(records.NODE_LIST.encode(golden.golden_list()), "here")
    swapped = msgspec.structs.replace(stored, prepared=stored.live)
    with pytest.raises(FormatTooNew, match="here, prepared: expected columns among object_id, deadline_ms"):
        records.NODE_LIST.decode(records.NODE_LIST.encode_fields(swapped), "here")


@pytest.mark.parametrize("number", [-1, 2**63])
def test_numbers_beyond_their_bounds_are_refused_as_corrupt(number: int) -> None:
    with pytest.raises(CorruptObject, match="expected next_object_id of 0 to"):
        records.OBJECT_ID_COUNTER.decode(
            records.OBJECT_ID_COUNTER.encode_fields(records.OBJECT_ID_COUNTER.struct(number)), "x"
        )


@every_form
def test_a_person_can_look_at_every_form(name: str) -> None:
    registry = FormRegistry()
    registry.register(*records.ALL_FORMS)
    shown = registry.decode_any(golden.golden_bytes(f"{name}-1"), "golden")
    assert shown[:2] == (name, 1)
    assert msgspec.json.decode(msgspec.json.encode(shown[2])) == shown[2]


def test_rows_are_shown_by_their_names() -> None:
    registry = FormRegistry()
    registry.register(*records.ALL_FORMS)
    _, _, shown = registry.decode_any(golden.golden_bytes("list-version-1"), "golden")
    assert isinstance(shown, dict)
    assert shown["sequence"] == 1234
    assert shown["node_list"]["prepared"][0] == {"object_id": 1312, "deadline_ms": 1_760_086_400_000}
