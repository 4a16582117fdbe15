"""`accel adopt`: an image of AutoMQ's metadata, and compaction that a controller commits."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from accel.adoption.controller import Swap, SwapRefused, apply_to_image, swaps_from_json
from accel.image import MetadataImage
from loaders.layout import ObjectLayout
from tests.accel.adoption.test_automq import DOCUMENT, NAMESPACE, RECORDS, dump_of
from tests.accel.cli.worlds import World, run

BY_FORCE = ("--rewrite-all", "--min-age", "0s")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of a broker, which is found by its name."""
    module = ModuleType("a_broker")
    numbers = itertools.count(900)
    module.committed = []  # type: ignore[attr-defined]  # made here
    module.take_ids = lambda count: list(itertools.islice(numbers, count))  # type: ignore[attr-defined]  # likewise
    module.commit = module.committed.append  # type: ignore[attr-defined]  # likewise
    monkeypatch.setitem(sys.modules, "a_broker", module)
    return module


@pytest.mark.parametrize("data", [json.dumps(DOCUMENT).encode(), dump_of(RECORDS)], ids=["document", "dump"])
def test_an_image_of_a_dump_is_read_as_any_image(tmp_path: Path, data: bytes) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(data)
    result = run("adopt", "convert", str(dump), "--namespace", NAMESPACE, "--image-version", "7")
    assert (result.exit_code, result.stderr) == (0, "")
    image = MetadataImage.from_json(result.stdout.encode())
    assert (image.version, image.namespace, len(image.node(4))) == (7, NAMESPACE, 2)


def test_a_dump_that_is_none_says_where(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text('{"type": "S3_STREAM_RECORD", "data": {"streamId": -4}}')
    result = run("adopt", "convert", str(dump), "--namespace", NAMESPACE)
    assert result.exit_code == 1
    assert "AutoMQ metadata, line 1: Expected `int` >= 0 - at `$.streamId`" in result.stderr


def test_a_dry_run_shows_the_plan_and_writes_nothing(world: World) -> None:
    before = {info.key for info in world.store.list("")}
    result = world.run("adopt", "compact", "--dry-run", *BY_FORCE)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "dry run: " in result.stdout
    assert {info.key for info in world.store.list("")} == before


def test_each_result_is_handed_to_the_controller(world: World, broker: ModuleType) -> None:
    functions = ("--take-ids", "a_broker:take_ids", "--commit", "a_broker:commit")
    result = world.run("adopt", "compact", *functions, *BY_FORCE, "--output", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    report = json.loads(result.stdout)["report"]
    assert report["committed_groups"] == len(broker.committed) > 0
    assert [group["swap_id"] for group in report["groups"]] == [swap.swap_id for swap in broker.committed]


def test_swaps_are_written_for_the_controller_to_apply(world: World, broker: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "swaps.json"
    result = world.run("adopt", "compact", "--take-ids", "a_broker:take_ids", "--swaps", str(path), *BY_FORCE)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"written to {path}; nothing is committed yet" in result.stdout
    assert not broker.committed
    image = MetadataImage.from_json(world.image_path.read_bytes())
    before = len(image.node(4))
    for swap in swaps_from_json(path.read_bytes()):
        image = apply_to_image(image, swap)
    assert len(image.node(4)) < before


def test_what_the_controller_refuses_is_named_with_what_is_left(world: World, broker: ModuleType) -> None:
    def refuse(swap: Swap) -> None:
        raise SwapRefused(f"node {swap.node_id} moves")

    broker.commit = refuse  # type: ignore[attr-defined]  # made above
    functions = ("--take-ids", "a_broker:take_ids", "--commit", "a_broker:commit")
    result = world.run("adopt", "compact", *functions, *BY_FORCE)
    assert result.exit_code == 4
    assert "node 4 moves" in result.stdout
    assert "not listed, to be deleted by the controller: 900" in result.stdout
    assert ObjectLayout(namespace="cluster").object_key(900) in {info.key for info in world.store.list("")}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "the command needs '--take-ids', and either '--commit' or '--swaps'"),
        (("--take-ids", "a_broker:take_ids"), "the command needs '--take-ids', and either"),
        (("--take-ids", "no_such_module:f", "--commit", "a_broker:commit"), "expected MODULE:FUNCTION"),
        (("--take-ids", "a_broker:committed", "--commit", "a_broker:commit"), "expected a function, found list"),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    world: World, broker: ModuleType, options: tuple[str, ...], expected: str
) -> None:
    result = world.run("adopt", "compact", *options, *BY_FORCE)
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())
    assert not broker.committed
