"""Repair of a catalog: unreadable or missing keys are rebuilt if their value follows from other keys.

    | key                        | rebuilt from                                                                     |
    |----------------------------|----------------------------------------------------------------------------------|
    | marker of a table          | nothing needed: its presence is its only content                                 |
    | copy of the choices        | the format record                                                                |
    | directory of nodes         | the lists; only if every node in a checkpoint, a kept version or a range of      |
    |                            | streams has a list                                                               |
    | counter of object ids      | the highest id in the bucket, in lists, shards and hints, and 1,048,576 above it |
    | checkpoint, kept version   | not rebuilt but deleted: sessions write new ones                                 |
    | list, stream shard,        | cannot be rebuilt: they are reported, with advice                                |
    | counters of histories      |                                                                                  |

A key that can be read is never written. Each write replaces exactly the value that was read: no value, or these bytes
(a compare-and-set on their ETag). So a repair may run beside readers and writers; a write in between wins, and the
finding reports it. A run without `apply` writes nothing. The findings have the same form as those of the repair of a
stream.

Source: docs/operations/repair.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.keys import NODE_CHECKPOINTS, TABLES, parse_node_key
from accel.catalog.parts import are_same_choices
from accel.catalog.records import NodeDirectory
from accel.catalog.shard_writes import kept_places
from accel.catalog.undo import IDS_PASSED_OVER, hinted_ids
from accel.catalog.verify import history_counter_problems
from accel.catalog.whole_catalog import list_objects, listed_node_ids, read_survey
from accel.errors import CatalogError, FormatError
from accel.history.store.keys import SEGMENT_STREAMS, SYSTEM_TABLES, TRANSACTION_IDS, SystemKeys
from accel.repair.findings import MISSING, NOTHING, Finding, Findings, Repair, RepairOutcome, RunIsFull
from loaders.errors import TableMissing
from loaders.layout import TABLE_MARKER
from loaders.tables import TypedKey

THE_CATALOG: Final = "the catalog"

PUT_BACK: Final = "put the newest sound version of the key back, from the bucket's versions or a copy"


def repair(catalog: ObjectCatalog, *, apply: bool) -> Repair:
    """Find damaged and missing keys of a catalog, and with `apply` write those that follow from other keys.

    Requests: one or two a key of the catalog; if the counter is gone, one more for 1,000 keys of the bucket.

    Raises:
        StoreError: a request failed; repeat the call.
    """
    repairing = CatalogRepairing(catalog)
    findings = repairing.find()
    found = findings.written() if apply else findings.seen()
    return Repair(THE_CATALOG, apply, found, repairing.is_complete)


class CatalogRepairing:
    """Checks the keys of one catalog. Threads: one."""

    def __init__(self, catalog: ObjectCatalog) -> None:
        self._parts = catalog.parts
        self._keys = catalog.parts.keys
        self._findings = Findings()
        self.is_complete = True

    def find(self) -> Findings:
        """Find the damaged and missing keys, up to the limit of one run; nothing is written."""
        try:
            if self._check_markers():
                self.is_complete = False  # nothing can be listed in a table without a marker
                return self._findings
            self._check_choices()
            self._check_droppable()
            are_whole = self._check_lists()
            self._check_directory(are_whole=are_whole)
            self._check_counters(are_whole=are_whole)
        except RunIsFull:
            self.is_complete = False
        return self._findings

    def _check_markers(self) -> bool:
        tables, are_wrong = self._keys.tables, False
        for name in (*TABLES, *SYSTEM_TABLES):
            problem = ""
            try:
                problem = "" if tables.table_exists(name) else MISSING
            except FormatError as error:
                problem = str(error)
            if problem:
                finding = Finding(
                    name, TABLE_MARKER, problem, "its purpose: the table is there", RepairOutcome.REBUILDABLE
                )
                self._findings.mend(finding, partial(tables.restore_table, name))
                are_wrong = True
        return are_wrong

    def _check_choices(self) -> None:
        key, record = self._keys.format_copy(), self._parts.format
        stands = key.inspect()
        if stands.value is None or not are_same_choices(stands.value, record):
            problem = "" if stands.value is None else f"expected the choices of {record}, found {stands.value}"
            self._findings.rebuild(key, stands, record, "the format record", problem)

    def _check_lists(self) -> bool:
        """Check lists and shards; returns whether all of them can be read."""
        directory = self._keys.directory().inspect().value
        named = set() if directory is None else set(directory.node_ids.tolist())
        lists = (self._keys.node_list(node_id) for node_id in sorted(named | set(listed_node_ids(self._parts))))
        shards = map(self._keys.shard, range(self._parts.format.stream_buckets))
        are_whole = True
        keys: Iterator[TypedKey[Any]] = chain(lists, shards)
        for key in keys:
            stands = key.inspect()
            if stands.value is None:
                are_whole = False
                self._findings.lose(key, stands, PUT_BACK)
        return are_whole

    def _check_droppable(self) -> None:
        kept = (self._keys.list_version(*place) for place in kept_places(self._parts))
        keys: Iterator[TypedKey[Any]] = chain(map(self._keys.checkpoint, self._checkpointed()), kept)
        for key in keys:
            stands = key.inspect()
            if stands.error is not None:
                self._findings.rebuild(key, stands, None, NOTHING)

    def _check_directory(self, *, are_whole: bool) -> None:
        key = self._keys.directory()
        stands = key.inspect()
        if stands.value is not None:
            return
        listed = set(listed_node_ids(self._parts))
        lacking = self._named_nodes() - listed if are_whole else set()
        if lacking or not are_whole:
            self._findings.lose(key, stands, f"first the lists and shards: {PUT_BACK}")
            return
        nodes = NodeDirectory(np.array(sorted(listed), dtype=np.int64), self._parts.format.generation)
        self._findings.rebuild(key, stands, nodes, "the lists of nodes, and the format record")

    def _named_nodes(self) -> set[int]:
        """The nodes in checkpoints, kept versions of lists, and ranges of streams."""
        shards = (self._keys.shard(number).read() for number in range(self._parts.format.stream_buckets))
        owners = (seen.value.ranges["node_id"].tolist() for seen in shards if seen is not None)
        return {*self._checkpointed(), *(node_id for node_id, _ in kept_places(self._parts)), *chain(*owners)}

    def _checkpointed(self) -> Iterator[int]:
        try:
            names = list(self._keys.tables.table(NODE_CHECKPOINTS).keys())
        except TableMissing:
            return
        yield from (node_id for node_id in map(parse_node_key, names) if node_id is not None)

    def _check_counters(self, *, are_whole: bool) -> None:
        key = self._keys.object_ids()
        stands = key.inspect()
        if stands.value is None:
            highest = self._highest_id() if are_whole else None
            if highest is None:
                self._findings.lose(key, stands, "first the lists, the shards and the directory: repair again then")
            else:
                source = "the highest id in the bucket, in lists and in hints"
                self._findings.rebuild(key, stands, highest + 1 + IDS_PASSED_OVER, source)
        shared = SystemKeys(self._keys.tables)
        are_wanted = any(history_counter_problems(self._parts))  # before the first scope there are no counters
        for name in (SEGMENT_STREAMS, TRANSACTION_IDS):
            counter = shared.counter(name)
            found = counter.inspect()
            if found.value is None and are_wanted:
                advice = f"{PUT_BACK}; or delete it, and run `accel catalog restored --yes`"
                self._findings.lose(counter, found, advice)

    def _highest_id(self) -> int | None:
        parts = self._parts
        try:
            survey, stored = read_survey(parts), list_objects(parts)
        except (CatalogError, FormatError):
            return None
        hinted = max(hinted_ids(parts), default=-1)
        return max(int(stored.ids.max(initial=-1)), int(survey.known_ids().max(initial=-1)), hinted)
