"""An image built from lists and shards is the one that the same facts make, and shares all that did not change."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.catalog.records import (
    LIVE,
    OWNED_RANGE,
    PREPARED,
    RETIRED_STREAM_OBJECT,
    STREAM,
    STREAM_OBJECT,
    Dtype,
    NodeList,
    Rows,
    StreamShard,
    by_stream,
    make_rows,
)
from accel.catalog.refresh import BuiltImage, build_image
from accel.catalog.stream_shards import shard_of
from accel.errors import ImageRefused
from accel.image import MetadataImage, ObjectRef, StreamImage, VersionVector
from tests.examples import examples
from tests.models.worlds import World, grow_world

BUCKETS = 4
GONE_ID = 70_000
"""Ids from here on are of stream objects that no reader may see."""


@dataclass(frozen=True)
class Records:
    """What a catalog holds."""

    lists: dict[int, NodeList]
    shards: list[StreamShard]


def build(records: Records, version: int = 1, previous: BuiltImage | None = None) -> BuiltImage:
    return build_image("n", records.lists, records.shards, version, previous)


def rows_of(dtype: Dtype, rows: Sequence[Mapping[str, int]], **others: int) -> Rows:
    """Rows from plain data; what it does not say comes from `others`."""
    return make_rows(dtype, **{name: [{**others, **row}[name] for row in rows] for name in dtype.names or ()})


def stream_object(object_id: int, stream_id: int, start: int, end: int, **others: int) -> dict[str, int]:
    facts = {"size_bytes": 100 + object_id, "index_size_bytes": 36, "attributes": 2, "tail_checksum": -1}
    facts |= {"data_time_ms": 5, "node_id": 0}
    span = {"object_id": object_id, "stream_id": stream_id, "start": start, "end": end}
    return {**facts, "added_by": -1, **span, **others}


def node_list(node_id: int, *order_ids: int, stream_objects: Sequence[Mapping[str, int]] = ()) -> NodeList:
    """A list of objects whose ids follow from their order ids."""
    live = [{"object_id": (order * 7919) % 10_007, "order_id": order, "last_order_id": order} for order in order_ids]
    facts = {"data_time_ms": 1, "size_bytes": 50 + node_id, "index_size_bytes": 72, "attributes": 0, "added_by": 0}
    facts |= {"tail_checksum": 7 * node_id}
    late = by_stream(rows_of(STREAM_OBJECT, stream_objects), "start")
    return NodeList(
        node_id, next_order_id=max(order_ids, default=0) + 1, live=rows_of(LIVE, live, **facts), stream_objects=late
    )


def bucket(number: int, *stream_ids: int, start_offset: int = 0, **rows: Sequence[Mapping[str, int]]) -> StreamShard:
    """A stream shard whose streams node 0 owns."""
    owned = {"range_index": 0, "epoch": 1, "start": 0, "end": -1, "node_id": 0}
    retired = [{"retired_at_ms": 9, "delete_pending": 0, **row} for row in rows.get("retired", ())]
    return StreamShard(
        number,
        rows_of(STREAM, [{"stream_id": each} for each in stream_ids], start_offset=start_offset),
        rows_of(OWNED_RANGE, rows.get("ranges", [{"stream_id": each} for each in stream_ids]), **owned),
        by_stream(rows_of(STREAM_OBJECT, rows.get("stream_objects", ())), "start"),
        by_stream(rows_of(RETIRED_STREAM_OBJECT, retired), "object_id"),
    )


def one_stream(*late: Mapping[str, int], withdrawn: tuple[int, ...] = (), **rows: Any) -> list[tuple[int, int, int]]:
    """(object id, start, end) of the objects of stream 7, whose only bucket has these rows."""
    lists = {0: replace(node_list(0, stream_objects=late), withdrawn_commits=withdrawn)}
    built = build(Records(lists, [bucket(0, 7, **rows)]))
    return [(each.ref.object_id, each.start, each.end) for each in built.image.streams[7].stream_objects]


# --- the same facts as plain data and as records ---


def with_facts(world: World) -> World:
    """The same world, each stream object with an id of its own, and objects with sizes."""
    number = 50_000
    for stream in world.metadata["streams"]:
        for each in stream["stream_objects"]:
            each["object_id"] = number
            number += 1
    for where in (*world.metadata["streams"], *world.metadata["nodes"]):
        for each in (*where.get("stream_objects", ()), *where.get("stream_set_objects", ())):
            each |= {"size": 100 + each["object_id"], "index_size": 36, "attributes": each["object_id"] % 3}
    return world


def records_of(world: World, seed: int) -> Records:
    """The catalog of a world: each stream object in its bucket, still in a list, or on its way from there."""
    lists = {node["node_id"]: _list_of(node, world, seed) for node in world.metadata["nodes"]}
    return Records(lists, [_bucket_of(number, world, seed) for number in range(BUCKETS)])


def _list_of(node: dict[str, Any], world: World, seed: int) -> NodeList:
    objects = node["stream_set_objects"]
    live = [{**each, "last_order_id": each["order_id"], **_sizes(each)} for each in objects]
    last = max((each["order_id"] for each in objects), default=0)
    first_node = node is world.metadata["nodes"][0]
    late = [row for row in _stream_rows(world) if first_node and _place(row, seed) != "bucket"]
    return NodeList(
        node["node_id"],
        next_order_id=last + 1,
        live=rows_of(LIVE, live, data_time_ms=3, added_by=0),
        stream_objects=by_stream(rows_of(STREAM_OBJECT, late), "start"),
    )


def _bucket_of(number: int, world: World, seed: int) -> StreamShard:
    streams = [each for each in world.metadata["streams"] if shard_of(each["stream_id"], BUCKETS) == number]
    streams.sort(key=lambda each: int(each["stream_id"]))
    ranges = [{"stream_id": each["stream_id"], "epoch": 1, **one} for each in streams for one in each["ranges"]]
    rows = [row for row in _stream_rows(world) if shard_of(row["stream_id"], BUCKETS) == number]
    in_bucket = [row for row in rows if _place(row, seed) != "list" or not world.metadata["nodes"]]
    return StreamShard(
        number,
        rows_of(STREAM, streams),
        rows_of(OWNED_RANGE, ranges),
        by_stream(rows_of(STREAM_OBJECT, in_bucket), "start"),
    )


def _stream_rows(world: World) -> list[dict[str, int]]:
    streams = world.metadata["streams"]
    objects = [(stream["stream_id"], each) for stream in streams for each in stream["stream_objects"]]
    return [
        stream_object(each["object_id"], stream_id, each["start"], each["end"], **_sizes(each))
        for stream_id, each in objects
    ]


def _sizes(row: Mapping[str, int]) -> dict[str, int]:
    sizes = {"size_bytes": row["size"], "index_size_bytes": row["index_size"]}
    return {**sizes, "attributes": row["attributes"], "tail_checksum": -1}


def _place(row: Mapping[str, int], seed: int) -> str:
    return random.Random(row["object_id"] * 1_000_003 + seed).choice(["bucket", "list", "both"])


def check_same(image: MetadataImage, expected: MetadataImage) -> None:
    assert image.namespace == expected.namespace
    assert dict(image.streams) == dict(expected.streams)
    assert image.nodes.keys() == expected.nodes.keys()
    for node_id, node in image.nodes.items():
        other = expected.nodes[node_id]
        assert node.refs == other.refs
        assert node.order_ids.tolist() == other.order_ids.tolist()
        assert node.refs == other.refs
        assert node.position_of == other.position_of
    assert image.unordered_streams == expected.unordered_streams


grown = st.tuples(st.integers(0, 2**32), st.integers(0, 30), st.integers(1, 6), st.integers(1, 3))


@settings(max_examples=examples(200))
@given(grown, st.integers(0, 99))
def test_lists_and_buckets_make_the_image_that_the_same_facts_make(size: tuple[int, int, int, int], seed: int) -> None:
    world = with_facts(grow_world(size[0], steps=size[1], streams=size[2], nodes=size[3]))
    image = build(records_of(world, seed)).image
    check_same(image, MetadataImage.from_dict(world.metadata, namespace="n"))
    assert image.version == 1
    assert image.changes(MetadataImage.from_dict(world.metadata)) == {}


@settings(max_examples=examples(200))
@given(grown, st.lists(st.integers(0, 8), min_size=1, max_size=4), st.integers(0, 99))
def test_catching_up_gives_what_building_anew_gives_and_shares_the_rest(
    size: tuple[int, int, int, int], steps: list[int], seed: int
) -> None:
    """The same cluster at several moments; records whose content stays are the same objects, as a reader keeps them."""
    seed_of_world, first_steps, streams, nodes = size
    built: BuiltImage | None = None
    before: Records | None = None
    total_steps = first_steps
    for version, more in enumerate(steps):
        total_steps += more
        world = with_facts(grow_world(seed_of_world, steps=total_steps, streams=streams, nodes=nodes))
        now = kept(records_of(world, seed), before)
        after = build(now, version, built)
        check_same(after.image, build(now, version).image)
        if built is not None and before is not None:
            check_shared(built, after, before, now)
        built, before = after, now


def kept(now: Records, before: Records | None) -> Records:
    """The records of now, as the same objects where they are equal."""
    if before is None:
        return now
    lists = {
        node_id: before.lists[node_id] if node_id in before.lists and same(each, before.lists[node_id]) else each
        for node_id, each in now.lists.items()
    }
    shards = [old if same(new, old) else new for new, old in zip(now.shards, before.shards, strict=True)]
    return Records(lists, shards)


def same(one: Any, two: Any) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in type(one).__slots__)


def check_shared(old: BuiltImage, new: BuiltImage, before: Records, now: Records) -> None:
    for node_id, each in now.lists.items():
        if each is before.lists.get(node_id):
            assert new.image.nodes[node_id] is old.image.nodes[node_id]
    lists_unchanged = all(each is before.lists.get(node_id) for node_id, each in now.lists.items())
    for number, bucket_now in enumerate(now.shards):
        if lists_unchanged and bucket_now is before.shards[number]:
            for stream_id in bucket_now.streams["stream_id"].tolist():
                assert new.image.streams[stream_id] is old.image.streams[stream_id]


# --- sharing, case by case ---


def small() -> Records:
    lists = {node_id: node_list(node_id, *range(5)) for node_id in range(3)}
    parts: list[list[int]] = [[] for _ in range(BUCKETS)]
    for stream_id in range(40):
        parts[shard_of(stream_id, BUCKETS)].append(stream_id)
    return Records(lists, [bucket(number, *ids) for number, ids in enumerate(parts)])


def test_a_list_that_still_lists_the_same_objects_gives_the_same_node() -> None:
    records = small()
    before = build(records)
    promised = make_rows(PREPARED, object_id=[900_000], deadline_ms=5)
    changed = replace(node_list(1, *range(5)), epoch=9, prepared=promised)
    after = build(Records({**records.lists, 1: changed}, records.shards), 2, before)
    assert after.image.nodes[1] is before.image.nodes[1]


def test_a_stream_object_in_a_list_touches_only_its_bucket() -> None:
    records = small()
    before = build(records)
    old = dict(before.image.streams)
    late = [stream_object(GONE_ID - 1, 7, 0, 10)]
    changed = Records({**records.lists, 1: node_list(1, *range(5), stream_objects=late)}, records.shards)
    after = build(changed, 2, before)
    assert [each.ref.object_id for each in after.image.streams[7].stream_objects] == [GONE_ID - 1]
    for stream_id, stream in old.items():
        assert (after.image.streams[stream_id] is stream) == (shard_of(stream_id, BUCKETS) != shard_of(7, BUCKETS))
    again = build(Records({**changed.lists, 2: node_list(2, 1, 2)}, records.shards), 3, after)
    assert again.image.streams is after.image.streams


def test_another_number_of_buckets_is_another_image() -> None:
    records = small()
    before = build(records)
    after = build(Records(records.lists, [bucket(0, *range(40))]), 2, before)
    assert set(after.image.streams) == set(before.image.streams) == set(range(40))
    assert after.image.streams[7] == before.image.streams[7]


def test_an_image_keeps_the_version_of_its_keys() -> None:
    version = VersionVector({"node/0": 3})
    assert build_image("n", {}, [], version).image.version is version


# --- streams, one by one ---


def test_streams_are_made_when_they_are_asked_for_and_once() -> None:
    streams = build(small()).image.streams
    assert len(streams) == 40
    assert set(streams) == set(range(40))
    assert 7 in streams
    assert streams[7] is streams[7]
    assert isinstance(streams[7], StreamImage)
    assert streams.get(7) is streams[7]


@pytest.mark.parametrize("stream_id", [40, -1, 2**63, 10**30])
def test_a_stream_that_is_not_there_is_not_found(stream_id: int) -> None:
    for streams in (build(small()).image.streams, build(Records({}, [])).image.streams):
        assert stream_id not in streams
        assert streams.get(stream_id) is None
        with pytest.raises(KeyError):
            _ = streams[stream_id]


def test_nothing_else_is_in_an_image_of_streams() -> None:
    streams = build(small()).image.streams
    wrong: object = "7"
    assert wrong not in streams
    assert np.int64(7) in streams


def test_a_stream_that_contradicts_itself_harms_no_other_one() -> None:
    overlapping = [
        {"stream_id": 7, "range_index": 0, "end": 10},
        {"stream_id": 7, "range_index": 1, "start": 5},
        {"stream_id": 8},
    ]
    streams = build(Records({}, [bucket(0, 7, 8, ranges=overlapping)])).image.streams
    assert streams[8].ranges[0].node_id == 0
    with pytest.raises(ImageRefused, match="stream 7: expected range 1 to start"):
        _ = streams[7]


def test_an_object_that_the_bucket_has_let_go_of_is_not_seen_in_a_list_any_more() -> None:
    late = stream_object(GONE_ID, 7, 0, 10)
    assert one_stream(late, retired=[late]) == []
    merged = stream_object(60_000, 7, 0, 20)
    assert one_stream(late, stream_objects=[merged]) == [(60_000, 0, 20)]
    assert one_stream(late, start_offset=10) == []


def test_an_object_that_is_trimmed_in_part_is_seen() -> None:
    assert one_stream(stream_object(60_000, 7, 0, 10), start_offset=9) == [(60_000, 0, 10)]


def test_an_object_of_a_stream_that_nobody_opened_is_not_seen() -> None:
    assert one_stream(stream_object(GONE_ID, 6, 0, 10)) == []


def test_what_an_undone_commit_made_is_not_seen_in_the_bucket() -> None:
    bad = stream_object(GONE_ID, 7, 0, 10, added_by=4)
    fine = stream_object(60_000, 7, 10, 20, added_by=5)
    other_node = stream_object(60_001, 7, 20, 30, added_by=4, node_id=1)
    rows = {"stream_objects": [bad, fine, other_node]}
    assert one_stream(withdrawn=(4,), **rows) == [(60_000, 10, 20), (60_001, 20, 30)]
    made_again = stream_object(60_002, 7, 0, 10, added_by=6)
    assert one_stream(made_again, withdrawn=(4,), **rows)[0] == (60_002, 0, 10)


# --- what is refused ---


def test_buckets_out_of_their_order_are_refused() -> None:
    with pytest.raises(ImageRefused, match="expected stream shard 0 of 2, found shard 1"):
        build(Records({}, [bucket(1), bucket(0)]))


def test_an_object_that_is_listed_twice_is_refused() -> None:
    facts = dict.fromkeys(LIVE.names or (), 3)
    live = rows_of(LIVE, [{"order_id": 0}, {"order_id": 1}], **facts)
    with pytest.raises(ImageRefused, match="node 4: expected each object once, found object 3 twice"):
        build(Records({4: NodeList(4, next_order_id=2, live=live)}, []))


def test_a_node_gives_its_objects_with_all_facts() -> None:
    node = build(Records({4: node_list(4, 1, 2)}, [])).image.nodes[4]
    assert node.ref(1) == ObjectRef((2 * 7919) % 10_007, 54, 72, 0, tail_checksum=28)
    assert node.refs == (node.ref(0), node.ref(1))
    assert not node.object_ids.flags.writeable
    assert node.object_ids.flags.c_contiguous
