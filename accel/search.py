"""The lookup: a generator that asks for object indexes and is sent them. It never loads anything itself.

Theory of operation. A lookup walks offsets upwards from the requested start and picks objects until the limit, the end,
or a hole. With `next` for the first offset not covered yet:

1. Stream objects come first: the one that starts at `next` (for the very first pick also one that contains it).
2. Then the owner: the ownership range that holds `next` names a node.
3. In that node's list, in order-id order, the first object whose range of the stream ends after `next` decides: it
   is taken if it starts at `next` (or, for the very first pick, contains it); else there is a hole for now.
4. 1 and 3 repeat while either adds something; a stream object may fill a hole of the list. Then 2 again; if it names
   the same ownership range as before, the lookup is over.

It never jumps a hole, never tries another node for the same range, and never clips an object.

Rules of the code:

- Everything that decides the answer is in the image or was read from an object. What the index, the filters or a policy
  contribute only decides which objects are *opened*; with all of them empty, full or stale the answer is the same.
- The generator yields `Wanted` (a node and positions in its list) and is sent a mapping from those positions to what
  each object holds or to an error; or None to stop now, which ends it with a partial answer.
- An object that could not be opened fails the lookup only if the answer depends on it.
- No I/O, no clock, no lock: the same inputs give the same requests, so any run can be replayed.

Source: AutoMQ issue 2731; the rules of the production lookup as docs/how-it-works.md writes them down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accel.answer import Answer, Ending, FoundObject, Kind, Request, check_ranges, check_request
from accel.chart import Between, Chart, Found, Hole, Mask, make_chart
from accel.errors import AccelError, AccessDenied, KeyMissing
from accel.image import OPEN_END, MetadataImage, NodeImage, ObjectRef, StreamImage
from accel.story import Story
from loaders.plan import Bracket, LoadAll, Near, Policy, Positions
from range_index import ObjectRanges, StreamRange, StreamView

NEAR_END_SHARE = 0.01
"""A read in the first or last hundredth of what a node owns of a stream counts as one at its head or tail."""

GUESS_ROUNDS_MAX = 6
"""A guess that the offset lies at the head or the tail is given up after so many rounds."""


Reply = ObjectRanges | AccelError
"""What one object holds, or why it could not be opened."""


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Please open these objects: positions, ascending, in the list of a node."""

    node: NodeImage
    positions: tuple[int, ...]

    def refs(self) -> list[ObjectRef]:
        """The objects at the positions."""
        return [self.node.ref(position) for position in self.positions]


class ImageStale(AccelError):
    """A listed object is gone: look again with a newer image. Drivers handle it; callers never see it."""

    def __init__(self, node: NodeImage, position: int) -> None:
        super().__init__(f"object {node.object_ids[position]} of node {node.node_id} is listed and gone")
        self.node_id = node.node_id
        self.ref = node.ref(position)


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What is known about one stream in one node's list, all at one moment.

    Args:
        view: the stream's entries in the index.
        loaded: by position, whether the object's arrays are in memory (then the view has its entry, if it has one).
        filtered: by position, whether a filter excludes the stream.
    """

    view: StreamView
    loaded: Mask
    filtered: Mask


class Knowledge(Protocol):
    """What a lookup asks of the index and the filters."""

    def view(self, node_id: int, stream_id: int) -> StreamView:
        """The entries of a stream, from memory."""
        ...

    def is_ordered(self, node: NodeImage, stream_id: int, view: StreamView) -> bool:
        """Whether the view's listed entries ascend through the list without overlap."""
        ...

    def survey(self, node: NodeImage, stream_id: int) -> Survey:
        """View, loaded objects and filters, taken together."""
        ...


Lookup = Generator[Wanted, Mapping[int, Reply] | None, Answer]


