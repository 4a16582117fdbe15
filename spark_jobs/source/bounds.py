"""What a query asks of its columns, as far as it can be told before reading: bounds and choices of integers.

Spark hands over the conditions of a query that are simple enough (`stream_id = 7`, `object_id IN (1, 2)`,
`end_offset > 1000`), joined by AND. They are kept as one `Bounds` and laid over the columns of what is at hand:

    the list of objects     node_id, object_id, order_id      objects that no row is asked of are not opened
    an object's index       stream_id, offsets                blocks that no row is asked of are not read
    record batches          offsets                           what is left is given to Spark

Conditions only ever leave out rows that they certainly exclude. Spark applies all of them again to the rows it gets, so
one that is not understood here costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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

_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class Span:
    """Integers from ``low`` to ``high``, both included; of these only ``chosen``, unless that is None."""

    low: int = _INT64.min
    high: int = _INT64.max
    chosen: frozenset[int] | None = None

    def __and__(self, other: Span) -> Span:
        """What both allow."""
        both = [each.chosen for each in (self, other) if each.chosen is not None]
        chosen = frozenset.intersection(*both) if both else None
        return Span(max(self.low, other.low), min(self.high, other.high), chosen)

    def mask(self, column: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which values it allows. Complexity: O(values log chosen)."""
        allowed: NDArray[np.bool_] = (column >= self.low) & (column <= self.high)
        if self.chosen is not None:
            fitting = [each for each in self.chosen if _INT64.min <= each <= _INT64.max]
            allowed &= np.isin(column, np.array(fitting, dtype=np.int64))
        return allowed


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is allowed, by the name of the column; a column that is not named may have any value."""

    spans: Mapping[str, Span] = field(default_factory=dict)

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Bounds:
        """What these conditions, joined by AND, allow; those that are not understood allow everything."""
        spans: dict[str, Span] = {}
        for each in filters:
            known = _span_of(each)
            if known is not None:
                name, span = known
                spans[name] = spans.get(name, Span()) & span
        return cls(spans)

    def __and__(self, other: Bounds) -> Bounds:
        """What both allow."""
        names = self.spans.keys() | other.spans.keys()
        return Bounds({name: self.spans.get(name, Span()) & other.spans.get(name, Span()) for name in names})

    def mask(self, columns: Mapping[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Which rows are allowed, as far as these columns tell; at least one column must be given."""
        length = len(next(iter(columns.values())))
        allowed = np.ones(length, dtype=np.bool_)
        for name, column in columns.items():
            if name in self.spans:
                allowed &= self.spans[name].mask(column)
        return allowed


def _span_of(condition: Filter) -> tuple[str, Span] | None:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1:
        return None
    span = _choice_of(condition) or _limit_of(condition)
    return None if span is None else (path[0].lower(), span)


def _choice_of(condition: Filter) -> Span | None:
    if isinstance(condition, EqualTo | EqualNullSafe) and _is_integer(condition.value):
        return Span(chosen=frozenset([condition.value]))
    if isinstance(condition, In) and all(map(_is_integer, condition.value)):
        return Span(chosen=frozenset(condition.value))
    return None


def _limit_of(condition: Filter) -> Span | None:
    value = getattr(condition, "value", None)
    if not _is_integer(value) or not isinstance(value, int):
        return None
    match condition:
        case GreaterThan():
            return Span(low=value + 1)
        case GreaterThanOrEqual():
            return Span(low=value)
        case LessThan():
            return Span(high=value - 1)
        case LessThanOrEqual():
            return Span(high=value)
        case _:
            return None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
