"""The bytes in docs/reference/catalog-records.md and tables.md are those of the code."""

from __future__ import annotations

import re

import numpy as np
import zstandard

from accel.catalog import keys, records
from accel.catalog.keys import shard_key
from accel.catalog.stream_shards import shard_of, shards_of
from loaders.tables import Version
from loaders.tables.columns import COLUMNS_MAX, ROWS_A_BYTE, ROWS_FREE, ROWS_MAX, WINDOW_SIZE_BYTES_MAX
from loaders.tables.conditional_write import ENVELOPE_VERSION, VALUE_SIZE_BYTES_MAX, VALUE_START, Stored, encode_stored
from loaders.tables.format_record import FORMAT_SIZE_BYTES_MAX
from tests.accel.catalog.golden import golden_bytes
from tests.docs.pages import block_texts, cells, dumps, fields, page_named, section

PAGE = page_named("catalog-records").read_text()
FORMS = {each.name: each for each in records.ALL_FORMS}


def test_the_record_in_full_is_a_golden_file_and_what_stands_in_its_frame() -> None:
    record, unpacked = dumps("Example record")
    assert record == golden_bytes("node-checkpoint-1")
    frame = record[record.index(b"ACol") + 9 :]
    assert zstandard.ZstdDecompressor().decompress(frame, max_output_size=len(unpacked)) == unpacked


def test_the_record_in_full_says_what_it_is_said_to_say() -> None:
    found = records.CHECKPOINT.decode(dumps("Example record")[0], "docs/reference/catalog-records.md")
    assert (found.node_id, found.order_id) == (7, 39)
    assert found.ends["stream_id"].tolist() == [3, 17, 420_000]
    assert found.ends["end"].tolist() == [130, 900, 8_589_934_592]


def test_examples_of_the_hash_are_true() -> None:
    examples = fields(section("Stream shards"))
    assert len(examples) >= 5
    for stream_id, final, *buckets in examples:
        mixed = int(final, 16)
        assert [int(each) for each in buckets] == [mixed % count for count in (8, 32, 1000)]
        assert [int(each) for each in buckets] == [shard_of(int(stream_id), count) for count in (8, 32, 1000)]
        for count in (8, 32, 1000):
            assert shards_of(np.array([int(stream_id)]), count).tolist() == [shard_of(int(stream_id), count)]


def test_the_hash_as_the_page_writes_it_gives_its_example() -> None:
    [formula] = block_texts(section("Stream shards"))
    names = {"id": 420_000, "stream_buckets": 32}
    for line in formula.splitlines():
        name, _, expression = line.strip().partition(" = ")
        # The page writes mod, and drops what overflows; the text is our own.
        names[name] = eval(expression.replace("mod", "%"), {}, dict(names)) & (2**64 - 1)  # noqa: S307
    assert names["shard"] == shard_of(420_000, 32)
    assert f"`accel/tables/stream-buckets/{shard_key(names['shard'])}`" in section("Stream shards")


def test_each_table_and_form_stands_in_the_page() -> None:
    items = re.findall(r"^- `([a-z-]+)` in `([a-z-]+)`: \S", section("Keys of the catalog"), re.MULTILINE)
    named = {form: table for form, table in items if form in FORMS}
    assert named.keys() == FORMS.keys()
    assert set(named.values()) == set(keys.TABLES)


def test_bounds_stand_in_the_page() -> None:
    packed = " ".join(section("Packed columns").split())
    assert f"At most {ROWS_MAX:,} rows" in packed
    assert f"at most {ROWS_FREE:,} rows and {ROWS_A_BYTE} more for each byte" in packed
    assert f"1 to {COLUMNS_MAX} columns" in packed
    assert f"at most {WINDOW_SIZE_BYTES_MAX >> 20} MiB" in packed


def test_the_example_of_an_envelope_is_what_is_written() -> None:
    block = block_texts(section("Envelope"), "text")[-1]
    places = [re.split(r" {2,}", line.strip())[:2] for line in block.splitlines()]
    ends = [*(int(at) for at, _ in places[1:]), 173]
    shown = [
        bytes(end - int(at)) if text == "..." else bytes.fromhex(text)
        for (at, text), end in zip(places, ends, strict=True)
    ]
    stored = Stored(b"hello", Version("", 1, bytes(range(1, 17))))
    assert b"".join(shown) == encode_stored(stored, "words/greeting")


def test_fields_of_an_envelope_and_bounds_of_values_are_those_of_the_page() -> None:
    rows = {row[2]: row for row in fields(section("Envelope"))}
    assert int(rows["value"][0]) == VALUE_START
    assert rows["version"][3] == str(ENVELOPE_VERSION)
    bounds = {row[0]: row[1] for row in cells(section("Bounds")) if len(row) == 2}
    assert bounds["format record"] == f"{FORMAT_SIZE_BYTES_MAX >> 10} KiB"
    assert bounds["any other"] == f"{VALUE_SIZE_BYTES_MAX >> 20} MiB"
    assert f"{records.NODES_MAX:,} nodes" in bounds["directory of nodes"]
