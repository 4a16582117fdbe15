"""What docs/reference/formats.md says of the catalog's bytes is what the code has."""

from __future__ import annotations

import re

import numpy as np
import pytest
import zstandard

from accel.catalog import keys, records
from accel.catalog.keys import shard_key
from accel.catalog.stream_shards import shard_of, shards_of
from accel.history.records import ALL_FORMS
from accel.streams.groups import READER_GROUP
from accel.streams.owners import OWNER
from accel.streams.rules import events, transaction_data
from accel.streams.uploads import MERGE_INTENT
from accel.streams.writer_numbers import NUMBER_TABLE
from loaders.tables import FORMAT_FORM, FormRegistry
from loaders.tables.columns import COLUMNS_MAX, ROWS_A_BYTE, ROWS_FREE, ROWS_MAX, VERSION
from loaders.tables.envelope import ENVELOPE_VERSION
from loaders.tables.format_record import FORMAT_VERSION, STREAM_BUCKETS_MAX, FormatRecord
from tests.accel.catalog.golden import golden_bytes
from tests.docs.pages import page_named

PAGE = page_named("formats").read_text()
FORMS = {
    each.name: each
    for each in (
        records.NODE_DIRECTORY,
        records.NODE_LIST,
        records.LIST_VERSION,
        records.STREAM_SHARD,
        records.CHECKPOINT,
        records.OBJECT_ID_COUNTER,
        records.IMPORT_RUN,
        records.IMPORT_BATCH,
    )
}
KINDS = {
    "live object": records.LIVE,
    "prepared id": records.PREPARED,
    "retired object": records.RETIRED,
    "stream": records.STREAM,
    "owned range": records.OWNED_RANGE,
    "stream object": records.STREAM_OBJECT,
    "retired stream object": records.RETIRED_STREAM_OBJECT,
    "stream end": records.STREAM_END,
    "sketch": records.SKETCH,
    "released range": records.RELEASED,
    "time record": records.TIME_RECORD,
    "writer number": records.WRITER_NUMBER,
    "read object": records.READ_OBJECT,
    "read range": records.READ_RANGE,
}
_DUMP_LINE = re.compile(r" *(?P<at>\d+)  (?P<bytes>[0-9a-f]+( [0-9a-f]+)*)(  .*)?")


def section(heading: str) -> str:
    """What stands under a heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def cells(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    marks = [at for at, row in enumerate(split) if set(row[0]) == {"-"}]
    return [row for at, row in enumerate(split) if at not in marks and at + 1 not in marks]


def code(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


def dumps(heading: str) -> list[bytes]:
    """The bytes of a section's hexadecimal dumps; each line has to begin at the position that it names."""
    found = []
    for block in re.findall(r"^```\n(.*?)^```$", section(heading), re.MULTILINE | re.DOTALL):
        data = b""
        for line in block.splitlines():
            match = _DUMP_LINE.fullmatch(line)
            assert match, line
            assert int(match["at"]) == len(data), line
            data += bytes.fromhex(match["bytes"])
        found.append(data)
    return found


def test_the_record_in_full_is_a_golden_file_and_what_stands_in_its_frame() -> None:
    record, unpacked = dumps("A record in full")
    assert record == golden_bytes("node-checkpoint-1")
    frame = record[record.index(b"ACol") + 9 :]
    assert zstandard.ZstdDecompressor().decompress(frame, max_output_size=len(unpacked)) == unpacked


def test_the_record_in_full_says_what_it_is_said_to_say() -> None:
    found = records.CHECKPOINT.decode(dumps("A record in full")[0], "docs/reference/formats.md")
    assert (found.node_id, found.order_id) == (7, 39)
    assert found.ends["stream_id"].tolist() == [3, 17, 420_000]
    assert found.ends["end"].tolist() == [130, 900, 8_589_934_592]


def test_examples_of_the_hash_are_true() -> None:
    examples = [row for row in cells(section("Stream shards")) if row[0].isdigit()]
    assert len(examples) >= 5
    for stream_id, final, *buckets in examples:
        mixed = int(final.strip("`"), 16)
        assert [int(each) for each in buckets] == [mixed % count for count in (8, 32, 1000)]
        assert [int(each) for each in buckets] == [shard_of(int(stream_id), count) for count in (8, 32, 1000)]
        for count in (8, 32, 1000):
            assert shards_of(np.array([int(stream_id)]), count).tolist() == [shard_of(int(stream_id), count)]


