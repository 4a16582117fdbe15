"""Typed keys: one rule for all changes; records decoded once, kept within a bound, never given out after an erase."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.testing import Crash
from loaders.counting import CacheStats
from loaders.errors import AccelError, CorruptObject, DataConflict, DataNotFound, StoreUnavailable, TableMissing
from loaders.layout import TABLE_MARKER
from loaders.shared_loads import SharedCounts
from loaders.store import MemoryStore
from loaders.store.decorated import GETS, DecoratedStore, StoreCall
from loaders.tables import Table, Tables, Version, Versioned
from loaders.tables.typed_key import RECORD_OVERHEAD_BYTES, RecordCache, TypedKey, always
from tests.loaders.tables.worlds import ByteTables

Answer = TypeVar("Answer")

TABLE = "history.#.1"
TIMEOUT_SECONDS = 60
FINAL_LENGTH = 100
"""Words of this length do not grow any more."""

_nonces = itertools.count(1)


@dataclass
class Words:
    """A codec of words that counts what it decodes."""

    decoded: int = 0

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes, where: str) -> str:
        self.decoded += 1
        if data == b"damaged":
            raise CorruptObject(where, len(data), expected="a word", found="none")
        return data.decode()


@dataclass
class Turnstile:
    """Stops the reads of one key: `arrived` is set when one came, and it goes on when `opened` is set."""

    key: str
    error: BaseException | None = None
    arrived: Event = field(default_factory=Event)
    opened: Event = field(default_factory=Event)


class GatedStore(DecoratedStore):
    """Counts reads of keys, and stops some after they were answered, as a slow network does."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.reads: list[str] = []
        self.bodies = 0
        self.turnstile: Turnstile | None = None

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        key = call.key.rpartition("/")[2]
        if call.operation not in GETS or key == TABLE_MARKER:
            return send()
        self.reads.append(key)
        turnstile = self.turnstile
        if turnstile is None or turnstile.key != key:
            return send()
        self.turnstile = None  # the next one passes
        try:
            return send()
        finally:
            turnstile.arrived.set()
            assert turnstile.opened.wait(TIMEOUT_SECONDS)
            if turnstile.error is not None:
                raise turnstile.error


class World:
    """A table in a bucket, a client with records, and another client that writes.

    Attributes:
        store: counts and stops the first one's reads.
        words: decodes for the first one.
    """

    def __init__(self, size_bytes_max: int = 1 << 20) -> None:
        memory = MemoryStore()
        self.store = GatedStore(memory)
        self.words = Words()
        self.records = RecordCache(size_bytes_max, lambda value: len(str(value)))
        self.tables = ByteTables(self.store, nonce=_nonce, sleep=_no_sleep, jitter=float, attempts=1)
        self.other = ByteTables(memory, nonce=_nonce, sleep=_no_sleep, jitter=float).table(TABLE)
        self.tables.create_table(TABLE)
        self.table: Table = self.tables.table(TABLE)

    def place(self, key: str, table: Table | None = None) -> TypedKey[str]:
        return TypedKey(table or self.table, key, self.words, is_final=is_long, cache=self.records)

    def changing(self, key: str) -> TypedKey[str]:
        return TypedKey(self.table, key, self.words, cache=self.records)

    def read(self, key: str, at_least: int = 1 << 30) -> str | None:
        """Read a word that is final, or long enough."""
        return _word(self.place(key).read(lambda word: len(word) >= at_least))

    def read_changing(self, key: str) -> str | None:
        return _word(self.changing(key).read())

    def erase(self, key: str) -> None:
        self.place(key).erase()

    @property
    def counts(self) -> SharedCounts:
        return self.records._loads.counts()

    @contextmanager
    def held(self, key: str, error: BaseException | None = None) -> Iterator[ThreadPoolExecutor]:
        """While one thread's read of a key is under way: it was answered, but the answer has not come yet."""
        turnstile = self.store.turnstile = Turnstile(key, error)
        with ThreadPoolExecutor(16) as threads:
            self.first: Future[str | None] = threads.submit(self.read, key)
            assert turnstile.arrived.wait(TIMEOUT_SECONDS)
            try:
                yield threads
            finally:
                turnstile.opened.set()

    def join(self, threads: ThreadPoolExecutor, key: str, count: int = 5) -> list[Future[str | None]]:
        """More who ask for a key; all of them wait by now."""
        before = self.counts.joined
        asked = [threads.submit(self.read, key) for _ in range(count)]
        while self.counts.joined < before + count:
            Event().wait(0)
        return asked


def is_long(word: str) -> bool:
    return len(word) >= FINAL_LENGTH


