"""An object is written as the encoder makes it, in one put or in parts, and appears whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.testing import Fault, FaultStore
from loaders.errors import FormatError, StoreUnavailable
from loaders.format import ObjectEncoder, RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_ref import UNKNOWN
from loaders.object_writer import ObjectWriter
from loaders.store import CountingStore, MemoryStore, ObjectStore
from tests.builders import batches

LAYOUT = ObjectLayout("some/prefix", "cluster")

Write = tuple[int, Iterable[RecordBatch]]


def writes_of(sizes: list[int]) -> list[Write]:
    """One write a stream, with payloads of these sizes."""
    return [(number, [RecordBatch(number, 1, 0, 5, b"x" * size)]) for number, size in enumerate(sizes)]


def encoded(writes: list[Write]) -> bytes:
    encoder = ObjectEncoder()
    return b"".join([*(encoder.write(*each) for each in writes), encoder.finish()])


def write(store: ObjectStore, writes: list[Write], part_size_bytes: int) -> ObjectWriter:
    with ObjectWriter(store, LAYOUT, 42, part_size_bytes=part_size_bytes) as writer:
        write_all(writer, writes)
    return writer


def write_all(writer: ObjectWriter, writes: Iterable[Write], *, careless: bool = False) -> None:
    for each in writes:
        with suppress(StoreUnavailable) if careless else nullcontext():
            writer.write(*each)


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(1, 1000))
def test_the_object_is_what_the_encoder_makes_whatever_the_parts(sizes: list[int], part_size_bytes: int) -> None:
    store = MemoryStore()
    writes = writes_of(sizes)
    writer = write(store, writes, part_size_bytes)
    assert store.get("some/prefix/a2000000/cluster/42").body == encoded(writes)
    assert writer.ref.size_bytes == len(encoded(writes))
    assert writer.ref.index_size_bytes == 36 * len(sizes)
    assert (writer.ref.object_id, writer.ref.attributes) == (42, UNKNOWN)
    assert writer.ranges.stream_ids.tolist() == list(range(len(sizes)))
    assert store.open_uploads == 0


def test_an_object_of_exactly_one_part_is_one_put() -> None:
    writes = writes_of([100, 200])
    store = CountingStore(MemoryStore())
    write(store, writes, len(encoded(writes)))
    assert {name: each.requests for name, each in store.snapshot().by_operation.items()} == {"put": 1}


def test_one_byte_more_goes_out_in_parts() -> None:
    writes = writes_of([100, 200])
    store = CountingStore(MemoryStore())
    write(store, writes, len(encoded(writes)) - 1)
    counts = {name: each.requests for name, each in store.snapshot().by_operation.items()}
    assert counts == {"start_multipart": 1, "upload_part": 2, "get_range": 1, "complete": 1}


def test_all_parts_but_the_last_have_the_size_that_was_asked_for() -> None:
    store = CountingStore(MemoryStore(part_size_bytes_min=400))  # refuses smaller ones, as S3 does
    writes = writes_of([50] * 40)
    write(store, writes, 400)
    assert store.snapshot().of("upload_part").requests == -(-len(encoded(writes)) // 400)


@pytest.mark.parametrize("part_size_bytes", [100, 10_000])
def test_an_error_in_the_block_leaves_nothing(part_size_bytes: int) -> None:
    store = MemoryStore()
    writer = ObjectWriter(store, LAYOUT, 42, part_size_bytes=part_size_bytes)

    def interrupted() -> Iterator[RecordBatch]:
        yield RecordBatch(2, 1, 0, 5, b"y")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), writer:
        write_all(writer, [(1, [RecordBatch(1, 1, 0, 5, b"x" * 500)]), (2, interrupted())])
    assert (len(store), store.open_uploads) == (0, 0)
    with pytest.raises(ValueError, match="is not"):
        _ = writer.ref
    with pytest.raises(ValueError, match="is not"):
        _ = writer.ranges


@pytest.mark.parametrize("operation", ["put", "start_multipart", "upload_part", "complete"])
def test_a_store_that_fails_leaves_nothing(operation: str) -> None:
    inner = MemoryStore()
    with pytest.raises(StoreUnavailable):
        write(failing(inner, operation), writes_of([300, 300, 300]), 4000 if operation == "put" else 400)
    assert (len(inner), inner.open_uploads) == (0, 0)


def test_a_part_that_was_not_sent_is_not_forgotten_by_those_who_carry_on() -> None:
    inner = MemoryStore()
    writer = ObjectWriter(failing(inner, "upload_part"), LAYOUT, 42, part_size_bytes=400)
    with pytest.raises(StoreUnavailable), writer:
        write_all(writer, writes_of([300, 300, 300]), careless=True)
    assert (len(inner), inner.open_uploads) == (0, 0)


def test_an_upload_that_cannot_be_aborted_is_told_beside_the_first_error() -> None:
    inner = MemoryStore()
    with pytest.raises(StoreUnavailable) as caught:
        write(failing(inner, "upload_part", "abort"), writes_of([300, 300, 300]), 400)
    assert "could not be aborted" in caught.value.__notes__[0]


def test_a_write_that_is_refused_adds_nothing_and_the_writer_goes_on() -> None:
    store = MemoryStore()
    with ObjectWriter(store, LAYOUT, 42) as writer:
        writer.write(7, batches(7, 0, 10))
        with pytest.raises(FormatError, match="at least 7"):
            writer.write(3, batches(3, 0, 10))
        writer.write(9, batches(9, 5, 10))
    assert writer.ranges.stream_ids.tolist() == [7, 9]


def test_a_finished_object_takes_no_more() -> None:
    writer = write(MemoryStore(), writes_of([10]), 1000)
    with pytest.raises(ValueError, match="finished"):
        writer.write(9, batches(9, 0, 10))


def test_a_part_has_a_size() -> None:
    with pytest.raises(ValueError, match="part size"):
        ObjectWriter(MemoryStore(), LAYOUT, 42, part_size_bytes=0)


def failing(inner: MemoryStore, *operations: str) -> FaultStore:
    """A store in which these operations always fail."""
    return FaultStore(inner, rng=Random(1), probabilities={Fault.SLOW_DOWN: 1.0}, operations=operations)
