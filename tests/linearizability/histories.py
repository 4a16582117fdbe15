"""What a process writes down of its operations, so that it is there whatever becomes of the process.

One line says that an operation begins, another one how it ended; each is one write to a file that only this process
has. A process that is killed leaves operations without an end: they may have happened or not. Times are of the
machine's monotonic clock, which all of its processes share.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any


class Outcome(StrEnum):
    """How an operation ended."""

    DONE = "done"
    REFUSED = "refused"  # it had no effect, as its condition did not hold
    FAILED = "failed"  # it had no effect and tells nothing
    UNKNOWN = "unknown"  # it may have an effect, at any later time
    BROKEN = "broken"  # it ended as no operation may end


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on the object with a key: it had an effect between its begin and its end, if it had one."""

    key: str
    what: str
    asked: tuple[Any, ...]
    began_seconds: float
    ended_seconds: float = float("inf")
    outcome: Outcome = Outcome.UNKNOWN
    found: tuple[Any, ...] = ()
    process: str = ""

    @property
    def has_ended(self) -> bool:
        return self.outcome is not Outcome.UNKNOWN

    def __str__(self) -> str:
        end = f"{self.ended_seconds:.4f}" if self.has_ended else "..."
        asked, found = (json.dumps(each) for each in (self.asked, self.found))
        return (
            f"{self.began_seconds:.4f} to {end} {self.process}: {self.key} {self.what} {asked} {self.outcome} {found}"
        )


class Recorder:
    """Writes down what one process does, in a file of its own. Threads: any; each line is one write."""

    def __init__(self, path: Path, timer: Callable[[], float]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._timer = timer
        self._numbers = count()

    def begin(self, key: str, what: str, *asked: object, since_seconds: float | None = None) -> int:
        """An operation is about to begin; gives its number. What it sees may be as old as `since_seconds`."""
        number = next(self._numbers)
        began = self._timer() if since_seconds is None else since_seconds
        self._write({"number": number, "at": began, "key": key, "what": what, "asked": asked})
        return number

    def end(self, number: int, outcome: Outcome, *found: object) -> None:
        self._write({"number": number, "at": self._timer(), "outcome": outcome, "found": found})

    def count(self, what: str) -> None:
        self._write({"count": what})

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass(slots=True)
class History:
    """What all processes of a run wrote down: operations, in no order, and counts of what else happened."""

    operations: list[Operation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def read(self, path: Path) -> None:
        """Take in the file of one process. Its last line may be cut off."""
        lines = path.read_bytes().split(b"\n")[:-1]
        self.operations += _joined(path.stem, map(json.loads, lines), self.counts)


def _joined(process: str, lines: Iterable[dict[str, Any]], counts: Counter[str]) -> Iterator[Operation]:
    begun: dict[int, dict[str, Any]] = {}
    for line in lines:
        if "count" in line:
            counts[line["count"]] += 1
        elif "outcome" in line:
            yield _operation(process, begun.pop(line["number"]), line)
        else:
            begun[line["number"]] = line
    yield from (_operation(process, begin, None) for begin in begun.values())


def _operation(process: str, begin: dict[str, Any], end: dict[str, Any] | None) -> Operation:
    started = begin["key"], begin["what"], _frozen(begin["asked"]), begin["at"]
    outcome = Outcome.UNKNOWN if end is None else Outcome(end["outcome"])
    if end is None or outcome is Outcome.UNKNOWN:
        return Operation(*started, process=process)
    return Operation(*started, end["at"], outcome, _frozen(end["found"]), process)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
