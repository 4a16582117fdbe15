"""One decoder under coverage guidance; needs atheris, the extra `fuzz`.

libFuzzer keeps what reaches new code of ours, and changes that further, by its own mutations and by those that know the
formats. A defect ends the run with exit code 77; its input lies in the folder of artifacts.

Threads: one.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module, util
from pathlib import Path
from random import Random
from typing import Any

PACKAGES = ["accel", "bloom", "range_index", "loaders"]
INPUT_SIZE_BYTES_MAX = 1 << 15
MEMORY_MAX_MB = 3000


def is_installed() -> bool:
    """Whether coverage guidance is to be had here."""
    return util.find_spec("atheris") is not None


def fuzz(name: str, seconds: int, artifacts: Path, kept: Path) -> None:
    """Fuzz one decoder; ends the process.

    Args:
        name: of the decoder.
        seconds: at most.
        artifacts: where inputs go that show defects.
        kept: where inputs go that reach new code; may hold some of earlier runs.
    """
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=PACKAGES, enable_loader_override=False):
        corpus = import_module("tests.fuzzing.corpus")
    judging, running = import_module("tests.fuzzing.judging"), import_module("tests.fuzzing.running")
    decoder = import_module("tests.fuzzing.registry").decoders()[name]
    inputs = list(corpus.inputs(name).values())

    def try_one(data: bytes) -> None:
        judging.judge(decoder, data)

    def mutate(data: bytes, size_max: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.random() < 0.5:
            changed: bytes = atheris.Mutate(data, size_max)
            return (decoder.seal(changed) if decoder.seal is not None else changed)[:size_max]
        made: bytes = running.mutant(rng, decoder, [data, *inputs])[0]
        return made[:size_max]

    options = [f"-max_total_time={seconds}", f"-artifact_prefix={artifacts}/", f"-max_len={INPUT_SIZE_BYTES_MAX}"]
    bounds = [f"-rss_limit_mb={MEMORY_MAX_MB}", "-timeout=30", "-verbosity=0", "-print_final_stats=1"]
    folders = [str(kept), str(corpus.FOLDER / name)]
    atheris.Setup([sys.argv[0], *options, *bounds, *folders], try_one, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fuzz one decoder under coverage guidance.")
    parser.add_argument("name")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--folder", type=Path, required=True, help="for artifacts and inputs that reach new code")
    given = parser.parse_args()
    artifacts, kept = given.folder / "artifacts" / given.name, given.folder / "kept" / given.name
    for folder in (artifacts, kept):
        folder.mkdir(parents=True, exist_ok=True)
    fuzz(given.name, given.seconds, artifacts, kept)


if __name__ == "__main__":
    main()
