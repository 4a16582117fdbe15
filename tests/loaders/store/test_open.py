"""A URL names a store."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

import loaders.store
from loaders.store import MemoryStore, ObstoreStore, PrefixedStore, S3Store, StoreSettings, open_store


@pytest.mark.parametrize("url", ["s3://bucket", "s3a://bucket", "s3n://bucket", "S3://bucket", "s3://bucket/"])
def test_the_schemes_of_s3_mean_the_same(url: str) -> None:
    store = open_store(url)
    assert isinstance(store, S3Store)
    assert (store.bucket, store.settings) == ("bucket", StoreSettings())


@pytest.mark.parametrize("url", ["s3://bucket/a/b", "s3://bucket/a/b/"])
def test_what_follows_the_bucket_is_a_prefix_of_all_keys(url: str) -> None:
    store = open_store(url)
    assert isinstance(store, PrefixedStore)
    assert store.prefix == "a/b/"


def test_a_setting_chooses_the_client() -> None:
    settings = StoreSettings(client="obstore", endpoint_url="http://127.0.0.1:1")
    store = open_store("s3://bucket", settings)
    assert isinstance(store, ObstoreStore)
    assert store.settings == settings


def test_the_same_name_in_memory_is_the_same_store() -> None:
    store = open_store("memory://test-open/inner/")
    store.put("k", b"x")
    whole = open_store("memory://test-open")
    assert isinstance(whole, MemoryStore)
    assert [each.key for each in whole.list("")] == ["inner/k"]
    assert list(open_store("memory://test-open-another").list("")) == []


@pytest.mark.parametrize("url", ["", "bucket", "s3:/bucket", "s3://", "s3:///key", "gcs://bucket", "gs://"])
def test_another_url_is_refused_with_the_forms_there_are(url: str) -> None:
    with pytest.raises(
        ValueError,
        match="expected s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder or memory://name",
    ):
        open_store(url)


@pytest.mark.parametrize("settings", [StoreSettings(attempts=2), StoreSettings(client="obstore", region="eu-west-1")])
def test_a_store_on_s3_can_be_sent_to_another_process(settings: StoreSettings) -> None:
    store = open_store("s3://bucket/prefix", settings)
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    assert copy.prefix == "prefix/"
    assert repr(copy._store) == f"{type(copy._store).__name__}('bucket', {settings!r})"


def test_a_folder_is_a_store_that_survives(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/a%20b"
    open_store(url).put("k", b"x")
    assert open_store(url.replace("file://", "FILE://localhost")).get("k").body == b"x"
    copy = pickle.loads(pickle.dumps(open_store(url)))  # noqa: S301 - our own bytes
    assert copy.get("k").body == b"x"
    assert [each.name for each in tmp_path.iterdir()] == ["a b"]


@pytest.mark.parametrize(
    "url",
    ["file://", "file:///", "file://host/folder", "file://folder", "file:///a/../b", "file:///a?b", "file:///a#b"],
)
def test_a_folder_is_named_by_its_whole_path(url: str) -> None:
    with pytest.raises(
        ValueError, match="expected file:///.*three slashes" if url[7:8] == "h" else "expected file:///"
    ):
        open_store(url)


def test_a_folder_whose_name_is_no_utf_8_is_named_byte_by_byte(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/a%FF").put("k", b"x")
    assert [os.fsencode(each.name) for each in tmp_path.iterdir()] == [b"a\xff"]


def test_a_path_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="without zero bytes"):
        open_store("file:///a/b%00c")


def test_what_is_not_exported_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        loaders.store.Nothing  # noqa: B018 - the access is the test


def test_a_client_that_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    for module in ("loaders.store.obstore_s3", "loaders.store.clouds"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'accel-streams\[obstore\]'"):
        open_store("s3://bucket", StoreSettings(client="obstore"))
