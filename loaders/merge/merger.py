"""Merges objects: reads their blocks, and writes them to fewer objects in a better order.

    sources = open_sources(store, layout, refs, executor=executor)
    plan = plan_merge([source.index for source in sources], trimmed_ids, trimmed_starts)
    result = merge_objects(store, layout, sources, plan, object_ids, executor=executor, nonce=nonce)

Nothing is committed here. After a failure, all outputs that this merge wrote are deleted. The settings bound the
memory, for groups of any size: see `loaders.merge.transfer`. A group that fits one band takes a request a source and
one a part, and for an output in parts four more: to begin, to check that no object has the key, to complete, to read
back.

**Through this process.** Blocks are moved as bytes and never encoded again, so epochs, link records and payloads are
those of the sources. Copies that are adjacent in their source and in the part are cut out as one piece; pieces are
slices, and are written to the part's buffer by one call. Every block's header is checked, and a hash of the bytes read
must equal the hash of the bytes sent. The hash is XXH3 (64 bits): on blocks of a kilobyte it costs 0.2 us a block,
zlib's CRC-32 0.5 us.

**By the store.** If the store copies, it puts the data sections of the sources end to end. Only indexes, and sections
that are too small to be copied, pass through this process. A part that the store copies has at least 5 MiB, as every
part but the last must; smaller sections are read and joined, and if they do not fill a part of 5 MiB before a large
section, the part also gets the first bytes of the large section:

    sections   | 2 | 3 |      20      | 1 |
    parts      | read: 6   | copied: 19 | read: 1, index, footer |

This process does not receive the bytes that the store copies, so it checks neither their blocks nor a checksum; readers
of the format check the bytes that they read. The copied bytes are neither downloaded nor uploaded: of large sources,
100 %.

**Reading back.** In both cases the end of each output is read: index and footer must equal the planned ones byte for
byte, and the rows must hold, stream by stream, the bytes, records and offsets of the sources. Only then are the outputs
reported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from loaders.errors import CorruptObject, FormatError
from loaders.format import BlockIndex, MissingBytes, open_tail, tail_checksum
from loaders.layout import ObjectLayout
from loaders.merge.plan import (
    DEFAULT_LIMITS,
    Copies,
    MergedOutput,
    MergeLimits,
    MergePlan,
    check_conserved,
    find_bad_block,
    index_of_sections,
)
from loaders.merge.transfer import (
    DEFAULT_SETTINGS,
    LocatedCopies,
    OutputSender,
    Part,
    PartBuffer,
    Source,
    SourceSpan,
    check_whole,
    divide,
    locate,
    spans_of,
)
from loaders.object_ref import ObjectRef
from loaders.settings import MergeSettings
from loaders.store import ObjectStore
from loaders.store.base import PART_SIZE_BYTES_MIN
from loaders.threads import map_bounded
from range_index import ObjectRanges


@dataclass(frozen=True, slots=True, eq=False)
class WrittenObject:
    """One output, written and read back.

    Args:
        object_id: its id.
        ref: the object with its sizes.
        ranges: the ranges that it holds.
        stream_id: the stream of a stream object; None = the stream set object.
        start: of a stream object its first offset; -1 of the stream set object.
        end: of a stream object one past its last offset; -1 of the stream set object.
        records: the number of record batches in it.
        checksum: sum modulo 2**64 of the XXH3 hashes of its parts; the hash of the bytes read equals the hash of the
            bytes sent. None if the store copied the data.
    """

    object_id: int
    ref: ObjectRef
    ranges: ObjectRanges
    stream_id: int | None
    start: int
    end: int
    records: int
    checksum: int | None


def merge_objects(  # noqa: PLR0913 - the arguments are independent
    store: ObjectStore,
    layout: ObjectLayout,
    sources: Sequence[Source],
    plan: MergePlan,
    object_ids: Sequence[int],
    settings: MergeSettings = DEFAULT_SETTINGS,
    *,
    executor: Executor,
    nonce: Callable[[], bytes],
    limits: MergeLimits = DEFAULT_LIMITS,
) -> list[WrittenObject]:
    """Write the outputs of a plan, and check them in the store; returns them in the order of the plan.

    Args:
        store: the store of the sources and the outputs.
        layout: the keys of objects in the store.
        sources: opened by `open_sources`, in list order.
        plan: made of their indexes.
        object_ids: one for each output, never used before; an existing object with such an id is not overwritten.
        settings: memory, parts, and whether the store copies the data if it can.
        executor: of threads, at least one of them free; runs the requests.
        nonce: returns 16 random bytes, for the marks of the outputs.
        limits: the limits of the plan; only the size of rows is used, and only if the store copies the data.

    Raises:
        CorruptObject: a block of a source is damaged (the error names the source), or an output that was read back
            differs from the written one.
        FormatError, FormatLimit: the outputs differ from the sources, or a row is too large to be moved.
        ObjectExists: another object has the key of an output, or one that another merge wrote under the same id, which
            may delete it.
        NamespaceShared: likewise, and another system wrote it.
        StoreError: a request failed.
        ValueError: the sources are not those of the plan, or the ids do not fit it.
    """
    _check_arguments(sources, plan, object_ids)
    merge = _Merge(store, layout, sources, object_ids, settings, executor, nonce)
    index = _sections_index(store, sources, plan, settings, limits)
    parts = divide_sections([source.data_size_bytes for source in sources], part_size_bytes=settings.part_size_bytes)
    if index is not None and any(part.is_copied for part in parts):
        return merge.by_the_store(plan, index, parts)
    return merge.by_bytes(plan)


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
    nonce: Callable[[], bytes]

    def by_bytes(self, plan: MergePlan) -> list[WrittenObject]:
        """Copy the data through this process, band by band and part by part."""
        sender = self._sender()
        checksums: list[int | None] = [0] * len(plan.outputs)
        try:
            for band in divide(plan.outputs, self.settings):
                self._copy_band(plan.outputs, band, checksums, sender)
                release_free_memory()
            sender.finish()
            return self._read_back(plan, plan.outputs, checksums, sender)
        except BaseException as error:
            sender.take_back(error)
            raise

    def by_the_store(self, plan: MergePlan, index: BlockIndex, parts: Sequence[SectionPart]) -> list[WrittenObject]:
        """Let the store copy the sections; only the index passes through this process."""
        planned = plan.outputs[0]
        output = MergedOutput(None, planned.copies, index, planned.data_size_bytes)
        sender = self._sender()
        try:
            send_sections(self.store, self.sources, parts, output.tail, sender)
            sender.finish()
            return self._read_back(plan, [output], [None], sender)
        except BaseException as error:
            sender.take_back(error)
            raise

    def _sender(self) -> OutputSender:
        marks = {self.layout.object_key(each): self.layout.mark(each, self.nonce) for each in self.object_ids}
        return OutputSender(self.store, marks, self.settings, self.executor)

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

    def _read_band(self, pieces: Sequence[Copies]) -> tuple[list[SourceSpan], list[memoryview]]:
        spans = [
            SourceSpan(number, 0, len(source.body))
            for number, source in enumerate(self.sources)
            if source.body is not None
        ]
        whole = {span.source for span in spans}
        if len(whole) < len(self.sources):
            copies = np.concatenate(pieces)
            copies = copies[~np.isin(copies["source"], list(whole))]
            if len(copies):
                spans = sorted(spans + spans_of(copies, self.settings.band_size_bytes * 2 // 3))
        return spans, map_bounded(self.executor, self._chunk, spans, self.settings.parallel_requests)

    def _chunk(self, span: SourceSpan) -> memoryview:
        source = self.sources[span.source]
        if source.body is not None:
            return memoryview(source.body)
        fetched = self.store.get_range(source.key, span.start, span.end)
        check_whole(source, span, fetched.body)
        return memoryview(fetched.body)

    def _read_back(
        self,
        plan: MergePlan,
        outputs: Sequence[MergedOutput],
        checksums: Sequence[int | None],
        sender: OutputSender,
    ) -> list[WrittenObject]:
        pairs = list(zip(self.object_ids, outputs, strict=True))
        reopened = partial(self._reopened, sender)
        indexes = map_bounded(self.executor, reopened, pairs, self.settings.parallel_requests)
        check_conserved([source.index for source in self.sources], indexes, plan.left_out)
        triples = zip(pairs, indexes, checksums, strict=True)
        return [_written(object_id, output, index, checksum) for (object_id, output), index, checksum in triples]

    def _reopened(self, sender: OutputSender, pair: tuple[int, MergedOutput]) -> BlockIndex:
        object_id, output = pair
        key = self.layout.object_key(object_id)
        fetched = self.store.get_range(key, output.data_size_bytes, output.size_bytes)
        sender.refuse_other(key, fetched)
        size_bytes = fetched.object_size_bytes
        if fetched.body != output.tail or size_bytes != output.size_bytes:
            found = f"{len(fetched.body)} other bytes, in an object of {size_bytes}"
            expected = f"index and footer as they were written, at {output.data_size_bytes} to {output.size_bytes}"
            raise CorruptObject(key, size_bytes, expected=expected, found=found)
        index = open_tail(fetched.body, object_size_bytes=size_bytes, key=key)
        if isinstance(index, MissingBytes):
            raise CorruptObject(key, size_bytes, expected="a whole index", found=f"an index without {index}")
        return index


def _written(object_id: int, output: MergedOutput, index: BlockIndex, checksum: int | None) -> WrittenObject:
    ranges = index.object_ranges()
    start, end = (-1, -1) if output.stream_id is None else (int(ranges.starts[0]), int(ranges.ends[0]))
    tail = tail_checksum(output.tail, object_size_bytes=output.size_bytes, index_size_bytes=index.nbytes)
    ref = ObjectRef(object_id, output.size_bytes, index.nbytes, tail_checksum=tail)
    return WrittenObject(object_id, ref, ranges, output.stream_id, start, end, output.records, checksum)


CHECKSUM_MASK = 2**64 - 1


class Joined(NamedTuple):
    """The bytes of a part, and the hash of its blocks."""

    data: memoryview
    checksum: int


def join_copies(
    buffer: PartBuffer,
    sources: Sequence[Source],
    copies: Copies,
    located: LocatedCopies,
    chunks: Sequence[memoryview],
    tail: bytes = b"",
) -> Joined:
    """Join the copies of one part, and check the result.

    Complexity: O(bytes), and one Python step a piece.

    Args:
        buffer: holds the part, until it is cleared.
        sources: all sources, for the error.
        copies: of the part.
        located: the places of their bytes.
        chunks: the bytes that were read.
        tail: the bytes after the copies: index and footer, in the last part.

    Raises:
        CorruptObject: a block contradicts the index of its source.
        FormatError: the joined bytes differ from the bytes read.
    """
    pieces = cut_pieces(copies, located, chunks)
    data = buffer.fill([*pieces, tail])
    with data[: len(data) - len(tail)] as blocks:
        _check_blocks(sources, copies, blocks)
        return Joined(data, _checksum(pieces, blocks))


def cut_pieces(copies: Copies, located: LocatedCopies, chunks: Sequence[memoryview]) -> list[memoryview]:
    """The bytes of these copies, in their order, as slices; adjacent copies are one slice."""
    ends = located.offsets + copies["size_bytes"]
    places = [located.chunks, located.offsets, ends]
    begins = (located.chunks[1:] != located.chunks[:-1]) | (located.offsets[1:] != ends[:-1])
    if not begins.all():
        firsts = np.flatnonzero(np.append(True, begins))
        places = [located.chunks[firsts], located.offsets[firsts], ends[np.append(firsts[1:], len(ends)) - 1]]
    columns = [column.tolist() for column in places]
    return [chunks[chunk][start:end] for chunk, start, end in zip(*columns, strict=True)]


def _check_blocks(sources: Sequence[Source], copies: Copies, data: memoryview) -> None:
    bad = find_bad_block(data, copies)
    if bad is not None:
        copy = copies[bad.copy]
        at = int(copy["position"]) + bad.at
        raise sources[int(copy["source"])].corrupt(expected=f"{bad.expected} at byte {at}", found=bad.found)


def _checksum(pieces: Sequence[memoryview], sent: memoryview) -> int:
    read = xxh3_64()
    for piece in pieces:
        read.update(piece)
    sent_digest = xxh3_64_intdigest(sent)
    if read.intdigest() != sent_digest:
        expected = f"a hash of {read.intdigest():#x}, of the bytes read"
        raise FormatError(f"expected {expected}, found {sent_digest:#x} of the bytes to be sent")
    return sent_digest


COPY_SIZE_BYTES_MAX = 1 << 30
"""S3 copies at most 5 GiB into one part; smaller parts are copied in parallel."""


@dataclass(frozen=True, slots=True)
class SectionPart:
    """One part of an output made of whole sections.

    Args:
        spans: the bytes of the part; several spans are read and joined.
        is_copied: whether the store copies the part; then there is one span.
    """

    spans: tuple[SourceSpan, ...]
    is_copied: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of all spans."""
        return sum(span.end - span.start for span in self.spans)


