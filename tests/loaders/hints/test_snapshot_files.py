"""A snapshot's files are small groups that a base install reads, written with little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pytest

from loaders.errors import StoreUnavailable
from loaders.hints import EntryColumns, SnapshotFileWriter
from loaders.hints.snapshot_writer import GROUP_SIZE_BYTES_MAX
from loaders.layout import HintKind, hint_file_key
from loaders.store import Body, CountingStore, MemoryStore, MultipartUpload, PartReceipt
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.loaders.hints.builders import GENERATION, NODE, columns_of
from tests.loaders.hints.test_snapshots import long_stream

Answer = TypeVar("Answer")

KEY = hint_file_key(HintKind.SNAPSHOTS, NODE, GENERATION, "00000-a")


def noisy_columns(first_stream: int, streams: int, objects: int, seed: int = 0) -> EntryColumns:
    """Entries as large as they get: lengths, positions and sizes without any pattern."""
    rng = np.random.default_rng(seed)
    count = streams * objects
    lengths = rng.integers(1, 200, (streams, objects))
    starts = np.cumsum(lengths, axis=1) - lengths
    ids = np.tile(np.arange(objects), streams)
    sizes = rng.integers(76, 100_000, count)
    return EntryColumns.of(
        [
            np.repeat(np.arange(first_stream, first_stream + streams), objects),
            starts.ravel(),
            (starts + lengths).ravel(),
            ids,
            ids,
            rng.integers(0, 2**40, count),
            sizes,
            rng.integers(1, 90, count),
            rng.random(count) < 0.1,
        ]
    )


def test_row_groups_keep_to_their_size_even_when_entries_grow() -> None:
    store = MemoryStore()
    easy = columns_of(long_stream(9000, stream_id=5).of_stream(5))
    with SnapshotFileWriter(store, node_id=NODE, generation=GENERATION, name="00000-a") as writer:
        writer.write(easy)
        writer.write(noisy_columns(6, 30, 5000))
    assert writer.file is not None
    sizes = writer.file.groups["size_bytes"]
    assert sizes.max() <= GROUP_SIZE_BYTES_MAX
    assert len(sizes) > 2
    assert np.median(sizes) > GROUP_SIZE_BYTES_MAX // 4  # and do not fall apart either


def test_a_file_without_entries_is_not_written() -> None:
    store = CountingStore(MemoryStore())
    with SnapshotFileWriter(store, node_id=NODE, generation=GENERATION, name="00000-a") as writer:
        writer.write(EntryColumns.none())
    assert writer.file is None
    assert store.snapshot().total.requests == 0


def test_a_large_file_goes_out_in_parts_while_it_grows() -> None:
    store = CountingStore(MemoryStore())
    with SnapshotFileWriter(
        store, node_id=NODE, generation=GENERATION, name="00000-a", part_size_bytes=200_000
    ) as writer:
        for first in range(0, 40, 8):
            writer.write(noisy_columns(first, 8, 2000))
        assert store.snapshot().of("upload_part").requests >= 3
    assert writer.file is not None
    assert store.get(KEY).object_size_bytes == writer.file.file.size_bytes


def test_memory_does_not_grow_with_the_file() -> None:
    def peak(rounds: int) -> int:
        tracemalloc.start()
        with SnapshotFileWriter(
            ForgetfulStore(MemoryStore()), node_id=1, generation=1, name="a", part_size_bytes=1 << 20
        ) as writer:
            for first in range(rounds):
                writer.write(noisy_columns(first, 1, 20_000))
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    peak(2)
    assert peak(40) < peak(10) + (2 << 20)


class ForgetfulStore(DecoratedStore):
    """Keeps nothing of what is uploaded."""

    def start_multipart(self, key: str, *, mark: str | None = None) -> MultipartUpload:
        return _ForgetfulUpload(super().start_multipart(key, mark=mark))


class _ForgetfulUpload:
    upload_id = ""

    def __init__(self, inner: MultipartUpload) -> None:
        self._inner = inner

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        assert len(body)
        return PartReceipt(number, "gone")

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        raise NotImplementedError

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        assert list(receipts)
        self._inner.abort()
        return "gone"

    def abort(self) -> None:
        self._inner.abort()


def test_what_fails_leaves_no_file() -> None:
    memory = MemoryStore()
    with pytest.raises(ValueError, match="sorted by stream"):
        write_badly(memory)
    assert list(memory.list("")) == []
    assert memory.open_uploads == 0


def write_badly(store: MemoryStore) -> None:
    with SnapshotFileWriter(
        store, node_id=NODE, generation=GENERATION, name="00000-a", part_size_bytes=50_000
    ) as writer:
        writer.write(noisy_columns(10, 10, 5000))
        assert store.open_uploads == 1
        writer.write(noisy_columns(0, 1, 5000))


@dataclass
class Refusal(DecoratedStore):
    """Refuses one operation."""

    store: MemoryStore
    operation: str

    def __post_init__(self) -> None:
        super().__init__(self.store)

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation == self.operation:
            raise StoreUnavailable(call.operation, call.key, "not today")
        return send()


@pytest.mark.parametrize("operation", ["put", "start_multipart", "upload_part", "complete"])
def test_what_the_store_refuses_leaves_no_file_either(operation: str) -> None:
    memory = MemoryStore()
    writer = SnapshotFileWriter(
        Refusal(memory, operation),
        node_id=NODE,
        generation=GENERATION,
        name="00000-a",
        part_size_bytes=16 << 20 if operation == "put" else 5000,
    )
    with pytest.raises(StoreUnavailable), writer:
        writer.write(noisy_columns(0, 5, 1000))
    assert writer.file is None
    assert (list(memory.list("")), memory.open_uploads) == ([], 0)


def test_a_name_that_makes_no_key_is_refused() -> None:
    for name in ("", "a/b", "root", "root ", "A"):
        with pytest.raises(ValueError, match="name"):
            SnapshotFileWriter(MemoryStore(), node_id=1, generation=1, name=name)
