"""A stream whose segments two processes own: each writes all keys, and each event comes once, in its key's order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
import pytest

from accel.errors import FormatLimit, ForwardInDoubt, InvalidArgument, OwnerUnreachable, SegmentsElsewhere
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.states import StreamState
from accel.streams.rules.routing import KeyRouter, key_position
from accel.streams.shared import forwarding
from accel.streams.shared import segments as shared_segments
from accel.streams.shared.forwarding import (
    CARRY_OUT_PATH,
    PATH,
    AppendReply,
    AppendRequest,
    CarryOutRequest,
    ForwardingClient,
    SegmentService,
    Status,
    forwarding_app,
)
from accel.streams.writer import StreamWriter
from accel.streams.writer_numbers import REPEATED, Held
from tests.accel.streams.writer.network import NODES, QUICK, SECRET, SMALL, Network, Peer
from tests.accel.streams.writer.world import NAME, Watched, World, ids_of, node_of


@pytest.fixture(autouse=True)
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of three events."""
    monkeypatch.setattr(shared_segments, "EVENTS_MAX", 3)


@pytest.fixture
def segments() -> int:
    return 4


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def peers(world: World, network: Network) -> Iterator[tuple[Peer, Peer]]:
    """Two processes, each of which has opened two of the four segments."""
    first, second = (Peer(world, node_id, network) for node_id in NODES)
    first.process.host.open_segments(NAME, ids_of("0@0", "1@0"))
    second.process.host.open_segments(NAME, ids_of("2@0", "3@0"))
    yield first, second
    first.die()
    second.die()


def write(writer: StreamWriter, numbers: range, word: str = "e") -> None:
    for number in numbers:
        for key in range(6):
            writer.write(f"{word}/{key}/{number}".encode(), f"key-{key}")


def of_keys(world: World, word: str = "e") -> dict[str, list[int]]:
    """The numbers of each key's events, in the order in which segments and epochs give them."""
    found: dict[str, list[int]] = {}
    for payload in world.payloads():
        said, key, number = payload.decode().split("/")
        if said == word:
            found.setdefault(key, []).append(int(number))
    return found


def all_once(world: World, numbers: range, word: str = "e") -> bool:
    return of_keys(world, word) == {str(key): list(numbers) for key in range(6)}


def test_each_process_writes_all_keys_and_no_segment_changes_its_owner(world: World, peers: tuple[Peer, Peer]) -> None:
    for word, peer in zip("ab", peers, strict=True):
        with peer.writer() as writer:
            write(writer, range(5), word)
    assert all_once(world, range(5), "a")
    assert all_once(world, range(5), "b")
    owners = [node_of(peers[0].process.host, NAME, segment_id) for segment_id in ids_of("0@0", "1@0", "2@0", "3@0")]
    assert owners == [4, 4, 5, 5]


def test_without_an_address_that_may_be_asked_the_error_names_the_owner(peers: tuple[Peer, Peer]) -> None:
    first, _ = peers
    for client in (None, first.network.client("http://elsewhere")):
        writer = StreamWriter(*first.shared(client), settings=QUICK)
        write(writer, range(1))
        with pytest.raises(OwnerUnreachable, match="node 5 at http://node-5") as raised:
            writer.flush()
        assert raised.value.node_id == 5
    assert first.network.requests == []


def test_an_owner_that_lives_and_was_taken_for_dead_forwards_from_then_on(
    world: World, peers: tuple[Peer, Peer]
) -> None:
    first, second = peers
    with second.writer() as other:
        write(other, range(2), "b")
    world.seconds += 16
    first.registration.renew()
    with first.writer() as writer:
        write(writer, range(3))  # node 5 has not renewed its lease
        writer.flush()
        assert node_of(first.process.host, NAME, 2) == 4
    second.die()
    again = Peer(world, 5, first.network)  # and its process is started again
    with again.writer() as other:
        write(other, range(2, 4), "b")
    again.die()
    assert all_once(world, range(3))
    assert all_once(world, range(4), "b")


@pytest.mark.parametrize("is_taken", [True, False])
def test_what_an_owner_that_died_may_have_taken_comes_once(
    world: World, peers: tuple[Peer, Peer], is_taken: bool
) -> None:
    first, second = peers

    def die(_: str) -> None:
        first.network.services.clear()
        raise ConnectionResetError

    setattr(first.network, "after" if is_taken else "before", die)
    with first.writer() as writer:
        write(writer, range(2))
        for _ in range(2):
            with pytest.raises((ForwardInDoubt, OwnerUnreachable), match="node 5"):
                writer.flush()
        second.die()
        world.seconds += 16
        write(writer, range(2, 3))
    assert node_of(first.process.host, NAME, 2) == 4
    assert all_once(world, range(3))


