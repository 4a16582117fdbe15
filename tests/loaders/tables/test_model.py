"""Two clients, random operations and random faults against a plain dict: no false success, no false failure.

The store at the bottom tells the model what really happens: each write that it carries out becomes an entry of the
dict, under the name of the operation that is going on. So the model knows at the end of an operation whether it
happened, and how often, whatever the client was told on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from accel.testing import Fault, FaultStore
from loaders.errors import AmbiguousWrite, DataConflict, DataExists, DataNotFound, StoreError, TableError
from loaders.store import MemoryStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.tables import Version, Versioned
from tests.examples import examples
from tests.loaders.tables.worlds import Between, Values, World, items_of

Answer = TypeVar("Answer")

FAULTS = [fault for fault in Fault if fault is not Fault.SHORT_BODY]
KEYS = ["a", "b"]
WRITING = ["create", "create_if_absent", "update", "delete", "delete any", "erase", "repeatable", "existing"]
READING = ["get", "get if newer", "keys", "items", "items after"]
ANCESTORS = 8
"""So many versions before it a version names: of a write that more followed nobody knows."""
UNCONDITIONAL = {Fault.CONFLICT, Fault.PRECONDITION}
"""What cannot happen to a write without a condition."""


@dataclass(frozen=True)
class Step:
    """One operation, and what happens to it.

    Attributes:
        client: which of the two.
        action: one of `WRITING` or `READING`; "repeatable" and "existing" are changes that recognise their own work,
            the latter only where there is something.
        key: what it is done to.
        faults: what happens to its writes, one after the other.
        others: so many writes of a third client come right after the first of its writes that fails.
        others_end: whether the third client then deletes the key.
        is_stale: whether it goes by the version that this client saw earlier, or reads the newest.
    """

    client: int
    action: str
    key: str
    faults: tuple[Fault | None, ...]
    others: int
    others_end: bool
    is_stale: bool


STEPS = st.builds(
    Step,
    st.integers(0, 1),
    st.sampled_from(WRITING + READING),
    st.sampled_from(KEYS),
    st.lists(st.sampled_from([None, *FAULTS]), max_size=4).map(tuple),
    st.sampled_from([0, 0, 1, 2, 9]),
    st.booleans(),
    st.booleans(),
)


@dataclass
class Model:
    """What the table holds: the naive truth.

    Attributes:
        values: live values by key.
        writer: who is at work, and what the key will hold once it is written; None for a delete.
        happened: how often the operation of each writer took effect.
    """

    values: dict[str, bytes] = field(default_factory=dict)
    writer: tuple[str, bytes | None] = ("", None)
    happened: dict[str, int] = field(default_factory=dict)

    def carried_out(self, store_key: str) -> None:
        """The store has written a key for the writer at work."""
        key = store_key.rpartition("/")[2]
        name, value = self.writer
        self.happened[name] = self.happened.get(name, 0) + 1
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value


class Truth(DecoratedStore):
    """Tells the model of every write that is carried out."""

    def __init__(self, store: MemoryStore, model: Model) -> None:
        super().__init__(store)
        self._model = model

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        answer = send()
        if call.operation in WRITES:
            self._model.carried_out(call.key)
        return answer


class Run:
    """One sequence of steps."""

    def __init__(self) -> None:
        self.model = Model()
        inner = MemoryStore()
        self.truth = World(Truth(inner, self.model))
        self.truth.table()
        self.third = self.truth.tables().table("t")
        self.observer = World(inner).tables().table("t")
        self.faults = [FaultStore(self.truth.store, operations=WRITES) for _ in range(2)]
        self.seen: list[dict[str, Version]] = [{}, {}]
        self.number = 0

    def step(self, step: Step) -> None:
        """Do it, and hold what the client was told against what happened."""
        self.number += 1
        name, value = f"{step.client} in step {self.number}", b"%d" % self.number
        faults = self.faults[step.client]
        faults.clear()
        table = self.client(step, faults)
        version = self.version(step)
        before = dict(self.model.values)
        self.model.writer = (name, None if step.action.startswith(("delete", "erase")) else value)
        if step.action in READING:
            self.check_reading(step, self.told(table, step, value, version), version)
        else:
            impossible = UNCONDITIONAL if step.action == "erase" else set()
            faults.schedule(*[fault for fault in step.faults if fault not in impossible])
            told = self.told(table, step, value, version)
            self.check(step, told, self.model.happened.get(name, 0), before)
        assert {key: entry.value for key, entry in items_of(self.observer)} == self.model.values

    def client(self, step: Step, faults: FaultStore) -> Values:
        """The client whose turn it is, with a third one in its back."""

        def third() -> None:
            mine = self.model.writer
            for number in range(step.others):
                self.model.writer = ("third", b"third %d" % number)
                self.third.change(step.key, lambda _, number=number: b"third %d" % number)  # type: ignore[misc] # bound now
            if step.others and step.others_end:
                self.model.writer = ("third", None)
                self.third.delete(step.key)
            self.model.writer = mine

        return self.truth.tables(Between(faults, third), attempts=6, settle_attempts=3).table("t")

    def version(self, step: Step) -> Version:
        """The version that an update or delete goes by."""
        seen = self.seen[step.client]
        if not step.is_stale or step.key not in seen:
            entry = self.observer.find(step.key)
            seen[step.key] = Version("none", 1, bytes(16)) if entry is None else entry.version
        return seen[step.key]

    def told(self, table: Values, step: Step, value: bytes, version: Version) -> object:
        """What the client was told: an answer or an error."""
        actions: dict[str, Callable[[], object]] = {
            "create": lambda: table.create(step.key, value),
            "create_if_absent": lambda: table.create_if_absent(step.key, value),
            "update": lambda: table.update(step.key, value, version),
            "delete": lambda: table.delete(step.key, version),
            "delete any": lambda: table.delete(step.key),
            "repeatable": lambda: table.change(step.key, lambda old: None if old == value else value),
            "existing": lambda: table.change(step.key, lambda old: None if old in (None, value) else value),
            "erase": lambda: table.erase(step.key),
            "get": lambda: table.find(step.key),
            "get if newer": lambda: table.get_if_newer(step.key, version),
            "keys": lambda: list(table.keys()),
            "items": lambda: [(key, entry.value) for key, entry in items_of(table)],
            "items after": lambda: [(key, entry.value) for key, entry in items_of(table, after=KEYS[0])],
        }
        try:
            return actions[step.action]()
        except (TableError, StoreError) as error:
            return error

    def check(self, step: Step, told: object, happened: int, before: dict[str, bytes]) -> None:
        """No false success, no false failure, and no failure without a reason."""
        repeats = step.action in {"repeatable", "existing"}
        if step.action == "erase":
            self.check_erased(step, told, happened)
        elif isinstance(told, AmbiguousWrite):
            assert happened <= 1 + repeats
            assert set(step.faults) - {None, Fault.PRECONDITION}, "a refusal is an answer"
            is_known = step.key in before and not step.is_stale and not step.action.startswith("create")
            is_hidden = step.others > ANCESTORS or step.others_end or not is_known
            assert is_hidden or self.used_up(step), "the key still shows the outcome"
        elif isinstance(told, Exception):
            assert happened == 0, f"told {told!r} of a write that happened"
            self.check_reason(step, told, before)
        elif step.action == "create_if_absent":
            assert isinstance(told, Versioned)
            assert happened == (told.value == b"%d" % self.number) or step.others
        elif step.action.startswith("delete"):
            assert happened == 1 or step.key not in before or step.others_end
        else:
            assert happened == 1 or (repeats and happened == 2)

    def check_reading(self, step: Step, told: object, version: Version) -> None:
        """What is read is what stands there."""
        found = self.observer.find(step.key)
        items = sorted(self.model.values.items())
        if step.action == "get if newer":
            if found is None:
                assert isinstance(told, DataNotFound)
            else:
                assert told == (None if found.version == version else found)
            return
        expected: dict[str, object] = {
            "get": found,
            "keys": [key for key, _ in items],
            "items": items,
            "items after": [(key, value) for key, value in items if key > KEYS[0]],
        }
        assert told == expected[step.action]

    def check_erased(self, step: Step, told: object, happened: int) -> None:
        """A plain delete may be repeated, and has happened if nothing is raised."""
        if isinstance(told, Exception):
            assert isinstance(told, StoreError)
            assert len([fault for fault in step.faults if fault not in {None, *UNCONDITIONAL}]) >= 3
        else:
            assert told is None
            assert happened >= 1
            assert step.key not in self.model.values

    def check_reason(self, step: Step, told: Exception, before: dict[str, bytes]) -> None:
        """The error says what was the case: before the operation, or after a third client was there."""
        could_exist = step.key in before or step.others > 0
        could_be_missing = step.key not in before or step.others_end
        if isinstance(told, DataExists):
            assert could_exist
        elif isinstance(told, DataNotFound):
            assert could_be_missing
        elif isinstance(told, DataConflict):
            assert step.is_stale or step.others
            assert told.entry is None or told.entry.value == self.model.values.get(step.key)
        else:
            assert isinstance(told, StoreError)
            assert self.used_up(step), "attempts were not used up"

    def used_up(self, step: Step) -> bool:
        """Whether as many writes went wrong as one is repeated."""
        return len([fault for fault in step.faults if fault is not None]) >= 3


@settings(max_examples=examples(400))
@given(st.lists(STEPS, max_size=12))
def test_no_false_success_and_no_false_failure(steps: list[Step]) -> None:
    run = Run()
    for step in steps:
        run.step(step)
