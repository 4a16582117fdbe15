"""Workflows beside writers: of processes without a host, of other nodes, and repeated after a fault."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import pytest

from accel.catalog.parts import CatalogParts
from accel.errors import AccelError, CommitRefused, IllegalState, SegmentsElsewhere
from accel.history.rules.requests import RequestStatus
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.history.store import Stream, StreamStore
from accel.streams.segment_directory import StreamSpan, stream_spans
from accel.streams.settings import StreamWriterSettings
from accel.testing import Fault, FaultStore
from loaders.store.decorated import OPERATIONS, WRITES
from tests.accel.streams.writer.world import HISTORY, NAME, NODE, Process, World, created, ids_of
from tests.examples import places

OTHER = NODE + 3
LOOKING = StreamWriterSettings(requests_seconds=30.0)
HALVES = [(0.0, 0.25), (0.25, 0.5)]


def numbered(count: int, word: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [(word + b"%d" % number, b"key-%d" % number) for number in range(count)]


def payloads(*given: list[tuple[bytes, bytes]]) -> list[bytes]:
    return sorted(payload for events in given for payload, _ in events)


def test_a_requested_scale_beside_a_writer_loses_no_event(world: World, process: Process) -> None:
    """The same without a host closed nothing: the writer went on in a segment of size 0."""
    with process.writer(LOOKING) as writer:
        writer.write_many(numbered(20, b"before-"))
        writer.flush()
        request = world.asking().request_scale(ids_of("0@0"), HALVES)
        writer.write_many(numbered(20, b"after-"))
        writer.flush()
        assert world.asking().scale_status(request).status is RequestStatus.WAITING
        world.seconds += 31
        writer.flush()
        assert world.asking().scale_status(request).status is RequestStatus.DONE
        writer.write_many(numbered(20, b"later-"))
        writer.flush()
    assert sorted(world.payloads()) == payloads(
        numbered(20, b"before-"), numbered(20, b"after-"), numbered(20, b"later-")
    )
    batches = world.batches()
    assert world.asking().cuts.sealed_size(0) == sum(len(each) for each in batches[0]) > 0
    world.check_times()


def after_looking(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act between the look of who opens a segment next, and the opening."""
    name = "accel.streams.open_segments.stream_spans"

    def spans_then_act(parts: CatalogParts, stream_ids: Collection[int]) -> dict[int, StreamSpan]:
        monkeypatch.setattr(name, stream_spans)
        found = stream_spans(parts, stream_ids)
        act()
        return found

    monkeypatch.setattr(name, spans_then_act)