def test_an_owner_that_lives_and_does_not_answer_leaves_events_in_doubt(peers: tuple[Peer, Peer]) -> None:
    first, second = peers

    def lose(_: str) -> None:
        raise TimeoutError

    first.network.after = lose
    writer = first.writer()
    futures = writer.write_many([(b"e", f"key-{at}") for at in range(6)])
    for _ in range(2):
        with pytest.raises(ForwardInDoubt, match="node 5"):
            writer.flush()
        first.world.seconds += 6
        for peer in (first, second):
            peer.registration.renew()
    errors = {type(future.exception()) for future in futures if future.done()}
    assert errors == {ForwardInDoubt}


@pytest.mark.parametrize("asked_by", [0, 1])
def test_a_scale_of_segments_of_several_owners_ends_whichever_process_asks(
    world: World, peers: tuple[Peer, Peer], asked_by: int
) -> None:
    stream = peers[asked_by].stream()
    with peers[0].writer() as first, peers[1].writer() as second:
        write(first, range(3), "a")
        write(second, range(3), "b")
        first.flush()
        second.flush()
        stream.scale(ids_of("1@0", "2@0"), [(0.25, 0.75)])
        assert stream.state() is StreamState.ACTIVE
        assert set(stream.active_segments().ids.tolist()) == {*ids_of("0@0", "3@0"), *ids_of("4@1")}
        write(first, range(3, 5), "a")
        write(second, range(3, 5), "b")
    assert all_once(world, range(5), "a")
    assert all_once(world, range(5), "b")


def test_a_scale_goes_on_without_an_owner_that_died(world: World, peers: tuple[Peer, Peer]) -> None:
    first, second = peers
    with first.writer() as writer:
        write(writer, range(3))
        writer.flush()
        second.die()
        stream = first.stream()
        with pytest.raises(SegmentsElsewhere, match="node 5") as raised:
            stream.scale(ids_of("1@0", "2@0"), [(0.25, 0.75)])
        assert ["http://node-5" in note for note in raised.value.__notes__] == [True]
        world.seconds += 16
        write(writer, range(3, 5))
        stream.scale(ids_of("1@0", "2@0"), [(0.25, 0.75)])
        assert stream.state() is StreamState.ACTIVE
    assert all_once(world, range(5))


# Futures, transactions, threads


@pytest.mark.parametrize("unit", OffsetUnit)
def test_each_event_has_a_future_that_tells_its_place_wherever_it_went(world: World, network: Network) -> None:
    first, second = (Peer(world, node_id, network) for node_id in NODES)
    second.process.host.open_segments(NAME, ids_of("1@0", "2@0"))
    payloads = [b"%d" % at * (at + 1) for at in range(12)]
    with first.writer() as writer:
        futures = writer.write_many([(payload, f"key-{at}") for at, payload in enumerate(payloads)])
        futures.append(writer.write(b"one", "key-1"))
        writer.flush()
        found = [future.result() for future in futures]
    places = world.places()
    assert found == [places[payload] for payload in [*payloads, b"one"]]
    assert {place.segment_id for place in found if place is not None} > set(ids_of("1@0", "2@0"))
    first.die()
    second.die()


def test_an_event_that_cannot_be_sent_fails_alone(
    world: World, peers: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_segments, "BODY_BYTES_MAX", 10_000)
    first, _ = peers
    keys = {segment_id: f"key-{at}" for at in range(60) for segment_id in [routed(first, f"key-{at}")]}
    client = ForwardingClient(["http://node-5"], SECRET, settings=SMALL, send=first.network.send)
    with StreamWriter(*first.shared(client), settings=QUICK) as writer:
        large = [writer.write(bytes(20_000), keys[segment_id]) for segment_id in (0, 2)]
        small = [writer.write(b"small", keys[segment_id]) for segment_id in (0, 2)]
        with suppress(FormatLimit):
            writer.flush()
        assert isinstance(large[1].exception(), FormatLimit)
        assert [future.exception() for future in (large[0], *small)] == [None] * 3
    assert sorted(map(len, world.payloads())) == [5, 5, 20_000]


def routed(peer: Peer, key: str) -> int:
    return KeyRouter(peer.stream().active_segments()).segment_at(key_position(key.encode()))


