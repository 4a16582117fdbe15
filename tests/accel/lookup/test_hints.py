"""Snapshots and packs in the bucket: what they save, counted, and what becomes of them when something is wrong."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from accel import Ending, MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.image import ObjectRef
from accel.lookup.explain import WIDTH
from accel.lookup.hints import HintStore
from benchmarks.lookups import Node, make_cold_node
from bloom import StreamFilter
from loaders.errors import StoreUnavailable
from loaders.format import ObjectEncoder, RecordBatch
from loaders.hints import HintTrouble, SnapshotReader, plan_entries, read_pack_root, write_pack
from loaders.layout import HINTS_PREFIX, HintKind, ObjectLayout, hint_root_key
from loaders.store import CountingStore, Fetched, MemoryStore
from tests.accel.lookup.cluster import BOTH_DRIVERS, NODE, STREAM, image_of, line_image, put, system
from tests.accel.lookup.cluster import accelerator as driven
from tests.accel.lookup.cluster import settled as accelerator
from tests.accel.lookup.driving import Clock
from tests.accel.lookup.hinting import put_pack, put_real_hints, put_snapshot

OBJECTS = 1000
LENGTH = 10


@pytest.fixture(scope="module", params=[1.0, 0.1, 0.01], ids=["dense", "10 %", "1 %"])
def node(request: pytest.FixtureRequest) -> Node:
    return make_cold_node(OBJECTS, request.param, 5)


def line(count: int, *, hinted: int | None = None, every: int = 1) -> tuple[CountingStore, MetadataImage]:
    """Objects 0, 1, ... of which each `every`th has 10 offsets of the stream; hints of the first ones, or of all."""
    store = CountingStore(MemoryStore())
    sizes = [store_object(store, each, every) for each in range(count)]
    image = sized(line_image(list(range(count)), end=count * LENGTH // every), sizes)
    if hinted is None:
        put_real_hints(store, image)
    elif hinted:
        put_real_hints(store, sized(line_image(list(range(hinted))), sizes))
    store.reset()
    return store, image


def store_object(store: CountingStore, object_id: int, every: int = 1) -> int:
    start = object_id // every * LENGTH
    rows = [(STREAM, start, start + LENGTH)] if object_id % every == 0 else []
    return put(store, object_id, [(1, object_id, object_id + 1), *rows])


def sized(image: MetadataImage, sizes: list[int] | dict[int, int]) -> MetadataImage:
    ids = image.nodes[NODE].object_ids.tolist()
    end = image.streams[STREAM].ranges[0].end
    return image_of({STREAM: (NODE, end)}, {NODE: ids}, sizes={each: sizes[each] for each in ids})


def gets(store: CountingStore) -> int:
    return store.reset().gets


@BOTH_DRIVERS
def test_the_first_record_costs_one_request_more_than_its_place(driver: Any) -> None:
    store, image = line(100)
    with driven(store, image, driver=driver) as one:
        reading = one.read(STREAM, 555, 556)
        assert next(reading).base_offset == 550
        assert gets(store) == 3  # root, entries, blocks
        assert list(reading) == []
        assert next(one.read(STREAM, 111, 112)).base_offset == 110
        assert gets(store) == 1  # the entries are in memory
        assert one.stats().hints.spans_read == 2
        assert one.stats().loader.opened == 0


def test_a_lookup_of_what_the_snapshot_told_before_costs_nothing_even_if_it_ends_at_a_hole() -> None:
    store, image = line(200, every=10)
    with accelerator(store, image) as one:
        assert one.get_objects(STREAM, 95, limit=100).ending is Ending.HOLE
        assert gets(store) == 2
        assert one.get_objects(STREAM, 95, limit=100).ending is Ending.HOLE
        assert one.get_objects(STREAM, 0, limit=3).end_offset == 30
        assert gets(store) == 0


def test_near_a_known_object_nothing_is_opened_before_the_snapshot_has_told() -> None:
    store, image = line(100, hinted=80, every=10)
    with accelerator(store, image) as one:
        one.object_committed(NODE, image.nodes[NODE].ref(90), {STREAM: (90, 100)})
        answer = one.get_objects(STREAM, 75, limit=1)
        assert [each.object_id for each in answer.objects] == [70]
        assert answer.objects_opened == 0
        assert gets(store) == 2  # root and entries: of the uncovered objects before the known one none was guessed at


@pytest.fixture
def by_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's entries are read group by group, as those of a stream in a million objects."""
    monkeypatch.setattr("accel.lookup.search.plan_entries", partial(plan_entries, span_size_bytes_max=1))


