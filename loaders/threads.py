"""Calls in threads: started beside the caller, in bounded pools, and a bounded number at a time.

Threads are daemons that serve one call after another (`start_thread`). Pools of them (`Threads`, `SharedThreads`) bound
the calls that run at once; the functions of the table bound those that one caller has under way, on an executor that
other callers may share. What must not be lost when the program ends is finished then (`finish_at_exit`).

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

import atexit
import os
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, InvalidStateError, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread, active_count, current_thread
from typing import Any, Final, Generic, NoReturn, ParamSpec, Protocol, TypeVar
from weakref import ref

from loaders.errors import Closed, NoThread
from loaders.host_limits import threads_text
from loaders.lifetime import Lifetime, PerProcess, ProcessId

T = TypeVar("T")
P = ParamSpec("P")

EXIT_SECONDS: Final = 10.0
"""For how long the end of the program waits for what is finished then."""


FINISHED_AT_ONCE: Final = 16
"""How many objects are finished side by side at the end of the program."""


class DaemonThreads:
    """Runs work beside the caller, in daemon threads: the process does not wait for them at its end.

    An idle thread gets the next work, so a call costs some microseconds; after a time without work all idle threads but
    one end. That one serves the handlers of `atexit`, in which no thread can be started from Python 3.12 on. There is
    one thread for each work that is under way. A call may be interrupted by an exception of a signal handler, and may
    be made by the handler: then the work runs, or does not, and other calls are not affected.

    Args:
        idle_seconds: time for which an idle thread waits for more work.

    Threads: any; no lock. A forked process starts its own threads.
    """

    def __init__(self, idle_seconds: float = 10.0) -> None:
        self._idle_seconds = idle_seconds
        self._idle: PerProcess[deque[SimpleQueue[tuple[Callable[[], object], str]]]] = PerProcess("threads", deque)

    def __call__(self, work: Callable[[], object], name: str) -> None:
        """Run work in a thread of this name, in the caller's context. Errors are passed to `threading.excepthook`.

        Raises:
            NoThread: no thread could be started.
            RuntimeError: the program ends, and starts no threads any more.
        """
        idle = self._idle()
        named = partial(copy_context().run, work), name
        try:
            inbox = idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            inbox.put(named)  # first: if the start is interrupted, no thread waits for it
            try:
                Thread(target=self._serve, args=(inbox, idle), name=name, daemon=True).start()
            except RuntimeError as error:
                if "shutdown" in str(error):
                    raise
                raise no_thread() from error
        else:
            inbox.put(named)

    def _serve(
        self,
        inbox: SimpleQueue[tuple[Callable[[], object], str]],
        idle: deque[SimpleQueue[tuple[Callable[[], object], str]]],
    ) -> None:
        is_taken = False
        while True:
            try:
                work, name = inbox.get(timeout=self._idle_seconds)
            except Empty:
                was_taken, is_taken = is_taken, inbox not in idle
                if was_taken and is_taken:  # by a caller that was interrupted before it gave it work
                    idle.append(inbox)
                with suppress(ValueError):  # a caller has just taken this thread, to give it work
                    if len(idle) > 1:
                        idle.remove(inbox)
                        return
                continue
            is_taken = False
            current_thread().name = name
            work()
            del work  # otherwise it would stay in memory until the next work
            current_thread().name = "accel-idle"
            idle.append(inbox)


start_thread = DaemonThreads()
"""Runs a function in another thread; for the whole program."""


@dataclass(frozen=True, slots=True, eq=False)
class Submitted:
    """A call that was submitted to threads, and the group that it is of."""

    group: Hashable
    work: Callable[[], Any]
    result: Future[Any]


class Threads(Executor):
    """Bounded threads of `start_thread` that raise `Closed` after shutdown, and `WrongProcess` in another process.

    Work runs in the context (`contextvars`) of the caller that submits it. At the end of the program work is taken
    until the very end, also in handlers of `atexit`, where `ThreadPoolExecutor` takes none; if there is no thread any
    more, it is done in the calling one. Without work there are no threads: a pool that is dropped leaves none.

    The thread that submits a call only puts it down, and starts a thread that takes it. So a caller that is interrupted
    there takes nothing from others, and a signal handler that interrupts it may submit calls, too.

    Args:
        threads_max: largest number of threads.
        name: the name of its threads.
        lifetime: of the pool's owner; None = a new one. It is closed with the pool.
        process_id: of the calling process.
    """

    def __init__(
        self, threads_max: int, name: str, *, lifetime: Lifetime | None = None, process_id: ProcessId = os.getpid
    ) -> None:
        self._lifetime = Lifetime(f"threads {name!r}", process_id) if lifetime is None else lifetime
        self._at_once, self._name = threads_max, name
        self._under_way: set[Future[Any]] = set()
        self._serving: set[Future[None]] = set()  # one for each thread, done when it leaves
        self._starting: set[Future[None]] = set()  # of threads that have not looked for a call yet
        self._lock = RLock()  # guards the attributes below; never held over work
        self._inbox: deque[Submitted] = deque()
        self._is_shut_down = False
        _add(_POOLS(), self)

    def submit(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        """As `Executor.submit`.

        Raises:
            WrongProcess: another process created the pool and has its threads.
            Closed: the pool was shut down.
            NoThread: no thread could be started, and none is at work.
        """
        return self.submit_to(None, partial(work, *args, **options))

    def submit_to(self, group: Hashable, work: Callable[[], T]) -> Future[T]:
        """As `submit`, for a call of a group; here, groups are all alike."""
        self._lifetime.check()
        result: Future[T] = Future()
        try:
            self._under_way.add(result)
            result.add_done_callback(self._under_way.discard)
            with self._lock:
                self._check_open()
                self._put(Submitted(group, partial(copy_context().run, work), result))
            self.go_on()
        except BaseException:
            result.cancel()
            self._under_way.discard(result)
            raise
        return result

    def go_on(self) -> None:
        """Start threads for the calls that wait and may begin by now."""
        while self._may_begin():
            thread: Future[None] = Future()
            try:
                self._serving.add(thread)
                self._starting.add(thread)
                start_thread(partial(self._serve, thread), self._name)
            except BaseException as error:
                self._leave(thread)
                if not isinstance(error, RuntimeError):
                    raise
                if self._serving:
                    return  # one of the others takes the call
                if "shutdown" not in str(error):
                    raise
                self._serve(thread)  # the program ends

    def wait_idle(self) -> None:
        """Wait until all work that was submitted before this call has ended, also with an error."""
        wait(self.under_way())

    def under_way(self) -> set[Future[Any]]:
        """The results of the work that was submitted and has not ended."""
        return self._under_way.copy()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor.shutdown`; does nothing in another process, where the pool has no threads."""
        self._lifetime.close()
        if not self._lifetime.is_here:
            return
        self._is_shut_down = True
        if cancel_futures:
            for result in self.under_way():
                result.cancel()
        elif wait:
            self.wait_idle()
        for thread in self._serving.copy() if wait else ():
            thread.result()

    def _check_open(self) -> None:
        if self._is_shut_down:
            raise Closed(f"expected {self._lifetime.what} that is open, found it closed")

    def _put(self, call: Submitted) -> None:
        """Put a call down; the lock is held."""
        self._inbox.append(call)

    def _may_begin(self) -> bool:
        """Whether one more thread would find a call that may begin."""
        return len(self._inbox) > len(self._starting) and len(self._serving) < self._at_once

    def _take(self) -> Submitted | None:
        """Take and begin the next call that may begin; None if there is none. Only the threads call this."""
        with suppress(IndexError):
            while True:
                call = self._inbox.popleft()
                if call.result.set_running_or_notify_cancel():
                    return call
        return None

    def _make(self, call: Submitted) -> Any:
        """Make a call, and return its result."""
        return call.work()

    def _serve(self, thread: Future[None]) -> None:
        self._starting.discard(thread)
        try:
            while (call := self._take()) is not None:
                with suppress(RuntimeError):  # there is no further thread: this one goes on
                    self.go_on()
                settle(call.result, partial(self._make, call))
                del call  # otherwise it would stay in memory until the next one
        finally:
            self._leave(thread)
        with suppress(RuntimeError):
            self.go_on()  # for a call that came after the last look

    def _leave(self, thread: Future[None]) -> None:
        self._starting.discard(thread)
        self._serving.discard(thread)
        if not thread.done():
            thread.set_result(None)

    def __reduce__(self) -> NoReturn:
        self._lifetime.__reduce__()


