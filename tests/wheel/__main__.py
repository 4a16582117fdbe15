"""Installs the wheel with each extra by pip, asks it, and tells how large it is: what `make test-wheel` does.

    python -m tests.wheel                 all extras
    python -m tests.wheel server obstore  these; "base" is none

Takes minutes, and what a package index has of all of them. Each environment is deleted before the next one is made.
Megabytes are those of site-packages without pip and byte code. Exit code 1 if something is wrong.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.wheel.environments import CommandFailed, built, installed
from tests.wheel.questions import BASE, EXTRAS, Question, faults

NO_EXTRA = "base"
DEMO = (Question("accel demo --quiet", "same answer", "[demo]'"),)


def main(extras: Sequence[str]) -> int:
    """Install and ask; returns the exit code."""
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        wheel = built(Path(name))
        for extra in extras:
            with tempfile.TemporaryDirectory() as folder:
                line, found = tried(wheel, "" if extra == NO_EXTRA else extra, Path(folder))
            sys.stdout.write("".join(f"{each}\n" for each in (f"{extra:<10} {line}", *found)))
            sys.stdout.flush()
            wrong += len(found)
    return 1 if wrong else 0


def tried(wheel: Path, extra: str, folder: Path) -> tuple[str, list[str]]:
    """What came of one extra: a line, and what is wrong."""
    try:
        environment = installed(wheel, extra, folder)
        size = f"{environment.size_mb():4.0f} MB {len(environment.distributions()):3} packages"
        questions = (*BASE, *EXTRAS.get(extra, ()), *(DEMO if extra == "demo" else ()))
        wrong = faults(environment, questions, extra=extra, imports=True)
        if not extra:
            refusals = [each for others in EXTRAS.values() for each in others if each.refusal]
            wrong += faults(environment, (*refusals, *DEMO), extra=None, imports=False)
    except CommandFailed as error:
        return "FAILED", [str(error)]
    return f"{size}   {'FAILED' if wrong else 'ok'}", wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [NO_EXTRA, *EXTRAS, "dev"]))
