"""The embedded S3 server starts on a free port, is silent, and keeps a condition and its write together."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import pytest
from moto.s3.models import FakeKey

from accel.cli.embedded_s3 import embedded_s3
from loaders.errors import PreconditionFailed, StoreUnavailable
from loaders.store import IfMatch, S3Store, StoreSettings
from tests.servers.fixtures import aws_environment

__all__ = ["aws_environment"]


@pytest.mark.usefixtures("aws_environment")
def test_it_serves_while_it_lasts_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with embedded_s3() as url, embedded_s3() as another:
        assert url != another
        store = S3Store("bucket", StoreSettings(endpoint_url=url, attempts=1))
        store.create_bucket()
        store.create_bucket()
        store.put("k", b"x")
        assert store.get("k").body == b"x"
    with pytest.raises(StoreUnavailable):
        S3Store("bucket", StoreSettings(endpoint_url=url, attempts=1)).get("k")
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("aws_environment")
def test_a_condition_and_its_write_are_one_step() -> None:
    def once(store: S3Store, number: int, etag: str) -> bool:
        try:
            store.put("k", str(number).encode(), condition=IfMatch(etag))
        except PreconditionFailed:
            return False
        return True

    with embedded_s3() as url, ThreadPoolExecutor(8) as pool:
        store = S3Store("bucket", StoreSettings(endpoint_url=url))
        store.create_bucket()
        for _ in range(10):
            etag = store.put("k", b"before")
            assert sum(pool.map(once, repeat(store, 8), range(8), repeat(etag))) == 1


@pytest.mark.usefixtures("aws_environment")
def test_a_read_that_meets_a_write_is_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Moto closes the value that a write replaces, and a listing stumbles over keys that are deleted meanwhile."""
    troubles: list[Exception] = []

    def value(key: FakeKey) -> bytes:
        if troubles:
            raise troubles.pop()
        return bytes(found.fget(key))

    found: Any = vars(FakeKey)["value"]
    monkeypatch.setattr(FakeKey, "value", property(value, found.fset))
    with embedded_s3() as url:
        store = S3Store("bucket", StoreSettings(endpoint_url=url, attempts=1))
        store.create_bucket()
        store.put("k", b"x")
        for trouble in (ValueError("I/O operation on closed file."), KeyError("k")):
            troubles.append(trouble)
            assert store.get("k").body == b"x"
            assert troubles == []
    assert capfd.readouterr() == ("", "")


def test_without_moto_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto.moto_server.werkzeug_app", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'accel-streams\[demo\]'"), embedded_s3():
        pass