def _nonce() -> bytes:
    return next(_nonces).to_bytes(16, "big")


def _no_sleep(_: float) -> None:
    pass


def _word(seen: Versioned[str] | None) -> str | None:
    return None if seen is None else seen.value


@pytest.fixture
def world() -> World:
    return World()


# Final records


def test_a_final_record_is_read_and_decoded_once(world: World) -> None:
    world.other.create("epoch-1", b"one", final=True)
    first = world.place("epoch-1").read()
    assert world.place("epoch-1").read() is first
    assert (world.store.reads, world.words.decoded) == (["epoch-1"], 1)
    assert world.records.cache_stats() == CacheStats(1, RECORD_OVERHEAD_BYTES + 3, 1 << 20, 1, 1, 0, 0)


def test_a_missing_table_is_no_missing_record(world: World) -> None:
    world.tables.drop_table(TABLE)
    with pytest.raises(TableMissing):
        world.read("epoch-1")
    with pytest.raises(TableMissing):
        world.read_changing("epoch-1")


def test_damage_is_named_by_table_and_key_and_not_kept(world: World) -> None:
    world.other.create("epoch-1", b"damaged", final=True)
    for _ in range(2):
        with pytest.raises(CorruptObject, match=r"table .history\.#\.1., key .epoch-1."):
            world.read("epoch-1")
    assert (world.counts.failed, world.counts.cache.entries) == (2, 0)


def test_records_of_two_tables_have_nothing_in_common(world: World) -> None:
    world.tables.create_table("history.#.2")
    world.tables.table("history.#.2").create("epoch-1", b"two", final=True)
    world.other.create("epoch-1", b"one", final=True)
    assert world.read("epoch-1") == "one"
    seen = world.place("epoch-1", world.tables.table("history.#.2")).read()
    assert _word(seen) == "two"
    world.records.forget_table(TABLE)
    assert world.counts.cache.entries == 1
    assert not world.records.has(world.place("epoch-1"))


# One read for all who ask


def test_who_asks_while_a_record_is_being_read_waits_for_that_read(world: World) -> None:
    world.other.create("epoch-1", b"one", final=True)
    with world.held("epoch-1") as threads:
        asked = world.join(threads, "epoch-1")
    assert {each.result(TIMEOUT_SECONDS) for each in [world.first, *asked]} == {"one"}
    assert (world.store.reads, world.words.decoded) == (["epoch-1"], 1)
    assert (world.counts.landed, world.counts.joined) == (1, 5)


def test_an_error_goes_to_all_who_wait_and_is_not_kept(world: World) -> None:
    world.other.create("epoch-1", b"one", final=True)
    with world.held("epoch-1", StoreUnavailable("get", "epoch-1", "503")) as threads:
        asked = world.join(threads, "epoch-1")
    for each in [world.first, *asked]:
        with pytest.raises(StoreUnavailable):
            each.result(TIMEOUT_SECONDS)
    assert world.store.reads == ["epoch-1"]
    assert world.read("epoch-1") == "one"


@pytest.mark.parametrize("error", [Crash("dead"), CancelledError(), KeyboardInterrupt()])
def test_a_reader_that_is_killed_takes_nobody_along(world: World, error: BaseException) -> None:
    world.other.create("epoch-1", b"one", final=True)
    with world.held("epoch-1", error) as threads:
        asked = world.join(threads, "epoch-1")
    with pytest.raises(type(error)):
        world.first.result(TIMEOUT_SECONDS)
    assert {each.result(TIMEOUT_SECONDS) for each in asked} == {"one"}
    assert world.store.reads == ["epoch-1"] * 2


def test_who_waited_for_a_read_that_came_too_early_asks_again(world: World) -> None:
    """What this process wrote it also reads, though a read that began before found nothing."""
    with world.held("epoch-1") as threads:
        world.other.create("epoch-1", b"one", final=True)
        asked = world.join(threads, "epoch-1")
    assert world.first.result(TIMEOUT_SECONDS) is None
    assert {each.result(TIMEOUT_SECONDS) for each in asked} == {"one"}
    assert world.store.reads == ["epoch-1"] * 2


def test_who_waited_for_a_read_that_found_no_table_asks_again(world: World) -> None:
    with world.held("epoch-1", TableMissing(TABLE, "", "not made yet")) as threads:
        world.other.create("epoch-1", b"one", final=True)
        asked = world.join(threads, "epoch-1")
    with pytest.raises(TableMissing):
        world.first.result(TIMEOUT_SECONDS)
    assert {each.result(TIMEOUT_SECONDS) for each in asked} == {"one"}


