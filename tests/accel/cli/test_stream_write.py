"""`accel stream write` and `accel stream read` are a pair to try things with; `configure` changes what it names."""

from __future__ import annotations

import codecs
import signal
import subprocess
import sys
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from uuid import uuid4

import pytest

import accel
from accel import FormatRecord
from accel.streams.rules.routing import key_position
from accel.streams.writer import StreamWriter
from loaders.errors import StoreUnavailable
from tests.accel.cli.worlds import Bucket, run

PATIENCE_SECONDS = 60.0


class Orders(Bucket):
    """A stream of two segments, and commands on it."""

    def __init__(self) -> None:
        super().__init__(ACCEL_SCOPE="shop", ACCEL_STREAM="orders")
        with accel.connect(self.url, create=FormatRecord(namespace="test", stream_buckets=2)) as streams:
            streams.create_scope("shop")
            streams.create_stream("shop", "orders", segments=2)

    def read(self) -> list[tuple[str, str]]:
        return [(row["segment"], row["payload"]) for row in self.rows("stream read")]


@pytest.fixture
def orders() -> Orders:
    return Orders()


def test_lines_are_written_and_read(orders: Orders) -> None:
    found = orders.run("stream write", stdin=b"tea\nsalt\r\n\nmilk")
    assert (found.exit_code, found.stdout) == (0, "4 events written to shop/orders\n"), found.output
    assert sorted(payload for _, payload in orders.read()) == ["", "milk", "salt", "tea"]
    assert orders.run("stream write --output json", stdin=b"").stdout.count('"events": 0') == 1


def test_lines_in_are_lines_out_of_two_segments_in_the_order_of_time(orders: Orders) -> None:
    keys = [
        next(key for key in map(str, range(99)) if (key_position(key.encode()) < 0.5) is is_low)
        for is_low in (True, False)
    ]
    written = []
    for number in range(6):
        lines = b"%d\tof \xff %d\n" % (number, number % 2)
        assert orders.run("stream write --key", keys[number % 2], stdin=lines).exit_code == 0
        written.append(lines)
    found = orders.run("stream read --payload raw")
    assert found.stdout_bytes == b"".join(written)
    assert len({segment for segment, _ in orders.read()}) == 2
    assert found.stderr.startswith("6 events, ")
    assert orders.run("stream read").stdout.splitlines()[0] == "0\tof \\xff 0"


def test_events_of_one_key_go_to_one_segment_in_their_order(orders: Orders) -> None:
    assert orders.run("stream write --key anna", stdin=b"1\n2\n3\n").exit_code == 0
    assert orders.run("stream write --key-separator", ": ", stdin=b"anna: 4\nanna: 5: 6\n").exit_code == 0
    assert [payload for _, payload in orders.read()] == ["1", "2", "3", "4", "5: 6"]
    assert len({segment for segment, _ in orders.read()}) == 1


@pytest.mark.parametrize(
    "wrong", [("--key", "a", "--key-separator", ":"), ("--key-separator", ""), ("--node-id", "-1")]
)
def test_wrong_options_are_refused(orders: Orders, wrong: tuple[str, ...]) -> None:
    assert orders.run("stream write", *wrong, stdin=b"a\n").exit_code == 2
    assert orders.read() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_write_says_how_many_events_are_durable(tmp_path: Path, number: signal.Signals) -> None:
    url = f"file://{tmp_path}"
    with accel.connect(url, create=FormatRecord(namespace="test", stream_buckets=2)) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        command = [sys.executable, "-m", "accel.cli", "stream", "write", "--scope", "shop", "--stream", "orders"]
        with (
            subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--store", url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - shells ignore it
            ) as writing,
            streams.reader("shop", "orders", follow=True) as events,
        ):
            assert writing.stdin is not None
            writing.stdin.write(b"tea\nsalt\nmilk\nhalf a li")
            writing.stdin.flush()
            payloads = [event.payload for event in islice(events, 3)]  # the command waits for the rest of the line
            writing.send_signal(number)
            writing.wait(PATIENCE_SECONDS)  # stdin stays open: it is the signal that ends it
            told, _ = writing.communicate()
        assert (writing.returncode, told) == (128 + number, b"3 events written to shop/orders\n")
        assert sorted(payloads) == [b"milk", b"salt", b"tea"]
    written = run("stream", "read", "--scope", "shop", "--stream", "orders", "--store", url)
    assert len(written.stdout.splitlines()) == 3


