"""In a narrow terminal every line of an answer and of its explanation fits, and nothing of it is lost."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from operator import itemgetter
from pathlib import Path

import click
import pytest
from rich.cells import cell_len
from rich.text import Text

from accel.cli.main import main
from accel.lookup.accelerator import ReadAccelerator
from accel.lookup.explain import Explanation
from accel.rendering import Column, Folded, Output, Shown, table_of
from tests.accel.cli.worlds import STREAM_ID, World

COLUMNS = 60
WIDE_COLUMNS = 200
QUESTION = ("--stream", str(STREAM_ID), "--start", "1000", "--end", "1600")


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        return click.unstyle(self.getvalue()).splitlines()


Show = Callable[[Callable[[], object], int], list[str]]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Show:
    """Gives the lines of a terminal that has a number of columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("ACCEL_CONFIG", "/dev/null")
    for name in ("NO_COLOR", "FORCE_COLOR", "ACCEL_STORE", "ACCEL_IMAGE", "ACCEL_OUTPUT"):
        monkeypatch.delenv(name, raising=False)

    def shown(act: Callable[[], object], columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        terminal = Terminal()
        with redirect_stdout(terminal), redirect_stderr(terminal):
            act()
        return terminal.lines

    return shown


def command(world: World, name: str, *args: str) -> Callable[[], object]:
    place = ("--store", world.store_url, "--image", str(world.image_path))
    return lambda: main([name, *QUESTION, *args, *place], standalone_mode=False)


def letters(lines: Sequence[str]) -> Counter[str]:
    """What is written, without spaces and rules."""
    return Counter("".join(told(lines)))


def told(lines: Sequence[str]) -> list[str]:
    """The same as words in their order."""
    return " ".join(lines).replace("─", " ").split()


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> list[Explanation]:
    """The explanations that the command gets: two lookups may differ in what came first, and in their times."""
    found: list[Explanation] = []
    explain = ReadAccelerator.explain

    def recorded(self: ReadAccelerator, *args: int, **bounds: float) -> Explanation:
        found.append(explain(self, *args, **bounds))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(ReadAccelerator, "explain", recorded)
    return found


@pytest.mark.parametrize("policy", ["spread", "window", "window+preload", "load-all"])
def test_an_explanation_fits_sixty_columns_and_says_the_same(
    world: World, show: Show, explained: list[Explanation], policy: str
) -> None:
    narrow = show(command(world, "explain", "--policy", policy), COLUMNS)
    [whole] = [one.text().splitlines() for one in explained]
    assert max(map(cell_len, narrow)) <= COLUMNS
    assert max(map(cell_len, whole)) > COLUMNS
    assert told(narrow) == told(whole)


def test_a_map_that_is_folded_keeps_its_cells_in_their_order(show: Show) -> None:
    cells = "".join("<#o"[number % 3] if number % 7 else " " * 4 for number in range(60))
    line = Folded(Text(f"         ▕{cells}▏"), 10, is_drawing=True)
    rows = show(lambda: Output().show(Shown({}, [line])), COLUMNS)
    assert max(map(len, rows)) <= COLUMNS
    assert "".join(row[10:].ljust(COLUMNS - 10) for row in rows[:-1]) + rows[-1][10:] == f"{cells}▏"


def test_what_goes_on_below_is_indented_and_gaps_are_where_a_line_breaks_first(show: Show) -> None:
    line = "round 1  opened 8 of 21 candidates, evenly spread                    8 requests, 1.8 KiB"
    rows = show(lambda: Output().show(Shown({}, [Folded(Text(line), 9)])), COLUMNS)
    assert rows == ["round 1  opened 8 of 21 candidates, evenly spread", "         8 requests, 1.8 KiB"]


def test_an_object_that_could_not_be_opened_fits_and_its_long_key_is_whole(
    world: World, show: Show, explained: list[Explanation]
) -> None:
    namespace = "a-namespace-that-is-longer-than-a-terminal-of-sixty-columns-is-wide"
    world.change_image(namespace=namespace)

    printed = show(command(world, "explain"), COLUMNS)
    [after] = [number for number, line in enumerate(printed) if line.startswith("error: ")]
    narrow = printed[:after]  # what the error says is a sentence that a terminal wraps by itself
    assert max(map(cell_len, narrow)) <= COLUMNS
    assert letters(narrow) == letters(explained[0].text().splitlines())
    assert namespace in "".join(told(narrow))


def test_an_answer_is_a_table_that_fits_and_is_whole(world: World, show: Show) -> None:
    find = command(world, "get-objects")
    narrow, wide = show(find, COLUMNS), show(find, WIDE_COLUMNS)
    assert max(map(cell_len, narrow)) <= COLUMNS
    assert max(map(cell_len, wide)) > COLUMNS
    assert letters(narrow[:-1]) == letters(wide[:-1]), "the last line has times"


def test_slow_lookups_fit_as_they_happen_and_when_they_are_shown_again(
    world: World, show: Show, tmp_path: Path
) -> None:
    now = show(command(world, "get-objects", "--slow-log", "0.001ms"), COLUMNS)
    assert max(map(cell_len, now)) <= COLUMNS
    assert any(line.startswith("ended at ") for line in now)

    file = tmp_path / "slow.jsonl"
    saved = world.run("get-objects", *QUESTION, "--slow-log", "0.001ms", "--output", "json").stderr
    file.write_text(saved)
    again = show(lambda: main(["explain", "--from", str(file)], standalone_mode=False), COLUMNS)
    assert max(map(cell_len, again)) <= COLUMNS
    assert told(again) == told(json.loads(saved)["lines"])


@pytest.mark.parametrize("columns", [24, COLUMNS, 80])
def test_columns_that_are_not_broken_are_broken_where_they_would_be_cut(show: Show, columns: int) -> None:
    rows = [(100_000_000 + number, "abc" * 8, "letters and words " * 3, "x" * 30) for number in range(3)]
    table_columns: list[Column[tuple[int, str, str, str]]] = [
        Column("number", itemgetter(0)),
        Column("name", itemgetter(1), "left"),
        Column("told", itemgetter(2), "left", no_wrap=False),
        Column("key", itemgetter(3), "left"),
    ]

    def act() -> None:
        Output().show(Shown({}, [table_of(rows, *table_columns)]))

    narrow = show(act, columns)
    assert max(map(cell_len, narrow)) <= columns
    assert letters(narrow) == letters(show(act, WIDE_COLUMNS))
