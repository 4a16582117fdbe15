"""The hints in the bucket: the pack and the snapshot of each node, with age, size and quality.

Two small requests a node return all but the quality of the filters. `check_filters` reads each filter twice: with
Accel, and with pybloom_live, which defines its format. The bits and the answers of both must be equal. Memory of a
check: one read of a pack (16 MiB) and one filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import Rows
from accel.hint_building.snapshots import read_snapshot_root
from bloom import StreamFilter
from loaders.hints import (
    HintProblem,
    HintTrouble,
    PackLoad,
    PackRoot,
    SnapshotRoot,
    expected_false_positives,
    is_bad,
    load_pack,
    read_pack_root,
)
from loaders.layout import HintKind
from loaders.store.base import ObjectStore

PROBES = np.arange(64, dtype=np.int64) * 104_729
"""Stream ids that are tested with both readers of a filter."""


@dataclass(frozen=True, slots=True)
class FilterCheck:
    """The result of reading the filters of a pack.

    Args:
        read: filters that could be read.
        unreadable: filters with a wrong checksum, or in a missing data object.
        bad: of those read, the number that pass more than 1.25 % of absent streams.
        differing: of those read, the number that differ when read with pybloom_live.
        false_positive_share: share of absent streams that pass, expected from the bits, mean of all filters; None if
            there is no filter.
        worst_share: the share of the worst filter.
    """

    read: int
    unreadable: int
    bad: int
    differing: int
    false_positive_share: float | None
    worst_share: float | None

    @property
    def is_sound(self) -> bool:
        """Whether no filter must be rebuilt."""
        return not (self.unreadable or self.bad or self.differing)


@dataclass(frozen=True, slots=True)
class StoredHint:
    """One stored hint of a node. Threads: immutable.

    Args:
        node_id: the node.
        kind: pack or snapshot.
        trouble: why the hint cannot be used, as a word; None if it can be used; ``missing`` if there is none.
        problem: the same in a sentence; empty if it can be used.
        age_seconds: since it was written, by the clock of the writer; never negative; None if it cannot be read.
        size_bytes: of the data objects that it names.
        unused_bytes: the part of these that is no longer referenced.
        entries: the number of filters, or of rows of the snapshot.
        listed: the number of objects that the node lists.
        covered: of these, the number that the hint covers.
        unlisted: the number of covered objects that are no longer listed.
        check: of a pack that was read; else None.
    """

    node_id: int
    kind: HintKind
    trouble: HintTrouble | None
    problem: str
    listed: int
    age_seconds: float | None = None
    size_bytes: int = 0
    unused_bytes: int = 0
    entries: int = 0
    covered: int = 0
    unlisted: int = 0
    check: FilterCheck | None = None

    @property
    def is_sound(self) -> bool:
        """Whether it can be used or is missing, and its filters, if read, are good."""
        return self.trouble in {None, HintTrouble.MISSING} and (self.check is None or self.check.is_sound)


def stored_hints(
    store: ObjectStore, namespace: str, node_id: int, live: Rows, *, now_seconds: float, is_checked: bool = False
) -> Iterator[StoredHint]:
    """The pack and the snapshot of a node. One request each; with a check also those of reading the pack.

    Args:
        store: of the hints.
        namespace: of the cluster; hints of another namespace are foreign.
        node_id: the node.
        live: rows of the objects that the node lists.
        now_seconds: since 1970.
        is_checked: whether filters are read.

    Raises:
        StoreError: the store failed.
    """
    try:
        pack = read_pack_root(store, namespace, node_id)
    except HintProblem as problem:
        yield _troubled(problem, HintKind.PACKS, node_id, live)
    else:
        check = check_filters(store, pack) if is_checked else None
        yield StoredHint(
            node_id,
            HintKind.PACKS,
            None,
            "",
            **_covering(pack, live, now_seconds),
            size_bytes=pack.live_size_bytes + pack.dead_size_bytes,
            unused_bytes=pack.dead_size_bytes,
            entries=len(pack.entries),
            check=check,
        )
    try:
        snapshot = read_snapshot_root(store, namespace, node_id)
    except HintProblem as problem:
        yield _troubled(problem, HintKind.SNAPSHOTS, node_id, live)
    else:
        yield StoredHint(
            node_id,
            HintKind.SNAPSHOTS,
            None,
            "",
            **_covering(snapshot, live, now_seconds),
            size_bytes=snapshot.size_bytes,
            entries=snapshot.entries,
        )


def _troubled(problem: HintProblem, kind: HintKind, node_id: int, live: Rows) -> StoredHint:
    return StoredHint(node_id, kind, problem.kind, str(problem), len(live))


def _covering(root: PackRoot | SnapshotRoot, live: Rows, now_seconds: float) -> dict[str, Any]:
    covered = int(root.covers(live["object_id"], live["size_bytes"]).sum())
    # A generation is the time at which it was written, in milliseconds, or one more than the generation before.
    age_seconds = max(0.0, now_seconds - root.generation / 1000)
    unlisted = len(root.covered) - covered
    return {"listed": len(live), "covered": covered, "unlisted": unlisted, "age_seconds": age_seconds}


def check_filters(store: ObjectStore, root: PackRoot) -> FilterCheck:
    """Read every filter of a pack, with Accel and with pybloom_live.

    Complexity: O(bytes of the pack); about 0.5 ms a filter of 10,000 ids.

    Raises:
        StoreError: the store failed.
    """
    shares: list[float] = []
    bad = differing = 0
    wanted: NDArray[np.void] = root.entries
    for _, found in load_pack(store, root, wanted["object_id"], wanted["size_bytes"], PackLoad()):
        shares.append(expected_false_positives(found))
        bad += is_bad(found)
        differing += not _is_same_to_pybloom(found)
    mean, worst = (float(np.mean(shares)), max(shares)) if shares else (None, None)
    return FilterCheck(len(shares), len(wanted) - len(shares), bad, differing, mean, worst)


def _is_same_to_pybloom(found: StreamFilter) -> bool:
    peer = found.to_pybloom()
    if StreamFilter.from_pybloom(peer) != found:
        return False
    theirs: list[bool] = [stream_id in peer for stream_id in PROBES.tolist()]
    ours: list[bool] = found.may_hold(PROBES).tolist()
    return theirs == ours
