"""`accel catalog verify`, `gc`, `undo` and `sketch`: what they print, what they change, and how they end."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from click.testing import Result

from accel.catalog import ObjectCatalog
from accel.catalog.sketches_and_ends import sketch_rows
from accel.catalog.undo import undo, unfinished_commits
from accel.catalog.verify import NOT_LOOKED_AT
from accel.system import SYSTEM, Components
from accel.testing import ClockStore, Crash, CrashStore
from bloom import StreamSketch
from loaders.errors import AccessDenied, StoreUnavailable
from loaders.format import MissingBytes, open_tail
from loaders.layout import JOURNAL_PREFIX, UPLOADS_PREFIX, ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.object_writer import start_upload
from loaders.store import DeleteFailure, MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from range_index import ObjectRanges
from tests.accel.cli.worlds import Bucket, run
from tests.builders import write_set_object
from tests.world import new_mark

LAYOUT = ObjectLayout(namespace="shop")
LONG_AGO: Components = replace(SYSTEM, clock=lambda: SYSTEM.clock() - 7200)
"""Whatever was retired by this clock may go by now."""


def long_ago(store: ObjectStore) -> ObjectStore:
    """A store as of long ago: its time is what counts where it reports one."""
    return ClockStore(store, LONG_AGO.clock)


class Shop(Bucket):
    """Node 4 uploaded three objects; two of them became one; one more was promised and never committed.

    The bucket has not been written to for ten days.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr(self.store, "_clock", lambda: SYSTEM.clock() - 864_000)
        self.sources, self.target, self.promised_id = filled(self.store)

    def run(self, line: str, *words: str, stdin: bytes | None = None) -> Result:
        """A command on the catalog, or one on the bucket."""
        return super().run(line if line.startswith("repair") else f"catalog {line}", *words, stdin=stdin)

    def json(self, line: str, *words: str, code: int | None = None) -> Any:
        """What a command prints as JSON, however it ends."""
        return super().json(line, *words, code=code)

    def open(self, store: ObjectStore | None = None) -> ObjectCatalog:
        """The catalog, as of long ago."""
        return ObjectCatalog.open(long_ago(store or self.store), system=LONG_AGO)

    def ids(self) -> set[int]:
        found = (LAYOUT.parse_object_key(info.key) for info in self.store.list(""))
        return {each for each in found if each is not None}

    def remove(self, object_id: int) -> None:
        self.store.delete(LAYOUT.object_key(object_id))


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(monkeypatch)


def put(store: ObjectStore, object_id: int, start: int, end: int) -> tuple[ObjectRef, ObjectRanges]:
    body = write_set_object([(1, start, end)])
    store.put(LAYOUT.object_key(object_id), body, mark=new_mark(store, object_id))
    index = open_tail(body, object_size_bytes=len(body), key="")
    assert not isinstance(index, MissingBytes)
    return ObjectRef(object_id, len(body), index.nbytes), index.object_ranges()


def filled(store: ObjectStore) -> tuple[list[ObjectRef], ObjectRef, int]:
    """Fills an empty store; gives the uploaded objects, the one that two of them became, and the promised id."""
    ObjectCatalog.init(long_ago(store), FormatRecord(namespace="shop", stream_buckets=4), system=LONG_AGO)
    with ObjectCatalog.open(long_ago(store), system=LONG_AGO) as catalog, catalog.open_node(4) as writer:
        writer.open_streams([1])
        sources = []
        for at in range(3):
            ref, ranges = put(store, writer.prepare()[0], at, at + 1)
            writer.commit_upload(ref, ranges)
            sources.append(ref)
        target, _ = put(store, catalog.prepare(4, 1)[0], 0, 2)
        catalog.commit_compaction(4, sources[:2], target)
        [promised_id] = catalog.prepare(4, 1, deadline_seconds=60)
        put(store, promised_id, 0, 1)
    return sources, target, promised_id


# verify


