"""What the generators of this package ask of their driver, and what they are sent.

Lookups (`search.py`) and reads of data (`reading.py`) are generators without I/O. All that one step asks for is fetched
at the same time; a lookup is sent what has come as soon as some of it has, and goes on if that decides what it wanted
to know. If it does not, it waits for more. A driver, for threads or for asyncio, does the waiting.

    | step         | please                                                         | answered with             |
    |--------------|----------------------------------------------------------------|---------------------------|
    | OpenObjects  | open these objects of a node                                   | position -> what it holds |
    | AwaitMore    | wait for more of what was asked for in this node's list        | the same, or HintReply    |
    | ReadRoot     | read the root of the node's snapshot, and open these objects   | HintReply                 |
    | ReadEntries  | read a stream's entries in that snapshot, and open the objects | HintReply                 |
    | NeedImage    | get an image newer than a version                              | image, RefreshFailed, None|
    | CurrentImage | give the newest image at hand                                  | image                     |
    | Begin        | begin an OpenObject or a FetchSpan, and do not wait for it      | what is at hand, or None  |
    | AwaitAny     | wait for any of what was begun, or for a lookup's step          | Came                      |

The first four are answered with whatever has come of all that the search asked for in the node's list and was not told
yet: at least one object, or the hint. An answer without either says that what is under way is slow: the search may go
on without it, or wait once more. None says that the time is over: the lookup ends with a partial answer. What a lookup
may ask of memory itself stands here too, as protocols: the index cache, and the snapshots that were read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from accel.errors import AccelError
from accel.image import ImageVersion, MetadataImage, NodeImage, ObjectRef
from accel.lookup.known_ranges import Flags
from loaders.hints import ByteSpan, HintProblem, KnownRoot, SnapshotRoot, StreamEntries
from loaders.object_index import OpenedObject
from loaders.plan import Policy
from range_index import ObjectRanges, StreamView

R = TypeVar("R")

Reply = ObjectRanges | AccelError
"""What one object holds, or why it could not be opened."""

SnapshotKnown = KnownRoot[SnapshotRoot]
"""What is known of a node's snapshot: its root, or why there is none that can be used."""


# -- steps of a lookup -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class OpenObjects:
    """Please open these objects: positions, ascending, in the list of a node."""

    node: NodeImage
    positions: tuple[int, ...]

    def refs(self) -> list[ObjectRef]:
        """The objects at the positions."""
        return [self.node.ref(position) for position in self.positions]


@dataclass(frozen=True, slots=True, eq=False)
class AwaitMore(OpenObjects):
    """Please wait until more has come of what was asked for in this node's list; nothing new is asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadRoot(OpenObjects):
    """Please read the root of the node's snapshot; and open these objects, perhaps none, at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadEntries(OpenObjects):
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
    """What came of a `ReadRoot` or `ReadEntries`.

    Args:
        known: what is known of the snapshot now; None if the store could not say.
        entries: the stream's entries; None if they were not asked for, or cannot be used.
        problem: why there is nothing to use.
        requests: how many requests it took.
        bytes_read: how many bytes these fetched.
        objects: position -> what the object there holds; of those that were asked for besides.
    """

    known: SnapshotKnown | None
    entries: StreamEntries | None
    problem: HintProblem | AccelError | None
    requests: int = 0
    bytes_read: int = 0
    objects: Mapping[int, Reply] = field(default_factory=dict)

    def beside(self, objects: Mapping[int, Reply]) -> HintReply:
        """The same, with what opened objects hold."""
        return replace(self, objects=objects)


@dataclass(frozen=True, slots=True)
class NeedImage:
    """Please give an image newer than this version, without waiting for one, or None."""

    version: ImageVersion


@dataclass(frozen=True, slots=True)
class RefreshFailed:
    """Whether there is a newer image is not known: the source of images failed.

    Args:
        unconfirmed_seconds: how long ago the image at hand was last known to be the newest.
        reason: what went wrong, for people.
    """

    unconfirmed_seconds: float
    reason: str


