"""`accel group` makes groups, shows them, moves them; `accel stream read --group` reads as one reader of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

import accel
from accel import FormatRecord, ReaderSettings
from accel.errors import IllegalState, InvalidArgument
from accel.history.store import StreamStore
from accel.streams.group_readers import GroupReader
from accel.streams.groups import ReaderGroup
from accel.streams.rules.group_state import Lease
from accel.system import SYSTEM
from loaders.errors import StoreUnavailable
from tests.accel.cli.worlds import Bucket

EVENTS = 12


class Shop(Bucket):
    """A stream of two segments with some events, in memory."""

    def __init__(self) -> None:
        super().__init__(ACCEL_SCOPE="shop", ACCEL_STREAM="orders")
        with accel.connect(self.url, create=FormatRecord(namespace="test", stream_buckets=2)) as streams:
            streams.create_scope("shop")
            streams.create_stream("shop", "orders", segments=2)
        self.write(*range(EVENTS))

    def write(self, *numbers: int) -> None:
        with accel.connect(self.url) as streams, streams.writer("shop", "orders") as writer:
            for number in numbers:
                writer.write(b"%d" % number, key=f"key {number}")
                writer.flush()

    def read(self, *args: str) -> list[int]:
        """The events that a read of the group prints."""
        return [int(line) for line in self.done("stream read --group billing", *args).splitlines()]

    def position(self) -> dict[str, int]:
        found: dict[str, int] = self.json("group list --group billing")["position"]
        return found


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_group_is_made_once_and_listed(shop: Shop) -> None:
    assert shop.json("group list") == {"groups": [], "more": False}
    made = [shop.json("group create --group billing --from", place) for place in ("tail", "head")]
    assert [each["created"] for each in made] == [True, False]
    assert made[0]["position"] == made[1]["position"]
    assert sum(made[0]["position"].values()) == EVENTS
    assert shop.run("group list").stdout == "billing\n"


def test_reads_of_a_group_go_on_where_the_last_one_ended_and_nothing_comes_twice(shop: Shop) -> None:
    first, second = shop.read("--limit", "5"), shop.read()
    assert len(first) == 5
    assert sorted(first + second) == list(range(EVENTS))
    assert shop.read() == []
    shop.write(EVENTS)
    assert shop.read() == [EVENTS]
    assert shop.json("group list --group billing")["readers"] == []
    told = shop.run("stream read", "--group", "billing").stderr
    assert f"group billing continues at {' '.join(f'{each}={at}' for each, at in shop.position().items())}" in told


def test_a_group_shows_who_reads_what_and_how_much_is_left(shop: Shop) -> None:
    shop.read("--limit", "4")
    with accel.connect(shop.url) as streams:
        reader = streams.group_reader("shop", "orders", "billing", "one", lease_seconds=30.0)
        assert next(reader).payload
        found = shop.json("group list --group billing --behind")
        told = shop.run("group list --group billing").stdout
        reader.rebalance()
        later = shop.json("group list --group billing")
    assert (found["behind"], found["unit"]) == (EVENTS - 4, "records")
    assert [each["reader"] for each in found["segments"]] == ["one", "one"]
    assert sum(each["offset"] for each in found["segments"]) == 4
    [one] = found["readers"]
    assert (one["reader"], one["segments"], one["lease_seconds"]) == ("one", 2, 30.0)
    assert "group billing: 2 segments, 1 reader" in told
    assert "30.0 s" in told
    assert (one["lag_seconds"], found["lag_seconds"]) == (None, None), "it reported before it looked at its segments"
    assert "2 segments, 1 reader, lag unknown" in told
    assert later["readers"][0]["lag_seconds"] == later["lag_seconds"] > 0


def test_the_lag_of_a_group_whose_readers_are_silent_is_unknown_and_what_is_unread_is_shown(shop: Shop) -> None:
    shop.read("--limit", "4")
    left = shop.json("group list --group billing")
    assert (left["lag_seconds"], left["behind"], left["readers"]) == (None, EVENTS - 4, [])
    with accel.connect(shop.url) as streams:
        group = streams.group("shop", "orders", "billing")
        late = SYSTEM.clock() - 60.0
        system = replace(SYSTEM, clock=lambda: late)
        silent = ReaderGroup.open(StreamStore.open(streams.store, system=system).stream("shop", "orders"), "billing")
        silent.join("one", Lease(7, 0, 30_000))
        silent.rebalance("one", {}, 0, lease=Lease(7, 0, 30_000))
        found = shop.json("group list --group billing")
        told = shop.run("group list --group billing").stdout
        group.leave("one")
    assert (found["lag_seconds"], found["behind"], found["readers"][0]["lag_seconds"]) == (None, EVENTS - 4, None)
    assert f"lag unknown: not reported within a lease, {EVENTS - 4} records behind the tail" in told


def test_a_group_goes_on_elsewhere_and_shows_first_where(shop: Shop) -> None:
    shop.read()
    end = shop.position()
    planned = shop.json("group reset --group billing --to head")
    assert planned == {"group": "billing", "dry_run": True, "from": end, "to": dict.fromkeys(end, 0)}
    assert shop.position() == end
    assert shop.json("group reset --group billing --to 1970-01-02 --yes")["to"] == planned["to"]
    assert sorted(shop.read()) == list(range(EVENTS))
    cut = " ".join(f"{segment}={offset - 1}" for segment, offset in end.items())
    shop.json("group reset --group billing --to", cut, "--yes")
    assert len(shop.read()) == 2
    shop.json("group reset --group billing --to head --yes")
    shop.json("group reset --group billing --to tail --yes")
    assert shop.position() == end


def test_readers_in_the_group_keep_it_where_it_is_unless_they_are_sent_away(shop: Shop) -> None:
    with accel.connect(shop.url) as streams:
        reader = streams.group_reader("shop", "orders", "billing", "one")
        assert next(reader).payload
        assert shop.refusal("group reset --group billing --to tail --yes") == (1, "IllegalState")
        shop.json("group reset --group billing --to tail --yes --evict")
        with pytest.raises(IllegalState):
            reader.rebalance()


def test_a_reader_is_declared_dead(shop: Shop) -> None:
    with accel.connect(shop.url) as streams:
        reader = streams.group_reader("shop", "orders", "billing", "one")
        assert next(reader).payload
        told = [shop.json("group offline --group billing --reader one") for _ in range(2)]
        assert [each["was_there"] for each in told] == [True, False]
        assert sorted(shop.read()) == list(range(EVENTS))
        with pytest.raises(IllegalState):
            reader.rebalance()


def test_a_group_is_deleted_only_if_that_is_said(shop: Shop) -> None:
    shop.read("--limit", "1")
    assert shop.json("group delete --group billing")["dry_run"]
    assert shop.json("group list")["groups"] == ["billing"]
    assert shop.json("group delete --group billing --yes")["exists"] is False
    assert shop.json("group list")["groups"] == []
    assert "there is no group" in shop.run("group delete --group billing --yes").stdout


@pytest.mark.parametrize("args", [("list",), ("reset", "--to", "head"), ("offline", "--reader", "one")])
def test_a_wrong_name_makes_no_group(shop: Shop, args: tuple[str, ...]) -> None:
    assert shop.refusal("group", *args, "--group", "biling") == (1, "NotInHistory")
    assert "accel group list" in shop.run("group", *args, "--group", "biling").stderr
    assert shop.json("group list")["groups"] == []


@pytest.mark.parametrize(
    "error", [StoreUnavailable("get", "key", "an outage"), IllegalState("expected a reader that is in the group")]
)
def test_a_read_asks_its_group_again_after_a_failure(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("accel.cli.stream.events.REJOIN_PAUSE_SECONDS", 0.0)
    tell, failures = GroupReader._tell, [error] * 3

    def failing(reader: GroupReader) -> None:
        if failures:
            raise failures.pop()
        tell(reader)

    monkeypatch.setattr(GroupReader, "_tell", failing)
    assert sorted(shop.read()) == list(range(EVENTS))
    assert failures == []


@pytest.mark.parametrize("error", [InvalidArgument("no"), IllegalState("expected a reader that is in the group")])
def test_what_trying_again_does_not_help_ends_a_read_of_a_group(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(_: GroupReader) -> None:
        raise error

    monkeypatch.setattr(GroupReader, "_tell", failing)
    found = shop.run("stream read", "--group", "billing", "--reader", "mine", "--output", "json")
    assert found.exit_code == 1
    assert type(error).__name__ in found.stderr


def test_an_outage_of_the_group_that_lasts_ends_a_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: GroupReader) -> None:
        raise StoreUnavailable("get", "key", "an outage")

    monkeypatch.setattr("accel.cli.stream.events.REJOIN_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("accel.streams.group_readers.ReaderSettings", lambda: ReaderSettings(retry_seconds=0.0))
    monkeypatch.setattr(GroupReader, "_tell", failing)
    found = shop.run("stream read", "--group", "billing")
    assert (found.exit_code, "an outage" in found.stderr) == (1, True)
