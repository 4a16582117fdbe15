"""However large a group is, a merge of it stays below 256 MiB: measured on a process of its own."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from accel.system import SYSTEM
from loaders.errors import KeyMissing
from loaders.format.index import Footer
from loaders.layout import ObjectLayout
from loaders.merge.merger import merge_objects
from loaders.merge.plan import MergeLimits, plan_merge
from loaders.merge.transfer import open_sources
from loaders.object_ref import ObjectRef
from loaders.settings import MergeSettings
from loaders.store import Body, Fetched, MemoryStore, MultipartUpload, PartReceipt
from loaders.store.decorated import DecoratedStore

MEBIBYTE = 1 << 20
SOURCES = 10
BLOCK_SIZE_BYTES = MEBIBYTE
OUTPUT_ID = 99
PEAK_BYTES_MAX = 256 * MEBIBYTE
LAYOUT = ObjectLayout()


class MadeUpStore(DecoratedStore):
    """Ten objects that are made when they are read; of what is written only the last bytes are kept."""

    def __init__(self, streams: int) -> None:
        super().__init__(MemoryStore())
        self.streams = streams

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        number = LAYOUT.parse_object_key(key)
        is_written = number is None or number == OUTPUT_ID
        return (
            super().get(key, size_bytes_max=size_bytes_max)
            if is_written
            else self.get_range(key, 0, size_bytes_of(self.streams))
        )

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        number = LAYOUT.parse_object_key(key)
        if number is None:
            raise KeyMissing("get_range", key, "no such key")
        if number == OUTPUT_ID:
            stored = self.get(key).body
            size_bytes, tail = int.from_bytes(stored[:8], "big"), stored[8:]
            return Fetched(tail[len(tail) - (end - start) :], "etag", size_bytes, start)
        size_bytes = size_bytes_of(self.streams)
        return Fetched(made_up(self.streams, number, start, min(end, size_bytes)), "etag", size_bytes, start)  # type: ignore[arg-type] # see there

    def start_multipart(self, key: str, *, mark: str | None = None) -> MultipartUpload:  # noqa: ARG002 - not kept
        return ForgetfulUpload(self, key)


class ForgetfulUpload:
    """Keeps sizes, and the end of the last part."""

    upload_id = ""

    def __init__(self, store: MadeUpStore, key: str) -> None:
        self._store = store
        self._key = key
        self._sizes: dict[int, int] = {}
        self._ends: dict[int, bytes] = {}

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        self._sizes[number] = len(body)
        self._ends[number] = bytes(body[-MEBIBYTE:])
        self._ends = {max(self._ends): self._ends[max(self._ends)]}
        return PartReceipt(number, "etag")

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        raise AssertionError(f"nothing is copied here: {number}, {source_key}, {start}, {end}")

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        assert [each.number for each in receipts] == list(range(1, len(self._sizes) + 1))
        (end,) = self._ends.values()
        return self._store.put(self._key, sum(self._sizes.values()).to_bytes(8, "big") + end)

    def abort(self) -> None:
        raise AssertionError("nothing fails here")


def size_bytes_of(streams: int) -> int:
    return streams * (BLOCK_SIZE_BYTES + 36) + 48


def made_up(streams: int, number: int, start: int, end: int) -> bytearray:
    """Bytes of one source: a block of each stream, then the index."""
    data_size_bytes = streams * BLOCK_SIZE_BYTES
    made = bytearray(b"\x07") * (end - start)
    for stream in range(start // BLOCK_SIZE_BYTES, min(streams, -(-end // BLOCK_SIZE_BYTES))):
        place(made, stream * BLOCK_SIZE_BYTES - start, header(stream, number))
    place(made, data_size_bytes - start, b"".join(row(stream, number) for stream in range(streams)))
    place(made, data_size_bytes + streams * 36 - start, Footer(data_size_bytes, streams * 36).encode())
    return made  # as good as bytes, and not copied, as a client does not


def place(made: bytearray, at: int, data: bytes) -> None:
    first, end = max(at, 0), min(at + len(data), len(made))
    if first < end:
        made[first:end] = data[first - at : end - at]


def header(stream: int, number: int) -> bytes:
    block = struct.pack(">BBii", 0x5A, 2, 1, BLOCK_SIZE_BYTES - 10)
    return block + struct.pack(">Bqqqii", 0x22, stream, 1, 10 * number, 10, BLOCK_SIZE_BYTES - 43)


def row(stream: int, number: int) -> bytes:
    return struct.pack(">qqiiqi", stream, 10 * number, 10, 1, stream * BLOCK_SIZE_BYTES, BLOCK_SIZE_BYTES)


def main(streams: int) -> None:
    """Merge ten objects of a mebibyte a stream, and print the most memory that this process ever had, in bytes."""
    store = MadeUpStore(streams)
    refs = [ObjectRef(number, size_bytes_of(streams), streams * 36) for number in range(SOURCES)]
    limits, merging, none = MergeLimits(split_size_bytes=1 << 40), MergeSettings(), np.empty(0, dtype=np.int64)
    with ThreadPoolExecutor(8) as pool:
        sources = open_sources(store, LAYOUT, refs, merging, executor=pool)
        assert all((source.body is None) == (streams > 11) for source in sources)
        plan = plan_merge([source.index for source in sources], none, none, limits)
        [written] = merge_objects(
            store, LAYOUT, sources, plan, [OUTPUT_ID], merging, executor=pool, nonce=SYSTEM.nonce, limits=limits
        )
    assert written.ref.size_bytes > SOURCES * streams * BLOCK_SIZE_BYTES
    assert written.ranges.ends.tolist() == [10 * SOURCES] * streams
    # Not getrusage: that counts what the process that started this one had, too.
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    sys.stdout.write(str(int(peak) * 1024))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells")
@pytest.mark.parametrize("streams", [11, 60])
def test_merging_ten_objects_of_any_size_stays_below_256_mebibytes(streams: int) -> None:
    command = [sys.executable, "-c", f"from {__name__} import main; main({streams})"]
    found = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    assert found.returncode == 0, found.stderr
    assert 100 * MEBIBYTE < int(found.stdout) < PEAK_BYTES_MAX
