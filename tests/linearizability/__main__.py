"""Run it on the server that the environment names, or on Ceph: `python -m tests.linearizability --seconds 1800`.

    --seed N         decides what processes do, and when they are killed and stopped; not how they meet
    --seconds N      how long they go on
    --rounds N       so many times, each with a bucket of its own and the next seed
    --planted NAME   with a mistake in the code of all processes: how many rounds it takes until it is found
    --keep           do not delete what the processes wrote down
    --report         write the figures into docs/operations/reliability.md

Exit code 1: something was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.linearizability.planted import DEFECTS
from tests.linearizability.report import rows, write_report
from tests.linearizability.runs import Server, named_server, one_run
from tests.servers.ceph import install, running, unwind_on_signals
from tests.servers.fixtures import is_server_named

SECONDS = 60.0


def main(arguments: list[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser("python -m tests.linearizability", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--planted", choices=[*DEFECTS], default="")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--report", action="store_true")
    chosen = parser.parse_args(arguments)
    with _server() as server:
        return _rounds(server, chosen)


def _rounds(server: Server, chosen: argparse.Namespace) -> int:
    figures: Counter[str] = Counter()
    wrong = 0
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        ran = one_run(server, seed, chosen.seconds, planted=chosen.planted, is_kept=chosen.keep)
        figures += ran.counts
        figures["rounds"] += 1
        figures["seconds"] += round(chosen.seconds)
        wrong += len(ran.problems)
        for problem in ran.problems:
            sys.stdout.write(f"seed {seed}: {problem}\n")
        sys.stdout.flush()
        if chosen.planted and wrong:
            break
    sys.stdout.write("".join(f"{number:>9,}  {what}\n" for what, number in sorted(figures.items())))
    sys.stdout.write("".join(f"{what}: {figure}\n" for what, figure in rows(figures, wrong)))
    if chosen.report:
        write_report(figures, wrong)
    return 1 if wrong else 0


@contextmanager
def _server() -> Iterator[Server]:
    if is_server_named(os.environ):
        yield named_server(os.environ)
        return
    install()
    with running() as gateway:
        yield named_server(os.environ | gateway.environment())


if __name__ == "__main__":
    unwind_on_signals()
    sys.exit(main(sys.argv[1:]))
