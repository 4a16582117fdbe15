"""Settings: every number of every class is checked, with the same words."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest

from accel.compaction.settings import CompactionSettings
from accel.history.store.settings import HistorySettings
from accel.settings import CatalogSettings, Settings
from accel.streams.rules.settings import ReaderSettings
from accel.streams.settings import SegmentsSettings, StreamWriterSettings
from loaders.settings import MergeSettings, check_settings
from loaders.store.settings import StoreSettings

CLASSES: tuple[type[Any], ...] = (
    CatalogSettings,
    CompactionSettings,
    HistorySettings,
    MergeSettings,
    ReaderSettings,
    SegmentsSettings,
    Settings,
    StoreSettings,
    StreamWriterSettings,
)
NUMBERS = [
    pytest.param(kind, field.name, str(field.type), id=f"{kind.__name__}.{field.name}")
    for kind in CLASSES
    for field in fields(kind)
    if str(field.type).split(" ")[0] in ("int", "float")
]


@pytest.mark.parametrize(("kind", "name", "annotation"), NUMBERS)
def test_what_is_no_number_or_below_0_is_refused_by_name(kind: type[Any], name: str, annotation: str) -> None:
    with pytest.raises(ValueError, match=f"^expected {name} (of at least|above) [0-9.]+, found -1$"):
        kind(**{name: -1})
    expected = "an integer" if annotation.startswith("int") else "a finite number( of at most 292 years)?"
    for wrong in (math.nan, math.inf, "8", True):
        with pytest.raises(ValueError, match=f"^expected {expected} as {name}, found "):
            kind(**{name: wrong})


@dataclass(frozen=True)
class Bounded:
    """One field of each kind."""

    count: int = 1
    pause_seconds: float = 1
    most_bytes: int | None = None
    is_quick: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        check_settings(self, least={"count": 0, "most_bytes": 4}, most={"pause_seconds": 60})


def test_named_bounds_are_the_last_that_pass() -> None:
    assert Bounded(0, 60, 4) == Bounded(np.int64(0), np.float64(60), np.int32(4))  # type: ignore[arg-type] # numpy's
    assert Bounded(most_bytes=None, pause_seconds=0.001).most_bytes is None
    for wrong, expected in (
        ({"pause_seconds": 60.5}, "expected pause_seconds of at most 60, found 60.5"),
        ({"pause_seconds": 0}, "expected pause_seconds above 0, found 0"),
        ({"most_bytes": 3}, "expected most_bytes of at least 4, found 3"),
        ({"count": 1.0}, "expected an integer as count, found 1.0 of type float"),
        ({"count": None}, "expected an integer as count, found None of type NoneType"),
    ):
        with pytest.raises(ValueError, match=f"^{expected}$"):
            Bounded(**wrong)
