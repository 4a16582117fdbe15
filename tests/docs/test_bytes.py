"""Bytes, keys and bounds that pages of docs/reference show are those of the code and of the golden files."""

from __future__ import annotations

import re
from uuid import UUID

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from accel.catalog import job_runs, records
from accel.catalog import keys as catalog_keys
from accel.history.records import ALL_FORMS
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.transactions import COMMITTED_AT_ONCE_MAX
from accel.history.store import keys
from accel.streams.rules.events import WriterRun, decode_events, encode_events, run_of
from accel.streams.rules.routing import key_position
from accel.streams.rules.transaction_data import TransactionEvents, encode_transaction
from bloom import StreamFilter
from bloom.filter_store import FilterStore
from loaders.errors import CorruptObject
from loaders.format import RecordBatch
from loaders.layout import merging_key, number_table_key, time_part_key, transaction_key
from loaders.tables import Version
from loaders.tables.columns import COLUMNS_MAX, ROWS_A_BYTE, ROWS_FREE, ROWS_MAX, WINDOW_SIZE_BYTES_MAX
from loaders.tables.conditional_write import VALUE_SIZE_BYTES_MAX, Stored, encode_stored
from loaders.tables.format_record import FORMAT_SIZE_BYTES_MAX
from range_index import ObjectRanges
from range_index.epoch_times import Block, BlockKind
from range_index.stream_index import ARRAY_BYTES_MAX, StreamRangeIndex
from tests.accel.catalog.golden import golden_bytes
from tests.docs.pages import block_texts, cells, code, dumps, page_named, section

RUN = WriterRun(UUID("00112233-4455-6677-8899-aabbccddeeff").bytes, 40, 44, 38)
PLAIN, NUMBERED = dumps("Events")
OPERATIONS = page_named("operations").read_text()


def ranges_of(ids: NDArray[np.int64], start: int) -> ObjectRanges:
    return ObjectRanges.from_columns(ids, np.full(len(ids), start), np.full(len(ids), start + 10))


def test_the_memory_of_arrays_and_the_objects_in_it_are_what_the_page_on_operations_says() -> None:
    index = StreamRangeIndex(timer=lambda: 0.0, jitter=lambda: 0.5)
    ids = np.arange(9_000, dtype=np.int64) * 7
    for number in range(100):
        index.insert(4, number, ranges_of(ids, 10 * number))
    each = index.stats().array_bytes / 900_000
    line = re.search(r"^- Arrays: (\d+)·n·s bytes, (\d+) MB; .* about ([\d,]+) objects\.$", OPERATIONS, re.MULTILINE)
    assert line is not None
    assert (int(line[1]), int(line[2])) == (round(each), round(each) * 45)
    assert int(line[3].replace(",", "")) == pytest.approx(ARRAY_BYTES_MAX / each / 9_000, rel=0.01)


def test_the_memory_of_filters_and_what_a_small_bound_keeps_are_what_the_page_on_operations_says() -> None:
    one = StreamFilter.build(np.arange(9_000, dtype=np.int64))

    def filled(bytes_max: int, nodes: int, objects: int) -> FilterStore:
        store = FilterStore(bytes_max)
        for number in range(objects):
            for node in range(nodes):
                store.add(node, number, one)
        return store

    sizes = [round(filled(10**9, 1, objects).nbytes / 1000) for objects in (1, 64)]
    kept = [len(filled(500_000, nodes, objects)) for nodes, objects in ((100, 1), (1, 100))]
    words = " ".join(OPERATIONS.split())
    assert f"takes {sizes[0]} kB, also the first eight together; 64 take {sizes[1]} kB" in words
    assert f"of 500 kB keeps {kept[0]} of 100 nodes with one object each, and {kept[1]} filter of a node" in words


def test_dumps_are_what_is_written_of_what_the_pages_name() -> None:
    paid = [b"paid", b"", b"shipped"]
    assert [encode_events(paid, 1_760_000_000_123, each) for each in (None, RUN)] == [PLAIN, NUMBERED]
    positions = np.array([key_position(b"order-17"), key_position(b"order-18")])
    assert [encode_transaction(TransactionEvents(positions, (b"paid", b"shipped")))] == dumps("Data of a transaction")
    record, unpacked = dumps("Example record")
    assert record == golden_bytes("node-checkpoint-1")
    frame = record[record.index(b"ACol") + 9 :]
    assert zstandard.ZstdDecompressor().decompress(frame, max_output_size=len(unpacked)) == unpacked
    envelope = re.findall(r"^ *\d+  (\S+(?: \S+)*)", block_texts(section("Envelope"), "text")[-1], re.MULTILINE)
    shown = b"".join(bytes(128) if each == "..." else bytes.fromhex(each) for each in envelope)
    assert shown == encode_stored(Stored(b"hello", Version("", 1, bytes(range(1, 17)))), "words/greeting")


