"""Merging one group: ids are promised, the sources read, the outputs written. Nothing is committed here.

Every attempt writes under ids of its own, so two attempts at one group (a retry, a twin started because the first one
was slow) never meet, and neither do two runs. Whoever commits takes one of them; the ids of the others run out, and the
collector deletes what was written under them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.compact import CompactionRanges
from accel.compaction.plan import Group
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, ObjectExists
from accel.image import StreamObject
from loaders.format import BlockIndex
from loaders.merge.merger import MergeResult, WrittenObject, merge_objects
from loaders.merge.plan import MergePlan, plan_merge
from loaders.merge.reading import open_sources
from loaders.object_ref import ObjectRef
from range_index import ObjectRanges

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class GroupOutcome:
    """A group that was merged and is ready to be committed. Picklable.

    Args:
        group: the group.
        added: the object of many streams; None if all streams have objects of their own, or nothing is left.
        stream_objects: (stream id, object of that stream alone) pairs.
        ranges: what sources and outputs hold, as it was read from them; None once it is committed, to save memory.
        requests: of reading the sources and writing and checking the outputs.
        bytes_read: of the sources, and of the outputs' indexes.
        bytes_written: of the outputs; those that the store copied by itself included.
        seconds: that it took.
    """

    group: Group
    added: ObjectRef | None
    stream_objects: tuple[tuple[int, StreamObject], ...]
    ranges: CompactionRanges | None
    requests: int
    bytes_read: int
    bytes_written: int
    seconds: float

    @property
    def object_ids(self) -> list[int]:
        """Ids of all outputs."""
        own = [] if self.added is None else [self.added.object_id]
        return own + [each.ref.object_id for _, each in self.stream_objects]

    @property
    def output_bytes(self) -> int:
        """Of all outputs."""
        own = 0 if self.added is None else self.added.size_bytes
        return own + sum(each.ref.size_bytes for _, each in self.stream_objects)


@dataclass(frozen=True, slots=True, eq=False)
class GroupFailure:
    """An attempt at a group that came to nothing. Picklable.

    Args:
        group: the group.
        reason: what went wrong.
    """

    group: Group
    reason: str


def run_group(catalog: ObjectCatalog, group: Group, settings: CompactionSettings) -> GroupOutcome:
    """Merge a group; the list of its node is only told which ids are about to be written.

    Requests: two or three for the ids, and those of `merge_objects`.

    Raises:
        StoreError: a source could not be read, or an output not written. What was written is given up.
        CorruptObject: a source is not what the format or its metadata says.
        CommitRefused: too many ids are promised in the node's list already.
    """
    parts = catalog.parts
    sources = open_sources(parts.store, parts.layout, group.sources, settings.merging, executor=parts.executor)
    indexes = [source.index for source in sources]
    plan = plan_merge(indexes, group.trimmed_ids, group.trimmed_starts, settings.merge_limits)
    ids = catalog.prepare(group.node_id, len(plan.outputs)) if plan.outputs else []
    with _given_up_on_failure(catalog, group.node_id, ids):
        result = merge_objects(
            parts.store,
            parts.layout,
            sources,
            plan,
            ids,
            settings.merging,
            executor=parts.executor,
            limits=settings.merge_limits,
            timer=parts.system.timer,
        )
    return _outcome(group, result, _held(indexes, plan))


def try_group(catalog: ObjectCatalog, group: Group, settings: CompactionSettings) -> GroupOutcome | GroupFailure:
    """As `run_group`, with the failure as a value: one group's trouble is not the others'."""
    try:
        return run_group(catalog, group, settings)
    except Exception as error:
        logger.warning("%s: not compacted", group.name, exc_info=True)
        return GroupFailure(group, f"{type(error).__name__}: {error}")


def run_in_process(
    catalog: ObjectCatalog, groups: Sequence[Group], settings: CompactionSettings
) -> Iterator[GroupOutcome | GroupFailure]:
    """One group after another, each given when it is merged."""
    return (try_group(catalog, group, settings) for group in groups)


def give_up(catalog: ObjectCatalog, node_id: int, object_ids: Iterable[int]) -> None:
    """Discard outputs that will not be committed, as far as that is possible now; else their promise runs out."""
    ids = list(object_ids)
    if not ids:
        return
    try:
        catalog.discard(node_id, ids)
    except AccelError:
        logger.warning("node %d: %d outputs stay until their promise runs out", node_id, len(ids), exc_info=True)


@contextmanager
def _given_up_on_failure(catalog: ObjectCatalog, node_id: int, object_ids: list[int]) -> Iterator[None]:
    try:
        yield
    except ObjectExists:
        # Something of another lies under one of these ids, which `discard` would delete. When their promise has run
        # out, the collector deletes those that nothing lists.
        raise
    except Exception:
        give_up(catalog, node_id, object_ids)
        raise


def _held(indexes: Sequence[BlockIndex], plan: MergePlan) -> tuple[ObjectRanges, ...]:
    held = tuple(index.object_ranges() for index in indexes)
    if not any(len(each.holed) for each in held):
        return held
    # One range cannot say where its hole is, and whether it lies below the first kept offset: the plan can.
    kept = plan.kept_ranges()
    return tuple(whole if not len(whole.holed) else part for whole, part in zip(held, kept, strict=True))


def _outcome(group: Group, result: MergeResult, source_ranges: tuple[ObjectRanges, ...]) -> GroupOutcome:
    set_objects = [each for each in result.outputs if each.stream_id is None]
    own = [(each.stream_id, _stream_object(each)) for each in result.outputs if each.stream_id is not None]
    added = set_objects[0] if set_objects else None
    return GroupOutcome(
        group,
        None if added is None else added.ref,
        tuple(own),
        CompactionRanges(source_ranges, None if added is None else added.ranges),
        requests=result.requests,
        bytes_read=result.bytes_read,
        bytes_written=result.bytes_written + result.server_side_bytes,
        seconds=result.seconds,
    )


def _stream_object(written: WrittenObject) -> StreamObject:
    return StreamObject(written.ref, written.start, written.end)
