"""Writes objects, each of them once: an object is sent while it is encoded, and never replaces another one.

    with ObjectWriter(store, ObjectLayout(), object_id=42) as writer:
        writer.write(233, batches)          # stream ids do not decrease
        writer.write(234, more)
    writer.ref, writer.ranges               # to be committed

**Parts.** An object of up to one part (16 MiB by default) is one PUT. A larger object is sent by multipart upload as it
grows (`StreamedObject`, also for other bytes than objects of streams). So memory holds at most one part and the bytes
of one call of ``write``:

    written   |=== part 1 ===|=== part 2 ===|=== pending ...      index rows, 36 bytes each, wait in the encoder
              sent           sent

An object appears whole or not at all: an error inside the ``with`` block aborts the upload, and leaves no object. If
the reply to the last request is lost, the writer reads the key to find the outcome.

**Creation.** Ids are allocated once, so there should be no object at the key. If the counter of ids went back, there
may be one, perhaps a live one. A plain PUT would replace it silently. So an object that is sent in one request is a PUT
with If-None-Match:*, and the store's answer decides:

    | answer                              | consequence                                                           |
    |-------------------------------------|-----------------------------------------------------------------------|
    | 200                                 | written                                                               |
    | 412                                 | the key is read: the same bytes mean written (by an earlier copy of   |
    |                                     | this request), others `ObjectExists`, or `NamespaceShared` (see below)|
    | 409, 500, 503, none (a lost reply)  | as for 412; if the key is missing, the same bytes are sent again      |

A multipart upload cannot have this condition: servers in real use ignore conditions on its completion. Instead the key
is read just before the completion. That shortens the time in which another object may appear, but proves nothing: such
objects depend on the counter of ids, and on the preparation of the id.

**Marks.** Objects of a catalog are written with a mark (`loaders.layout.Mark`). If the object at the key has no mark of
this catalog, another system writes there: `NamespaceShared`. The nonce of the mark decides whether a completion without
a reply was carried out. A server may lose metadata: bytes decide for an object without a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from loaders.backoff import Backoff
from loaders.errors import (
    AccessDenied,
    FormatLimit,
    KeyMissing,
    NamespaceShared,
    ObjectExists,
    PreconditionFailed,
    RangeInvalid,
    StoreError,
    StoreUnavailable,
    WriteConflict,
)
from loaders.format import ObjectEncoder, RecordBatch, tail_checksum
from loaders.format.object_encoder import BLOCK_THRESHOLD_BYTES
from loaders.layout import NO_CATALOG, Mark, ObjectLayout, upload_key
from loaders.lifetime import Closing, Lifetime
from loaders.object_ref import ObjectRef, Proof
from loaders.settings import PART_SIZE_BYTES
from loaders.store.base import PART_NUMBER_MAX, Body, CreateOnly, Fetched, MultipartUpload, ObjectStore, PartReceipt
from range_index import ObjectRanges


class ObjectWriter(Closing):
    """Writes one object; a context manager that is used once.

    Args:
        store: receives the object.
        layout: of the store's keys.
        object_id: the object's id, never used before; an object that exists at its key is not changed.
        part_size_bytes: size of the parts of a large object, at least 1; S3 refuses parts below 5 MiB.
        block_threshold_bytes: payload bytes that close a block, see `ObjectEncoder`.
        backoff: pauses before a put without a clear answer is sent again; None = none.
        nonce: returns 16 random bytes, for the object's mark; None = it is written without a mark.

    The end of the block raises ObjectExists if another object is at the key, NamespaceShared if another system wrote
    it, and StoreError if it cannot be written.

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
        nonce: Callable[[], bytes] | None = None,
    ) -> None:
        self.key = layout.object_key(object_id)
        self._object_id = object_id
        self._store = store
        mark = None if nonce is None else layout.mark(object_id, nonce)
        self._object = StreamedObject(
            store, self.key, part_size_bytes=part_size_bytes, is_written_once=True, backoff=backoff, mark=mark
        )
        self._encoder = ObjectEncoder(block_threshold_bytes)
        self._failure: BaseException | None = None
        self._ref: ObjectRef | None = None
        self._ranges: ObjectRanges | None = None

    def _end_block(self, error: BaseException | None) -> None:
        failure = error or self._failure
        if failure is None:
            self._finish()
            return
        self._abort(failure)
        if error is None:
            raise failure  # suppressed inside the block: the object is not whole, and must not count as written

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
        """The ranges in the object, once it is written; as a reader would find them.

        Raises:
            ValueError: it is not written yet, or was aborted.
        """
        if self._ranges is None:
            raise ValueError(f"expected object {self._object_id} to be written, found that it is not")
        return self._ranges

    def write(self, stream_id: int, batches: Iterable[RecordBatch]) -> None:
        """Append batches of one stream; the call ends with the end of a block.

        Complexity: O(batches), and a request for each part that they fill.

        Args:
            stream_id: at least the stream id of the call before.
            batches: of this stream, in order of offsets.

        Raises:
            FormatError, FormatLimit: see `ObjectEncoder.write`; nothing was added and the writer can be used further.
            StoreError: a part could not be sent; the caller must leave the block.
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
        """Record the error: a part that was not sent stays missing, even if the caller continues."""
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise


class StreamedObject:
    """An object that is being written.

    Args:
        store: receives the object.
        key: `finish` replaces an object that exists there, unless the key is written once.
        part_size_bytes: of a multipart upload; S3 refuses less than 5 MiB.
        is_written_once: the key is created and never overwritten.
        backoff: pauses before a put of such a key is sent again; None = none.
        mark: of the object; None = none.

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
        mark: str | None = None,
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
        self._mark = mark
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
        # Only if more than one part is pending: an object of exactly one part is sent by one put.
        while len(self._pending) > self._part_size_bytes:
            with memoryview(self._pending) as pending, pending[: self._part_size_bytes] as part:
                self._send_part(part)
            del self._pending[: self._part_size_bytes]

    def finish(self) -> None:
        """Send the rest; then the object exists.

        Raises:
            ObjectExists, NamespaceShared: it is to be written once, and another object is at its key.
            StoreError: it could not be sent; abort it.
        """
        self._lifetime.check_process()
        if self._upload is not None:
            self._send_part(self._pending)
            self._complete(self._upload)
        elif self._is_written_once:
            create_object(self._store, self.key, self._pending, self._backoff, self._mark)
        else:
            self._store.put(self.key, self._pending, mark=self._mark)
        self._pending.clear()

    def abort(self, failure: BaseException) -> None:
        """Delete the parts that were sent; if that fails too, the first failure gets a note."""
        self._pending.clear()
        if self._upload is None or not self._lifetime.is_here:
            return  # nothing was sent, or the process that began the upload continues it
        try:
            self._upload.abort()
        except Exception as error:  # noqa: BLE001 - the first failure is the one to report
            failure.add_note(f"and its upload could not be aborted, so parts of it may remain: {error}")

    def _complete(self, upload: MultipartUpload) -> None:
        if not self._is_written_once:
            upload.complete(self._receipts)
            return
        refuse_existing(self._store, self.key, self._mark)
        try:
            upload.complete(self._receipts)
        except StoreError:
            if not self._is_complete():
                raise

    def _is_complete(self) -> bool:
        # The key was missing just before: an object of this size that ends with the last part is this one.
        try:
            return ends_with(self._store, self.key, self.size_bytes, self._pending, self._mark)
        except StoreError:
            return False

    def _send_part(self, body: Body) -> None:
        number = len(self._receipts) + 1
        if number > PART_NUMBER_MAX:
            most = f"{PART_NUMBER_MAX} parts of {self._part_size_bytes} bytes"
            raise FormatLimit(f"object {self.key!r}: expected at most {most}, found more")
        if self._upload is None:
            self._upload = start_upload(self._store, self.key, self._mark)
        self._receipts.append(self._upload.upload_part(number, body))


