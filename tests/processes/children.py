"""Forks that cannot hang a test, and a way to fork at the worst moment: while every lock is held."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, RLock, Thread
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from loaders.store import ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall

Answer = TypeVar("Answer")

CHILD_SECONDS = 60.0
"""A child that has told nothing by then hangs."""

OURS = ("accel", "loaders", "range_index", "bloom", "cachetools", "collections", "concurrent", "functools", "threading")
LOCKS = (type(Lock()), type(RLock()))


def in_child(act: Callable[[], object]) -> object:
    """Do something in a forked process, and give what came of it.

    Raises:
        What it raised there.
        TimeoutError: it hangs.
    """
    reading, writing = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        try:
            os.write(writing, _outcome(act))
        finally:
            os._exit(0)
    os.close(writing)
    try:
        told = _read(reading)
    finally:
        os.close(reading)
        os.kill(process_id, signal.SIGKILL)
        os.waitpid(process_id, 0)
    if told is None:
        raise TimeoutError("expected a child that ends, found one that hangs")
    has_worked, outcome = pickle.loads(told)  # noqa: S301 - of our own child
    if has_worked:
        return outcome
    raise outcome


def _outcome(act: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((True, act()))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent raises it
        return pickle.dumps((False, error))


def _read(reading: int) -> bytes | None:
    told = b""
    while select.select([reading], [], [], CHILD_SECONDS)[0]:
        part = os.read(reading, 65_536)
        if not part:
            return told
        told += part
    return None


class Held(DecoratedStore):
    """A store whose requests wait, in the process that made it, until they may go on."""

    def __init__(self, store: ObjectStore, *, is_holding: bool = True) -> None:
        super().__init__(store)
        self._process_id = os.getpid()
        self.is_holding = is_holding
        self.begun, self.may_go_on = Event(), Event()

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        del call
        if self.is_holding and os.getpid() == self._process_id:
            self.begun.set()
            self.may_go_on.wait()
        return send()


@contextmanager
def every_lock_held(*roots: object) -> Iterator[int]:
    """Hold all locks that objects of this project have, as other threads would that are just at work; gives how many.

    Args:
        roots: whose, with all that they refer to.
    """
    held, may_end = Event(), Event()
    locks = list(_locks(roots))

    def hold() -> None:
        taken = [lock for lock in locks if lock.acquire(blocking=False)]
        held.set()
        may_end.wait()
        for lock in taken:
            lock.release()

    holder = Thread(target=hold)
    holder.start()
    held.wait()
    try:
        yield len(locks)
    finally:
        may_end.set()
        holder.join()


def _locks(roots: tuple[object, ...]) -> Iterator[Any]:
    seen: set[int] = set()
    waiting: list[object] = list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, LOCKS):
            yield each
        elif isinstance(each, FunctionType):
            waiting += [cell.cell_contents for cell in each.__closure__ or ()]
        elif isinstance(each, MethodType):
            waiting.append(each.__self__)
        elif _is_followed(each):
            waiting += gc.get_referents(each)


def _is_followed(each: object) -> bool:
    if isinstance(each, type | ModuleType | Thread):
        return False
    if isinstance(each, dict | list | tuple | set):
        return True
    return type(each).__module__.partition(".")[0] in OURS