def uninterrupted(work: Callable[[], T]) -> T:
    """Do work in another thread, and wait for it: an interrupt of the caller does not leave the work half done."""
    call: Future[T] = Future()
    start_thread(partial(settle, call, work), "accel-change")
    return call.result()


def settle(call: Future[T], work: Callable[[], T]) -> None:
    """Do work, and set its result, or its error, as that of a call; nothing if the call has ended meanwhile."""
    try:
        made = work()
    except BaseException as error:  # noqa: BLE001 - goes to the waiting callers
        with suppress(InvalidStateError):
            call.set_exception(error)
    else:
        with suppress(InvalidStateError):
            call.set_result(made)


class Finished(Protocol):
    """What is finished when the program ends. Threads: any."""

    @property
    def is_left(self) -> bool:
        """Whether there is anything to finish. No request."""
        ...

    def finish(self) -> object:
        """Finish it."""
        ...

    def tell_left(self, why: str) -> object:
        """Say what could not be finished, and why."""
        ...


def finish_at_exit(thing: Finished) -> None:
    """Finish an object when the program ends, for at most `EXIT_SECONDS`, if it is not gone by then. Threads: any.

    At the end of the main thread, by `sys.exit` or by an error; in a child of `multiprocessing`, too. A forked child
    finishes nothing of its parent. Handlers of `atexit` that were registered after this module was imported run before.
    """
    process_id = os.getpid()
    if process_id not in _FINISHED:
        util = sys.modules.get("multiprocessing.util")
        if util is not None and util.process.parent_process() is not None:
            util.Finalize(None, _finish, exitpriority=0)  # a forked child runs no handlers of `atexit`
    _add(_FINISHED.setdefault(process_id, set()), thing)


