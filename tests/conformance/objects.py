"""Objects of a production writer: read as its reader reads them, written again byte for byte, damaged ones refused."""

from __future__ import annotations

import hashlib
import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from loaders.errors import CorruptObject
from loaders.format import BlockIndex, ObjectEncoder, decode_block_bytes, find
from loaders.layout import ObjectLayout
from loaders.object_index import ObjectIndexLoader, OpenedObject
from loaders.object_ref import ObjectRef
from loaders.store import MemoryStore
from tests.conformance.report import Report, same


def run(path: Path, data: dict[str, Any], report: Report) -> None:
    """All objects of a manifest, sound and damaged ones."""
    for row in data["objects"]:
        name = f"{path.name}: object {row['objectId']}"
        body = b""
        with report.check(f"{name}: bytes"):
            body = (path.parent / f"{row['objectId']}.bin").read_bytes()
            same("size", len(body), row["size"])
            same("sha256", hashlib.sha256(body).hexdigest(), row["sha256"])
        with report.check(f"{name}: opens"):
            _check_object(name, body, row, report)
    for row in data["corrupt"]:
        with report.check(f"{path.name}: {row['file']} is refused"):
            _check_refused((path.parent / row["file"]).read_bytes(), row["claimedSize"])


def open_object(object_id: int, body: bytes, size_bytes: int) -> OpenedObject:
    """Open an object through a store, as a lookup does."""
    store, layout = MemoryStore(), ObjectLayout()
    store.put(layout.object_key(object_id), body)
    with ThreadPoolExecutor(1) as executor:
        return ObjectIndexLoader(store, layout, executor).open(0, ObjectRef(object_id, size_bytes)).result.result()


def _check_refused(body: bytes, claimed_size_bytes: int) -> None:
    try:
        open_object(1, body, claimed_size_bytes)
    except CorruptObject:
        return
    raise AssertionError("expected CorruptObject, found that it opens")


def _check_object(name: str, body: bytes, row: dict[str, Any], report: Report) -> None:
    opened = open_object(row["objectId"], body, row["size"])
    index = opened.index
    with report.check(f"{name}: rows"):
        rows = [[n, *_row_fields(index, n)] for n in range(len(index))]
        same("rows", rows, row["index"])
        same("index size", index.nbytes, row["indexSize"])
    with report.check(f"{name}: ranges"):
        ranges = opened.ranges
        columns = zip(ranges.stream_ids.tolist(), ranges.starts.tolist(), ranges.ends.tolist(), strict=True)
        same("ranges", [list(each) for each in columns], row["streamRanges"])
        for stream_id in row["absent"]:
            same(f"range of absent stream {stream_id}", ranges.range_of(stream_id), None)
    for number, expected in row["blocks"]:
        with report.check(f"{name}: block {number}"):
            same("batches", _batches(body, index, number), expected)
    for expected in row["find"]:
        with report.check(f"{name}: find {expected['q']}"):
            _check_find(index, expected)
    with report.check(f"{name}: written again"):
        same("bytes", hashlib.sha256(_rewritten(body, index)).hexdigest(), row["sha256"])


def _row_fields(index: BlockIndex, number: int) -> list[int]:
    row = index.row(number)
    return [row.stream_id, row.start, row.end - row.start, row.record_count, row.position, row.size_bytes]


def _batches(body: bytes, index: BlockIndex, number: int) -> list[list[int]]:
    row = index.row(number)
    data = body[row.position : row.position + row.size_bytes]
    decoded = decode_block_bytes(data, row, key="fixture", object_size_bytes=len(body))
    return [[each.base_offset, each.count, each.epoch, len(each.payload), zlib.crc32(each.payload)] for each in decoded]


def _check_find(index: BlockIndex, expected: dict[str, Any]) -> None:
    found = find(index, *expected["q"])
    same("rows", list(found.rows), expected["blockIds"])
    same("fulfilled", found.fulfilled, expected["isFulfilled"])
    same("next offset", found.next_offset, expected["nextStartOffset"])
    same("bytes left", found.bytes_left, expected["nextMaxBytes"])


def _rewritten(body: bytes, index: BlockIndex) -> bytes:
    """Decode and write again, one call per original block."""
    encoder = ObjectEncoder(block_threshold_bytes=2**31 - 1)
    parts: defaultdict[str, list[bytes]] = defaultdict(list)
    for number in range(len(index)):
        row = index.row(number)
        data = body[row.position : row.position + row.size_bytes]
        decoded = decode_block_bytes(data, row, key="fixture", object_size_bytes=len(body))
        parts["blocks"].append(encoder.write(row.stream_id, decoded))
    return b"".join(parts["blocks"]) + encoder.finish()
