"""Following docs/operations/repair.md mends the damage.

The commands that are run are those of the page, in its order, with the test's stores, node and version in place of its
own; what the page leaves to the store's own tools is done to the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from itertools import count
from typing import Any

import pytest

from accel import connect
from accel.catalog import ObjectCatalog
from accel.catalog.verify import Verdict, verify
from accel.errors import AccelError, CatalogWentBack
from accel.history.store import GivenSizes, StreamStore
from accel.repair.objects import PutBackOutcome, put_back
from accel.testing import Crash, CrashStore
from loaders.format import RecordBatch
from loaders.store import Fetched, MemoryStore, ObjectStore, open_store
from loaders.tables import FormatRecord
from tests.accel.cli.test_history_commands import Shop as Histories
from tests.accel.cli.worlds import Bucket
from tests.docs.pages import blocks, page_named
from tests.loaders.tables.test_probe import Bending, wants

PAGE = page_named("repair")
NODE = 4
EVENTS = [b"one", b"two", b"three"]


# The page


def commands(heading: str, block: int = 0) -> list[str]:
    """The lines of a block below a heading."""
    lines = PAGE.read_text().splitlines()
    start = lines.index(f"## {heading}") + 1
    end = next((at for at in range(start, len(lines)) if lines[at].startswith("## ")), len(lines))
    found = [each for each in blocks(PAGE, "sh") if start <= each.line <= end]
    return found[block].text.splitlines()


# What is broken


@cache
def bodies() -> dict[str, Fetched]:
    """A bucket with a catalog, and one stream of three events in three objects."""
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="accel", stream_buckets=4))
    with connect(store, node_id=NODE) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
    write(store, EVENTS)
    return {info.key: store.get(info.key) for info in store.list("")}


def write(store: ObjectStore, events: list[bytes]) -> None:
    with connect(store, node_id=NODE) as connection, connection.writer("shop", "orders") as writer:
        for event in events:
            writer.write(event, key="anna")
            writer.flush()


class Broken(Bucket):
    """That bucket, and a copy of it, which nobody damages."""

    def __init__(self) -> None:
        super().__init__()
        self.copied = Bucket()
        self.copy = self.copied.store
        for key, found in bodies().items():
            self.store.put(key, found.body, mark=found.mark)
            self.copy.put(key, found.body, mark=found.mark)

    def write(self, events: list[bytes]) -> None:
        write(self.store, events)

    def events(self) -> list[bytes]:
        with connect(self.store) as connection, connection.reader("shop", "orders") as reader:
            return [event.payload for event in reader]

    def follow(
        self, heading: str, block: int = 0, codes: tuple[int, ...] = (), words: Mapping[str, str] | None = None
    ) -> list[str]:
        """Run a block of the page; gives what its commands print. Those without a code of their own end with 0."""
        named = {"s3://copy": self.copied.url, **(words or {})}
        outputs = []
        for line, code in zip(commands(heading, block), (*codes, *[0] * 9), strict=False):
            for name, stands_for in named.items():
                line = line.replace(name, stands_for)  # noqa: PLW2901 - the page's line with our words
            outputs.append(self.done(line.removeprefix("accel "), code=code))
        return outputs

    def verified(self) -> tuple[int, set[str]]:
        """The exit code of a verification, and the kinds of its problems."""
        result = self.run("catalog verify --output json")
        return result.exit_code, {problem["kind"] for problem in json.loads(result.stdout)["problems"]}

    def objects(self) -> list[str]:
        return [info.key for info in self.store.list("") if not info.key.startswith("accel/")]

    def damage(self, key: str) -> None:
        self.store.put(key, bytes(self.store.get(key).body[:-3]) + b"xyz")

    def put_back(self, key: str) -> None:
        """What an operator does by the store's own tools."""
        self.store.put(key, self.copy.get(key).body)


@pytest.fixture
def broken() -> Broken:
    return Broken()


def lose(store: ObjectStore, key: str) -> None:
    store.delete(key)


def cut(store: ObjectStore, key: str) -> None:
    found = store.get(key)
    store.put(key, found.body[:-5], mark=found.mark)


