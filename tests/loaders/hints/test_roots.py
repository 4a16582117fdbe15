"""Roots: their envelope, who they belong to, and how they are kept in memory."""

from __future__ import annotations

import pickle

import pytest

from loaders.errors import FormatLimit, StoreUnavailable
from loaders.hints import (
    HintProblem,
    HintTrouble,
    SnapshotReader,
    decode_pack_root,
    decode_snapshot_root,
    read_pack_root,
)
from loaders.hints.roots import MAGIC, ROOT_SIZE_BYTES_MAX, fetch_root, open_root, seal_root
from loaders.hints.snapshots import SNAPSHOT_ROOT_FORM
from loaders.layout import HintKind, hint_root_key
from loaders.store import CountingStore, Fetched, MemoryStore
from loaders.store.decorated import DecoratedStore
from tests.loaders.hints.builders import GENERATION, NAMESPACE, NODE, Node, write_snapshot
from tests.loaders.hints.test_packs import write_first
from tests.loaders.hints.test_snapshots import long_stream

ROOT_KEY = hint_root_key(HintKind.SNAPSHOTS, NODE)


class Timer:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def problem_of(data: bytes, *, namespace: str = NAMESPACE, node_id: int = NODE) -> HintTrouble:
    with pytest.raises(HintProblem) as caught:
        decode_snapshot_root(data, namespace=namespace, node_id=node_id)
    return caught.value.kind


def test_the_root_of_another_cluster_or_node_is_foreign() -> None:
    store = MemoryStore()
    data = write_snapshot(store, long_stream(3)).encode()
    assert problem_of(data, namespace="_kafka_other") is HintTrouble.FOREIGN
    assert problem_of(data, node_id=NODE + 1) is HintTrouble.FOREIGN
    pack = write_first(store, 3).encode()
    with pytest.raises(HintProblem) as caught:
        decode_pack_root(pack, namespace="_kafka_other", node_id=NODE)
    assert caught.value.kind is HintTrouble.FOREIGN


def test_what_a_newer_release_wrote_is_foreign() -> None:
    root = write_snapshot(MemoryStore(), long_stream(3))
    newer_envelope = bytearray(root.encode())
    newer_envelope[4] = 2
    assert problem_of(bytes(newer_envelope)) is HintTrouble.FOREIGN
    record = bytearray(SNAPSHOT_ROOT_FORM.encode(open_root(root.encode(), SNAPSHOT_ROOT_FORM, "k")))
    record[1 + len("snapshot-root") + 1] += 1
    assert problem_of(seal_root(bytes(record))) is HintTrouble.FOREIGN


def test_the_root_of_the_other_kind_is_corrupt() -> None:
    assert problem_of(write_first(MemoryStore(), 3).encode()) is HintTrouble.CORRUPT


@pytest.mark.parametrize("data", [b"", b"x", MAGIC, MAGIC + bytes(12), b"no root at all, but long enough"])
def test_what_is_no_root_is_corrupt(data: bytes) -> None:
    assert problem_of(data) is HintTrouble.CORRUPT


def test_a_root_beyond_all_bounds_is_neither_written_nor_read() -> None:
    with pytest.raises(FormatLimit):
        seal_root(bytes(ROOT_SIZE_BYTES_MAX))
    store = MemoryStore()
    store.put("k", bytes(ROOT_SIZE_BYTES_MAX + 1))
    with pytest.raises(HintProblem, match="at most"):
        fetch_root(store, "k")
    store.put("k", b"")
    with pytest.raises(HintProblem, match="empty"):
        fetch_root(store, "k")
    assert fetch_root(store, "none") is None


def test_a_root_is_read_once_until_its_time_is_over_and_then_only_if_it_changed() -> None:
    memory, timer = MemoryStore(), Timer()
    write_snapshot(memory, long_stream(3))
    store = CountingStore(memory)
    reader = SnapshotReader(store, NAMESPACE, timer, ttl_seconds=60.0)
    first = reader.read_root(NODE)
    timer.seconds = 59.0
    assert reader.read_root(NODE) is first
    assert store.reset().total.requests == 1
    timer.seconds = 60.0
    assert reader.read_root(NODE) is first
    counts = store.reset()
    assert (counts.of("get_if_changed").requests, counts.total.received_bytes) == (1, 0)
    write_snapshot(memory, long_stream(4), generation=GENERATION + 1)
    timer.seconds = 119.0
    assert reader.read_root(NODE) is first
    timer.seconds = 120.0
    assert reader.read_root(NODE).generation == GENERATION + 1
    memory.delete(ROOT_KEY)
    timer.seconds = 180.0
    with pytest.raises(HintProblem):
        reader.read_root(NODE)
    assert reader.roots.generations() == []


