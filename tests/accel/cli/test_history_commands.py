"""`accel stream`, `accel scope` and `accel txn` make streams, tell their history, and change it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from accel.cli.options import StoreChoice
from accel.cli.stream.notation import (
    MOMENT_MS_MAX,
    Age,
    moment_ms,
    moment_ms_text,
    numbers_by_segment,
    parse_moment,
    parse_number,
    parse_range,
    read_cut,
)
from accel.errors import InvalidArgument
from accel.history.rules.segments import Segments
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.history.rules.values import parse_segment
from accel.history.store import GivenSizes, Stream, StreamStore
from accel.system import SYSTEM
from accel.testing import ClockStore
from loaders.store import CountingStore
from tests.accel.cli.worlds import Bucket, run
from tests.conformance.steps import begin_truncation, set_state

CUT = "--at 2@1=20 --at 3@1=90 --at 4@2=-1"
FIRST_MS = 1_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MISSING_ID = str(UUID(int=7))


class Unreachable(GivenSizes):
    """Whoever holds the segments cannot be reached."""

    def create(self, stream: tuple[str, str], segments: Segments, stream_ids: Mapping[int, int]) -> None:
        raise ConnectionError(f"cannot create {len(segments)} segments of {stream} as {stream_ids}")


class Shop(Bucket):
    """A scope, and commands on its stream ``orders``; no catalog has its data unless that is said."""

    def __init__(self, **variables: str) -> None:
        named = {"ACCEL_SCOPE": "shop", "ACCEL_STREAM": "orders", "ACCEL_DATA_ELSEWHERE": "1"}
        super().__init__(**named | variables)

    @property
    def stream(self) -> Stream:
        """The stream as programs see it."""
        return StreamStore.open(self.store).stream("shop", "orders")

    def held(self, sizes: Mapping[str, int], name: str = "orders") -> Stream:
        """The stream as a program sees it that holds segments of these sizes."""
        host = GivenSizes({parse_segment(segment): size for segment, size in sizes.items()})
        return StreamStore.open(self.store, host=host).stream("shop", name)


@pytest.fixture
def empty() -> Shop:
    """A store with nothing in it."""
    return Shop()


@pytest.fixture
def shop(empty: Shop) -> Shop:
    """The stream of the picture in docs/explanation/history.md."""
    empty.done(f"stream create --min-segments 2 --time {FIRST_MS}")
    held = empty.held({"0@0": 100, "3@1": 90, "1@0": 50})
    held.scale(["0@0"], [(0.0, 0.25), (0.25, 0.5)], 2000)
    held.scale(["3@1", "1@0"], [(0.25, 1.0)], 3000)
    return empty


def names(found: Any) -> list[str]:
    return [each["segment"] for each in found["segments"]]


def scopes(made: Shop, *options: str) -> Any:
    """The list of scopes: of streams without a scope."""
    return json.loads(run("stream", "list", "--store", made.url, "--output", "json", *options).stdout)


def test_a_stream_is_created_with_its_scope_and_scopes_are_listed(empty: Shop) -> None:
    assert scopes(empty) == {"scopes": [], "more": False}
    assert [empty.json("stream create")["created"] for _ in range(2)] == [True, False]
    empty.done("stream create --scope other")
    assert scopes(empty) == {"scopes": ["other", "shop"], "more": False}
    assert scopes(empty, "--limit", "1") == {"scopes": ["other"], "more": True}


def test_a_scope_is_deleted_only_if_that_is_said(empty: Shop) -> None:
    StreamStore.open(empty.store).create_scope("shop")
    assert empty.json("scope delete") == {"scope": "shop", "dry_run": True, "exists": True}
    assert scopes(empty)["scopes"] == ["shop"]
    empty.done("scope delete --yes")
    assert scopes(empty)["scopes"] == []
    assert empty.json("scope delete") == {"scope": "shop", "dry_run": True, "exists": False}


@pytest.mark.parametrize("flag", ["", "--yes"])
def test_a_scope_with_streams_is_not_deleted(shop: Shop, flag: str) -> None:
    assert shop.refusal(f"scope delete {flag}") == (1, "IllegalState")


def test_a_created_stream_is_described_and_listed(empty: Shop) -> None:
    wanted = "--min-segments 2 --segments 3 --keep 7d --keep-max 8d --scale-events 100 --unit bytes --tag b --tag a"
    made = empty.json(f"stream create --time 1000 {wanted}")
    assert made == empty.json("stream describe") | {"created": True}
    assert (made["stream"], made["state"], made["epoch"], made["segments"]) == ("shop/orders", "ACTIVE", 0, 3)
    assert made["configuration"] == {
        "min_segments": 2,
        "scaling": {"kind": "events a second", "target_rate": 100, "scale_factor": 2},
        "retention": {"kind": "time", "minimum": 604_800_000, "maximum": 691_200_000},
        "offset_unit": "bytes",
        "tags": ["a", "b"],
    }
    assert empty.json("stream list") == {"streams": ["orders"], "more": False}


def test_a_stream_that_is_there_stays_as_it_is(shop: Shop) -> None:
    before = shop.json("stream describe")
    for again in ("stream create", "stream create --min-segments 2"):
        assert shop.json(again) == before | {"created": False}
    assert "was there" in shop.done("stream create")
    assert shop.refusal("stream create --min-segments 7") == (1, "IllegalState")
    assert shop.json("stream describe") == before


def test_times_of_a_wrong_clock_are_named_and_given_ones_refused(shop: Shop) -> None:
    assert shop.json("stream describe")["times_ahead_until_ms"] is None
    for command in (
        "stream scale --split 2@1 --time 2036-11-25T18:00Z",
        "stream scale --merge 2@1 --merge 4@2 --time 2036-11-25T18:00Z",
        "stream create --stream carts --time 2036-11-25",
        "stream retention --time 2036-11-25 --yes --stream orders",
    ):
        if "retention" in command:
            shop.done("stream configure --keep 1h")
        assert shop.refusal(command) == (1, "InvalidArgument"), command
    wrong = replace(SYSTEM, clock=lambda: SYSTEM.clock() + 86_400)
    late = StreamStore.open(shop.store, system=wrong, host=GivenSizes({}))
    late.stream("shop", "orders").split("2@1")
    assert shop.json("stream describe")["times_ahead_until_ms"] > SYSTEM.clock() * 1000 + 80_000_000
    assert "by a wrong clock" in shop.done("stream describe")


def test_a_description_says_where_the_stream_begins(shop: Shop) -> None:
    shop.done(f"stream truncate {CUT} --yes")
    lines = shop.done("stream describe").splitlines()
    assert "begins at           2@1=20 3@1=90 4@2=-1" in lines
    assert "truncated           260 records" in lines
    assert "keeps               everything" in lines


@pytest.mark.parametrize(
    "wrong",
    [
        "--min-segments 0",
        "--segments 0",
        "--segments 1000001",
        "--keep 2d --keep-max 1d",
        "--keep-max 1d",
        "--keep 1d --keep-size 5",
        "--keep-size-max 5",
        "--scale-events 0",
        "--scale-events 1 --scale-kilobytes 1",
        "--time tomorrow",
        "--unit kilometres",
        "--stream ''",
    ],
)
def test_a_configuration_that_cannot_be_is_wrong_usage(empty: Shop, wrong: str) -> None:
    assert empty.refusal(f"stream create {wrong}")[0] == 2
    assert scopes(empty)["scopes"] == []


def test_the_segments_of_now_and_of_a_time(shop: Shop) -> None:
    assert names(shop.json("stream segments")) == ["2@1", "4@2"]
    assert names(shop.json("stream segments --at 2500")) == ["1@0", "2@1", "3@1"]
    [first, *_] = shop.json("stream segments --at 1970-01-01T00:00:01.500Z")["segments"]
    assert (first["segment"], first["key_start"], first["key_end"], first["offset"]) == ("0@0", 0.0, 0.5, 0)
    assert "3 segments at 1970-01-01T00:00:02.500Z" in shop.done("stream segments --at 2500")


def test_epochs_come_by_number(shop: Shop) -> None:
    assert [each["epoch"] for each in shop.rows("stream history")] == [0, 1, 2]
    assert [names(each) for each in shop.rows("stream history --first 1 --last 1")] == [["1@0", "2@1", "3@1"]]
    [line] = shop.done("stream history --first 2").splitlines()
    assert line == "epoch 2     1970-01-01T00:00:03.000Z  2@1 [0.0, 0.25), 4@2 [0.25, 1.0)"


def test_epochs_that_are_not_there_are_told(shop: Shop) -> None:
    assert shop.refusal("stream history --first 9") == (2, "UsageError")
    assert shop.refusal("stream history --first 9 --last 9") == (1, "NotInHistory")


def test_history_comes_by_time_with_splits_and_merges(shop: Shop) -> None:
    found = shop.rows("stream history --from 0")
    assert [(each["epoch"], each["splits"], each["merges"]) for each in found] == [(0, 0, 0), (1, 1, 0), (2, 0, 1)]
    assert [each["epoch"] for each in shop.rows("stream history --from 2500 --to 2600")] == [1]
    assert shop.refusal("stream history --from 2 --to 1")[0] == 2


def test_a_segments_followers_and_what_it_follows(shop: Shop) -> None:
    assert shop.json("stream segments --successors 1@0")["successors"] == {"4@2": ["1@0", "3@1"]}
    assert shop.json("stream segments --successors 4@2")["successors"] == {}
    assert shop.json("stream segments --predecessors 3@1")["predecessors"] == {"0@0": ["2@1", "3@1"]}
    assert shop.done("stream segments --successors 1@0") == "4@2  follows 1@0, 3@1\n"
    assert shop.refusal("stream segments --successors 9@2") == (1, "NotInHistory")


def test_a_scale_shows_the_epoch_that_follows(shop: Shop) -> None:
    found = shop.json("stream scale --seal 2@1 --range 0:0.125 --range 0.125:0.25")
    assert (found["epoch"], names(found)) == (3, ["4@2", "5@3", "6@3"])
    assert shop.stream.active_segments().ids.tolist() == [parse_segment(each) for each in names(found)]


def test_a_scale_says_which_sizes_it_does_not_know(shop: Shop) -> None:
    line = "stream scale --seal 2@1 --range 0:0.125 --range 0.125:0.25"
    assert "the size of 1 segment (2@1) counts 0" in shop.run(line).stderr


@pytest.mark.parametrize(
    ("wrong", "code", "kind"),
    [
        ("--seal 3@1 --range 0.25:0.5", 1, "ScalePrecondition"),
        ("--seal 2@1 --range 0:0.2", 1, "ScaleInputInvalid"),
        ("--seal 2@1 --seal 4@2 --range 0:1", 1, "ScalePrecondition"),
        ("--seal 2@1", 2, "UsageError"),
        ("--range 0:1", 2, "UsageError"),
        ("", 2, "UsageError"),
        ("--seal 2@1 --range 0:0.25 --split 2@1", 2, "UsageError"),
        ("--seal 2 --range 0:0.25", 2, "BadParameter"),
        ("--seal 2@1 --range 0-0.25", 2, "BadParameter"),
        ("--seal 2@1 --range nan:0.25", 2, "BadParameter"),
    ],
)
def test_a_scale_that_cannot_be_is_refused(shop: Shop, wrong: str, code: int, kind: str) -> None:
    assert shop.refusal(f"stream scale {wrong}") == (code, kind)
    assert shop.stream.current_epoch().epoch == 2


def test_a_segment_is_split_evenly_and_parts_are_merged(shop: Shop) -> None:
    found = shop.json("stream scale --split 2@1 --into 4")
    assert (found["epoch"], names(found)) == (3, ["4@2", "5@3", "6@3", "7@3", "8@3"])
    assert [each["key_end"] for each in found["segments"][1:]] == [0.0625, 0.125, 0.1875, 0.25]
    assert names(shop.json("stream scale --merge 6@3 --merge 5@3"))[-1] == "9@4"
    assert names(shop.json("stream scale --split 4@2"))[-2:] == ["10@5", "11@5"]
    assert shop.json("stream requests --epoch 2") == {
        "epoch": 2,
        "progress": "done",
        "current_epoch": 5,
        "current_epoch_ms": shop.stream.current_epoch().creation_time_ms,
        "segments": 5,
        "requests": [],
    }
    assert shop.json("stream requests")["progress"] == "none"


@pytest.mark.parametrize(
    ("wrong", "code", "kind"),
    [
        ("scale --split 3@1", 1, "ScalePrecondition"),
        ("scale --split 2@1 --into 1", 2, "BadParameter"),
        ("scale --split 2@1 --into two", 2, "BadParameter"),
        ("scale --split 2", 2, "BadParameter"),
        ("scale --into 2 --merge 2@1 --merge 4@2", 2, "UsageError"),
        ("scale --merge 2@1", 2, "UsageError"),
        ("scale --merge 2@1 --merge 2@1", 1, "InvalidArgument"),
        ("scale --merge 2@1 --merge 9@9", 1, "ScalePrecondition"),
        ("scale --merge 2@1 --merge x", 2, "BadParameter"),
        ("requests --epoch 9", 1, "InvalidArgument"),
    ],
)
def test_a_split_or_merge_that_cannot_be_is_refused(shop: Shop, wrong: str, code: int, kind: str) -> None:
    assert shop.refusal(f"stream {wrong}") == (code, kind)
    assert shop.stream.current_epoch().epoch == 2


def test_a_truncation_is_shown_before_it_is_made(shop: Shop) -> None:
    planned = shop.json(f"stream truncate {CUT}")
    assert (planned["dry_run"], planned["to_delete"], planned["size"]) == (True, ["0@0", "1@0"], 260)
    assert shop.json("stream describe")["deleted_segments"] == 0
    done = shop.json(f"stream truncate {CUT} --yes")
    assert (done["dry_run"], done["deleted_count"], done["truncated_size"]) == (False, 2, 260)


def test_a_truncation_that_was_cut_short_can_be_shown_again(shop: Shop) -> None:
    begin_truncation(shop.stream, {parse_segment("2@1"): 1, parse_segment("4@2"): 1})
    assert shop.json("stream truncate --at 2@1=1 --at 4@2=1")["to_delete"] == ["0@0", "1@0", "3@1"]
    assert shop.json("stream recover") == {"recovered": {"shop/orders": ["truncate"]}, "failed": {}}


@pytest.mark.parametrize("flag", ["", "--yes"])
@pytest.mark.parametrize("cut", ["--at 2@1=20", "--at 2@1=20 --at 3@1=1 --at 4@2=1"])
def test_a_cut_that_nobody_can_stand_at_is_refused(shop: Shop, cut: str, flag: str) -> None:
    assert shop.refusal(f"stream truncate {cut} {flag}") == (1, "InvalidArgument")


def test_a_cut_comes_from_a_file_or_from_offsets(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps({"2@1": 20, "3@1": 90, "4@2": -1}))
    assert shop.json(f"stream truncate --cut {path}") == shop.json(f"stream truncate {CUT}")
    assert shop.refusal(f"stream truncate --cut {path} {CUT}") == (2, "UsageError")
    assert shop.refusal("stream truncate") == (2, "UsageError")


@pytest.mark.parametrize("text", ["", "[]", '{"2@1": "x"}', '{"2": 1}', '{"2@1": true}', '{"2@1": 1e99}', '{"cut": 1}'])
def test_a_file_without_a_cut_is_wrong_usage(shop: Shop, tmp_path: Path, text: str) -> None:
    path = tmp_path / "cut.json"
    path.write_text(text)
    assert shop.refusal(f"stream truncate --cut {path}") == (2, "BadParameter")
    assert shop.refusal(f"stream truncate --cut {tmp_path / 'none.json'}") == (2, "BadParameter")


def test_a_shown_cut_can_be_given_back(shop: Shop, tmp_path: Path) -> None:
    shop.done(f"stream truncate {CUT} --yes")
    path = tmp_path / "head.json"
    path.write_text(shop.done("stream cuts --head --output json"))
    assert numbers_by_segment(read_cut(str(path))) == {"2@1": 20, "3@1": 90, "4@2": -1}


def test_recovery_finishes_what_was_left_behind(shop: Shop) -> None:
    assert shop.json("stream recover") == {"recovered": {}, "failed": {}}
    set_state(shop.stream, StreamState.SEALING)
    assert json.loads(run("stream", "recover", "--store", shop.url, "--data-elsewhere", "--output", "json").stdout) == {
        "recovered": {"shop/orders": ["seal"]},
        "failed": {},
    }
    assert shop.stream.state() is StreamState.SEALED
    assert shop.done("stream recover") == "nothing was left unfinished\n"


def test_a_stream_is_sealed_and_then_deleted_if_that_is_said(shop: Shop) -> None:
    for flag in ("", "--yes"):
        assert shop.refusal(f"stream delete {flag}") == (1, "IllegalState")
    for flags in ("", "--data-elsewhere", "--quiet", "--output json"):
        assert "would be sealed" in shop.done(f"stream seal {flags}") or '"dry_run": true' in shop.done(
            f"stream seal {flags}"
        )
        assert shop.stream.state() is not StreamState.SEALED
    assert shop.json("stream seal --yes") == {"stream": "shop/orders", "dry_run": False, "state": "SEALED"}
    assert shop.json("stream delete") == {"stream": "shop/orders", "dry_run": True, "exists": True}
    assert shop.json("stream list")["streams"] == ["orders"]
    shop.done("stream delete --yes")
    assert shop.json("stream list")["streams"] == []
    assert shop.json("stream delete")["exists"] is False
    shop.done("stream delete --yes")


def test_the_history_shows_the_last_twenty_epochs(empty: Shop) -> None:
    empty.done(f"stream create --time {FIRST_MS}")
    held = empty.held({})
    for epoch in range(24):
        held.scale([f"{epoch}@{epoch}"], [(0.0, 1.0)], FIRST_MS + epoch + 1)
    lines = empty.done("stream history --output json").splitlines()
    shown = [json.loads(line)["epoch"] for line in lines]
    assert shown == [*range(5, 25)]


def test_a_stream_whose_creation_was_cut_short_can_be_deleted(empty: Shop) -> None:
    store = StreamStore.open(empty.store, host=Unreachable())
    store.create_scope("shop")
    with pytest.raises(ConnectionError):
        store.create_stream("shop", "orders")
    assert empty.refusal("stream describe") == (1, "NotInHistory")
    assert empty.json("stream delete")["exists"] is True
    empty.done("stream delete --yes")
    assert empty.json("stream list")["streams"] == []


@pytest.mark.parametrize(
    "command", ["describe", "segments", "history", "seal", "cuts", "retention", "recover", "delete --stream x"]
)
def test_a_stream_that_is_not_there_is_told(shop: Shop, command: str) -> None:
    found = shop.run(f"stream {command} --stream nope")
    assert (found.exit_code, "nope" in found.output) == (int("delete" not in command), True)


@pytest.mark.parametrize(
    "command", ["scope delete", "stream create --stream orders", "stream describe --stream orders"]
)
def test_a_command_without_a_scope_is_wrong_usage(shop: Shop, command: str) -> None:
    result = run(*command.split(), "--store", shop.url)
    assert (result.exit_code, "--scope" in result.stderr) == (2, True)


def test_a_transaction_is_listed_and_aborted(shop: Shop) -> None:
    begun = str(shop.stream.transactions.begin(lease_ms=300_000, writer_id="me"))
    [listed] = shop.json("txn list")["transactions"]
    assert (listed["transaction"], listed["status"], listed["writer"]) == (begun, "OPEN", "me")
    assert listed["lease_expiry_ms"] - listed["created_ms"] == 300_000
    for _ in range(2):
        assert shop.json(f"txn abort --id {begun}")["status"] == "ABORTED"
    assert shop.json("txn list")["transactions"] == []


def test_a_transaction_of_older_segments_is_committed_by_a_roll(shop: Shop) -> None:
    begun = shop.stream.transactions.begin()
    held = shop.held({"4@2": 1})
    held.scale(["4@2"], [(0.25, 0.5), (0.5, 1.0)])
    held.transactions.seal(begun, commit=True)
    held.commit()
    assert [each["reference_epoch"] for each in shop.rows("stream history")] == [0, 1, 2, 3, 2, 3]
    assert "repeats 2: " in shop.done("stream history --first 4 --last 4")
    assert shop.refusal(f"txn abort --id {begun}") == (1, "IllegalState")


def test_to_carry_out_an_abort_can_be_left_to_others(shop: Shop) -> None:
    begun = shop.stream.transactions.begin()
    assert shop.json(f"txn abort --decide-only --id {begun}")["status"] == "ABORTING"
    assert shop.stream.transactions.status(begun) is TransactionStatus.ABORTING


def test_a_transaction_that_nobody_knows(shop: Shop) -> None:
    assert shop.refusal(f"txn abort --id {MISSING_ID}") == (1, "NotInHistory")
    assert shop.refusal("txn abort --id 7") == (2, "BadParameter")


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1_000, 1_800_000_000_500, MOMENT_MS_MAX])
def test_a_printed_moment_can_be_given_back(milliseconds: int) -> None:
    assert parse_moment(moment_ms_text(milliseconds)) == milliseconds
    assert parse_moment(str(milliseconds)) == milliseconds


def test_an_age_is_a_moment_before_the_time_of_the_store() -> None:
    assert parse_moment("1m30s ago") == Age(90_000)
    assert moment_ms(Age(90_000), lambda: 100_000) == 10_000
    with pytest.raises(InvalidArgument, match="from 1970 to 5138"):
        moment_ms(Age(90_000), lambda: 80_000)


@pytest.mark.parametrize("ahead_ms", [-400 * DAY_MS, 400 * DAY_MS])
def test_ages_in_commands_are_by_the_clock_of_the_store(
    empty: Shop, ahead_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's clock is 400 days off that of this host, or rather the host's is."""
    opened = StoreChoice.open
    true_ms = SYSTEM.clock() * 1000 - ahead_ms
    monkeypatch.setattr(
        StoreChoice, "open", lambda choice: CountingStore(ClockStore(opened(choice), lambda: true_ms / 1000))
    )
    made = empty.json("stream create --time '3h ago'")
    assert abs(true_ms - 3 * HOUR_MS - made["epoch_time_ms"]) < 60_000
    scaled = empty.json("stream scale --split 0@0 --time '2h ago'")
    assert abs(true_ms - 2 * HOUR_MS - scaled["time_ms"]) < 60_000
    assert names(empty.json("stream segments --at '150m ago'")) == ["0@0"]
    assert names(empty.json("stream segments --at '1h ago'")) == ["1@1", "2@1"]
    assert [each["epoch"] for each in empty.rows("stream history --from '1h ago'")] == [1]
    assert [each["epoch"] for each in empty.rows("stream history --to '150m ago'")] == [0]
    empty.done("stream configure --keep 1h")
    empty.done("stream retention --stream orders --time '30m ago' --yes")
    [recorded] = empty.json("stream cuts")["cuts"]
    assert abs(true_ms - HOUR_MS / 2 - recorded["recording_time_ms"]) < 60_000
    assert empty.refusal("stream segments --at '60000d ago'") == (1, "InvalidArgument")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1969-12-31", "-1", "1.5", str(MOMENT_MS_MAX + 1), "x ago", "1 AGO", "9" * 400 + "h ago"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_moment(text)


@pytest.mark.parametrize(
    "text", ["", "3@1", "3@1=", "3@1=1.5", "3=1", f"3@1={2**63}", "3@1=1_000", "3@1= 5", "3@1=" + "9" * 5000]
)
def test_what_is_no_number_of_a_segment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|written"):
        parse_number(text)


@pytest.mark.parametrize("text", ["", "0", "0:1:2", "a:b", "inf:1"])
def test_what_is_no_key_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_range(text)
