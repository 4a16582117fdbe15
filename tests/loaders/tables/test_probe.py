"""The probe finds out how an endpoint wants If-Match, and refuses one that does not keep its word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accel.testing import Fault, FaultStore
from loaders.errors import AccessDenied, PreconditionFailed, RequestRefused, StoreUnavailable
from loaders.store import ALWAYS, Body, Condition, CreateOnly, IfMatch, ObjectStore
from loaders.store.decorated import DecoratedStore
from loaders.tables import probe_conditions
from tests.loaders.tables.worlds import ReadOnly, Recorder, World, new_nonce


class Bending(DecoratedStore):
    """A store that makes of every condition what it likes."""

    def __init__(self, store: ObjectStore, bend: Callable[[Condition], Condition]) -> None:
        super().__init__(store)
        self._bend = bend

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        return super().put(key, body, condition=self._bend(condition), mark=mark)


def ignores(kind: type[Condition]) -> Callable[[Condition], Condition]:
    return lambda condition: ALWAYS if isinstance(condition, kind) else condition


def wants(quotes: bool) -> Callable[[Condition], Condition]:
    def bend(condition: Condition) -> Condition:
        is_right = not isinstance(condition, IfMatch) or condition.quotes is quotes
        return condition if is_right else IfMatch("no such etag")

    return bend


def test_it_agrees_with_what_is_known_of_the_server(world: World, request: pytest.FixtureRequest) -> None:
    quotes = probe_conditions(world.store, new_nonce)
    name = request.node.callspec.id
    if "-" in name:
        assert quotes == request.getfixturevalue(f"{name.split('-')[1]}_endpoint").etag_quotes
    assert list(world.store.list("")) == [], "it leaves nothing behind"


@pytest.mark.parametrize("quotes", [True, False])
def test_either_way_is_found_out(memory: World, quotes: bool) -> None:
    assert probe_conditions(Bending(memory.store, wants(quotes)), new_nonce) is quotes


@pytest.mark.parametrize(
    ("bend", "words"),
    [
        (ignores(CreateOnly), "ignores If-None-Match"),
        (ignores(IfMatch), "ignores If-Match"),
        (lambda condition: IfMatch("x") if isinstance(condition, IfMatch) else condition, "with and without quotes"),
    ],
)
def test_an_endpoint_that_would_lose_writes_is_refused(
    memory: World, bend: Callable[[Condition], Condition], words: str
) -> None:
    with pytest.raises(RequestRefused, match=words):
        probe_conditions(Bending(memory.store, bend), new_nonce)
    assert list(memory.store.list("")) == []


def test_an_endpoint_that_refuses_to_create_what_is_not_there_is_refused(memory: World) -> None:
    with pytest.raises((RequestRefused, PreconditionFailed)):
        probe_conditions(Bending(memory.store, lambda _: IfMatch("x")), new_nonce)


def test_it_tries_its_own_key_and_no_other(memory: World) -> None:
    recorder = Recorder()
    probe_conditions(recorder.around(memory.store), lambda: bytes(range(16)))
    assert {call.key for call in recorder.calls} == {"accel/probe/000102030405060708090a0b0c0d0e0f"}
    assert len(recorder.calls) == 6


@pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.LOST_REPLY, Fault.SERVER_ERROR, Fault.CONFLICT])
def test_bad_luck_is_no_verdict(memory: World, fault: Fault) -> None:
    for position in range(4):
        faults = FaultStore(memory.store, operations={"put"})
        faults.schedule(*[None] * position, fault)
        assert probe_conditions(faults, new_nonce) is True
    assert list(memory.store.list("")) == []


def test_an_endpoint_that_does_not_answer_is_given_up(memory: World) -> None:
    faults = FaultStore(memory.store)
    faults.schedule(*[Fault.SLOW_DOWN] * 6)
    with pytest.raises(StoreUnavailable):
        probe_conditions(faults, new_nonce)


def test_who_may_not_write_need_not_try(memory: World) -> None:
    with pytest.raises(AccessDenied):
        probe_conditions(ReadOnly(memory.store), new_nonce)
