"""A record's class says how it is stored; the stored form follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated
from uuid import UUID

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from loaders.errors import CorruptObject
from loaders.tables.columns import pack_columns
from loaders.tables.records import Columns, Converted, Listed, OneField, RecordForm

ROW = np.dtype([("id", "<i8"), ("size", "<i8")])


class Phase(Enum):
    BEGUN = "has begun"
    OVER = "is over"


@dataclass(frozen=True)
class Inner:
    phase: Phase
    rows: Annotated[NDArray[np.void], Columns(ROW)]


@dataclass(frozen=True)
class Outer:
    number: int
    unique_id: UUID
    before: UUID | None
    nodes: Annotated[NDArray[np.int64], Listed(3)]
    inner: Inner
    other: Inner | None = None


FORM = RecordForm("outer", 1, Outer)
ROWS = np.array([(1, 10), (2, 20)], dtype=ROW)
ID = UUID(int=7)
RECORD = Outer(4, ID, None, np.array([3, 5]), Inner(Phase.OVER, ROWS))


def test_a_record_is_stored_as_its_annotations_say() -> None:
    stored = msgspec.msgpack.decode(FORM.encode(RECORD)[1 + len("outer") + 2 :])
    inner = {"phase": "OVER", "rows": pack_columns(ROWS)}
    assert stored == {
        "number": 4,
        "unique_id": ID.bytes,
        "before": None,
        "nodes": [3, 5],
        "inner": inner,
        "other": None,
    }
    again = FORM.decode(FORM.encode(RECORD), "k")
    assert (again.number, again.unique_id, again.before, again.inner.phase) == (4, ID, None, Phase.OVER)
    assert again.nodes.tolist() == [3, 5]
    assert again.inner.rows.tolist() == ROWS.tolist()
    other = FORM.decode(FORM.encode(replace(RECORD, other=Inner(Phase.BEGUN, ROWS[:1]))), "k").other
    assert other is not None
    assert (other.phase, other.rows.tolist()) == (Phase.BEGUN, ROWS[:1].tolist())


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"unique_id": bytes(15)}, r"Invalid UUID bytes - at `\$.unique_id`"),
        ({"before": bytes(17)}, r"Invalid UUID bytes - at `\$.before`"),
        ({"nodes": [1, 2, 3, 4]}, r"length <= 3 - at `\$.nodes`"),
        ({"inner": {"phase": "GONE", "rows": b""}}, "expected one of BEGUN, OVER, found 'GONE'"),
        ({"inner": {"phase": "OVER", "rows": b""}}, "k, inner, rows"),
    ],
)
def test_a_field_that_is_none_is_refused_with_its_place(changed: dict[str, object], complaint: str) -> None:
    data = FORM.encode(RECORD)
    head, fields = data[:8], msgspec.msgpack.decode(data[8:])
    with pytest.raises(CorruptObject, match=complaint):
        FORM.decode(head + msgspec.msgpack.encode({**fields, **changed}), "k")


def test_a_value_that_is_no_record_is_one_field() -> None:
    packing = Converted[tuple[int, ...]](Listed(3), np.array, lambda numbers, _: tuple(numbers.tolist()))
    form = RecordForm("some", 1, OneField("numbers", packing))
    assert msgspec.msgpack.decode(form.encode((4, 2))[7:]) == {"numbers": [4, 2]}
    assert form.decode(form.encode((4, 2)), "k") == (4, 2)
