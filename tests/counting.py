"""What is counted in the source: lines of code, imports between modules, floors."""

from __future__ import annotations

import ast
import gc
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE_FOLDERS = ("accel", "bloom", "range_index", "loaders", "spark_jobs", "benchmarks")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
LAYOUT_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def source_files(root: Path = ROOT) -> list[Path]:
    """All Python files outside the tests, sorted."""
    return sorted(path for folder in SOURCE_FOLDERS for path in (root / folder).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file. It stays; looked through, it would take the garbage collector seconds."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def line_range(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def docstring_lines(tree: ast.Module) -> set[int]:
    documented = (
        each for each in (tree, *statements(tree)) if isinstance(each, DOCUMENTED) and ast.get_docstring(each)
    )
    return {line for each in documented for line in line_range(each.body[0])}


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All statements, in any order; a tenth of all nodes."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, name, None)
            waiting += found if isinstance(found, list) else []


def import_lines(tree: ast.Module) -> set[int]:
    imports = (each for each in statements(tree) if isinstance(each, ast.Import | ast.ImportFrom))
    return {line for each in imports for line in line_range(each)}


def code_lines(path: Path) -> set[int]:
    """The lines of a file that are neither blank nor a comment nor part of a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type not in LAYOUT_TOKENS:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstring_lines(parsed(path))


def module_of(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, module: str, modules: set[str]) -> set[str]:
    """The project's modules that a file imports, itself left out."""
    imported: set[str] = set()
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            imported.update(names & modules or {node.module})
    return imported & modules - {module}


def import_graph(root: Path = ROOT) -> dict[str, set[str]]:
    files = {module_of(path, root): path for path in source_files(root)}
    return {module: imported_modules(path, module, set(files)) for module, path in files.items()}


def floors_of(rooms: dict[str, set[str]]) -> int:
    """The number of floors: rooms that import each other stand on one."""
    heights = dict.fromkeys(rooms, 1)
    for _ in rooms:
        for room, below in rooms.items():
            lower = [under for under in below if room not in reachable(under, rooms)]
            heights[room] = 1 + max((heights[under] for under in lower), default=0)
    return max(heights.values(), default=0)


def reachable(room: str, rooms: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [room]
    while waiting:
        for under in rooms[waiting.pop()] - seen:
            seen.add(under)
            waiting.append(under)
    return seen


def circles_of(rooms: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest groups of rooms in which each imports, directly or not, every other."""
    below = {room: reachable(room, rooms) for room in rooms}
    return {frozenset(other for other in below[room] if room in below[other]) for room in rooms if room in below[room]}
