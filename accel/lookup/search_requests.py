"""The steps that the generators of this package yield to their driver, and the replies that they are sent.

Lookups (`search.py`) and reads of data (`reading.py`) are generators without I/O. All requests of one step run at the
same time; a lookup is sent the first results as soon as there are any, and continues if they decide its search. If they
do not, the lookup waits for more results. A driver, for threads or for asyncio, does the waiting.

    | step         | the driver is to                                               | reply                     |
    |--------------|----------------------------------------------------------------|---------------------------|
    | OpenObjects  | open these objects of a node                                   | position -> its ranges    |
    | AwaitMore    | wait for more results of requests in this node's list          | the same, or HintReply    |
    | ReadRoot     | read the root of the node's snapshot, and open these objects   | HintReply                 |
    | ReadEntries  | read a stream's entries in that snapshot, and open the objects | HintReply                 |
    | ReadFilters  | load filters of the node's objects, if that costs less         | HintReply                 |
    | NeedImage    | get an image newer than a version                              | image, RefreshFailed, None|
    | CurrentImage | return the current image                                       | image                     |
    | Begin        | begin an OpenObject or a FetchSpan, and do not wait for it     | result in memory, or None |
    | AwaitAny     | wait for any begun request, or for a lookup's step             | Arrived                   |

The reply to the first five contains all new results of the search's requests in the node's list: at least one object,
or the hint. A reply without either means that the running requests are slow: the search may continue without them, or
wait again. None means that the time is over: the lookup ends with a partial answer. The module also defines the
protocols of the memory that a lookup uses: the index cache, and the snapshots that were read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from accel.errors import AccelError
from accel.image import ImageVersion, MetadataImage, NodeImage, ObjectRef
from accel.lookup.known_ranges import Flags
from loaders.format import BlockRow
from loaders.hints import ByteSpan, HintProblem, KnownRoot, SnapshotRoot, StreamEntries
from loaders.object_index import OpenedObject
from loaders.plan import Policy
from range_index import ObjectRanges, StreamView

R = TypeVar("R")

Reply = ObjectRanges | AccelError
"""The ranges of one object, or why it could not be opened."""

SnapshotKnown = KnownRoot[SnapshotRoot]
"""The known state of a node's snapshot: its root, or why there is no usable one."""


# -- steps of a lookup -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class OpenObjects:
    """Open these objects: positions, ascending, in the list of a node."""

    node: NodeImage
    positions: tuple[int, ...]

    def refs(self) -> list[ObjectRef]:
        """The objects at the positions."""
        return [self.node.ref(position) for position in self.positions]


@dataclass(frozen=True, slots=True, eq=False)
class AwaitMore(OpenObjects):
    """Wait for more results of earlier requests in this node's list; nothing new is requested."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadRoot(OpenObjects):
    """Read the root of the node's snapshot, and open these objects, perhaps none, at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadEntries(OpenObjects):
    """Read a stream's entries in the node's snapshot, and open these objects, perhaps none, at the same time.

    Args:
        stream_id: the stream.
        known: the snapshot.
        span: the bytes to read, as `plan_entries` chose them.
    """

    stream_id: int
    known: SnapshotKnown
    span: ByteSpan


@dataclass(frozen=True, slots=True, eq=False)
class ReadFilters(OpenObjects):
    """Load filters from the node's pack into the index cache, if that costs fewer requests than opening objects.

    Args:
        wanted: positions of the objects without a filter, ascending.
        opens: the number of objects that were opened in vain, and that would be opened next; at most all candidates.
    """

    wanted: NDArray[np.int64]
    opens: int


@dataclass(frozen=True, slots=True, eq=False)
class HintReply:
    """The result of a `ReadRoot`, `ReadEntries` or `ReadFilters`.

    Args:
        known: the state of the snapshot now; None if the store failed.
        entries: the stream's entries; None if they were not requested, or cannot be used.
        problem: why there is no result to use.
        requests: the number of requests.
        bytes_read: the number of bytes fetched.
        objects: position -> the reply of the object, for objects that were requested at the same time.
        filters: the number of loaded filters; None if loading them would have cost more than it saves.
    """

    known: SnapshotKnown | None
    entries: StreamEntries | None
    problem: HintProblem | AccelError | None
    requests: int = 0
    bytes_read: int = 0
    objects: Mapping[int, Reply] = field(default_factory=dict)
    filters: int | None = None

    def beside(self, objects: Mapping[int, Reply]) -> HintReply:
        """The same, with the replies of opened objects."""
        return replace(self, objects=objects)


@dataclass(frozen=True, slots=True)
class NeedImage:
    """Return an image newer than this version, without waiting for one, or None."""

    version: ImageVersion


@dataclass(frozen=True, slots=True)
class RefreshFailed:
    """It is not known whether there is a newer image: the image source failed.

    Args:
        unconfirmed_seconds: the time since the current image was last known to be the newest.
        reason: the failure, as text for users.
    """

    unconfirmed_seconds: float
    reason: str


# -- steps of a read ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CurrentImage:
    """Return the current image."""


@dataclass(frozen=True, slots=True)
class OpenObject:
    """Open the index of this object of a node (-1 for a stream object)."""

    group: int
    ref: ObjectRef


