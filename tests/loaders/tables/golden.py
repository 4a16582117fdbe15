"""Golden files of stored bytes: hexadecimal, a field a line, with remarks."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "data" / "tables"


def golden(name: str) -> bytes:
    """The bytes of ``<name>.hex``; what follows a "#" is a remark."""
    lines = (FOLDER / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))
