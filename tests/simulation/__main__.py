"""Run worlds: `python -m tests.simulation --seed 17 [--steps 2000]`; without a seed, one after the other.

    --seed N                 this world alone; what it finds is shown with a shorter run that finds it, too
    --seeds N                so many worlds, from --first on
    --processes N            that run worlds side by side
    --seconds N              until so much time has passed; --total-steps N: until so many steps were taken
    --without ACTOR, --no-faults, --no-deaths, --no-pauses, --no-skew      what of a world is left out
    --room NAME              actors of the catalog, of a history, of a stream of events; as the seed says by default
    --planted NAME           with a mistake in the code: how many worlds it takes until it is found
    --report                 write the figures of this run into docs/operations/reliability.md

Exit code 1: something was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context

from tests.simulation.planted import DEFECTS
from tests.simulation.report import Figures, write_report
from tests.simulation.runs import Failed, Ran, simulate
from tests.simulation.shorten import one
from tests.simulation.world import CATALOG, EVENTS, HISTORY, Plan

STEPS = 2000
WORLDS_A_PROCESS = 40
"""After so many a new process goes on: each world has many threads, whose memory is not given back at once."""
PLANTED_SEEDS_MAX = 200


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=2**31)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--total-steps", type=float, default=float("inf"))
    parser.add_argument("--without", action="append", default=[])
    for each in ("faults", "deaths", "pauses", "skew"):
        parser.add_argument(f"--no-{each}", action="store_false", dest=each)
    parser.add_argument("--room", action="append", default=[], choices=[CATALOG, HISTORY, EVENTS])
    parser.add_argument("--planted", choices=[*DEFECTS])
    parser.add_argument("--whole", action="store_true", help="do not look for a shorter run of a failure")
    parser.add_argument("--report", action="store_true")
    return parser.parse_args()


def plan_of(arguments: argparse.Namespace) -> Plan:
    """What is left out."""
    rooms = frozenset(arguments.room)
    return Plan(
        frozenset(arguments.without), arguments.faults, arguments.deaths, arguments.pauses, arguments.skew, rooms
    )


def planted(arguments: argparse.Namespace) -> int:
    """How many worlds it takes until a mistake is found."""
    defect = DEFECTS[arguments.planted]
    found = []
    for seed in range(arguments.first, arguments.first + min(arguments.seeds, PLANTED_SEEDS_MAX)):
        try:
            with defect.plant():
                simulate(seed, defect.steps, defect.plan, defect.faulty)
        except Failed as failed:
            found.append(seed)
            sys.stdout.write(f"{arguments.planted}: seed {seed}, step {failed.at}: {failed.cause}\n")
            break
    sys.stdout.write(f"{arguments.planted}: {'found' if found else 'not found'}\n")
    return 0 if found else 1


def worlds(arguments: argparse.Namespace, is_enough: Callable[[], bool]) -> Iterator[Ran | str]:
    """World after world, on so many processes, until it is enough; worlds that have begun by then are finished."""
    plan, seeds = plan_of(arguments), iter(range(arguments.first, arguments.first + arguments.seeds))
    if arguments.processes == 1:
        for seed in seeds:
            yield one(seed, arguments.steps, plan, is_whole=arguments.whole)
            if is_enough():
                return
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, mp_context=context, max_tasks_per_child=WORLDS_A_PROCESS) as pool:
        pending: set[Future[Ran | str]] = set()
        try:
            while True:
                for seed in islice(seeds, 0 if is_enough() else arguments.processes - len(pending)):
                    pending.add(pool.submit(one, seed, arguments.steps, plan, is_whole=arguments.whole))
                if not pending:
                    return
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        finally:
            pool.shutdown(cancel_futures=True)


def soak(arguments: argparse.Namespace) -> int:
    """World after world, and what they were about."""
    figures = Figures()
    started = time.monotonic()  # noqa: TID251 - how long it runs is a matter of the real clock

    def is_enough() -> bool:
        return bool(figures.seconds >= arguments.seconds or figures.steps >= arguments.total_steps)

    for ran in worlds(arguments, is_enough):
        if isinstance(ran, str):
            sys.stdout.write(f"{ran}\n")
            sys.stdout.flush()
            figures.failed += 1
        else:
            figures.add(ran)
        figures.seconds = time.monotonic() - started  # noqa: TID251 - likewise
        if figures.worlds % 20 == 0:
            sys.stderr.write(f"{figures.worlds} worlds, {figures.steps} steps\n")
    sys.stdout.write(figures.text())
    if arguments.report:
        write_report(figures)
    return 1 if figures.failed else 0


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
