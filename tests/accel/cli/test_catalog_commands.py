"""`accel catalog` makes catalogs and shows them; lookups take their image from one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.job_runs import BUILD_HINTS, COMPACT, GC, KINDS, recorded
from accel.cli import options
from accel.image_source import load_image_file
from loaders.format import MissingBytes, open_tail
from loaders.layout import ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.cli.worlds import Bucket
from tests.builders import write_set_object

Answer = TypeVar("Answer")

QUESTION = ("--stream", "1", "--start", "5", "--end", "25")


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def filled(bucket: Bucket) -> Bucket:
    """A store with a catalog of one node, three objects and two streams."""
    bucket.done("catalog init --namespace shop --stream-buckets 4")
    fill(bucket.store)
    return bucket


def fill(store: ObjectStore) -> None:
    with ObjectCatalog.open(store) as catalog, catalog.open_node(4) as writer:
        writer.open_streams([1, 2])
        for number in range(3):
            [object_id] = writer.prepare()
            body = write_set_object([(1, number * 10, number * 10 + 10), (2, number, number + 1)])
            store.put(ObjectLayout(namespace="shop").object_key(object_id), body)
            index = open_tail(body, object_size_bytes=len(body), key="")
            assert not isinstance(index, MissingBytes)
            writer.commit_upload(ObjectRef(object_id, len(body), index.nbytes), index.object_ranges())


def test_init_makes_a_catalog_and_prints_its_format_record(bucket: Bucket) -> None:
    choice = ("--namespace", "shop", "--max-image-age", "5m", "--stream-buckets", "4")
    found = bucket.json("catalog init", *choice)
    assert (found["namespace"], found["max_image_age_seconds"], found["stream_buckets"]) == ("shop", 300.0, 4)
    assert found["retention_seconds"] == 3600.0
    assert bucket.json("catalog init", *choice) == found


def test_a_catalog_of_other_choices_is_left_alone(filled: Bucket) -> None:
    assert filled.refusal("catalog init --namespace other") == (1, "CommitRefused")


@pytest.mark.parametrize("wrong", [("--namespace", "a/b"), ("--stream-buckets", "0"), ("--max-image-age", "0s"), ()])
def test_a_format_record_that_cannot_be_is_wrong_usage(bucket: Bucket, wrong: tuple[str, ...]) -> None:
    named = () if "--namespace" in wrong or not wrong else ("--namespace", "shop")
    assert bucket.run("catalog init", *named, *wrong).exit_code == 2


def test_status_counts_what_a_catalog_holds(filled: Bucket) -> None:
    found = filled.json("catalog status")
    [node] = found["nodes"]
    assert (node["node_id"], node["epoch"], node["live"], node["retired"]) == (4, 1, 3, 0)
    assert found["total"]["bytes"] == node["bytes"] > 0
    assert (found["streams"], found["stream_objects"], found["format"]["namespace"]) == (2, 0, "shop")
    assert list(found["image"]) == ["version", "cold"]


def test_status_shows_what_is_live_dead_and_waiting_of_all_kinds_of_objects(filled: Bucket) -> None:
    with ObjectCatalog.open(filled.store) as catalog:
        catalog.trim({1: 20})
    found = filled.json("catalog status --exact")
    [node] = found["nodes"]
    assert node["live_bytes"] + node["dead_bytes"] == node["bytes"]
    assert node["dead_bytes"] > 0
    assert (node["retired_bytes"], node["waiting_bytes"]) == (0, 0)
    assert found["total"]["dead_bytes"] == node["dead_bytes"]
    assert found["space_of_stream_objects"] == {
        "bytes": 0,
        "live_bytes": 0,
        "dead_bytes": 0,
        "retired_bytes": 0,
        "waiting_bytes": 0,
    }
    lines = filled.done("catalog status --exact").splitlines()
    assert lines[-6] == "stream objects: 0 B live, 0 B dead, 0 B retired, 0 B waiting"


def test_status_names_objects_of_another_system_in_the_namespace(filled: Bucket) -> None:
    found = filled.json("catalog status --exact")
    assert found["strangers"] == []
    key = ObjectLayout(namespace="shop").object_key(4711)
    filled.store.put(key, b"another system's")
    found = filled.json("catalog status --exact")
    assert found["strangers"] == [key]
    lines = filled.done("catalog status --exact").splitlines()
    assert f"another system writes to this namespace: 1 object seen, {key!r}" in lines


class Requests(DecoratedStore):
    """Keeps the descriptions of all requests."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.calls: list[StoreCall] = []

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self.calls.append(call)
        return send()


