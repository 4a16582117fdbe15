"""The mistakes that a module could have: each is one edit of its syntax tree.

A comparison with its neighbour (< for <=), a bound moved by one, `and` for `or`, a condition that always or never
holds, a statement, a `raise` or a result left out, one operator or function for its opposite. What only people read is
left alone: annotations, docstrings, messages of errors, logging, `__repr__`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

Edit = Callable[[ast.AST], ast.AST]

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_NOT_CODE: Final = ("__repr__", "__str__", "__format__")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake.

    Args:
        path: of the module, below the root of the project.
        function: the qualified name of the function or class around it.
        line: in the source as it is.
        before: the smallest expression or statement around it, on one line.
        after: the same with the mistake.
        source: of the whole module with the mistake.
    """

    path: str
    function: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> str:
        """Names it in the list of equivalent ones; does not change when lines move."""
        return f"{self.path}::{self.function}: {self.before} -> {self.after}"


class Module:
    """A module, and the mistakes that it could have.

    Args:
        path: below the root of the project.
        source: as it is.
    """

    def __init__(self, path: str, source: str) -> None:
        self._path, self._tree = path, ast.parse(source)
        self._sites = _Sites(self._tree).found

    def __len__(self) -> int:
        return len(self._sites)

    def of_function(self, function: str) -> Iterator[Mutant]:
        """Its mutants within one function, by its qualified name; "" = outside of all."""
        for number, (place, _) in enumerate(self._sites):
            if place.function == function:
                yield self[number]

    def __getitem__(self, number: int) -> Mutant:
        """One of its mutants; they come in the order of its lines. Complexity: O(length of the module)."""
        return _mutant(self._path, self._tree, *self._sites[number])


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node is: fields and indices from the module on, and what is around it."""

    steps: tuple[tuple[str, int | None], ...]
    function: str


class _Sites:
    """Walks a module and notes what may be edited, and how."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[_Place, Edit]] = []
        self._walk(tree, (), "")

    def _walk(self, node: ast.AST, steps: tuple[tuple[str, int | None], ...], function: str) -> None:
        if _is_left_alone(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        place = _Place(steps, function)
        self.found += [(place, edit) for edit in _edits(node, is_in_function=bool(function))]
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "bases"} or (
                isinstance(node, ast.Raise) and name != "test"
            ):
                continue
            if isinstance(value, ast.AST):
                self._walk(value, (*steps, (name, None)), function)
            elif isinstance(value, list):
                for index, each in enumerate(value):
                    if isinstance(each, ast.AST):
                        self._walk(each, (*steps, (name, index)), function)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef) and node.name in _NOT_CODE:
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Expr):
        is_text = isinstance(node.value, ast.Constant)
        return is_text or ast.unparse(node).startswith(("log.", "warnings.", "assert_never"))
    return isinstance(node, ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom)


def _edits(node: ast.AST, *, is_in_function: bool) -> Iterator[Edit]:
    yield from _edits_of_expression(node)
    yield from _edits_of_constant(node)
    if is_in_function:
        yield from _edits_of_statement(node)


def _edits_of_expression(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare(ops=[operator]):
            yield from (_changed(ops=[other()]) for other in _COMPARISONS[type(operator)])
        case ast.BoolOp(op=operation):
            yield _changed(op=ast.Or() if isinstance(operation, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _replaced(operand)
        case ast.BinOp(op=operation) if type(operation) in _OPERATORS and not _is_text(node):
            yield _changed(op=_OPERATORS[type(operation)]())
        case ast.Call(func=ast.Name(id=name)) if name in _OPPOSITES:
            yield _changed(func=ast.Name(_OPPOSITES[name], ast.Load()))
        case ast.If() | ast.IfExp():
            yield _changed(test=ast.Constant(False))
            yield _changed(test=ast.Constant(True))
        case ast.While():
            yield _changed(test=ast.Constant(False))


def _edits_of_constant(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Constant(value=bool() as value):
            yield _replaced(ast.Constant(not value))
        case ast.Constant(value=int() as number):
            yield _replaced(ast.Constant(number + 1))
            if number:
                yield _replaced(ast.Constant(number - 1))


def _edits_of_statement(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield _replaced(ast.Pass())
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _changed(value=ast.Constant(None))
        case ast.Continue():
            yield _replaced(ast.Break())
        case ast.Break():
            yield _replaced(ast.Continue())


def _replaced(node: ast.AST) -> Edit:
    return lambda _: copy.deepcopy(node)


def _changed(**fields: object) -> Edit:
    def edit(node: ast.AST) -> ast.AST:
        changed = copy.copy(node)
        for name, value in fields.items():
            setattr(changed, name, value)
        return changed

    return edit


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.Constant | ast.JoinedStr) and isinstance(getattr(each, "value", ""), str)
        for each in (node.left, node.right)
    )


def _mutant(path: str, tree: ast.Module, place: _Place, edit: Edit) -> Mutant:
    mutated = copy.deepcopy(tree)
    shown: ast.AST = tree
    shown_steps = 0
    node: ast.AST = tree
    for number, step in enumerate(place.steps, 1):
        node = _at(node, step)
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.Name):
            shown, shown_steps = (node, number) if not isinstance(shown, ast.expr) else (shown, shown_steps)
        elif isinstance(node, ast.stmt):
            shown, shown_steps = node, number
    parent = mutated
    for step in place.steps[:-1]:
        parent = _at(parent, step)  # type: ignore[assignment]
    name, index = place.steps[-1]
    changed = ast.copy_location(edit(_at(parent, place.steps[-1])), node)
    if index is None:
        setattr(parent, name, changed)
    else:
        getattr(parent, name)[index] = changed
    ast.fix_missing_locations(mutated)
    after: ast.AST = mutated
    for step in place.steps[:shown_steps]:
        after = _at(after, step)
    return Mutant(path, place.function, getattr(node, "lineno", 0), _line(shown), _line(after), ast.unparse(mutated))


def _at(node: ast.AST, step: tuple[str, int | None]) -> ast.AST:
    name, index = step
    value = getattr(node, name)
    return value if index is None else value[index]  # type: ignore[no-any-return]


def _line(node: ast.AST) -> str:
    """The head of a statement, or an expression, on one line."""
    return " ".join(ast.unparse(node).partition("\n")[0].split())
