"""Every place in the code that deletes or overwrites is in the table of the page, with its proof."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/explanation/deletions.md"
VERBS: Final = frozenset({"delete", "delete_many", "put", "complete", "abort", "abort_multipart", "unlink", "rmtree"})
MENTIONED: Final = re.compile(rf"\.\s*(?:{'|'.join(VERBS)})\b")

NO_STORE: Final = {
    "self._answers": "a queue",
    "self._due": "a queue",
    "self._entries": "a queue",
    "self._orderer": "an order of batches",
    "inbox": "a queue",
    "answers": "a queue",
    "held": "known entries, which are complete or not",
    "entries": "known entries",
    "changes": "commands",
    "np": "arrays",
    "narrower": "a matrix of filters",
    "tile": "a matrix of filters",
    "target": "a matrix of filters",
    "self._views": "a cache",
    "self": "the class's own method, which is looked at by itself",
    "table": "a table, which has places of its own",
    "self._table": "a table",
    "self._key": "a typed key of a table",
    "key": "a typed key of a table",
    "found": "a group, which is a typed key",
    "self._names": "names of streams, which are typed keys",
    "self._parts.host": "a host of segments, which has places of its own",
    "self.host": "a host of segments",
    "self._opened()": "a host of segments",
    "self.own": "a host of segments",
    "checkpoint": "a key of a table",
    "self._transactions": "transactions, which are typed keys",
    "self._stream.transactions": "transactions",
    "opened.transactions": "transactions",
    "self._workflows.truncations": "a workflow, which writes typed keys",
    "self._object": "a `StreamedObject`, which has places of its own",
}
"""Receivers of these verbs that are no store and no upload, and what they are."""

STORES: Final = ("loaders/store", "accel/testing")
"""Stores, and doubles of stores: they do what they are asked."""

UPLOADS_OF_SESSIONS: Final = frozenset({("group_commit.py", "upload"), ("uploads.py", "uploads[0]")})
"""Objects that an `ObjectWriter` writes."""


def places(root: Path) -> Iterator[str]:
    """`module.function` of each mention of a verb of a store."""
    for folder in ("accel", "loaders", "spark_jobs", "bloom", "range_index"):
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text()
            if MENTIONED.search(text) and not any(path.is_relative_to(root / stores) for stores in STORES):
                yield from places_in(path.name, ast.parse(text))


def places_in(module: str, tree: ast.AST, function: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and _creates(node):
            yield from places_in(module, ast.Tuple([*node.args]), function)
            continue
        if isinstance(node, ast.Attribute) and node.attr in VERBS:
            receiver = ast.unparse(node.value)
            if receiver not in NO_STORE and (module, receiver) not in UPLOADS_OF_SESSIONS:
                yield f"{module.removesuffix('.py')}.{function}"
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from places_in(module, node, node.name if is_function else function)  # type: ignore[attr-defined]


def _creates(call: ast.Call) -> bool:
    """Whether it is a put that the server refuses if there is an object."""
    conditions = [ast.unparse(each.value) for each in call.keywords if each.arg == "condition"]
    return isinstance(call.func, ast.Attribute) and call.func.attr == "put" and conditions == ["CreateOnly()"]


def listed() -> set[str]:
    rows = [line.split("|") for line in PAGE.read_text().partition("## All places")[2].splitlines() if line[:1] == "|"]
    return {name for row in rows[2:] for name in re.findall(r"`([^`]+)`", row[2])}


def test_each_place_that_deletes_or_overwrites_is_in_the_table_with_its_proof() -> None:
    assert set(places(ROOT)) == listed()


def test_each_row_names_a_proof_that_the_page_explains() -> None:
    text = PAGE.read_text()
    proofs = set(re.findall(r"^\| ([a-zA-Z]+) \| [^|]+ \|$", text.partition("## All places")[0], re.MULTILINE))
    rows = [line.split("|") for line in text.partition("## All places")[2].splitlines() if line[:1] == "|"][2:]
    unexplained = [row[3] for row in rows if not proofs & set(re.findall(r"\w+", row[3]))]
    assert unexplained == [" the key was free just before "]  # which is no proof, and is among the limits


def test_a_new_place_is_found() -> None:
    source = """
def clear(store, keys):
    store.put("a", b"", condition=CreateOnly())
    store.put("b", b"")

class Sweeper:
    def run(self):
        retry(self._bucket.delete)
        def later():
            partial(self.parts.store.delete_many, ["c"])
"""
    assert list(places_in("new.py", ast.parse(source))) == ["new.clear", "new.run", "new.later"]
