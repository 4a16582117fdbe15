"""`accel catalog run-all`: one report of three commands, and what a failure of one leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from accel.cli import engines
from accel.cli.catalog.run_all import Step, run_steps, shown_steps
from accel.errors import CatalogMissing, StoreUnavailable
from accel.rendering import Output, said
from tests.accel.cli.test_catalog_jobs import Shop, shop
from tests.accel.cli.worlds import Bucket

__all__ = ["shop"]

EARLY = ("--max-objects-per-node", "3", "--min-age", "0s")


def asked(shop: Shop, *args: str, code: int = 0) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = shop.json("run-all", *args, code=code)["steps"]
    return steps


def test_the_three_are_carried_out_in_order_and_told_in_one_document(shop: Shop) -> None:
    compact, hints, gc = asked(shop, *EARLY, "--yes")
    assert [(each["step"], each["status"], each["why"]) for each in (compact, hints, gc)] == [
        *(("compact", "done", None), ("build-hints", "done", None), ("gc", "done", None))
    ]
    assert all(each["seconds"] >= 0 for each in (compact, hints, gc))
    assert shop.objects < 6
    covered = hints["result"]["report"]["covered_objects"]
    assert covered == shop.objects, "hints are of what the compaction left"
    assert gc["result"]["dry_run"] is False


def test_a_dry_run_is_one_of_all(shop: Shop) -> None:
    before = shop.state()
    steps = asked(shop, *EARLY, "--dry-run", "--yes")
    assert [each["result"]["dry_run"] for each in steps] == [True] * 3
    assert shop.state() == before
    text = shop.run("run-all --dry-run", *EARLY).stdout.splitlines()
    assert [line for line in text if line.startswith("==")] == ["== compact", "== build-hints", "== gc"]
    assert [line.split()[:2] for line in text[-3:]] == [["compact", "done"], ["build-hints", "done"], ["gc", "done"]]


def test_where_there_is_no_catalog_nothing_else_is_tried() -> None:
    compact, hints, gc = Bucket().json("catalog run-all --yes", code=1)["steps"]
    assert (compact["status"], hints["status"], gc["status"]) == ("failed", "skipped", "skipped")
    assert compact["why"].startswith(f"{CatalogMissing.__name__}: ")
    assert hints["why"] == gc["why"] == "it needs compact"


def test_hints_that_fail_do_not_hold_up_the_collection(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreUnavailable("get", "accel/hints", "no answer")

    monkeypatch.setattr(engines, "build_hints", broken)
    compact, hints, gc = asked(shop, *EARLY, "--yes", code=1)
    assert (compact["status"], hints["status"], gc["status"]) == ("done", "failed", "done")
    assert "no answer" in hints["why"]


@pytest.mark.parametrize(
    ("codes", "statuses", "code"),
    [
        ((0, 0, 0), ["done", "done", "done"], 0),
        ((4, 0, 0), ["partial", "done", "done"], 4),
        ((1, 0, 0), ["failed", "skipped", "skipped"], 1),
        ((4, 1, 0), ["partial", "failed", "done"], 1),
        ((0, 0, 1), ["done", "done", "failed"], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_step(codes: tuple[int, int, int], statuses: list[str], code: int) -> None:
    times = iter(range(100))

    def step(name: str, needs: tuple[str, ...], code: int) -> Step:
        def carry_out(output: Output) -> int:
            output.show(said(f"{name} says this", name=name))
            return code

        return Step(name, needs, carry_out)

    needs: list[tuple[str, ...]] = [(), ("a",), ("a",)]
    steps = [step(name, need, each) for name, need, each in zip("abc", needs, codes, strict=True)]
    ended, found = run_steps(steps, Output(is_quiet=True), lambda: float(next(times)))
    assert ([each.status for each in ended], found) == (statuses, code)
    assert [each.seconds for each in ended if each.status != "skipped"] == [1.0] * (3 - statuses.count("skipped"))
    lines = [str(line) for line in shown_steps(ended).lines]
    assert [line for line in lines if line.endswith("says this")] == [
        f"{each.name} says this" for each in ended if each.status != "skipped"
    ]
