"""Streams that come and go: several processes create, scale, seal and delete streams of the same few names.

The oracle knows of a name only what it was told while nobody else was at it. At the end `recover` has run, and each
name is free, sealed, or has a stream that takes a scale; what was created is there, and what was deleted is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accel.errors import (
    IllegalState,
    InvalidArgument,
    NotInHistory,
    OperationNotAllowed,
    ScaleConflict,
    ScalePrecondition,
)
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.states import StreamState
from accel.history.store import StreamStore
from loaders.errors import StoreError, TableError
from tests.conformance.history_world import SCOPE
from tests.simulation.hosts import SteppingHost
from tests.simulation.scheduler import Violation
from tests.simulation.world import Actor

if TYPE_CHECKING:
    from tests.simulation.world import World

SHORT_LIVED = ("come", "go", "come-and-go")
REFUSED = (IllegalState, InvalidArgument, NotInHistory, OperationNotAllowed, ScaleConflict, ScalePrecondition)
WANTED = StreamConfiguration(min_segments=2)
PAUSE_SECONDS_MAX = 8.0
RECOVERIES_MAX = 5


class Names:
    """What is known of each name: that a stream of it is there, or that none is; nothing while somebody is at it."""

    def __init__(self) -> None:
        self.is_there: dict[str, bool] = dict.fromkeys(SHORT_LIVED, False)
        self._acts = dict.fromkeys(SHORT_LIVED, 0)
        self._at_it = dict.fromkeys(SHORT_LIVED, 0)

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """Somebody is at a name; if the process dies or fails there, nobody knows how it ended."""
        self._acts[name] += 1
        self._at_it[name] += 1
        self.is_there.pop(name, None)
        try:
            yield
        finally:
            self._at_it[name] -= 1

    def told(self, name: str, acts: int, *, is_there: bool) -> None:
        """An act has ended, of which this was told, if nobody else began one since."""
        if self._acts[name] == acts and self._at_it[name] == 1:
            self.is_there[name] = is_there

    def acts(self, name: str) -> int:
        """How many have begun."""
        return self._acts[name]


class Gardener(Actor):
    """Creates streams, and takes them away."""

    @property
    def names(self) -> Names:
        return self.world.history.names

    def live(self) -> None:
        """A process: some acts."""
        machine, history = self.machine, self.machine.world.history
        host: Any = SteppingHost(machine)
        streams = StreamStore.open(machine.store, system=machine.system, settings=history.settings, host=host)
        for _ in range(machine.random.randrange(1, 6)):
            act = machine.random.choice([self._create, self._create, self._delete, self._scale, self._recover])
            try:
                act(streams, machine.random.choice(SHORT_LIVED))
            except REFUSED as error:
                machine.count(f"{act.__name__.strip('_')} a name: {type(error).__name__}")
            except (StoreError, TableError):
                machine.count("requests that failed")
            machine.scheduler.sleep(machine.random.uniform(0, PAUSE_SECONDS_MAX))

    def _create(self, streams: StreamStore, name: str) -> None:
        with self.names.changing(name):
            acts = self.names.acts(name)
            streams.create_stream(SCOPE, name, WANTED, segments=2)
            self.names.told(name, acts, is_there=True)
            self.machine.count("streams created")

    def _delete(self, streams: StreamStore, name: str) -> None:
        with self.names.changing(name):
            acts = self.names.acts(name)
            streams.stream(SCOPE, name).seal()
            streams.delete_stream(SCOPE, name)
            self.names.told(name, acts, is_there=False)
            self.machine.count("streams deleted")

    def _scale(self, streams: StreamStore, name: str) -> None:
        stream = streams.stream(SCOPE, name)
        chosen = self.machine.random.choice(list(stream.active_segments()))
        middle = (chosen.key_start + chosen.key_end) / 2
        stream.scale([chosen.id], [(chosen.key_start, middle), (middle, chosen.key_end)])
        self.machine.count("scales of short-lived streams")

    def _recover(self, streams: StreamStore, name: str) -> None:
        with self.names.changing(name):
            self.machine.count("recoveries of a name", len(streams.recover_stream(SCOPE, name)))


def settle_names(world: World) -> None:
    """Nothing is stuck, and what was told is so."""
    history = world.history
    streams = history.streams()
    for _ in range(RECOVERIES_MAX):
        streams.recover(SCOPE)
    listed = set(streams.streams(SCOPE))
    for name in SHORT_LIVED:
        is_there = name in listed
        if history.names.is_there.get(name, is_there) is not is_there:
            raise Violation(f"stream {name!r}: expected it to be listed: {not is_there}, found {is_there}")
        stream = streams.create_stream(SCOPE, name, WANTED, segments=2)
        if stream.is_new is is_there:
            raise Violation(f"stream {name!r}: expected a new one: {not is_there}, found {stream.is_new}")
        if stream.state() is StreamState.ACTIVE:
            before, (first, *_) = stream.current_epoch().epoch, stream.active_segments()
            middle = (first.key_start + first.key_end) / 2
            after = stream.scale([first.id], [(first.key_start, middle), (middle, first.key_end)]).epoch
            if after != before + 1:
                raise Violation(f"stream {name!r}: expected epoch {before + 1} after a scale, found {after}")
        stream.seal()
        streams.delete_stream(SCOPE, name)
        history.names.is_there[name] = False
        if held := history.segments.ids((SCOPE, name)):
            raise Violation(f"stream {name!r} is deleted, and its host holds segments {held[:5]}")
        world.count("names settled")
