"""What a verification of a catalog found; `verifying` makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What a problem is about; see the module."""

    LIST = "list"
    BUCKET = "bucket"
    COUNTER = "counter"
    PLACE = "place"
    MISSING = "missing"
    DAMAGED = "damaged"
    ORDER = "order"
    STREAM_OBJECT = "stream object"


class Outcome(StrEnum):
    """The answer in a word. Problems weigh more than what could not be checked."""

    CLEAN = "clean"
    PROBLEMS = "problems"
    NOT_CHECKED = "could not check"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong: its kind, where it stands, what was expected and what was found there."""

    kind: Kind
    where: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Something that could not be checked, and why."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object that stands nowhere in the catalog.

    Args:
        object_id: its id.
        key: where it lies.
        size_bytes: of the object.
        age_seconds: since it was written, by the store's clock.
    """

    object_id: int
    key: str
    size_bytes: int
    age_seconds: float


@dataclass(slots=True, eq=False)
class Verification:
    """What was found. Not changed any more once `verify` has given it.

    Args:
        problems: what is wrong.
        unchecked: what could not be checked.
        orphans: the oldest of them, at most 1,000.
        counts: how many of what were checked: `lists`, `buckets`, `objects` opened, `bytes` of these, `keys` of the
            bucket that are objects, `orphans`, `orphan_bytes`.
        are_orphans_known: whether both the bucket and the whole catalog could be read, so that orphans could be told.
    """

    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    are_orphans_known: bool = False

    @property
    def outcome(self) -> Outcome:
        """Clean, problems, or could not check."""
        if self.problems:
            return Outcome.PROBLEMS
        return Outcome.NOT_CHECKED if self.unchecked else Outcome.CLEAN
