"""Which objects to open next: policies over positions and brackets. Pure: no I/O, no ids, no clock.

A lookup searches one node's list for the object that holds an offset. Some objects of the list are known already. The
known objects that hold the stream end before the offset or start after it, and so they bracket the answer. The unknown
objects in the bracket are the candidates:

    position     0 1 2 3 4 5 6 7 8 9
    known        . < . . . - . . > .        <  holds the stream, ends at or before the offset   (low)
    candidates       * * *   * *            >  holds the stream, starts after the offset        (high)
                                            -  known, or filtered out: does not hold the stream

| policy         | objects opened in a round                                              | purpose              |
|----------------|------------------------------------------------------------------------|----------------------|
| load all       | all from the low end of the bracket to the end of the list             | the earlier method   |
| window         | the next 5 in order                                                    | few GETs at a head   |
| window+preload | the next 5 in order, and 5 spread over the rest, or the last at a tail | the first design     |
| spread         | up to 8, evenly placed, so that a round divides the bracket by nine    | few GETs, few rounds |

`expected_place` returns the part of the bracket in which the offset is expected: next to a known holder that ends right
before it, or at the head or tail of the node's ownership range. The end of that range is known if the range is closed,
or, for a live range, from commits. If it is not known, both ends get a part of each round and the middle gets the rest.

A policy reads only positions, never ids, bytes or times; so every policy can be tried on every list. Lookups return the
same answers with all policies. Source: AutoMQ issue 2731, sections 3.1 to 3.4; docs/operations/benchmarks.md has the
measurements for the default.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


class Near(enum.Enum):
    """The expected place of the offset in the bracket."""

    UNKNOWN = "unknown"
    LOW = "low"
    """Right after the low end: the offset follows a known object, or is at the head of the node's ownership range."""
    HIGH = "high"
    """Right before the high end: the offset is at the tail of the node's ownership range."""
    ENDS = "ends"
    """At either end."""


class Trust(enum.Enum):
    """How reliable an expected place is."""

    SURE = "sure"
    """It is next to a known holder without a gap, or at an end of the node's ownership range."""
    LIKELY = "likely"
    """There are few offsets between it and a known holder."""
    OPEN = "open"
    """No known object excludes it, and none supports it."""


class Guess(NamedTuple):
    """The expected place of an offset in the bracket, and how reliable it is."""

    near: Near
    trust: Trust


class Held(Protocol):
    """A range [start, end) of the stream that an object holds."""

    @property
    def start(self) -> int:
        """Its first offset."""
        ...

    @property
    def end(self) -> int:
        """One past its last offset."""
        ...


NO_GUESS = Guess(Near.UNKNOWN, Trust.OPEN)

NEAR_END_SHARE = 0.01
"""An offset in the first or last hundredth of a node's ownership range counts as one at its head or tail."""

NEIGHBOUR_LENGTHS = 4
"""An offset is near a known holder if the offsets between are at most this multiple of the holder's."""


def expected_place(offset: int, before: Held | None, after: Held | None, head: int, tail: int | None) -> Guess:
    """The expected place, between two known holders, of the object with an offset. Complexity: O(1).

    Args:
        offset: the searched offset; neither in `before` nor in `after`.
        before: the range of the known holder before the candidates; None if there is none: they begin the list.
        after: the range of the known holder after the candidates; None if there is none: they end the list.
        head: the first offset that the node owns of the stream.
        tail: the end of the stream in the node, or a lower bound of it; None if it is not known.
    """
    if offset <= head if before is None else offset == before.end:
        return Guess(Near.LOW, Trust.SURE)
    low = before is not None and offset - before.end <= NEIGHBOUR_LENGTHS * (before.end - before.start)
    high = after is not None and after.start - offset <= NEIGHBOUR_LENGTHS * (after.end - after.start)
    trust = Trust.LIKELY if low or high else Trust.SURE
    if tail is None:
        if before is None and after is None:
            return Guess(Near.ENDS, Trust.OPEN)
        high = high or after is None
        trust = Trust.LIKELY if low or after is not None else Trust.OPEN
    else:
        margin = (tail - head) * NEAR_END_SHARE
        low = low or (before is None and offset <= head + margin)
        high = high or (after is None and offset >= tail - margin)
    if low and high:
        return Guess(Near.ENDS, trust)
    return Guess(Near.LOW if low else Near.HIGH, trust) if low or high else NO_GUESS


@dataclass(frozen=True, slots=True, eq=False)
class Bracket:
    """The part of a node's list that must contain the searched object.

    Args:
        low: position of the nearest known holder before the offset; -1 if there is none.
        high: position of the nearest known holder after the offset; the length of the list if there is none.
        candidates: ascending positions between the two that may hold the stream and are not known yet; never empty.
        beyond: ascending positions above ``high`` that are not known yet; for policies that open them in order:
            load-all, and spread in a proven run.
        round_number: rounds of loading made so far for this node, from 0.
        stuck_rounds: the number of the last rounds in a row that did not change ``low`` and ``high``.
        guess: the expected place of the offset in the bracket.
        run_objects: the number of positions after `low` that a proven scan may open, see `in_run`; 0 for others.
    """

    low: int
    high: int
    candidates: Positions
    beyond: Positions
    round_number: int = 0
    stuck_rounds: int = 0
    guess: Guess = NO_GUESS
    run_objects: int = 0


