"""One record of every form: the bytes that an earlier release wrote for it, and what it says.

Both lie in tests/data/tables/catalog and are never made anew: what was once written must be readable for ever. A new
version of a form gets files of its own, beside the old ones.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

FOLDER = Path(__file__).parents[2] / "data" / "tables" / "catalog"


def golden_bytes(name: str) -> bytes:
    """The bytes of one golden file."""
    return (FOLDER / f"{name}.bin").read_bytes()


def golden_facts(name: str) -> object:
    """What its record says, field by field."""
    return msgspec.json.decode((FOLDER / f"{name}.txt").read_bytes())
