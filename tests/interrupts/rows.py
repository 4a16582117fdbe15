"""The public calls that are interrupted, one row each: what is called, and what has to be true afterwards.

A row makes a fresh object, so that one interrupt is all that happened to it. Its check uses the object as a caller
would: the call made again has the right answer, and nothing is lost or returned twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count

from accel import Connection, FormatRecord, ObjectCatalog, ReadAccelerator, Request, StreamReader, connect
from loaders.format import RecordBatch
from loaders.store import MemoryStore, open_store
from tests.processes.test_owners import SECRET, free_port

STREAM = 420000
OBJECTS = 3
COUNT = 100
END = OBJECTS * COUNT
EVENTS = 60
_numbers = count()


@dataclass
class Use:
    """A fresh object.

    Args:
        call: the call that is interrupted.
        check: uses the object afterwards, and raises AssertionError.
    """

    call: Callable[[], object]
    check: Callable[[], None]


Row = Callable[[], AbstractContextManager[Use]]


# Lookups


@cache
def _filled() -> MemoryStore:
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="interrupts"))
    with ObjectCatalog.open(store) as catalog, catalog.open_node(4) as writer:
        writer.open_streams([STREAM])
        for start in range(0, END, COUNT):
            batch = RecordBatch(STREAM, epoch=1, base_offset=start, count=COUNT, payload=b"records")
            writer.upload({STREAM: [batch]})
    return store


def _lookup(of: Callable[[ReadAccelerator], object], expected: object) -> Row:
    @contextmanager
    def row() -> Iterator[Use]:
        store = _filled()
        with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:

            def check() -> None:
                assert of(accelerator) == expected
                assert len(accelerator.get_objects(STREAM, 0, END, limit=9).objects) == OBJECTS
                assert sum(each.count for each in accelerator.read(STREAM, 0, END)) == END
                accelerator.wait_idle()

            yield Use(lambda: of(accelerator), check)

    return row


def _many(accelerator: ReadAccelerator) -> list[int]:
    found = accelerator.get_objects_many([Request(STREAM, 0, END, 9), Request(STREAM, 150, 250, 9)])
    return [len(each.objects) if not isinstance(each, Exception) else -1 for each in found]


@contextmanager
def _closing_accelerator() -> Iterator[Use]:
    store = _filled()
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
        accelerator.get_objects(STREAM, 0, END, 9)
        yield Use(accelerator.close, accelerator.close)


def _catalog(of: Callable[[ObjectCatalog], object]) -> Row:
    @contextmanager
    def row() -> Iterator[Use]:
        with ObjectCatalog.open(_filled()) as catalog:

            def check() -> None:
                of(catalog)
                assert STREAM in catalog.images().current().streams

            yield Use(lambda: of(catalog), check)

    return row


# Readers


@cache
def _stream() -> str:
    url = f"memory://interrupts-{next(_numbers)}"
    with connect(url, create=True) as connection:
        connection.create_scope("a")
        connection.create_stream("a", "b", segments=2)
        with connection.writer("a", "b") as writer:
            writer.write_many([(b"%d" % each, str(each)) for each in range(EVENTS)])
    return url


def _by_iterating(reader: StreamReader, got: list[int]) -> None:
    for event in reader:
        got.append(int(event.payload))  # noqa: PERF401 - `extend` would take events from the reader that it then drops


def _by_batches(reader: StreamReader, got: list[int]) -> None:
    while (batch := reader.next_batch()) is not None:
        got += [int(event.payload) for event in batch]


def _by_events(reader: StreamReader, got: list[int]) -> None:
    while (event := reader.next_event(timeout_seconds=1)) is not None:
        got.append(int(event.payload))


def _reader(take: Callable[[StreamReader, list[int]], None]) -> Row:
    @contextmanager
    def row() -> Iterator[Use]:
        with connect(_stream()) as connection, connection.reader("a", "b") as reader:
            got: list[int] = []

            def check() -> None:
                take(reader, got)
                assert sorted(got) == list(range(EVENTS))
                assert sum(reader.position().values()) == EVENTS

            yield Use(lambda: take(reader, got), check)

    return row


def _of_reader(of: Callable[[StreamReader], object]) -> Row:
    @contextmanager
    def row() -> Iterator[Use]:
        with connect(_stream()) as connection, connection.reader("a", "b") as reader:
            got = [int(next(reader).payload)]

            def check() -> None:
                of(reader)
                _by_iterating(reader, got)
                assert sorted(got) == list(range(EVENTS))

            yield Use(lambda: of(reader), check)

    return row


@contextmanager
def _closing_reader() -> Iterator[Use]:
    with connect(_stream()) as connection, connection.reader("a", "b") as reader:
        next(reader)
        yield Use(reader.close, reader.close)


# Connections


def _connection(of: Callable[[Connection], object]) -> Row:
    @contextmanager
    def row() -> Iterator[Use]:
        with connect(_stream()) as connection:

            def check() -> None:
                of(connection)
                with connection.reader("a", "b") as reader:
                    assert len(list(reader)) == EVENTS

            yield Use(lambda: of(connection), check)

    return row


@contextmanager
def _entering() -> Iterator[Use]:
    port = free_port()
    entered: list[Connection] = []

    def enter() -> None:
        made = connect(_stream(), listen=f"127.0.0.1:{port}", secret=SECRET)
        entered.append(made.__enter__())

    def check() -> None:
        while entered:
            entered.pop().close()
        enter()  # nobody listens there any more
        entered.pop().close()

    yield Use(enter, check)


# Stores


@contextmanager
def _store() -> Iterator[Use]:
    store = MemoryStore()

    def call() -> None:
        store.put("a/b", b"value")
        store.get("a/b")
        store.get_range("a/b", 1, 3)
        assert [each.key for each in store.list("a/")] == ["a/b"]
        store.delete_many(["a/b"])

    def check() -> None:
        call()
        assert not list(store.list(""))

    yield Use(call, check)


@contextmanager
def _opening_store() -> Iterator[Use]:
    url = f"memory://interrupts-{next(_numbers)}"

    def check() -> None:
        assert open_store(url).put("a", b"value")

    yield Use(lambda: open_store(url), check)


ROWS: dict[str, Row] = {
    "MemoryStore": _store,
    "ObjectCatalog.bad_objects": _catalog(lambda catalog: catalog.images().current()),
    "ReadAccelerator.close": _closing_accelerator,
    "ReadAccelerator.explain": _lookup(lambda each: len(each.explain(STREAM, 0, END, 9).answer.objects), OBJECTS),
    "ReadAccelerator.fetch": _lookup(
        lambda each: len(each.fetch(STREAM, 0, END, 9, timeout_seconds=5).objects), OBJECTS
    ),
    "ReadAccelerator.follow": _lookup(lambda each: each.follow(), False),
    "ReadAccelerator.get_objects": _lookup(lambda each: len(each.get_objects(STREAM, 0, END, 9).objects), OBJECTS),
    "ReadAccelerator.get_objects_many": _lookup(_many, [3, 2]),
    "ReadAccelerator.places": _lookup(lambda each: len(each.places(each.get_objects(STREAM, 0, END, 9))), OBJECTS),
    "ReadAccelerator.read": _lookup(lambda each: sum(part.count for part in each.read(STREAM, 0, END)), END),
    "ReadAccelerator.refresh": _lookup(lambda each: each.refresh(), False),
    "ReadAccelerator.stats": _lookup(lambda each: each.stats().memory_bytes_max > 0, True),
    "ReadAccelerator.warm": _lookup(lambda each: each.warm().nodes, 1),
    "StreamReader.__next__": _reader(_by_iterating),
    "StreamReader.close": _closing_reader,
    "StreamReader.lag": _of_reader(lambda reader: reader.lag()),
    "StreamReader.next_batch": _reader(_by_batches),
    "StreamReader.next_event": _reader(_by_events),
    "StreamReader.position": _of_reader(lambda reader: reader.position()),
    "StreamReader.skip_to_head": _of_reader(lambda reader: reader.skip_to_head()),
    "open_store": _opening_store,
    "Connection.__enter__": _entering,
    "Connection.reader": _connection(lambda connection: connection.reader("a", "b").close()),
    "Connection.stream": _connection(lambda connection: connection.stream("a", "b").name),
    "Connection.accelerator": _connection(lambda connection: connection.accelerator.stats()),
}