def divide_sections(
    data_sizes: Sequence[int], *, part_size_bytes: int, part_size_bytes_min: int = PART_SIZE_BYTES_MIN
) -> list[SectionPart]:
    """Divide the sections into parts; the last part, which may be empty, is not copied, since index and footer join it.

    Args:
        data_sizes: bytes of each source's data section, in order.
        part_size_bytes: the least size of a part that is read and sent, if no copied part follows it.
        part_size_bytes_min: the least size of any part that is not the last.
    """
    least = max(part_size_bytes, part_size_bytes_min)
    divider = _Divider(least, part_size_bytes_min)
    for source, size_bytes in enumerate(data_sizes):
        divider.add(source, size_bytes)
    return [*divider.parts, SectionPart(tuple(divider.pending), is_copied=False)]


def send_sections(
    store: ObjectStore, sources: Sequence[Source], parts: Sequence[SectionPart], tail: bytes, sender: OutputSender
) -> int:
    """Send these parts as output 0, and return the number of bytes that the store copied.

    Raises:
        StoreError: a request failed; the sender has to delete the parts that were sent.
    """
    copied_bytes = 0
    for number, part in enumerate(parts, start=1):
        is_last = number == len(parts)
        place = Part(0, number, 0, 0, part.size_bytes, is_last)
        if part.is_copied:
            sender.make_room(0)
            span = part.spans[0]
            sender.copy(place, sources[span.source].key, span.start, span.end)
            copied_bytes += part.size_bytes
        else:
            sender.make_room(part.size_bytes)
            bodies = [_read(store, sources[span.source], span) for span in part.spans]
            sender.send(place, b"".join([*bodies, tail] if is_last else bodies))
    return copied_bytes


