"""What operations see if they happen one after the other: a key of a table, the end of a stream, its first kept offset.

Values of keys and batches of streams are unlike each other, so what was seen says which write it came from.

An operation that was refused says that its condition did not hold at some moment. One that failed had no effect and is
in no history: an operation that reads its value shows that it had one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.linearizability.histories import Operation, Outcome

KeyState = tuple[int, str | None]
"""Sequence number and value; None where none is."""

READ, CREATE, UPDATE, DELETE = "read", "create", "update", "delete"
APPEND, TRIM = "append", "trim"


@dataclass(frozen=True, slots=True)
class VersionedKey:
    """A key of a versioned table: a register with compare-and-set, whose versions are counted.

    | operation | asked                          | found               |
    |-----------|--------------------------------|---------------------|
    | read      |                                | sequence, value, or nothing |
    | create    | value                          | sequence            |
    | update    | sequence and value that were seen, value | sequence  |
    | delete    | sequence and value that were seen        |           |
    """

    initial: KeyState = (0, None)

    def step(self, state: KeyState, operation: Operation) -> KeyState | None:
        sequence, value = state
        if operation.what == READ:
            return state if operation.found == (() if value is None else state) else None
        if operation.outcome is Outcome.REFUSED:
            return None if self._holds(state, operation) else state
        if operation.what == DELETE and operation.has_ended and value is None:
            return state  # what was to be deleted is gone
        if not self._holds(state, operation) or operation.found not in ((), (sequence + 1,)):
            return None
        return sequence + 1, None if operation.what == DELETE else operation.asked[-1]

    def is_over(self, state: KeyState, operation: Operation) -> bool:
        return operation.what == READ or (operation.what != CREATE and state[0] > operation.asked[0])

    @staticmethod
    def _holds(state: KeyState, operation: Operation) -> bool:
        return state[1] is None if operation.what == CREATE else state == operation.asked[:2]


EndState = tuple[int, str]
"""Where a stream ends, and the label of the batch before that; none at its begin."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """What was uploaded to a stream: a log that is continued where it ends.

    | operation | asked                     | found                                                         |
    |-----------|---------------------------|---------------------------------------------------------------|
    | append    | first offset, end, label  |                                                               |
    | read      |                           | end, label of the last batch; or the offset where nothing was |

    `found` may have more of what a read returned after that.
    """

    initial: EndState = (0, "")

    def step(self, state: EndState, operation: Operation) -> EndState | None:
        if operation.what == APPEND:
            start, end, label = operation.asked
            return (end, label) if state[0] == start else None
        if len(operation.found) == 1:
            return state if state[0] <= operation.found[0] else None
        return state if state == operation.found[:2] else None

    def is_over(self, state: EndState, operation: Operation) -> bool:
        return operation.what == READ or state[0] > operation.asked[0]


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The first offset of a stream that is kept: it only rises."""

    initial: int = 0

    def step(self, state: int, operation: Operation) -> int | None:
        if operation.what == TRIM:
            trimmed_to: int = operation.asked[0]
            return max(state, trimmed_to)
        return state if operation.found == (state,) else None

    def is_over(self, state: int, operation: Operation) -> bool:
        return operation.what == READ or operation.asked[0] <= state


MODELS: dict[str, Any] = {"key": VersionedKey(), "end": StreamEnd(), "start": StreamStart()}
"""By what the keys of their histories begin with, up to a colon."""