class Policy(Protocol):
    """Chooses which objects to open next.

    Only the cost of a lookup depends on the choice, never its answer. Every policy must choose at least one candidate,
    so that a lookup always ends: the length of the list bounds the number of rounds.
    """

    @property
    def name(self) -> str:
        """The name in settings and reports."""
        ...

    def choose(self, bracket: Bracket) -> Positions:
        """Positions to open in one round: at least one of ``bracket.candidates``, ascending, each at most once."""
        ...


GAPS_MAX = 6
"""Bound on the objects of one round that are opened with gaps, after those in a row."""


GOLDEN = 0.6180339887498949
"""The golden ratio less 1: the fractional parts of any number of its multiples fill an interval evenly."""


def evenly(candidates: Positions, count: int, turn: int = 0) -> Positions:
    """``count`` of the candidates with equal gaps before, between and after them; all of them if there are no more.

    Each turn shifts the choice, so that the choices of several turns from (nearly) the same candidates are together
    evenly spread, too. Without the shift, each turn would choose neighbours of the last choice, and adjacent holders
    would be missed.

    Complexity: O(count).
    """
    size = len(candidates)
    if size <= count:
        return candidates
    if turn:
        shift = (turn * GOLDEN) % 1.0
        return candidates.take(((np.arange(count) + shift) * (size / count)).astype(np.int64))
    # One of every (size / (count + 1)): the remaining part to search has the same size wherever the answer is.
    picks = (np.arange(1, count + 1) * size) // (count + 1)
    return candidates.take(picks)


