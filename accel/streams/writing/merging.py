"""Merging transactions into segments: what they bring becomes one object, and its intent tells of it.

Each event goes to the segment that holds its key now. A transaction brings one batch to each segment that gets any of
its events, with the clock value of that moment. All batches of a transaction are in one object, so that they come at
once or not at all; `transaction_objects` says what that is good for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from accel.catalog.rows import STREAMS_AN_OBJECT_MAX
from accel.history.segments import Segments
from accel.history.store.hosts import StreamName
from accel.streams.writing.append_buffer import AppendBuffer, SegmentSealed
from accel.streams.writing.open_segments import OpenSegments
from accel.streams.writing.routing import KeyRouter, grouped
from accel.streams.writing.stream_spans import stream_spans
from accel.streams.writing.transaction_data import TransactionEvents
from accel.streams.writing.transaction_objects import MergeIntent, TransactionName
from accel.streams.writing.upload import Upload, UploadParts
from loaders.errors import FormatLimit

Group = list[tuple[TransactionName, TransactionEvents]]


class Merging:
    """Makes uploads of transactions. Threads: one at a time.

    Args:
        parts: of the session.
        segments: that it writes.
        buffer: what waits to be written.
    """

    def __init__(self, parts: UploadParts, segments: OpenSegments, buffer: AppendBuffer) -> None:
        self._parts = parts
        self._segments = segments
        self._buffer = buffer

    def groups(self, stream: UUID, transactions: Iterable[UUID], size_bytes: int) -> Iterator[Group]:
        """Transactions that were not merged, in their order, so many together as one object may bring.

        Reads their data, when it is asked for. Of those that were merged, or had no events, there is none.
        """
        group: Group = []
        waiting_bytes = 0
        for each in transactions:
            name = TransactionName(stream, each)
            events = self._parts.transactions.read(name)
            if events is None:
                continue
            if group and waiting_bytes + events.size_bytes > size_bytes:
                yield group
                group, waiting_bytes = [], 0
            group.append((name, events))
            waiting_bytes += events.size_bytes
        if group:
            yield group

    def upload(self, name: StreamName, segments: Segments, group: Group) -> Upload:
        """Append the events of transactions, and take what waits for their segments as one object.

        Args:
            name: scope and stream.
            segments: that the events go to, of all keys.
            group: the transactions.

        Raises:
            FormatLimit: events for more segments than one object can have.
            SegmentSealed: one of the segments takes no appends.
            SegmentsElsewhere: another node has one of them open.
        """
        routed = list(_routed(segments, group))
        ids = {segment_id for segment_id, _ in routed}
        if len(ids) > STREAMS_AN_OBJECT_MAX:
            raise FormatLimit(f"expected events for at most {STREAMS_AN_OBJECT_MAX} segments, found {len(ids)}")
        found = self._segments.find(name, ids, is_step=True)
        found.refuse_elsewhere("merge transactions into", name)
        for each in found.sealed:
            raise SegmentSealed(name, each)
        taken = self._buffer.append_and_take([(found.open[each], payloads) for each, payloads in routed])
        first = routed[0][0]
        proof = taken[found.open[first]][-sum(each == first for each, _ in routed)]
        node, names = self._parts.node, tuple((each.stream, each.transaction) for each, _ in group)
        intent = MergeIntent(node.node_id, node.epoch, proof.stream_id, proof.base_offset, proof.end_offset, names)
        return Upload(self._parts, taken, intent)

    def was_merged(self, intent: MergeIntent) -> bool:
        """Whether the batch that an intent names stands in its stream."""
        stream_id = intent.stream_id
        span = stream_spans(self._segments.catalog.parts, [stream_id]).get(stream_id)
        if span is None:
            return False
        end = self._parts.node.end(stream_id) if span.is_open else span.end
        if end is not None and end < intent.end:
            return False
        if span.start > intent.start:
            return True  # a stream is truncated, or deleted, after the commit is over
        wanted = (intent.start, intent.end, intent.epoch)
        batch = next(self._segments.accelerator.read(stream_id, intent.start, intent.end), None)
        return batch is not None and (batch.base_offset, batch.end_offset, batch.epoch) == wanted


def _routed(segments: Segments, group: Group) -> Iterator[tuple[int, list[bytes]]]:
    router = KeyRouter(segments)
    for _, events in group:
        for segment_id, places in grouped(router.route(events.positions)):
            yield segment_id, [events.payloads[at] for at in places]
