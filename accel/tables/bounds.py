"""Conditions on columns, and the bounds that exclude rows before they are read.

A query's conditions, such as `("stream_id", "=", 7)` or `("end_offset", ">", 1000)`, are joined by AND. Simple
conditions are converted to one `Bounds`, which is applied at each step of reading to the columns known by then:

    the list of objects     node_id, object_id, order_id      objects without requested rows are not opened
    an object's index       stream_id, offsets                blocks without requested rows are not read
    record batches          offsets                           the remaining batches become rows
    the list of streams     scope, stream                     histories without requested rows are not read
    a history               epoch                             chunks without requested rows are not read

Bounds exclude only rows that the conditions certainly exclude. The caller applies all conditions to the rows again, so
a condition that cannot be converted costs only time.

No I/O; all values are immutable, any thread may use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Condition: TypeAlias = tuple[str, str, object]
"""Column, operator and value: `("stream_id", "in", [1, 2])`. Operators: =, ==, !=, <, <=, >, >=, in, not in."""

_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class AllowedIntegers:
    """Integers from ``low`` to ``high``, both included; of these only ``chosen``, unless that is None."""

    low: int = _INT64.min
    high: int = _INT64.max
    chosen: frozenset[int] | None = None

    def __and__(self, other: AllowedIntegers) -> AllowedIntegers:
        """The integers that both allow."""
        chosen = _both(self.chosen, other.chosen)
        return AllowedIntegers(max(self.low, other.low), min(self.high, other.high), chosen)

    def mask(self, column: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which values are allowed. Complexity: O(values log chosen)."""
        allowed: NDArray[np.bool_] = (column >= self.low) & (column <= self.high)
        if self.chosen is not None:
            fitting = [value for value in self.chosen if _INT64.min <= value <= _INT64.max]
            allowed &= np.isin(column, np.array(fitting, dtype=np.int64))
        return allowed

    def hull(self) -> tuple[int, int]:
        """The lowest and the highest allowed integer; the first is above the second if no integer is allowed."""
        if self.chosen is None:
            return self.low, self.high
        fitting = [value for value in self.chosen if self.low <= value <= self.high]
        return (min(fitting), max(fitting)) if fitting else (0, -1)


EVERY_INTEGER = AllowedIntegers()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The allowed values, by the name of the column; other columns may have any value.

    Args:
        spans: of columns of integers.
        texts: of columns of texts.
    """

    spans: Mapping[str, AllowedIntegers] = field(default_factory=dict)
    texts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, conditions: Iterable[Condition]) -> Bounds:
        """The bounds of these conditions, joined by AND; conditions that cannot be converted allow everything."""
        bounds = cls()
        for name, operator, value in conditions:
            bounds &= _bound_of(name, operator, value)
        return bounds

    def __and__(self, other: Bounds) -> Bounds:
        """The values that both allow."""
        spans, texts = dict(self.spans), dict(self.texts)
        for name, span in other.spans.items():
            spans[name] = spans[name] & span if name in spans else span
        for name, chosen in other.texts.items():
            texts[name] = texts[name] & chosen if name in texts else chosen
        return Bounds(spans, texts)

    def mask(self, columns: Mapping[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Which rows are allowed by the bounds of these columns; at least one column must be given."""
        length = len(next(iter(columns.values())))
        allowed = np.ones(length, dtype=np.bool_)
        for name, column in columns.items():
            if name in self.spans:
                allowed &= self.spans[name].mask(column)
        return allowed

    def allows_text(self, name: str, value: str) -> bool:
        """Whether a column of texts may have a value."""
        return name not in self.texts or value in self.texts[name]

    def span(self, name: str) -> tuple[int, int]:
        """The lowest and the highest value that a column of integers may have; see `AllowedIntegers.hull`."""
        return self.spans.get(name, EVERY_INTEGER).hull()


def _both(one: frozenset[int] | None, other: frozenset[int] | None) -> frozenset[int] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _bound_of(name: str, operator: str, value: object) -> Bounds:
    chosen = _chosen(operator, value)
    if chosen is not None:
        if chosen and all(isinstance(each, str) for each in chosen):
            return Bounds(texts={name: frozenset(map(str.__str__, chosen))})
        integers = [each for each in chosen if type(each) is int]
        return Bounds({name: AllowedIntegers(chosen=frozenset(integers))}) if len(integers) == len(chosen) else Bounds()
    if type(value) is not int:
        return Bounds()
    limits = {
        ">": AllowedIntegers(low=value + 1),
        ">=": AllowedIntegers(low=value),
        "<": AllowedIntegers(high=value - 1),
        "<=": AllowedIntegers(high=value),
    }
    return Bounds({name: limits[operator]}) if operator in limits else Bounds()


def _chosen(operator: str, value: object) -> list[object] | None:
    if operator in ("=", "=="):
        return [value]
    if operator == "in" and isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return None
