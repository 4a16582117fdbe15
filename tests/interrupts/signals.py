"""A signal that arrives at a chosen instruction of a call, and whose handler raises; then calls with a time limit.

Python runs the handlers of signals in the main thread, between two instructions: after a call, at the start of a
function, and when a loop goes back. A call is traced once, to find these places in its frames and in those of the
libraries that it waits with. Then it is made again on a fresh object, and the signal is marked as pending at one of
them. This is done by a function of the interpreter that runs no Python code, so that the handler runs exactly where it
would run for a real signal: `with lock:` never loses a lock, `lock.acquire()` may.
"""

from __future__ import annotations

import ctypes
import dis
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT / each}/" for each in ("accel", "loaders", "bloom", "range_index"))
LIBRARIES = ("threading.py", "queue.py", "concurrent/futures/_base.py", "concurrent/futures/thread.py")
CHECKS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}
UNSAFE = {("threading.py", name) for name in ("__enter__", "__exit__", "_release_save", "_acquire_restore")}
"""Functions of Python whose caller cannot know, if they are interrupted, whether they hold a lock of Python's own."""

Place = tuple[str, int, int]
"""A place in the code: file, first line of the function, and the last instruction before the place."""


class Limit(Exception):
    """What the handler of a signal raises: a time limit of the caller."""


class Stuck(AssertionError):
    """A call did not return in time."""


def guarded(seconds: float, call: Callable[[], T]) -> T:
    """Make a call in another thread, and return its result.

    Raises:
        Stuck: it did not return in time; with its stack.
        BaseException: the error of the call.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - raised in the test
            failed.append(error)

    thread = threading.Thread(target=work, name="guarded", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        raise Stuck("".join(traceback.format_stack(frame)[-8:]))
    if failed:
        raise failed[0]
    return found[0]


def _is_ours(code: CodeType) -> bool:
    name = code.co_filename
    return name.startswith(PACKAGES) or name.endswith(LIBRARIES)


def _is_safe(code: CodeType) -> bool:
    return (Path(code.co_filename).name, code.co_name) not in UNSAFE


def places(call: Callable[[], object]) -> list[Place]:
    """The places of a call, in the order in which it came to them first; the call is made."""
    checks: dict[CodeType, set[int]] = {}
    found: dict[Place, None] = {}
    last: Place | None = None

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal last
        code = frame.f_code
        if event == "opcode":
            if code not in checks:
                instructions = dis.get_instructions(code) if _is_safe(code) else ()
                checks[code] = {each.offset for each in instructions if each.opname in CHECKS}
            if last is not None and frame.f_lasti in checks[code]:
                found.setdefault(last)
        last = code.co_filename, code.co_firstlineno, frame.f_lasti
        return local

    def entered(frame: FrameType, _: str, __: object) -> Any:
        nonlocal last
        if not _is_ours(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        last = frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lasti
        return local

    sys.settrace(entered)
    try:
        call()
    finally:
        sys.settrace(None)
    return list(found)


_prototype = ctypes.PYFUNCTYPE(None, ctypes.py_object, ctypes.py_object, ctypes.py_object)
_mark_pending = _prototype(("PyErr_SetInterrupt", ctypes.pythonapi))  # trace functions without Python code
_do_nothing = _prototype(("Py_IsInitialized", ctypes.pythonapi))


@dataclass
class Interrupted:
    """How an interrupted call ended.

    Attributes:
        where: the place at which the handler ran, for a person; None = it did not run within the call.
        error: what the call raised.
        result: what it returned otherwise.
    """

    where: str | None = None
    error: BaseException | None = None
    result: Any = None


def raising(error: BaseException) -> Callable[[], object]:
    """A handler that raises an error."""

    def handler() -> object:
        raise error

    return handler


def interrupted(call: Callable[[], object], place: Place, act: Callable[[], object]) -> Interrupted:
    """Make a call, in whose course a signal arrives at a place, and is handled."""
    outcome = Interrupted()
    is_armed = True

    def local(frame: FrameType, _: str, __: object) -> Any:
        if (frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lasti) != place:
            return local
        outer: FrameType | None = frame.f_back
        while outer is not None:
            outer.f_trace = None
            outer = outer.f_back
        sys.settrace(_do_nothing)
        return _mark_pending

    def entered(frame: FrameType, event: str, argument: object) -> Any:
        if not _is_ours(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        return local(frame, event, argument)

    def handler(_: int, frame: FrameType | None) -> None:
        nonlocal is_armed
        sys.settrace(None)
        if is_armed and frame is not None and frame.f_code.co_filename != __file__ and _is_safe(frame.f_code):
            is_armed = False
            outcome.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            act()

    before = signal.signal(signal.SIGINT, handler)
    try:
        sys.settrace(entered)
        outcome.result = call()
    except BaseException as raised:  # noqa: BLE001 - the caller looks at it
        outcome.error = raised.with_traceback(None)
    finally:
        is_armed = False
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    return outcome
