"""Whose workflow it is, checked by a model: all interleavings of three processes at calls of the store and the host.

Two processes carry out workflows, each pair of them and each with itself; the third one recovers the stream meanwhile.
Any of them may stop between two calls, for an hour or for ever. In every state the invariants of `stream_state.check`
hold. And in every state all may have died: then a new process recovers the stream alone, after which the invariants of
`check_recovered` hold, and a scale and another recovery succeed.

The steps are those of docs/explanation/history.md. Not in the model: clocks; marks, counters and bound streams (written
beside others, and never read to decide); leaves of the index of times (merged between workflows); what is carried out
step by step by a caller. What makes the model smaller, and why nothing is lost by it:

- Reading and compare-and-set of one key are one step where a failure leads back to the reading: the whole takes effect
  at the moment of the write, or of the reading if nothing is to be written.
- A step follows from where the process stands and from what all share, so states are met again, and explored once.
- Of two processes that do the same, both orders are one pair. The same workflow with another wish is paired with its
  like alone, as it takes the same steps beside all others.
- In the pairs with a sealing, whose states are too many otherwise (recovery seals as well), each step of
  `workflow_steps.JOINED` goes together with the one before it. Reads of a plan count only if no workflow came between
  them and the write that takes the stream, so they all may stand right before it. What is created if absent or is
  monotonic, with content that follows from the plan, commutes with all steps of others; nobody reads it before the
  current epoch has moved on. What the host says of a sealed segment stays so. The other pairs take these steps one by
  one.

The model must be able to fail: it finds what each of the `MUTANTS` does. In the real code processes stop before their
calls in `test_ownership`, and in any order in `tests.simulation`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import pytest

from tests.examples import swept
from tests.models.interleavings import Explored, Explorer, Violated
from tests.models.stream_state import Plan, Request, Stream, check, check_recovered, three_epochs
from tests.models.workflow_steps import Process, Workflows, is_done, process

Work = tuple[str, object]

FIRST, LAST = (1, 0), (3, 2)
TODAY = {"transactions": (("x", "COMMITTING", 2), ("y", "COMMITTING", 2)), "order": ("x", "y")}
ONE_OF_TODAY = {"transactions": (("x", "COMMITTING", 2),), "order": ("x",)}
OF_BEFORE = {"transactions": (("x", "COMMITTING", 0),), "order": ("x",)}
ASKED = {"requests": (Request("asked", "waiting", -1, Plan("scale", LAST), is_kept=True),)}

WORKS: dict[str, Work] = {
    "scale": ("scale", FIRST),
    "scale another": ("scale", LAST),
    "truncate": ("truncate", None),
    "truncate to before": ("truncate", 1),
    "configure": ("update", "new"),
    "commit": ("commit", None),
    "rolling commit": ("commit", None),
    "claim": ("claim", None),
    "begin": ("begin", None),
    "seal": ("seal", None),
}
VARIANTS = {"scale another": "scale", "truncate to before": "truncate"}
"""A workflow with another wish, and that with whom it makes a pair; with all others it is as the first one."""

PAIRS = [
    pair
    for pair in combinations_with_replacement(WORKS, 2)
    if all(VARIANTS.get(each, pair[0]) == pair[0] for each in pair[1:]) and pair[0] not in VARIANTS
    if pair != ("commit", "rolling commit")  # as two rolling commits: which a commit is follows from the stream
]


def show(line: str) -> None:
    """Show a line of figures, with `pytest -s`."""
    sys.stdout.write(f"{line}\n")


def stream_for(pair: tuple[str, str]) -> Stream:
    """What the workflows of a pair need to have something to do."""
    made: dict[str, object] = {}
    if "rolling commit" in pair:
        made |= OF_BEFORE
    elif "commit" in pair:
        made |= ONE_OF_TODAY if "seal" in pair else TODAY
    if "claim" in pair:
        made |= ASKED
    return three_epochs(**made)


@dataclass
class Checked:
    """Explores pairs, with or without a mistake."""

    mutant: str = ""
    is_joined: bool = False
    explorer: Explorer[Stream, Process] = field(init=False)
    alone: Explorer[Stream, Process] = field(init=False)

    def __post_init__(self) -> None:
        step = Workflows(self.mutant, is_joined=self.is_joined).step
        self.explorer = Explorer(step, self._check, check_end)
        self.alone = Explorer(step, check, check_end)

    def explore(self, pair: tuple[str, str]) -> Explored:
        processes = [process(number, *WORKS[name]) for number, name in enumerate(pair, 1)]
        return self.explorer.explore(stream_for(pair), [*processes, process(3, "recover")])

    def _check(self, stream: Stream) -> None:
        check(stream)
        recovered, _ = self.alone.alone(stream, process(4, "recover"))
        recovered, _ = self.alone.alone(recovered, process(4, "recover"))  # the first one may have begun a scale
        check_recovered(recovered)
        if recovered.status.state == "SEALED":
            return
        wish = recovered.epochs[recovered.current].segments[0]
        scaled, last = self.alone.alone(recovered, process(5, "scale", wish))
        again, _ = self.alone.alone(scaled, process(6, "recover"))
        if (
            not is_done(last)
            or again.current != recovered.current + 1
            or any(not each.is_kept for each in again.requests)
        ):
            raise Violated(f"recovered, and a scale does not succeed: {last.pc}, {again}")


def check_end(stream: Stream, found: Process) -> None:
    """A workflow that was refused has changed nothing: it never had the stream."""
    if found.pc == "refused" and found.kind in ("scale", "truncate", "update", "commit"):
        ids = {each for each in stream.took if isinstance(each, tuple) and each[0] == found.who}
        if ids or any(isinstance(each.id, tuple) and each.id[0] == found.who for each in stream.requests):
            raise Violated(f"a {found.kind} was refused, and has had the stream: {ids}")


@pytest.mark.parametrize("pair", swept(PAIRS), ids=" | ".join)
def test_all_interleavings_of_every_pair_of_workflows_beside_recovery_are_sound(pair: tuple[str, str]) -> None:
    found = Checked(is_joined="seal" in pair).explore(pair)
    show(f"{' | '.join(pair)} | recover: {found.states:,} states, {found.schedules:.2e} schedules")
    assert found.states > 300
    assert found.schedules > 10**6


MUTANTS = {
    "ends without asking for the id": ("scale", "scale another"),
    "ends without a condition": ("scale", "scale another"),
    "truncates whatever the record names": ("truncate", "truncate to before"),
    "completes whatever truncation the record names": ("truncate", "truncate to before"),
    "configures whatever the record names": ("configure", "configure"),
    "erases the request before the state is given back": ("scale", "configure"),
    "reads the state before the requests that it erases": ("configure", "scale"),
    "erases requests that may still take the stream": ("configure", "scale"),
    "a commit within a sealing is not named": ("seal", "commit"),
    "plans before it reads the state": ("scale", "scale another"),
    "takes the stream without a condition": ("scale", "scale another"),
    "takes the stream before it writes the request": ("configure", "configure"),
    "a kept request is done after the state is given back": ("claim", "claim"),
    "plans a request without a condition": ("claim", "scale"),
    "moves the stream back": ("scale", "scale another"),
    "moves the stream before the sizes are known": ("scale", "configure"),
    "tells the end before the data is merged": ("commit", "configure"),
    "begins a transaction without looking at the state again": ("seal", "begin"),
    "the host merges what it has merged": ("commit", "configure"),
    "the host creates again what was deleted": ("rolling commit", "truncate"),
    "writes sizes that are known": ("scale", "truncate"),
}
"""Mistakes, and a pair of workflows in which each shows."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_model_finds_every_mistake(mutant: str) -> None:
    with pytest.raises(Violated) as found:
        Checked(mutant).explore(MUTANTS[mutant])
    show(f"{mutant}: {found.value}")
