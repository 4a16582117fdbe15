"""`accel object inspect` shows what an object is made of, wherever it lies."""

from __future__ import annotations

import json
from pathlib import Path

from loaders.format import BlockIndex, BlockRow, LinkedObject, RecordBatch
from loaders.object_writer import ObjectWriter
from tests.accel.cli.worlds import LAYOUT, World, run
from tests.builders import encode_composite


def test_an_object_by_id_by_key_and_as_a_file_is_the_same(world: World, tmp_path: Path) -> None:
    (tmp_path / "copy.bin").write_bytes(world.store.get(LAYOUT.object_key(42)).body)
    by_id = json.loads(world.run("object", "inspect", "42", "--output", "json").stdout)
    by_key = json.loads(world.run("object", "inspect", LAYOUT.object_key(42), "--output", "json").stdout)
    as_file = json.loads(run("object", "inspect", str(tmp_path / "copy.bin"), "--output", "json").stdout)
    assert by_id == by_key
    assert as_file == by_id | {"key": str(tmp_path / "copy.bin"), "object_id": None}


def test_json_has_these_keys(world: World) -> None:
    found = json.loads(world.run("object", "inspect", "42", "--rows", "--output", "json").stdout)
    assert list(found) == [
        *("key", "object_id", "size_bytes", "kind", "footer", "links", "stream_count", "holed_stream_count"),
        *("row_count", "record_count", "block_size_bytes", "opened_with", "streams", "rows"),
    ]
    assert found["streams"][0] == {
        "stream_id": 7,
        "start": 1850,
        "end": 2000,
        "holes": 0,
        "rows": 1,
        "records": 1,
        "size_bytes": 54,
    }
    assert found["rows"][1] == {
        "row": 1,
        "stream_id": 420000,
        "start": 1850,
        "end": 2000,
        "record_count": 1,
        "position": 54,
        "size_bytes": 59,
    }


def test_text_is_a_head_and_a_table(world: World) -> None:
    lines = world.run("object", "inspect", "42").stdout.splitlines()
    assert lines[0] == "object   a2000000/cluster/42   normal object of 233 bytes"
    assert lines[1] == "index    2 rows, 72 bytes at 113   (opened with 1 request, 233 B)"
    assert lines[2] == "streams  2 streams, 2 record batches"
    assert lines[3] == "blocks   54 B to 59 B, median 56 B, in all 113 B"
    assert lines[-1].split() == ["420000", "[1850,", "2000)", "1", "1", "59", "B"]


def test_what_is_left_out_is_said(world: World) -> None:
    assert world.run("object", "inspect", "42", "--limit", "1").stdout.endswith(
        "… and 1 more; --limit 0 shows all of them\n"
    )


def test_one_stream_alone(world: World) -> None:
    found = json.loads(world.run("object", "inspect", "42", "--stream", "7", "--rows", "--output", "json").stdout)
    assert [each["stream_id"] for each in found["streams"] + found["rows"]] == [7, 7]
    absent = world.run("object", "inspect", "42", "--stream", "8")
    assert absent.stdout.endswith("the object does not hold stream 8\n")


def test_a_hole_inside_is_counted(world: World) -> None:
    with ObjectWriter(world.store, LAYOUT, 50) as writer:
        for start in (0, 10, 30, 50):
            writer.write(9, [RecordBatch(9, 1, start, 10, b"x")])
    found = json.loads(world.run("object", "inspect", "50", "--output", "json").stdout)
    assert (found["holed_stream_count"], found["streams"][0]["holes"]) == (1, 2)
    assert "1 of them with a hole inside" in world.run("object", "inspect", "50").stdout


def test_an_empty_object_is_shown(world: World) -> None:
    with ObjectWriter(world.store, LAYOUT, 50):
        pass
    assert world.run("object", "inspect", "50").stdout.splitlines() == [
        "object   23000000/cluster/50   normal object of 48 bytes",
        "index    0 rows, 0 bytes at 0   (opened with 1 request, 48 B)",
        "streams  0 streams, 0 record batches",
    ]


def test_a_composite_object_shows_its_links(world: World) -> None:
    index = BlockIndex(BlockRow(420000, 1850, 2000, 1, 54, 59).encode())
    world.store.put(LAYOUT.object_key(50), encode_composite((LinkedObject(42, 0, 0),), index))
    found = json.loads(world.run("object", "inspect", "50", "--output", "json").stdout)
    assert found["kind"] == "composite"
    assert found["links"] == [{"object_id": 42, "first_row": 0, "bucket": 0}]
    assert "links    object 42" in world.run("object", "inspect", "50").stdout.splitlines()


def test_a_namespace_can_be_given_instead_of_an_image(world: World) -> None:
    args = ("object", "inspect", "42", "--store", world.store_url, "--namespace")
    assert run(*args, "cluster").exit_code == 0
    assert "KeyMissing" in run(*args, "other", "--output", "json").stderr
    assert run(*args, "a/b").exit_code == 2


def test_two_namespaces_are_refused(world: World) -> None:
    result = world.run("object", "inspect", "42", "--namespace", "other")
    assert result.exit_code == 2
    assert "Expected one namespace" in result.stderr
