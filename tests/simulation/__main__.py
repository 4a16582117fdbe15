"""Run worlds: `python -m tests.simulation --seed 17 [--steps 2000]`; without a seed, one after the other.

    --seed N                 this world alone; what it finds is shown with a shorter run that finds it, too
    --seeds N                so many worlds, from --first on
    --seconds N              until so much time has passed; --total-steps N: until so many steps were taken
    --without ACTOR, --no-faults, --no-deaths, --no-pauses, --no-skew      what of a world is left out
    --planted NAME           with a mistake in the code: how many worlds it takes until it is found
    --report                 write the figures of this run into docs/reliability.md

Exit code 1: something was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.planted import DEFECTS
from tests.simulation.report import Figures, write_report
from tests.simulation.runs import Failed, simulate
from tests.simulation.shorten import shortened
from tests.simulation.world import Plan

STEPS = 2000
PLANTED_SEEDS_MAX = 200


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=sys.maxsize)
    parser.add_argument("--every", type=int, default=1, help="take each n-th seed: for processes side by side")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--total-steps", type=float, default=float("inf"))
    parser.add_argument("--without", action="append", default=[])
    for each in ("faults", "deaths", "pauses", "skew"):
        parser.add_argument(f"--no-{each}", action="store_false", dest=each)
    parser.add_argument("--planted", choices=[*DEFECTS])
    parser.add_argument("--whole", action="store_true", help="do not look for a shorter run of a failure")
    parser.add_argument("--report", action="store_true")
    return parser.parse_args()


def plan_of(arguments: argparse.Namespace) -> Plan:
    """What is left out."""
    return Plan(frozenset(arguments.without), arguments.faults, arguments.deaths, arguments.pauses, arguments.skew)


def planted(arguments: argparse.Namespace) -> int:
    """How many worlds it takes until a mistake is found."""
    defect = DEFECTS[arguments.planted]
    found = []
    for seed in range(arguments.first, arguments.first + min(arguments.seeds, PLANTED_SEEDS_MAX)):
        try:
            with defect.plant():
                simulate(seed, defect.steps, faulty=defect.faulty)
        except Failed as failed:
            found.append(seed)
            sys.stdout.write(f"{arguments.planted}: seed {seed}, step {failed.at}: {failed.cause}\n")
            break
    sys.stdout.write(f"{arguments.planted}: {'found' if found else 'not found'}\n")
    return 0 if found else 1


def soak(arguments: argparse.Namespace) -> int:
    """World after world."""
    figures = Figures()
    started = time.monotonic()  # noqa: TID251 - how long it runs is a matter of the real clock
    last = arguments.first + arguments.seeds * arguments.every
    for seed in range(arguments.first, last, arguments.every):
        seconds = time.monotonic() - started  # noqa: TID251 - likewise
        if seconds >= arguments.seconds or figures.steps >= arguments.total_steps:
            break
        try:
            figures.add(simulate(seed, arguments.steps, plan_of(arguments)))
        except Failed as failed:
            sys.stdout.write(f"{failed if arguments.whole else shortened(failed)}\n")
            return 1
        if figures.worlds % 20 == 0:
            sys.stderr.write(f"{figures.worlds} worlds, {figures.steps} steps\n")
    figures.seconds = time.monotonic() - started  # noqa: TID251 - likewise
    sys.stdout.write(figures.text())
    if arguments.report:
        write_report(figures)
    return 0


def main() -> int:
    """See the module."""
    arguments = parsed()
    if arguments.planted:
        return planted(arguments)
    if arguments.seed is not None:
        arguments.first, arguments.seeds = arguments.seed, 1
    return soak(arguments)


if __name__ == "__main__":
    sys.exit(main())
