"""`accel stream write` and `accel read` are a pair to try things with; `configure` changes what it names."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

import accel
from accel import FormatRecord
from accel.cli.main import main
from tests.accel.cli.worlds import NO_ENVIRONMENT


@pytest.fixture
def url() -> str:
    found = f"memory://{uuid4().hex}"
    with accel.connect(found, create=FormatRecord(namespace="test", stream_buckets=2)) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=2)
    return found


def run(url: str, *args: str, stdin: bytes = b"") -> Result:
    named = {**NO_ENVIRONMENT, "ACCEL_STORE": url, "ACCEL_SCOPE": "shop", "ACCEL_STREAM": "orders"}
    return CliRunner().invoke(main, list(args), env=named, prog_name="accel", input=stdin)


def read(url: str) -> list[tuple[str, str]]:
    found = run(url, "read", "--scope", "shop", "--stream", "orders", "--output", "json", "--payload", "text")
    assert found.exit_code == 0, found.output
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    return [(row["segment"], row["payload"]) for row in rows]


def test_lines_are_written_and_read(url: str) -> None:
    found = run(url, "stream", "write", stdin=b"tea\nsalt\r\n\nmilk")
    assert (found.exit_code, found.stdout) == (0, "4 events written to shop/orders\n"), found.output
    assert sorted(payload for _, payload in read(url)) == ["", "milk", "salt", "tea"]
    assert run(url, "stream", "write", "--output", "json", stdin=b"").stdout.count('"events": 0') == 1


def test_events_of_one_key_go_to_one_segment_in_their_order(url: str) -> None:
    assert run(url, "stream", "write", "--key", "anna", stdin=b"1\n2\n3\n").exit_code == 0
    assert run(url, "stream", "write", "--key-separator", ": ", stdin=b"anna: 4\nanna: 5: 6\n").exit_code == 0
    assert [payload for _, payload in read(url)] == ["1", "2", "3", "4", "5: 6"]
    assert len({segment for segment, _ in read(url)}) == 1


@pytest.mark.parametrize(
    "wrong", [("--key", "a", "--key-separator", ":"), ("--key-separator", ""), ("--node-id", "-1")]
)
def test_wrong_options_are_refused(url: str, wrong: tuple[str, ...]) -> None:
    assert run(url, "stream", "write", *wrong, stdin=b"a\n").exit_code == 2
    assert read(url) == []


def test_a_line_without_a_key_is_refused_and_nothing_is_written(url: str) -> None:
    assert run(url, "stream", "write", "--key-separator", ":", stdin=b"a:1\nb\n").exit_code == 2
    assert read(url) == []


def test_a_configuration_is_changed_where_options_name_it(url: str) -> None:
    assert run(url, "stream", "configure", "--tag", "b", "--tag", "a", "--keep", "7d").exit_code == 0
    found = json.loads(run(url, "stream", "configure", "--min-segments", "2", "--output", "json").stdout)[
        "configuration"
    ]
    assert (found["min_segments"], found["tags"], found["retention"]["minimum"]) == (2, ["a", "b"], 604_800_000)
    assert run(url, "stream", "configure").exit_code == 2
    assert run(url, "stream", "configure", "--unit", "bytes").exit_code == 1
