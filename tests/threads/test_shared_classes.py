"""Sixteen threads on each class that threads may share, with switches where locks are taken and released."""

from __future__ import annotations

import ast
import importlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Lock

import pytest

from tests.counting import ROOT, parsed
from tests.test_house import modules
from tests.threads.boundaries import Boundaries, Calls, lock_class, side_by_side, switching
from tests.threads.scenarios import SCENARIOS
from tests.threads.shared import ELSEWHERE, SHARED

SEED = 1


def classes_for_any_thread() -> Iterator[str]:
    """All classes whose docstring says that any thread may use them; a protocol has no code that could be wrong."""
    for path in modules():
        for node in ast.walk(parsed(path)) if re.search(r"Threads:\s+any\b", path.read_text()) else ():
            if not isinstance(node, ast.ClassDef) or any(ast.unparse(base) == "Protocol" for base in node.bases):
                continue
            told = " ".join((ast.get_docstring(node) or "").split())
            if re.search(r"Threads: any\b", told):
                yield ".".join((*path.relative_to(ROOT).with_suffix("").parts, node.name))


def test_each_class_for_any_thread_is_in_a_scenario_or_says_why_not() -> None:
    registered = [name for names in SHARED.values() for name in names]
    assert sorted([*registered, *ELSEWHERE]) == sorted(classes_for_any_thread())


@pytest.mark.parametrize("name", SCENARIOS)
def test_sixteen_threads_break_nothing_that_they_share(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    scenario, rounds = SCENARIOS[name]
    calls = Calls()
    with switching(SEED), scenario(tmp_path) as act:
        side_by_side(act, SEED, rounds, calls)
    assert [each.getMessage() for each in caplog.records] == []
    kinds = [each.rpartition(".") for each in SHARED.get(name, ())]
    alone = [kind for module, _, kind in kinds if calls.threads_in(getattr(importlib.import_module(module), kind)) < 2]
    assert alone == []


def test_what_is_read_within_one_lock_and_written_within_the_next_is_found() -> None:
    class Careless:
        def __init__(self, lock: Lock) -> None:
            self._lock = lock
            self.count = 0

        def add(self) -> None:
            with self._lock:
                count = self.count
            with self._lock:
                self.count = count + 1

    rounds = 50
    careless = Careless(lock_class(Boundaries(SEED))())

    def act(_: int, __: Random) -> None:
        careless.add()

    side_by_side(act, SEED, rounds)
    assert careless.count < 16 * rounds
