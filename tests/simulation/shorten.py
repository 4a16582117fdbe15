"""A failing run made shorter: what it does not need is left out, one thing after the other.

Each machine has random sources of its own, so what is left of a world goes on as before until it meets what is missing.
A shorter run need not fail in the same words; that something is wrong is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.runs import ACTORS, NONE, Failed, Faulty, Ran, simulate
from tests.simulation.world import Plan


def smaller(plan: Plan) -> Iterator[Plan]:
    """Plans that leave out one thing more."""
    without = (
        replace(plan, skew=False),
        replace(plan, pauses=False),
        replace(plan, deaths=False),
        replace(plan, faults=False),
    )
    yield from (each for each in without if each != plan)
    for actor in ACTORS:
        if actor not in plan.without:
            yield replace(plan, without=plan.without | {actor})


def shortened(failed: Failed, faulty: Faulty = NONE) -> Failed:
    """The shortest failure that leaving out one thing at a time leads to."""
    found = failed
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for plan in smaller(found.plan):
            try:
                simulate(failed.seed, failed.steps, plan, faulty)
            except Failed as again:
                found, is_smaller = again, True
                break
    return found


def one(seed: int, steps: int, plan: Plan, *, is_whole: bool) -> Ran | str:
    """A world; the text of what it found."""
    try:
        return simulate(seed, steps, plan)
    except Failed as failed:
        return str(failed if is_whole else shortened(failed))
