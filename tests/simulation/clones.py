"""A process as its machine's snapshot has it: everything in its memory a second time, and the same network around it.

What is outside of the process (the bucket, the clock of the world, its scheduler) is shared; all else is copied, locks
and sources of randomness included. So nothing that the copy remembers tells it from the original.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Iterator
from enum import Enum
from random import Random, SystemRandom
from types import MethodType
from typing import Any, TypeVar

import msgspec
import numpy as np

from loaders.store import MemoryStore
from loaders.store.decorated import DecoratedStore
from tests.simulation.scheduler import Mortal, Scheduler, Task
from tests.simulation.world import Machine, Oracle, World

T = TypeVar("T")

OUTSIDE = (World, Oracle, Machine, Mortal, Scheduler, Task, MemoryStore, DecoratedStore, SystemRandom, msgspec.Struct, Enum)
OURS = ("accel", "loaders", "range_index", "tests")


def cloned(root: T) -> T:
    """A copy of all that an object refers to inside its process."""
    copy: T = _copied(root, {})
    return copy


def _copied(value: Any, known: dict[int, tuple[Any, Any]]) -> Any:
    if id(value) not in known:
        known[id(value)] = (value, value)  # the original, too: an id is of an object that lives
        _copy(value, known)
    return known[id(value)][1]


def _copy(value: Any, known: dict[int, tuple[Any, Any]]) -> None:
    def note(copy: T) -> T:
        known[id(value)] = (value, copy)
        return copy

    if isinstance(value, OUTSIDE):
        return
    if isinstance(value, np.ndarray | Random):
        note(value.copy() if isinstance(value, np.ndarray) else _random(value))
    elif isinstance(value, MethodType):
        note(MethodType(value.__func__, _copied(value.__self__, known)))
    elif isinstance(value, functools.partial):
        arguments = [_copied(each, known) for each in value.args]
        words = {name: _copied(each, known) for name, each in value.keywords.items()}
        note(functools.partial(_copied(value.func, known), *arguments, **words))
    elif type(value) in (list, deque):
        note(type(value)()).extend(_copied(each, known) for each in list(value))
    elif type(value) in (dict, OrderedDict):
        note(type(value)()).update({each: _copied(held, known) for each, held in list(value.items())})
    elif type(value) in (set, tuple, frozenset):
        note(type(value)(_copied(each, known) for each in value))
    elif isinstance(value, tuple) and hasattr(value, "_make"):
        note(value._make(_copied(each, known) for each in value))
    elif type(value).__module__.partition(".")[0] in OURS and not isinstance(value, type):
        copy = note(object.__new__(type(value)))
        for name, held in list(_attributes(value)):
            object.__setattr__(copy, name, _copied(held, known))


def _random(random: Random) -> Random:
    copy = Random()  # noqa: S311 - takes the state of the other one
    copy.setstate(random.getstate())
    return copy


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from vars(value).items() if hasattr(value, "__dict__") else ()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)
