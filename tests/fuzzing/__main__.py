"""Fuzzes every decoder: `python -m tests.fuzzing --seconds 600`, or `--objects 1000000 --page`.

With `--seconds` all decoders get their share of the time: half for mutants, and half under coverage guidance where
atheris is installed. With `--objects` as many mutants are tried, spread evenly; `--page` writes what came of them into
the page. A defect prints its input as a command that repeats it, and the exit code is 1.

Threads: none is shared; a process for each core.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.docs.pages import page_named
from tests.fuzzing import guided
from tests.fuzzing.judging import Verdict
from tests.fuzzing.registry import decoders, family_of
from tests.fuzzing.running import Figures, tasks_of, try_all

PAGE = page_named("reliability")
BEGIN, END = "<!-- mutants: written by `python -m tests.fuzzing` -->", "<!-- end of mutants -->"


def try_guided(names: Sequence[str], seconds: float, folder: Path) -> list[str]:
    """Each decoder for its share of the time, one after the other; the names of those that showed a defect."""
    failed = []
    share = max(5, round(seconds / len(names)))
    for name in names:
        command = [sys.executable, "-m", "tests.fuzzing.guided", name, "--seconds", str(share), "--folder", str(folder)]
        most = 10 * share + 600
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=most)  # noqa: S603 - ours
        if done.returncode:
            failed.append(name)
            print(f"{name}: exit code {done.returncode}; inputs in {folder}/artifacts/{name}\n{done.stderr[-3000:]}")  # noqa: T201 - for who runs it
    return failed


def table_of(found: dict[str, Figures]) -> list[str]:
    """What came of them, a family a row."""
    families: dict[str, Figures] = {}
    counts: dict[str, int] = {}
    for name, figures in found.items():
        families.setdefault(family_of(name), Figures()).add(figures)
        counts[family_of(name)] = counts.get(family_of(name), 0) + 1
    total = Figures()
    for figures in families.values():
        total.add(figures)
    rows = [*sorted(families.items()), ("all", total)]
    counts["all"] = len(found)
    lines = [
        "| what is read | decoders | mutants | refused | read as before | another value, rightly | silently wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, figures in rows:
        told = [figures.verdicts[each] for each in (Verdict.REFUSED, Verdict.HARMLESS, Verdict.OTHER)]
        cells = (counts[family], figures.inputs, *told, figures.silent)
        lines.append(f"| {family} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return lines


def write_page(lines: Sequence[str]) -> None:
    """Put the table between the marks of the page."""
    text = PAGE.read_text()
    begin, end = re.escape(BEGIN), re.escape(END)
    made, count = re.subn(f"{begin}.*?{end}", lambda _: "\n".join((BEGIN, *lines, END)), text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"expected the marks of this table once in {PAGE.name}, found {count}")
    PAGE.write_text(made)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, and fuzz."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description="Fuzz every decoder.")
    parser.add_argument("--seconds", type=float, help="go on so long")
    parser.add_argument("--objects", type=int, help="try so many mutants")
    parser.add_argument("--seed", default="accel", help="of the mutants")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="some of the decoders")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/accel-fuzzing"), help="for coverage guidance")  # noqa: S108
    parser.add_argument("--page", action="store_true", help="write the figures into docs/operations/reliability.md")
    given = parser.parse_args(arguments)
    if (given.seconds is None) == (given.objects is None):
        parser.error("expected --seconds or --objects")
    names = given.only or sorted(decoders())
    failed: list[str] = []
    if given.objects is not None:
        found = try_all(tasks_of(names, given.objects, given.seed), given.jobs)
    else:
        half = given.seconds / 2 if guided.is_installed() else given.seconds
        found = try_all(tasks_of(names, 10**12, given.seed), given.jobs, time.perf_counter() + half)
        failed = try_guided(names, half, given.folder) if guided.is_installed() else []
    table = table_of(found)
    print("\n".join(table))  # noqa: T201 - likewise
    defects = [told for figures in found.values() for told in figures.defects.values()]
    for text, data in defects:
        print(f"\n{text}\n  {data.hex() if len(data) < 2000 else f'{len(data)} bytes'}")  # noqa: T201 - likewise
    if given.page and not defects:
        write_page(table)
    return 1 if defects or failed else 0


if __name__ == "__main__":
    sys.exit(main())
