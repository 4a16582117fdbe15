"""`accel stream retention` truncates one stream or all of a scope, and tells what became of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from accel.cli.stream import history
from accel.history.rules.states import StreamState
from accel.history.store import StreamStore
from accel.history.store.retention_workflow import Retained
from tests.accel.cli.test_history_commands import Shop
from tests.accel.cli.worlds import run
from tests.conformance.steps import set_state

NOTHING = dict.fromkeys((each.value for each in Retained), 0)


@pytest.fixture
def shop() -> Shop:
    made = Shop()
    StreamStore.open(made.store).create_scope("shop")
    return made


def recorded(shop: Shop, time_ms: int, size: int, name: str = "orders") -> None:
    """A cut that the process recorded that holds the segment."""
    shop.held({"0@0": size}, name).retention.retain(time_ms)


def add(shop: Shop, *names: str, keep: str = "--keep 1s") -> None:
    for each in names:
        shop.done(f"stream create --stream {each} --time 1000 {keep}")


def whole_scope(shop: Shop, time: str, *others: str) -> Result:
    named = ("--store", shop.url, "--scope", "shop", "--data-elsewhere", "--time", time)
    return run("stream", "retention", "--yes", *named, *others)


def row(outcome: str, time_ms: int | None = None, size: int | None = None, stream: str = "orders") -> dict[str, Any]:
    known = {"recording_time_ms": time_ms, "size": size, "error": ""}
    return {"stream": f"shop/{stream}", "outcome": outcome, **known}


def test_retention_records_cuts_and_truncates(shop: Shop) -> None:
    add(shop, "orders")
    first = shop.json("stream retention --yes --time 2000")
    assert first == {"dry_run": False, "streams": [row("recorded")], "totals": {**NOTHING, "recorded": 1}}
    found = shop.json("stream retention --yes --time 3000")
    assert found == {"dry_run": False, "streams": [row("truncated", 2000, 0)], "totals": {**NOTHING, "truncated": 1}}
    listed = shop.json("stream cuts")
    assert [(each["recording_time_ms"], each["size"]) for each in listed["cuts"]] == [(2000, 0), (3000, 0)]
    assert shop.json("stream cuts --limit 1")["left_out"] == 1
    assert shop.json("stream cuts --recorded 3000")["cut"] == {"0@0": 0}
    assert shop.refusal("stream cuts --recorded 77") == (1, "NotInHistory")
    assert shop.json("stream describe")["head"] == {"0@0": 0}
    shop.done("stream retention --yes --time 4000")
    assert [each["recording_time_ms"] for each in shop.json("stream cuts")["cuts"]] == [3000, 4000]


@pytest.mark.parametrize("as_file", [False, True])
def test_retention_waits_for_readers(shop: Shop, tmp_path: Path, *, as_file: bool) -> None:
    add(shop, "orders")
    recorded(shop, 2000, 10)
    shop.held({"0@0": 30}).scale(["0@0"], [(0.0, 0.5), (0.5, 1.0)], 2500)
    for time in ("3000", "4000"):
        shop.done(f"stream retention --yes --time {time} --read-at 0@0=0")
    read = "--read-at 0@0=20"
    if as_file:
        (tmp_path / "cut.json").write_text('{"0@0": 20}')
        read = f"--read-by-all {tmp_path / 'cut.json'}"
    [found] = shop.json(f"stream retention --yes --time 5000 {read}")["streams"]
    assert found == row("truncated", 2000, 10)


def test_a_cut_without_segments_does_not_count_as_no_readers(shop: Shop, tmp_path: Path) -> None:
    add(shop, "orders")
    shop.done("stream retention --yes --time 2000")
    (tmp_path / "cut.json").write_text("{}")
    shop.done(f"stream retention --yes --time 3000 --read-by-all {tmp_path / 'cut.json'}", code=2)
    assert len(shop.json("stream cuts")["cuts"]) == 1


def test_a_scope_without_streams_has_nothing_to_retain(shop: Shop) -> None:
    assert whole_scope(shop, "2000").stdout == "no streams\n"
    assert json.loads(whole_scope(shop, "2000", "--output", "json").stdout) == {
        "dry_run": False,
        "streams": [],
        "totals": NOTHING,
    }


def test_people_are_told_of_truncations_and_of_what_went_wrong(shop: Shop) -> None:
    add(shop, "one", "two", "three")
    add(shop, "free", keep="")
    recorded(shop, 1500, 10, "two")
    store = StreamStore.open(shop.store)
    set_state(store.stream("shop", "three"), StreamState.SCALING)
    whole_scope(shop, "2000")
    found = whole_scope(shop, "3000")
    assert found.exit_code == 1
    lines = [" ".join(each.split()) for each in found.stdout.splitlines() if each.strip(" ─")]
    assert lines[:4] == [
        "stream outcome cut size before it",
        "shop/one truncated 1970-01-01T00:00:02.000Z 0",
        "shop/three busy",
        "shop/two failed",
    ]
    assert lines[4].startswith("busy: shop/three: OperationNotAllowed: ")
    assert lines[5].startswith("failed: shop/two: InvalidArgument: ")
    assert lines[6:] == ["4 streams: 1 truncated, 1 no policy, 1 busy, 1 failed"]


def test_only_so_many_streams_are_shown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SHOWN_STREAMS_MAX", 2)
    add(shop, "one", "two", "three")
    whole_scope(shop, "2000")
    lines = whole_scope(shop, "3000").stdout.splitlines()
    assert sum("1970" in each for each in lines) == 2
    assert lines[-2:] == ["... and 1 more", "3 streams: 3 truncated"]


def test_offsets_of_readers_need_a_stream(shop: Shop) -> None:
    assert whole_scope(shop, "2000", "--read-at", "0@0=1").exit_code == 2


def test_without_yes_nothing_is_recorded_or_truncated_and_it_is_told_what_would_be(shop: Shop) -> None:
    add(shop, "one", "two")
    add(shop, "free", keep="")
    whole_scope(shop, "2000")
    before = shop.state()
    dry = ("stream", "retention", "--store", shop.url, "--scope", "shop", "--data-elsewhere", "--time", "3000")
    planned = json.loads(run(*dry, "--output", "json").stdout)
    text = [" ".join(each.split()) for each in run(*dry).stdout.splitlines()]
    alone = shop.json("stream retention --stream one --time 3000")
    assert shop.state() == before
    assert planned["dry_run"]
    assert "shop/one would be truncated 1970-01-01T00:00:02.000Z 0" in text
    assert text[-1] == "dry run: 3 streams: 2 truncated, 1 no policy (--yes does it)"
    done = json.loads(whole_scope(shop, "3000", "--output", "json").stdout)
    assert planned == done | {"dry_run": True}
    assert alone["streams"] == [row("truncated", 2000, 0, "one")]
