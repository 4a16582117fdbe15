"""What docs/reference/history-records.md says of the bytes of stream history is what the code has."""

from __future__ import annotations

import re
from uuid import UUID

from accel.history.records import ALL_FORMS, HISTORY_CHUNK, RETENTION_SET
from accel.history.rules.transactions import COMMITTED_AT_ONCE_MAX
from accel.history.rules.values import segment_text
from accel.history.store import keys
from loaders.layout import TABLES_PREFIX, table_folder, value_key
from range_index.epoch_times import Block, BlockKind
from tests.accel.history.records.golden import golden_bytes
from tests.docs.pages import code, dumps, fields, page_named, section

TEXT = page_named("history-records").read_text()
FORMS = {form.name: form for form in ALL_FORMS}
STREAM = keys.StreamIdentity("shop", "orders", UUID("12345678-1234-5678-8234-567812345678"))


def test_the_record_in_full_is_a_golden_file() -> None:
    [record] = dumps("Example record of a history")
    assert record == golden_bytes("retention-set-1")
    assert f"{len(record)} bytes" in section("Example record of a history")


def test_the_record_in_full_says_what_it_is_said_to_say() -> None:
    found = RETENTION_SET.decode(dumps("Example record of a history")[0], "docs/reference/history-records.md")
    first_ms = 1_760_000_000_123
    assert found.times_ms.tolist() == [first_ms, first_ms + 33 + 1_799_984, first_ms + 33 + 2 * 1_799_984]
    assert found.sizes.tolist() == [0, 2**33, 2**33]


def items() -> list[tuple[str, str]]:
    """What the page says is where: a table and its keys, or keys of a stream's table and their form."""
    return re.findall(r"^- (`.+?`): (.+)$", section("Keys of a history"), re.MULTILINE)


def tables() -> dict[str, str]:
    """The tables of the page, and what it says of their keys."""
    return {code(told)[0]: said for told, said in items() if told.startswith(("`_system/", "`<scope>/"))}


def test_every_form_lies_somewhere() -> None:
    assert set(FORMS) - {each for _, said in items() for each in code(said)} == set()


def told_keys() -> set[str]:
    """Keys of a stream's table as the page has them, with a number where it explains one."""
    keys_of_metadata = [told for told, _ in items() if code(told)[0] not in tables()]
    return {re.sub(r"<[^>]+>", "7", each) for told in keys_of_metadata for each in code(told)}


def test_the_keys_of_a_stream_are_those_of_the_page() -> None:
    block = Block(BlockKind.PART, 7, 1)
    names = {
        *(keys.CREATION_TIME, keys.LAYOUT, keys.CONFIGURATION, keys.STATE),
        *(keys.TRUNCATION, keys.COMMIT_ORDER, keys.CURRENT_EPOCH, keys.TIMES_ROOT),
        *(keys.RETENTION, keys.epoch_key(7), keys.chunk_key(7)),
        *(keys.times_key(block), keys.times_key(block._replace(kind=BlockKind.LEAF))),
        *(keys.sealed_epoch_key(7), keys.shard_key(7), keys.cut_key(7)),
        keys.segment_stream_key(7),
        f"{keys.REQUESTS_PREFIX}7",
    }
    assert told_keys() == names


def test_the_tables_are_those_of_the_page() -> None:
    filled = {"scope": "shop", "stream": "orders", "scope id": STREAM.unique_id, "stream id": STREAM.unique_id}

    def fill(found: re.Match[str]) -> str:
        return str(filled.get(found[1], 7))

    assert {re.sub(r"<([^>]+)>", fill, each) for each in tables()} == {
        *keys.SYSTEM_TABLES,
        keys.completed_table(7),
        keys.streams_table("shop", STREAM.unique_id),
        STREAM.metadata_table,
        STREAM.epochs_table,
        STREAM.transactions_table(7),
        STREAM.metadata_table.replace("/metadata.", "/readerGroups."),
    }
    assert f"`{value_key(table_folder(TABLES_PREFIX, STREAM.metadata_table), keys.STATE)}`" in TEXT
    assert code(tables()[keys.COUNTERS])[:2] == [keys.TRANSACTION_IDS, keys.SEGMENT_STREAMS]


def test_the_example_of_a_chunk_is_its_golden_file() -> None:
    chunk = HISTORY_CHUNK.decode(golden_bytes("history-chunk-1"), "golden")
    shown = {int(row[0]): row for row in fields(section("Rules of a history"))}
    assert sorted(shown) == chunk.epochs.tolist()
    for delta in chunk:
        row = shown[delta.epoch]
        assert int(row[1].split(":")[0]) == delta.epoch - delta.reference_epoch
        assert row[2] == ", ".join(segment_text(each) for each in delta.created.ids.tolist())
        assert row[3] == ", ".join(str(delta.time_ms - each.creation_time_ms) for each in delta.created)
        assert row[4] == ", ".join(segment_text(each) for each in delta.sealed.ids.tolist())


def test_bounds_stand_in_the_page() -> None:
    assert f"at most {COMMITTED_AT_ONCE_MAX:,}" in TEXT
