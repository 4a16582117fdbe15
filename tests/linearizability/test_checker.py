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
NEVER = float("inf")
"""When an operation ended of which nobody knows how it ended."""

History = tuple[Model[Any], list[Operation]]


def ended(began: float, end: float, what: str, *asked: Any, found: tuple[Any, ...] = ()) -> Operation:
    outcome = Outcome.UNKNOWN if end == NEVER else Outcome.DONE
    return Operation("k", what, asked, began, end, outcome, () if end == NEVER else found)


def read(began: float, end: float, *found: Any) -> Operation:
    return ended(began, end, READ, found=found)


def create(began: float, end: float, value: str, sequence: int) -> Operation:
    return ended(began, end, CREATE, value, found=(sequence,))


def update(began: float, end: float, seen: tuple[int, str], value: str) -> Operation:
    return ended(began, end, UPDATE, *seen, value, found=(seen[0] + 1,))


def delete(began: float, end: float, sequence: int, value: str) -> Operation:
    return ended(began, end, DELETE, sequence, value)


def append(began: float, end: float, first: int, stop: int, label: str) -> Operation:
    return ended(began, end, APPEND, first, stop, label)


def trim(began: float, end: float, offset: int) -> Operation:
    return ended(began, end, TRIM, offset)


def refused(began: float, end: float, what: str, *asked: Any) -> Operation:
    return Operation("k", what, asked, began, end, Outcome.REFUSED)


A, B = (1, "a"), (2, "b")
MADE = create(0, 1, "a", 1)
LOST = update(2, NEVER, A, "b")

LINEARIZABLE: dict[str, History] = {
    "nothing happened": (KEY, []),
    "one after the other": (KEY, [MADE, update(2, 3, A, "b"), read(4, 5, *B)]),
    "a read beside a write sees the old value": (KEY, [MADE, update(2, 5, A, "b"), read(3, 4, *A)]),
    "reads beside a write see old, then new": (KEY, [MADE, update(2, 9, A, "b"), read(3, 4, *A), read(5, 6, *B)]),
    "a write without an end happened": (KEY, [MADE, LOST, read(8, 9, *B)]),
    "a write without an end never happened": (KEY, [MADE, LOST, read(8, 9, *A)]),
    "a write without an end happens late": (KEY, [MADE, LOST, read(4, 5, *A), read(6, 7, *A), read(8, 9, *B)]),
    "of two on one version one is refused": (KEY, [MADE, update(2, 5, A, "b"), refused(3, 6, UPDATE, *A, "c")]),
    "a value is deleted and made anew": (
        KEY,
        [MADE, delete(2, 3, *A), read(4, 5), create(6, 7, "c", 3), read(8, 9, 3, "c")],
    ),
    "what another one deleted is deleted": (KEY, [MADE, delete(2, 3, *A), delete(4, 5, *A)]),
    "a stream is continued": (
        END,
        [append(0, 1, 0, 5, "x"), read(2, 3, 5, "x"), append(2, 6, 5, 7, "y"), read(4, 5, 7, "y")],
    ),
    "of two uploads without an end one happened": (
        END,
        [append(0, NEVER, 0, 5, "x"), append(1, NEVER, 0, 4, "y"), read(7, 8, 4, "y")],
    ),
    "nothing is kept of a stream": (END, [append(0, 1, 0, 5, "x"), read(2, 3, 5)]),
    "a stream is trimmed twice": (START, [trim(0, 1, 5), trim(2, 3, 3), read(4, 5, 5)]),
    "a trim without an end happens late": (START, [trim(0, NEVER, 5), read(1, 2, 0), read(3, 4, 5)]),
}

NOT_LINEARIZABLE: dict[str, History] = {
    "a stale read": (KEY, [MADE, update(2, 3, A, "b"), read(4, 5, *A)]),
    "reads beside a write see new, then old": (KEY, [MADE, update(2, 9, A, "b"), read(3, 4, *B), read(5, 6, *A)]),
    "two writes on one version": (KEY, [MADE, update(2, 5, A, "b"), update(3, 6, A, "c")]),
    "a value that nobody wrote": (KEY, [MADE, read(2, 3, *B)]),
    "a write happened before it began": (KEY, [MADE, read(2, 3, *B), update(4, 5, A, "b")]),
    "a write without an end was undone": (KEY, [MADE, LOST, read(4, 5, *B), read(6, 7, *A)]),
    "a write without an end happened twice": (
        KEY,
        [
            create(0, NEVER, "a", 1),
            *(read(1, 2, *A), delete(3, 4, *A)),
            *(read(5, 6, 3, "a"), delete(7, 8, 3, "a")),
            read(9, 10, 5, "a"),
        ],
    ),
    "a refusal without a reason": (KEY, [MADE, refused(2, 3, UPDATE, *A, "b")]),
    "a wrong sequence number": (KEY, [create(0, 1, "a", 2)]),
    "an upload is not found": (END, [append(0, 1, 0, 5, "x"), read(2, 3, 0)]),
    "two uploads of one offset": (END, [append(0, 1, 0, 5, "x"), append(0, 1, 0, 5, "y")]),
    "an upload disappears": (
        END,
        [append(0, 1, 0, 5, "x"), append(2, NEVER, 5, 6, "y"), read(3, 4, 6, "y"), read(5, 6, 5, "x")],
    ),
    "a trim is taken back": (START, [trim(0, 1, 5), read(2, 3, 5), read(4, 5, 3)]),
    "a trim that nobody asked for": (START, [trim(0, 1, 5), read(2, 3, 6)]),
}


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_histories_that_are_linearizable(name: str) -> None:
    model, operations = LINEARIZABLE[name]
    checked = check(model, operations)
    assert checked.obstacle is None
    assert is_right(model, operations, checked)


