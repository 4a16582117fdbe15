"""What a server may try that gives an image, or that is asked for its stats: no errors but ours, and no secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from accel.errors import StoreUnavailable
from accel.image_source import read_image
from tests.accel.cli.worlds import run
from tests.servers.scripted import HANG_UP, Reply, ScriptedServer, scripted_server

TOKEN = "a token of some length"  # noqa: S105 - of a test
IMAGE = b'{"streams": [], "nodes": [], "version": 9}'


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as one:
        yield one


def moved(to: str) -> Reply:
    return Reply(302, b"", {"Location": to})


@pytest.mark.parametrize(
    "to", ["file:///etc/hostname", "ftp://127.0.0.1/image.json", "gopher://a", "data:,{}", "//", ""]
)
def test_an_image_is_read_by_http_alone_wherever_it_is_said_to_be(server: ScriptedServer, to: str) -> None:
    server.expect(moved(to), Reply(418), Reply(418))
    with pytest.raises(StoreUnavailable):
        read_image(f"{server.url}/image.json")


def test_an_image_that_moved_is_read_where_it_is(server: ScriptedServer) -> None:
    server.expect(moved("/other.json"), Reply(200, IMAGE))
    assert read_image(f"{server.url}/image.json").version == 9


def test_an_image_that_moves_without_end_is_given_up(server: ScriptedServer) -> None:
    server.expect(*[moved(f"/{number}.json") for number in range(30)])
    with pytest.raises(StoreUnavailable):
        read_image(f"{server.url}/image.json")
    assert len(server.requests) < 15


BROKEN = {
    "no answer": HANG_UP,
    "half of a chunk": Reply(200, b"ffff\r\nhalf", {"Transfer-Encoding": "chunked", "Connection": "close"}),
    "a header without an end": Reply(200, IMAGE, {"X": "y" * 100_000}),
    "a thousand headers": Reply(200, IMAGE, {f"X{number}": "y" for number in range(1000)}),
    "a forged line": Reply(500, b"\x1b[2J", {"X": "y"}),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
def test_what_is_no_answer_of_http_is_an_error_of_ours(server: ScriptedServer, reply: Reply) -> None:
    server.expect(reply)
    with pytest.raises(StoreUnavailable):
        read_image(f"{server.url}/image.json")
    server.expect(reply)
    refused = run("stats", server.url, "--output", "json")
    assert (refused.exit_code, json.loads(refused.stderr.splitlines()[-1])["type"]) == (1, "StoreUnavailable")


def test_the_token_of_a_sidecar_goes_nowhere_else(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with scripted_server() as thief:
        thief.expect(Reply(200, b"{}"))
        server.expect(moved(f"{thief.url}/v1/stats"))
        refused = run("stats", server.url, "--token-file", str(tmp_path / "token"))
        assert refused.exit_code == 1
        assert [request.headers["Authorization"] for request in server.requests] == [f"Bearer {TOKEN}"]
        assert thief.requests == []
    assert TOKEN not in refused.output + refused.stderr


@pytest.mark.parametrize(
    "told", ["{}", '{"lookups": 7}', "[]", "nonsense", '{"lookups": {"lookups": "\\u001b[2J"}}', "[" * 9999]
)
def test_stats_that_are_none_are_refused(server: ScriptedServer, told: str) -> None:
    server.expect(Reply(200, told.encode()))
    refused = run("stats", server.url)
    assert refused.exit_code == 1
    assert "no sidecar answers there" in refused.stderr or "expected the stats of a sidecar" in refused.stderr
    assert "\x1b" not in refused.stderr
