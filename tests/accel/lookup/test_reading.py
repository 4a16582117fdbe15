"""Reading records through index and blocks: all of them, in order, within the budget, while objects come and go."""

from __future__ import annotations

import random
from concurrent.futures import Executor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import Ending, MetadataImage, ReadAccelerator
from accel.errors import AccessDenied, InvalidRequest, ObjectLost
from loaders.errors import KeyMissing
from loaders.format import BlockIndex, LinkedObject, ObjectEncoder, RecordBatch
from loaders.layout import ObjectLayout
from loaders.merge.plan import MergeLimits
from loaders.shared_loads import SharedChunks
from loaders.store import CountingStore, Fetched, MemoryStore
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, accelerator, line_image, line_store, put, store_of, system
from tests.accel.lookup.test_accelerator import PushOnWait
from tests.builders import batches, encode_composite
from tests.examples import examples
from tests.loaders.merge.merged_objects import MergeGroup, written_by
from tests.models.plain_scan import plain_scan
from tests.models.worlds import World, worlds


def spans(read: list[RecordBatch]) -> list[tuple[int, int]]:
    return [(each.base_offset, each.end_offset) for each in read]


@settings(max_examples=examples(60))
@given(worlds(steps_max=25), st.integers(0, 2**32))
def test_a_read_gives_the_records_up_to_the_first_hole(world: World, seed: int) -> None:
    rng = random.Random(seed)
    # Stream objects are not written here, and a gap inside an object ends a read, which the plain scan cannot see.
    for stream in world.metadata["streams"]:
        stream["stream_objects"] = []
    world.gaps = {object_id: {} for object_id in world.contents}
    stream = rng.choice(world.metadata["streams"])
    start = rng.randint(stream["start_offset"], stream["start_offset"] + 60)
    whole = plain_scan(world.metadata, world.contents, (stream["stream_id"], start, -1, 10_000))
    with accelerator(store_of(world), MetadataImage.from_dict(world.metadata)) as one:
        reading = one.read(stream["stream_id"], start)
        assert spans(list(reading)) == [(first, last) for _, _, first, last in whole.objects]
        assert reading.ending is Ending.HOLE
        assert reading.next_offset == (whole.objects[-1][3] if whole.objects else start)


def small_blocks(count: int, *, length: int = 1, payload: bytes = b"x" * 100) -> bytes:
    """An object with `count` one-record blocks of the stream among those of other streams."""
    encoder = ObjectEncoder()
    parts = [encoder.write(1, batches(1, 0, 5))]
    for number in range(count):
        batch = RecordBatch(STREAM, 1, number * length, length, payload)
        parts.append(encoder.write(STREAM, [batch]))
    return b"".join([*parts, encoder.write(9, batches(9, 0, 5)), encoder.finish()])


def one_object(body: bytes) -> CountingStore:
    store = MemoryStore()
    store.put(ObjectLayout().object_key(0), body)
    return CountingStore(store)


def test_neighbouring_blocks_are_fetched_in_one_request() -> None:
    store = one_object(small_blocks(50))
    with accelerator(store, line_image([0])) as one:
        assert spans(list(one.read(STREAM, 10, 20))) == [(each, each + 1) for each in range(10, 20)]
        assert store.snapshot().gets == 2  # the index, and the blocks


def test_a_request_fetches_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.lookup.reading.SPAN_SIZE_BYTES_MAX", 1000)
    store = one_object(small_blocks(50))
    with accelerator(store, line_image([0])) as one:
        assert len(list(one.read(STREAM, 0))) == 50
        assert store.snapshot().gets > 5


def test_a_read_stops_after_the_batch_that_spends_its_budget() -> None:
    with accelerator(one_object(small_blocks(50)), line_image([0])) as one:
        reading = one.read(STREAM, 10, max_bytes=250)
        assert spans(list(reading)) == [(10, 11), (11, 12), (12, 13)]
        assert reading.ending is Ending.LIMIT
        assert reading.next_offset == 13
        assert spans(list(one.read(STREAM, reading.next_offset, max_bytes=1))) == [(13, 14)]


def test_batches_are_whole_even_if_the_range_begins_or_ends_inside_one() -> None:
    with accelerator(one_object(small_blocks(10, length=10)), line_image([0])) as one:
        reading = one.read(STREAM, 15, 35)
        assert spans(list(reading)) == [(10, 20), (20, 30), (30, 40)]
        assert reading.ending is Ending.END


