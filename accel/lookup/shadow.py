"""Wraps an existing lookup of a broker, in one line.

    broker.get_objects = accelerate(broker.get_objects, accelerator, convert=...)

The wrapped function is called as before, with (stream id, start, end, limit), and is a coroutine function if the
accelerator is the one for asyncio; `convert` converts the accelerator's `Answer` to the result type of the broker's own
function. Three modes:

- "on": the accelerator answers. With ``fall_back`` the broker's own lookup answers if the accelerator cannot.
- "bypass": the broker's own lookup answers, and the accelerator is not called, for example during an incident.
- "shadow": both are called, the broker's own answer is returned, and every difference is reported. The accelerator can
  be observed for days before it is used, and its errors never reach the caller.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args, overload

from accel.errors import LookupTimedOut
from accel.lookup.accelerator import ReadAccelerator
from accel.lookup.answer import Answer, checked_arguments
from accel.lookup.async_accelerator import AsyncReadAccelerator
from accel.lookup.stats import ReportLimit
from accel.system import SYSTEM, Components
from loaders.settings import TimeLimit

logger = logging.getLogger(__name__)

Mode = Literal["on", "bypass", "shadow"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Difference(Generic[T]):
    """A call whose accelerated answer differs from the plain one.

    Args:
        stream_id, start, end, limit: the arguments of the call.
        plain: the answer of the broker's own lookup, or the error that it raised.
        accelerated: the accelerator's answer in the same form, or the error that it raised.
    """

    stream_id: int
    start: int
    end: int
    limit: int
    plain: T | Exception
    accelerated: T | Exception


@overload
def accelerate(
    get_objects: Callable[[int, int, int, int], T],
    accelerator: ReadAccelerator,
    *,
    convert: Callable[[Answer], T],
    mode: Mode = "on",
    on_difference: Callable[[Difference[T]], object] | None = None,
    fall_back: bool = False,
    deadline_seconds: TimeLimit = None,
    system: Components = SYSTEM,
) -> Callable[[int, int, int, int], T]: ...
@overload
def accelerate(
    get_objects: Callable[[int, int, int, int], Awaitable[T]],
    accelerator: AsyncReadAccelerator,
    *,
    convert: Callable[[Answer], T],
    mode: Mode = "on",
    on_difference: Callable[[Difference[T]], object] | None = None,
    fall_back: bool = False,
    deadline_seconds: TimeLimit = None,
    system: Components = SYSTEM,
) -> Callable[[int, int, int, int], Awaitable[T]]: ...
@checked_arguments
def accelerate(
    get_objects: Callable[[int, int, int, int], Any],
    accelerator: ReadAccelerator | AsyncReadAccelerator,
    *,
    convert: Callable[[Answer], Any],
    mode: Mode = "on",
    on_difference: Callable[[Difference[Any]], object] | None = None,
    fall_back: bool = False,
    deadline_seconds: TimeLimit = None,
    system: Components = SYSTEM,
) -> Callable[[int, int, int, int], Any]:
    """A function with the arguments of ``get_objects`` that answers through the accelerator.

    With an `AsyncReadAccelerator` it is a coroutine function, as ``get_objects`` is; a cancelled task ends without a
    fall back, and ``convert`` and ``on_difference`` are plain functions, called on the event loop.

    Args:
        get_objects: the existing lookup: (stream id, start, end or -1, limit) -> its own result type.
        accelerator: answers instead of the existing lookup, or in addition to it.
        convert: converts an `Answer` to the result type of ``get_objects``.
        mode: "on", "bypass" or "shadow".
        on_difference: called with each difference in shadow mode, where it is required.
        fall_back: whether, in mode "on", ``get_objects`` answers if the accelerator or ``convert`` raises any
            exception, or the deadline passes before the first object is found. This is logged once a minute at most.
        deadline_seconds: the time limit of the accelerator, in modes "on" and "shadow". After it the answer is partial
            (`Answer.partial`), or `LookupTimedOut` is raised if there is no object. None = no limit.
        system: the timer, for the log.

    Raises:
        InvalidRequest: a negative deadline.
        ValueError: an unknown mode, or shadow mode without ``on_difference``.
        TypeError: ``get_objects`` is a coroutine function and the accelerator is not one for asyncio.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"expected a mode out of {', '.join(get_args(Mode))}, found {mode!r}")
    if mode == "shadow" and on_difference is None:
        raise ValueError("expected on_difference for the mode shadow, found none")
    wrapping = _Wrapping(convert, on_difference, fall_back=fall_back, seconds=deadline_seconds, system=system)
    if isinstance(accelerator, AsyncReadAccelerator):
        return functools.wraps(get_objects)(_awaited(get_objects, accelerator, mode, wrapping))
    if inspect.iscoroutinefunction(get_objects):
        raise TypeError("expected a plain function, found a coroutine function: it takes an AsyncReadAccelerator")
    return functools.wraps(get_objects)(_called(get_objects, accelerator, mode, wrapping))


