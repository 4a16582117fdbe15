"""What was appended to segments and is not in an object yet.

    segment 0@0   durable |=========|  on its way |=====|  waiting |==|==|      end: where the next append begins
    segment 1@0   durable |====|                           waiting |=|

An append becomes a record batch and a record of the segment's time index at once, with the same clock value. Batches
wait here until an object is made of them; what is taken for one is not here any more, and must not get lost by those
who took it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from accel.errors import IllegalState
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.ids import segment_text
from accel.history.store.hosts import StreamName
from accel.streams.events import HEADER, LENGTH_SIZE_BYTES, encode_events, span_of
from accel.streams.times.segment_index import SegmentTimeIndex
from loaders.errors import FormatLimit
from loaders.format import RecordBatch


class SegmentSealed(IllegalState):
    """An append to a segment that takes none any more; nothing was appended.

    Args:
        name: scope and stream.
        segment_id: the segment.
    """

    advice = "others follow it: read the current epoch, and append to the segments that have these keys now"

    def __init__(self, name: StreamName, segment_id: int) -> None:
        super().__init__(f"{'/'.join(name)}: expected a segment that takes appends, found {segment_text(segment_id)}")
        self.name = name
        self.segment_id = segment_id

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name, self.segment_id)


@dataclass(slots=True, eq=False)
class OpenSegment:
    """A segment that this session may append to. Threads: its buffer's lock guards what changes.

    Args:
        name: scope and stream.
        segment_id: the segment.
        stream_id: the stream of the object layer.
        unit: what its offsets count.
        index: when its data arrived.
        end: where the next append begins.
        is_sealed: whether it takes none any more.
        waiting: batches that no object was made of.
    """

    name: StreamName
    segment_id: int
    stream_id: int
    unit: OffsetUnit
    index: SegmentTimeIndex
    end: int
    is_sealed: bool = False
    waiting: list[RecordBatch] = field(default_factory=list)


APPEND_SIZE_BYTES_MAX: Final = 1 << 30
"""What one append may bring; a block of an object, which has less than 2 GiB, may hold other batches before it."""

Append = tuple[OpenSegment, Sequence[bytes]]
Taken = dict[OpenSegment, list[RecordBatch]]


class AppendBuffer:
    """Batches that wait for an object. Threads: any; nothing in here asks a store.

    Args:
        epoch: of the session that writes; stands in each batch.
        timer: seconds from any start.
    """

    def __init__(self, epoch: int, timer: Callable[[], float]) -> None:
        self._epoch = epoch
        self._timer = timer
        self._lock = Lock()
        self._waiting: dict[OpenSegment, None] = {}
        self._size_bytes = 0
        self._since = 0.0

    @property
    def size_bytes(self) -> int:
        """Payload bytes of all batches that wait."""
        with self._lock:
            return self._size_bytes

    def is_due(self, size_bytes: int, age_seconds: float) -> bool:
        """Whether so many bytes wait, or any for so long."""
        with self._lock:
            is_old = bool(self._waiting) and self._timer() - self._since >= age_seconds
            return self._size_bytes >= size_bytes or is_old

    def append(self, segment: OpenSegment, payloads: Sequence[bytes]) -> None:
        """Append events as one batch. O(bytes).

        Raises:
            SegmentSealed: it takes none; nothing was appended.
            FormatLimit: none, or more than 1 GiB; likewise.
            TypeError: events that are not bytes; likewise.
        """
        self._add([(segment, payloads)])

    def append_and_take(self, appends: Sequence[Append]) -> Taken:
        """Append to several segments, all or nothing, and take all that waits for these; nobody comes between.

        Raises:
            As `append`.
        """
        return self._add(appends, take=True)

    def take(self, most: int) -> list[Taken]:
        """Take everything, as parts of so many segments at most."""
        with self._lock:
            waiting = list(self._waiting)
            return [self._taken(waiting[at : at + most]) for at in range(0, len(waiting), most)]

    def seal(self, segments: Iterable[OpenSegment]) -> None:
        """Take no more appends to segments."""
        with self._lock:
            for each in segments:
                each.is_sealed = True

    def _add(self, appends: Sequence[Append], *, take: bool = False) -> Taken:
        for _, payloads in appends:
            _check(payloads)
        with self._lock:
            for segment, _ in appends:
                if segment.is_sealed:
                    raise SegmentSealed(segment.name, segment.segment_id)
            for segment, payloads in appends:
                self._append(segment, payloads)
            return self._taken(dict.fromkeys(segment for segment, _ in appends)) if take else {}

    def _append(self, segment: OpenSegment, payloads: Sequence[bytes]) -> None:
        count = span_of(payloads, segment.unit)
        value = segment.index.append(segment.end + count)
        payload = encode_events(payloads, value)
        segment.waiting.append(RecordBatch(segment.stream_id, self._epoch, segment.end, count, payload))
        segment.end += count
        if not self._waiting:
            self._since = self._timer()
        self._waiting[segment] = None
        self._size_bytes += len(payload)

    def _taken(self, segments: Collection[OpenSegment]) -> Taken:
        taken = {}
        for each in segments:
            taken[each], each.waiting = each.waiting, []
            self._waiting.pop(each, None)
            self._size_bytes -= sum(len(batch.payload) for batch in taken[each])
        return taken


def _check(payloads: Sequence[bytes]) -> None:
    if not set(map(type, payloads)) <= {bytes}:
        raise TypeError(f"expected events of bytes, found {sorted({type(each).__name__ for each in payloads})}")
    size_bytes = HEADER.size + LENGTH_SIZE_BYTES * len(payloads) + sum(map(len, payloads))
    if not payloads or size_bytes > APPEND_SIZE_BYTES_MAX:
        found = f"{len(payloads)} of {size_bytes}"
        raise FormatLimit(f"expected events of at most {APPEND_SIZE_BYTES_MAX} bytes together, found {found}")
