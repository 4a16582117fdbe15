"""Commands hold no segments: they leave requests, decide, or are refused; unless the user holds the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from accel import connect
from accel.errors import TransactionDamaged
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.history.rules.values import parse_segment
from accel.history.store import Stream, StreamStore
from accel.testing import MemorySegments
from loaders.layout import transaction_key
from loaders.store import open_store
from tests.accel.cli.test_history_commands import MISSING_ID, Shop
from tests.accel.cli.worlds import run
from tests.conformance.steps import begin_truncation

NAME = ("shop", "orders")
SPLIT = "stream scale --seal 0@0 --range 0.0:0.25 --range 0.25:0.5"


@pytest.fixture
def shop() -> Shop:
    """A stream of two segments; the commands' user holds no data."""
    made = Shop(ACCEL_DATA_ELSEWHERE="")
    made.done("stream create --min-segments 2 --keep 1s --time 1000")
    return made


def holding(shop: Shop, sizes: int = 7) -> Stream:
    """The stream as the process sees it that holds its segments."""
    host = MemorySegments()
    stream = StreamStore.open(shop.store, host=host).stream(*NAME)
    segments = stream.active_segments()
    host.create(NAME, segments, {each: each for each in segments.ids.tolist()})
    for each in segments.ids.tolist():
        host.append(NAME, each, sizes)
    return stream


def test_a_split_and_a_merge_are_asked_for_and_followed(shop: Shop) -> None:
    asked = shop.json("stream scale --split 0@0 --into 2")
    assert (asked["status"], asked["seal"], asked["ranges"]) == ("waiting", ["0@0"], [[0.0, 0.25], [0.25, 0.5]])
    assert shop.json("stream requests")["requests"] == [asked]
    assert holding(shop).carry_out_requests() == ["scale"]
    told = shop.done("stream requests --epoch 0")
    assert "scale since epoch 0: done; now epoch 1, begun " in told
    assert ", with 3 segments; 0 requests open" in told
    merged = shop.json("stream scale --merge 2@1 --merge 3@1")
    assert (merged["seal"], merged["ranges"]) == (["2@1", "3@1"], [[0.0, 0.5]])
    assert "shows its state" in shop.done("stream scale --split 1@0")
    assert len(shop.json("stream requests")["requests"]) == 3


def test_a_scale_that_waits_says_whether_a_policy_asked_for_it(shop: Shop) -> None:
    shop.done("stream scale --split 1@0")
    shop.stream.request_scale([0], [(0.0, 0.25), (0.25, 0.5)], is_manual=False)
    waiting = shop.json("stream requests")["requests"]
    assert {each["seal"][0]: each["by_policy"] for each in waiting} == {"0@0": True, "1@0": False}
    lines = shop.done("stream requests").splitlines()
    assert [line.endswith(", by a policy") for line in lines if "scale of 0@0" in line] == [True]


def test_people_are_told_how_a_request_is_followed(shop: Shop) -> None:
    first, second = shop.done(SPLIT).splitlines()
    request, status, *_ = first.split()
    assert status == "waiting"
    assert f"accel stream requests --id {UUID(request)}" in second
    assert "scale of 0@0 to [0.0, 0.25), [0.25, 0.5)" in shop.done("stream requests")
    holding(shop).scale([parse_segment("0@0")], [(0.0, 0.5)])
    holding(shop).carry_out_requests()
    assert "expected epoch 0 to scale" in shop.done(f"stream requests --id {request}")


def test_a_scale_that_cannot_be_leaves_no_request(shop: Shop) -> None:
    assert shop.refusal("stream scale --seal 9@1 --range 0:0.5") == (1, "ScalePrecondition")
    assert shop.json("stream requests")["requests"] == []
    assert shop.refusal(f"stream requests --id {MISSING_ID}") == (1, "NotInHistory")


NEEDS: dict[str, Callable[[Stream], object]] = {
    "seal --yes": lambda _: None,
    "truncate --at 0@0=0 --at 1@0=5 --yes": lambda _: None,
    "retention": lambda _: None,
    "recover": lambda stream: begin_truncation(stream, {0: 1, 1: 1}),
    "delete --yes": lambda stream: stream.seal(),
}


@pytest.mark.parametrize("command", NEEDS)
def test_what_needs_the_segments_is_refused_with_advice(shop: Shop, command: str) -> None:
    NEEDS[command](holding(shop))
    before = shop.state()
    assert shop.refusal(f"stream {command}") == (1, "HostMissing")
    assert shop.state() == before


def test_retention_of_a_whole_scope_is_refused(shop: Shop) -> None:
    before = shop.state()
    found = run("stream", "retention", "--store", shop.url, "--scope", "shop", "--quiet", "--output", "json")
    assert (found.exit_code, json.loads(found.stderr)["type"]) == (1, "HostMissing")
    assert shop.state() == before


def decided_and_lost() -> tuple[str, str, str]:
    """A decided transaction of three events whose object is lost; and the URLs, the id and the key of a sound one."""
    url = f"memory://{uuid4().hex}"
    with connect(url, create=True) as opened:
        opened.create_scope("shop")
        stream = opened.create_stream(*NAME)
        ids = []
        for events in (3, 1):
            writer = opened.writer(*NAME)
            transaction = writer.begin_transaction()
            for number in range(events):
                writer.write(b"%d" % number, b"key", transaction=transaction)
            writer._transactions.decide(transaction, writer._transactions.keep(transaction))
            ids.append(str(transaction))
        open_store(url).delete(transaction_key(stream.unique_id, UUID(ids[0])))
        with pytest.raises(TransactionDamaged):
            stream.commit()
        opened.stop()
    return url, ids[0], ids[1]


def test_a_transaction_is_given_up_by_hand_once_it_was_shown_what_is_lost() -> None:
    url, lost, sound = decided_and_lost()
    where = f"--store {url} --scope shop --stream orders --output json"
    store = open_store(url)
    before = {info.key: info.etag for info in store.list("")}
    assert run(*f"txn abort --id {lost} {where}".split()).exit_code == 1
    assert run(*f"txn abort --id {lost} --yes {where}".split()).exit_code == 2
    refused = run(*f"txn abort --id {sound} --give-up --yes {where}".split())
    assert (refused.exit_code, "whose events cannot be read, found" in refused.stderr) == (1, True)
    shown = json.loads(run(*f"txn abort --id {lost} --give-up {where}".split()).stdout)
    assert (shown["status"], shown["given_up"], shown["events"], shown["size_bytes"]) == ("COMMITTING", False, 3, 55)
    assert "found no object" in shown["damage"]
    assert {info.key: info.etag for info in store.list("")} == before
    done = run(*f"txn abort --id {lost} --give-up --yes --store {url} --scope shop --stream orders".split())
    assert "ABORTING: 3 events in 55 bytes is lost" in done.stdout
    with connect(url) as opened:
        stream = opened.stream(*NAME)
        assert stream.recover() == ["commit"]
        assert stream.state() is StreamState.ACTIVE
        assert stream.transactions.status(UUID(lost)) is TransactionStatus.ABORTED
        assert stream.transactions.status(UUID(sound)) is TransactionStatus.COMMITTED
        stream.split(0)
    again = json.loads(run(*f"txn abort --id {lost} --give-up --yes {where}".split()).stdout)
    assert again["status"] == "ABORTED"
    assert run(*f"txn abort --id {sound} --give-up --yes {where}".split()).exit_code == 1
