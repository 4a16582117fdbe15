"""Starts processes, kills and stops them at random, and looks at the bucket when all is quiet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from random import Random

from accel import ReadAccelerator
from accel.catalog import ObjectCatalog
from accel.catalog.verify import Verdict, verify
from accel.image import MetadataImage
from accel.system import SYSTEM
from loaders.format import MissingBytes, open_tail
from loaders.store import ObjectStore
from tests.linearizability.histories import History, Recorder
from tests.linearizability.process import FORMAT, NODES, SETTINGS, STOP_NAME, STREAMS, TABLE, Broker, Orders
from tests.linearizability.verdicts import counts, problems

PROCESSES = 4
STOPPED_SECONDS = (0.3, 5.0)
"""Up to more than twice the age of an image, and more than ids stay prepared."""

STOPPED_MAX = 2
RESTED_SECONDS = 3.0
"""From the end of a stop to the next one of the same process: see `FORMAT`."""

END_SECONDS = 30.0
STDERR_CHARACTERS_MAX = 2000

Span = tuple[int, int, int]
"""Of a stream in an object: first offset, end, object id."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What happened in a run, and what was wrong."""

    counts: Counter[str]
    problems: list[str]


@dataclass(slots=True)
class _Place:
    """Where one process runs after the other."""

    number: int
    process: subprocess.Popen[bytes]
    name: str
    lives: Iterator[int] = field(default_factory=lambda: count(1))
    wakes_seconds: float = 0.0
    may_stop_seconds: float = 0.0
    is_stopped: bool = False