def search(
    request: Request,
    image: MetadataImage,
    knowledge: Knowledge,
    policy: Policy,
    *,
    story: Story | None = None,
    tolerate_gone: bool = False,
) -> Lookup:
    """Start a lookup.

    Args:
        request: what is asked.
        image: the truth.
        knowledge: hints.
        policy: which objects to open next.
        story: if given, is told what happens and why.
        tolerate_gone: treat a missing object as one that could not be opened, instead of ending with `ImageStale`; for
            the second try, with the newest image.

    Raises (from the generator):
        InvalidRequest: the request makes no sense for this image.
        ImageStale: a listed object is gone.
        InconsistentAnswer: the picked objects do not join up.
        AccelError: an object that the answer depends on could not be opened.

    Complexity: with everything in the index O(limit * log entries); else that of the charts, O(list length) a round.
    """
    check_request(request, image)
    return _Lookup(request, image, knowledge, policy, story, tolerate_gone=tolerate_gone).run()


class _Stop(Exception):
    """The caller's bound is reached."""


class _Hop:
    """One node visited for one ownership range: what this lookup has seen in its list."""

    __slots__ = ("failed", "last_bracket", "node", "rounds", "scan", "scan_position", "seen", "stuck_rounds")

    def __init__(self, node: NodeImage, *, scan: bool) -> None:
        self.node = node
        self.scan = scan
        self.scan_position = 0
        self.seen: dict[int, StreamRange | None] = {}
        self.failed: dict[int, AccelError] = {}
        self.rounds = 0
        self.stuck_rounds = 0
        self.last_bracket: tuple[int, int] | None = None


