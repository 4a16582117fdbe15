"""Packs: filters of a node's objects, kept up over generations, loaded by few requests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bloom import Geometry, StreamFilter
from loaders.hints import (
    HintProblem,
    HintTrouble,
    PackLoad,
    PackRoot,
    decode_pack_root,
    delete_old_generations,
    load_pack,
    plan_pack_reads,
    read_pack_root,
    write_pack,
)
from loaders.layout import HintKind
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore, MemoryStore, ObjectStore
from tests.examples import examples
from tests.loaders.hints.builders import GENERATION, NAMESPACE, NODE, filter_of

Numbers = np.typing.NDArray[np.int64]


def columns(pairs: list[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    table = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return table[:, 0], table[:, 1]


def loaded(store: ObjectStore, root: PackRoot, pairs: list[tuple[int, int]]) -> dict[int, StreamFilter]:
    load = PackLoad()
    found = dict(load_pack(store, root, *columns(pairs), load))
    assert (load.bad, load.problems) == (0, [])
    return found


def write_first(store: ObjectStore, objects: int, *, capacity: int = 100, part_size_bytes_max: int = 2000) -> PackRoot:
    added = [(ObjectRef(number, 1000 + number), filter_of(number, capacity=capacity)) for number in range(objects)]
    return write_pack(
        store,
        namespace=NAMESPACE,
        node_id=NODE,
        generation=GENERATION,
        added=added,
        part_size_bytes_max=part_size_bytes_max,
    )


class PackLife(RuleBasedStateMachine):
    """Random generations of adds, drops and replacements, against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.root: PackRoot | None = None
        self.held: dict[int, tuple[int, StreamFilter]] = {}
        self.next_id = 0

    @rule(
        adds=st.integers(0, 12),
        drops=st.sets(st.integers(0, 60), max_size=12),
        redone=st.integers(0, 60),
        streams=st.integers(1, 300),
    )
    def generation(self, adds: int, drops: set[int], redone: int, streams: int) -> None:
        ids = list(range(self.next_id, self.next_id + adds))
        self.next_id += adds
        if redone in self.held:
            ids.append(redone)
        made = {each: filter_of(*range(each, each + streams)) for each in ids}
        generation = GENERATION if self.root is None else self.root.generation + 1
        self.root = write_pack(
            self.store,
            namespace=NAMESPACE,
            node_id=NODE,
            generation=generation,
            added=[(ObjectRef(each, 10 + each), made[each]) for each in ids],
            previous=self.root,
            dropped=drops,
            part_size_bytes_max=1500,
        )
        self.held = {each: kept for each, kept in self.held.items() if each not in drops}
        self.held |= {each: (10 + each, built) for each, built in made.items()}

    @precondition(lambda self: self.root is not None)
    @rule(keep=st.integers(1, 3))
    def collect(self, keep: int) -> None:
        assert delete_old_generations(self.store, HintKind.PACKS, NODE, namespace=NAMESPACE, keep=keep).failed == 0

    @invariant()
    def the_pack_holds_what_the_dictionary_holds(self) -> None:
        if self.root is None:
            return
        root = read_pack_root(self.store, NAMESPACE, NODE)
        assert (root.entries == self.root.entries).all()
        assert root.encode() == self.root.encode()
        pairs = [(each, size) for each, (size, _) in self.held.items()]
        assert loaded(self.store, root, pairs) == {each: built for each, (_, built) in self.held.items()}
        assert root.dead_size_bytes <= max(0, root.live_size_bytes)


TestPackLife = PackLife.TestCase
TestPackLife.settings = settings(max_examples=examples(40), stateful_step_count=10)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_of_objects_wanted_come_all_that_the_root_covers(wanted: set[int], resized: set[int]) -> None:
    store = MemoryStore()
    root = write_first(store, 30)
    pairs = [(each, 1000 + each + (each in resized)) for each in wanted]
    found = loaded(store, root, pairs)
    assert {each for each in wanted if each < 30 and each not in resized} <= set(found)
    assert all(found[each] == filter_of(each, capacity=100) for each in found)


