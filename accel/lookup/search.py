"""The search in one image: a generator that requests object indexes and is sent them. It never loads anything itself.

Theory of operation. A search goes through offsets in ascending order from the requested start and picks objects until
the limit, the end, or a hole. With `next` for the first offset not covered yet:

1. Stream objects come first: the one that starts at `next` (for the very first pick also one that contains it).
2. Then the owner: the ownership range that contains `next` determines a node.
3. In that node's list, in order-id order, the first object whose range of the stream ends after `next` decides: it
   is taken if it starts at `next` (or, for the very first pick, contains it); else there is a hole for now.
4. 1 and 3 repeat while either adds objects; a stream object may fill a hole of the list. Then 2 again; if the
   ownership range is the same as before, the search is over.

It never skips a hole, never tries another node for the same range, and never clips an object.

The part that memory proves is searched in plain calls (`Search.begin`): most searches of a running broker end there.

Rounds. If memory does not contain which object is next in a node's list, the search makes requests in rounds, each one
step of the generator (`search_requests`): all requests of a round run at the same time. The node's snapshot is read if
that may save requests (docs/reference/hints.md, "Lookups with hints"); otherwise a policy chooses the objects to open.

In a round the search waits only for objects that may still decide the place: those between the holders that bracket the
offset. Results narrow the bracket, and when no requests inside it are running the search continues; it then chooses as
it would have chosen with the results of the whole round, since objects outside a bracket do not change it. If the
driver reports that the requests are slow, the search requests other objects inside the bracket. A run of contiguous
objects indicates a scan: then the next objects are requested before the last results are there, the more the longer the
run is.

A search keeps the ranges of opened objects and the snapshot's entries until it ends, so that evictions from the shared
caches in the meantime cause no requests and change nothing.

An image can be older than the bucket; `lookup.py` handles this.

Rules of the code:

- Everything that decides the answer is in the image or was read from an object, now or earlier. The index, the filters,
  a snapshot and the policy only decide which objects are *opened*; if they are empty, full or stale, the answer is the
  same.
- A reply of None to a step ends the search now, with a partial answer.
- An object that could not be opened fails the lookup only if the answer depends on it.
- No I/O, no clock, no lock: the same inputs result in the same requests, so any run can be replayed.

Source: AutoMQ issue 2731; the rules of the production lookup as described in docs/explanation/lookup.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.image import OPEN_END, MetadataImage, NodeImage, OwnershipRange, StreamImage
from accel.lookup.answer import Answer, Ending, FoundObject, Kind, Request, check_ranges, check_request
from accel.lookup.known_ranges import (
    Between,
    Found,
    Hole,
    KnownRanges,
    unopened_by,
)
from accel.lookup.node_visit import NodeVisit
from accel.lookup.search_requests import (
    AwaitMore,
    HintReply,
    Hints,
    IndexCache,
    OpenObjects,
    ReadEntries,
    ReadRoot,
    RefreshFailed,
    Searching,
    SnapshotKnown,
)
from loaders.hints import ByteSpan, SnapshotRoot, StreamEntries, no_entries, plan_entries
from loaders.plan import Bracket, Guess, LoadAll, Near, Policy, Positions, Trust

if TYPE_CHECKING:
    from accel.lookup.explain import Trace


ROOT_WORTH_OBJECTS = 32
"""With at most this number of candidates, a snapshot whose root must be read first is not read: it takes two rounds."""

ENTRIES_WORTH_OBJECTS = 2
"""With fewer covered candidates than this, opening them is as cheap as reading the snapshot."""

TAIL_OBJECTS = 4
"""The number of the newest uncovered objects that a read at the tail opens while the snapshot is read."""

UNCOVERED_OBJECTS = 16
"""If a snapshot was read, and at most this number of candidates is left, they are opened in one round."""

_STREAM_SET: Final = Kind.STREAM_SET
_new_found: Final = tuple.__new__
"""The base constructor of the class, without the call of a Python function."""


class BoundReached(Exception):
    """The caller's limit of rounds or time is reached."""


