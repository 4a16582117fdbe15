"""Servers that answer oddly: what is harmless changes nothing, and what contradicts itself is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import TypeVar

import botocore.endpoint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.testing import Lie, LyingStore
from loaders.errors import AccessDenied, KeyMissing, PreconditionFailed, RequestRefused, StoreUnavailable
from loaders.store import (
    CountingStore,
    CreateOnly,
    IfMatch,
    MemoryStore,
    ObjectStore,
    PrefixedStore,
    S3Store,
    StoreSettings,
)
from loaders.store.base import EMPTY_PAGES_MAX, ListPage, ObjectInfo, follow_pages
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.loaders.store.contract import StoreContract
from tests.servers.fixtures import Endpoint, new_bucket
from tests.servers.lying import Lying, lying_s3
from tests.servers.scripted import Reply, ScriptedServer, refusal
from tests.servers.stores import CLIENTS, share_clients

Answer = TypeVar("Answer")

HARMLESS = {Lie.EMPTY_PAGE: 0.3, Lie.SHORT_PAGE: 0.3, Lie.START_AFTER_IGNORED: 0.3}


@pytest.fixture(scope="module")
def lying_endpoint() -> Iterator[tuple[str, Lying]]:
    """One server of which some requests are answered oddly."""
    with lying_s3(Random(29)) as server:
        yield server


@pytest.fixture(params=CLIENTS)
def store(
    request: pytest.FixtureRequest,
    lying_endpoint: tuple[str, Lying],
    moto_endpoint: Endpoint,
    aws_environment: pytest.MonkeyPatch,
) -> ObjectStore:
    """An empty bucket on that server, by way of each client."""
    aws_environment.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    share_clients(aws_environment)
    return CLIENTS[request.param](new_bucket(moto_endpoint.client), StoreSettings(endpoint_url=lying_endpoint[0]))


LIES = {
    "503",
    "a page without keys",
    "a short page",
    "start-after is not known",
    "a refused batch",
    "a batch without an answer",
    "a body that breaks off",
    "200 with an error",
    "404 to a DELETE",
}


class TestEveryClientOnALyingServer(StoreContract):
    """The contract holds, whatever the server says that is harmless."""

    pages_are_whole = False


def test_the_server_has_lied_in_all_its_ways(
    lying_endpoint: tuple[str, Lying], moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch
) -> None:
    aws_environment.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    url, lying = lying_endpoint
    keys = [f"k/{number:03}" for number in range(30)]
    for _ in range(60):  # which lie comes next depends on what ran before
        if {what for what, number in lying.told.items() if number} == LIES:
            return
        store = S3Store(new_bucket(moto_endpoint.client), StoreSettings(endpoint_url=url))  # which remembers nothing
        for key in keys:
            store.put(key, b"bytes" * 20)
            assert store.get(key).body == b"bytes" * 20
        assert [info.key for info in store.list("k/", start_after=keys[3])] == keys[4:]
        upload = store.start_multipart("big")
        upload.complete([upload.upload_part(1, b"part")])
        assert store.delete_many(["big", *keys]) == []
        assert [*store.list("")] == []
    pytest.fail(f"expected the server to tell each of {LIES}, found {lying.told}")


# Listings, page by page


def pages(*, keys: list[str], cuts: list[int], has_tokens: bool, knows_start: bool) -> Callable[[str, str], ListPage]:
    """A server that cuts its listing at these places, and skips nothing."""

    def ask(after: str, token: str) -> ListPage:
        start = int(token) if token else sum(key <= after for key in keys) if knows_start else 0
        end = next((cut for cut in cuts if cut > start), len(keys))
        found = [ObjectInfo(key, 1, "etag", 1.0) for key in keys[start:end]]
        return ListPage(found, end < len(keys), str(end) if has_tokens and end < len(keys) else "")

    return ask


KEYS = st.lists(st.text("ab/é\U0001f600", min_size=1, max_size=4), unique=True, max_size=12)


@given(KEYS, st.sets(st.integers(1, 12)), st.text("ab/", max_size=2), st.booleans())
def test_a_listing_is_whole_however_it_is_cut(keys: list[str], cuts: set[int], after: str, knows_start: bool) -> None:
    keys = sorted(keys, key=str.encode)
    expected = [key for key in keys if key.encode() > after.encode()]
    ask = pages(keys=keys, cuts=sorted(cuts), has_tokens=True, knows_start=knows_start)
    assert [info.key for info in follow_pages("", after, ask)] == expected
    ask = pages(keys=keys, cuts=sorted(cuts), has_tokens=False, knows_start=True)
    assert [info.key for info in follow_pages("", after, ask)] == expected


def info(key: str) -> ObjectInfo:
    return ObjectInfo(key, 1, "etag", 1.0)


CONTRADICTIONS = {
    "no key and no token": [ListPage([], more=True)],
    "the same token again": [ListPage([], True, "1"), ListPage([], True, "1")],
    "the page again": [ListPage([info("a/1"), info("a/2")], True, "1"), ListPage([info("a/1")], True, "2")],
    "its last key again": [ListPage([info("a/1"), info("a/2")], True, "1"), ListPage([info("a/2")], False)],
    "start-after that is ignored": [ListPage([info("a/1"), info("a/2")], True)] * 2,
    "another order": [ListPage([info("a/2"), info("a/1")], False)],
    "a key outside of the prefix": [ListPage([info("a/1"), info("b")], False)],
    "keys in an encoding": [ListPage([info("a%2F1")], False)],
}


@pytest.mark.parametrize("answers", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_listing_that_contradicts_itself_is_refused(answers: list[ListPage]) -> None:
    script = iter(answers)
    with pytest.raises(RequestRefused, match=r"expected .*, found"):
        list(follow_pages("a/", "", lambda *_: next(script)))


def test_pages_without_keys_come_to_an_end() -> None:
    asked: list[str] = []

    def ask(_: str, token: str) -> ListPage:
        asked.append(token)
        return ListPage([], more=True, token=str(len(asked)))

    with pytest.raises(RequestRefused, match="pages that go on"):
        list(follow_pages("a/", "", ask))
    assert len(asked) == EMPTY_PAGES_MAX + 1


# The double


def filled() -> MemoryStore:
    inner = MemoryStore()
    for number in range(40):
        inner.put(f"a/{number:02}", b"x")
    return inner


@pytest.mark.parametrize("seed", range(20))
def test_harmless_lies_about_listings_change_nothing(seed: int) -> None:
    inner = filled()
    store = LyingStore(inner, Random(seed), HARMLESS)
    for _ in range(10):
        assert [*store.list("a/")] == [*inner.list("a/")]
        assert [*store.list("a/", "a/10")] == [*inner.list("a/", "a/10")]
        assert [*PrefixedStore(store, "a/").list("1", limit=5)] == [*PrefixedStore(inner, "a/").list("1", limit=5)]
    assert {lie for lie, number in store.injected.items() if number} == set(HARMLESS)


def test_lies_about_writes_are_as_the_table_says() -> None:
    inner = filled()
    store = LyingStore(inner, Random(1), {Lie.CONDITION_DROPPED: 1.0})
    store.put("a/00", b"y", condition=CreateOnly())
    assert inner.get("a/00").body == b"y"
    store = LyingStore(inner, Random(1), {Lie.MARK_LOST: 1.0})
    store.put("k", b"y", mark="a mark")
    assert store.get("k").mark is None
    store = LyingStore(inner, Random(1), {Lie.WEAK_ETAG: 1.0})
    etag = store.put("k", b"y")
    assert etag.startswith('W/"')
    assert store.get("k").etag == etag
    assert store.get_if_changed("k", etag) is None
    with pytest.raises(PreconditionFailed):
        store.put("k", b"z", condition=IfMatch(etag))
    store = LyingStore(inner, Random(1), {Lie.COMPLETION_UNKNOWN: 1.0})
    upload = store.start_multipart("m")
    receipts = [upload.upload_part(1, b"part")]
    with pytest.raises(RequestRefused):
        upload.complete(receipts)
    assert inner.get("m").body == b"part"


# Deletes


class Held(DecoratedStore):
    """One key cannot be deleted, and refuses each batch that has it."""

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation == "delete_many" or call.key == "a/03":
            raise AccessDenied(call.operation, call.key, "object protected by object lock")
        return send()


def test_one_key_that_cannot_be_deleted_does_not_stop_the_others() -> None:
    inner = filled()
    (failure,) = Held(inner).delete_many([info.key for info in inner.list("a/")])
    assert failure.key == "a/03"
    assert isinstance(failure.error, AccessDenied)
    assert [info.key for info in inner.list("")] == ["a/03"]


def test_a_store_that_refuses_batches_deletes_key_by_key() -> None:
    inner = filled()
    store = LyingStore(inner, Random(1), {Lie.BATCH_REFUSED: 1.0})
    assert store.delete_many([info.key for info in inner.list("a/")]) == []
    assert len(inner) == 0
    inner = filled()
    failures = LyingStore(inner, Random(1), {Lie.KEY_REFUSED: 1.0}).delete_many([f"a/{n:02}" for n in range(40)])
    assert [failure.key for failure in failures] == [info.key for info in inner.list("")]


class Away(DecoratedStore):
    """Takes two more deletes."""

    deletes = 2

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation == "delete_many":
            raise RequestRefused(call.operation, call.key, "no batches")
        self.deletes -= 1
        if self.deletes < 0:
            raise StoreUnavailable(call.operation, call.key, "away")
        return send()


def test_a_store_that_is_away_is_not_asked_for_each_key() -> None:
    inner = filled()
    counting = CountingStore(Away(inner))
    failures = counting.delete_many([info.key for info in inner.list("a/")])
    assert [type(failure.error) for failure in failures] == [StoreUnavailable] * 38
    assert counting.snapshot().of("delete_many", "delete").requests == 1


GONE = Reply(204, b"")


@pytest.mark.parametrize("kind", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.usefixtures("aws_environment")
def test_a_server_that_refuses_batches_is_asked_for_one_once(kind: type[S3Store], scripted: ScriptedServer) -> None:
    store = kind("bucket", StoreSettings(endpoint_url=scripted.url))
    scripted.expect(refusal(400, "MissingContentMD5"), GONE, GONE, GONE)
    assert store.delete_many(["a", "b"]) == []
    assert store.delete_many(["c"]) == []
    assert [request.method for request in scripted.requests] == ["POST", "DELETE", "DELETE", "DELETE"]


@pytest.mark.usefixtures("aws_environment")
def test_a_batch_that_one_key_spoils_says_nothing_about_batches(scripted: ScriptedServer) -> None:
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url))
    scripted.expect(refusal(403, "AccessDenied"), GONE, refusal(403, "AccessDenied"), GONE)
    (failure,) = store.delete_many(["a", "held", "b"])
    assert failure.key == "held"
    scripted.expect(Reply(200, b"<DeleteResult><Deleted><Key>c</Key></Deleted></DeleteResult>"))
    assert store.delete_many(["c"]) == []
    assert [request.method for request in scripted.requests] == ["POST"]


@pytest.mark.usefixtures("aws_environment")
def test_what_an_answer_does_not_name_is_not_taken_for_deleted(scripted: ScriptedServer) -> None:
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url))
    gone = (
        b"<DeleteResult><Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
    )
    scripted.expect(Reply(200, gone), GONE)
    assert store.delete_many(["a", "b", "c"]) == []
    assert [request.method for request in scripted.requests] == ["POST", "DELETE"]
    assert scripted.requests[1].path.endswith("/c")


# Answers of S3 to ListObjectsV2

PAGE = "<Contents><Key>{key}</Key><Size>1</Size><LastModified>2026-10-21T07:28:00Z</LastModified></Contents>"
MORE = "<IsTruncated>true</IsTruncated>"
END = "<IsTruncated>false</IsTruncated>"
TOKEN = "<NextContinuationToken>t</NextContinuationToken>"  # noqa: S105 - of a listing

REFUSED = {
    "nothing at all": "",
    "no word about the end": PAGE.format(key="a/1"),
    "more, but no key and no token": MORE,
    "the end, and a token": PAGE.format(key="a/1") + END + TOKEN,
    "fewer keys than it counts": PAGE.format(key="a/1") + "<KeyCount>2</KeyCount>" + END,
    "a key without a size": "<Contents><Key>a/1</Key></Contents>" + END,
    "a key outside of the prefix": PAGE.format(key="b/1") + END,
    "encoded keys, and no word about it": PAGE.format(key="a%2F1") + END,
    "keys that are encoded twice": PAGE.format(key="a%252F1") + "<EncodingType>url</EncodingType>" + END,
}


@pytest.mark.parametrize("kind", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.usefixtures("aws_environment")
def test_a_page_that_contradicts_itself_is_refused(kind: type[S3Store], scripted: ScriptedServer) -> None:
    store = kind("bucket", StoreSettings(endpoint_url=scripted.url))
    for page in REFUSED.values():
        scripted.expect(Reply(200, f"<ListBucketResult>{page}</ListBucketResult>".encode()))
        with pytest.raises(RequestRefused, match=r"list 'a/'.*expected .*, found"):
            list(store.list("a/"))


@pytest.mark.usefixtures("aws_environment")
def test_a_token_is_sent_back_alone(scripted: ScriptedServer) -> None:
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url))
    ends = f"{PAGE.format(key='a/2')}{END}"
    pages = [f"{PAGE.format(key='a/1')}{MORE}{TOKEN}", ends]
    scripted.expect(*(Reply(200, f"<ListBucketResult>{page}</ListBucketResult>".encode()) for page in pages))
    assert [each.key for each in store.list("a/", "a/0")] == ["a/1", "a/2"]
    first, second = (request.path for request in scripted.requests)
    assert "start-after=a%2F0" in first
    assert "continuation-token=t" in second
    assert "start-after" not in second


@pytest.mark.usefixtures("aws_environment")
def test_a_missing_key_that_a_server_does_not_delete_is_deleted(scripted: ScriptedServer) -> None:
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url))
    scripted.expect(refusal(404, "NoSuchKey"))
    store.delete("k")
    scripted.expect(refusal(404, "NoSuchKey"))
    with pytest.raises(KeyMissing):
        store.get("k")


# Tables
