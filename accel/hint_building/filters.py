"""Filter packs: which objects of a node lack a filter, and the generation that adds the missing filters.

A filter is built for a listed object that has none, whose filter is foreign (built for an object of another size), or
whose data object of the pack is gone. On request, a filter is also built for an object whose stored filter cannot be
read or is bad (docs/reference/hints.md), which requires reading the whole pack. Other filters are kept; filters of
objects that are no longer listed are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import Rows
from loaders.hints import (
    HintProblem,
    HintTrouble,
    PackRoot,
    delete_old_generations,
    is_bad,
    load_pack,
    next_generation,
    read_pack_root,
    write_pack,
)
from loaders.hints.packs import FilterEntry
from loaders.layout import HintKind, hint_node_prefix
from loaders.store.base import ObjectStore


class Depth(StrEnum):
    """How much of the stored hints is used."""

    MISSING = "missing"
    """All stored hints: only the filters that are missing for an object's id and size are built."""
    BAD = "bad"
    """The good stored hints: unreadable filters, and filters that pass too many absent streams, are rebuilt."""
    ALL = "all"
    """No stored hints: every object is opened."""


class Overtaken(Exception):
    """Another run has written a newer generation of the same hints. Internal."""


@dataclass(frozen=True, slots=True, eq=False)
class FilterNeeds:
    """The filters of a node's pack that must be built. Picklable.

    Args:
        wanted: for each listed object whether its filter is to be built.
        previous: the root that the next generation extends; None to write a whole pack.
        generation: of the stored root, if its number can be read.
        dropped: ids in that root that are not listed, or are listed with another size.
        bad: filters that are to be replaced: foreign, gone, bad or unreadable.
        problem: why the stored root cannot be used; empty if it can, or there is none.
    """

    wanted: NDArray[np.bool_]
    previous: PackRoot | None
    generation: int | None
    dropped: tuple[int, ...]
    bad: int
    problem: str

    @property
    def kept(self) -> int:
        """The number of filters that are kept."""
        return int((~self.wanted).sum())

    @property
    def is_current(self) -> bool:
        """Whether there is no work."""
        return self.previous is not None and not self.wanted.any() and not self.dropped


@dataclass(frozen=True, slots=True)
class NodeFilters:
    """The result for a node's pack.

    Args:
        added: filters that were written.
        dropped: filters of objects that are no longer listed.
        kept: filters that were kept.
        unfit: objects without a filter, as they hold no stream or too many.
        is_overtaken: another run has written a newer pack in the meantime; this one's was discarded.
        error: why the pack could not be written; empty if it was, or there was no work.
    """

    added: int = 0
    dropped: int = 0
    kept: int = 0
    unfit: int = 0
    is_overtaken: bool = False
    error: str = ""


def find_filter_needs(store: ObjectStore, namespace: str, node_id: int, live: Rows, depth: Depth) -> FilterNeeds:
    """Find the filters that a node's pack lacks. Two requests; with `Depth.BAD` also those of reading the pack.

    Raises:
        StoreError: the store failed.
    """
    previous, problem = _previous_root(store, namespace, node_id)
    generation = None if previous is None else previous.generation
    if previous is None or depth is Depth.ALL:
        return FilterNeeds(np.ones(len(live), dtype=np.bool_), None, generation, (), 0, problem)
    held = previous.covers(live["object_id"], live["size_bytes"])
    listed = np.isin(previous.entries["object_id"], live["object_id"][held])
    there = held & _in_parts_that_are_there(store, previous, live["object_id"])
    foreign = int(np.isin(previous.entries["object_id"][~listed], live["object_id"]).sum())
    good = _good(store, previous, live[there]) if depth is Depth.BAD else live["object_id"][there]
    wanted = ~np.isin(live["object_id"], good)
    dropped = tuple(previous.entries["object_id"][~listed].tolist())
    bad = foreign + int(held.sum()) - len(good)
    return FilterNeeds(wanted, previous, generation, dropped, bad, "")


def _previous_root(store: ObjectStore, namespace: str, node_id: int) -> tuple[PackRoot | None, str]:
    try:
        return read_pack_root(store, namespace, node_id), ""
    except HintProblem as problem:
        return None, "" if problem.kind is HintTrouble.MISSING else str(problem)


def _in_parts_that_are_there(store: ObjectStore, root: PackRoot, object_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each object whether the data object of its filter exists with its full size: hints may be deleted."""
    sizes = {info.key: info.size_bytes for info in store.list(hint_node_prefix(HintKind.PACKS, root.node_id))}
    parts = [sizes.get(root.part_key(number)) == part.size_bytes for number, part in enumerate(root.parts)]
    places = root.covered.positions(object_ids)
    of_none = len(parts)
    numbers = np.append(root.entries["part"], of_none)[places]
    is_there: NDArray[np.bool_] = np.array([*parts, False])[numbers]
    return is_there


def _good(store: ObjectStore, root: PackRoot, live: Rows) -> NDArray[np.int64]:
    filters = load_pack(store, root, live["object_id"], live["size_bytes"])
    return np.array([object_id for object_id, stream_filter in filters if not is_bad(stream_filter)], dtype=np.int64)


def write_filters(
    store: ObjectStore, namespace: str, node_id: int, needs: FilterNeeds, added: Iterator[FilterEntry], now_ms: int
) -> None:
    """Write the next generation of a node's pack, and delete old ones; nothing if there is no filter to write.

    Memory holds a data object of 16 MiB. Requests: those of `write_pack`, one to check whether another run was faster,
    and four to delete old generations.

    Raises:
        Overtaken: another run was faster.
        StoreError: the pack may or may not have been written.
    """
    generation = next_generation(needs.generation, now_ms)
    first = list(islice(added, 1))
    if not first and needs.previous is not None and not needs.dropped:
        return  # the objects without a filter cannot have one
    write_pack(
        store,
        namespace=namespace,
        node_id=node_id,
        generation=generation,
        added=chain(first, added, _nothing_unless_first(store, namespace, node_id, generation)),
        previous=needs.previous,
        dropped=needs.dropped,
    )
    delete_old_generations(store, HintKind.PACKS, node_id, namespace=namespace)


def _nothing_unless_first(store: ObjectStore, namespace: str, node_id: int, generation: int) -> Iterator[FilterEntry]:
    # Parts of older generations that a newer root does not name are deleted, so this root could name missing parts.
    newer, _ = _previous_root(store, namespace, node_id)
    if newer is not None and newer.generation > generation:
        raise Overtaken
    yield from ()