def _finish() -> None:
    things = _alive(_FINISHED.get(os.getpid(), ()))
    ends = _within_limit([partial(_finish_what_is_left, thing) for thing in things])
    whys = [_why(end) for end in ends]
    _within_limit([partial(thing.tell_left, why) for thing, why in zip(things, whys, strict=True) if why is not None])
    # A thread that returns from code that is no Python when Python has ended may end in a crash.
    under_way = [each for pool in _alive(_POOLS.here() or ()) for each in pool.under_way()]
    wait(under_way, EXIT_SECONDS if all(end.done() for end in ends) else 0)


def _within_limit(calls: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """Make calls side by side, and wait `EXIT_SECONDS`: to ask what is left may hang, too."""
    threads = Threads(FINISHED_AT_ONCE, "accel-exit")
    ends = [threads.submit(call) for call in calls]
    wait(ends, EXIT_SECONDS)
    return ends


def _finish_what_is_left(thing: Finished) -> bool:
    is_left = thing.is_left
    if is_left:
        thing.finish()
    return is_left


def _why(end: Future[bool]) -> str | None:
    """Why something could not be finished; None = nothing was left to finish."""
    if not end.done():
        return f"it took longer than {EXIT_SECONDS:.0f} s"
    error = end.exception()
    return str(error) if error is not None else "" if end.result() else None


def _add(live: set[ref[T]], thing: T) -> None:
    live.add(ref(thing, live.discard))  # no lock: the collector may run this within itself


def _alive(live: Iterable[ref[T]]) -> list[T]:
    return [thing for each in tuple(live) if (thing := each()) is not None]


_POOLS: Final[PerProcess[set[ref[Threads]]]] = PerProcess("pools of threads", set)


_FINISHED: Final[dict[int, set[ref[Finished]]]] = {}  # by process


atexit.register(_finish)


class InlineElsewhere(Executor):
    """The caller's executor; in another process, where it has no threads, `submit` runs the work itself.

    Args:
        executor: of the process that creates this object.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lifetime = Lifetime("an executor")

    def submit(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        """As `Executor.submit`."""
        if self._lifetime.is_here:
            return self._executor.submit(partial(copy_context().run, work), *args, **options)
        done: Future[T] = Future()
        settle(done, partial(work, *args, **options))
        return done


def no_thread() -> NoThread:
    """The error of a thread that could not be started."""
    return NoThread(f"expected to start a thread besides {active_count()}, found the limit reached: {threads_text()}")


K = TypeVar("K")
V = TypeVar("V")

WAITING_MAX: Final = 256
"""Bound on submitted calls where the threads of the executor bound the running ones."""

FIRST_READS: Final = 2
"""Number of concurrent reads before the size of any record is known."""

READ_AHEAD_MAX: Final = 8
"""Number of records that are read ahead."""

READ_AHEAD_SIZE_BYTES_MAX: Final = 16 << 20
"""Bytes of memory of these records."""


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
    *,
    count_max: int = READ_AHEAD_MAX,
    size_bytes_max: int = READ_AHEAD_SIZE_BYTES_MAX,
) -> Generator[V, None, None]:
    """Read records in order. Lazy: nothing is read before the first record is taken.

    Args:
        reader: reads a record.
        keys: the keys of the records.
        executor: reads ahead; without it, or with only one key, each record is read when it is taken.
        count_max: bound on the records that are read ahead.
        size_bytes_max: bound on their bytes in memory.

    Raises:
        The errors of `read`, in the place of that record.
    """
    if executor is None or len(keys) < 2:
        yield from map(reader.read, keys)
        return
    walk = _Walk(reader, keys, executor, count_max, size_bytes_max)
    try:
        for _ in range(len(keys)):
            yield walk.take()
    finally:
        walk.leave()


class _Walk(Generic[K, V]):
    """The state of `read_ahead`. Threads: one, except that another thread may call `leave` after the last `take`."""

    def __init__(
        self, reader: Reader[K, V], keys: Sequence[K], executor: Executor, count_max: int, size_bytes_max: int
    ) -> None:
        self._reader = reader
        self._executor = executor
        self._count_max = count_max
        self._size_bytes_max = size_bytes_max
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
            return len(self._ahead) < min(FIRST_READS, self._count_max)
        if len(self._ahead) >= self._count_max:
            return False
        return sum(map(self._size_of, self._ahead)) + self._largest_bytes <= self._size_bytes_max

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
