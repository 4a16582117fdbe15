"""The figures of runs, and the table of docs/operations/reliability.md that has them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.simulation.report import PAGE, write_table

MARK = "linearizability"
LOST = ("timeout", "reset", "lost reply")


def rows(figures: Counter[str], wrong: int) -> list[tuple[str, str]]:
    """The rows of the table."""
    lost = {each: figures[f"requests that failed: {each}"] for each in LOST}
    others = sum(number for what, number in figures.items() if what.startswith("requests that failed")) - sum(
        lost.values()
    )
    shown = {
        "seconds": figures["seconds"],
        "processes started": figures["processes started"],
        "killed by SIGKILL": figures["processes killed"],
        "stopped by SIGSTOP, for up to 5 seconds": figures["processes stopped"],
        "requests lost on the way": lost["timeout"] + lost["reset"],
        "replies lost": lost["lost reply"],
        "requests that came after their caller had given up": figures["requests that came late"],
        "requests sent twice": figures["requests that were sent twice"],
        "requests that were refused or cut short": others,
        "operations on keys of tables, checked": figures["operations on keys of tables"],
        "operations on streams, checked": figures["operations on streams"],
        "of which without a known result": figures["operations without an end"],
        "uploads": figures["uploads"],
        "compactions": figures["compaction: committed"],
        "objects collected": figures["objects collected"],
        "streams taken over, and trimmed": figures["streams taken over"] + figures["trims"],
        "not linearizable, lost, or otherwise wrong": wrong,
    }
    return [(what, f"{number:,}") for what, number in shown.items()]


def write_report(figures: Counter[str], wrong: int, page: Path = PAGE) -> None:
    """Put the table of runs into the page, in the place of the one before."""
    write_table(page, MARK, rows(figures, wrong))
