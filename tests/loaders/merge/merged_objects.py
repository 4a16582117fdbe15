"""Groups of objects to merge, and a merge that is too simple to be wrong: row by row, byte by byte."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders.format import BlockIndex, BlockRow, ObjectEncoder, RecordBatch
from loaders.format.index import MAGIC
from loaders.merge.plan import MergedOutput, MergeLimits, MergePlan, index_of_sections, plan_merge
from tests.loaders.format.objects import blocks_of, opened

INT32_MAX = 2**31 - 1


@dataclass
class MergeGroup:
    """Objects in list order, and the first kept offsets of some streams."""

    sources: list[bytes]
    trimmed: dict[int, int] = field(default_factory=dict)

    @property
    def indexes(self) -> list[BlockIndex]:
        return [opened(source) for source in self.sources]

    def plan(self, limits: MergeLimits) -> MergePlan:
        return plan_merge(self.indexes, *self.columns(), limits)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.array(list(self.trimmed), dtype=np.int64), np.array(list(self.trimmed.values()), dtype=np.int64)


@dataclass
class Piece:
    """One row of one source, with its bytes and what they decode to."""

    row: BlockRow
    data: bytes
    batches: list[RecordBatch]


@dataclass
class NaiveOutput:
    stream_id: int | None
    pieces: list[Piece]
    data: bytes


def written_by(output: MergedOutput, sources: list[bytes]) -> bytes:
    """The object that an output describes."""
    copies = output.copies
    cuts = zip(copies["source"].tolist(), copies["position"].tolist(), copies["size_bytes"].tolist(), strict=True)
    return b"".join([sources[source][at : at + size] for source, at, size in cuts]) + output.tail


def naive_merge(group: MergeGroup, limits: MergeLimits) -> list[NaiveOutput]:
    """What `plan_merge` promises, one row after another."""
    shared: list[Piece] = []
    own: list[NaiveOutput] = []
    for stream_id, pieces in sorted(pieces_by_stream(group).items()):
        first_kept = group.trimmed.get(stream_id, 0)
        runs = runs_of([piece for piece in pieces if piece.row.end > first_kept or piece.row.start >= first_kept])
        if len(runs) > 1:
            runs = [run for run in runs if run[-1].row.end > run[0].row.start]
        is_large = sum(len(piece.data) for run in runs for piece in run) >= limits.split_size_bytes
        holds_some = any(run[-1].row.end > run[0].row.start for run in runs)
        if holds_some and (len(runs) > 1 or is_large):
            own += [NaiveOutput(stream_id, run, naive_object(run, limits)) for run in runs]
        else:
            shared += [piece for run in runs for piece in run]
    first = [NaiveOutput(None, shared, naive_object(shared, limits))] if shared else []
    return first + own


def pieces_by_stream(group: MergeGroup) -> dict[int, list[Piece]]:
    found: dict[int, list[Piece]] = {}
    for source in group.sources:
        index = opened(source)
        for row, batches in zip(index, blocks_of(source, index), strict=True):
            data = source[row.position : row.position + row.size_bytes]
            found.setdefault(row.stream_id, []).append(Piece(row, data, batches))
    return found


def runs_of(pieces: list[Piece]) -> list[list[Piece]]:
    runs: list[list[Piece]] = []
    for piece in pieces:
        if runs and runs[-1][-1].row.end == piece.row.start:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def naive_object(pieces: list[Piece], limits: MergeLimits) -> bytes:
    data, rows = b"", b""
    for piece_row in coalesced(pieces, limits):
        start, end = piece_row[0].row.start, piece_row[-1].row.end
        body = b"".join(piece.data for piece in piece_row)
        count = sum(piece.row.record_count for piece in piece_row)
        rows += struct.pack(">qqiiqi", piece_row[0].row.stream_id, start, end - start, count, len(data), len(body))
        data += body
    return data + rows + struct.pack(">qi28xQ", len(data), len(rows), MAGIC)


def coalesced(pieces: list[Piece], limits: MergeLimits) -> list[list[Piece]]:
    rows: list[list[Piece]] = []
    for piece in pieces:
        if rows and joins(rows[-1], piece, limits):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return rows


def joins(row: list[Piece], piece: Piece, limits: MergeLimits) -> bool:
    last = row[-1].row
    if (last.stream_id, last.end) != (piece.row.stream_id, piece.row.start):
        return False
    size_bytes = sum(len(one.data) for one in row) + len(piece.data)
    count = sum(one.row.record_count for one in row) + piece.row.record_count
    offsets = piece.row.end - row[0].row.start
    return size_bytes < limits.row_size_bytes_max and count <= INT32_MAX and offsets <= INT32_MAX


def batches_by_stream(objects: list[bytes]) -> dict[int, list[RecordBatch]]:
    """All records of some objects; those of a stream in the order of the objects."""
    batches = [one for data in objects for block in blocks_of(data, opened(data)) for one in block]
    batches.sort(key=lambda one: one.stream_id)
    return {stream_id: list(group) for stream_id, group in groupby(batches, key=lambda one: one.stream_id)}


def end_to_end(group: MergeGroup) -> bytes | None:
    """The sources as one object whose data is not sorted; None where that is not possible."""
    sizes = [len(data) - opened(data).nbytes - 48 for data in group.sources]
    limits = MergeLimits(row_size_bytes_max=200)
    index = index_of_sections(group.indexes, sizes, group.plan(limits), limits)
    if index is None:
        return None
    data = b"".join(source[:size] for source, size in zip(group.sources, sizes, strict=True))
    return data + index.data + struct.pack(">qi28xQ", len(data), index.nbytes, MAGIC)


@st.composite
def merge_limits(draw: st.DrawFn) -> MergeLimits:
    return MergeLimits(draw(st.sampled_from([1, 150, 400, 8 << 20])), draw(st.sampled_from([1, 90, 200, 1 << 20])))


@st.composite
def merge_groups(draw: st.DrawFn) -> MergeGroup:
    """Sources with holes within and between, links, empty batches, trimmed streams; some are themselves merged."""
    ends: dict[int, int] = {}
    sources = [draw(_sources(ends)) for _ in range(draw(st.integers(1, 4)))]
    merged_before = draw(st.integers(0, len(sources)))
    if merged_before > 1:
        sources[:merged_before] = draw(st.sampled_from([_sorted_before, _joined_before]))(sources[:merged_before])
    streams = draw(st.lists(st.sampled_from([*ends, 99]), unique=True))
    return MergeGroup(sources, {stream: draw(st.integers(0, ends.get(stream, 0) + 2)) for stream in streams})


def _sorted_before(sources: list[bytes]) -> list[bytes]:
    plan = MergeGroup(sources).plan(MergeLimits(row_size_bytes_max=200))
    whole = [output for output in plan.outputs if output.stream_id is None]
    return [written_by(whole[0], sources)] if len(whole) == len(plan.outputs) == 1 else sources


def _joined_before(sources: list[bytes]) -> list[bytes]:
    data = end_to_end(MergeGroup(sources))
    return sources if data is None else [data]


@st.composite
def _sources(draw: st.DrawFn, ends: dict[int, int]) -> bytes:
    encoder = ObjectEncoder(draw(st.integers(1, 60)))
    parts = []
    for stream_id in sorted(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True))):
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            offset = ends.get(stream_id, draw(st.sampled_from([0, 7]))) + draw(st.sampled_from([0, 0, 0, 0, 3]))
            batches = draw(_batches(stream_id, offset))
            parts.append(encoder.write(stream_id, batches))
            ends[stream_id] = batches[-1].end_offset
    return b"".join([*parts, encoder.finish()])


@st.composite
def _batches(draw: st.DrawFn, stream_id: int, offset: int) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.sampled_from([1, 2, 5, 0, -2]))
        batches.append(RecordBatch(stream_id, draw(st.integers(0, 3)), offset, count, draw(st.binary(max_size=20))))
        offset = batches[-1].end_offset
    return batches
