"""The default of a setting is written once: elsewhere it is referred to by name.

Found without running anything: two classes of settings with the same field, a parameter that takes a setting and has a
default of its own, two functions with the same number as a default, an option of a command. A name, as in `ttl_seconds:
float = TTL_SECONDS`, is a reference; a number or a word is written.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from tests.counting import ROOT, parsed
from tests.test_house import modules

SETTINGS_ENDINGS = ("Settings", "Limits", "Layout", "FormatRecord")
UNITS = ("_seconds", "_ms", "_bytes", "_bytes_max")
UNIT_NAMES = {"MIB", "MILLISECONDS"}
NOTHING = {"None", "False", "True", "0", "0.0", "1", "-1", "''", "()", "b''"}
"""Defaults that are the same everywhere because they say that there is none."""

DIFFERENT: Final = {
    "ids_block": "object ids of a catalog, and stream numbers of a history",
    "idle_seconds": "a segment without news for a reader, and a thread without work",
    "parallel_requests": "of small keys of a catalog, and of large parts of a merge",
    "requests_max": "of a sidecar, of a reader, and of the owner of a segment",
    "wait_seconds": "for a scale under way, and for an owner that is alive",
}
"""Settings with one name that are different things."""

OWN_BOUNDS: Final[dict[tuple[str, str], str]] = {}
"""Settings that take the place of a default on purpose: (setting, what it is passed to)."""


@cache
def nodes() -> list[tuple[str, ast.Call | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    kinds = (ast.Call, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    walked = [(str(path.relative_to(ROOT)), ast.walk(parsed(path))) for path in modules()]
    return [(name, node) for name, nodes in walked for node in nodes if isinstance(node, kinds)]


def is_written(default: ast.expr) -> bool:
    """Whether a default is a number or a word, and no reference to one."""
    names = {each.id for each in ast.walk(default) if isinstance(each, ast.Name)}
    is_composed = any(isinstance(each, ast.Call | ast.Attribute | ast.Lambda) for each in ast.walk(default))
    return not names - UNIT_NAMES and not is_composed and ast.unparse(default) not in NOTHING


def fields_of(one: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for line in one.body:
        if isinstance(line, ast.AnnAssign) and line.value is not None and isinstance(line.target, ast.Name):
            yield line.target.id, line.value


@cache
def settings() -> dict[str, list[tuple[str, ast.expr]]]:
    """Field -> (class, default) of each class of settings that has it."""
    found = defaultdict(list)
    for _, node in nodes():
        if isinstance(node, ast.ClassDef) and node.name.endswith(SETTINGS_ENDINGS):
            for name, default in fields_of(node):
                found[name].append((node.name, default))
    return dict(found)


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    yield from (
        (each.arg, default)
        for each, default in zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)
    )
    yield from (
        (each.arg, default)
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if default is not None
    )


def test_no_default_is_written_in_two_classes_of_settings() -> None:
    written = {name: [owner for owner, default in each if is_written(default)] for name, each in settings().items()}
    doubles = {name: owners for name, owners in written.items() if len(owners) > 1 and name not in DIFFERENT}
    assert doubles == {}


def test_no_number_is_written_as_the_default_of_one_thing_in_two_places() -> None:
    places = defaultdict(list)
    for path, node in nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for name, default in parameters_of(node):
                if is_written(default) and name.endswith(UNITS):
                    places[name].append(f"{path}: {node.name}")
    for name, each in settings().items():
        places[name] += [owner for owner, default in each if is_written(default)]
    doubles = {name: each for name, each in places.items() if len(each) > 1 and name not in DIFFERENT}
    assert doubles == {}


@cache
def callables() -> dict[str, list[tuple[list[str], dict[str, ast.expr]]]]:
    """Name of a function or a class -> its positional parameters, and the defaults of all of them."""
    found = defaultdict(list)
    for _, node in nodes():
        if isinstance(node, ast.ClassDef):
            made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            names = [line.target.id for line in node.body if isinstance(line, ast.AnnAssign)]  # type: ignore[union-attr]
            found[node.name].append((names, dict(fields_of(node))))
            found[node.name] += [_parameters(each) for each in made]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
            found[node.name].append(_parameters(node))
    return dict(found)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[list[str], dict[str, ast.expr]]:
    names = [each.arg for each in function.args.args]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names, dict(parameters_of(function))


def passed(call: ast.Call) -> Iterator[tuple[str, str, ast.expr]]:
    """Settings that a call passes on: the setting, what is called, and the default that it takes the place of."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    arguments: list[tuple[int | str, ast.expr]] = [*enumerate(call.args)]
    arguments += [(each.arg, each.value) for each in call.keywords if each.arg]
    for at, value in arguments:
        if not isinstance(value, ast.Attribute) or "settings" not in ast.unparse(value.value).lower():
            continue
        for names, defaults in callables().get(name, ()):
            parameter = at if isinstance(at, str) else names[at] if at < len(names) else ""
            if value.attr in settings() and parameter in defaults:
                yield value.attr, name, defaults[parameter]


def test_a_setting_is_passed_to_nothing_that_has_a_default_of_its_own() -> None:
    doubles = [
        (path, setting, called, ast.unparse(default))
        for path, node in nodes()
        if isinstance(node, ast.Call)
        for setting, called, default in passed(node)
        if ast.unparse(default) not in NOTHING
        and any(is_written(each) for _, each in settings()[setting])
        and (setting, called) not in OWN_BOUNDS
        and setting not in DIFFERENT
    ]
    assert doubles == []


def test_no_option_of_a_command_writes_the_default_of_a_setting() -> None:
    doubles = []
    for path, node in nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"option", "argument"}:
            words = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            names = {each.strip("-").replace("-", "_") for each in words}
            defaults = [each.value for each in node.keywords if each.arg == "default" and is_written(each.value)]
            written = {
                name for name in names & settings().keys() if any(is_written(each) for _, each in settings()[name])
            }
            doubles += [(path, name) for name in written if defaults and name not in DIFFERENT]
    assert doubles == []


def test_settings_lie_in_modules_named_settings() -> None:
    classes = [(path, node.name) for path, node in nodes() if isinstance(node, ast.ClassDef)]
    elsewhere = [each for each in classes if each[1].endswith("Settings") and not each[0].endswith("settings.py")]
    assert elsewhere == []


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_different_is_there_twice(name: str) -> None:
    written = [default for _, default in settings().get(name, ()) if is_written(default)]
    for _, node in nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            written += [default for each, default in parameters_of(node) if each == name and is_written(default)]
    assert len(written) > 1