def test_a_hole_inside_an_object_ends_the_read_and_does_not_turn_in_circles() -> None:
    store = MemoryStore()
    put(store, 0, [(STREAM, 0, 30)], gaps={STREAM: (10, 20)})
    with accelerator(store, line_image([0])) as one:
        reading = one.read(STREAM, 0)
        assert spans(list(reading)) == [(0, 10)]
        assert (reading.ending, reading.next_offset) == (Ending.HOLE, 10)
        inside = one.read(STREAM, 12)
        assert list(inside) == []
        assert (inside.ending, inside.next_offset) == (Ending.HOLE, 12)


def test_a_composite_object_is_read_through_its_links() -> None:
    store, layout = MemoryStore(), ObjectLayout()
    rows = []
    for object_id, first in ((70, 0), (71, 10)):
        encoder = ObjectEncoder()
        body = encoder.write(STREAM, batches(STREAM, first, first + 10))
        rows.append(encoder.index())
        store.put(layout.object_key(object_id), body + encoder.finish())
    index = BlockIndex(b"".join(each.rows.tobytes() for each in rows))
    links = (LinkedObject(70, 0, 0), LinkedObject(71, 1, 0))
    store.put(layout.object_key(80), encode_composite(links, index))
    for facts in ({"attributes": 1, "size": 999_999}, {}):
        stream = {"stream_id": STREAM, "start_offset": 0, "ranges": []}
        own = [{"object_id": 80, "start": 0, "end": 20, **facts}]
        image = MetadataImage.from_dict({"streams": [{**stream, "stream_objects": own}]})
        with accelerator(store, image) as one:
            assert spans(list(one.read(STREAM, 0))) == [(0, 10), (10, 20)]


def test_an_object_that_is_compacted_away_between_lookup_and_read_is_no_error() -> None:
    store = line_store(2)
    put(store, 50, [(STREAM, 0, 20)])
    source = PushOnWait(line_image([0, 1]), line_image([50], version=1))
    with ReadAccelerator(source, store, system=system()) as one:
        one.get_objects(STREAM, 0, 20)  # known from here on without asking the store
        for gone in (0, 1):
            store.delete(ObjectLayout().object_key(gone))
        assert spans(list(one.read(STREAM, 5, 20))) == [(0, 20)]


class Denied(CountingStore):
    """A store that says 403 of a key that does not exist, as S3 does to those who may not list."""

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        try:
            return super().get_range(key, start, end)
        except KeyMissing as error:
            raise AccessDenied("get_range", key, "403") from error


def test_a_denied_object_may_be_one_that_is_gone_and_is_looked_for_once() -> None:
    store = Denied(line_store(2))
    put(store, 50, [(STREAM, 0, 20)])
    source = PushOnWait(line_image([0, 1]), line_image([50], version=1))
    with ReadAccelerator(source, store, system=system()) as one:
        one.get_objects(STREAM, 0, 20)
        for gone in (0, 1):
            store.delete(ObjectLayout().object_key(gone))
        assert spans(list(one.read(STREAM, 5, 20))) == [(0, 20)]
        store.delete(ObjectLayout().object_key(50))
        with pytest.raises(AccessDenied):
            list(one.read(STREAM, 5, 20))


def test_a_budget_below_one_byte_is_refused() -> None:
    with accelerator(line_store(1), line_image([0])) as one, pytest.raises(ValueError, match="at least 1"):
        one.read(STREAM, 0, max_bytes=0)


@BOTH_DRIVERS
def test_a_read_that_failed_raises_its_error_again_and_does_not_look_like_one_that_ended(driver: Any) -> None:
    store = line_store(3)
    with accelerator(store, line_image([0, 1, 2]), driver=driver) as one:
        one.get_objects(STREAM, 0, 30)
        store.delete(ObjectLayout().object_key(1))
        reading = one.read(STREAM, 0, 30)
        assert next(reading).base_offset == 0
        for _ in range(3):
            with pytest.raises(ObjectLost, match="object 1 "):
                next(reading)
        assert (reading.ending, reading.next_offset) == (None, 10)
        assert spans(list(one.read(STREAM, 20, 30))) == [(20, 30)]


def test_a_read_of_a_stream_that_is_not_there_says_so_each_time() -> None:
    with accelerator(line_store(1), line_image([0])) as one:
        reading = one.read(999, 0)
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="999"):
                next(reading)