class _Divider:
    """Divides the sections; spans to be read are pending until they fill a part. One thread at a time."""

    def __init__(self, least: int, part_size_bytes_min: int) -> None:
        self.parts: list[SectionPart] = []
        self.pending: list[SourceSpan] = []
        self._least = least
        self._minimum = part_size_bytes_min

    def add(self, source: int, size_bytes: int) -> None:
        waiting = sum(span.end - span.start for span in self.pending)
        borrowed = max(0, self._minimum - waiting) if waiting else 0
        if size_bytes - borrowed < self._minimum:
            self._wait(source, 0, size_bytes)
            if waiting + size_bytes >= self._least:
                self._read_pending()
            return
        self._wait(source, 0, borrowed)
        self._read_pending()
        count = -(-(size_bytes - borrowed) // COPY_SIZE_BYTES_MAX)
        cuts = [borrowed + (size_bytes - borrowed) * cut // count for cut in range(count + 1)]
        for start, end in pairwise(cuts):
            self.parts.append(SectionPart((SourceSpan(source, start, end),), is_copied=True))

    def _wait(self, source: int, start: int, end: int) -> None:
        if end > start:
            self.pending.append(SourceSpan(source, start, end))

    def _read_pending(self) -> None:
        if self.pending:
            self.parts.append(SectionPart(tuple(self.pending), is_copied=False))
            self.pending = []


def _read(store: ObjectStore, source: Source, span: SourceSpan) -> memoryview | bytes:
    if source.body is not None:
        return memoryview(source.body)[span.start : span.end]
    body = store.get_range(source.key, span.start, span.end).body
    check_whole(source, span, body)
    return body


def release_free_memory() -> None:
    """Make the C library return free memory to the system; does nothing if the library has no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
