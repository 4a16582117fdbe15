"""Reads the sources of a merge band by band and sends the outputs part by part, within bounds of memory.

    a small group      one request an object reads all of it, including its index
    a large group      one request reads the index (two if its size is unknown and the guess is too small);
                       the blocks are read later, band by band

Objects that link others (composite ones) are refused: they do not contain their blocks. A node's list never has any.

All outputs, one after another, are one long list of copies. The list is cut twice, always between two copies:

    copies   ||||||||||||||||||||||||||||||||||||||||||||||||||||||||||
    parts    |-----|-----|-----|--|------|-----|---|-----|-----|------     each is sent with one request
    bands    |-----------------|-------------|-------------|----------     each is read before it is sent

A part ends with the copy that brings it to the part size, or with its output. A band has as many parts as the memory
limit allows. Within a source the copies of a band are nearly always one range of bytes, because a source has the order
of the outputs; then one request a source reads its share of the band. In sources that were made by joining sections end
to end, the share is one range a section.

Unneeded bytes in between (left out, or of another band) are read as well if they are few: a request costs more than
some kilobytes do. The largest allowed gap with which the band still fits is used.

**Sending.** Parts are sent to the store while the next parts are being joined. An output of one part is one PUT; a
larger output is a multipart upload and appears whole or not at all. After an error all uploads are aborted, and outputs
that are written, or may be written (a reply was lost), are deleted if the mark of the object at the key is that of this
merge: one GET more. An object that exists at such a key belongs to another writer: it is neither overwritten nor
deleted (see `loaders.object_writer`).

**Buffers.** A part is some 16 MiB. The system provides memory of that size page by page at each allocation, and
clearing and mapping these pages takes longer than copying into them. So the parts in memory share a few buffers: one
buffer is filled while others are being sent, and is free again when its request is done.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from loaders.errors import (
    CorruptObject,
    FormatError,
    FormatLimit,
    KeyMissing,
    NamespaceShared,
    ObjectExists,
    StoreError,
)
from loaders.format import (
    FOOTER_SIZE_BYTES,
    BlockIndex,
    guess_tail_size_bytes,
)
from loaders.format.index import join_spans
from loaders.layout import ObjectLayout
from loaders.merge.plan import Copies, MergedOutput
from loaders.object_index import fetch_tail, open_fetched
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.object_writer import create_object, refuse_existing, start_upload
from loaders.settings import MergeSettings
from loaders.store import Body, Fetched, MultipartUpload, ObjectStore, PartReceipt
from loaders.store.base import PART_NUMBER_MAX
from loaders.threads import end_all, map_bounded

ROW_SIZE_BYTES_MAX = 64 << 20
"""A row of an index with more bytes is refused: rows are moved whole, and memory is bounded.
A writer closes a block at half a mebibyte, so only a single huge record makes such a row."""


DEFAULT_SETTINGS = MergeSettings()

SENDING_SIZE_BYTES = 32 << 20
"""Bytes of parts that are being sent."""

GAP_ALLOWANCES_BYTES = (1 << 20, 1 << 16, 1 << 12, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An object to be merged. Threads: immutable.

    Args:
        ref: the object, with its true sizes and the checksum of its tail.
        key: its key in the store.
        index: its rows.
        body: all its bytes, or None if they are to be read band by band.
    """

    ref: ObjectRef
    key: str
    index: BlockIndex
    body: bytes | None

    @property
    def data_size_bytes(self) -> int:
        """Bytes before the index."""
        return self.ref.size_bytes - self.index.nbytes - FOOTER_SIZE_BYTES

    def corrupt(self, *, expected: str, found: str) -> CorruptObject:
        """The error that names this object."""
        return CorruptObject(self.key, self.ref.size_bytes, expected=expected, found=found)


def open_sources(
    store: ObjectStore,
    layout: ObjectLayout,
    refs: Sequence[ObjectRef],
    settings: MergeSettings = DEFAULT_SETTINGS,
    *,
    executor: Executor,
) -> list[Source]:
    """Open a group of objects, in their order.

    Requests: one an object; one more if the metadata do not contain the size of its index, and the guess is too small.

    Args:
        store: the store of the objects.
        layout: the keys of objects in the store.
        refs: the objects; whole objects are read if the sizes of all are known and fit one band, and the store is not
            to copy the data itself.
        settings: `band_size_bytes`, `parallel_requests` and `server_side` are used.
        executor: of threads; runs the requests.

    Raises:
        FormatError: a composite object.
        CorruptObject: an object contradicts the format or its metadata.
        KeyMissing, StoreUnavailable and the like: from the store.
    """
    sizes = [ref.size_bytes for ref in refs]
    copies_itself = settings.server_side and store.can_copy_parts
    whole = UNKNOWN not in sizes and sum(sizes) <= settings.band_size_bytes and not copies_itself

    def opened(ref: ObjectRef) -> Source:
        key = layout.object_key(ref.object_id)
        if ref.is_composite:
            raise _composite(key)
        fetched = store.get(key) if whole else fetch_tail(store, key, ref, _tail_size_bytes(ref))
        found = open_fetched(store, key, ref, fetched)
        if found is None:
            raise _composite(key)
        body = fetched.body if len(fetched.body) == fetched.object_size_bytes else None
        return Source(found.ref, key, found.index, body)

    return map_bounded(executor, opened, refs, settings.parallel_requests)


