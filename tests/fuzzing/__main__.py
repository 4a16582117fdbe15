"""Fuzzes every decoder: `python -m tests.fuzzing --seconds 600`, or `--objects 1000000 --page`.

With `--seconds` all decoders get their share of the time. With `--objects` as many mutants are tried, spread evenly;
`--page` writes what came of them into the page. A defect prints its input, and the exit code is 1.

Threads: none is shared; a process for each core.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence

from tests.docs.pages import page_named
from tests.fuzzing.judging import Verdict
from tests.fuzzing.registry import decoders, family_of
from tests.fuzzing.running import Figures, tasks_of, try_all

PAGE = page_named("reliability")
BEGIN, END = "<!-- mutants: written by `python -m tests.fuzzing` -->", "<!-- end of mutants -->"


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
    parser.add_argument("--page", action="store_true", help="write the figures into docs/operations/reliability.md")
    given = parser.parse_args(arguments)
    if (given.seconds is None) == (given.objects is None):
        parser.error("expected --seconds or --objects")
    names = given.only or sorted(decoders())
    if given.objects is not None:
        found = try_all(tasks_of(names, given.objects, given.seed), given.jobs)
    else:
        found = try_all(tasks_of(names, 10**12, given.seed), given.jobs, time.perf_counter() + given.seconds)
    table = table_of(found)
    print("\n".join(table))  # noqa: T201 - likewise
    defects = [told for figures in found.values() for told in figures.defects.values()]
    for text, data in defects:
        print(f"\n{text}\n  {data.hex() if len(data) < 2000 else f'{len(data)} bytes'}")  # noqa: T201 - likewise
    if given.page and not defects:
        write_page(table)
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
