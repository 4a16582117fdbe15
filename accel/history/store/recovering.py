"""Finishing what a process left behind that died in the middle of a workflow.

    | found                                        | done                                                    |
    |----------------------------------------------|---------------------------------------------------------|
    | state CREATING                               | the creation is finished                                |
    | a transition, or state SCALING               | the scale is finished, or ended if it was to be ended   |
    | a truncation under way, or state TRUNCATING  | likewise                                                |
    | a commit under way, or state COMMITTING_TXN  | likewise                                                |
    | a configuration under way, or state UPDATING | likewise                                                |
    | state SEALING                                | the stream is sealed                                    |

Everything that is found is in the tables: nobody has to remember who did what. Recovery may run at any time, beside
those who work, since every step of every workflow may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from accel.errors import IllegalState
from accel.history.states import StreamState
from accel.history.store.cell import Seen
from accel.history.store.parts import StreamParts
from accel.history.store.workflows import Workflows

Finish: TypeAlias = Callable[[Seen[StreamState]], bool]
"""Finishes a workflow, if it is under way; tells whether it was. Is given the state, read before anything else."""


class Recovering:
    """Finishes workflows of one stream. Threads: any.

    Args:
        parts: of the stream.
        workflows: what it may stand in the middle of.
    """

    def __init__(self, parts: StreamParts, workflows: Workflows) -> None:
        self._parts = parts
        self._cells = parts.cells
        self._workflows = workflows

    def run(self) -> list[str]:
        """Finish what is unfinished; gives what that was. 15 calls if nothing is.

        Raises:
            OperationNotAllowed: another workflow has the stream.
        """
        state = self._cells.state().read()
        if state is None or state.value is StreamState.CREATING:
            self._workflows.creating.finish(self._parts.first_number())
            return ["create"]
        done = [name for name, finish in self._kinds(state.value) if finish(self._parts.state())]
        self._workflows.writing.show(self._workflows.epochs.current())
        self._workflows.writing.merge_times()
        self._workflows.writing.erase_merged()
        return done

    def _kinds(self, now: StreamState) -> list[tuple[str, Finish]]:
        kinds: dict[StreamState, tuple[str, Finish]] = {
            StreamState.COMMITTING_TXN: ("commit", self._commit),
            StreamState.SEALING: ("seal", self._seal),
            StreamState.SCALING: ("scale", self._scale),
            StreamState.TRUNCATING: ("truncate", self._truncate),
            StreamState.UPDATING: ("update", self._update),
        }
        # The one that has the stream comes first: no other can run before it ends.
        first = [kinds.pop(now)] if now in kinds else []
        return first + list(kinds.values())

    def _scale(self, state: Seen[StreamState]) -> bool:
        scales = self._workflows.scales
        seen = scales.stored()
        if seen.value.is_empty or state.value is StreamState.SEALED:
            return self._ended(state, StreamState.SCALING)
        # Whether a person had asked for it is not recorded; one that duplicates overtook goes on with them.
        with suppress(IllegalState):
            scales.carry_out(seen)
        return True

    def _truncate(self, state: Seen[StreamState]) -> bool:
        if not self._workflows.epochs.truncation().updating:
            return self._ended(state, StreamState.TRUNCATING)
        if state.value is StreamState.SEALED:
            self._workflows.truncations.complete()
        else:
            self._workflows.truncations.carry_out()
        return True

    def _commit(self, state: Seen[StreamState]) -> bool:
        if self._workflows.commits.stored().value.is_empty:
            return self._ended(state, StreamState.COMMITTING_TXN)
        self._workflows.commits.run()
        return True

    def _update(self, state: Seen[StreamState]) -> bool:
        if not self._workflows.updating.read().updating:
            return self._ended(state, StreamState.UPDATING)
        self._workflows.updating.finish()
        return True

    def _seal(self, state: Seen[StreamState]) -> bool:
        if state.value is StreamState.SEALING:
            self._workflows.ending.seal()
        return state.value is StreamState.SEALING

    def _ended(self, state: Seen[StreamState], workflow: StreamState) -> bool:
        """End a workflow that has nothing left to do but that."""
        self._parts.back_to_active(state, workflow)
        return state.value is workflow