def test_a_clean_catalog_ends_with_0(shop: Shop) -> None:
    before = shop.state()
    result = shop.run("verify")
    assert result.exit_code == 0
    *not_looked_at, sentence = result.stdout.splitlines()
    assert not_looked_at == [f"not looked at {each}" for each in NOT_LOOKED_AT]
    assert sentence.startswith("1 list, 4 stream shards, 2 objects of ")
    assert result.stdout.endswith(": no problem, 0 orphans of 0 B\n")
    assert shop.state() == before
    found = shop.json("verify")
    assert (found["outcome"], found["problems"], found["unchecked"]) == ("clean", [], [])
    assert found["checked"] == {"lists": 1, "shards": 4, "objects": 2, "bytes": found["checked"]["bytes"], "keys": 5}
    assert found["requests"] > 0


def test_problems_end_with_3(shop: Shop) -> None:
    shop.remove(shop.target.object_id)
    result = shop.run("verify")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[0].startswith(f"MISSING       object {shop.target.object_id} at ")
    assert "expected an object, because it is live, found none" in result.stdout
    assert ": 1 problem, " in result.stdout
    [problem] = shop.json("verify")["problems"]
    assert list(problem) == ["kind", "where", "expected", "found", "node_id", "severity"]
    assert problem["severity"] == "damage"


