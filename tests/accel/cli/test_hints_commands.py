"""`accel catalog status` shows hints: what lies there, how old and good it is."""

from __future__ import annotations

from typing import Any

import pybloom_live
import pytest

from accel.cli.catalog import status as status_module
from loaders.hints import read_pack_root
from loaders.layout import HintKind, hint_root_key
from tests.accel.cli.test_catalog_jobs import NODE, Shop, shop
from tests.spark_jobs.worlds import NAMESPACE, fill

__all__ = ["shop"]


def shown(shop: Shop, *args: str, code: int = 0) -> dict[str, Any]:
    """What `catalog status` says of hints, by kind."""
    return {each["kind"]: each for each in shop.json("status", "--exact", *args, code=code)["hints"]}


def damage(shop: Shop, key: str) -> None:
    body = bytearray(shop.store.get(key).body)
    body[len(body) // 2] ^= 1
    shop.store.put(key, bytes(body))


def test_what_is_missing_is_told_and_is_no_problem(shop: Shop) -> None:
    found = shown(shop, "--check-hints")
    assert {kind: each["trouble"] for kind, each in found.items()} == {"packs": "missing", "snapshots": "missing"}
    assert [each["covered"] for each in found.values()] == [0, 0]
    assert "12 of 12 objects not covered" in shop.run("status --exact").stdout


def test_age_size_and_coverage_are_shown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.json("build-hints")
    generation = read_pack_root(shop.store, NAMESPACE, NODE).generation
    monkeypatch.setattr(status_module, "SYSTEM", _Clock(generation / 1000 + 90))
    fill(shop.store, NODE, [[(1, 6, 7)]])
    pack, snapshot = shown(shop)["packs"], shown(shop)["snapshots"]
    assert pack["age_seconds"] == pytest.approx(90)
    assert (pack["entries"], pack["covered"], pack["listed"], pack["unlisted"]) == (6, 6, 7, 0)
    assert (snapshot["covered"], snapshot["listed"], snapshot["entries"]) == (6, 7, 12)
    parts = [each for each in shop.store.list("accel/hints/packs/") if not each.key.endswith("root")]
    assert pack["size_bytes"] == sum(each.size_bytes for each in parts)
    assert pack["check"] is None
    assert "2 of 14 objects not covered" in shop.run("status --exact").stdout
    assert "all usable" in shop.run("status --exact").stdout


class _Clock:
    """A system whose clock stands still."""

    def __init__(self, now: float) -> None:
        self._now = now

    def clock(self) -> float:
        return self._now

    def timer(self) -> float:
        return self._now


def test_a_check_reads_every_filter_with_pybloom_live(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.json("build-hints")
    check = shown(shop, "--check-hints", "--node", str(NODE))["packs"]["check"]
    assert (check["read"], check["unreadable"], check["bad"], check["differing"]) == (6, 0, 0, 0)
    assert 0 < check["worst_share"] < 0.0125
    assert 0 < check["false_positive_share"] < 0.0125
    monkeypatch.setattr(pybloom_live.BloomFilter, "__contains__", lambda *_: True)
    assert shown(shop, "--check-hints", code=3)["packs"]["check"]["differing"] == 6
    assert "6 other to pybloom-live" in shop.run("status", "--check-hints").stdout
    assert "some must be rebuilt: accel catalog build-hints" in shop.run("status", "--check-hints").stdout


def test_damaged_filters_are_found_by_a_check_only(shop: Shop) -> None:
    shop.json("build-hints")
    root = read_pack_root(shop.store, NAMESPACE, NODE)
    damage(shop, root.part_key(0))
    assert shown(shop)["packs"]["trouble"] is None
    check = shown(shop, "--check-hints", code=3)["packs"]["check"]
    assert (check["read"], check["unreadable"]) == (5, 1)
    shop.store.delete(root.part_key(0))
    check = shown(shop, "--check-hints", code=3)["packs"]["check"]
    assert (check["read"], check["unreadable"], check["worst_share"]) == (0, 6, None)


@pytest.mark.parametrize("kind", list(HintKind))
def test_a_damaged_root_is_told_with_its_key(shop: Shop, kind: HintKind) -> None:
    shop.json("build-hints")
    damage(shop, hint_root_key(kind, NODE))
    assert shown(shop, code=3)[kind.value]["trouble"] == "corrupt"
    assert f"unusable: node {NODE}: hint '{hint_root_key(kind, NODE)}' is corrupt" in shop.run("status --exact").stdout


def test_a_node_that_is_not_there_is_refused(shop: Shop) -> None:
    result = shop.run("status --node 77")
    assert result.exit_code == 1
    assert "error: expected nodes of this catalog (4), found 77" in result.stderr
