"""Which objects a catalog lists, as one array, and which of them, and of their rows, a query asks for.

    node_id  object_id  order_id  kind  stream_id  start_offset  end_offset  sizes, attributes, time
    4        0          0         set   -1         -1            -1          ...
    4        17         -1        one   420000     0             900         ...

An object of one stream has no order id, and the catalog says what it holds; what one of many holds, its own index says.

Spark hands over the conditions of a query that are simple enough (`stream_id = 7`, `object_id IN (1, 2)`,
`end_offset > 1000`), joined by AND. They are kept as one `Bounds` and laid over the columns of what is at hand:

    the list of objects     node_id, object_id, order_id      objects that no row is asked of are not opened
    an object's index       stream_id, offsets                blocks that no row is asked of are not read
    record batches          offsets                           what is left is given to Spark

Conditions only ever leave out rows that they certainly exclude. Spark applies all of them again to the rows it gets, so
one that is not understood here costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from accel.catalog.records import Rows
from accel.catalog.refresh import CatalogState
from loaders.object_ref import ObjectRef

_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class AllowedIntegers:
    """Integers from ``low`` to ``high``, both included; of these only ``chosen``, unless that is None."""

    low: int = _INT64.min
    high: int = _INT64.max
    chosen: frozenset[int] | None = None

    def __and__(self, other: AllowedIntegers) -> AllowedIntegers:
        """What both allow."""
        both = [span.chosen for span in (self, other) if span.chosen is not None]
        chosen = frozenset.intersection(*both) if both else None
        return AllowedIntegers(max(self.low, other.low), min(self.high, other.high), chosen)

    def mask(self, column: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which values it allows. Complexity: O(values log chosen)."""
        allowed: NDArray[np.bool_] = (column >= self.low) & (column <= self.high)
        if self.chosen is not None:
            fitting = [value for value in self.chosen if _INT64.min <= value <= _INT64.max]
            allowed &= np.isin(column, np.array(fitting, dtype=np.int64))
        return allowed


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is allowed, by the name of the column; a column that is not named may have any value."""

    spans: Mapping[str, AllowedIntegers] = field(default_factory=dict)

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Bounds:
        """What these conditions, joined by AND, allow; those that are not understood allow everything."""
        spans: dict[str, AllowedIntegers] = {}
        for condition in filters:
            known = _span_of(condition)
            if known is not None:
                name, span = known
                spans[name] = spans.get(name, AllowedIntegers()) & span
        return cls(spans)

    def __and__(self, other: Bounds) -> Bounds:
        """What both allow."""
        names = self.spans.keys() | other.spans.keys()
        return Bounds(
            {name: self.spans.get(name, AllowedIntegers()) & other.spans.get(name, AllowedIntegers()) for name in names}
        )

    def mask(self, columns: Mapping[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Which rows are allowed, as far as these columns tell; at least one column must be given."""
        length = len(next(iter(columns.values())))
        allowed = np.ones(length, dtype=np.bool_)
        for name, column in columns.items():
            if name in self.spans:
                allowed &= self.spans[name].mask(column)
        return allowed


def _span_of(condition: Filter) -> tuple[str, AllowedIntegers] | None:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1:
        return None
    span = _choice_of(condition) or _limit_of(condition)
    return None if span is None else (path[0].lower(), span)


def _choice_of(condition: Filter) -> AllowedIntegers | None:
    if isinstance(condition, EqualTo | EqualNullSafe) and _is_integer(condition.value):
        return AllowedIntegers(chosen=frozenset([condition.value]))
    if isinstance(condition, In) and all(map(_is_integer, condition.value)):
        return AllowedIntegers(chosen=frozenset(condition.value))
    return None


def _limit_of(condition: Filter) -> AllowedIntegers | None:
    value = getattr(condition, "value", None)
    if not _is_integer(value) or not isinstance(value, int):
        return None
    match condition:
        case GreaterThan():
            return AllowedIntegers(low=value + 1)
        case GreaterThanOrEqual():
            return AllowedIntegers(low=value)
        case LessThan():
            return AllowedIntegers(high=value - 1)
        case LessThanOrEqual():
            return AllowedIntegers(high=value)
        case _:
            return None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


NOTHING: Final = -1
"""Where a column says nothing of an object."""

STREAM_SET, STREAM = 0, 1

LISTED: Final = np.dtype(
    [
        (name, "<i8")
        for name in (
            "node_id",
            "object_id",
            "order_id",
            "kind",
            "stream_id",
            "start_offset",
            "end_offset",
            "size_bytes",
            "index_size_bytes",
            "attributes",
            "tail_checksum",
            "data_time_ms",
        )
    ]
)
"""One listed object."""

_FACTS = ("object_id", "size_bytes", "index_size_bytes", "attributes", "tail_checksum", "data_time_ms")
"""What the catalog says of objects of both kinds."""

Listed: TypeAlias = NDArray[np.void]


def listed_objects(state: CatalogState) -> Listed:
    """All live objects of a catalog, ascending by node, kind, and order or stream and offset. No loop over objects."""
    lists = state.node_lists()
    sets = [_sets(node_id, node_list.live) for node_id, node_list in sorted(lists.items())]
    waiting = [node_list.stream_objects for node_list in lists.values()]
    ones = [_ones(rows) for rows in (*(seen.value.stream_objects for seen in state.shards), *waiting)]
    listed = np.concatenate([np.empty(0, dtype=LISTED), *sets, _each_once(ones)])
    ordered: Listed = listed[np.lexsort([listed[name] for name in ("start_offset", "order_id", "kind", "node_id")])]
    return ordered


def chosen_columns(listed: Listed, names: Sequence[str]) -> Mapping[str, NDArray[np.int64]]:
    """Some columns by name, to lay bounds over."""
    return {name: listed[name] for name in names}


def ref_of(row: np.void) -> ObjectRef:
    """An object as loaders want it."""
    facts = int(row["attributes"]), int(row["tail_checksum"])
    return ObjectRef(int(row["object_id"]), int(row["size_bytes"]), int(row["index_size_bytes"]), *facts)


def _sets(node_id: int, live: Rows) -> Listed:
    rows = np.full(len(live), NOTHING, dtype=LISTED)
    for name in _FACTS:
        rows[name] = live[name]
    rows["order_id"] = live["order_id"]
    rows["node_id"], rows["kind"] = node_id, STREAM_SET
    return rows


def _ones(stream_objects: Rows) -> Listed:
    rows = np.full(len(stream_objects), NOTHING, dtype=LISTED)
    for name in ("node_id", "stream_id", *_FACTS):
        rows[name] = stream_objects[name]
    rows["kind"], rows["start_offset"], rows["end_offset"] = STREAM, stream_objects["start"], stream_objects["end"]
    return rows


def _each_once(parts: Sequence[Listed]) -> Listed:
    """An object on its way from a list to its stream shard stands in both for a while."""
    rows = np.concatenate([np.empty(0, dtype=LISTED), *parts])
    _, first = np.unique(rows["object_id"], return_index=True)
    once: Listed = rows[first]
    return once
