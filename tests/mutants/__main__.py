"""Run mutants: `python -m tests.mutants [--sample 200] [--seed 1] [--area search]`; exit code 1 if too many survive.

--sample N        so many mutants, the same share of each area
--seed N          which ones
--area NAME       of this area alone; may be repeated
--match TEXT      those whose key contains the text, all of them; to look at a survivor again
--processes N     that run mutants side by side
--report          write the figures of this run into docs/operations/reliability.md
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence

import boto3  # noqa: F401 - children have it at once
import numpy  # noqa: F401, ICN001 - likewise

from tests.docs.pages import page_named
from tests.mutants.areas import AREAS, ROOT, Area
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import Module, Mutant
from tests.mutants.running import SECONDS_MIN, TIMES_LONGER, Outcome, run_all

DIE_MIN = 0.95
BEGIN, END = "<!-- mutants of the code: begin -->", "<!-- mutants of the code: end -->"


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", action="append", default=[], choices=[each.name for each in AREAS])
    parser.add_argument("--match", default="")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    return parser.parse_args()


def drawn(areas: Sequence[Area], sample: int, seed: int, match: str) -> list[tuple[Area, Mutant]]:
    """The mutants to run: of each area as many, or all that match. The areas take turns."""
    found: list[tuple[int, Area, Mutant]] = []
    for area in areas:
        modules = [Module(str(path.relative_to(ROOT)), path.read_text()) for path in area.paths]
        every = [(module, number) for module in modules for number in range(len(module))]
        if match:
            chosen = [each for each in (module[number] for module, number in every) if match in each.key]
        else:
            rng = random.Random(f"{seed}/{area.name}")
            share = min(len(every), -(-sample // len(areas)))
            chosen = [module[number] for module, number in rng.sample(every, share)]
        sys.stdout.write(f"{area.name}: {len(chosen)} of {len(every)} mutants\n")
        found += [(turn, area, each) for turn, each in enumerate(chosen)]
    found.sort(key=lambda each: each[0])
    return [(area, mutant) for _, area, mutant in found]


def clean_seconds(areas: Sequence[Area]) -> dict[str, float]:
    """What each area's tests take without a mutant.

    Raises:
        SystemExit: they fail.
    """
    jobs = [(ROOT / "nothing", "", [area.tests]) for area in areas]
    taken = {}
    for number, outcome, seconds in run_all(jobs, [0.0] * len(jobs), 1):
        if outcome is not Outcome.SURVIVED:
            sys.exit(f"{areas[number].name}: expected its tests to pass without a mutant, found that they fail")
        taken[areas[number].name] = seconds
        sys.stdout.write(f"{areas[number].name}: its tests take {seconds:.0f} s\n")
        sys.stdout.flush()
    return taken


def main() -> int:
    """Run the sample and say what survived."""
    arguments = parsed()
    areas = [each for each in AREAS if not arguments.area or each.name in arguments.area]
    chosen = drawn(areas, arguments.sample, arguments.seed, arguments.match)
    by_hand = [(area, each) for area, each in chosen if each.key in EQUIVALENT]
    rest = [(area, each) for area, each in chosen if each.key not in EQUIVALENT]
    limits = {name: max(SECONDS_MIN, TIMES_LONGER * seconds) for name, seconds in clean_seconds(areas).items()}
    counts: dict[str, Counter[Outcome]] = {area.name: Counter() for area in areas}
    for area, _ in by_hand:
        counts[area.name][Outcome.EQUIVALENT] += 1
    jobs = [(ROOT / each.path, each.source, area.tests_of(each.path)) for area, each in rest]
    for number, outcome, seconds in run_all(jobs, [limits[area.name] for area, _ in rest], arguments.processes):
        area, mutant = rest[number]
        counts[area.name][outcome] += 1
        sys.stdout.write(f"{outcome.value} ({seconds:.0f} s): {mutant.path}:{mutant.line}\n    {mutant.key}\n")
        sys.stdout.flush()
    table = table_of(counts)
    sys.stdout.write(f"{table}\n")
    if arguments.report:
        _write(f"`--sample {arguments.sample} --seed {arguments.seed}`:\n\n{table}")
    return 0 if share_that_died(sum(counts.values(), Counter[Outcome]())) >= DIE_MIN else 1


def share_that_died(found: Counter[Outcome]) -> float:
    """Of those that are no equivalent ones."""
    judged = found.total() - found[Outcome.EQUIVALENT]
    return (judged - found[Outcome.SURVIVED]) / judged if judged else 1.0


def table_of(counts: dict[str, Counter[Outcome]]) -> str:
    """A row for each area, and one for all."""
    lines = [f"| area | mutants | {' | '.join(each.value for each in Outcome)} | found |"]
    lines.append("|---|---|---|" + "---|" * len(Outcome))
    for name, found in [*counts.items(), ("all", sum(counts.values(), Counter[Outcome]()))]:
        outcomes = " | ".join(str(found[each]) for each in Outcome)
        lines.append(f"| {name} | {found.total()} | {outcomes} | {share_that_died(found):.0%} |")
    return "\n".join([*lines, "", "Equivalent ones are left out of what is found."])


def _write(text: str) -> None:
    page = page_named("reliability")
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    sys.exit(main())