@pytest.mark.parametrize("theirs", [["2@0"], ["0@0", "1@0", "2@0", "3@0"], []])
def test_a_transaction_comes_whole_whoever_has_its_segments(world: World, network: Network, theirs: list[str]) -> None:
    first, second = (Peer(world, node_id, network) for node_id in NODES)
    second.process.host.open_segments(NAME, ids_of(*theirs))
    with first.writer() as writer, second.writer() as other:
        write(other, range(2), "b")
        write(writer, range(2), "a")
        transaction = writer.begin_transaction()
        outcome = writer.write_many(
            [(f"a/{key}/2".encode(), f"key-{key}") for key in range(6)], transaction=transaction
        )
        writer.commit_transaction(transaction)
        assert outcome[0].exception() is None
        for each, word in ((writer, "a"), (other, "b")):
            write(each, range(3, 4), word)
            each.flush()
    assert of_keys(world, "a") == {str(key): [0, 1, 2, 3] for key in range(6)}
    assert of_keys(world, "b") == {str(key): [0, 1, 3] for key in range(6)}
    assert world.transaction_keys() == []
    first.die()
    second.die()


def test_a_merge_that_meets_a_take_over_is_made_again_and_its_session_goes_on(world: World, network: Network) -> None:
    store = Watched(world.store)
    first, second = Peer(world, 4, network, store), Peer(world, 5, network)
    with first.writer() as writer, second.writer() as other:
        write(writer, range(1))
        writer.flush()
        transaction = writer.begin_transaction()
        for key in range(6):
            writer.write(f"e/{key}/1".encode(), f"key-{key}", transaction=transaction)

        def steal() -> None:
            write(writer, range(2, 3))  # waits for the next object, in segments that the merge has taken, too
            second.process.host.take_over(NAME, {1: 4, 2: 4})

        store.once_after("put", "accel/transactions/node-", steal)
        writer.commit_transaction(transaction)
        assert node_of(second.process.host, NAME, 1) == 5
        write(writer, range(3, 4))
        write(other, range(1), "b")
        other.flush()
    found = of_keys(world)
    assert {key: sorted(numbers) for key, numbers in found.items()} == {str(key): [0, 1, 2, 3] for key in range(6)}
    assert all([number for number in numbers if number != 1] == [0, 2, 3] for numbers in found.values())
    assert all_once(world, range(1), "b")
    assert world.transaction_keys() == []
    first.die()
    second.die()


# The service and its route


def request_of(peer: Peer, number: int, *payloads: bytes, **other: Any) -> AppendRequest:
    numbers = list(range(number, number + len(payloads)))
    token = peer.registration.owner.token
    made = AppendRequest(*NAME, 2, token, b"w" * 16, numbers, [0.6] * len(payloads), 0, list(payloads))
    return msgspec.structs.replace(made, **other)


def test_a_service_leaves_out_what_it_has_and_tells_other_owners(world: World, peers: tuple[Peer, Peer]) -> None:
    _, second = peers
    take = second.service.take
    assert take(request_of(second, 0, b"a", owner_token=b"other")) == AppendReply(Status.OTHER_OWNER)
    assert take(request_of(second, 0, b"a", b"b")) == AppendReply(Status.DURABLE, [0, 1])
    assert take(request_of(second, 1, b"b", b"c")) == AppendReply(Status.DURABLE, [REPEATED, 2])
    assert take(request_of(second, 0, b"a")) == AppendReply(Status.DURABLE, [REPEATED])
    assert take(request_of(second, 0, b"a", segment_id=0)) == AppendReply(Status.ELSEWHERE)
    assert take(request_of(second, 0)) == AppendReply(Status.DURABLE, held=[Held(0.0, 1.0, 2)])
    assert world.payloads() == [b"a", b"b", b"c"]


def test_a_copy_that_comes_late_is_left_out_whoever_has_the_segment_by_then(
    world: World, peers: tuple[Peer, Peer]
) -> None:
    first, second = peers
    second.service.take(request_of(second, 0, b"a"))
    first.process.host.take_over(NAME, {2: 5})
    late = request_of(second, 1, b"b")
    assert second.service.take(late).status is Status.ELSEWHERE
    assert first.service.take(request_of(first, 1, b"b", b"c")) == AppendReply(Status.DURABLE, [1, 2])
    second.process.host.take_over(NAME, {2: 4})
    assert second.service.take(late) == AppendReply(Status.DURABLE, [REPEATED])
    assert world.payloads() == [b"a", b"b", b"c"]


def test_a_writer_with_an_id_resumes_wherever_its_segments_are(world: World, peers: tuple[Peer, Peer]) -> None:
    first, second = peers
    producer = UUID(int=7)
    for peer, start in ((first, 0), (second, 1), (first, 2)):
        writer = StreamWriter(*peer.shared(first.network.client()), settings=QUICK, writer_id=producer)
        assert writer.resume() <= start * 6
        for number in range(max(0, start * 6 - 3), start * 6 + 6):
            writer.write(f"e/{number % 6}/{number // 6}".encode(), f"key-{number % 6}", number=number)
        writer.flush()
    assert all_once(world, range(3))


