"""Spans of lookups, loads and requests, for an application that records spans; without effect for other applications.

    lookup "accel.lookup"                  a lookup that loads objects; a lookup answered from memory has no span
      round "accel.round"                  from the request for objects until the lookup continues
        load "accel.load"                  an object index is opened, in a loading thread
          request "accel.store GET ..."    one request to the store

Only the API package of OpenTelemetry is used (the extra `metrics`), and it is not imported here: an application that
records spans has imported it to set its provider up. If it is not imported, no span can be recorded, and none is
created.

Work that is passed to other threads runs in the caller's context (`loaders.lifetime`), so that the span of a load gets
its round as parent; in the same way a lookup that records its trace gets the times of its requests (`RequestTimes`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

NAME: Final = "accel"
"""The name of the tracer."""

Attribute: TypeAlias = str | int | float | bool

_NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class Span:
    """A span that is not the current span of its thread: several lookups may alternate in one thread.

    Threads: one at a time. Use `current` around work that belongs to the span, and `end` once.

    Args:
        trace: the module `opentelemetry.trace`.
        name: of the span.
        attributes: of the span.
        parent: the parent span; None = the current span of the caller.
    """

    __slots__ = ("_trace", "span")

    def __init__(self, trace: Any, name: str, attributes: dict[str, Attribute], parent: Span | None = None) -> None:
        context = None if parent is None else trace.set_span_in_context(parent.span)
        self._trace = trace
        self.span: Any = trace.get_tracer(NAME).start_span(name, context=context, attributes=_named(attributes))

    def begin(self, name: str, **attributes: Attribute) -> Span:
        """Begin a child span of this span."""
        return Span(self._trace, name, attributes, self)

    def current(self) -> AbstractContextManager[Any]:
        """A context manager: work within it belongs to the span, in other threads too."""
        context: AbstractContextManager[Any] = self._trace.use_span(
            self.span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )
        return context

    def end(self, error: BaseException | None = None, **attributes: Attribute) -> None:
        """End the span.

        Args:
            error: the error of the work, if it failed.
            attributes: the results of the work.
        """
        for name, value in _named(attributes).items():
            self.span.set_attribute(name, value)
        if error is not None:
            self.span.set_attribute("error.type", type(error).__name__)
            self.span.set_status(self._trace.StatusCode.ERROR)
        self.span.end()


class RequestTimes:
    """The durations of the requests to the store that one lookup began, repetitions included. Threads: any; no lock.

    Attributes:
        spans: begin and end of each request, in seconds from any start; the end is infinite while it is under way.
        hedged: has an entry for each request that was sent a second time.
    """

    def __init__(self) -> None:
        self.spans: list[list[float]] = []
        self.hedged: list[None] = []

    def until(self, now_seconds: float) -> tuple[float, float, int]:
        """Seconds of all requests together, of the longest one, with those under way; the number sent twice."""
        seconds = [min(end, now_seconds) - begin for begin, end in self.spans]
        return sum(seconds), max(seconds, default=0.0), len(self.hedged)


_TIMES: Final[ContextVar[RequestTimes | None]] = ContextVar("accel_request_times", default=None)


def request_times() -> RequestTimes | None:
    """The times of the lookup that the current work belongs to; None if no lookup records them."""
    return _TIMES.get()


@contextmanager
def timed(times: RequestTimes | None) -> Iterator[None]:
    """A context manager: requests that work in it begins, in other threads too, are noted in ``times``."""
    token = _TIMES.set(times)
    try:
        yield
    finally:
        _TIMES.reset(token)


def begin_span(name: str, **attributes: Attribute) -> Span | None:
    """Begin a child of the caller's current span; None if the application records no spans."""
    trace = _recording()
    return None if trace is None else Span(trace, name, attributes)


def current(span: Span | None) -> AbstractContextManager[Any]:
    """A context manager: work within it belongs to a span, if there is one."""
    return _NOTHING if span is None else span.current()


def traced(name: str, **attributes: Attribute) -> AbstractContextManager[None]:
    """A context manager: work in it is a span; an error marks it as failed, with the error's class, not its text."""
    trace = _recording()
    if trace is None:
        return _NOTHING
    return _traced(Span(trace, name, attributes))


@contextmanager
def _traced(span: Span) -> Iterator[None]:
    failed: BaseException | None = None
    try:
        with span.current():
            yield
    except BaseException as error:
        failed = error
        raise
    finally:
        span.end(failed)


def _named(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    return {f"accel.{name}": value for name, value in attributes.items()}


def _recording() -> Any:
    """The module `opentelemetry.trace`, if the application has imported it."""
    return sys.modules.get("opentelemetry.trace")
