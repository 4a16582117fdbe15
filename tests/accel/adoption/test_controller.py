"""Compaction for a controller: reads stay the same, whatever the controller does with a swap."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import ReadAccelerator, StaticImages
from accel.adoption.controller import (
    ControllerReport,
    Elsewhere,
    MergedGroup,
    MergeItem,
    Swap,
    SwapRefused,
    SwapStatus,
    apply_to_image,
    compact_for_controller,
    merge_for_controller,
    plan_for_controller,
    swaps_from_json,
    swaps_to_json,
)
from accel.catalog.from_image import ImageAccess, ImageCatalog
from accel.compaction import CompactionPlan, CompactionSettings, FailedNode, NodePlan, NodeSurvey, plan_node
from accel.errors import ImageRefused, MaintenanceRefused
from accel.image import MetadataImage, make_node
from accel.testing import Crash, CrashStore
from loaders.layout import ObjectLayout
from loaders.store import CountingStore, MemoryStore, ObjectStore
from tests.accel.lookup.cluster import put, system
from tests.examples import examples

NODE = 4
LAYOUT = ObjectLayout()


@dataclass
class Controller:
    """A controller that keeps an image, gives ids, and applies swaps; a naive one."""

    image: MetadataImage
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1000))
    applied: list[Swap] = field(default_factory=list)

    def take_ids(self, count: int) -> Sequence[int]:
        return list(itertools.islice(self.ids, count))

    def commit(self, swap: Swap) -> None:
        self.image = apply_to_image(self.image, swap)
        self.applied.append(swap)

    def commit_and_lose_the_reply(self, swap: Swap) -> None:
        self.commit(swap)
        raise TimeoutError("no answer")

    def refuse(self, swap: Swap) -> None:
        raise SwapRefused(f"not now, node {swap.node_id}")

    def run(self, store: ObjectStore, plan: CompactionPlan | None = None, **others: object) -> ControllerReport:
        chosen = {"take_ids": self.take_ids, "commit": self.commit, "system": system(), **others}
        return compact_for_controller(store, self.image, plan or planned(store, self.image), **chosen)  # type: ignore[arg-type]


def all_of_it(**choices: object) -> CompactionSettings:
    return CompactionSettings(**{"rewrite_all": True, "min_age_seconds": 0.0, **choices})  # type: ignore[arg-type]


def planned(store: ObjectStore, image: MetadataImage) -> CompactionPlan:
    return plan_for_controller(store, image, all_of_it(), system=system())


Lengths = list[dict[int, int]]
"""For each object, in list order: stream id -> offsets that it holds."""


def world(lengths: Lengths, *, trimmed: dict[int, int] | None = None) -> tuple[MemoryStore, Controller]:
    """A node whose objects hold so much of each stream, one after another; objects have ids 0, 2, 4, ..."""
    store, ends, listed = MemoryStore(), dict[int, int](), []
    for order, held in enumerate(lengths):
        rows = [
            (stream_id, ends.get(stream_id, 0), ends.get(stream_id, 0) + length) for stream_id, length in held.items()
        ]
        ends |= {stream_id: end for stream_id, _, end in rows}
        listed.append({"object_id": 2 * order, "order_id": 2 * order, "size": put(store, 2 * order, rows)})
    streams = [
        {
            "stream_id": stream_id,
            "start_offset": (trimmed or {}).get(stream_id, 0),
            "ranges": [{"range_index": 0, "start": 0, "end": -1, "node_id": NODE}],
        }
        for stream_id in sorted(ends)
    ]
    nodes = [{"node_id": NODE, "stream_set_objects": listed}]
    return store, Controller(MetadataImage.from_dict({"streams": streams, "nodes": nodes}))


def records(store: ObjectStore, image: MetadataImage) -> dict[int, list[tuple[int, int, bytes]]]:
    """All that a reader gets of each stream, from its first kept offset."""
    with ReadAccelerator(StaticImages(image), store, system=system()) as accelerator:
        return {
            stream_id: [
                (batch.base_offset, batch.count, bytes(batch.payload))
                for batch in accelerator.read(stream_id, stream.start_offset)
            ]
            for stream_id, stream in image.streams.items()
        }


held = st.dictionaries(st.integers(1, 5), st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=examples(30))
@given(st.lists(held, min_size=2, max_size=8), st.dictionaries(st.integers(1, 5), st.integers(0, 3)))
def test_readers_get_the_same_records_before_and_after(lengths: Lengths, trimmed: dict[int, int]) -> None:
    store, controller = world(lengths, trimmed=trimmed)
    before = records(store, controller.image)
    old_image, objects = controller.image, len(lengths)
    report = controller.run(store)
    assert not report.is_partial
    assert records(store, controller.image) == before
    assert records(store, old_image) == before  # nothing was deleted
    removed = sum(len(swap.sources) - (swap.output is not None) for swap in controller.applied)
    assert len(controller.image.node(NODE)) == objects - removed < objects


def test_a_swap_says_what_the_list_had_and_what_takes_its_place() -> None:
    store, controller = world([{1: 2}, {1: 3, 2: 1}, {2: 4}])
    report = controller.run(store, data_times_ms={0: 5000, 4: 3000})
    [swap] = controller.applied
    assert [(source.object_id, source.order_id) for source in swap.sources] == [(0, 0), (2, 2), (4, 4)]
    assert [source.size_bytes for source in swap.sources] == [
        len(store.get(LAYOUT.object_key(object_id)).body) for object_id in (0, 2, 4)
    ]
    assert swap.output is not None
    assert (swap.output.object_id, swap.output.order_id, swap.output.streams) == (1000, 0, 2)
    assert (swap.output.data_time_ms, swap.node_id, swap.namespace) == (3000, NODE, "DEFAULT")
    assert swap.output.size_bytes == len(store.get(LAYOUT.object_key(1000)).body)
    assert [result.to_dict()["swap_id"] for result in report.groups] == [swap.swap_id]


def test_objects_that_share_an_order_id_are_left_in_their_place() -> None:
    store, controller = world([{1: 2}, {1: 3, 2: 1}, {2: 4}, {3: 2}, {1: 1}, {2: 2}])
    listed = controller.image.node(NODE)
    tied = make_node(NODE, zip([0, 2, 6, 6, 8, 10], listed.refs, strict=True))
    controller.image = replace(controller.image, nodes={NODE: tied})
    before = records(store, controller.image)
    plan = planned(store, controller.image)
    assert sorted([ref.object_id for ref in group.sources] for group in plan.groups) == [[0, 2], [8, 10]]
    assert any(each.object_ids == (4, 6) and "order id" in each.reason for node in plan.nodes for each in node.skipped)
    controller.run(store, plan)
    assert controller.image.node(NODE).order_ids.tolist() == [0, 6, 6, 8]
    assert records(store, controller.image) == before


def test_what_nothing_is_needed_of_is_passed_on_as_swaps_without_outputs() -> None:
    lengths: Lengths = [{1: 2}, {1: 3}, {2: 4}, {1: 1}, {1: 2, 2: 1}]
    store, controller = world(lengths, trimmed={1: 6})
    before = records(store, controller.image)
    wanted = CompactionSettings(max_objects_per_node=4, target_objects=2, min_age_seconds=0)
    plan = plan_for_controller(store, controller.image, wanted, system=system())
    assert [[ref.object_id for ref in node.dead] for node in plan.nodes] == [[0, 2, 6]]
    counting = CountingStore(store)
    report = controller.run(counting, plan)
    assert counting.snapshot().total.requests == 0
    assert [[source.object_id for source in swap.sources] for swap in controller.applied] == [[0, 2], [6]]
    assert all(swap.output is None and not swap.stream_objects for swap in controller.applied)
    assert not report.is_partial
    assert controller.image.node(NODE).object_ids.tolist() == [4, 8]
    assert records(store, controller.image) == before
    again = plan_for_controller(store, controller.image, wanted, system=system())
    assert not again.dead
    assert again.reasons[0].startswith("node 4, 2 objects: it has few enough")


def test_what_the_controller_refuses_is_left_and_named() -> None:
    store, controller = world([{1: 2}, {1: 3}])
    [result] = controller.run(store, commit=controller.refuse).groups
    assert (result.status, result.reason, result.unlisted_ids) == (SwapStatus.REFUSED, "not now, node 4", (1000,))
    assert store.get(LAYOUT.object_key(1000)).body  # left for the controller to delete


def test_a_lost_reply_is_no_failure_and_the_swap_may_be_handed_over_again() -> None:
    store, controller = world([{1: 2}, {1: 3}])
    before = records(store, controller.image)
    [result] = controller.run(store, commit=controller.commit_and_lose_the_reply).groups
    assert (result.status, result.unlisted_ids) == (SwapStatus.UNKNOWN, ())
    assert result.swap is not None
    listed = controller.image.node(NODE).refs
    controller.commit(result.swap)  # arrives twice
    assert controller.image.node(NODE).refs == listed
    assert records(store, controller.image) == before


def test_a_source_that_is_gone_or_changed_makes_the_controller_refuse() -> None:
    store, controller = world([{1: 2}, {1: 3}, {1: 1}])
    plan = planned(store, controller.image)
    first = MetadataImage.from_dict(
        {
            "streams": [],
            "nodes": [{"node_id": NODE, "stream_set_objects": [{"object_id": 0, "order_id": 0, "size": 1}]}],
        }
    )
    elsewhere = Controller(first)
    [result] = controller.run(store, plan, commit=elsewhere.commit).groups
    assert result.status is SwapStatus.REFUSED
    assert "found it listed as" in result.reason
    empty = Controller(MetadataImage.from_dict({"streams": [], "nodes": []}))
    [result] = controller.run(store, plan, commit=empty.commit).groups
    assert "expected object 0 in the list of node 4, found it gone" in result.reason


def test_sources_that_are_no_neighbours_any_more_are_refused() -> None:
    store, controller = world([{1: 2}, {1: 3}])
    controller.run(store)
    [swap] = controller.applied
    _, other = world([{1: 2}, {1: 3}])
    listed = [
        {"object_id": ref.object_id, "order_id": 2 * at, "size": ref.size_bytes}
        for at, ref in enumerate(other.image.node(NODE).refs)
    ]
    between = [listed[0], {"object_id": 77, "order_id": 1, "size": 5}, listed[1]]
    image = MetadataImage.from_dict({"streams": [], "nodes": [{"node_id": NODE, "stream_set_objects": between}]})
    with pytest.raises(SwapRefused, match=r"neighbours .* positions \[0, 2\]"):
        apply_to_image(image, swap)


def test_a_crash_before_any_write_changes_nothing_and_the_run_can_be_repeated() -> None:
    number, has_crashed = 0, True
    while has_crashed:
        store, controller = world([{1: 2, 2: 1}, {1: 3}, {2: 2}, {1: 1}])
        before = records(store, controller.image)
        dying = CrashStore(store, number)
        with contextlib.suppress(Crash):
            report = controller.run(dying)
            assert report.groups[0].status is (SwapStatus.FAILED if dying.has_crashed else SwapStatus.COMMITTED)
        assert records(store, controller.image) == before
        controller.run(store)
        assert len(controller.image.node(NODE)) == 1
        assert records(store, controller.image) == before
        number, has_crashed = number + 1, dying.has_crashed
    assert number > 1


@pytest.mark.parametrize(("object_id", "expected"), [(2, "which the image lists"), (77, "ObjectExists")])
def test_an_id_that_has_an_object_already_overwrites_nothing(object_id: int, expected: str) -> None:
    store, controller = world([{1: 2}, {1: 3}])
    put(store, 77, [(9, 0, 5)])  # of somebody whose commit this image does not have yet
    kept = store.get(LAYOUT.object_key(object_id)).body
    [result] = controller.run(store, take_ids=lambda count: [object_id] * count).groups
    assert (result.status, result.unlisted_ids) == (SwapStatus.FAILED, ())
    assert expected in result.reason
    assert store.get(LAYOUT.object_key(object_id)).body == kept


def test_a_list_without_sizes_is_refused() -> None:
    store, _controller = world([{1: 2}, {1: 3}])
    listed = [{"object_id": 0, "order_id": 0}, {"object_id": 2, "order_id": 2}]
    image = MetadataImage.from_dict({"streams": [], "nodes": [{"node_id": NODE, "stream_set_objects": listed}]})
    with pytest.raises(MaintenanceRefused, match=r"node 4: expected the size .* none for 2 of 2, object 0"):
        planned(store, image)


def test_swaps_go_through_a_file() -> None:
    store, controller = world([{1: 2}, {1: 3}])
    before, written = records(store, controller.image), list[Swap]()
    controller.run(store, commit=written.append)
    assert not controller.applied
    [swap] = swaps_from_json(swaps_to_json(written))
    assert swap == written[0]
    controller.commit(swap)
    assert records(store, controller.image) == before


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b'"order_id": 0', b'"order_id": 1', "it was changed"),
        (b'"version": 1', b'"version": 2', "found 'accel-compaction' version 2"),
        (b'"node_id"', b'"node_ids"', "expected a file of swaps"),
        (b"{", b"", "expected a file of swaps"),
    ],
)
def test_a_file_that_was_changed_is_refused(old: bytes, new: bytes, expected: str) -> None:
    store, controller = world([{1: 2}, {1: 3}])
    controller.run(store)
    data = swaps_to_json(controller.applied)
    assert old in data
    with pytest.raises(ImageRefused, match=expected):
        swaps_from_json(data.replace(old, new, 1))


def test_too_few_ids_are_refused() -> None:
    store, controller = world([{1: 2}, {1: 3}])
    [result] = controller.run(store, take_ids=lambda _: []).groups
    assert (result.status, result.unlisted_ids) == (SwapStatus.FAILED, ())
    assert "expected 1 different object ids" in result.reason


# In other processes


@dataclass
class Tasks:
    """Other processes: `end` returns what a task reports of an item, by the number of the round."""

    store: ObjectStore
    end: Callable[[ImageAccess, MergeItem, int], MergedGroup]
    rounds: int = 0

    def elsewhere(self, attempts_at_once: int) -> Elsewhere:
        return Elsewhere(self.plan, self.merge, attempts_at_once)

    def plan(self, surveys: Sequence[NodeSurvey], chosen: CompactionSettings) -> list[NodePlan | FailedNode]:
        with ImageCatalog(self.store, namespace="DEFAULT", system=system()) as foreign:
            return [plan_node(foreign.parts, survey, chosen) for survey in surveys]

    def merge(self, items: Iterable[MergeItem], _: CompactionSettings) -> list[MergedGroup]:
        self.rounds += 1
        with ImageCatalog(self.store, namespace="DEFAULT", system=system()) as foreign:
            return [self.end(foreign.parts, pickle.loads(pickle.dumps(item)), self.rounds) for item in items]  # noqa: S301 - made in the line itself


def merged(access: ImageAccess, item: MergeItem, attempt: int = 0) -> MergedGroup:
    return merge_for_controller(access, item, all_of_it(), attempt=attempt)


def killed(item: MergeItem) -> MergedGroup:
    return MergedGroup(item.group, reason="its process was killed", is_retryable=True, written_ids=None)


def after_the_first(access: ImageAccess, item: MergeItem, _: int) -> MergedGroup:
    merged(access, item)
    return merged(access, item, 1)


def killed_at_first(access: ImageAccess, item: MergeItem, number: int) -> MergedGroup:
    result = merged(access, item)
    return killed(item) if number == 1 else result


ENDS: list[tuple[Callable[[ImageAccess, MergeItem, int], MergedGroup], int, tuple[int, ...], int]] = [
    (lambda access, item, _: merged(access, item), 1, (), 1000),
    (lambda access, item, _: merged(access, item), 2, (1001,), 1000),  # a copy may have run
    (after_the_first, 2, (1000,), 1001),
    (lambda access, item, number: merged(access, item, number == 1), 1, (1000,), 1001),  # given back
    (killed_at_first, 1, (1000,), 1001),
    (killed_at_first, 2, (1000, 1001, 1003), 1002),
]


@pytest.mark.parametrize(("end", "attempts", "unlisted", "output"), ENDS)
def test_attempts_in_other_processes_write_under_their_own_ids_and_what_may_be_left_is_named(
    end: Callable[[ImageAccess, MergeItem, int], MergedGroup], attempts: int, unlisted: tuple[int, ...], output: int
) -> None:
    store, controller = world([{1: 2}, {1: 3}], trimmed={1: 1})
    before = records(store, controller.image)
    elsewhere = Tasks(store, end).elsewhere(attempts)
    plan = plan_for_controller(store, controller.image, all_of_it(), system=system(), elsewhere=elsewhere)
    report = controller.run(store, plan, elsewhere=elsewhere)
    assert [(each.status, each.unlisted_ids) for each in report.groups] == [(SwapStatus.COMMITTED, unlisted)]
    assert [swap.object_ids for swap in controller.applied] == [(output,)]
    assert records(store, controller.image) == before


def test_a_group_whose_attempts_never_return_is_named_with_all_ids_that_it_may_have_written() -> None:
    store, controller = world([{1: 2}, {1: 3}])
    tasks = Tasks(store, lambda _, item, __: killed(item))
    [result] = controller.run(store, elsewhere=tasks.elsewhere(1)).groups
    assert (result.status, result.reason, tasks.rounds) == (SwapStatus.FAILED, "its process was killed", 2)
    assert result.unlisted_ids == (1000, 1001)
    assert not controller.applied
