"""Reading ahead: in order, within a window, and never waiting for a pool that may not come."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.parallel import FIRST_READS, ReadAhead, Reader, read_ahead, run_bounded

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


def reader(read: Callable[[int], bytes], *, at_hand: frozenset[int] = frozenset()) -> Reader[int, bytes]:
    return Reader(read, len, at_hand.__contains__)


def of_size(size_bytes: int) -> Callable[[int], bytes]:
    return lambda number: number.to_bytes(size_bytes, "big")


@given(
    sizes=st.lists(st.integers(1, 20), max_size=30),
    eager=st.lists(st.booleans(), max_size=30),
    at_hand=st.frozensets(st.integers(0, 30)),
    window=st.builds(ReadAhead, st.integers(1, 9), st.integers(0, 60)),
)
def test_records_come_in_order_each_read_once_within_the_window(
    sizes: list[int], eager: list[bool], at_hand: frozenset[int], window: ReadAhead
) -> None:
    reads: list[int] = []

    def read(number: int) -> bytes:
        reads.append(number)
        return bytes([number]) * sizes[number]

    pool = EagerPool(iter(eager))
    walk = read_ahead(reader(read, at_hand=at_hand), range(len(sizes)), pool, window)
    for number, record in enumerate(walk):
        assert record == bytes([number]) * sizes[number]
        ahead = [each for each in reads if each > number]
        assert len(ahead) <= window.count_max
        largest = max(sizes[: number + 1 + len(ahead)])
        known = max(largest, 1)
        assert sum(sizes[each] for each in ahead) <= max(window.size_bytes_max, 0) + known
    assert sorted(reads) == list(range(len(sizes)))


def test_nothing_is_read_before_the_first_record_is_asked_for() -> None:
    pool = HandPool()
    walk = read_ahead(reader(of_size(1)), range(9), pool)
    assert not pool.tasks
    assert next(walk) == b"\0"
    assert pool.tasks


def test_two_are_read_until_it_is_known_how_large_they_are_then_as_many_as_fit() -> None:
    pool = HandPool()
    walk = read_ahead(reader(of_size(100)), range(50), pool, ReadAhead(8, 450))
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


def test_a_walk_that_is_dropped_is_left() -> None:
    pool = HandPool()
    walk = read_ahead(reader(of_size(1)), range(50), pool)
    next(walk)
    del walk
    gc.collect()
    assert pool.tasks
    assert pool.waiting == 0


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
    assert len(list(read_ahead(reader(of_size(1), at_hand=everything), range(20), pool))) == 20
    assert not pool.tasks


def test_a_walk_in_the_only_thread_of_its_pool_ends() -> None:
    with ThreadPoolExecutor(1) as pool:
        walked = pool.submit(lambda: list(read_ahead(reader(of_size(1)), range(100), pool)))
        assert len(walked.result(60)) == 100


def test_a_pool_that_was_shut_down_is_done_without() -> None:
    pool = ThreadPoolExecutor(1)
    walk = read_ahead(reader(of_size(1)), range(100), pool)
    next(walk)
    pool.shutdown(cancel_futures=True)
    assert len(list(walk)) == 99


@pytest.mark.parametrize(("count_max", "size_bytes_max"), [(0, 1), (1, -1)])
def test_a_window_without_room_is_refused(count_max: int, size_bytes_max: int) -> None:
    with pytest.raises(ValueError, match=r"expected (count_max|size_bytes_max) of at least [01], found"):
        ReadAhead(count_max, size_bytes_max)


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
