"""Sends parts to the store while the next parts are being joined, within a bound on memory.

An output of one part is one PUT; a larger output is a multipart upload and appears whole or not at all. After an error
all uploads are aborted, and outputs that are written, or may be written (a reply was lost), are deleted if the mark of
the object at the key is that of this merge: one GET more. An object that exists at such a key belongs to another
writer: it is neither overwritten nor deleted (see `loaders.object_writer`).

**Buffers.** A part is some 16 MiB. The system provides memory of that size page by page at each allocation, and
clearing and mapping these pages takes longer than copying into them. So the parts in memory share a few buffers: one
buffer is filled while others are being sent, and is free again when its request is done.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import NamedTuple, cast

from loaders.errors import FormatLimit, KeyMissing, NamespaceShared, ObjectExists, StoreError
from loaders.merge.reading import Part
from loaders.object_writer import create_object, refuse_existing, start_upload
from loaders.parallel import end_all
from loaders.settings import MergeSettings
from loaders.store import Body, MultipartUpload, ObjectStore, PartReceipt
from loaders.store.base import PART_NUMBER_MAX


class PartBuffer:
    """Memory for one part. One thread at a time."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self._view: memoryview | None = None
        self.capacity_bytes = 0

    def fill(self, pieces: Iterable[Body]) -> memoryview:
        """Write pieces one after another; the bytes stay until `clear`.

        Complexity: O(bytes), no step in Python a piece.

        Raises:
            BufferError: the buffer was filled before and not cleared.
        """
        self._stream.seek(0)
        self._stream.writelines(pieces)
        size_bytes = self._stream.tell()
        self.capacity_bytes = max(self.capacity_bytes, size_bytes)
        self._view = self._stream.getbuffer()[:size_bytes]
        return self._view

    def clear(self) -> None:
        """Release the bytes; their views must not be used any more."""
        if self._view is not None:
            self._view.release()
            self._view = None


