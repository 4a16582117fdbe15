"""What a lookup did and why, event by event.

A lookup that is given a `Story` tells it each decision as it is made; without one it tells nobody and pays nothing. The
driver adds what the search cannot know: requests, bytes and time. `accel/lookup/explain.py` turns a story into a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accel.errors import AccelError
from accel.image import NodeImage, OwnershipRange
from accel.lookup.answer import Answer, FoundObject, Kind
from accel.lookup.chart import Chart
from accel.lookup.hint_stats import trouble_of
from accel.lookup.snapshot_facts import SnapshotFacts, covered_objects
from accel.lookup.wanted import EntriesWanted, HintReply, RootWanted, Wanted
from accel.version import ImageVersion
from loaders.hints import HintProblem
from loaders.plan import Bracket
from range_index import StreamRange

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Hopped:
    """A node was chosen, because it owns the offset."""

    offset: int
    owned: OwnershipRange
    listed_objects: int


@dataclass(frozen=True, slots=True)
class Picked:
    """An object was taken; `source` says how its range was known: image, memory, snapshot, or opened in this lookup."""

    found: FoundObject
    source: str


@dataclass(frozen=True, slots=True)
class Opened:
    """One object index that was opened: what it holds of the stream, or why it could not be opened."""

    position: int
    object_id: int
    order_id: int
    held: StreamRange | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round of loading.

    Of `listed` objects, so many needed no request: `known_holders` and `known_absent` (by the index in memory),
    `filtered` (by a filter), `outside` (by the bounds that known holders set, at `low_position` and `high_position` of
    the list; -1 and `listed` where there is none). The rest are `candidates`. A round is not `finished`
    if the time was over first: its objects were asked for, and what they hold is not known.
    """

    number: int
    offset: int
    node_id: int
    listed: int
    known_holders: int
    known_absent: int
    filtered: int
    outside: int
    candidates: int
    low_position: int
    high_position: int
    near: str
    opened: tuple[Opened, ...] = ()
    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class HintRead:
    """The node's snapshot was asked, or used from memory (then in round 0).

    Args:
        number: of the round; objects that were opened in the same one stand in a `Round` of the same number.
        offset: looked for.
        node_id: whose snapshot.
        what: "root" or "entries".
        listed: objects of the node's list.
        covered: of these, so many are covered.
        entries: so many of them hold the stream, as it says.
        trouble: what is wrong with it, as counters call it.
        problem: the same in full.
        beside: whether objects were opened in the same round.
        requests, bytes, seconds: what asking cost.
        finished: false if the time was over first.
    """

    number: int
    offset: int
    node_id: int
    what: str
    listed: int
    covered: int = 0
    entries: int = 0
    trouble: str | None = None
    problem: str | None = None
    beside: bool = False
    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The search is over: at a hole of a node's list, where nobody owns the offset, or satisfied."""

    offset: int
    reason: str


Event = Hopped | Picked | Round | HintRead | Ended


