"""Readers of a group that only count: a stream in memory, who has read how much of it, and what must hold of that."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import pytest

from accel.errors import IllegalState
from accel.history.rules.cuts import CutOrder, place_offsets
from accel.history.rules.segments import KeyRanges, SegmentRecord, split_range
from accel.history.store import Stream
from accel.streams.groups import ReaderGroup
from accel.streams.rules.group_state import NO_LEASE, GroupState, Lease
from accel.streams.rules.membership import LeaseWatch
from tests.accel.history.store.bench import NAME, Bench

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUNDS_MAX = 1_000
LEASE_SECONDS = 10


@dataclass
class Player:
    """A reader: its name, and where it stands in the segments that it reads.

    Attributes:
        lease: what it joined with.
        watch: what it has seen of others, by a timer of its own that begins anywhere.
        renewed_at: when it renewed last.
        is_expired: whether others have taken it for dead; it does not know.
    """

    name: str
    positions: dict[int, int] = field(default_factory=dict)
    lease: Lease = NO_LEASE
    watch: LeaseWatch = field(default_factory=LeaseWatch)
    renewed_at: float = -inf
    is_expired: bool = False


@dataclass
class Play:
    """A stream, a group, and what its readers gave to their callers.

    Attributes:
        bench: has the stream.
        group: reads it.
        players: who is alive and in the group.
        dead: who is not alive and still in the group.
        known: all segments that there ever were.
        sizes: how large they are.
        given: up to which offset each was given to callers, once; what a dead reader gave after it told its position
            last does not count, nor does what was truncated.
    """

    bench: Bench
    group: ReaderGroup
    players: dict[str, Player] = field(default_factory=dict)
    dead: dict[str, Player] = field(default_factory=dict)
    known: dict[int, SegmentRecord] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    now: float = 0.0
    sessions: int = 0

    @classmethod
    def begin(cls, segments: int) -> Play:
        """A new stream and a new group."""
        bench = Bench()
        stream = bench.create(segments)
        play = cls(bench, ReaderGroup.open(stream, "group"))
        play.learn()
        return play

    @cached_property
    def stream(self) -> Stream:
        """The stream."""
        return self.bench.stream()

    def learn(self) -> None:
        """Take notice of new segments."""
        for each in self.stream.active_segments():
            self.known.setdefault(each.id, each)
            self.sizes.setdefault(each.id, 0)
            self.given.setdefault(each.id, 0)

    def append(self, sizes: Iterable[int]) -> None:
        """Append to the segments that take writes."""
        for each, size in zip(self.stream.active_segments().ids.tolist(), sizes, strict=False):
            self.bench.host.append(NAME, each, size)
            self.sizes[each] += size

    def scale(self, at: int, count: int, parts: int) -> None:
        """Replace some neighbours by others."""
        tiles = sorted(self.stream.active_segments(), key=lambda each: each.key_start)
        chosen = tiles[at % len(tiles) :][:count]
        start, end = chosen[0].key_start, chosen[-1].key_end
        ranges = list(split_range(start, end, parts))
        self.stream.scale([each.id for each in chosen], ranges, self.bench.tick())
        self.learn()

    # What readers do

    def join(self, name: str) -> None:
        """Join; where one of the name reads, and nobody has taken it for dead, the same again: a reply was lost."""
        player = self.players.get(name)
        if player is None or player.is_expired:
            self.sessions += 1
            lease = Lease(self.sessions, milliseconds=1000 * LEASE_SECONDS)
            player = self.players[name] = Player(name, lease=lease, renewed_at=self.now)
        self.group.join(name, player.lease)

    def leave(self, name: str) -> None:
        player = self.players.pop(name)
        self.group.leave(name, player.positions, session=player.lease.session)

    def die(self, name: str) -> None:
        self.dead[name] = self.players.pop(name)

    def declare_offline(self, name: str) -> None:
        """Whoever it is, alive or dead: what it gave since it told its position last will be given again."""
        self.forget(name)
        self.group.reader_offline(name)
        self.dead.pop(name, None)
        self.players.pop(name, None)

    def come_back(self, name: str) -> None:
        """It died, and began again under its name before anybody noticed."""
        self.forget(name)
        self.dead.pop(name, None)
        self.join(name)

    def forget(self, name: str) -> None:
        self.given.update(self.group.state().owned(name))

    def rebalance(self, name: str, lag: int = 0) -> None:
        player = self.players[name]
        if player.is_expired:
            self.find_out(player)
            return
        before = self.group.state()
        renews = self.now - player.renewed_at >= LEASE_SECONDS / 4
        silent = player.watch.silent(name)
        todo = self.group.rebalance(name, dict(player.positions), lag, lease=player.lease, renews=renews, silent=silent)
        player.watch.look(todo.readers, self.now + 1_000 * player.lease.session)
        if renews:
            player.renewed_at = self.now
        for gone in {each.name for each in before.readers} - {each.name for each in todo.readers}:
            self.expire(before, gone)
        for each in todo.stop:
            del player.positions[each]
        for start in todo.start:
            assert start.segment == self.known[start.segment.id]
            assert start.offset == self.given[start.segment.id]
            assert player.positions.get(start.segment.id, -1) < start.offset
            player.positions[start.segment.id] = start.offset

    def expire(self, before: GroupState, name: str) -> None:
        """One was taken for dead: what it gave since it told its position last will be given again."""
        one = self.dead.pop(name, None) or self.players[name]
        assert not one.is_expired
        assert self.now - one.renewed_at >= LEASE_SECONDS, "it renewed in time"
        one.is_expired = True
        self.given.update(before.owned(name))

    def find_out(self, player: Player) -> None:
        """It comes back, and nothing of what it tells is stored; it joins again with nothing."""
        before = self.group.state()
        further = {each: self.sizes[each] for each in player.positions}
        session = player.lease.session
        with pytest.raises(IllegalState, match="join"):
            self.group.rebalance(player.name, further, 0, lease=player.lease, renews=True)
        for each in further:
            with pytest.raises(IllegalState, match="join"):
                self.group.finish(player.name, each, [], offset=self.sizes[each], session=session)
        self.group.leave(player.name, further, session=session)
        assert self.group.state() == before
        self.join(player.name)

    def read(self, name: str, count: int) -> int:
        """Give so many records of each segment to the caller, if there are as many; tells how many it gave."""
        positions, total = self.players[name].positions, 0
        if self.players[name].is_expired:
            return 0  # what it gives comes again, and is not counted
        for each, offset in positions.items():
            if offset < self.given[each]:
                continue  # truncated: the reader is told so when it asks
            assert offset == self.given[each], "nothing is left out"
            taken = min(count, self.sizes[each] - offset)
            if taken:
                self.check_order(each)
            positions[each] = self.given[each] = offset + taken
            total += taken
        return total

    def check_order(self, segment_id: int) -> None:
        """Everything older was given that shares a key."""
        segment = self.known[segment_id]
        for other in self.known.values():
            if other.id < segment_id and other.overlaps(segment):
                assert self.given[other.id] == self.sizes[other.id]

    def finish(self, name: str, *, again: bool = False) -> int:
        """Tell of the segments that were read to their ends; gives how many those are."""
        player, stream = self.players[name], self.stream
        if player.is_expired:
            return 0
        active = set(stream.active_segments().ids.tolist())
        done = [each for each, at in player.positions.items() if each not in active and at == self.sizes[each]]
        for each in done:
            successors = [stream.epochs.segment(number) for number in stream.epochs.successors(each)]
            for _ in range(1 + again):
                session = player.lease.session
                self.group.finish(name, each, successors, offset=self.sizes[each], session=session)
            del player.positions[each]
        return len(done)

    def skip_to_head(self) -> None:
        """What was truncated counts as given."""
        before, after = self.group.position(), self.group.skip_to_head()
        stream = self.stream
        assert (
            stream.cuts.compare(after, before) is stream.cuts.compare(after, stream.head()) is CutOrder.EQUAL_OR_AFTER
        )
        position = place_offsets(self.group.state().segments, after).position()
        for each in self.known.values():
            if each.id in after:
                self.given[each.id] = max(self.given[each.id], after[each.id])
            elif position.highest_over(KeyRanges([each.key_start], [each.key_end]))[0] > each.id:
                self.given[each.id] = self.sizes[each.id]

    # What must hold

    def check(self) -> None:
        """Nobody reads what another one reads; the group stands where somebody can stand."""
        state = self.group.state()
        assert self.stream.cuts.is_valid(state.position())
        living = [player for player in self.players.values() if not player.is_expired]
        names = sorted({player.name for player in living} | self.dead.keys())
        assert [each.name for each in state.readers] == names
        reading = [each for player in living for each in player.positions]
        assert len(reading) == len(set(reading))
        for player in living:
            own = state.owned(player.name)
            for each, offset in player.positions.items():
                assert each not in own or own[each] <= max(offset, self.given[each])

    def settle(self) -> None:
        """Let everybody rebalance until nothing changes; they have their shares in time."""
        for name in list(self.players):
            self.rebalance(name)  # who was taken for dead finds out
        state = self.group.state()
        least = len(state.segments.where(state.offsets >= 0)) // len(state.readers)
        for _ in range(max(int(state.counts.max()) - least, 0) + 3):
            for name in list(self.players):
                self.rebalance(name)
        state = self.group.state()
        assert not len(state.free)
        assert state.counts.max() - state.counts.min() <= 1
        for name, player in self.players.items():
            assert player.positions.keys() == set(state.owned(name))

    def drain(self) -> None:
        """Let everybody read all that there is."""
        for _ in range(ROUNDS_MAX):
            if not sum(self.read(name, 3) + self.finish(name) for name in list(self.players)):
                break
            for name in list(self.players):
                self.rebalance(name)
        assert self.given == self.sizes
