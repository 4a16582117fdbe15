"""What is kept in memory, and what is being loaded: each thing once, however many ask for it.

    a thing is      who asks gets                                       then
    kept            it                                                  nothing
    being loaded    the future of that load: waits for it               nothing
    neither         a future of its own: this one has to load it        `land` or `fail`, from any thread

What comes is kept within a bound of bytes; least recently used things go. Failures are not kept: the next one to ask
loads again. What is forgotten while it is being loaded goes to those who wait for it already, but is not kept, and
whoever asks from then on loads anew: what they get was not read before they asked.

A process that is forked begins with nothing kept and nothing under way: the loads of its parent never end there.

No lock is held over a load. How it is made (in a pool, or by the one who asked first) is up to the owner.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

from loaders.errors import AccelError
from loaders.lifetime import PerProcess

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Flight(Generic[V]):
    """A load, as the answer to who asked.

    Attributes:
        result: arrives when the load ends; cannot be cancelled.
        started: whether the asker has to make that load.
        kept: what is in memory, though it does not suit; None = nothing.
    """

    result: Future[V]
    started: bool
    kept: V | None


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Counts since the start, and what is kept now.

    Args:
        landed: loads that brought something.
        failed: loads that did not.
        joined: questions that waited for the load of another one.
        hits: questions that memory answered.
        kept: how many things are kept.
        kept_bytes: what they take.
        kept_bytes_max: what they may take.
    """

    landed: int
    failed: int
    joined: int
    hits: int
    kept: int
    kept_bytes: int
    kept_bytes_max: int


def done_future(value: V) -> Future[V]:
    """A future of a value that is there."""
    future: Future[V] = Future()
    future.set_result(value)
    return future


def any_will_do(_: object) -> bool:
    """Of things that suit everybody."""
    return True


class _State(Generic[K, V]):
    """What one process has. All of it is touched within the lock."""

    def __init__(self, size_bytes_max: int) -> None:
        self.lock = Lock()
        self.kept: LRUCache[K, _Sized[V]] = LRUCache(size_bytes_max, getsizeof=lambda each: each.size_bytes)
        self.flights: dict[K, Future[V]] = {}
        self.landed = self.failed = self.joined = self.hits = self.forgotten = 0

    def is_current(self, key: K, result: Future[V]) -> bool:
        """Whether a load was not forgotten."""
        return self.flights.get(key) is result

    def end(self, key: K, result: Future[V]) -> None:
        """A load has ended; nobody joins it any more."""
        if self.is_current(key, result):
            del self.flights[key]

    def keep(self, key: K, sized: _Sized[V]) -> None:
        if sized.size_bytes <= self.kept.maxsize:
            self.kept[key] = sized
        else:
            self.kept.pop(key, None)