# Growing and changing records


def test_a_growing_record_is_given_without_a_call_as_long_as_it_tells_enough(world: World) -> None:
    version = world.other.create("chunk-0", b"ab")
    assert [world.read("chunk-0", at_least=1) for _ in range(3)] == ["ab"] * 3
    assert world.store.reads == ["chunk-0"]
    assert world.read("chunk-0", at_least=3) == "ab"  # asked on condition that it changed
    assert (world.store.reads, world.words.decoded) == (["chunk-0"] * 2, 1)
    world.other.update("chunk-0", b"abcd", version, final=True)
    assert world.read("chunk-0", at_least=2) == "ab"
    assert world.read("chunk-0", at_least=3) == "abcd"
    assert world.read("chunk-0") == "abcd"
    assert (world.store.reads, world.words.decoded) == (["chunk-0"] * 3, 2)


def test_who_waited_for_a_read_that_does_not_tell_enough_asks_again(world: World) -> None:
    version = world.other.create("chunk-0", b"ab")
    with world.held("chunk-0") as threads:
        world.other.update("chunk-0", b"abcd", version)
        asked = world.join(threads, "chunk-0")
    assert world.first.result(TIMEOUT_SECONDS) == "ab"
    assert {each.result(TIMEOUT_SECONDS) for each in asked} == {"abcd"}


def test_a_changing_record_is_asked_for_each_time_and_decoded_when_it_changed(world: World) -> None:
    version = world.other.create("root", b"one")
    assert [world.read_changing("root") for _ in range(3)] == ["one"] * 3
    assert (len(world.store.reads), world.words.decoded) == (3, 1)
    version = world.other.update("root", b"two", version)
    assert [world.read_changing("root") for _ in range(2)] == ["two"] * 2
    assert (len(world.store.reads), world.words.decoded) == (5, 2)
    world.other.delete("root", version)
    assert world.read_changing("root") is None
    assert world.counts.cache.entries == 0
    world.other.create("root", b"three")
    assert world.read_changing("root") == "three"


# Erasing


def test_what_was_erased_while_it_was_being_read_is_not_kept(world: World) -> None:
    """Who asked before gets it; who asks afterwards does not, whether the first read ended or not."""
    world.other.create("cut-1", b"one", final=True)
    with world.held("cut-1") as threads:
        asked = world.join(threads, "cut-1")
        world.erase("cut-1")
        assert threads.submit(world.read, "cut-1").result(TIMEOUT_SECONDS) is None
    assert {each.result(TIMEOUT_SECONDS) for each in [world.first, *asked]} == {"one"}
    assert world.read("cut-1") is None
    assert world.counts.cache.entries == 0


def test_what_was_erased_and_written_anew_while_it_was_being_read_is_the_new_one(world: World) -> None:
    world.other.create("cut-1", b"one", final=True)
    with world.held("cut-1") as threads:
        world.erase("cut-1")
        world.other.create("cut-1", b"two", final=True)
        assert threads.submit(world.read, "cut-1").result(TIMEOUT_SECONDS) == "two"
    assert world.first.result(TIMEOUT_SECONDS) == "one"
    assert world.read("cut-1") == "two"
    assert world.store.reads == ["cut-1"] * 2


# The bound

ACTS = st.lists(st.tuples(st.sampled_from(["read", "erase"]), st.integers(0, 11)), max_size=60)


@given(acts=ACTS, size_bytes_max=st.integers(0, 8 * RECORD_OVERHEAD_BYTES))
def test_least_recently_used_records_go_when_the_bound_is_reached(
    acts: list[tuple[str, int]], size_bytes_max: int
) -> None:
    world = World(size_bytes_max)
    standing = {f"{number}": "x" * (number * 200) for number in range(12)}
    for key, value in standing.items():
        world.other.create(key, value.encode(), final=True)
    model: OrderedDict[str, int] = OrderedDict()
    calls = 0
    for act, number in acts:
        key = f"{number}"
        if act == "erase":
            world.erase(key)
            standing.pop(key, None)
            model.pop(key, None)
            continue
        assert world.read(key) == standing.get(key)
        calls += key not in model
        size_bytes = RECORD_OVERHEAD_BYTES + len(standing.get(key, ""))
        if key in standing and size_bytes <= size_bytes_max:
            model[key] = size_bytes
            model.move_to_end(key)
        while sum(model.values()) > size_bytes_max:
            model.popitem(last=False)
        assert world.counts.cache.size_bytes == sum(model.values()) <= size_bytes_max
        assert len(world.store.reads) == calls
    assert [key for key in map(str, range(12)) if world.records.has(world.place(key))] == sorted(model, key=int)


