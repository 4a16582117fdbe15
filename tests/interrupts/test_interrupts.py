"""An exception of a signal handler, at any place of a public call, fails that call alone."""

from __future__ import annotations

import threading
from dataclasses import is_dataclass
from enum import Enum
from random import Random

import pytest

import accel
from accel import ObjectCatalog, ReadAccelerator
from accel.errors import IllegalState
from tests.examples import examples
from tests.interrupts.rows import ELSEWHERE, END, OBJECTS, ROWS, STREAM, Row, filled
from tests.interrupts.signals import Limit, Place, guarded, interrupted, places, raising

SEED = 1
SAMPLE = 2
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


def test_each_public_class_with_methods_has_rows_or_says_why_not() -> None:
    kinds = {name: getattr(accel, name) for name in accel.__all__}
    made = {
        name
        for name, kind in kinds.items()
        if isinstance(kind, type)
        and not issubclass(kind, BaseException)
        and not getattr(kind, "_is_protocol", False)
        and not is_dataclass(kind)
        and not issubclass(kind, tuple | Enum)
    }
    called = {name for name in kinds if name[0].islower()}
    assert {name.partition(".")[0] for name in ROWS} >= (made | called) - ELSEWHERE.keys()
    assert ELSEWHERE.keys() <= kinds.keys()


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
        outcome = interrupted(use.call, place, raising(error))
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


def test_a_lookup_of_a_signal_handler_is_answered_or_refused_in_words() -> None:
    store = filled()
    outcomes: list[str] = []
    with ObjectCatalog.open(store) as catalog:
        images = catalog.images()

        def tried(place: Place | None) -> list[Place]:
            with ReadAccelerator(images, store) as accelerator:

                def look_up() -> None:
                    assert len(accelerator.get_objects(STREAM, 0, END, 9).objects) == OBJECTS
                    assert accelerator.stats().lookups.lookups
                    assert sum(each.count for each in accelerator.read(STREAM, 0, END)) == END

                def within() -> None:
                    try:
                        look_up()
                        outcomes.append("answered")
                    except IllegalState as error:
                        outcomes.append(str(error))

                if place is None:
                    return places(look_up)
                outcome = interrupted(look_up, place, within)
                assert outcome.error is None, outcome
                guarded(SECONDS, look_up)
                return []

        found = tried(None)
        for place in found if examples(1) > 1 else Random(SEED).sample(found, 20):
            tried(place)
    refused = [each for each in outcomes if each != "answered"]
    assert 0 < len(refused) < len(outcomes)
    assert all("signal handler" in each for each in refused)
