"""A process as its machine's snapshot has it: everything in its memory a second time, and the same network around it.

What is outside of the process (the bucket, the clock of the world, its scheduler) is shared; all else is copied, locks
and sources of randomness included. So nothing that the copy remembers tells it from the original.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
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

OUTSIDE = (World, Oracle, Machine, Mortal, Scheduler, Task, MemoryStore, DecoratedStore)
FIXED = (SystemRandom, msgspec.Struct, Enum)
"""What never changes, or has no state."""

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

    def again(each: Any) -> Any:
        return _copied(each, known)

    if isinstance(value, OUTSIDE + FIXED):
        return
    if isinstance(value, np.ndarray | Random):
        note(value.copy() if isinstance(value, np.ndarray) else _random(value))
    elif type(value) in (list, deque):
        note(type(value)()).extend(map(again, list(value)))
    elif type(value) in (dict, OrderedDict):
        note(type(value)()).update({each: again(held) for each, held in list(value.items())})
    elif _is_ours(value) and not isinstance(value, tuple):
        copy = note(object.__new__(type(value)))
        for name, held in list(_attributes(value)):
            object.__setattr__(copy, name, again(held))
    else:
        note(_rebuilt(value, again))


def _rebuilt(value: Any, again: Callable[[Any], Any]) -> Any:
    """What has no place of its own before all its parts are there; what is of nobody's making stays as it is."""
    if isinstance(value, MethodType):
        return MethodType(value.__func__, again(value.__self__))
    if isinstance(value, functools.partial):
        words = {name: again(each) for name, each in value.keywords.items()}
        return functools.partial(again(value.func), *map(again, value.args), **words)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(again, value))
    return type(value)(map(again, value)) if type(value) in (set, tuple, frozenset) else value


def _is_ours(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in OURS and not isinstance(value, type)


def _random(random: Random) -> Random:
    copy = Random()
    copy.setstate(random.getstate())
    return copy


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from vars(value).items() if hasattr(value, "__dict__") else ()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)
