"""The visit of one node by a search: what is known of its list, what was requested, and where to look next.

`search.py` decides; this module has the state of one ownership range: opened objects and their ranges, running and
overdue requests, the snapshot, and the brackets that policies choose from. No I/O, no clock, no lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accel.errors import AccelError, AccessDenied, KeyMissing
from accel.image import OPEN_END, NodeImage, StreamImage
from accel.lookup.answer import Request, Unopened
from accel.lookup.known_ranges import (
    Between,
    Flags,
    KnownRanges,
    OpenedTally,
    SnapshotFacts,
    columns_of,
    covered_objects,
    facts_of,
    join_ranges,
)
from accel.lookup.search_requests import (
    HintReply,
    ImageStale,
    IndexCache,
    OpenObjects,
    ReadEntries,
    ReadFilters,
    ReadRoot,
    Reply,
    SnapshotKnown,
)
from loaders.hints import SnapshotRoot, StreamEntries
from loaders.plan import Bracket, Guess, Near, Policy, Positions, Spread, Trust, expected_place, in_run
from range_index import ObjectRanges, StreamRange

if TYPE_CHECKING:
    from accel.lookup.explain import Trace


FILTERS_AN_INDEX = 30
"""An object's index has the bytes of about this number of filters: 36 for each stream, and 1.2."""

FILTERS_WORTH_OBJECTS = 3
"""With fewer candidates without a filter, opening them costs no more than the root of a pack and one read."""