def from_low(candidates: Positions, count: int) -> Positions:
    """Most of ``count`` one by one from the low end, the last few with gaps that double.

    If the stream is in every object, the run finds it at once; if it is in few, the widening gaps bracket it with a few
    more objects. Complexity: O(count).
    """
    size = len(candidates)
    if size <= count:
        return candidates
    run = count - min(count // 2, GAPS_MAX)
    widening = run - 1 + (1 << np.arange(1, count - run + 1, dtype=np.int64))
    picks = np.concatenate([np.arange(run), widening[widening < size]])
    return candidates.take(picks)


def from_high(candidates: Positions, count: int) -> Positions:
    """As :func:`from_low`, from the high end. Complexity: O(candidates)."""
    size = len(candidates)
    if size <= count:
        return candidates
    mirrored = from_low(np.arange(size), count)
    picks: Positions = (size - 1 - mirrored)[::-1]
    return candidates.take(picks)


RUN_GROWTH = 4
"""A scan opens at most this multiple of the positions that it has proven to be consecutive."""


def in_run(objects: int, positions: int, wanted: int) -> int:
    """The number of positions of the list, after the proven ones, that a scan may open.

    >>> in_run(10, 10, 1000), in_run(10, 10, 12), in_run(10, 100, 12), in_run(10, 100, 8)
    (40, 12, 120, 0)

    Args:
        objects: the number of objects that hold the stream without a gap up to the offset, at least 1.
        positions: the number of positions of the list that these objects span.
        wanted: the number of objects that the request still needs; no scan if a first round may open that many.
    """
    if wanted <= SPREAD_SIZE_OBJECTS:
        return 0
    return min(RUN_GROWTH * positions, -(-wanted * positions // objects))


WINDOW_SIZE_OBJECTS = 5
SPREAD_SIZE_OBJECTS = 8
SPREAD_SIZE_OBJECTS_MAX = 64

POLICY_NAMES = ("spread", "window", "window+preload", "load-all")


@dataclass(frozen=True, slots=True)
class LoadAll:
    """Opens all unknown objects from the low end of the bracket to the end of the list, in one round."""

    name: str = "load-all"

    def choose(self, bracket: Bracket) -> Positions:
        """All candidates and all unknown positions beyond the bracket."""
        return np.concatenate([bracket.candidates, bracket.beyond])


@dataclass(frozen=True, slots=True)
class Window:
    """Opens the next few objects in list order.

    Args:
        size_objects: the number of objects in a round; at least 1, by default 5.
    """

    size_objects: int = WINDOW_SIZE_OBJECTS
    name: str = "window"

    def __post_init__(self) -> None:
        _at_least_one(self.size_objects)

    def choose(self, bracket: Bracket) -> Positions:
        """The first candidates from the low end on."""
        return bracket.candidates[: self.size_objects]


@dataclass(frozen=True, slots=True)
class WindowPreload:
    """A window, and the same number of objects spread over the rest; at the tail the last ones instead.

    Args:
        size_objects: the number of objects in order, and of the others; at least 1, by default 5.
    """

    size_objects: int = WINDOW_SIZE_OBJECTS
    name: str = "window+preload"

    def __post_init__(self) -> None:
        _at_least_one(self.size_objects)

    def choose(self, bracket: Bracket) -> Positions:
        """The next candidates in order, and the preloaded ones from the rest."""
        window = bracket.candidates[: self.size_objects]
        rest = bracket.candidates[self.size_objects :]
        near, trust = bracket.guess
        if near in {Near.HIGH, Near.ENDS} and (trust is not Trust.OPEN or not bracket.round_number):
            return np.concatenate([window, rest[-self.size_objects :]])
        return np.concatenate([window, evenly(rest, self.size_objects)])


SURE_ROUNDS = 3
"""The number of rounds in a row that open only objects at a sure place without making the bracket smaller."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Opens up to 8 candidates, evenly spread, or gathered at the end of the bracket where the offset is expected.

    An object that does not hold the stream does not narrow the bracket, so a round may leave the bracket unchanged:
    then the next round opens twice as many, up to 64. Eight even probes of a dense list of n objects need about log9(n)
    rounds.

    A part of each round is opened at the expected place, and the rest is spread evenly, so that a wrong guess at most
    doubles the cost. The part is a whole round if the guess is sure, for three rounds; otherwise half of a round, or a
    quarter if its trust is OPEN and this is not the first round.

    Args:
        size_objects: the number of objects in a first round; at least 1, by default 8.
        size_objects_max: the largest number of objects in one round; by default 64.
    """

    size_objects: int = SPREAD_SIZE_OBJECTS
    size_objects_max: int = SPREAD_SIZE_OBJECTS_MAX
    name: str = "spread"

    def __post_init__(self) -> None:
        _at_least_one(self.size_objects)
        if self.size_objects_max < self.size_objects:
            raise ValueError(
                f"expected size_objects_max of at least {self.size_objects}, found {self.size_objects_max}"
            )

    def choose(self, bracket: Bracket) -> Positions:
        """The next ones of a run in order; or all, if few; or some at the expected place and the rest evenly."""
        doublings = min(bracket.stuck_rounds, self.size_objects_max.bit_length())
        count = min(self.size_objects << doublings, self.size_objects_max)
        candidates = bracket.candidates
        if bracket.run_objects >= self.size_objects:
            following = np.concatenate([candidates, bracket.beyond])
            in_run = int(np.searchsorted(following, bracket.low + bracket.run_objects, side="right"))
            return following[: max(self.size_objects, min(in_run, self.size_objects_max))]
        if len(candidates) <= count:
            return candidates
        gathered = _gathered(candidates, bracket.guess.near, _count_guessed(bracket, count))
        rest = count - sum(map(len, gathered))
        if not rest:
            return gathered[0] if len(gathered) == 1 else np.unique(np.concatenate(gathered))
        return np.unique(np.concatenate([*gathered, evenly(candidates, rest, bracket.stuck_rounds)]))

    def ahead(self, bracket: Bracket, under_way: int) -> Positions:
        """The next objects of a run; none while more than half of the bound is under way; never more than a round.

        The bound on objects under way is twice the size of a round, so that a full round of connections stays busy.
        """
        most = min(bracket.run_objects, 2 * self.size_objects_max)
        if bracket.run_objects <= self.size_objects or 2 * under_way > most:
            return bracket.candidates[:0]
        return bracket.candidates[: min(most - under_way, self.size_objects_max)]


def _count_guessed(bracket: Bracket, count: int) -> int:
    """The number of objects of a round to open at the expected place."""
    near, trust = bracket.guess
    if near is Near.UNKNOWN:
        return 0
    if trust is Trust.SURE and bracket.stuck_rounds < SURE_ROUNDS:
        return count
    return count // 4 if trust is Trust.OPEN and bracket.round_number else count // 2


def _gathered(candidates: Positions, near: Near, count: int) -> list[Positions]:
    """This number of candidates at one end, or half of it at each end."""
    low = {Near.LOW: count, Near.ENDS: count // 2}.get(near, 0)
    high = {Near.HIGH: count, Near.ENDS: count // 2}.get(near, 0)
    return [*([from_low(candidates, low)] if low else []), *([from_high(candidates, high)] if high else [])]


def policy_of(name: str) -> Policy:
    """The policy of this name; a size may follow a colon.

    >>> policy_of("spread"), policy_of("window:2")
    (Spread(size_objects=8, size_objects_max=64, name='spread'), Window(size_objects=2, name='window'))

    Raises:
        ValueError: no policy has that name, or the size does not fit it.
    """
    word, colon, size = name.partition(":")
    if word not in POLICY_NAMES or (colon and (word == "load-all" or not size.isdecimal())):
        raise ValueError(f"expected a policy out of {', '.join(POLICY_NAMES)}, perhaps with :size, found {name!r}")
    if word == "load-all":
        return LoadAll()
    if word == "spread":
        count = int(size or SPREAD_SIZE_OBJECTS)
        return Spread(count, max(count, SPREAD_SIZE_OBJECTS_MAX))
    return (Window if word == "window" else WindowPreload)(int(size or WINDOW_SIZE_OBJECTS))


def _at_least_one(size_objects: int) -> None:
    if size_objects < 1:
        raise ValueError(f"expected a size of at least 1 object, found {size_objects}")