def _called(own: Callable[..., T], one: ReadAccelerator, mode: Mode, wrapping: _Wrapping[T]) -> Callable[..., T]:
    seconds = wrapping.seconds

    def accelerated(stream_id: int, start: int, end: int, limit: int) -> T:
        return wrapping.accept(one.get_objects(stream_id, start, end, limit, deadline_seconds=seconds))

    def wrapped(stream_id: int, start: int, end: int, limit: int) -> T:
        if mode == "bypass":
            return own(stream_id, start, end, limit)
        if mode == "shadow":
            asked = stream_id, start, end, limit
            plain = _outcome(lambda: own(*asked))
            return wrapping.compared(asked, plain, _outcome(lambda: accelerated(*asked)))
        try:
            return accelerated(stream_id, start, end, limit)
        except Exception as error:
            if not wrapping.may_fall_back(error):
                raise
        return own(stream_id, start, end, limit)

    return wrapped


def _awaited(
    own: Callable[..., Awaitable[T]], one: AsyncReadAccelerator, mode: Mode, wrapping: _Wrapping[T]
) -> Callable[..., Awaitable[T]]:
    seconds = wrapping.seconds

    async def accelerated(stream_id: int, start: int, end: int, limit: int) -> T:
        return wrapping.accept(await one.get_objects(stream_id, start, end, limit, deadline_seconds=seconds))

    async def wrapped(stream_id: int, start: int, end: int, limit: int) -> T:
        if mode == "bypass":
            return await own(stream_id, start, end, limit)
        if mode == "shadow":
            asked = stream_id, start, end, limit
            plain = await _awaited_outcome(lambda: own(*asked))
            return wrapping.compared(asked, plain, await _awaited_outcome(lambda: accelerated(*asked)))
        try:
            return await accelerated(stream_id, start, end, limit)
        except Exception as error:
            if not wrapping.may_fall_back(error):
                raise
        return await own(stream_id, start, end, limit)

    return wrapped


class _Wrapping(Generic[T]):
    """The common parts of both wrappers: everything except the calls of the lookups. Threads: any."""

    def __init__(
        self,
        convert: Callable[[Answer], T],
        on_difference: Callable[[Difference[T]], object] | None,
        *,
        fall_back: bool,
        seconds: float | None,
        system: Components,
    ) -> None:
        self.seconds = seconds
        self._convert = convert
        self._on_difference = on_difference
        self._falls_back = fall_back
        self._reports = ReportLimit(system.timer)

    def accept(self, answer: Answer) -> T:
        """An answer in the broker's form.

        Raises:
            LookupTimedOut: the deadline passed before the first object was found.
        """
        if answer.partial and not answer.objects:
            request = answer.request
            raise LookupTimedOut(
                f"stream {request.stream_id}: expected the first object from {request.start} on within "
                f"{self.seconds} s, found none by then"
            )
        return self._convert(answer)

    def may_fall_back(self, error: Exception) -> bool:
        """Whether the broker's own lookup is called after this error; logs it if so."""
        if self._falls_back and (times := self._reports.times()) is not None:
            text = "the accelerator failed (%d times since the last report); the broker's own lookup answers"
            logger.warning(text, times, exc_info=error)
        return self._falls_back

    def compared(self, asked: tuple[int, int, int, int], plain: T | Exception, ours: T | Exception) -> T:
        """Return the plain answer or raise its error; a difference is reported."""
        if not _alike(plain, ours) and self._on_difference is not None:
            _tell(self._on_difference, Difference(*asked, plain, ours))
        if isinstance(plain, Exception):
            raise plain
        return plain


def _outcome(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - an error is an outcome, which is compared and reported
        return error


async def _awaited_outcome(call: Callable[[], Awaitable[T]]) -> T | Exception:
    try:
        return await call()
    except Exception as error:  # noqa: BLE001 - likewise
        return error


def _tell(on_difference: Callable[[Difference[T]], object], difference: Difference[T]) -> None:
    try:
        on_difference(difference)
    except Exception:
        logger.exception("on_difference failed: %s", difference)


def _alike(plain: object, ours: object) -> bool:
    if isinstance(plain, Exception) or isinstance(ours, Exception):
        return isinstance(plain, Exception) and isinstance(ours, Exception)
    return plain == ours