def ask(app: Any, body: bytes, secret: str = SECRET, method: str = "POST", path: str = PATH) -> tuple[int, bytes]:
    """One request to an ASGI application."""
    sent: list[dict[str, Any]] = []
    parts = [body[at : at + 1000] for at in range(0, len(body), 1000)] or [b""]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {secret}".encode())],
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_the_route_takes_events_of_those_who_have_the_secret(
    world: World, peers: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "EVENTS_MAX", 3)
    monkeypatch.setattr(forwarding, "BODY_BYTES_MAX", 5_000)
    _, second = peers
    service = SegmentService(second.process.host, second.registration.owner.token)
    app = forwarding_app(service, SECRET)
    body = msgspec.msgpack.encode(request_of(second, 0, b"a"))
    assert ask(app, body, "another")[0] == 401
    assert ask(app, body, "")[0] == 401
    assert ask(app, body, method="GET")[0] == 405
    assert ask(app, b"nonsense")[0] == 400
    assert ask(app, b"\x81\xa4more" + b"\x91" * 3_000 + b"\x00")[0] == 400
    assert ask(app, msgspec.msgpack.encode(request_of(second, 0, b"a", b"b", numbers=[3])))[0] == 400
    for wrong in ({"numbers": [2**63]}, {"settled": 2**64 - 1}, {"segment_id": 2**63}, {"positions": [float("nan")]}):
        assert ask(app, msgspec.msgpack.encode(request_of(second, 0, b"a", **wrong)))[0] == 400
    assert ask(app, msgspec.msgpack.encode(request_of(second, 0, *[b"x"] * 4)))[0] == 413
    assert ask(app, msgspec.msgpack.encode(request_of(second, 0, b"x" * 6_000)))[0] == 413
    assert world.payloads() == []
    status, told = ask(app, body)
    assert (status, msgspec.msgpack.decode(told, type=AppendReply)) == (200, AppendReply(Status.DURABLE, [0]))
    assert world.payloads() == [b"a"]


def test_the_route_of_workflows_wants_the_secret_and_the_right_owner(peers: tuple[Peer, Peer]) -> None:
    _, second = peers
    token = second.registration.owner.token
    for streams, expected in ((second.process.streams, Status.DURABLE), (None, Status.OTHER_OWNER)):
        app = forwarding_app(SegmentService(second.process.host, token, streams), SECRET)
        body = msgspec.msgpack.encode(CarryOutRequest(*NAME, token))
        assert ask(app, body, "another", path=CARRY_OUT_PATH)[0] == 401
        status, told = ask(app, body, path=CARRY_OUT_PATH)
        assert (status, msgspec.msgpack.decode(told, type=AppendReply).status) == (200, expected)
    other = msgspec.msgpack.encode(CarryOutRequest(*NAME, b"other"))
    assert second.service.carry_out(msgspec.msgpack.decode(other, type=CarryOutRequest)).status is Status.OTHER_OWNER


@pytest.mark.parametrize("told", [b"", b"<html>", b"\x81\xa4more" + b"\x91" * 3_000 + b"\x00"])
def test_an_owner_that_answers_something_else_did_nothing(peers: tuple[Peer, Peer], told: bytes) -> None:
    owner = peers[1].registration.owner
    client = ForwardingClient([owner.address], SECRET, send=lambda *_: (200, told))
    with pytest.raises(OwnerUnreachable, match="no reply of an owner"):
        client.carry_out(owner, CarryOutRequest(*NAME, owner.token))


def test_secrets_and_addresses_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="16 characters"):
        ForwardingClient([], "short")
    for address in ("ftp://a", "http://", "http://a/path", "a:80", "http://a?b"):
        with pytest.raises(InvalidArgument, match="expected an address"):
            ForwardingClient([address], SECRET)


@pytest.mark.parametrize("has_address", [True, False])
def test_a_producer_that_was_killed_waits_for_the_lease_of_the_process_that_it_was(
    world: World, peers: tuple[Peer, Peer], has_address: bool
) -> None:
    first, second = peers
    producer = UUID(int=7)
    writer = StreamWriter(*second.shared(second.network.client()), settings=QUICK, writer_id=producer)
    for number in range(2):
        write(writer, range(number, number + 1))
        writer.flush()
    second.die()
    again = Peer(world, 6, second.network)  # by another node id, at the address that the dead one had
    second.network.services["http://node-5"] = again.service
    world.on_sleep = first.registration.renew
    client = again.network.client() if has_address else None
    if has_address:
        went_on = StreamWriter(*again.shared(client), settings=QUICK, writer_id=producer)
        assert 6 <= went_on.resume() <= 12
        assert node_of(again.process.host, NAME, 2) == 6
    else:
        with pytest.raises(OwnerUnreachable, match="node 4"):  # which lives
            StreamWriter(*again.shared(client), settings=QUICK, writer_id=producer)
    again.die()
