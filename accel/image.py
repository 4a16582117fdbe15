"""The metadata image: the streams, the nodes that wrote their offsets, and the objects of each node.

An image is an immutable snapshot with a version. It does not contain the offsets in each stream set object, because
that would be too much data (so lookups open objects). It contains

- per stream: the first offset that is still kept, the ownership ranges ("from this offset on, written by node n"), and
  the objects that hold this stream alone;
- per node: its stream set objects, in the order in which a stream's offsets ascend through them (the order id). Objects
  with the same order id are in the order of their addition, as in the list of a broker; their offsets need not ascend.

An image from one place has a number as its version; a newer image has a higher number. An image that is read key by key
from versioned tables has a vector: for each key the sequence number of the value in the image.

    before = VersionVector({"node-lists/0000000004": 7, "stream-buckets/00000": 3})
    after = VersionVector({"node-lists/0000000004": 8, "stream-buckets/00000": 3})

Keys are written independently, so two vectors may be unordered: if each of two images contains a newer value of some
key, neither image is newer. A reader then keeps its image until it gets one that is older in no key. That is why
versions are compared by `is_newer`, and never by ``>`` or ``<=``.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import json
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from numpy.typing import NDArray

from accel.errors import ImageRefused
from loaders.errors import NameRefused
from loaders.layout import check_namespace
from loaders.lifetime import Lazy
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.settings import make_plain, plain_arguments

__all__ = [
    "OPEN_END",
    "UNKNOWN",
    "GivenUpRange",
    "ImageVersion",
    "MetadataImage",
    "NodeChange",
    "NodeImage",
    "ObjectFacts",
    "ObjectRef",
    "OwnershipRange",
    "StreamImage",
    "StreamObject",
    "VersionVector",
    "generation_of",
    "is_newer",
    "make_node",
    "make_stream",
    "node_of_columns",
    "version_number",
]

T = TypeVar("T")

OPEN_END = -1
"""As the end of a range: no end yet. As the end of a request: as far as there is data."""

SHOWN_NODES_MAX, SHOWN_STREAMS_MAX, SHOWN_RANGES_MAX = 50, 20, 20
"""Limits of an image in a notebook: its longest lists, its first streams, the last ranges and objects of each."""


class VersionVector(Mapping[str, int]):
    """The sequence number of each key that an image was read from. Immutable; any thread may read it.

    A missing key counts as 0, which is below the sequence of every written value; so a sequence of 0 carries no
    information, and is left out.

    >>> str(VersionVector({"a": 3, "b": 4}))
    'total 7 of 2 keys'

    Args:
        sequences: key -> sequence number; each text is a table and a key, and is unique.
        generation: the generation of the catalog: empty if it was never restored. A catalog that was restored from a
            copy gets a new, higher generation; versions of different generations are not compared by their sequences.

    Raises:
        ImageRefused: a negative sequence.
    """

    __slots__ = ("_hash", "_sequences", "generation", "total")

    generation: str
    """The generation of the catalog; ascending."""

    total: int
    """The sum of all sequences: one number that rises with every newer image, for people and for graphs."""

    def __init__(self, sequences: Mapping[str, int], generation: str = "") -> None:
        for key, sequence in sequences.items():
            if sequence < 0:
                raise ImageRefused(f"key {key!r}: expected a sequence of at least 0, found {sequence}")
        self._sequences = {key: sequence for key, sequence in sequences.items() if sequence}
        self.generation = generation
        self._hash = hash((generation, frozenset(self._sequences.items())))
        self.total = sum(self._sequences.values())

    def __getitem__(self, key: str) -> int:
        return self._sequences[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sequences)

    def __len__(self) -> int:
        return len(self._sequences)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VersionVector):
            return NotImplemented
        return self._sequences == other._sequences and self.generation == other.generation

    def __str__(self) -> str:
        life = f" in generation {self.generation}" if self.generation else ""
        return f"total {self.total} of {len(self)} {'key' if len(self) == 1 else 'keys'}{life}"

    def __repr__(self) -> str:
        life = f", {self.generation!r}" if self.generation else ""
        return f"VersionVector({self._sequences!r}{life})"

    def is_behind(self, other: VersionVector) -> bool:
        """Whether ``other`` has a higher sequence of any key. Complexity: O(keys of other)."""
        mine = self._sequences
        return any(mine.get(key, 0) < sequence for key, sequence in other._sequences.items())


ImageVersion = int | VersionVector
"""The version of an image; all images of one source have the same kind."""


def is_newer(version: ImageVersion, than: ImageVersion) -> bool:
    """Whether an image of ``version`` is newer than one of ``than``: older in no key, and newer in some key.

    >>> is_newer(VersionVector({"a": 2}), VersionVector({"a": 1}))
    True
    >>> is_newer(VersionVector({"a": 2}), VersionVector({"a": 1, "b": 1}))
    False

    Raises:
        ImageRefused: a number and a vector: these images come from different sources.

    Complexity: O(keys).
    """
    if isinstance(version, VersionVector) and isinstance(than, VersionVector):
        if version.generation != than.generation:
            return version.generation > than.generation
        return version.total > than.total and not version.is_behind(than)
    if isinstance(version, VersionVector) or isinstance(than, VersionVector):
        raise ImageRefused(
            f"expected an image of the same kind as the current one, of version {than}, found one of version "
            f"{version}: these come from different sources"
        )
    return version > than


def generation_of(version: ImageVersion) -> str:
    """The generation of an image's catalog; empty for the first, and for images that are not from a catalog."""
    return version.generation if isinstance(version, VersionVector) else ""