class Supervisor:
    """Of one run; of the parameters of all processes each gets a name of its own."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._folder = Path(orders.folder)
        self._random = Random(f"{orders.seed}/supervisor")
        self._store = orders.store()
        self._counts: Counter[str] = Counter()
        self._problems: list[str] = []
        self._recorder = Recorder(self._folder / "supervisor.log", SYSTEM.timer)
        self._places: list[_Place] = []

    def run(self, seconds: float) -> Ran:
        """Let four processes run for some seconds, and check what they saw."""
        self._prepare()
        try:
            self._places = [self._placed(number) for number in range(PROCESSES)]
            until = SYSTEM.timer() + seconds
            while SYSTEM.timer() < until:
                SYSTEM.sleep(self._random.uniform(0.1, 0.5))
                self._look_after(self._random.choice(self._places))
                self._wake()
            self._end()
        finally:
            self._kill_all()
        self._look_at_the_end()
        return self._judged()

    def _prepare(self) -> None:
        ObjectCatalog.init(self._store, FORMAT, settings=SETTINGS)
        self._orders.tables(self._store).create_table(TABLE)
        with ObjectCatalog.open(self._store, settings=SETTINGS) as catalog:
            for node_id, streams in NODES.items():
                with catalog.open_node(node_id) as writer:
                    writer.open_streams(streams)

    # Processes

    def _placed(self, number: int) -> _Place:
        name = f"process-{number}-0"
        return _Place(number, self._started(name), name)

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        orders = replace(self._orders, name=name, seed=f"{self._orders.seed}/{name}")
        command = [sys.executable, "-m", "tests.linearizability.process", orders.text()]
        self._counts["processes started"] += 1
        with (self._folder / f"{name}.stderr").open("wb") as stderr:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)  # noqa: S603 - our own

    def _look_after(self, place: _Place) -> None:
        now, chance = SYSTEM.timer(), self._random.random()
        if place.process.poll() is not None:
            self._note_end(place)
            self._restart(place)
        elif not (self._folder / f"{place.name}.log").exists() or place.is_stopped:
            return  # it is still starting, or stopped
        elif chance < 0.2:
            self._kill(place)
            self._restart(place)
        elif chance < 0.6 and now > place.may_stop_seconds and self._stopped() < STOPPED_MAX:
            self._stop(place)

    def _restart(self, place: _Place) -> None:
        place.name = f"process-{place.number}-{next(place.lives)}"
        place.process = self._started(place.name)

    def _kill(self, place: _Place) -> None:
        place.process.kill()
        place.process.wait()
        place.is_stopped = False
        self._counts["processes killed"] += 1

    def _stopped(self) -> int:
        return sum(each.is_stopped for each in self._places)

    def _stop(self, place: _Place) -> None:
        place.process.send_signal(signal.SIGSTOP)
        place.is_stopped = True
        place.wakes_seconds = SYSTEM.timer() + self._random.uniform(*STOPPED_SECONDS)
        self._counts["processes stopped"] += 1

    def _wake(self) -> None:
        for place in self._places:
            if place.is_stopped and SYSTEM.timer() > place.wakes_seconds:
                if self._random.random() < 0.2:
                    self._kill(place)
                    self._restart(place)
                else:
                    self._go_on(place)

    def _go_on(self, place: _Place) -> None:
        place.process.send_signal(signal.SIGCONT)
        place.is_stopped = False
        place.may_stop_seconds = SYSTEM.timer() + RESTED_SECONDS

    def _end(self) -> None:
        (self._folder / STOP_NAME).touch()
        for place in self._places:
            if place.is_stopped:
                self._go_on(place)
        for place in self._places:
            try:
                place.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._problems.append(f"{place.name} did not end within {END_SECONDS} s")
            else:
                self._note_end(place)

    def _note_end(self, place: _Place) -> None:
        if place.process.returncode or not (self._folder / STOP_NAME).exists():
            said = (self._folder / f"{place.name}.stderr").read_text()[-STDERR_CHARACTERS_MAX:]
            self._problems.append(f"{place.name} ended by itself with {place.process.returncode}: {said}")

    def _kill_all(self) -> None:
        for place in self._places:
            if place.process.poll() is None:
                os.kill(place.process.pid, signal.SIGKILL)
                place.process.wait()

    # The end

    def _look_at_the_end(self) -> None:
        broker = Broker(self._store, self._random, self._recorder, "supervisor")
        broker.compact()
        broker.collect()
        for stream_id in STREAMS:
            self._read(broker, stream_id)
        with ObjectCatalog.open(self._store, settings=SETTINGS) as catalog:
            found = verify(catalog)
            if found.outcome not in (Verdict.CLEAN, Verdict.ADVICE):
                self._problems.append(f"verify: {[*found.damage, *found.unchecked]}")
            self._problems += held_wrongly(catalog, catalog.refresh(), self._store)

    def _read(self, broker: Broker, stream_id: int) -> None:
        with ObjectCatalog.open(self._store, settings=SETTINGS) as catalog:
            images = catalog.images()
            with ReadAccelerator(images, self._store) as accelerator:
                broker.read_stream(stream_id, images, accelerator)

    def _judged(self) -> Ran:
        history = History()
        for path in sorted(self._folder.glob("*.log")):
            history.read(path)
        return Ran(self._counts + history.counts + counts(history), [*self._problems, *problems(history)])


def held_wrongly(catalog: ObjectCatalog, image: MetadataImage, store: ObjectStore) -> Iterator[str]:
    """Offsets of streams that are in no live object, or in two; and live objects that are not there."""
    layout = catalog.parts.layout
    held: dict[int, list[Span]] = {each: [] for each in STREAMS}
    of_nodes = [ref for node in image.nodes.values() for ref in node.refs]
    of_streams = [each.ref for stream in image.streams.values() for each in stream.stream_objects]
    for ref in [*of_nodes, *of_streams]:
        body = bytes(store.get(layout.object_key(ref.object_id)).body)
        for stream_id, span in _spans(body, ref.object_id):
            held[stream_id].append(span)
    for stream_id, spans in held.items():
        kept = sorted(each for each in spans if each[1] > image.streams[stream_id].start_offset)
        begin = (0, image.streams[stream_id].start_offset, -1)
        for before, after in pairwise([begin, *kept]):
            if after[0] != before[1] and not (before is begin and after[0] < before[1]):
                yield f"stream {stream_id}: expected each offset in one live object, found {before} and {after}"


def _spans(body: bytes, object_id: int) -> Iterator[tuple[int, Span]]:
    """The ranges of an object by stream id."""
    index = open_tail(body, object_size_bytes=len(body), key=str(object_id))
    if isinstance(index, MissingBytes):
        raise TypeError(f"object {object_id} is cut off")
    ranges = index.object_ranges()
    rows = zip(ranges.stream_ids.tolist(), ranges.starts.tolist(), ranges.lengths.tolist(), strict=True)
    for stream_id, start, length in rows:
        yield stream_id, (start, start + length, object_id)
