"""What runs were about, in figures, and the table of docs/operations/reliability.md that has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.pages import page_named
from tests.simulation.runs import Ran

PAGE = page_named("reliability")
MARK = "simulation"


@dataclass
class Figures:
    """Of all worlds of a run."""

    worlds: int = 0
    failed: int = 0
    steps: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)

    def add(self, ran: Ran) -> None:
        """Those of one world more."""
        self.worlds += 1
        self.steps += ran.steps
        self.counts += ran.counts
        self.injected += ran.injected

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is told of them."""
        counts, injected = self.counts, self.injected
        faults = injected.total()
        kinds = ", ".join(f"{what.lower().replace('_', ' ')} {number:,}" for what, number in sorted(injected.items()))
        return [
            ("worlds (seeds)", f"{self.worlds:,}"),
            ("steps (requests to the store)", f"{self.steps:,}"),
            ("faults and delays injected", f"{faults:,}"),
            ("of which", kinds),
            ("processes that died between two requests", f"{counts['deaths']:,}"),
            ("answers and objects compared", f"{sum(counts[each] for each in COMPARED):,}"),
            ("worlds in which a promise was broken", f"{self.failed:,}"),
        ]

    def text(self) -> str:
        """For a terminal."""
        happened = "\n".join(f"  {number:>9,}  {what}" for what, number in sorted(self.counts.items()))
        return "\n".join([*(f"{what}: {figure}" for what, figure in self.rows), happened, ""])


COMPARED = (
    "walks",
    "lookups",
    "objects read",
    "batches compared",
    "histories compared",
    "events compared",
    "events given to a group",
)


def write_report(figures: Figures, page: Path = PAGE) -> None:
    """Put the table of a run into the page, in the place of the one before."""
    write_table(page, MARK, figures.rows)


def write_table(page: Path, mark: str, rows: Iterable[tuple[str, str]]) -> None:
    """Put a table between two marks of a page, in the place of what stands there."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    table = "\n".join(["| | |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)])
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}")
