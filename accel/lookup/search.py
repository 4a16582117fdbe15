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

- Everything that decides the answer is in the image or was read from an object, now or earlier. What the index, the
  filters, a snapshot or a policy contribute only decides which objects are *opened*; with all of them empty, full or
  stale the answer is the same.
- The generator yields steps (accel/lookup/wanted.py): positions in a node's list, to be opened, perhaps with something
  of the node's snapshot. It is sent what came of it; or None to stop now, which ends it with a partial answer.
- An object that could not be opened fails the lookup only if the answer depends on it.
- No I/O, no clock, no lock: the same inputs give the same requests, so any run can be replayed.

Source: AutoMQ issue 2731; the rules of the production lookup as docs/how-it-works.md writes them down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator

from accel.image import OPEN_END, MetadataImage, NodeImage
from accel.lookup.answer import Answer, Ending, FoundObject, Kind, Request, check_ranges, check_request
from accel.lookup.chart import Found, Hole
from accel.lookup.hop import Hop
from accel.lookup.known import Hints, Knowledge
from accel.lookup.rounds import BoundReached, Rounds
from accel.lookup.story import Story
from accel.lookup.wanted import Searching, SearchSent, Wanted
from loaders.plan import Policy
from range_index import StreamView

Lookup = Generator[Wanted, SearchSent, Answer]


def search(
    request: Request,
    image: MetadataImage,
    knowledge: Knowledge,
    policy: Policy,
    *,
    hints: Hints | None = None,
    story: Story | None = None,
    tolerate_gone: bool = False,
) -> Lookup:
    """Start a lookup.

    Args:
        request: what is asked.
        image: the truth.
        knowledge: what is known of objects already.
        policy: which objects to open next.
        hints: snapshots that may be asked; None to do without.
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
    return _Lookup(request, image, knowledge, policy, hints, story, tolerate_gone=tolerate_gone).run()


class _Lookup:
    """The state of one lookup. One thread at a time."""

    def __init__(
        self,
        request: Request,
        image: MetadataImage,
        knowledge: Knowledge,
        policy: Policy,
        hints: Hints | None,
        story: Story | None,
        *,
        tolerate_gone: bool,
    ) -> None:
        self.request = request
        self.image = image
        self.stream = image.streams[request.stream_id]
        self.knowledge = knowledge
        self.rounds = Rounds(request, knowledge, policy, hints, story, tolerate_gone=tolerate_gone)
        self.story = story
        self.next = request.start
        self.picked: list[FoundObject] = []
        self.listed = 0

    def run(self) -> Lookup:
        try:
            ending = yield from self._walk()
        except BoundReached:
            ending = Ending.PARTIAL
        objects = tuple(self.picked)
        check_ranges(self.request.start, self.request.limit, objects)
        rounds, opened = self.rounds.count, self.rounds.opened
        answer = Answer(self.request, objects, ending, self.next, self.image.version, rounds, opened, self.listed)
        if self.story is not None:
            self.story.ended(answer)
        return answer

    def _walk(self) -> Searching[Ending]:
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
            unordered = self.stream.stream_id in self.image.unordered_streams
            hop = Hop(self.image.node(owned.node_id), self.stream, self.story, scan=unordered)
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

    def _take_from_node(self, hop: Hop) -> Searching[bool]:
        """Take from the list, and stream objects between; says whether the lookup is over."""
        while True:
            place = self._take_known(hop)
            if place is None:
                place = yield from self.rounds.find(hop, self.next, first=not self.picked)
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

    def _pick_listed(self, hop: Hop, found: Found) -> bool:
        ref = hop.node.ref(found.position)
        return self._pick(FoundObject(Kind.STREAM_SET, ref, found.start, found.end, hop.node.node_id))

    def _take_known(self, hop: Hop) -> Found | Hole | None:
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