def version_number(version: ImageVersion) -> int:
    """A version as one number, for JSON: the number itself, or the total of a vector.

    >>> version_number(7), version_number(VersionVector({"a": 3, "b": 4}))
    (7, 7)
    """
    return version.total if isinstance(version, VersionVector) else version


@dataclass(frozen=True, slots=True)
class OwnershipRange:
    """Stream offsets [start, end) that one node wrote; the last range of a stream has no end, whatever `end` is."""

    range_index: int
    start: int
    end: int
    node_id: int


@dataclass(frozen=True, slots=True)
class StreamObject:
    """An object that holds offsets [start, end) of one stream, and nothing else."""

    ref: ObjectRef
    start: int
    end: int

    def __post_init__(self) -> None:
        if not type(self.start) is type(self.end) is int:  # quick: an image has many
            make_plain(self)


@dataclass(frozen=True, slots=True)
class GivenUpRange:
    """Stream offsets [start, end) that an object held and lost for good: an operator has given it up."""

    start: int
    end: int
    object_id: int


@dataclass(frozen=True, slots=True)
class StreamImage:
    """One stream: its first kept offset, the nodes that wrote it, and the objects of this stream alone.

    `ranges`, `stream_objects` and `given_up` ascend by start; objects that hold offsets that were given up all the same
    have precedence. `range_starts` and `object_starts` repeat those starts for bisection.
    """

    stream_id: int
    start_offset: int
    ranges: tuple[OwnershipRange, ...]
    stream_objects: tuple[StreamObject, ...]
    range_starts: tuple[int, ...]
    object_starts: tuple[int, ...]
    given_up: tuple[GivenUpRange, ...] = ()

    def owner(self, offset: int) -> OwnershipRange | None:
        """The range that contains ``offset``; the last range has no end. Complexity: O(log ranges)."""
        index = bisect.bisect_right(self.range_starts, offset) - 1
        if index < 0:
            return None
        owned = self.ranges[index]
        is_last = index == len(self.ranges) - 1
        return owned if is_last or offset < owned.end else None

    def owned_span(self, node: NodeImage) -> tuple[int, int | None]:
        """First offset and end of a node's part of the stream; the node must have one. Complexity: O(ranges).

        For an open range, the end is a lower bound from commits; None if there is none.
        """
        owned = [owned_range for owned_range in self.ranges if owned_range.node_id == node.node_id]
        head, end = max(owned[0].start, self.start_offset), owned[-1].end
        told = node.end_of(self.stream_id)
        if end == OPEN_END:
            return head, told
        return head, end if told is None else max(end, told)


