"""A scale that dies behind the seal of its segments, before the record of the new epoch: nothing ends too early."""

from __future__ import annotations

import pytest

from accel import ReadAccelerator
from accel.catalog import ObjectCatalog
from accel.errors import HostMissing
from accel.history.rules.states import StreamState
from accel.history.rules.values import IdMap
from accel.streams.reader import StreamReader
from accel.streams.segment_directory import stream_spans
from accel.streams.segment_source import ObjectSegmentSource
from accel.testing import Crash
from tests.accel.streams.writer.test_transaction_contents import DiesBehind
from tests.accel.streams.writer.world import CATALOG, NAME, NO_REPEATS, World, created

FIRST = [b"first-%d" % number for number in range(9)]
LATER = [b"later-%d" % number for number in range(9)]


def read(world: World, start: IdMap | None = None) -> tuple[list[bytes], IdMap]:
    """What a reader that does not follow finds from a position on, and where it ends."""
    with ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog:
        catalog.refresh()
        with ReadAccelerator(catalog.images(), world.store, settings=NO_REPEATS, system=world.system) as accelerator:
            stream = world.asking()
            source = ObjectSegmentSource(stream, accelerator, world.store)
            with StreamReader(stream, source, from_cut=start) as reader:
                found = [event.payload for event in reader]
                return found, reader.position()


def test_a_reader_at_sealed_segments_without_successors_goes_on_once_these_are_there() -> None:
    world = created()
    store = DiesBehind(world.store)
    with world.process(store) as process:
        with process.writer() as writer:
            for number, payload in enumerate(FIRST):
                writer.write(payload, b"key-%d" % number)
        stream = process.stream()
        store.fatal, store.left = "stream-buckets", 2
        with pytest.raises(Crash):
            stream.merge(0, 1)
    asking = world.asking()
    with ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog:
        spans = stream_spans(catalog.parts, [at for at in asking.segment_streams([0, 1]) if at is not None])
        assert [span.is_open for span in spans.values()] == [False, False]
    assert asking.state() is StreamState.SCALING
    assert asking.current_epoch().epoch == 0
    found, position = read(world)
    assert sorted(found) == FIRST
    assert set(position) == {0, 1}  # not finished: what follows is found from there on
    assert read(world, position) == ([], position)
    with pytest.raises(HostMissing):
        asking.recover()
    assert asking.state() is StreamState.SCALING
    with world.process() as process:
        assert process.stream().recover() == ["scale"]
        with process.writer() as writer:
            for number, payload in enumerate(LATER):
                writer.write(payload, b"key-%d" % number)
    assert asking.current_epoch().epoch == 1
    again, end = read(world, position)
    assert sorted(again) == LATER
    assert set(end).isdisjoint({0, 1})
    assert sorted(world.payloads(NAME)) == sorted(FIRST + LATER)