@dataclass(frozen=True, slots=True)
class FetchSpan:
    """Fetch bytes [start, end) of an object."""

    object_id: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce bytes that a later read will need: they may be fetched in advance. The reply is None, at once."""

    span: FetchSpan
    share: Hashable


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin this request without waiting for it; its result is reported by the ticket, which is unique in the read.

    The reply is the result if it is in memory, else None. Requests of one share may hang without taking all threads.
    """

    ticket: int
    step: OpenObject | FetchSpan
    share: Hashable


@dataclass(frozen=True, slots=True)
class AwaitAny:
    """Wait for any begun request, or for a result of this step of a lookup; None = no lookup waits.

    A step that is passed again is not begun again.
    """

    lookup: OpenObjects | None


LookupStep = OpenObjects | NeedImage
Step = LookupStep | CurrentImage | Begin | Announce | AwaitAny

Sent = Mapping[int, Reply] | HintReply | MetadataImage | RefreshFailed | None
"""The replies to a lookup."""

Begun = OpenedObject | bytes | memoryview | AccelError
"""The result of a begun request, or its error."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """The results of begun requests by ticket, and the reply to the step of the lookup, None if there is none yet.

    If `is_image_due` is true, the image of this lookup is too old: the rest is to be looked up with a new one.
    """

    begun: Mapping[int, Begun]
    lookup: Mapping[int, Reply] | HintReply | None
    is_image_due: bool = False


ReadSent = Sent | Begun | Arrived
"""The replies to a read."""

Searching = Generator[OpenObjects, Sent, R]
"""A part of a search, which returns a result."""


class ImageStale(AccelError):
    """A listed object does not exist: search again with a newer image. Lookups handle it; callers never see it."""

    def __init__(self, node: NodeImage, position: int) -> None:
        super().__init__(f"object {node.object_ids[position]} of node {node.node_id} is listed and does not exist")
        self.node_id = node.node_id
        self.ref = node.ref(position)


# -- protocols of the memory -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class IndexFacts:
    """The known facts about one stream in one node's list, all taken at the same time.

    Args:
        view: the stream's entries in the index.
        loaded: by position, whether the object's arrays are in memory (then the view has its entry, if it has one).
        filtered: by position, whether a filter excludes the stream.
    """

    view: StreamView
    loaded: Flags
    filtered: Flags


class IndexCache(Protocol):
    """The index and the filters, as lookups use them."""

    def view(self, node_id: int, stream_id: int) -> StreamView:
        """The entries of a stream, from memory."""
        ...

    def is_ordered(self, node: NodeImage, stream_id: int, view: StreamView) -> bool:
        """Whether the view's listed entries ascend through the list without overlap."""
        ...

    def facts(self, node: NodeImage, stream_id: int) -> IndexFacts:
        """View, loaded objects and filters, all taken at the same time."""
        ...

    def with_filter(self, node: NodeImage, positions: Sequence[int]) -> set[int]:
        """The subset of these positions of a list whose objects have a filter in memory."""
        ...


class Hints(Protocol):
    """The parts of snapshots in memory, as lookups use them."""

    @property
    def expected(self) -> bool:
        """Whether a node probably has a snapshot: not if all nodes read so far had none."""
        ...

    def root(self, node_id: int) -> SnapshotKnown | None:
        """The known state of a node's snapshot; None: its root has to be read first."""
        ...

    def held(self, node_id: int, stream_id: int, known: SnapshotKnown) -> StreamEntries | None:
        """A stream's entries in this snapshot, if they are in memory."""
        ...

    def may_load_filters(self, node_id: int) -> bool:
        """Whether the node may have a pack of filters that was not loaded a moment ago."""
        ...

    def is_bad(self, known: SnapshotKnown, span: ByteSpan) -> bool:
        """Whether these bytes of the snapshot were read before and could not be used."""
        ...


class Blocks(Protocol):
    """The places of blocks that snapshots contain."""

    def find(self, node_id: int, ref: ObjectRef, stream_id: int) -> BlockRow | None:
        """All blocks of a stream in an object as one row; None if not known, or if the object's index is in memory."""
        ...

    def used(self, node_id: int, object_id: int, stream_id: int, *, right: bool) -> None:
        """Report that the bytes of a row were fetched, and whether they matched the row."""
        ...


class Chunks(Protocol):
    """Blocks that earlier reads ended in; a name is of one row of one object, which never changes."""

    def find(self, name: Hashable) -> bytes | None:
        """The bytes of a block, if they are in memory."""
        ...

    def keep(self, name: Hashable, chunk: bytes, *, waits: bool) -> None:
        """Keep the bytes of a block, which were decoded without an error.

        Args:
            name: of the block.
            chunk: its bytes.
            waits: whether to wait for a lock; if not, the block may not be kept.
        """
        ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """The common inputs of all lookups of one accelerator.

    Args:
        index_cache: index and filters.
        policy: chooses the objects to open next.
        key_of: object id -> key, for errors.
        may_refresh: whether a lookup with a short answer from an image of this version may request a newer image now.
        hints: snapshots that may be read; None = do not use hints.
    """

    index_cache: IndexCache
    policy: Policy
    key_of: Callable[[int], str]
    may_refresh: Callable[[ImageVersion], bool]
    hints: Hints | None = None
