"""Each key of a catalog, and its objects, damaged in each way: what readers, verify, the collector and writers do.

Whatever happened to one key: readers give the whole truth or an error of ours, the collector deletes nothing that is
live, and when the key is put right again everything is there. The table EXPECTED says for each damage what verify calls
it and whether the collector refuses to work.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import pytest

from accel import ReadAccelerator, StaticImages
from accel.catalog import CatalogSettings, NodeWriter
from accel.catalog.collect import collect, plan_collection
from accel.catalog.keys import NODE_LISTS
from accel.catalog.problems import ProblemKind, Severity
from accel.catalog.verify import NOT_LOOKED_AT, Verdict, Verification, verify
from accel.catalog.whole_catalog import read_survey
from accel.errors import AccelError, CorruptObject, MaintenanceRefused
from accel.image import MetadataImage, StreamObject
from loaders.merge.transfer import open_sources
from loaders.object_writer import ObjectWriter
from loaders.settings import MergeSettings
from tests.builders import batches
from tests.examples import swept
from tests.world import LAYOUT, NAMESPACE, World

DAY_SECONDS = 86_400.0
OWNED = {4: (1001, 1002), 6: (2001, 2002)}
LATE = (1003, 2003)
"""Streams that are opened after the older copy was made."""

OWN = (3001, 3002)
"""Streams that have an object of their own and nothing else."""

TABLES = "accel/tables/"
HISTORY_COUNTERS = "_system%2Fcounters"
Bodies = dict[str, bytes]
Payloads = tuple[bytes, ...]


class Busy(World):
    """Two nodes that upload, and a store that can be copied."""

    def __init__(self, bodies: Bodies | None = None) -> None:
        settings = CatalogSettings(parallel_requests=4, ids_block=64, checkpoint_commits=4)
        super().__init__(settings=settings)
        for key, body in (bodies or {}).items():
            self.memory.put(key, body)
        for key in [info.key for info in self.memory.list("") if bodies is not None and info.key not in bodies]:
            self.memory.delete(key)

    def write(self, writer: NodeWriter, *stream_ids: int) -> int:
        """Upload an object that continues these streams."""
        ends = {stream_id: writer.end(stream_id) or 0 for stream_id in stream_ids}
        return writer.upload({each: batches(each, end, end + 10) for each, end in ends.items()}).object_id

    def write_own(self, writer: NodeWriter, stream_id: int) -> int:
        """Upload an object of one stream alone."""
        [object_id] = writer.prepare()
        with ObjectWriter(self.store, LAYOUT, object_id) as upload:
            upload.write(stream_id, batches(stream_id, 0, 10))
        writer.commit_upload(None, stream_objects={stream_id: StreamObject(upload.ref, 0, 10)})
        return object_id

    def read(self) -> dict[int, Payloads | AccelError]:
        """All streams, as somebody reads them who has just come."""
        found: dict[int, Payloads | AccelError] = {}
        try:
            with self.open() as catalog, ReadAccelerator(catalog.images(), self.store, system=self.system) as reader:
                for stream_id in STREAMS:
                    try:
                        found[stream_id] = tuple(batch.payload for batch in reader.read(stream_id, 0))
                    except AccelError as error:
                        found[stream_id] = error
        except AccelError as error:
            return dict.fromkeys(STREAMS, error)
        return found

    def looked_at(self) -> Verification | AccelError:
        try:
            with self.open() as catalog:
                return verify(catalog)
        except AccelError as error:
            return error

    def collect_later(self) -> set[int] | MaintenanceRefused | AccelError:
        """The objects that a collection deletes when everything is old enough for it; or why it refuses."""
        self.clock.seconds += 4 * DAY_SECONDS
        try:
            with self.open() as catalog:
                return {each.object_id for each in collect(catalog, plan_collection(catalog)).deleted}
        except AccelError as error:
            return error


STREAMS = (*OWNED[4], *OWNED[6], *LATE, *OWN)


@dataclass(frozen=True, slots=True)
class Base:
    """A catalog as it should be.

    Args:
        bodies: all keys.
        older: all keys as they were some commits before.
        truth: stream -> its payloads.
        live: ids of the objects that are live.
        uploads: node -> its uploads that are live as they were written.
        own: objects of one stream.
    """

    bodies: Bodies
    older: Bodies
    truth: dict[int, Payloads | AccelError]
    live: frozenset[int]
    uploads: dict[int, list[int]]
    own: list[int]


@cache
def base() -> Base:
    world = Busy()
    with world.open() as catalog, catalog.open_node(4) as four, catalog.open_node(6) as six:
        writers = {4: four, 6: six}
        for node_id, writer in writers.items():
            writer.open_streams(OWNED[node_id])
        for _ in range(5):
            for node_id, writer in writers.items():
                world.write(writer, *OWNED[node_id])
        older = world.bodies()
        four.open_streams([LATE[0], *OWN])
        six.open_streams([LATE[1]])
        own = [world.write_own(four, stream_id) for stream_id in OWN]
        image = catalog.refresh()
        sources = image.node(4).refs[:3]
        opened = [each.ranges for each in catalog.parts.open_all(4, sources)]
        [target_id] = catalog.prepare(4, 1)
        target, _ = world.put(
            target_id,
            [(each, int(opened[0].range_of(each).start), 30) for each in OWNED[4]],  # type: ignore[union-attr]  # each source holds both
        )
        catalog.commit_compaction(4, sources, target)
        uploads = {
            node_id: [world.write(writer, *OWNED[node_id], LATE[number]) for _ in range(5)]
            for number, (node_id, writer) in enumerate(writers.items())
        }
    with world.open() as catalog:
        live = frozenset(read_survey(catalog.parts).live_ids().tolist())
    return Base(world.bodies(), older, world.read(), live, uploads, own)


def _cut(body: bytes, _: str) -> bytes:
    return body[: len(body) // 2]


def _flip(body: bytes, _: str) -> bytes:
    flipped = bytearray(body)
    flipped[len(body) // 2] ^= 4
    return bytes(flipped)


def _roll_back(body: bytes, key: str) -> bytes:
    return base().older.get(key, body)


def _sibling(body: bytes, key: str) -> bytes:
    folder = key.rpartition("/")[0]
    others = [each for each in base().bodies if each.rpartition("/")[0] == folder and each != key and "!" not in each]
    return base().bodies[others[0]] if others and "!" not in key else body


DAMAGES: dict[str, Callable[[bytes, str], bytes | None]] = {
    "delete": lambda *_: None,
    "cut": _cut,
    "flip": _flip,
    "roll back": _roll_back,
    "sibling": _sibling,
}
"""What becomes of the bytes of a key; None: it goes."""

Expected = tuple[set[ProblemKind], bool]
"""What verify finds at least (nothing: not even advice), and whether the collector refuses."""


def expected(key: str, damage: str) -> Expected:
    """What is to be said of a damage to a key of the tables."""
    table, _, name = key.removeprefix(TABLES).partition("/")
    if name == "!table":
        return {ProblemKind.MARKER}, table == "node-lists"  # what the lists are cannot be told without
    if key == f"{TABLES}nodes/format":
        return {ProblemKind.CHOICES}, False
    if table == HISTORY_COUNTERS:
        return {ProblemKind.COUNTER}, False  # the collector concludes nothing from them
    if table == "node-checkpoints":
        is_read = damage in ("delete", "roll back")  # a checkpoint saves work; nobody needs one
        return (set(), False) if is_read else ({ProblemKind.CHECKPOINT}, True)
    if table == "node-list-history":
        return (set(), False) if damage == "delete" else ({ProblemKind.VERSION}, False)
    kinds = {
        "node-lists": ProblemKind.LIST,
        "nodes": ProblemKind.DIRECTORY,
        "stream-buckets": ProblemKind.SHARD,
        "counters": ProblemKind.COUNTER,
    }
    return {kinds[table]}, True


def scenarios() -> list[tuple[str, str]]:
    """Each key of the catalog with each damage that changes it."""
    keys = [key for key in base().bodies if key.startswith("accel/") and "/probe/" not in key]
    return [
        (key, damage)
        for key in keys
        for damage, change in DAMAGES.items()
        if change(base().bodies[key], key) != base().bodies[key]
    ]


def damaged(key: str, damage: str) -> Busy:
    bodies = dict(base().bodies)
    body = DAMAGES[damage](bodies.pop(key), key)
    return Busy(bodies if body is None else {**bodies, key: body})


def kinds(found: Verification | AccelError) -> set[ProblemKind]:
    assert isinstance(found, Verification)
    return {each.kind for each in found.problems}


UNSEEN_BY_READERS = {"node-lists", "node-checkpoints"}
"""Where a reader who has just come may miss the end when a key went back; verify and the collector do not."""


@pytest.mark.parametrize(("key", "damage"), swept(scenarios()))
def test_who_reads_gets_the_truth_or_an_error(key: str, damage: str) -> None:
    table = key.removeprefix(TABLES).partition("/")[0]
    found = damaged(key, damage).read()
    for stream_id, payloads in base().truth.items():
        assert isinstance(payloads, tuple)
        assert len(payloads) >= 1
        if damage == "roll back" and table in UNSEEN_BY_READERS:
            seen = found[stream_id]
            assert isinstance(seen, AccelError) or seen == payloads[: len(seen)]
        else:
            assert found[stream_id] == payloads or isinstance(found[stream_id], AccelError)


@pytest.mark.parametrize(("key", "damage"), swept(scenarios()))
def test_verify_calls_it_by_its_name(key: str, damage: str) -> None:
    found = damaged(key, damage).looked_at()
    if key == "accel/format":
        assert isinstance(found, AccelError)
        return
    wanted, is_damage = expected(key, damage)
    assert kinds(found) >= wanted
    assert isinstance(found, Verification)
    if not wanted:
        assert found.outcome is Verdict.CLEAN
    elif all(kind.severity is Severity.ADVICE for kind in wanted):
        assert not found.damage
    else:
        assert is_damage or key.startswith(f"{TABLES}{HISTORY_COUNTERS}/")
        assert found.outcome is Verdict.PROBLEMS


@pytest.mark.parametrize(("key", "damage"), swept(scenarios()))
def test_nothing_live_is_collected_and_all_is_there_when_the_key_is_right_again(key: str, damage: str) -> None:
    world = damaged(key, damage)
    found = world.collect_later()
    if key == "accel/format":
        assert isinstance(found, AccelError)
    elif expected(key, damage)[1] and not key.startswith(f"{TABLES}{NODE_LISTS}/"):
        assert isinstance(found, MaintenanceRefused)
    elif expected(key, damage)[1]:  # the other node is collected
        assert isinstance(found, MaintenanceRefused) or (isinstance(found, set) and not found & base().live)
    else:
        assert isinstance(found, set)
        assert found  # what is retired goes, as ever
        assert not found & base().live
    world.memory.put(key, base().bodies[key])
    assert world.read() == base().truth


@pytest.mark.parametrize(("key", "damage"), swept(scenarios()))
def test_no_session_begins_a_stream_anew_that_was_acknowledged(key: str, damage: str) -> None:
    world = damaged(key, damage)
    for node_id, owned in OWNED.items():
        try:
            with world.session(node_id=node_id) as (_, writer):
                ends = [writer.end(stream_id) for stream_id in owned]
        except AccelError:
            continue
        assert ends == [100, 100]


# Objects


def swapped(bodies: Bodies, first: int, second: int) -> Bodies:
    keys = LAYOUT.object_key(first), LAYOUT.object_key(second)
    return {**bodies, keys[0]: bodies[keys[1]], keys[1]: bodies[keys[0]]}


def changed(bodies: Bodies, object_id: int, change: Callable[[bytes], bytes]) -> Bodies:
    key = LAYOUT.object_key(object_id)
    return {**bodies, key: change(bodies[key])}


def _flip_at(at: int) -> Callable[[bytes], bytes]:
    def flip(body: bytes) -> bytes:
        flipped = bytearray(body)
        flipped[at] ^= 1
        return bytes(flipped)

    return flip


OBJECTS: dict[str, tuple[Callable[[Base], Bodies], set[ProblemKind]]] = {
    "two nodes": (lambda it: swapped(it.bodies, it.uploads[4][1], it.uploads[6][1]), {ProblemKind.DAMAGED}),
    "one node": (lambda it: swapped(it.bodies, it.uploads[4][1], it.uploads[4][2]), {ProblemKind.DAMAGED}),
    "two streams": (lambda it: swapped(it.bodies, *it.own), {ProblemKind.DAMAGED}),
    "the successor's bytes": (
        lambda it: changed(it.bodies, it.uploads[4][1], lambda _: it.bodies[LAYOUT.object_key(it.uploads[4][2])]),
        {ProblemKind.DAMAGED},
    ),
    "deleted": (
        lambda it: {key: body for key, body in it.bodies.items() if key != LAYOUT.object_key(it.uploads[4][1])},
        {ProblemKind.MISSING},
    ),
    "the end cut off": (
        lambda it: changed(it.bodies, it.uploads[4][1], lambda body: body[:-10]),
        {ProblemKind.DAMAGED},
    ),
    "the front cut off": (
        lambda it: changed(it.bodies, it.uploads[4][1], lambda body: body[5:]),
        {ProblemKind.DAMAGED},
    ),
    "a bit of the index": (
        lambda it: changed(it.bodies, it.uploads[4][1], _flip_at(-48 - 36 * 2 + 3)),
        {ProblemKind.DAMAGED},
    ),
    "a bit of the footer": (lambda it: changed(it.bodies, it.uploads[4][1], _flip_at(-20)), {ProblemKind.DAMAGED}),
}
"""What becomes of objects, and what verify calls it."""


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_that_is_another_one_is_refused_found_and_costs_nothing_live(name: str) -> None:
    change, wanted = OBJECTS[name]
    world = Busy(change(base()))
    found = world.read()
    for stream_id, payloads in base().truth.items():
        assert found[stream_id] == payloads or isinstance(found[stream_id], AccelError)
    assert any(isinstance(each, AccelError) for each in found.values())
    assert kinds(world.looked_at()) == wanted
    deleted = world.collect_later()
    assert isinstance(deleted, set)
    assert not deleted & base().live
    for key, body in base().bodies.items():
        if not key.startswith("accel/"):
            gone = LAYOUT.parse_object_key(key) in deleted
            assert gone or world.memory.put(key, body)
    assert world.read() == base().truth


def test_the_error_names_the_key_and_both_checksums() -> None:
    first, second = base().uploads[4][1:3]
    world = Busy(swapped(base().bodies, first, second))
    error = world.read()[OWNED[4][0]]
    assert isinstance(error, CorruptObject)
    assert error.key in (LAYOUT.object_key(first), LAYOUT.object_key(second))
    assert "that were committed under this key, with CRC-32 0x" in str(error)
    assert "found those of another object, with CRC-32 0x" in str(error)


def test_a_payload_that_changed_is_not_seen_and_verify_says_so() -> None:
    world = Busy(changed(base().bodies, base().uploads[4][1], _flip_at(43)))
    found = world.looked_at()
    assert isinstance(found, Verification)
    assert found.outcome is Verdict.CLEAN
    assert any("payload" in each for each in NOT_LOOKED_AT)


def test_a_merge_refuses_an_object_that_is_another_one() -> None:
    first, second = base().uploads[4][1:3]
    world = Busy(swapped(base().bodies, first, second))
    with world.open() as catalog, ThreadPoolExecutor(2) as executor:
        refs = [ref for ref in catalog.refresh().node(4).refs if ref.object_id in (first, second)]
        for settings in (MergeSettings(), MergeSettings(band_size_bytes=1)):  # whole objects, and their indexes alone
            with pytest.raises(CorruptObject, match="found those of another object"):
                open_sources(world.store, LAYOUT, refs, settings, executor=executor)


def test_an_object_of_one_stream_has_what_the_image_says_or_is_refused() -> None:
    """Images from elsewhere have no checksums; that an object holds none of its stream can be told all the same."""
    world = Busy(swapped(base().bodies, *base().own))
    streams = [
        {
            "stream_id": stream_id,
            "start_offset": 0,
            "ranges": [{"range_index": 0, "start": 0, "end": 10, "node_id": 4}],
            "stream_objects": [{"object_id": object_id, "start": 0, "end": 10}],
        }
        for stream_id, object_id in zip(OWN, base().own, strict=True)
    ]
    image = MetadataImage.from_dict({"namespace": NAMESPACE, "version": 1, "streams": streams})
    with ReadAccelerator(StaticImages(image), world.store, system=world.system) as reader:
        for stream_id in OWN:
            with pytest.raises(CorruptObject, match=f"of stream {stream_id}, as in the image, found none of it"):
                list(reader.read(stream_id, 0, 10))
