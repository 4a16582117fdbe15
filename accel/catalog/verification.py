"""What a verification of a catalog found; `verifying` makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """What a finding means for what may be done next."""

    DAMAGE = "damage"
    """The catalog says something that is not true: nothing may be deleted by what it says."""

    ADVICE = "advice"
    """All that the catalog says is true, and yet somebody should look after it."""


class Kind(StrEnum):
    """What a problem is about; see `verifying`."""

    LIST = "list"
    BUCKET = "bucket"
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
    MARKER = "marker"
    VERSION = "version"
    CHOICES = "choices"
    HOLE = "hole"

    @property
    def severity(self) -> Severity:
        """Damage or advice."""
        return Severity.ADVICE if self in _ADVICE else Severity.DAMAGE


_ADVICE = frozenset({Kind.MARKER, Kind.VERSION, Kind.CHOICES, Kind.HOLE})


class Outcome(StrEnum):
    """The answer in a word. Damage weighs more than what could not be checked, and that more than advice."""

    CLEAN = "clean"
    ADVICE = "advice"
    PROBLEMS = "problems"
    NOT_CHECKED = "could not check"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong: its kind, where it stands, what was expected and what was found there."""

    kind: Kind
    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"

    @property
    def severity(self) -> Severity:
        """Damage or advice, as its kind says."""
        return self.kind.severity


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
