"""Mutants that no test can find, since they do what the code does: each with the reason, written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EQUIVALENT: Final[Mapping[str, str]] = {}
"""`Mutant.key` -> why. Those that only cost requests are none of these: tests count requests."""