def test_advice_is_told_in_small_letters_and_ends_with_0(shop: Shop) -> None:
    shop.store.delete("accel/tables/counters/!table")
    result = shop.run("verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "marker        table 'counters'"
    assert ": no problem, 1 to look after, " in result.stdout
    found = shop.json("verify")
    assert (found["outcome"], [each["severity"] for each in found["problems"]]) == ("advice", ["advice"])
    assert found["not_looked_at"] == list(NOT_LOOKED_AT)


def test_damage_between_keys_ends_with_3_and_stops_the_collector(shop: Shop) -> None:
    with shop.open() as catalog:
        earlier = catalog.parts.keys.object_ids().read()
        assert earlier is not None
    shop.store.delete("accel/tables/counters/object-ids")
    result = shop.run("verify")
    assert result.exit_code == 3
    assert result.stdout.startswith("COUNTER       table 'counters', key 'object-ids'\n")
    before = shop.ids()
    refused = shop.run("gc --yes")
    assert refused.exit_code != 0
    assert "expected a catalog whose keys agree, found damage: table 'counters', key 'object-ids'" in refused.output
    assert shop.ids() == before


def test_orphans_are_told_with_their_age_and_are_no_problem(shop: Shop) -> None:
    with shop.open() as catalog:
        [object_id] = catalog.parts.ids.take(1)
    put(shop.store, object_id, 0, 1)
    result = shop.run("verify")
    assert result.exit_code == 0
    assert f"orphan        object {object_id} at " in result.stdout
    assert result.stdout.splitlines()[0].endswith(" old")
    orphans = shop.json("verify")["orphans"]
    assert (orphans["objects"], [each["object_id"] for each in orphans["oldest"]]) == (1, [object_id])


def test_what_could_not_be_checked_ends_with_1(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: MemoryStore, key: str, start: int, end: int) -> Any:
        del self, start, end
        raise AccessDenied("get_range", key, "forbidden")

    monkeypatch.setattr(MemoryStore, "get_range", denied)
    result = shop.run("verify")
    assert result.exit_code == 1
    assert "UNCHECKED     object" in result.stdout
    assert "no problem, 2 could not be checked" in result.stdout
    assert shop.json("verify")["outcome"] == "could not check"


def test_a_listing_that_fails_is_not_taken_for_a_bucket_without_orphans(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(store: object, prefix: str = "", *_: object, **__: object) -> Any:
        del store
        raise AccessDenied("list", prefix, "forbidden")

    monkeypatch.setattr("accel.catalog.whole_catalog.list_objects", denied)
    result = shop.run("verify")
    assert result.exit_code == 1
    assert "orphans not counted" in result.stdout
    assert shop.json("verify")["orphans"] is None


@pytest.mark.parametrize("command", [("verify",), ("gc",), ("undo", "--node", "4")])
def test_a_missing_catalog_is_told(command: tuple[str, ...]) -> None:
    result = run("catalog", *command, "--store", f"memory://{uuid4().hex}", "--output", "json")
    assert (result.exit_code, json.loads(result.stderr)["type"]) == (1, "CatalogMissing")


# gc


def test_without_yes_nothing_is_deleted(shop: Shop) -> None:
    before = shop.state()
    result = shop.run("gc")
    assert result.exit_code == 0
    assert result.stdout.endswith(" would be deleted (--yes does it)\n")
    assert [line.split()[:2] for line in result.stdout.splitlines()[2:5]] == [
        ["retired", "2"],
        ["prepared", "1"],
        ["orphan", "0"],
    ]
    assert shop.state() == before


def test_with_yes_just_what_the_dry_run_showed_is_deleted(shop: Shop) -> None:
    planned = shop.json("gc")
    before = shop.ids()
    done = shop.json("gc --yes")
    assert planned["planned"] == done["planned"] == {**planned["planned"], "orphan": {"objects": 0, "bytes": 0}}
    assert [(each["object_id"], each["reason"]) for each in planned["objects"]] == [
        *((each.object_id, "retired") for each in shop.sources[:2]),
        (shop.promised_id, "prepared"),
    ]
    assert list(planned) == list(done)
    assert {each["outcome"] for each in planned["objects"]} == {"planned"}
    assert {each["outcome"] for each in done["objects"]} == {"deleted"}
    assert (planned["dry_run"], done["dry_run"], done["done"]["deleted"]["objects"]) == (True, False, 3)
    assert before - shop.ids() == {each["object_id"] for each in planned["objects"]}
    assert done["journals"] == [info.key for info in shop.store.list(JOURNAL_PREFIX)]
    assert shop.run("verify").exit_code == 0


def test_what_nothing_proves_to_be_ours_is_counted_and_shown_and_deleted_by_its_id_alone(shop: Shop) -> None:
    replaced = shop.sources[0].object_id
    shop.store.put(LAYOUT.object_key(replaced), write_set_object([(1, 7, 8)]))
    unproven = {"objects": 1, "bytes": shop.sources[0].size_bytes}
    for arguments in ((), ("--yes",), ("--yes",)):
        found = shop.json("gc", *arguments)
        assert found["unproven"] == unproven
        assert [each["object_id"] for each in found["objects"] if each["outcome"] == "unproven"] == [replaced]
    assert shop.json("status")["delete_pending"] == unproven
    assert "delete pending: 1 object, " in shop.run("status").stdout
    text = shop.run("gc").stdout
    assert "left alone  1 object of " in text
    assert "that nothing proves to be of this catalog" in text
    seen = shop.json("gc --id", str(replaced))
    assert (seen["mark"], seen["dry_run"], seen["size_bytes"]) == (None, True, shop.sources[0].size_bytes)
    assert replaced in shop.ids()
    lines = shop.run("gc --id", str(replaced), "--yes").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["object", "size", "written", "mark", "tail", "catalog", "deleted"]
    assert replaced not in shop.ids()
    assert shop.json("status")["delete_pending"]["objects"] == 0
    refused = shop.run("gc --id", str(shop.target.object_id), "--yes")
    assert (refused.exit_code, shop.target.object_id in shop.ids()) == (1, True)


def empty_the_list(shop: Shop) -> None:
    with shop.open() as catalog:
        catalog.parts.keys.node_list(4).change(
            lambda now: replace(now, live=now.live[:0]) if now is not None and len(now.live) else None
        )


def test_an_empty_list_is_refused_unless_it_is_allowed(shop: Shop) -> None:
    empty_the_list(shop)
    before = shop.state()
    refused = shop.run("gc --yes --output json")
    error = json.loads(refused.stderr.splitlines()[-1])
    assert (refused.exit_code, refused.stdout, error["type"]) == (1, "", "MaintenanceRefused")
    assert "nothing was changed" in error["advice"]
    assert {key: etag for key, etag in shop.state().items() if "/job-runs/" not in key} == before
    assert shop.run("gc --allow-empty-node 3").exit_code == 1
    assert shop.run("gc --allow-empty-node 3 --allow-empty-node 4").exit_code == 0


def test_a_collection_that_ends_half_way_tells_what_it_did(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop.open() as catalog:
        for object_id in catalog.parts.ids.take(1000):
            shop.store.put(LAYOUT.object_key(object_id), b"orphan", mark=new_mark(shop.store, object_id))
    delete_many = MemoryStore.delete_many

    def delete_and_damage(self: MemoryStore, keys: Any) -> Any:
        empty_the_list(shop)
        return delete_many(self, keys)

    monkeypatch.setattr(MemoryStore, "delete_many", delete_and_damage)
    result = shop.run("gc --yes --output json --quiet")
    done, error = json.loads(result.stdout), json.loads(result.stderr)
    assert (result.exit_code, error["type"]) == (1, "MaintenanceStopped")
    assert done["done"]["deleted"]["objects"] == 1000
    assert (
        done["done"]["not reached"]["objects"] == sum(each["objects"] for each in done["planned"].values()) - 1000 > 0
    )
    assert done["journals"] == [info.key for info in shop.store.list(JOURNAL_PREFIX)]
    assert done["journals"][0] in error["message"]
    assert "nothing was changed" not in error["advice"]


def test_objects_that_could_not_be_deleted_end_with_1(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def stubborn(self: MemoryStore, keys: Any) -> list[DeleteFailure]:
        del self
        return [DeleteFailure(key, StoreUnavailable("delete", key, "busy")) for key in keys]

    monkeypatch.setattr(MemoryStore, "delete_many", stubborn)
    result = shop.run("gc --yes")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "0 objects of 0 B deleted, 3 failed"
    assert "busy" in result.stdout


# undo


# restored


def test_restored_shows_first_and_then_does_it(shop: Shop) -> None:
    before = shop.state()
    shown = shop.json("restored")
    assert (shown["dry_run"], shown["generation"], shown["generation_before"]) == (True, "", "")
    assert shown["highest_object_id"] < shown["next_object_id_before"] < shown["next_object_id"]
    assert shop.run("restored").stdout.splitlines()[-1] == "dry run: nothing was changed (--yes does it)"
    assert shop.state() == before
    done = shop.json("restored --yes")
    assert not done["dry_run"]
    assert done["generation"] > ""
    assert done["epochs_before"] == {"4": 1}
    assert {name: each["before"] for name, each in done["counters"].items()} == {
        "segmentStreams": 0,
        "transactionIds": 0,
    }
    with shop.open() as catalog:
        assert catalog.format.generation == done["generation"]
        [new] = catalog.prepare(4, 1)
        assert new >= shown["next_object_id"]
    assert shop.run("verify").exit_code == 0


# undo


def test_undo_lists_the_versions(shop: Shop) -> None:
    before = shop.state()
    found = shop.json("undo --node 4")
    [version] = found["versions"]
    assert (version["objects"], version["way"], version["reason"]) == (3, "possible", "")
    assert version["bytes"] == sum(each.size_bytes for each in shop.sources)
    text = shop.run("undo --node 4").stdout
    assert "sequence   replaced at " in text
    assert text.splitlines()[2].split()[0] == str(version["sequence"])
    assert text.splitlines()[2].endswith("possible")
    assert shop.state() == before


def test_undo_shows_first_and_then_does_it(shop: Shop) -> None:
    [version] = shop.json("undo --node 4")["versions"]
    choice = ("--node", "4", "--to", str(version["sequence"]))
    before = shop.state()
    planned = shop.run("undo", *choice)
    assert shop.state() == before
    back = ", ".join(str(each.object_id) for each in shop.sources[:2])
    assert planned.stdout.splitlines()[:2] == [
        f"back    2 objects: {back}",
        f"gone    1 object: {shop.target.object_id}",
    ]
    assert planned.stdout.endswith(f"leads to version {version['sequence']} (--yes does it)\n")
    done = shop.json("undo", *choice, "--yes")
    assert (done["dry_run"], done["changed"], done["finished"]) == (False, True, [])
    assert done["revived"] == [each.object_id for each in shop.sources[:2]]
    with shop.open() as catalog:
        assert catalog.refresh().nodes[4].refs == tuple(shop.sources)
    again = shop.run("undo", *choice, "--yes")
    assert "the list has exactly the objects of version" in again.stdout
    assert shop.run("verify").exit_code == 0


def test_a_version_whose_objects_are_gone_cannot_be_put_back(shop: Shop) -> None:
    shop.run("gc --yes")
    [version] = shop.json("undo --node 4")["versions"]
    assert version["way"] == "not possible"
    assert "collected" in version["reason"]
    assert "collected" in shop.run("undo --node 4").stdout
    refused = shop.run("undo --node 4 --to", str(version["sequence"]), "--output", "json")
    assert (refused.exit_code, json.loads(refused.stderr)["type"]) == (1, "CommitRefused")


def test_an_undo_that_ended_half_way_is_told_and_finished(shop: Shop) -> None:
    def half_done() -> None:
        with shop.open(CrashStore(shop.store, 2)) as dying, pytest.raises(Crash):
            undo(dying, 4)

    half_done()
    with shop.open() as catalog:
        assert unfinished_commits(catalog, 4)
    listed = shop.run("undo --node 4")
    assert "an earlier undo of 1 commit ended half-way (--yes without --to finishes it)" in listed.stdout
    done = shop.run("undo --node 4 --yes")
    assert done.stdout == "node 4: an earlier undo of 1 commit had ended half-way and is finished\n"
    with shop.open() as catalog:
        assert not unfinished_commits(catalog, 4)


def test_yes_without_a_version_is_wrong_usage_where_nothing_is_half_done(shop: Shop) -> None:
    before = shop.state()
    result = shop.run("undo --node 4 --yes")
    assert result.exit_code == 2
    assert "--to" in result.stderr
    assert shop.state() == before


def test_a_node_without_earlier_versions_says_so(shop: Shop) -> None:
    with shop.open() as catalog:
        catalog.open_node(5)
    assert shop.run("undo --node 5").stdout == "node 5: no earlier version is kept\n"


# repair


def test_sketching_shows_first_and_then_does_it(shop: Shop) -> None:
    with shop.open() as catalog:
        wrong = sketch_rows([(shop.target.object_id, StreamSketch.build(np.array([7])))])
        catalog.parts.keys.node_list(4).change(
            lambda now: None if now is None or np.array_equal(now.sketches, wrong) else replace(now, sketches=wrong)
        )
    before, ids = shop.state(), (shop.sources[2].object_id, shop.target.object_id)
    shown = shop.run("repair --sketches 4").stdout.splitlines()
    assert shown == [
        "node 4: 2 objects opened",
        f"  1 object would be sketched that had no sketch: {ids[0]}",
        f"  1 object would be sketched that had one that hides a stream: {ids[1]}",
        "nothing was written: repeat it with --yes",
    ]
    assert shop.state() == before
    expected = {"node_id": 4, "objects": 2, "missing": [ids[0]], "wrong": [ids[1]]}
    assert shop.json("repair --sketches 4") == {"dry_run": True, **expected}
    assert shop.json("repair --sketches 4 --yes") == {"dry_run": False, **expected}
    assert shop.run("verify").exit_code == 0
    again = shop.run("repair --sketches 4 --yes").stdout
    assert again == "node 4: 2 objects opened, and all sketches are correct: nothing to do\n"


def test_an_object_is_given_up_only_with_yes_and_the_ranges_that_are_lost_are_named(shop: Shop) -> None:
    gone = shop.target.object_id
    shop.remove(gone)
    before = shop.state()
    told = shop.run(f"repair --give-up {gone}")
    assert (told.exit_code, shop.state()) == (0, before)
    assert f"object {gone} of node 4" in told.stdout
    assert "lost at most: stream 1, offsets [0, " in told.stdout
    done = shop.json(f"repair --give-up {gone} --yes")
    assert (done["dry_run"], [each["object_id"] for each in done["given_up"]]) == (False, [gone])
    assert "found it in none" in shop.run(f"repair --give-up {gone}").stderr
    assert shop.run("verify").exit_code == 0


def test_a_collection_aborts_uploads_that_dead_processes_left(shop: Shop) -> None:
    layout = ObjectLayout(namespace="shop", catalog_id="c" * 32)
    for object_id in (900, 901):
        start_upload(shop.store, layout.object_key(object_id), str(layout.mark(object_id, lambda: bytes(16))))
    assert shop.json("gc")["uploads"] == {"planned": 2, "aborted": 0, "failed": 0}
    assert "uploads     2 unfinished multipart uploads: would be aborted" in shop.run("gc").stdout
    assert "2 unfinished multipart uploads: aborted, 0 failed" in shop.run("gc --yes").stdout
    assert shop.json("gc")["uploads"] == {"planned": 0, "aborted": 0, "failed": 0}
    assert [*shop.store.list(UPLOADS_PREFIX)] == []
