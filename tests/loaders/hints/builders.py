"""Nodes to make hints of, and the plain lists that their snapshots must agree with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from bloom import StreamFilter
from loaders.hints import CoveredObjects, EntryColumns, SnapshotFile, SnapshotFileWriter, SnapshotRoot, finish_snapshot
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore

NAMESPACE = "_kafka_test"
NODE = 7
GENERATION = 1_700_000_000_000
OBJECT_SIZE_BYTES = 1 << 20

Row = tuple[int, int, int, int, int, int, int, int, bool]
"""An entry: the columns of `EntryColumns` in their order."""


@dataclass
class Node:
    """Objects of one node, and what each holds."""

    refs: list[ObjectRef] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def covered(self) -> CoveredObjects:
        return CoveredObjects.of(self.refs)

    @property
    def sorted_rows(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: (row[0], row[1], row[3]))

    def of_stream(self, stream_id: int) -> list[Row]:
        return [row for row in self.sorted_rows if row[0] == stream_id]


def columns_of(rows: Iterable[Row]) -> EntryColumns:
    """Rows as columns."""
    rows = list(rows)
    if not rows:
        return EntryColumns.none()
    *numbers, holed = zip(*rows, strict=True)
    return EntryColumns.of([*(np.array(each, dtype=np.int64) for each in numbers), np.array(holed, dtype=np.bool_)])


def rows_of(columns: EntryColumns) -> list[Row]:
    """Columns as rows."""
    return list(zip(*(column.tolist() for column in columns.columns()), strict=True))


@st.composite
def nodes(draw: st.DrawFn, *, objects_max: int = 12, streams_max: int = 6) -> Node:
    """Small nodes: each object holds some of few streams, mostly in order, now and then overlapping or equal."""
    node, tails = Node(), dict.fromkeys(range(streams_max), 0)
    ids = draw(st.lists(st.integers(0, 2**40), max_size=objects_max, unique=True))
    for order_id, object_id in enumerate(ids):
        node.refs.append(ObjectRef(object_id, OBJECT_SIZE_BYTES))
        for stream_id in sorted(draw(st.sets(st.integers(0, streams_max - 1)))):
            start = max(0, tails[stream_id] + draw(st.sampled_from([0, 0, 0, 1, 50, -5])))
            end = start + draw(st.integers(0, 100))
            tails[stream_id] = end
            size = draw(st.integers(0, 1000))
            position = draw(st.integers(0, OBJECT_SIZE_BYTES - size)) if size else -1
            holed = draw(st.booleans())
            node.rows.append((stream_id * 11, start, end, object_id, order_id, position, size, 1, holed))
    return node


def write_file(
    store: ObjectStore,
    rows: Sequence[Row],
    *,
    name: str = "00000-a",
    chunk: int = 7,
    group_rows_max: int = 1000,
    generation: int = GENERATION,
) -> SnapshotFile | None:
    """Write sorted rows as a file, some at a time."""
    with SnapshotFileWriter(
        store, node_id=NODE, generation=generation, name=name, group_rows_max=group_rows_max
    ) as writer:
        for start in range(0, len(rows), chunk):
            writer.write(columns_of(rows[start : start + chunk]))
    return writer.file


def write_snapshot(
    store: ObjectStore,
    node: Node,
    *,
    cuts: Sequence[int] = (),
    group_rows_max: int = 1000,
    generation: int = GENERATION,
) -> SnapshotRoot:
    """Write the snapshot of a node, in several files cut at these streams."""
    bounds = [-1, *sorted(set(cuts)), 2**63]
    files = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        rows = [row for row in node.sorted_rows if low <= row[0] < high]
        name = f"{number:05d}-a"
        files.append(write_file(store, rows, name=name, group_rows_max=group_rows_max, generation=generation))
    return finish_snapshot(
        store, namespace=NAMESPACE, node_id=NODE, generation=generation, files=files, covered=node.covered
    )


def filter_of(*stream_ids: int, capacity: int | None = None) -> StreamFilter:
    """A filter of these streams."""
    return StreamFilter.build(np.array(sorted(stream_ids), dtype=np.int64), capacity)
