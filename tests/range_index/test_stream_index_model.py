"""Whatever happens to it in whatever order, the index knows what a dictionary of dictionaries knows.

Two machines drive the same random steps. With room for everything the index must answer exactly as the model does, row
by row. With hardly any room it may know less, but nothing false; and what is missing must be missing for a reason.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from range_index import Entry, StreamView, node_index, range_chunk
from tests.examples import examples
from tests.range_index.building import Holdings, ManualTimer, index_of, ranges_of

TTL_SECONDS: Final = 100

nodes = st.integers(0, 1)
streams = st.integers(0, 3)
objects = st.integers(0, 9)
offsets = st.integers(0, 60)
spans = st.tuples(st.integers(0, 50), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair)))
holdings = st.dictionaries(streams, st.tuples(spans, st.booleans()).map(lambda pair: (*pair[0], pair[1])))
hints = st.lists(st.tuples(objects, spans, st.booleans()), max_size=4, unique_by=lambda hint: hint[0])


def naive_view(entries: dict[int, Entry]) -> list[Entry]:
    return sorted(entries.values(), key=lambda entry: entry.start)  # stable: by start, then by arrival


def naive_floor(entries: list[Entry], offset: int) -> Entry | None:
    below = [entry for entry in entries if entry.start <= offset]
    return below[-1] if below else None


def put(entries: dict[int, Entry], entry: Entry) -> None:
    entries.pop(entry.object_id, None)
    entries[entry.object_id] = entry


class Steps(RuleBasedStateMachine):
    """The steps, and the naive model: what each object holds, and what was told of each stream from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.timer = ManualTimer()
        self.patch = pytest.MonkeyPatch()
        self.held: dict[int, dict[int, Holdings]] = {0: {}, 1: {}}
        self.handed_out: list[tuple[StreamView, list[Entry]]] = []
        self.index = index_of(self.timer, ttl_seconds=TTL_SECONDS)

    @rule(node=nodes, object_id=objects, held=holdings)
    def insert(self, node: int, object_id: int, held: Holdings) -> None:
        self.held[node].pop(object_id, None)
        self.held[node][object_id] = held
        self.index.insert(node, object_id, ranges_of(held))
        self.inserted(node, object_id, held)

    @rule(node=nodes, stream=streams, told=hints)
    def add_entries(self, node: int, stream: int, told: list[tuple[int, tuple[int, int], bool]]) -> None:
        entries = [Entry(start, end, object_id, holed) for object_id, (start, end), holed in told]
        self.before_hints(node, stream)
        self.index.add_entries(
            node,
            stream,
            [entry.start for entry in entries],
            [entry.end for entry in entries],
            [entry.object_id for entry in entries],
            holed_object_ids=[entry.object_id for entry in entries if entry.holed],
        )
        self.hinted(node, stream, entries)

    @rule(node=nodes, gone=st.sets(objects, min_size=1, max_size=4))
    def remove(self, node: int, gone: set[int]) -> None:
        for object_id in gone:
            self.held[node].pop(object_id, None)
        self.index.remove(node, gone)
        self.removed(node, gone)

    @rule(seconds=st.integers(1, TTL_SECONDS))
    def wait(self, seconds: int) -> None:
        self.timer.now += seconds

    @rule(node=nodes, stream=streams, offset=offsets)
    def ask(self, node: int, stream: int, offset: int) -> None:
        view = self.index.view(node, stream)
        entries = list(view)
        misses = self.index.stats().misses
        floor = self.index.floor(node, stream, offset)
        if self.index.stats().misses == misses:  # else the view was not kept, and what it had of hints is gone
            assert floor == naive_floor(entries, offset)
        assert entries == sorted(entries, key=lambda entry: entry.start)
        self.handed_out.append((view, entries))
        self.answered(node, stream, entries)

    @invariant()
    def every_invariant_holds(self) -> None:
        self.index.check()

    def teardown(self) -> None:
        for view, entries in self.handed_out:
            assert list(view) == entries, "views that were handed out stay as they are"
        self.patch.undo()

    def inserted(self, node: int, object_id: int, held: Holdings) -> None:
        raise NotImplementedError

    def before_hints(self, node: int, stream: int) -> None:
        raise NotImplementedError

    def hinted(self, node: int, stream: int, entries: list[Entry]) -> None:
        raise NotImplementedError

    def removed(self, node: int, gone: set[int]) -> None:
        raise NotImplementedError

    def answered(self, node: int, stream: int, entries: list[Entry]) -> None:
        raise NotImplementedError

    def from_arrays(self, node: int, stream: int) -> Iterator[Entry]:
        for object_id, held in self.held[node].items():
            if stream in held:
                start, end, holed = held[stream]
                yield Entry(start, end, object_id, holed)