WRONG_LINES = {
    "no key": (b"b", "expected a key and ':', found b'b'"),
    "too long": (b"k:" + b"x" * 9_000, "expected events of at most 8000 bytes together"),
}


@pytest.mark.parametrize("wrong", WRONG_LINES)
def test_a_wrong_line_is_named_with_what_is_durable_and_a_repetition_stores_each_line_once(
    orders: Orders, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accel.streams.rules.events.APPEND_SIZE_BYTES_MAX", 8000)
    line, why = WRONG_LINES[wrong]
    words = f"stream write --key-separator : --writer-id {uuid4()}"
    for before in (0, 1, 3):
        lines = b"".join(b"k:%d\n" % number for number in range(before))
        found = orders.run(words, stdin=lines + line + b"\nk:last\n")
        assert found.exit_code == 2
        count = "1 line before it is durable" if before == 1 else f"{before} lines before it are durable"
        assert f"Line {before + 1}: " in found.stderr
        assert count in found.stderr
        assert why in found.stderr
        assert [payload for _, payload in orders.read()] == [str(number) for number in range(before)]
    for _ in range(2):
        assert orders.run(words, stdin=b"k:0\nk:1\nk:2\nk:3\n").exit_code == 0
        assert [payload for _, payload in orders.read()] == ["0", "1", "2", "3"]


def test_a_failure_of_the_store_says_how_many_lines_were_read(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: StreamWriter) -> None:
        raise StoreUnavailable("put", "a key", "no answer")

    monkeypatch.setattr(StreamWriter, "flush", refuse)
    found = orders.run("stream write", stdin=b"tea\nsalt\n")
    assert (found.exit_code, "of 2 lines that were read, an unknown part is durable" in found.stderr) == (1, True)


def test_a_byte_order_mark_and_line_ends_of_windows_are_taken_off(orders: Orders) -> None:
    for mark in (b"", codecs.BOM_UTF8):
        assert orders.run("stream write --key-separator :", stdin=mark + b"anna:tea\r\ncarl:salt\r\n").exit_code == 0
    assert sorted(payload for _, payload in orders.read()) == ["salt", "salt", "tea", "tea"]
    with accel.connect(orders.url) as streams, streams.reader("shop", "orders") as reader:
        assert len({event.segment_id for event in reader if event.payload == b"tea"}) == 1


def test_a_configuration_is_changed_where_options_name_it(orders: Orders) -> None:
    assert orders.run("stream configure --tag b --tag a --keep 7d").exit_code == 0
    found = orders.json("stream configure --min-segments 2")["configuration"]
    assert (found["min_segments"], found["tags"], found["retention"]["minimum"]) == (2, ["a", "b"], 604_800_000)
    assert orders.run("stream configure").exit_code == 2
    assert orders.run("stream configure --unit bytes").exit_code == 1


def test_windows_of_time_have_each_event_once_though_a_split_waited_for_a_writer(orders: Orders) -> None:
    """By commands alone: the epoch began when the split was asked for, so windows after that time lacked events."""

    def timed(*args: str) -> list[tuple[int, str]]:
        return [(row["time_ms"], row["payload"]) for row in orders.rows("stream read --fields all", *args)]

    def write(word: str) -> None:
        for number in range(4):
            assert orders.run("stream write", stdin=b"%s %d\n" % (word.encode(), number)).exit_code == 0

    write("before")
    assert orders.run("stream scale --split 0@0").exit_code == 0
    assert orders.run("stream scale --split 1@0").exit_code == 0
    write("meanwhile")
    with accel.connect(orders.url) as streams, streams.writer("shop", "orders") as writer:
        assert writer.carry_out_requests() == ["scale"]  # the other one is of an epoch that has passed
    write("after")
    everything = timed()
    assert len(everything) == 12
    bounds = sorted({time_ms for time_ms, _ in everything})
    for start, end in pairwise(bounds):
        expected = sorted(event for event in everything if start <= event[0] < end)
        assert sorted(timed("--from", str(start), "--to", str(end))) == expected
    assert sorted(timed("--from", str(bounds[-1]))) == [event for event in everything if event[0] == bounds[-1]]
    assert timed("--from", str(bounds[-1] + 1)) == []


def test_a_raised_minimum_of_segments_is_applied_or_said_to_be_applied_later(orders: Orders) -> None:
    told = orders.run("stream configure --min-segments 4").stdout
    assert "it has 2 segments: the process that writes it splits some, until there are 4" in told
    with accel.connect(orders.url) as streams, streams.writer("shop", "orders") as writer:
        assert writer.carry_out_requests() == ["scale"]
    assert "splits" not in orders.run("stream configure --min-segments 2").stdout
    assert orders.json("stream describe")["segments"] == 4


def test_scaling_retention_and_tags_are_turned_off_again(orders: Orders) -> None:
    orders.json("stream configure", "--scale-events", "100", "--keep", "7d", "--keep-max", "30d", "--tag", "web")
    told = orders.json("stream configure", "--no-scaling")
    assert told["before"]["scaling"] == {"kind": "events a second", "target_rate": 100, "scale_factor": 2}
    assert told["configuration"] == {
        **told["before"],
        "scaling": {"kind": "fixed", "target_rate": 0, "scale_factor": 1},
    }
    assert orders.json("stream configure", "--no-retention")["configuration"]["retention"] is None
    assert orders.json("stream configure", "--no-tags")["configuration"]["tags"] == []
    assert orders.run("stream describe").stdout.splitlines()[-5:] == [
        "at least            1 segment",
        "scales              by hand only",
        "keeps               everything",
        "offsets count       records",
        "tags                none",
    ]


def test_a_change_is_shown_before_and_after(orders: Orders) -> None:
    found = orders.run("stream configure --scale-kilobytes 500 --scale-factor 3 --min-segments 1")
    assert found.stdout.splitlines() == [
        "scales              by hand only -> at 500 kilobytes a second a segment, into 3",
        "stream shop/orders: 1 setting changed",
    ]
    again = orders.run("stream configure --no-scaling --keep-size 9").stdout.splitlines()
    assert again[:2] == [
        "scales              at 500 kilobytes a second a segment, into 3 -> by hand only",
        "keeps               everything -> at least 9",
    ]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (("--scale-factor", "3"), "Expected --scale-events or --scale-kilobytes with --scale-factor"),
        (("--scale-events", "0"), "Expected a rate of at least 1"),
        (("--scale-events", "9", "--scale-factor", "1"), "and a factor of at least 2, found 9 and 1"),
        (("--scale-events", "9", "--no-scaling"), "Expected --no-scaling, or options that say which"),
        (("--keep", "1d", "--no-retention"), "Expected --no-retention, or"),
        (("--tag", "a", "--no-tags"), "Expected --no-tags, or"),
        (("--min-segments", "0"), "expected a least number of segments of 1 to 750000, found 0"),
        (("--keep", "2d", "--keep-max", "1d"), "expected 0 <= minimum <= maximum"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_configuration_that_makes_no_sense_is_refused(orders: Orders, wrong: tuple[str, ...], expected: str) -> None:
    before = orders.run("stream describe --output json").stdout
    found = orders.run("stream configure", *wrong)
    assert found.exit_code == 2
    assert expected in " ".join(found.stderr.split())
    assert orders.run("stream describe --output json").stdout == before


def test_creating_says_whether_it_created_and_refuses_other_settings(orders: Orders) -> None:
    made = [orders.run("stream create --stream clicks --keep 7d") for _ in range(2)]
    assert [found.stdout.split(":")[0] for found in made] == [
        "stream shop/clicks created",
        "stream shop/clicks was there",
    ]
    assert orders.run("stream create --stream clicks").exit_code == 0  # whatever it has
    for other in (("--keep", "8d"), ("--scale-events", "5", "--keep", "7d"), ("--min-segments", "1")):
        refused = orders.run("stream create --stream clicks", *other)
        assert (refused.exit_code, "found it with" in refused.stderr) == (1, True), other