def grouped(lost: range) -> tuple[CountingStore, MetadataImage]:
    """100 objects, all covered by a snapshot with groups of 40 entries; some objects have nothing of the stream."""
    store = CountingStore(MemoryStore())
    rows = [(STREAM, at * LENGTH, (at + 1) * LENGTH, at, at, -1, 0, 1, False) for at in range(100) if at not in lost]
    sizes = [put(store, at, [(1, at, at + 1), *(row[:3] for row in rows if row[3] == at)]) for at in range(100)]
    put_snapshot(store, NODE, dict(enumerate(sizes)), rows, group_rows_max=40)
    store.reset()
    return store, sized(line_image(list(range(100)), end=1000), sizes)


@pytest.mark.usefixtures("by_groups")
def test_behind_the_entries_that_were_read_the_snapshot_is_asked_for_more() -> None:
    store, image = grouped(range(0))
    with accelerator(store, image) as one:
        answer = one.get_objects(STREAM, 305, limit=60)
        assert [each.object_id for each in answer.objects] == list(range(30, 90))
        assert answer.objects_opened == 0
        assert gets(store) == 1 + 3  # the root, and each group


@pytest.mark.usefixtures("by_groups")
def test_what_the_snapshot_has_answered_is_not_asked_again_where_memory_forgets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("accel.lookup.engine.HintStore", partial(HintStore, entries_size_bytes_max=1))
    store, image = grouped(range(33, 36))
    with accelerator(store, image) as one:
        answer = one.get_objects(STREAM, 325, limit=2)
        assert ([each.object_id for each in answer.objects], answer.ending) == ([32], Ending.HOLE)
        assert answer.objects_opened == 3  # that they hold nothing is not for a part of the entries to say
        assert one.stats().hints.entries_asked == 1


def test_a_node_without_a_snapshot_costs_one_request_and_is_not_asked_again_for_ten_minutes() -> None:
    store, image = line(100, hinted=0)
    clock = Clock()
    with accelerator(store, image, clock) as one, accelerator(store, image, use_hints=False) as without:
        expected = without.get_objects(STREAM, 555, limit=1)
        plain = gets(store)
        found = one.get_objects(STREAM, 555, limit=1)
        assert found.objects == expected.objects
        assert gets(store) == plain + 1
        one.get_objects(STREAM, 55, limit=1)
        clock.seconds += 599
        one.get_objects(STREAM, 855, limit=1)
        assert one.stats().hints.roots_asked == 1
        assert one.stats().hints.missing == 1


def test_hints_can_be_switched_off() -> None:
    store, image = line(100)
    for switch in ("use_hints", "bypass"):
        with accelerator(store, image, None, **{switch: switch == "bypass"}) as one:
            one.get_objects(STREAM, 555)
            one.warm()
            assert one.stats().hints.requests == 0


def files(store: CountingStore, kind: HintKind, *, root: bool) -> list[str]:
    wanted = hint_root_key(kind, NODE)
    keys = [each.key for each in store.list(f"{HINTS_PREFIX}{kind}/")]
    return [wanted] if root else [key for key in keys if not key.endswith("/root")]


def flipped(body: bytes) -> bytes:
    return body[:100] + bytes([body[100] ^ 1]) + body[101:]


def change(store: CountingStore, keys: list[str], how: str) -> None:
    for key in keys:
        body = store.get(key).body
        if how == "gone":
            store.delete(key)
        else:
            store.put(key, flipped(body) if how == "flipped" else body + b"more")


