"""Runs a bounded number of calls at a time, on an executor that other callers may share.

    | function      | returns                  | bound                | if it is closed early                         |
    |---------------|--------------------------|----------------------|-----------------------------------------------|
    | `map_bounded` | a list, in order         | calls under way      | after an error it waits for running calls     |
    | `run_bounded` | futures, lazily, in      | calls begun and not  | cancels calls that did not begin; never waits |
    |               | order or as they end     | yet yielded          |                                               |
    | `read_ahead`  | records, lazily, in      | records and bytes    | the same                                      |
    |               | order                    |                      |                                               |
    | `Arrivals`    | names of calls, as these | none: its user's     | calls continue; no signal is sent             |
    |               | end                      |                      |                                               |

**Shares.** If the requests to one part of a store hang, they occupy thread after thread of a pool, and at last requests
to all other parts wait for them. `SharedThreads` runs calls in groups, so that a group whose calls hang occupies only
its share:

    calls of A    ████████████████████████████████████████████   as many as the pool runs at once; they hang
    calls of B    ░░░░░░░░                                       run in further threads, once those of A are slow

A call is *slow* once it runs for a time. Slow calls do not count among those that the pool runs at once, within a bound
of twice as many threads more; and no group gets more than nine tenths of the threads that the others leave.

The garbage collector may close a generator at any time and in any thread. If that thread waited for a pool, the pool
might wait for the same thread, so closing one of the two generators never waits.

**Reading ahead.** A window bounded by count and by bytes moves over many records:

    taken         read                 being read           not requested
    0 1 2 3       4 5                  6 7 8                9 10 11 ...
                  └────── the window: 8 records, 16 MiB ──┘

The size of a record is known once it is read. Until the first record is read, two reads are begun; from then on, each
record that is not read yet counts with the size of the largest one so far. One record is read ahead whatever its size.
A read that did not begin is done by the thread that takes the record, so a walk in a thread of the pool, or beside
other users that fill the pool, does not block.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, Final, Generic, ParamSpec, TypeVar

from loaders.lifetime import Lifetime, Submitted, Threads
from loaders.settings import check_settings

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")

WAITING_MAX: Final = 256
"""Bound on submitted calls where the threads of the executor bound the running ones."""

FIRST_READS: Final = 2
"""Number of concurrent reads before the size of any record is known."""


def run_bounded(
    begin: Callable[[K], Future[V]], items: Iterable[K], at_once_max: int, *, in_order: bool = True
) -> Generator[Future[V], None, None]:
    """Begin a call for each item, a bounded number at a time, and yield the futures.

    Items are taken from their iterable as calls end. Closed early, the generator cancels calls that did not begin.

    Args:
        begin: starts the call for an item, as ``lambda item: executor.submit(work, item)``.
        items: the arguments of the calls.
        at_once_max: bound on the calls that were begun and not yet yielded, at least 1.
        in_order: yield the futures in the order of the items, done or not; otherwise yield each once it is done.
    """
    left = iter(items)
    running: deque[Future[V]] = deque()
    try:
        while True:
            running.extend(map(begin, islice(left, at_once_max - len(running))))
            if not running:
                return
            if in_order:
                yield running.popleft()
                continue
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                running.remove(future)
                yield future
    finally:
        for future in running:
            future.cancel()


def map_bounded(
    executor: Executor, call: Callable[[K], V], items: Iterable[K], at_once_max: int = WAITING_MAX
) -> list[V]:
    """Like `map`, with a bounded number of calls at once; results are in the order of the items.

    After the first error no call is begun; the error is raised once the running calls have ended.

    Args:
        executor: makes the calls.
        call: called with each item.
        items: the arguments of the calls.
        at_once_max: bound on the calls that were begun and have not ended, including calls that wait for a thread of
            the executor. By default 256: then the number of threads bounds the running calls.
    """
    begun: list[Future[V]] = []

    def begin(item: K) -> Future[V]:
        begun.append(executor.submit(call, item))
        return begun[-1]

    try:
        return [future.result() for future in run_bounded(begin, items, at_once_max)]
    finally:
        end_all(begun)


def end_all(futures: Iterable[Future[V]]) -> None:
    """Cancel the calls that did not begin, and wait for the others."""
    pending = list(futures)
    for future in pending:
        future.cancel()
    wait(pending)


class Arrivals(Generic[K]):
    """Names of calls that have ended, for a caller that waits for any of many calls, by threads or by asyncio.

    Each call is watched once, for any number of waits; a wait costs O(1).

    Threads: calls end in any thread; one thread at a time calls the methods.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._ended: list[K] = []
        self._signal: Future[None] | None = None

    def expect(self, name: K, call: Future[V]) -> None:
        """Report this call under this name when it has ended; at once if it has ended already."""
        call.add_done_callback(lambda _: self._note(name))

    def take(self) -> list[K]:
        """The names of the calls that have ended since the last `take`, in the order of their ends."""
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def signal(self) -> Future[None]:
        """A future that is done as soon as `take` would return a name; cannot be cancelled."""
        signal: Future[None] = Future()
        signal.set_running_or_notify_cancel()
        with self._lock:
            if not self._ended:
                self._signal = signal
                return signal
        signal.set_result(None)
        return signal

    def _note(self, name: K) -> None:
        with self._lock:
            self._ended.append(name)
            signal, self._signal = self._signal, None
        if signal is not None:
            signal.set_result(None)


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Bounds on reading ahead.

    Args:
        count_max: number of records.
        size_bytes_max: bytes of memory of these records.
    """

    count_max: int = 8
    size_bytes_max: int = 16 << 20

    def __post_init__(self) -> None:
        check_settings(self, least={"size_bytes_max": 0})


@dataclass(frozen=True, slots=True)
class Reader(Generic[K, V]):
    """Functions that read records by key.

    Args:
        read: reads a record; called in a thread of the pool or in the thread that takes the records.
        size_of: bytes of memory of a record.
        has: whether the record is read without a request; then it is not read in the pool.
    """

    read: Callable[[K], V]
    size_of: Callable[[V], int]
    has: Callable[[K], bool]


def read_ahead(
    reader: Reader[K, V],
    keys: Sequence[K],
    executor: Executor | None,
    window: ReadAhead = ReadAhead(),
) -> Generator[V, None, None]:
    """Read records in order. Lazy: nothing is read before the first record is taken.

    Args:
        reader: reads a record.
        keys: the keys of the records.
        executor: reads ahead; without it, or with only one key, each record is read when it is taken.
        window: bounds on reading ahead.

    Raises:
        The errors of `read`, in the place of that record.
    """
    if executor is None or len(keys) < 2:
        yield from map(reader.read, keys)
        return
    walk = _Walk(reader, keys, executor, window)
    try:
        for _ in range(len(keys)):
            yield walk.take()
    finally:
        walk.leave()


class _Walk(Generic[K, V]):
    """The state of `read_ahead`. Threads: one, except that another thread may call `leave` after the last `take`."""

    def __init__(self, reader: Reader[K, V], keys: Sequence[K], executor: Executor, window: ReadAhead) -> None:
        self._reader = reader
        self._executor = executor
        self._window = window
        self._keys = keys
        self._asked = 0
        self._ahead: deque[tuple[K, Future[V] | None]] = deque()
        self._largest_bytes = 0

    def take(self) -> V:
        """The next record."""
        self._fill()
        key, future = self._ahead.popleft()
        value = self._reader.read(key) if future is None or future.cancel() else future.result()
        self._largest_bytes = max(self._largest_bytes, self._reader.size_of(value))
        self._fill()  # before the caller processes this record
        return value

    def leave(self) -> None:
        """Cancel the reads that did not begin. Does not wait."""
        for _, future in self._ahead:
            if future is not None:
                future.cancel()
        self._ahead.clear()

    def _fill(self) -> None:
        while self._asked < len(self._keys) and (not self._ahead or self._has_room()):
            key = self._keys[self._asked]
            self._asked += 1
            self._ahead.append((key, None if self._reader.has(key) else self._submit(key)))

    def _has_room(self) -> bool:
        if not self._largest_bytes:
            return len(self._ahead) < min(FIRST_READS, self._window.count_max)
        if len(self._ahead) >= self._window.count_max:
            return False
        return sum(map(self._size_of, self._ahead)) + self._largest_bytes <= self._window.size_bytes_max

    def _size_of(self, ahead: tuple[K, Future[V] | None]) -> int:
        _, future = ahead
        if future is None or not future.done() or future.cancelled() or future.exception() is not None:
            return self._largest_bytes
        return self._reader.size_of(future.result())

    def _submit(self, key: K) -> Future[V] | None:
        with suppress(RuntimeError):  # the pool is shut down: the thread that takes the record reads it
            return self._executor.submit(self._reader.read, key)
        return None


THREADS_BEYOND: Final = 2
"""Slow calls that have threads besides those of the calls at once, as a multiple of these."""

SHARE_MAX: Final = 0.9
"""A group gets at most this share of the threads that the calls of all other groups leave."""


class SharedThreads(Threads):
    """Threads for calls in groups: a group whose calls hang leaves most of the threads to the others.

    One group alone has ``calls_max`` calls under way. Calls of a group begin in the order in which they were submitted;
    groups take turns. A call of no group, by `submit`, is of one more group.

    Args:
        calls_max: bound on the calls under way at once, without slow ones; and on those of one group.
        name: prefix of the names of its threads.
        slow_seconds: a call that runs for at least this time is slow.
        timer: seconds, from any start.
        lifetime: as of `Threads`.

    Threads: any; the lock is not held while a call runs.
    """

    def __init__(
        self,
        calls_max: int,
        name: str,
        *,
        slow_seconds: float,
        timer: Callable[[], float],
        lifetime: Lifetime | None = None,
    ) -> None:
        self._beyond_max = THREADS_BEYOND * (calls_max - 1)
        self.threads_max = calls_max + self._beyond_max
        """The largest number of threads."""
        super().__init__(self.threads_max, name, lifetime=lifetime)
        self._calls_max = calls_max
        self._slow_seconds = slow_seconds
        self._timer = timer
        self._waiting: OrderedDict[Hashable, deque[Submitted]] = OrderedDict()  # guarded by the lock, as those below
        self._begun: OrderedDict[Submitted, float] = OrderedDict()  # not slow yet; the first one began first
        self._counts: Counter[Hashable] = Counter()

    def of(self, group: Hashable) -> Executor:
        """An executor whose calls are of this group."""
        return _Share(self, group)

    def _put(self, call: Submitted) -> None:
        self._waiting.setdefault(call.group, deque()).append(call)

    def _may_begin(self) -> bool:
        if not self._waiting:
            return False
        now = self._timer()
        with self._lock:
            starting = len(self._starting)
            return sum(map(len, self._waiting.values())) > starting and self._group(now, starting) is not None

    def _group(self, now: float, starting: int = 0) -> deque[Submitted] | None:
        """The waiting calls of the first group that may begin one; the lock is held."""
        for call, began in list(self._begun.items()):
            if began > now - self._slow_seconds:
                break
            self._begun.pop(call, None)
        in_all = self._counts.total()
        slow = in_all - len(self._begun)
        if len(self._begun) + starting + max(0, slow - self._beyond_max) >= self._calls_max:
            return None
        for group, calls in list(self._waiting.items()):
            most = SHARE_MAX * (self.threads_max - in_all + self._counts[group])
            if calls and self._counts[group] < min(self._calls_max, most):
                return calls
        return None

    def _take(self) -> Submitted | None:
        now = self._timer()
        with self._lock:
            while (calls := self._group(now)) is not None:
                call = calls.popleft()
                del self._waiting[call.group]
                if calls:
                    self._waiting[call.group] = calls  # it is another group's turn
                if call.result.set_running_or_notify_cancel():
                    self._counts[call.group] += 1
                    self._begun[call] = now
                    return call
        return None

    def _make(self, call: Submitted) -> Any:
        try:
            return call.work()
        finally:
            with self._lock:
                self._begun.pop(call, None)
                self._counts[call.group] -= 1
                if not self._counts[call.group]:
                    del self._counts[call.group]


class _Share(Executor):
    """The threads, for the calls of one group. Threads: any."""

    def __init__(self, threads: SharedThreads, group: Hashable) -> None:
        self._threads = threads
        self._group = group

    def submit(self, work: Callable[P, V], /, *args: P.args, **options: P.kwargs) -> Future[V]:
        """As `Executor.submit`."""
        return self._threads.submit_to(self._group, partial(work, *args, **options))