def test_status_takes_one_refresh_and_the_records_of_runs_and_names_the_dry_runs(
    filled: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ObjectCatalog.open(filled.store) as catalog:
        for kind in (COMPACT, BUILD_HINTS):
            with recorded(catalog.parts, kind) as job:
                job.note_limit(2)
        catalog.trim({1: 20})
    seen = Requests(filled.store)
    with ObjectCatalog.open(seen) as catalog:
        seen.calls.clear()
        catalog.refresh()
    refresh = len(seen.calls)
    seen.calls.clear()
    monkeypatch.setattr(options, "open_store", lambda *_, **__: seen)
    found = filled.json("catalog status")
    runs = [call for call in seen.calls if "/job-runs/" in call.key]
    assert {call.operation for call in seen.calls} <= {"get", "get_if_changed", "list", "date"}
    assert len(runs) <= len(KINDS) + 1, "one more for the table, where a kind has no run"
    assert len(seen.calls) - len(runs) <= refresh + 3, "opening the catalog, and the time of the store"
    estimated = found["estimated"]
    assert (estimated[COMPACT], estimated[BUILD_HINTS], estimated[GC], found["exact"]) == (1, 0, 0, False)
    assert estimated["success_age_seconds"].keys() == {COMPACT, BUILD_HINTS}
    lines = [line for line in filled.done("catalog status").splitlines() if line.startswith("estimated: ")]
    assert "1 object above the limit wait" in lines[0]
    assert [line.rpartition("exactly: ")[2] for line in lines] == [
        "accel catalog compact --dry-run",
        "accel catalog build-hints --dry-run",
        "accel catalog gc, without --yes",
    ]
    assert "never" in lines[2]
    assert found["nodes"][0]["dead_bytes"] is found["total"]["dead_bytes"] is None


def test_a_written_image_answers_as_the_catalog_does(filled: Bucket, tmp_path: Path) -> None:
    image = tmp_path / "image.json"
    filled.done("catalog status --write-image", str(image))
    assert load_image_file(image).streams[1].ranges[0].node_id == 4
    answers = [filled.json("get-objects", *QUESTION, *args) for args in ((), ("--image", str(image)))]
    assert len(answers[0]["objects"]) == 3
    assert answers[0]["objects"] == answers[1]["objects"]
    assert answers[0]["image_version"] == answers[1]["image_version"]


@pytest.mark.parametrize("command", ["get-objects", "explain"])
@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_limit_below_1_is_a_wrong_command_line(filled: Bucket, command: str, limit: str) -> None:
    refused = filled.run(command, *QUESTION, "--limit", limit)
    assert (refused.exit_code, "Invalid value for '--limit'" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", ["get-objects", "explain", "read"])
def test_lookups_take_the_image_of_the_catalog(filled: Bucket, command: str) -> None:
    assert filled.run(command, *QUESTION).exit_code == 0


@pytest.mark.parametrize("command", ["get-objects", "explain", "read"])
def test_a_lookup_without_image_and_catalog_is_wrong_usage(bucket: Bucket, command: str) -> None:
    result = bucket.run(command, *QUESTION)
    assert result.exit_code == 2
    assert "--image" in result.stderr
    assert "no catalog" in result.stderr
