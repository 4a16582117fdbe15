"""Every link within the project leads somewhere, and every page can be reached."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, name


def target_of(page: Path, link: str) -> tuple[Path, str]:
    """The file that a link means, and the anchor in it."""
    path, _, anchor = link.partition("#")
    return ((page.parent / unquote(path)).resolve() if path else page), anchor


def relative_links(page: Path) -> list[str]:
    return [link for link in links(page) if "://" not in link and not link.startswith("mailto:")]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_to_a_file_and_a_heading_of_it(page: Path) -> None:
    broken = []
    for link in relative_links(page):
        target, anchor = target_of(page, link)
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_link_leads_out_of_the_project(page: Path) -> None:
    outside = [link for link in relative_links(page) if not target_of(page, link)[0].is_relative_to(ROOT)]
    assert outside == []


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
