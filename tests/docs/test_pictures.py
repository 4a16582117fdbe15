"""Pictures name what the code has, can be read aloud, and suit dark pages."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.docs import rooms
from tests.docs.pages import PAGES, ROOT, name

FOLDER = ROOT / "docs" / "img"
ALT = r"!\[([^\]]*)\]\([^)]*img/{}\)"
SIZE_BYTES_MAX = 150_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("picture", sorted(FOLDER.glob("*.svg")), ids=name)
def test_every_picture_has_a_title_a_description_and_dark_colours(picture: Path) -> None:
    root = ET.parse(picture).getroot()  # noqa: S314 - our own pictures
    assert all((root.findtext(f"{SVG}{part}") or "").strip() for part in ("title", "desc"))
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")


def test_the_picture_of_the_rooms_is_drawn_from_the_contracts() -> None:
    assert rooms.PICTURE.read_text() == rooms.picture(), "python -m tests.docs.rooms"


@pytest.mark.parametrize("picture", sorted(FOLDER.glob("*.svg")), ids=name)
def test_every_picture_is_on_a_page_with_words_that_replace_it(picture: Path) -> None:
    words = [found for page in PAGES for found in re.findall(ALT.format(re.escape(picture.name)), page.read_text())]
    assert words
    assert min(len(each.split()) for each in words) >= 5


def test_the_pictures_of_the_console_are_small_and_on_a_page() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    found = {path.name: path.read_bytes() for path in FOLDER.glob("*.png")}
    assert [each for each, content in found.items() if len(content) > SIZE_BYTES_MAX] == []
    assert [each for each, content in found.items() if not content.startswith(b"\x89PNG\r\n")] == []
    assert [each for each in found if f"img/{each}" not in pages] == []
