"""The public calls that are interrupted, one row each: what is called, and what has to be true afterwards.

A row makes a fresh object, so that one interrupt is all that happened to it. Its check uses the object as a caller
would: the call made again has the right answer, and nothing is lost or returned twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from tempfile import TemporaryDirectory
from typing import ParamSpec

from accel import (
    Connection,
    FormatRecord,
    GroupReader,
    ObjectCatalog,
    PolledImages,
    ReadAccelerator,
    ReaderGroup,
    ReaderSettings,
    Request,
    StaticImages,
    Stream,
    StreamReader,
    StreamStore,
    StreamWriter,
    connect,
)
from accel.catalog.collect import collect, plan_collection
from accel.history.rules.states import StreamState
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.store import MemoryStore, ObjectStore, open_store
from tests.processes.test_owners import SECRET, free_port

STREAM = 420000
OBJECTS = 3
COUNT = 100
END = OBJECTS * COUNT
EVENTS = 60
QUICK = ReaderSettings(idle_seconds=0.005)
SECONDS = 10.0
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
Given = ParamSpec("Given")


def rows(made: Callable[Given, Iterator[Use]]) -> Callable[Given, Row]:
    """A row for each choice of arguments."""
    return lambda *args, **options: partial(contextmanager(made), *args, **options)


# Lookups


@cache
def filled() -> MemoryStore:
    """A store with one stream in some objects; for reading only."""
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="interrupts"))
    with ObjectCatalog.open(store) as catalog, catalog.open_node(4) as writer:
        writer.open_streams([STREAM])
        for start in range(0, END, COUNT):
            batch = RecordBatch(STREAM, epoch=1, base_offset=start, count=COUNT, payload=b"records")
            writer.upload({STREAM: [batch]})
    return store


@rows
def _lookup(of: Callable[[ReadAccelerator], object], expected: object) -> Iterator[Use]:
    store = filled()
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:

        def check() -> None:
            assert of(accelerator) == expected
            assert len(accelerator.get_objects(STREAM, 0, END, limit=9).objects) == OBJECTS
            assert sum(each.count for each in accelerator.read(STREAM, 0, END)) == END
            accelerator.wait_idle()

        yield Use(lambda: of(accelerator), check)


def _many(accelerator: ReadAccelerator) -> list[int]:
    found = accelerator.get_objects_many([Request(STREAM, 0, END, 9), Request(STREAM, 150, 250, 9)])
    return [len(each.objects) if not isinstance(each, Exception) else -1 for each in found]


@contextmanager
def _closing_accelerator() -> Iterator[Use]:
    store = filled()
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
        accelerator.get_objects(STREAM, 0, END, 9)
        yield Use(accelerator.close, accelerator.close)


@rows
def _catalog(of: Callable[[ObjectCatalog], object]) -> Iterator[Use]:
    with ObjectCatalog.open(filled()) as catalog:

        def check() -> None:
            of(catalog)
            assert STREAM in catalog.images().current().streams

        yield Use(lambda: of(catalog), check)


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


@rows
def _reader(take: Callable[[StreamReader, list[int]], None]) -> Iterator[Use]:
    with connect(_stream()) as connection, connection.reader("a", "b") as reader:
        got: list[int] = []

        def check() -> None:
            take(reader, got)
            assert sorted(got) == list(range(EVENTS))
            assert sum(reader.position().values()) == EVENTS

        yield Use(lambda: take(reader, got), check)


@rows
def _of_reader(of: Callable[[StreamReader], object]) -> Iterator[Use]:
    with connect(_stream()) as connection, connection.reader("a", "b") as reader:
        got = [int(next(reader).payload)]

        def check() -> None:
            of(reader)
            _by_iterating(reader, got)
            assert sorted(got) == list(range(EVENTS))

        yield Use(lambda: of(reader), check)


@contextmanager
def _closing_reader() -> Iterator[Use]:
    with connect(_stream()) as connection, connection.reader("a", "b") as reader:
        next(reader)
        yield Use(reader.close, reader.close)


# Connections


@rows
def _connection(of: Callable[[Connection], object]) -> Iterator[Use]:
    with connect(_stream()) as connection:

        def check() -> None:
            of(connection)
            with connection.reader("a", "b") as reader:
                assert len(list(reader)) == EVENTS

        yield Use(lambda: of(connection), check)


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
def _store(store: ObjectStore | None = None) -> Iterator[Use]:
    store = store or MemoryStore()

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
def _folder() -> Iterator[Use]:
    with TemporaryDirectory() as folder, _store(open_store(f"file://{folder}")) as use:
        yield use


@contextmanager
def _collecting() -> Iterator[Use]:
    """A collection after another one was interrupted deletes what that one left, and nothing that is needed."""
    now = SYSTEM.clock()
    system = replace(SYSTEM, clock=lambda: now)
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="interrupts"))
    with ObjectCatalog.open(store, system=system) as catalog, catalog.open_node(4) as writer:
        writer.open_streams([STREAM])
        for start in range(0, END, COUNT):
            writer.upload({STREAM: [RecordBatch(STREAM, epoch=1, base_offset=start, count=COUNT, payload=b"records")]})
        writer.trim({STREAM: 2 * COUNT})
        now += 10 * 24 * 3600

        def call() -> None:
            collect(catalog, plan_collection(catalog))

        def check() -> None:
            call()
            assert not plan_collection(catalog).objects
            with ReadAccelerator(catalog.images(), store) as accelerator:
                assert sum(each.count for each in accelerator.read(STREAM, 2 * COUNT)) == COUNT

        yield Use(call, check)


@contextmanager
def _opening_store() -> Iterator[Use]:
    url = f"memory://interrupts-{next(_numbers)}"

    def check() -> None:
        assert open_store(url).put("a", b"value")

    yield Use(lambda: open_store(url), check)


@rows
def _group(of: Callable[[GroupReader], object]) -> Iterator[Use]:
    """A reader of a group: what it returned, and what a reader after it returns, is each event once."""
    with connect(_stream()) as connection:
        name = f"group-{next(_numbers)}"
        reader = connection.group_reader("a", "b", name, "one", follow=False, settings=QUICK)
        got: list[int] = []

        def call() -> None:
            got.append(int(next(reader).payload))
            of(reader)

        def check() -> None:
            got.append(int(next(reader).payload))
            of(reader)
            got.extend(int(event.payload) for event in reader)
            reader.close()
            with connection.group_reader("a", "b", name, "two", follow=False, settings=QUICK) as other:
                got.extend(int(event.payload) for event in other)
            assert sorted(got) == list(range(EVENTS))

        yield Use(call, check)
        reader.close()


def _commit_and_leave(reader: GroupReader) -> None:
    reader.commit()
    reader.leave()


# Writers


def _written(connection: Connection, name: str) -> list[bytes]:
    connection.accelerator.refresh()
    with connection.reader("a", name, settings=QUICK) as reader:
        return sorted(event.payload for event in reader)


@rows
def _writer(of: Callable[[StreamWriter], object], times: int) -> Iterator[Use]:
    """What was written before, and after, the interrupted call is there once; the call's own events at most once."""
    with connect(f"memory://interrupts-{next(_numbers)}", create=True) as connection:
        connection.create_scope("a")
        connection.create_stream("a", "b", segments=2)
        writer = connection.writer("a", "b")
        before = writer.write(b"before", key="k")

        def check() -> None:
            after = writer.write(b"after", key="k")
            writer.flush()
            assert before.result(SECONDS) is not None
            assert after.result(SECONDS) is not None
            found = _written(connection, "b")
            assert (found.count(b"before"), found.count(b"after")) == (1, 1)
            assert found.count(b"x") <= times

        yield Use(lambda: of(writer), check)


