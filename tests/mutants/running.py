"""A process for each mutant, in which its module is the mutated one, and the tests of its area.

The parent has imported the libraries and nothing of ours; a child that is forked from it imports our modules, with the
mutated source in the place of one, and runs the tests until the first failure. Threads: none but the main one.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Final

import pytest

from tests.mutants.areas import ROOT

OURS: Final = ("accel", "bloom", "loaders", "range_index", "spark_jobs")
TIMES_LONGER: Final = 4.0
"""A mutant may take as many times what the area's tests take without one."""
SECONDS_MIN: Final = 120.0
MEMORY_BYTES_MAX: Final = 4 << 30
"""Of a child: a mutant may allocate without end."""


class Outcome(enum.Enum):
    """What became of a mutant."""

    DIED = "died"
    HUNG = "died by the time limit"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent, by hand"


def load_instead(path: Path, source: str) -> None:
    """From now on the module at this path has this source, in this process."""
    right = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if self.get_filename(fullname) != str(path):
            return right(self, fullname)
        return compile(source, path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def run_all(
    jobs: Sequence[tuple[Path, str, Sequence[Sequence[str]]]], seconds_max: Sequence[float], processes: int
) -> Iterator[tuple[int, Outcome, float]]:
    """Run each job (module, its source, tests in parts) in a child; as many at once; gives number, outcome and seconds.

    The order is that in which they end. 0 seconds at most = no limit.
    """
    _refuse_ours()
    waiting = list(range(len(jobs)))[::-1]
    running: dict[int, tuple[int, float]] = {}
    while waiting or running:
        while waiting and len(running) < processes:
            number = waiting.pop()
            path, source, tests = jobs[number]
            running[_fork(lambda path=path, source=source, tests=tests: _tests_pass(path, source, tests))] = (  # type: ignore[misc]
                number,
                time.monotonic(),  # noqa: TID251 - children are watched by the real clock
            )
        yield from _ended(running, seconds_max)
        time.sleep(0.02)  # noqa: TID251 - likewise


def _ended(running: dict[int, tuple[int, float]], seconds_max: Sequence[float]) -> Iterator[tuple[int, Outcome, float]]:
    for process_id, (number, began) in list(running.items()):
        seconds = time.monotonic() - began  # noqa: TID251 - likewise
        done, status = os.waitpid(process_id, os.WNOHANG)
        if done:
            del running[process_id]
            yield number, Outcome.SURVIVED if status == 0 else Outcome.DIED, seconds
        elif seconds_max[number] and seconds > seconds_max[number]:
            os.killpg(process_id, signal.SIGKILL)
            os.waitpid(process_id, 0)
            del running[process_id]
            yield number, Outcome.HUNG, seconds


def _fork(passes: Callable[[], bool]) -> int:
    process_id = os.fork()
    if process_id:
        with contextlib.suppress(OSError):
            os.setpgid(process_id, process_id)
        return process_id
    os.setpgid(0, 0)
    status = 1
    try:
        status = 0 if passes() else 1
    finally:
        os._exit(status)


def _tests_pass(path: Path, source: str, tests: Sequence[Sequence[str]]) -> bool:
    import resource  # noqa: PLC0415 - of the child

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    load_instead(path, source)
    sys.path.insert(0, str(ROOT))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(ROOT)]
    return all(
        pytest.main([*options, *(str(ROOT / each) for each in part)]) == pytest.ExitCode.OK for part in tests if part
    )


def _refuse_ours() -> None:
    imported = [name for name in sys.modules if name.partition(".")[0] in OURS]
    if imported:
        raise RuntimeError(f"expected a process that has imported nothing of ours, found {imported[:3]}")
