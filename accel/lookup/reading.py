"""Reading records: from a range of offsets to its record batches, through objects and blocks.

The records of a range are in blocks of the objects that a lookup finds. The rows of an object's index contain their
places, the bytes are fetched (neighbouring blocks in one request), and batches are returned in offset order. If the
index is not in memory and a snapshot contains the place of the stream's blocks, they are fetched at once; the bytes are
checked as for an index row, and if they do not match, the index is opened. This too is a generator without I/O; besides
steps (`search_requests.py`) it yields `Batches` with records, to which the reply is None.

Reading ahead. A lookup finds the next objects while blocks of earlier ones are fetched, and blocks are fetched in
parallel; batches and errors are returned as in a sequential read:

    returned       being fetched, or in memory           being looked up      not requested
    ░░░░░░░░░░░░   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒   ··················
                   objects, requests and bytes are limited

The block that a read ends in is kept for a while (`Chunks`), since the next read probably begins in it.

A read with an end or a budget requests only the bytes within it. A read without either may be abandoned soon: before
its first batch nothing is fetched ahead, and after that the more, the more it has returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from accel.errors import AccelError, AccessDenied, CorruptObject, KeyMissing, RangeInvalid, UnknownStream
from accel.image import OPEN_END, ImageVersion, MetadataImage
from accel.lookup.answer import Answer, Ending, FoundObject, Request, check_request
from accel.lookup.lookup import Asking, Picks, lookup, lost, newer_than_unknown
from accel.lookup.search_requests import (
    Announce,
    Arrived,
    AwaitAny,
    Begin,
    Begun,
    Blocks,
    Chunks,
    CurrentImage,
    FetchSpan,
    Inputs,
    LookupStep,
    NeedImage,
    OpenObject,
    ReadSent,
    RefreshFailed,
    Sent,
    Step,
)
from loaders.format import BatchColumns, BlockRow, FoundRows, decode_block_columns, find
from loaders.format.index import block_spans
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.settings import MIB

if TYPE_CHECKING:
    from accel.lookup.explain import Trace

LOOKUP_LIMIT = 4
"""The limit of the first lookup of a read, as in a fetch of the production system."""

LOOKUP_LIMIT_MAX = 1024
"""The limit of each later lookup of a read; the search and the read limit how far they go ahead themselves."""

OBJECTS_AHEAD = 8
OBJECTS_AHEAD_GROWTH = 4
OBJECTS_AHEAD_MAX = 256
"""Objects that are found and not finished: 8, and 4 more for each finished object, up to this number."""

REQUESTS_MAX = 64
"""The maximum number of spans being fetched. Fetched spans are limited by bytes alone: a slow request does not block
later requests, and no read fills the queue of all others."""

HINTED_SIZE_BYTES_FREE = 1 << 20
"""Bytes that are fetched at a snapshot's place even if few of them are needed: an index is hardly smaller."""

SPAN_SIZE_BYTES_MAX = 8 * MIB
"""The maximum bytes of blocks that one request fetches; a single block may be longer."""

WINDOW_SIZE_BYTES = 32 * MIB
"""Bytes of blocks that a read has requested, or has in memory and not yet returned; a single request may be larger."""

BYTES_MAX = 2**31 - 1
"""The maximum budget of one read; larger ones are reduced to it."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Record batches for the caller, and the offset at which a later read continues after them."""

    columns: BatchColumns
    next_offset: int


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Why a read ended, and the offset at which a later read continues; the stream's end as in `Answer`."""

    ending: Ending
    next_offset: int
    stream_end: int | None = None


class Ranges(Protocol):
    """Supplies bytes of objects to a read, instead of the store."""

    def cached(self, key: str, start: int, end: int) -> bytes | memoryview | None:
        """Bytes [start, end) of an object if no request is needed for them, else None; does not block."""
        ...

    def begin(self, key: str, start: int, end: int, executor: Executor) -> Future[bytes | memoryview]:
        """Bytes [start, end) of an object, fetched in an executor; does not block. Any thread may call it."""
        ...

    def announce(self, key: str, start: int, end: int, executor: Executor) -> None:
        """A later read will need these bytes, which may be fetched ahead; does not block. Any thread may call it."""
        ...


class Watch(Protocol):
    """Records the lookups of a read."""

    def begin(self, request: Request) -> Trace:
        """Begin to record a lookup and return its trace; a previous one that has not ended was abandoned."""
        ...

    def end(self, outcome: Answer | AccelError) -> None:
        """Record the end of the lookup."""
        ...


ReadSteps = Generator[Step | Batches, ReadSent, ReadEnd]


def read_range(  # noqa: PLR0913 - the range and the options of a read
    stream_id: int,
    start: int,
    end: int,
    max_bytes: int,
    inputs: Inputs,
    *,
    blocks: Blocks | None = None,
    chunks: Chunks | None = None,
    watch: Watch | None = None,
    ahead_bytes: int = 0,
) -> ReadSteps:
    """The record batches of offsets [start, end), in order.

    Batches are whole: the first may begin before ``start``, the last may end after ``end``. The read stops after the
    batch that brings the payload to ``max_bytes``, so it returns at least one batch if there is one. An empty range
    holds no records: it is checked as any other, and no object is opened for it. Each lookup of a read uses the image
    that is current then, since a read may last longer than an image may be used. Of the payload after the budget
    ``ahead_bytes`` are announced for a later read, as far as objects are opened during this one.

    Raises (from the generator):
        ValueError: a budget below 1.
        AccelError: as `lookup`, and errors of fetching and decoding blocks.
    """
    if max_bytes < 1:
        raise ValueError(f"expected max_bytes of at least 1, found {max_bytes}")
    budget = min(max_bytes, BYTES_MAX)
    return _Reader(stream_id, start, end, budget, inputs, ahead_bytes, blocks=blocks, chunks=chunks, watch=watch).run()


class _Gone(Exception):
    """An object does not exist; or access is denied, which without the right to list may mean the same."""

    def __init__(self, error: KeyMissing | AccessDenied, slot: _Slot) -> None:
        super().__init__(str(error))
        self.error = error
        self.slot = slot


@dataclass(slots=True, eq=False)
class _Piece:
    """A span of an object that is being fetched, or was fetched."""

    span: _Span
    body: Begun | None = None


@dataclass(slots=True, eq=False)
class _Slot:
    """An object of the read that was found and is not finished."""

    found: FoundObject
    image_version: ImageVersion
    opened: OpenedObject | AccelError | None = None
    is_opening: bool = False
    is_planned: bool = False
    is_hinted: bool = False
    is_unhinted: bool = False
    fulfilled: bool = False
    begun_at: int = -1
    unasked: deque[_Span] = field(default_factory=deque)
    pieces: deque[_Piece] = field(default_factory=deque)

    @property
    def node_id(self) -> int:
        return -1 if self.found.node_id is None else self.found.node_id

    @property
    def ref(self) -> ObjectRef:
        """The object, as its index says if it is open."""
        return self.opened.ref if isinstance(self.opened, OpenedObject) else self.found.ref

    def share_of(self, stream_id: int) -> Hashable:
        """The share of the threads for its requests: that of its node, or of the stream whose own object it is."""
        return (stream_id,) if self.found.node_id is None else self.found.node_id

    def failure(self, error: AccelError) -> Exception:
        return _Gone(error, self) if isinstance(error, KeyMissing | AccessDenied) else error


class _Finder:
    """The lookups of a read, one after the other: the found objects, and the step of the current lookup.

    One thread at a time.
    """

    def __init__(self, stream_id: int, start: int, end: int, inputs: Inputs, watch: Watch | None) -> None:
        self.stream_id = stream_id
        self.end = end
        self.inputs = inputs
        self.watch = watch
        self.limit = LOOKUP_LIMIT
        self.next = start
        self.step: LookupStep | None = None
        self.ending: Ending | None = None
        self.stream_end: int | None = None
        self.error: AccelError | None = None
        self.image_version: ImageVersion = 0
        self._steps: Asking[Answer] | None = None
        self._picks = Picks()

    @property
    def is_over(self) -> bool:
        """Whether there are no more objects to find."""
        return self.ending is not None or self.error is not None

    @property
    def has_found(self) -> bool:
        """Whether there are objects to take."""
        return bool(self._picks)

    @property
    def is_idle(self) -> bool:
        """Whether no lookup is running."""
        return self._steps is None

    def begin(self, image: MetadataImage) -> None:
        """Begin the next lookup, and take its first step."""
        self._picks, self.image_version = Picks(), image.version
        request = Request(self.stream_id, self.next, self.end, self.limit)
        trace = None if self.watch is None else self.watch.begin(request)
        self._steps = lookup(request, image, self.inputs, trace, self._picks)
        self.limit = LOOKUP_LIMIT_MAX
        self.go_on(None)

    def go_on(self, sent: Sent) -> None:
        """Take the next step of the lookup; ``sent`` is the reply to the last one."""
        if self._steps is None:
            raise TypeError("expected a running lookup, found none")
        if isinstance(sent, MetadataImage):
            self.image_version = sent.version
        try:
            self.step = self._steps.send(sent)
        except StopIteration as stop:
            answer: Answer = stop.value
            self._end(answer)
            if answer.ending is Ending.HOLE or not answer.objects:
                self.ending, self.stream_end = answer.ending, answer.stream_end
            elif answer.ending is Ending.END:
                self.ending = Ending.END
        except AccelError as error:
            self._end(error)
            self.error = error

    def _end(self, outcome: Answer | AccelError) -> None:
        self._steps = self.step = None
        if self.watch is not None:
            self.watch.end(outcome)

    def leave(self) -> None:
        """Abandon the lookup, and objects not taken: the next lookup continues there, with the image current then."""
        if not self.is_over:
            self._steps = self.step = None
            self._picks = Picks()

    def take(self, most: int) -> list[FoundObject]:
        """Take the next found objects, at most this number."""
        taken = self._picks.take(most)
        if taken:
            self.next = taken[-1].end
        return taken


T = TypeVar("T")
Working = Generator[Step | Batches, ReadSent, T]


class _Reader:
    """The state of one read. One thread at a time."""

    def __init__(  # noqa: PLR0913 - as of `read_range`
        self,
        stream_id: int,
        start: int,
        end: int,
        max_bytes: int,
        inputs: Inputs,
        ahead_bytes: int,
        *,
        blocks: Blocks | None,
        chunks: Chunks | None,
        watch: Watch | None,
    ) -> None:
        self.stream_id = stream_id
        self.next = start
        self.end = end
        self.bytes_left = max_bytes
        self.ahead_bytes = ahead_bytes
        self.inputs = inputs
        self.blocks = blocks
        self.chunks = chunks
        self.last: tuple[_Slot, _Piece] | None = None
        self.last_from = start
        self.watch = watch
        self.key_of = inputs.key_of
        self.has_budget = max_bytes < BYTES_MAX
        self.is_wanted_on = self.has_budget or end != OPEN_END
        self.objects_given = 0
        self.tickets_given = 0
        self._start_over(start)

    def _start_over(self, offset: int) -> None:
        self.finder = _Finder(self.stream_id, offset, self.end, self.inputs, self.watch)
        self.slots: deque[_Slot] = deque()
        self.tickets: dict[int, _Slot | _Piece] = {}
        self.requests_under_way = self.bytes_ahead = 0
        self.planned_next, self.planned_left = offset, self.bytes_left
        self.announced_next, self.announced_left = offset, self.ahead_bytes

    def run(self) -> ReadSteps:
        if self.next == self.end:
            return (yield from self._end_at_once())
        is_over = False
        try:
            end = yield from self._read()
            self.last_from, is_over = self.next, True
        finally:
            self._keep_last(waits=is_over)  # the garbage collector may close it within a call of `chunks`
        return end

    def _read(self) -> ReadSteps:
        retried_at = -1
        refreshed: ReadSent = None
        while True:
            try:
                ending = yield from self._give_out()
                if ending is not None:
                    return ReadEnd(ending, self.next, self.finder.stream_end if not self.slots else None)
                yield from self._work()
            except _Gone as gone:
                # A compaction has removed the object after the lookup: a newer image lists the objects that replace it.
                if retried_at == self.next:
                    raise self._lost(gone, refreshed) from gone.error
                retried_at = self.next
                self._start_over(self.next)
                refreshed = yield NeedImage(gone.slot.image_version)  # a newer image becomes the current one

    def _end_at_once(self) -> Working[ReadEnd]:
        """The end of a read of no offsets: only its request is checked."""
        request = Request(self.stream_id, self.next, self.end)
        image = yield CurrentImage()
        if not isinstance(image, MetadataImage):
            raise TypeError(f"expected an image, found {type(image).__name__}")
        try:
            check_request(request, image)
        except UnknownStream as error:
            newer = yield from newer_than_unknown(error, image, self.inputs, looked_again=False)
            check_request(request, newer)
        return ReadEnd(Ending.END, self.next)

    def _lost(self, gone: _Gone, refreshed: ReadSent) -> AccelError:
        if isinstance(gone.error, AccessDenied):
            return gone.error
        failed = refreshed if isinstance(refreshed, RefreshFailed) else None
        return lost(gone.slot.found.object_id, gone.slot.node_id, self.inputs, failed)

    # -- returning batches ---------------------------------------------------------------------------------------------

    def _give_out(self) -> Working[Ending | None]:
        """Return the fetched batches of the next objects, in order; returns the ending if the read is over."""
        while self.slots:
            slot = self.slots[0]
            ending = yield from self._give_out_of(slot)
            if ending is not None:
                return ending
            if self.slots and self.slots[0] is slot:
                return None  # other parts of the object are not fetched yet
        if self.finder.has_found:
            return None
        if self.finder.error is not None:
            raise self.finder.error
        return self.finder.ending

    def _give_out_of(self, slot: _Slot) -> Working[Ending | None]:
        if isinstance(slot.opened, AccelError):
            raise slot.failure(slot.opened)
        while slot.pieces and slot.pieces[0].body is not None:
            piece = slot.pieces.popleft()
            self.bytes_ahead -= piece.span.end - piece.span.start
            batches = self._batches(slot, piece)
            if batches is None:
                return None
            self.last = (slot, piece)
            yield batches
            self.is_wanted_on = True
            if self.bytes_left <= 0:
                return Ending.LIMIT
        if not slot.is_planned or slot.pieces or slot.unasked or self._is_unfinished(slot):
            return None
        self.slots.popleft()
        self.objects_given += 1
        if self.end != OPEN_END and self.next >= self.end:
            return Ending.END
        return Ending.HOLE if self.next < slot.found.end else None  # the object's range has a hole inside

    def _is_unfinished(self, slot: _Slot) -> bool:
        """Whether an object has more rows to plan: a row uses slightly more of the budget than its batches do."""
        ended = self.end != OPEN_END and self.next >= self.end
        if slot.is_hinted or ended or not slot.fulfilled or self.next == slot.begun_at:
            return False
        slot.is_planned = False
        return True

    def _batches(self, slot: _Slot, piece: _Piece) -> Batches | None:
        """The batches of a span; None if the snapshot's place was wrong, and the object's index is to be opened."""
        body, size_bytes = piece.body, slot.found.ref.size_bytes
        if isinstance(slot.opened, OpenedObject):
            size_bytes = slot.opened.ref.size_bytes
        if isinstance(body, AccelError) and not (slot.is_hinted and isinstance(body, RangeInvalid)):
            raise slot.failure(body)
        if not slot.is_hinted:
            return self._batches_of(piece.span, _bytes(body), size_bytes)
        try:
            batches = None if isinstance(body, AccelError) else self._batches_of(piece.span, _bytes(body), size_bytes)
        except CorruptObject:
            batches = None
        if self.blocks is not None:
            self.blocks.used(slot.node_id, slot.found.object_id, self.stream_id, right=batches is not None)
        if batches is None:
            slot.is_planned = slot.is_hinted = False
            slot.is_unhinted = True
        return batches

    def _keep_last(self, *, waits: bool) -> None:
        """Keep the blocks of the last batches that a read may continue in; all of them if the read was abandoned."""
        if self.last is None or self.chunks is None:
            return
        slot, piece = self.last
        body = _bytes(piece.body)
        for row in piece.span.rows:
            if row.end > self.last_from:
                at = row.position - piece.span.start
                name, chunk = _chunk_name(slot.ref, piece.span, row), bytes(body[at : at + row.size_bytes])
                self.chunks.keep(name, chunk, waits=waits)

    def _kept_first(self, slot: _Slot, spans: Iterable[_Span]) -> Iterator[_Span]:
        """The same spans, the first blocks of the first one by themselves if their bytes are kept."""
        chunks = self.chunks
        for span in spans:
            rows = list(span.rows)
            while chunks is not None and rows:
                body = chunks.find(_chunk_name(slot.ref, span, rows[0]))
                if body is None:
                    break
                yield replace(_span(span.object_id, [rows.pop(0)]), body=body)
            chunks = None
            if rows:
                yield _span(span.object_id, rows)

    # -- reading ahead -------------------------------------------------------------------------------------------------

    def _work(self) -> Working[None]:
        """Begin all permitted requests, and wait for some of the running ones, unless the next object can continue."""
        yield from self._look_ahead()
        yield from self._fetch_ahead()
        yield from self._announce()
        head = self.slots[0] if self.slots else None
        if head is not None and self._can_go_on(head):
            return
        step = self.finder.step
        if head is None and (step is None or isinstance(step, NeedImage)):
            return
        waits = step if step is not None and not isinstance(step, NeedImage) and self._has_room() else None
        if waits is None and not self.tickets:
            raise RuntimeError("expected a running request, found none")
        came = yield AwaitAny(waits)
        if not isinstance(came, Arrived):
            raise TypeError(f"expected results of requests, found {type(came).__name__}")
        for ticket, begun in came.begun.items():
            self._take_in(self.tickets.pop(ticket, None), begun)
        if came.is_image_due:
            self.finder.leave()
        elif came.lookup is not None:
            self.finder.go_on(came.lookup)

    def _can_go_on(self, head: _Slot) -> bool:
        if isinstance(head.opened, AccelError):
            return True
        if head.pieces:
            return head.pieces[0].body is not None
        return head.is_planned and not head.unasked

    def _take_in(self, what: _Slot | _Piece | None, begun: Begun) -> None:
        if isinstance(what, _Piece):
            what.body = begun
            self.requests_under_way -= 1
        elif isinstance(what, _Slot):
            if isinstance(begun, bytes | memoryview):
                raise TypeError("expected an opened object, found bytes")
            what.opened = begun

    def _has_room(self) -> bool:
        """Whether the read may look for more objects."""
        if not self.slots:
            return True
        most = min(OBJECTS_AHEAD + OBJECTS_AHEAD_GROWTH * self.objects_given, OBJECTS_AHEAD_MAX)
        return self.is_wanted_on and self.planned_left + self.announced_left > 0 and len(self.slots) < most

    def _look_ahead(self) -> Working[None]:
        """Take the objects that the lookup has found, and continue it until it has to wait for loads."""
        finder = self.finder
        while self._has_room():
            most = OBJECTS_AHEAD_MAX if self.is_wanted_on else LOOKUP_LIMIT
            found = finder.take(max(1, most - len(self.slots)))
            self.slots.extend(_Slot(each, finder.image_version) for each in found)
            if found:
                continue
            if finder.is_over:
                return
            if isinstance(finder.step, NeedImage):
                if self.slots:
                    return  # the query may take long: the objects found before are returned first
                asked = yield finder.step
                if isinstance(asked, OpenedObject | bytes | memoryview | AccelError | Arrived):
                    raise TypeError(f"expected an image, found {type(asked).__name__}")
                finder.go_on(asked)
            elif finder.is_idle:
                if self.has_budget and not all(slot.is_planned or self._is_announced(slot) for slot in self.slots):
                    return  # these objects may use up the budget
                yield from self._begin_lookup()
            else:
                return

    def _begin_lookup(self) -> Working[None]:
        try:
            image = yield CurrentImage()
        except AccelError as error:
            self.finder.error = error  # raised when the objects found before are finished
            return
        if not isinstance(image, MetadataImage):
            raise TypeError(f"expected an image, found {type(image).__name__}")
        self.finder.begin(image)

    def _fetch_ahead(self) -> Working[None]:
        """Open indexes, choose rows and begin to fetch, object by object, within the budget and the window."""
        if not self.slots or not self.slots[0].is_planned:
            self.planned_next, self.planned_left = self.next, self.bytes_left
        for number, slot in enumerate(self.slots):
            if number and not self.is_wanted_on:
                return
            if not slot.is_planned and not (yield from self._plan(slot)):
                if not slot.is_opening or self.planned_left <= 0:
                    return
                yield from self._open_ahead(number)
                return
            while slot.unasked:
                if not self._may_fetch(slot.unasked[0], is_next=number == 0 and not slot.pieces):
                    return
                yield from self._fetch(slot, slot.unasked.popleft())

    def _open_ahead(self, number: int) -> Working[None]:
        """Open the indexes of later objects while one is being opened, unless a snapshot has their blocks' places."""
        if self.has_budget:
            return  # whether the budget extends to these objects is known when the previous object is open
        for slot in list(self.slots)[number + 1 :]:
            if slot.is_planned or slot.opened is not None or slot.is_opening or self._hinted_row(slot) is not None:
                continue
            yield from self._open(slot)

    def _may_fetch(self, span: _Span, *, is_next: bool) -> bool:
        if is_next:
            return True
        if not self.is_wanted_on or self.requests_under_way >= REQUESTS_MAX:
            return False
        return self.bytes_ahead + span.end - span.start <= WINDOW_SIZE_BYTES

    def _fetch(self, slot: _Slot, span: _Span) -> Working[None]:
        piece = _Piece(span, span.body)
        slot.pieces.append(piece)
        self.bytes_ahead += span.end - span.start
        if span.body is not None:
            return
        self.requests_under_way += 1
        yield from self._begin(slot, piece, FetchSpan(span.object_id, span.start, span.end))

    def _open(self, slot: _Slot) -> Working[None]:
        slot.is_opening = True
        yield from self._begin(slot, slot, OpenObject(slot.node_id, slot.found.ref))

    def _begin(self, slot: _Slot, what: _Slot | _Piece, step: OpenObject | FetchSpan) -> Working[None]:
        self.tickets_given += 1
        ticket = self.tickets_given
        self.tickets[ticket] = what
        begun = yield Begin(ticket, step, slot.share_of(self.stream_id))
        if begun is not None:
            if not isinstance(begun, OpenedObject | bytes | memoryview | AccelError):
                raise TypeError(f"expected the result of a request, found {type(begun).__name__}")
            del self.tickets[ticket]
            self._take_in(what, begun)

    def _plan(self, slot: _Slot) -> Working[bool]:
        """Choose the spans to fetch of an object, after all earlier objects; false while its index is not loaded."""
        if self.planned_left <= 0:
            return False
        row = self._hinted_row(slot)
        if row is not None:
            slot.is_planned = slot.is_hinted = True
            slot.unasked.extend(self._kept_first(slot, [_span(slot.found.object_id, [row])]))
            self.planned_next, self.planned_left = row.end, max(0, self.planned_left - row.payload_bytes)
            self.announced_next = max(self.announced_next, row.end)
            return True
        if slot.opened is None and not slot.is_opening:
            yield from self._open(slot)
        opened = slot.opened
        if not isinstance(opened, OpenedObject):
            return False
        try:
            self._check_holds(slot.found, opened)
        except CorruptObject as error:
            slot.opened = error  # raised when it is the object's turn
            return False
        slot.begun_at = self.planned_next
        chosen = self._chosen(opened)
        slot.unasked.extend(self._kept_first(slot, self._spans(opened, chosen.rows)))
        slot.fulfilled, slot.is_planned = chosen.fulfilled, True
        self.planned_next, self.planned_left = slot.found.end, chosen.bytes_left
        self.announced_next = max(self.announced_next, chosen.next_offset if chosen.fulfilled else slot.found.end)
        return True

    def _chosen(self, opened: OpenedObject) -> FoundRows:
        """The rows to read of an object; the rest of the one in which the read begins counts as its share of bytes."""
        begin, left = self.planned_next, self.planned_left
        chosen = find(opened.index, self.stream_id, begin, self.end, left)
        first = opened.index.row(chosen.rows[0]) if chosen.rows else None
        if first is None or first.start >= begin or (self.end != OPEN_END and first.end >= self.end):
            return chosen
        left -= first.payload_bytes * (first.end - begin) // (first.end - first.start)
        if left <= 0:
            return FoundRows(chosen.rows[:1], fulfilled=True, next_offset=first.end, bytes_left=0)
        more = find(opened.index, self.stream_id, first.end, self.end, left)
        return more._replace(rows=(chosen.rows[0], *more.rows))

    def _announce(self) -> Working[None]:
        """Announce the spans after the budget, once it is used up, object by object, as far as objects are open."""
        for slot in self.slots:
            is_over = self.end != OPEN_END and self.announced_next >= self.end
            if is_over or self.planned_left > 0 or self.announced_left <= 0:
                return
            if self._is_announced(slot):
                continue
            row = self._hinted_row(slot, self.announced_next, self.announced_left)
            if row is not None:
                spans, end, spent = [_span(slot.found.object_id, [row])], row.end, row.payload_bytes
            else:
                if slot.opened is None and not slot.is_opening:
                    yield from self._open(slot)
                if not isinstance(slot.opened, OpenedObject):
                    return
                spans, end, spent = self._behind(slot, slot.opened)
            self.announced_next, self.announced_left = end, self.announced_left - spent
            for span in spans:
                yield Announce(FetchSpan(span.object_id, span.start, span.end), slot.share_of(self.stream_id))

    def _is_announced(self, slot: _Slot) -> bool:
        return slot.found.end <= self.announced_next

    def _behind(self, slot: _Slot, opened: OpenedObject) -> tuple[list[_Span], int, int]:
        """The spans of an object to be announced, the offset where they end, and their bytes."""
        left = self.announced_left
        chosen = find(opened.index, self.stream_id, self.announced_next, self.end, left)
        spans = self._spans(opened, chosen.rows)
        return spans, chosen.next_offset if chosen.fulfilled else slot.found.end, left - chosen.bytes_left

    def _spans(self, opened: OpenedObject, rows: Sequence[int]) -> list[_Span]:
        spans = block_spans(opened.index, opened.composite, rows, SPAN_SIZE_BYTES_MAX)
        return [_span(opened.ref.object_id if link is None else link, found) for link, found in spans]

    def _check_holds(self, found: FoundObject, opened: OpenedObject) -> None:
        """Check that a stream object has the range in the image, which lookups use without opening the object."""
        if found.node_id is not None or opened.composite is not None:
            return
        held = opened.ranges.range_of(self.stream_id)
        if held is None or not (held.start <= found.start and found.end <= held.end):
            has = "none of it" if held is None else f"[{held.start}, {held.end})"
            expected = f"[{found.start}, {found.end}) of stream {self.stream_id}, as in the image"
            key, size_bytes = self.key_of(found.object_id), opened.ref.size_bytes
            raise CorruptObject(key, size_bytes, expected=expected, found=has)

    def _hinted_row(self, slot: _Slot, first: int | None = None, left: int = 0) -> BlockRow | None:
        """The place of an object's blocks in a snapshot, if it is known and fetching it is cheap enough.

        Args:
            slot: the object.
            first: the first needed offset; None = as planned, then ``left`` is not used.
            left: the remaining bytes.
        """
        found = slot.found
        if self.blocks is None or found.node_id is None or slot.is_unhinted or slot.opened is not None:
            return None
        row = self.blocks.find(found.node_id, found.ref, self.stream_id)
        if row is None or (row.start, row.end) != (found.start, found.end):
            return None
        wanted = (self.planned_next, self.planned_left) if first is None else (first, left)
        return row if self._is_worth_it(row, *wanted) else None

    def _is_worth_it(self, row: BlockRow, wanted_from: int, left: int) -> bool:
        """Whether so many of the bytes are needed that choosing rows by the index would save few of them."""
        if row.size_bytes > SPAN_SIZE_BYTES_MAX:
            return False
        end = row.end if self.end == OPEN_END else min(row.end, self.end)
        first = max(row.start, wanted_from)
        half_wanted = 2 * (end - first) >= row.end - row.start and 2 * left >= row.size_bytes
        return half_wanted or row.size_bytes <= HINTED_SIZE_BYTES_FREE

    def _batches_of(self, span: _Span, body: bytes | memoryview, object_size_bytes: int) -> Batches:
        key = self.key_of(span.object_id)
        columns = decode_block_columns(body, span.rows, key=key, object_size_bytes=object_size_bytes)
        columns = columns.wanted(self.next, None if self.end == OPEN_END else self.end, self.bytes_left)
        if len(columns):
            self.last_from = self.next
            self.bytes_left -= columns.size_bytes
            self.next = int(columns.end_offsets[-1])
        return Batches(columns, self.next)


@dataclass(frozen=True, slots=True)
class _Span:
    """Neighbouring rows of one object, to be fetched in one request."""

    object_id: int
    start: int
    end: int
    rows: tuple[BlockRow, ...]
    body: bytes | None = None
    """Its bytes, if they were kept."""


def _chunk_name(ref: ObjectRef, span: _Span, row: BlockRow) -> Hashable:
    """Of a block: an object with its size and checksum, the object that holds the bytes, and their place."""
    return (ref, span.object_id, row.position, row.size_bytes)


def _bytes(body: ReadSent) -> bytes | memoryview:
    if not isinstance(body, bytes | memoryview):
        raise TypeError(f"expected bytes, found {type(body).__name__}")
    return body


def _span(object_id: int, rows: list[BlockRow]) -> _Span:
    return _Span(object_id, rows[0].position, rows[-1].position + rows[-1].size_bytes, tuple(rows))
