"""Readers come, go, pause, die and come back while a stream scales and is truncated: each record is given once.

What a reader gave and had not told when its lease was over does not count: it is given again.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from accel.errors import IllegalState
from accel.streams.rules.frontier import Frontier
from tests.accel.streams.groups.players import LEASE_SECONDS, Play
from tests.examples import examples

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
PICKS = st.integers(0, 1_000)
SMALL = st.integers(1, 3)
LAGS = st.sampled_from([0, 1, 5, 10**18])


class Members(RuleBasedStateMachine):
    """Five names of readers, and a reader beside the group to whose position the stream is truncated."""

    @initialize(segments=st.integers(1, 6))
    def begin(self, segments: int) -> None:
        self.play = Play.begin(segments)
        self.play.append([4] * segments)
        head = self.play.stream.active_segments()
        self.beside = Frontier(head, dict.fromkeys(head.ids.tolist(), 0))

    def pick(self, names: Collection[str], at: int) -> str:
        return sorted(names)[at % len(names)]

    # The stream

    @rule(sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6))
    def append(self, sizes: list[int]) -> None:
        self.play.append(sizes)

    @rule(at=PICKS, count=SMALL, parts=SMALL)
    def scale(self, at: int, count: int, parts: int) -> None:
        self.play.scale(at, count, parts)

    @rule(picks=st.lists(PICKS, min_size=1, max_size=6), part=st.sampled_from([0.4, 1.0]))
    def read_beside(self, picks: list[int], part: float) -> None:
        stream = self.play.stream
        active = set(stream.active_segments().ids.tolist())
        for at in picks:
            each = self.beside.started[at % len(self.beside.started)]
            size = self.play.sizes[each]
            self.beside.reach(each, int(size * part))
            if each not in active and self.beside.offset(each) == size:
                self.beside.finish(each, [stream.epochs.segment(number) for number in stream.epochs.successors(each)])

    @rule()
    def truncate(self) -> None:
        self.play.stream.truncate(self.beside.cut())
        self.play.skip_to_head()

    # Readers

    @rule(name=NAMES)
    def join(self, name: str) -> None:
        if name not in self.play.dead:
            self.play.join(name)

    has_players = precondition(lambda self: self.play.players)
    has_dead = precondition(lambda self: self.play.dead)

    @has_players
    @rule(at=PICKS)
    def leave(self, at: int) -> None:
        self.play.leave(self.pick(self.play.players, at))

    @has_players
    @rule(at=PICKS)
    def die(self, at: int) -> None:
        self.play.die(self.pick(self.play.players, at))

    @has_dead
    @rule(at=PICKS, lag=LAGS)
    def come_back(self, at: int, lag: int) -> None:
        name = self.pick(self.play.dead, at)
        self.play.come_back(name)
        self.play.rebalance(name, lag)

    @has_dead
    @rule(at=PICKS)
    def bury(self, at: int) -> None:
        self.play.declare_offline(self.pick(self.play.dead, at))

    @rule(seconds=st.sampled_from([1, 3, 11]), rounds=SMALL, awake=st.sets(NAMES, min_size=1))
    def time_passes(self, seconds: int, rounds: int, awake: set[str]) -> None:
        """Some are asked for events meanwhile; the others are paused. Who is dead or silent is found out by those."""
        for _ in range(rounds):
            self.play.now += seconds
            for name in sorted(awake & self.play.players.keys()):
                self.play.rebalance(name)

    @has_players
    @rule(at=PICKS)
    def bury_alive(self, at: int) -> None:
        name = self.pick(self.play.players, at)
        positions = dict(self.play.players[name].positions)
        if self.play.players[name].is_expired:
            return
        self.play.declare_offline(name)
        with pytest.raises(IllegalState, match="declared offline"):
            self.play.group.rebalance(name, positions, 0)
        self.play.group.leave(name, positions)

    @has_players
    @rule(at=PICKS, lag=LAGS)
    def rebalance(self, at: int, lag: int) -> None:
        self.play.rebalance(self.pick(self.play.players, at), lag)

    @has_players
    @rule(lag=LAGS, count=SMALL)
    def all_go_on(self, lag: int, count: int) -> None:
        for name in list(self.play.players):
            self.play.rebalance(name, lag)
            self.play.read(name, count)
            self.play.finish(name)

    @has_players
    @rule(at=PICKS, count=SMALL, again=st.booleans())
    def read(self, at: int, count: int, again: bool) -> None:
        name = self.pick(self.play.players, at)
        self.play.read(name, count)
        self.play.finish(name, again=again)

    # What holds

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        self.play.check()

    def teardown(self) -> None:
        if not hasattr(self, "play"):
            return
        self.play.join("last")
        for _ in range(7):  # nobody declares the dead offline: their leases are over
            self.play.now += LEASE_SECONDS / 3
            for name in list(self.play.players):
                self.play.rebalance(name)
        assert not self.play.dead
        self.play.settle()
        self.play.drain()
        self.play.stream.seal()
        self.play.settle()
        stream, end = self.play.stream, self.play.group.position()
        assert end == {each: self.play.sizes[each] for each in stream.active_segments().ids.tolist()}
        for name, player in self.play.players.items():
            for each in player.positions:
                self.play.group.finish(name, each, [], offset=self.play.sizes[each])
        state = self.play.group.state()
        assert state.position() == end
        assert stream.cuts.is_valid(end)
        assert not len(state.free)
        assert not state.counts.any()
        assert state.segments == stream.active_segments()


Members.TestCase.settings = settings(
    max_examples=examples(24), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestMembers = Members.TestCase