@pytest.mark.parametrize(
    ("root", "how", "trouble"),
    [
        (True, "gone", HintTrouble.MISSING),
        (True, "flipped", HintTrouble.CORRUPT),
        (True, "longer", HintTrouble.CORRUPT),
        (False, "gone", HintTrouble.STALE),
        (False, "flipped", HintTrouble.CORRUPT),
        (False, "longer", HintTrouble.MIXED),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_counted_and_told_and_changes_no_answer(
    *, root: bool, how: str, trouble: HintTrouble
) -> None:
    store, image = line(100)
    change(store, files(store, HintKind.SNAPSHOTS, root=root), how)
    with accelerator(store, image) as one, accelerator(store, image, use_hints=False) as without:
        told = one.explain(STREAM, 555, limit=3)
        assert told.answer.objects == without.get_objects(STREAM, 555, limit=3).objects
        assert getattr(one.stats().hints, trouble) == 1
        expected = "the node has no snapshot" if trouble is HintTrouble.MISSING else f"the snapshot is {trouble}"
        assert expected in told.text()
        assert all(len(line) <= WIDTH for line in told.text().splitlines() if "hint" in line or "snapshot" in line)
        assert [each["problem"] for each in told.to_dict()["events"] if each.get("problem")]
        asked = one.stats().hints.requests
        one.get_objects(STREAM, 255, limit=1)
        assert one.stats().hints.requests == asked  # what cannot be used is not read again


def test_a_snapshot_of_another_cluster_is_foreign() -> None:
    store, image = line(100)
    with ReadAccelerator(
        StaticImages(replace(image, namespace="elsewhere")), store, settings=Settings(parallel_loads=4), system=system()
    ) as one:
        one.warm()
        assert one.stats().hints.foreign == 2  # the root of the snapshot and that of the pack


class Unavailable(CountingStore):
    """A store that fails for whatever is a hint."""

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        if key.startswith(HINTS_PREFIX):
            raise StoreUnavailable("get_range", key, "slow down")
        return super().get_range(key, start, end)


def test_a_store_that_fails_for_hints_fails_no_lookup() -> None:
    store, image = line(100)
    with accelerator(Unavailable(store), image) as one:
        assert one.get_objects(STREAM, 555, limit=1).start_offset == 550
        report = one.warm()
        assert {kind for kind, _ in report.problems} == {"unreachable"}
        assert one.stats().hints.unreachable >= 2


def test_a_root_is_asked_for_again_when_its_time_is_over_and_a_newer_one_is_used() -> None:
    store, image = line(100, hinted=50)
    clock = Clock()
    with accelerator(store, image, clock) as one:
        one.get_objects(STREAM, 255, limit=1)
        put_real_hints(store, image, generation=2)
        clock.seconds += 61
        store.reset()
        answer = one.get_objects(STREAM, 755, limit=1)
        assert (answer.rounds, answer.objects_opened) == (2, 0)
        assert one.stats().hints.roots_asked == 2


def _sizes(store: CountingStore, object_ids: list[int]) -> dict[int, int]:
    return {each: len(store.get(ObjectLayout().object_key(each)).body) for each in object_ids}


def test_bytes_that_are_not_what_a_snapshot_says_are_read_through_the_index() -> None:
    store, image = line(100)
    node = image.nodes[NODE]
    lying = {}
    for position in range(len(node)):
        ref = node.ref(position)
        lying[ref.object_id] = ref.size_bytes
    rows = [(STREAM, at * LENGTH, at * LENGTH + LENGTH, at, at, 3, 90, 1, False) for at in range(100)]
    put_snapshot(store, NODE, lying, rows, generation=2)
    with accelerator(store, image) as one:
        for _ in range(2):
            assert [each.base_offset for each in one.read(STREAM, 555, 556)] == [550]
        assert (one.stats().hints.spans_read, one.stats().hints.spans_wrong) == (1, 1)


def test_a_large_stretch_of_blocks_is_not_fetched_for_a_small_read() -> None:
    store = CountingStore(MemoryStore())
    sizes = []
    for number in range(40):
        encoder = ObjectEncoder()
        first = number * 30
        parts = [
            encoder.write(STREAM, [RecordBatch(STREAM, 1, at, 1, bytes(50_000))]) for at in range(first, first + 30)
        ]
        body = b"".join([*parts, encoder.finish()])
        store.put(ObjectLayout().object_key(number), body)
        sizes.append(len(body))
    image = sized(line_image(list(range(40)), end=1200), sizes)
    put_real_hints(store, image)
    store.reset()
    with accelerator(store, image) as one:
        assert len(list(one.read(STREAM, 100, 101))) == 1
        assert one.stats().hints.spans_read == 0
        assert len(list(one.read(STREAM, 120, 150))) == 30
        assert one.stats().hints.spans_read == 1


def test_warming_loads_roots_and_packs_and_then_only_holders_are_opened() -> None:
    store, image = line(200, every=20)
    store.delete(hint_root_key(HintKind.SNAPSHOTS, NODE))
    with accelerator(store, image) as one:
        report = one.warm()
        assert (report.nodes, report.snapshots, report.packs, report.filters) == (1, 0, 1, 200)
        assert [kind for kind, _ in report.problems] == ["missing"]
        assert gets(store) == report.requests == 3
        answer = one.get_objects(STREAM, 55, limit=1)
        assert answer.objects[0].object_id == 100
        assert answer.objects_opened <= 10
        assert one.stats().hints.filters == 200


def test_warming_takes_only_filters_of_objects_that_are_listed_with_their_size() -> None:
    store, image = line(40, hinted=0)
    right = image.nodes[NODE].ref(3)
    wrong = ObjectRef(4, right.size_bytes + 1)
    put_pack(store, NODE, {right: [1], wrong: [1], ObjectRef(900, 5): [1]})
    with accelerator(store, image) as one:
        assert one.warm([NODE, 77]).filters == 1
        assert one.stats().caches["filters"].entries == 1


@BOTH_DRIVERS
def test_warming_reads_a_snapshots_root_so_that_the_first_lookup_is_one_request(driver: Any) -> None:
    store, image = line(100)
    with driven(store, image, driver=driver) as one:
        report = one.warm([NODE])
        assert (report.snapshots, report.problems) == (1, ())
        store.reset()
        one.get_objects(STREAM, 555, limit=1)
        assert gets(store) <= 1


def test_a_damaged_filter_is_left_out_and_counted() -> None:
    store, image = line(100)
    change(store, files(store, HintKind.PACKS, root=False), "flipped")
    with accelerator(store, image) as one:
        report = one.warm()
        assert (report.filters, report.filters_bad) == (99, 1)
        assert one.stats().hints.filters_bad == 1


@BOTH_DRIVERS
def test_many_lookups_at_once_read_a_root_and_a_span_once(driver: Any) -> None:
    store, image = line(100)
    with driven(store, image, driver=driver) as one, ThreadPoolExecutor(16) as callers:
        answers = list(callers.map(lambda at: one.get_objects(STREAM, at * 10, limit=1), range(100)))
    assert [each.objects[0].object_id for each in answers] == list(range(100))
    # A lookup that asks between the end of a request and the entry of its result in memory sends the request again.
    assert 2 <= gets(store) <= 4


def test_an_explanation_tells_of_the_snapshot() -> None:
    store, image = line(100, hinted=90)
    with accelerator(store, image) as one:
        told = one.explain(STREAM, 555, limit=1)
        assert "the snapshot covers 90 of 100 listed objects" in told.text()
        assert "90 of 90 hold the stream" in told.text()
        assert told.requests == 2
        assert told.to_dict()["cost"]["rounds"] == 2
        events = [each for each in told.to_dict()["events"] if each["event"] == "hintread"]
        assert [(each["what"], each["covered"], each["entries"]) for each in events] == [
            ("root", 90, 0),
            ("entries", 90, 90),
        ]
        assert "known from the snapshot" in told.text()
    store, image = line(200, every=10)
    with accelerator(store, image) as one:
        one.get_objects(STREAM, 195)
        assert "from memory" in one.explain(STREAM, 195).text()


def test_memory_of_hints_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "accel.lookup.engine.HintStore", partial(HintStore, entries_size_bytes_max=1000, roots_size_bytes_max=1000)
    )
    store, image = line(100)
    with accelerator(store, image) as one:
        for _ in range(2):
            assert one.get_objects(STREAM, 555, limit=1).start_offset == 550
        stats = one.stats()
        names = ("snapshot_roots", "pack_roots", "snapshot_entries")
        assert sum(stats.caches[name].size_bytes for name in names) <= 2000
        assert stats.memory_bytes <= stats.memory_bytes_max


def test_where_blocks_lie_is_told_of_the_very_object_unless_its_index_is_in_memory() -> None:
    store, image = line(100)
    opened: set[ObjectRef] = set()
    hints = HintStore(image.namespace, Clock(), opened.__contains__)
    known = hints.roots.read(store, NODE)
    hints.keep(NODE, known, SnapshotReader(store, image.namespace, Clock()).read_entries(NODE, STREAM))
    ref = image.nodes[NODE].ref(55)
    row = hints.find(NODE, ref, STREAM)
    assert row is not None
    assert (row.start, row.end, row.record_count) == (550, 560, 1)
    assert hints.find(NODE, ObjectRef(55, ref.size_bytes + 1), STREAM) is None
    assert hints.find(NODE, ref, STREAM + 1) is None
    opened.add(ref)
    assert hints.find(NODE, ref, STREAM) is None


def states(one: ReadAccelerator) -> dict[str, tuple[str, int]]:
    return {hint.kind: (hint.state.value, hint.covered) for hint in one.stats().node_hints}


def test_it_is_told_which_hints_are_used_and_why_others_are_not() -> None:
    store, image = line(100, hinted=90)
    with accelerator(store, image) as one:
        assert one.stats().node_hints == (), "nothing was asked for so far"
        told = one.explain(STREAM, 555, limit=1)
        assert "hints    node 1: snapshot used, covers 90 of 100 listed; pack not read: warm() loads it" in told.text()
        assert [hint["state"] for hint in told.to_dict()["hints"]] == ["used", "not read"]
        assert states(one) == {"snapshot": ("used", 90)}
        report = one.warm()
        assert [str(hint) for hint in report.hints] == [
            "snapshot used, covers 90 of 100 listed",
            "pack used, covers 90 of 100 listed",
        ]
        assert states(one) == {"snapshot": ("used", 90), "pack": ("used", 90)}
        json.dumps(one.stats().to_dict())
        assert "hints" not in one.explain(STREAM, 555, limit=1).text(), "memory answered"


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("gone", "absent", "none was built (accel catalog build-hints)"),
        ("flipped", "unusable", "corrupt: "),
        ("longer", "unusable", "corrupt: "),
    ],
)
def test_hints_that_are_absent_or_unusable_are_told_with_the_reason(how: str, state: str, reason: str) -> None:
    store, image = line(100)
    for kind in HintKind:
        change(store, files(store, kind, root=True), how)
    with accelerator(store, image) as one:
        report = one.warm()
        assert [(hint.kind, hint.state.value, hint.covered) for hint in report.hints] == [
            ("snapshot", state, 0),
            ("pack", state, 0),
        ]
        assert all(hint.reason.startswith(reason) for hint in report.hints)


