"""What a lookup asks of its driver, and what it is sent.

A search is a generator without I/O. Each of its steps is one round: all that a step asks for is fetched at the same
time, and then the answer to it is sent.

    | step          | please                                                         | answered with             |
    |---------------|----------------------------------------------------------------|---------------------------|
    | Wanted        | open these objects of a node                                   | position -> what it holds |
    | RootWanted    | read the root of the node's snapshot, and open these objects   | HintReply                 |
    | EntriesWanted | read a stream's entries in that snapshot, and open the objects | HintReply                 |

Any step may be answered with None: the time is over, the search ends with a partial answer.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from accel.errors import AccelError
from accel.image import NodeImage, ObjectRef
from loaders.hints import ByteSpan, HintProblem, KnownRoot, SnapshotRoot, StreamEntries
from range_index import ObjectRanges

R = TypeVar("R")

Reply = ObjectRanges | AccelError
"""What one object holds, or why it could not be opened."""

SnapshotKnown = KnownRoot[SnapshotRoot]
"""What is known of a node's snapshot: its root, or why there is none that can be used."""


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Please open these objects: positions, ascending, in the list of a node."""

    node: NodeImage
    positions: tuple[int, ...]

    def refs(self) -> list[ObjectRef]:
        """The objects at the positions."""
        return [self.node.ref(position) for position in self.positions]


@dataclass(frozen=True, slots=True, eq=False)
class RootWanted(Wanted):
    """Please read the root of the node's snapshot; and open these objects, perhaps none, at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class EntriesWanted(Wanted):
    """Please read a stream's entries in the node's snapshot; and open these objects, perhaps none, at the same time.

    Args:
        stream_id: the stream.
        known: the snapshot.
        span: the bytes to read, as `plan_entries` chose them.
    """

    stream_id: int
    known: SnapshotKnown
    span: ByteSpan


@dataclass(frozen=True, slots=True, eq=False)
class HintReply:
    """What came of a `RootWanted` or `EntriesWanted`.

    Args:
        objects: position -> what the object there holds; of those that were asked for besides.
        known: what is known of the snapshot now; None if the store could not say.
        entries: the stream's entries; None if they were not asked for, or cannot be used.
        problem: why there is nothing to use.
    """

    objects: Mapping[int, Reply]
    known: SnapshotKnown | None
    entries: StreamEntries | None
    problem: HintProblem | AccelError | None


SearchSent = Mapping[int, Reply] | HintReply | None
"""What a search is sent."""

Searching = Generator[Wanted, SearchSent, R]
"""A part of a search that comes to a result."""


class ImageStale(AccelError):
    """A listed object is gone: look again with a newer image. Drivers handle it; callers never see it."""

    def __init__(self, node: NodeImage, position: int) -> None:
        super().__init__(f"object {node.object_ids[position]} of node {node.node_id} is listed and gone")
        self.node_id = node.node_id
        self.ref = node.ref(position)
