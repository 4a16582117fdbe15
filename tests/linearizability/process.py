"""One process: uploads, compacts, collects, reads, trims, and changes keys of tables, in turns that its seed decides.

    python -m tests.linearizability.process JSON

It goes on until a file says that it is over, or until it is killed. Each operation is written down before it begins and
when it has ended. An error that no fault explains is an operation that is BROKEN.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from accel import ReadAccelerator
from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog import writer as writer_module
from accel.catalog.collect import collect, plan_collection
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.errors import (
    AccelError,
    CommitRefused,
    ImageTooOld,
    InvalidRequest,
    MaintenanceRefused,
    MaintenanceStopped,
    ObjectLost,
    SessionFenced,
)
from accel.image_source import PolledImages
from accel.system import SYSTEM
from loaders.errors import AmbiguousWrite, DataConflict, DataExists, DataNotFound, StoreError, TableError, TableMissing
from loaders.format import RecordBatch
from loaders.store import ObjectStore, S3Store, StoreSettings
from loaders.tables import FormatRecord, Table, Tables, raw_key
from loaders.versions import Entry
from tests.linearizability.histories import Outcome, Recorder
from tests.linearizability.late_store import LateStore
from tests.linearizability.models import APPEND, CREATE, DELETE, READ, TRIM, UPDATE
from tests.linearizability.planted import DEFECTS

NODES = {4: (100_001, 100_002), 5: (100_003, 100_004)}
STREAMS = tuple(stream_id for streams in NODES.values() for stream_id in streams)
TABLE = "registers"
KEYS = tuple(f"key-{number}" for number in range(4))
PAYLOAD_SIZE_BYTES = 200
TRIES_MAX = 4
STOP_NAME = "stop"

FORMAT = FormatRecord(
    namespace="four",
    stream_buckets=2,
    max_image_age_seconds=2.0,
    retention_seconds=12.0,
    clock_skew_seconds=0.5,
    prepared_seconds=4.0,
    orphan_seconds=14.0,
)
"""A process may be held up for 10 seconds between the time that it notes for a retired object and the write of this
note: retention less the age of an image. A stop and a late request together are shorter, as are all other times."""

SETTINGS = CatalogSettings(parallel_requests=4, ids_block=8, checkpoint_commits=5)

EXPECTED = (StoreError, TableError, CommitRefused, SessionFenced, MaintenanceRefused, MaintenanceStopped, ImageTooOld)
"""What an operation may end with, whatever happens to the process."""

ROLES: dict[str, dict[str, float]] = {
    "all": {"table": 6, "upload": 3, "read": 3, "read_old": 3, "compact": 1, "collect": 1, "trim": 1},
    "tables": {"table": 1},
    "catalog": {"upload": 4, "read": 3, "read_old": 3, "compact": 2, "collect": 1, "trim": 1},
}
"""How often each is drawn, before the seed makes one process unlike another."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The parameters of a process; in its folder it writes its history, and looks for the file that ends it."""

    folder: str
    name: str
    seed: str
    endpoint_url: str
    bucket: str
    etag_quotes: bool
    roles: str = "all"
    planted: str = ""

    def text(self) -> str:
        return json.dumps(asdict(self))

    def store(self) -> ObjectStore:
        settings = StoreSettings(endpoint_url=self.endpoint_url, etag_quotes=self.etag_quotes, attempts=2)
        return S3Store(self.bucket, settings)

    def tables(self, store: ObjectStore) -> Tables:
        quotes = self.etag_quotes
        return Tables(store, nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter, if_match_quotes=quotes)


