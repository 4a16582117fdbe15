"""After a bucket, or a part of it, was put back from a copy: nothing of the lost time is to be taken for true.

A copy is a state of the past, and processes that lived on know a later one. They are told by a new generation:

    1. the format record gets a new generation: the time, and 16 random bytes
    2. the counter of object ids is raised far above every id that is found: in the bucket, in lists, in shards of
       streams, in hints; so no id is given out that an object of the lost time has had
    3. the epoch of each list is raised far above its own: sessions of the lost time are fenced
    4. the directory names every node that has a list, and the new generation: readers look there at each refresh, drop
       their image and what they know of its objects, and go on with what is there now

Each step may be repeated; a repetition makes one more generation. Nothing is deleted. Until step 4 readers that lived
through it raise `CatalogWentBack` where they can tell, and nobody serves from the old image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.keys import require
from accel.catalog.parts import CatalogParts
from accel.catalog.records import NodeDirectory, NodeList
from accel.catalog.survey import BulkScan, Progress, must_read, read_survey
from loaders.hints import HintProblem
from loaders.hints.packs import read_pack_root
from loaders.hints.snapshots import SnapshotReader
from loaders.layout import HINTS_PREFIX
from loaders.tables import renew_format

IDS_PASSED_OVER = 1 << 20
"""Ids above the highest one that is found which are not given out: processes of the lost time may have had them."""

EPOCHS_PASSED_OVER = 1 << 20
"""Sessions of a node that may have been opened in the lost time."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What saying that a catalog was put back changes.

    Args:
        generation: that the catalog has now; empty in its first life.
        highest_object_id: of all that were found; -1 if none was.
        next_object_id: what the counter says now; None where there is no counter.
        next_object_id_after: what it will say at least.
        epochs: node id -> the epoch of its list now.
        unnamed_nodes: nodes that have a list, and that the directory does not name.
        highest_stream_id: of all streams that shards know; -1 if there is none.
    """

    generation: str
    highest_object_id: int
    next_object_id: int | None
    next_object_id_after: int
    epochs: dict[int, int]
    unnamed_nodes: tuple[int, ...]
    highest_stream_id: int


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was changed.

    Args:
        plan: what was found before.
        generation: the new one.
    """

    plan: RestorePlan
    generation: str


def plan_restored(
    catalog: ObjectCatalog, *, progress: Progress | None = None, scan: BulkScan | None = None
) -> RestorePlan:
    """Find out what there is now. Nothing is written.

    Args:
        catalog: that was put back.
        progress: called with the number of keys of the bucket that were seen so far.
        scan: who goes through the bucket; this process by default.

    Requests: one for 1,000 keys of the bucket, three a list, one a stream shard, and four more.

    Raises:
        MaintenanceRefused: an import is under way.
        CatalogDamaged: a list, a shard or the directory is not there: put it back first.
        StoreError, TableError, CorruptObject, FormatTooNew: something could not be read.
    """
    parts = catalog.parts
    stored = (scan or BulkScan()).list_objects(parts, progress)
    survey = read_survey(parts)
    directory = must_read(parts.keys.directory()).value
    hinted = max(_hinted_ids(parts), default=-1)
    highest = max(int(stored.ids.max(initial=-1)), int(survey.known_ids().max(initial=-1)), hinted)
    counter = parts.keys.object_ids().read()
    now = None if counter is None else counter.value
    streams = [int(seen.value.streams["stream_id"].max(initial=-1)) for seen in survey.shards]
    return RestorePlan(
        generation=max(parts.format.generation, directory.generation),
        highest_object_id=highest,
        next_object_id=now,
        next_object_id_after=max(highest + 1, now or 0) + IDS_PASSED_OVER,
        epochs={node_id: seen.value.epoch for node_id, seen in survey.lists.items()},
        unnamed_nodes=tuple(sorted(set(survey.lists) - set(directory.node_ids.tolist()))),
        highest_stream_id=max(streams, default=-1),
    )


def restored(catalog: ObjectCatalog, plan: RestorePlan) -> RestoreReport:
    """Say that the catalog was put back. Repeating it is safe, wherever it ended.

    The catalog has to be opened anew afterwards.

    Args:
        catalog: the plan's.
        plan: of `plan_restored`, made just before.

    Requests: two for the format record, the counter and the directory each, and two a list.

    Raises:
        CatalogDamaged: the directory or a list is gone.
        StoreError, TableError: it ended half-way; plan and do it again.
    """
    parts = catalog.parts
    generation = _next_generation(parts, plan.generation)
    system = parts.system
    renew_format(parts.store, generation, system.nonce, sleep=system.sleep, jitter=system.jitter)
    parts.keys.object_ids().change(lambda counter: max(plan.next_object_id_after, counter or 0))
    for node_id in plan.epochs:
        key = parts.keys.node_list(node_id)
        key.change(partial(_fenced, where=key.where))
    directory = parts.keys.directory()

    def named(named_before: NodeDirectory | None) -> NodeDirectory:
        known = require(named_before, directory.where)
        nodes = np.union1d(known.node_ids, np.array(sorted(plan.epochs), dtype=np.int64))
        return replace(known, node_ids=nodes, generation=generation)

    directory.change(named)
    return RestoreReport(plan, generation)


def _fenced(node_list: NodeList | None, *, where: str) -> NodeList:
    known = require(node_list, where)
    return replace(known, epoch=known.epoch + EPOCHS_PASSED_OVER)


def _next_generation(parts: CatalogParts, before: str) -> str:
    """Above the one before, whatever this machine's clock says."""
    earlier_ms = int(before.partition("-")[0] or 0)
    return f"{max(parts.now_ms(), earlier_ms + 1):014d}-{parts.system.nonce().hex()}"


def _hinted_ids(parts: CatalogParts) -> Iterator[int]:
    """The highest id that each root of hints names; hints that cannot be used name none."""
    namespace = parts.layout.namespace
    snapshots = SnapshotReader(parts.store, namespace, parts.system.timer)
    for node_id in _hinted_nodes(parts):
        for read in (partial(read_pack_root, parts.store, namespace), snapshots.read_root):
            try:
                yield int(read(node_id).covered.object_ids.max(initial=-1))
            except HintProblem:
                continue


def _hinted_nodes(parts: CatalogParts) -> list[int]:
    node_ids = set()
    for info in parts.store.list(HINTS_PREFIX):
        folder = info.key[len(HINTS_PREFIX) :].split("/")[1:2]
        digits = folder[0].removeprefix("node-") if folder else ""
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            node_ids.add(int(digits))
    return sorted(node_ids)