def _transaction(writer: StreamWriter) -> None:
    transaction = writer.begin_transaction()
    writer.write(b"x", key="k", transaction=transaction)
    writer.commit_transaction(transaction)


def _aborted(writer: StreamWriter) -> None:
    transaction = writer.begin_transaction()
    writer.write(b"x", key="k", transaction=transaction)
    writer.abort_transaction(transaction)


def _awaited(writer: StreamWriter) -> None:
    future = writer.write(b"x", key="k")
    future.add_done_callback(lambda _: None)
    future.result()


# Streams


@rows
def _history(of: Callable[[Stream], object]) -> Iterator[Use]:
    """A workflow that was interrupted is finished by the next one."""
    with connect(f"memory://interrupts-{next(_numbers)}", create=True) as connection:
        connection.create_scope("a")
        connection.create_stream("a", "b", segments=1)
        stream = connection.stream_store.stream("a", "b", host=connection.segments())

        def check() -> None:
            of(stream)
            with connection.writer("a", "c") as writer:
                writer.write(b"x", key="k").result(SECONDS)
            assert _written(connection, "c") == [b"x"]

        connection.create_stream("a", "c", segments=1)
        yield Use(lambda: of(stream), check)


def _sealed(stream: Stream) -> None:
    stream.seal()
    assert stream.state() is StreamState.SEALED


