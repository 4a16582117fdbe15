"""Writes an object whose bytes come bit by bit and whose length nobody knows beforehand.

Up to one part (16 MiB) it is one put, beyond that a multipart upload that grows with the bytes, so memory holds no more
than a part and the last piece. The object appears whole when it is finished, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loaders.errors import FormatLimit
from loaders.lifetime import Lifetime
from loaders.store.base import PART_NUMBER_MAX

if TYPE_CHECKING:
    from loaders.store.base import Body, MultipartUpload, ObjectStore, PartReceipt

PART_SIZE_BYTES = 16 << 20


class StreamedObject:
    """An object in the making.

    Args:
        store: where to.
        key: what lies there already is replaced when this one is finished.
        part_size_bytes: of a multipart upload; S3 refuses less than 5 MiB.

    Threads: one at a time, in the process that began it; elsewhere it raises WrongProcess.
    """

    def __init__(self, store: ObjectStore, key: str, *, part_size_bytes: int = PART_SIZE_BYTES) -> None:
        if part_size_bytes < 1:
            raise ValueError(f"expected a part size of at least 1 byte, found {part_size_bytes}")
        self._lifetime = Lifetime(f"the upload of {key!r}")
        self.key = key
        self.size_bytes = 0
        self._store = store
        self._part_size_bytes = part_size_bytes
        self._pending = bytearray()
        self._upload: MultipartUpload | None = None
        self._receipts: list[PartReceipt] = []

    def write(self, data: Body) -> None:
        """Append bytes; sends parts as they fill.

        Raises:
            StoreError: a part could not be sent; abort it.
            FormatLimit: more than 10,000 parts.
        """
        self._lifetime.check_process()
        self._pending += data
        self.size_bytes += len(data)
        # More than a part, not a part: an object of exactly one part stays one put.
        while len(self._pending) > self._part_size_bytes:
            with memoryview(self._pending) as pending, pending[: self._part_size_bytes] as part:
                self._send_part(part)
            del self._pending[: self._part_size_bytes]

    def finish(self) -> None:
        """Send the rest; the object appears.

        Raises:
            StoreError: it could not be sent; abort it.
        """
        self._lifetime.check_process()
        if self._upload is None:
            self._store.put(self.key, self._pending)
        else:
            self._send_part(self._pending)
            self._upload.complete(self._receipts)
        self._pending.clear()

    def abort(self, failure: BaseException) -> None:
        """Drop what was sent; if that fails too, the first failure is told so."""
        self._pending.clear()
        if self._upload is None or not self._lifetime.is_here:
            return  # nothing was sent, or it goes on in the process that began it
        try:
            self._upload.abort()
        except Exception as error:  # noqa: BLE001 - what went wrong first is what has to be told
            failure.add_note(f"and its upload could not be aborted, so parts of it may remain: {error}")

    def _send_part(self, body: Body) -> None:
        number = len(self._receipts) + 1
        if number > PART_NUMBER_MAX:
            most = f"{PART_NUMBER_MAX} parts of {self._part_size_bytes} bytes"
            raise FormatLimit(f"object {self.key!r}: expected at most {most}, found more")
        if self._upload is None:
            self._upload = self._store.start_multipart(self.key)
        self._receipts.append(self._upload.upload_part(number, body))
