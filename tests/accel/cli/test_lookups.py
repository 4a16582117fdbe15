"""`accel get-objects` and `accel explain` answer as the library does, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.accel.cli.worlds import World, run

QUESTION = ("--stream", "420000", "--start", "1000", "--end", "1600")


def test_an_answer_is_a_table_and_a_sentence(world: World) -> None:
    result = world.run("get-objects", *QUESTION)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[2].split() == ["18", "4", "stream", "set", "[974,", "1017)", "21000000/cluster/18"]
    assert "3 objects hold [974, 1085); then a hole: no listed object continues at 1085" in lines
    assert lines[-1].startswith("3 rounds, 11 requests, ")
    assert result.stderr == ""


def test_an_answer_as_json_has_these_keys(world: World) -> None:
    found = json.loads(world.run("get-objects", *QUESTION, "--output", "json").stdout)
    assert list(found) == [
        *("request", "image_version", "policy", "objects", "start_offset", "end_offset"),
        *("ending", "resume_offset", "stream_end", "cost"),
    ]
    assert found["request"] == {"stream_id": 420000, "start": 1000, "end": 1600, "limit": 4, "max_fill_rounds": None}
    assert found["objects"][0] == {
        "object_id": 18,
        "kind": "stream_set",
        "node_id": 4,
        "start": 974,
        "end": 1017,
        "key": "21000000/cluster/18",
        "size_bytes": world.listed[10]["size"],
    }
    assert [each["object_id"] for each in found["objects"]] == [18, 20, 22]
    assert (found["image_version"], found["ending"], found["resume_offset"]) == (7, "hole", 1085)
    assert list(found["cost"]) == ["rounds", "requests", "bytes", "seconds"]
    assert (found["cost"]["rounds"], found["cost"]["requests"]) == (3, 11)


def test_a_stream_object_has_no_node(world: World) -> None:
    stream = world.metadata["streams"][0]
    world.change_image(streams=[{**stream, "stream_objects": [{"object_id": 90, "start": 1085, "end": 1128}]}])
    found = json.loads(world.run("get-objects", *QUESTION, "--output", "json").stdout)
    assert found["objects"][-1] | {"key": None} == {
        "object_id": 90,
        "kind": "stream",
        "node_id": None,
        "start": 1085,
        "end": 1128,
        "key": None,
        "size_bytes": -1,
    }


def test_the_limit_and_the_bounds_are_passed_on(world: World) -> None:
    bounds = ("--limit", "2", "--max-fill-rounds", "0", "--output", "json")
    found = json.loads(world.run("get-objects", "--stream", "420000", "--start", "0", *bounds).stdout)
    assert found["request"]["max_fill_rounds"] == 0
    assert len(found["objects"]) == 2
    late = json.loads(world.run("get-objects", *QUESTION, "--deadline", "0s", "--output", "json").stdout)
    assert late["ending"] in ("partial", "hole")  # an object may be there before anybody looks at the clock


def test_an_explanation_begins_with_the_answer(world: World) -> None:
    result = world.run("explain", *QUESTION)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("stream 420000   offsets [1000, 1600)   limit 4")
    assert lines[0].endswith("image 7   policy spread")
    assert lines[2] == "answer   3 objects hold [974, 1085); then a hole: no listed object continues at 1085"
    assert "at 1000  node 4 owns [0, 2000) and lists 21 objects" in lines


def test_verbose_tells_of_each_request_on_stderr(world: World) -> None:
    result = world.run("get-objects", *QUESTION, "--verbose")
    *told, causes = result.stderr.splitlines()
    assert len(told) == 11
    assert causes.startswith("requests by cause: lookup 11 (")
    assert causes.endswith("; 0 sent again in 0.0 us, 0 throttled")
    assert all(line.startswith("get_range ") and "/cluster/" in line for line in told)


def test_verbose_tells_of_requests_that_failed(world: World) -> None:
    world.store.delete("21000000/cluster/18")
    result = world.run("get-objects", *QUESTION, "--verbose")
    assert result.exit_code == 1
    assert "get_range 21000000/cluster/18: KeyMissing after " in result.stderr


def test_a_lost_object_is_named_with_what_to_do(world: World) -> None:
    world.store.delete("21000000/cluster/18")
    result = world.run("get-objects", *QUESTION)
    error, advice = result.stderr.splitlines()
    assert result.exit_code == 1
    assert error.startswith("error: object 18 at '21000000/cluster/18' is listed for node 4")
    assert advice.startswith("advice: restore the object")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--policy", "best"), "expected a policy out of"),
        (("--deadline", "soon"), "expected a time such as 10m"),
        (("--store", "ftp://x"), "expected s3://bucket/prefix"),
        (("--image", "/nowhere.json"), "does not exist"),
        (("--max-fill-rounds", "-1"), "x>=0"),
        (("--client", "curl"), "is not one of"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(world: World, args: tuple[str, str], message: str) -> None:
    result = run("get-objects", *QUESTION, "--store", world.store_url, "--image", str(world.image_path), *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_an_image_that_is_none_is_refused(world: World) -> None:
    world.image_path.write_text("[]")
    result = world.run("get-objects", *QUESTION)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "expected an image as a JSON object, found list" in result.stderr


@pytest.mark.parametrize("command", ["get-objects", "explain", "read"])
def test_a_wrong_prefix_and_a_wrong_namespace_are_told_from_lost_objects(world: World, command: str) -> None:
    image = ("--image", str(world.image_path))
    found = run(command, f"{world.store_url}/other", *QUESTION, *image)
    assert found.exit_code == 1
    error, advice = found.stderr.splitlines()[-2:]
    assert f"expected objects of namespace 'cluster' at {world.store_url}/other, found none" in error
    assert "there: nothing; in the whole bucket: objects: 21 of namespace 'cluster'" in error
    assert advice.startswith("advice: check the bucket and the prefix of the store, and the namespace")

    world.change_image(namespace="another")
    found = run(command, world.store_url, *QUESTION, *image, "--output", "json")
    told = json.loads(found.stderr.splitlines()[-1])
    assert (found.exit_code, told["type"]) == (1, "WrongPlace")
    assert "there: objects: 21 of namespace 'cluster'" in told["message"]


def test_a_slow_lookup_is_told_on_stderr_when_it_is_asked_for(world: World) -> None:
    told = world.run("get-objects", *QUESTION, "--slow-log", "0.001ms").stderr.splitlines()
    assert told[0].startswith("ended at ")
    assert told[1].startswith("stream 420000   offsets [1000, 1600)   limit 4")
    as_json = world.run("get-objects", *QUESTION, "--slow-log", "0.001ms", "--output", "json")
    assert json.loads(as_json.stderr)["request"] == json.loads(as_json.stdout)["request"]
    assert world.run("get-objects", *QUESTION, "--slow-log", "1h").stderr == ""


def test_a_saved_log_of_slow_lookups_is_shown_without_a_store(world: World, tmp_path: Path) -> None:
    one = world.run("get-objects", *QUESTION, "--slow-log", "0.001ms").stderr.splitlines()
    saved = world.run("get-objects", *QUESTION, "--slow-log", "0.001ms", "--output", "json").stderr
    file = tmp_path / "slow.jsonl"
    for text in (saved * 2, json.dumps([json.loads(saved)] * 2)):
        file.write_text(text)
        shown = world.run("explain", "--from", str(file)).stdout.splitlines()
        assert [line for line in shown if line.startswith("stream ")] == 2 * [one[1]]
        assert sum(line.startswith("ended at ") for line in shown) == 2


@pytest.mark.parametrize("text", ["nothing", "[1]", "{}", '{"lines": 5}'])
def test_a_file_that_is_no_log_of_slow_lookups_is_refused(world: World, tmp_path: Path, text: str) -> None:
    file = tmp_path / "slow.jsonl"
    file.write_text(text)
    refused = world.run("explain", "--from", str(file))
    assert refused.exit_code == 2
    assert "expected the `to_dict()` of slow lookups" in " ".join(refused.stderr.split())
