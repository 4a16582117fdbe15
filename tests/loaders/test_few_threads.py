"""Where the host lets the process start no more threads, the others do the work; without any, a call fails alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

import pytest

from loaders.errors import NoThread
from loaders.threads import DaemonThreads, SharedThreads, Threads


class Host:
    """Lets threads start until none is left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self._start = Thread.start
        monkeypatch.setattr("loaders.threads.start_thread", DaemonThreads())  # no thread of another test is idle
        monkeypatch.setattr(Thread, "start", lambda thread: self.start(thread))  # noqa: PLW0108 - it is bound to a thread

    def start(self, thread: Thread) -> None:
        if not self.left:
            raise RuntimeError("can't start new thread")
        self.left -= 1
        self._start(thread)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def shared() -> SharedThreads:
    return SharedThreads(8, "shared", slow_seconds=60, timer=lambda: 0.0)


POOLS: dict[str, Callable[[], Threads]] = {"threads": lambda: Threads(8, "some"), "shared": shared}


@pytest.fixture(params=[*POOLS.values()], ids=[*POOLS])
def pool(request: pytest.FixtureRequest, host: Host) -> Iterator[Threads]:
    made: Threads = request.param()
    yield made
    host.left = 0
    made.shutdown()


def test_the_threads_that_there_are_do_all_work(pool: Threads, host: Host) -> None:
    host.left, let = 1, Event()
    pool.submit(let.wait, 60)
    begun: list[Future[Any]] = [pool.submit(pow, 2, number) for number in range(100)]
    let.set()
    assert [each.result(60) for each in begun] == [2**number for number in range(100)]


def test_without_any_thread_each_call_fails_alone_and_leaves_nothing(pool: Threads, host: Host) -> None:
    done: list[int] = []
    for number in range(50):
        with pytest.raises(NoThread, match="limit reached"):
            pool.submit(done.append, number)
    pool.wait_idle()
    host.left = 1
    assert pool.submit(pow, 2, 3).result(60) == 8
    assert done == []


def test_work_beside_the_caller_fails_alone_too(host: Host) -> None:
    start, done = DaemonThreads(), list[int]()
    with pytest.raises(NoThread):
        start(lambda: done.append(1), "work")
    host.left, ended = 1, Future[int]()
    start(lambda: ended.set_result(2), "work")
    assert (ended.result(60), done) == (2, [])