def test_hints_of_objects_that_are_listed_no_more_are_too_old() -> None:
    store, image = line(100)
    put(store, 500, [(STREAM, 0, 500)])
    newer = sized(line_image([500], version=1), _sizes(store, [500]))
    del image
    with accelerator(store, newer) as one:
        report = one.warm()
    assert [hint.state.value for hint in report.hints] == ["too old", "too old"]
    assert report.hints[0].reason == "it covers 0 of 1 listed objects"


def filters_of(one: ReadAccelerator) -> int:
    return one.stats().hints.filters


def add_to_pack(store: CountingStore, image: MetadataImage, positions: range, generation: int) -> None:
    """A newer generation of the node's pack, with filters of more objects."""
    node = image.nodes[NODE]
    refs = [ObjectRef(int(node.object_ids[at]), int(node.sizes_bytes[at])) for at in positions]
    added = [(ref, StreamFilter.build(np.array([1]))) for ref in refs]
    previous = read_pack_root(store, image.namespace, NODE)
    write_pack(store, namespace=image.namespace, node_id=NODE, generation=generation, added=added, previous=previous)


def test_a_running_process_takes_up_newer_packs_without_being_told() -> None:
    store, image = line(100, hinted=60, every=10)
    change(store, [hint_root_key(HintKind.SNAPSHOTS, NODE)], "gone")
    clock = Clock()
    with accelerator(store, image, clock) as one:
        one.warm()
        assert filters_of(one) == 60
        add_to_pack(store, image, range(60, 100), 2)
        clock.seconds += 59
        one.get_objects(STREAM, 5, limit=1)
        asked = one.stats().hints.requests
        clock.seconds += 2
        one.get_objects(STREAM, 95, limit=1)
    hints = one.stats().hints
    assert (hints.filters, hints.packs) == (100, 2)
    assert hints.requests == asked + 2, "the root, and what is new"


def test_a_look_for_newer_packs_that_are_the_same_costs_a_request_without_a_body() -> None:
    store, image = line(100, hinted=60, every=10)
    change(store, [hint_root_key(HintKind.SNAPSHOTS, NODE)], "gone")
    clock = Clock()
    with accelerator(store, image, clock) as one:
        one.warm()
        before = one.stats().hints
        clock.seconds += 61
        one.get_objects(STREAM, 95, limit=1)
    after = one.stats().hints
    assert (after.requests, after.bytes_read, after.filters) == (before.requests + 1, before.bytes_read, 60)
