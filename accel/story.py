"""What a lookup did and why, event by event.

A lookup that is given a `Story` tells it each decision as it is made; without one it tells nobody and pays nothing. The
driver adds what the search cannot know: requests, bytes and time. `accel/explain.py` turns a story into a text or JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from accel.answer import Answer, FoundObject, Kind
from accel.chart import Chart
from accel.errors import AccelError
from accel.image import NodeImage, OwnershipRange
from accel.version import ImageVersion
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
    """An object was taken; `source` says how its range was known: image, memory, or opened (in this lookup)."""

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
class Ended:
    """The search is over: at a hole of a node's list, where nobody owns the offset, or satisfied."""

    offset: int
    reason: str


Event = Hopped | Picked | Round | Ended


@dataclass(slots=True)
class Story:
    """Collects the events of one lookup. One thread at a time."""

    events: list[Event] = field(default_factory=list)
    answer: Answer | None = None
    image_versions: list[ImageVersion] = field(default_factory=list)
    _opened_ids: set[int] = field(default_factory=set)
    _known: tuple[int, int, int] = (0, 0, 0)

    @property
    def rounds(self) -> list[Round]:
        """The rounds of loading, in order."""
        return [event for event in self.events if isinstance(event, Round)]

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
        source = "image" if found.kind is Kind.STREAM else "opened" if found.object_id in self._opened_ids else "memory"
        self.events.append(Picked(found, source))

    def surveyed(self, chart: Chart, *, loaded: Mask, filtered: Mask) -> None:
        """What was known before a round."""
        holders = np.zeros(len(chart.unknown), dtype=np.bool_)
        holders[chart.positions] = True
        filtered_only = filtered & ~loaded & ~holders
        absent = int(len(chart.unknown) - chart.unknown.sum() - holders.sum() - filtered_only.sum())
        self._known = (int(holders.sum()), absent, int(filtered_only.sum()))

    def round_begins(self, offset: int, node: NodeImage, bracket: Bracket, positions: Sequence[int]) -> None:
        """Objects were chosen to be opened."""
        holders, absent, filtered = self._known
        listed = len(node)
        count = len(bracket.candidates)
        chosen = tuple(_opened(node, at) for at in positions)
        self._opened_ids.update(each.object_id for each in chosen)
        self.events.append(
            Round(
                number=len(self.rounds) + 1,
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

    def opened(self, node: NodeImage, results: Sequence[tuple[int, StreamRange | None, AccelError | None]]) -> None:
        """The chosen objects were opened: (position, what it holds, error)."""
        opened = tuple(_opened(node, at, held, str(error) if error else None) for at, held, error in results)
        self._change_last_round(opened=opened, finished=True)

    def measured(self, requests: int, size_bytes: int, seconds: float) -> None:
        """What the last round cost; told by the driver."""
        self._change_last_round(requests=requests, bytes=size_bytes, seconds=seconds)

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

    def _change_last_round(self, **changes: object) -> None:
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            if isinstance(event, Round):
                self.events[index] = replace(event, **changes)  # type: ignore[arg-type]  # names are checked by tests
                return


def _opened(node: NodeImage, position: int, held: StreamRange | None = None, error: str | None = None) -> Opened:
    return Opened(position, int(node.object_ids[position]), int(node.order_ids[position]), held, error)
