"""Google Cloud Storage and Azure through obstore: the contract on stand-ins, conditions, refusals."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from obstore.store import LocalStore
from obstore.store import MemoryStore as RustMemory
from obstore.store import ObjectStore as RustStore

from accel import tables
from accel.catalog import ObjectCatalog
from accel.system import SYSTEM, StoreClock
from loaders.errors import (
    BucketMissing,
    CredentialsExpired,
    CredentialsMissing,
    EndpointUnreachable,
    PreconditionFailed,
    RequestRefused,
    WrongProcess,
)
from loaders.settings import CLOCK_SKEW_SECONDS_MAX
from loaders.store import CloudStore, IfMatch, MemoryStore, ObjectStore, PrefixedStore, StoreSettings, open_store
from loaders.store.base import STALE_ETAG
from loaders.store.clouds import AZURE, GOOGLE, Cloud
from loaders.tables import FormatRecord, probe_conditions
from tests.loaders.store.contract import StoreContract
from tests.servers.google import Google, google_stand_in
from tests.servers.scripted import ScriptedServer, found, refusal
from tests.spark_jobs.worlds import fill, make_catalog

AZURE_ENDPOINT = "ACCEL_TEST_AZURE_ENDPOINT"
"""An emulator of Azure, with a container for each test; account and key as obstore reads them (AZURE_STORAGE_...)."""


def in_memory() -> CloudStore:
    """Obstore's own store in memory: create-only and compare-and-set by ETags."""
    memory = RustMemory()
    return CloudStore("bucket", Cloud("memory", lambda *_: memory))


def test_without_a_folder_for_temporary_files_no_upload_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(RequestRefused, match=r"'k': no temporary file for the parts \(TMPDIR\): .*No such file"):
        in_memory().start_multipart("k")


@pytest.fixture(scope="module")
def server() -> Iterator[Google]:
    with google_stand_in() as google:
        yield google


@pytest.fixture
def google(server: Google, monkeypatch: pytest.MonkeyPatch) -> Google:
    """An empty bucket."""
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server.objects.clear()
    server.requests.clear()
    return server


@pytest.fixture
def on_google(google: Google) -> CloudStore:
    return CloudStore("bucket", GOOGLE, StoreSettings(endpoint_url=google.url))


def on_azure() -> CloudStore:
    return CloudStore("tests", AZURE, StoreSettings(endpoint_url=os.environ[AZURE_ENDPOINT]))


class TestStandIns(StoreContract):
    """obstore's own store, and a server that answers as Google documents it."""

    etags_are_hashes = False
    takes_odd_keys = False
    can_copy_parts = False
    clock_key = "accel/probe/clock"

    @pytest.fixture(params=["memory", "google"])
    def store(self, request: pytest.FixtureRequest) -> ObjectStore:
        return in_memory() if request.param == "memory" else request.getfixturevalue("on_google")


if AZURE_ENDPOINT in os.environ:

    class TestAzure(StoreContract):
        """An emulator of Azure."""

        etags_are_hashes = False
        takes_odd_keys = False
        refused_characters = "\\"
        order = "utf-16-be"
        can_copy_parts = False
        clock_key = "accel/probe/clock"

        @pytest.fixture
        def store(self) -> ObjectStore:
            return PrefixedStore(on_azure(), f"{uuid4().hex}/")

        def test_the_probe_lets_tables_be_written(self, store: ObjectStore) -> None:
            assert probe_conditions(store, SYSTEM.nonce)
            assert list(store.list("")) == []


# Time


@pytest.mark.parametrize("ahead_seconds", [-400 * 86_400.0, 0.0, 400 * 86_400.0])
def test_now_is_the_time_of_the_service_whatever_the_hosts_clock_says(
    ahead_seconds: float, google: Google, on_google: CloudStore
) -> None:
    clock = StoreClock(on_google, lambda: SYSTEM.clock() + ahead_seconds, SYSTEM.timer)
    assert clock.measure()
    assert [request.split()[0] for request in google.requests] == ["PUT", "HEAD"]
    assert abs(clock() - SYSTEM.clock()) < CLOCK_SKEW_SECONDS_MAX


