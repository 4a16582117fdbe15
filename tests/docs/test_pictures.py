"""Pictures name what the code has, can be read aloud, and suit dark pages."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from accel.catalog.keys import TABLES
from loaders.layout import FORMAT_KEY
from loaders.tables import FormatRecord
from tests.docs import catalog_pictures, console_picture, cost_picture, object_pictures, rooms
from tests.docs.pages import PAGES, ROOT, name

FOLDER = ROOT / "docs" / "img"
ALT = r"!\[([^\]]*)\]\([^)]*img/{}\)"
REDRAW_CATALOG = "python -m tests.docs.catalog_pictures"
SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: Path) -> list[str]:
    """All that is written in a picture."""
    root = ET.parse(picture).getroot()  # noqa: S314 - our own pictures
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("picture", sorted(FOLDER.glob("*.svg")), ids=name)
def test_every_picture_has_a_title_a_description_and_dark_colours(picture: Path) -> None:
    root = ET.parse(picture).getroot()  # noqa: S314 - our own pictures
    assert all((root.findtext(f"{SVG}{part}") or "").strip() for part in ("title", "desc"))
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")


def test_the_picture_of_the_rooms_is_drawn_from_the_contracts() -> None:
    assert rooms.PICTURE.read_text() == rooms.picture(), "python -m tests.docs.rooms"


def test_the_picture_of_a_search_is_drawn_from_its_trace() -> None:
    assert object_pictures.SEARCH.read_text() == object_pictures.search_picture(), (
        "python -m tests.docs.object_pictures"
    )


def test_the_picture_of_a_compaction_is_drawn_from_one() -> None:
    drawn = object_pictures.compaction_picture()
    assert object_pictures.COMPACTION.read_text() == drawn, "python -m tests.docs.object_pictures"


def test_the_picture_of_the_tables_is_drawn_from_requests() -> None:
    assert catalog_pictures.CATALOG.read_text() == catalog_pictures.tables_picture(), REDRAW_CATALOG
    assert {FORMAT_KEY, *TABLES} <= set(texts(catalog_pictures.CATALOG))


def test_the_picture_of_an_objects_life_is_drawn_from_the_times_of_the_format_record() -> None:
    assert catalog_pictures.LIFE.read_text() == catalog_pictures.life_picture(), REDRAW_CATALOG
    written = " ".join(texts(catalog_pictures.LIFE))
    times = [each for each in FormatRecord.__struct_fields__ if each.endswith("_seconds")]
    assert [each for each in times if each not in written] == []
    record = FormatRecord(namespace="any")
    assert f"{record.retired_seconds / 60:g} min" in written
    assert f"{record.prepared_seconds / 3600:g} h" in written
    assert f"{record.max_image_age_seconds / 60:g} min" in written
    assert f"{record.orphan_seconds / 86400:g} days" in written


def test_the_picture_of_the_cost_is_drawn_from_counts() -> None:
    assert cost_picture.PICTURE.read_text() == cost_picture.picture(), "python -m tests.docs.cost_picture"


@pytest.mark.parametrize("picture", sorted(FOLDER.glob("*.svg")), ids=name)
def test_every_picture_is_on_a_page_with_words_that_replace_it(picture: Path) -> None:
    words = [found for page in PAGES for found in re.findall(ALT.format(re.escape(picture.name)), page.read_text())]
    assert words
    assert min(len(each.split()) for each in words) >= 5


def test_the_pictures_of_the_console_are_those_of_the_script_small_and_on_a_page() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    found = {path.name: path.read_bytes() for path in FOLDER.glob("*.png")}
    assert found.keys() == console_picture.PICTURES.keys(), "python -m tests.docs.console_picture"
    assert [each for each, content in found.items() if len(content) > console_picture.SIZE_BYTES_MAX] == []
    assert [each for each, content in found.items() if not content.startswith(b"\x89PNG\r\n")] == []
    assert [each for each in found if f"img/{each}" not in pages] == []
