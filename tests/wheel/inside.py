"""Asks inside an environment that has the wheel, and nothing of the checkout: `python inside.py QUESTION ...`.

Prints a JSON object: the answer to each question. A question is a command line of `accel`; or a line of Python, which
is run in one function with others of its kind. The answer is what it printed, or its error.
"""

from __future__ import annotations

import contextlib
import io
import json
import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("accel", "bloom", "loaders", "range_index", "spark_jobs")


def imported() -> dict[str, str]:
    """Import every module of the wheel; gives what is missing by the module that could not be imported."""
    missing = {}
    for package in PACKAGES:
        home = import_module(package)
        for module in pkgutil.walk_packages(home.__path__, f"{package}.", onerror=lambda _: None):
            if module.name.endswith("__main__"):  # would run the command
                continue
            try:
                import_module(module.name)
            except ImportError as error:
                cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
                missing[module.name] = (cause.name or "").partition(".")[0]
    return missing


def places() -> dict[str, str]:
    specs = {name: find_spec(name) for name in PACKAGES}
    return {name: str(Path(spec.origin).parents[1]) for name, spec in specs.items() if spec and spec.origin}


def answer(question: str) -> str:
    """What a question says: its output, and its error."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            if question.startswith("accel "):
                import_module("accel.cli.main").main(question.split()[1:])
            else:
                exec(question, {})  # noqa: S102 - our own lines
        except SystemExit as error:
            said.write(f"\nexit {error.code or 0}")
        except ImportError as error:
            said.write(f"\n{type(error).__name__}: {error}")
    return said.getvalue()


if __name__ == "__main__":
    found: dict[str, object] = {"places": places()}
    if "--imports" in sys.argv:
        found["missing"] = imported()
    found["answers"] = {each: answer(each) for each in sys.argv[1:] if each != "--imports"}
    sys.stdout.write(json.dumps(found))
