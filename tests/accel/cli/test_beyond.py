"""Commands refuse a cut beyond the end of a segment, and say where the end is unknown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import accel
from accel.history.rules.transactions import TransactionContents, TransactionStatus
from accel.history.rules.values import parse_segment
from accel.streams.connection import Connection
from tests.accel.cli.worlds import Bucket

EVENTS = 6


class Orders(Bucket):
    def __init__(self) -> None:
        super().__init__(ACCEL_SCOPE="shop", ACCEL_STREAM="orders")


@pytest.fixture(scope="module")
def kept() -> Iterator[Orders]:
    """As `orders`, for many commands that are refused and change nothing."""
    yield from orders_made()


@pytest.fixture
def orders() -> Iterator[Orders]:
    """0@0 is sealed with 6 events; 1@1 and 2@1 are empty."""
    yield from orders_made()


def orders_made() -> Iterator[Orders]:
    made = Orders()
    with accel.connect(made.url, create=True) as streams:
        written(streams)
        streams.stream("shop", "orders").split(0)
        yield made


def written(streams: Connection) -> None:
    streams.create_scope("shop")
    streams.create_stream("shop", "orders", segments=1)
    with streams.writer("shop", "orders") as writer:
        for _ in range(EVENTS):
            writer.write(b"event", key="k")


SEALED, EMPTY = "0@0=7", "1@1=1"
COMMANDS = {
    "truncate, dry run": ("stream truncate", "--at", SEALED),
    "truncate an empty segment, dry run": ("stream truncate", "--at", EMPTY, "--at", "2@1=0"),
    "truncate, data elsewhere": ("stream truncate", "--at", SEALED, "--data-elsewhere", "--yes"),
    "truncate an empty segment": ("stream truncate", "--at", EMPTY, "--at", "2@1=0", "--data-elsewhere", "--yes"),
    "read": ("stream read", "--from", SEALED),
    "read an empty segment": ("stream read", "--from", f"{EMPTY} 2@1=0"),
    "read up to": ("stream read", "--to", SEALED),
    "read up to an empty segment": ("stream read", "--to", f"{EMPTY} 2@1=0"),
    "read as a group": ("stream read", "--group", "new", "--from", f"{EMPTY} 2@1=0"),
    "create a group": ("group create", "--group", "new", "--from", f"{EMPTY} 2@1=0"),
    "move a group": ("group reset", "--group", "old", "--to", SEALED, "--yes"),
    "move a group, dry run": ("group reset", "--group", "old", "--to", f"{EMPTY} 2@1=0"),
    "retention": ("stream retention", "--read-at", EMPTY, "--read-at", "2@1=0", "--data-elsewhere"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cut_beyond_the_end_is_refused_with_the_end(kept: Orders, command: str) -> None:
    kept.done("group create --group old")
    before = kept.state()
    exit_code, error, message = kept.error(*COMMANDS[command])
    told = kept.run(*COMMANDS[command])
    assert "starts at" not in told.stderr, "nothing is said of a next step that would fail again"
    assert told.stdout == ""
    assert (exit_code, error) == (1, "PositionBeyondEnd")
    assert ("end of segment 0@0, 6, found 0@0=7" in message) or ("end of segment 1@1, 0, found 1@1=1" in message)
    assert kept.done("group list") == "old\n"
    assert kept.state() == before


@pytest.mark.parametrize("has_catalog", [False, True], ids=["no catalog", "another one"])
def test_where_the_data_is_elsewhere_the_command_says_what_it_did_not_check(*, has_catalog: bool) -> None:
    made = Orders()
    if has_catalog:
        with accel.connect(made.url, create=True):
            pass
    made.done("stream create --min-segments 2")
    made.done("stream scale --split 0@0 --data-elsewhere")
    note = "not checked: the end of 1@0, 2@1 is unknown, as its data is not in this bucket's catalog"
    places = ("--at", "1@0=1000", "--at", "2@1=3", "--at", "3@1=0")
    found = made.run("stream truncate", *places)
    assert (found.exit_code, note in found.stderr) == (0, True)
    beyond = made.refusal("stream truncate --at 0@0=6 --at 1@0=0 --yes --data-elsewhere")
    assert beyond[1] == "PositionBeyondEnd"
    done = made.run("stream truncate", *places, "--yes", "--data-elsewhere")
    assert (done.exit_code, note in done.stderr) == (0, True)


SEALING = {
    "split": ("stream scale", "--split", "1@1"),
    "scale": ("stream scale", "--seal", "1@1", "--range", "0.0:0.5"),
    "merge": ("stream scale", "--merge", "1@1", "--merge", "2@1"),
    "seal": ("stream seal",),
}


@pytest.mark.parametrize("command", SEALING)
def test_a_size_that_is_not_that_of_the_data_in_the_catalog_seals_nothing(orders: Orders, command: str) -> None:
    with accel.connect(orders.url) as streams:
        with streams.writer("shop", "orders") as writer:
            for number in range(20):
                writer.write(b"event", key=str(number))
        exit_code, error, message = orders.error(*SEALING[command], "--data-elsewhere")
        assert (exit_code, error) == (1, "InvalidArgument")
        assert "of segment 1@1 in this bucket's catalog" in message
        stream = streams.stream("shop", "orders")
        assert (stream.state().value, stream.current_epoch().epoch) == ("ACTIVE", 1)
        with streams.reader("shop", "orders") as reader:
            assert len(list(reader)) == EVENTS + 20


@pytest.mark.parametrize("command", ["stream truncate", "group create", "stream read"])
def test_below_zero_only_minus_one_is_an_offset(orders: Orders, command: str) -> None:
    place = ("--group", "new", "--from", "0@0=-2") if "group" in command else ("--from", "0@0=-2")
    places = ("--at", "0@0=-2") if command == "stream truncate" else place
    assert orders.refusal(command, *places) == (1, "InvalidArgument")
    assert orders.done("group list") == ""


@pytest.mark.parametrize("command", ["group create", "group reset", "stream read", "stream read --group"])
def test_a_place_at_a_time_that_has_not_come_is_refused(kept: Orders, command: str) -> None:
    """Whoever mistypes a year would pass everything that is unread."""
    kept.done("group create --group old")
    before = kept.done("group list --group old")
    words = {
        "group create": ("--group", "new", "--from", "2136-01-01"),
        "group reset": ("--group", "old", "--yes", "--to", "2136-01-01"),
        "stream read": ("--from", "2136-01-01"),
        "stream read --group": ("new", "--from", "2136-01-01"),
    }[command]
    exit_code, error, message = kept.error(command, *words)
    assert (exit_code, error, "at most 5 minutes from now" in message) == (1, "InvalidArgument", True)
    assert kept.done("group list") == "old\n"
    assert kept.done("group list --group old") == before


@pytest.mark.parametrize("events", [0, 3])
def test_the_tail_of_a_sealed_stream_is_where_its_segments_end(events: int) -> None:
    made = Orders()
    with accel.connect(made.url, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=2).split("0@0")
        with streams.writer("shop", "orders") as writer:
            for number in range(events):
                writer.write(b"event", key=str(number))
        stream = streams.stream("shop", "orders")
        stream.seal()
        ends = stream.cuts.ends(stream.active_segments().ids)
        assert sum(ends.values()) == events
        tail = made.json("group create --group g --from tail")
        assert {parse_segment(name): end for name, end in tail["position"].items()} == ends
        assert made.done("stream read --from tail") == ""
        made.done("group create --group unread")
        for group, behind in (("g", 0), ("unread", events)):
            shown = made.json("group list --group", group)
            assert (shown["lag_seconds"], shown["behind"]) == (None, behind)
        made.done("group reset --group unread --to '0s ago' --yes")


def test_a_cut_that_no_reader_can_be_at_is_refused(orders: Orders) -> None:
    with accel.connect(orders.url) as streams:
        streams.stream("shop", "orders").merge("1@1", "2@1")
        streams.stream("shop", "orders").split("3@2")
    impossible = ("--at", "1@1=0", "--at", "5@3=0")
    exit_code, error, message = orders.error("stream truncate", *impossible)
    assert (exit_code, error, "a reader can be at" in message) == (1, "InvalidArgument", True)


HELD = {
    "truncate": ("stream truncate", "--at", "0@0=5"),
    "truncate, for good": ("stream truncate", "--at", "0@0=5", "--yes"),
    "retention": ("stream retention",),
    "retention, for good": ("stream retention", "--yes"),
}


def states(made: Orders) -> tuple[object, ...]:
    """The stream, its transactions, and what of it can be read."""
    with accel.connect(made.url) as streams:
        stream = streams.stream("shop", "orders")
        read = [event.payload for event in streams.reader("shop", "orders", follow=False)]
        requests = [each.status for each in stream.requests()]
        transactions = dict(stream.transactions.each_active())
        return stream.state(), dict(stream.head()), stream.current_epoch().epoch, requests, transactions, read


@pytest.mark.parametrize("command", HELD)
def test_who_holds_no_segments_does_not_move_the_head_of_a_stream_whose_data_is_here(
    orders: Orders, command: str
) -> None:
    orders.done("stream configure --keep-size 1")
    before = states(orders)
    found = orders.error(*HELD[command], "--data-elsewhere")
    assert found[:2] == (1, "InvalidArgument")
    assert "found segments of the stream in the catalog" in found[2]
    assert states(orders) == before


def test_a_whole_scope_is_retained_without_the_streams_whose_data_is_here(orders: Orders) -> None:
    orders.done("stream create --stream ours --keep-size 1")
    orders.done("stream configure --keep-size 1")
    before = states(orders)
    orders.variables["ACCEL_STREAM"] = ""
    found = orders.json("stream retention --yes --data-elsewhere", code=1)["streams"]
    outcomes = {each["stream"]: each["outcome"] for each in found}
    assert outcomes["shop/orders"] == "failed"
    assert outcomes["shop/ours"] != "failed"
    assert states(orders) == before


def test_who_holds_no_segments_does_not_delete_a_stream_whose_data_is_here(orders: Orders) -> None:
    with accel.connect(orders.url) as streams:
        streams.stream("shop", "orders").seal()
    before = states(orders)
    for flag in ("", " --yes"):
        assert orders.refusal(f"stream delete --data-elsewhere{flag}") == (1, "InvalidArgument")
    assert states(orders) == before
    assert "the process that holds the segments does it" in orders.done("stream delete")


def test_who_holds_no_segments_does_not_carry_out_what_waits_for_the_process_that_does(orders: Orders) -> None:
    orders.done("stream scale --split 1@1")
    before = states(orders)
    assert orders.refusal("stream recover --data-elsewhere") == (1, "InvalidArgument")
    assert states(orders) == before


def test_who_holds_no_segments_ends_no_transaction_whose_data_is_here(orders: Orders) -> None:
    with accel.connect(orders.url) as streams:
        stream = streams.stream("shop", "orders")
        transaction = str(stream.transactions.begin(lease_ms=600_000))
    before = states(orders)
    assert orders.refusal(f"txn abort --id {transaction} --data-elsewhere") == (1, "InvalidArgument")
    assert orders.refusal("stream seal --data-elsewhere")[1] == "InvalidArgument"
    assert states(orders) == before


def test_a_dry_run_says_who_does_it(orders: Orders) -> None:
    held = "the process that holds the segments does it; --yes only with --data-elsewhere, if their data is elsewhere"
    assert f"would be deleted ({held})" in orders.done("stream truncate --at 0@0=5")
    assert orders.refusal("stream truncate --at 0@0=5 --yes")[1] == "HostMissing"


def test_who_holds_no_segments_ends_no_transaction_whose_events_its_writer_stored_here(orders: Orders) -> None:
    """No segment of the stream is open here yet."""
    orders.done("stream create --stream new")
    with accel.connect(orders.url) as streams:
        stream = streams.stream("shop", "new")
        transaction = stream.transactions.begin()
        stream.transactions.record_contents(transaction, TransactionContents(3, 300))
    abort = f"txn abort --stream new --id {transaction} --data-elsewhere"
    assert orders.refusal(abort) == (1, "InvalidArgument")
    assert stream.transactions.status(transaction) is TransactionStatus.OPEN