def start_upload(store: ObjectStore, key: str, mark: str | None) -> MultipartUpload:
    """Begin a multipart upload; that of an object of a catalog is recorded until it ends. One request, or two.

    The parts of a process that dies stay in the store, which lists them without their metadata. The record, which is
    written before the first part, proves whose they are: `accel catalog gc` deletes them when it is old.

    Raises:
        StoreError: nothing was begun.
    """
    upload = store.start_multipart(key, mark=mark)
    owner = Mark.of(mark)
    if owner is None or owner.catalog_id == NO_CATALOG or not upload.upload_id:
        return upload
    record = upload_key(owner.object_id, upload.upload_id)
    try:
        store.put(record, b"")
    except BaseException:
        with suppress(StoreError):
            upload.abort()
        raise
    return _RecordedUpload(upload, store, record)


class _RecordedUpload:
    """An upload whose record is deleted when it ends; see `MultipartUpload`. Threads: as the upload."""

    def __init__(self, upload: MultipartUpload, store: ObjectStore, record: str) -> None:
        self.upload_id = upload.upload_id
        self.upload_part = upload.upload_part
        self.copy_part = upload.copy_part
        self._upload = upload
        self._store = store
        self._record = record

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        etag = self._upload.complete(receipts)
        self._forget()
        return etag

    def abort(self) -> None:
        self._upload.abort()
        self._forget()

    def _forget(self) -> None:
        # If it stays, the collector aborts an upload that has ended, which changes nothing.
        with suppress(StoreError):
            self._store.delete(self._record)


