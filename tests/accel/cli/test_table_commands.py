"""`accel table` lists tables and keys, and shows values as people can read them."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.keys import TABLES
from accel.history.store.keys import SYSTEM_TABLES
from accel.system import SYSTEM
from loaders.store import open_store
from loaders.tables import FormatRecord, Tables, raw_key
from tests.accel.cli.worlds import run


@pytest.fixture
def url() -> str:
    """A store with a catalog whose node has promised ids."""
    url = f"memory://{uuid4().hex}"
    store = open_store(url)
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=4))
    with ObjectCatalog.open(store) as catalog, catalog.open_node(4) as writer:
        writer.prepare(30)
    return url


def test_tables_are_listed(url: str) -> None:
    assert run("table", "--store", url).stdout.split() == sorted((*TABLES, *SYSTEM_TABLES))
    found = json.loads(run("table", "--store", url, "--prefix", "node", "--output", "json").stdout)
    assert found == {"tables": [each for each in sorted(TABLES) if each.startswith("node")], "more": False}


def test_a_list_of_tables_goes_on_after_one(url: str) -> None:
    names = run("table", "--store", url).stdout.split()
    assert run("table", "--store", url, "--after", names[1]).stdout.split() == names[2:]


def test_keys_are_listed_and_bounded(url: str) -> None:
    everything = ("table", "stream-buckets", "--store", url)
    assert run(*everything).stdout.split() == ["00000", "00001", "00002", "00003"]
    assert run(*everything, "--after", "00002").stdout.split() == ["00003"]
    assert run(*everything, "--prefix", "00001").stdout.split() == ["00001"]
    some = run(*everything, "--limit", "2", "--output", "json")
    assert json.loads(some.stdout) == {"keys": ["00000", "00001"], "more": True}
    assert "--after" in some.stderr


def test_a_name_cannot_move_the_cursor(url: str) -> None:
    tables = Tables(open_store(url), nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)
    tables.create_table("odd\x1b[2J")
    assert "odd\\x1b[2J" in run("table", "--store", url).stdout


def test_a_value_is_shown_with_its_sequence_and_form(url: str) -> None:
    found = json.loads(run("table", "counters", "object-ids", "--store", url, "--output", "json").stdout)
    assert list(found) == [*("table", "key", "sequence", "form", "form_version", "size_bytes", "record", "left_out")]
    assert (found["sequence"], found["form"], found["form_version"]) == (2, "object-id-counter", 1)
    assert found["record"] == {"next_object_id": 1024}


def test_columns_are_shown_as_rows_and_bounded(url: str) -> None:
    command = ("table", "node-lists", "0000000004", "--store", url)
    found = json.loads(run(*command, "--limit", "3", "--output", "json").stdout)
    rows = found["record"]["prepared"]
    assert [list(row) for row in rows] == [["object_id", "deadline_ms"]] * 3
    shown = json.loads(run(*command, "--limit", "0", "--output", "json").stdout)
    assert (len(shown["record"]["prepared"]), shown["left_out"]) == (3 + found["left_out"]["record.prepared"], {})
    text = run(*command).stdout
    assert "form node-list version 1" in text
    assert "(--limit 0 shows all)" in text


@pytest.mark.parametrize(
    ("args", "kind"),
    [(("nowhere", "key"), "TableMissing"), (("counters", "nothing"), "DataNotFound"), (("nowhere",), "TableMissing")],
)
def test_what_is_missing_is_told(url: str, args: tuple[str, ...], kind: str) -> None:
    result = run("table", *args, "--store", url, "--output", "json")
    assert (result.exit_code, json.loads(result.stderr)["type"]) == (1, kind)


def test_a_value_of_an_unknown_form_is_refused(url: str) -> None:
    tables = Tables(open_store(url), nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)
    tables.create_table("owners")
    raw_key(tables.table("owners"), "one").create(b"\x05alien\x00\x01rest")
    result = run("table", "owners", "one", "--store", url, "--output", "json")
    assert (result.exit_code, json.loads(result.stderr)["type"]) == (1, "FormatTooNew")


def test_a_name_that_is_none_is_wrong_usage(url: str) -> None:
    assert run("table", "", "key", "--store", url).exit_code == 2