def _truncated(stream: Stream) -> None:
    stream.truncate({0: 0})
    assert stream.head() == {0: 0}


@contextmanager
def _deleting() -> Iterator[Use]:
    with connect(f"memory://interrupts-{next(_numbers)}", create=True) as connection:
        connection.create_scope("a")
        connection.create_stream("a", "b", segments=1)
        streams = StreamStore.open(connection.store, host=connection.segments())
        streams.stream("a", "b").seal()

        def check() -> None:
            streams.delete_stream("a", "b")
            assert list(streams.streams("a")) == []
            connection.create_stream("a", "b", segments=1)

        yield Use(lambda: streams.delete_stream("a", "b"), check)


@contextmanager
def _creating() -> Iterator[Use]:
    with connect(f"memory://interrupts-{next(_numbers)}", create=True) as connection:

        def call() -> None:
            connection.create_scope("a")
            connection.create_stream("a", "b", segments=2)

        def check() -> None:
            call()
            with connection.writer("a", "b") as writer:
                writer.write(b"x", key="k").result(SECONDS)
            assert _written(connection, "b") == [b"x"]

        yield Use(call, check)


@contextmanager
def _uploading() -> Iterator[Use]:
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="interrupts"))
    with ObjectCatalog.open(store) as catalog, catalog.open_node(4) as writer:
        writer.open_streams([STREAM])

        def call() -> None:
            start = writer.end(STREAM) or 0
            batch = RecordBatch(STREAM, epoch=1, base_offset=start, count=COUNT, payload=b"records")
            writer.upload({STREAM: [batch]})

        def check() -> None:
            call()
            call()
            end = writer.end(STREAM)
            assert end in (2 * COUNT, 3 * COUNT)
            with ReadAccelerator(catalog.images(), store) as accelerator:
                assert sum(each.count for each in accelerator.read(STREAM, 0)) == end

        yield Use(call, check)


@contextmanager
def _committing() -> Iterator[Use]:
    store = filled()
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
        [ref, *_] = catalog.images().current().node(4).refs

        def call() -> None:
            accelerator.object_committed(4, ref, {STREAM: (0, COUNT)})
            accelerator.add_hints(4, STREAM, [(0, COUNT, ref.object_id)])

        def check() -> None:
            call()
            assert sum(each.count for each in accelerator.read(STREAM, 0, END)) == END

        yield Use(call, check)


@rows
def _images(of: Callable[[PolledImages], object]) -> Iterator[Use]:
    with ObjectCatalog.open(filled()) as catalog:
        pushed = StaticImages(catalog.images().current())
        polled = PolledImages(pushed.current, timer=SYSTEM.timer, sleep=SYSTEM.sleep)

        def check() -> None:
            of(polled)
            assert polled.wait_newer(polled.current().version, 0) is None
            assert STREAM in polled.current().streams

        yield Use(lambda: of(polled), check)


@contextmanager
def _pushing() -> Iterator[Use]:
    with ObjectCatalog.open(filled()) as catalog:
        image = catalog.images().current()
        pushed = StaticImages(image)

        def check() -> None:
            pushed.push(image)
            assert pushed.current() is image

        yield Use(lambda: pushed.push(image), check)


