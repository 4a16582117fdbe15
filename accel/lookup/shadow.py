"""Wraps a lookup that a broker has already, in one line.

    broker.get_objects = accelerate(broker.get_objects, accelerator)

The wrapped function is called as before, with (stream id, start, end, limit), and gives an `Answer`; `convert` turns
that into whatever the broker's own function returns. Three modes:

- "on": the accelerator answers.
- "bypass": the broker's own lookup answers; the accelerator is not asked. The switch for a bad day.
- "shadow": both are asked, the broker's own answer is given, and every difference is reported. The accelerator can be
  watched for days before anybody depends on it, and an error of its own never reaches the caller.

The mode is asked for at each call, so that it can be switched while the broker runs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

from accel.lookup.accelerator import ReadAccelerator
from accel.lookup.answer import Answer

logger = logging.getLogger(__name__)

Mode = Literal["on", "bypass", "shadow"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Difference(Generic[T]):
    """Where the accelerated answer is not the plain one.

    Args:
        stream_id, start, end, limit: what was asked.
        plain: what the broker's own lookup answered, or the error that it raised.
        accelerated: the accelerator's answer in the same form, or the error that it raised.
    """

    stream_id: int
    start: int
    end: int
    limit: int
    plain: T | Exception
    accelerated: T | Exception


def accelerate(
    get_objects: Callable[[int, int, int, int], T],
    accelerator: ReadAccelerator,
    *,
    convert: Callable[[Answer], T],
    mode: Mode | Callable[[], Mode] = "on",
    on_difference: Callable[[Difference[T]], object] | None = None,
) -> Callable[[int, int, int, int], T]:
    """A function with the arguments of ``get_objects`` that answers through the accelerator.

    Args:
        get_objects: the lookup that exists: (stream id, start, end or -1, limit) -> its own kind of result.
        accelerator: answers instead of it, or beside it.
        convert: an `Answer` in the form that ``get_objects`` gives.
        mode: "on", "bypass" or "shadow", or a function that says which, asked at each call.
        on_difference: told of each difference in shadow mode, where it is required.

    Raises:
        ValueError: an unknown mode, or shadow mode without anybody to tell.
    """
    if not callable(mode) and mode not in get_args(Mode):
        raise ValueError(f"expected a mode out of {', '.join(get_args(Mode))}, found {mode!r}")
    if on_difference is None and (callable(mode) or mode == "shadow"):
        raise ValueError("expected on_difference for a mode that is or may become shadow, found none")

    def accelerated(stream_id: int, start: int, end: int, limit: int) -> T:
        return convert(accelerator.get_objects(stream_id, start, end, limit))

    @functools.wraps(get_objects)
    def wrapped(stream_id: int, start: int, end: int, limit: int) -> T:
        now = mode() if callable(mode) else mode
        if now == "on":
            return accelerated(stream_id, start, end, limit)
        if now == "bypass" or on_difference is None:
            return get_objects(stream_id, start, end, limit)
        plain = _outcome(lambda: get_objects(stream_id, start, end, limit))
        ours = _outcome(lambda: accelerated(stream_id, start, end, limit))
        if not _alike(plain, ours):
            _tell(on_difference, Difference(stream_id, start, end, limit, plain, ours))
        if isinstance(plain, Exception):
            raise plain
        return plain

    return wrapped


def _outcome(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - an error is an outcome like another; it is compared and reported
        return error


def _tell(on_difference: Callable[[Difference[T]], object], difference: Difference[T]) -> None:
    try:
        on_difference(difference)
    except Exception:
        logger.exception("telling of a difference failed: %s", difference)


def _alike(plain: object, ours: object) -> bool:
    if isinstance(plain, Exception) or isinstance(ours, Exception):
        return isinstance(plain, Exception) and isinstance(ours, Exception)
    return plain == ours