class SharedLoads(Generic[K, V]):
    """Things by key, in memory or on their way. Threads: any.

    Args:
        size_bytes_max: bound on what is kept; a thing larger than that is never kept. 0 = nothing is.
        size_of: bytes of memory that a thing takes.
        told_first: a load is joined until all callbacks of its future have run; for owners whose callbacks keep what
            came themselves, so that a question finds either the load or what it brought.
    """

    def __init__(self, size_bytes_max: int, size_of: Callable[[V], int], *, told_first: bool = False) -> None:
        if size_bytes_max < 0:
            raise ValueError(f"expected a bound of 0 or more bytes, found {size_bytes_max}")
        self._size_bytes_max = size_bytes_max
        self._size_of = size_of
        self._told_first = told_first
        self._state: PerProcess[_State[K, V]] = PerProcess("what is kept in memory", lambda: _State(size_bytes_max))

    def ask(self, key: K, suits: Callable[[V], bool] = any_will_do) -> V | Flight[V]:
        """Get what is kept, join the load that is under way, or be told to make it.

        Args:
            key: of what.
            suits: whether what is kept will do; quick, since nobody else is served meanwhile.
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
            result = state.flights[key] = Future()
            result.set_running_or_notify_cancel()  # from here on nobody who waits can cancel it
            return Flight(result, started=True, kept=kept)

    def get(self, key: K, load: Callable[[], V], suits: Callable[[V], bool] = any_will_do) -> V:
        """Get it: from memory, from the load of another thread, or by making that load here.

        Raises:
            What the load raises, to all who waited for it.
        """
        asked = self.ask(key, suits)
        if not isinstance(asked, Flight):
            return asked
        return self.lead(key, asked.result, load) if asked.started else asked.result.result()

    def start(self, key: K, executor: Executor, load: Callable[[], V]) -> tuple[Future[V], bool]:
        """Get it as a future: of what is kept, of the load that is under way, or of one that begins in the executor.

        Returns:
            The future, which cannot be cancelled, and whether this call began the load. It raises what the load raises.
        """
        asked = self.ask(key)
        if not isinstance(asked, Flight):
            return done_future(asked), False
        if asked.started:
            try:
                executor.submit(self._lead_quietly, key, asked.result, load)
            except (AccelError, RuntimeError) as error:  # the executor is shut down
                self.fail(key, asked.result, error)
        return asked.result, asked.started

    def _lead_quietly(self, key: K, result: Future[V], load: Callable[[], V]) -> None:
        with suppress(BaseException):  # those who wait are told
            self.lead(key, result, load)

    def lead(self, key: K, result: Future[V], load: Callable[[], V]) -> V:
        """Make a load that was started, here, and end it either way. Raises what the load raises."""
        try:
            value = load()
        except BaseException as error:
            self.fail(key, result, error)
            raise
        self.land(key, result, value)
        return value

    def peek(self, key: K) -> V | None:
        """What is kept, without a load and without a count."""
        with (state := self._state()).lock:
            sized = state.kept.get(key)
        return None if sized is None else sized.value

    def land(self, key: K, result: Future[V], value: V) -> None:
        """End a load: keep what came, unless it is None or was forgotten meanwhile, and give it to all who wait."""
        try:
            sized = None if value is None else _Sized(value, self._size_of(value))
        except BaseException as error:
            self.fail(key, result, error)  # or those who wait would do so for ever
            raise
        with (state := self._state()).lock:
            state.landed += 1
            if state.is_current(key, result) and sized is not None:
                state.keep(key, sized)
            if not self._told_first:
                state.end(key, result)
        result.set_result(value)
        if self._told_first:
            with state.lock:
                state.end(key, result)

    def fail(self, key: K, result: Future[V], error: BaseException) -> None:
        """End a load with an error, which goes to all who wait."""
        with (state := self._state()).lock:
            state.failed += 1
            state.end(key, result)
        result.set_exception(error)

    def ticket(self) -> int:
        """To be taken before a thing is made that is kept."""
        return self._state().forgotten

    def keep(self, key: K, value: V, ticket: int | None = None) -> None:
        """Keep what was loaded or made without asking here: a thing that may change, say, which nobody waits for.

        Args:
            key: of what.
            value: it.
            ticket: it is not kept if anything was forgotten since this was taken.
        """
        sized = _Sized(value, self._size_of(value))
        with (state := self._state()).lock:
            if ticket is None or ticket == state.forgotten:
                state.keep(key, sized)

    def forget(self, key: K) -> None:
        """Drop what is kept, and whatever a load that is under way would bring."""
        with (state := self._state()).lock:
            state.kept.pop(key, None)
            state.flights.pop(key, None)
            state.forgotten += 1

    def forget_all(self, chosen: Callable[[K], bool]) -> None:
        """Likewise all whose keys are chosen. O(everything that is kept)."""
        with (state := self._state()).lock:
            for key in [each for each in (*state.kept, *state.flights) if chosen(each)]:
                state.kept.pop(key, None)
                state.flights.pop(key, None)
            state.forgotten += 1

    def counts(self) -> SharedCounts:
        """Counts so far."""
        with (state := self._state()).lock:
            return SharedCounts(
                landed=state.landed,
                failed=state.failed,
                joined=state.joined,
                hits=state.hits,
                kept=len(state.kept),
                kept_bytes=int(state.kept.currsize),
                kept_bytes_max=self._size_bytes_max,
            )

    def __contains__(self, key: object) -> bool:
        """Whether something is in memory."""
        with (state := self._state()).lock:
            return key in state.kept


@dataclass(frozen=True, slots=True)
class _Sized(Generic[V]):
    value: V
    size_bytes: int
