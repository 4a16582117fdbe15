"""`accel object verify` finds what is wrong, says nothing wrong of what is right, and its exit code tells which."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.cli import options
from accel.cli.objects.verify import OrderCheck
from accel.testing import Fault, FaultStore
from loaders.format import BlockIndex, BlockRow, LinkedObject
from loaders.store import ObjectStore, open_store
from range_index import ObjectRanges
from tests.accel.cli.worlds import LAYOUT, OTHER_STREAM_ID, PRODUCTION, STREAM_ID, World, run
from tests.builders import encode_composite, write_set_object
from tests.loaders.format.objects import manifest
from tests.spark_jobs.worlds import fill, make_catalog


def verified(world: World, *args: str) -> tuple[int, dict[str, Any]]:
    result = world.run("object", "verify", *args, "--output", "json")
    return result.exit_code, json.loads(result.stdout)


def test_all_without_an_image_means_the_catalogs() -> None:
    url = f"memory://{uuid4().hex}"
    store = open_store(url)
    make_catalog(store)
    fill(store, 4, [[(1, at, at + 1)] for at in range(3)])
    assert run("object", "verify", "--all", "--data", "--store", url).stdout.startswith("3 objects checked, 3 rows")
    other = run("object", "verify", "--all", "--namespace", "another", "--store", url)
    assert (other.exit_code, "Expected one namespace, found --namespace another" in other.stderr) == (2, True)
    neither = run("object", "verify", "--all", "--store", f"memory://{uuid4().hex}")
    assert (neither.exit_code, "Missing option '--image'" in neither.stderr) == (2, True)


def test_all_is_well(world: World) -> None:
    code, found = verified(world, "--all", "--data")
    assert code == 0
    assert list(found) == [
        *("ok", "objects_checked", "blocks_checked", "requests", "bytes", "problems", "unchecked", "disorders"),
        "unordered_streams",
    ]
    assert (found["ok"], found["objects_checked"], found["blocks_checked"]) == (True, 21, 42)
    assert found["requests"] == 42  # an index and a run of blocks each


@pytest.mark.parametrize("row", manifest()["corrupt"], ids=lambda row: str(row["file"]))
def test_every_corrupt_file_is_found(row: dict[str, Any]) -> None:
    result = run("object", "verify", str(PRODUCTION / row["file"]), "--output", "json", "--quiet")
    assert result.exit_code == 3
    [problem] = json.loads(result.stdout)["problems"]
    assert problem["check"] == "index"
    assert problem["key"].endswith(row["file"])


@given(st.data())
def test_a_flipped_bit_in_a_block_header_or_a_batch_header_is_found(data: st.DataObject) -> None:
    body = bytearray(write_set_object([(STREAM_ID, 0, 105)]))
    # All of both headers but the epoch, which nothing else repeats.
    position = data.draw(st.integers(0, 42).filter(lambda at: not 19 <= at < 27))
    body[position] ^= 1 << data.draw(st.integers(0, 7))
    open_store("memory://flipped").put("k", body)
    result = run("object", "verify", "k", "--data", "--store", "memory://flipped", "--output", "json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["problems"][0]["check"] == "block"


def test_without_data_blocks_are_not_read(world: World) -> None:
    damage_block(world, 42)
    assert verified(world, "--all")[0] == 0
    code, found = verified(world, "--all", "--data")
    assert code == 3
    assert [(each["object_id"], each["check"]) for each in found["problems"]] == [(42, "block")]


def test_an_object_with_many_problems_names_the_first_few(world: World) -> None:
    body = bytearray(write_set_object([(stream_id, 0, 10) for stream_id in range(50)]))
    index = BlockIndex(bytes(body[-48 - 36 * 50 : -48]))
    for row in index:
        body[row.position] ^= 1
    world.store.put(LAYOUT.object_key(50), body)
    assert len(verified(world, "50", "--data")[1]["problems"]) == 5


def test_a_listed_object_that_is_gone_is_a_problem(world: World) -> None:
    world.store.delete(LAYOUT.object_key(18))
    code, found = verified(world, "--all")
    assert code == 3
    assert [(each["object_id"], each["check"]) for each in found["problems"]] == [(18, "missing")]
    assert found["objects_checked"] == 21


def test_sizes_are_compared_with_the_image(world: World) -> None:
    world.listed[3]["size"] += 1
    world.listed[4]["index_size"] = 36
    world.listed[5]["index_size"] = 72  # the right one
    world.change_image()
    found = verified(world, "--all")[1]
    assert [(each["object_id"], each["check"]) for each in found["problems"]] == [(5, "size"), (7, "index-size")]
    assert verified(world, "9")[0] == 0
    assert run("object", "verify", "5", "--store", world.store_url, "--namespace", "cluster").exit_code == 0


def test_a_stream_object_has_to_hold_what_the_image_promises(world: World) -> None:
    stream = world.metadata["streams"][0]
    ends = {90: 1128, 91: 1128, 92: 1129}
    for object_id in ends:
        world.store.put(LAYOUT.object_key(object_id), write_set_object([(STREAM_ID, 1085, 1128)]))
    world.store.put(LAYOUT.object_key(91), write_set_object([(8, 1085, 1128)]))
    rows = [{"object_id": object_id, "start": 1085, "end": end} for object_id, end in ends.items()]
    world.change_image(streams=[{**stream, "stream_objects": rows}])
    found = verified(world, "--all")[1]
    assert [(each["object_id"], each["message"]) for each in found["problems"]] == [
        (91, "the image states [1085, 1128) of stream 420000, found nothing of it"),
        (92, "the image states [1085, 1129) of stream 420000, found [1085, 1128)"),
    ]


def test_streams_that_break_the_order_are_named_for_the_image(world: World) -> None:
    world.listed[2]["order_id"] = 1000  # object 3 now stands last
    world.change_image()
    code, found = verified(world, "--all")
    assert code == 3
    assert found["problems"] == []
    assert found["unordered_streams"] == [OTHER_STREAM_ID, STREAM_ID]
    assert found["disorders"][1] == {
        "stream_id": STREAM_ID,
        "node_id": 4,
        "object_id": 3,
        "start": 128,
        "earlier_object_id": 42,
        "earlier_end": 2000,
    }
    text = world.run("object", "verify", "--all").stdout
    assert f'"unordered_streams": [{OTHER_STREAM_ID}, {STREAM_ID}]' in text
    assert text.endswith("no problem, 2 streams out of order\n")


def test_streams_that_the_image_names_as_unordered_are_no_news(world: World) -> None:
    world.listed[2]["order_id"] = 1000
    world.change_image(unordered_streams=[STREAM_ID])
    assert verified(world, "--all")[1]["unordered_streams"] == [OTHER_STREAM_ID]
    world.change_image(unordered_streams=[STREAM_ID, OTHER_STREAM_ID])
    assert verified(world, "--all")[0] == 0


def test_a_composite_object_is_followed_to_what_it_links(world: World) -> None:
    index = BlockIndex(BlockRow(STREAM_ID, 1850, 2000, 1, 54, 59).encode())
    world.store.put(LAYOUT.object_key(50), encode_composite((LinkedObject(42, 0, 0),), index))
    code, found = verified(world, "50", "--data")
    assert (code, found["blocks_checked"]) == (0, 1)
    damage_block(world, 42)
    assert verified(world, "50", "--data")[1]["problems"][0]["check"] == "block"
    world.store.delete(LAYOUT.object_key(42))
    assert "are missing" in verified(world, "50", "--data")[1]["problems"][0]["message"]


def test_what_cannot_be_read_is_unchecked_and_ends_with_1(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(url: str, _: object) -> ObjectStore:
        assert url == world.store_url
        store = FaultStore(world.store, rng=Random(1))
        store.schedule(Fault.SLOW_DOWN)
        store.schedule(*[None] * 100)
        return store

    monkeypatch.setattr(options, "open_store", failing)
    code, found = verified(world, "--all", "--parallel", "1")
    assert (code, found["ok"], found["objects_checked"]) == (1, False, 20)
    assert [(each["object_id"], each["type"]) for each in found["unchecked"]] == [(0, "StoreThrottled")]
    world.store.delete(LAYOUT.object_key(42))
    assert world.run("object", "verify", "--all", "--parallel", "1", "--quiet").exit_code == 3  # problems weigh more


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "Expected either objects to verify or --all"),
        (("42", "--all"), "Expected either objects to verify or --all"),
        (("--all",), "ACCEL_STORE"),
        (("42",), "ACCEL_STORE"),
        (("42", "--parallel", "0"), "--parallel"),
    ],
)
def test_wrong_usage_ends_with_2(args: tuple[str, ...], message: str) -> None:
    result = run("object", "verify", *args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_local_file_needs_no_store_even_with_an_image(world: World, tmp_path: Path) -> None:
    (tmp_path / "o.bin").write_bytes(write_set_object([(1, 0, 5)]))
    args = ("object", "verify", str(tmp_path / "o.bin"), "--image", str(world.image_path))
    assert run(*args).exit_code == 0


Objects = list[dict[int, tuple[int, int]]]


@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=5), max_size=8
    )
)
def test_the_order_check_is_what_comparing_every_two_objects_gives(spans: list[dict[int, tuple[int, int]]]) -> None:
    objects: Objects = [{key: (start, start + length) for key, (start, length) in each.items()} for each in spans]
    check = OrderCheck(4)
    found = [
        (each.object_id, each.stream_id)
        for number, held in enumerate(objects)
        for each in check.add(number, ObjectRanges.from_ranges((key, *span) for key, span in held.items()))
    ]
    assert sorted(found) == sorted(
        (number, key)
        for number, held in enumerate(objects)
        for key, (start, _) in held.items()
        if any(start < earlier[key][1] for earlier in objects[:number] if key in earlier)
    )


def damage_block(world: World, object_id: int) -> None:
    """Flip a bit of the second block's magic."""
    key = LAYOUT.object_key(object_id)
    body = np.frombuffer(world.store.get(key).body, dtype=np.uint8).copy()
    body[54] ^= 1
    world.store.put(key, body.tobytes())