def test_a_generation_writes_only_what_it_adds() -> None:
    memory = MemoryStore()
    root = write_first(memory, 20, part_size_bytes_max=1 << 20)
    store = CountingStore(memory)
    root = write_pack(
        store,
        namespace=NAMESPACE,
        node_id=NODE,
        generation=GENERATION + 1,
        added=[(ObjectRef(77, 5), filter_of(1))],
        previous=root,
        dropped=[3],
    )
    counts = store.snapshot()
    assert (counts.of("put").requests, counts.total.requests) == (3, 3)
    assert counts.total.sent_bytes < 2500
    assert set(root.entries["object_id"].tolist()) == {*range(20), 77} - {3}
    assert root.dead_size_bytes == 160
    assert root.covers(np.array([3, 4, 4, 77]), np.array([1003, 1004, 1003, 5])).tolist() == [False, True, False, True]


def test_a_pack_that_is_half_dead_is_copied() -> None:
    store = MemoryStore()
    root = write_first(store, 20)
    root = write_pack(
        store,
        namespace=NAMESPACE,
        node_id=NODE,
        generation=GENERATION + 1,
        added=[],
        previous=root,
        dropped=list(range(11)),
        part_size_bytes_max=2000,
    )
    assert root.dead_size_bytes == 0
    assert {part.generation for part in root.parts} == {GENERATION + 1}
    assert set(loaded(store, root, [(each, 1000 + each) for each in range(20)])) == set(range(11, 20))


def test_many_small_generations_become_few_data_objects() -> None:
    store, root = MemoryStore(), None
    for number in range(40):
        root = write_pack(
            store,
            namespace=NAMESPACE,
            node_id=NODE,
            generation=GENERATION + number,
            added=[(ObjectRef(number, 1), filter_of(number))],
            previous=root,
        )
        assert len(root.parts) <= 8
    assert root is not None
    assert len(loaded(store, root, [(each, 1) for each in range(40)])) == 40


def test_a_pack_of_five_thousand_large_filters_loads_in_ten_requests() -> None:
    # A twelfth of the size: filters of 1,000 bytes, data objects of 16 MiB / 12. The number of requests is the same.
    scale = 12
    memory, part_size_bytes_max = MemoryStore(), (16 << 20) // scale
    built = filter_of(*range(800), capacity=800)
    refs = [ObjectRef(number, number + 1) for number in range(5000)]
    root = write_pack(
        memory,
        namespace=NAMESPACE,
        node_id=NODE,
        generation=1,
        added=((ref, built) for ref in refs),
        part_size_bytes_max=part_size_bytes_max,
    )
    pairs = [(ref.object_id, ref.size_bytes) for ref in refs]
    for generation in range(2, 9):  # with a week of daily generations on top, each dropping some
        dropped = list(range(generation * 300, generation * 300 + 150))
        root = write_pack(
            memory,
            namespace=NAMESPACE,
            node_id=NODE,
            generation=generation,
            added=[(ObjectRef(10_000 * generation, 1), built)],
            previous=root,
            dropped=dropped,
            part_size_bytes_max=part_size_bytes_max,
        )
        store = CountingStore(memory)
        root = read_pack_root(store, NAMESPACE, NODE)
        spans = plan_pack_reads(
            root, *columns(pairs), span_size_bytes_max=part_size_bytes_max, gap_size_bytes_max=(1 << 20) // scale
        )
        assert 1 + len(spans) <= 10
        assert sum(span.size_bytes for span in spans) <= 1.5 * root.live_size_bytes


def test_a_few_filters_are_not_the_whole_pack() -> None:
    store = MemoryStore()
    root = write_first(store, 200, part_size_bytes_max=1 << 20)
    spans = plan_pack_reads(root, *columns([(7, 1007), (8, 1008), (150, 1150)]), gap_size_bytes_max=1000)
    assert [span.size_bytes for span in spans] == [320, 160]
    assert plan_pack_reads(root, *columns([(7, 9), (900, 1)])) == []


def test_a_bad_filter_is_left_out_and_counted() -> None:
    store = MemoryStore()
    root = write_first(store, 10, part_size_bytes_max=1 << 20)
    key = root.part_key(0)
    body = bytearray(store.get(key).body)
    body[160 * 3 + 100] ^= 1
    store.put(key, body)
    load = PackLoad()
    found = dict(load_pack(store, root, *columns([(each, 1000 + each) for each in range(10)]), load))
    assert set(found) == set(range(10)) - {3}
    assert (load.bad, load.filters, load.requests, load.bytes_read) == (1, 9, 1, 1600)


