"""A round under way: the loads that it waits for, what came of them, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from accel.errors import AccelError
from accel.lookup.hint_loading import HintLoad
from accel.lookup.wanted import HintReply, Reply
from loaders.object_index import Load


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """What one round waits for.

    Args:
        loads: objects that are being opened, by position.
        hint: what is being read of the node's snapshot.
    """

    loads: Mapping[int, Load]
    hint: HintLoad | None = None

    def futures(self) -> list[Future[Any]]:
        """What to wait for."""
        futures: list[Future[Any]] = [load.result for load in self.loads.values()]
        return futures if self.hint is None else [*futures, self.hint.result]

    def replies(self) -> dict[int, Reply] | HintReply:
        """What came of it, once all is done.

        Raises:
            BaseException: an error that is not one of ours, as it was raised.
        """
        objects = {position: _reply(load) for position, load in self.loads.items()}
        return objects if self.hint is None else self.hint.result.result().reply(objects)

    def cost(self) -> tuple[int, int]:
        """Requests and bytes that opening objects caused in this round; a load that failed counts as one request."""
        started = [load.result for load in self.loads.values() if load.started]
        done = [result.result() for result in started if not result.exception()]
        requests = sum(opened.requests for opened in done) + len(started) - len(done)
        return requests, sum(opened.bytes_read for opened in done)

    def hint_cost(self) -> tuple[int, int]:
        """Requests and bytes that the snapshot took in this round."""
        if self.hint is None or not self.hint.started or self.hint.result.exception():
            return 0, 0
        outcome = self.hint.result.result()
        return outcome.requests, outcome.bytes_read


def _reply(load: Load) -> Reply:
    error = load.result.exception()
    if error is None:
        return load.result.result().ranges
    if isinstance(error, AccelError):
        return error
    raise error