def _tail_size_bytes(ref: ObjectRef) -> int:
    if ref.index_size_bytes != UNKNOWN:
        return ref.index_size_bytes + FOOTER_SIZE_BYTES
    return guess_tail_size_bytes(1 << 20 if ref.size_bytes == UNKNOWN else ref.size_bytes)


def _composite(key: str) -> FormatError:
    return FormatError(f"object {key!r}: expected blocks of its own to merge, found a composite object, which has none")


def check_whole(source: Source, span: SourceSpan, body: bytes) -> None:
    """Refuse a body that is not the whole span."""
    if len(body) != span.end - span.start:
        expected = f"bytes [{span.start}, {span.end})"
        raise source.corrupt(expected=expected, found=f"{len(body)} bytes from {span.start} on")


class Part(NamedTuple):
    """Some copies of one output.

    Attributes:
        output: the number of the output.
        number: of the part within the output, from 1 on.
        first: its first copy, counted within the output.
        end: one past its last copy.
        size_bytes: of these copies; the last part also contains index and footer.
        is_last: whether the output ends with it.
    """

    output: int
    number: int
    first: int
    end: int
    size_bytes: int
    is_last: bool


class SourceSpan(NamedTuple):
    """Bytes ``[start, end)`` of one source."""

    source: int
    start: int
    end: int


class LocatedCopies(NamedTuple):
    """The places of the bytes of copies: for each copy the number of a chunk, and the offset in the chunk."""

    chunks: NDArray[np.int64]
    offsets: NDArray[np.int64]


def divide(outputs: Sequence[MergedOutput], settings: MergeSettings) -> list[list[Part]]:
    """Divide the outputs into parts, and the parts into bands, in the order of the outputs.

    Raises:
        FormatLimit: a row is too large to be moved in memory.
    """
    bands: list[list[Part]] = []
    room = 0
    for part in _parts(outputs, settings.part_size_bytes):
        if not bands or part.size_bytes > room:
            bands.append([])
            room = settings.band_size_bytes // 2  # unneeded bytes that are read come on top, and the allocator's own
        bands[-1].append(part)
        room -= part.size_bytes
    return bands


def _parts(outputs: Sequence[MergedOutput], part_size_bytes: int) -> Iterator[Part]:
    for output, merged in enumerate(outputs):
        sizes = merged.copies["size_bytes"].astype(np.int64)
        if (largest := int(sizes.max())) > ROW_SIZE_BYTES_MAX:
            raise FormatLimit(f"expected rows of at most {ROW_SIZE_BYTES_MAX} bytes to merge, found one of {largest}")
        totals = np.cumsum(sizes)
        first, done, number = 0, 0, 1
        while first < len(sizes):
            end = min(int(np.searchsorted(totals, done + part_size_bytes)) + 1, len(sizes))
            size_bytes = int(totals[end - 1]) - done
            yield Part(output, number, first, end, size_bytes, end == len(sizes))
            first, done, number = end, done + size_bytes, number + 1


def spans_of(copies: Copies, most: int) -> list[SourceSpan]:
    """The spans of the sources to read for these copies, ascending by (source, start).

    Complexity: O(n log n), no loop over copies in Python; a step for each span.

    Args:
        copies: at least one, in any order.
        most: bytes to read at most, unless the copies themselves have more.
    """
    copies = copies[np.lexsort((copies["position"], copies["source"]))]
    sources, starts = copies["source"], copies["position"]
    ends = starts + copies["size_bytes"]
    spans: list[SourceSpan] = []
    for allowance in GAP_ALLOWANCES_BYTES:
        joined = join_spans(starts, ends, sources, gap_size_bytes_max=allowance)
        spans = [SourceSpan(int(sources[first]), int(starts[first]), int(ends[stop - 1])) for first, stop in joined]
        if sum(span.end - span.start for span in spans) <= most:
            break
    return spans


def locate(spans: Sequence[SourceSpan], sources: NDArray[np.int32], positions: NDArray[np.int64]) -> LocatedCopies:
    """Find for each copy its span among these spans, ascending by (source, start), and its offset in the span."""
    table = np.array(spans, dtype=np.int64).reshape(len(spans), 3)
    # One number for (source, position), so that one binary search finds both.
    width = int(max(table[:, 2].max(), positions.max())) + 1
    places = table[:, 0] * width + table[:, 1]
    chunks = np.searchsorted(places, sources.astype(np.int64) * width + positions, side="right") - 1
    return LocatedCopies(chunks, positions - table[chunks, 1])


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
        settings: `parallel_requests` is used.
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
        self._buffers = PartBuffers(SENDING_SIZE_BYTES)
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
            or self._sending_bytes + size_bytes > SENDING_SIZE_BYTES
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

    def refuse_other(self, key: str, found: Fetched) -> None:
        """Check that an object is the one that this merge wrote, as far as its mark says.

        Raises:
            ObjectExists: another merge wrote it.
        """
        if found.mark is not None and found.mark != self._marks[key]:
            raise ObjectExists("get_range", key, f"expected an object with mark {self._marks[key]}, found {found.mark}")

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