@pytest.mark.parametrize(("change", "kind"), [("gone", HintTrouble.STALE), ("longer", HintTrouble.MIXED)])
def test_data_objects_that_are_gone_or_others_are_left_out(change: str, kind: HintTrouble) -> None:
    store = MemoryStore()
    root = write_first(store, 20, part_size_bytes_max=1600)
    key = root.part_key(0)
    if change == "gone":
        store.delete(key)
    else:
        store.put(key, store.get(key).body + b"x")
    load = PackLoad()
    found = dict(load_pack(store, root, *columns([(each, 1000 + each) for each in range(20)]), load))
    assert set(found) == set(range(10, 20))
    assert [problem.kind for problem in load.problems] == [kind]


def test_a_root_that_is_not_there_is_missing() -> None:
    with pytest.raises(HintProblem) as caught:
        read_pack_root(MemoryStore(), NAMESPACE, NODE)
    assert caught.value.kind is HintTrouble.MISSING


@dataclass
class Refused:
    added: list[tuple[ObjectRef, StreamFilter]] = field(default_factory=list)
    generation: int = GENERATION + 1
    text: str = ""


REFUSED = [
    Refused([(ObjectRef(1), filter_of(1))], text="known id and size"),
    Refused([(ObjectRef(1, 2), filter_of(1)), (ObjectRef(1, 2), filter_of(2))], text="one filter for object 1"),
    Refused([(ObjectRef(1, 2), StreamFilter(Geometry(10, 0.05), 0, bytes(9)))], text="a filter for 1%"),
    Refused(generation=GENERATION, text="a generation above"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.text)
def test_what_makes_no_pack_is_refused_and_changes_nothing(case: Refused) -> None:
    store = MemoryStore()
    root = write_first(store, 3)
    with pytest.raises(ValueError, match=case.text):
        write_pack(
            store, namespace=NAMESPACE, node_id=NODE, generation=case.generation, added=case.added, previous=root
        )
    assert read_pack_root(store, NAMESPACE, NODE).encode() == root.encode()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("object_id", 1, "each once"),
        ("size_bytes", -1, "sizes of at least 0"),
        ("part", 9, "a part of 0 to"),
        ("offset", 1, "share no bytes|within their data objects"),
        ("length", 161, "filters of 160 bytes"),
        ("capacity", 3_000_000, "bits a slice"),
        ("crc32", 2**32, "a crc32 of 0 to"),
    ],
)
def test_a_root_whose_entries_contradict_each_other_is_corrupt(name: str, value: int, text: str) -> None:
    root = write_first(MemoryStore(), 5)
    entries = root.entries.copy()
    entries[name][4 if name != "object_id" else 0] = value
    lying = object.__new__(PackRoot)
    for each in ("namespace", "node_id", "generation", "parts"):
        object.__setattr__(lying, each, getattr(root, each))
    object.__setattr__(lying, "entries", entries)
    with pytest.raises(HintProblem, match=text) as caught:
        decode_pack_root(lying.encode(), namespace=NAMESPACE, node_id=NODE)
    assert caught.value.kind is HintTrouble.CORRUPT


def test_wide_filters_are_among_the_others() -> None:
    store = MemoryStore()
    wide, small = StreamFilter.build(np.arange(24_000)), filter_of(7)
    added = [(ObjectRef(5, 50), wide), (ObjectRef(3, 30), small), (ObjectRef(8, 80), small)]
    root = write_pack(store, namespace=NAMESPACE, node_id=NODE, generation=GENERATION, added=added)
    assert loaded(store, read_pack_root(store, NAMESPACE, NODE), [(5, 50), (3, 30), (8, 80)]) == {
        5: wide,
        3: small,
        8: small,
    }
    assert root.entries["object_id"].tolist() == [3, 5, 8]


def test_a_generation_takes_over_wide_filters_and_drops_them() -> None:
    store = MemoryStore()
    wide = StreamFilter.build(np.arange(24_000))
    root = write_pack(store, namespace=NAMESPACE, node_id=NODE, generation=GENERATION, added=[(ObjectRef(5, 50), wide)])
    root = write_pack(
        store,
        namespace=NAMESPACE,
        node_id=NODE,
        generation=GENERATION + 1,
        added=[(ObjectRef(6, 60), filter_of(1))],
        previous=root,
    )
    assert loaded(store, read_pack_root(store, NAMESPACE, NODE), [(5, 50)])[5] == wide
    root = write_pack(
        store, namespace=NAMESPACE, node_id=NODE, generation=GENERATION + 2, added=[], previous=root, dropped=[5]
    )
    assert read_pack_root(store, NAMESPACE, NODE).entries["object_id"].tolist() == [6]
