"""Wraps a lookup that a broker has already, in one line.

    broker.get_objects = accelerate(broker.get_objects, accelerator, convert=...)
    broker.get_objects = accelerate_async(broker.get_objects, async_accelerator, convert=...)

The wrapped function is called as before, with (stream id, start, end, limit), and gives an `Answer`; `convert` turns
that into whatever the broker's own function returns. Three modes:

- "on": the accelerator answers. With ``fall_back`` the broker's own lookup answers whenever the accelerator cannot.
- "bypass": the broker's own lookup answers; the accelerator is not asked. The switch for a bad day.
- "shadow": both are asked, the broker's own answer is given, and every difference is reported. The accelerator can be
  watched for days before anybody depends on it, and an error of its own never reaches the caller.

The mode is asked for at each call, so that it can be switched while the broker runs. One that does not exist is refused
by that call, before anybody is asked.
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
from accel.lookup.answer import Answer, check_seconds
from accel.lookup.async_accelerator import AsyncReadAccelerator
from accel.lookup.stats import ReportLimit
from accel.system import SYSTEM, Components

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
    fall_back: bool = False,
    deadline_seconds: float | None = None,
    system: Components = SYSTEM,
) -> Callable[[int, int, int, int], T]:
    """A function with the arguments of ``get_objects`` that answers through the accelerator.

    Args:
        get_objects: the lookup that exists: (stream id, start, end or -1, limit) -> its own kind of result.
        accelerator: answers instead of it, or beside it.
        convert: an `Answer` in the form that ``get_objects`` gives.
        mode: "on", "bypass" or "shadow", or a function that says which, asked at each call.
        on_difference: told of each difference in shadow mode, where it is required.
        fall_back: whether, in mode "on", ``get_objects`` answers where the accelerator or ``convert`` raises any
            exception, or the deadline comes before the first object is found. The log tells, once a minute at most.
        deadline_seconds: the time that the accelerator may take, in modes "on" and "shadow". An answer is then partial
            (`Answer.partial`); one without any object is not given out, but `LookupTimedOut`. None = as long as it
            takes.
        system: the timer, for the log.

    Raises:
        InvalidRequest: a negative deadline.
        ValueError: an unknown mode, or shadow mode without anybody to tell; from the function as well, for a mode that
            is said at the call.
        TypeError: ``get_objects`` is a coroutine function: it takes `accelerate_async`.
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


def accelerate_async(
    get_objects: Callable[[int, int, int, int], Awaitable[T]],
    accelerator: AsyncReadAccelerator,
    *,
    convert: Callable[[Answer], T],
    mode: Mode | Callable[[], Mode] = "on",
    on_difference: Callable[[Difference[T]], object] | None = None,
    fall_back: bool = False,
    deadline_seconds: float | None = None,
    system: Components = SYSTEM,
) -> Callable[[int, int, int, int], Awaitable[T]]:
    """As `accelerate`, for a lookup that is awaited, and the accelerator for asyncio.

    A task that is cancelled ends; nobody falls back for it. ``convert``, ``mode`` and ``on_difference`` are plain
    functions, called on the event loop.

    Raises:
        InvalidRequest, ValueError: as `accelerate`.
        TypeError: ``get_objects`` is a plain function that gives no awaitable; from the call where that shows.
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
    """What both ways of wrapping share: everything but the asking. Threads: any."""

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
        check_seconds("deadline_seconds", seconds)
        if not callable(mode):
            _check_mode(mode)
        if on_difference is None and (callable(mode) or mode == "shadow"):
            raise ValueError("expected on_difference for a mode that is or may become shadow, found none")

    def mode_now(self) -> Mode:
        """The mode of this call; ValueError if there is no such mode."""
        mode = self._mode
        return _check_mode(mode()) if callable(mode) else mode

    def accept(self, answer: Answer) -> T:
        """An answer in the broker's form.

        Raises:
            LookupTimedOut: the deadline came before the first object: it says nothing of what there is.
        """
        if answer.partial and not answer.objects:
            request = answer.request
            raise LookupTimedOut(
                f"stream {request.stream_id}: expected the first object from {request.start} on within "
                f"{self._seconds} s, found none by then"
            )
        return self._convert(answer)

    def may_fall_back(self, error: Exception) -> bool:
        """Whether the broker's own lookup is asked after this error; tells the log if so."""
        if self._falls_back and (times := self._reports.times()) is not None:
            text = "the accelerator failed (%d times since that was said last); the broker's own lookup answers"
            logger.warning(text, times, exc_info=error)
        return self._falls_back

    def compared(self, asked: tuple[int, int, int, int], plain: T | Exception, ours: T | Exception) -> T:
        """The plain answer, or its error raised; a difference is told."""
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
    except Exception as error:  # noqa: BLE001 - an error is an outcome like another; it is compared and reported
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
        logger.exception("telling of a difference failed: %s", difference)


def _alike(plain: object, ours: object) -> bool:
    if isinstance(plain, Exception) or isinstance(ours, Exception):
        return isinstance(plain, Exception) and isinstance(ours, Exception)
    return plain == ours