ATTEMPTS_MAX = 4
"""Number of times that the same bytes are sent while the store neither has nor refuses them."""


def create_object(
    store: ObjectStore, key: str, body: Body, backoff: Backoff | None = None, mark: str | None = None
) -> None:
    """Write an object at a missing key; an object with the same bytes counts as written. Usually one request.

    Args:
        store: receives the object.
        key: of an object that is written once.
        body: at least one byte.
        backoff: pauses before it is sent again; None = none.
        mark: of the object; None = none.

    Raises:
        ObjectExists: the key has an object with other bytes, which was not changed.
        NamespaceShared: likewise, and it has no mark of the same catalog.
        StoreUnavailable, WriteConflict: the outcome is not known; writing the same bytes again is safe.
        StoreError: not written.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            store.put(key, body, condition=CreateOnly(), mark=mark)
        except (PreconditionFailed, WriteConflict, StoreUnavailable) as error:
            if _is_written(store, key, body, mark, error):
                return
            if attempt == ATTEMPTS_MAX:
                raise
        else:
            return
        if backoff is not None:
            backoff.pause(attempt)


def refuse_existing(store: ObjectStore, key: str, mark: str | None = None) -> None:
    """Check that a key is free; the module docstring describes the limits of this check. One request, or two.

    Args:
        store: the store.
        key: of an object that is written once.
        mark: of the object that is about to be completed; None = none.

    Raises:
        ObjectExists: it is not free.
        NamespaceShared: likewise, and the object there has no mark of the same catalog.
        StoreError: the request failed.
    """
    found = _start_of(store, key, 1)
    if found is not None:
        raise _taken("complete", key, "expected no object", found, mark)


def _start_of(store: ObjectStore, key: str, size_bytes: int) -> Fetched | None:
    """The first bytes of an object; None if it is missing, or if the store does not report it."""
    try:
        return fetch_mark(store, key, size_bytes)
    except (KeyMissing, AccessDenied):
        return None


def _taken(operation: str, key: str, expected: str, found: Fetched, mark: str | None) -> StoreError:
    """The error about an object at the key of an object with this mark, which is about to be written."""
    ours, theirs, size_bytes = Mark.of(mark), Mark.of(found.mark), found.object_size_bytes
    if ours is None or ours.catalog_id == NO_CATALOG:
        return ObjectExists(operation, key, f"{expected}, found another of {size_bytes} bytes")
    if theirs is not None and (theirs.catalog_id, theirs.object_id) == (ours.catalog_id, ours.object_id):
        return ObjectExists(operation, key, f"{expected}, found another of this catalog, of {size_bytes} bytes")
    whose = "it has no mark" if theirs is None else f"its mark is of {theirs.catalog_id}, object {theirs.object_id}"
    found_text = f"found another of {size_bytes} bytes, which catalog {ours.catalog_id} did not write: {whose}"
    return NamespaceShared(operation, key, f"{expected}, {found_text}")


def fetch_mark(store: ObjectStore, key: str, size_bytes: int = 1) -> Fetched:
    """Fetch the first bytes of an object, for its mark, ETag and size. One request; two for an empty object.

    Raises:
        KeyMissing: there is no object.
        StoreError: the request failed.
    """
    try:
        return store.get_range(key, 0, size_bytes)
    except RangeInvalid:
        return store.get(key, size_bytes_max=0)


def stored_size_bytes(store: ObjectStore, key: str) -> int | None:
    """The size of an object; None if it is missing, or if the store does not report it. One request, one byte.

    Without the permission to list, S3 answers 403 for a missing key: that counts as missing.
    """
    try:
        return store.get_range(key, 0, 1).object_size_bytes
    except RangeInvalid:
        return 0
    except (KeyMissing, AccessDenied):
        return None


def ends_with(store: ObjectStore, key: str, size_bytes: int, ending: Body, mark: str | None = None) -> bool:
    """Whether a key has an object of this size with these last bytes, and with no other mark. One request."""
    try:
        tail = store.get_tail(key, len(ending))
    except (KeyMissing, AccessDenied):
        return False
    return tail.object_size_bytes == size_bytes and tail.body == ending and tail.mark in {mark, None}


def _is_written(store: ObjectStore, key: str, body: Body, mark: str | None, error: StoreError) -> bool:
    """Whether the object at the key is this one; False if there is no object."""
    start = _start_of(store, key, len(body))
    if start is None:
        return False
    taken = _taken("put", key, f"expected no object, or this one of {len(body)} bytes", start, mark)
    is_same = start.object_size_bytes == len(body) and start.body == body
    if is_same and (start.mark is None or not isinstance(taken, NamespaceShared)):
        return True
    raise taken from error
