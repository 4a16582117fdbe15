"""The tree of errors is drawn once, and all of it."""

from __future__ import annotations

import re

import accel.errors
from accel.errors import AccelError


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
