"""Reading records: from a range of offsets to its record batches, through objects and blocks.

The records of a range lie in blocks of the objects that a lookup finds. For each object in turn the rows of its index
say where, the bytes are fetched (neighbouring blocks in one request), and batches come out in offset order. Where the
index is not in memory and a snapshot has said where the stream's blocks lie, they are fetched at once; what comes is
checked as if an index row had named it, and if it does not fit, the index is opened after all. This too is a generator
without I/O; besides steps (`steps.py`) it yields `Batches`: here are records, answered with None.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from accel.errors import AccelError, AccessDenied, CorruptObject, KeyMissing, RangeInvalid
from accel.image import OPEN_END, MetadataImage
from accel.lookup.answer import Answer, Ending, FoundObject, Request
from accel.lookup.lookup import lookup, lost
from accel.lookup.steps import CurrentImage, FetchSpan, Inputs, NeedImage, OpenObject, ReadSent, RefreshFailed, Step
from loaders.format import BlockRow, RecordBatch, decode_block_bytes, find
from loaders.format.spans import block_spans
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef

LOOKUP_LIMIT = 4
"""Objects asked for in one lookup of a read, as a fetch of the production system does."""

HINTED_SIZE_BYTES_FREE = 1 << 20
"""Up to so many bytes are fetched at a snapshot's word even if few of them are wanted: an index is hardly smaller."""

BYTES_MAX = 2**31 - 1
"""The largest budget of one read; larger ones are cut to it."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Records for the caller, and the offset at which a later read goes on after them."""

    batches: list[RecordBatch]
    next_offset: int


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Why a read ended, and where the next one goes on."""

    ending: Ending
    next_offset: int


class Blocks(Protocol):
    """Where blocks lie, as far as snapshots have said."""

    def find(self, node_id: int, ref: ObjectRef, stream_id: int) -> BlockRow | None:
        """All blocks of a stream in an object as one row; None if not known, or if the object's index is at hand."""
        ...

    def used(self, node_id: int, object_id: int, stream_id: int, *, right: bool) -> None:
        """The bytes were fetched; whether they were what the row says."""
        ...


class Ranges(Protocol):
    """Gives bytes of objects: in place of the store, to a read that is to take them from somewhere else."""

    def get_range(self, key: str, start: int, end: int) -> bytes | memoryview:
        """Bytes [start, end) of an object; any thread may ask."""
        ...


ReadSteps = Generator[Step | Batches, ReadSent, ReadEnd]


def read_range(
    stream_id: int,
    start: int,
    end: int,
    max_bytes: int,
    inputs: Inputs,
    *,
    span_size_bytes_max: int,
    blocks: Blocks | None = None,
) -> ReadSteps:
    """The record batches of offsets [start, end), in order.

    Batches are whole: the first may begin before ``start``, the last may end after ``end``. The read stops after the
    batch that brings the payload to ``max_bytes``, so it gives at least one if there is one. Each of its lookups takes
    the image of its time: a read may last longer than an image may be served from.

    Raises (from the generator):
        ValueError: a budget below 1.
        AccelError: as `lookup`, and what fetching and decoding blocks raises.
    """
    if max_bytes < 1:
        raise ValueError(f"expected max_bytes of at least 1, found {max_bytes}")
    budget = min(max_bytes, BYTES_MAX)
    reader = _Reader(stream_id, start, end, budget, inputs, span_size_bytes_max=span_size_bytes_max, blocks=blocks)
    return reader.run()


