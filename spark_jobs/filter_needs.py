"""What a node's filter pack needs: which objects lack a filter, and which filters nobody needs any more.

What the pack has already stays as it is. Wanted are filters of objects that are listed and have none, of those whose
filter is foreign (built for an object of another size), and where a data object of the pack is gone; on request also of
those whose stored filter cannot be read or is bad (docs/hints.md), which takes reading all of the pack. Filters of
objects that are listed no more are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from accel.catalog.rows import Rows
from loaders.hints import HintProblem, HintTrouble, PackRoot, is_bad, load_pack, read_pack_root
from loaders.layout import HintKind, hint_node_prefix
from loaders.store import CountingStore


class Depth(StrEnum):
    """Which filters are built."""

    MISSING = "missing"
    """Those of objects that have none of their id and size."""
    BAD = "bad"
    """Also those whose stored filter cannot be read or lets too much pass."""
    ALL = "all"
    """Every one."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeNeeds:
    """What a node's pack needs. Picklable.

    Args:
        node_id: whose pack.
        objects: how many objects are listed.
        wanted: LIVE rows of the objects to build filters for.
        previous: the root that the next generation builds on; None to write a whole pack.
        generation: of the root that lies there, if its number can be read.
        dropped: ids in that root that are not listed, or not with that size.
        bad: filters that are to be replaced: foreign, gone, bad or unreadable.
        problem: why the root that lies there cannot be used; empty if it can, or there is none.
        requests: what it took to find out.
    """

    node_id: int
    objects: int
    wanted: Rows
    previous: PackRoot | None
    generation: int | None
    dropped: tuple[int, ...]
    bad: int
    problem: str
    requests: int

    @property
    def kept(self) -> int:
        """Filters that stay."""
        return self.objects - len(self.wanted)

    @property
    def is_current(self) -> bool:
        """Whether nothing is to be done."""
        return self.previous is not None and not len(self.wanted) and not self.dropped


def find_needs(store: CountingStore, namespace: str, node_id: int, live: Rows, depth: Depth) -> NodeNeeds:
    """What a node's pack needs. Two requests, and with `Depth.BAD` those of reading the pack.

    Raises:
        StoreError: the store could not say.
    """
    previous, problem = _previous_root(store, namespace, node_id)
    generation = None if previous is None else previous.generation
    if previous is None or depth is Depth.ALL:
        return NodeNeeds(node_id, len(live), live, None, generation, (), 0, problem, store.snapshot().total.requests)
    held = previous.covers(live["object_id"], live["size_bytes"])
    listed = np.isin(previous.entries["object_id"], live["object_id"][held])
    there = held & _in_parts_that_are_there(store, previous, live["object_id"])
    foreign = int(np.isin(previous.entries["object_id"][~listed], live["object_id"]).sum())
    good = _good(store, previous, live[there]) if depth is Depth.BAD else live["object_id"][there]
    wanted = live[~np.isin(live["object_id"], good)]
    dropped = tuple(previous.entries["object_id"][~listed].tolist())
    bad = foreign + int(held.sum()) - len(good)
    requests = store.snapshot().total.requests
    return NodeNeeds(node_id, len(live), wanted, previous, generation, dropped, bad, "", requests)


def _previous_root(store: CountingStore, namespace: str, node_id: int) -> tuple[PackRoot | None, str]:
    try:
        return read_pack_root(store, namespace, node_id), ""
    except HintProblem as problem:
        return None, "" if problem.kind is HintTrouble.MISSING else str(problem)


def _in_parts_that_are_there(store: CountingStore, root: PackRoot, object_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each object whether the data object lies there, whole, that its filter is in: hints may be deleted."""
    sizes = {info.key: info.size_bytes for info in store.list(hint_node_prefix(HintKind.PACKS, root.node_id))}
    parts = [sizes.get(root.part_key(number)) == part.size_bytes for number, part in enumerate(root.parts)]
    places = root.covered.positions(object_ids)
    of_none = len(parts)
    numbers = np.append(root.entries["part"], of_none)[places]
    is_there: NDArray[np.bool_] = np.array([*parts, False])[numbers]
    return is_there


def _good(store: CountingStore, root: PackRoot, live: Rows) -> NDArray[np.int64]:
    filters = load_pack(store, root, live["object_id"], live["size_bytes"])
    return np.array([object_id for object_id, each in filters if not is_bad(each)], dtype=np.int64)
