"""The checker against histories that are known to be linearizable or not, and against all orders of small ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.linearizability.checker import Checked, Model, TooManyConfigurationsError, check
from tests.linearizability.histories import Operation, Outcome
from tests.linearizability.models import (
    APPEND,
    CREATE,
    DELETE,
    READ,
    TRIM,
    UPDATE,
    StreamEnd,
    StreamStart,
    VersionedKey,
)

KEY, END, START = VersionedKey(), StreamEnd(), StreamStart()


def done(began: float, ended: float, what: str, *asked: Any, found: tuple[Any, ...] = ()) -> Operation:
    return Operation("k", what, asked, began, ended, Outcome.DONE, found)


def refused(began: float, ended: float, what: str, *asked: Any) -> Operation:
    return Operation("k", what, asked, began, ended, Outcome.REFUSED)


def unknown(began: float, what: str, *asked: Any) -> Operation:
    return Operation("k", what, asked, began)


A1 = done(0, 1, CREATE, "a", found=(1,))
READS_A = (1, "a")
READS_B = (2, "b")

LINEARIZABLE: dict[str, tuple[Model[Any], list[Operation]]] = {
    "nothing happened": (KEY, []),
    "one after the other": (KEY, [A1, done(2, 3, UPDATE, 1, "a", "b", found=(2,)), done(4, 5, READ, found=READS_B)]),
    "a read beside a write sees the old value": (
        KEY,
        [A1, done(2, 5, UPDATE, 1, "a", "b", found=(2,)), done(3, 4, READ, found=READS_A)],
    ),
    "reads beside a write see the old value, then the new one": (
        KEY,
        [
            A1,
            done(2, 9, UPDATE, 1, "a", "b", found=(2,)),
            done(3, 4, READ, found=READS_A),
            done(5, 6, READ, found=READS_B),
        ],
    ),
    "a write without an end happened": (KEY, [A1, unknown(2, UPDATE, 1, "a", "b"), done(8, 9, READ, found=READS_B)]),
    "a write without an end never happened": (
        KEY,
        [A1, unknown(2, UPDATE, 1, "a", "b"), done(8, 9, READ, found=READS_A)],
    ),
    "a write without an end happens late": (
        KEY,
        [
            A1,
            unknown(2, UPDATE, 1, "a", "b"),
            done(4, 5, READ, found=READS_A),
            done(6, 7, READ, found=READS_A),
            done(8, 9, READ, found=READS_B),
        ],
    ),
    "the second of two writes on one version is refused": (
        KEY,
        [A1, done(2, 5, UPDATE, 1, "a", "b", found=(2,)), refused(3, 6, UPDATE, 1, "a", "c")],
    ),
    "a value is deleted and made anew": (
        KEY,
        [
            A1,
            done(2, 3, DELETE, 1, "a"),
            done(4, 5, READ),
            done(6, 7, CREATE, "c", found=(3,)),
            done(8, 9, READ, found=(3, "c")),
        ],
    ),
    "what another one deleted is deleted": (KEY, [A1, done(2, 3, DELETE, 1, "a"), done(4, 5, DELETE, 1, "a")]),
    "a stream is continued": (
        END,
        [
            done(0, 1, APPEND, 0, 5, "x"),
            done(2, 3, READ, found=(5, "x")),
            done(2, 6, APPEND, 5, 7, "y"),
            done(4, 5, READ, found=(7, "y")),
        ],
    ),
    "of two uploads without an end one happened": (
        END,
        [unknown(0, APPEND, 0, 5, "x"), unknown(1, APPEND, 0, 4, "y"), done(7, 8, READ, found=(4, "y"))],
    ),
    "nothing is kept of a stream": (END, [done(0, 1, APPEND, 0, 5, "x"), done(2, 3, READ, found=(5,))]),
    "a stream is trimmed twice": (
        START,
        [done(0, 1, TRIM, 5), done(2, 3, TRIM, 3), done(4, 5, READ, found=(5,))],
    ),
    "a trim without an end happens late": (
        START,
        [unknown(0, TRIM, 5), done(1, 2, READ, found=(0,)), done(3, 4, READ, found=(5,))],
    ),
}

NOT_LINEARIZABLE: dict[str, tuple[Model[Any], list[Operation]]] = {
    "a stale read": (
        KEY,
        [A1, done(2, 3, UPDATE, 1, "a", "b", found=(2,)), done(4, 5, READ, found=READS_A)],
    ),
    "reads beside a write see the new value, then the old one": (
        KEY,
        [
            A1,
            done(2, 9, UPDATE, 1, "a", "b", found=(2,)),
            done(3, 4, READ, found=READS_B),
            done(5, 6, READ, found=READS_A),
        ],
    ),
    "two writes on one version": (
        KEY,
        [A1, done(2, 5, UPDATE, 1, "a", "b", found=(2,)), done(3, 6, UPDATE, 1, "a", "c", found=(2,))],
    ),
    "a value that nobody wrote": (KEY, [A1, done(2, 3, READ, found=READS_B)]),
    "a write happened before it began": (
        KEY,
        [A1, done(2, 3, READ, found=READS_B), done(4, 5, UPDATE, 1, "a", "b", found=(2,))],
    ),
    "a write without an end happened and was undone": (
        KEY,
        [
            A1,
            unknown(2, UPDATE, 1, "a", "b"),
            done(4, 5, READ, found=READS_B),
            done(6, 7, READ, found=READS_A),
        ],
    ),
    "a write without an end happened twice": (
        KEY,
        [
            unknown(0, CREATE, "a"),
            done(1, 2, READ, found=READS_A),
            done(3, 4, DELETE, 1, "a"),
            done(5, 6, READ, found=(3, "a")),
            done(7, 8, DELETE, 3, "a"),
            done(9, 10, READ, found=(5, "a")),
        ],
    ),
    "a refusal without a reason": (KEY, [A1, refused(2, 3, UPDATE, 1, "a", "b")]),
    "a wrong sequence number": (KEY, [done(0, 1, CREATE, "a", found=(2,))]),
    "an upload is not found": (END, [done(0, 1, APPEND, 0, 5, "x"), done(2, 3, READ, found=(0,))]),
    "two uploads of one offset": (END, [done(0, 1, APPEND, 0, 5, "x"), done(0, 1, APPEND, 0, 5, "y")]),
    "an upload disappears": (
        END,
        [
            done(0, 1, APPEND, 0, 5, "x"),
            unknown(2, APPEND, 5, 6, "y"),
            done(3, 4, READ, found=(6, "y")),
            done(5, 6, READ, found=(5, "x")),
        ],
    ),
    "a trim is taken back": (
        START,
        [done(0, 1, TRIM, 5), done(2, 3, READ, found=(5,)), done(4, 5, READ, found=(3,))],
    ),
    "a trim that nobody asked for": (START, [done(0, 1, TRIM, 5), done(2, 3, READ, found=(6,))]),
}


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_histories_that_are_linearizable(name: str) -> None:
    model, operations = LINEARIZABLE[name]
    checked = check(model, operations)
    assert checked.obstacle is None
    assert is_right(model, operations, checked)


@pytest.mark.parametrize("name", NOT_LINEARIZABLE)
def test_histories_that_are_not(name: str) -> None:
    model, operations = NOT_LINEARIZABLE[name]
    checked = check(model, operations)
    assert checked.obstacle in operations
    assert not any_order(model, operations)


@pytest.mark.parametrize("name", NOT_LINEARIZABLE)
@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_lines_is_no_matter(name: str, seed: int) -> None:
    model, operations = NOT_LINEARIZABLE[name]
    shuffled = Random(seed).sample(operations, len(operations))
    assert not check(model, shuffled).is_linearizable


def is_right(model: Model[Any], operations: Sequence[Operation], checked: Checked[Any]) -> bool:
    """Whether an order has all that ended, respects real time, and explains what each operation found."""
    chosen = [operations[at] for at in checked.order]
    if any(each.has_ended and each not in chosen for each in operations):
        return False
    return respects_time(chosen) and explains(model, chosen)


def any_order(model: Model[Any], operations: Sequence[Operation]) -> bool:
    """Whether one of all orders, with or without each operation that has no end, is right."""
    return any(respects_time(each) and explains(model, each) for each in all_orders(operations))


def all_orders(operations: Sequence[Operation]) -> Iterator[Sequence[Operation]]:
    ended = [each for each in operations if each.has_ended]
    others = [each for each in operations if not each.has_ended]
    for chosen in range(1 << len(others)):
        yield from permutations(ended + [each for at, each in enumerate(others) if chosen >> at & 1])


def respects_time(order: Sequence[Operation]) -> bool:
    return not any(
        later.ended_seconds < earlier.began_seconds for at, earlier in enumerate(order) for later in order[at:]
    )


def explains(model: Model[Any], order: Sequence[Operation]) -> bool:
    state = model.initial
    for operation in order:
        state = model.step(state, operation)
        if state is None:
            return False
    return True


TIMES = st.integers(0, 12)
VALUES = st.sampled_from("ab")
SEEN = st.tuples(st.integers(1, 3), VALUES)
LABELS = st.sampled_from("xy")
OUTCOMES = st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.UNKNOWN])


@st.composite
def key_operations(draw: st.DrawFn) -> Operation:
    what = draw(st.sampled_from([READ, READ, CREATE, UPDATE, UPDATE, DELETE]))
    asked: tuple[Any, ...] = () if what in (READ, CREATE) else draw(SEEN)
    if what in (CREATE, UPDATE):
        asked = (*asked, draw(VALUES))
    found: tuple[Any, ...] = ()
    if what == READ:
        found = draw(st.one_of(st.just(()), SEEN))
    elif what != DELETE:
        found = (draw(st.integers(1, 3)),)
    outcome = draw(OUTCOMES if what == READ else st.one_of(OUTCOMES, st.just(Outcome.REFUSED)))
    return timed(draw, what, asked, outcome, found)


@st.composite
def stream_operations(draw: st.DrawFn) -> Operation:
    if draw(st.booleans()):
        start = draw(st.integers(0, 2))
        return timed(draw, APPEND, (start, start + draw(st.integers(1, 2)), draw(LABELS)), draw(OUTCOMES), ())
    found = draw(st.one_of(st.tuples(st.integers(0, 4)), st.tuples(st.integers(1, 4), LABELS)))
    return timed(draw, READ, (), draw(OUTCOMES), found)


@st.composite
def start_operations(draw: st.DrawFn) -> Operation:
    offset = (draw(st.integers(0, 3)),)
    if draw(st.booleans()):
        return timed(draw, TRIM, offset, draw(OUTCOMES), ())
    return timed(draw, READ, (), Outcome.DONE, offset)


def timed(draw: st.DrawFn, what: str, asked: tuple[Any, ...], outcome: Outcome, found: tuple[Any, ...]) -> Operation:
    began = draw(TIMES)
    if outcome is Outcome.UNKNOWN:
        return unknown(began, what, *asked)
    kept = () if outcome is Outcome.REFUSED else found
    return Operation("k", what, asked, began, began + draw(st.integers(0, 5)), outcome, kept)


HISTORIES = st.one_of(
    st.tuples(st.just(KEY), st.lists(key_operations(), max_size=6)),
    st.tuples(st.just(END), st.lists(stream_operations(), max_size=6)),
    st.tuples(st.just(START), st.lists(start_operations(), max_size=6)),
)


@given(HISTORIES)
def test_the_checker_says_what_all_orders_say(history: tuple[Model[Any], list[Operation]]) -> None:
    model, operations = history
    checked = check(model, operations)
    assert checked.is_linearizable == any_order(model, operations)
    if checked.is_linearizable:
        assert is_right(model, operations, checked)


class SharedKey:
    """A key whose operations happen at once, and the history of those who use it side by side."""

    def __init__(self, random: Random, clients: int) -> None:
        self.random, self.clients = random, clients
        self.seconds, self.state, self.operations = 0.0, KEY.initial, list[Operation]()

    def run(self, operations: int) -> list[Operation]:
        free = [0.0] * self.clients
        for number in range(operations):
            client = min(range(self.clients), key=free.__getitem__)
            began = free[client] + self.random.random()
            happens = began + self.random.random()
            ended = happens + self.random.random()
            free[client] = ended
            self.operations.append(Operation("k", READ, (), began, ended, Outcome.DONE, (number, happens)))
        for planned in sorted(self.operations, key=lambda each: each.found[1]):
            self.operations[planned.found[0]] = self.happen(planned)
        return self.operations

    def happen(self, planned: Operation) -> Operation:
        times, value = (planned.began_seconds, planned.ended_seconds), f"v{planned.found[0]}"
        if self.random.random() < 0.5:
            return done(*times, READ, found=() if self.state[1] is None else self.state)
        wanted = unknown(planned.began_seconds, UPDATE, *self.state, value)
        if self.state[1] is None:
            wanted = unknown(planned.began_seconds, CREATE, value)
        if self.random.random() < 0.1:
            return wanted  # and does not happen
        self.state = (self.state[0] + 1, value)
        if self.random.random() < 0.1:
            return wanted
        return done(*times, wanted.what, *wanted.asked, found=(self.state[0],))


@pytest.mark.parametrize("seed", range(5))
def test_a_long_history_is_checked_and_one_stale_read_in_it_is_found(seed: int) -> None:
    operations = SharedKey(Random(seed), clients=4).run(1500)
    assert check(KEY, operations).is_linearizable
    reads = [at for at, each in enumerate(operations) if each.what == READ and each.found]
    at = reads[len(reads) * 3 // 4]
    stale = operations[reads[len(reads) // 4]].found
    was = operations[at]
    operations[at] = done(was.began_seconds, was.ended_seconds, READ, found=stale)
    assert check(KEY, operations).obstacle == operations[at]


def test_a_search_that_takes_too_long_is_given_up() -> None:
    beside = [unknown(0, APPEND, 0, 5, f"{number}") for number in range(50)]
    with pytest.raises(TooManyConfigurationsError):
        check(END, [*beside, done(7, 8, READ, found=(4, "y"))], configurations_max=20)
