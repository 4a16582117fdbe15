"""Writing an object as a stream of bytes.

The caller passes batches to the encoder, stream after stream; each call returns the bytes to append. The encoder does
no I/O and does not keep these bytes: it keeps only the index rows, 36 bytes each, until ``finish`` returns them as the
end of the object. The caller sends the bytes, in parts if the object is large.

    encoder = ObjectEncoder()
    send(encoder.write(233, batches))      # any number of times, stream ids not decreasing
    send(encoder.write(234, more))
    send(encoder.finish())                 # index and footer

Rules, those of the production writer:

* Stream ids do not decrease from one write to the next, and within a stream a batch starts no earlier than the end of
  the batch before it. So the rows are sorted.
* A block is closed after the batch that brings the summed payload size to the threshold, and at the end of each write.
* The sum restarts only when the threshold closes a block. The rest of a write counts towards the first block of the
  next write, which may be shorter as a result, even if it is a block of another stream.

A batch may leave offsets out. But a row contains only its first and last offset, so a hole inside a block is invisible
in the index. So a writer ends the write before a hole, which is then visible between two rows.

A write that breaks a rule, or has numbers that the format cannot express, is refused as a whole: the encoder is
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from loaders.errors import FormatError, FormatLimit
from loaders.format.index import (
    BATCH_HEADER_SIZE_BYTES,
    BLOCK_HEADER_SIZE_BYTES,
    FOOTER_SIZE_BYTES,
    ROW_SIZE_BYTES,
    BlockIndex,
    BlockRow,
    Footer,
)
from loaders.format.records import RecordBatch, encode_block
from range_index.object_ranges import ObjectRanges

BLOCK_THRESHOLD_BYTES = 524_288
STREAMS_MAX = 20_000

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class ObjectEncoder:
    """Encodes one object, write by write.

    Threads: one at a time.

    Args:
        block_threshold_bytes: payload bytes that close a block, at least 1.
        streams_max: the maximum number of streams in the object; other readers and writers are built for 20,000.
    """

    def __init__(self, block_threshold_bytes: int = BLOCK_THRESHOLD_BYTES, *, streams_max: int = STREAMS_MAX) -> None:
        if block_threshold_bytes < 1:
            raise ValueError(f"expected a block threshold of at least 1 byte, found {block_threshold_bytes}")
        self._threshold_bytes = block_threshold_bytes
        self._streams_max = streams_max
        self._streams = 0
        self._stream_id = -1
        self._end_offset = 0
        self._carried_bytes = 0
        self._data_size_bytes = 0
        self._rows = bytearray()
        self._footer: Footer | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes returned so far, which is the position of the next bytes in the object."""
        end_size_bytes = 0 if self._footer is None else len(self._rows) + FOOTER_SIZE_BYTES
        return self._data_size_bytes + end_size_bytes

    def index(self) -> BlockIndex:
        """The rows written so far, as readers will decode them; O(rows)."""
        return BlockIndex(bytes(self._rows))

    def ranges(self) -> ObjectRanges:
        """The ranges in the object so far; O(rows), no loop in Python."""
        return self.index().object_ranges()

    def write(self, stream_id: int, batches: Iterable[RecordBatch]) -> bytes:
        """Encode batches of one stream into blocks and return the bytes to append.

        Complexity: O(batches), and twice their bytes in memory until the call returns.

        Args:
            stream_id: at least the stream id of the write before.
            batches: of this stream, in order of offsets; without batches nothing is written.

        Raises:
            FormatError: a batch of another stream, or a stream id or an offset that decreases, or a finished object.
            FormatLimit: a number that does not fit its field, or too many streams or rows.
        """
        batches = tuple(batches)
        self._check_open()
        if not batches:
            return b""
        self._check_stream(stream_id)
        _check_batches(stream_id, batches, self._end_offset if stream_id == self._stream_id else 0)
        blocks, carried_bytes = self._divide(batches)
        rows = list(self._rows_of(blocks))
        self._check_rows(rows)
        appended = b"".join(map(encode_block, blocks))
        self._rows += b"".join(row.encode() for row in rows)
        self._streams += stream_id != self._stream_id
        self._stream_id, self._end_offset = stream_id, batches[-1].end_offset
        self._carried_bytes = carried_bytes
        self._data_size_bytes += len(appended)
        return appended

    def finish(self) -> bytes:
        """Finish the object and return its index and footer, the last bytes to append.

        Raises:
            FormatError: the object is finished already.
        """
        self._check_open()
        self._footer = Footer(self._data_size_bytes, len(self._rows))
        return bytes(self._rows) + self._footer.encode()

    def _divide(self, batches: Sequence[RecordBatch]) -> tuple[list[list[RecordBatch]], int]:
        # The blocks of one write, and the running sum for the next write.
        blocks: list[list[RecordBatch]] = [[]]
        running_bytes = self._carried_bytes
        for batch in batches:
            blocks[-1].append(batch)
            running_bytes += len(batch.payload)
            if running_bytes >= self._threshold_bytes:
                running_bytes = 0
                blocks.append([])
        return [block for block in blocks if block], running_bytes

    def _rows_of(self, blocks: Sequence[Sequence[RecordBatch]]) -> Iterator[BlockRow]:
        position = self._data_size_bytes
        for block in blocks:
            payload_bytes = sum(len(batch.payload) for batch in block)
            size_bytes = BLOCK_HEADER_SIZE_BYTES + BATCH_HEADER_SIZE_BYTES * len(block) + payload_bytes
            first, last = block[0], block[-1]
            yield BlockRow(first.stream_id, first.base_offset, last.end_offset, len(block), position, size_bytes)
            position += size_bytes

    def _check_open(self) -> None:
        if self._footer is not None:
            raise FormatError("expected an object that is being written, found a finished one")

    def _check_stream(self, stream_id: int) -> None:
        if not 0 <= stream_id <= _INT64_MAX:
            raise FormatLimit(f"expected a stream id of 0 to {_INT64_MAX}, found {stream_id}")
        if stream_id < self._stream_id:
            raise FormatError(f"expected a stream id of at least {self._stream_id}, found {stream_id}")
        if stream_id != self._stream_id and self._streams == self._streams_max:
            raise FormatLimit(
                f"expected at most {self._streams_max} streams in an object, found another one, {stream_id}"
            )

    def _check_rows(self, rows: Sequence[BlockRow]) -> None:
        for row in rows:
            if row.end - row.start > _INT32_MAX:
                raise FormatLimit(f"expected at most {_INT32_MAX} offsets in a block, found [{row.start}, {row.end})")
            if row.size_bytes > _INT32_MAX:
                raise FormatLimit(f"expected a block of at most {_INT32_MAX} bytes, found {row.size_bytes}")
        index_size_bytes = len(self._rows) + ROW_SIZE_BYTES * len(rows)
        if index_size_bytes > _INT32_MAX:
            raise FormatLimit(f"expected an index of at most {_INT32_MAX} bytes, found {index_size_bytes}")


