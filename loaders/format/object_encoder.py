"""Writing an object as a stream of bytes.

The caller passes batches to the encoder, stream after stream; each call returns the bytes to append. The encoder does
no I/O and does not keep these bytes: it keeps only the index rows, 36 bytes each, until ``finish`` returns them as the
end of the object. The caller sends the bytes, in parts if the object is large.

    encoder = ObjectEncoder()
    send(encoder.write(233, batches))      # any number of times, stream ids not decreasing
    send(encoder.write(234, more))
    send(encoder.finish())                 # index and footer

Rules, those of the production writer:

* Stream ids do not decrease from one write to the next, and within a stream a batch starts no earlier than the one
  before it ended. So the rows come out sorted.
* A block is closed after the batch that brings the summed payload size to the threshold, and at the end of each write.
* The sum starts anew only when the threshold closes a block. What a write leaves over counts towards the first block of
  the next one, which can be shorter for it, even if it is another stream's.

A batch may leave offsets out. But a row names only its first and last offset, so a hole inside a block is invisible to
everyone who reads just the index: a writer with a hole ends the write before it, and it shows between two rows.

A write that breaks a rule, or that the format has no numbers for, is refused as a whole: the encoder stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from loaders.errors import FormatError, FormatLimit
from loaders.format.block_index import (
    BATCH_HEADER_SIZE_BYTES,
    BLOCK_HEADER_SIZE_BYTES,
    ROW_SIZE_BYTES,
    BlockIndex,
    BlockRow,
)
from loaders.format.records import RecordBatch, encode_block
from loaders.format.tail import FOOTER_SIZE_BYTES, Footer
from range_index.object_ranges import ObjectRanges

BLOCK_THRESHOLD_BYTES = 524_288
STREAMS_MAX = 20_000

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class ObjectEncoder:
    """Encodes one object, a write at a time.

    Threads: one at a time.

    Args:
        block_threshold_bytes: payload bytes that close a block, at least 1.
        streams_max: streams that the object may hold at most; other readers and writers are sized for 20,000.
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
        """Bytes returned so far: where in the object the next ones will lie."""
        end_size_bytes = 0 if self._footer is None else len(self._rows) + FOOTER_SIZE_BYTES
        return self._data_size_bytes + end_size_bytes

    def index(self) -> BlockIndex:
        """The rows written so far, as a reader will see them; O(rows)."""
        return BlockIndex(bytes(self._rows))

    def ranges(self) -> ObjectRanges:
        """What the object holds so far; O(rows), no loop in Python."""
        return self.index().object_ranges()

    def write(self, stream_id: int, batches: Iterable[RecordBatch]) -> bytes:
        """Encode batches of one stream into blocks and return the bytes to append.

        Complexity: O(batches), and twice their bytes in memory until the call returns.

        Args:
            stream_id: at least that of the write before.
            batches: of this stream, in order of offsets; none at all writes nothing.

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
        """Close the object: its index and its footer, the last bytes to append.

        Raises:
            FormatError: it is finished already.
        """
        self._check_open()
        self._footer = Footer(self._data_size_bytes, len(self._rows))
        return bytes(self._rows) + self._footer.encode()

    def _divide(self, batches: Sequence[RecordBatch]) -> tuple[list[list[RecordBatch]], int]:
        # The blocks of one write, and the running sum that it leaves to the next.
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
            raise FormatError("expected an object that is being written, found one that is finished")

    def _check_stream(self, stream_id: int) -> None:
        if not 0 <= stream_id <= _INT64_MAX:
            raise FormatLimit(f"expected a stream id of 0 to {_INT64_MAX}, found {stream_id}")
        if stream_id < self._stream_id:
            raise FormatError(f"expected a stream id of at least {self._stream_id}, found {stream_id}")
        if stream_id != self._stream_id and self._streams == self._streams_max:
            raise FormatLimit(
                f"expected at most {self._streams_max} streams in an object, found stream {stream_id} more"
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
