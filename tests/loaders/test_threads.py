"""Reading ahead: in order, within a window, and never waiting for a pool that may not come."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from typing import ParamSpec, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.errors import Closed
from loaders.threads import FIRST_READS, Reader, SharedThreads, read_ahead, run_bounded
from tests.examples import examples

P = ParamSpec("P")
T = TypeVar("T")


class HandPool(Executor):
    """A pool whose tasks begin and end when they are told to.

    Attributes:
        tasks: all that were ever submitted.
    """

    def __init__(self) -> None:
        self.tasks: list[tuple[Future[object], Callable[[], object]]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self.tasks.append((future, lambda: fn(*args, **kwargs)))  # type: ignore[arg-type]  # a future of anything
        return future

    def begin(self, number: int) -> bool:
        return self.tasks[number][0].set_running_or_notify_cancel()

    def run(self, number: int) -> None:
        future, task = self.tasks[number]
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(task())
            except LookupError as error:
                future.set_exception(error)

    @property
    def waiting(self) -> int:
        """Tasks that may still begin."""
        return sum(not future.done() and not future.running() for future, _ in self.tasks)


class EagerPool(HandPool):
    """One that runs some tasks at once, as it is told beforehand, and never begins the others."""

    def __init__(self, eager: Iterator[bool]) -> None:
        super().__init__()
        self._eager = eager

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        if next(self._eager, False):
            self.run(len(self.tasks) - 1)
        return future


def reader(read: Callable[[int], bytes], *, cached: frozenset[int] = frozenset()) -> Reader[int, bytes]:
    return Reader(read, len, cached.__contains__)


def of_size(size_bytes: int) -> Callable[[int], bytes]:
    return lambda number: number.to_bytes(size_bytes, "big")


@given(
    sizes=st.lists(st.integers(1, 20), max_size=30),
    eager=st.lists(st.booleans(), max_size=30),
    cached=st.frozensets(st.integers(0, 30)),
    count_max=st.integers(1, 9),
    size_bytes_max=st.integers(0, 60),
)
def test_records_come_in_order_each_read_once_within_the_window(
    sizes: list[int], eager: list[bool], cached: frozenset[int], count_max: int, size_bytes_max: int
) -> None:
    reads: list[int] = []

    def read(number: int) -> bytes:
        reads.append(number)
        return bytes([number]) * sizes[number]

    pool = EagerPool(iter(eager))
    walk = read_ahead(
        reader(read, cached=cached), range(len(sizes)), pool, count_max=count_max, size_bytes_max=size_bytes_max
    )
    for number, record in enumerate(walk):
        assert record == bytes([number]) * sizes[number]
        ahead = [each for each in reads if each > number]
        assert len(ahead) <= count_max
        largest = max(sizes[: number + 1 + len(ahead)])
        known = max(largest, 1)
        assert sum(sizes[each] for each in ahead) <= size_bytes_max + known
    assert sorted(reads) == list(range(len(sizes)))


def test_two_are_read_until_it_is_known_how_large_they_are_then_as_many_as_fit() -> None:
    pool = HandPool()
    walk = read_ahead(reader(of_size(100)), range(50), pool, size_bytes_max=450)
    next(walk)
    assert len(pool.tasks) == 1 + 4 >= FIRST_READS
    next(walk)
    assert pool.waiting == 4


def test_a_walk_that_is_left_cancels_what_did_not_begin_and_waits_for_nothing() -> None:
    pool = HandPool()
    walk = read_ahead(reader(of_size(1)), range(50), pool)
    next(walk)
    assert pool.begin(1)  # it runs, and nobody will ever end it
    walk.close()
    assert pool.waiting == 0
    assert [future.running() for future, _ in pool.tasks].count(True) == 1


def test_an_error_comes_in_the_place_of_its_record_and_ends_the_walk() -> None:
    def read(number: int) -> bytes:
        if number == 3:
            raise LookupError(number)
        return b"x"

    pool = EagerPool(iter([True, False, True, True, False]))
    walk = read_ahead(reader(read), range(20), pool)
    assert [next(walk) for _ in range(3)] == [b"x"] * 3
    with pytest.raises(LookupError):
        next(walk)
    assert pool.waiting == 0


def test_what_is_at_hand_is_not_sent_to_the_pool() -> None:
    pool = HandPool()
    everything = frozenset(range(20))
    assert len(list(read_ahead(reader(of_size(1), cached=everything), range(20), pool))) == 20
    assert not pool.tasks


def test_a_pool_that_was_shut_down_is_done_without() -> None:
    pool = ThreadPoolExecutor(1)
    walk = read_ahead(reader(of_size(1)), range(100), pool)
    next(walk)
    pool.shutdown(cancel_futures=True)
    assert len(list(walk)) == 99


def test_a_bounded_number_of_calls_is_under_way() -> None:
    with ThreadPoolExecutor(4) as executor:
        begun: list[int] = []

        def begin(item: int) -> Future[int]:
            begun.append(item)
            return executor.submit(pow, item, 2)

        futures = run_bounded(begin, range(6), 2)
        assert next(futures).result() == 0
        assert begun == [0, 1]
        assert [future.result() for future in futures] == [1, 4, 9, 16, 25]


def test_out_of_order_each_future_is_done_when_it_is_given() -> None:
    with ThreadPoolExecutor(2) as executor:
        futures = list(run_bounded(lambda item: executor.submit(pow, item, 1), range(5), 2, in_order=False))
        assert all(future.done() for future in futures)
        assert sorted(future.result() for future in futures) == [0, 1, 2, 3, 4]


def test_bounded_calls_that_did_not_begin_are_cancelled_when_they_are_left() -> None:
    futures: list[Future[int]] = []

    def begin(_: int) -> Future[int]:
        futures.append(Future())
        return futures[-1]

    walk = run_bounded(begin, range(9), 3)
    next(walk)
    walk.close()
    assert [future.cancelled() for future in futures] == [False, True, True]


SLOW_SECONDS = 0.5


class Hanging:
    """Threads with a clock that is moved by hand, and calls that end when they are told to.

    Attributes:
        begun: the groups of the calls that began, in order.
    """

    def __init__(self, calls_max: int) -> None:
        self.seconds = 0.0
        self.threads = SharedThreads(calls_max, "test", slow_seconds=SLOW_SECONDS, timer=lambda: self.seconds)
        self.begun: list[object] = []
        self._change = threading.Condition()
        self._gates: dict[object, threading.Event] = {}

    def submit(self, group: object, count: int) -> list[Future[None]]:
        """Submit calls of a group, which hang until `free`."""
        gate = self._gates.setdefault(group, threading.Event())
        return [self.threads.of(group).submit(self._hang, group, gate) for _ in range(count)]

    def _hang(self, group: object, gate: threading.Event) -> None:
        with self._change:
            self.begun.append(group)
            self._change.notify_all()
        assert gate.wait(60)

    def free(self, group: object) -> None:
        """Let the calls of a group end."""
        self._gates[group].set()

    def expect(self, group: object, count: int) -> None:
        """Wait until so many calls of a group have begun, and check that no more can."""
        with self._change:
            assert self._change.wait_for(lambda: self.begun.count(group) >= count, 60)
        assert self.begun.count(group) == count

    def close(self) -> None:
        for gate in self._gates.values():
            gate.set()
        self.threads.shutdown()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging(20)
    yield made
    made.close()


def test_a_group_that_hangs_leaves_nine_tenths_of_the_calls_to_others(hanging: Hanging) -> None:
    hanging.submit("slow", 100)
    hanging.expect("slow", 20)
    quick = hanging.submit("quick", 30)
    hanging.expect("quick", 0)  # all might end at any time
    hanging.seconds = SLOW_SECONDS
    hanging.threads.go_on()
    hanging.expect("quick", 20)
    hanging.free("quick")
    assert not wait(quick, 60).not_done
    hanging.expect("slow", 20)
    other = hanging.submit("other", 5)
    hanging.expect("other", 5)
    hanging.free("other")
    assert not wait(other, 60).not_done


def test_of_many_groups_that_hang_none_takes_the_last_threads(hanging: Hanging) -> None:
    for group, count in enumerate((20, 20, 17, 1, 0, 0)):
        hanging.submit(group, 100)
        hanging.expect(group, count)
        hanging.seconds += SLOW_SECONDS
        hanging.threads.go_on()
    counts = [hanging.begun.count(group) for group in range(6)]
    assert counts[:2] == [20, 20]
    assert sum(counts) <= hanging.threads.threads_max == 58
    assert counts == sorted(counts, reverse=True)
    assert counts[3]


def test_groups_take_turns(hanging: Hanging) -> None:
    hanging.submit("first", 20)
    hanging.expect("first", 20)
    waiting = [future for group in "ab" for future in hanging.submit(group, 6)]
    hanging.free("a")
    hanging.free("b")
    hanging.free("first")
    assert not wait(waiting, 60).not_done
    assert hanging.begun[20:].count("a") == hanging.begun[20:].count("b") == 6
    assert set(hanging.begun[20:22]) == {"a", "b"}


def test_a_waiting_call_can_be_cancelled_and_never_begins(hanging: Hanging) -> None:
    hanging.submit("a", 20)
    hanging.expect("a", 20)
    first, second = hanging.submit("b", 2)
    assert first.cancel()
    hanging.free("a")
    hanging.free("b")
    second.result(60)
    hanging.expect("b", 1)
    with pytest.raises(CancelledError):
        first.result()


def test_calls_that_wait_at_the_end_are_made_before_it() -> None:
    hanging = Hanging(2)
    futures = [future for group in range(3) for future in hanging.submit(group, 4)]
    hanging.close()
    assert all(future.done() and not future.cancelled() for future in futures)
    with pytest.raises(Closed):
        hanging.submit("late", 1)


def test_one_call_at_once_is_one_however_slow_it_is() -> None:
    hanging = Hanging(1)
    hanging.submit("a", 1)
    hanging.submit("b", 1)
    hanging.seconds = 100.0
    hanging.threads.go_on()
    hanging.expect("a", 1)
    hanging.expect("b", 0)
    hanging.close()


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32))
def test_whatever_is_submitted_runs_once_in_the_order_of_its_group(calls_max: int, seed: int) -> None:
    chance = random.Random(seed)
    ran: dict[int, list[int]] = {group: [] for group in range(4)}
    running, peak, lock = [0], [0], threading.Lock()
    threads = SharedThreads(calls_max, "test", slow_seconds=1.0, timer=lambda: 0.0)

    def call(group: int, number: int) -> int:
        with lock:
            ran[group].append(number)
            running[0] += 1
            peak[0] = max(peak[0], running[0])
        with lock:
            running[0] -= 1
        if number % 7 == 3:
            raise LookupError(str(number))
        return number

    submitted: dict[int, list[int]] = {group: [] for group in range(4)}
    futures = []
    for number in range(60):
        group = chance.randrange(4)
        submitted[group].append(number)
        futures.append((number, threads.of(group).submit(call, group, number)))
    threads.wait_idle()
    for number, future in futures:
        assert isinstance(future.exception(), LookupError) if number % 7 == 3 else future.result() == number
    assert {group: sorted(numbers) for group, numbers in ran.items()} == submitted
    assert peak[0] <= calls_max
    if calls_max == 1:
        assert ran == submitted
    threads.shutdown()