def test_the_hash_as_the_page_writes_it_gives_its_steps() -> None:
    formula = re.search(r"```\n(.*?)```", section("Stream shards"), re.DOTALL)
    assert formula
    names = {"id": 420_000, "stream_buckets": 32}
    steps = []
    for line in formula[1].splitlines():
        name, _, expression = line.strip().partition(" = ")
        # The page writes mod, and drops what overflows; the text is our own.
        names[name] = eval(expression.replace("mod", "%"), {}, dict(names)) & (2**64 - 1)  # noqa: S307
        steps.append(names["z"])
    assert f"In steps for stream 420000: {', '.join(f'`{each:016X}`' for each in steps[:4])}." in PAGE
    assert names["shard"] == shard_of(420_000, 32)
    assert f"`accel/tables/stream-buckets/{shard_key(names['shard'])}`" in section("Stream shards")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_rows_has_the_columns_that_the_page_names(kind: str) -> None:
    named = {row[0]: row[1] for row in cells(section("Rows")) if not row[0].startswith("`")}
    assert named.keys() == KINDS.keys()
    columns = code(named[kind])
    base = re.match(r"those of a ([a-z ]+),", named[kind])
    inherited = list(KINDS[base[1]].names or ()) if base else []
    assert tuple(inherited + columns) == KINDS[kind].names


def test_each_column_is_explained() -> None:
    explained = [name for row in cells(section("Rows")) if row[0].startswith("`") for name in code(row[0])]
    assert len(set(explained)) == len(explained)
    assert set(explained) == {name for dtype in KINDS.values() for name in dtype.names or ()}


def test_each_form_stands_in_the_page_with_its_fields_in_their_order() -> None:
    text = section("Records")
    for name, form in {**FORMS, "format": FORMAT_FORM}.items():
        start = text.index(f"**`{name}`**")
        part = text[start : text.find("\n**`", start + 1) if "\n**`" in text[start + 1 :] else len(text)]
        shown = [each for each in code(part) if each in form.struct.__struct_fields__]
        assert tuple(dict.fromkeys(shown)) == form.struct.__struct_fields__, name


def test_each_table_and_form_stands_in_the_page() -> None:
    rows_of_forms = [row for row in cells(section("Records")) if len(row) == 4 and code(row[0])]
    named = {code(row[0])[0]: code(row[1])[0] for row in rows_of_forms if code(row[0])[0] in FORMS}
    assert named.keys() == FORMS.keys()
    assert set(named.values()) == {*keys.TABLES, keys.IMPORT_PROGRESS}


def test_no_form_is_left_out() -> None:
    registry = FormRegistry()
    registry.register(*records.ALL_FORMS)
    assert registry.names() == sorted(FORMS)


def test_every_version_stands_in_the_page() -> None:
    shown = {row[0].strip("`"): row[2:] for row in cells(section("Which release writes what"))}
    versions = {name: form.version for name, form in {**FORMS, "format": FORMAT_FORM}.items()}
    versions |= {form.name: form.version for form in (READER_GROUP, OWNER, MERGE_INTENT, NUMBER_TABLE)}
    versions |= {"layout of the bucket": FORMAT_VERSION, "envelope": ENVELOPE_VERSION, "packed columns": VERSION}
    versions |= {"data of a transaction": transaction_data.VERSION}
    [versions["each form of [stream history](#stream-history)"]] = {form.version for form in ALL_FORMS}
    expected = {name: ["1" if version == 1 else f"1 to {version}", str(version)] for name, version in versions.items()}
    expected["envelope"] = [str(ENVELOPE_VERSION)] * 2  # version 1 was never released
    expected["list of events"] = [
        f"1 to {events.NUMBERED_VERSION}",
        f"{events.NUMBERED_VERSION}; 1 where events have no numbers",
    ]
    assert shown == expected


def test_bounds_stand_in_the_page() -> None:
    assert f"At most {ROWS_MAX:,} rows" in section("Packed columns")
    assert f"at most {ROWS_FREE:,} rows and {ROWS_A_BYTE} more for each byte" in section("Packed columns")
    assert f"1 to {COLUMNS_MAX} " in section("Packed columns")
    assert f"1 to {STREAM_BUCKETS_MAX:,}" in section("Records")
    fields = [code(row[0])[0] for row in cells(section("Records")) if len(row) == 4 and code(row[0])]
    assert set(FormatRecord.__struct_fields__) <= set(fields)