class _Gone(Exception):
    """An object is missing; or access is denied, which without the right to list may mean the same."""

    def __init__(self, error: KeyMissing | AccessDenied, object_id: int, node_id: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.object_id = object_id
        self.node_id = node_id


def _failure(error: AccelError, object_id: int, node_id: int) -> Exception:
    return _Gone(error, object_id, node_id) if isinstance(error, KeyMissing | AccessDenied) else error


class _Reader:
    """The state of one read. One thread at a time."""

    def __init__(
        self,
        stream_id: int,
        start: int,
        end: int,
        max_bytes: int,
        inputs: Inputs,
        *,
        span_size_bytes_max: int,
        blocks: Blocks | None,
    ) -> None:
        self.stream_id = stream_id
        self.next = start
        self.end = end
        self.bytes_left = max_bytes
        self.span_size_bytes_max = span_size_bytes_max
        self.inputs = inputs
        self.blocks = blocks
        self.key_of = inputs.key_of

    def run(self) -> ReadSteps:
        retried_at = -1
        refreshed: ReadSent = None
        while True:
            request = Request(self.stream_id, self.next, self.end, LOOKUP_LIMIT)
            image = yield CurrentImage()
            if not isinstance(image, MetadataImage):
                raise TypeError(f"expected an image, found {type(image).__name__}")
            answer: Answer = yield from lookup(request, image, self.inputs)
            if not answer.objects:
                return ReadEnd(answer.ending, self.next)
            try:
                ending = yield from self._read_objects(answer)
            except _Gone as gone:
                # Compacted away between the lookup and the read: what lies there now stands in a newer image.
                if retried_at == self.next:
                    raise self._lost(gone, refreshed) from gone.error
                retried_at = self.next
                refreshed = yield NeedImage(answer.image_version)  # an image that comes of it is the current one then
                continue
            if ending is not None:
                return ReadEnd(ending, self.next)

    def _lost(self, gone: _Gone, refreshed: ReadSent) -> AccelError:
        if isinstance(gone.error, AccessDenied):
            return gone.error
        failed = refreshed if isinstance(refreshed, RefreshFailed) else None
        return lost(gone.object_id, gone.node_id, self.inputs, failed)

    def _read_objects(self, answer: Answer) -> Generator[Step | Batches, ReadSent, Ending | None]:
        """Read what a lookup found; the ending if the read is over."""
        for found in answer.objects:
            yield from self._read_object(found)
            if self.bytes_left <= 0:
                return Ending.LIMIT
            if self.end != OPEN_END and self.next >= self.end:
                return Ending.END
            if self.next < found.end:
                return Ending.HOLE  # the object's range has a hole inside
        return Ending.HOLE if answer.ending is Ending.HOLE else None

    def _read_object(self, found: FoundObject) -> Generator[Step | Batches, ReadSent, None]:
        if (yield from self._read_hinted(found)):
            return
        node_id = -1 if found.node_id is None else found.node_id
        opened = yield OpenObject(node_id, found.ref)
        if isinstance(opened, AccelError):
            raise _failure(opened, found.object_id, node_id)
        if not isinstance(opened, OpenedObject):
            raise TypeError(f"expected an opened object, found {type(opened).__name__}")
        if found.node_id is None and opened.composite is None:
            self._check_holds(found, opened)
        while True:
            before = self.next
            chosen = find(opened.index, self.stream_id, self.next, self.end, self.bytes_left)
            yield from self._read_rows(opened, chosen.rows, node_id)
            # Rows count a little more against the budget than their batches do: it may not be spent by what they held.
            ended = self.bytes_left <= 0 or (self.end != OPEN_END and self.next >= self.end)
            if ended or not chosen.fulfilled or self.next == before:
                return

    def _check_holds(self, found: FoundObject, opened: OpenedObject) -> None:
        """That an object of one stream has what the image says: nobody has opened it before the image was believed."""
        held = opened.ranges.range_of(self.stream_id)
        if held is None or not (held.start <= found.start and found.end <= held.end):
            has = "none of it" if held is None else f"[{held.start}, {held.end})"
            expected = f"[{found.start}, {found.end}) of stream {self.stream_id}, as the image says"
            key, size_bytes = self.key_of(found.object_id), opened.ref.size_bytes
            raise CorruptObject(key, size_bytes, expected=expected, found=has)

    def _read_rows(
        self, opened: OpenedObject, numbers: tuple[int, ...], node_id: int
    ) -> Generator[Step | Batches, ReadSent, None]:
        spans = block_spans(opened.index, opened.composite, numbers, self.span_size_bytes_max)
        for span in (_span(opened.ref.object_id if link is None else link, rows) for link, rows in spans):
            body = yield FetchSpan(span.object_id, span.start, span.end)
            if isinstance(body, AccelError):
                raise _failure(body, span.object_id, node_id)
            yield self._batches_of(span, _bytes(body), opened.ref.size_bytes)
            if self.bytes_left <= 0:
                return

    def _read_hinted(self, found: FoundObject) -> Generator[Step | Batches, ReadSent, bool]:
        """Read the blocks of an object where a snapshot says that they lie; false if that came to nothing."""
        if self.blocks is None or found.node_id is None:
            return False
        row = self.blocks.find(found.node_id, found.ref, self.stream_id)
        if row is None or (row.start, row.end) != (found.start, found.end) or not self._is_worth_it(row):
            return False
        span = _span(found.object_id, [row])
        body = yield FetchSpan(span.object_id, span.start, span.end)
        if isinstance(body, AccelError) and not isinstance(body, RangeInvalid):
            raise _failure(body, found.object_id, found.node_id)
        try:
            batches = (
                None if isinstance(body, RangeInvalid) else self._batches_of(span, _bytes(body), found.ref.size_bytes)
            )
        except CorruptObject:
            batches = None
        self.blocks.used(found.node_id, found.object_id, self.stream_id, right=batches is not None)
        if batches is None:
            return False
        yield batches
        return True

    def _is_worth_it(self, row: BlockRow) -> bool:
        """Whether enough of the bytes is wanted that an index, which tells them apart, would hardly save any."""
        if row.size_bytes > self.span_size_bytes_max:
            return False
        end = row.end if self.end == OPEN_END else min(row.end, self.end)
        half_wanted = 2 * (end - self.next) >= row.end - row.start and 2 * self.bytes_left >= row.size_bytes
        return half_wanted or row.size_bytes <= HINTED_SIZE_BYTES_FREE

    def _batches_of(self, span: _Span, body: bytes | memoryview, object_size_bytes: int) -> Batches:
        taken: list[RecordBatch] = []
        view = memoryview(body)
        for row in span.rows:
            data = view[row.position - span.start : row.position - span.start + row.size_bytes]
            key = self.key_of(span.object_id)
            for batch in decode_block_bytes(data, row, key=key, object_size_bytes=object_size_bytes):
                self._take(batch, taken)
        return Batches(taken, self.next)

    def _take(self, batch: RecordBatch, taken: list[RecordBatch]) -> None:
        past_end = self.end != OPEN_END and batch.base_offset >= self.end
        behind = batch.end_offset <= self.next
        if self.bytes_left <= 0 or past_end or behind:
            return
        taken.append(batch)
        self.bytes_left -= max(1, len(batch.payload))
        self.next = batch.end_offset


@dataclass(frozen=True, slots=True)
class _Span:
    """Neighbouring rows of one object, to be fetched in one request."""

    object_id: int
    start: int
    end: int
    rows: tuple[BlockRow, ...]


def _bytes(body: ReadSent) -> bytes | memoryview:
    if not isinstance(body, bytes | memoryview):
        raise TypeError(f"expected bytes, found {type(body).__name__}")
    return body


def _span(object_id: int, rows: list[BlockRow]) -> _Span:
    return _Span(object_id, rows[0].position, rows[-1].position + rows[-1].size_bytes, tuple(rows))
