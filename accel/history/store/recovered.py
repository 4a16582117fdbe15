"""What came of recovering many streams: of each what was finished, or why it could not be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from accel.errors import NotInHistory, Sought

ERROR_SIZE_MAX: Final = 2_000
"""Characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was finished, and what could not be. Threads: one, until it is returned.

    Attributes:
        done: what was finished, by scope and name of the stream, or by scope.
        failed: the error of each one that could not be recovered, likewise.
    """

    done: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    @contextmanager
    def collected(self, what: str) -> Iterator[None]:
        """Note an error and go on; a scope that was deleted meanwhile is none.

        Args:
            what: scope and name of a stream, a scope, or what else was under way.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a host may raise anything, and the others have nothing to do with it
            if isinstance(error, NotInHistory) and error.sought is Sought.SCOPE:
                return
            self.failed[what] = f"{type(error).__name__}: {error}"[:ERROR_SIZE_MAX]
