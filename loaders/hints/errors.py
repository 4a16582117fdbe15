"""What can be wrong with a hint. It is counted by whoever uses hints, and never reaches a caller of lookups.

A hint saves requests, and no answer depends on it. So whatever is wrong with one has the same consequence: the lookup
goes on without it. The kinds exist for the counters that a person looks at, since the remedies differ:

    | kind    | what is so                                                       | what helps                      |
    |---------|------------------------------------------------------------------|---------------------------------|
    | missing | no root: nobody has built hints for this node                    | build them                      |
    | corrupt | bytes contradict the format, a checksum, or themselves           | build them again                |
    | foreign | another cluster's, another node's, or of a newer release         | look at prefixes; upgrade       |
    | mixed   | an object is not the one (its size differs) that the root names  | build them again, by one writer |
    | stale   | the root names an object that is gone: it was replaced since     | nothing: the root is read again |
"""

from __future__ import annotations

from enum import StrEnum


class HintTrouble(StrEnum):
    """The kind of a problem; the text is what counters are called."""

    MISSING = "missing"
    CORRUPT = "corrupt"
    FOREIGN = "foreign"
    MIXED = "mixed"
    STALE = "stale"


class HintProblem(Exception):
    """A hint that cannot be used. Internal: it means "go on without", so it is no `AccelError`.

    Args:
        kind: what is wrong.
        key: where the hint lies.
        detail: what was expected, and what was found.
    """

    def __init__(self, kind: HintTrouble, key: str, detail: str) -> None:
        super().__init__(f"hint {key!r} is {kind}: {detail}")
        self.kind = kind
        self.key = key
        self.detail = detail

    def __reduce__(self) -> tuple[type[HintProblem], tuple[HintTrouble, str, str]]:
        return type(self), (self.kind, self.key, self.detail)
