"""Merges objects: reads their blocks, and writes them into fewer objects in a better order.

    sources = open_sources(store, layout, refs, executor=executor)
    plan = plan_merge([source.index for source in sources], trimmed_ids, trimmed_starts)
    result = merge_objects(store, layout, sources, plan, object_ids, executor=executor)

Blocks are moved as bytes and never encoded again, so epochs, link records and payloads are those of the sources. Every
block's header is checked on the way, and a hash over what was read must equal that over what is sent. Then
the end of each output is read back: index and footer must be, byte for byte, those that were planned, and its rows must
hold, stream by stream, the bytes, records and offsets of the sources. Only then are the outputs reported.

What is in memory is bounded by the settings, whatever the size of the group: see `loaders.merge_bands`. A group that
fits one band takes a request a source and one a part, and for an output in parts four more: to begin, to see
that nothing lies there, to complete, to read back.

Nothing is committed here. If anything fails, all that was written is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from loaders.errors import CorruptObject
from loaders.format import BlockIndex, MissingBytes, open_tail, tail_checksum
from loaders.format.merging import DEFAULT_LIMITS, MergedOutput, MergeLimits, MergePlan
from loaders.format.merging_check import check_conserved
from loaders.format.merging_rows import Copies
from loaders.format.merging_sections import index_of_sections
from loaders.layout import ObjectLayout
from loaders.merge_bands import Part, Span, check_whole, divide, locate, spans_of
from loaders.merge_copying import CHECKSUM_MASK, join_copies
from loaders.merge_memory import release_free_memory
from loaders.merge_reading import Source
from loaders.merge_sections import SectionPart, divide_sections, send_sections
from loaders.merge_sending import OutputSender
from loaders.merge_settings import DEFAULT_SETTINGS, MergeSettings
from loaders.object_ref import ObjectRef
from loaders.parallel import map_bounded
from loaders.store import CountingStore, ObjectStore
from range_index import ObjectRanges


@dataclass(frozen=True, slots=True, eq=False)
class WrittenObject:
    """One output, written and read back.

    Args:
        object_id: its id.
        ref: the object with its sizes.
        ranges: what it holds.
        stream_id: whose stream object it is; None = the stream set object.
        start: of a stream object its first offset; -1 of the stream set object.
        end: of a stream object one past its last offset; -1 of the stream set object.
        records: record batches in it.
        checksum: sum modulo 2**64 of the XXH3 hashes of its parts, each of them the same over what was read and over
            what was sent; None where the store copied the data.
    """

    object_id: int
    ref: ObjectRef
    ranges: ObjectRanges
    stream_id: int | None
    start: int
    end: int
    records: int
    checksum: int | None


@dataclass(frozen=True, slots=True, eq=False)
class MergeResult:
    """What a merge did.

    Args:
        outputs: in the order of the plan.
        source_ranges: per source what of it is in the outputs.
        requests: to the store, those that opened the sources included.
        bytes_read: that came from it.
        bytes_written: that went to it.
        server_side_bytes: that it copied by itself; 0 if the data went the ordinary way.
        seconds: that `merge_objects` took.
    """

    outputs: tuple[WrittenObject, ...]
    source_ranges: tuple[ObjectRanges, ...]
    requests: int
    bytes_read: int
    bytes_written: int
    server_side_bytes: int
    seconds: float


def merge_objects(  # noqa: PLR0913 - each of them is a thing of its own
    store: ObjectStore,
    layout: ObjectLayout,
    sources: Sequence[Source],
    plan: MergePlan,
    object_ids: Sequence[int],
    settings: MergeSettings = DEFAULT_SETTINGS,
    *,
    executor: Executor,
    limits: MergeLimits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
    timer: Callable[[], float] = perf_counter,
) -> MergeResult:
    """Write the outputs of a plan, and check what stands there.

    Args:
        store: where the sources lie, and the outputs will.
        layout: where in it.
        sources: opened by `open_sources`, in list order.
        plan: made of their indexes.
        object_ids: one for each output, never used before; another object that lies there is left alone.
        settings: memory, parts, and whether the store is to copy the data itself where it can.
        executor: of threads, at least one of them free; runs the requests.
        limits: those of the plan; only the size of rows matters, and only where the store copies the data.
        progress: called with the bytes of each part that is on its way; in the calling thread.
        timer: gives seconds.

    Raises:
        CorruptObject: a block of a source is broken (the error names the source), or what was read back is not what
            was written.
        FormatError, FormatLimit: the outputs are not what the sources were, or a row is too large to be moved.
        ObjectExists: another object lies where an output was to be written.
        StoreError: a request failed.
        ValueError: the sources are not the plan's, or ids that do not fit it.
    """
    _check_arguments(sources, plan, object_ids)
    started = timer()
    counting = CountingStore(store)
    merge = _Merge(counting, layout, sources, object_ids, settings, executor, progress or _ignore)
    index = _sections_index(counting, sources, plan, settings, limits)
    parts = divide_sections([each.data_size_bytes for each in sources], part_size_bytes=settings.part_size_bytes)
    if index is not None and any(part.is_copied for part in parts):
        copied_bytes = sum(part.size_bytes for part in parts if part.is_copied)
        written = merge.by_the_store(plan, index, parts)
    else:
        copied_bytes = 0
        written = merge.by_bytes(plan)
    counts = counting.snapshot().total
    return MergeResult(
        outputs=tuple(written),
        source_ranges=plan.kept_ranges(),
        requests=counts.requests + sum(source.requests for source in sources),
        bytes_read=counts.received_bytes + sum(source.bytes_read for source in sources),
        bytes_written=counts.sent_bytes,
        server_side_bytes=copied_bytes,
        seconds=timer() - started,
    )


def _ignore(size_bytes: int) -> None:
    """Nobody asked for progress."""


def _check_arguments(sources: Sequence[Source], plan: MergePlan, object_ids: Sequence[int]) -> None:
    if plan.source_count != len(sources):
        raise ValueError(f"expected the {plan.source_count} sources of the plan, found {len(sources)}")
    if len(object_ids) != len(plan.outputs) or len(set(object_ids)) != len(object_ids):
        raise ValueError(f"expected {len(plan.outputs)} different object ids, found {list(object_ids)}")
    used = set(object_ids) & {source.ref.object_id for source in sources}
    if used:
        raise ValueError(f"expected new object ids, found those of sources: {sorted(used)}")


def _sections_index(
    store: ObjectStore, sources: Sequence[Source], plan: MergePlan, settings: MergeSettings, limits: MergeLimits
) -> BlockIndex | None:
    if not (settings.server_side and store.can_copy_parts):
        return None
    indexes = [source.index for source in sources]
    return index_of_sections(indexes, [source.data_size_bytes for source in sources], plan, limits)


@dataclass(frozen=True, slots=True)
class _Merge:
    """One merge under way. One thread at a time."""

    store: ObjectStore
    layout: ObjectLayout
    sources: Sequence[Source]
    object_ids: Sequence[int]
    settings: MergeSettings
    executor: Executor
    progress: Callable[[int], None]

    def by_bytes(self, plan: MergePlan) -> list[WrittenObject]:
        """Through this process: band by band, part by part."""
        sender = self._sender()
        checksums: list[int | None] = [0] * len(plan.outputs)
        try:
            for band in divide(plan.outputs, self.settings):
                self._copy_band(plan.outputs, band, checksums, sender)
                release_free_memory()
            sender.finish()
            return self._read_back(plan, plan.outputs, checksums)
        except BaseException as error:
            sender.take_back(error)
            raise

    def by_the_store(self, plan: MergePlan, index: BlockIndex, parts: Sequence[SectionPart]) -> list[WrittenObject]:
        """The store copies the sections; only the index goes through this process."""
        planned = plan.outputs[0]
        output = MergedOutput(None, planned.copies, index, planned.data_size_bytes)
        sender = self._sender()
        try:
            send_sections(self.store, self.sources, parts, output.tail, sender)
            sender.finish()
            self.progress(output.data_size_bytes)
            return self._read_back(plan, [output], [None])
        except BaseException as error:
            sender.take_back(error)
            raise

    def _sender(self) -> OutputSender:
        keys = [self.layout.object_key(object_id) for object_id in self.object_ids]
        return OutputSender(self.store, keys, self.settings, self.executor)

    def _copy_band(
        self,
        outputs: Sequence[MergedOutput],
        band: Sequence[Part],
        checksums: list[int | None],
        sender: OutputSender,
    ) -> None:
        pieces = [outputs[part.output].copies[part.first : part.end] for part in band]
        spans, chunks = self._read_band(pieces)
        for part, copies in zip(band, pieces, strict=True):
            output = outputs[part.output]
            tail = output.tail if part.is_last else b""
            sender.make_room(part.size_bytes + len(tail))
            located = locate(spans, copies["source"], copies["position"])
            buffer = sender.take_buffer()
            joined = join_copies(buffer, self.sources, copies, located, chunks, tail)
            checksums[part.output] = ((checksums[part.output] or 0) + joined.checksum) & CHECKSUM_MASK
            sender.send(part, joined.data, buffer)
            self.progress(part.size_bytes)

    def _read_band(self, pieces: Sequence[Copies]) -> tuple[list[Span], list[memoryview]]:
        spans = [
            Span(number, 0, len(source.body)) for number, source in enumerate(self.sources) if source.body is not None
        ]
        whole = {span.source for span in spans}
        if len(whole) < len(self.sources):
            copies = np.concatenate(pieces)
            copies = copies[~np.isin(copies["source"], list(whole))]
            if len(copies):
                spans = sorted(spans + spans_of(copies, self.settings.band_size_bytes * 2 // 3))
        return spans, map_bounded(self.executor, self._chunk, spans, self.settings.parallel_requests)

    def _chunk(self, span: Span) -> memoryview:
        source = self.sources[span.source]
        if source.body is not None:
            return memoryview(source.body)
        fetched = self.store.get_range(source.key, span.start, span.end)
        check_whole(source, span, fetched.body)
        return memoryview(fetched.body)

    def _read_back(
        self, plan: MergePlan, outputs: Sequence[MergedOutput], checksums: Sequence[int | None]
    ) -> list[WrittenObject]:
        pairs = list(zip(self.object_ids, outputs, strict=True))
        indexes = map_bounded(self.executor, self._reopened, pairs, self.settings.parallel_requests)
        check_conserved([source.index for source in self.sources], indexes, plan.left_out)
        triples = zip(pairs, indexes, checksums, strict=True)
        return [_written(object_id, output, index, checksum) for (object_id, output), index, checksum in triples]

    def _reopened(self, pair: tuple[int, MergedOutput]) -> BlockIndex:
        object_id, output = pair
        key = self.layout.object_key(object_id)
        fetched = self.store.get_range(key, output.data_size_bytes, output.size_bytes)
        size_bytes = fetched.object_size_bytes
        if fetched.body != output.tail or size_bytes != output.size_bytes:
            found = f"other ones, of {len(fetched.body)} bytes, in an object of {size_bytes}"
            expected = f"index and footer as they were written, at {output.data_size_bytes} to {output.size_bytes}"
            raise CorruptObject(key, size_bytes, expected=expected, found=found)
        index = open_tail(fetched.body, object_size_bytes=size_bytes, key=key)
        if isinstance(index, MissingBytes):
            raise CorruptObject(key, size_bytes, expected="a whole index", found=f"that {index} are missing")
        return index


def _written(object_id: int, output: MergedOutput, index: BlockIndex, checksum: int | None) -> WrittenObject:
    ranges = index.object_ranges()
    start, end = (-1, -1) if output.stream_id is None else (int(ranges.starts[0]), int(ranges.ends[0]))
    tail = tail_checksum(output.tail, object_size_bytes=output.size_bytes, index_size_bytes=index.nbytes)
    ref = ObjectRef(object_id, output.size_bytes, index.nbytes, tail_checksum=tail)
    return WrittenObject(object_id, ref, ranges, output.stream_id, start, end, output.records, checksum)