def test_a_service_that_refuses_to_be_written_leaves_the_time_unconfirmed(google: Google) -> None:
    missing = CloudStore("missing", GOOGLE, StoreSettings(endpoint_url=google.url))
    clock = StoreClock(missing, SYSTEM.clock, SYSTEM.timer)
    assert (clock.measure(must_confirm=True), clock.is_confirmed) == (False, False)


# Conditions


def test_google_is_asked_for_generations_which_are_remembered(google: Google, on_google: CloudStore) -> None:
    first = on_google.put("k", b"1")
    second = on_google.put("k", b"2", condition=IfMatch(first))
    assert [request.split()[0] for request in google.requests] == ["PUT", "PUT"]

    google.requests.clear()
    another = CloudStore("bucket", GOOGLE, on_google.settings)
    another.put("k", b"3", condition=IfMatch(second))
    assert [request.split()[0] for request in google.requests] == ["HEAD", "PUT"]

    google.requests.clear()
    with pytest.raises(PreconditionFailed):
        on_google.put("k", b"4", condition=IfMatch(second))
    assert [request.split()[0] for request in google.requests] == ["PUT"], "it believes what it wrote"
    assert another.get("k").body == b"3"


def test_the_server_itself_refuses_a_version_that_no_object_has(google: Google, on_google: CloudStore) -> None:
    on_google.put("k", b"A")
    google.requests.clear()
    for store in (on_google, CloudStore("bucket", GOOGLE, on_google.settings)):
        with pytest.raises(PreconditionFailed):
            store.put("k", b"B", condition=IfMatch(STALE_ETAG))
    assert [request.split()[0] for request in google.requests] == ["PUT", "PUT"]


def test_of_equal_bytes_a_later_generation_is_another_version(on_google: CloudStore) -> None:
    """An ETag is a hash there; the condition is on the generation that was read, so that A, B, A is no A."""
    etag = on_google.put("k", b"A")
    others = CloudStore("bucket", GOOGLE, on_google.settings)
    others.put("k", b"B")
    assert others.put("k", b"A") == etag
    with pytest.raises(PreconditionFailed):
        on_google.put("k", b"C", condition=IfMatch(etag))


@pytest.mark.parametrize("kind", ["memory", "google"])
def test_the_probe_lets_tables_be_written(kind: str, request: pytest.FixtureRequest) -> None:
    store: CloudStore = in_memory() if kind == "memory" else request.getfixturevalue("on_google")
    assert probe_conditions(store, SYSTEM.nonce)
    assert list(store.list("")) == []
    make_catalog(store)
    fill(store, 4, [[(1, 0, 10)], [(1, 10, 12), (2, 0, 5)]])
    with ObjectCatalog.open(store) as catalog:
        assert len(catalog.image().nodes[4]) == 2
    assert len(tables.blocks(store).read_all()) == 3


def local(folder: Path) -> CloudStore:
    """Obstore's folder, which has no compare-and-set, and lists in no order."""
    return CloudStore("folder", Cloud("folder", lambda *_: LocalStore(folder), lists_in_order=False))


def test_a_store_without_compare_and_set_is_read_and_no_tables_are_written_to_it(tmp_path: Path) -> None:
    made = MemoryStore()
    make_catalog(made)
    fill(made, 4, [[(1, 0, 10)], [(1, 10, 12), (2, 0, 5)]])
    store = local(tmp_path)
    for info in made.list(""):
        store.put(info.key, made.get(info.key).body)
    assert [info.key for info in store.list("")] == [info.key for info in made.list("")]
    assert tables.blocks(store).read_all().equals(tables.blocks(made).read_all())
    with pytest.raises(RequestRefused, match=r"compare-and-set.*can be read, but tables cannot be written"):
        fill(store, 4, [[(1, 12, 13)]])

    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RequestRefused, match="compare-and-set"):
        ObjectCatalog.init(local(empty), FormatRecord(namespace="shop"))
    assert list(local(empty).list("")) == []


