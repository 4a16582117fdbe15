"""What a verification of a catalog found; `verifying` makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from accel.catalog.problems import Problem, Severity


class Outcome(StrEnum):
    """The answer in a word. Damage weighs more than what could not be checked, and that more than advice."""

    CLEAN = "clean"
    ADVICE = "advice"
    PROBLEMS = "problems"
    NOT_CHECKED = "could not check"


NOT_LOOKED_AT = (
    "the payload of objects' blocks (accel object verify --all --data reads it)",
    "objects without a checksum of their tail: that no other object of the same size lies under their key",
    "a key that was put back from a copy, where nothing that was written since tells of what it lost",
    "all keys put back from one copy at once: each agrees with the others",
    "whether the counters of transactions and of streams of segments are above the ids in use (only: are they there)",
    "whether an object that nothing lists was acknowledged before its list was put back",
)
"""What no verification sees; shown with its result."""


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
    def damage(self) -> list[Problem]:
        """The problems that are damage; the others are advice."""
        return [each for each in self.problems if each.severity is Severity.DAMAGE]

    @property
    def outcome(self) -> Outcome:
        """Clean, advice, problems (damage), or could not check."""
        if self.damage:
            return Outcome.PROBLEMS
        if self.unchecked:
            return Outcome.NOT_CHECKED
        return Outcome.ADVICE if self.problems else Outcome.CLEAN
