"""The inputs that are checked in: `corpus/<decoder>/<name>`. Seeds are made; `found-*` once showed a defect.

`python -m tests.fuzzing.corpus` writes the seeds that are missing. What is there is never written again: it is what
earlier releases wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.fuzzing.registry import decoders

FOLDER = Path(__file__).parent / "corpus"
FILE_SIZE_BYTES_MAX = 16 << 10


def inputs(name: str) -> Mapping[str, bytes]:
    """All inputs of a decoder, by their names: those that are checked in, and seeds that are not yet."""
    stored = {path.name: path.read_bytes() for path in sorted((FOLDER / name).glob("*"))}
    return {**decoders()[name].seeds(), **stored}


def seeds(name: str) -> Mapping[str, bytes]:
    """Those that the decoder reads."""
    return {each: data for each, data in inputs(name).items() if not each.startswith("found-")}


def write_missing() -> list[Path]:
    """Write the seeds that are missing, and return where."""
    written = []
    for name, decoder in decoders().items():
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        for seed, data in decoder.seeds().items():
            path = FOLDER / name / seed
            if not path.exists():
                path.write_bytes(data)
                written.append(path)
    return written


if __name__ == "__main__":
    for each in write_missing():
        print(each)  # noqa: T201 - it says what it wrote
