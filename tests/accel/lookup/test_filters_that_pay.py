"""Filters are loaded by a lookup that would otherwise open more objects in vain, and by no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from accel import MetadataImage, ReadAccelerator
from accel.image import ObjectRef
from loaders.layout import HintKind, hint_root_key
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from tests.accel.lookup.cluster import NODE, image_of, put, settled
from tests.accel.lookup.driving import Clock
from tests.accel.lookup.hinting import put_pack

DENSE, RARE, OTHER = 3, 7, 9
HOLDERS = {RARE: (40, 41, 110), OTHER: (20, 150)}
ROOT = hint_root_key(HintKind.PACKS, NODE)


class Requests(DecoratedStore):
    """Keeps the keys of all reads."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.keys: list[str] = []

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self.keys.append(call.key)
        return send()

    def take(self) -> tuple[int, int]:
        """The number of objects read, and that of reads of hints, since the last call; snapshots are not counted."""
        keys, self.keys = self.keys, []
        hints = [key for key in keys if "/hints/" in key]
        return len(keys) - len(hints), sum("packs" in key for key in hints)


def cluster(objects: int = 200, *, has_pack: bool = True, covers: int = 1000) -> tuple[Requests, MetadataImage]:
    store, sizes = MemoryStore(), {}
    held: dict[ObjectRef, Iterable[int]] = {}
    ends = dict.fromkeys(HOLDERS, 0)
    for object_id in range(objects):
        rows = [(DENSE, 10 * object_id, 10 * object_id + 10)]
        for stream_id, holders in HOLDERS.items():
            if object_id in holders:
                rows.append((stream_id, ends[stream_id], ends[stream_id] + 10))
                ends[stream_id] += 10
        sizes[object_id] = put(store, object_id, rows)
        if object_id < covers:
            held[ObjectRef(object_id, sizes[object_id])] = [row[0] for row in rows]
    if has_pack:
        put_pack(store, NODE, held)
    owned = dict.fromkeys((DENSE, *HOLDERS), (NODE, -1))
    return Requests(store), image_of(owned, {NODE: sizes}, sizes=sizes)


def patient(store: ObjectStore, image: MetadataImage, clock: Clock | None = None, **options: Any) -> ReadAccelerator:
    """An accelerator that counts no request as slow, however busy the machine is."""
    return settled(store, image, clock, max_wait_load_seconds=60.0, **options)


def found(one: ReadAccelerator, stream_id: int) -> list[int]:
    return [each.object_id for each in one.get_objects(stream_id, 0, limit=9).objects]


def test_a_lookup_that_opens_objects_in_vain_loads_the_filters_of_the_others() -> None:
    store, image = cluster()
    with patient(store, image) as one, patient(cluster(has_pack=False)[0], image) as without:
        assert found(one, RARE) == found(without, RARE) == list(HOLDERS[RARE])
        objects, packs = store.take()
        assert objects <= 8 + 2 * len(HOLDERS[RARE])
        assert packs == 2  # the root, and all filters
        assert one.stats().hints.filters == 192
        assert found(one, OTHER) == list(HOLDERS[OTHER])
        objects, packs = store.take()
        assert (objects <= 2 * len(HOLDERS[OTHER]), packs) == (True, 0)


def test_a_lookup_that_finds_the_stream_does_not_ask_for_filters() -> None:
    store, image = cluster()
    with patient(store, image) as one:
        assert [each.object_id for each in one.get_objects(DENSE, 777, 790).objects] == [77, 78]
        assert store.take()[1] == 0


@pytest.mark.parametrize("objects", [1, 8, 9])
def test_few_candidates_are_opened(objects: int) -> None:
    store, image = cluster(objects)
    with patient(store, image) as one:
        assert found(one, RARE) == []
        assert store.take() == (objects, 0)


def test_filters_that_would_cost_more_than_the_objects_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    store, image = cluster(24)
    with patient(store, image) as one:
        monkeypatch.setattr("accel.lookup.hints.plan_pack_reads", lambda *_: [Span()] * 15)
        told = one.explain(OTHER, 0)
        assert store.take() == (24, 1)
        assert "the node's filters would cost more than they save, and were not loaded" in told.text()
        assert [each.object_id for each in told.answer.objects] == [20]


class Span:
    size_bytes = 1


@pytest.mark.parametrize("most", [1, 500])
def test_a_lookup_loads_no_more_bytes_than_its_bound(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("accel.lookup.hints.PACK_SIZE_BYTES_MAX", most)
    store, image = cluster()
    with patient(store, image) as one:
        assert found(one, RARE) == list(HOLDERS[RARE])
        assert store.take()[1] == 1


def test_more_filters_than_the_indexes_have_bytes_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.lookup.node_visit.FILTERS_AN_INDEX", 2)
    store, image = cluster()
    with patient(store, image) as one:
        assert found(one, RARE) == list(HOLDERS[RARE])
        objects, packs = store.take()
        assert packs == 2
        assert 40 < objects < 130  # 8, 16 and 32 objects were opened before: then it was worth it


def test_a_node_without_a_pack_costs_one_request_for_a_time() -> None:
    store, image = cluster(has_pack=False)
    clock = Clock()
    with patient(store, image, clock, view_size_bytes_max=1) as one:
        assert found(one, RARE) == list(HOLDERS[RARE])
        assert store.take() == (200, 1)
    with patient(store, image, clock) as one:
        told = one.explain(RARE, 0, limit=9)
        assert "the node has no filters" in told.text()


def test_an_explanation_names_the_filters_and_their_cost() -> None:
    store, image = cluster()
    with patient(store, image) as one:
        told = one.explain(RARE, 0, limit=9)
    [event] = [each for each in told.to_dict()["events"] if each.get("what") == "filters"]
    assert (event["covered"], event["requests"], event["finished"]) == (192, 2, True)
    assert "loaded 192 filters, which costs less than opening objects" in told.text()
    assert told.requests <= 20


def test_objects_that_the_pack_does_not_cover_are_opened() -> None:
    store, image = cluster(covers=100)
    with patient(store, image) as one:
        assert found(one, RARE) == list(HOLDERS[RARE])
        objects, packs = store.take()
        assert packs == 2
        assert objects < 150


def test_lookups_of_one_node_at_the_same_time_share_the_load() -> None:
    store, image = cluster()
    counted = CountingStore(store)
    gate = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool, patient(counted, image) as one:

        def ask(number: int) -> list[int]:
            gate.wait(60)
            return found(one, (RARE, OTHER)[number % 2])

        answers = list(pool.map(ask, range(8)))
    assert answers == [list(HOLDERS[RARE]), list(HOLDERS[OTHER])] * 4
    assert store.take()[1] == 2