class Registers:
    """Changes keys of a table on condition, by what it saw there, which may be old."""

    def __init__(self, table: Table, random: Random, recorder: Recorder, name: str) -> None:
        self._table, self._random, self._recorder, self._name = table, random, recorder, name
        self._seen: dict[str, Entry] = {}
        self._numbers = iter(range(1 << 30))

    def act(self) -> None:
        key = self._random.choice(KEYS)
        for _ in range(self._random.randrange(1, 6)):
            chance, seen = self._random.random(), self._seen.get(key)
            if seen is None or chance < 0.5:
                self._read(key)
                if key not in self._seen:
                    self._create(key)
            elif chance < 0.9:
                self._update(key, seen)
            else:
                self._delete(key, seen)

    def _value(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    def _read(self, key: str) -> None:
        number = self._recorder.begin(f"key:{key}", READ)
        with self._recorded(number):
            entry = raw_key(self._table, key).read()
            self._seen.pop(key, None)
            if entry is None:
                self._recorder.end(number, Outcome.DONE)
                return
            self._seen[key] = entry
            self._recorder.end(number, Outcome.DONE, entry.version.sequence, entry.value.decode())

    def _create(self, key: str) -> None:
        value = self._value()
        number = self._recorder.begin(f"key:{key}", CREATE, value)
        with self._recorded(number):
            created = raw_key(self._table, key).create(value.encode())
            self._recorder.end(number, Outcome.DONE, created.version.sequence)

    def _update(self, key: str, seen: Entry) -> None:
        value = self._value()
        number = self._recorder.begin(f"key:{key}", UPDATE, seen.version.sequence, seen.value.decode(), value)
        self._seen.pop(key)
        with self._recorded(number):
            written = raw_key(self._table, key).write(value.encode(), seen)
            self._recorder.end(number, Outcome.DONE, written.version.sequence)
            if written.version.etag:
                self._seen[key] = written

    def _delete(self, key: str, seen: Entry) -> None:
        number = self._recorder.begin(f"key:{key}", DELETE, seen.version.sequence, seen.value.decode())
        self._seen.pop(key)
        with self._recorded(number):
            raw_key(self._table, key).delete(seen)
            self._recorder.end(number, Outcome.DONE)

    @contextmanager
    def _recorded(self, number: int) -> Iterator[None]:
        """What an error says of the operation; see `loaders.tables.typed_key`."""
        try:
            yield
        except (DataConflict, DataExists):
            self._recorder.end(number, Outcome.REFUSED)
        except TableMissing as error:
            self._recorder.end(number, Outcome.BROKEN, repr(error))
        except DataNotFound:
            self._recorder.end(number, Outcome.REFUSED)
        except AmbiguousWrite:
            self._recorder.end(number, Outcome.UNKNOWN)
        except StoreError:
            self._recorder.end(number, Outcome.FAILED)


class Broker:
    """What is done with the catalog, over a store with the faults of this process."""

    def __init__(self, store: ObjectStore, random: Random, recorder: Recorder, name: str) -> None:
        self._store, self._random, self._recorder, self._name = store, random, recorder, name
        self._catalog = ObjectCatalog.open(store, settings=SETTINGS)
        self._old: tuple[PolledImages, ReadAccelerator] | None = None
        self._numbers = iter(range(1 << 30))

    # Writing

    def upload(self) -> None:
        """A session of a node, which ends that of another process."""
        node_id = self._random.choice([*NODES])
        writer = self._catalog.open_node(node_id)
        if self._random.random() < 0.15:
            self._take_over(writer, node_id)
        for _ in range(self._random.randrange(1, 7)):
            self._upload(writer)
            SYSTEM.sleep(self._random.random() * 0.1)
        writer.close()

    def _take_over(self, writer: NodeWriter, node_id: int) -> None:
        streams = self._catalog.refresh().streams
        owners = {each: streams[each].ranges[-1] for each in STREAMS if each in streams and streams[each].ranges}
        elsewhere = [each for each, last in owners.items() if last.end == -1 and last.node_id != node_id]
        if elsewhere:
            stream_id = self._random.choice(elsewhere)
            writer.take_over({stream_id: owners[stream_id].node_id})
            self._recorder.count("streams taken over")

    def _upload(self, writer: NodeWriter) -> None:
        ends = {each: end for each in STREAMS if (end := writer.end(each)) is not None}
        chosen = [each for each in ends if self._random.random() < 0.7]
        spans = {each: (ends[each], ends[each] + self._random.randrange(1, 20)) for each in chosen}
        if not spans:
            return
        own = f"{self._name}-{next(self._numbers)}"
        labels = {each: f"{each}:{start}-{end}:{own}" for each, (start, end) in spans.items()}
        batches = {each: [_batch(each, *span, labels[each])] for each, span in spans.items()}
        numbers = [self._recorder.begin(f"end:{each}", APPEND, *span, labels[each]) for each, span in spans.items()]
        deadline_seconds = self._random.choice([3.0, 3600.0])
        outcome = self._outcome(lambda: writer.upload(batches, deadline_seconds=deadline_seconds))
        for number in numbers:
            self._recorder.end(number, outcome)

    def _outcome(self, upload: Callable[[], object]) -> Outcome:
        for attempt in range(TRIES_MAX):
            try:
                upload()
            except (CommitRefused, SessionFenced):
                self._recorder.count("uploads refused")
                return Outcome.UNKNOWN if attempt else Outcome.FAILED
            except (StoreError, TableError):
                SYSTEM.sleep(self._random.random() * 0.2)
            else:
                self._recorder.count("uploads")
                return Outcome.DONE
        return Outcome.UNKNOWN

    # Maintenance

    def trim(self) -> None:
        """Let go the first part of a stream, if it is long."""
        stream_id = self._random.choice(STREAMS)
        stream = self._catalog.refresh().streams.get(stream_id)
        end = 0 if stream is None else self._catalog.stream_end(stream_id)
        if stream is None or end <= stream.start_offset:
            return
        kept = min(end - stream.start_offset, self._random.randrange(0, 200))
        number = self._recorder.begin(f"start:{stream_id}", TRIM, end - kept)
        try:
            self._catalog.trim({stream_id: end - kept})
        except CommitRefused:
            self._recorder.end(number, Outcome.FAILED)
        except (StoreError, TableError):
            self._recorder.end(number, Outcome.UNKNOWN)
        else:
            self._recorder.end(number, Outcome.DONE)
            self._recorder.count("trims")

    def compact(self) -> None:
        settings = CompactionSettings(
            max_objects_per_node=self._random.randrange(2, 6),
            min_age_seconds=0,
            max_sources_per_group=self._random.randrange(2, 6),
            split_holes=self._random.random() < 0.5,
            split_size_bytes=self._random.choice([1 << 10, 8 << 20]),
        )
        report = compact(self._catalog, plan_compaction(self._catalog, settings))
        for result in report.groups:
            self._recorder.count(f"compaction: {result.status}")

    def collect(self) -> None:
        plan = plan_collection(self._catalog)
        report = collect(self._catalog, plan)
        for _ in report.deleted:
            self._recorder.count("objects collected")

    # Reading

    def read(self) -> None:
        """As a process that was just started does."""
        with ObjectCatalog.open(self._store, settings=SETTINGS) as catalog:
            images = catalog.images(poll_seconds=0.5)
            with ReadAccelerator(images, self._store) as accelerator:
                self._read_all(images, accelerator)

    def read_old(self) -> None:
        """With images that are as old as they may be."""
        if self._old is None or self._random.random() < 0.05:
            self.close()
            most = FORMAT.max_image_age_seconds
            images = self._catalog.images(poll_seconds=0.4 * most, idle_poll_seconds=0.9 * most)
            self._old = images, ReadAccelerator(images, self._store)
        self._read_all(*self._old)

    def close(self) -> None:
        if self._old is not None:
            self._old[1].close()
            self._old = None

    def _read_all(self, images: PolledImages, accelerator: ReadAccelerator) -> None:
        for stream_id in self._random.sample(STREAMS, 2):
            self.read_stream(stream_id, images, accelerator)

    def read_stream(self, stream_id: int, images: PolledImages, accelerator: ReadAccelerator) -> None:
        """All that is kept of a stream."""
        now = SYSTEM.timer()
        confirmed = now - min(images.age_seconds(), FORMAT.max_image_age_seconds)
        first = self._recorder.begin(f"start:{stream_id}", READ, since_seconds=confirmed)
        number = self._recorder.begin(f"end:{stream_id}", READ, since_seconds=confirmed)
        try:
            stream = images.current().streams.get(stream_id)
            start = 0 if stream is None else stream.start_offset
            self._recorder.end(first, Outcome.DONE, start)
            found = [] if stream is None else list(accelerator.read(stream_id, start))
        except (StoreError, ImageTooOld):
            self._recorder.end(number, Outcome.FAILED)
        except InvalidRequest:  # trimmed meanwhile: the next read says so
            self._recorder.end(number, Outcome.FAILED)
        except ObjectLost as error:
            is_late = SYSTEM.timer() - confirmed > FORMAT.max_image_age_seconds
            self._recorder.end(number, Outcome.FAILED if is_late else Outcome.BROKEN, repr(error))
        except AccelError as error:
            self._recorder.end(number, Outcome.BROKEN, repr(error))
        else:
            self._found(number, start, found)

    def _found(self, number: int, start: int, found: list[RecordBatch]) -> None:
        at, labels = start, list[str]()
        for batch in found:
            label = batch.payload.decode().rstrip(".")
            expected = f"{batch.stream_id}:{batch.base_offset}-{batch.base_offset + batch.count}:"
            if batch.base_offset > at or not label.startswith(expected):
                self._recorder.end(number, Outcome.BROKEN, f"expected {expected} from {at} on, found {label}")
                return
            at = batch.base_offset + batch.count
            labels.append(label)
        self._recorder.end(number, Outcome.DONE, at, *([labels[-1], labels] if labels else []))


def _batch(stream_id: int, start: int, end: int, label: str) -> RecordBatch:
    return RecordBatch(stream_id, 1, start, end - start, label.encode().ljust(PAYLOAD_SIZE_BYTES, b"."))


def live(orders: Orders) -> None:
    random, folder = Random(orders.seed), Path(orders.folder)
    recorder = Recorder(folder / f"{orders.name}.log", SYSTEM.timer)
    store = LateStore(orders.store(), Random(random.random()), SYSTEM.sleep, recorder.count)
    registers = Registers(orders.tables(store).table(TABLE), random, recorder, orders.name)
    broker = _patient(lambda: Broker(store, random, recorder, orders.name))
    acts: Mapping[str, Callable[[], None]] = {
        "table": registers.act,
        "upload": broker.upload,
        "read": broker.read,
        "read_old": broker.read_old,
        "compact": broker.compact,
        "collect": broker.collect,
        "trim": broker.trim,
    }
    weights = {each: weight * random.uniform(0.2, 2) for each, weight in ROLES[orders.roles].items()}
    while not (folder / STOP_NAME).exists():
        [role] = random.choices([*weights], [*weights.values()])
        number = recorder.begin("role", role)
        try:
            acts[role]()
        except EXPECTED:
            recorder.end(number, Outcome.FAILED)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run shows it
            recorder.end(number, Outcome.BROKEN, repr(error))
        else:
            recorder.end(number, Outcome.DONE)
    broker.close()
    store.wait()


def _patient(make: Callable[[], Broker]) -> Broker:
    while True:
        try:
            return make()
        except StoreError:
            SYSTEM.sleep(0.05)


def main(text: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the supervisor's
    writer_module.IDS_AHEAD, writer_module.STREAM_OBJECTS_IN_LIST_MAX = 2, 3  # in this process alone
    orders = Orders(**json.loads(text))
    with DEFECTS[orders.planted].plant():
        live(orders)
    sys.stdout.flush()
    os._exit(0)  # threads that still wait for the server have nothing to say


if __name__ == "__main__":
    main(sys.argv[1])
