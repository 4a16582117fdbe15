"""An exception of a signal handler, at any place of a public call, fails that call alone."""

from __future__ import annotations

import threading
from random import Random

import pytest

from tests.examples import examples
from tests.interrupts.rows import ROWS, Row
from tests.interrupts.signals import Limit, Place, guarded, interrupted, places

SEED = 1
SAMPLE = 5
"""Places of each call that are tried by default; with a factor of examples above 1, all are."""

SECONDS = 10.0
"""After this time a call counts as stuck: far more than any takes on a slow machine."""

WAIT_SECONDS = 0.01
"""How often it looks whether a thread has ended."""

SHARED_THREADS = {"accel-idle", "accel-rescue", "accel-image", "accel-next-image", "accel-refresh"}
"""Threads of the process, which wait for more work for some seconds."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def chosen(row: Row, chance: Random) -> list[Place]:
    with row() as use:
        found = places(use.call)
        use.check()
    assert found
    return found if examples(1) > 1 else chance.sample(found, min(SAMPLE, len(found)))


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("accel-") and each.ident}


@pytest.mark.parametrize("name", ROWS)
def test_only_the_interrupted_call_fails(name: str) -> None:
    assert threading.current_thread() is threading.main_thread()  # where handlers of signals run
    row, chance = ROWS[name], Random(f"{SEED} {name}")
    struck = 0
    for place in chosen(row, chance):
        before = threads()
        opened = row()
        use = guarded(SECONDS, opened.__enter__)
        error = chance.choice([Limit(), Limit(), KeyboardInterrupt()])
        outcome = interrupted(use.call, place, error)
        struck += outcome.where is not None
        try:
            guarded(SECONDS, use.check)
            guarded(SECONDS, lambda: opened.__exit__(None, None, None))  # noqa: B023 - called at once
            for thread in threads() - before:
                for _ in range(int(SECONDS / WAIT_SECONDS)):
                    if not thread.is_alive() or thread.name in SHARED_THREADS:
                        break
                    thread.join(WAIT_SECONDS)
                assert not thread.is_alive() or thread.name in SHARED_THREADS, thread.name
        except BaseException as raised:
            raised.add_note(f"after {error!r} at {outcome.where}, and {outcome.error!r}")
            raise
    assert struck
