"""`accel catalog compact` and `build-hints`: what they print, change and end with."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from accel.catalog import ObjectCatalog
from accel.compaction import Status, attempts, work_on
from accel.hint_building import building, filters
from loaders.hints import SnapshotReader, read_pack_root
from loaders.layout import HINTS_PREFIX
from tests.accel.cli.worlds import Bucket
from tests.spark_jobs.worlds import NAMESPACE, fill, lose, make_catalog

NODE = 4
YOUNG = ("--min-age", "0s")


class Shop(Bucket):
    """A node with six objects."""

    def __init__(self) -> None:
        super().__init__()
        make_catalog(self.store)
        fill(self.store, NODE, [[(1, at, at + 1), (100 + at, 0, 9)] for at in range(6)])

    def run(self, line: str, *words: str, stdin: bytes | None = None) -> Result:
        return super().run(f"catalog {line}", *words, stdin=stdin)

    @property
    def objects(self) -> int:
        with ObjectCatalog.open(self.store) as catalog:
            return len(catalog.image().nodes[NODE])


@pytest.fixture
def shop() -> Shop:
    return Shop()


def hints(shop: Shop) -> list[str]:
    return [each.key for each in shop.store.list(HINTS_PREFIX)]


def test_a_dry_run_over_young_objects_says_why_nothing_is_done(shop: Shop) -> None:
    result = shop.run("compact", "--max-objects-per-node", "3", "--dry-run")
    assert "left alone: 6 objects of node 4: younger than min_age_seconds = 3600" in result.stdout
    assert "dry run: nothing to do, for the reasons above" in result.stdout
    plan = shop.json("compact", "--max-objects-per-node", "3", "--dry-run")["plan"]
    assert (plan["groups"], len(plan["skipped"][0]["object_ids"])) == ([], 6)


def test_a_dry_run_shows_the_plan_and_changes_nothing(shop: Shop) -> None:
    result = shop.run("compact", "--max-objects-per-node", "3", *YOUNG, "--dry-run")
    assert "dry run: " in result.stdout
    assert "would become 1 and 0 stream objects" in result.stdout
    assert shop.objects == 6


def test_what_another_run_compacted_ends_with_0_and_a_word(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = work_on

    def overtaken(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr("accel.compaction.running.work_on", whole)
        assert shop.run("compact", "--max-objects-per-node", "2", *YOUNG).exit_code == 0
        return whole(*args, **named)

    monkeypatch.setattr("accel.compaction.running.work_on", overtaken)
    result = shop.run("compact", "--max-objects-per-node", "3", *YOUNG)
    assert result.exit_code == 0, result.output
    assert f"{Status.LOST}: node 4" in result.stdout
    assert "1 left to another run" in result.stdout


def test_both_hints_in_one_pass_and_then_nothing(shop: Shop) -> None:
    report = shop.json("build-hints")["report"]
    assert (report["opened_objects"], report["added_filters"], report["covered_objects"]) == (6, 6, 6)
    assert len(read_pack_root(shop.store, NAMESPACE, NODE).entries) == 6
    assert len(SnapshotReader(shop.store, NAMESPACE, lambda: 0.0).read_entries(NODE, 1)) == 6
    again = shop.run("build-hints", "--dry-run")
    assert "nothing to do: the hints of all nodes cover exactly the listed objects" in again.stdout
    assert shop.json("build-hints")["report"]["requests"] == 4


@pytest.mark.parametrize(
    ("only", "kind", "told"),
    [
        ("filters", "packs", "filters: 6 added, 0 dropped, 0 kept; 6 objects opened"),
        ("snapshots", "snapshots", "snapshots: 6 of 6 objects covered; 6 objects opened"),
    ],
)
def test_one_kind_alone(shop: Shop, only: str, kind: str, told: str) -> None:
    command = ("build-hints", "--only", only)
    planned = shop.run(*command, "--dry-run")
    assert "6 objects would be opened" in planned.stdout
    assert hints(shop) == []
    result = shop.run(*command)
    assert result.exit_code == 0
    assert told in result.stdout
    assert {key.split("/")[2] for key in hints(shop)} == {kind}
    fill(shop.store, NODE, [[(200, 0, 3)]])
    assert "1 object opened" in shop.run(*command).stdout
    assert "7 objects opened" in shop.run(*command, "--all").stdout


def test_an_object_that_is_lost_is_told_and_ends_with_4(shop: Shop) -> None:
    with ObjectCatalog.open(shop.store) as catalog:
        gone = int(catalog.image().nodes[NODE].object_ids[2])
    lose(shop.store, gone)
    report = shop.json("build-hints", code=4)["report"]
    [failure] = report["per_node"][0]["failures"]
    assert (failure["object_id"], report["failed_objects"]) == (gone, 1)
    assert "KeyMissing" in failure["reason"]
    assert f"left alone: object {gone} of node 4" in shop.run("build-hints").stdout
    assert f"object {gone} of node 4: no object is at its key; set aside by 1 run" in shop.run("status").stdout


def test_a_run_that_was_overtaken_ends_with_0_and_a_word(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*_: Any) -> None:
        raise filters.Overtaken

    monkeypatch.setattr(building, "write_filters", overtaken)
    result = shop.run("build-hints")
    assert result.exit_code == 0
    assert "node 4: another run wrote a newer pack meanwhile; that one is used" in result.stdout


def test_a_node_that_is_not_there_is_a_failure(shop: Shop) -> None:
    result = shop.run("build-hints", "--node", "5")
    assert result.exit_code == 1
    assert "expected nodes of this catalog (4), found 5" in result.stderr


def test_bad_filters_are_looked_for_only_where_there_are_filters(shop: Shop) -> None:
    assert shop.run("build-hints", "--only", "snapshots", "--only-bad").exit_code == 2
    assert shop.run("build-hints", "--only-bad", "--all").exit_code == 2
    assert shop.run("build-hints", "--only", "filters").exit_code == 0
    assert shop.json("build-hints", "--only", "filters", "--only-bad")["report"]["opened_objects"] == 0


def test_settings_that_contradict_each_other_are_wrong_usage(shop: Shop) -> None:
    result = shop.run("compact", "--max-objects-per-node", "3", "--target-objects", "4")
    assert result.exit_code == 2
    assert "target_objects" in result.stderr


def and_then_a_signal(work: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The same work, during which this process gets a signal."""

    def called(*args: Any, **named: Any) -> Any:
        result = work(*args, **named)
        os.kill(os.getpid(), number)
        return result

    return called


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_compaction_after_the_present_group_with_its_report(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    handlers = signal.getsignal(number)
    monkeypatch.setattr(attempts, "commit_outcome", and_then_a_signal(attempts.commit_outcome, number))
    size = str(2 * 300)
    told = shop.json("compact", *YOUNG, "--rewrite-all", "--target-object-size", size, code=128 + number)
    statuses = [each["status"] for each in told["report"]["groups"]]
    assert statuses.count(Status.COMMITTED) == 1 < len(statuses)
    assert "stopped" in next(each["reason"] for each in told["report"]["groups"] if each["status"] == Status.FAILED)
    assert shop.objects == 5
    assert signal.getsignal(number) is handlers


def test_a_signal_ends_a_build_of_hints_and_the_code_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "write_filters", and_then_a_signal(filters.write_filters, signal.SIGTERM))
    report = shop.json("build-hints", code=128 + signal.SIGTERM)["report"]
    assert report["nodes"] == 1


def test_a_signal_ends_a_run_of_all_jobs_and_the_jobs_that_follow_are_skipped(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "commit_outcome", and_then_a_signal(attempts.commit_outcome, signal.SIGTERM))
    told = shop.json("run-all", *YOUNG, "--rewrite-all", "--yes", code=128 + signal.SIGTERM)
    assert [step["status"] for step in told["steps"]] == ["stopped", "skipped", "skipped"]
    assert told["steps"][0]["result"]["report"]["rewritten_objects"] == 6
