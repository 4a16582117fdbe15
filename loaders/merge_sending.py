"""Sends parts to the store while the next ones are being put together, within a bound on memory.

An output of one part is one put; a larger one goes out by multipart and appears whole or not at all. What fails takes
everything back: uploads are aborted, and outputs that are written already, or may be (a reply was lost), are deleted.
Their ids were promised to this merge alone. What lies at such a key all the same is another's: it is neither written
over nor deleted (see `object_creation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import NamedTuple, cast

from loaders.errors import FormatLimit, ObjectExists
from loaders.merge_bands import Part
from loaders.merge_buffers import PartBuffer, PartBuffers
from loaders.merge_settings import MergeSettings
from loaders.object_creation import create_object, refuse_existing
from loaders.parallel import end_all
from loaders.store import Body, MultipartUpload, ObjectStore, PartReceipt
from loaders.store.base import PART_NUMBER_MAX


class _Sending(NamedTuple):
    """Bytes on their way, and the buffer that they lie in."""

    size_bytes: int
    buffer: PartBuffer | None = None


class OutputSender:
    """Sends the parts of all outputs of one merge.

    Threads: one at a time calls it; the requests run on the executor.

    Args:
        store: where to.
        keys: of the outputs.
        settings: `sending_size_bytes` and `parallel_requests` matter here.
        executor: of threads.
    """

    def __init__(self, store: ObjectStore, keys: Sequence[str], settings: MergeSettings, executor: Executor) -> None:
        self._store = store
        self._keys = keys
        self._settings = settings
        self._executor = executor
        self._buffers = PartBuffers(settings.sending_size_bytes)
        self._running: dict[Future[PartReceipt | None], _Sending] = {}
        self._sending_bytes = 0
        self._uploads: dict[int, MultipartUpload] = {}
        self._receipts: dict[int, list[Future[PartReceipt | None]]] = {}
        self._may_exist: set[str] = set()

    def make_room(self, size_bytes: int) -> None:
        """Wait until a part of this size may be put together.

        Raises:
            StoreError: a part could not be sent.
        """
        while self._running and (
            len(self._running) >= self._settings.parallel_requests
            or self._sending_bytes + size_bytes > self._settings.sending_size_bytes
        ):
            self._collect()

    def take_buffer(self) -> PartBuffer:
        """Memory for the next part, which is then to be sent."""
        return self._buffers.take()

    def send(self, part: Part, body: Body, buffer: PartBuffer | None = None) -> None:
        """Send a part; the first and only one of an output becomes the object.

        Args:
            part: which.
            body: its bytes.
            buffer: what they lie in, if it is to be used again when they are sent.
        """
        sending = _Sending(len(body), buffer)
        if part.is_last and part.number == 1:
            put = self._putter(part.output)
            self._note(self._executor.submit(put, body), sending)
        else:
            self._submit_part(part, lambda upload: upload.upload_part(part.number, body), sending)

    def copy(self, part: Part, source_key: str, start: int, end: int) -> None:
        """Let the store make a part from bytes of another object; never the only part of an output."""
        self._submit_part(part, lambda upload: upload.copy_part(part.number, source_key, start, end), _Sending(0))

    def finish(self) -> None:
        """Wait for all parts, and make the objects out of them."""
        while self._running:
            self._collect()
        for output, upload in list(self._uploads.items()):
            receipts = [future.result() for future in self._receipts[output]]
            refuse_existing(self._store, self._keys[output])
            self._may_exist.add(self._keys[output])
            upload.complete([receipt for receipt in receipts if receipt is not None])
            del self._uploads[output]

    def take_back(self, failure: BaseException) -> None:
        """Leave nothing behind; what could not be taken back is noted at the failure."""
        end_all(self._running)
        undo: list[Callable[[], None]] = [upload.abort for upload in self._uploads.values()]
        undo += [self._deleter(key) for key in sorted(self._may_exist)]
        for step in undo:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - what went wrong first is what has to be told
                failure.add_note(f"and what was written could not be taken back, so some may remain: {error}")

    def _putter(self, output: int) -> Callable[[Body], None]:
        key = self._keys[output]
        self._may_exist.add(key)

        def put(body: Body) -> None:
            try:
                create_object(self._store, key, body)
            except ObjectExists:
                self._may_exist.discard(key)
                raise

        return put

    def _deleter(self, key: str) -> Callable[[], None]:
        return lambda: self._store.delete(key)

    def _note(self, future: Future[PartReceipt | None] | Future[None], sending: _Sending) -> None:
        self._running[cast("Future[PartReceipt | None]", future)] = sending
        self._sending_bytes += sending.size_bytes

    def _submit_part(self, part: Part, send: Callable[[MultipartUpload], PartReceipt], sending: _Sending) -> None:
        if part.number > PART_NUMBER_MAX:
            key = self._keys[part.output]
            raise FormatLimit(f"object {key!r}: expected at most {PART_NUMBER_MAX} parts, found more: use larger ones")
        if part.output not in self._uploads:
            self._uploads[part.output] = self._store.start_multipart(self._keys[part.output])
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
