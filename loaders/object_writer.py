"""Writes one object to a store while it is being encoded.

    with ObjectWriter(store, ObjectLayout(), object_id=42) as writer:
        writer.write(233, batches)          # stream ids do not decrease
        writer.write(234, more)
    writer.ref, writer.ranges               # what to commit

An object of up to one part (16 MiB by default) is one put. A larger one goes out by multipart as it grows, so that no
more than one part, and what a single call of ``write`` adds to it, is ever in memory:

    written   |=== part 1 ===|=== part 2 ===|=== pending ...      index rows, 36 bytes each, wait in the encoder
              sent           sent

An object appears whole or not at all: what fails inside the ``with`` block aborts the upload, and nothing is left of
it. A lost answer to the very last request is settled by reading. An object is created and never written over: see
`object_creation`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from loaders.format import ObjectEncoder, tail_checksum
from loaders.format.object_encoder import BLOCK_THRESHOLD_BYTES
from loaders.object_ref import ObjectRef, Proof
from loaders.streamed_object import PART_SIZE_BYTES, StreamedObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from loaders.backoff import Backoff
    from loaders.format import RecordBatch
    from loaders.layout import ObjectLayout
    from loaders.store import ObjectStore
    from range_index import ObjectRanges


class ObjectWriter:
    """Writes one object; a context manager that is used once.

    Args:
        store: where to.
        layout: where in it.
        object_id: the object's id, never used before; another object that lies there already is left alone.
        part_size_bytes: size of the parts of a large object, at least 1; S3 refuses parts below 5 MiB.
        block_threshold_bytes: payload bytes that close a block, see `ObjectEncoder`.
        backoff: pauses before a put without a clear answer is sent again; None = none.

    The end of the block raises ObjectExists if another object lies at the key, and StoreError if it cannot be written.

    Threads: one at a time.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: ObjectLayout,
        object_id: int,
        *,
        part_size_bytes: int = PART_SIZE_BYTES,
        block_threshold_bytes: int = BLOCK_THRESHOLD_BYTES,
        backoff: Backoff | None = None,
    ) -> None:
        self.key = layout.object_key(object_id)
        self._object_id = object_id
        self._store = store
        self._object = StreamedObject(
            store, self.key, part_size_bytes=part_size_bytes, is_written_once=True, backoff=backoff
        )
        self._encoder = ObjectEncoder(block_threshold_bytes)
        self._failure: BaseException | None = None
        self._ref: ObjectRef | None = None
        self._ranges: ObjectRanges | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = error or self._failure
        if failure is None:
            self._finish()
            return
        self._abort(failure)
        if error is None:
            raise failure  # swallowed inside the block: the object is not whole, and must not pass for written

    @property
    def ref(self) -> ObjectRef:
        """The object with its size, the size of its index and the checksum of its tail, once it is written.

        Raises:
            ValueError: it is not written yet, or was aborted.
        """
        if self._ref is None:
            raise ValueError(f"expected object {self._object_id} to be written, found that it is not")
        return self._ref

    @property
    def ranges(self) -> ObjectRanges:
        """What the object holds, once it is written; as a reader would find it.

        Raises:
            ValueError: it is not written yet, or was aborted.
        """
        if self._ranges is None:
            raise ValueError(f"expected object {self._object_id} to be written, found that it is not")
        return self._ranges

    def write(self, stream_id: int, batches: Iterable[RecordBatch]) -> None:
        """Append batches of one stream; ends with the end of a block.

        Complexity: O(batches), and a request for each part that they fill.

        Args:
            stream_id: at least that of the call before.
            batches: of this stream, in order of offsets.

        Raises:
            FormatError, FormatLimit: see `ObjectEncoder.write`; nothing was added and the writer goes on.
            StoreError: a part could not be sent; nothing helps but to leave the block.
            ValueError: the object is written or aborted already.
        """
        if self._failure is not None:
            raise self._failure
        if self._ref is not None:
            raise ValueError(f"expected an object that is being written, found object {self._object_id} finished")
        self._append(self._encoder.write(stream_id, batches))

    def _append(self, data: bytes) -> None:
        with self._remembered():
            self._object.write(data)

    def _finish(self) -> None:
        end = self._encoder.finish()
        try:
            self._append(end)
            self._object.finish()
        except BaseException as error:
            self._abort(error)
            raise
        index = self._encoder.index()
        size_bytes, proof = self._encoder.size_bytes, Proof(self.key, self._store)
        checksum = tail_checksum(end, object_size_bytes=size_bytes, index_size_bytes=index.nbytes)
        self._ref = ObjectRef(self._object_id, size_bytes, index.nbytes, tail_checksum=checksum, proof=proof)
        self._ranges = index.object_ranges()

    def _abort(self, failure: BaseException) -> None:
        self._failure = failure
        self._object.abort(failure)

    @contextmanager
    def _remembered(self) -> Iterator[None]:
        """A part that was not sent is missing for good, even if the caller carries on."""
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise
