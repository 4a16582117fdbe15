"""Shared loads: many concurrent calls cause one load of a value, and values are kept within a bound of bytes.

    the value is    a call gets                                         the caller then calls
    kept            the value                                           nothing
    being loaded    the future of that load, and waits for it           nothing
    neither         a new future: the caller must load the value        `land` or `fail`, from any thread

Least recently used values are dropped first. Failures are not kept; the next call loads again. A value may be forgotten
while it is being loaded. Then the calls that already wait get the value, but it is not kept, and later calls load it
again: they never get a value that was read before. A forked process begins with no values and no loads. No lock is held
over a load: `get` loads in the calling thread, `start` in an executor.

**Chunks.** A reader of all segments of a stream needs most of each object, but reads it segment by segment:

    object      | seg 0 | seg 1 | seg 2 | seg 3 | seg 4 | ...
    requested   |=======|=======|=======|                        three ranges, at about the same time
    fetched     |======= chunk 0 =======|======= chunk 1 ...     one request

Up to some MiB, the cost of a request hardly depends on its size. So `SharedChunks` cuts ranges out of aligned chunks,
and keeps the chunks by pages; each page is a shared load. If ranges are long (streams with some MiB in each object),
neighbours do not need the rest of a chunk: only the pages of the range are fetched, and pages that were read to their
end are dropped first. If little of an object is read, most bytes of its chunks are wasted. So `SharedChunks` counts the
used share of the last objects' chunks; if that share is too small, it fetches exactly the requested ranges. For one
object of 16 it tries chunks again.

**The last chunks.** A reader that fetches a little at a time needs the same block of an object for many reads.
`LastChunks` keeps the blocks that reads ended in, for some seconds, so that the next read begins without a request.

**Ahead.** A reader announces a range that it will soon read (`announce`), and the range's pages are fetched meanwhile.
The number of pages that are announced and not yet read is bounded: a range beyond the bound is fetched when it is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from cachetools import TTLCache

from loaders.counting import CacheStats, CountedCache
from loaders.errors import AccelError, RangeInvalid
from loaders.lifetime import PerProcess, ProcessLock
from loaders.settings import MIB
from loaders.store import ObjectStore
from loaders.store.bill import RequestCause, caused_by
from loaders.threads import start_thread

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Flight(Generic[V]):
    """A load that is under way.

    Attributes:
        result: done when the load ends; cannot be cancelled.
        started: whether the caller must carry out the load.
        kept: the value in memory that does not suffice; None = there is none.
    """

    result: Future[V]
    started: bool
    kept: V | None


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Counts since the start, and sizes now.

    Args:
        landed: loads that succeeded.
        failed: loads that failed.
        joined: calls that waited for the load of another call.
        cache: the kept values; a load is a miss.
    """

    landed: int
    failed: int
    joined: int
    cache: CacheStats


def done_future(value: V) -> Future[V]:
    """A future that has this value already."""
    future: Future[V] = Future()
    future.set_result(value)
    return future


def any_will_do(_: object) -> bool:
    """The predicate of calls that accept any kept value."""
    return True


def nothing_will_do(_: object) -> bool:
    """The predicate of calls that need a new load."""
    return False


class _State(Generic[K, V]):
    """The values and loads of one process; `lock` guards all attributes."""

    def __init__(self, size_bytes_max: int) -> None:
        self.lock = Lock()
        self.kept: CountedCache[K, _Sized[V]] = CountedCache(size_bytes_max, lambda each: each.size_bytes)
        self.flights: dict[K, Future[V]] = {}
        self.landed = self.failed = self.joined = self.hits = self.forgotten = 0

    def is_current(self, key: K, result: Future[V]) -> bool:
        """Whether a load was not forgotten."""
        return self.flights.get(key) is result

    def end(self, key: K, result: Future[V]) -> None:
        """End a load; later calls do not join it."""
        if self.is_current(key, result):
            del self.flights[key]

    def keep(self, key: K, sized: _Sized[V]) -> None:
        if sized.size_bytes <= self.kept.maxsize:
            self.kept[key] = sized
        else:
            self.kept.pop(key, None)


class SharedLoads(Generic[K, V]):
    """Values by key, in memory or being loaded. Threads: any.

    Args:
        size_bytes_max: bound on the kept bytes; a larger value is never kept. 0 = nothing is kept.
        size_of: bytes of memory that a value takes.
        callbacks_first: calls join a load until all callbacks of its future have run. For owners whose callbacks store
            the value elsewhere: each call finds either the load or the value.
    """

    def __init__(self, size_bytes_max: int, size_of: Callable[[V], int], *, callbacks_first: bool = False) -> None:
        if size_bytes_max < 0:
            raise ValueError(f"expected a bound of 0 or more bytes, found {size_bytes_max}")
        self._size_of = size_of
        self._callbacks_first = callbacks_first
        self._state: PerProcess[_State[K, V]] = PerProcess("a cache", lambda: _State(size_bytes_max))

    def ask(
        self, key: K, suits: Callable[[V], bool] = any_will_do, mine: list[Future[V]] | None = None
    ) -> V | Flight[V]:
        """Return the kept value, join the load that is under way, or begin one that the caller carries out.

        Args:
            key: of the value.
            suits: returns whether the kept value suffices; must be quick, since all other calls wait meanwhile.
            mine: gets the future of a load that this call begins, before any other call sees it: a caller that is
                interrupted by an exception of a signal handler, at any place, passes it to `give_up` or `rescue`.
        """
        with (state := self._state()).lock:
            sized = state.kept.get(key)
            kept = None if sized is None else sized.value
            if kept is not None and suits(kept):
                state.hits += 1
                return kept
            result = state.flights.get(key)
            if result is not None:
                state.joined += 1
                return Flight(result, started=False, kept=kept)
            result = Future()
            result.set_running_or_notify_cancel()  # from now on no waiting thread can cancel it
            if mine is not None:
                mine.append(result)
            state.flights[key] = result
            return Flight(result, started=True, kept=kept)

    def join(self, key: K, mine: list[Future[V]] | None = None) -> Flight[V]:
        """As `ask`, but kept values are ignored."""
        asked = self.ask(key, nothing_will_do, mine)
        if not isinstance(asked, Flight):
            raise TypeError(f"expected a load, found {asked!r}")
        return asked

    def get(self, key: K, load: Callable[[], V], suits: Callable[[V], bool] = any_will_do) -> V:
        """Return the value: from memory, from the load of another thread, or from a load in this thread.

        Raises:
            The error of the load; an AccelError in all threads that waited for it, any other one only in the thread
            that loads: the others load themselves.
        """
        while True:
            mine: list[Future[V]] = []
            try:
                asked = self.ask(key, suits, mine)
                if not isinstance(asked, Flight):
                    return asked
                if asked.started:
                    return self.lead(key, asked.result, load)
            except BaseException as error:
                self.give_up(key, mine, error)
                raise
            failed = asked.result.exception()  # waits; an error raised here concerns only this thread
            if failed is None:
                return asked.result.result()
            if isinstance(failed, AccelError):
                raise failed

    def give_up(self, key: K, mine: Iterable[Future[V]], error: BaseException) -> None:
        """End the loads that a caller began, if they are still under way, with an error."""
        for result in mine:
            if not result.done():
                self.fail(key, result, error)

    def rescue(self, key: K, mine: Iterable[Future[V]], load: Callable[[], V]) -> None:
        """Carry out in a thread of its own what a caller began, and may not have submitted: others may wait for it."""
        for result in mine:
            if not result.done():
                start_thread(partial(self._lead_quietly, key, result, load), "accel-rescue")

    def start(self, key: K, executor: Executor, load: Callable[[], V]) -> tuple[Future[V], bool]:
        """Return a future: of the kept value, of the load that is under way, or of one that begins in the executor.

        Returns:
            The future, which cannot be cancelled, and whether this call began the load. Its error is that of the load.
        """
        mine: list[Future[V]] = []
        try:
            asked = self.ask(key, mine=mine)
            if not isinstance(asked, Flight):
                return done_future(asked), False
            if asked.started:
                self.submit(executor, key, asked.result, load)
        except BaseException:
            self.rescue(key, mine, load)
            raise
        return asked.result, asked.started

    def submit(self, executor: Executor, key: K, result: Future[V], load: Callable[[], V]) -> None:
        """Carry out a started load in the executor; if the executor is shut down, the load ends with an error."""
        try:
            executor.submit(self._lead_quietly, key, result, load)
        except (AccelError, RuntimeError) as error:  # the executor is shut down
            self.fail(key, result, error)

    def _lead_quietly(self, key: K, result: Future[V], load: Callable[[], V]) -> None:
        with suppress(BaseException):  # raised in the waiting threads
            self.lead(key, result, load)

    def lead(self, key: K, result: Future[V], load: Callable[[], V]) -> V:
        """Carry out a started load in this thread, and end it in any case. Raises the error of the load."""
        try:
            value = load()
        except BaseException as error:
            self.fail(key, result, error)
            raise
        self.land(key, result, value)
        return value

    def peek(self, key: K) -> V | None:
        """The kept value, without a load and without a count."""
        with (state := self._state()).lock:
            sized = state.kept.get(key)
        return None if sized is None else sized.value

    def land(self, key: K, result: Future[V], value: V) -> None:
        """End a load: keep the value, unless it is None or was forgotten meanwhile; pass it to all waiting calls."""
        try:
            sized = None if value is None else _Sized(value, self._size_of(value))
        except BaseException as error:
            self.fail(key, result, error)  # otherwise the waiting threads would wait for ever
            raise
        with (state := self._state()).lock:
            state.landed += 1
            if state.is_current(key, result) and sized is not None:
                state.keep(key, sized)
            if not self._callbacks_first:
                state.end(key, result)
        result.set_result(value)
        if self._callbacks_first:
            with state.lock:
                state.end(key, result)

    def fail(self, key: K, result: Future[V], error: BaseException) -> None:
        """End a load with an error, which is raised in all waiting threads."""
        with (state := self._state()).lock:
            state.failed += 1
            state.end(key, result)
        result.set_exception(error)

    def ticket(self) -> int:
        """Return a ticket; the caller takes it before it produces a value to keep."""
        return self._state().forgotten

    def keep(self, key: K, value: V, ticket: int | None = None) -> None:
        """Keep a value that was not loaded through this object, for example a value that may change.

        Args:
            key: of the value.
            value: the value to keep.
            ticket: the value is not kept if any value was forgotten since this ticket was taken.
        """
        sized = _Sized(value, self._size_of(value))
        with (state := self._state()).lock:
            if ticket is None or ticket == state.forgotten:
                state.keep(key, sized)

    def forget(self, key: K) -> None:
        """Drop the kept value, and the result of a load that is under way."""
        with (state := self._state()).lock:
            state.kept.pop(key, None)
            state.flights.pop(key, None)
            state.forgotten += 1

    def forget_all(self, chosen: Callable[[K], bool]) -> None:
        """As `forget`, for all chosen keys. O(kept values)."""
        with (state := self._state()).lock:
            for key in [each for each in (*state.kept, *state.flights) if chosen(each)]:
                state.kept.pop(key, None)
                state.flights.pop(key, None)
            state.forgotten += 1

    def let_go(self, key: K) -> int:
        """Drop the value if it is kept; return its bytes."""
        with (state := self._state()).lock:
            sized = state.kept.pop(key, None)
        return 0 if sized is None else sized.size_bytes

    def touch(self, key: K) -> None:
        """Mark the kept value as used just now."""
        with (state := self._state()).lock:
            state.kept.get(key)

    def is_here(self, key: K) -> bool:
        """Whether the value is in memory or being loaded."""
        with (state := self._state()).lock:
            return key in state.kept or key in state.flights

    def counts(self) -> SharedCounts:
        """Counts so far."""
        with (state := self._state()).lock:
            cache = replace(state.kept.stats(), hits=state.hits, misses=state.landed + state.failed)
            return SharedCounts(state.landed, state.failed, state.joined, cache)

    def cache_stats(self) -> CacheStats:
        """The counts of the kept values."""
        return self.counts().cache

    def __contains__(self, key: object) -> bool:
        """Whether the value is in memory."""
        with (state := self._state()).lock:
            return key in state.kept


@dataclass(frozen=True, slots=True)
class _Sized(Generic[V]):
    value: V
    size_bytes: int


class _Chunks(TTLCache[Hashable, bytes]):
    """Chunks by name, and the number of those that the bound of bytes evicted."""

    def __init__(self, size_bytes_max: int, ttl_seconds: float, timer: Callable[[], float]) -> None:
        super().__init__(size_bytes_max, ttl_seconds, timer, getsizeof=len)
        self.evicted = self.evicted_bytes = 0

    def popitem(self) -> tuple[Hashable, bytes]:
        """Evict and return the least recently used chunk."""
        gone = super().popitem()
        self.evicted += 1
        self.evicted_bytes += len(gone[1])
        return gone


class LastChunks:
    """Keeps the chunks that were read last, by a name that is never used for other bytes. Threads: any.

    Args:
        size_bytes_max: bound on the bytes of all of them; the least recently used are dropped. 0 = none is kept.
        ttl_seconds: for how long a chunk is kept. 0 = none is kept.
        timer: seconds, from any start.
    """

    def __init__(self, size_bytes_max: int, ttl_seconds: float, timer: Callable[[], float]) -> None:
        self._lock = Lock()
        self._chunks = _Chunks(size_bytes_max, ttl_seconds, timer)
        self._hits = self._misses = 0

    def find(self, name: Hashable) -> bytes | None:
        """A chunk, if it is kept."""
        with self._lock:
            found: bytes | None = self._chunks.get(name)
            self._hits += found is not None
            self._misses += found is None
        return found

    def keep(self, name: Hashable, chunk: bytes, *, waits: bool = True) -> None:
        """Keep a chunk from now on, unless it is kept already, or larger than the bound.

        Args:
            name: of the chunk.
            chunk: its bytes.
            waits: whether to wait for another thread; if not, the chunk may not be kept. A caller that the garbage
                collector runs must not wait: it may have interrupted a call of this object.
        """
        if not waits and self._lock.locked():
            return
        with self._lock:
            if name not in self._chunks and len(chunk) <= self._chunks.maxsize:
                self._chunks[name] = chunk

    def clear(self) -> None:
        """Drop all chunks."""
        with self._lock:
            self._chunks.clear()

    def stats(self) -> CacheStats:
        """Sizes and counts now."""
        with self._lock:
            chunks = self._chunks
            chunks.expire()
            sizes = len(chunks), int(chunks.currsize), int(chunks.maxsize)
            return CacheStats(*sizes, self._hits, self._misses, chunks.evicted, chunks.evicted_bytes)


OBJECTS_COUNTED_MAX: Final = 16
"""The counts of an object are evaluated once this number of other objects was read after it."""

SHARE_OF_NEWEST: Final = 0.3
"""Weight of the newest object in the average share of used bytes."""

TRIED_EACH: Final = 16
"""If chunks are not worth it, one object in this number is read by chunks to measure again."""

CHUNK_PAGES: Final = 16
"""A chunk is fetched at once, but kept and released in this number of pieces."""


class ChunkStats(NamedTuple):
    """Counts of `SharedChunks`.

    Args:
        requests: number of requests to the store.
        fetched_bytes: bytes that these requests returned.
        used_bytes: bytes that callers read.
        is_exact: whether exactly the requested ranges are fetched at present.
    """

    requests: int
    fetched_bytes: int
    used_bytes: int
    is_exact: bool


@dataclass(slots=True)
class _Counted:
    """The bytes of one object that were fetched and used, and the longest range that was requested."""

    is_exact: bool
    longest_bytes: int = 0
    fetched_bytes: int = 0
    used_bytes: int = 0


Page: TypeAlias = tuple[str, int]
Pages: TypeAlias = list[tuple[Page, Future[bytes]]]
"""Consecutive pages, and the futures that wait for them."""


class SharedChunks:
    """Reads ranges of objects that never change. Threads: any; no lock is held over a request.

    Args:
        store: contains the objects.
        chunk_bytes: size of a chunk, and of the largest request; rounded up to 16 whole pages. 0 = exactly the
            requested ranges are always fetched.
        size_bytes_max: bound on the pages that are kept.
        ahead_bytes_max: bound on the pages that are announced and not yet read, being loaded or kept; at most half
            of `size_bytes_max`, which is the default. 0 = nothing is fetched ahead.
        used_least: the share of fetched bytes that must be used for chunks to be worth it.

    Raises:
        ValueError: a bound below 0, or a share outside 0 to 1.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        chunk_bytes: int = 4 * MIB,
        size_bytes_max: int = 96 * MIB,
        ahead_bytes_max: int | None = None,
        used_least: float = 0.5,
    ) -> None:
        most = size_bytes_max // 2
        ahead_bytes = most if ahead_bytes_max is None else ahead_bytes_max
        if min(chunk_bytes, size_bytes_max, ahead_bytes) < 0 or not 0 <= used_least <= 1:
            found = f"{chunk_bytes}, {size_bytes_max}, {ahead_bytes} and {used_least}"
            raise ValueError(f"expected bounds of at least 0 and a share of 0 to 1, found {found}")
        self._store = store
        self._page_bytes = -(-chunk_bytes // CHUNK_PAGES)
        self._ahead_max = min(ahead_bytes, most) // self._page_bytes if chunk_bytes else 0
        self._pages_max = size_bytes_max // self._page_bytes if chunk_bytes else 0
        self._used_least = used_least
        # An empty page, after the end of its object, counts as one byte.
        self._pages: SharedLoads[Page, bytes] = SharedLoads(size_bytes_max, lambda page: max(1, len(page)))
        self._lock = ProcessLock()
        self._announced: dict[Page, None] = {}
        self._spent: dict[Page, None] = {}
        self._objects: OrderedDict[str, _Counted] = OrderedDict()
        self._share_used = 1.0
        self._begun = self._requests = self._fetched = self._used = 0

    def get_range(self, key: str, start: int, end: int) -> bytes | memoryview:
        """Bytes [start, end) of an object; an end past the object is clamped. One request for each missing chunk.

        A view of a page keeps the whole page in memory as long as the view exists.

        Raises:
            StoreError: from the store; RangeInvalid also if the range begins past the end of the object.
        """
        counted = self._counted(key, end - start)
        begun: dict[int, Future[bytes]] = {}
        if not counted.is_exact:
            begun = self._start(key, self._numbers(start, end), counted, partial(self._load, raised=AccelError))
        return self._range(key, start, end, counted, begun)

    def cached(self, key: str, start: int, end: int) -> bytes | memoryview | None:
        """As `get_range` if all pages are kept; None if a request is needed. Does not block."""
        numbers = self._numbers(start, end)
        pages = [page for number in numbers if (page := self._pages.peek((key, number))) is not None]
        if not pages or len(pages) < len(numbers):
            return None
        body = self._cut(start, end, pages)
        if not body:
            return None
        counted = self._counted(key, end - start)
        self._asked_for(key, start, end)
        self._count_used(counted, len(body))
        return body

    def begin(self, key: str, start: int, end: int, executor: Executor) -> Future[bytes | memoryview]:
        """As `get_range`, in an executor; the missing chunks are fetched concurrently. Does not block.

        Raises:
            Closed: the executor is shut down.
        """
        counted = self._counted(key, end - start)
        begun: dict[int, Future[bytes]] = {}
        if not counted.is_exact:
            numbers = self._numbers(start, end)
            begun = self._start(key, numbers, counted, lambda *pages: executor.submit(self._load, *pages))
        # The loads that this work waits for were submitted before it: they run, or are done, when it begins.
        return executor.submit(self._range, key, start, end, counted, begun)

    def announce(self, key: str, start: int, end: int, executor: Executor) -> None:
        """Announce a range that will be read soon: its pages are fetched, within the bound. Does not block.

        An error of the store is raised in the calls that wait for the pages; a later call sends a new request. While
        exactly the requested ranges are fetched, nothing is fetched ahead.
        """
        numbers = self._numbers(start, end)
        if len(numbers) > self._ahead_max:
            return
        counted = self._counted(key, end - start)
        if counted.is_exact:
            return
        with self._lock:
            room = self._ahead_max - len(self._announced)
            if room < len(numbers):  # evicted pages and pages that could not be fetched no longer count
                self._announced = {page: None for page in self._announced if self._pages.is_here(page)}
                room = self._ahead_max - len(self._announced)
            chosen = [number for number in numbers if (key, number) not in self._announced]
            if len(chosen) > room:
                return
            self._announced.update(((key, number), None) for number in chosen)
        for number in chosen:
            self._pages.touch((key, number))
        self._start(key, numbers, counted, lambda *pages: executor.submit(self._load, *pages))

    def stats(self) -> ChunkStats:
        """Counts so far."""
        with self._lock:
            is_exact = self._share_used < self._used_least
            return ChunkStats(self._requests, self._fetched, self._used, is_exact)

    def _numbers(self, start: int, end: int) -> range:
        """The numbers of the pages of a range."""
        size = self._page_bytes
        return range(start // size, max(start, end - 1) // size + 1) if size else range(0)

    def _asked_for(self, key: str, start: int, end: int) -> None:
        """Mark the pages that a range reads to their ends as read; its last page may be needed for the next range.

        Pages that lie wholly in a long range are dropped first.
        """
        first, stop = start // self._page_bytes, end // self._page_bytes
        is_alone = self._are_ranges_long()
        with self._lock:
            for number in range(first, stop):
                self._announced.pop((key, number), None)
                if is_alone and number * self._page_bytes >= start:
                    self._spent[(key, number)] = None
            while len(self._spent) > self._pages_max:
                del self._spent[next(iter(self._spent))]

    def _cut(self, start: int, end: int, pages: Iterable[bytes]) -> bytes | memoryview:
        """A range, cut out of consecutive pages; the first one contains the start of the range."""
        at, size = start % self._page_bytes, self._page_bytes
        parts = [memoryview(page)[max(0, at - n * size) : at + end - start - n * size] for n, page in enumerate(pages)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _range(
        self, key: str, start: int, end: int, counted: _Counted, begun: Mapping[int, Future[bytes]]
    ) -> bytes | memoryview:
        """Return a range; the loads of its missing pages were begun. Blocks."""
        body: bytes | memoryview = b""
        if not counted.is_exact and self._page_bytes:
            body = self._cut(start, end, self._parts(key, start, end, counted, begun))
            self._asked_for(key, start, end)
        if not body:
            body = self._fetch(key, start, end, counted)
        self._count_used(counted, len(body))
        return body

    def _parts(
        self, key: str, start: int, end: int, counted: _Counted, begun: Mapping[int, Future[bytes]]
    ) -> Iterator[bytes]:
        for number in self._numbers(start, end):
            try:
                page = self._page(key, number, counted) if number not in begun else begun[number].result()
            except RangeInvalid:
                if number * self._page_bytes <= start:
                    raise
                return  # the object ends at the end of the last page
            yield page
            if len(page) < self._page_bytes:
                return

    def _page(self, key: str, number: int, counted: _Counted) -> bytes:
        return self._pages.get((key, number), partial(self._fetch_page, key, number, counted))  # may be evicted by now

    def _begin(self, key: str, numbers: range, mine: dict[int, list[Future[bytes]]]) -> Iterator[Pages]:
        """Begin loads of the missing pages of a range and of their chunks; yield the pages of each request.

        ``mine`` gets the futures of the pages, as in `SharedLoads.ask`.
        """
        wanted = numbers
        if not self._are_ranges_long():
            first = numbers.start - numbers.start % CHUNK_PAGES
            wanted = range(first, numbers.stop + -numbers.stop % CHUNK_PAGES)
        missing = [number for number in wanted if not self._pages.is_here((key, number))]
        for found in _runs(missing):
            if found[-1] < numbers.start or found[0] >= numbers.stop:
                continue
            for number in found:
                self._pages.ask((key, number), mine=mine.setdefault(number, []))
            for run in _runs([number for number in found if mine[number]]):
                yield [((key, number), mine[number][0]) for number in run]

    def _are_ranges_long(self) -> bool:
        """Whether ranges are so long that other ranges hardly use the rest of a chunk."""
        with self._lock:
            longest = max((counted.longest_bytes for counted in self._objects.values()), default=0)
        return 2 * longest >= CHUNK_PAGES * self._page_bytes

    def _start(
        self, key: str, numbers: range, counted: _Counted, load: Callable[..., object]
    ) -> dict[int, Future[bytes]]:
        """Begin to fetch the missing pages of a range, each request by ``load``; return their futures."""
        begun: dict[int, Future[bytes]] = {}
        mine: dict[int, list[Future[bytes]]] = {}
        try:
            for pages in self._begin(key, numbers, mine):
                begun |= {number: result for (_, number), result in pages}
                load(pages, counted)
        except BaseException:
            for number, results in mine.items():
                self._pages.rescue((key, number), results, partial(self._fetch_page, key, number, counted))
            raise
        return begun

    def _load(self, pages: Pages, counted: _Counted, raised: type[BaseException] = BaseException) -> None:
        """Fetch consecutive pages by one request. An error of this kind is raised in the threads that wait for them."""
        key, first = pages[0][0]
        size = self._page_bytes
        try:
            body = self._fetch(key, first * size, (first + len(pages)) * size, counted)
        except raised as error:
            for page, result in pages:
                self._pages.fail(page, result, error)
            return
        self._make_room(len(body))
        for number, (page, result) in enumerate(pages):
            self._pages.land(page, result, body[number * size : (number + 1) * size])

    def _make_room(self, size_bytes: int) -> None:
        """Drop pages that were read to their ends, before other pages are evicted."""
        kept = self._pages.cache_stats()
        missing_bytes = kept.size_bytes + size_bytes - kept.size_bytes_max
        while missing_bytes > 0:
            with self._lock:
                page = next(iter(self._spent), None)
                if page is None:
                    return
                del self._spent[page]
            missing_bytes -= self._pages.let_go(page)

    def _count_used(self, counted: _Counted, used_bytes: int) -> None:
        with self._lock:
            counted.used_bytes += used_bytes
            self._used += used_bytes

    def _fetch_page(self, key: str, number: int, counted: _Counted) -> bytes:
        return self._fetch(key, number * self._page_bytes, (number + 1) * self._page_bytes, counted)

    def _fetch(self, key: str, start: int, end: int, counted: _Counted) -> bytes:
        with caused_by(RequestCause.DATA):
            body = self._store.get_range(key, start, end).body
        with self._lock:
            self._requests += 1
            self._fetched += len(body)
            counted.fetched_bytes += len(body)
        return body

    def _counted(self, key: str, range_bytes: int) -> _Counted:
        with self._lock:
            counted = self._objects.get(key)
            if counted is None:
                self._begun += 1
                is_exact = self._share_used < self._used_least and self._begun % TRIED_EACH != 0
                counted = self._objects[key] = _Counted(is_exact)
                if len(self._objects) > OBJECTS_COUNTED_MAX:
                    self._judge(self._objects.popitem(last=False)[1])
            self._objects.move_to_end(key)
            counted.longest_bytes = max(counted.longest_bytes, range_bytes)
            return counted

    def _judge(self, counted: _Counted) -> None:
        if not counted.is_exact and counted.fetched_bytes:
            share = min(1.0, counted.used_bytes / counted.fetched_bytes)
            self._share_used += SHARE_OF_NEWEST * (share - self._share_used)


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Split ascending numbers into runs of consecutive numbers, each at most as long as a chunk."""
    run: list[int] = []
    for number in numbers:
        if run and (number != run[-1] + 1 or len(run) == CHUNK_PAGES):
            yield run
            run = []
        run.append(number)
    if run:
        yield run
