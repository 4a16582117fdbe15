"""The rounds of a lookup: what to fetch next, until the object for one offset is known.

A round is one step of the generator: all that it asks for is fetched at the same time. What is known
(accel/lookup/hop.py) may be enough to tell the object, or that there is none. If not, the node's snapshot is asked
where that may save requests; and otherwise a policy chooses objects to be opened.

When a snapshot is asked, and for what, stands in docs/hints.md, "What a reader does with them".
"""

from __future__ import annotations

import numpy as np

from accel.lookup.answer import Request
from accel.lookup.chart import Between, Chart, Found, Hole
from accel.lookup.hop import Hop
from accel.lookup.known import Hints, Knowledge
from accel.lookup.story import Story
from accel.lookup.wanted import EntriesWanted, HintReply, RootWanted, Searching, SearchSent, SnapshotKnown, Wanted
from loaders.hints import ByteSpan, SnapshotRoot, StreamEntries, no_entries, plan_entries
from loaders.plan import Bracket, LoadAll, Near, Policy, Positions

ROOT_WORTH_OBJECTS = 32
"""No more candidates than this are searched in the two rounds that a snapshot takes, if its root must be read first."""

ENTRIES_WORTH_OBJECTS = 2
"""With fewer covered candidates than this, opening them is as cheap as asking the snapshot."""

TAIL_OBJECTS = 4
"""A read at the tail opens so many of the newest objects that the snapshot does not cover, while it is asked."""

UNCOVERED_OBJECTS = 16
"""When a snapshot has been asked, and no more candidates than this are left, they are opened in one round."""


class BoundReached(Exception):
    """The caller's bound on rounds or time is reached."""


