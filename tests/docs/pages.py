"""The pages of the project, and what stands in them: links, headings, blocks of code, tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests/accel/history").rglob("*.md")])

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_PRINTS = re.compile(r"\s*prints\s*^```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)|\b(?:srcset|src|href)=\"(?P<quoted>[^\"]+)\"")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block of code, and what the page says that it prints, if it says so."""

    language: str
    text: str
    line: int
    prints: str | None


def page_named(stem: str) -> Path:
    """The page of docs/ with this name, in whichever folder it is; names are unique there, decisions aside."""
    [found] = [each for each in PAGES if each.stem == stem and "decisions" not in each.parts]
    return found


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of these languages, in order."""
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        after = _PRINTS.match(text, match.end())
        block = Block(
            match["language"], match["text"], text.count("\n", 0, match.start()) + 1, after["text"] if after else None
        )
        found.append(block)
    return [each for each in found if each.language in languages]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """Where the page's links lead."""
    return [match["target"] or match["quoted"] for match in _LINK.finditer(prose(page))]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links call them."""
    return {_slug(heading) for heading in _HEADING.findall(prose(page))}


def inline_code(page: Path) -> list[str]:
    """What stands between single backticks."""
    return _CODE.findall(prose(page))


def table_rows(page: Path) -> list[list[str]]:
    """The cells of all rows of all tables."""
    rows = [line for line in prose(page).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def listing_rows(page: Path) -> list[list[str]]:
    """The cells of all lines of all listings, which are blocks of text; two spaces or more separate cells."""
    return [re.split(r" {2,}", line.rstrip()) for block in blocks(page, "text") for line in block.text.splitlines()]


def cost_text(*numbers: float) -> str:
    """Means of counts as a person writes them, such as "116/8.4"."""
    texts = [(f"{each:.0f}", f"{each:.1f}") for each in numbers]
    return "/".join(whole if len(whole) > 1 or tenths.endswith(".0") else tenths for whole, tenths in texts)


def _slug(heading: str) -> str:
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


_RECORDS = "\n".join(
    page_named(each).read_text() for each in ("catalog-records", "events", "history-records", "tables")
)
_LISTED = ("at ", "bytes ", "epoch ", "stream id ")
"""How listings begin that have one thing a row; other blocks of text are dumps and keys."""

_DUMP_LINE = re.compile(r" *(?P<at>\d+)  (?P<bytes>[0-9a-f]+( [0-9a-f]+)*)(  .*)?")


def section(heading: str) -> str:
    """What stands under a heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^##? |\Z)", _RECORDS, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def cells(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    marks = [at for at, row in enumerate(split) if set(row[0]) == {"-"}]
    return [row for at, row in enumerate(split) if at not in marks and at + 1 not in marks]


def fields(text: str) -> list[list[str]]:
    """The rows of the listings in a text, without their heads; columns begin where those of the head do."""
    found = []
    for block in block_texts(text, "text"):
        head, *lines = block.splitlines()
        starts = [column.start() for column in re.finditer(r"\S+(?: \S+)*", head)]
        if head.startswith(_LISTED):
            ends = [*starts[1:], None]
            found += [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]
    return found


def block_texts(text: str, language: str = "") -> list[str]:
    """The blocks of code of a language, or of none."""
    return [match["text"] for match in _FENCE.finditer(text) if match["language"] == language]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def dumps(heading: str) -> list[bytes]:
    """The bytes of a section's hexadecimal dumps; each line has to begin at the position that it names."""
    found = []
    for block in block_texts(section(heading)):
        data = b""
        for line in block.splitlines():
            match = _DUMP_LINE.fullmatch(line)
            assert match, line
            assert int(match["at"]) == len(data), line
            data += bytes.fromhex(match["bytes"])
        found.append(data)
    return found