# -- steps of a read ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CurrentImage:
    """Please give the newest image at hand."""


@dataclass(frozen=True, slots=True)
class OpenObject:
    """Please open the index of this object of a node (-1 for a stream object)."""

    group: int
    ref: ObjectRef


@dataclass(frozen=True, slots=True)
class FetchSpan:
    """Please fetch bytes [start, end) of an object."""

    object_id: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Announce:
    """A later read is to want these bytes: please have them on their way. Answered with None, at once."""

    span: FetchSpan


@dataclass(frozen=True, slots=True)
class Begin:
    """Please begin this without waiting for it; what comes of it is named by the ticket, which was used for no other.

    Answered with the index of an object that is in memory, and with None for all else.
    """

    ticket: int
    step: OpenObject | FetchSpan


@dataclass(frozen=True, slots=True)
class AwaitAny:
    """Please wait until any of what was begun has come, or anything for this step of a lookup; None = no lookup waits.

    A step that is handed over again is not begun again.
    """

    lookup: OpenObjects | None


LookupStep = OpenObjects | NeedImage
Step = LookupStep | CurrentImage | Begin | Announce | AwaitAny

Sent = Mapping[int, Reply] | HintReply | MetadataImage | RefreshFailed | None
"""What a lookup is sent."""

Begun = OpenedObject | bytes | memoryview | AccelError
"""What comes of what was begun; an error stands for what it would have been."""


@dataclass(frozen=True, slots=True)
class Came:
    """What came of what was begun, by ticket; and the answer to the step of the lookup, None if there is none yet.

    With `is_image_due` the image of this lookup was the current one some time ago: the rest is to be looked up anew.
    """

    begun: Mapping[int, Begun]
    lookup: Mapping[int, Reply] | HintReply | None
    is_image_due: bool = False


ReadSent = Sent | Begun | Came
"""What a read is sent."""

Searching = Generator[OpenObjects, Sent, R]
"""A part of a search that comes to a result."""


class ImageStale(AccelError):
    """A listed object is gone: look again with a newer image. Drivers handle it; callers never see it."""

    def __init__(self, node: NodeImage, position: int) -> None:
        super().__init__(f"object {node.object_ids[position]} of node {node.node_id} is listed and gone")
        self.node_id = node.node_id
        self.ref = node.ref(position)


# -- what may be asked of memory ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class IndexFacts:
    """What is known about one stream in one node's list, all at one moment.

    Args:
        view: the stream's entries in the index.
        loaded: by position, whether the object's arrays are in memory (then the view has its entry, if it has one).
        filtered: by position, whether a filter excludes the stream.
    """

    view: StreamView
    loaded: Flags
    filtered: Flags


class IndexCache(Protocol):
    """What a lookup asks of the index and the filters."""

    def view(self, node_id: int, stream_id: int) -> StreamView:
        """The entries of a stream, from memory."""
        ...

    def is_ordered(self, node: NodeImage, stream_id: int, view: StreamView) -> bool:
        """Whether the view's listed entries ascend through the list without overlap."""
        ...

    def facts(self, node: NodeImage, stream_id: int) -> IndexFacts:
        """View, loaded objects and filters, taken together."""
        ...

    def with_filter(self, node: NodeImage, positions: Sequence[int]) -> set[int]:
        """Those of these positions of a list whose objects have a filter in memory."""
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


@dataclass(frozen=True, slots=True)
class Inputs:
    """What all lookups of one accelerator share.

    Args:
        index_cache: index and filters.
        policy: which objects to open next.
        key_of: object id -> key, for errors.
        may_refresh: whether a lookup that found too little may ask for a newer image now.
        hints: snapshots that may be asked; None to do without.
    """

    index_cache: IndexCache
    policy: Policy
    key_of: Callable[[int], str]
    may_refresh: Callable[[], bool]
    hints: Hints | None = None
