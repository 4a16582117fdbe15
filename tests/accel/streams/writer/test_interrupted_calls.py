"""Calls of a writer that are interrupted, or called in turn, and callbacks that raise: only these calls fail."""

from __future__ import annotations

import asyncio
import gc
import linecache
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import Any
from uuid import UUID

import pytest

from accel import connect
from accel.errors import AccelError, IllegalState, InvalidArgument
from accel.streams.acknowledgements import WriteFuture
from accel.streams.settings import ConnectionSettings, SegmentsSettings
from accel.streams.writer import StreamWriter
from loaders.store import MemoryStore
from tests.examples import is_whole
from tests.interrupts.signals import Limit, T
from tests.interrupts.signals import guarded as guarded_for

LONG = 20.0
"""Longer than anything here takes, in seconds."""

SLOW = ConnectionSettings(segments=SegmentsSettings(linger_seconds=LONG))
"""Events wait until a flush."""


def guarded(call: Callable[[], T]) -> T:
    """Call in another thread, and fail if it does not come back."""
    return guarded_for(LONG, call)


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    with connect(made, create=True) as streams:
        streams.create_scope("a")
        streams.create_stream("a", "b", segments=2)
    return made


def payloads(store: MemoryStore) -> list[bytes]:
    with connect(store) as streams, streams.reader("a", "b") as reader:
        return [event.payload for event in reader]


# Callbacks

KINDS = [ZeroDivisionError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit]


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_callback_raises_reaches_nobody_else(
    kind: type[BaseException], store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: WriteFuture) -> None:
        raise kind("in a callback")

    with connect(store, settings=SLOW) as streams, streams.writer("a", "b") as writer:
        futures = writer.write_many([(b"%d" % number, b"key") for number in range(20)])
        futures[0].add_done_callback(fail)
        told: list[WriteFuture] = []
        for future in futures:
            future.add_done_callback(told.append)
        results: list[object] = []
        threads = [threading.Thread(target=lambda each=each: results.append(each.result())) for each in futures]
        for thread in threads:
            thread.start()
        guarded(writer.flush)
        for thread in threads:
            thread.join(LONG)
        assert len(results) == 20
        writer.write(b"20", b"key")
        guarded(writer.flush)
        assert told == futures
        futures[0].add_done_callback(fail)  # at once, in this thread
        logged = [record for record in caplog.records if record.exc_info and record.exc_info[0] is kind]
        assert [record.levelno for record in logged] == [logging.ERROR] * 2
    assert len(payloads(store)) == 21


def test_a_handler_of_logging_that_raises_stops_no_event(store: MemoryStore) -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise Limit(record.getMessage())

    handler = Failing()
    logging.getLogger("accel.streams").addHandler(handler)
    try:
        with connect(store) as streams, streams.writer("a", "b") as writer:
            writer.write(b"0", b"key").add_done_callback(lambda _: 1 / 0)
            guarded(writer.flush)
            guarded(lambda: writer.write(b"1", b"key").result(LONG))
    finally:
        logging.getLogger("accel.streams").removeHandler(handler)


def within_a_callback(writer: StreamWriter, call: Callable[[], object]) -> object:
    """What a call returns, or raises, that is made by a callback of an event."""
    found: list[object] = []
    is_called = threading.Event()

    def act(_: WriteFuture) -> None:
        try:
            found.append(call())
        except AccelError as error:
            found.append(error)
        finally:
            is_called.set()

    writer.write(b"0", b"key").add_done_callback(act)
    guarded(writer.flush)
    assert is_called.wait(LONG)
    return found[0]


@pytest.mark.parametrize("name", ["flush", "close", "connection.close", "connection.stop", "host.flush", "result"])
def test_a_callback_that_waits_for_its_own_thread_is_refused_and_changes_nothing(name: str, store: MemoryStore) -> None:
    with connect(store, settings=SLOW) as streams, streams.writer("a", "b") as writer:
        calls: dict[str, Callable[[], object]] = {
            "flush": writer.flush,
            "close": writer.close,
            "connection.close": streams.close,
            "connection.stop": streams.stop,
            "host.flush": streams.host().flush,
            "result": lambda: writer.write(b"1", b"key").result(),
        }
        refused = within_a_callback(writer, calls[name])
        assert isinstance(refused, IllegalState)
        assert "would wait for itself" in str(refused)
        writer.write(b"2", b"key")
        guarded(writer.flush)
    assert b"2" in payloads(store)


def test_a_callback_may_write_and_ask_for_results_that_are_known(store: MemoryStore) -> None:
    with connect(store) as streams, streams.writer("a", "b") as writer:
        later = within_a_callback(writer, lambda: writer.write(b"1", b"key"))
        assert isinstance(later, WriteFuture)
        assert later.result(LONG) is not None
        known = within_a_callback(writer, later.result)
        assert known == later.result()


def test_asking_again_and_again_for_a_result_keeps_nothing(store: MemoryStore) -> None:
    with connect(store, settings=SLOW) as streams, streams.writer("a", "b") as writer:
        future = writer.write(b"0", b"key")
        for _ in range(10):
            with pytest.raises(TimeoutError):
                future.result(0)
        assert not future.acks._callbacks[future]
        writer.flush()
        assert future.acks._callbacks == {}


# A handler that runs between two lines of a call


