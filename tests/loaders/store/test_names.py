"""A name server that does not answer is reported in a sentence, and no call waits for it for long."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest

from accel.image_source import fetched
from loaders.errors import EndpointUnreachable
from loaders.store import open_store
from loaders.store.names import asked_host, check_name

HOST = "store.somewhere.example"


class Resolver:
    """Names that are asked for; silent until it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = Event()
        self.outcome: Callable[[], Any] = list

    def __call__(self, host: str, *_: Any, **__: Any) -> Any:
        self.asked.append(host)
        self.answers.wait(60)
        return self.outcome()


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    one = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", one)
    monkeypatch.setattr("loaders.store.names.NAME_SECONDS", 0.05)
    monkeypatch.setattr("loaders.store.names._asked", {})
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield one
    one.answers.set()


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_each_client_names_the_host_that_no_name_server_answers_for(
    resolver: Resolver, scheme: str, aws_environment: pytest.MonkeyPatch
) -> None:
    from loaders.store import StoreSettings  # noqa: PLC0415 - beside its use

    del aws_environment
    store = open_store(f"{scheme}://bucket/prefix", StoreSettings(endpoint_url=f"http://{HOST}:9000"))
    for _ in range(2):
        with pytest.raises(EndpointUnreachable, match=HOST):
            store.get("key")
    with pytest.raises(EndpointUnreachable, match="name server"):
        store.put("key", b"")
    assert resolver.asked == [HOST]  # one thread, however many calls


def test_a_get_of_an_image_names_it_too(resolver: Resolver) -> None:
    with pytest.raises(EndpointUnreachable, match=HOST):
        fetched(f"http://{HOST}/image.json", size_bytes_max=1, timeout_seconds=1)
    assert resolver.asked == [HOST]


def test_a_name_that_was_found_is_not_asked_for_again_and_one_that_was_not_is(resolver: Resolver) -> None:
    def unknown() -> None:
        raise socket.gaierror(-2, "Name or service not known")

    resolver.answers.set()
    resolver.outcome = unknown
    check_name(f"http://{HOST}")  # the client finds the same
    check_name(f"http://{HOST}")
    assert resolver.asked == [HOST, HOST]
    resolver.outcome = list
    for _ in range(3):
        check_name(f"http://{HOST}")
    assert resolver.asked == [HOST] * 3


def test_the_name_that_is_asked_for_is_that_of_the_proxy(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    del resolver
    assert asked_host(f"https://{HOST}:9000/bucket") == HOST
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example:3128")
    assert asked_host(f"https://{HOST}/bucket") == "proxy.example"
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    assert asked_host(f"https://{HOST}/bucket") == "proxy.example"
    monkeypatch.setenv("no_proxy", HOST)
    assert asked_host(f"https://{HOST}/bucket") == HOST


def test_where_no_thread_can_be_started_the_client_asks(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refused)
    check_name(f"http://{HOST}")
    assert resolver.asked == []
