"""What readers do with a group, each with what lies ready when it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from accel.streams.groups import ReaderGroup
from accel.streams.rules.group_state import GroupState, Lease
from loaders.store import ObjectStore
from tests.accel.history.store.bench import Bench, cut, ids

LEASE = Lease(session=7, milliseconds=10_000)

Act: TypeAlias = Callable[[Bench, ObjectStore], object]


def group(bench: Bench, store: ObjectStore) -> ReaderGroup:
    """The group, opened by a new client."""
    return ReaderGroup.open(bench.stream(around=store), "group")


def state(bench: Bench) -> GroupState:
    """What stands there."""
    return group(bench, bench.store).state()


@cache
def _prepared(prepare: Callable[[Bench], object]) -> Bench:
    bench = Bench()
    bench.create(4)
    bench.append_all(9)
    prepare(bench)
    return bench


def nothing(_: Bench) -> None:
    """A stream without a group."""


def empty(bench: Bench) -> None:
    """A group without readers."""
    group(bench, bench.store)


def uneven(bench: Bench) -> None:
    """One reader has everything, another one has just come."""
    made = group(bench, bench.store)
    made.join("a")
    made.rebalance("a", {}, 0)
    made.join("b")


def shared(bench: Bench) -> None:
    """Two readers have two segments each; those of the middle, one of each, are merged by now."""
    uneven(bench)
    made = group(bench, bench.store)
    for name in "aabb":
        made.rebalance(name, {}, 0)
    bench.stream().scale(ids("1@0", "2@0"), [(0.25, 0.75)], bench.tick())


def leased(bench: Bench) -> None:
    """One reader has everything, and a lease; another one has just come."""
    made = group(bench, bench.store)
    made.join("a", LEASE)
    made.rebalance("a", {}, 0, lease=LEASE)
    made.join("b")


def truncated(bench: Bench) -> None:
    """The same, and the stream begins behind the merge."""
    shared(bench)
    bench.stream().truncate(cut(s0_0=3, s3_0=5, s4_1=0))


def opens(bench: Bench, store: ObjectStore) -> object:
    """Open the group."""
    return repr(group(bench, store))


def opens_further(bench: Bench, store: ObjectStore) -> object:
    """Open it, and let it begin elsewhere if it is new."""
    further = cut(s0_0=1, s1_0=2, s2_0=3, s3_0=4)
    return repr(ReaderGroup.open(bench.stream(around=store), "group", further))


def joins(name: str) -> Act:
    """Join."""
    return lambda bench, store: group(bench, store).join(name)


def rebalances(name: str, positions: dict[int, int], lag: int = 0) -> Act:
    """Rebalance."""
    return lambda bench, store: group(bench, store).rebalance(name, positions, lag)


def finishes(name: str, segment: str) -> Act:
    """Tell of one of the merged segments that it was read to its end."""

    def act(bench: Bench, store: ObjectStore) -> object:
        stream, [number] = bench.stream(around=store), ids(segment)
        following = [stream.epochs.segment(each) for each in stream.epochs.successors(number)]
        ReaderGroup.open(stream, "group").finish(name, number, following, offset=9)
        return None

    return act


def leaves(name: str, positions: dict[int, int]) -> Act:
    """Leave."""
    return lambda bench, store: group(bench, store).leave(name, positions)


def buries(name: str) -> Act:
    """Declare somebody offline."""
    return lambda bench, store: group(bench, store).reader_offline(name)


def renews(bench: Bench, store: ObjectStore) -> object:
    """Show that it lives."""
    return group(bench, store).rebalance("a", cut(s0_0=5, s1_0=5), 0, lease=LEASE, renews=True)


def misses(bench: Bench, store: ObjectStore) -> object:
    """Take the other one for dead, which has not renewed since."""
    return group(bench, store).rebalance("b", {}, 0, silent={"a": LEASE})


def resets(bench: Bench, store: ObjectStore) -> object:
    """Go elsewhere, whoever reads."""
    return group(bench, store).reset(cut(s0_0=1, s1_0=2, s2_0=3, s3_0=4), evict=True)


def resets_if_empty(bench: Bench, store: ObjectStore) -> object:
    """Go elsewhere, unless somebody reads."""
    return group(bench, store).reset(cut(s0_0=1, s1_0=2, s2_0=3, s3_0=4))


def skips(bench: Bench, store: ObjectStore) -> object:
    """Go on at the head."""
    return group(bench, store).skip_to_head()


@dataclass(frozen=True)
class Meeting:
    """What several do at once.

    Attributes:
        prepare: what was done before.
        acts: what each does.
    """

    prepare: Callable[[Bench], object]
    acts: tuple[Act, ...]

    def bench(self) -> Bench:
        """Everything ready, each time anew."""
        return _prepared(self.prepare).clone()


GIVES_UP = rebalances("a", cut(s0_0=1, s1_0=2, s2_0=3, s3_0=4), 7)
TELLS = rebalances("a", cut(s0_0=1, s1_0=2), 7)

MEETINGS = {
    "two open": Meeting(nothing, (opens, opens_further)),
    "two join": Meeting(empty, (joins("a"), joins("b"))),
    "the same joins twice": Meeting(empty, (joins("a"), joins("a"))),
    "one gives up, one takes": Meeting(uneven, (GIVES_UP, rebalances("b", {}))),
    "the same gives up twice": Meeting(uneven, (GIVES_UP, GIVES_UP)),
    "one gives up, and is declared offline": Meeting(uneven, (GIVES_UP, buries("a"))),
    "one leaves, one takes": Meeting(shared, (leaves("a", cut(s0_0=4)), rebalances("b", cut(s2_0=6)))),
    "two finish what was merged": Meeting(shared, (finishes("a", "1@0"), finishes("b", "2@0"))),
    "the same finishes twice": Meeting(shared, (finishes("a", "1@0"), finishes("a", "1@0"))),
    "one finishes, and is declared offline": Meeting(shared, (finishes("a", "1@0"), buries("a"))),
    "one tells, one skips": Meeting(truncated, (TELLS, skips)),
    "one finishes, one skips": Meeting(truncated, (finishes("a", "1@0"), skips)),
    "one renews, one misses it": Meeting(leased, (renews, misses)),
    "one tells, one resets": Meeting(uneven, (TELLS, resets)),
    "one joins, one resets": Meeting(empty, (joins("a"), resets_if_empty)),
    "three": Meeting(uneven, (GIVES_UP, rebalances("b", {}), joins("c"))),
}
