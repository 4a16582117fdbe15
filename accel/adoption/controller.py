"""Compaction for a controller: planned, merged and checked here, committed by the controller.

    1 plan      which neighbours in a node's list to merge, by the rules of `accel.compaction`
    2 ids       the controller supplies ids for the outputs
    3 merge     the outputs are written under these ids, and their indexes are read back
    4 check     outputs hold exactly what the sources hold, above the first kept offsets
    5 commit    the controller receives a `Swap`, which replaces the sources in the list by the outputs

Step 5 is a callback, or a file of swaps that the controller applies later. A controller applies a swap as a whole, and
only while all sources are still in the node's list, adjacent, with the same size and order id; otherwise it refuses the
swap. A swap's id is a digest of its contents, so that a swap that is received twice is recognised.

Nothing is deleted here: neither the sources of a committed swap, which readers with old images still need, nor the
outputs of a refused one. The report lists both, and the controller deletes them when its own rules allow it.

    | what the callback does         | status    | the outputs                                                        |
    |--------------------------------|-----------|--------------------------------------------------------------------|
    | returns                        | COMMITTED | are listed                                                         |
    | raises `SwapRefused`           | REFUSED   | are unused; their ids are in the report                            |
    | raises something else          | UNKNOWN   | may be listed: the reply may be lost; pass the swap on again       |
    | (a merge or check failed)      | FAILED    | none, or unused                                                    |

A source that cannot be read fails its group; its neighbours on either side are merged as groups of their own, in the
same run. The report names such objects. A controller that gives their ids to the next plan (`set_aside`) lets it leave
them alone. A group that failed for a reason that may pass is tried once more, under new ids.

Nodes can be planned and groups merged and checked in other processes (`Elsewhere`). Ids are taken and swaps are passed
on only by the calling process, when all of them have ended. An attempt writes under ids of its own: one without, as it
was started again, gives its group back for another round.

Crash safety: outputs are written before the swap is passed on, so a crash leaves only unlisted objects, under ids that
the controller supplied.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count, takewhile
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from accel.catalog.argument_checks import refuse_unknown_nodes
from accel.catalog.bad_objects import BadObject
from accel.catalog.compact import refuse_lossy_compaction
from accel.catalog.dead_objects import FirstKept
from accel.catalog.from_image import ImageAccess, ImageCatalog, live_rows_of
from accel.catalog.records import STREAM, Rows, stream_object_rows
from accel.compaction.attempts import bad_source, merge_group
from accel.compaction.plan import CompactionPlan, FailedNode, Group, NodeLeftAlone, NodePlan, assemble_plan
from accel.compaction.planning import HOUR_MS, NodeSurvey, plan_each
from accel.compaction.running import ROUNDS_MAX
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, ImageRefused, MaintenanceRefused, ObjectExists
from accel.image import MetadataImage, NodeImage, StreamObject, make_node, make_stream, version_number
from accel.system import Components
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.store import ObjectStore

logger = logging.getLogger(__name__)

FORM: Final = "accel-compaction"
FORM_VERSION: Final = 1

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Known = Annotated[int, Meta(ge=UNKNOWN, le=2**63 - 1)]

TakeIds = Callable[[int], Sequence[int]]
"""Returns the requested number of object ids, which are never used for other objects."""


@dataclass(frozen=True, slots=True, eq=False)
class MergeItem:
    """A group to merge; the argument of `merge_for_controller`. Picklable.

    Args:
        group: the group.
        ids: ids of the outputs, for each attempt.
    """

    group: Group
    ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class MergedGroup:
    """The result of an attempt to merge and check a group. Picklable.

    Args:
        group: the group.
        added: the object of many streams; None if there is none.
        stream_objects: (stream id, object of that stream alone) pairs.
        streams: the number of streams of the object of many streams.
        reason: why it failed; else empty.
        bad: the source that could not be read; None if there is none.
        is_retryable: whether another attempt may succeed where this one failed.
        written_ids: under which outputs may have been written; None if they are not known: no attempt has returned.
    """

    group: Group
    added: ObjectRef | None = None
    stream_objects: tuple[tuple[int, StreamObject], ...] = ()
    streams: int = 0
    reason: str = ""
    bad: BadObject | None = None
    is_retryable: bool = False
    written_ids: tuple[int, ...] | None = ()


class Elsewhere(NamedTuple):
    """Plans nodes and merges groups in other processes.

    Attributes:
        plan: calls `plan_node` for each survey; returns the plans, in any order, and the nodes that failed.
        merge: calls `merge_for_controller` for each item, and returns the results in any order.
        attempts_at_once: the number of attempts at a group that may run at the same time.
    """

    plan: Callable[[Sequence[NodeSurvey], CompactionSettings], Iterable[NodePlan | FailedNode]]
    merge: Callable[[Iterable[MergeItem], CompactionSettings], Iterable[MergedGroup]]
    attempts_at_once: int = 1


class _Form(Struct, frozen=True, forbid_unknown_fields=True):
    """Part of a stored swap: a misspelt field is refused."""


class SwapSource(_Form, frozen=True):
    """An object that leaves the list.

    Args:
        object_id, order_id, size_bytes: as the list had them.
    """

    object_id: Id
    order_id: Id
    size_bytes: Id


class SwapOutput(_Form, frozen=True):
    """The object of many streams that replaces the sources.

    Args:
        object_id: one of the ids that the controller supplied.
        order_id: the lowest order id of the sources.
        size_bytes, index_size_bytes, attributes: as in `ObjectRef`.
        tail_checksum: of its index, footer and size.
        data_time_ms: of the oldest data, milliseconds since 1970; -1 if it is known of no source.
        streams: the number of its streams.
    """

    object_id: Id
    order_id: Id
    size_bytes: Id
    index_size_bytes: Known
    attributes: int
    tail_checksum: Known
    data_time_ms: Known
    streams: Id


class SwapStreamObject(_Form, frozen=True):
    """An object of one stream that was merged from the sources.

    Args:
        stream_id: the stream.
        object_id: one of the ids that the controller supplied.
        start, end: the offsets that it holds.
        size_bytes, index_size_bytes, attributes, tail_checksum: as of an output.
    """

    stream_id: Id
    object_id: Id
    start: Id
    end: Id
    size_bytes: Id
    index_size_bytes: Known
    attributes: int
    tail_checksum: Known


class Swap(_Form, frozen=True):
    """One merged group: the change that a controller makes in one step. Immutable.

    Args:
        swap_id: 32 hexadecimal digits, a digest of all other fields.
        namespace: of the objects' keys.
        node_id: the node of the list.
        sources: neighbours in the list, in its order.
        output: the object that replaces them; None if all streams got their own objects, or no records are left.
        stream_objects: objects of one stream, to be listed with their streams.
    """

    swap_id: str
    namespace: str
    node_id: Id
    sources: tuple[SwapSource, ...]
    output: SwapOutput | None
    stream_objects: tuple[SwapStreamObject, ...]

    @property
    def object_ids(self) -> tuple[int, ...]:
        """Ids of all outputs."""
        own = () if self.output is None else (self.output.object_id,)
        return (*own, *(stream_object.object_id for stream_object in self.stream_objects))


class _Document(_Form, frozen=True):
    form: str
    version: int
    swaps: list[Swap]


class SwapRefused(Exception):
    """Raised by a controller's callback to refuse a swap, with the reason; no metadata was changed."""


