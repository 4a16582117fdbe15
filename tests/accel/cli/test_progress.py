"""While something long runs a person sees how much, how many bytes, and the time left; a pipe sees nothing."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr
from uuid import uuid4

import click
import pytest

from accel.catalog import ObjectCatalog
from accel.cli.main import main
from accel.compaction import CompactionSettings, plan_compaction
from accel.rendering import Output
from accel.units import size_text
from loaders.store import open_store
from tests.spark_jobs.worlds import fill, make_catalog

NODE = 4
MIB = 1 << 20
TIME_LEFT = re.compile(r"(\d:\d\d:\d\d|-:--:--) left")


class Terminal(io.StringIO):
    """A stderr that somebody watches."""

    def isatty(self) -> bool:
        return True

    @property
    def seen(self) -> str:
        return click.unstyle(self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Of 160 columns."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "ACCEL_STORE", "ACCEL_OUTPUT", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ACCEL_CONFIG", "/dev/null")
    return Terminal()


def test_a_person_sees_the_count_the_bytes_that_moved_and_the_time_left(terminal: Terminal) -> None:
    with redirect_stderr(terminal), Output().progress("reading", 10, moved=lambda: 3 * MIB) as tell:
        tell(4)
    seen = terminal.seen
    assert "reading" in seen
    assert "4/10" in seen
    assert "3.0 MiB, " in seen
    assert TIME_LEFT.search(seen) is not None


def test_a_person_sees_bytes_of_bytes_where_these_are_what_is_counted(terminal: Terminal) -> None:
    with redirect_stderr(terminal), Output().progress("merging", 8 * MIB, is_bytes=True) as tell:
        tell(2 * MIB)
    assert "2.0/8.0 MiB" in terminal.seen
    assert TIME_LEFT.search(terminal.seen) is not None


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_pipe_sees_nothing_and_nothing_is_asked(
    is_quiet: bool, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "isatty", lambda: is_quiet)
    progress = Output(is_quiet=is_quiet).progress("reading", 10, moved=lambda: pytest.fail("asked"))
    with redirect_stderr(terminal), progress as tell:
        tell(4)
    assert terminal.seen == ""


COMMANDS = {
    "catalog compact": ("--max-objects-per-node", "3", "--min-age", "0s"),
    "catalog build-hints": (),
    "catalog verify": (),
    "catalog gc": ("--yes",),
    "catalog run-all": ("--max-objects-per-node", "3", "--min-age", "0s"),
    "catalog status": (),
}
SHOWN = {
    "catalog compact": "merging groups",
    "catalog build-hints": "building hints",
    "catalog verify": "verifying",
    "catalog gc": "keys seen",
    "catalog run-all": "merging groups",
    "catalog status": "looking at hints",
}


@pytest.fixture
def url() -> str:
    """A store with a catalog of a node with six objects."""
    place = f"memory://{uuid4().hex}"
    store = open_store(place)
    make_catalog(store)
    fill(store, NODE, [[(1, at, at + 1), (100 + at, 0, 9)] for at in range(6)])
    return place


@pytest.mark.parametrize("command", COMMANDS)
def test_long_commands_show_it_to_a_person(command: str, url: str, terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        main([*command.split(), *COMMANDS[command], "--store", url], standalone_mode=False)
    assert SHOWN[command] in terminal.seen
    assert TIME_LEFT.search(terminal.seen) is not None


def test_a_compaction_counts_the_bytes_that_it_rewrites(url: str, terminal: Terminal) -> None:
    with ObjectCatalog.open(open_store(url)) as catalog:
        settings = CompactionSettings(max_objects_per_node=3, min_age_seconds=0)
        source_bytes = plan_compaction(catalog, settings).source_bytes
    with redirect_stderr(terminal):
        main(["catalog", "compact", *COMMANDS["catalog compact"], "--store", url], standalone_mode=False)
    number = size_text(source_bytes).partition(" ")[0]
    assert f"{number}/{number} " in terminal.seen
