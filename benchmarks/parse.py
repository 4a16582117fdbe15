"""Parsing the block indexes of ten objects, 9,000 rows each, into one range a stream.

Ours checks every rule of the format on the way; the peer, a loop over rows with struct, checks nothing. In the first
line each stream has one row, as in a freshly uploaded object of many streams; in the second it has two on average.
"""

from __future__ import annotations

import struct

import numpy as np

from benchmarks.harness import Comparison, interleave
from loaders.format.block_index import BLOCK_SIZE_BYTES_MIN, ROW_DTYPE, decode_block_index
from loaders.format.tail import FOOTER_SIZE_BYTES
from range_index.object_ranges import ObjectRanges

OBJECTS = 10
ROWS = 9_000
STREAMS_OF_CLUSTER = 200_000

_ROW = struct.Struct(">qqiiqi")

Ranges = dict[int, tuple[int, int, bool]]


def run(rounds: int = 7) -> list[Comparison]:
    """One row a stream, and two; the values are those of one object."""
    return [
        _compare("parse", ROWS, "a row a stream", rounds=rounds),
        _compare("parse_folded", ROWS // 2, "two rows a stream", rounds=rounds),
    ]


def make_index(streams: int, seed: int) -> bytes:
    """The bytes of a valid block index of ``ROWS`` rows, without holes."""
    generator = np.random.default_rng(seed)
    stream_ids = np.sort(generator.choice(STREAMS_OF_CLUSTER, streams, replace=False))
    rows = np.empty(ROWS, dtype=ROW_DTYPE)
    # Each stream at least once; the remaining rows go to streams at random.
    rows["stream_id"] = np.sort(np.concatenate((stream_ids, generator.choice(stream_ids, ROWS - streams))))
    deltas = generator.integers(1, 200, ROWS)
    rows["start"] = np.cumsum(deltas) - deltas
    rows["end_delta"] = deltas
    rows["record_count"] = 1
    rows["position"] = np.arange(ROWS) * BLOCK_SIZE_BYTES_MIN
    rows["size_bytes"] = BLOCK_SIZE_BYTES_MIN
    return rows.tobytes()


def _compare(name: str, streams: int, kind: str, *, rounds: int) -> Comparison:
    indexes = [make_index(streams, seed) for seed in range(OBJECTS)]

    def ours() -> list[ObjectRanges]:
        return [parsed(data) for data in indexes]

    def theirs() -> list[Ranges]:
        return [ranges_by_row_loop(data) for data in indexes]

    timings = interleave(ours, theirs, rounds=rounds, same=_same_ranges)
    peer = f"row loop with struct, {ROWS:,} rows, {kind}"
    return timings.compare(name, peer=peer, unit="us", calls=OBJECTS, goal=12)


def parsed(data: bytes) -> ObjectRanges:
    """Ours: the index of an object whose data section is as long as ``make_index`` says."""
    data_size_bytes = ROWS * BLOCK_SIZE_BYTES_MIN
    object_size_bytes = data_size_bytes + len(data) + FOOTER_SIZE_BYTES
    index = decode_block_index(
        data, data_size_bytes=data_size_bytes, key="benchmark", object_size_bytes=object_size_bytes
    )
    return index.object_ranges()


def ranges_by_row_loop(data: bytes) -> Ranges:
    """For each stream start, end, and whether there is a hole between; row by row."""
    ranges: Ranges = {}
    for stream_id, start, end_delta, *_ in _ROW.iter_unpack(data):
        known = ranges.get(stream_id)
        if known is None:
            ranges[stream_id] = (start, start + end_delta, False)
        else:
            ranges[stream_id] = (known[0], start + end_delta, known[2] or start != known[1])
    return ranges


def _same_ranges(ours: object, theirs: object) -> bool:
    assert isinstance(ours, list)
    return [_as_dict(ranges) for ranges in ours] == theirs


def _as_dict(ranges: ObjectRanges) -> Ranges:
    holed = np.zeros(len(ranges), dtype=np.bool_)
    holed[ranges.holed] = True
    columns = zip(ranges.starts.tolist(), ranges.ends.tolist(), holed.tolist(), strict=True)
    return dict(zip(ranges.stream_ids.tolist(), columns, strict=True))
