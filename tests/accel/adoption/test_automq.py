"""AutoMQ's metadata as an image: both forms, replayed and listed, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accel.adoption.automq import read_automq
from accel.errors import ImageRefused
from accel.image import OPEN_END

NAMESPACE = "_kafka_rZdE0DjZSrqy96PXrMUZVw"

Line = tuple[str, dict[str, Any]]

RECORDS: list[Line] = [
    ("S3_STREAM_RECORD", {"streamId": 233, "epoch": 2, "rangeIndex": 1, "startOffset": 0, "streamState": 1}),
    ("RANGE_RECORD", {"streamId": 233, "epoch": 0, "rangeIndex": 0, "startOffset": 0, "endOffset": 128, "nodeId": 4}),
    ("RANGE_RECORD", {"streamId": 233, "epoch": 2, "rangeIndex": 1, "startOffset": 128, "endOffset": 128, "nodeId": 7}),
    ("S3_OBJECT_RECORD", {"objectId": 0, "objectSize": 1000, "objectState": 2, "attributes": 0, "timestamp": -1}),
    ("S3_OBJECT_RECORD", {"objectId": 2, "objectSize": 2000, "objectState": 2, "attributes": 4, "timestamp": -1}),
    ("S3_STREAM_SET_OBJECT_RECORD", {"nodeId": 4, "objectId": 0, "orderId": 0, "dataTimeInMs": 1_700_000_000_000}),
    ("S3_STREAM_SET_OBJECT_RECORD", {"nodeId": 4, "objectId": 2, "orderId": 2, "dataTimeInMs": -1, "ranges": ""}),
    ("S3_STREAM_OBJECT_RECORD", {"streamId": 233, "startOffset": 0, "endOffset": 64, "objectId": 9, "objectSize": 5}),
    ("KV_RECORD", {"keyValues": [{"key": "a", "value": "AA=="}]}),
]

DOCUMENT: dict[str, Any] = {
    "streams": [
        {
            "streamId": 233,
            "startOffset": 0,
            "ranges": [
                {"epoch": 0, "rangeIndex": 0, "startOffset": 0, "endOffset": 128, "nodeId": 4},
                {"epoch": 2, "rangeIndex": 1, "startOffset": 128, "endOffset": 128, "nodeId": 7},
            ],
            "streamObjects": [{"objectId": 9, "startOffset": 0, "endOffset": 64}],
        }
    ],
    "nodes": [
        {
            "nodeId": 4,
            "streamSetObjects": [
                {"objectId": 0, "orderId": 0, "nodeId": 4, "dataTimeInMs": 1_700_000_000_000},
                {"objectId": 2, "orderId": 2, "nodeId": 4, "dataTimeInMs": -1},
            ],
        }
    ],
    "objects": [
        {"objectId": 0, "objectSize": 1000, "attributes": 0},
        {"objectId": 2, "objectSize": 2000, "attributes": 4},
    ],
}


def lines_of(records: list[Line]) -> bytes:
    """One JSON object a line."""
    return "\n".join(json.dumps({"type": kind, "version": 0, "data": data}) for kind, data in records).encode()


def dump_of(records: list[Line]) -> bytes:
    """As `kafka-dump-log --cluster-metadata-decoder` prints them."""
    head = b"Dumping 00000000000000000000.log\nLog starting offset: 0\n"
    body = [
        b"| offset: %d CreateTime: 17 keySize: -1 valueSize: 9 sequence: -1 headerKeys: [] payload: %s" % (at, line)
        for at, line in enumerate(lines_of(records).splitlines())
    ]
    return head + b"\n".join(body) + b"\n"


@pytest.mark.parametrize(
    "data", [lines_of(RECORDS), dump_of(RECORDS), json.dumps(DOCUMENT).encode()], ids=["lines", "dump", "document"]
)
def test_each_form_gives_the_same_image(data: bytes) -> None:
    metadata = read_automq(data, namespace=NAMESPACE, version=7)
    image = metadata.image
    assert (image.version, image.namespace) == (7, NAMESPACE)
    stream = image.streams[233]
    assert [(owned.start, owned.end, owned.node_id) for owned in stream.ranges] == [(0, 128, 4), (128, OPEN_END, 7)]
    assert [(held.ref.object_id, held.start, held.end) for held in stream.stream_objects] == [(9, 0, 64)]
    node = image.node(4)
    assert [(ref.object_id, ref.size_bytes, ref.attributes) for ref in node.refs] == [(0, 1000, 0), (2, 2000, 4)]
    assert node.order_ids.tolist() == [0, 2]
    assert dict(metadata.data_times_ms) == {0: 1_700_000_000_000}


def test_records_are_replayed_in_their_order() -> None:
    removed: list[Line] = [
        ("REMOVE_STREAM_SET_OBJECT_RECORD", {"nodeId": 4, "objectId": 0}),
        ("REMOVE_S3_OBJECT_RECORD", {"objectId": 2}),
        ("REMOVE_S3_STREAM_OBJECT_RECORD", {"streamId": 233, "objectId": 9}),
        ("REMOVE_RANGE_RECORD", {"streamId": 233, "rangeIndex": 0}),
        ("S3_STREAM_RECORD", {"streamId": 233, "startOffset": 128}),
        ("S3_STREAM_RECORD", {"streamId": 234, "startOffset": 0}),
        ("REMOVE_S3_STREAM_RECORD", {"streamId": 234}),
    ]
    image = read_automq(lines_of([*RECORDS, *removed]), namespace=NAMESPACE).image
    assert image.version == len(RECORDS) + len(removed)
    assert set(image.streams) == {233}
    assert (image.streams[233].start_offset, len(image.streams[233].stream_objects)) == (128, 0)
    assert [owned.node_id for owned in image.streams[233].ranges] == [7]
    assert [(ref.object_id, ref.size_bytes) for ref in image.node(4).refs] == [(2, -1)]


def test_objects_of_one_order_id_are_in_the_order_of_a_broker() -> None:
    added: list[Line] = [
        ("S3_STREAM_SET_OBJECT_RECORD", {"nodeId": 4, "objectId": 7, "orderId": 2}),
        ("S3_STREAM_SET_OBJECT_RECORD", {"nodeId": 4, "objectId": 1, "orderId": 2}),
        ("REMOVE_STREAM_SET_OBJECT_RECORD", {"nodeId": 4, "objectId": 0}),
    ]
    image = read_automq(lines_of([*RECORDS, *added]), namespace=NAMESPACE).image
    assert image.node(4).object_ids.tolist() == [2, 7, 1]


def test_brokers_of_older_releases_own_ranges() -> None:
    older = [("RANGE_RECORD", {"streamId": 233, "rangeIndex": 0, "startOffset": 0, "endOffset": 0, "brokerId": 3})]
    image = read_automq(lines_of([RECORDS[0], *older]), namespace=NAMESPACE).image
    assert [owned.node_id for owned in image.streams[233].ranges] == [3]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (lines_of([("S3_STREAM_RECORD", {"streamId": 233})]), "line 1: .*startOffset"),
        (lines_of([RECORDS[0], ("RANGE_RECORD", {"rangeIndex": 0, "startOffset": 0})]), "line 2: .*streamId"),
        (lines_of([("S3_OBJECT_RECORD", {"objectId": "7"})]), r"line 1: .*\$.objectId"),
        (lines_of([("S3_STREAM_SET_OBJECT_RECORD", {"nodeId": 4, "objectId": -2, "orderId": 0})]), "line 1: .*>= 0"),
        (b'{"streams": []}', "nodes"),
        (b'{"streams": [{"streamId": 1}], "nodes": []}', r"startOffset.*\$.streams\[0\]"),
        (b"not JSON", "malformed"),
        (b"[" * 100_000, "AutoMQ metadata"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(data: bytes, expected: str) -> None:
    with pytest.raises(ImageRefused, match=expected):
        read_automq(data, namespace=NAMESPACE)


def test_a_range_that_is_not_the_last_has_an_end_and_an_owner() -> None:
    no_end = [
        RECORDS[0],
        ("RANGE_RECORD", {"streamId": 233, "rangeIndex": 0, "startOffset": 0, "nodeId": 4}),
        RECORDS[2],
    ]
    no_owner = [RECORDS[0], ("RANGE_RECORD", {"streamId": 233, "rangeIndex": 0, "startOffset": 0})]
    for records, name in ((no_end, "endOffset"), (no_owner, "nodeId")):
        with pytest.raises(ImageRefused, match=f"stream 233: expected the field {name}"):
            read_automq(lines_of(records), namespace=NAMESPACE)