def search(
    request: Request,
    image: MetadataImage,
    index_cache: IndexCache,
    policy: Policy,
    *,
    hints: Hints | None = None,
    trace: Trace | None = None,
    tolerate_gone: bool = False,
) -> Searching[Answer]:
    """Start one search in an image.

    Args:
        request: the request.
        image: the metadata.
        index_cache: the known contents of objects.
        policy: chooses the objects to open next.
        hints: snapshots that may be read; None = do not use hints.
        trace: if given, records the events and their reasons.
        tolerate_gone: whether a missing object is treated as one that could not be opened, instead of ending with
            `ImageStale`; for the second search, in the newest image.

    Raises (from the generator):
        InvalidRequest: the request is invalid for this image.
        ImageStale: a listed object does not exist.
        InconsistentAnswer: the picked objects do not join up.
        AccelError: an object that the answer depends on could not be opened.

    Complexity: O(limit * log entries) if everything is in the index; else O(list length) a round.
    """
    stream = check_request(request, image)
    searched = Search(
        request, stream, image, index_cache, policy, hints=hints, trace=trace, tolerate_gone=tolerate_gone
    )
    return searched.run()


class Search:
    """The state of one search. One thread at a time.

    `begin` finds the part of the answer that memory proves, without a step; `run` continues from there.
    """

    __slots__ = (
        "fill_rounds",
        "hints",
        "hole",
        "image",
        "index_cache",
        "listed",
        "next",
        "node",
        "opened",
        "owned",
        "picked",
        "policy",
        "request",
        "rounds",
        "stream",
        "tolerate_gone",
        "trace",
        "visit",
        "visits",
    )

    def __init__(
        self,
        request: Request,
        stream: StreamImage,
        image: MetadataImage,
        index_cache: IndexCache,
        policy: Policy,
        *,
        hints: Hints | None,
        trace: Trace | None,
        tolerate_gone: bool,
    ) -> None:
        self.request = request
        self.image = image
        self.stream = stream
        self.index_cache = index_cache
        self.policy = policy
        self.hints = hints
        self.tolerate_gone = tolerate_gone
        self.trace = trace
        self.next = request.start
        self.picked: list[FoundObject] = []
        self.owned: OwnershipRange | None = None
        self.hole: Hole | None = None
        self.node: NodeImage | None = None
        self.visit: NodeVisit | None = None
        self.visits: list[NodeVisit] | None = None
        self.listed = self.rounds = self.fill_rounds = self.opened = 0

    def begin(self) -> Answer | None:
        """The answer, if memory proves all of it; else None. Makes no requests."""
        ending = self._advance(None)
        return None if ending is None else self._answer(ending)

    def run(self) -> Searching[Answer]:
        """The search as steps: all of it, or the rest, after `begin` returned None."""
        try:
            ending = self._advance(None) if self.node is None else None
            while ending is None:
                place = yield from self._find(self._visit())
                ending = self._advance(place)
        except BoundReached:
            ending = Ending.PARTIAL
        return self._answer(ending)

    def _answer(self, ending: Ending) -> Answer:
        request, objects = self.request, tuple(self.picked)
        check_ranges(request.start, request.limit, objects)
        version, end = self.image.version, None if ending is not Ending.HOLE else self._stream_end()
        if not self.rounds:
            answer = Answer(request, objects, ending, self.next, version, 0, 0, self.listed, stream_end=end)
        else:
            unopened = unopened_by((visit.unopened() for visit in self.visits or ()), self.listed - self.opened)
            cost = (self.rounds, self.opened, self.listed, unopened)
            answer = Answer(request, objects, ending, self.next, version, *cost, stream_end=end)
        if self.trace is not None:
            self.trace.record_end(answer)
        return answer

    def _stream_end(self) -> int | None:
        """The end of the stream, if no object of it is after the next offset."""
        stream, owned, end = self.stream, self.owned, 0
        if stream.ranges:
            hole = self.hole if owned is stream.ranges[-1] and owned is not None else None
            if hole is None or hole.end is None or owned is None:
                return None
            told = self.image.node(owned.node_id).end_of(stream.stream_id)
            end = max(owned.start, hole.end, told or 0)
        own = stream.stream_objects
        if own and own[-1].start > self.next:
            return None
        lost = stream.given_up[-1].end if stream.given_up else 0
        return max(stream.start_offset, end, lost, own[-1].end if own else 0)

    def _advance(self, place: Found | Hole | None) -> Ending | None:
        """Continue as far as memory proves.

        Args:
            place: of the next object in the node's list, from `_find`; None if `_find` was not called.

        Returns:
            How the search ends; None if `_find` has to find the place first.
        """
        while True:
            if self.node is None and (ending := self._enter_node()) is not None:
                return ending
            over = self._take_known() if place is None else self._take_place(place)
            if over is None:
                return None
            if over:
                return self._ending()
            place = None

    def _enter_node(self) -> Ending | None:
        """Take stream objects, and visit the node that owns the next offset; returns the ending if the search ends."""
        if self._take_stream_objects():
            return self._ending()
        owned = self.stream.owner(self.next)
        if owned is None or owned is self.owned:
            if self.trace is not None:
                self.trace.record_no_owner(self.next, owned)
            return Ending.HOLE
        self.owned, self.hole = owned, None
        self.node, self.visit = self.image.nodes.get(owned.node_id) or self.image.node(owned.node_id), None
        self.listed += len(self.node)
        if self.trace is not None:
            self.trace.record_visit(self.next, owned, len(self.node))
        return None

    def _visit(self) -> NodeVisit:
        """The state of the visit of the current node; created on first use."""
        if self.visit is None:
            if self.node is None:
                raise RuntimeError("expected a search that has begun")
            self.visit = NodeVisit(self.node, self.stream, self.trace, scan=self._is_unordered())
            self.visits = [self.visit] if self.visits is None else [*self.visits, self.visit]
        return self.visit

    def _is_unordered(self) -> bool:
        return self.stream.stream_id in self.image.unordered_streams

    def _ending(self) -> Ending:
        reached = self.request.end != OPEN_END and self.next >= self.request.end
        return Ending.END if reached else Ending.LIMIT

    def _pick(self, found: FoundObject) -> bool:
        """Take an object; returns whether the lookup is over."""
        picked, request = self.picked, self.request
        picked.append(found)
        self.next = end = found.end
        if self.trace is not None:
            self.trace.record_pick(found)
        return len(picked) >= request.limit or end >= request.end != OPEN_END

    def _take_stream_objects(self) -> bool:
        """Take all contiguous stream objects from the next offset; returns whether the lookup is over."""
        starts = self.stream.object_starts
        floor = bisect_right(starts, self.next) - 1
        if floor < 0:
            return False
        index = bisect_left(starts, starts[floor])
        while index < len(starts):
            candidate = self.stream.stream_objects[index]
            index += 1
            if candidate.end <= self.next:
                continue
            if candidate.start != self.next and (self.picked or candidate.start > self.next):
                return False
            if self._pick(FoundObject(Kind.STREAM, candidate.ref, candidate.start, candidate.end)):
                return True
        return False

    def _take_place(self, place: Found | Hole) -> bool:
        """Take the next object of the list, or the objects after its hole; returns whether the lookup is over."""
        if isinstance(place, Found):
            node = self._visit().node
            ref = node.ref(place.position)
            return self._pick(FoundObject(Kind.STREAM_SET, ref, place.start, place.end, node.node_id))
        self.hole = place
        return self._take_behind_hole()

    def _take_behind_hole(self) -> bool:
        """Take stream objects at a hole of the list, or else end the visit; returns whether the lookup is over."""
        if self.trace is not None and self.node is not None:
            self.trace.record_hole(self.next, self.node)
        count = len(self.picked)
        if self._take_stream_objects():
            return True
        if len(self.picked) == count:
            self.node = None
        return False

    def _take_known(self) -> bool | None:
        """Take the objects of the list that the index proves, without processing the whole list.

        Returns:
            Whether the lookup is over; None if the index proves no more.
        """
        node, picked = self.node, self.picked
        if node is None or self._is_unordered() or (self.visit is not None and self.visit.scan):
            return None
        view = self.index_cache.view(node.node_id, self.stream.stream_id)
        if not self.index_cache.is_ordered(node, self.stream.stream_id, view):
            return None
        positions, refs, packed, rows = node.position_of, node.ref_of, view.packed, view.rows
        node_id, holed, tied, covered = node.node_id, view.holed, node.tied_ids, self.next
        ids = 2 * rows  # packed: all starts, then all ends, then all object ids
        upper = bisect_right(packed, covered, 0, rows)
        while True:
            index, object_id = upper - 1, -1
            while index >= 0 and (object_id := packed[ids + index]) not in positions:
                index -= 1  # this object is no longer (or not yet) listed: the next lower entry may be
            if index < 0:
                return None
            start, end = packed[index], packed[rows + index]
            if end <= covered or object_id in holed or object_id in tied:
                return None
            if start != covered and picked:
                return self._take_behind_hole()
            if self._pick(_new_found(FoundObject, (_STREAM_SET, refs[object_id], start, end, node_id))):
                return True
            covered = end
            while upper < rows and packed[upper] <= end:
                upper += 1

    # -- rounds --------------------------------------------------------------------------------------------------------

    def _find(self, visit: NodeVisit) -> Searching[Found | Hole]:
        """The next object of the list; opens the objects that are needed to find it.

        Raises (from the generator):
            BoundReached: the caller's limit of rounds or time is reached.
            ImageStale, AccelError: as `search`.
        """
        while True:
            ranges = visit.known_ranges(self.index_cache)
            place = self._place(visit, ranges)
            if not isinstance(place, Between):
                return place
            if visit.awaits(place):
                yield from self._wait(visit, ranges, place)
            elif not (yield from self._ask_snapshot(visit, ranges, place)):
                yield from self._load(visit, ranges, place)

    def _wait(self, visit: NodeVisit, ranges: KnownRanges, place: Between) -> Searching[None]:
        """Wait for running requests that may decide the place; in a proven run, request further objects meanwhile."""
        low, high = place.low, place.high
        bracket = visit.bracket_of_run(self.request, self.next, len(self.picked), ranges, place)
        few = len(visit.pending) // 2 if visit.may_run(self.request, len(self.picked)) else 0
        while True:
            ahead = () if self._is_bounded() else visit.ahead(self.policy, bracket)
            if ahead:
                came = yield from self._round(visit, OpenObjects(visit.node, ahead), bracket)
            else:
                came = yield from self._receive(visit, AwaitMore(visit.node, ()))
            between = visit.narrowed(self.next, low, high, came)
            if not came or between is None or not visit.awaits_between(*between):
                return
            if len(visit.pending) <= few:
                return  # results after the place may have made the run longer
            low, high = between

    def _place(self, visit: NodeVisit, ranges: KnownRanges) -> Found | Hole | Between:
        if ranges.ordered and not visit.scan:
            return ranges.place(self.next, first=not self.picked)
        visit.scan = True
        place, visit.scan_position = ranges.scan(self.next, visit.scan_position, first=not self.picked)
        return place

    def _load(self, visit: NodeVisit, ranges: KnownRanges, place: Between) -> Searching[None]:
        """Make one round: choose and request object indexes, and process the results."""
        self._check_rounds()
        bracket, positions = self._choose(visit, ranges, place)
        if self.hints is not None and not visit.scan and self.hints.may_load_filters(visit.node.node_id):
            step = visit.filters_for(bracket, len(positions), self.index_cache)
            if step is not None:
                yield from self._round(visit, step, None)
                return
        yield from self._round(visit, OpenObjects(visit.node, positions), bracket)

    def _choose(self, visit: NodeVisit, ranges: KnownRanges, place: Between) -> tuple[Bracket, tuple[int, ...]]:
        bracket = visit.bracket(self.request, self.next, len(self.picked), ranges, place)
        policy: Policy = LoadAll() if visit.scan else self.policy
        few = visit.snapshot_facts is not None and len(bracket.candidates) <= UNCOVERED_OBJECTS
        chosen = bracket.candidates if few and not visit.scan else policy.choose(bracket)
        return bracket, tuple(chosen.tolist())

    def _ask_snapshot(self, visit: NodeVisit, ranges: KnownRanges, place: Between) -> Searching[bool]:
        """Use the node's snapshot if that may save requests; returns whether it was read or used."""
        if self.hints is None or not visit.may_ask(self.next):
            return False
        known = visit.known or self.hints.root(visit.node.node_id)
        if known is None:
            if visit.count_sized(place.candidates) <= ROOT_WORTH_OBJECTS:
                return False
            yield from self._read_root(visit, ranges, place, expected=self.hints.expected)
            return True
        root = visit.take_root(known)
        if root is None and self.trace is not None:
            self.trace.record_no_snapshot(self.next, visit.node, known.problem)
        if root is None or visit.count_covered(place.candidates) < ENTRIES_WORTH_OBJECTS:
            return False
        visit.asked_offset = self.next
        entries = self.hints.held(visit.node.node_id, self.request.stream_id, known)
        if entries is None or not entries.low <= self.next < entries.high:
            return (yield from self._ask_entries(visit, place, known, root, self.hints))
        self._use_entries(visit, entries)
        return True

    def _read_root(self, visit: NodeVisit, ranges: KnownRanges, place: Between, *, expected: bool) -> Searching[None]:
        """Read the root alone; if a root is not expected, together with objects, so that it costs no round."""
        self._check_rounds()
        bracket, positions = (None, ()) if expected else self._choose(visit, ranges, place)
        yield from self._round(visit, ReadRoot(visit.node, positions), bracket)

    def _ask_entries(
        self, visit: NodeVisit, place: Between, known: SnapshotKnown, root: SnapshotRoot, hints: Hints
    ) -> Searching[bool]:
        span = plan_entries(root, self.request.stream_id, self.next)
        if span is None:
            self._use_entries(visit, no_entries(self.request.stream_id))
            return True
        if hints.is_bad(known, span):
            return False
        yield from self._read_entries(visit, place, known, span)
        return True

    def _read_entries(self, visit: NodeVisit, place: Between, known: SnapshotKnown, span: ByteSpan) -> Searching[None]:
        self._check_rounds()
        bracket, positions = self._choose_tail(visit, place)
        step = ReadEntries(visit.node, positions, self.request.stream_id, known, span)
        yield from self._round(visit, step, bracket)

    def _use_entries(self, visit: NodeVisit, entries: StreamEntries) -> None:
        visit.take_entries(entries)
        if self.trace is not None and visit.snapshot_facts is not None:
            self.trace.record_hint_at_hand(self.next, visit.node, visit.snapshot_facts)

    def _choose_tail(self, visit: NodeVisit, place: Between) -> tuple[Bracket | None, tuple[int, ...]]:
        """The newest objects that the snapshot does not cover, for a read at the tail, whose offsets may be in them."""
        guess = visit.guess(self.next, place)
        uncovered = visit.uncovered(place.candidates)
        if not self._is_tail(guess, place) or not len(uncovered):
            return None, ()
        nothing: Positions = np.empty(0, dtype=np.int64)
        bracket = Bracket(place.low, place.high, uncovered, nothing, visit.rounds, visit.stuck_rounds, guess)
        return bracket, tuple(uncovered[-TAIL_OBJECTS:].tolist())

    def _is_tail(self, guess: Guess, place: Between) -> bool:
        """Whether this is a read at the tail; if the tail is unknown, a read with an open end is one."""
        if place.after is not None or guess.near not in {Near.HIGH, Near.ENDS}:
            return False
        return guess.trust is not Trust.OPEN or self.request.end == OPEN_END

    def _check_rounds(self) -> None:
        if self._is_bounded():
            raise BoundReached

    def _is_bounded(self) -> bool:
        most = self.request.max_fill_rounds
        return bool(self.picked) and most is not None and self.fill_rounds >= most

    def _round(self, visit: NodeVisit, step: OpenObjects, bracket: Bracket | None) -> Searching[tuple[int, ...]]:
        """Make the requests of a step and process the first results; returns the positions of their objects."""
        self.rounds += 1
        self.fill_rounds += bool(self.picked)
        self.opened += len(step.positions)
        if self.trace is not None:
            self.trace.record_round(self.next, step, bracket)
        visit.asked(step, self.index_cache)
        return (yield from self._receive(visit, step))

    def _receive(self, visit: NodeVisit, step: OpenObjects) -> Searching[tuple[int, ...]]:
        """Wait for results of all requests and process them; returns the positions of their objects."""
        sent = yield step
        if sent is None:
            raise BoundReached
        if isinstance(sent, MetadataImage | RefreshFailed):
            raise TypeError(f"expected the ranges of the objects, found {type(sent).__name__}")
        if isinstance(sent, HintReply):
            if self.trace is not None:
                self.trace.record_hint(visit.node, sent)
            visit.take_hint(sent)
            objects = sent.objects
        else:
            objects = sent
            if not objects:
                visit.give_up_waiting()
        return visit.take_in(objects, tolerate_gone=self.tolerate_gone)
