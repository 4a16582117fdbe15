"""Damaged hints: a problem, or the same entries and filters as before; never others, and never another error."""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.errors import CorruptObject
from loaders.hints import (
    HintProblem,
    PackLoad,
    SnapshotReader,
    SnapshotRoot,
    decode_entries,
    decode_pack_root,
    decode_snapshot_root,
    load_pack,
    plan_entries,
)
from loaders.hints.roots import seal_root
from loaders.hints.snapshots import SNAPSHOT_ROOT_FORM
from loaders.layout import HintKind, hint_root_key
from loaders.store import MemoryStore
from tests.examples import examples
from tests.loaders.hints.builders import NAMESPACE, NODE, Row, filter_of, rows_of, write_snapshot
from tests.loaders.hints.test_packs import write_first
from tests.loaders.hints.test_snapshots import long_stream

NODE_OF_TEST = long_stream(30)
STREAMS = (4, 5, 6, 7)


@cache
def snapshot() -> tuple[SnapshotRoot, dict[str, bytes]]:
    store = MemoryStore()
    root = write_snapshot(store, NODE_OF_TEST, cuts=[6], group_rows_max=25)
    return root, {info.key: store.get(info.key).body for info in store.list("")}


@cache
def pack() -> tuple[bytes, dict[str, bytes]]:
    store = MemoryStore()
    root = write_first(store, 12, part_size_bytes_max=800)
    return root.encode(), {info.key: store.get(info.key).body for info in store.list("")}


def damaged(body: bytes, position: float, mask: int, cut: bool) -> bytes:
    at = min(int(position * len(body)), len(body) - 1)
    return body[:at] if cut else body[:at] + bytes([body[at] ^ mask]) + body[at + 1 :]


def restored(files: dict[str, bytes], key: str, body: bytes) -> MemoryStore:
    store = MemoryStore()
    for each, original in files.items():
        store.put(each, body if each == key else original)
    return store


damages = st.tuples(st.floats(0, 1), st.integers(1, 255), st.booleans())


@settings(max_examples=examples(150))
@given(st.data(), damages)
def test_no_byte_of_a_snapshot_changes_what_it_says(data: st.DataObject, damage: tuple[float, int, bool]) -> None:
    _, files = snapshot()
    key = data.draw(st.sampled_from(sorted(files)))
    check_reading(restored(files, key, damaged(files[key], *damage)))


def check_reading(store: MemoryStore) -> None:
    reader = SnapshotReader(store, NAMESPACE, lambda: 0.0)
    for stream_id in STREAMS:
        try:
            found: list[Row] | None = rows_of(reader.read_entries(NODE, stream_id).columns)
        except HintProblem:
            found = None
        assert found in (None, NODE_OF_TEST.of_stream(stream_id))


@given(st.data(), damages)
def test_no_byte_of_a_pack_changes_a_filter(data: st.DataObject, damage: tuple[float, int, bool]) -> None:
    _, files = pack()
    key = data.draw(st.sampled_from(sorted(files)))
    store = restored(files, key, damaged(files[key], *damage))
    ids = np.arange(12)
    try:
        body = store.get(hint_root_key(HintKind.PACKS, NODE)).body
        root = decode_pack_root(body, namespace=NAMESPACE, node_id=NODE)
    except HintProblem:
        return
    load = PackLoad()
    for object_id, found in load_pack(store, root, ids, ids + 1000, load):
        assert found == filter_of(object_id, capacity=100)


@given(damages)
def test_a_root_that_lies_under_a_right_checksum_is_a_problem_or_a_root(damage: tuple[float, int, bool]) -> None:
    root, files = snapshot()
    stored = SNAPSHOT_ROOT_FORM.decode(root.encode()[16:], "k")
    record = SNAPSHOT_ROOT_FORM.encode(stored)
    try:
        lying = decode_snapshot_root(seal_root(damaged(record, *damage)), namespace=NAMESPACE, node_id=NODE)
    except HintProblem:
        return
    check_bounded(lying, files)


@given(damages, st.sampled_from(["covered", "groups"]), st.integers(0, 200))
def test_fields_that_lie_under_right_checksums_are_problems_or_bounded(
    damage: tuple[float, int, bool], field: str, stream_id: int
) -> None:
    root, files = snapshot()
    stored = SNAPSHOT_ROOT_FORM.decode(root.encode()[16:], "k")
    body = damaged(getattr(stored, field), *damage)
    record = SNAPSHOT_ROOT_FORM.encode(msgspec.structs.replace(stored, **{field: body}))
    try:
        lying = decode_snapshot_root(seal_root(record), namespace=NAMESPACE, node_id=NODE)
    except HintProblem:
        return
    check_bounded(lying, files, stream_id)


def check_bounded(root: SnapshotRoot, files: dict[str, bytes], *more: int) -> None:
    for stream_id in (*STREAMS, *more):
        span = plan_entries(root, stream_id)
        if span is None or span.key not in files:
            continue
        body = files[span.key][span.start : span.end]
        try:
            decode_entries(root, span, body, stream_id)
        except HintProblem:
            continue


@given(st.integers(0, 8), st.integers(-(2**63), 2**63 - 1))
def test_groups_that_lie_are_problems_or_bounded(column: int, value: int) -> None:
    root, files = snapshot()
    groups = root.groups.copy()
    groups[groups.dtype.names[column]][1] = value  # type: ignore[index]  # the type has names
    lying = object.__new__(SnapshotRoot)
    for each in SnapshotRoot.__dataclass_fields__:
        object.__setattr__(lying, each, groups if each == "groups" else getattr(root, each))
    try:
        again = decode_snapshot_root(lying.encode(), namespace=NAMESPACE, node_id=NODE)
    except HintProblem:
        return
    check_bounded(again, files)


def test_a_body_of_another_length_is_a_problem() -> None:
    root, files = snapshot()
    span = plan_entries(root, 5)
    assert span is not None
    body = files[span.key][span.start : span.end]
    for wrong in (body[:-1], body + b"x", b""):
        with pytest.raises(HintProblem, match="bytes"):
            decode_entries(root, span, wrong, 5)


def test_the_record_of_a_root_can_be_looked_at_with_the_general_tools() -> None:
    root, _ = snapshot()
    with pytest.raises(CorruptObject):
        SNAPSHOT_ROOT_FORM.decode(root.encode(), "with its envelope")
    assert SNAPSHOT_ROOT_FORM.decode(root.encode()[16:], "without it").node_id == NODE
