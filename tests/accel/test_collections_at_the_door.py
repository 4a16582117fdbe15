"""Each kind of value against parameters that take collections, ids and objects: taken, or refused in words."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import accel
from accel.errors import AccelError
from loaders.format import RecordBatch
from loaders.store import MemoryStore
from tests.accel.test_values_at_the_door import values_of


class World:
    """A catalog with a stream of the object layer, and a stream with a history of two segments."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.streams = accel.connect(self.store, create=True)
        self.streams.create_scope("shop")
        self.stream = self.streams.create_stream("shop", "orders", segments=2)
        with self.streams.writer("shop", "orders") as writer:
            writer.write_many([(b"%d" % number, f"key-{number}") for number in range(9)])
        self.catalog = accel.ObjectCatalog.open(self.store)
        self.node = self.catalog.open_node(9)
        self.node.open_streams([8_000])
        self.node.upload({8_000: [RecordBatch(8_000, 1, 0, 10, b"records")]})
        self.lookups = accel.ReadAccelerator(self.catalog.images(), self.store)
        self.writer = self.streams.writer("shop", "orders")

    def read(self, **options: Any) -> None:
        with self.streams.reader("shop", "orders", follow=False, **options) as reader:
            list(itertools.islice(reader, 20))

    def close(self) -> None:
        self.lookups.close()
        self.node.close()
        self.streams.close()

    def stored(self) -> set[str]:
        return {found.etag + found.key for found in self.store.list("")}


CALLS: dict[str, Callable[[World, Any], object]] = {
    "Cut: truncate": lambda world, value: world.stream.truncate(value),
    "Cut: an offset": lambda world, value: world.stream.truncate({"0@0": value, "1@0": 0}),
    "Cut: a reader's start": lambda world, value: world.read(from_cut=value),
    "Order": lambda world, value: world.read(order=value),
    "settings": lambda world, value: world.read(settings=value),
    "SegmentId: split": lambda world, value: world.stream.split(value),
    "SegmentId: its stream": lambda world, value: world.stream.segment_stream(value),
    "Iterable[SegmentId]": lambda world, value: world.stream.segment_streams(value),
    "Sequence[SegmentId]": lambda world, value: world.stream.scale(value, [(0.0, 1.0)]),
    "Sequence[Sequence[float]]": lambda world, value: world.stream.scale(["0@0"], value),
    "Sequence[Sequence[float]]: a bound": lambda world, value: world.stream.scale(["0@0"], [(0.0, value)]),
    "StreamConfiguration": lambda world, value: world.stream.configure(value),
    "tags": lambda world, value: world.stream.configure(accel.StreamConfiguration(tags=value)),
    "a tag": lambda world, value: world.stream.configure(accel.StreamConfiguration(tags=(value,))),
    "UUID: commit": lambda world, value: world.writer.commit_transaction(value),
    "UUID: abort": lambda world, value: world.writer.abort_transaction(value),
    "UUID: a request": lambda world, value: world.stream.scale_status(value),
    "UUID: a transaction": lambda world, value: world.writer.write(b"x", b"a", transaction=value),
    "UUID: a writer": lambda world, value: world.streams.writer("shop", "orders", writer_id=value),
    "Key": lambda world, value: world.writer.write(b"x", value),
    "Iterable[tuple[bytes, Key]]": lambda world, value: world.writer.write_many(value),
    "Iterable[tuple[bytes, Key]]: a payload": lambda world, value: world.writer.write_many([(value, b"a")]),
    "Iterable[tuple[bytes, Key]]: a key": lambda world, value: world.writer.write_many([(b"x", value)]),
    "Iterable[Request]": lambda world, value: world.lookups.get_objects_many(value),
    "Iterable[Request]: a request": lambda world, value: world.lookups.get_objects_many([value]),
    "Request: a stream": lambda world, value: world.lookups.get_objects_many([accel.Request(value, 0)]),
    "Request: an end": lambda world, value: world.lookups.get_objects_many([accel.Request(8_000, 0, value)]),
    "Iterable[int]: ends": lambda world, value: world.catalog.stream_ends(value),
    "Iterable[int]: an end": lambda world, value: world.catalog.stream_ends([value]),
    "Iterable[int]: discard": lambda world, value: world.catalog.discard(9, value),
    "Iterable[int]: warm": lambda world, value: world.lookups.warm(value),
    "Mapping[int, int]": lambda world, value: world.catalog.trim(value),
    "Mapping[int, int]: an offset": lambda world, value: world.catalog.trim({8_000: value}),
    "ObjectRef": lambda world, value: world.node.commit_upload(value, {}),
    "Iterable[tuple[int, int, int]]": lambda world, value: world.lookups.add_hints(9, 8_000, value),
    "Iterable[tuple[int, int, int]]: an id": lambda world, value: world.lookups.add_hints(9, 8_000, [(0, 10, value)]),
}


HINTS = "Iterable[tuple[int, int, int]]"
OBJECTS = {"settings", "UUID: a writer", "ObjectRef", "UUID: commit", "UUID: abort", "Mapping[int, int]"}
RAW = {
    *((call, "an index") for call in OBJECTS),  # an object of a caller, which could be a double of what is expected
    *((call, "too long to print") for call in ("tags", "Sequence[Sequence[float]]: a bound", HINTS + ": an id")),
    *((HINTS, kind) for kind in ("a list", "an array")),  # of numbers, which are no triples
    *(("Iterable[tuple[bytes, Key]]", kind) for kind in ("a list", "an array")),  # of numbers, which are no pairs
}
"""Errors in the words of Python."""


@pytest.fixture(scope="module")
def worlds() -> Iterator[list[World]]:
    """The world of the next call: that of the one before, if that stored nothing: it takes long to make."""
    made: list[World] = []
    yield made
    for world in made:
        world.close()


def error_of(call: Callable[[World, Any], object], world: World, value: object) -> Exception | None:
    try:
        call(world, value)
    except Exception as error:  # noqa: BLE001 - which it is, is the test
        return error
    return None


@pytest.mark.parametrize("call", CALLS)
def test_each_kind_is_taken_or_refused_in_words_and_the_next_call_works(call: str, worlds: list[World]) -> None:
    world = worlds.pop() if worlds else World()
    world.writer.flush()
    began = world.stored()
    for kind, value in values_of(3).items():
        world.writer.flush()  # what the kind before it wrote would be stored during this one
        before = world.stored()
        error = error_of(CALLS[call], world, value)
        if error is not None and (call, kind) not in RAW:
            assert isinstance(error, AccelError) or "expected " in str(error), (kind, error)
            assert isinstance(error, AccelError | ValueError | TypeError), (kind, error)
            assert world.stored() - before == set(), kind
    world.writer.flush()
    is_unchanged = world.stored() == began
    world.lookups.get_objects(8_000, 5)
    world.read()
    world.writer.write(b"last", b"a").result(60)
    if is_unchanged:
        worlds.append(world)
    else:
        world.close()
