"""A multipart upload that keeps its parts in a temporary file and sends them when it is completed.

For stores that have no numbered parts. Memory: that of the parts being written. Disk: the size of the object, in a file
without a name, so that it is deleted at the end of the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from loaders.lifetime import ProcessLock, unpickled
from loaders.store.base import PART_SIZE_BYTES_MIN, PartReceipt, check_part_number, check_range
from loaders.store.error_table import store_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loaders.store.base import Body, Fetched

CHUNK_BYTES = 1 << 20
"""Bytes of each read from the file when the object is sent."""


class SpooledUpload:
    """An object that is being uploaded; see `MultipartUpload`. Threads: any. Process: the one that began it.

    Args:
        key: of the object.
        file: a temporary file, which is closed at the end.
        send: writes the object from its bytes in order, whole or not at all, and returns its ETag; called with the ETag
            that S3 gives an object of these parts, and the size in bytes, too.
        read: reads bytes of another object of the store: key, start, end.
    """

    __reduce__ = unpickled("an upload in parts")
    upload_id = ""

    def __init__(
        self,
        key: str,
        file: IO[bytes],
        send: Callable[[Iterator[bytes], str, int], str],
        read: Callable[[str, int, int], Fetched],
    ) -> None:
        self._key = key
        self._file = file
        self._send = send
        self._read = read
        self._lock = ProcessLock()
        self._end = 0
        self._parts: dict[int, tuple[int, int, str]] = {}

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        """Store part `number`; sent again, it replaces the earlier one."""
        check_part_number(number)
        view = memoryview(body).cast("B")
        etag = hashlib.md5(view, usedforsecurity=False).hexdigest()
        with self._lock:
            self._refuse_ended()
            begin, self._end = self._end, self._end + len(view)
        written = 0
        try:
            while written < len(view):
                written += os.pwrite(self._file.fileno(), view[written:], begin + written)
        except OSError as error:
            with self._lock:
                self._end = begin if self._end == begin + len(view) else self._end  # the next part has its room
            detail = f"the temporary file of the parts: {error}"
            raise store_error("upload_part", self._key, detail, status=507) from error
        with self._lock:
            self._parts[number] = begin, len(view), etag
        return PartReceipt(number, etag)

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        """Read bytes of another object and store them as part `number`."""
        check_part_number(number)
        check_range(start, end)
        source = self._read(source_key, start, end)
        if end > source.object_size_bytes:
            detail = f"expected a range within {source.object_size_bytes} bytes, found [{start}, {end})"
            raise store_error("copy_part", source_key, detail, code="InvalidRange", status=416)
        return self.upload_part(number, source.body)

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        """Send the object; may be called again after an error of the store."""
        ordered = sorted(receipts, key=lambda receipt: receipt.number)
        with self._lock:
            self._refuse_ended()
            parts = [self._part(receipt) for receipt in ordered]
        sizes = [size for _, size, _ in parts]
        self._check_sizes(sizes)
        hashes = b"".join(bytes.fromhex(etag) for _, _, etag in parts)
        etag = f"{hashlib.md5(hashes, usedforsecurity=False).hexdigest()}-{len(parts)}"
        etag = self._send(self._chunks(parts), etag, sum(sizes))
        self.abort()
        return etag

    def abort(self) -> None:
        """Delete all parts; nothing was sent."""
        with self._lock:
            self._file.close()
            self._parts.clear()

    def _refuse_ended(self) -> None:
        if self._file.closed:
            raise store_error("complete", self._key, "no such upload", code="NoSuchUpload", status=404)

    def _part(self, receipt: PartReceipt) -> tuple[int, int, str]:
        part = self._parts.get(receipt.number, (0, 0, ""))
        if part[2] != receipt.etag:
            raise store_error("complete", self._key, f"no such part: {receipt}", code="InvalidPart", status=400)
        return part

    def _check_sizes(self, sizes: list[int]) -> None:
        if not sizes:
            raise store_error("complete", self._key, "an upload has at least one part", code="MalformedXML", status=400)
        for number, size in enumerate(sizes[:-1], start=1):
            if size < PART_SIZE_BYTES_MIN:
                detail = f"part {number} of {len(sizes)} has {size} bytes; all but the last need {PART_SIZE_BYTES_MIN}"
                raise store_error("complete", self._key, detail, code="EntityTooSmall", status=400)

    def _chunks(self, parts: list[tuple[int, int, str]]) -> Iterator[bytes]:
        for begin, size, _ in parts:
            for at in range(begin, begin + size, CHUNK_BYTES):
                yield os.pread(self._file.fileno(), min(CHUNK_BYTES, begin + size - at), at)
