"""The tree of errors is drawn once, and all of it."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from uuid import UUID

import pytest

import accel.errors
import accel.streams.open_segments
import spark_jobs.session
import spark_jobs.tasks  # noqa: F401 - has an error of its own, as the module above
from accel.errors import AccelError, Sought
from accel.lookup.search_requests import ImageStale

GIVEN: dict[object, object] = {
    "Any": {"deleted": 3},
    "Mapping[int, int]": {0: 5, 1 << 32: 7},
    "Mapping[int, int] | None": {0: 4},
    "Sought": Sought.CUT,
    "StreamName": ("shop", "orders"),
    "UUID": UUID(int=7),
    "float | None": 1.5,
    "int": 7,
    "str": "a word",
    "tuple[int, ...]": (5, 6),
    "tuple[int, bytes]": (3, b"nonce"),
    "tuple[int, bytes] | None": (2, b"other"),
}
"""An argument by its annotation: an error with an argument of another kind is given a row here."""


def kinds(base: type[AccelError] = AccelError) -> Iterator[type[AccelError]]:
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


# `ImageStale` never leaves the lookup that raises it, and has parts of its image.
ALL = sorted(set(kinds()) - {ImageStale}, key=lambda kind: (kind.__module__, kind.__name__))


def made(kind: type[AccelError]) -> AccelError:
    if not inspect.isfunction(kind.__init__):
        return kind("what was expected, and what was found")
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return kind(**{parameter.name: GIVEN[parameter.annotation] for parameter in parameters})


def is_same(one: BaseException, other: BaseException) -> bool:
    return (type(one), str(one), one.args, vars(one)) == (type(other), str(other), other.args, vars(other))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_copy_of_an_error_is_the_same_error(kind: type[AccelError]) -> None:
    error = made(kind)
    error.add_note("seen by a test")
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 - our bytes
        assert is_same(copied, error)
        assert (copied.retryable, copied.advice) == (error.retryable, error.advice)
    assert is_same(pickle.loads(pickle.dumps(error, 2)), error)  # noqa: S301 - likewise


def raise_made(kind: type[AccelError]) -> None:
    raise made(kind)


def test_an_error_arrives_from_another_process_as_it_was_raised() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for kind, future in [(kind, pool.submit(raise_made, kind)) for kind in ALL]:
            error = future.exception(60)
            assert error is not None
            error.__dict__.pop("__notes__", None)
            assert is_same(error, made(kind))


def test_the_drawing_is_the_tree_of_what_is_exported() -> None:
    drawn: dict[str, str] = {}
    above = ["AccelError"]
    for bars, name in re.findall(r"^    ((?:[│ ]   )*)[├└]── (\w+)", accel.errors.__doc__ or "", re.MULTILINE):
        depth = len(bars) // 4 + 1
        drawn[name] = above[depth - 1]
        above[depth:] = [name]
    exported = {name: getattr(accel.errors, name) for name in accel.errors.__all__}
    tree = {
        name: next(base for base in kind.__mro__[1:] if issubclass(base, AccelError)).__name__
        for name, kind in exported.items()
        if kind is not AccelError
    }
    assert drawn == tree
