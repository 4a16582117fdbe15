"""Work beside the caller: daemons that are kept for the next work, and hold up nobody."""

from __future__ import annotations

from queue import Queue
from threading import Barrier, Event, Lock, Thread, current_thread
from threading import enumerate as enumerate_threads

import pytest

from loaders.threads import DaemonThreads, Threads


def thread_of_next(start: DaemonThreads, name: str) -> Thread:
    done: Queue[tuple[Thread, str]] = Queue()
    start(lambda: done.put((current_thread(), current_thread().name)), name)
    thread, found = done.get(timeout=60)
    assert found == name
    return thread


def test_work_is_done_by_a_daemon_which_is_given_the_next_work_when_it_has_none() -> None:
    start = DaemonThreads()
    first = thread_of_next(start, "first")
    assert first.daemon
    assert any(thread_of_next(start, "next") is first for _ in range(1_000))


def test_work_that_hangs_holds_up_no_other() -> None:
    start, let = DaemonThreads(), Event()
    start(lambda: let.wait(60), "hangs")
    assert thread_of_next(start, "goes on").is_alive()
    let.set()


def test_of_the_daemons_without_work_one_is_left() -> None:
    start, meeting = DaemonThreads(idle_seconds=0.001), Barrier(4)
    threads: Queue[Thread] = Queue()

    def work() -> None:
        threads.put(current_thread())
        meeting.wait(60)

    for _ in range(3):
        start(work, "work")
    meeting.wait(60)
    made = [threads.get(timeout=60) for _ in range(3)]
    while sum(thread.is_alive() for thread in made) > 1:
        made[0].join(0.001)
        made = [*made[1:], made[0]]
    assert thread_of_next(start, "next") in made


def test_a_pool_that_is_dropped_leaves_no_thread_of_its_own() -> None:
    before = set(enumerate_threads())
    for _ in range(20):
        assert Threads(2, "some").submit(max, 1, 2).result() == 2
    assert len(set(enumerate_threads()) - before) <= 2


def test_the_bound_of_a_pool_holds_and_all_its_work_is_done() -> None:
    threads, lock, running, peak = Threads(3, "some"), Lock(), 0, 0

    def work(number: int) -> int:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        with lock:
            running -= 1
        return number

    ends = [threads.submit(work, number) for number in range(500)]
    assert [end.result(60) for end in ends] == list(range(500))
    assert peak <= 3
    threads.shutdown()


def test_work_is_done_by_its_caller_when_the_program_ends_and_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    threads = Threads(2, "some")
    monkeypatch.setattr("loaders.threads.start_thread", DaemonThreads())
    monkeypatch.setattr(Thread, "start", refuse)
    assert threads.submit(lambda: threads.submit(current_thread)).result().result() is current_thread()
    threads.shutdown()