class ObjectFacts(Protocol):
    """Facts from commits about the objects in one node's list. Immutable; any thread may read it.

    Each fact belongs to an object by id and size, and was read from the object's own index; unknown facts are absent.
    So a fact may exclude an object, as a filter does, and show which to open first; it is never an answer.
    """

    def excludes(self, stream_id: int) -> NDArray[np.bool_] | None:
        """By position in the list, whether the object provably lacks the stream; None if there are no such facts.

        Complexity: O(list length).
        """
        ...

    def end_of(self, stream_id: int) -> int | None:
        """A lower bound of the stream's end on this node, as of the list; None if it is not known."""
        ...


@dataclass(frozen=True, eq=False)
class NodeImage:
    """One node's stream set objects in the order of their order ids, as columns.

    The parts that only lookups use (`position_of`, `ref`, `refs`) are created on first use, and kept: an image of many
    long lists costs little until its nodes are read from. Threads: any.

    Args:
        node_id: the node.
        object_ids: in list order.
        order_ids: ascending; equal ones in the order in which the objects were added.
        sizes_bytes, index_sizes_bytes, attributes, tail_checksums: as in `ObjectRef`, -1 where unknown.
        facts: facts from commits about these objects; None if there are none, as for images from elsewhere.
    """

    node_id: int
    object_ids: NDArray[np.int64]
    order_ids: NDArray[np.int64]
    sizes_bytes: NDArray[np.int64]
    index_sizes_bytes: NDArray[np.int64]
    attributes: NDArray[np.int64]
    tail_checksums: NDArray[np.int64]
    _by_id: NDArray[np.int64] = field(repr=False)
    facts: ObjectFacts | None = field(default=None, repr=False, kw_only=True)
    mark: object = field(default_factory=object, repr=False, init=False)
    """Identifies this list for caches elsewhere, without keeping it alive."""

    def __len__(self) -> int:
        return len(self.object_ids)

    @property
    def size_bytes(self) -> int:
        """Size of all its objects; -1 if the size of one is not known. Complexity: O(objects)."""
        return UNKNOWN if (self.sizes_bytes == UNKNOWN).any() else int(self.sizes_bytes.sum())

    @Lazy
    def position_of(self) -> Mapping[int, int]:
        """Object id -> position in the list."""
        return dict(zip(self.object_ids.tolist(), range(len(self)), strict=True))

    @Lazy
    def refs(self) -> tuple[ObjectRef, ...]:
        """The objects as single values; `ref` creates one of them."""
        return tuple(map(ObjectRef, *(column.tolist() for column in self._columns_of_refs())))

    @Lazy
    def ref_of(self) -> Mapping[int, ObjectRef]:
        """Object id -> object; each is created on first use, and kept. Only subscripts are supported."""
        return _RefsMade(self.position_of, self._columns_of_refs())

    @Lazy
    def tied_ids(self) -> frozenset[int]:
        """The objects that share their order id with others: offsets need not ascend from one of these to the next."""
        same = np.zeros(len(self) + 1, dtype=np.bool_)
        same[1:-1] = self.order_ids[1:] == self.order_ids[:-1]
        return frozenset(self.object_ids[same[1:] | same[:-1]].tolist())

    def ref(self, position: int) -> ObjectRef:
        """The object at a position."""
        return self.ref_of[int(self.object_ids[position])]

    def positions(self, object_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of many ids at once, -1 for those that are not listed. Complexity: O(ids * log objects)."""
        if not len(self):
            return np.full(len(object_ids), -1, dtype=np.int64)
        slots = np.searchsorted(self.object_ids, object_ids, sorter=self._by_id)
        positions = self._by_id[np.minimum(slots, len(self) - 1)]
        return np.where(self.object_ids[positions] == object_ids, positions, -1)

    def excludes(self, stream_id: int) -> NDArray[np.bool_] | None:
        """By position, whether the object provably lacks the stream; None without facts. O(list length)."""
        return None if self.facts is None else self.facts.excludes(stream_id)

    def end_of(self, stream_id: int) -> int | None:
        """A lower bound of the stream's end on this node, as of this image; None without facts."""
        return None if self.facts is None else self.facts.end_of(stream_id)

    def _columns_of_refs(self) -> tuple[NDArray[np.int64], ...]:
        return (self.object_ids, self.sizes_bytes, self.index_sizes_bytes, self.attributes, self.tail_checksums)


class _RefsMade(dict[int, ObjectRef]):
    """Objects of a list by id, created on first use. Threads: any; two may create equal ones."""

    __slots__ = ("_columns", "_positions")

    def __init__(self, positions: Mapping[int, int], columns: tuple[NDArray[np.int64], ...]) -> None:
        super().__init__()
        self._positions = positions
        self._columns = columns

    def __missing__(self, object_id: int) -> ObjectRef:
        position = self._positions[object_id]
        object_id, size, index_size, attributes, checksum = (int(column[position]) for column in self._columns)
        made = self[object_id] = ObjectRef(object_id, size, index_size, attributes, checksum)
        return made


def make_node(node_id: int, objects: Iterable[tuple[int, ObjectRef]], *, facts: ObjectFacts | None = None) -> NodeImage:
    """A node's list from (order id, object) pairs in any order; facts use positions in order of the order ids.

    Objects that share an order id stay in the order of the pairs.

    Raises:
        ImageRefused: one object is listed twice.
    """
    pairs = sorted(objects, key=lambda pair: pair[0])
    return node_of_columns(
        node_id,
        object_ids=np.array([ref.object_id for _, ref in pairs], dtype=np.int64),
        order_ids=np.array([order for order, _ in pairs], dtype=np.int64),
        sizes_bytes=np.array([ref.size_bytes for _, ref in pairs], dtype=np.int64),
        index_sizes_bytes=np.array([ref.index_size_bytes for _, ref in pairs], dtype=np.int64),
        attributes=np.array([ref.attributes for _, ref in pairs], dtype=np.int64),
        tail_checksums=np.array([ref.tail_checksum for _, ref in pairs], dtype=np.int64),
        facts=facts,
    )


def node_of_columns(
    node_id: int,
    *,
    object_ids: NDArray[np.int64],
    order_ids: NDArray[np.int64],
    sizes_bytes: NDArray[np.int64],
    index_sizes_bytes: NDArray[np.int64],
    attributes: NDArray[np.int64],
    tail_checksums: NDArray[np.int64] | None = None,
    facts: ObjectFacts | None = None,
) -> NodeImage:
    """A node's list from columns of equal length, in list order; the arrays are used directly, and made read-only.

    Without checksums of tails, all are unknown.

    Raises:
        ImageRefused: order ids that do not ascend, or one object is listed twice.

    Complexity: O(n log n), no loop in Python.
    """
    behind = np.flatnonzero(order_ids[1:] < order_ids[:-1])
    if len(behind):
        found = f"{order_ids[behind[0] + 1]} after {order_ids[behind[0]]}"
        raise ImageRefused(f"node {node_id}: expected ascending order ids, found {found}")
    by_id = np.argsort(object_ids, kind="stable")
    ascending = object_ids[by_id]
    repeated = np.flatnonzero(ascending[1:] == ascending[:-1])
    if len(repeated):
        raise ImageRefused(f"node {node_id}: expected each object once, found object {ascending[repeated[0]]} twice")
    checksums = np.full(len(object_ids), UNKNOWN, dtype=np.int64) if tail_checksums is None else tail_checksums
    columns = (object_ids, order_ids, sizes_bytes, index_sizes_bytes, attributes, checksums, by_id)
    return NodeImage(node_id, *map(frozen, columns), facts=facts)


_range_index, _start = attrgetter("range_index"), attrgetter("start")


def make_stream(
    stream_id: int,
    start_offset: int,
    ranges: Sequence[OwnershipRange],
    stream_objects: Sequence[StreamObject],
    given_up: Sequence[GivenUpRange] = (),
) -> StreamImage:
    """A stream from its parts in any order; ranges that were given up ascend by start.

    Raises:
        ImageRefused: a negative or inverted range, or ownership ranges that overlap.
    """
    ordered = tuple(sorted(ranges, key=_range_index) if len(ranges) > 1 else ranges)
    for owned in ordered:
        if owned.start < 0 or (owned.end < owned.start and owned.end != OPEN_END):
            raise _not_a_span(f"stream {stream_id}, range {owned.range_index}", owned)
    for before, after in itertools.pairwise(ordered):
        if before.end == OPEN_END or before.end > after.start:
            raise ImageRefused(
                f"stream {stream_id}: expected range {after.range_index} to start at or after the end of range "
                f"{before.range_index}, found [{before.start}, {before.end}) and [{after.start}, {after.end})"
            )
    objects = tuple(sorted(stream_objects, key=_start) if len(stream_objects) > 1 else stream_objects)
    for held in objects:
        if not 0 <= held.start <= held.end:
            raise _not_a_span(f"stream {stream_id}, object {held.ref.object_id}", held)
    starts = tuple([owned.start for owned in ordered])
    object_starts = tuple([held.start for held in objects]) if objects else ()
    return StreamImage(stream_id, start_offset, ordered, objects, starts, object_starts, tuple(given_up))


def frozen(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same array, no longer writable."""
    column.flags.writeable = False
    return column


def _not_a_span(what: str, found: OwnershipRange | StreamObject) -> ImageRefused:
    return ImageRefused(f"{what}: expected 0 <= start <= end, found [{found.start}, {found.end})")


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The differences of a node's list between two images."""

    added: NDArray[np.int64]
    removed: NDArray[np.int64]


@plain_arguments(ImageRefused)
@dataclass(frozen=True, slots=True, eq=False)
class MetadataImage:
    """An immutable snapshot of all streams and nodes. Any thread may read it.

    Args:
        version: versions of one source ascend, as compared by `is_newer`.
        namespace: part of every object's key.
        streams: stream id -> stream.
        nodes: node id -> its list.
        unordered_streams: streams whose offsets do not ascend through some node's list (`verify` finds them). Lookups
            open all objects for these, in order, and do not rely on their order.
    """

    version: ImageVersion
    namespace: str
    streams: Mapping[int, StreamImage]
    nodes: Mapping[int, NodeImage]
    unordered_streams: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return (
            f"<MetadataImage {self.version} of {self.namespace}: {len(self.streams)} streams, {len(self.nodes)} nodes>"
        )

    def _repr_html_(self) -> str:
        """Its longest lists and first streams, for notebooks. Complexity: O(streams + objects), in columns."""
        from accel.drawing import cell_html  # noqa: PLC0415 - few images are drawn

        nodes = [node for _, node in sorted(self.nodes.items())]
        text = "\n".join([repr(self)[1:-1], *(f"node {node.node_id}: {len(node)} objects" for node in nodes)])
        return cell_html("image", self._overview(nodes), title=f"Image {self.version} of {self.namespace}", text=text)

    def _overview(self, nodes: Sequence[NodeImage]) -> dict[str, Any]:
        longest = heapq.nlargest(SHOWN_NODES_MAX, nodes, key=len)
        sizes = [node.size_bytes for node in nodes]
        first = heapq.nsmallest(SHOWN_STREAMS_MAX, self.streams)
        return {
            "version": str(self.version),
            "namespace": self.namespace,
            "streams": len(self.streams),
            "nodes": len(nodes),
            "objects": sum(map(len, nodes)),
            "bytes": UNKNOWN if UNKNOWN in sizes else sum(sizes),
            "lists": [[node.node_id, len(node), node.size_bytes] for node in longest],
            "shown_streams": [_stream_overview(self.streams[stream_id]) for stream_id in first],
        }

    @classmethod
    def from_dict(cls, metadata: Mapping[str, Any], version: int = 0, namespace: str = "DEFAULT") -> MetadataImage:
        """Build an image from plain data in the form of its JSON.

        Args:
            metadata: ``{"streams": [{stream_id, start_offset, ranges: [{range_index, start, end, node_id}],
                stream_objects: [{object_id, start, end}]}], "nodes": [{node_id, stream_set_objects: [{object_id,
                order_id}]}]}``. Objects may also have ``size``, ``index_size`` and ``attributes``; the top level may
                have ``unordered_streams``, and a set object may have ``ranges``, which are ignored. Streams or nodes
                are required, and may be empty; any other field is refused.
            version: the image's version; ``metadata["version"]`` has priority.
            namespace: the objects' namespace; ``metadata["namespace"]`` has priority.

        Raises:
            ImageRefused: a field is missing, of the wrong type, or contradicts another field.

        Complexity: O(n log n) in objects and ranges.
        """
        if not isinstance(metadata, Mapping):
            found = type(metadata).__name__  # type: ignore[unreachable]  # it comes from outside
            raise ImageRefused(f"expected an image as an object with streams and nodes, found {found}")
        plain = {"version": version, "namespace": namespace, **metadata}
        try:
            return cls._of(msgspec.convert(plain, _ImageForm))
        except msgspec.ValidationError as error:
            raise _refusal(plain, str(error)) from error

    @classmethod
    def from_json(cls, data: bytes) -> MetadataImage:
        """As `from_dict`, for JSON text, in a tenth of the time.

        Raises:
            ImageRefused: as `from_dict`.
            ValueError: not JSON.
            RecursionError: lists or objects nested too deeply.
        """
        try:
            form = _form_of_json().decode(data)
        except (msgspec.MsgspecError, RecursionError):
            plain = json.loads(data)  # it reads other encodings, and `from_dict` reports the place of the error
            if not isinstance(plain, dict):
                raise ImageRefused(f"expected an image as a JSON object, found {type(plain).__name__}") from None
            return cls.from_dict(plain)
        return cls._of(form)

    @classmethod
    def _of(cls, form: _ImageForm) -> MetadataImage:
        if form.streams is UNSET and form.nodes is UNSET:
            raise ImageRefused("image: expected streams or nodes, which may be empty, found neither")
        try:
            check_namespace(form.namespace)
        except NameRefused as error:
            raise ImageRefused(f"image: {error}") from error
        streams = _by_id("stream", (_stream_of(row) for row in form.streams or ()), attrgetter("stream_id"))
        nodes = _by_id("node", (_node_of(row) for row in form.nodes or ()), attrgetter("node_id"))
        return cls(form.version, form.namespace, streams, nodes, form.unordered_streams)

    def node(self, node_id: int) -> NodeImage:
        """The list of a node; an empty one for an unknown node."""
        listed = self.nodes.get(node_id)
        return make_node(node_id, []) if listed is None else listed

    def changes(self, newer: MetadataImage) -> dict[int, NodeChange]:
        """Objects added to and removed from lists between this image and a newer one, for the nodes that differ.

        An object whose size or attributes changed counts as both removed and added. Nodes that share their `NodeImage`
        cost nothing. Complexity: O(n log n) in the objects of the nodes that differ.
        """
        changed = {}
        for node_id in self.nodes.keys() | newer.nodes.keys():
            before, after = self.nodes.get(node_id), newer.nodes.get(node_id)
            if before is after:
                continue
            change = _change(before or make_node(node_id, []), after or make_node(node_id, []))
            if len(change.added) or len(change.removed):
                changed[node_id] = change
        return changed


def _stream_overview(stream: StreamImage) -> dict[str, Any]:
    ranges = stream.ranges[-SHOWN_RANGES_MAX:]
    ends = [*(owned.end for owned in ranges[:-1]), OPEN_END]  # the last one has no end
    return {
        "stream_id": stream.stream_id,
        "start": stream.start_offset,
        "owned": [[owned.start, end, owned.node_id] for owned, end in zip(ranges, ends, strict=False)],
        "left_out": len(stream.ranges) - len(ranges),
        "own": [[held.start, held.end] for held in stream.stream_objects[-SHOWN_RANGES_MAX:]],
        "own_count": len(stream.stream_objects),
    }


def _change(before: NodeImage, after: NodeImage) -> NodeChange:
    return NodeChange(added=_not_in(after, before), removed=_not_in(before, after))


def _not_in(these: NodeImage, those: NodeImage) -> NDArray[np.int64]:
    if not len(those):
        return these.object_ids
    positions = those.positions(these.object_ids)
    same = (
        (positions >= 0)
        & (those.sizes_bytes[positions] == these.sizes_bytes)
        & (those.attributes[positions] == these.attributes)
    )
    missing: NDArray[np.int64] = these.object_ids[~same]
    return missing


# -- plain data --------------------------------------------------------------------------------------------------------


Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
End = Annotated[int, Meta(ge=OPEN_END, le=2**63 - 1)]
Size = Annotated[int, Meta(ge=UNKNOWN, le=2**63 - 1)]
Attributes = Annotated[int, Meta(ge=-(2**31), le=2**63 - 1)]


class _Form(Struct, forbid_unknown_fields=True, gc=False):
    # Unknown fields are refused: a misspelt field would otherwise be ignored, and its contents lost. Forms have no
    # cycles, so the garbage collector need not track hundreds of thousands of them.
    pass


class _RangeForm(_Form):
    range_index: Number
    start: Number
    end: End
    node_id: Number


class _ObjectForm(_Form):
    object_id: Number
    size: Size = UNKNOWN
    index_size: Size = UNKNOWN
    attributes: Attributes = UNKNOWN

    def ref(self) -> ObjectRef:
        return ObjectRef(self.object_id, self.size, self.index_size, self.attributes)


class _StreamObjectForm(_ObjectForm, kw_only=True):
    start: Number
    end: Number


class _SetObjectForm(_ObjectForm, kw_only=True):
    order_id: Number
    ranges: Any = None  # cases and fixtures contain the ranges of an object; only its index is used


class _StreamForm(_Form):
    stream_id: Number
    start_offset: Number
    ranges: list[_RangeForm] = []
    stream_objects: list[_StreamObjectForm] = []


class _NodeForm(_Form):
    node_id: Number
    stream_set_objects: list[_SetObjectForm] = []


class _ImageForm(_Form):
    version: Number = 0
    namespace: str = "DEFAULT"
    streams: list[_StreamForm] | UnsetType = UNSET
    nodes: list[_NodeForm] | UnsetType = UNSET
    unordered_streams: frozenset[int] = frozenset()


@cache
def _form_of_json() -> msgspec.json.Decoder[_ImageForm]:
    # Created on first use: it takes milliseconds, and most programs do not read images from JSON.
    return msgspec.json.Decoder(_ImageForm)


_FORMS: dict[str, type[Struct]] = {
    "": _ImageForm,
    "streams": _StreamForm,
    "ranges": _RangeForm,
    "stream_objects": _StreamObjectForm,
    "nodes": _NodeForm,
    "stream_set_objects": _SetObjectForm,
}
_KINDS = {"int": "an integer", "str": "a text", "array": "a list", "object": "an object"}


def _stream_of(form: _StreamForm) -> StreamImage:
    ranges = [OwnershipRange(row.range_index, row.start, row.end, row.node_id) for row in form.ranges]
    objects = (
        [StreamObject(row.ref(), row.start, row.end) for row in form.stream_objects] if form.stream_objects else ()
    )
    return make_stream(form.stream_id, form.start_offset, ranges, objects)


def _node_of(form: _NodeForm) -> NodeImage:
    return make_node(form.node_id, [(row.order_id, row.ref()) for row in form.stream_set_objects])


def _by_id(what: str, parts: Iterable[T], id_of: Callable[[T], int]) -> dict[int, T]:
    by_id: dict[int, T] = {}
    for part in parts:
        if by_id.setdefault(id_of(part), part) is not part:
            raise ImageRefused(f"expected each {what} once, found {what} {id_of(part)} twice")
    return by_id


def _refusal(metadata: Mapping[str, Any], said: str) -> ImageRefused:
    """The error of plain data, with its place: the decoder's message names the path, the data has the value there."""
    said, _, path = said.partition(" - at `$")
    value: Any = metadata
    where, name, listed = "image", "", ""
    for key, number in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        if number:
            where, listed, name, value = f"{where}, {name}[{number}]", name, "", value[int(number)]
            continue
        id_name = {"streams": "stream_id", "nodes": "node_id"}.get(listed, key)
        if key != id_name and type(value.get(id_name)) is int:
            where = f"{id_name[:-3]} {value[id_name]}"
        name, value = key, value[key]
    if "unknown field" in said:
        known = _FORMS[listed].__struct_fields__
        names = sorted(map(reprlib.repr, value.keys() - set(known)))
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        return ImageRefused(f"{where}: expected fields among {', '.join(sorted(known))}, found {shown}")
    if match := re.fullmatch(r"Object missing required field `(\w+)`", said):
        return ImageRefused(f"{where}: expected {match[1]}, found nothing")
    if match := re.fullmatch(r"Expected `(\w+)`(?:, got `\w+`| ([<>])= (-?\d+))", said):
        kind = _KINDS[match[1]] + (f" of at {'least' if match[2] == '>' else 'most'} {match[3]}" if match[2] else "")
        expected = f"{name} as {kind}" if name else kind
        return ImageRefused(f"{where}: expected {expected}, found {reprlib.repr(value)}")
    return ImageRefused(f"{where}: {said}")