class PartBuffers:
    """The buffers of one merge. One thread at a time.

    Args:
        size_bytes_max: of all free buffers; a returned buffer beyond that is discarded.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._free: list[PartBuffer] = []

    def take(self) -> PartBuffer:
        """An empty buffer: a used one, if there is any."""
        return self._free.pop() if self._free else PartBuffer()

    def give_back(self, buffer: PartBuffer) -> None:
        """Return a buffer whose bytes were sent."""
        buffer.clear()
        if sum(free.capacity_bytes for free in self._free) + buffer.capacity_bytes <= self._size_bytes_max:
            self._free.append(buffer)


class _Sending(NamedTuple):
    """Bytes that are being sent, and the buffer that holds them."""

    size_bytes: int
    buffer: PartBuffer | None = None


class OutputSender:
    """Sends the parts of all outputs of one merge.

    Threads: called by one thread at a time; the requests run on the executor.

    Args:
        store: the store of the outputs.
        marks: of the outputs, by their keys, in the order of the outputs; never used before.
        settings: `sending_size_bytes` and `parallel_requests` are used.
        executor: of threads.
    """

    def __init__(
        self, store: ObjectStore, marks: Mapping[str, str], settings: MergeSettings, executor: Executor
    ) -> None:
        self._store = store
        self._marks = marks
        self._keys = list(marks)
        self._settings = settings
        self._executor = executor
        self._buffers = PartBuffers(settings.sending_size_bytes)
        self._running: dict[Future[PartReceipt | None], _Sending] = {}
        self._sending_bytes = 0
        self._uploads: dict[int, MultipartUpload] = {}
        self._receipts: dict[int, list[Future[PartReceipt | None]]] = {}
        self._may_exist: set[str] = set()

    def make_room(self, size_bytes: int) -> None:
        """Wait until the memory bound allows a part of this size.

        Raises:
            StoreError: a part could not be sent.
        """
        while self._running and (
            len(self._running) >= self._settings.parallel_requests
            or self._sending_bytes + size_bytes > self._settings.sending_size_bytes
        ):
            self._collect()

    def take_buffer(self) -> PartBuffer:
        """Memory for the next part, to be passed to `send`."""
        return self._buffers.take()

    def send(self, part: Part, body: Body, buffer: PartBuffer | None = None) -> None:
        """Send a part; the only part of an output becomes the object.

        Args:
            part: the part.
            body: its bytes.
            buffer: the buffer that holds the bytes, if it is to be used again when they are sent.
        """
        sending = _Sending(len(body), buffer)
        if part.is_last and part.number == 1:
            put = self._putter(part.output)
            self._note(self._executor.submit(put, body), sending)
        else:
            self._submit_part(part, lambda upload: upload.upload_part(part.number, body), sending)

    def copy(self, part: Part, source_key: str, start: int, end: int) -> None:
        """Let the store copy a part from another object; never the only part of an output."""
        self._submit_part(part, lambda upload: upload.copy_part(part.number, source_key, start, end), _Sending(0))

    def finish(self) -> None:
        """Wait for all parts, and complete the objects."""
        while self._running:
            self._collect()
        for output, upload in list(self._uploads.items()):
            receipts = [future.result() for future in self._receipts[output]]
            key = self._keys[output]
            refuse_existing(self._store, key, self._marks[key])
            self._may_exist.add(key)
            try:
                upload.complete([receipt for receipt in receipts if receipt is not None])
            except StoreError:
                if not self._is_complete(key):
                    raise
            del self._uploads[output]

    def take_back(self, failure: BaseException) -> None:
        """Abort all uploads and delete all outputs; an error of that is added to the failure as a note."""
        end_all(self._running)
        undo: list[Callable[[], None]] = [upload.abort for upload in self._uploads.values()]
        undo += [self._deleter(key) for key in sorted(self._may_exist)]
        for step in undo:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the first error is the one to be raised
                failure.add_note(f"and the written outputs could not be deleted, so some may remain: {error}")

    def _putter(self, output: int) -> Callable[[Body], None]:
        key = self._keys[output]
        self._may_exist.add(key)

        def put(body: Body) -> None:
            try:
                create_object(self._store, key, body, mark=self._marks[key])
            except (NamespaceShared, ObjectExists):
                self._may_exist.discard(key)
                raise

        return put

    def _deleter(self, key: str) -> Callable[[], None]:
        def delete() -> None:
            if self._has_mark(key):
                self._store.delete(key)

        return delete

    def _is_complete(self, key: str) -> bool:
        """Whether a completion without a clear reply was carried out, as far as the store says."""
        try:
            return self._has_mark(key)
        except StoreError:
            return False

    def _has_mark(self, key: str) -> bool:
        """Whether the object at a key is the one that this merge wrote."""
        try:
            return self._store.get_range(key, 0, 1).mark == self._marks[key]
        except KeyMissing:
            return False

    def _note(self, future: Future[PartReceipt | None] | Future[None], sending: _Sending) -> None:
        self._running[cast("Future[PartReceipt | None]", future)] = sending
        self._sending_bytes += sending.size_bytes

    def _submit_part(self, part: Part, send: Callable[[MultipartUpload], PartReceipt], sending: _Sending) -> None:
        if part.number > PART_NUMBER_MAX:
            key = self._keys[part.output]
            raise FormatLimit(f"object {key!r}: expected at most {PART_NUMBER_MAX} parts, found more: use larger ones")
        if part.output not in self._uploads:
            key = self._keys[part.output]
            self._uploads[part.output] = start_upload(self._store, key, self._marks[key])
        future: Future[PartReceipt | None] = self._executor.submit(send, self._uploads[part.output])
        self._receipts.setdefault(part.output, []).append(future)
        self._note(future, sending)

    def _collect(self) -> None:
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            sending = self._running.pop(future)
            self._sending_bytes -= sending.size_bytes
            if sending.buffer is not None:
                self._buffers.give_back(sending.buffer)
        for future in done:
            future.result()
