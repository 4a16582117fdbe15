"""Wraps an existing lookup of a broker, in one line.

    broker.get_objects = accelerate(broker.get_objects, accelerator, convert=...)
    broker.get_objects = accelerate_async(broker.get_objects, async_accelerator, convert=...)

The wrapped function is called as before, with (stream id, start, end, limit); `convert` converts the accelerator's
`Answer` to the result type of the broker's own function. Three modes:

- "on": the accelerator answers. With ``fall_back`` the broker's own lookup answers if the accelerator cannot.
- "bypass": the broker's own lookup answers, and the accelerator is not called, for example during an incident.
- "shadow": both are called, the broker's own answer is returned, and every difference is reported. The accelerator can
  be observed for days before it is used, and its errors never reach the caller.

The mode is read at each call, so that it can be switched while the broker runs. A call with an unknown mode is refused
before either lookup is called.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

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


@checked_arguments
def accelerate(
    get_objects: Callable[[int, int, int, int], T],
    accelerator: ReadAccelerator,
    *,
    convert: Callable[[Answer], T],
    mode: Mode | Callable[[], Mode] = "on",
    on_difference: Callable[[Difference[T]], object] | None = None,
    fall_back: bool = False,
    deadline_seconds: TimeLimit = None,
    system: Components = SYSTEM,
) -> Callable[[int, int, int, int], T]:
    """A function with the arguments of ``get_objects`` that answers through the accelerator.

    Args:
        get_objects: the existing lookup: (stream id, start, end or -1, limit) -> its own result type.
        accelerator: answers instead of the existing lookup, or in addition to it.
        convert: converts an `Answer` to the result type of ``get_objects``.
        mode: "on", "bypass" or "shadow", or a function that returns the mode, called at each call.
        on_difference: called with each difference in shadow mode, where it is required.
        fall_back: whether, in mode "on", ``get_objects`` answers if the accelerator or ``convert`` raises any
            exception, or the deadline passes before the first object is found. This is logged once a minute at most.
        deadline_seconds: the time limit of the accelerator, in modes "on" and "shadow". After it the answer is partial
            (`Answer.partial`), or `LookupTimedOut` is raised if there is no object. None = no limit.
        system: the timer, for the log.

    Raises:
        InvalidRequest: a negative deadline.
        ValueError: an unknown mode, or shadow mode without ``on_difference``; raised by the returned function if
            ``mode`` is a function that returns an unknown mode.
        TypeError: ``get_objects`` is a coroutine function, which needs `accelerate_async`.
    """
    if inspect.iscoroutinefunction(get_objects):
        raise TypeError("expected a plain function, found a coroutine function: wrap it by accelerate_async")
    wrapping = _Wrapping(convert, mode, on_difference, fall_back=fall_back, seconds=deadline_seconds, system=system)

    def accelerated(stream_id: int, start: int, end: int, limit: int) -> T:
        return wrapping.accept(accelerator.get_objects(stream_id, start, end, limit, deadline_seconds=deadline_seconds))

    @functools.wraps(get_objects)
    def wrapped(stream_id: int, start: int, end: int, limit: int) -> T:
        asked = (stream_id, start, end, limit)
        now = wrapping.mode_now()
        if now == "bypass":
            return get_objects(*asked)
        if now == "shadow":
            plain = _outcome(lambda: get_objects(*asked))
            return wrapping.compared(asked, plain, _outcome(lambda: accelerated(*asked)))
        try:
            return accelerated(*asked)
        except Exception as error:
            if not wrapping.may_fall_back(error):
                raise
        return get_objects(*asked)

    return wrapped


@checked_arguments
def accelerate_async(
    get_objects: Callable[[int, int, int, int], Awaitable[T]],
    accelerator: AsyncReadAccelerator,
    *,
    convert: Callable[[Answer], T],
    mode: Mode | Callable[[], Mode] = "on",
    on_difference: Callable[[Difference[T]], object] | None = None,
    fall_back: bool = False,
    deadline_seconds: TimeLimit = None,
    system: Components = SYSTEM,
) -> Callable[[int, int, int, int], Awaitable[T]]:
    """As `accelerate`, for a lookup that is a coroutine function, and the accelerator for asyncio.

    A cancelled task ends without a fall back. ``convert``, ``mode`` and ``on_difference`` are plain functions, called
    on the event loop.

    Raises:
        InvalidRequest, ValueError: as `accelerate`.
        TypeError: ``get_objects`` is a plain function that returns no awaitable; raised when it is called.
    """
    wrapping = _Wrapping(convert, mode, on_difference, fall_back=fall_back, seconds=deadline_seconds, system=system)

    async def accelerated(stream_id: int, start: int, end: int, limit: int) -> T:
        return wrapping.accept(
            await accelerator.get_objects(stream_id, start, end, limit, deadline_seconds=deadline_seconds)
        )

    @functools.wraps(get_objects)
    async def wrapped(stream_id: int, start: int, end: int, limit: int) -> T:
        asked = (stream_id, start, end, limit)
        now = wrapping.mode_now()
        if now == "bypass":
            return await get_objects(*asked)
        if now == "shadow":
            plain = await _awaited(lambda: get_objects(*asked))
            return wrapping.compared(asked, plain, await _awaited(lambda: accelerated(*asked)))
        try:
            return await accelerated(*asked)
        except Exception as error:
            if not wrapping.may_fall_back(error):
                raise
        return await get_objects(*asked)

    return wrapped


class _Wrapping(Generic[T]):
    """The common parts of both wrappers: everything except the calls of the lookups. Threads: any."""

    def __init__(
        self,
        convert: Callable[[Answer], T],
        mode: Mode | Callable[[], Mode],
        on_difference: Callable[[Difference[T]], object] | None,
        *,
        fall_back: bool,
        seconds: float | None,
        system: Components,
    ) -> None:
        self._convert = convert
        self._mode = mode
        self._on_difference = on_difference
        self._falls_back = fall_back
        self._seconds = seconds
        self._reports = ReportLimit(system.timer)
        if not callable(mode):
            _check_mode(mode)
        if on_difference is None and (callable(mode) or mode == "shadow"):
            raise ValueError("expected on_difference for a mode that is or may become shadow, found none")

    def mode_now(self) -> Mode:
        """The mode of this call; raises ValueError if it is unknown."""
        mode = self._mode
        return _check_mode(mode()) if callable(mode) else mode

    def accept(self, answer: Answer) -> T:
        """An answer in the broker's form.

        Raises:
            LookupTimedOut: the deadline passed before the first object was found.
        """
        if answer.partial and not answer.objects:
            request = answer.request
            raise LookupTimedOut(
                f"stream {request.stream_id}: expected the first object from {request.start} on within "
                f"{self._seconds} s, found none by then"
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


def _check_mode(mode: Mode) -> Mode:
    if mode not in get_args(Mode):
        raise ValueError(f"expected a mode out of {', '.join(get_args(Mode))}, found {mode!r}")
    return mode


def _outcome(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - an error is an outcome, which is compared and reported
        return error


async def _awaited(call: Callable[[], Awaitable[T]]) -> T | Exception:
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