# Listing


def test_a_listing_is_one_request_for_each_page_of_the_service(google: Google, on_google: CloudStore) -> None:
    for number in range(1500):
        google.write(f"n/{number:04}", b"")
        google.write(f"m/{number:04}", b"")
    assert len(list(on_google.list("n/"))) == 1500
    assert len(google.requests) == 2
    google.requests.clear()
    assert [info.key for info in on_google.list("n/1", start_after="n/1100", limit=3)] == ["n/1101", "n/1102", "n/1103"]
    assert len(google.requests) == 1


# What goes wrong


def test_a_bucket_that_is_missing_is_named(google: Google) -> None:
    store = CloudStore("elsewhere", GOOGLE, StoreSettings(endpoint_url=google.url))
    for ask in (lambda: store.get("k"), lambda: store.put("k", b""), lambda: list(store.list(""))):
        with pytest.raises(BucketMissing, match="no bucket 'elsewhere'"):
            ask()


def test_an_endpoint_that_nobody_answers_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "token")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    settings = StoreSettings(endpoint_url="http://127.0.0.1:9", attempts=1)
    for url in ("gs://bucket", "az://container"):
        with pytest.raises(EndpointUnreachable):
            open_store(url, settings).get("k")


def test_a_missing_account_of_azure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(CredentialsMissing, match="Account must be specified"):
        open_store("az://container").get("k")


def test_a_key_that_is_missing_is_no_failure_of_a_deletion(google: Google, on_google: CloudStore) -> None:
    for key in ("a", "b", "c"):
        google.write(key, b"")
    assert on_google.delete_many(["a", "missing", "c"]) == []
    assert [*google.objects] == ["b"]
    [failure] = on_google.delete_many(["b", "odd//key"])
    assert failure.key == "odd//key"
    assert not google.objects


def test_a_forked_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = in_memory()
    store.put("k", b"")
    monkeypatch.setattr("loaders.store.clouds._used_in", {"process": os.getpid() - 1})
    with pytest.raises(WrongProcess, match="forked"):
        store.get("k")


# URLs


@pytest.mark.parametrize(("url", "cloud"), [("gs://bucket/some/prefix/", GOOGLE), ("AZ://bucket/some/prefix", AZURE)])
def test_a_url_names_a_cloud_a_bucket_and_a_prefix(url: str, cloud: Cloud) -> None:
    store = open_store(url, StoreSettings(attempts=2))
    assert isinstance(store, PrefixedStore)
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    for each in (store, copy):
        assert each.prefix == "some/prefix/"
        inner = each._store
        assert isinstance(inner, CloudStore)
        assert (inner.bucket, inner.cloud, inner.settings.attempts) == ("bucket", cloud, 2)
    assert "gs://bucket" in repr(open_store("gs://bucket"))


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "loaders.store.clouds", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'accel-streams\[obstore\]'.*gs:// and az://"):
        open_store("gs://bucket")


def test_after_refused_credentials_they_are_read_again(
    scripted: ScriptedServer, aws_environment: pytest.MonkeyPatch
) -> None:
    aws_environment.setenv("NO_PROXY", "127.0.0.1")
    made: list[int] = []

    def connect(bucket: str, settings: StoreSettings, retries: int) -> RustStore:
        made.append(retries)
        return GOOGLE.connect(bucket, settings, retries)

    store = CloudStore("bucket", Cloud("gs", connect), StoreSettings(endpoint_url=scripted.url, no_sign_request=True))
    scripted.expect(found(b"x"), refusal(401, "AuthenticationRequired"), found(b"y"))
    assert store.get("k").body == b"x"
    with pytest.raises(CredentialsExpired):
        store.get("k")
    assert store.get("k").body == b"y"
    assert len(made) == 4, "two stores, made twice"
