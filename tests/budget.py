"""The size of a checkout in figures, and the budget that it keeps: `python -m tests.budget [--base CHECKOUT]`.

Prints a table for a decision record: each figure of this checkout, and with `--base` the same of another one, such as
that in which a change began. Both are counted by this module; commands, and the files that an operation passes, by a
process that imports the checkout.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.counting import ROOT, circles_of, code_lines, import_graph, parsed, source_files, statements

OPTIONAL_ROOMS: Final = ("benchmarks", "accel/adoption", "accel/repair", "accel/streams/shared")
SETTINGS_OF_OTHER_NAMES: Final = ("Hedging", "ReadAhead")
FLOWS: Final = {
    "files passed: warm lookup": "warm get_objects",
    "files passed: commit of an upload": "commit_upload",
    "files passed: scale": "scale",
}
COUNT_COMMANDS: Final = """
import click
from accel.cli.main import main

def leaves(command, context):
    if not isinstance(command, click.Group):
        return 1
    return sum(leaves(command.get_command(context, name), context) for name in command.list_commands(context))

print(leaves(main, click.Context(main)))
"""


def figures(root: Path = ROOT) -> dict[str, int]:
    """What the budget limits. It runs nothing of the checkout but its command line."""
    files = source_files(root)
    lines = {path.relative_to(root).as_posix(): len(code_lines(path)) for path in files}
    graph = import_graph(root)
    settings = [fields for path in files for fields in _settings_of(parsed(path))]
    decisions = [*(root / "docs/decisions").glob("*.md")]
    return {
        "code lines": sum(lines.values()),
        "code lines without benchmarks and optional rooms": sum(
            count for name, count in lines.items() if not name.startswith(OPTIONAL_ROOMS)
        ),
        "files outside tests": len(files),
        "circles of imports": len(circles_of(graph)),
        "arrows that run up": len(arrows_up(graph)),
        "commands": int(_output_of(root, "-c", COUNT_COMMANDS)),
        "settings: classes": len(settings),
        "settings: fields": sum(settings),
        "names of accel.__all__": _exported(parsed(root / "accel/__init__.py")),
        "lines of tests": sum(len(path.read_text().splitlines()) for path in (root / "tests").rglob("*.py")),
        "decision records": sum(path.name != "README.md" for path in decisions),
        "words of decision records": sum(len(path.read_text().split()) for path in decisions),
        "words of the changelog": len((root / "CHANGELOG.md").read_text().split()),
    }


def arrows_up(graph: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """The imports of a module by one of a lower layer, by the contracts of this checkout's pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {
        (module, other)
        for contract in contracts
        if contract["type"] == "layers"
        for module in graph
        for other in graph[module]
        if (height := _height(module, contract)) is not None
        and (above := _height(other, contract)) is not None
        and above < height
    }


def _height(module: str, contract: Mapping[str, Any]) -> int | None:
    """The number of the layer, from the top, to which a module belongs; None if to none."""
    containers = [f"{container}." for container in contract.get("containers", [])] or [""]
    for height, layer in enumerate(contract["layers"]):
        for prefix, name in itertools.product(containers, layer.split("|")):
            if f"{module}.".startswith(f"{prefix}{name.strip(' ()')}."):
                return height
    return None


def _settings_of(tree: ast.Module) -> Iterator[int]:
    """The number of fields of each class of settings."""
    for node in statements(tree):
        if isinstance(node, ast.ClassDef) and (node.name.endswith("Settings") or node.name in SETTINGS_OF_OTHER_NAMES):
            annotated = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            yield sum("ClassVar" not in ast.unparse(each.annotation) for each in annotated)


def _exported(tree: ast.Module) -> int:
    """The length of `__all__`, whether a list of texts or made from the keys of a table."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sum(isinstance(each, ast.Constant) for each in ast.walk(node.value))
    raise ValueError("expected __all__ in accel/__init__.py, found none")


def files_passed(root: Path) -> dict[str, int]:
    """The rows of `FLOWS`, as the checkout itself counts them."""
    rows = [line.rpartition(" ") for line in _output_of(root, "-m", "tests.structure").splitlines()]
    counts = {name.strip(): count for name, _, count in rows}
    return {name: int(counts[flow]) for name, flow in FLOWS.items()}


def _output_of(root: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own words


def table_of(columns: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """A row for each figure, a column for each checkout."""
    yield f"| | {' | '.join(columns)} |"
    yield "|---|" + "---|" * len(columns)
    for name in next(iter(columns.values())):
        yield f"| {name} | {' | '.join(f'{column[name]:,}' for column in columns.values())} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m tests.budget", description=__doc__.partition("\n")[0])
    parser.add_argument("--base", type=Path, help="another checkout, for a column before")
    base: Path | None = parser.parse_args().base
    roots = {"before": base.resolve(), "now": ROOT} if base else {"now": ROOT}
    columns = {name: figures(root) | files_passed(root) for name, root in roots.items()}
    sys.stdout.writelines(f"{line}\n" for line in table_of(columns))


if __name__ == "__main__":
    main()
