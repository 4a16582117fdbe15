"""What cold lookups cost, counted; with the I/O done by somebody else, as a lookup without I/O does it."""

from __future__ import annotations

import numpy as np

from loaders.errors import KeyMissing
from loaders.hints import (
    CoveredObjects,
    SnapshotFileWriter,
    SnapshotReader,
    checked_body,
    decode_entries,
    finish_snapshot,
    object_entries,
    plan_entries,
    span_problem,
)
from loaders.hints.roots import HintProblem, HintTrouble
from loaders.layout import ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore, MemoryStore
from tests.builders import write_set_object
from tests.loaders.format.objects import opened
from tests.loaders.hints.builders import GENERATION, NAMESPACE, NODE, Node, rows_of, write_snapshot
from tests.loaders.hints.test_snapshot_files import noisy_columns
from tests.loaders.hints.test_snapshots import long_stream


def large_snapshot(store: MemoryStore) -> None:
    """100 streams, each in all of 5,000 objects."""
    with SnapshotFileWriter(store, node_id=NODE, generation=GENERATION, name="00000-a") as writer:
        for first in range(0, 100, 10):
            writer.write(noisy_columns(first, 10, 5000, seed=first))
    covered = CoveredObjects(np.arange(5000), np.full(5000, 2**41))
    finish_snapshot(
        store, namespace=NAMESPACE, node_id=NODE, generation=GENERATION, files=[writer.file], covered=covered
    )


def test_a_cold_lookup_is_the_root_and_one_range_and_then_one_range() -> None:
    memory = MemoryStore()
    large_snapshot(memory)
    store = CountingStore(memory)
    reader = SnapshotReader(store, NAMESPACE, lambda: 0.0)
    for number, stream_id in enumerate((50, 0, 99, 7)):
        found = reader.read_entries(NODE, stream_id, offset=100)
        assert (len(found), found.complete) == (5000, True)
        counts = store.reset().total
        assert counts.requests == (2 if number == 0 else 1)
        assert counts.received_bytes < 1_200_000


def test_the_steps_can_be_taken_one_by_one_by_who_does_the_io() -> None:
    store, node = MemoryStore(), long_stream(20)
    write_snapshot(store, node)
    reader = SnapshotReader(store, NAMESPACE, lambda: 0.0)
    assert reader.roots.known(NODE) is None
    known = reader.roots.take(NODE, store.get(reader.root_key(NODE)))
    assert reader.roots.known(NODE) is known
    assert known.root is not None
    assert plan_entries(known.root, 999) is None
    span = plan_entries(known.root, 5)
    assert span is not None
    body = checked_body(span, store.get_range(span.key, span.start, span.end))
    assert rows_of(decode_entries(known.root, span, body, 5).columns) == node.of_stream(5)
    reader.roots.give_up(NODE, span_problem(span, KeyMissing("get_range", span.key, "gone")))
    given_up = reader.roots.known(NODE)
    assert given_up is not None
    assert given_up.root is None
    assert isinstance(given_up.problem, HintProblem)
    assert given_up.problem.kind is HintTrouble.STALE


def test_the_span_of_an_entry_is_the_bytes_of_its_records() -> None:
    store, node = MemoryStore(), Node()
    body = write_set_object([(5, 10, 30), (6, 0, 7)])
    store.put(ObjectLayout().object_key(40), body)
    node.refs.append(ObjectRef(40, len(body)))
    node.rows = rows_of(object_entries(40, 3, opened(body)))
    write_snapshot(store, node)
    (row,) = rows_of(SnapshotReader(store, NAMESPACE, lambda: 0.0).read_entries(NODE, 6).columns)
    assert b"6:0-7" in body[row[5] : row[5] + row[6]]
    assert b"5:10-30" not in body[row[5] : row[5] + row[6]]
