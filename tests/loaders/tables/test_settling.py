"""What becomes of a write that is not answered with a plain yes: errors, backoff, and what is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from accel.testing import Fault, FaultStore
from loaders.backoff import Backoff
from loaders.errors import (
    AccessDenied,
    AmbiguousWrite,
    DataConflict,
    RequestRefused,
    StoreUnavailable,
    TableMissing,
    WriteConflict,
)
from loaders.store import ALWAYS, Body, Condition, IfMatch, MemoryStore, ObjectStore
from loaders.store.base import DeleteFailures
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.tables import Tables
from tests.loaders.tables.worlds import ByteTables, Recorder, World, new_nonce, no_sleep

Answer = TypeVar("Answer")


class DeniedFrom(DecoratedStore):
    """Denies every request from number `first` on."""

    def __init__(self, world: World, first: int, faults: ObjectStore | None = None) -> None:
        super().__init__(faults or world.store)
        self._left = first

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self._left -= 1
        if self._left < 0:
            raise AccessDenied(call.operation, call.key, "403")
        return send()


def faulty(world: World, *faults: Fault | None, operations: frozenset[str] = WRITES) -> FaultStore:
    store = FaultStore(world.store, operations=operations)
    store.schedule(*faults)
    return store


def impatient(world: World, around: ObjectStore | None = None) -> ByteTables:
    """A client that tries everything three times."""
    return world.tables(around, attempts=3, settle_attempts=3)


def test_every_copy_of_a_write_has_the_same_bytes(memory: World) -> None:
    bodies: list[bytes] = []

    class Bodies(DecoratedStore):
        keeps_conditions = True

        def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
            bodies.append(bytes(body))
            return super().put(key, body, condition=condition, mark=mark)

    version = memory.table().create("k", b"1")
    store = Bodies(faulty(memory, Fault.TIMEOUT, Fault.CONFLICT, Fault.SERVER_ERROR, Fault.PRECONDITION, None))
    memory.tables(store).table("t").update("k", b"2", version)
    assert len(bodies) == 5
    assert len(set(bodies)) == 1


@pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.SLOW_DOWN])
def test_a_store_that_never_answers_leaves_an_ambiguity(memory: World, fault: Fault) -> None:
    version = memory.table().create("k", b"1")
    table = impatient(memory, faulty(memory, *[fault] * 3)).table("t")
    with pytest.raises(AmbiguousWrite, match="cannot be read") as caught:
        table.update("k", b"2", version)
    assert isinstance(caught.value.__cause__, StoreUnavailable)


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.SERVER_ERROR])
def test_a_store_that_never_decides_leaves_things_as_they_are(memory: World, fault: Fault) -> None:
    version = memory.table().create("k", b"1")
    with pytest.raises(WriteConflict):
        impatient(memory, faulty(memory, *[fault] * 3)).table("t").update("k", b"2", version)


def test_a_store_that_refuses_although_nothing_changed_is_suspected_of_its_quotes(memory: World) -> None:
    version = memory.table().create("k", b"1")
    with pytest.raises(RequestRefused, match="quotes"):
        impatient(memory, faulty(memory, *[Fault.PRECONDITION] * 3)).table("t").update("k", b"2", version)


def test_a_read_that_fails_after_a_lost_reply_is_repeated(memory: World) -> None:
    version = memory.table().create("k", b"1")
    store = faulty(memory, Fault.LOST_REPLY, Fault.RESET, Fault.TIMEOUT, operations=WRITES | {"get"})
    assert impatient(memory, store).table("t").update("k", b"2", version).sequence == 2


def test_an_error_in_settling_never_says_not_written_of_a_write_that_may_have_been(memory: World) -> None:
    version = memory.table().create("k", b"1")
    lost = faulty(memory, Fault.LOST_REPLY)
    with pytest.raises(AmbiguousWrite) as caught:
        memory.tables(DeniedFrom(memory, 1, lost)).table("t").update("k", b"2", version)
    assert isinstance(caught.value.__cause__, AccessDenied)
    version = memory.table().get("k").version
    with pytest.raises(AccessDenied):
        memory.tables(DeniedFrom(memory, 1, faulty(memory, Fault.PRECONDITION))).table("t").update("k", b"3", version)
    with pytest.raises(AccessDenied):
        memory.tables(DeniedFrom(memory, 0)).table("t").update("k", b"3", version)
    assert memory.table().get("k").value == b"2"


def test_attempts_are_bounded_and_the_last_state_comes_with_the_error(memory: World) -> None:
    table, calls = memory.table(), []

    def change(old: bytes | None) -> bytes:
        calls.append(old)
        table.change("k", lambda old: (old or b"") + b".")  # somebody else is always faster
        return b"mine"

    with pytest.raises(DataConflict, match="3 times") as caught:
        impatient(memory).table("t").change("k", change)
    assert calls == [None, b".", b".."]
    assert caught.value.entry == table.get("k")


def test_plain_deletes_are_repeated_and_then_given_up(memory: World) -> None:
    memory.table().create("k", b"1", final=True)
    table = impatient(memory, faulty(memory, Fault.TIMEOUT, Fault.SLOW_DOWN, None)).table("t")
    table.erase("k")
    assert table.find("k") is None
    with pytest.raises(StoreUnavailable):
        impatient(memory, faulty(memory, *[Fault.RESET] * 3)).table("t").erase("k")
    tables = impatient(memory, faulty(memory, None, Fault.SLOW_DOWN, Fault.RESET, None))
    tables.drop_table("t")
    assert list(memory.store.list("")) == []
    memory.table()
    with pytest.raises(StoreUnavailable):
        impatient(memory, faulty(memory, *[Fault.RESET] * 3)).drop_table("t")


def test_a_drop_that_some_keys_withstand_says_so(memory: World) -> None:
    memory.table().create("k", b"1")
    with pytest.raises(AccessDenied):
        memory.tables(DeniedFrom(memory, 2)).drop_table("t")
    assert not memory.tables().table_exists("t")


def test_a_drop_ends_at_a_store_that_deletes_nothing_and_says_it_did(memory: World) -> None:
    memory.table().create("k", b"1")

    class Keeping(DecoratedStore):
        def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
            assert list(keys)
            return []

    memory.tables(Keeping(memory.store)).drop_table("t")
    assert not memory.tables().table_exists("t")


def test_a_table_whose_making_cannot_be_settled_is_ambiguous(memory: World) -> None:
    tables = impatient(memory, faulty(memory, *[Fault.TIMEOUT] * 3))
    with pytest.raises(AmbiguousWrite, match="whether the table was created"):
        tables.create_table("t")


def test_pauses_grow_to_a_bound_and_are_cut_by_chance() -> None:
    pauses: list[float] = []
    backoff = Backoff(pauses.append, lambda: 0.5)
    for attempt in (1, 2, 3, 7, 8, 10_000):
        backoff.pause(attempt)
    assert pauses == [0.01, 0.02, 0.04, 0.64, 1.0, 1.0]


def test_a_nonce_of_another_length_is_a_mistake() -> None:
    tables = Tables(MemoryStore(), nonce=lambda: b"short", sleep=no_sleep, jitter=lambda: 0.0)
    with pytest.raises(ValueError, match="16 bytes, found 5"):
        tables.create_table("t")


def test_an_undisturbed_operation_costs_what_is_promised(memory: World) -> None:
    recorder = Recorder()
    tables = memory.tables(recorder.around(memory.store))

    def requests(act: Callable[[], object]) -> str:
        recorder.calls.clear()
        act()
        return " ".join(call.operation for call in recorder.calls)

    assert requests(lambda: tables.create_table("t")) == "put"
    assert requests(lambda: tables.create_table("t")) == "put get"
    table = tables.table("t")
    assert requests(lambda: table.create("k", b"1")) == "get put", "the marker, once"
    assert requests(lambda: table.create("k2", b"1")) == "put"
    version = table.get("k").version
    assert requests(lambda: table.get("k")) == "get"
    assert requests(lambda: table.get_if_newer("k", version)) == "get_if_changed"
    assert requests(lambda: table.find("missing")) == "get"
    assert requests(lambda: table.update("k", b"2", version)) == "put"
    assert requests(lambda: table.change("k", lambda _: b"3")) == "get put"
    assert requests(lambda: table.delete("k", table.get("k").version)) == "get put"
    assert requests(lambda: table.delete("k2")) == "get put"
    assert requests(lambda: table.create("k", b"4")) == "put get put", "over a tombstone"
    assert requests(lambda: table.erase("x")) == "delete"
    assert requests(lambda: list(table.keys())) == "list"
    assert requests(lambda: list(tables.table_names())) == "list"
    assert requests(lambda: tables.drop_table("t")) == "delete list delete_many list"
    other = memory.tables(recorder.around(memory.store)).table("missing")
    recorder.calls.clear()
    with pytest.raises(TableMissing):
        other.find("k")
    assert [call.key for call in recorder.calls] == ["accel/tables/missing/k", "accel/tables/missing/!table"]


def test_how_the_endpoint_wants_if_match_is_told_to_the_store(memory: World) -> None:
    conditions: list[Condition] = []

    class Conditions(DecoratedStore):
        def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
            conditions.append(condition)
            return super().put(key, body, condition=condition, mark=mark)

    for quotes in (True, False, None):
        tables = ByteTables(
            Conditions(memory.store), nonce=new_nonce, sleep=no_sleep, jitter=lambda: 0.0, if_match_quotes=quotes
        )
        tables.create_table("t")
        tables.table("t").change("k", lambda _: b"1")
        tables.table("t").change("k", lambda _: b"2")
        last = conditions[-1]
        assert isinstance(last, IfMatch)
        assert last.quotes is quotes


def test_a_copy_that_was_answered_and_did_not_write_leaves_no_doubt(memory: World) -> None:
    table = memory.table()
    version = table.create("k", b"1")

    class OthersBeforeTheSecondCopy(DecoratedStore):
        writes = 0

        def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
            self.writes += call.operation == "put"
            if call.operation == "put" and self.writes == 2:
                for _ in range(10):
                    table.change("k", lambda old: (old or b"") + b".")
            return send()

    store = OthersBeforeTheSecondCopy(faulty(memory, Fault.CONFLICT, None))
    with pytest.raises(DataConflict):
        memory.tables(store).table("t").update("k", b"mine", version)


def test_a_version_names_eight_before_it_and_no_other(memory: World) -> None:
    table = memory.table()
    versions = [table.create("k", b"")]
    for _ in range(11):
        versions.append(table.update("k", b"", versions[-1]))
    last = table.get("k").version
    nonces = [last.nonce_at(sequence) for sequence in range(-20, 40)]
    known = [version.nonce for version in versions[-9:]]
    assert nonces == [None] * (20 + 4) + known + [None] * (39 - 12)
    assert [versions[1].nonce_at(sequence) for sequence in range(4)] == [
        None,
        versions[0].nonce,
        versions[1].nonce,
        None,
    ]
