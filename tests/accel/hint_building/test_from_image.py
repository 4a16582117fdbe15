"""Hints of a controller's image: built without a catalog, used by its readers, and never a change of an answer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import ReadAccelerator, StaticImages
from accel.catalog.from_image import ImageCatalog
from accel.errors import InvalidRequest, MaintenanceRefused
from accel.hint_building import HintChoice, HintReport, build_hints, plan_hints
from accel.image import MetadataImage, NodeImage, make_node
from accel.lookup.answer import Request
from loaders.layout import HINTS_PREFIX, HintKind, ObjectLayout, hint_root_key
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore, ObjectStore
from tests.accel.lookup.cluster import NODE, STREAM, line_image, line_store, store_of, system
from tests.accel.lookup.test_search_property import queries_of
from tests.examples import examples
from tests.models.worlds import World, worlds

LAYOUT = ObjectLayout()


def sized(image: MetadataImage, store: ObjectStore) -> MetadataImage:
    """The image, each object with its size, as a controller knows it."""

    def with_size(ref: ObjectRef) -> ObjectRef:
        return replace(ref, size_bytes=store.get(LAYOUT.object_key(ref.object_id)).object_size_bytes)

    nodes = {
        node_id: make_node(node_id, zip(node.order_ids.tolist(), map(with_size, node.refs), strict=True))
        for node_id, node in image.nodes.items()
    }
    return replace(image, nodes=nodes)


def build(store: ObjectStore, image: MetadataImage, choice: HintChoice | None = None) -> HintReport:
    with ImageCatalog(store, image, system=system()) as foreign:
        return build_hints(foreign, plan_hints(foreign, choice or HintChoice()))


def answers(store: ObjectStore, image: MetadataImage, requests: list[Request], *, warm: bool) -> list[object]:
    with ReadAccelerator(StaticImages(image), store, system=system()) as accelerator:
        if warm:
            assert all(kind == "missing" for kind, _ in accelerator.warm().problems)
        found: list[object] = []
        for request in requests:
            try:
                answer = accelerator.get_objects(request.stream_id, request.start, request.end, request.limit)
            except InvalidRequest as error:
                found.append(type(error))
                continue
            found.append([(each.kind, each.object_id, each.start, each.end) for each in answer.objects])
    return found


@given(worlds(steps_max=25), st.integers(0, 2**32))
@settings(max_examples=examples(40))
def test_hints_of_an_image_change_no_answer_of_it_or_of_a_later_one(world: World, seed: int) -> None:
    rng, store = random.Random(seed), store_of(world)
    image = sized(MetadataImage.from_dict(world.metadata), store)
    older = replace(image, nodes={node_id: _thinned(node, rng) for node_id, node in image.nodes.items()})
    requests = [Request(*query) for query in queries_of(world, rng, 8)]
    expected = answers(store, image, requests, warm=False)
    objects = {info.key for info in store.list("")}
    for listed in (older, image):
        build(store, listed)
        assert answers(store, image, requests, warm=True) == expected
        assert objects <= {info.key for info in store.list("")}  # nothing of the broker's was deleted


def _thinned(node: NodeImage, rng: random.Random) -> NodeImage:
    pairs = zip(node.order_ids.tolist(), node.refs, strict=True)
    return make_node(node.node_id, [pair for pair in pairs if rng.random() < 0.7])


def line(count: int, *, newer: int = 0) -> tuple[CountingStore, MetadataImage]:
    """A list of so many objects of one stream, 10 offsets each; and so many that the image does not list."""
    store = line_store(count + newer)
    return store, sized(line_image(list(range(count))), store)


def test_a_cold_reader_of_the_image_takes_two_requests_for_the_snapshot_and_opens_nothing() -> None:
    store, image = line(200)
    report = build(store, image, HintChoice(filters=False))
    assert (report.row()["opened_objects"], report.row()["covered_objects"]) == (200, 200)
    with ReadAccelerator(StaticImages(image), store, system=system()) as accelerator:
        store.reset()
        assert len(accelerator.get_objects(STREAM, 995, limit=4).objects) == 4
        accelerator.wait_idle()
        assert store.snapshot().total.requests == 2


def test_no_table_is_read_or_written() -> None:
    store, image = line(3)
    build(store, image)
    written = [info.key for info in store.list("accel/")]
    assert written
    assert all(key.startswith(HINTS_PREFIX) for key in written)
    assert {hint_root_key(kind, NODE) for kind in HintKind} <= set(written)


def test_an_image_without_sizes_is_refused_before_anything_is_opened() -> None:
    store = line_store(3)
    store.reset()
    with pytest.raises(MaintenanceRefused, match=f"node {NODE}: expected the size of each object"):
        build(store, line_image([0, 1, 2]))
    assert store.snapshot().total.requests == 0
