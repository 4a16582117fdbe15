"""What a stream knows of a writer outlives the segments that had its events: random histories beside a naive model."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import IllegalState, InvalidArgument
from accel.history.rules.segments import SegmentRecord
from accel.history.store import Stream
from accel.history.store.segment_host import StreamName
from accel.streams.acknowledgements import EventPlace
from accel.streams.rules.routing import key_position
from accel.streams.segment_directory import SegmentDirectory
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import SegmentsSettings
from accel.streams.time_index import MOVED_RECORDS_MAX
from accel.streams.writer import StreamWriter
from accel.streams.writer_numbers import REPEATED
from tests.accel.streams.writer.test_crashes import Recorder, Story
from tests.accel.streams.writer.world import NAME, NODE, Process, World, created, ids_of
from tests.examples import examples

WRITERS = (UUID(int=0xA11CE), UUID(int=0xB0B))
NODES = (NODE, NODE + 1)


def key_of(number: int) -> bytes:
    return b"key-%d" % (number * number % 7)


class Model:
    """A writer as a naive observer sees it: where each of its events went, and which segments there ever were."""

    def __init__(self) -> None:
        self.spans: dict[int, tuple[float, float]] = {}  # the keys of a segment
        self.highest: dict[int, int] = {}  # by segment
        self.settled = 0
        self.times_stored: Counter[int] = Counter()

    def note(self, stream: Stream) -> None:
        """Note the segments that are active now."""
        for each in stream.active_segments():
            self.spans[each.id] = each.key_start, each.key_end

    def stored(self, number: int, segment_id: int) -> None:
        """Note where an event was stored."""
        self.times_stored[number] += 1
        self.highest[segment_id] = max(number, self.highest.get(segment_id, -1))

    def next_number(self) -> int:
        """Where the writer continues: below, all its events are durable, of each key as far as any segment knows."""
        bounds = sorted({0.0, *(low for low, _ in self.spans.values())})
        covered = min(
            max((self.highest.get(each, -1) for each, (low, high) in self.spans.items() if low <= at < high))
            for at in bounds
        )
        return max(self.settled, covered + 1)


class Life:
    """Processes, one after the other, that write one stream with two writers."""

    def __init__(self) -> None:
        self.world = created()
        self.models = [Model() for _ in WRITERS]
        self.next = [0 for _ in WRITERS]
        self.process = self.world.start()

    @property
    def stream(self) -> Stream:
        return self.process.stream()

    def writer(self, who: int) -> StreamWriter:
        return StreamWriter(self.stream, self.process.host, writer_id=WRITERS[who])

    def note(self) -> None:
        for model in self.models:
            model.note(self.stream)

    def write(self, who: int, count: int, back: int, *, dies: bool) -> None:
        """Resume, repeat some durable events, and write new ones."""
        model = self.models[who]
        self.note()
        writer = self.writer(who)
        assert writer.resume(self.next[who]) == model.next_number()
        first = max(0, self.next[who] - back)
        again = [writer.write(b"%d" % each, key_of(each), number=each) for each in range(first, self.next[who])]
        writer.flush()
        for future in again:
            place = future.result()
            assert isinstance(place, EventPlace)
            assert place.offset == REPEATED
        numbers = range(self.next[who], self.next[who] + count)
        futures = [writer.write(b"%d" % each, key_of(each), number=each) for each in numbers]
        if dies:  # its events are in memory only
            self.restart(0)
            return
        writer.flush()
        for number, future in zip(numbers, futures, strict=True):
            place = future.result()
            assert isinstance(place, EventPlace)
            assert place.offset != REPEATED
            model.stored(number, place.segment_id)
            model.settled = numbers[0]
        self.next[who] = numbers.stop

    def split(self, at: int) -> None:
        segments = sorted(self.stream.active_segments(), key=lambda each: each.key_start)
        self.stream.split(segments[at % len(segments)].id)
        self.note()

    def merge(self, at: int) -> None:
        segments = sorted(self.stream.active_segments(), key=lambda each: each.key_start)
        if len(segments) < 2:
            return
        low, high = segments[at % (len(segments) - 1) :][:2]
        self.stream.merge(low.id, high.id)
        self.note()

    def roll(self, at: int) -> None:
        """A transaction that is committed after a split, so that the commit makes two epochs."""
        with self.process.writer() as writer:
            transaction = writer.begin_transaction()
            writer.write(b"of a transaction", b"a key", transaction=transaction)
            self.split(at)
            writer.commit_transaction(transaction)
        self.note()

    def truncate(self, epoch: int, *, is_other: bool) -> None:
        """Delete all segments before an epoch, by this process or by one of a node that has no segment."""
        if is_other:
            with self.world.process(node_id=NODE + 2) as other:
                self.cut(other, epoch)
        else:
            self.cut(self.process, epoch)

    def cut(self, process: Process, epoch: int) -> None:
        stream = process.stream()
        record = stream.epochs.epoch(epoch % (stream.current_epoch().epoch + 1))
        cut = dict.fromkeys(record.segments.ids.tolist(), 0)
        with suppress(InvalidArgument):  # before the head
            stream.truncate(cut)

    def truncate_to_the_tail(self) -> None:
        stream = self.stream
        stream.truncate(tails_of(self.process.host, stream))

    def restart(self, node: int) -> None:
        """The process dies; the next one, perhaps of another node, takes all segments over."""
        self.process.die()
        self.process = self.world.start(node_id=NODES[node])
        self.process.take_all()

    def end(self) -> None:
        for who, model in enumerate(self.models):
            self.write(who, 3, 1000, dies=False)
            assert set(model.times_stored.values()) <= {1}
            assert sorted(model.times_stored) == list(range(self.next[who]))
        self.process.die()


def tails_of(host: ObjectSegments, stream: Stream) -> Mapping[int, int]:
    return dict(host.tails(NAME, stream.active_segments().ids))


small = st.integers(0, 7)
writers = st.integers(0, len(WRITERS) - 1)
steps = st.one_of(
    st.tuples(st.just("write"), writers, st.integers(1, 4), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("split"), small),
    st.tuples(st.just("merge"), small),
    st.tuples(st.just("roll"), small),
    st.tuples(st.just("truncate"), small, st.booleans()),
    st.tuples(st.just("tail")),
    st.tuples(st.just("restart"), st.integers(0, 1)),
)


@settings(max_examples=examples(60, few=6), deadline=None)
@given(st.lists(steps, max_size=14))
def test_a_writer_resumes_where_it_would_if_no_segment_had_ever_been_deleted(
    story: list[tuple[str, int, int, int, bool]],
) -> None:
    life = Life()
    try:
        for what, *given_ in story:
            if what == "write":
                who, count, back, dies = given_
                life.write(who, count, back, dies=bool(dies))
            elif what == "truncate":
                life.truncate(given_[0], is_other=bool(given_[1]))
            elif what == "tail":
                life.truncate_to_the_tail()
            else:
                {"split": life.split, "merge": life.merge, "roll": life.roll, "restart": life.restart}[what](given_[0])
        life.end()
    finally:
        life.process.die()


# A process that dies at any step

EVENTS = 12
LAST_CUT = ("5@3", "6@3")


def produce(process: Process, *, deletes: bool) -> None:
    """Write numbered events from where the writer stands, with scales in between, and perhaps a deletion at last."""
    process.take_all()
    stream = process.stream()
    stream.recover()
    process.take_all()
    with StreamWriter(stream, process.host, writer_id=WRITERS[0]) as writer:
        for number in range(writer.resume(), EVENTS):
            change(stream, number)
            writer.write(b"%d" % number, key_of(number), number=number)
            writer.flush()
    if deletes:
        change(stream, EVENTS)


def change(stream: Stream, number: int) -> None:
    """Scales after some events, none twice; at last everything before the active segments is deleted."""
    epoch = stream.current_epoch().epoch
    if number >= 4 and epoch == 0:
        stream.scale(ids_of("0@0"), [(0.0, 0.25), (0.25, 0.5)])
    elif number >= 6 and epoch == 1:
        stream.scale(ids_of("2@1", "3@1", "1@0"), [(0.0, 1.0)])
    elif number >= EVENTS and epoch == 2:
        stream.scale(ids_of("4@2"), [(0.0, 0.5), (0.5, 1.0)])
        stream.truncate(dict.fromkeys(ids_of(*LAST_CUT), 0))
    elif number >= EVENTS:
        stream.truncate(dict.fromkeys(ids_of(*LAST_CUT), 0))


@pytest.mark.parametrize("deletes", [True, False], ids=["deleted", "kept"])
@pytest.mark.parametrize(("node_id", "step"), [(NODES[0], 9), (NODES[1], 11)], ids=["the same node", "another node"])
def test_a_producer_that_dies_before_any_write_goes_on_and_numbers_outlive_what_is_deleted(
    node_id: int, step: int, *, deletes: bool
) -> None:
    step = step if examples(100) <= 100 else 1
    world = created()
    recorder = Recorder(world, Story())
    with world.process(recorder) as process:
        produce(process, deletes=deletes)
    assert len(recorder.moments) > 50
    if deletes:
        tables = sum("writers-" in info.key for info in world.store.list("accel/time/"))
        assert tables == len(LAST_CUT)  # those of deleted segments are gone
    for number, moment in list(enumerate(recorder.moments))[::step]:
        world.store, world.seconds = moment.store, moment.seconds
        with world.process(node_id=node_id) as process:
            produce(process, deletes=deletes)
        with world.process(node_id=node_id) as process, writer_of(process) as writer:
            assert writer.resume() == EVENTS, f"crash before write {number}"
            again = writer.write_many([(b"%d" % each, key_of(each)) for each in range(EVENTS)], number=0)
            writer.flush()
            places = [future.result() for future in again]
        assert [place.offset for place in places if place is not None] == [REPEATED] * EVENTS, number
        if not deletes:
            by_key = sorted(map(int, world.payloads()), key=key_of)  # those of a key as they stand
            assert by_key == sorted(range(EVENTS), key=key_of), number


def writer_of(process: Process, who: int = 0) -> StreamWriter:
    return StreamWriter(process.stream(), process.host, writer_id=WRITERS[who])


def test_a_writer_that_opens_a_segment_while_its_predecessors_are_deleted_knows_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tables move from segments not looked at yet to segments that were looked at before."""
    world = created(1)
    with world.process() as process:
        stream = process.stream()
        with writer_of(process) as writer:
            writer.write_many([(b"%d" % each, key_of(each)) for each in range(6)], number=0)
        for segment in ("0@0", "1@1", "2@2"):
            stream.scale(ids_of(segment), [(0.0, 1.0)])
        head = stream.active_segments().ids.tolist()
        looked_up = SegmentDirectory.predecessors

        def delete_then_look_up(
            directory: SegmentDirectory, name: StreamName, segment_id: int, oldest_ms: float
        ) -> list[SegmentRecord]:
            if segment_id == ids_of("1@1")[0]:  # the table of 0@0 is looked at next
                monkeypatch.setattr(SegmentDirectory, "predecessors", looked_up)
                with world.process(node_id=NODE + 2) as other:
                    other.stream().truncate(dict.fromkeys(head, 0))
            return looked_up(directory, name, segment_id, oldest_ms)

        monkeypatch.setattr(SegmentDirectory, "predecessors", delete_then_look_up)
        assert writer_of(process).resume() == 6
    assert SegmentDirectory.predecessors is looked_up


