"""One node visited by a lookup: what was seen in its list, and where in it the next object must be looked for.

A lookup remembers for its own duration what it opened and what the node's snapshot said, so that whatever the shared
memory forgets in the meantime costs nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from accel.errors import AccelError, AccessDenied, KeyMissing
from accel.image import OPEN_END, NodeImage, StreamImage
from accel.lookup.answer import Request
from accel.lookup.chart import Between, Chart, Mask, Rows, make_chart
from accel.lookup.known import Knowledge, Survey
from accel.lookup.snapshot_facts import SnapshotFacts, covered_objects, facts_of
from accel.lookup.story import Story
from accel.lookup.wanted import ImageStale, Reply, SnapshotKnown
from loaders.hints import SnapshotRoot, StreamEntries
from loaders.plan import Bracket, Near, Positions
from range_index import ObjectRanges, StreamRange

NEAR_END_SHARE = 0.01
"""A read in the first or last hundredth of what a node owns of a stream counts as one at its head or tail."""

GUESS_ROUNDS_MAX = 6
"""A guess that the offset lies at the head or the tail is given up after so many rounds."""


class Hop:
    """One node visited for one ownership range. One thread at a time.

    Args:
        node: its list.
        stream: the stream looked for.
        scan: whether the list has to be walked, as the stream's offsets may not ascend through it.
        story: is told what is learnt.
    """

    __slots__ = (
        "asked_offset",
        "covered",
        "facts",
        "failed",
        "known",
        "last_bracket",
        "node",
        "rounds",
        "scan",
        "scan_position",
        "seen",
        "story",
        "stream",
        "stuck_rounds",
        "without_snapshot",
    )

    def __init__(self, node: NodeImage, stream: StreamImage, story: Story | None, *, scan: bool) -> None:
        self.node = node
        self.stream = stream
        self.story = story
        self.scan = scan
        self.scan_position = 0
        self.seen: dict[int, StreamRange | None] = {}
        self.failed: dict[int, AccelError] = {}
        self.rounds = 0
        self.stuck_rounds = 0
        self.last_bracket: tuple[int, int] | None = None
        self.known: SnapshotKnown | None = None
        self.covered: Mask | None = None
        self.facts: SnapshotFacts | None = None
        self.asked_offset = -1
        self.without_snapshot = False

    # -- what is known -------------------------------------------------------------------------------------------------

    def chart(self, knowledge: Knowledge) -> Chart:
        """All that is known now; O(list + entries log entries)."""
        survey = knowledge.survey(self.node, self.stream.stream_id)
        unknown = ~(survey.loaded | survey.filtered)
        hinted = None
        if self.facts is not None:
            unknown &= ~self.facts.settled
            hinted = self.facts.rows
        chart = make_chart(_rows_of(survey, self.node), unknown, self.seen, hinted=hinted)
        if self.story is not None:
            self.story.surveyed(chart, loaded=survey.loaded, filtered=survey.filtered)
        return chart

    def take_in(self, positions: tuple[int, ...], replies: Mapping[int, Reply], *, tolerate_gone: bool) -> None:
        """Remember what objects hold that were opened.

        Raises:
            ImageStale: one is gone, and that is not tolerated.
        """
        for position in positions:
            reply = replies[position]
            if isinstance(reply, ObjectRanges):
                self.seen[position] = reply.range_of(self.stream.stream_id)
            elif not isinstance(reply, KeyMissing | AccessDenied):
                self.failed[position] = reply
            elif not tolerate_gone:
                # Denied, too: without the right to list, S3 says so of a missing key.
                raise ImageStale(self.node, position)
            else:
                self.failed[position] = reply if isinstance(reply, AccessDenied) else ImageStale(self.node, position)
        if self.story is not None:
            self.story.opened(self.node, [(at, self.seen.get(at), self.failed.get(at)) for at in positions])

    # -- the snapshot --------------------------------------------------------------------------------------------------

    def may_ask(self, offset: int) -> bool:
        """Whether the node's snapshot may have something to say for this offset that it was not asked yet."""
        if self.scan or self.without_snapshot or offset == self.asked_offset:
            return False
        return self.facts is None or not self.facts.answers(offset)

    def take_root(self, known: SnapshotKnown) -> SnapshotRoot | None:
        """Remember the node's snapshot; its root if it can be used."""
        if known is not self.known:
            self.known, self.covered = known, None
        if known.root is None:
            self.without_snapshot = True
        elif self.covered is None:
            self.covered = covered_objects(self.node, known.root)
        return known.root

    def take_entries(self, entries: StreamEntries) -> None:
        """Remember what the snapshot says of the stream; `take_root` came before."""
        if self.covered is not None:
            self.facts = facts_of(self.node, self.covered, entries)

    def count_covered(self, positions: Positions) -> int:
        """How many of these the snapshot covers."""
        return 0 if self.covered is None else int(self.covered[positions].sum())

    def count_sized(self, positions: Positions) -> int:
        """Of how many of these the image knows the size; a snapshot can cover no others."""
        return int((self.node.sizes_bytes[positions] >= 0).sum())

    def uncovered(self, positions: Positions) -> Positions:
        """Those that the snapshot does not cover, without those that failed to be opened."""
        chosen = positions if self.covered is None else positions[~self.covered[positions]]
        return chosen[~np.isin(chosen, list(self.failed))] if self.failed else chosen

    # -- where to look -------------------------------------------------------------------------------------------------

    def bracket(self, request: Request, offset: int, chart: Chart, place: Between) -> Bracket:
        """The place where the object for an offset must lie, as policies see it.

        Raises:
            AccelError: all candidates failed to be opened.
        """
        candidates = self._openable(place)
        bounds = (place.low, place.high)
        self.stuck_rounds = self.stuck_rounds + 1 if self.last_bracket == bounds else 0
        self.last_bracket = bounds
        beyond = np.flatnonzero(chart.unknown[place.high + 1 :]) + place.high + 1
        if self.failed:
            beyond = beyond[~np.isin(beyond, list(self.failed))]
        near = self.near(request, offset, place)
        return Bracket(place.low, place.high, candidates, beyond, self.rounds, self.stuck_rounds, near)

    def near(self, request: Request, offset: int, place: Between) -> Near:
        """Where in the bracket the offset is expected: next to a neighbour, at the head, at the tail, or anywhere."""
        if place.low_end == offset:
            return Near.LOW
        if self.rounds >= GUESS_ROUNDS_MAX:
            return Near.UNKNOWN
        at_start, at_end = place.low < 0, place.high == len(self.node)
        head, tail = _owned_span(self.stream, self.node.node_id)
        if tail == OPEN_END:
            reads_ahead = request.end == OPEN_END and offset > head
            if at_end and reads_ahead and not self.rounds:
                return Near.HIGH
            return Near.LOW if at_start and offset <= head else Near.UNKNOWN
        margin = (tail - head) * NEAR_END_SHARE
        if at_end and offset >= tail - margin:
            return Near.HIGH
        return Near.LOW if at_start and offset <= head + margin else Near.UNKNOWN

    def _openable(self, place: Between) -> Positions:
        """The candidates that did not fail; if all did, the answer depends on one of them."""
        if not self.failed:
            return place.candidates
        candidates = place.candidates[~np.isin(place.candidates, list(self.failed))]
        if not len(candidates):
            raise self.failed[int(place.candidates[0])]
        return candidates


def _rows_of(survey: Survey, node: NodeImage) -> Rows:
    view = survey.view
    object_ids = np.asarray(view.object_ids, dtype=np.int64)
    holed = (
        np.fromiter((each in view.holed for each in view.object_ids), np.bool_, len(object_ids))
        if view.holed
        else np.zeros(len(object_ids), dtype=np.bool_)
    )
    starts, ends = np.asarray(view.starts, dtype=np.int64), np.asarray(view.ends, dtype=np.int64)
    return Rows(starts, ends, node.positions(object_ids), holed)


def _owned_span(stream: StreamImage, node_id: int) -> tuple[int, int]:
    """First offset and end of what a node owns of a stream; an end of -1 where it is not known."""
    owned = [each for each in stream.ranges if each.node_id == node_id]
    head = max(owned[0].start, stream.start_offset)
    return head, owned[-1].end