class Rounds:
    """All rounds of one lookup. One thread at a time.

    Args:
        request: what is asked.
        knowledge: what is known of objects already.
        policy: which objects to open next.
        hints: snapshots that may be asked; None to do without.
        story: if given, is told what happens and why.
        tolerate_gone: treat a missing object as one that could not be opened.

    ``count`` is the number of rounds so far, ``opened`` that of objects asked for.
    """

    def __init__(
        self,
        request: Request,
        knowledge: Knowledge,
        policy: Policy,
        hints: Hints | None,
        story: Story | None,
        *,
        tolerate_gone: bool,
    ) -> None:
        self.request = request
        self.knowledge = knowledge
        self.policy = policy
        self.hints = hints
        self.story = story
        self.tolerate_gone = tolerate_gone
        self.next = request.start
        self.first = True
        self.count = 0
        self.fill_rounds = 0
        self.opened = 0

    def find(self, hop: Hop, offset: int, *, first: bool) -> Searching[Found | Hole]:
        """The object of the list that comes next, opening what it takes to know.

        Args:
            hop: the node.
            offset: the first offset not covered yet.
            first: whether nothing was picked yet, so that the object may begin before the offset.

        Raises (from the generator):
            BoundReached: the caller's bound on rounds or time.
            ImageStale, AccelError: as `search`.
        """
        self.next, self.first = offset, first
        while True:
            chart = hop.chart(self.knowledge)
            place = self._place(hop, chart)
            if not isinstance(place, Between):
                return place
            if not (yield from self._ask_snapshot(hop, chart, place)):
                yield from self._load(hop, chart, place)

    def _place(self, hop: Hop, chart: Chart) -> Found | Hole | Between:
        if chart.ordered and not hop.scan:
            return chart.place(self.next, first=self.first)
        hop.scan = True
        place, hop.scan_position = chart.scan(self.next, hop.scan_position, first=self.first)
        return place

    def _load(self, hop: Hop, chart: Chart, place: Between) -> Searching[None]:
        """One round: choose, ask for, and take in object indexes."""
        self._check_rounds()
        bracket, positions = self._choose(hop, chart, place)
        yield from self._round(hop, Wanted(hop.node, positions), bracket)

    def _choose(self, hop: Hop, chart: Chart, place: Between) -> tuple[Bracket, tuple[int, ...]]:
        bracket = hop.bracket(self.request, self.next, chart, place)
        policy: Policy = LoadAll() if hop.scan else self.policy
        few = hop.facts is not None and len(bracket.candidates) <= UNCOVERED_OBJECTS
        chosen = bracket.candidates if few and not hop.scan else policy.choose(bracket)
        return bracket, tuple(chosen.tolist())

    def _ask_snapshot(self, hop: Hop, chart: Chart, place: Between) -> Searching[bool]:
        """Ask the node's snapshot if that may save requests; says whether anything was asked or learnt."""
        if self.hints is None or not hop.may_ask(self.next):
            return False
        known = hop.known or self.hints.root(hop.node.node_id)
        if known is None:
            if hop.count_sized(place.candidates) <= ROOT_WORTH_OBJECTS:
                return False
            yield from self._read_root(hop, chart, place, expected=self.hints.expected)
            return True
        root = hop.take_root(known)
        if root is None and self.story is not None:
            self.story.no_snapshot(self.next, hop.node, known.problem)
        if root is None or hop.count_covered(place.candidates) < ENTRIES_WORTH_OBJECTS:
            return False
        hop.asked_offset = self.next
        entries = self.hints.held(hop.node.node_id, self.request.stream_id, known)
        if entries is None or not entries.low <= self.next < entries.high:
            return (yield from self._ask_entries(hop, place, known, root, self.hints))
        self._use_entries(hop, entries)
        return True

    def _read_root(self, hop: Hop, chart: Chart, place: Between, *, expected: bool) -> Searching[None]:
        """Read the root alone; where there is little hope for one, beside objects, so that it costs no round."""
        self._check_rounds()
        bracket, positions = (None, ()) if expected else self._choose(hop, chart, place)
        reply = yield from self._round(hop, RootWanted(hop.node, positions), bracket)
        if isinstance(reply, HintReply) and reply.known is not None:
            hop.take_root(reply.known)
        else:
            hop.without_snapshot = True

    def _ask_entries(
        self, hop: Hop, place: Between, known: SnapshotKnown, root: SnapshotRoot, hints: Hints
    ) -> Searching[bool]:
        span = plan_entries(root, self.request.stream_id, self.next)
        if span is None:
            self._use_entries(hop, no_entries(self.request.stream_id))
            return True
        if hints.is_bad(known, span):
            return False
        yield from self._read_entries(hop, place, known, span)
        return True

    def _read_entries(self, hop: Hop, place: Between, known: SnapshotKnown, span: ByteSpan) -> Searching[None]:
        self._check_rounds()
        bracket, positions = self._choose_tail(hop, place)
        wanted = EntriesWanted(hop.node, positions, self.request.stream_id, known, span)
        reply = yield from self._round(hop, wanted, bracket)
        if isinstance(reply, HintReply) and reply.entries is not None:
            hop.take_entries(reply.entries)
        else:
            hop.without_snapshot = True

    def _use_entries(self, hop: Hop, entries: StreamEntries) -> None:
        hop.take_entries(entries)
        if self.story is not None and hop.facts is not None:
            self.story.hint_at_hand(self.next, hop.node, hop.facts)

    def _choose_tail(self, hop: Hop, place: Between) -> tuple[Bracket | None, tuple[int, ...]]:
        """The newest objects that the snapshot does not cover, for a read at the tail: what it wants may be there."""
        near = hop.near(self.request, self.next, place)
        uncovered = hop.uncovered(place.candidates)
        if near is not Near.HIGH or not len(uncovered):
            return None, ()
        nothing: Positions = np.empty(0, dtype=np.int64)
        bracket = Bracket(place.low, place.high, uncovered, nothing, hop.rounds, hop.stuck_rounds, near)
        return bracket, tuple(uncovered[-TAIL_OBJECTS:].tolist())

    def _check_rounds(self) -> None:
        most = self.request.max_fill_rounds
        if not self.first and most is not None and self.fill_rounds >= most:
            raise BoundReached

    def _round(self, hop: Hop, wanted: Wanted, bracket: Bracket | None) -> Searching[SearchSent]:
        """Ask for something, wait for it, and take in what the opened objects hold."""
        positions = wanted.positions
        self.count += 1
        self.fill_rounds += not self.first
        self.opened += len(positions)
        if self.story is not None:
            self.story.asks(self.next, wanted, bracket)
        sent = yield wanted
        if sent is None:
            raise BoundReached
        if isinstance(sent, HintReply) and self.story is not None:
            self.story.hint_came(hop.node, sent)
        if positions:
            hop.rounds += 1
            objects = sent.objects if isinstance(sent, HintReply) else sent
            hop.take_in(positions, objects, tolerate_gone=self.tolerate_gone)
        return sent