# Numbers that the node's list leaves out


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> World:
    """A stream whose numbers are in no list and no checkpoint, but whose times are: nobody reads its data for these."""
    world = created(1)
    world.moves = 1, MOVED_RECORDS_MAX
    with world.process() as process:
        writer = writer_of(process)
        writer.write(b"0", b"key", number=0)
        writer.flush()
        monkeypatch.setattr("accel.catalog.node_list.TIMES_MAX", 1)
        for number in (1, 2, 3):
            writer.write(b"%d" % number, b"key", number=number)
            writer.flush()
        assert list(tails_of(process.host, process.stream()).values()) == [4]
    return world


def test_a_node_that_takes_over_knows_numbers_that_the_list_leaves_out(crowded: World) -> None:
    with crowded.process(node_id=NODES[1]) as process:
        process.take_all()
        assert writer_of(process).resume(4) == 4
    with crowded.process(node_id=NODES[1]) as process:  # also if the first one died before it wrote
        assert writer_of(process).resume(4) == 4


def test_numbers_that_the_list_leaves_out_outlive_the_data(crowded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.catalog.writer.TIMES_MAX", 1 << 20)
    with crowded.process() as process:
        writer = writer_of(process)
        writer.write(b"4", b"key", number=4)
        writer.flush()
        process.stream().truncate(tails_of(process.host, process.stream()))
    with crowded.process() as process:
        assert writer_of(process).resume(5) == 5


# Writers that are forgotten


FEW = SegmentsSettings(linger_seconds=5.0, writers_max=2)


def write_some(world: World, writer_id: UUID, count: int = 3) -> None:
    with world.process(settings=FEW) as process:
        with StreamWriter(process.stream(), process.host, writer_id=writer_id) as writer:
            writer.write_many([(b"%d" % each, key_of(each)) for each in range(count)], number=0)
        process.host.close()


@pytest.fixture
def forgetful() -> World:
    """A stream that knew two writers, and has forgotten the first: a third one came."""
    world = created(1)
    for writer_id in (*WRITERS, UUID(int=7)):
        write_some(world, writer_id)
    return world


def test_a_writer_that_may_be_forgotten_is_warned_and_refused_if_it_knows_more(
    forgetful: World, caplog: pytest.LogCaptureFixture
) -> None:
    with forgetful.process(settings=FEW) as process, caplog.at_level(logging.WARNING):
        assert writer_of(process, 1).resume(3) == 3
        assert not caplog.records
        writer = writer_of(process)
        assert f"writer {WRITERS[0]} is not known" in caplog.text
        with pytest.raises(IllegalState, match=rf"{WRITERS[0]} up to 3, .*, found them up to 0"):
            writer.resume(3)
        assert writer.resume() == writer.resume(0) == 0


def test_that_writers_were_forgotten_outlives_checkpoints_scales_and_take_overs(
    forgetful: World, caplog: pytest.LogCaptureFixture
) -> None:
    with forgetful.process(node_id=NODES[1], settings=FEW) as process, caplog.at_level(logging.WARNING):
        process.take_all()
        stream = process.stream()
        stream.scale(ids_of("0@0"), [(0.0, 0.5), (0.5, 1.0)])
        stream.truncate(dict.fromkeys(stream.active_segments().ids.tolist(), 0))
        assert not caplog.records
        with pytest.raises(IllegalState, match="found them up to 0"):
            writer_of(process).resume(3)
        assert f"writer {WRITERS[0]} is not known" in caplog.text


def test_a_writer_that_was_idle_for_too_long_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    world = created(1)
    write_some(world, WRITERS[0])
    world.seconds += 8 * 86_400
    write_some(world, WRITERS[1])
    with world.process(settings=FEW) as process, caplog.at_level(logging.WARNING):
        assert writer_of(process).resume() == 0
    assert f"writer {WRITERS[0]} is not known" in caplog.text


@pytest.mark.parametrize("expected", [-1, 3.0, True, "3", 2**70])
def test_an_expected_number_that_is_none_is_refused(expected: int) -> None:
    world = created(1)
    with world.process() as process, pytest.raises(InvalidArgument, match="expected"):
        writer_of(process).resume(expected)


def test_a_scale_beside_other_segments_with_fewer_numbers_is_no_reason_to_refuse() -> None:
    """What was acknowledged may be above the number at which the producer continues: it repeats a few events."""
    world = created(2)
    with world.process() as process:
        with writer_of(process) as writer:
            writer.write_many([(b"0", b"key-0"), (b"1", b"key-1"), (b"2", b"key-4")], number=0)
        assert {key_position(each) < 0.5 for each in (b"key-0", b"key-1", b"key-4")} == {True, False}
        assert writer_of(process).resume(3) < 3
