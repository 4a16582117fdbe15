"""Writes an object whose bytes come bit by bit and whose length nobody knows beforehand.

Up to one part (16 MiB) it is one put, beyond that a multipart upload that grows with the bytes, so memory holds no more
than a part and the last piece. The object appears whole when it is finished, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loaders.errors import FormatLimit, StoreError
from loaders.lifetime import Lifetime
from loaders.object_creation import create_object, ends_with, refuse_existing
from loaders.store.base import PART_NUMBER_MAX

if TYPE_CHECKING:
    from loaders.backoff import Backoff
    from loaders.store.base import Body, MultipartUpload, ObjectStore, PartReceipt

PART_SIZE_BYTES = 16 << 20


class StreamedObject:
    """An object in the making.

    Args:
        store: where to.
        key: what lies there already is replaced when this one is finished, unless it is written once.
        part_size_bytes: of a multipart upload; S3 refuses less than 5 MiB.
        is_written_once: the key is created and never written over; see `object_creation`.
        backoff: pauses before a put of such a key is sent again; None = none.

    Threads: one at a time, in the process that began it; elsewhere it raises WrongProcess.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        *,
        part_size_bytes: int = PART_SIZE_BYTES,
        is_written_once: bool = False,
        backoff: Backoff | None = None,
    ) -> None:
        if part_size_bytes < 1:
            raise ValueError(f"expected a part size of at least 1 byte, found {part_size_bytes}")
        self._lifetime = Lifetime(f"the upload of {key!r}")
        self.key = key
        self.size_bytes = 0
        self._store = store
        self._part_size_bytes = part_size_bytes
        self._is_written_once = is_written_once
        self._backoff = backoff
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
            ObjectExists: it is to be written once, and another object lies at its key.
            StoreError: it could not be sent; abort it.
        """
        self._lifetime.check_process()
        if self._upload is not None:
            self._send_part(self._pending)
            self._complete(self._upload)
        elif self._is_written_once:
            create_object(self._store, self.key, self._pending, self._backoff)
        else:
            self._store.put(self.key, self._pending)
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

    def _complete(self, upload: MultipartUpload) -> None:
        if not self._is_written_once:
            upload.complete(self._receipts)
            return
        refuse_existing(self._store, self.key)
        try:
            upload.complete(self._receipts)
        except StoreError:
            if not self._is_complete():
                raise

    def _is_complete(self) -> bool:
        # Nothing lay there a moment ago: what has this size and ends with my last part is mine.
        try:
            return ends_with(self._store, self.key, self.size_bytes, self._pending)
        except StoreError:
            return False

    def _send_part(self, body: Body) -> None:
        number = len(self._receipts) + 1
        if number > PART_NUMBER_MAX:
            most = f"{PART_NUMBER_MAX} parts of {self._part_size_bytes} bytes"
            raise FormatLimit(f"object {self.key!r}: expected at most {most}, found more")
        if self._upload is None:
            self._upload = self._store.start_multipart(self.key)
        self._receipts.append(self._upload.upload_part(number, body))
