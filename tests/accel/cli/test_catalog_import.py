"""`accel adopt import` tells what a bucket holds, and makes a catalog of it when told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loaders.layout import TABLES_PREFIX, ObjectLayout
from tests.accel.cli.worlds import Bucket, run
from tests.builders import write_set_object

LAYOUT = ObjectLayout(namespace="shop")
NODES = {1: 4, 2: 4, 5: 7}


class Shop(Bucket):
    """A bucket with three objects and an empty catalog."""

    def __init__(self) -> None:
        super().__init__()
        self.done("catalog init --namespace shop --stream-buckets 4")
        self.put(1, (1, 0, 10), (2, 0, 5))
        self.put(2, (1, 10, 20), (2, 7, 9))
        self.put(5, (1, 20, 30))

    def put(self, object_id: int, *rows: tuple[int, int, int]) -> None:
        self.store.put(LAYOUT.object_key(object_id), write_set_object(rows))

    def imported(self, *args: str, code: int = 0) -> dict[str, Any]:
        told: dict[str, Any] = self.json("adopt import", *args, code=code)
        return told

    @property
    def live(self) -> int:
        return int(self.json("catalog status")["total"]["live"])


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_without_yes_it_only_tells(shop: Shop) -> None:
    before = shop.state()
    told = shop.imported("--node", "4")
    assert shop.state() == before
    assert shop.live == 0
    assert told["written"] is False
    assert (told["objects"], told["streams"], told["overlaps"], told["holes"]) == (3, 2, 0, 1)
    assert told["missing"] == [{"stream_id": 2, "start": 5, "end": 7, "object_id": -1}]
    assert told["hindrances"] == []
    assert {**shop.imported("--node", "4", "--yes"), "written": False} == told


def test_text_has_a_table_the_holes_and_a_sentence(shop: Shop) -> None:
    lines = shop.run("adopt import", "--node", "4").stdout.splitlines()
    assert lines[0].split() == ["node", "objects", "open", "streams", "size"]
    assert lines[-3] == "HOLE        stream 2: [5, 7)"
    assert lines[-2].startswith("3 objects, ")
    assert lines[-2].endswith(", 1 node, 2 streams: 0 overlaps, 1 hole")
    assert lines[-1] == "nothing is written without --yes"
    assert shop.run("adopt import", "--node", "4", "--yes").stdout.splitlines()[-1] == "imported"


@pytest.mark.parametrize(
    "text",
    [json.dumps(NODES), "1,4\n2,4\n5,7\n", "object_id,node_id\n1,4\n\n2, 4\n5,7", "\ufeff1,4\r\n2,4\r\n5,7\r\n"],
    ids=["json", "lines", "lines with a head", "lines of Windows"],
)
def test_nodes_come_from_a_file(shop: Shop, tmp_path: Path, text: str) -> None:
    path = tmp_path / "nodes"
    path.write_bytes(text.encode())
    nodes = shop.imported("--nodes", str(path), "--yes")["nodes"]
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
def test_a_file_that_says_nothing_is_wrong_usage(shop: Shop, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "nodes"
    path.write_text(text)
    result = shop.run("adopt import", "--nodes", str(path))
    assert result.exit_code == 2
    assert said in result.stderr


def test_offsets_held_twice_end_with_1_and_write_nothing(shop: Shop) -> None:
    shop.put(9, (1, 5, 15))
    told = shop.imported("--node", "4", "--yes", code=1)
    assert (told["written"], told["overlaps"], shop.live) == (False, 1, 0)
    assert told["overlapping"][0] == {"stream_id": 1, "start": 5, "end": 15, "earlier_ids": [1, 5], "later_ids": [9, 9]}
    lines = shop.run("adopt import", "--node", "4").stdout.splitlines()
    assert "OVERLAP     stream 1: [5, 15) in one of objects 1 to 5 and in object 9" in lines
    assert lines[-1] == "cannot be imported: expected each offset in one object, found overlaps: 1"


def test_objects_can_be_left_out(shop: Shop) -> None:
    shop.put(9, (1, 5, 15))
    told = shop.imported("--node", "4", "--leave-out", "9", "--yes")
    assert (told["keys"], told["objects"], told["left_out"], shop.live) == (4, 3, 1, 3)


def test_bad_objects_can_be_skipped(shop: Shop) -> None:
    shop.store.put(LAYOUT.object_key(9), b"?" * 100)
    told = shop.imported("--node", "4", code=1)
    assert [each["object_id"] for each in told["not_listable"]] == [9]
    result = shop.run("adopt import", "--node", "4", "--skip-bad", "--yes")
    assert result.exit_code == 0
    assert "1 object left out; prepared, so that no collection deletes them" in result.stdout.splitlines()
    assert result.stdout.startswith("node")
    assert shop.live == 3


def test_an_import_that_cannot_go_on_is_abandoned(shop: Shop) -> None:
    shop.put(9, (1, 5, 15))
    before = shop.state()
    shop.imported("--node", "4", "--yes", code=1)
    assert any(key.startswith(f"{TABLES_PREFIX}import-progress") for key in shop.state())
    assert shop.imported("--abandon") == {"abandoned": True}
    assert shop.state() == before
    assert shop.run("adopt import", "--abandon").stdout == "no import was under way\n"


@pytest.mark.parametrize("args", [(), ("--node", "4", "--abandon"), ("--node", "-1"), ("--nodes", "missing.csv")])
def test_wrong_usage_is_told(shop: Shop, args: tuple[str, ...]) -> None:
    assert shop.run("adopt import", *args).exit_code == 2


def test_an_import_that_finds_nothing_says_what_lies_there() -> None:
    bucket = Bucket()
    bucket.done("catalog init --namespace shop")
    bucket.store.put(LAYOUT.object_key(9), write_set_object([(1, 5, 15)]))
    bucket.store.put("logs/00000000/other/0", b"?")
    deep = f"{bucket.url}/deep"
    assert run("catalog", "init", deep, "--namespace", "logs").exit_code == 0
    before = bucket.state()
    result = run("adopt", "import", deep, "--node", "4", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"error: expected objects of namespace 'logs' at {deep}, found none" in result.stderr
    there = "objects: 1 of namespace 'shop', 1 of namespace 'other' below logs/"
    assert f"other keys; in the whole bucket: {there}" in result.stderr
    assert bucket.state() == before
