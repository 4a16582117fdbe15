"""The problems of a catalog: each has a kind, a place, and what was expected and found there.

Rules of lists and shards, comparisons of keys (`whole_catalog`) and whole verifications return problems as values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

Mismatches = Iterator[tuple[str, str]]
"""The (expected, found) pairs of a rule that checks one list or shard."""


class Severity(StrEnum):
    """The severity of a problem: it decides whether objects may be deleted."""

    DAMAGE = "damage"
    """The catalog contains something that is not true: no object may be deleted because of it."""

    ADVICE = "advice"
    """The contents of the catalog are true, but an operator should look at the place."""


class ProblemKind(StrEnum):
    """The kind of a problem; see `verify`."""

    LIST = "list"
    SHARD = "shard"
    PLACE = "place"
    DIRECTORY = "directory"
    COUNTER = "counter"
    CHECKPOINT = "checkpoint"
    MISSING = "missing"
    DAMAGED = "damaged"
    SET_ASIDE = "set aside"
    ORDER = "order"
    END = "end"
    STREAM = "stream"
    STREAM_OBJECT = "stream object"
    SKETCH = "sketch"
    MARKER = "marker"
    VERSION = "version"
    CHOICES = "choices"
    HOLE = "hole"
    STRANGER = "stranger"

    @property
    def severity(self) -> Severity:
        """Damage or advice."""
        return Severity.ADVICE if self in _ADVICE else Severity.DAMAGE


_ADVICE = frozenset(
    {ProblemKind.MARKER, ProblemKind.VERSION, ProblemKind.CHOICES, ProblemKind.HOLE, ProblemKind.STRANGER}
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its kind, its place, what was expected and found there, and the node if it is of one node's list."""

    kind: ProblemKind
    where: str
    expected: str
    found: str
    node_id: int | None = None

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"

    @property
    def severity(self) -> Severity:
        """Damage or advice, by its kind."""
        return self.kind.severity