@BOTH_DRIVERS
def test_a_read_that_ended_stays_at_its_end(driver: Any) -> None:
    with accelerator(line_store(1), line_image([0]), driver=driver) as one:
        reading = one.read(STREAM, 0, 10)
        assert spans(list(reading)) == [(0, 10)]
        assert list(reading) == []
        assert reading.ending is Ending.END


@pytest.mark.parametrize("taken", [0, 1, 3, 5, 8])
def test_columns_go_on_where_the_batches_taken_one_by_one_ended(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    monkeypatch.setattr("accel.lookup.reading.SPAN_SIZE_BYTES_MAX", 600)
    with accelerator(one_object(small_blocks(8)), line_image([0])) as ours:
        expected = list(ours.read(STREAM, 0))
        reading = ours.read(STREAM, 0)
        found = [next(reading) for _ in range(taken)]
        for columns in reading.columns():
            found += list(columns)
            assert reading.next_offset == found[-1].end_offset
    assert found == expected
    assert len(found) == 8


def test_an_error_that_is_not_ours_ends_a_read_as_well() -> None:
    class Broken(CountingStore):
        def get_range(self, key: str, start: int, end: int) -> Fetched:
            raise RuntimeError(f"a bug somewhere: {key} {start} {end}")

    with accelerator(Broken(line_store(2)), line_image([0, 1])) as one:
        reading = one.read(STREAM, 0, 20)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a bug somewhere"):
                next(reading)


def test_rows_of_many_blocks_do_not_end_a_read_before_its_budget_is_spent() -> None:
    """A merged object's rows cover many blocks, whose headers count as if they were records."""
    group = MergeGroup([small_blocks(20, payload=b"x" * 10)])
    body = written_by(group.plan(MergeLimits(row_size_bytes_max=300)).outputs[0], group.sources)
    with accelerator(one_object(body), line_image([0])) as one:
        for budget in range(10, 200, 7):
            reading = one.read(STREAM, 0, max_bytes=budget)
            taken = len(list(reading))
            assert taken == -(-budget // 10)
            assert (reading.ending, reading.next_offset) == (Ending.LIMIT, taken)


def test_a_read_announces_what_lies_behind_its_budget_and_the_next_one_sends_no_request() -> None:
    store = one_object(small_blocks(50))
    chunks = SharedChunks(store, chunk_bytes=1600, used_least=0)
    with accelerator(store, line_image([0])) as one:
        reading = one.read(STREAM, 0, max_bytes=1000, ranges=chunks, ahead_bytes=1000)
        assert len(list(reading)) == 10
        one.wait_idle()
        before = store.snapshot().gets
        assert len(list(one.read(STREAM, reading.next_offset, max_bytes=1000, ranges=chunks))) == 10
        assert store.snapshot().gets == before


def test_a_read_announces_nothing_behind_its_end_and_without_being_asked_to() -> None:
    announced: list[tuple[int, int]] = []

    class Told(SharedChunks):
        def announce(self, key: str, start: int, end: int, executor: Executor) -> None:
            del key, executor
            announced.append((start, end))

    store = one_object(small_blocks(50))
    chunks = Told(store)
    with accelerator(store, line_image([0])) as one:
        assert len(list(one.read(STREAM, 0, max_bytes=1000, ranges=chunks))) == 10
        assert len(list(one.read(STREAM, 0, 10, max_bytes=1000, ranges=chunks, ahead_bytes=1000))) == 10
        assert announced == []
        assert len(list(one.read(STREAM, 0, 15, max_bytes=1000, ranges=chunks, ahead_bytes=10_000))) == 10
    assert len(announced) == 1


def test_a_read_announces_what_the_next_objects_have() -> None:
    objects = 6
    store = line_store(objects)
    chunks = SharedChunks(store)
    with accelerator(store, line_image(list(range(objects)))) as one:
        given = offset = steps_ahead = 0
        while read := list(one.read(STREAM, offset, max_bytes=1, ranges=chunks, ahead_bytes=1000)):
            given, offset = given + len(read), read[-1].end_offset
            one.wait_idle()
            steps_ahead += chunks.stats().requests > offset // 10  # those of the next object are here
        # A read that ends before the next object is found announces nothing of it: that depends on the machine.
        assert steps_ahead > 0
    assert offset == 10 * objects
    assert chunks.stats().requests == objects  # each object's blocks once
