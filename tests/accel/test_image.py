"""Images are checked when they are built, compare quickly, and come from sources that never go back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accel.errors import ImageRefused
from accel.image import MetadataImage, ObjectRef, OwnershipRange, make_node, make_stream, node_of_columns
from accel.image_source import PolledImages, StaticImages, load_image_file
from tests.accel.lookup.commit_facts import Told
from tests.accel.lookup.driving import Clock


def stream(**changes: Any) -> dict[str, Any]:
    base = {"stream_id": 1, "start_offset": 0, "ranges": [], "stream_objects": []}
    return {**base, **changes}


def node(*objects: tuple[int, int], node_id: int = 4, **facts: int) -> dict[str, Any]:
    listed = [{"object_id": object_id, "order_id": order_id, **facts} for object_id, order_id in objects]
    return {"node_id": node_id, "stream_set_objects": listed}


def owned(index: int, start: int, end: int, node_id: int = 4) -> dict[str, int]:
    return {"range_index": index, "start": start, "end": end, "node_id": node_id}


def image(*nodes: dict[str, Any], version: int = 0) -> MetadataImage:
    return MetadataImage.from_dict({"streams": [], "nodes": list(nodes)}, version)


def test_objects_stand_in_the_order_of_their_order_ids() -> None:
    listed = image(node((90, 2), (40, 1), (50, 3))).node(4)
    assert listed.object_ids.tolist() == [40, 90, 50]
    assert listed.position_of == {40: 0, 90: 1, 50: 2}


def test_objects_of_one_order_id_stay_in_the_order_in_which_they_were_added() -> None:
    listed = image(node((90, 2), (40, 1), (50, 2), (60, 3), (10, 2))).node(4)
    assert listed.object_ids.tolist() == [40, 90, 50, 10, 60]
    assert listed.tied_ids == {90, 50, 10}
    assert image(node((90, 2), (40, 1))).node(4).tied_ids == set()


def test_sizes_and_attributes_are_kept_and_unknown_ones_are_minus_one() -> None:
    listed = image(node((1, 1), size=100, index_size=36, attributes=2), node((1, 1), node_id=5))
    assert listed.node(4).ref(0) == ObjectRef(1, 100, 36, 2)
    assert listed.node(5).ref(0) == ObjectRef(1, -1, -1, -1)


def test_a_node_that_is_not_known_has_an_empty_list() -> None:
    assert len(image().node(99)) == 0


def test_objects_one_by_one_are_those_of_the_whole_list() -> None:
    pairs = [(order, ObjectRef(100 - order, order, 36, order % 3)) for order in range(5)]
    one, two = make_node(4, pairs), make_node(4, pairs[::-1])
    assert [one.ref(position) for position in range(5)] == [ref for _, ref in pairs]
    assert one.ref(2) is one.ref(2)
    assert one.refs == two.refs
    assert one.refs is one.refs
    assert all(one.position_of[ref.object_id] == position for position, ref in enumerate(two.refs))


@pytest.mark.parametrize(("orders", "ids"), [([2, 1], [5, 6]), ([1, 2], [5, 5]), ([1, 1], [5, 5])])
def test_columns_of_a_list_must_be_in_its_order(orders: list[int], ids: list[int]) -> None:
    facts = np.zeros(2, dtype=np.int64)
    with pytest.raises(ImageRefused, match=r"node 4: expected (each|ascending)"):
        node_of_columns(
            4,
            object_ids=np.array(ids),
            order_ids=np.array(orders),
            sizes_bytes=facts,
            index_sizes_bytes=facts,
            attributes=facts,
        )


def test_positions_of_many_ids_are_minus_one_where_not_listed() -> None:
    listed = image(node((90, 2), (40, 1), (50, 3))).node(4)
    assert listed.positions(np.array([50, 1, 40, 99])).tolist() == [2, -1, 0, -1]
    assert image().node(4).positions(np.array([1])).tolist() == [-1]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"nodes": [node((1, 1), (1, 2))]}, "node 4: expected each object once"),
        ({"nodes": [node(), node()]}, "each node once"),
        ({"streams": [stream(), stream()]}, "each stream once"),
        ({"streams": [stream(ranges=[owned(0, 0, 9), owned(1, 8, 12)])]}, "stream 1: expected range 1 to start at"),
        ({"streams": [stream(ranges=[owned(0, 0, -1), owned(1, 8, 12)])]}, "stream 1: expected range 1"),
        ({"streams": [stream(ranges=[owned(0, 5, 4)])]}, "stream 1, range 0"),
        ({"streams": [stream(stream_objects=[{"object_id": 3, "start": 5, "end": 4}])]}, "object 3"),
        ({"streams": [stream(start_offset=-1)]}, "start_offset"),
        ({"streams": [{"stream_id": 1}]}, "start_offset"),
        ({"streams": [stream(stream_id="1")]}, "stream_id"),
        ({"streams": [stream(stream_id=True)]}, "stream_id"),
        ({"streams": [stream(stream_id=2**63)]}, "stream_id"),
        ({"streams": {}}, "streams as a list"),
        ({"streams": [7]}, r"streams\[0\]"),
        ({"streams": [], "namespace": ""}, "namespace"),
        ({"streams": [], "unordered_streams": ["a"]}, "unordered_streams"),
        ({}, "image: expected streams or nodes, which may be empty, found neither"),
        ({"version": 3, "namespace": "shop"}, "found neither"),
        ({"streams": [], "node": []}, "image: expected fields among .*, found 'node'"),
        ({"streams": [{**stream(), "range": []}]}, r"image, streams\[0\]: expected fields among .*, found 'range'"),
        ({"streams": [stream(ranges=[{**owned(0, 0, 5), "nodeid": 4}])]}, r"ranges\[0\]: .* found 'nodeid'"),
        ({"streams": [stream(stream_objects=[{"object_id": 3, "start": 0, "end": 4, "length": 5}])]}, "found 'length'"),
        ({"nodes": [{"node_id": 4, "stream_set_object": []}]}, r"nodes\[0\]: .* found 'stream_set_object'"),
        (
            {"nodes": [{"node_id": 4, "stream_set_objects": [{"object_id": 1, "order_id": 1, "sizes": 1}]}]},
            r"node 4, stream_set_objects\[0\]: .* found 'sizes'",
        ),
    ],
)
def test_contradictions_are_refused_with_their_place(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ImageRefused, match=said):
        MetadataImage.from_dict(data)


def test_an_image_that_is_no_object_is_refused() -> None:
    with pytest.raises(ImageRefused, match="list"):
        MetadataImage.from_dict([])  # type: ignore[arg-type]  # the point of the test


def test_an_empty_range_before_the_next_one_is_no_contradiction() -> None:
    made = MetadataImage.from_dict({"streams": [stream(ranges=[owned(0, 0, 0, 7), owned(1, 0, 5)])]})
    owner = made.streams[1].owner(0)
    assert owner is not None
    assert owner.node_id == 4


def test_the_difference_names_what_came_went_and_changed() -> None:
    before = image(node((1, 1), (2, 2), (3, 3), size=10), node((8, 1), node_id=5))
    after = image(node((2, 2), (3, 3), (4, 4), size=10), node((8, 1), node_id=5), node((9, 1), node_id=6))
    changes = before.changes(after)
    assert set(changes) == {4, 6}
    assert changes[4].added.tolist() == [4]
    assert changes[4].removed.tolist() == [1]
    assert changes[6].added.tolist() == [9]


def test_an_object_with_another_size_counts_as_gone_and_come() -> None:
    change = image(node((1, 1), size=10)).changes(image(node((1, 1), size=11)))[4]
    assert change.added.tolist() == change.removed.tolist() == [1]


def test_waiting_ends_with_a_newer_image_or_with_the_time() -> None:
    source = StaticImages(image(version=5))
    assert source.wait_newer(5, 0) is None
    newer = source.wait_newer(4, 0)
    assert newer is not None
    assert newer.version == 5


def test_polling_asks_until_there_is_a_newer_image() -> None:
    versions = iter([1, 1, 2])
    slept: list[float] = []
    source = PolledImages(
        lambda: image(version=next(versions)), timer=lambda: 0.0, sleep=slept.append, poll_seconds=0.5
    )
    newer = source.wait_newer(1, 60)
    assert newer is not None
    assert newer.version == 2
    assert slept == [0.5, 0.5]  # it had been asked when it was made, so it was not due yet


def test_polling_gives_up_when_the_time_is_over() -> None:
    slept: list[float] = []
    source = PolledImages(lambda: image(version=1), timer=lambda: 0.0, sleep=slept.append, poll_seconds=0.4)
    assert source.wait_newer(1, 1.0) is None
    assert sum(slept) == pytest.approx(1.0)


def test_the_current_image_is_asked_for_again_when_it_is_old() -> None:
    versions = iter([1, 2, 3])
    clock = Clock()
    source = PolledImages(lambda: image(version=next(versions)), timer=clock, sleep=lambda _: None, poll_seconds=1.0)
    assert [source.current().version for _ in range(2)] == [1, 1]
    clock.seconds = 1.0
    assert [source.current().version for _ in range(2)] == [2, 2]
    clock.seconds = 9.0
    assert source.current().version == 3


@pytest.mark.parametrize(
    ("text", "said"), [("{", "as JSON"), ("[]", "JSON object"), ('{"nodes": 1}', "image.json: image")]
)
def test_a_file_that_is_no_image_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "image.json"
    path.write_text(text)
    with pytest.raises(ImageRefused, match=said):
        load_image_file(path)


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"streams":' * 200_000, '{"streams": [' + "[" * 100_000 + "]" * 100_000]
)
def test_a_file_that_is_nested_without_end_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "image.json"
    path.write_text(text)
    with pytest.raises(ImageRefused, match="nested too deeply"):
        load_image_file(path)


@pytest.mark.parametrize(
    ("last", "told", "expected"),
    [(-1, None, (10, None)), (-1, 70, (10, 70)), (90, None, (10, 90)), (90, 70, (10, 90)), (90, 120, (10, 120))],
)
def test_what_a_node_owns_of_a_stream_spans_all_its_ranges_and_ends_where_these_or_commits_say(
    last: int, told: int | None, expected: tuple[int, int | None]
) -> None:
    ranges = [OwnershipRange(0, 10, 20, 4), OwnershipRange(1, 20, 60, 7), OwnershipRange(2, 60, last, 4)]
    facts = Told(ends={} if told is None else {1: told})
    listed = make_node(4, [(0, ObjectRef(0))], facts=facts)
    assert make_stream(1, 0, ranges, []).owned_span(listed) == expected
    assert make_stream(1, 15, ranges, []).owned_span(listed) == (15, expected[1])