def at_line(number: int, call: Callable[[], object], act: Callable[[], object]) -> bool:
    """Make a call, and act before its line of this number, counted from 0; returns whether it came to that line."""
    lines = count()
    has_acted = False

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal has_acted
        code = frame.f_code
        if "/accel/streams/" not in code.co_filename:
            return None
        is_with = linecache.getline(code.co_filename, frame.f_lineno).lstrip().startswith("with ")
        if event == "line" and not is_with and next(lines) == number:  # no handler runs while a lock is let go
            sys.settrace(None)
            has_acted = True
            act()
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(None)

    with suppress(Limit):
        guarded(run)
    return has_acted


def lines_of(call: Callable[[int], object], act: Callable[[int], object]) -> int:
    """Act before each line of a call, one in each turn; returns the number of lines."""
    for number in count():
        if not at_line(number, lambda: call(number), lambda: act(number)):  # noqa: B023 - called at once
            return number
    raise AssertionError


def fail(_: int = 0) -> None:
    raise Limit


def test_a_handler_may_write_wherever_it_interrupts_a_call(store: MemoryStore) -> None:
    with connect(store) as streams, streams.writer("a", "b") as writer:
        transaction = writer.begin_transaction()
        inner: list[WriteFuture] = []
        outer: dict[str, Callable[[int], object]] = {
            "write": lambda number: writer.write(b"outer", b"%d" % number),
            "many": lambda number: writer.write_many([(b"outer", b"%d" % number), (b"outer", b"a")]),
            "transaction": lambda _: writer.write(b"within", b"a", transaction=transaction),
            "flush": lambda _: writer.flush(),
            "listen": lambda _: writer.write(b"outer", b"a").add_done_callback(lambda _: None),
            "result": lambda _: writer.write(b"outer", b"a").result(LONG),
        }

        def act(number: int) -> None:
            inner.append(writer.write(b"inner", b"%d" % number))
            inner[-1].add_done_callback(lambda _: None)
            writer.write(b"within", b"a", transaction=transaction)

        for call in outer.values():
            assert lines_of(call, act) > 3
        guarded(lambda: writer.commit_transaction(transaction))
        assert all(each.result(LONG) is not None for each in inner)
    stored = payloads(store)
    assert stored.count(b"inner") == len(inner)
    assert stored.count(b"within") > len(inner)


def test_what_the_collector_runs_in_any_thread_may_write(store: MemoryStore) -> None:
    class Span:
        def __init__(self, writer: StreamWriter) -> None:
            self.itself, self.writer = self, writer

        def __del__(self) -> None:
            self.writer.write(b"ended", b"key")

    before = gc.get_threshold()
    gc.set_threshold(15)
    try:
        with connect(store) as streams, streams.writer("a", "b") as writer:

            def write() -> None:
                for number in range(300):
                    Span(writer)
                    writer.write(b"begun", b"%d" % number)
                gc.collect()
                writer.flush()

            guarded(write)
    finally:
        gc.set_threshold(*before)
    assert payloads(store).count(b"ended") == payloads(store).count(b"begun") == 300


def test_an_interrupted_call_fails_alone_and_each_event_is_stored_once_at_most(store: MemoryStore) -> None:
    with connect(store) as streams, streams.writer("a", "b") as writer:
        taken: list[WriteFuture] = []
        numbers = count()

        def name() -> bytes:
            return b"%d" % next(numbers)

        def write(_: int) -> None:
            taken.append(writer.write(name(), b"key"))

        def write_many(_: int) -> None:
            taken.extend(writer.write_many([(name(), b"a"), (name(), b"b")]))

        calls = (write, write_many, lambda _: taken[-1].result(LONG), lambda _: writer.flush())
        for call in calls:
            write(0)
            assert lines_of(call, fail) > 3
            guarded(writer.flush)
            assert all(each.done() and each.exception() is None for each in taken)
    stored = payloads(store)
    assert len(stored) == len(set(stored)) >= len(taken)


def test_a_number_that_an_interrupted_write_was_given_is_stored_once_when_it_is_written_again(
    store: MemoryStore,
) -> None:
    with connect(store) as streams, streams.writer("a", "b", writer_id=UUID(int=7)) as writer:

        def write(number: int) -> None:
            writer.write(b"%d" % number, b"key", number=number)

        lines = lines_of(write, fail)
        for number in range(lines):  # once more, in another object, as a producer does
            again = at_line(number, lambda: write(lines + number), fail)  # noqa: B023 - called at once
            assert again
            with suppress(InvalidArgument):  # it was taken before
                write(lines + number)
        guarded(writer.flush)
    stored = sorted(map(int, payloads(store)))
    assert stored == sorted(set(stored))
    assert set(range(lines, 2 * lines)) <= set(stored)


def test_a_transaction_whose_calls_were_interrupted_is_committed_whole_by_another_call(store: MemoryStore) -> None:
    with connect(store) as streams, streams.writer("a", "b") as writer:
        taken: list[WriteFuture] = []

        def begun(events: int) -> UUID:
            transaction = writer.begin_transaction()
            taken.extend(writer.write(b"event", b"key", transaction=transaction) for _ in range(events))
            return transaction

        opened = begun(0)
        lines = lines_of(lambda _: taken.append(writer.write(b"event", b"key", transaction=opened)), fail)
        guarded(lambda: writer.commit_transaction(opened))
        assert len(taken) <= payloads(store).count(b"event") <= len(taken) + lines

        stored = payloads(store).count(b"event")
        for number in count(0, 3 if is_whole() else 9):
            transaction = begun(2)
            is_within = at_line(number, lambda: writer.commit_transaction(transaction), fail)  # noqa: B023
            guarded(lambda: writer.commit_transaction(transaction))  # noqa: B023 - called at once
            assert taken[-1].result(LONG) is None
            stored += 2
            if not is_within:
                break
        assert payloads(store).count(b"event") == stored