def test_that_there_is_no_root_is_remembered_as_well() -> None:
    store, timer = CountingStore(MemoryStore()), Timer()
    reader = SnapshotReader(store, NAMESPACE, timer, ttl_seconds=60.0)
    for seconds in (0.0, 30.0, 59.0):
        timer.seconds = seconds
        with pytest.raises(HintProblem) as caught:
            reader.read_root(NODE)
        assert caught.value.kind is HintTrouble.MISSING
    assert store.reset().total.requests == 1
    timer.seconds = 60.0
    store.put(ROOT_KEY, b"damaged")
    store.reset()
    for _ in range(3):
        with pytest.raises(HintProblem) as caught:
            reader.read_root(NODE)
        assert caught.value.kind is HintTrouble.CORRUPT
    assert store.reset().total.requests == 1


@pytest.mark.parametrize("change", ["gone", "shorter"])
def test_a_root_whose_files_are_gone_is_given_up_for_a_while_and_read_again(change: str) -> None:
    memory, timer = MemoryStore(), Timer()
    root = write_snapshot(memory, long_stream(3))
    reader = SnapshotReader(CountingStore(memory), NAMESPACE, timer)
    reader.read_root(NODE)
    if change == "gone":
        memory.delete(root.file_key(0))
    else:
        memory.put(root.file_key(0), memory.get(root.file_key(0)).body[:-1])
    kind = HintTrouble.STALE if change == "gone" else HintTrouble.MIXED
    write_snapshot(memory, long_stream(4), generation=GENERATION + 1)
    for _ in range(2):
        with pytest.raises(HintProblem) as caught:
            reader.read_entries(NODE, 5)
        assert caught.value.kind is kind
    timer.seconds = 5.0
    assert len(reader.read_entries(NODE, 5)) == 4


def test_roots_keep_to_their_bytes() -> None:
    memory, nodes = MemoryStore(), range(20)
    data = write_snapshot(memory, long_stream(30)).encode()
    size = decode_snapshot_root(data, namespace=NAMESPACE, node_id=NODE).nbytes
    reader = SnapshotReader(memory, NAMESPACE, Timer(), size_bytes_max=3 * (size + 500))
    reader.read_root(NODE)
    for node_id in nodes:
        with pytest.raises(HintProblem):
            reader.read_root(100 + node_id)
    stats = reader.roots.stats()
    assert 0 < stats.size_bytes <= stats.size_bytes_max
    small = SnapshotReader(memory, NAMESPACE, Timer(), size_bytes_max=size)
    assert small.read_root(NODE).entries == 90  # used, but not kept
    assert small.roots.stats().entries == 0


def test_a_store_that_is_down_is_no_problem_of_the_hint() -> None:
    memory = MemoryStore()
    write_snapshot(memory, Node())
    store = CountingStore(memory)
    reader = SnapshotReader(_Down(store), NAMESPACE, Timer())
    with pytest.raises(StoreUnavailable):
        reader.read_root(NODE)
    assert reader.roots.stats().entries == 0


class _Down(DecoratedStore):
    """Answers no read."""

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        raise StoreUnavailable("get_range", key, f"down for [{start}, {end})")


def test_a_problem_survives_the_way_between_processes() -> None:
    problem = HintProblem(HintTrouble.MIXED, "a/key", "expected one thing, found another")
    again = pickle.loads(pickle.dumps(problem))  # noqa: S301 - our own bytes
    assert (again.kind, again.key, str(again)) == (problem.kind, problem.key, str(problem))


def test_a_missing_pack_root_is_told_with_its_key() -> None:
    with pytest.raises(HintProblem, match="accel/hints/packs/node-7/root"):
        read_pack_root(MemoryStore(), NAMESPACE, NODE)
