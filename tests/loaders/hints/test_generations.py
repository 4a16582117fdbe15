"""Old generations go; what a reader of the newest few roots may ask for stays."""

from __future__ import annotations

import pytest

from accel.testing import Crash, CrashStore
from loaders.hints import SnapshotReader, delete_old_generations, next_generation
from loaders.layout import HintKind, hint_file_key, hint_node_prefix, hint_root_key, parse_hint_file_key
from loaders.store import MemoryStore, ObjectStore
from tests.loaders.hints.builders import GENERATION, NAMESPACE, NODE, rows_of, write_file, write_snapshot
from tests.loaders.hints.test_snapshots import long_stream


def keys(store: ObjectStore) -> list[str]:
    return [info.key.removeprefix(hint_node_prefix(HintKind.SNAPSHOTS, NODE)) for info in store.list("")]


def delete(store: ObjectStore, keep: int = 2) -> int:
    return delete_old_generations(store, HintKind.SNAPSHOTS, NODE, namespace=NAMESPACE, keep=keep).deleted


def test_two_generations_stay_and_what_failed_tasks_left_goes() -> None:
    store = MemoryStore()
    for number in range(4):
        write_file(store, long_stream(3).sorted_rows, name="left-behind", generation=GENERATION + number)
        write_snapshot(store, long_stream(3 + number), generation=GENERATION + number)
    write_file(store, long_stream(3).sorted_rows, generation=GENERATION + 9)  # in the making
    assert delete(store) == 2 * 3 + 2
    assert keys(store) == [
        "00000001700000000002/00000-a",
        "00000001700000000002/root",
        "00000001700000000003/00000-a",
        "00000001700000000003/root",
        "00000001700000000009/00000-a",
        "root",
    ]
    assert delete(store) == 0
    assert delete(store, keep=1) == 2


def test_a_reader_of_the_root_before_the_newest_still_finds_its_files() -> None:
    store = MemoryStore()
    write_snapshot(store, long_stream(3))
    reader = SnapshotReader(store, NAMESPACE, lambda: 0.0)
    reader.read_root(NODE)
    write_snapshot(store, long_stream(4), generation=GENERATION + 1)
    delete(store)
    assert rows_of(reader.read_entries(NODE, 5).columns) == long_stream(3).of_stream(5)


@pytest.mark.parametrize("root", [None, b"damaged", "foreign"])
def test_without_a_root_of_this_cluster_nothing_is_deleted(root: bytes | str | None) -> None:
    store = MemoryStore()
    write_snapshot(store, long_stream(3))
    write_snapshot(store, long_stream(3), generation=GENERATION + 1)
    if root is None:
        store.delete(hint_root_key(HintKind.SNAPSHOTS, NODE))
    elif isinstance(root, bytes):
        store.put(hint_root_key(HintKind.SNAPSHOTS, NODE), root)
    before, namespace = keys(store), "_kafka_other" if root == "foreign" else NAMESPACE
    deleted = delete_old_generations(store, HintKind.SNAPSHOTS, NODE, namespace=namespace, keep=1)
    assert (deleted.deleted, deleted.kept, keys(store)) == (0, (), before)


def test_a_writer_that_dies_leaves_the_root_before_in_force() -> None:
    whole = CrashStore(MemoryStore(), None)
    write_snapshot_into(whole)
    assert whole.writes == 3
    for number in range(whole.writes):
        memory = MemoryStore()
        write_snapshot(memory, long_stream(3))
        with pytest.raises(Crash):
            write_snapshot_into(CrashStore(memory, number))
        found = SnapshotReader(memory, NAMESPACE, lambda: 0.0).read_entries(NODE, 5)
        assert rows_of(found.columns) == long_stream(3).of_stream(5)
        write_snapshot_into(memory, generation=GENERATION + 2)
        delete(memory, keep=1)
        assert keys(memory) == ["00000001700000000002/00000-a", "00000001700000000002/root", "root"]


def write_snapshot_into(store: ObjectStore, generation: int = GENERATION + 1) -> None:
    write_snapshot(store, long_stream(4), generation=generation)


def test_generations_ascend_even_if_the_clock_does_not() -> None:
    assert next_generation(None, 5) == 5
    assert next_generation(3, 5) == 5
    assert next_generation(5, 5) == 6
    assert next_generation(9, 5) == 10


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        delete(MemoryStore(), keep=0)


@pytest.mark.parametrize(
    "key", ["", "root", "12/root", "0000000000000000001x/root", "00000000000000000012/A", "9" * 20 + "/root"]
)
def test_keys_that_are_not_ours_are_told_apart(key: str) -> None:
    assert parse_hint_file_key(HintKind.PACKS, NODE, hint_node_prefix(HintKind.PACKS, NODE) + key) is None


def test_keys_of_one_node_do_not_begin_those_of_another() -> None:
    assert not hint_root_key(HintKind.PACKS, 12).startswith(hint_node_prefix(HintKind.PACKS, 1))
    with pytest.raises(ValueError, match="node id"):
        hint_root_key(HintKind.PACKS, -1)
    with pytest.raises(ValueError, match="generation"):
        hint_file_key(HintKind.PACKS, 1, 2**63, "a")
