"""The time of `import accel`, of importing the names of a reader, and of `accel --help`.

Each is a separate Python process, started in every round and timed from outside, with compiled modules as in an
installed package. The time of an empty process is included. `import accel` and `accel --help` are compared with their
limits; the names of a reader, which need numpy, with `import numpy`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.harness import Comparison, Spread, Timings

ROOT: Final = Path(__file__).parent.parent

PROGRAMS: Final = {
    "import": ("-c", "import accel"),
    "import_help": ("-m", "accel.cli", "--help"),
    "import_reader": ("-c", "from accel import MetadataImage, ReadAccelerator, StaticImages, open_store"),
    "numpy": ("-c", "import numpy"),
}
MOST_MS: Final = {"import": 150.0, "import_help": 400.0}


def run(rounds: int = 7) -> list[Comparison]:
    """Run the programs in turn, after a round that compiles the modules."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(rounds + 1):
            for name, arguments in PROGRAMS.items():
                taken = _seconds_of(arguments, environment)
                if number:
                    seconds[name].append(taken)
    limited = [_against(name, seconds[name], most_ms) for name, most_ms in MOST_MS.items()]
    reader = Timings(seconds["import_reader"], seconds["numpy"])
    return [*limited, reader.compare("import_reader", peer="import numpy", unit="ms")]


def _seconds_of(arguments: tuple[str, ...], environment: Mapping[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own words
    return time.perf_counter() - started


def _against(name: str, seconds: list[float], most_ms: float) -> Comparison:
    taken = [each * 1e3 for each in seconds]
    value = statistics.median(taken)
    return Comparison(
        name=name,
        value=value,
        unit="ms",
        peer="the most that it may take",
        peer_value=most_ms,
        ratio=most_ms / value,
        runs=len(taken),
        goal=1,
        spread=Spread.of(taken),
    )