class _Lookup:
    """The state of one lookup. One thread at a time."""

    def __init__(
        self,
        request: Request,
        image: MetadataImage,
        knowledge: Knowledge,
        policy: Policy,
        story: Story | None,
        *,
        tolerate_gone: bool,
    ) -> None:
        self.request = request
        self.image = image
        self.stream = image.streams[request.stream_id]
        self.knowledge = knowledge
        self.policy = policy
        self.story = story
        self.tolerate_gone = tolerate_gone
        self.next = request.start
        self.picked: list[FoundObject] = []
        self.rounds = 0
        self.fill_rounds = 0
        self.opened = 0
        self.listed = 0

    def run(self) -> Lookup:
        try:
            ending = yield from self._walk()
        except _Stop:
            ending = Ending.PARTIAL
        objects = tuple(self.picked)
        check_ranges(self.request.start, self.request.limit, objects)
        answer = Answer(
            self.request, objects, ending, self.next, self.image.version, self.rounds, self.opened, self.listed
        )
        if self.story is not None:
            self.story.ended(answer)
        return answer

    def _walk(self) -> Generator[Wanted, Mapping[int, Reply] | None, Ending]:
        previous = None
        while not self._take_stream_objects():
            owned = self.stream.owner(self.next)
            if owned is None or owned is previous:
                if self.story is not None:
                    self.story.no_owner(self.next, owned)
                return Ending.HOLE
            previous = owned
            if self.story is not None:
                self.story.hop(self.next, owned, len(self.image.node(owned.node_id)))
            self.listed += len(self.image.node(owned.node_id))
            hop = _Hop(self.image.node(owned.node_id), scan=self.stream.stream_id in self.image.unordered_streams)
            if (yield from self._take_from_node(hop)):
                break
        return self._ending()

    def _ending(self) -> Ending:
        reached = self.request.end != OPEN_END and self.next >= self.request.end
        return Ending.END if reached else Ending.LIMIT

    def _pick(self, found: FoundObject) -> bool:
        """Take an object; says whether the lookup is over."""
        self.picked.append(found)
        self.next = found.end
        if self.story is not None:
            self.story.picked(found)
        done = len(self.picked) >= self.request.limit
        return done or (self.request.end != OPEN_END and self.next >= self.request.end)

    def _take_stream_objects(self) -> bool:
        """Take all that fit in a row; says whether the lookup is over."""
        starts = self.stream.object_starts
        if not starts:
            return False
        floor = bisect_right(starts, self.next) - 1
        index = bisect_left(starts, starts[floor]) if floor >= 0 else 0
        while index < len(starts):
            each = self.stream.stream_objects[index]
            index += 1
            if each.end <= self.next:
                continue
            if each.start != self.next and (self.picked or each.start > self.next):
                return False
            if self._pick(FoundObject(Kind.STREAM, each.ref, each.start, each.end)):
                return True
        return False

    def _take_from_node(self, hop: _Hop) -> Generator[Wanted, Mapping[int, Reply] | None, bool]:
        """Take from the list, and stream objects between; says whether the lookup is over."""
        while True:
            place = self._take_known(hop)
            if place is None:
                place = yield from self._search_list(hop)
            if isinstance(place, Found):
                if self._pick_listed(hop, place):
                    return True
                continue
            if self.story is not None:
                self.story.hole(self.next, hop.node)
            count = len(self.picked)
            if self._take_stream_objects():
                return True
            if len(self.picked) == count:
                return False

    def _pick_listed(self, hop: _Hop, found: Found) -> bool:
        ref = hop.node.ref(found.position)
        return self._pick(FoundObject(Kind.STREAM_SET, ref, found.start, found.end, hop.node.node_id))

    def _take_known(self, hop: _Hop) -> Found | Hole | None:
        """Take what the index alone proves: all but the last pick; None where it proves nothing more."""
        if hop.scan:
            return None
        view = self.knowledge.view(hop.node.node_id, self.stream.stream_id)
        if not self.knowledge.is_ordered(hop.node, self.stream.stream_id, view):
            return None
        while True:
            place = self._known(hop.node, view)
            if not isinstance(place, Found) or self._is_last(place):
                return place
            self._pick_listed(hop, place)

    def _is_last(self, found: Found) -> bool:
        reached = self.request.end != OPEN_END and found.end >= self.request.end
        return reached or len(self.picked) + 1 >= self.request.limit

    def _known(self, node: NodeImage, view: StreamView) -> Found | Hole | None:
        """What the index says of the next offset, without a look at the list as a whole; None if that is no proof."""
        packed, rows, position_of = view.packed, view.rows, node.position_of
        ids = 2 * rows  # packed: all starts, then all ends, then all object ids
        index = bisect_right(packed, self.next, 0, rows) - 1
        while index >= 0 and packed[ids + index] not in position_of:
            index -= 1  # this object is no longer (or not yet) listed: the next lower entry may be
        if index < 0 or packed[rows + index] <= self.next or packed[ids + index] in view.holed:
            return None
        if packed[index] != self.next and self.picked:
            return Hole()
        return Found(position_of[packed[ids + index]], packed[index], packed[rows + index])

    def _search_list(self, hop: _Hop) -> Generator[Wanted, Mapping[int, Reply] | None, Found | Hole]:
        """The object of the list that comes next, opening what it takes to know."""
        while True:
            chart = self._chart(hop)
            place = self._place(hop, chart)
            if not isinstance(place, Between):
                return place
            yield from self._load(hop, chart, place)

    def _chart(self, hop: _Hop) -> Chart:
        survey = self.knowledge.survey(hop.node, self.stream.stream_id)
        view = survey.view
        object_ids = np.asarray(view.object_ids, dtype=np.int64)
        holed = (
            np.fromiter((each in view.holed for each in view.object_ids), np.bool_, len(object_ids))
            if view.holed
            else None
        )
        chart = make_chart(
            np.asarray(view.starts, dtype=np.int64),
            np.asarray(view.ends, dtype=np.int64),
            hop.node.positions(object_ids),
            np.zeros(len(object_ids), dtype=np.bool_) if holed is None else holed,
            ~(survey.loaded | survey.filtered),
            hop.seen,
        )
        if self.story is not None:
            self.story.surveyed(chart, loaded=survey.loaded, filtered=survey.filtered)
        return chart

    def _place(self, hop: _Hop, chart: Chart) -> Found | Hole | Between:
        first = not self.picked
        if chart.ordered and not hop.scan:
            return chart.place(self.next, first=first)
        hop.scan = True
        place, hop.scan_position = chart.scan(self.next, hop.scan_position, first=first)
        return place

    def _load(self, hop: _Hop, chart: Chart, place: Between) -> Generator[Wanted, Mapping[int, Reply] | None, None]:
        """One round: choose, ask for, and take in object indexes."""
        if (
            self.picked
            and self.request.max_fill_rounds is not None
            and self.fill_rounds >= self.request.max_fill_rounds
        ):
            raise _Stop
        bracket = self._bracket(hop, chart, place)
        policy: Policy = LoadAll() if hop.scan else self.policy
        positions = tuple(policy.choose(bracket).tolist())
        self.rounds += 1
        self.fill_rounds += bool(self.picked)
        self.opened += len(positions)
        if self.story is not None:
            self.story.round_begins(self.next, hop.node, bracket, positions)
        replies = yield Wanted(hop.node, positions)
        if replies is None:
            raise _Stop
        hop.rounds += 1
        self._take_in(hop, positions, replies)

    def _bracket(self, hop: _Hop, chart: Chart, place: Between) -> Bracket:
        candidates = self._openable(hop, place)
        bounds = (place.low, place.high)
        hop.stuck_rounds = hop.stuck_rounds + 1 if hop.last_bracket == bounds else 0
        hop.last_bracket = bounds
        beyond = np.flatnonzero(chart.unknown[place.high + 1 :]) + place.high + 1
        if hop.failed:
            beyond = beyond[~np.isin(beyond, list(hop.failed))]
        near = self._near(hop, place)
        return Bracket(place.low, place.high, candidates, beyond, hop.rounds, hop.stuck_rounds, near)

    def _openable(self, hop: _Hop, place: Between) -> Positions:
        """The candidates that did not fail; if all did, the answer depends on one of them."""
        if not hop.failed:
            return place.candidates
        candidates = place.candidates[~np.isin(place.candidates, list(hop.failed))]
        if not len(candidates):
            raise hop.failed[int(place.candidates[0])]
        return candidates

    def _near(self, hop: _Hop, place: Between) -> Near:
        """Where in the bracket the offset is expected: next to a neighbour, at the head, at the tail, or anywhere."""
        if place.low_end == self.next:
            return Near.LOW
        if hop.rounds >= GUESS_ROUNDS_MAX:
            return Near.UNKNOWN
        at_start, at_end = place.low < 0, place.high == len(hop.node)
        head, tail = _owned_span(self.stream, hop.node.node_id)
        if tail == OPEN_END:
            reads_ahead = self.request.end == OPEN_END and self.next > head
            if at_end and reads_ahead and not hop.rounds:
                return Near.HIGH
            return Near.LOW if at_start and self.next <= head else Near.UNKNOWN
        margin = (tail - head) * NEAR_END_SHARE
        if at_end and self.next >= tail - margin:
            return Near.HIGH
        return Near.LOW if at_start and self.next <= head + margin else Near.UNKNOWN

    def _take_in(self, hop: _Hop, positions: tuple[int, ...], replies: Mapping[int, Reply]) -> None:
        for position in positions:
            reply = replies[position]
            if isinstance(reply, ObjectRanges):
                hop.seen[position] = reply.range_of(self.stream.stream_id)
            elif not isinstance(reply, KeyMissing | AccessDenied):
                hop.failed[position] = reply
            elif not self.tolerate_gone:
                raise ImageStale(
                    hop.node, position
                )  # denied, too: without the right to list, S3 says so of a missing key
            else:
                hop.failed[position] = reply if isinstance(reply, AccessDenied) else ImageStale(hop.node, position)
        if self.story is not None:
            self.story.opened(hop.node, [(at, hop.seen.get(at), hop.failed.get(at)) for at in positions])


def _owned_span(stream: StreamImage, node_id: int) -> tuple[int, int]:
    """First offset and end of what a node owns of a stream; an end of -1 where it is not known."""
    owned = [each for each in stream.ranges if each.node_id == node_id]
    head = max(owned[0].start, stream.start_offset)
    return head, owned[-1].end
