"""Checks that many records share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.history.ids import EPOCH_MAX


def check_epoch(where: str, epoch: int, reference_epoch: int) -> None:
    """Refuse what is no epoch, and a reference that is none or lies after it.

    Raises:
        ValueError: either of both.
    """
    if not 0 <= epoch <= EPOCH_MAX:
        raise ValueError(f"{where}: expected an epoch of 0 to {EPOCH_MAX}, found {epoch}")
    if not 0 <= reference_epoch <= epoch:
        raise ValueError(f"{where}: expected a reference of 0 to {epoch}, found {reference_epoch}")


def check_least(where: str, least: int, **numbers: int) -> None:
    """Refuse numbers that are too low.

    Raises:
        ValueError: the first of them that is.
    """
    for name, value in numbers.items():
        if value < least:
            raise ValueError(f"{where}: expected {name} of at least {least}, found {value}")


def integers(values: ArrayLike) -> NDArray[np.int64]:
    """A column of 64-bit integers, taken over and read-only.

    Raises:
        ValueError: not a single column.
    """
    column = np.asarray(values, dtype=np.int64)
    if column.ndim != 1:
        raise ValueError(f"expected one column of numbers, found {column.ndim} dimensions")
    column.setflags(write=False)
    return column
