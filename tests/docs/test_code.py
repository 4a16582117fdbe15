"""The code in the pages runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import doctest
import io
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name, page_named

RUNNABLE = [
    ROOT / "README.md",
    *(page_named(each) for each in ("brokers", "querying", "streams")),
]


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_python_blocks_run_one_after_another_and_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    found = blocks(page, "python")
    assert found
    for block in found:
        printed = io.StringIO()
        code = compile("\n" * block.line + block.text, name(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)  # noqa: S102 - our own pages
        assert printed.getvalue() == (block.prints or ""), f"{name(page)}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_sessions_in_a_page_show_what_python_answers(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed == 0


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_can_be_read_by_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block.text, f"{name(page)}:{block.line}", "exec")