def test_a_bound_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more bytes"):
        RecordCache(-1, lambda _: 0)


# What was written


def test_what_was_written_here_is_not_decoded_and_costs_no_body(world: World) -> None:
    key = world.changing("root")
    written = key.create_if_absent("one")
    assert key.read() is written
    written = key.write("two", written)
    assert key.read() is written
    written = key.change(lambda now: f"{now} and a half")
    assert key.read() is written
    assert (written.value, world.words.decoded, world.store.bodies) == ("two and a half", 0, 0)
    assert world.store.reads == ["root"] * 4, "each time on condition that it changed"


def test_a_final_record_that_was_written_here_is_never_asked_for(world: World) -> None:
    key = TypedKey(world.table, "epoch-1", world.words, is_final=always, cache=world.records)
    written = key.create_if_absent("one")
    assert key.read() is written
    assert key.create_if_absent("two") is written
    assert key.change(lambda now: None if now == "one" else "one") is written
    assert world.store.reads == []
    key.erase()
    assert key.create_if_absent("two").value == "two"


def test_a_final_record_that_was_erased_while_it_was_written_is_not_kept(world: World) -> None:
    key = TypedKey(world.table, "cut-1", world.words, is_final=always, cache=world.records)
    ticket = world.records.ticket()
    world.records.forget(TABLE, "another")  # nobody can tell whether it was this one
    world.records.keep(key, Versioned("one", Version("e", 1, bytes(16), final=True)), ticket)
    assert not key.has()


def test_what_others_wrote_first_is_decoded_and_given(world: World) -> None:
    world.other.create("root", b"theirs")
    assert world.changing("root").create_if_absent("mine").value == "theirs"
    assert world.words.decoded == 1


# Changing


class WentBack(AccelError):
    """Says what was seen and what was found."""


def _went_back(where: str, seen: tuple[int, bytes], found: tuple[int, bytes] | None) -> WentBack:
    return WentBack(f"{where}: seen {seen[0]}, found {None if found is None else found[0]}")


@pytest.fixture
def bare(world: World) -> TypedKey[str]:
    """A key without a cache, and with a check that versions do not go back."""
    tables = Tables(world.store, nonce=_nonce, sleep=_no_sleep, jitter=float)
    return TypedKey(tables.table(TABLE), "root", world.words, went_back=_went_back)


def test_a_change_of_what_was_seen_reads_nothing(world: World, bare: TypedKey[str]) -> None:
    seen = bare.create_if_absent("one")
    seen = bare.change(lambda now: f"{now}, two", seen=seen)
    assert bare.change(lambda _: None, seen=seen) is seen
    assert bare.read_newer(seen) is seen
    assert (world.store.reads, world.words.decoded) == (["root"], 0)


def test_a_lost_race_costs_one_read_and_is_decided_by_what_stands_there(world: World, bare: TypedKey[str]) -> None:
    seen = bare.create_if_absent("one")
    world.other.update("root", b"theirs", seen.version)
    assert bare.change(lambda now: f"{now}, mine", seen=seen).value == "theirs, mine"
    assert world.store.reads == ["root"], "what settling read is what the change goes on with"
    with pytest.raises(DataConflict):
        bare.write("late", seen)


def test_a_change_that_makes_nothing_of_nothing_is_refused(bare: TypedKey[str]) -> None:
    with pytest.raises(DataNotFound):
        bare.change(lambda _: None)
    with pytest.raises(DataNotFound):
        bare.get()
    assert bare.change(lambda now: "one" if now is None else None).value == "one"
    bare.delete()
    assert bare.read() is None
    assert bare.change(lambda now: "two" if now is None else None).value == "two"


def test_a_key_that_went_back_is_told_from_one_that_went_on(world: World, bare: TypedKey[str]) -> None:
    first = bare.create_if_absent("one")
    seen = bare.change(lambda _: "two", seen=first)
    world.other.erase("root")
    with pytest.raises(WentBack, match="seen 2, found None"):
        bare.read_newer(seen)
    with pytest.raises(WentBack, match="seen 2, found None"):
        bare.change(lambda _: "three", seen=seen)
    world.other.create("root", b"anew")
    with pytest.raises(WentBack, match="seen 2, found 1"):
        bare.read_newer(seen)
    with pytest.raises(WentBack, match="seen 2, found 1"):
        bare.change(lambda _: "three", seen=seen)
    assert bare.get().value == "anew", "nothing was written"
    assert bare.change(lambda _: "next").value == "next", "who saw nothing has nothing to compare"
