"""What a server may try that gives an image: no errors but ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accel.errors import StoreUnavailable
from accel.image_source import read_image
from tests.servers.scripted import HANG_UP, Reply, ScriptedServer, scripted_server

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
