"""Links and pictures of the pages lead somewhere; their code runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.docs import rooms
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links, name, page_named


def target_of(page: Path, link: str) -> tuple[Path, str]:
    """The file that a link means, and the anchor in it."""
    path, _, anchor = link.partition("#")
    return ((page.parent / unquote(path)).resolve() if path else page), anchor


def relative_links(page: Path) -> list[str]:
    return [link for link in links(page) if "://" not in link and not link.startswith("mailto:")]


def problem_of(page: Path, link: str) -> str:
    """What is wrong with a link, or nothing."""
    target, anchor = target_of(page, link)
    if not target.is_relative_to(ROOT):
        return "leads out of the project"
    if not target.exists():
        return "no such file"
    return "no such heading" if anchor and target.suffix == ".md" and anchor not in anchors(target) else ""


def test_every_relative_link_leads_to_a_file_of_the_project_and_a_heading_of_it() -> None:
    found = [(name(page), link, problem_of(page, link)) for page in PAGES for link in relative_links(page)]
    assert [each for each in found if each[2]] == []


def test_every_page_and_picture_is_reached_from_the_readme() -> None:
    reached, open_pages = set[Path](), [ROOT / "README.md"]
    while open_pages:
        page = open_pages.pop()
        if page in reached:
            continue
        reached.add(page)
        if page.suffix == ".md":
            open_pages += [target_of(page, link)[0] for link in relative_links(page)]
    assert [name(page) for page in [*PAGES, *sorted((ROOT / "docs" / "img").iterdir())] if page not in reached] == []


FOLDER = ROOT / "docs" / "img"
ALT = r"!\[([^\]]*)\]\([^)]*img/{}\)"
SIZE_BYTES_MAX = 150_000
SVG = "{http://www.w3.org/2000/svg}"


def test_every_picture_has_a_title_a_description_and_dark_colours() -> None:
    lacking = []
    for picture in sorted(FOLDER.glob("*.svg")):
        root = ET.parse(picture).getroot()  # noqa: S314 - our own pictures
        is_dark = "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
        if not is_dark or not all((root.findtext(f"{SVG}{part}") or "").strip() for part in ("title", "desc")):
            lacking.append(picture.name)
    assert lacking == []


HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
FIRST_PROGRAMS = [
    ROOT / "README.md",
    *(page_named(each) for each in ("tutorial", "brokers", "streams", "querying")),
]
WIDTH_MAX = 84
"""Characters of a line that the site shows without a scroll bar."""


def test_each_how_to_page_begins_with_what_one_has_at_its_end_and_says_what_to_do_when_it_fails() -> None:
    for page in HOW_TO:
        text = page.read_text()
        assert text.split("\n\n")[1].startswith("At the end of this page"), page.name
        assert re.search(r"^## When (it|things) fails?$|If a run\ncannot be repeated", text, re.MULTILINE), page.name


def test_first_programs_import_from_accel_alone_and_fit_the_page() -> None:
    for page in FIRST_PROGRAMS:
        lines = blocks(page, "python")[0].text.splitlines()
        assert [line for line in lines if len(line) > WIDTH_MAX] == [], page.name
        ours = [line for line in lines if re.match(r"\s*(from|import) (accel|loaders|bloom|range_index)\b", line)]
        assert ours
        assert [line for line in ours if not re.match(r"from accel import |import accel$", line)] == [], page.name


def test_the_picture_of_the_rooms_is_drawn_from_the_contracts() -> None:
    assert rooms.PICTURE.read_text() == rooms.picture(), "python -m tests.docs.rooms"


def test_every_picture_is_on_a_page_with_words_that_replace_it() -> None:
    text = "".join(page.read_text() for page in PAGES)
    pictures = [picture.name for picture in FOLDER.glob("*.svg")]
    words = {each: re.findall(ALT.format(re.escape(each)), text) for each in pictures}
    assert [each for each in pictures if min((len(found.split()) for found in words[each]), default=0) < 5] == []


def test_the_pictures_of_the_console_are_small_and_on_a_page() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    found = {path.name: path.read_bytes() for path in FOLDER.glob("*.png")}
    assert [each for each, content in found.items() if len(content) > SIZE_BYTES_MAX] == []
    assert [each for each, content in found.items() if not content.startswith(b"\x89PNG\r\n")] == []
    assert [each for each in found if f"img/{each}" not in pages] == []


RUNNABLE = [ROOT / "README.md", *(page_named(each) for each in ("brokers", "querying", "streams"))]


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


def test_sessions_in_pages_show_what_python_answers() -> None:
    found = {name(page): doctest.testfile(str(page), module_relative=False, encoding="utf-8") for page in PAGES}
    assert [each for each, results in found.items() if results.failed] == []


def test_python_blocks_can_be_read_by_python() -> None:
    for page in PAGES:
        for block in blocks(page, "python"):
            compile(block.text, f"{name(page)}:{block.line}", "exec")


def test_hooks_before_a_commit_are_commands_of_make_check() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text()
    _, _, recipe = makefile.partition("\ncheck: ")
    commands = {line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.split("\n\n")[0].splitlines()[1:]}
    assert len(hooks) >= 4
    assert {each["entry"] for each in hooks} <= commands


def test_decisions_and_changes_state_their_requests() -> None:
    for template in ("DECISION_TEMPLATE.md", "PULL_REQUEST_TEMPLATE.md", "ISSUE_TEMPLATE/proposal.md"):
        text = (ROOT / ".github" / template).read_text()
        assert all(verb in text for verb in ("GET", "PUT", "LIST")), template
