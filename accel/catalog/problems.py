"""What can be wrong with a catalog: a problem says of which kind it is, where it stands, and what was expected there.

Rules of lists and shards, comparisons of keys (`survey`) and whole verifications give problems as values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

Mismatches = Iterator[tuple[str, str]]
"""What a rule finds wrong in one list or shard: what was expected, and what was found instead."""


class Severity(StrEnum):
    """What a finding means for what may be done next."""

    DAMAGE = "damage"
    """The catalog says something that is not true: nothing may be deleted by what it says."""

    ADVICE = "advice"
    """All that the catalog says is true, and yet somebody should look after it."""


class ProblemKind(StrEnum):
    """What a problem is about; see `verify`."""

    LIST = "list"
    SHARD = "shard"
    PLACE = "place"
    DIRECTORY = "directory"
    COUNTER = "counter"
    CHECKPOINT = "checkpoint"
    MISSING = "missing"
    DAMAGED = "damaged"
    ORDER = "order"
    END = "end"
    STREAM = "stream"
    STREAM_OBJECT = "stream object"
    SKETCH = "sketch"
    MARKER = "marker"
    VERSION = "version"
    CHOICES = "choices"
    HOLE = "hole"

    @property
    def severity(self) -> Severity:
        """Damage or advice."""
        return Severity.ADVICE if self in _ADVICE else Severity.DAMAGE


_ADVICE = frozenset({ProblemKind.MARKER, ProblemKind.VERSION, ProblemKind.CHOICES, ProblemKind.HOLE})


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong: its kind, where it stands, what was expected and what was found there."""

    kind: ProblemKind
    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"

    @property
    def severity(self) -> Severity:
        """Damage or advice, as its kind says."""
        return self.kind.severity