@pytest.mark.parametrize(("unit", "ends"), [(OffsetUnit.RECORDS, [101, 102, 103]), (OffsetUnit.BYTES, [108, 112, 123])])
def test_events_take_the_offsets_that_the_page_says_with_numbers_or_without(unit: OffsetUnit, ends: list[int]) -> None:
    for data, run in ((PLAIN, None), (NUMBERED, (RUN, 1_760_000_000_123))):
        batch = RecordBatch(7, 1, 100, ends[-1] - 100, data)
        found, is_timed = decode_events(batch, segment_id=3, unit=unit)
        assert ([each.next_offset for each in found], is_timed, run_of(batch)) == (ends, True, run)
    other = RecordBatch(7, 1, 100, 5, b"AEv")
    found, is_timed = decode_events(other, segment_id=3, unit=unit)
    whole = [(each.offset, each.next_offset, each.value, each.payload) for each in found]
    assert (whole, is_timed, run_of(other)) == ([(100, 105, 0, b"AEv")], False, None)


@pytest.mark.parametrize(
    ("data", "at", "wrong"),
    [
        *((PLAIN, 4, "03"), (PLAIN, 4, "02"), (PLAIN, 16, "00000000"), (PLAIN, 16, "00000006")),  # version, count
        *((NUMBERED, 20, "00" * 16), (NUMBERED, 36, f"{43:016x}")),  # no writer; the first number
        *((NUMBERED, 44, f"{2**63 - 1:016x}"), (NUMBERED, 52, f"{41:016x}")),  # the last one; what is settled
    ],
)
def test_events_that_the_page_says_are_refused(data: bytes, at: int, wrong: str) -> None:
    damaged = data[:at] + bytes.fromhex(wrong) + data[at + len(wrong) // 2 :]
    for payload, count in ((damaged, 3), (PLAIN[:19], 3), (data[:-1], 3), (NUMBERED[:59], 3), (data, 4)):
        with pytest.raises(CorruptObject):
            decode_events(RecordBatch(7, 1, 100, count, payload), segment_id=3, unit=OffsetUnit.RECORDS)


def told_keys(heading: str) -> dict[str, list[str]]:
    """Keys of a page, a 7 where they explain something, and the code in what is said of them."""
    items = re.findall(r"^- (`.+?`): (.+)$", section(heading), re.MULTILINE)
    return {re.sub(r"<[^>]+>", "7", each): code(said) for told, said in items for each in code(told)}


def test_keys_and_tables_are_those_of_the_code_and_each_form_has_one() -> None:
    told = told_keys("Keys of a history")
    assert {each.name for each in ALL_FORMS} <= {form for forms in told.values() for form in forms}
    stream, part = keys.StreamIdentity("7", "7", UUID(int=7)), Block(BlockKind.PART, 7, 1)
    named = [
        *(*keys.SYSTEM_TABLES, keys.completed_table(7), keys.streams_table("7", stream.unique_id)),
        *(stream.metadata_table, stream.epochs_table, stream.transactions_table(7), stream.reader_groups_table),
        *(keys.CREATION_TIME, keys.LAYOUT, keys.CONFIGURATION, keys.STATE, keys.TRUNCATION, keys.COMMIT_ORDER),
        *(keys.CURRENT_EPOCH, keys.TIMES_ROOT, keys.RETENTION, f"{keys.REQUESTS_PREFIX}7"),
        *(keys.epoch_key(7), keys.chunk_key(7), keys.sealed_epoch_key(7), keys.shard_key(7), keys.cut_key(7)),
        *(keys.segment_stream_key(7), keys.times_key(part), keys.times_key(part._replace(kind=BlockKind.LEAF))),
    ]
    assert told.keys() == {each.replace(str(stream.unique_id), "7") for each in named}
    in_catalog = told_keys("Keys of the catalog")
    forms = dict(re.findall(r"^- `([a-z-]+)` in `([a-z-]+)`: \S", section("Keys of the catalog"), re.MULTILINE))
    assert forms.keys() - {"format"} == {each.name for each in (*records.ALL_FORMS, job_runs.JOB_RUNS_FORM)}
    assert set(forms.values()) == {*catalog_keys.TABLES, catalog_keys.JOB_RUNS}
    data = transaction_key(UUID(int=7), UUID(int=7))
    shown = (number_table_key(7, 7), time_part_key(7, 7), data, merging_key(7, 7, 7))
    assert {re.sub(r"0[0-]+7", "7", each) for each in shown} <= in_catalog.keys()


def test_bounds_are_those_of_the_code() -> None:
    packed, rules = (" ".join(section(each).split()) for each in ("Packed columns", "Rules of a history"))
    assert f"1 to {COLUMNS_MAX} columns" in packed
    assert f"At most {ROWS_MAX:,} rows, and at most {ROWS_FREE:,} rows and {ROWS_A_BYTE} more for each byte" in packed
    assert f"at most {WINDOW_SIZE_BYTES_MAX >> 20} MiB" in packed
    assert f"at most {COMMITTED_AT_ONCE_MAX:,}" in rules
    bounds = {row[0]: row[1] for row in cells(section("Bounds"))}
    assert bounds["format record"] == f"{FORMAT_SIZE_BYTES_MAX >> 10} KiB"
    assert bounds["runs of a job"] == f"{job_runs.JOB_RUNS_SIZE_BYTES_MAX >> 10} KiB"
    assert bounds["any other"] == f"{VALUE_SIZE_BYTES_MAX >> 20} MiB"
    assert f"{records.NODES_MAX:,} nodes" in bounds["directory of nodes"]
