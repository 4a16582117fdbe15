"""Two processes change a group at once: in the end it is as if one had come after the other.

One does all of it between two calls of the other, whichever two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import TypeAlias

import pytest

from accel.errors import HistoryError
from accel.history.store import Stream
from accel.streams.groups import ReaderGroup
from accel.streams.rules.group_state import GroupState, Lease
from loaders.store import ObjectStore
from tests.accel.history.store.bench import Bench, cut, ids
from tests.accel.history.store.watching import Interrupted

CALLS_MAX = 100
LEASE = Lease(session=7, milliseconds=10_000)
FURTHER = cut(s0_0=1, s1_0=2, s2_0=3, s3_0=4)

Act: TypeAlias = Callable[[Stream], object]
Prepare: TypeAlias = Callable[[Bench], object]


def group(stream: Stream) -> ReaderGroup:
    """The group, opened by a new client."""
    return ReaderGroup.open(stream, "group")


# What was done before


def nothing(_: Bench) -> None:
    """A stream without a group."""


def empty(bench: Bench) -> ReaderGroup:
    """A group without readers."""
    return group(bench.stream())


def uneven(bench: Bench, lease: Lease = Lease()) -> ReaderGroup:  # noqa: B008 - immutable
    """One reader has everything, another one has just come."""
    made = empty(bench)
    made.join("a", lease)
    made.rebalance("a", {}, 0, lease=lease)
    made.join("b")
    return made


def leased(bench: Bench) -> None:
    """The same, and the first one has a lease."""
    uneven(bench, LEASE)


def shared(bench: Bench) -> None:
    """Two readers have two segments each; those of the middle, one of each, are merged by now."""
    made = uneven(bench)
    for name in "aabb":
        made.rebalance(name, {}, 0)
    bench.stream().scale(ids("1@0", "2@0"), [(0.25, 0.75)], bench.tick())


def truncated(bench: Bench) -> None:
    """The same, and the stream begins behind the merge."""
    shared(bench)
    bench.stream().truncate(cut(s0_0=3, s3_0=5, s4_1=0))


@cache
def prepared(prepare: Prepare) -> Bench:
    bench = Bench()
    bench.create(4)
    bench.append_all(9)
    prepare(bench)
    return bench


# What is done at once


def opens(stream: Stream) -> object:
    return repr(group(stream))


def opens_further(stream: Stream) -> object:
    """Open it, and let it begin elsewhere if it is new."""
    return repr(ReaderGroup.open(stream, "group", FURTHER))


def call(method: str, *given: object, **options: object) -> Act:
    """Open the group, and call it."""
    return lambda stream: getattr(group(stream), method)(*given, **options)


def finishes(name: str, segment: str) -> Act:
    """Tell of one of the merged segments that it was read to its end."""

    def act(stream: Stream) -> None:
        [number] = ids(segment)
        following = [stream.epochs.segment(each) for each in stream.epochs.successors(number)]
        group(stream).finish(name, number, following, offset=9)

    return act


GIVES_UP = call("rebalance", "a", FURTHER, 7)
TELLS = call("rebalance", "a", cut(s0_0=1, s1_0=2), 7)
TAKES = call("rebalance", "b", {}, 0)
RENEWS = call("rebalance", "a", cut(s0_0=5, s1_0=5), 0, lease=LEASE, renews=True)
MISSES = call("rebalance", "b", {}, 0, silent={"a": LEASE})
BURIES = call("reader_offline", "a")
SKIPS = call("skip_to_head")

MEETINGS: dict[str, tuple[Prepare, Act, Act]] = {
    "two open": (nothing, opens, opens_further),
    "two join": (empty, call("join", "a"), call("join", "b")),
    "the same joins twice": (empty, call("join", "a"), call("join", "a")),
    "one gives up, one takes": (uneven, GIVES_UP, TAKES),
    "the same gives up twice": (uneven, GIVES_UP, GIVES_UP),
    "one gives up, and is declared offline": (uneven, GIVES_UP, BURIES),
    "one leaves, one takes": (shared, call("leave", "a", cut(s0_0=4)), call("rebalance", "b", cut(s2_0=6), 0)),
    "two finish what was merged": (shared, finishes("a", "1@0"), finishes("b", "2@0")),
    "the same finishes twice": (shared, finishes("a", "1@0"), finishes("a", "1@0")),
    "one finishes, and is declared offline": (shared, finishes("a", "1@0"), BURIES),
    "one tells, one skips": (truncated, TELLS, SKIPS),
    "one finishes, one skips": (truncated, finishes("a", "1@0"), SKIPS),
    "one renews, one misses it": (leased, RENEWS, MISSES),
    "one tells, one resets": (uneven, TELLS, call("reset", FURTHER, evict=True)),
    "one joins, one resets": (empty, call("join", "a"), call("reset", FURTHER)),
}


def answer(act: Act, bench: Bench, store: ObjectStore) -> object:
    """What somebody is told: an answer, or why there is none."""
    try:
        return act(bench.stream(around=store))
    except HistoryError as error:
        return type(error)


def state(bench: Bench) -> GroupState:
    return group(bench.stream()).state()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", MEETINGS)
def test_whichever_two_calls_another_comes_between_it_is_as_if_they_had_come_in_turn(name: str, turned: bool) -> None:
    prepare, *acts = MEETINGS[name]
    allowed = []
    for order in permutations(range(2)):
        bench = prepared(prepare).clone()
        answers = {number: answer(acts[number], bench, bench.store) for number in order}
        allowed.append((state(bench), answers))
    first, second = (1, 0) if turned else (0, 1)
    whole = prepared(prepare).clone()
    counted = Interrupted(whole.store, None, lambda: None)
    answer(acts[first], whole, counted)
    assert 0 < counted.calls < CALLS_MAX
    for number in range(counted.calls):
        bench = prepared(prepare).clone()
        told: dict[int, object] = {}

        def come_between() -> None:
            told[second] = answer(acts[second], bench, bench.store)  # noqa: B023 - at once

        told[first] = answer(acts[first], bench, Interrupted(bench.store, number, come_between))
        assert (state(bench), told) in allowed, f"before call {number}"
