"""`accel stream read` prints the events of a stream from place to place, and says in the end where to go on."""

from __future__ import annotations

import base64
import json
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import Result

from accel import StreamWriter
from accel.cli.stream.events import EventPrinter
from accel.cli.stream.notation import cut_text, moment_ms, parse_cut, parse_moment
from accel.history.rules.values import parse_segment
from accel.rendering import Shown
from accel.streams.reader import RETRY_PAUSE_SECONDS, RETRY_PAUSES_MAX
from accel.streams.rules.events import Event
from accel.streams.rules.reader_core import Fill, SegmentEvents
from accel.streams.rules.settings import ReaderSettings
from accel.streams.segment_source import ObjectSegmentSource
from accel.system import SYSTEM
from loaders.errors import AccessDenied, StoreUnavailable
from loaders.store import StoreSettings, open_store
from tests.accel.cli.worlds import run
from tests.accel.streams.reader.streams import NAME, SCOPE, Shop, shop
from tests.servers.fixtures import Endpoint, new_bucket

COUNT = 24
PATIENCE_SECONDS = 60.0


@dataclass
class Reading:
    """A stream in a store, and commands that read it.

    Attributes:
        shop: the stream, which was scaled once; half of its events lie before that.
        url: of the store.
    """

    shop: Shop
    url: str

    def run(self, *args: str) -> Result:
        """The command, with all that names the stream."""
        return run("stream", "read", self.url, "--scope", SCOPE, "--stream", NAME, *args)

    def rows(self, *args: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The events that it prints as JSON, and the summary."""
        found = self.run(*args, "--output", "json", "--payload", "text")
        assert found.exit_code == 0, found.output
        return [json.loads(line) for line in found.stdout.splitlines()], json.loads(found.stderr)

    def refusal(self, *args: str) -> tuple[int, str]:
        """The exit code of a command that fails, and the kind of its error."""
        found = self.run(*args, "--output", "json", "--quiet")
        assert found.stdout == ""
        return found.exit_code, json.loads(found.stderr)["type"]

    @property
    def written(self) -> list[str]:
        return sorted(each.decode() for payloads in self.shop.written.values() for each in payloads)


@contextmanager
def reading(url: str, settings: StoreSettings | None = None) -> Iterator[Reading]:
    """A stream of two segments, one of which was split when half of the events had been written."""
    with shop(open_store(url, settings)) as opened:
        with StreamWriter(opened.stream, opened.host) as writer:
            opened.write(writer, COUNT // 2)
            opened.split()
            opened.write(writer, COUNT // 2)
        yield Reading(opened, url)


@pytest.fixture
def orders() -> Iterator[Reading]:
    with reading(f"memory://{uuid4().hex}") as opened:
        yield opened


@pytest.fixture(scope="module")
def kept() -> Iterator[Reading]:
    """The same for many commands that are refused."""
    with reading(f"memory://{uuid4().hex}") as opened:
        yield opened


def payloads(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(each["payload"] for each in rows)


def by_key(rows: Sequence[dict[str, Any]]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for each in rows:
        found.setdefault(int(each["payload"].split(":")[0]), []).append(each["payload"].encode())
    return found


def as_pairs(position: dict[str, int]) -> str:
    return " ".join(f"{segment}={offset}" for segment, offset in position.items())


def test_one_line_an_event_and_the_position_on_stderr(orders: Reading) -> None:
    found = orders.run("--fields", "all")
    assert found.exit_code == 0
    lines = [line.split() for line in found.stdout.splitlines()]
    assert sorted(line[-1] for line in lines) == orders.written
    now_ms = SYSTEM.clock() * 1000
    for when, segment, offset, size, unit, payload in lines:
        assert now_ms - 3_600_000 < moment_ms(parse_moment(when), lambda: 0) <= now_ms
        assert (parse_segment(segment) >= 0, int(offset) >= 0) == (True, True)
        assert (int(size), unit) == (len(payload), "B")
    with orders.shop.reader() as reader:
        list(reader)
        end = reader.position()
    size_bytes = sum(map(len, orders.written))
    assert found.stderr == f"{COUNT} events, {size_bytes} B; the next read starts at {cut_text(end)}\n"


def test_json_is_one_document_a_line(orders: Reading) -> None:
    rows, summary = orders.rows()
    assert payloads(rows) == orders.written
    assert set(rows[0]) == {"segment", "offset", "next_offset", "time_ms", "payload_bytes", "payload"}
    assert all(each["next_offset"] == each["offset"] + 1 for each in rows)
    assert {"events": COUNT, "payload_bytes": sum(map(len, orders.written))}.items() <= summary.items()
    assert summary.keys() == {"events", "payload_bytes", "position", "lag_seconds"}
    assert summary["lag_seconds"] >= 0


def test_events_come_in_the_order_of_time_unless_nobody_waits_for_it(orders: Reading) -> None:
    for args in ((), ("--reorder-wait", "30")):
        times = [row["time_ms"] for row in orders.rows(*args)[0]]
        assert times == sorted(times)
    assert by_key(orders.rows("--reorder-wait", "0")[0]) == orders.shop.written


@pytest.mark.parametrize("count", [1, 7, COUNT // 2, COUNT - 1])
def test_the_position_of_one_run_gives_the_rest_in_the_next(orders: Reading, count: int) -> None:
    first, summary = orders.rows("--events", str(count))
    assert len(first) == summary["events"] == count
    rest, last = orders.rows("--from", as_pairs(summary["position"]))
    assert by_key(first + rest) == orders.shop.written
    assert last["events"] == COUNT - count
    assert orders.rows("--from", as_pairs(last["position"])) == (
        [],
        {**last, "events": 0, "payload_bytes": 0, "lag_seconds": 0.0},
    )


def test_a_cut_may_be_a_file(orders: Reading, tmp_path: Path) -> None:
    first, summary = orders.rows("--events", "9")
    path = tmp_path / "cut.json"
    for cut in (summary["position"], {"cut": summary["position"]}):
        path.write_text(json.dumps(cut))
        rest, _ = orders.rows("--from", str(path))
        assert by_key(first + rest) == orders.shop.written
        assert payloads(orders.rows("--to", str(path))[0]) == payloads(first)


def test_what_lies_between_two_cuts(orders: Reading) -> None:
    _, first = orders.rows("--events", "6")
    start = as_pairs(first["position"])
    _, middle = orders.rows("--from", start, "--events", "9")
    end = as_pairs(middle["position"])
    between, summary = orders.rows("--from", start, "--to", end)
    until_end, _ = orders.rows("--to", end)
    assert len(until_end) == len(orders.rows("--from", start, "--to", end)[0]) + len(orders.rows("--to", start)[0])
    assert summary["events"] == len(between)
    rest, _ = orders.rows("--from", as_pairs(summary["position"]))
    assert payloads(until_end + rest) == orders.written


def test_a_signal_ends_a_read_between_two_events_and_nothing_is_lost_or_printed_twice(
    orders: Reading, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    printed: list[dict[str, Any]] = []
    show = EventPrinter._shown
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let their jobs ignore it
    request.addfinalizer(partial(signal.signal, signal.SIGINT, handler))

    def interrupted(printer: EventPrinter, event: Event) -> Shown:
        if printer.events % 5 == 0:
            signal.raise_signal(signal.SIGINT)  # as if somebody pressed Ctrl-C while this event is printed
        return show(printer, event)

    monkeypatch.setattr(EventPrinter, "_shown", interrupted)
    position: tuple[str, ...] = ()
    for _ in range(COUNT // 5):
        found = orders.run(*position, "--follow", "--output", "json", "--payload", "text")
        assert found.exit_code == 128 + signal.SIGINT, found.output
        printed += [json.loads(line) for line in found.stdout.splitlines()]
        position = ("--from-position", as_pairs(json.loads(found.stderr)["position"]))
    assert len(printed) == 5 * (COUNT // 5)
    assert payloads([*printed, *orders.rows(*position)[0]]) == orders.written


def test_a_read_begins_at_the_head_the_tail_or_a_moment(orders: Reading) -> None:
    assert orders.rows("--from", "head")[1]["events"] == COUNT
    assert orders.rows("--from", "tail")[1]["events"] == 0
    assert orders.rows("--from", "1970-01-02")[1]["events"] == COUNT
    rows, _ = orders.rows()
    middle = rows[COUNT // 2]["time_ms"]
    later = [row for row in rows if row["time_ms"] >= middle]
    assert payloads(orders.rows("--from", str(middle))[0]) == payloads(later)
    assert payloads(orders.rows("--to", str(middle))[0]) == payloads([row for row in rows if row not in later])
    place = orders.run("--limit", "3").stderr.partition("the next read starts at ")[2]
    assert orders.rows("--from", place)[1]["events"] == COUNT - 3


@pytest.mark.parametrize(("form", "shown"), [("hex", b"0:0".hex()), ("base64", base64.b64encode(b"0:0").decode())])
def test_payloads_come_in_the_form_that_is_asked_for(orders: Reading, form: str, shown: str) -> None:
    lines = orders.run("--payload", form).stdout.splitlines()
    assert shown in [line.split()[-1] for line in lines]
    rows = [json.loads(line) for line in orders.run("--payload", form, "--output", "json").stdout.splitlines()]
    assert shown in [each["payload"] for each in rows]


def test_no_payload_is_null(orders: Reading) -> None:
    found = orders.run("--output", "json", "--payload", "none")
    assert {json.loads(line)["payload"] for line in found.stdout.splitlines()} == {None}
    assert "0:0" not in orders.run("--payload", "none", "--fields", "segment,offset").stdout
    assert len(orders.run("--payload", "none").stdout.splitlines()[0].split()) == 5  # all but the payload


def test_quiet_leaves_the_position_out(orders: Reading) -> None:
    assert orders.run("--quiet").stderr == ""
    assert orders.run("--quiet", "--output", "json").stderr == ""


def test_a_truncated_position_is_refused_unless_it_may_be_skipped(orders: Reading) -> None:
    _, summary = orders.rows("--events", "16")
    orders.shop.stream.truncate({parse_segment(each): offset for each, offset in summary["position"].items()})
    orders.shop.catalog.refresh()
    assert orders.refusal("--from", "0@0=0 1@0=0") == (1, "PositionTruncated")
    told = orders.run("--from", "0@0=0 1@0=0")
    assert "--skip-truncated" in told.stderr
    assert "the next read starts at" not in told.stderr
    rows, skipped = orders.rows("--from", "0@0=0 1@0=0", "--skip-truncated")
    assert payloads(rows) == payloads(orders.rows()[0])
    assert len(rows) == skipped["events"] == COUNT - 16


OUTAGE_FAILURES = 14
"""With the pauses that are the default a segment has failed so often after 20 seconds."""


def test_following_outlives_an_outage_of_twenty_seconds(orders: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: Counter[int] = Counter()
    fill = ObjectSegmentSource.fill

    def failing(source: ObjectSegmentSource, wanted: Fill) -> SegmentEvents:
        failures[wanted.segment_id] += 1
        if failures[wanted.segment_id] <= OUTAGE_FAILURES:
            raise StoreUnavailable("get", "key", "an outage")
        return fill(source, wanted)

    monkeypatch.setattr(ObjectSegmentSource, "fill", failing)
    pauses = [min(2**times, RETRY_PAUSES_MAX) * RETRY_PAUSE_SECONDS for times in range(OUTAGE_FAILURES)]
    assert 20 <= sum(pauses) < ReaderSettings().retry_seconds
    monkeypatch.setattr("accel.streams.reader.RETRY_PAUSE_SECONDS", RETRY_PAUSE_SECONDS / 1000)
    rows, summary = orders.rows("--follow", "--events", str(COUNT))
    assert by_key(rows) == orders.shop.written
    assert summary["events"] == COUNT


def test_a_read_that_fails_says_where_it_stands(orders: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    fill = ObjectSegmentSource.fill

    def failing(source: ObjectSegmentSource, wanted: Fill) -> SegmentEvents:
        if wanted.offset:
            raise AccessDenied("get", "key", "not yours")
        return fill(source, wanted)

    monkeypatch.setattr(ObjectSegmentSource, "fill", failing)
    failed = orders.run("--follow", "--output", "json")
    assert failed.exit_code != 0
    line, *error = failed.stderr.splitlines()
    given = Counter(json.loads(line)["segment"] for line in failed.stdout.splitlines())
    position = json.loads(line)["position"]
    assert position == {segment: given[segment] for segment in position}
    # The end of 0@0 may be known by then: the position is at its successors.
    assert set(position) in ({"0@0", "1@0"}, {"1@0", "2@1", "3@1"})
    assert "not yours" in "".join(error)


def test_following_ends_with_a_sealed_stream(orders: Reading) -> None:
    orders.shop.stream.seal()
    assert by_key(orders.rows("--follow")[0]) == orders.shop.written


@pytest.mark.parametrize(
    "args",
    [
        ("--start", "0"),
        ("--reader", "one"),
        ("--group", "billing", "--to", "tail"),
        ("--group", "billing", "--order", "segment"),
        ("--fields", "colour"),
        ("--payload", "raw", "--output", "json"),
        ("--payload", "raw", "--fields", "time"),
        ("--from", "0@0=0 1@0=0", "--to", "0@0=1 1@0=1", "--follow"),
        ("--to", "0@0=1 1@0=1", "--follow"),
        ("--from", "nowhere"),
        ("--from", ""),
        ("--from", "0@0"),
        ("--from", "0@0=1 0@0=2"),
        ("--to", "0@0=x"),
        ("--order", "size"),
        ("--reorder-wait", "-1"),
        ("--reorder-wait", "soon"),
        ("--events", "-1"),
        ("--payload", "xml"),
    ],
    ids=" ".join,
)
def test_command_lines_that_make_no_sense_are_refused(kept: Reading, args: tuple[str, ...]) -> None:
    found = kept.run(*args)
    assert found.exit_code == 2
    assert found.stdout == ""


def test_a_name_without_a_scope_is_told_what_is_missing(orders: Reading) -> None:
    found = run("read", orders.url, "--stream", NAME, "--start", "0")
    assert found.exit_code == 2
    assert "--scope" in found.stderr


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        (("--from", "0@0=0"), "InvalidArgument"),
        (("--from", "0@0=5 1@0=5", "--to", "0@0=1 1@0=1"), "InvalidArgument"),
        (("--from", "9@7=0"), "NotInHistory"),
    ],
    ids=["keys are left out", "an end before the start", "another stream"],
)
def test_cuts_that_make_no_sense_for_the_stream_are_refused(orders: Reading, args: tuple[str, ...], kind: str) -> None:
    assert orders.refusal(*args) == (1, kind)


def test_a_stream_that_is_not_there(orders: Reading) -> None:
    found = run("stream", "read", orders.url, "--scope", SCOPE, "--stream", "refunds", "--output", "json")
    assert found.exit_code == 1
    assert json.loads(found.stderr)["type"] == "NotInHistory"


def test_a_cut_of_many_segments_can_be_given_as_pairs() -> None:
    cut = {number: number * 1_000_000 for number in range(500)}
    assert parse_cut(cut_text(cut)) == cut
    assert parse_cut(cut_text(cut).replace(" ", ",")) == cut


@contextmanager
def following(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that follows the stream, whose output goes through pipes."""
    command = [sys.executable, "-m", "accel.cli", "stream", "read", url, "--scope", SCOPE, "--stream", NAME]
    command += ["--follow", "--fields", "segment"]
    process = subprocess.Popen(  # noqa: S603 - our own command
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - shells ignore it in jobs
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_who_follows_through_a_pipe_gets_events_as_they_come(
    moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch
) -> None:
    url = f"s3://{new_bucket(moto_endpoint.client)}"
    aws_environment.setenv("ACCEL_ENDPOINT_URL", moto_endpoint.url)
    aws_environment.delenv("PYTHONUNBUFFERED", raising=False)
    with reading(url, StoreSettings(endpoint_url=moto_endpoint.url)), following(url) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], PATIENCE_SECONDS)[0]
        assert b"@" in process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_a_read_that_follows_learns_where_to_go_on(
    moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    url = f"s3://{new_bucket(moto_endpoint.client)}"
    aws_environment.setenv("ACCEL_ENDPOINT_URL", moto_endpoint.url)
    aws_environment.setenv("PYTHONUNBUFFERED", "1")
    with reading(url, StoreSettings(endpoint_url=moto_endpoint.url)) as orders, following(url) as process:
        assert process.stdout is not None
        for _ in range(COUNT):
            assert b"@" in process.stdout.readline()
        process.send_signal(number)
        _, told = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 128 + number
        position = told.decode().strip().partition("the next read starts at ")[2]
        assert [summary["events"] for _, summary in (orders.rows("--from-position", position),)] == [0]
