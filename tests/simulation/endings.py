"""A stream that ends while a thread writes to it: it is sealed, sealed and deleted, or its writer or host is closed.

Whatever ends, each event that the thread wrote is refused, fails, or can be read; and no future stays open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from accel.errors import AccelError
from accel.history.rules.configuration import StreamConfiguration
from accel.streams.acknowledgements import WriteFuture
from accel.streams.writer import StreamWriter
from loaders.errors import StoreError, TableError
from tests.accel.streams.writer.world import NAME, Process
from tests.simulation.scheduler import Violation
from tests.simulation.streams import NOT_DONE, reading
from tests.simulation.world import Actor

NODE = 10
FUTURE_SECONDS = 120.0
"""How long a future may stay open after what it belongs to has ended."""


@dataclass(eq=False)
class Ender(Actor):
    """A node: process after process, each of which creates a stream, and ends it in some way."""

    lives: Iterator[int] = field(default_factory=count)

    def live(self) -> None:
        """A process: one stream."""
        machine = self.machine
        name = NAME[0], f"brief-{next(self.lives)}"
        process = self.shared.view(machine).start(node_id=NODE)
        try:
            with suppress(*NOT_DONE, StoreError, TableError):
                self._end_one(process, name)
        finally:
            process.host.stop()
            machine.process.is_dead = True  # the end of a process ends its threads
            machine.scheduler.end_tasks_of(machine.process)

    def _end_one(self, process: Process, name: tuple[str, str]) -> None:
        machine = self.machine
        process.streams.create_stream(*name, StreamConfiguration(min_segments=1), segments=2)
        writer = process.writer(name=name)
        written: list[tuple[bytes, WriteFuture]] = []
        thread = machine.scheduler.spawn(
            f"{machine.name} writer", lambda: self._write(writer, written), machine.process
        )
        machine.scheduler.sleep(machine.random.uniform(0, 6))
        how = machine.random.choice(["seal", "delete", "close", "host"])
        machine.count(f"ended while written: {how}")
        if how in ("seal", "delete"):
            process.stream(name).seal()
        if how == "delete":
            process.streams.delete_stream(*name)
        with suppress(AccelError):
            writer.close()
        if how == "host":
            process.host.close()
        until = machine.scheduler.seconds + FUTURE_SECONDS
        while not (thread.is_done and all(future.done() for _, future in written)):
            if machine.scheduler.seconds > until:
                raise Violation(f"{how}: {sum(not each.done() for _, each in written)} futures stay open")
            machine.scheduler.sleep(1.0)
        if how != "delete":
            self._compare(name, how, {each for each, future in written if future.exception() is None})

    def _write(self, writer: StreamWriter, written: list[tuple[bytes, WriteFuture]]) -> None:
        machine = self.machine
        for number in range(200):
            payload = b"%d" % number
            try:
                written.append((payload, writer.write(payload, f"key-{number % 5}")))
                if machine.random.random() < 0.2:
                    writer.flush()
            except AccelError:
                return
            machine.scheduler.sleep(machine.random.uniform(0, 0.5))

    def _compare(self, name: tuple[str, str], how: str, acknowledged: set[bytes]) -> None:
        with reading(self.machine, name=name) as reader:
            found = [event.payload for event in reader]
        if lost := acknowledged - set(found):
            raise Violation(f"{how}: {len(lost)} acknowledged events were not read: {sorted(lost)[:5]}")
        if len(set(found)) < len(found):
            raise Violation(f"{how}: events were read twice")
        self.machine.count("events compared", len(found))
        self.machine.count("endings compared")
