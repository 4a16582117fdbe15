"""`accel repair` names what is wrong, and rebuilds it with --yes."""

from __future__ import annotations

import json

import pytest

from accel.cli import repair
from loaders.store import ObjectStore
from tests.accel.cli.test_history_commands import Shop
from tests.accel.cli.worlds import run


@pytest.fixture
def shop() -> Shop:
    made = Shop()
    made.done("stream create --time 1000")
    made.held({"0@0": 7}).scale(["0@0"], [(0.0, 0.5), (0.5, 1.0)], 2000)
    return made


def damage(shop: Shop, name: str) -> tuple[ObjectStore, str]:
    store = shop.store
    key = next(info.key for info in store.list("") if info.key.endswith(f"/{name}"))
    store.put(key, store.get(key).body[:100])
    return store, key


def test_a_dry_run_names_what_can_be_rebuilt_and_changes_nothing(shop: Shop) -> None:
    store, key = damage(shop, "historyIndex")
    assert shop.refusal("stream history --to 9000") == (1, "CorruptObject")
    before = store.get(key).body
    text = shop.done("repair --stream orders")
    assert "historyIndex: can be rebuilt" in text
    assert "from:  the times of the epoch records" in text
    assert text.endswith("dry run: 1 record of shop/orders: 1 can be rebuilt (--yes rebuilds)\n")
    assert store.get(key).body == before
    done = shop.json("repair --stream orders --yes")
    assert [(each["key"], each["outcome"]) for each in done["findings"]] == [("historyIndex", "rebuilt")]
    assert done["findings"][0]["table"].startswith("shop/orders/metadata.#.")
    assert "2 segments" not in shop.done("repair --stream orders")
    assert len(shop.done("stream history --to 9000").splitlines()) == 2


def test_what_cannot_be_rebuilt_is_named_and_the_command_ends_with_1(shop: Shop) -> None:
    damage(shop, "segmentsSealedSizeMapShard-0")
    found = shop.run("repair --stream orders --yes --output json")
    assert found.exit_code == 1
    (finding,) = json.loads(found.stdout)["findings"]
    assert finding["outcome"] == "cannot be rebuilt"
    assert finding["remedy"] == "pass the sizes of 0@0, which the host has"
    assert "rebuilt" in shop.done("repair --stream orders --size 0@0=7 --yes")
    assert shop.stream.cuts.sealed_size(0) == 7


def test_the_text_names_the_first_findings_only(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "SHOWN_FINDINGS_MAX", 1)
    for each in ("historyIndex", "creationTime"):
        damage(shop, each)
    text = shop.done("repair --stream orders")
    assert "... and 1 more\n" in text
    assert "creationTime" not in text


def test_a_run_that_did_not_see_everything_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.repair.findings.FINDINGS_MAX", 1)
    damage(shop, "historyIndex")
    found = shop.run("repair --stream orders --yes")
    assert found.exit_code == 1
    assert "not all records were read" in found.stdout
    assert run("repair", "--store", shop.url, "--stream", "orders").exit_code == 2