@dataclass(slots=True)
class Story:
    """Collects the events of one lookup. One thread at a time.

    `round_count` counts rounds of waiting: what is fetched at the same time is one.
    """

    events: list[Event] = field(default_factory=list)
    answer: Answer | None = None
    image_versions: list[ImageVersion] = field(default_factory=list)
    round_count: int = 0
    _opened_ids: set[int] = field(default_factory=set)
    _told_ids: set[int] = field(default_factory=set)
    _known: tuple[int, int, int] = (0, 0, 0)

    @property
    def rounds(self) -> list[Round]:
        """The rounds of opening objects, in order."""
        return [event for event in self.events if isinstance(event, Round)]

    @property
    def hints(self) -> list[HintRead]:
        """When the node's snapshot was asked or used, in order."""
        return [event for event in self.events if isinstance(event, HintRead)]

    def begins(self, image_version: ImageVersion) -> None:
        """A search starts, perhaps over again, on this image."""
        self.image_versions.append(image_version)
        if len(self.image_versions) > 1:
            self.events.append(Ended(-1, f"searched again with image {image_version}"))

    def hop(self, offset: int, owned: OwnershipRange, listed_objects: int) -> None:
        """A node was chosen."""
        self.events.append(Hopped(offset, owned, listed_objects))

    def picked(self, found: FoundObject) -> None:
        """An object was taken."""
        self.events.append(Picked(found, self._source(found)))

    def _source(self, found: FoundObject) -> str:
        if found.kind is Kind.STREAM:
            return "image"
        if found.object_id in self._opened_ids:
            return "opened"
        return "snapshot" if found.object_id in self._told_ids else "memory"

    def surveyed(self, chart: Chart, *, loaded: Mask, filtered: Mask) -> None:
        """What was known before a round."""
        holders = np.zeros(len(chart.unknown), dtype=np.bool_)
        holders[chart.positions] = True
        filtered_only = filtered & ~loaded & ~holders
        absent = int(len(chart.unknown) - chart.unknown.sum() - holders.sum() - filtered_only.sum())
        self._known = (int(holders.sum()), absent, int(filtered_only.sum()))

    def asks(self, offset: int, wanted: Wanted, bracket: Bracket | None) -> None:
        """A round begins: this is asked for; the bracket if objects are among it."""
        self.round_count += 1
        beside = bracket is not None and len(wanted.positions) > 0
        if bracket is not None and beside:
            self._round_begins(offset, wanted, bracket)
        if isinstance(wanted, RootWanted | EntriesWanted):
            what = "root" if isinstance(wanted, RootWanted) else "entries"
            node = wanted.node
            self.events.append(HintRead(self.round_count, offset, node.node_id, what, len(node), beside=beside))

    def _round_begins(self, offset: int, wanted: Wanted, bracket: Bracket) -> None:
        holders, absent, filtered = self._known
        node, listed = wanted.node, len(wanted.node)
        count = len(bracket.candidates)
        chosen = tuple(_opened(node, at) for at in wanted.positions)
        self._opened_ids.update(each.object_id for each in chosen)
        self.events.append(
            Round(
                number=self.round_count,
                offset=offset,
                node_id=node.node_id,
                listed=listed,
                known_holders=holders,
                known_absent=absent,
                filtered=filtered,
                outside=max(0, listed - holders - absent - filtered - count),
                candidates=count,
                low_position=bracket.low,
                high_position=bracket.high,
                near=bracket.near.value,
                opened=chosen,
            )
        )

    def hint_came(self, node: NodeImage, reply: HintReply) -> None:
        """The snapshot was read, or could not be."""
        known = reply.known
        root = None if known is None else known.root
        covered = 0 if root is None else int(covered_objects(node, root).sum())
        problem = reply.problem or (known.problem if known is not None else None)
        entries = 0 if reply.entries is None else len(reply.entries)
        self._told_ids.update([] if reply.entries is None else reply.entries.columns.object_ids.tolist())
        self._change_last(HintRead, covered=covered, entries=entries, finished=True, **_trouble(problem))

    def hint_at_hand(self, offset: int, node: NodeImage, facts: SnapshotFacts) -> None:
        """The snapshot's entries were in memory."""
        settled, entries = int(facts.settled.sum()), len(facts.rows.positions)
        listed = len(node)
        self.events.append(HintRead(0, offset, node.node_id, "entries", listed, settled, entries, finished=True))

    def no_snapshot(self, offset: int, node: NodeImage, problem: HintProblem | None) -> None:
        """It is known that the node has no snapshot that can be used."""
        self.events.append(HintRead(0, offset, node.node_id, "root", len(node), finished=True, **_trouble(problem)))

    def opened(self, node: NodeImage, results: Sequence[tuple[int, StreamRange | None, AccelError | None]]) -> None:
        """The chosen objects were opened: (position, what it holds, error)."""
        opened = tuple(_opened(node, at, held, str(error) if error else None) for at, held, error in results)
        self._change_last(Round, opened=opened, finished=True)

    def measured(self, requests: int, size_bytes: int, seconds: float, *, hint: tuple[int, int] = (0, 0)) -> None:
        """What the last round cost; told by the driver, before the search goes on.

        Args:
            requests: for objects.
            size_bytes: of these.
            seconds: in all.
            hint: requests and bytes of the snapshot.
        """
        costs = {Round: (requests, size_bytes), HintRead: hint}
        for event in self.events[-2:]:
            if isinstance(event, Round | HintRead) and event.number == self.round_count:
                count, size = costs[type(event)]
                self._change_last(type(event), requests=count, bytes=size, seconds=seconds)

    def hole(self, offset: int, node: NodeImage) -> None:
        """A node's list has no object to follow."""
        self.events.append(Ended(offset, f"node {node.node_id} lists no object that goes on at {offset}"))

    def no_owner(self, offset: int, owned: OwnershipRange | None) -> None:
        """Nobody else owns the offset."""
        if owned is None:
            self.events.append(Ended(offset, f"no node owns offset {offset}"))

    def ended(self, answer: Answer) -> None:
        """The search is over."""
        self.answer = answer

    def _change_last(self, kind: type[Round | HintRead], **changes: object) -> None:
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            if isinstance(event, kind):
                self.events[index] = replace(event, **changes)  # type: ignore[arg-type]  # names are checked by tests
                return


def _trouble(problem: HintProblem | AccelError | None) -> dict[str, Any]:
    return {} if problem is None else {"trouble": trouble_of(problem), "problem": str(problem)}


def _opened(node: NodeImage, position: int, held: StreamRange | None = None, error: str | None = None) -> Opened:
    return Opened(position, int(node.object_ids[position]), int(node.order_ids[position]), held, error)
