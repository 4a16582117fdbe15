"""Work beside the caller: daemons that are kept for the next work, and hold up nobody."""

from __future__ import annotations

from queue import Queue
from threading import Event, Thread, current_thread

from loaders.lifetime import DaemonThreads


def thread_of_next(start: DaemonThreads, name: str) -> Thread:
    done: Queue[Thread] = Queue()
    start(lambda: done.put(current_thread()), name)
    return done.get(timeout=60)


def test_work_is_done_by_a_daemon_which_is_given_the_next_work_when_it_has_none() -> None:
    start = DaemonThreads()
    first = thread_of_next(start, "first")
    assert first.daemon
    assert any(thread_of_next(start, "next") is first for _ in range(1_000))
    assert first.name == "next"


def test_work_that_hangs_holds_up_no_other() -> None:
    start, let = DaemonThreads(), Event()
    start(lambda: let.wait(60), "hangs")
    assert thread_of_next(start, "goes on").name == "goes on"
    let.set()


def test_a_daemon_without_work_ends_and_another_one_is_made() -> None:
    start = DaemonThreads(idle_seconds=0.001)
    threads = []
    for _ in range(3):
        threads.append(thread_of_next(start, "work"))
        threads[-1].join(60)
        assert not threads[-1].is_alive()
    assert len(set(threads)) == 3