class SwapStatus(StrEnum):
    """How a group ended."""

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, eq=False)
class SwapResult:
    """The result of a group.

    Args:
        group: of the plan.
        status: how it ended.
        swap: the swap that was passed on; None if the group failed before.
        reason: of any status but COMMITTED.
        unlisted_ids: ids of outputs that may have been written and are not listed, for the controller to delete. Empty
            for an UNKNOWN swap, whose outputs may be listed, and where an id was already in use.
        bad: the source that could not be read; None if the group failed for another reason, or not at all.
    """

    group: Group
    status: SwapStatus
    swap: Swap | None = None
    reason: str = ""
    unlisted_ids: tuple[int, ...] = ()
    bad: BadObject | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        return {
            **self.group.to_dict(),
            "status": str(self.status),
            "swap_id": None if self.swap is None else self.swap.swap_id,
            "outputs": [] if self.swap is None else list(self.swap.object_ids),
            "reason": self.reason,
            "unlisted_ids": list(self.unlisted_ids),
        }


@dataclass(frozen=True, slots=True, eq=False)
class ControllerReport:
    """The results of a run.

    Args:
        groups: in the order in which they were passed on: objects that nothing is needed of, then merged groups; after
            one with a source that could not be read, those of its neighbours.
        bad_objects: the objects that could not be read, of planning and of merging.
        reasons: why nodes keep more objects than their target, or are left alone.
    """

    groups: tuple[SwapResult, ...]
    bad_objects: tuple[BadObject, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether any group ended with another status than committed, or an object could not be read."""
        return bool(self.bad_objects) or any(result.status is not SwapStatus.COMMITTED for result in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        counts = {f"{status}_groups": sum(result.status is status for result in self.groups) for status in SwapStatus}
        bad = [each.to_dict() for each in self.bad_objects]
        groups = [result.to_dict() for result in self.groups]
        return {**counts, "groups": groups, "bad_objects": bad, "reasons": list(self.reasons)}


def plan_for_controller(
    store: ObjectStore,
    image: MetadataImage,
    settings: CompactionSettings,
    *,
    system: Components,
    data_times_ms: Mapping[int, int] | None = None,
    set_aside: Collection[int] = (),
    elsewhere: Elsewhere | None = None,
) -> CompactionPlan:
    """Plan which objects to merge; writes nothing. Requests: those of `plan_node`.

    Data of streams that the image does not have is kept: the image may be older than such a stream.

    Args:
        store: the store of the objects.
        image: the controller's metadata; objects of nodes to be compacted have sizes.
        settings: when and how much. The age of an object is that of its data; without a data time it is old enough.
        system: clock and random source.
        data_times_ms: object id -> milliseconds since 1970 of its oldest data.
        set_aside: ids of objects that are left alone, because earlier runs could not read them.
        elsewhere: plans the nodes; None = in this process.

    Raises:
        MaintenanceRefused: the plan would make too many objects of one stream, or sizes are not known.
    """
    bad = np.array(sorted(set_aside), dtype=np.int64)
    now_ms = int(system.clock() * 1000)
    surveys, left_alone = _surveys(image, settings, now_ms, data_times_ms or {})
    surveys = [replace(survey, set_aside=bad) for survey in surveys]
    with ImageCatalog(store, image, system=system) as foreign:
        found = (elsewhere or _here(foreign.parts)).plan(surveys, settings)
        return assemble_plan(now_ms, settings, found, tuple(left_alone))


def _here(access: ImageAccess) -> Elsewhere:
    """This process does it, one after another."""
    return Elsewhere(
        lambda surveys, settings: plan_each(access, surveys, settings),
        lambda items, settings: (merge_for_controller(access, item, settings) for item in items),
    )


def compact_for_controller(
    store: ObjectStore,
    image: MetadataImage,
    plan: CompactionPlan,
    *,
    take_ids: TakeIds,
    commit: Callable[[Swap], object],
    system: Components,
    data_times_ms: Mapping[int, int] | None = None,
    elsewhere: Elsewhere | None = None,
) -> ControllerReport:
    """Carry a plan out, group by group: merge, check, and pass each result to the controller.

    Args:
        store, system, data_times_ms: as in `plan_for_controller`.
        image: the image of the plan.
        plan: of `plan_for_controller`.
        take_ids: returns ids for the outputs. If another object has an id, the store refuses the write, and the group
            fails.
        commit: commits a swap, or raises; see the table above. To write a file of swaps, collect them here.
        elsewhere: merges the groups; None = in this process, one after another.

    A group that fails is in the report, and does not affect the others.
    """
    with ImageCatalog(store, image, system=system) as foreign:
        run = _Run(image, plan.settings, take_ids, commit, data_times_ms or {}, elsewhere or _here(foreign.parts))
        results = [run.retire(group) for node in plan.nodes for group in _dead_runs(image, node)]
        results += run.merge(plan.groups)
    bad = [each for node in plan.nodes for each in node.bad]
    bad += [result.bad for result in results if result.bad is not None]
    return ControllerReport(tuple(results), tuple(bad), plan.reasons)


def merge_for_controller(
    access: ImageAccess, item: MergeItem, settings: CompactionSettings, *, attempt: int = 0
) -> MergedGroup:
    """Merge a group and check the outputs, as one of any number of attempts. A failure is a result.

    Args:
        access: to the objects.
        item: the group.
        settings: the plan's.
        attempt: from 0; one that the item has no ids for gives the group back.
    """
    group, tried = item.group, list[int]()
    if attempt >= len(item.ids):
        return MergedGroup(group, reason="an earlier attempt did not return", is_retryable=True, written_ids=None)

    def prepare(count: int) -> Sequence[int]:
        tried.extend(item.ids[attempt][:count])
        return tried

    try:
        outcome = merge_group(access, group, settings, prepare)
        ranges = outcome.ranges
        rows = stream_object_rows(outcome.stream_objects, group.node_id, 0)
        kept = np.array(list(zip(group.trimmed_ids, group.trimmed_starts, strict=True)), dtype=STREAM)
        refuse_lossy_compaction(ranges.sources, ranges.output, rows, kept)
    except Exception as error:
        logger.warning("%s: not compacted", group.name, exc_info=True)
        # One of these ids is in use by another object: then none of them is reported for deletion.
        written = () if isinstance(error, ObjectExists) else tuple(tried)
        bad, may_pass = bad_source(access, group, error), isinstance(error, AccelError) and error.retryable
        return MergedGroup(group, reason=_reason(error), bad=bad, is_retryable=may_pass, written_ids=written)
    streams = 0 if ranges.output is None else len(ranges.output.stream_ids)
    return MergedGroup(group, outcome.added, outcome.stream_objects, streams, written_ids=tuple(tried))


class _Run:
    """Lets groups be merged, and passes them to the controller. Threads: one."""

    def __init__(
        self,
        image: MetadataImage,
        settings: CompactionSettings,
        take_ids: TakeIds,
        commit: Callable[[Swap], object],
        data_times_ms: Mapping[int, int],
        elsewhere: Elsewhere,
    ) -> None:
        self._image = image
        self._settings = settings
        self._take_ids = take_ids
        self._commit = commit
        self._data_times_ms = data_times_ms
        self._elsewhere = elsewhere
        self._listed = _listed_ids(image)
        self._failed: list[SwapResult] = []

    def merge(self, groups: Sequence[Group]) -> list[SwapResult]:
        """Merge groups, in rounds, and pass each on; ids are taken as the items of a round are read."""
        results: list[SwapResult] = []
        todo, tried_again, unlisted = list(groups), set[str](), dict[str, tuple[int, ...]]()
        for _ in range(ROUNDS_MAX):
            given: dict[str, MergeItem] = {}
            items, todo = self._items(todo, given), []
            for merged in self._elsewhere.merge(items, self._settings):
                item = given.pop(merged.group.name)
                left = unlisted.pop(merged.group.name, ()) + self._left_over(item, merged)
                if merged.is_retryable and merged.group.name not in tried_again:
                    tried_again.add(merged.group.name)
                    todo.append(item.group)
                    unlisted[item.group.name] = left
                    continue
                result = self._passed_on(merged, left)
                results.append(result)
                todo += [] if result.bad is None else result.group.beside(result.bad.object_id)
            results += self._failed
            self._failed = []
            if not todo:
                break
        return results

    def _items(self, groups: Sequence[Group], given: dict[str, MergeItem]) -> Iterator[MergeItem]:
        """The items of groups, with ids; a group that no ids were supplied for has failed."""
        for group in groups:
            try:
                count = group.set_objects + group.stream_objects
                ids = tuple(tuple(self._new_ids(count)) for _ in range(self._elsewhere.attempts_at_once))
            except Exception as error:
                logger.warning("%s: no ids", group.name, exc_info=True)
                self._failed.append(SwapResult(group, SwapStatus.FAILED, None, _reason(error)))
            else:
                given[group.name] = MergeItem(group, ids)
                yield given[group.name]

    def _left_over(self, item: MergeItem, merged: MergedGroup) -> tuple[int, ...]:
        """Ids of attempts that others overtook, or that did not return: objects may have been written under them."""
        if merged.written_ids is not None and len(item.ids) == 1:
            return ()
        own = set(merged.written_ids or ())
        return tuple(each for ids in item.ids if own.isdisjoint(ids) for each in ids)

    def _passed_on(self, merged: MergedGroup, left: tuple[int, ...]) -> SwapResult:
        if not merged.reason:
            result = self._hand_over(merged)
            return replace(result, unlisted_ids=left + result.unlisted_ids)
        unlisted = left + (merged.written_ids or ())
        return SwapResult(merged.group, SwapStatus.FAILED, None, merged.reason, unlisted, merged.bad)

    def retire(self, group: Group) -> SwapResult:
        """Pass on a swap without outputs: the plan has shown by their indexes that nothing of the sources is needed."""
        return self._hand_over(MergedGroup(group))

    def _new_ids(self, count: int) -> list[int]:
        ids = list(self._take_ids(count))
        if len(set(ids)) != count:
            raise MaintenanceRefused(f"expected {count} different object ids from the controller, found {ids}")
        if listed := sorted(self._listed.intersection(ids)):
            raise MaintenanceRefused(
                f"expected new object ids from the controller, found {listed}, which the image lists"
            )
        return ids

    def _hand_over(self, merged: MergedGroup) -> SwapResult:
        swap = self._swap_of(merged)
        try:
            self._commit(swap)
        except SwapRefused as error:
            return SwapResult(merged.group, SwapStatus.REFUSED, swap, str(error), swap.object_ids)
        except Exception as error:
            logger.warning("%s: the controller may or may not have committed it", merged.group.name, exc_info=True)
            return SwapResult(merged.group, SwapStatus.UNKNOWN, swap, _reason(error))
        return SwapResult(merged.group, SwapStatus.COMMITTED, swap)

    def _swap_of(self, merged: MergedGroup) -> Swap:
        group = merged.group
        node = self._image.node(group.node_id)
        orders = [int(node.order_ids[node.position_of[ref.object_id]]) for ref in group.sources]
        sources = tuple(
            SwapSource(ref.object_id, order_id, ref.size_bytes)
            for ref, order_id in zip(group.sources, orders, strict=True)
        )
        times = [self._data_times_ms.get(ref.object_id, UNKNOWN) for ref in group.sources]
        output = None if merged.added is None else _output(merged.added, min(orders), _oldest(times), merged.streams)
        own = tuple(_stream_output(stream_id, made) for stream_id, made in merged.stream_objects)
        swap = Swap("", self._image.namespace, group.node_id, sources, output, own)
        return msgspec.structs.replace(swap, swap_id=_digest(swap))


def _dead_runs(image: MetadataImage, node: NodePlan) -> Iterator[Group]:
    """The dead objects of a node, as groups of neighbours without an output."""
    refs = {image.node(node.node_id).position_of[ref.object_id]: ref for ref in node.dead}
    for first in (position for position in refs if position - 1 not in refs):
        run = tuple(refs[at] for at in takewhile(refs.__contains__, count(first)))
        none = np.empty(0, dtype=np.int64)
        yield Group(node.node_id, first, run, none, none, 0, 0, 0, 0, sum(ref.size_bytes for ref in run))


def _surveys(
    image: MetadataImage, settings: CompactionSettings, now_ms: int, data_times_ms: Mapping[int, int]
) -> tuple[list[NodeSurvey], list[NodeLeftAlone]]:
    trimmed = _first_kept(image)
    ids, starts = trimmed["stream_id"].copy(), trimmed["start_offset"].copy()
    first_kept = FirstKept(ids, starts, np.zeros(len(ids), dtype=np.bool_))
    refuse_unknown_nodes(settings.nodes, image.nodes)
    counts = {node_id: len(node) for node_id, node in sorted(image.nodes.items())}
    recent = {object_id for object_id, time_ms in data_times_ms.items() if time_ms > now_ms - HOUR_MS}
    coming = {node_id: len(recent & node.position_of.keys()) for node_id, node in image.nodes.items()}
    targets = settings.targets(counts, coming)
    surveys, left_alone = [], []
    for node_id, objects in counts.items():
        node, is_chosen = image.nodes[node_id], settings.nodes is None or node_id in settings.nodes
        may_shrink = bool(len(ids)) and objects > 0 and is_chosen and UNKNOWN not in node.sizes_bytes
        if node_id in targets or may_shrink:
            live, may_be_trimmed = live_rows_of(node, data_times_ms), np.full(objects, len(ids) > 0)
            surveys.append(NodeSurvey(node_id, live, targets.get(node_id, objects), now_ms, first_kept, may_be_trimmed))
        else:
            left_alone.append(NodeLeftAlone(node_id, objects, settings.reason_to_leave(node_id, objects)))
    return surveys, left_alone


def _first_kept(image: MetadataImage) -> Rows:
    starts = sorted((stream_id, stream.start_offset) for stream_id, stream in image.streams.items())
    return np.array([pair for pair in starts if pair[1] > 0], dtype=STREAM)


def _listed_ids(image: MetadataImage) -> set[int]:
    own = (held.ref.object_id for stream in image.streams.values() for held in stream.stream_objects)
    return {object_id for node in image.nodes.values() for object_id in node.position_of}.union(own)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _oldest(times_ms: Sequence[int]) -> int:
    return min((time_ms for time_ms in times_ms if time_ms != UNKNOWN), default=UNKNOWN)


def _output(ref: ObjectRef, order_id: int, data_time_ms: int, streams: int) -> SwapOutput:
    sizes = ref.size_bytes, ref.index_size_bytes, ref.attributes, ref.tail_checksum
    return SwapOutput(ref.object_id, order_id, *sizes, data_time_ms, streams)


def _stream_output(stream_id: int, made: StreamObject) -> SwapStreamObject:
    ref = made.ref
    sizes = ref.size_bytes, ref.index_size_bytes, ref.attributes, ref.tail_checksum
    return SwapStreamObject(stream_id, ref.object_id, made.start, made.end, *sizes)


def _digest(swap: Swap) -> str:
    bare = msgspec.structs.replace(swap, swap_id="")
    return hashlib.sha256(msgspec.json.encode(bare, order="deterministic")).hexdigest()[:32]


# -- how a controller applies swaps ------------------------------------------------------------------------------------


def swaps_to_json(swaps: Sequence[Swap]) -> bytes:
    """A file of swaps, for `swaps_from_json`. Fields: docs/reference/catalog-records.md, "Swaps for a controller"."""
    return msgspec.json.format(msgspec.json.encode(_Document(FORM, FORM_VERSION, list(swaps))), indent=2)


def swaps_from_json(data: bytes) -> tuple[Swap, ...]:
    """The swaps of a file.

    Raises:
        ImageRefused: it is not such a file, has a newer version, or was changed: the id of a swap is not its digest.
    """
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ImageRefused(f"expected a file of swaps: {error}") from error
    if (document.form, document.version) != (FORM, FORM_VERSION):
        found = f"{document.form!r} version {document.version}"
        raise ImageRefused(f"expected a file of {FORM!r} version {FORM_VERSION}, found {found}")
    for swap in document.swaps:
        if swap.swap_id != (expected := _digest(swap)):
            raise ImageRefused(f"expected swap {expected} by its contents, found {swap.swap_id}: it was changed")
    return tuple(document.swaps)


def apply_to_image(image: MetadataImage, swap: Swap) -> MetadataImage:
    """The image after a swap, with the next version: how a controller applies a swap, and when it refuses one.

    Applied again, it changes only the version. O(objects of the node).

    Raises:
        SwapRefused: another namespace, a source is not listed as it was, sources are not neighbours, or an output is
            listed already.
    """
    if swap.namespace != image.namespace:
        raise SwapRefused(f"expected a swap of namespace {image.namespace!r}, found {swap.namespace!r}")
    node = image.node(swap.node_id)
    next_version = version_number(image.version) + 1
    if _is_applied(image, node, swap):
        return replace(image, version=next_version)
    _check_sources(node, swap)
    _check_outputs(image, swap)
    gone = {source.object_id for source in swap.sources}
    listed = zip(node.order_ids.tolist(), node.refs, strict=True)
    kept = [(order_id, ref) for order_id, ref in listed if ref.object_id not in gone]
    if (made := swap.output) is not None:  # in the place of its sources, also among equal order ids
        kept.insert(node.position_of[swap.sources[0].object_id], (made.order_id, _ref_of(made)))
    streams = dict(image.streams)
    for own in swap.stream_objects:
        stream = streams[own.stream_id]
        objects = [*stream.stream_objects, StreamObject(_ref_of(own), own.start, own.end)]
        streams[own.stream_id] = make_stream(own.stream_id, stream.start_offset, list(stream.ranges), objects)
    nodes = {**image.nodes, swap.node_id: make_node(swap.node_id, kept)}
    return replace(image, version=next_version, streams=streams, nodes=nodes)


def _is_applied(image: MetadataImage, node: NodeImage, swap: Swap) -> bool:
    if any(source.object_id in node.position_of for source in swap.sources):
        return False
    own = all(_holds(image, stream_object) for stream_object in swap.stream_objects)
    return own and (swap.output is None or swap.output.object_id in node.position_of)


def _holds(image: MetadataImage, own: SwapStreamObject) -> bool:
    stream = image.streams.get(own.stream_id)
    return stream is not None and any(held.ref.object_id == own.object_id for held in stream.stream_objects)


def _check_sources(node: NodeImage, swap: Swap) -> None:
    positions = []
    for source in swap.sources:
        position = node.position_of.get(source.object_id)
        if position is None:
            raise SwapRefused(f"expected object {source.object_id} in the list of node {node.node_id}, found it gone")
        listed = SwapSource(source.object_id, int(node.order_ids[position]), int(node.sizes_bytes[position]))
        if listed != source:
            raise SwapRefused(f"expected {source}, found it listed as {listed}")
        positions.append(position)
    if not positions or positions != list(range(positions[0], positions[0] + len(positions))):
        raise SwapRefused(f"expected neighbours in the list of node {node.node_id}, found positions {positions}")


def _check_outputs(image: MetadataImage, swap: Swap) -> None:
    if taken := _listed_ids(image).intersection(swap.object_ids):
        raise SwapRefused(f"expected outputs that are not listed yet, found {sorted(taken)}")
    if unknown := [own.stream_id for own in swap.stream_objects if own.stream_id not in image.streams]:
        raise SwapRefused(f"expected known streams, found {unknown[:5]}")


def _ref_of(made: SwapOutput | SwapStreamObject) -> ObjectRef:
    return ObjectRef(made.object_id, made.size_bytes, made.index_size_bytes, made.attributes, made.tail_checksum)