def _check_batches(stream_id: int, batches: Sequence[RecordBatch], end_offset: int) -> None:
    for batch in batches:
        _check_limits(batch)
        if batch.stream_id != stream_id:
            raise FormatError(f"expected batches of stream {stream_id}, found one of stream {batch.stream_id}")
    if batches[0].base_offset < end_offset:
        raise _decreasing(stream_id, end_offset, batches[0])
    for earlier, later in pairwise(batches):
        if later.base_offset < earlier.end_offset:
            raise _decreasing(stream_id, earlier.end_offset, later)


def _check_limits(batch: RecordBatch) -> None:
    if batch.base_offset < 0 or batch.end_offset > _INT64_MAX:
        raise FormatLimit(f"expected offsets of 0 to {_INT64_MAX}, found [{batch.base_offset}, {batch.end_offset})")
    if abs(batch.count) > _INT32_MAX:
        raise FormatLimit(f"expected a batch of at most {_INT32_MAX} offsets, found {abs(batch.count)}")
    if not -_INT64_MAX - 1 <= batch.epoch <= _INT64_MAX:
        raise FormatLimit(f"expected an epoch of 64 bits, found {batch.epoch}")


def _decreasing(stream_id: int, end_offset: int, batch: RecordBatch) -> FormatError:
    expected = f"expected offsets of stream {stream_id} from {end_offset} on"
    return FormatError(f"{expected}, found [{batch.base_offset}, {batch.end_offset})")
