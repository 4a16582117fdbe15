"""What a lookup may ask of memory, as protocols: the index, the filters, and the hints of the bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from accel.image import NodeImage
from accel.lookup.chart import Mask
from accel.lookup.wanted import SnapshotKnown
from loaders.hints import ByteSpan, StreamEntries
from range_index import StreamView


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


class Hints(Protocol):
    """What a lookup asks of the snapshots in the bucket, as far as they are in memory."""

    @property
    def expected(self) -> bool:
        """Whether it may be hoped that a node has a snapshot: not if only nodes without one were seen so far."""
        ...

    def root(self, node_id: int) -> SnapshotKnown | None:
        """What is known of a node's snapshot; None: its root has to be read first."""
        ...

    def held(self, node_id: int, stream_id: int, known: SnapshotKnown) -> StreamEntries | None:
        """A stream's entries in this very snapshot, if they are in memory."""
        ...

    def is_bad(self, known: SnapshotKnown, span: ByteSpan) -> bool:
        """Whether these bytes of the snapshot were read before and could not be used."""
        ...