@pytest.mark.parametrize("name", NOT_LINEARIZABLE)
def test_histories_that_are_not_whatever_the_order_of_their_lines(name: str) -> None:
    model, operations = NOT_LINEARIZABLE[name]
    assert check(model, operations).obstacle in operations
    assert not any_order(model, operations)
    for seed in range(5):
        shuffled = Random(seed).sample(operations, len(operations))
        assert not check(model, shuffled).is_linearizable


def is_right(model: Model[Any], operations: Sequence[Operation], checked: Checked[Any]) -> bool:
    """Whether an order has all that ended, respects real time, and explains what each operation found."""
    chosen = [operations[at] for at in checked.order]
    has_all = all(each in chosen for each in operations if each.has_ended)
    return has_all and respects_time(chosen) and explains(model, chosen)


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


SEEN = st.tuples(st.integers(1, 3), st.sampled_from("ab"))
KEY_ARGUMENTS = {READ: st.just(()), CREATE: st.tuples(st.sampled_from("ab")), DELETE: SEEN}
KEY_ARGUMENTS[UPDATE] = st.builds(lambda seen, value: (*seen, value), SEEN, st.sampled_from("ab"))
KEY_FOUND = {READ: st.one_of(st.just(()), SEEN), DELETE: st.just(())}
APPENDED = st.builds(
    lambda first, size, label: (first, first + size, label), st.integers(0, 2), st.integers(1, 2), st.sampled_from("xy")
)
STREAM_FOUND = st.one_of(st.tuples(st.integers(0, 4)), st.tuples(st.integers(1, 4), st.sampled_from("xy")))
OFFSETS = st.tuples(st.integers(0, 3))


@st.composite
def key_operations(draw: st.DrawFn) -> Operation:
    what = draw(st.sampled_from([READ, READ, CREATE, UPDATE, UPDATE, DELETE]))
    found = draw(KEY_FOUND.get(what, st.tuples(st.integers(1, 3))))
    return timed(draw, what, draw(KEY_ARGUMENTS[what]), found, may_be_refused=what != READ)


@st.composite
def stream_operations(draw: st.DrawFn) -> Operation:
    if draw(st.booleans()):
        return timed(draw, APPEND, draw(APPENDED))
    return timed(draw, READ, (), draw(STREAM_FOUND))


@st.composite
def start_operations(draw: st.DrawFn) -> Operation:
    if draw(st.booleans()):
        return timed(draw, TRIM, draw(OFFSETS))
    return timed(draw, READ, (), draw(OFFSETS))


def timed(
    draw: st.DrawFn, what: str, asked: tuple[Any, ...], found: tuple[Any, ...] = (), *, may_be_refused: bool = False
) -> Operation:
    began, took = draw(st.integers(0, 12)), draw(st.sampled_from([*range(6), NEVER]))
    if may_be_refused and took != NEVER and draw(st.booleans()):
        return refused(began, began + took, what, *asked)
    return ended(began, began + took, what, *asked, found=found)


HISTORIES = st.one_of(
    st.tuples(st.just(KEY), st.lists(key_operations(), max_size=6)),
    st.tuples(st.just(END), st.lists(stream_operations(), max_size=6)),
    st.tuples(st.just(START), st.lists(start_operations(), max_size=6)),
)


@given(HISTORIES)
def test_the_checker_says_what_all_orders_say(history: History) -> None:
    model, operations = history
    checked = check(model, operations)
    assert checked.is_linearizable == any_order(model, operations)
    if checked.is_linearizable:
        assert is_right(model, operations, checked)


class SharedKey:
    """A key whose operations happen at once, and the history of those who use it side by side."""

    def __init__(self, random: Random, clients: int) -> None:
        self.random, self.clients, self.state = random, clients, KEY.initial

    def run(self, operations: int) -> list[Operation]:
        free = [0.0] * self.clients
        planned: list[tuple[float, float, float, int]] = []
        for number in range(operations):
            client = min(range(self.clients), key=free.__getitem__)
            began = free[client] + self.random.random()
            happens = began + self.random.random()
            free[client] = happens + self.random.random()
            planned.append((happens, began, free[client], number))
        return [self.happen(began, end, f"v{number}") for _, began, end, number in sorted(planned)]

    def happen(self, began: float, end: float, value: str) -> Operation:
        sequence, known = self.state
        if self.random.random() < 0.5:
            return read(began, end, *(() if known is None else self.state))
        if self.random.random() < 0.1:
            return self.change(began, NEVER, value)  # and does not happen
        done = self.change(began, NEVER if self.random.random() < 0.1 else end, value)
        self.state = sequence + 1, value
        return done

    def change(self, began: float, end: float, value: str) -> Operation:
        sequence, known = self.state
        return (
            create(began, end, value, sequence + 1) if known is None else update(began, end, (sequence, known), value)
        )


@pytest.mark.parametrize("seed", range(5))
def test_a_long_history_is_checked_and_one_stale_read_in_it_is_found(seed: int) -> None:
    operations = SharedKey(Random(seed), clients=4).run(1500)
    assert check(KEY, operations).is_linearizable
    reads = [at for at, each in enumerate(operations) if each.what == READ and each.found]
    at, was = reads[len(reads) * 3 // 4], operations[reads[len(reads) * 3 // 4]]
    operations[at] = read(was.began_seconds, was.ended_seconds, *operations[reads[len(reads) // 4]].found)
    assert check(KEY, operations).obstacle == operations[at]


def test_a_search_that_takes_too_long_is_given_up() -> None:
    beside = [append(0, NEVER, 0, 5, f"{number}") for number in range(50)]
    with pytest.raises(TooManyConfigurationsError):
        check(END, [*beside, read(7, 8, 4, "y")], configurations_max=20)
