"""Merging in a store: what is written is what was planned, in few requests, and nothing is left of what failed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from unittest.mock import ANY, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.system import SYSTEM
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.errors import AccelError, CorruptObject, FormatError, FormatLimit, StoreError
from loaders.format import BlockIndex, ObjectEncoder, RecordBatch, tail_checksum
from loaders.layout import UPLOADS_PREFIX, ObjectLayout, parse_upload_key
from loaders.merge.merger import WrittenObject, merge_objects
from loaders.merge.plan import MergeLimits
from loaders.merge.transfer import Source, open_sources
from loaders.object_ref import ObjectRef
from loaders.object_writer import ObjectWriter
from loaders.settings import MergeSettings
from loaders.store import ALWAYS, Body, Condition, CountingStore, MemoryStore, ObjectStore
from tests.builders import encode_composite, write_set_object
from tests.examples import examples
from tests.loaders.format.objects import opened, production_bytes, production_cases
from tests.loaders.merge.merged_objects import MergeGroup, batches_by_stream, merge_groups, merge_limits, naive_merge
from tests.servers.stores import ON_S3, store_on_s3

LAYOUT = ObjectLayout()
LIMITS = MergeLimits()
MEBIBYTE = 1 << 20
FIRST_OUTPUT = 1000


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def put_group(store: ObjectStore, group: MergeGroup, *, knows_sizes: bool = True) -> list[ObjectRef]:
    refs = []
    for number, data in enumerate(group.sources):
        store.put(LAYOUT.object_key(number), data)
        refs.append(ObjectRef(number, len(data)) if knows_sizes else ObjectRef(number))
    return refs


def merge(
    store: ObjectStore,
    group: MergeGroup,
    refs: list[ObjectRef],
    executor: ThreadPoolExecutor,
    merging: MergeSettings,
    limits: MergeLimits = LIMITS,
    *,
    layout: ObjectLayout = LAYOUT,
) -> list[WrittenObject]:
    sources = open_sources(store, layout, refs, merging, executor=executor)
    plan = group.plan(limits)
    ids = [FIRST_OUTPUT + number for number in range(len(plan.outputs))]
    return merge_objects(
        store, layout, sources, plan, ids, merging, executor=executor, nonce=SYSTEM.nonce, limits=limits
    )


def outputs_in(store: ObjectStore, result: list[WrittenObject]) -> list[tuple[int | None, bytes]]:
    return [(one.stream_id, store.get(LAYOUT.object_key(one.object_id)).body) for one in result]


SIZES = st.sampled_from([1, 60, 200, 16 * MEBIBYTE])


def narrow_settings() -> st.SearchStrategy[MergeSettings]:
    return st.builds(MergeSettings, SIZES, SIZES, st.integers(1, 3))


@given(merge_groups(), merge_limits(), narrow_settings(), SIZES, st.booleans())
@settings(max_examples=examples(60))
def test_the_outputs_are_those_of_a_merge_row_by_row_whatever_the_bands_and_parts(
    group: MergeGroup, limits: MergeLimits, merging: MergeSettings, sending_size_bytes: int, knows_sizes: bool
) -> None:
    store = MemoryStore()
    refs = put_group(store, group, knows_sizes=knows_sizes)
    with ThreadPoolExecutor(2) as pool, patch("loaders.merge.transfer.SENDING_SIZE_BYTES", sending_size_bytes):
        result = merge(store, group, refs, pool, merging, limits)
    expected = naive_merge(group, limits)
    assert outputs_in(store, result) == [(one.stream_id, one.data) for one in expected]
    assert store.open_uploads == 0
    for written, naive in zip(result, expected, strict=True):
        index = opened(naive.data)
        ranges = index.object_ranges()
        size_bytes = len(naive.data)
        checksum = tail_checksum(naive.data, object_size_bytes=size_bytes, index_size_bytes=index.nbytes)
        assert written.ref == ObjectRef(written.object_id, size_bytes, index.nbytes, tail_checksum=checksum)
        assert written.records == sum(piece.row.record_count for piece in naive.pieces)
        assert (written.ranges.stream_ids == ranges.stream_ids).all()
        if written.stream_id is not None:
            assert (written.start, written.end) == (ranges.starts[0], ranges.ends[0])


def production_group() -> MergeGroup:
    cases = sorted((case for case in production_cases() if case["nodeId"] == 4), key=lambda case: int(case["orderId"]))
    return MergeGroup([production_bytes(case["objectId"]) for case in cases])


@pytest.mark.parametrize(("part_size_bytes", "parts"), [(MEBIBYTE, 1), (40_000, 8), (300, None)])
def test_a_group_of_one_band_takes_a_request_a_source_one_a_part_and_four_more(
    executor: ThreadPoolExecutor, part_size_bytes: int, parts: int | None
) -> None:
    ranges = [[(stream, 100 * number, 100 * number + 100) for stream in range(200)] for number in range(10)]
    group = MergeGroup([write_wide(each) for each in ranges])
    store = CountingStore(MemoryStore())
    refs = put_group(store, group)
    store.reset()
    merge(store, group, refs, executor, MergeSettings(part_size_bytes=part_size_bytes))
    counts = store.snapshot()
    sent = counts.of("put", "upload_part").requests
    assert counts.gets == 10 + (1 if sent == 1 else 2)
    assert counts.total.requests <= 10 + sent + 4
    if parts is not None:
        assert sent == parts


def write_wide(ranges: list[tuple[int, int, int]]) -> bytes:
    encoder = ObjectEncoder()
    parts = [
        encoder.write(stream, [RecordBatch(stream, 1, start, end - start, b"x" * 100)]) for stream, start, end in ranges
    ]
    return b"".join([*parts, encoder.finish()])


def test_a_group_larger_than_a_band_is_read_once_with_one_request_a_source_and_band(
    executor: ThreadPoolExecutor,
) -> None:
    ranges = [[(stream, 100 * number, 100 * number + 100) for stream in range(200)] for number in range(4)]
    group = MergeGroup([write_wide(each) for each in ranges])
    total = sum(len(data) for data in group.sources)
    store = CountingStore(MemoryStore())
    refs = [ObjectRef(ref.object_id, ref.size_bytes, 200 * 36) for ref in put_group(store, group)]
    store.reset()
    merge(store, group, refs, executor, MergeSettings(band_size_bytes=total // 2, part_size_bytes=total // 16))
    counts = store.snapshot()
    bands = 4  # a band is about half of what may be read whole
    assert counts.of("get_range").requests == 4 + 4 * bands + 2
    assert counts.of("get_range").received_bytes < total * 1.2


# Faults


def failing_merges(
    group: MergeGroup, merging: MergeSettings, fault: Fault
) -> Iterator[tuple[int, MemoryStore, AccelError]]:
    """The same merge, with the first request failing, then the second, and so on until none is left to fail.

    A put that fails once is sent again, or found done: such a merge goes through, and is not given.
    """
    number = 0
    while True:
        inner = MemoryStore()
        store = FaultStore(inner, operations=fault_operations(fault))
        refs = put_group(inner, group)
        store.schedule(*[None] * number, fault)
        with ThreadPoolExecutor(1) as pool:
            try:
                merge(store, group, refs, pool, merging)
            except StoreError as error:
                yield number, inner, error
            else:
                if not store.injected:
                    return
        number += 1


def fault_operations(fault: Fault) -> set[str]:
    writes = {"put", "start_multipart", "upload_part", "copy_part", "complete"}
    gets = {"get", "get_range", "get_tail"}
    return {Fault.LOST_REPLY: writes, Fault.SHORT_BODY: gets}.get(fault, writes | gets)


def test_uploads_of_a_merge_are_recorded_while_they_last(executor: ThreadPoolExecutor) -> None:
    group = MergeGroup([write_wide([(stream, 0, 100) for stream in range(9)])] * 1)
    layout = replace(LAYOUT, catalog_id="c" * 32)
    merging = MergeSettings(part_size_bytes=60, parallel_requests=1)
    left = MemoryStore()
    refs = put_group(left, group)
    with pytest.raises(Crash):
        merge(CrashStore(left, 4), group, refs, executor, merging, layout=layout)
    assert [parse_upload_key(info.key) for info in left.list(UPLOADS_PREFIX)] == [(FIRST_OUTPUT, ANY)]
    merge(left, group, refs, executor, merging, layout=layout)
    assert len([*left.list(UPLOADS_PREFIX)]) == 1, "that of the dead process"


@pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.SLOW_DOWN, Fault.LOST_REPLY, Fault.SHORT_BODY])
@pytest.mark.parametrize("band_size_bytes", [400, 96 * MEBIBYTE])
def test_whichever_request_fails_nothing_is_left_behind(fault: Fault, band_size_bytes: int) -> None:
    group = MergeGroup([write_set_object([(3, 0, 9), (4, 0, 5), (5, 0, 1)]), write_set_object([(3, 9, 12), (4, 7, 9)])])
    failures = 0
    merging = MergeSettings(band_size_bytes=band_size_bytes, part_size_bytes=60)
    for number, inner, _ in failing_merges(group, merging, fault):
        left = [key for key in (each.key for each in inner.list("")) if LAYOUT.parse_object_key(key) not in (0, 1)]
        if fault is not Fault.LOST_REPLY:  # the reply that is lost may be the one that names the upload
            assert inner.open_uploads == 0
        assert left == [], f"request {number}"
        failures += 1
    assert failures >= 3  # puts and completions that lost their reply are found done


def test_what_cannot_be_taken_back_is_told(executor: ThreadPoolExecutor) -> None:
    inner = MemoryStore()
    group = MergeGroup([write_set_object([(3, 0, 9), (4, 0, 5)])])
    refs = put_group(inner, group)
    store = FaultStore(inner, operations={"upload_part", "abort"})
    store.schedule(Fault.TIMEOUT, Fault.TIMEOUT)
    with pytest.raises(StoreError) as caught:
        merge(store, group, refs, executor, MergeSettings(part_size_bytes=10, parallel_requests=1))
    assert "written outputs could not be deleted" in caught.value.__notes__[0]


@pytest.mark.parametrize("band_size_bytes", [100, 96 * MEBIBYTE])
def test_a_broken_block_is_refused_with_the_name_of_its_source(
    executor: ThreadPoolExecutor, band_size_bytes: int
) -> None:
    group = MergeGroup([write_set_object([(3, 0, 9), (4, 0, 5)]), write_set_object([(3, 9, 12), (4, 5, 9)])])
    store = MemoryStore()
    refs = put_group(store, group)
    second = opened(group.sources[1]).row(1)
    broken = bytearray(group.sources[1])
    broken[second.position] ^= 1
    store.put(LAYOUT.object_key(1), broken)
    with pytest.raises(CorruptObject, match=f"at byte {second.position}, found 0x5b") as caught:
        merge(store, group, refs, executor, MergeSettings(band_size_bytes=band_size_bytes))
    assert caught.value.key == LAYOUT.object_key(1)
    assert len(store) == 2


def test_an_object_that_is_not_the_one_in_the_metadata_is_refused(executor: ThreadPoolExecutor) -> None:
    store = MemoryStore()
    (ref,) = put_group(store, MergeGroup([write_set_object([(3, 0, 9)])]))
    for size_bytes in (ref.size_bytes - 1, ref.size_bytes + 1, ref.size_bytes + 10_000):
        for band_size_bytes in (1, 96 * MEBIBYTE):
            wrong, merging = [ObjectRef(0, size_bytes, 36)], MergeSettings(band_size_bytes=band_size_bytes)
            with pytest.raises(CorruptObject, match="metadata"):
                open_sources(store, LAYOUT, wrong, merging, executor=executor)


def test_objects_that_link_others_are_refused(executor: ThreadPoolExecutor) -> None:
    store = MemoryStore()
    data = encode_composite((), BlockIndex(b""))
    store.put(LAYOUT.object_key(0), data)
    for ref in (ObjectRef(0, 100, attributes=1), ObjectRef(0, len(data)), ObjectRef(0)):
        with pytest.raises(FormatError, match="found a composite object"):
            open_sources(store, LAYOUT, [ref], executor=executor)


class GarblingStore(CountingStore):
    """Garbles the last byte of what is put."""

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        return super().put(key, bytes(body[:-1]) + b"\0", condition=condition, mark=mark)


def test_an_output_that_reads_back_differently_is_refused_and_taken_back(executor: ThreadPoolExecutor) -> None:
    inner = MemoryStore()
    group = MergeGroup([write_set_object([(3, 0, 9)])])
    refs = put_group(inner, group)
    with pytest.raises(CorruptObject, match="index and footer as they were written"):
        merge(GarblingStore(inner), group, refs, executor, MergeSettings())
    assert len(inner) == 1


def test_arguments_that_do_not_belong_together_are_refused(executor: ThreadPoolExecutor) -> None:
    store, group = MemoryStore(), MergeGroup([write_set_object([(3, 0, 9)])])
    sources = open_sources(store, LAYOUT, put_group(store, group), executor=executor)
    plan = group.plan(LIMITS)

    def tried(given_sources: list[Source], ids: list[int]) -> None:
        merge_objects(store, LAYOUT, given_sources, plan, ids, executor=executor, nonce=SYSTEM.nonce)

    with pytest.raises(ValueError, match="expected the 1 sources of the plan, found 0"):
        tried([], [7])
    with pytest.raises(ValueError, match="expected 1 different object ids"):
        tried(sources, [7, 8])
    with pytest.raises(ValueError, match="found those of sources"):
        tried(sources, [0])
    with pytest.raises(ValueError, match="at least 1"):
        MergeSettings(part_size_bytes=0)


def test_a_row_too_large_to_be_moved_is_refused(executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loaders.merge.transfer.ROW_SIZE_BYTES_MAX", 40)
    store, group = MemoryStore(), MergeGroup([write_set_object([(3, 0, 9)])])
    with pytest.raises(FormatLimit, match="rows of at most 40 bytes"):
        merge(store, group, put_group(store, group), executor, MergeSettings())
    assert len(store) == 1


# The store copies by itself

SERVER_SIDE = MergeSettings(server_side=True)


def write_large(store: ObjectStore, object_id: int, data_size_bytes: int, first: int) -> ObjectRef:
    payload = Random(object_id).randbytes(data_size_bytes // 4 - 43)
    with ObjectWriter(store, LAYOUT, object_id) as writer:
        for stream_id in range(4):
            writer.write(stream_id, [RecordBatch(stream_id, 1, first, 10, payload)])
    return writer.ref


def merged_by_the_store(store: ObjectStore, executor: ThreadPoolExecutor, mebibytes: list[int]) -> list[WrittenObject]:
    refs = [write_large(store, number, size * MEBIBYTE, 10 * number) for number, size in enumerate(mebibytes)]
    group = MergeGroup([store.get(LAYOUT.object_key(ref.object_id)).body for ref in refs])
    result = merge(store, group, refs, executor, SERVER_SIDE)
    (output,) = outputs_in(store, result)
    assert batches_by_stream([output[1]]) == batches_by_stream(group.sources)
    assert len(opened(output[1]).object_ranges().holed) == 0
    return result


@pytest.mark.parametrize("name", ON_S3)
def test_s3_copies_the_sections_by_itself(
    name: str, request: pytest.FixtureRequest, executor: ThreadPoolExecutor
) -> None:
    with store_on_s3(request, name) as store:
        [written] = merged_by_the_store(store, executor, [6, 1])
        assert (written.checksum is None) == store.can_copy_parts


@pytest.mark.parametrize(
    ("mebibytes", "copied"),
    [([6, 6], 12), ([1, 1, 12, 1], 9), ([6, 1, 1], 6), ([3, 1, 6, 1], 5), ([2, 2], 0), ([3, 3, 6], 6), ([5, 7], 5 + 7)],
)
def test_sections_are_copied_where_they_are_large_enough(
    executor: ThreadPoolExecutor, mebibytes: list[int], copied: int
) -> None:
    store = CountingStore(MemoryStore(part_size_bytes_min=5 * MEBIBYTE))
    [written] = merged_by_the_store(store, executor, mebibytes)
    assert (written.checksum is None) == bool(copied)
    sent_bytes = store.snapshot().total.sent_bytes
    assert abs(sent_bytes - (2 * sum(mebibytes) - copied) * MEBIBYTE) < 100_000, "sources, and what was not copied"


@pytest.mark.parametrize("reason", ["trimmed", "hole", "store"])
def test_where_the_store_cannot_copy_the_bytes_go_the_ordinary_way(
    executor: ThreadPoolExecutor, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    if reason == "store":
        monkeypatch.setattr(MemoryStore, "can_copy_parts", False)
    second = 30 if reason == "hole" else 10
    refs = [write_large(store, 0, 6 * MEBIBYTE, 0), write_large(store, 1, 6 * MEBIBYTE, second)]
    bodies = [store.get(LAYOUT.object_key(ref.object_id)).body for ref in refs]
    group = MergeGroup(bodies, {0: 10} if reason == "trimmed" else {})
    result = merge(store, group, refs, executor, SERVER_SIDE)
    assert all(written.checksum is not None for written in result)
    assert outputs_in(store, result) == [(one.stream_id, one.data) for one in naive_merge(group, LIMITS)]


def test_whichever_copy_fails_nothing_is_left_behind() -> None:
    number = 0
    while True:
        inner = MemoryStore()
        store = FaultStore(inner, operations={"start_multipart", "copy_part", "upload_part", "complete", "get_range"})
        refs = [write_large(inner, 0, 6 * MEBIBYTE, 0), write_large(inner, 1, MEBIBYTE, 10)]
        group = MergeGroup([inner.get(LAYOUT.object_key(ref.object_id)).body for ref in refs])
        store.schedule(*[None] * number, Fault.SERVER_ERROR)
        try:
            with ThreadPoolExecutor(1) as pool:
                merge(store, group, refs, pool, SERVER_SIDE)
        except StoreError:
            assert (len(inner), inner.open_uploads) == (2, 0)
        else:
            break
        number += 1
    assert number >= 7