def test_a_segment_that_is_sealed_while_another_node_opens_it_takes_no_events(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other node found the segment new, and continued it after its end: acknowledged events behind a seal."""
    stream = process.stream()
    with world.process(node_id=OTHER) as late:
        after_looking(monkeypatch, lambda: stream.scale(ids_of("0@0"), HALVES))
        with late.writer() as writer:
            writer.write_many(numbered(20))
            writer.flush()
        assert stream.current_epoch().epoch == 1
    assert sorted(world.payloads()) == payloads(numbered(20))
    assert world.batches()[0] == []
    assert world.asking().cuts.sealed_size(0) == 0


def test_a_step_for_a_segment_that_another_node_opens_meanwhile_is_left_to_it(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.process(node_id=OTHER) as other:
        after_looking(monkeypatch, lambda: other.host.open_segments(NAME, [0]))
        with pytest.raises(SegmentsElsewhere, match=f"on node {OTHER}"):
            process.stream().scale(ids_of("0@0", "1@0"), [(0.0, 1.0)])
        assert other.stream().recover() == ["scale"]
    assert process.stream().state() is StreamState.ACTIVE


def test_a_raised_minimum_of_segments_is_reached_by_the_writer_that_looks(world: World, process: Process) -> None:
    """It was stored, and nothing changed, without a word."""
    with process.writer(LOOKING) as writer:
        writer.write_many(numbered(20, b"before-"))
        writer.flush()
        stream = world.asking()
        stream.configure(replace(stream.configuration(), min_segments=7))
        world.seconds += 31
        writer.flush()
        assert len(stream.active_segments()) == 7
        writer.write_many(numbered(20, b"after-"))
        assert writer.carry_out_requests() == []
        stream.configure(replace(stream.configuration(), min_segments=1))
        assert writer.carry_out_requests() == []
        assert stream.current_epoch().epoch == 1
        writer.flush()
        stream.configure(replace(stream.configuration(), min_segments=9))
        process.stream().seal()
        assert process.stream().carry_out_requests() == []
    assert sorted(world.payloads()) == payloads(numbered(20, b"before-"), numbered(20, b"after-"))


def test_a_minimum_is_reached_where_two_nodes_have_segments_and_one_dies_half_way(
    world: World, process: Process
) -> None:
    with world.process(node_id=OTHER) as late:
        process.host.append(NAME, 0, [b"here"])
        late.host.append(NAME, 1, [b"there"])
        stream = world.asking()
        stream.configure(replace(stream.configuration(), min_segments=4))
        assert process.stream().carry_out_requests() == []  # the other node has a segment
        assert stream.state() is StreamState.SCALING
        holding = late.stream()
        assert [holding.carry_out_requests() for _ in range(3)] == [[], ["scale"], []]
        assert len(stream.active_segments()) == 4
    assert sorted(world.payloads()) == [b"here", b"there"]


def test_what_goes_wrong_with_a_request_does_not_fail_a_flush(world: World) -> None:
    faults = FaultStore(world.store, operations=("list",))
    with world.process(faults) as process, process.writer(LOOKING) as writer:
        world.asking().request_scale(ids_of("0@0"), HALVES)
        world.seconds += 31
        writer.write(b"0", b"a")
        faults.schedule(Fault.SLOW_DOWN)
        writer.flush()
        assert faults.injected
        assert writer.carry_out_requests() == ["scale"]
    assert world.payloads() == [b"0"]


def test_a_stream_that_was_created_without_a_host_is_written(world: World) -> None:
    streams = StreamStore.open(world.store, system=world.system, settings=HISTORY)
    streams.create_stream("shop", "bare")
    name = ("shop", "bare")
    with world.process() as process, process.writer(name=name) as writer:
        writer.write(b"0", b"a")
        writer.flush()
    assert world.payloads(name) == [b"0"]


def test_a_commit_decided_before_a_crash_is_made_by_the_next_process_that_looks(world: World) -> None:
    with world.process() as process:
        writer = process.writer()
        transaction = writer.begin_transaction()
        writer.write_many(numbered(9), transaction=transaction)
        writer._transactions.keep(transaction)
        writer._transactions.decide(transaction)  # dies between 'shall be committed' and the merge
    assert world.asking().recover() == []
    assert world.asking().transactions.status(transaction) is TransactionStatus.COMMITTING
    with world.process() as process:
        assert process.writer().carry_out_requests() == ["commit"]
    assert world.asking().transactions.status(transaction) is TransactionStatus.COMMITTED
    assert (sorted(world.payloads()), world.transaction_keys()) == (payloads(numbered(9)), [])


def test_a_commit_that_another_process_decided_before_the_events_were_durable_is_told(
    world: World, process: Process
) -> None:
    with process.writer() as writer:
        transaction = writer.begin_transaction()
        writer.write_many(numbered(9), transaction=transaction)
        world.asking().transactions.seal(transaction, commit=True)
        with pytest.raises(IllegalState, match="its 9 events are durable"):
            writer.commit_transaction(transaction)
        again = writer.begin_transaction()
        writer.write_many(numbered(9), transaction=again)
        writer.commit_transaction(again)
    assert sorted(world.payloads()) == payloads(numbered(9))


# Two nodes


@pytest.fixture
def nodes(world: World) -> Iterator[tuple[Process, Process]]:
    """Node 4, which writes the stream, and another one."""
    with world.process() as owner, world.process(node_id=OTHER) as other:
        yield owner, other


Step = Callable[[Stream], object]
STEPS: dict[str, tuple[Step, StreamState, str]] = {
    "scale": (lambda stream: stream.scale(ids_of("0@0"), HALVES), StreamState.SCALING, "scale"),
    "truncate": (lambda stream: stream.truncate({0: 1, 1: 1}), StreamState.TRUNCATING, "truncate"),
    "seal": (lambda stream: stream.seal(), StreamState.SEALING, "seal"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_for_segments_of_another_node_is_left_to_it(
    world: World, nodes: tuple[Process, Process], name: str
) -> None:
    owner, other = nodes
    act, state, done = STEPS[name]
    with owner.writer(LOOKING) as writer:
        writer.write_many(numbered(20))
        writer.flush()
        with pytest.raises(SegmentsElsewhere, match=f"on node {NODE}") as raised:
            act(other.stream())
        assert raised.value.nodes == (NODE,)
        with pytest.raises(SegmentsElsewhere):  # repeated before the other one has done its part
            act(other.stream())
        assert owner.stream().state() is state
        writer.write_many(numbered(20, b"more-"))
        writer.flush()  # nobody closed a segment behind its back
        assert [writer.carry_out_requests() for _ in range(3)] == [[], [done], []]
        assert owner.stream().state() is (StreamState.SEALED if name == "seal" else StreamState.ACTIVE)
        if name != "seal":
            act(other.stream())  # done before
            writer.write_many(numbered(5, b"last-"))
            writer.flush()
    if name != "truncate":
        last = numbered(5, b"last-") if name == "scale" else []
        assert sorted(world.payloads()) == payloads(numbered(20), numbered(20, b"more-"), last)
    for segment_id, batches in world.batches().items():
        size = world.asking().cuts.sealed_size(segment_id)
        assert size in (None, sum(len(each) for each in batches))
    world.check_times()


def test_a_commit_into_segments_of_another_node_is_left_to_it(world: World, nodes: tuple[Process, Process]) -> None:
    owner, other = nodes
    with owner.writer() as writer:
        transaction = writer.begin_transaction()
        writer.write_many(numbered(9), transaction=transaction)
        writer._transactions.keep(transaction)
        writer._transactions.decide(transaction)
        with pytest.raises(SegmentsElsewhere):
            other.stream().commit()
        assert world.asking().transactions.status(transaction) is TransactionStatus.COMMITTING
        writer.commit_transaction(transaction)
    assert (sorted(world.payloads()), world.asking().state()) == (payloads(numbered(9)), StreamState.ACTIVE)


def test_a_scale_over_segments_of_two_nodes_ends_when_both_have_sealed_theirs(
    world: World, nodes: tuple[Process, Process]
) -> None:
    """The sizes of the others are read from the catalog once they are closed."""
    owner, other = nodes
    for process, segment_id in ((owner, 0), (other, 1)):
        process.host.append(NAME, segment_id, [b"%d" % segment_id] * (segment_id + 3))
        process.host.flush()
    with pytest.raises(SegmentsElsewhere, match="found 1@0 on node"):
        owner.stream().scale(ids_of("0@0", "1@0"), [(0.0, 1.0)])
    waits = owner.stream()
    assert [waits.carry_out_requests() for _ in range(2)] == [[], []]
    assert waits.state() is StreamState.SCALING
    assert other.stream().recover() == ["scale"]
    assert (waits.state(), waits.cuts.sealed_size(0), waits.cuts.sealed_size(1)) == (StreamState.ACTIVE, 3, 4)
    with owner.writer() as writer:  # the node that first writes the new segment opens it
        writer.write(b"2", b"a")
        writer.flush()
    assert sorted(world.payloads()) == [b"0"] * 3 + [b"1"] * 4 + [b"2"]


def test_a_new_session_of_a_dead_node_does_its_steps(world: World) -> None:
    with world.process() as dead, dead.writer() as writer:
        writer.write_many(numbered(20))
        writer.flush()
        with world.process(node_id=OTHER) as other:
            with pytest.raises(SegmentsElsewhere):
                other.stream().scale(ids_of("0@0"), HALVES)
            with world.process() as successor:
                assert successor.stream().recover() == ["scale"]
            assert other.stream().state() is StreamState.ACTIVE
    assert sorted(world.payloads()) == payloads(numbered(20))


def test_a_writer_of_another_node_is_refused_before_it_opens_anything(
    world: World, nodes: tuple[Process, Process]
) -> None:
    owner, other = nodes
    owner.host.open_segments(NAME, [1])
    with pytest.raises(CommitRefused, match="found 1@0 open on node 4"):
        other.writer()
    with owner.writer() as writer:
        writer.write_many(numbered(20))
        writer.flush()
    assert sorted(world.payloads()) == payloads(numbered(20))


# One fault, and the same call until it returns


def _commit(process: Process) -> Callable[[], object]:
    writer = process.writer()
    transaction = writer.begin_transaction()
    writer.write_many(numbered(9), transaction=transaction)
    return lambda: writer.commit_transaction(transaction)


def _rolling_commit(process: Process) -> Callable[[], object]:
    again = _commit(process)
    process.stream().scale(ids_of("1@0"), [(0.5, 1.0)])
    return again


WORKFLOWS: dict[str, tuple[Callable[[Process], Callable[[], object]], StreamState, int]] = {
    "commit": (_commit, StreamState.ACTIVE, 9),
    "rolling commit": (_rolling_commit, StreamState.ACTIVE, 9),
    "scale": (lambda process: lambda: process.stream().scale(ids_of("0@0"), HALVES), StreamState.ACTIVE, 0),
    "truncate": (lambda process: lambda: process.stream().truncate({0: 1, 1: 1}), StreamState.ACTIVE, 0),
    "seal": (lambda process: lambda: process.stream().seal(), StreamState.SEALED, 0),
}
REQUESTS_MAX = 400
REPEATS_MAX = 20


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.LOST_REPLY])
@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_that_is_repeated_after_a_fault_leaves_the_stream_free(name: str, fault: Fault) -> None:
    """The fault hits each third request of a commit, and each tenth one of the others; or each one."""
    prepare, state, committed = WORKFLOWS[name]
    for place in places(REQUESTS_MAX, 0, every=3 if name == "commit" else 10):
        world = created()
        faults = FaultStore(world.store, operations=WRITES if fault is Fault.LOST_REPLY else OPERATIONS)
        with world.process(faults) as process:
            process.host.append(NAME, 0, [b"a"] * 3)
            process.host.append(NAME, 1, [b"b"] * 3)
            process.host.flush()
            act = prepare(process)
            faults.schedule(*[None] * place, fault)
            _repeated(act)
            is_over = not faults.injected
            faults.clear()
            assert process.stream().state() is state, place
            if state is StreamState.ACTIVE:
                [*_, last] = process.stream().active_segments()
                process.stream().scale([last.id], [(last.key_start, last.key_end)])
                with process.writer() as writer:
                    writer.write(b"z", b"key-z")
                    writer.flush()
        if name != "truncate":
            rest = [b"z"] if state is StreamState.ACTIVE else []
            assert sorted(world.payloads()) == sorted([b"a"] * 3 + [b"b"] * 3 + rest + payloads(numbered(committed)))
        if is_over:
            return
    pytest.fail(f"expected at most {REQUESTS_MAX} requests")


def _repeated(act: Callable[[], object]) -> None:
    for _ in range(REPEATS_MAX):
        try:
            act()
        except AccelError:
            continue
        return
    act()
