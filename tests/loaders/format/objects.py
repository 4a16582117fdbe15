"""Objects to test with: those of a production writer, and random ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from loaders.format import BlockIndex, ObjectEncoder, RecordBatch, decode_block_bytes, open_tail

DATA = Path(__file__).parents[2] / "data" / "stream_set_objects"

Case = dict[str, Any]


@cache
def manifest() -> Case:
    """What the production writer's own reader says of its objects."""
    found: Case = json.loads((DATA / "manifest.json").read_text())
    return found


def production_cases() -> list[Case]:
    cases: list[Case] = manifest()["objects"]
    return cases


@cache
def production_bytes(object_id: int) -> bytes:
    return (DATA / f"{object_id}.bin").read_bytes()


def opened(data: bytes) -> BlockIndex:
    """The index of a whole object."""
    index = open_tail(data, object_size_bytes=len(data), key="k")
    assert isinstance(index, BlockIndex)
    return index


def blocks_of(data: bytes, index: BlockIndex) -> list[list[RecordBatch]]:
    """All batches of an object, a list for each row of its index."""
    return [
        decode_block_bytes(
            data[row.position : row.position + row.size_bytes], row, key="k", object_size_bytes=len(data)
        )
        for row in index
    ]


@dataclass(frozen=True)
class Written:
    """A random object: what was written, call by call, and the bytes that came out."""

    writes: list[list[RecordBatch]]
    threshold_bytes: int
    data: bytes

    @property
    def batches(self) -> list[RecordBatch]:
        return [batch for write in self.writes for batch in write]


def encoded(writes: list[list[RecordBatch]], threshold_bytes: int) -> bytes:
    encoder = ObjectEncoder(threshold_bytes)
    return b"".join([encoder.write(write[0].stream_id, write) for write in writes] + [encoder.finish()])


@st.composite
def written_objects(draw: st.DrawFn, *, writes_max: int = 8, holes: bool = True) -> Written:
    """Objects of few streams with many quirks: links, empty payloads, holes, several writes a stream, any threshold."""
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 5]), max_size=writes_max))
    writes: list[list[RecordBatch]] = []
    ends: dict[int, int] = {}
    for stream_id in accumulate(steps, initial=draw(st.integers(0, 3))):
        offset = ends.get(stream_id, draw(st.sampled_from([0, 7, 2**40])))
        offset += draw(st.sampled_from([0, 0, 3])) if holes else 0
        writes.append(draw(_batches(stream_id, offset, holes=holes)))
        ends[stream_id] = writes[-1][-1].end_offset
    threshold_bytes = draw(st.integers(1, 60))
    return Written(writes, threshold_bytes, encoded(writes, threshold_bytes))


@st.composite
def _batches(draw: st.DrawFn, stream_id: int, offset: int, *, holes: bool) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(-3, 6))
        batches.append(RecordBatch(stream_id, draw(st.integers(0, 3)), offset, count, draw(st.binary(max_size=20))))
        offset = batches[-1].end_offset + (draw(st.sampled_from([0, 0, 0, 2])) if holes else 0)
    return batches