@contextmanager
def _connecting() -> Iterator[Use]:
    url = _stream()

    def call() -> None:
        with connect(url) as connection:
            assert connection.stream("a", "b").name

    yield Use(call, call)


@contextmanager
def _closing_connection() -> Iterator[Use]:
    with connect(_stream()) as connection:
        connection.stream("a", "b")
        connection.accelerator.stats()
        yield Use(connection.close, connection.close)


@rows
def _reader_group(of: Callable[[ReaderGroup], object]) -> Iterator[Use]:
    with connect(_stream()) as connection:
        group = connection.group("a", "b", f"group-{next(_numbers)}")

        def check() -> None:
            of(group)
            with connection.group_reader("a", "b", group.name, "one", follow=False, settings=QUICK) as reader:
                assert len(list(reader)) == EVENTS

        yield Use(lambda: of(group), check)


ROWS: dict[str, Row] = {
    "MemoryStore": _store,
    "FileStore": _folder,
    "collect": _collecting,
    "ObjectCatalog.images": _catalog(lambda catalog: catalog.images().current()),
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
    "GroupReader.__next__": _group(lambda _: None),
    "GroupReader.commit": _group(GroupReader.commit),
    "GroupReader.leave": _group(_commit_and_leave),
    "GroupReader.rebalance": _group(GroupReader.rebalance),
    "NodeWriter.upload": _uploading,
    "ReadAccelerator.object_committed": _committing,
    "Stream.scale": _history(lambda stream: stream.split(stream.active_segments().ids[0])),
    "Stream.seal": _history(_sealed),
    "Stream.truncate": _history(_truncated),
    "StreamStore.create_stream": _creating,
    "StreamStore.delete_stream": _deleting,
    "StreamWriter.abort_transaction": _writer(_aborted, 0),
    "StreamWriter.carry_out_requests": _writer(StreamWriter.carry_out_requests, 0),
    "StreamWriter.write_many": _writer(lambda writer: writer.write_many([(b"x", "k"), (b"x", "q")]), 2),
    "WriteFuture.result": _writer(_awaited, 1),
    "StreamWriter.flush": _writer(StreamWriter.flush, 0),
    "StreamWriter.transaction": _writer(_transaction, 1),
    "StreamWriter.write": _writer(lambda writer: writer.write(b"x", key="k"), 1),
    "open_store": _opening_store,
    "Connection.__enter__": _entering,
    "Connection.reader": _connection(lambda connection: connection.reader("a", "b").close()),
    "Connection.stream": _connection(lambda connection: connection.stream("a", "b").name),
    "PolledImages.current": _images(PolledImages.current),
    "PolledImages.image_changed": _images(PolledImages.image_changed),
    "ReaderGroup.reset": _reader_group(ReaderGroup.reset),
    "ReaderGroup.state": _reader_group(ReaderGroup.state),
    "StaticImages.push": _pushing,
    "Connection.close": _closing_connection,
    "connect": _connecting,
    "Connection.accelerator": _connection(lambda connection: connection.accelerator.stats()),
}

_CANCELLED = "each of its awaits is cancelled, in tests/processes/test_cancelling.py; its work runs in threads"
_VALUE = "a value, which no call changes"

ELSEWHERE: dict[str, str] = {
    "Answer": _VALUE,
    "AsyncConnection": _CANCELLED,
    "AsyncGroupReader": _CANCELLED,
    "AsyncReadAccelerator": _CANCELLED,
    "AsyncStreamReader": _CANCELLED,
    "AsyncStreamWriter": _CANCELLED,
    "FormatRecord": _VALUE,
    "ObjectSegmentSource": "the rows of readers read by it",
    "ObjectSegments": "the rows of writers and of streams write by it",
    "Request": _VALUE,
    "accelerate": "a function that its caller wraps around the calls of an accelerator, which have rows",
    "load_image_file": "reads one file, and keeps nothing",
}
"""Public names without a row, each with the reason."""
