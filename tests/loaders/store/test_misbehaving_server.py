"""Both S3 clients, facing a server that refuses, breaks off, hangs up or says nothing."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import botocore.endpoint
import pytest

from loaders.errors import (
    AccessDenied,
    BucketMissing,
    KeyMissing,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    StoreFull,
    StoreThrottled,
    StoreUnavailable,
    WriteConflict,
)
from loaders.store import ALWAYS, Condition, CreateOnly, IfMatch, ObjectStore, ObstoreStore, S3Store, StoreSettings
from tests.servers.scripted import HANG_UP, SILENCE, WRITTEN, Reply, ScriptedServer, found, refusal

ATTEMPTS = 3
REFUSALS: list[tuple[Reply, type[StoreError], type[StoreError]]] = [
    (refusal(403, "AccessDenied"), AccessDenied, AccessDenied),
    (refusal(404, "NoSuchKey"), KeyMissing, PreconditionFailed),
    (refusal(404, "NoSuchBucket"), BucketMissing, BucketMissing),
    (refusal(412, "PreconditionFailed"), PreconditionFailed, PreconditionFailed),
    (refusal(416, "InvalidRange"), RangeInvalid, RangeInvalid),
    (refusal(400, "InvalidArgument"), RequestRefused, RequestRefused),
    (refusal(405, "MethodNotAllowed"), RequestRefused, RequestRefused),
    (refusal(403, "QuotaExceeded"), StoreFull, StoreFull),
]
FAILURES: list[tuple[Reply, type[StoreError]]] = [
    (refusal(503, "SlowDown"), StoreThrottled),
    (refusal(500, "InternalError"), WriteConflict),
    (refusal(502, "BadGateway"), StoreUnavailable),
    (HANG_UP, StoreUnavailable),
]
UNDECIDED: list[tuple[Reply, type[StoreError]]] = [
    (refusal(409, "ConditionalRequestConflict"), WriteConflict),
    (SILENCE, StoreUnavailable),
]
CONDITIONS: list[Condition] = [CreateOnly(), IfMatch("e0")]


@pytest.fixture(params=[S3Store, ObstoreStore])
def store(request: pytest.FixtureRequest, scripted: ScriptedServer, aws_environment: pytest.MonkeyPatch) -> S3Store:
    aws_environment.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    settings = StoreSettings(endpoint_url=scripted.url, attempts=ATTEMPTS, read_timeout_seconds=1.0)
    made: S3Store = request.param("bucket", settings)
    return made


def test_a_refusal_has_our_name_and_is_not_repeated(store: ObjectStore, scripted: ScriptedServer) -> None:
    for reply, plain, conditional in REFUSALS:
        scripted.expect(reply, reply, reply, reply)
        kinds = {ALWAYS: plain, **dict.fromkeys(CONDITIONS, conditional)}
        for condition, kind in kinds.items():
            with pytest.raises(StoreError) as caught:
                store.put("k", b"x", condition=condition)
            assert type(caught.value) is kind
            assert caught.value.__cause__ is not None
        with pytest.raises(plain):
            store.get("k")
        assert len(scripted.requests) == 4


def test_a_server_that_is_full_is_named_after_no_more_than_the_attempts_of_its_client(
    store: ObjectStore, scripted: ScriptedServer
) -> None:
    for code in ("XMinioStorageFull", "InsufficientStorage", "Other"):
        scripted.expect(*[refusal(507, code)] * (ATTEMPTS + 1))
        for condition in (CreateOnly(), ALWAYS):
            with pytest.raises(StoreFull):
                store.put("k", b"x", condition=condition)
        assert len(scripted.requests) <= ATTEMPTS + 1


MARKS: list[tuple[dict[str, str], str | None]] = [
    ({}, None),
    ({"x-amz-meta-accelmark": "a.1.b"}, "a.1.b"),
    ({"X-Amz-Meta-Accelmark": "a.1.b", "x-amz-meta-a": "x"}, "a.1.b"),
    ({"x-amz-meta-accel-mark": "a.1.b"}, None),
    ({"x-amz-meta-accelmark": ""}, None),
    ({"x-amz-meta-accelmark": "a b"}, None),
    ({"x-amz-meta-accelmark": "x" * 129}, None),
    ({"x-amz-meta-accelmark": "=?UTF-8?Q?a=C3=A4?="}, "=?UTF-8?Q?a=C3=A4?="),
]


def test_an_object_whose_metadata_are_others_none_or_unreadable_is_read_without_a_mark(
    store: ObjectStore, scripted: ScriptedServer
) -> None:
    plain = found(b"x")
    for headers, mark in MARKS:
        reply = Reply(plain.status, plain.body, {**plain.headers, **headers})
        scripted.expect(reply, reply)
        assert (store.get("k").body, store.get("k").mark) == (b"x", mark)


def test_metadata_that_no_text_has_are_no_mark_and_refused_by_obstore_itself(
    store: ObjectStore, scripted: ScriptedServer
) -> None:
    plain = found(b"x")
    scripted.expect(Reply(plain.status, plain.body, {**plain.headers, "x-amz-meta-accelmark": "\xe4"}))
    if isinstance(store, ObstoreStore):
        with pytest.raises(RequestRefused, match="non UTF-8"):
            store.get("k")
    else:
        assert store.get("k").mark is None


def test_a_conditional_write_is_sent_exactly_once(store: ObjectStore, scripted: ScriptedServer) -> None:
    for (reply, kind), condition in product([*FAILURES, *UNDECIDED], CONDITIONS):
        scripted.expect(reply, WRITTEN)
        with pytest.raises(kind) as caught:
            store.put("k", b"x", condition=condition)
        assert len(scripted.requests) == 1
        assert caught.value.retryable
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize("reply", [reply for reply, _ in FAILURES])
def test_plain_requests_are_repeated_until_the_attempts_are_used_up(
    store: ObjectStore, scripted: ScriptedServer, reply: Reply
) -> None:
    scripted.expect(*[reply] * (ATTEMPTS - 1), WRITTEN)
    assert store.put("k", b"x") == "e1"
    assert len(scripted.requests) == ATTEMPTS

    scripted.expect(*[reply] * (ATTEMPTS - 1), found(b"x"))
    assert store.get("k").body == b"x"

    scripted.expect(*[reply] * ATTEMPTS, found(b"x"))
    with pytest.raises(StoreUnavailable):
        store.get("k")
    assert len(scripted.requests) == ATTEMPTS


def test_a_read_without_an_answer_is_repeated_and_then_given_up(store: ObjectStore, scripted: ScriptedServer) -> None:
    scripted.expect(*[SILENCE] * ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        store.get("k")
    assert len(scripted.requests) == ATTEMPTS


def test_a_body_that_breaks_off_is_taken_up_again(store: ObjectStore, scripted: ScriptedServer) -> None:
    short = found(b"01234", promised_bytes=10)
    rest = found(b"56789", status=206, content_range="bytes 5-9/10")
    scripted.expect(short, rest if isinstance(store, ObstoreStore) else found(b"0123456789"))
    assert store.get("k").body == b"0123456789"


def test_a_short_body_is_never_returned(store: ObjectStore, scripted: ScriptedServer) -> None:
    for reply in (found(b"01234", promised_bytes=10), found(b"01", status=206, content_range="bytes 0-9/100")):
        scripted.expect(*[reply] * (ATTEMPTS + 1))
        with pytest.raises(StoreUnavailable):
            store.get_range("k", 0, 10) if reply.status == 206 else store.get("k")


def test_bytes_that_were_not_asked_for_are_refused(store: ObjectStore, scripted: ScriptedServer) -> None:
    scripted.expect(found(b"0123", status=206, content_range="bytes 0-3/10"))
    with pytest.raises(RequestRefused):
        store.get_range("k", 2, 6)


def test_conditions_travel_in_the_two_headers(store: ObjectStore, scripted: ScriptedServer) -> None:
    scripted.expect(WRITTEN, WRITTEN, WRITTEN, Reply(304))
    store.put("k", b"x")
    store.put("k", b"x", condition=CreateOnly())
    store.put("k", b"x", condition=IfMatch("e0"))
    assert store.get_if_changed("k", "e0") is None
    sent = [(each.headers["If-Match"], each.headers["If-None-Match"]) for each in scripted.requests]
    assert sent == [(None, None), (None, "*"), ('"e0"', None), (None, '"e0"')]


def test_no_write_rests_on_a_weak_etag(store: ObjectStore, scripted: ScriptedServer) -> None:
    weak = {"ETag": 'W/"e1"', "Last-Modified": "Wed, 21 Oct 2026 07:28:00 GMT"}
    scripted.expect(Reply(200, b"x", weak), Reply(200, b"", weak))
    for etag in (store.get("k").etag, store.put("k", b"x", condition=CreateOnly())):
        scripted.requests.clear()
        with pytest.raises(RequestRefused, match='a weak one, W/"e1'):
            store.put("k", b"y", condition=IfMatch(etag))
        assert scripted.requests == []


@pytest.mark.parametrize("kind", [S3Store, ObstoreStore])
@pytest.mark.usefixtures("aws_environment")
def test_an_endpoint_that_wants_no_quotes_gets_none(kind: type[S3Store], scripted: ScriptedServer) -> None:
    scripted.expect(WRITTEN)
    store = kind("bucket", StoreSettings(endpoint_url=scripted.url, etag_quotes=False))
    store.put("k", b"x", condition=IfMatch("e0"))
    assert scripted.requests[0].headers["If-Match"] == "e0"


def test_nobody_there_is_unavailable(aws_environment: pytest.MonkeyPatch) -> None:
    aws_environment.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    settings = StoreSettings(endpoint_url="http://127.0.0.1:1", attempts=2)
    for store in (S3Store("bucket", settings), ObstoreStore("bucket", settings)):
        with pytest.raises(StoreUnavailable):
            store.get("k")


def test_a_whole_object_for_a_range_is_cut(scripted: ScriptedServer, aws_environment: pytest.MonkeyPatch) -> None:
    del aws_environment
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url))
    scripted.expect(*[found(b"0123456789")] * 4)
    assert store.get_range("k", 2, 6).body == b"2345"
    assert store.get_range("k", 8, 60).body == b"89"
    assert store.get_tail("k", 3).body == b"789"
    with pytest.raises(RangeInvalid):
        store.get_range("k", 10, 11)


def test_a_key_that_a_batch_could_not_delete_is_named(
    scripted: ScriptedServer, aws_environment: pytest.MonkeyPatch
) -> None:
    del aws_environment
    errors = "<Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    scripted.expect(Reply(200, f"<DeleteResult>{errors}</DeleteResult>".encode(), {"Content-Type": "application/xml"}))
    (failure,) = S3Store("bucket", StoreSettings(endpoint_url=scripted.url)).delete_many(["a", "b"])
    assert failure.key == "b"
    assert isinstance(failure.error, AccessDenied)


def test_an_etag_that_a_completion_leaves_out_is_looked_up(
    scripted: ScriptedServer, aws_environment: pytest.MonkeyPatch
) -> None:
    del aws_environment
    begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    done = b"<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>"
    scripted.expect(Reply(200, begun), WRITTEN, Reply(200, done), Reply(200, b"", {"ETag": '"whole-1"'}))
    upload = S3Store("bucket", StoreSettings(endpoint_url=scripted.url)).start_multipart("k")
    assert upload.complete([upload.upload_part(1, b"x")]) == "whole-1"
    assert scripted.requests[-1].method == "HEAD"