def swap(store: ObjectStore, key: str) -> None:
    """Another object of this size and form under its key."""
    found = store.get(key)
    body = bytearray(found.body)
    body[len(body) // 2] ^= 1
    store.put(key, bytes(body[:-60]) + bytes(reversed(body[-60:])), mark=found.mark)


def test_an_object_that_is_gone_or_damaged_is_put_back(broken: Broken) -> None:
    for key, act in zip(broken.objects(), (lose, cut, swap), strict=True):
        act(broken.store, key)
    assert broken.verified() == (3, {"missing", "damaged"})
    shown, done, _ = broken.follow("An object that is gone, or holds other bytes")
    assert (shown.count("can be put back"), done.count(": put back")) == (3, 3)
    assert broken.verified() == (0, set())
    assert broken.events() == EVENTS


def test_what_the_copy_does_not_have_or_vouch_for_is_left_and_said(broken: Broken) -> None:
    first, second, third = broken.objects()
    for key in (first, second):
        lose(broken.store, key)
    lose(broken.copy, first)
    swap(broken.copy, second)
    sound = broken.store.get(third).body
    swap(broken.copy, third)
    shown, done, _ = broken.follow("An object that is gone, or holds other bytes", codes=(1, 1, 3))
    assert "the copy has no object under this key" in shown
    assert "in the copy, found" in done
    assert broken.objects() == [third]
    assert broken.store.get(third).body == sound


def test_a_damaged_object_is_put_back_where_an_etag_wants_no_quotes() -> None:
    """Ceph: with quotes If-Match never holds."""
    store = Bending(MemoryStore(), wants(quotes=False))
    ObjectCatalog.init(store, FormatRecord(namespace="accel", stream_buckets=1))
    with ObjectCatalog.open(store) as catalog:
        with catalog.open_node(NODE) as writer:
            writer.open_streams([1])
            key = catalog.parts.layout.object_key(writer.upload({1: [RecordBatch(1, 1, 0, 10, b"records")]}).object_id)
        sound = bytes(store.get(key).body)
        copy = MemoryStore()
        copy.put(key, sound)
        cut(store, key)
        report = put_back(catalog, copy, is_dry_run=False)
    assert [each.outcome for each in report.found] == [PutBackOutcome.PUT_BACK]
    assert store.get(key).body == sound


def test_a_compaction_that_lost_its_object_is_undone(broken: Broken) -> None:
    before = set(broken.objects())
    broken.done("catalog compact --rewrite-all --target-objects 1 --min-age 0s")
    [merged] = set(broken.objects()) - before
    lose(broken.store, merged)
    assert broken.verified() == (3, {"missing"})
    sequence = max(version["sequence"] for version in broken.json("catalog undo --node 4")["versions"])
    broken.follow("A compaction that lost its object", words={"SEQUENCE": str(sequence)})
    assert broken.events() == EVENTS


KEYS = {
    "nodes/directory": "directory",
    "nodes/format": "choices",
    "nodes/!table": "marker",
    "_system%2FdeletedStreams/!table": "marker",
    "counters/object-ids": "counter",
    "node-checkpoints/0000000004": "checkpoint",
}


@pytest.mark.parametrize("act", [lose, Broken.damage])
@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_follows_from_others_is_rebuilt(broken: Broken, key: str, act: Callable[..., None]) -> None:
    act(broken if act is Broken.damage else broken.store, f"accel/tables/{key}")
    lost_checkpoint = act is lose and KEYS[key] == "checkpoint"  # nothing misses it
    assert broken.verified()[1] == (set() if lost_checkpoint else {KEYS[key]})
    codes = (1, 1, 0) if KEYS[key] == "marker" else ()  # nothing else is looked at before the tables are there
    broken.follow("A key that does not decode", codes=codes)
    shown, *_ = broken.follow("A key that does not decode")
    assert shown == "the catalog: nothing is damaged\n"
    broken.write([b"four"])
    assert broken.events() == [*EVENTS, b"four"]
    assert broken.verified() == (0, set())


def test_a_kept_version_that_does_not_decode_is_deleted(broken: Broken) -> None:
    broken.done("catalog compact --rewrite-all --target-objects 1 --min-age 0s")
    [key] = [info.key for info in broken.store.list("accel/tables/node-list-history/0")]
    broken.damage(key)
    assert broken.verified() == (0, {"version"})
    broken.follow("A key that does not decode")
    assert broken.verified() == (0, set())


def test_many_keys_at_once_are_rebuilt(broken: Broken) -> None:
    for key in KEYS:
        broken.damage(f"accel/tables/{key}")
    broken.follow("A key that does not decode", codes=(1, 1, 3))  # the tables
    broken.follow("A key that does not decode", codes=(1, 1, 3))  # what stands in them
    broken.follow("A key that does not decode")  # the counter, which takes the directory
    assert broken.verified() == (0, set())
    assert broken.events() == EVENTS


def test_a_repair_of_a_catalog_writes_nothing_without_being_told(broken: Broken) -> None:
    broken.damage("accel/tables/nodes/directory")
    before = broken.state()
    broken.done("repair")
    assert broken.state() == before


def test_a_directory_is_not_made_of_fewer_lists_than_others_name(broken: Broken) -> None:
    for key in ("nodes/directory", "node-lists/0000000004"):
        lose(broken.store, f"accel/tables/{key}")
    assert "directory: cannot be rebuilt" in broken.done("repair --yes", code=1)


def test_a_format_record_that_does_not_decode_is_written_again(broken: Broken) -> None:
    broken.damage("accel/format")
    broken.done("catalog verify", code=1)
    lose(broken.store, "accel/format")
    broken.follow("A key that does not decode", 1, words={"--namespace accel": "--namespace accel --stream-buckets 4"})
    assert broken.events() == EVENTS


def test_a_counter_of_histories_is_made_above_all_ids(broken: Broken) -> None:
    key = "accel/tables/_system%2Fcounters/segmentStreams"
    broken.damage(key)
    broken.done("repair --yes", code=1)
    lose(broken.store, key)
    broken.follow("A key that does not decode", 2)
    assert broken.events() == EVENTS


@pytest.mark.parametrize("key", ["node-lists/0000000004", "stream-buckets/00003"])
def test_a_list_or_a_shard_is_put_back(broken: Broken, key: str) -> None:
    broken.damage(f"accel/tables/{key}")
    assert "cannot be rebuilt" in broken.done("repair --yes", code=1)
    broken.put_back(f"accel/tables/{key}")
    broken.follow("A list or a stream shard")
    assert broken.events() == EVENTS


# Histories


@cache
def histories_bodies() -> dict[str, bytes]:
    made = Histories()
    made.done("stream create --time 1000")
    held = made.held({"0@0": 7, "1@1": 7})
    held.scale(["0@0"], [(0.0, 0.5), (0.5, 1.0)], 2000)
    held.scale(["1@1"], [(0.0, 0.2), (0.2, 0.5)], 3000)
    return all_of(made.store)


def all_of(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: bytes(store.get(info.key).body) for info in store.list("")}


def histories_of(keys: dict[str, bytes]) -> Histories:
    made = Histories()
    for key, body in keys.items():
        made.store.put(key, body)
    return made


@pytest.fixture
def histories() -> Histories:
    return histories_of(histories_bodies())


def followed(made: Histories, heading: str, block: int = 0) -> list[str]:
    """Run a block of the page on these histories."""
    return [made.done(line.removeprefix("accel ")) for line in commands(heading, block)]


def record(store: ObjectStore, name: str) -> str:
    return next(info.key for info in store.list("") if info.key.endswith(f"/{name}"))


def test_a_record_that_does_not_decode_is_rebuilt(histories: Histories) -> None:
    store = histories.store
    before = histories.done("stream history --to 9000")
    cut(store, record(store, "epochRecord-1"))
    shown, done, _ = followed(histories, "A record of a stream")
    assert ("can be rebuilt" in shown, "1 rebuilt" in done) == (True, True)
    assert histories.done("repair --stream orders") == "stream shop/orders: nothing is damaged\n"
    assert histories.done("stream history --to 9000") == before


def interrupted(url: str, writes: int, act: Callable[[StreamStore], Any]) -> bool:
    """Whether somebody who dies before that write did not come to an end."""
    dying = CrashStore(open_store(url), crash_before_write=writes)
    try:
        act(StreamStore.open(dying, host=GivenSizes({})))
    except (Crash, AccelError):
        return True
    return False


def test_a_deletion_that_was_interrupted_anywhere_is_finished(histories: Histories) -> None:
    histories.done("stream seal --yes")
    whole = all_of(histories.store)
    for writes in count(1, 4):
        other = histories_of(whole)
        if not interrupted(other.url, writes, lambda streams: streams.delete_stream("shop", "orders")):
            break
        followed(other, "An interrupted deletion")
        listed = other.json("stream list")["streams"]
        assert listed in ([], ["orders"]), writes
        assert not listed or other.json("stream describe")["state"] == "SEALED", writes
    assert writes > 8


def test_a_collection_that_was_interrupted_goes_on(broken: Broken) -> None:
    with pytest.raises(Crash), ObjectCatalog.open(CrashStore(broken.store, crash_before_write=1)) as catalog:
        catalog.prepare(NODE, 1)
    broken.follow("An interrupted deletion", 1)
    assert broken.events() == EVENTS


# Yesterday


def test_a_bucket_from_yesterday_goes_on_from_there(broken: Broken) -> None:
    with ObjectCatalog.open(broken.store) as living:
        broken.write([b"four", b"five"])
        assert len(living.refresh().node(NODE)) == 5
        for info in list(broken.store.list("")):
            lose(broken.store, info.key)
        for info in broken.copy.list(""):
            broken.put_back(info.key)
        with pytest.raises(CatalogWentBack):
            living.refresh()
        broken.follow("A bucket from yesterday's backup")
        living.refresh()
        assert len(living.refresh().node(NODE)) == 3
        assert verify(living).outcome is Verdict.CLEAN
    broken.write([b"six"])
    assert broken.events() == [*EVENTS, b"six"]
