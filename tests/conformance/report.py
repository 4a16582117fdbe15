"""Counts what passed and keeps what failed."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Report:
    """The outcome of a run."""

    passed: int = 0
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def check(self, name: str) -> Iterator[None]:
        """One check: what it raises becomes a failure line."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - any error is the failure of this check
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self.failures.append(f"FAILED {name}: {text[:400]} ({where.name}:{where.lineno})")
        else:
            self.passed += 1

    def merge(self, other: Report) -> None:
        """Add the outcome of another run."""
        self.passed += other.passed
        self.failures += other.failures


def same(what: str, found: object, expected: object) -> None:
    """Fail with both sides named unless they are equal."""
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")
