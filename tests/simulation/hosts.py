"""The host of the segments of a history, as the processes of a machine reach it: over a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world import Machine


class SteppingHost:
    """The host of a machine's processes: each call takes its time, and the process may die before it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        order, store = getattr(self._machine.world.history.segments, name), self._machine.store

        def stepping(*args: object, **options: object) -> object:
            store.wait_for_other(name)
            return order(*args, **options)

        return stepping