class WithRoom(Steps):
    """Nothing is evicted, so the answer is exactly the model's: arrays, overlaid by hints until the view expires."""

    def __init__(self) -> None:
        super().__init__()
        self.views: dict[tuple[int, int], tuple[float, dict[int, Entry]]] = {}

    @initialize(in_step=st.booleans())
    def choose_the_search(self, in_step: bool) -> None:
        if in_step:
            self.patch.setattr(range_chunk, "SINGLE_SEARCHES_MAX", 0)
            self.patch.setattr(node_index, "SINGLE_SEARCHES_MAX", 0)
            self.patch.setattr(node_index, "NEW_OBJECTS_MAX", 1)

    def live(self, node: int, stream: int) -> dict[int, Entry]:
        expires, entries = self.views.get((node, stream), (0.0, {}))
        if self.timer.now >= expires:
            entries = {entry.object_id: entry for entry in self.from_arrays(node, stream)}
            self.views[node, stream] = (self.timer.now + TTL_SECONDS, entries)
        return entries

    def inserted(self, node: int, object_id: int, held: Holdings) -> None:
        for (of_node, stream), (_, entries) in self.views.items():
            if of_node == node:
                entries.pop(object_id, None)
                if stream in held:
                    start, end, holed = held[stream]
                    put(entries, Entry(start, end, object_id, holed))

    def before_hints(self, node: int, stream: int) -> None:
        self.live(node, stream)

    def hinted(self, node: int, stream: int, entries: list[Entry]) -> None:
        for entry in entries:
            put(self.live(node, stream), entry)

    def removed(self, node: int, gone: set[int]) -> None:
        for (of_node, _), (_, entries) in self.views.items():
            if of_node == node:
                for object_id in gone:
                    entries.pop(object_id, None)

    def answered(self, node: int, stream: int, entries: list[Entry]) -> None:
        assert entries == self.expected(node, stream)

    @rule(node=nodes, stream=streams, offset=offsets)
    def ask_for_a_floor_alone(self, node: int, stream: int, offset: int) -> None:
        assert self.index.floor(node, stream, offset) == naive_floor(self.expected(node, stream), offset)

    def expected(self, node: int, stream: int) -> list[Entry]:
        # Of a node of which nothing is known no view is made, so its time to live does not begin.
        return naive_view(self.live(node, stream)) if node in self.index._nodes else []

    @rule(node=nodes, object_id=objects)
    def what_is_loaded_is_what_came(self, node: int, object_id: int) -> None:
        assert list(self.index.loaded(node)) == list(self.held[node])
        assert self.index.holds(node, object_id) == (object_id in self.held[node])


class WithHardlyAnyRoom(Steps):
    """What is missing must be missing for a reason, and nothing may be false."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[tuple[int, int], dict[int, set[Entry]]] = {}
        self.seen: dict[tuple[int, int], tuple[int, dict[int, Entry]]] = {}

    @initialize(
        streams_max=st.integers(1, 4), array_objects=st.integers(1, 12), view_bytes=st.sampled_from([800, 3000, 10_000])
    )
    def choose_the_bounds(self, streams_max: int, array_objects: int, view_bytes: int) -> None:
        self.patch.setattr(node_index, "REMEMBERED_MAX", 6)
        self.patch.setattr(range_chunk, "OBJECTS_MAX", 2)
        self.index = index_of(
            self.timer,
            ttl_seconds=TTL_SECONDS,
            streams_max=streams_max,
            array_bytes_max=array_objects * 1400,
            view_bytes_max=view_bytes,
        )

    def inserted(self, node: int, object_id: int, held: Holdings) -> None:
        for stream in range(4):
            told = self.told.setdefault((node, stream), {})
            # An object is inserted twice only with what it holds: the index may go on with what it was told before
            # it lost the arrays, so all of that still counts, unless the arrays are there to say otherwise.
            told.setdefault(object_id, set())
            if stream in held:
                start, end, holed = held[stream]
                told[object_id].add(Entry(start, end, object_id, holed))
            self.forget_seen(node, {object_id})

    def before_hints(self, node: int, stream: int) -> None:
        pass

    def hinted(self, node: int, stream: int, entries: list[Entry]) -> None:
        told = self.told.setdefault((node, stream), {})
        for entry in entries:
            told.setdefault(entry.object_id, set()).add(entry)
        self.forget_seen(node, {entry.object_id for entry in entries})

    def removed(self, node: int, gone: set[int]) -> None:
        for (of_node, _), told in self.told.items():
            if of_node == node:
                for object_id in gone:
                    told.pop(object_id, None)
        self.forget_seen(node, gone)

    def forget_seen(self, node: int, object_ids: set[int]) -> None:
        for (of_node, _), (_, entries) in self.seen.items():
            if of_node == node:
                for object_id in object_ids:
                    entries.pop(object_id, None)

    def answered(self, node: int, stream: int, entries: list[Entry]) -> None:
        told = self.told.get((node, stream), {})
        by_object = {entry.object_id: entry for entry in entries}
        assert len(by_object) == len(entries), "each object once"
        for entry in entries:
            assert entry in told.get(entry.object_id, ()), "nothing false, nothing of removed objects"
        for entry in self.from_arrays(node, stream):
            assert not self.index.holds(node, entry.object_id) or entry.object_id in by_object, (
                "arrays are answered from"
            )
        self.compare_with_last_answer(node, stream, by_object)

    def compare_with_last_answer(self, node: int, stream: int, by_object: dict[int, Entry]) -> None:
        stats = self.index.stats()
        misses_and_losses = stats.misses + stats.fills + stats.evicted_views
        before, seen = self.seen.get((node, stream), (-1, {}))
        if before == misses_and_losses:
            assert seen.items() <= by_object.items(), "a live view loses nothing but removed objects"
        self.seen[node, stream] = (misses_and_losses, dict(by_object))

    @precondition(lambda self: self.index.stats().objects)
    @rule()
    def what_is_loaded_came_and_was_not_removed(self) -> None:
        for node in (0, 1):
            assert self.index.loaded(node) <= self.held[node].keys()


TestWithRoom = WithRoom.TestCase
TestWithHardlyAnyRoom = WithHardlyAnyRoom.TestCase
TestWithRoom.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
TestWithHardlyAnyRoom.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
