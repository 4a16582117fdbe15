"""What is known when the next objects to open are chosen.

A lookup wants the object of one node's list that holds an offset. It knows some objects of the list already: those that
hold the stream end before the offset or start after it, and so they bracket the place where the answer must lie. What
lies between and is not known yet are the candidates:

    position     0 1 2 3 4 5 6 7 8 9
    known        . < . . . - . . > .        <  holds the stream, ends at or before the offset   (low)
    candidates       * * *   * *            >  holds the stream, starts after the offset        (high)
                                            -  known, or filtered out: does not hold the stream

A policy sees only positions, never ids, bytes or times; so it is pure, and every policy can be tried on every list.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


class Near(enum.Enum):
    """Where in the bracket the offset is expected to lie."""

    UNKNOWN = "unknown"
    LOW = "low"
    """Right after the low end: it continues a known object, or lies at the head of what the node owns."""
    HIGH = "high"
    """Right before the high end: it lies at the tail of what the node owns."""


@dataclass(frozen=True, slots=True, eq=False)
class Bracket:
    """The place in a node's list where the wanted object must lie.

    Args:
        low: position of the nearest known holder before the offset; -1 where there is none.
        high: position of the nearest known holder after the offset; the length of the list where there is none.
        candidates: ascending positions between the two that may hold the stream and are not known yet; never empty.
        beyond: ascending positions above ``high`` that are not known yet; only the load-all policy looks at them.
        round_number: rounds of loading made so far for this node, from 0.
        stuck_rounds: how many of the last rounds left ``low`` and ``high`` where they were.
        near: where in the bracket the offset is expected.
    """

    low: int
    high: int
    candidates: Positions
    beyond: Positions
    round_number: int = 0
    stuck_rounds: int = 0
    near: Near = Near.UNKNOWN


class Policy(Protocol):
    """Chooses which objects to open next.

    The answer of a lookup never depends on the choice, only its cost does. Every policy must choose at least one
    candidate, so that a lookup always ends: after at most as many rounds as the list is long.
    """

    @property
    def name(self) -> str:
        """How settings and reports call it."""
        ...

    def choose(self, bracket: Bracket) -> Positions:
        """Positions to open in one round: at least one of ``bracket.candidates``, ascending, each at most once."""
        ...
