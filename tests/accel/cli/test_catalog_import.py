"""`accel adopt import` tells what a bucket holds, and makes a catalog of it when told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from loaders.layout import TABLES_PREFIX, ObjectLayout
from loaders.store import ObjectStore, open_store
from tests.accel.cli.worlds import run
from tests.builders import write_set_object

LAYOUT = ObjectLayout(namespace="shop")
NODES = {1: 4, 2: 4, 5: 7}


def put(store: ObjectStore, object_id: int, *rows: tuple[int, int, int]) -> None:
    store.put(LAYOUT.object_key(object_id), write_set_object(rows))


def fill(store: ObjectStore) -> None:
    put(store, 1, (1, 0, 10), (2, 0, 5))
    put(store, 2, (1, 10, 20), (2, 7, 9))
    put(store, 5, (1, 20, 30))


@pytest.fixture
def url() -> str:
    """A store with three objects and an empty catalog."""
    url = f"memory://{uuid4().hex}"
    assert run("catalog", "init", "--store", url, "--namespace", "shop", "--stream-buckets", "4").exit_code == 0
    fill(open_store(url))
    return url


def keys(url: str) -> list[str]:
    return [info.key for info in open_store(url).list("")]


def found(*args: str, exit_code: int = 0) -> dict[str, Any]:
    result = run("adopt", "import", *args, "--output", "json")
    assert result.exit_code == exit_code, result.stderr
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def failed(*args: str) -> str:
    result = run("adopt", "import", *args, "--output", "json")
    assert (result.exit_code, result.stdout) == (1, "")
    error = json.loads(result.stderr)
    assert error["type"] == "MaintenanceRefused"
    return str(error["message"])


def live(url: str) -> int:
    return int(json.loads(run("catalog", "status", "--store", url, "--output", "json").stdout)["total"]["live"])


def test_without_yes_it_only_tells(url: str) -> None:
    before = keys(url)
    told = found("--store", url, "--node", "4")
    assert keys(url) == before
    assert live(url) == 0
    assert told["written"] is False
    assert (told["objects"], told["streams"], told["overlaps"], told["holes"]) == (3, 2, 0, 1)
    assert told["missing"] == [{"stream_id": 2, "start": 5, "end": 7, "object_id": -1}]
    assert told["hindrances"] == []
    assert {**found("--store", url, "--node", "4", "--yes"), "written": False} == told


def test_text_has_a_table_the_holes_and_a_sentence(url: str) -> None:
    lines = run("adopt", "import", "--store", url, "--node", "4").stdout.splitlines()
    assert lines[0].split() == ["node", "objects", "open", "streams", "size"]
    assert lines[-3] == "HOLE        stream 2: [5, 7)"
    assert lines[-2].startswith("3 objects, ")
    assert lines[-2].endswith(", 1 node, 2 streams: 0 overlaps, 1 hole")
    assert lines[-1] == "nothing is written without --yes"
    assert run("adopt", "import", "--store", url, "--node", "4", "--yes").stdout.splitlines()[-1] == "imported"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(NODES),
        "1,4\n2,4\n5,7\n",
        "object_id,node_id\n1,4\n\n2, 4\n5,7",
    ],
    ids=["json", "lines", "lines with a head"],
)
def test_nodes_come_from_a_file(url: str, tmp_path: Path, text: str) -> None:
    path = tmp_path / "nodes"
    path.write_text(text)
    nodes = found("--store", url, "--nodes", str(path), "--yes")["nodes"]
    assert [(each["node_id"], each["objects"]) for each in nodes] == [(4, 2), (7, 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,4\n2", "line 2: expected object_id,node_id, found '2'"),
        ("1,x", "expected an object id and a node id, found '1' and 'x'"),
        ("1,4\n1,5", "line 2: expected one node for object 1"),
        ('{"1": null}', "expected an object id and a node id, found '1' and None"),
        ('{"1"', "Expecting"),
        ("1,-4", "found '1' and '-4'"),
    ],
)
def test_a_file_that_says_nothing_is_wrong_usage(url: str, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "nodes"
    path.write_text(text)
    result = run("adopt", "import", "--store", url, "--nodes", str(path))
    assert result.exit_code == 2
    assert said in result.stderr


def test_offsets_held_twice_end_with_1_and_write_nothing(url: str) -> None:
    put(open_store(url), 9, (1, 5, 15))
    told = found("--store", url, "--node", "4", "--yes", exit_code=1)
    assert (told["written"], told["overlaps"], live(url)) == (False, 1, 0)
    assert told["overlapping"][0] == {
        "stream_id": 1,
        "start": 5,
        "end": 15,
        "earlier_ids": [1, 5],
        "later_ids": [9, 9],
    }
    lines = run("adopt", "import", "--store", url, "--node", "4").stdout.splitlines()
    assert "OVERLAP     stream 1: [5, 15) in one of objects 1 to 5 and in object 9" in lines
    assert lines[-1] == "cannot be imported: expected each offset in one object, found overlaps: 1"


def test_objects_can_be_left_out(url: str) -> None:
    put(open_store(url), 9, (1, 5, 15))
    told = found("--store", url, "--node", "4", "--leave-out", "9", "--yes")
    assert (told["keys"], told["objects"], told["left_out"], live(url)) == (4, 3, 1, 3)


def test_bad_objects_can_be_skipped(url: str) -> None:
    open_store(url).put(LAYOUT.object_key(9), b"?" * 100)
    told = found("--store", url, "--node", "4", exit_code=1)
    assert [each["object_id"] for each in told["not_listable"]] == [9]
    result = run("adopt", "import", "--store", url, "--node", "4", "--skip-bad", "--yes")
    assert result.exit_code == 0
    assert "1 object left out; prepared, so that no collection deletes them" in result.stdout.splitlines()
    assert result.stdout.startswith("node")
    assert live(url) == 3


def test_an_import_that_cannot_go_on_is_abandoned(url: str) -> None:
    put(open_store(url), 9, (1, 5, 15))
    before = keys(url)
    found("--store", url, "--node", "4", "--yes", exit_code=1)
    assert any(key.startswith(f"{TABLES_PREFIX}import-progress") for key in keys(url))
    assert found("--store", url, "--abandon") == {"abandoned": True}
    assert keys(url) == before
    assert run("adopt", "import", "--store", url, "--abandon").stdout == "no import was under way\n"


@pytest.mark.parametrize("args", [(), ("--node", "4", "--abandon"), ("--node", "-1"), ("--nodes", "missing.csv")])
def test_wrong_usage_is_told(url: str, args: tuple[str, ...]) -> None:
    assert run("adopt", "import", "--store", url, *args).exit_code == 2


def test_an_import_that_finds_nothing_says_what_lies_there() -> None:
    url = f"memory://{uuid4().hex}"
    assert run("catalog", "init", url, "--namespace", "shop").exit_code == 0
    put(open_store(url), 9, (1, 5, 15))
    open_store(url).put("logs/00000000/other/0", b"?")
    assert run("catalog", "init", f"{url}/deep", "--namespace", "logs").exit_code == 0
    before = keys(url)
    result = run("adopt", "import", f"{url}/deep", "--node", "4", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"error: expected objects of namespace 'logs' at {url}/deep, found none" in result.stderr
    there = "objects: 1 of namespace 'shop', 1 of namespace 'other' below logs/"
    assert f"other keys; in the whole bucket: {there}" in result.stderr
    assert keys(url) == before
