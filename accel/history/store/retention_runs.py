"""Retention of many streams: what became of each, and that one does not hold up the others.

What may become of it: `retention_outcomes`.

Source: PDP-32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from accel.errors import NotInHistory, OperationNotAllowed
from accel.history.rules.retention import RetentionEntry
from accel.history.rules.states import StreamState
from accel.history.store.retention_outcomes import Retained
from loaders.errors import DataConflict, DataNotFound

if TYPE_CHECKING:
    from accel.history.store.stream import Stream

ATTEMPTS_MAX: Final = 5
ERROR_SIZE_MAX: Final = 2_000
"""Characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class StreamRetention:
    """What a run of retention did to one stream. Picklable.

    Args:
        stream: scope and name.
        outcome: what became of it.
        point: the recorded cut to which it was truncated; None if it was not.
        error: why it is busy or failed; empty otherwise.
    """

    stream: str
    outcome: Retained
    point: RetentionEntry | None = None
    error: str = ""

    @classmethod
    def stopped(cls, stream: str, outcome: Retained, error: Exception) -> StreamRetention:
        """Of a stream for which something was raised."""
        return cls(stream, outcome, error=f"{type(error).__name__}: {error}"[:ERROR_SIZE_MAX])


def retain(
    open_stream: Callable[[], Stream],
    name: str,
    time_ms: int | None,
    pause: Callable[[int], object],
    *,
    is_dry_run: bool = False,
) -> StreamRetention:
    """Run retention in one stream of many: whatever is wrong with it stands in the answer.

    Where another workflow has the stream it is tried again, `ATTEMPTS_MAX` times in all.

    Args:
        open_stream: opens it.
        name: scope and name.
        time_ms: when, milliseconds since 1970; None = now.
        pause: waits before repetition number 1, 2, ...
        is_dry_run: only tell what would become of it.
    """
    try:
        stream = open_stream()
        if is_dry_run:
            return StreamRetention(name, *stream.workflows.retention.plan(time_ms))
        return _retained(stream, name, time_ms, pause)
    except NotInHistory:
        return StreamRetention(name, Retained.UNFINISHED)
    except Exception as error:  # noqa: BLE001 - a host may raise anything, and the other streams have nothing to do with it
        return StreamRetention.stopped(name, Retained.FAILED, error)


def totals(found: Iterable[StreamRetention]) -> dict[str, int]:
    """How many streams there are of each outcome, in the order of the table; those of none are 0."""
    counts = Counter(each.outcome for each in found)
    return {each.value: counts[each] for each in Retained}


def _retained(stream: Stream, name: str, time_ms: int | None, pause: Callable[[int], object]) -> StreamRetention:
    attempt = 1
    while True:
        try:
            return StreamRetention(name, *stream.workflows.retention.retain(time_ms))
        except (OperationNotAllowed, DataConflict) as error:
            if attempt == ATTEMPTS_MAX:
                return StreamRetention.stopped(name, Retained.BUSY, error)
        except (NotInHistory, DataNotFound) as error:
            outcome = Retained.FAILED if _is_whole(stream) else Retained.UNFINISHED
            return StreamRetention.stopped(name, outcome, error)
        pause(attempt)
        attempt += 1


def _is_whole(stream: Stream) -> bool:
    try:
        return stream.state() is not StreamState.CREATING
    except (NotInHistory, DataNotFound):
        return False
