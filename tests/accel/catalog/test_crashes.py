"""A process may die before any of its writes: whoever repeats its work in a new one finds everything as if done once.

Each piece of work runs to its end once. Then it dies in place of each of its writes in turn, is repeated by a process
that knows nothing but the work itself, and what the catalog says must be the same as without the crash. Ids that were
taken and not used, promises that nobody will keep and raised epochs may differ: they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from accel.catalog import CatalogSettings, ObjectCatalog, writer
from accel.catalog.collect import collect, plan_collection
from accel.catalog.undo import undo, versions
from accel.image import StreamObject
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore
from tests.world import DAY_SECONDS, NODE, World, each_crash, held, spans_held

SETTINGS = CatalogSettings(parallel_requests=1, ids_block=8, checkpoint_commits=2)
"""One request at a time, so that a crash before write n is always the same crash."""

NEXT_NODE = 5
STREAMS = (1, 2, 3, 4, 5)


@pytest.fixture(autouse=True)
def objects_move_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "STREAM_OBJECTS_IN_LIST_MAX", 1)


@dataclass
class Work:
    """What lies ready when the work begins: objects that are written and promised, and where the streams end."""

    world: World = field(default_factory=lambda: World(settings=SETTINGS))
    sources: list[ObjectRef] = field(default_factory=list)
    output: ObjectRef | None = None
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    own: Mapping[int, StreamObject] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    version: int = 0

    @property
    def store(self) -> ObjectStore:
        return self.world.store


Act = Callable[[ObjectCatalog, Work], None]


def opened() -> Work:
    work = Work()
    with work.world.session():
        return work


def two_uploads() -> Work:
    work = Work(ends=dict.fromkeys(STREAMS[:4], 20) | {5: 0})
    with work.world.session(*STREAMS) as (_, writer):
        work.sources = [
            work.world.upload(writer, dict.fromkeys(STREAMS[:4], (start, start + 10))) for start in range(0, 20, 10)
        ]
    return work


def an_upload_ready() -> Work:
    work = two_uploads()
    with work.world.open() as catalog:
        ids = catalog.prepare(NODE, 3)
    work.ranges = {1: (20, 30), 2: (20, 30)}
    work.output, _ = work.world.put(ids[0], [(each, *span) for each, span in work.ranges.items()])
    work.own = {3: work.world.put_stream_object(ids[1], 3, 20, 30), 5: work.world.put_stream_object(ids[2], 5, 0, 30)}
    return work


def a_compaction_ready() -> Work:
    work = two_uploads()
    with work.world.open() as catalog:
        ids = catalog.prepare(NODE, 3)
    work.output, _ = work.world.put(ids[0], [(1, 0, 20), (4, 0, 20)])
    work.own = {each: work.world.put_stream_object(ids[each - 1], each, 0, 20) for each in (2, 3)}
    return work


def a_compaction_done() -> Work:
    work = a_compaction_ready()
    with work.world.session() as (catalog, writer):
        commit_compaction(catalog, work)
        work.world.upload(writer, {1: (20, 30), 5: (0, 10)})
        [version] = versions(catalog, NODE)
    work.version = version.sequence
    return work


def things_to_collect() -> Work:
    """Retired objects, one that nothing lists, and one of a promise that has run out."""
    work = a_compaction_done()
    with work.world.open() as catalog:
        for object_id in (*catalog.parts.ids.take(1), *catalog.prepare(NODE, 1, deadline_seconds=100)):
            work.world.put(object_id, [(1, 0, 1)])
    work.world.wait(4 * DAY_SECONDS)
    return work


def open_node(catalog: ObjectCatalog, _: Work) -> None:
    with catalog.open_node(NODE) as writer:
        assert [writer.end(each) for each in STREAMS] in ([None] * 5, [20, 20, 20, 20, 0])


def open_streams(catalog: ObjectCatalog, _: Work) -> None:
    with catalog.open_node(NODE) as writer:
        writer.open_streams(dict.fromkeys(STREAMS, 7))
        assert [writer.end(each) for each in STREAMS] == [7] * 5


def prepare(catalog: ObjectCatalog, _: Work) -> None:
    with catalog.open_node(NODE) as writer:
        ids = writer.prepare(10)
        assert set(ids) <= set(writer.node_list.prepared["object_id"].tolist())
    ids += catalog.prepare(NODE, 10)
    assert len(set(ids)) == 20


def commit_upload(catalog: ObjectCatalog, work: Work) -> None:
    with catalog.open_node(NODE) as writer:
        writer.commit_upload(work.output, work.ranges, stream_objects=work.own)
        assert [writer.end(each) for each in STREAMS] == [30, 30, 30, 20, 30]


def commit_compaction(catalog: ObjectCatalog, work: Work) -> None:
    catalog.commit_compaction(NODE, work.sources, work.output, work.own.items())


def trim(catalog: ObjectCatalog, _: Work) -> None:
    catalog.trim({1: 5, 2: 10, 3: 20})


def trim_stream_objects(catalog: ObjectCatalog, work: Work) -> None:
    commit_compaction(catalog, work)
    catalog.trim({1: 5, 2: 20, 3: 20})


def undo_compaction(catalog: ObjectCatalog, work: Work) -> None:
    undo(catalog, NODE, work.version)


def collect_all(catalog: ObjectCatalog, _: Work) -> None:
    collect(catalog, plan_collection(catalog))
    assert plan_collection(catalog).objects == ()


def close_streams(catalog: ObjectCatalog, work: Work) -> None:
    assert catalog.close_streams(STREAMS) == work.ends


def move_streams(catalog: ObjectCatalog, work: Work) -> None:
    """As a controller does that moves streams: closed if they are not yet, then opened where they are not yet."""
    closed = {each for each in STREAMS if catalog.refresh().streams[each].ranges[-1].node_id == NODE}
    ends = catalog.close_streams(closed)
    assert ends == {each: work.ends[each] for each in closed}
    with catalog.open_node(NEXT_NODE) as writer:
        writer.open_streams(STREAMS)
        assert {each: writer.end(each) for each in STREAMS} == work.ends


CASES: dict[str, tuple[Callable[[], Work], Act]] = {
    "open_node, new": (Work, open_node),
    "open_node, known": (two_uploads, open_node),
    "open_streams": (opened, open_streams),
    "prepare": (opened, prepare),
    "commit_upload with stream objects": (an_upload_ready, commit_upload),
    "commit_compaction with stream objects": (a_compaction_ready, commit_compaction),
    "trim": (two_uploads, trim),
    "trim of stream objects": (a_compaction_ready, trim_stream_objects),
    "close_streams": (two_uploads, close_streams),
    "streams that move": (two_uploads, move_streams),
    "undo": (a_compaction_done, undo_compaction),
    "collection": (things_to_collect, collect_all),
}


def facts(world: World) -> dict[str, object]:
    """What a catalog means, without what a crash may leave: ids that nobody uses, and epochs."""
    with world.open() as catalog:
        state = catalog.refresh_state()
        image = state.built.image
        lists = state.node_lists()
        buckets = [seen.value for seen in state.shards]
        return {
            "nodes": sorted(lists),
            "objects": world.object_ids(),
            "withdrawn": {number: each.withdrawn_commits for number, each in lists.items()},
            "live": {number: each.live["object_id"].tolist() for number, each in lists.items()},
            "retired": {number: sorted(each.retired["object_id"].tolist()) for number, each in lists.items()},
            "waiting": {number: each.stream_objects["object_id"].tolist() for number, each in lists.items()},
            "starts": {each: image.streams[each].start_offset for each in sorted(image.streams)},
            "ranges": {
                each: [(span.node_id, span.start, span.end) for span in image.streams[each].ranges]
                for each in sorted(image.streams)
            },
            "held": {each: held(catalog, each) for each in sorted(image.streams)},
            "stream objects": [sorted(each.stream_objects["object_id"].tolist()) for each in buckets],
            "retired stream objects": [sorted(each.retired["object_id"].tolist()) for each in buckets],
            "ends": {each: catalog.stream_end(each) for each in sorted(image.streams)},
        }


def done_by_a_process(work: Work, act: Act, store: ObjectStore | None = None) -> None:
    with work.world.open(store) as catalog:
        act(catalog, work)


def undisturbed(case: str) -> Work:
    prepare, act = CASES[case]
    work = prepare()
    done_by_a_process(work, act)
    return work


@pytest.mark.parametrize("case", CASES)
def test_work_that_died_before_any_of_its_writes_can_be_repeated(case: str) -> None:
    expected = facts(undisturbed(case).world)
    prepare, act = CASES[case]
    for work, has_died in each_crash(prepare, lambda work, store: done_by_a_process(work, act, store), every=2):
        if has_died:
            done_by_a_process(work, act)
        assert facts(work.world) == expected


@pytest.mark.parametrize("case", ["open_node, known", "commit_upload with stream objects", "close_streams"])
def test_work_that_is_done_may_be_repeated_by_a_new_process(case: str) -> None:
    work = undisturbed(case)
    once = facts(work.world)
    done_by_a_process(work, CASES[case][1])
    assert facts(work.world) == once


def test_a_writer_goes_on_where_its_predecessor_died() -> None:
    for work, _ in each_crash(an_upload_ready, lambda work, store: done_by_a_process(work, commit_upload, store)):
        with work.world.session() as (catalog, writer):
            ends = {each: writer.end(each) or 0 for each in STREAMS}
            assert ends in ({1: 20, 2: 20, 3: 20, 4: 20, 5: 0}, {1: 30, 2: 30, 3: 30, 4: 20, 5: 30})
            work.world.upload(writer, {each: (end, end + 10) for each, end in ends.items()})
            for stream_id, end in ends.items():
                spans = spans_held(catalog, stream_id)
                assert (spans[0][0], spans[-1][1]) == (0, end + 10)
                assert all(before[1] == after[0] for before, after in pairwise(spans))