class NodeVisit:
    """The visit of one node for one ownership range. One thread at a time.

    Args:
        node: the node's list.
        stream: the searched stream.
        scan: whether the list has to be scanned in order, as the stream's offsets may not ascend through it.
        trace: records the events; None = no trace.
    """

    __slots__ = (
        "asked_offset",
        "covered",
        "failed",
        "filters_asked",
        "filters_late",
        "hint_asked",
        "known",
        "last_bracket",
        "node",
        "overdue",
        "pending",
        "rounds",
        "scan",
        "scan_position",
        "seen",
        "snapshot_facts",
        "stream",
        "stuck_rounds",
        "tally",
        "trace",
        "was_asked",
        "without_snapshot",
    )

    def __init__(self, node: NodeImage, stream: StreamImage, trace: Trace | None, *, scan: bool) -> None:
        self.node = node
        self.stream = stream
        self.trace = trace
        self.scan = scan
        self.scan_position = 0
        self.seen: dict[int, StreamRange | None] = {}
        self.failed: dict[int, AccelError] = {}
        self.pending: set[int] = set()
        self.overdue: set[int] = set()
        self.hint_asked: type[OpenObjects] | None = None
        self.filters_asked = self.filters_late = False
        self.was_asked: Flags | None = None
        self.rounds = 0
        self.stuck_rounds = 0
        self.last_bracket: tuple[int, int] | None = None
        self.known: SnapshotKnown | None = None
        self.covered: Flags | None = None
        self.snapshot_facts: SnapshotFacts | None = None
        self.asked_offset = -1
        self.without_snapshot = False
        self.tally = OpenedTally()

    # -- known ranges --------------------------------------------------------------------------------------------------

    def known_ranges(self, index_cache: IndexCache) -> KnownRanges:
        """All ranges known now; O(list + entries log entries)."""
        facts = index_cache.facts(self.node, self.stream.stream_id)
        unknown = ~(facts.loaded | facts.filtered)
        excluded = self.node.excludes(self.stream.stream_id)
        if excluded is not None:
            unknown &= ~excluded
        hinted = None
        if self.snapshot_facts is not None:
            unknown &= ~self.snapshot_facts.settled
            hinted = self.snapshot_facts.rows
        columns, tied = columns_of(facts.view, self.node), self.node.order_ids if self.node.tied_ids else None
        ranges = join_ranges(columns, unknown, self.seen, hinted=hinted, order_ids=tied)
        self.tally.note(facts.loaded, facts.filtered, excluded, ranges.positions)
        if self.trace is not None:
            self.trace.record_known(ranges, loaded=facts.loaded, filtered=facts.filtered, excluded=excluded)
        return ranges

    def take_in(self, replies: Mapping[int, Reply], *, tolerate_gone: bool) -> tuple[int, ...]:
        """Store the ranges or errors of opened objects; returns their positions.

        Raises:
            ImageStale: an object does not exist, and that is not tolerated.
        """
        for position, reply in replies.items():
            self.pending.discard(position)
            if isinstance(reply, ObjectRanges):
                self.seen[position] = reply.range_of(self.stream.stream_id)
            elif not isinstance(reply, KeyMissing | AccessDenied):
                self.failed[position] = reply
            elif not tolerate_gone:
                # Denied, too: without the right to list, S3 returns this error for a missing key.
                raise ImageStale(self.node, position)
            else:
                self.failed[position] = reply if isinstance(reply, AccessDenied) else ImageStale(self.node, position)
        positions = tuple(replies)
        if self.trace is not None and positions:
            self.trace.record_opened(self.node, [(at, self.seen.get(at), self.failed.get(at)) for at in positions])
        return positions

    def unopened(self) -> Unopened:
        """The number of objects that were not opened, by the reason, except the index. O(list)."""
        settled = None if self.snapshot_facts is None else self.snapshot_facts.settled
        return self.tally.unopened(self.was_asked, settled, self.seen)

    # -- running requests ----------------------------------------------------------------------------------------------

    def asked(self, step: OpenObjects, index_cache: IndexCache) -> None:
        """Register the requests of a step as running."""
        if step.positions:
            self.tally.with_filter |= index_cache.with_filter(self.node, step.positions)
            self.rounds += 1
            self.pending.update(step.positions)
            if self.was_asked is None:
                self.was_asked = np.zeros(len(self.node), dtype=np.bool_)
            self.was_asked[list(step.positions)] = True
        if isinstance(step, ReadRoot | ReadEntries | ReadFilters):
            self.hint_asked = type(step)

    def awaits(self, place: Between) -> bool:
        """Whether a running request may decide the place, so that further requests are too early."""
        given_up = self.filters_late if self.hint_asked is ReadFilters else self.without_snapshot
        if self.hint_asked is not None and not given_up:
            return True
        if not self.pending:
            return False
        awaited = self.pending.intersection(place.candidates.tolist())
        if not awaited <= self.overdue:
            return True
        return bool(awaited) and not len(self._unasked(place.candidates))

    def awaits_between(self, low: int, high: int) -> bool:
        """Whether requests for objects between these positions are running, and not overdue."""
        return any(low < at < high for at in self.pending - self.overdue)

    def give_up_waiting(self) -> None:
        """Mark the running requests as overdue: continue without them if possible. Their results are used later."""
        self.overdue |= self.pending
        if self.hint_asked is ReadFilters:
            self.filters_late = True
        else:
            self.without_snapshot |= self.hint_asked is not None

    def narrowed(self, offset: int, low: int, high: int, came: tuple[int, ...]) -> tuple[int, int] | None:
        """The bounds of a place, narrowed by arrived objects; None if the place has to be searched again."""
        if self.scan:
            return (low, high) if self.pending else None
        for at in came:
            held = self.seen.get(at)
            if held is None:
                continue
            if held.start <= offset < held.end:
                return None
            if held.end <= offset:
                low = max(low, at)
            else:
                high = min(high, at)
        return low, high

    def _unasked(self, positions: Positions) -> Positions:
        """The positions that this visit has not requested: they are not running, and have not failed."""
        return positions if self.was_asked is None else positions[~self.was_asked[positions]]

    # -- the snapshot --------------------------------------------------------------------------------------------------

    def may_ask(self, offset: int) -> bool:
        """Whether the node's snapshot may contain entries for this offset that were not read yet."""
        if self.scan or self.without_snapshot or offset == self.asked_offset:
            return False
        return self.snapshot_facts is None or not self.snapshot_facts.answers(offset)

    def take_hint(self, reply: HintReply) -> None:
        """Store the result of reading the snapshot's root or entries."""
        asked, self.hint_asked = self.hint_asked, None
        if asked is ReadFilters:
            return  # they are in the index cache
        if asked is ReadRoot and reply.known is not None:
            self.without_snapshot = False
            self.take_root(reply.known)
        elif asked is ReadEntries and reply.entries is not None:
            self.without_snapshot = False
            self.take_entries(reply.entries)
        else:
            self.without_snapshot = True

    def take_root(self, known: SnapshotKnown) -> SnapshotRoot | None:
        """Store the node's snapshot; returns its root if it can be used."""
        if known is not self.known:
            self.known, self.covered = known, None
        if known.root is None:
            self.without_snapshot = True
        elif self.covered is None:
            self.covered = covered_objects(self.node, known.root)
        return known.root

    def take_entries(self, entries: StreamEntries) -> None:
        """Store the snapshot's entries of the stream; call `take_root` before."""
        if self.covered is not None:
            self.snapshot_facts = facts_of(self.node, self.covered, entries)

    def count_covered(self, positions: Positions) -> int:
        """The number of these positions that the snapshot covers."""
        return 0 if self.covered is None else int(self.covered[positions].sum())

    def count_sized(self, positions: Positions) -> int:
        """The number of these positions whose size is in the image; a snapshot can cover no others."""
        return int((self.node.sizes_bytes[positions] >= 0).sum())

    def filters_for(self, bracket: Bracket, next_count: int, index_cache: IndexCache) -> ReadFilters | None:
        """The step that loads filters instead of the next round; None if that would not be worth it.

        It is if rounds have opened objects without the stream, and the filters of the candidates have fewer bytes than
        the indexes that were and would be opened. How many requests they need is known when their root is read.

        Args:
            bracket: of the next round.
            next_count: the number of objects that the next round would open.
            index_cache: contains filters.
        """
        opened = 0 if self.was_asked is None else int(self.was_asked.sum())
        opens, candidates = opened + next_count, bracket.candidates
        if not bracket.stuck_rounds or self.filters_asked or len(candidates) > FILTERS_AN_INDEX * opens:
            return None
        sized = candidates[self.node.sizes_bytes[candidates] >= 0]
        held = index_cache.with_filter(self.node, sized.tolist())
        wanted = np.array([position for position in sized.tolist() if position not in held], dtype=np.int64)
        if min(len(wanted), next_count) < FILTERS_WORTH_OBJECTS:
            return None
        self.filters_asked = True
        self.stuck_rounds -= 1  # the round that was chosen is made later, or not at all
        return ReadFilters(self.node, (), wanted, min(opens, len(candidates)))

    def uncovered(self, positions: Positions) -> Positions:
        """The positions that the snapshot does not cover, without failed and running ones."""
        return self._unasked(positions if self.covered is None else positions[~self.covered[positions]])

    # -- where to look -------------------------------------------------------------------------------------------------

    def bracket(self, request: Request, offset: int, picked: int, ranges: KnownRanges, place: Between) -> Bracket:
        """The place where the object for an offset must be, as policies use it.

        Raises:
            AccelError: all candidates failed to be opened.
        """
        candidates = self._openable(place)
        bounds = (place.low, place.high)
        self.stuck_rounds = self.stuck_rounds + 1 if self.last_bracket == bounds else 0
        self.last_bracket = bounds
        beyond = self._unasked(np.flatnonzero(ranges.unknown[place.high + 1 :]) + place.high + 1)
        guess = self.guess(offset, place)
        run = _run_objects(request, offset, picked, ranges, place, self._awaited())
        return Bracket(place.low, place.high, candidates, beyond, self.rounds, self.stuck_rounds, guess, run)

    def bracket_of_run(
        self, request: Request, offset: int, picked: int, ranges: KnownRanges, place: Between
    ) -> Bracket:
        """As `bracket`, with all unrequested positions after the low end; for requests ahead in a run."""
        run = 0 if self.scan else _run_objects(request, offset, picked, ranges, place, self._awaited())
        first = place.low + 1  # arrived objects that cannot be taken yet count as well: this limits the distance
        following = np.flatnonzero(ranges.unknown[first : first + run]) + first
        nothing: Positions = np.empty(0, dtype=np.int64)
        guess = Guess(Near.LOW, Trust.SURE)
        return Bracket(place.low, len(self.node), self._unasked(following), nothing, self.rounds, 0, guess, run)

    def may_run(self, request: Request, picked: int) -> bool:
        """Whether the request needs so many more objects that a run would request more than a round does."""
        return not self.scan and in_run(1, 1, request.limit - picked) > 0

    def ahead(self, policy: Policy, bracket: Bracket) -> tuple[int, ...]:
        """The further positions that a proven run should request now; none while enough requests are running."""
        if not isinstance(policy, Spread) or not bracket.run_objects or len(self.pending) > policy.size_objects_max:
            return ()
        unasked = self._unasked(bracket.candidates)
        return tuple(policy.ahead(replace(bracket, candidates=unasked), len(self.pending)).tolist())

    def _awaited(self) -> Flags:
        awaited = np.zeros(len(self.node), dtype=np.bool_)
        awaited[list(self.pending)] = True
        return awaited

    def guess(self, offset: int, place: Between) -> Guess:
        """The expected place of the object for an offset among the candidates."""
        head, tail = self.stream.owned_span(self.node)
        if place.after is not None:
            tail = max(tail or 0, place.after.end)
        return expected_place(offset, place.before, place.after, head, tail)

    def _openable(self, place: Between) -> Positions:
        """The candidates that were not requested; raises the error of the first candidate if there are none."""
        candidates = self._unasked(place.candidates)
        if not len(candidates):
            raise self.failed[int(place.candidates[0])]
        return candidates


def _run_objects(
    request: Request, offset: int, picked: int, ranges: KnownRanges, place: Between, awaited: Flags
) -> int:
    """The number of positions that a scan may request in list order; 0 if no run of neighbours ends at the offset."""
    if place.before is None or place.before.end != offset:
        return 0
    run = ranges.run_to(offset, awaited)
    wanted = request.limit - picked
    if request.end != OPEN_END:
        wanted = min(wanted, -((request.end - offset) * run.objects // -run.offsets))
    return in_run(run.objects, run.positions, wanted)
