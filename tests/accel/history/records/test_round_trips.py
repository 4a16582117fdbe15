"""Whatever a stream goes through, its records come back as they were written."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.history import records as codecs
from accel.history.records import HistoryForm
from accel.history.rules.cuts import CutSpan
from accel.history.rules.epochs import EpochRecord, EpochTransition, HistoryChunk, HistoryDelta, delta_of
from accel.history.rules.retention import RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.segments import KeyRanges, Segments
from accel.history.rules.transactions import CommitOrder, CommittingTransactions
from accel.history.rules.values import EPOCH_MAX, NUMBER_MAX, IdMap, IdSet, make_id
from range_index.epoch_times import Block, BlockKind, BlockTimes, EpochTimesRoot, append, first_root, show_epochs
from tests.accel.history.records.building import chunk_of_scales
from tests.accel.history.rules.streams import Stream, streams

int64s = st.integers(-(2**63), 2**63 - 1)
naturals = st.integers(0, 2**63 - 1)
epochs = st.one_of(st.integers(0, 5), st.integers(0, EPOCH_MAX))
segment_ids = st.builds(make_id, epochs, st.one_of(st.integers(0, 5), st.integers(0, NUMBER_MAX)))
id_maps = st.dictionaries(segment_ids, int64s, max_size=20).map(IdMap.of)
id_sets = st.sets(segment_ids, max_size=20).map(IdSet.of)
ascending = st.lists(int64s, min_size=1, max_size=40, unique=True).map(sorted)
keys = st.floats(0.0, 1.0)
transaction_ids = st.lists(st.uuids(), max_size=8, unique=True).map(tuple)
ranges = st.lists(st.tuples(keys, keys).filter(lambda each: each[0] < each[1]), max_size=5)


@st.composite
def tilings(draw: st.DrawFn, epoch: int) -> Segments:
    """Segments of one epoch, in any order of keys, that tile the key space."""
    inner = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)
    keys = [0.0, *sorted(draw(st.sets(inner, max_size=12))), 1.0]
    count = len(keys) - 1
    ids = draw(
        st.sets(st.builds(make_id, st.integers(0, epoch), st.integers(0, NUMBER_MAX)), min_size=count, max_size=count)
    )
    order = draw(st.permutations(range(count)))
    starts, ends = np.array(keys[:-1])[order], np.array(keys[1:])[order]
    return Segments.make(sorted(ids), draw(st.integers(0, 2**62)), starts, ends)


def deltas_of(stream: Stream) -> list[HistoryDelta]:
    """What changed in each epoch."""
    return list(map(delta_of, stream.records, [None, *stream.records]))


@settings(deadline=None)
@given(streams(changes_max=15), st.data())
def test_any_run_of_epochs_is_read_back(given_stream: tuple[Stream, Random], data: st.DataObject) -> None:
    """Also where a chunk begins in the middle, and seals what was created before it or stamped anew within it."""
    deltas = deltas_of(given_stream[0])
    first = data.draw(st.integers(0, len(deltas) - 1))
    stop = data.draw(st.integers(first + 1, len(deltas)))
    chunk = HistoryChunk.of(deltas[first:stop])
    again = codecs.HISTORY_CHUNK.decode(codecs.HISTORY_CHUNK.encode(chunk), "here")
    assert again == chunk
    assert list(again) == deltas[first:stop]


@settings(deadline=None)
@given(streams(changes_max=15))
def test_a_chunk_may_be_continued_after_it_was_read(given_stream: tuple[Stream, Random]) -> None:
    deltas = deltas_of(given_stream[0])
    chunk = HistoryChunk.of(deltas[:1])
    for delta in deltas[1:]:
        stored = codecs.HISTORY_CHUNK.encode(chunk)
        longer = codecs.HISTORY_CHUNK.decode(stored, "here").with_delta(delta)
        assert longer is not None
        chunk = longer
    assert list(chunk) == deltas


@st.composite
def epoch_records(draw: st.DrawFn) -> EpochRecord:
    epoch, counts = draw(epochs), st.integers(-1, 2**40)
    return EpochRecord(epoch, epoch, draw(tilings(epoch)), draw(st.integers(0, 2**62)), draw(counts), draw(counts))


@st.composite
def spans(draw: st.DrawFn) -> tuple[IdMap, CutSpan]:
    epoch = draw(epochs)
    segments = draw(tilings(epoch))
    offsets = draw(st.lists(int64s, min_size=len(segments), max_size=len(segments)))
    return IdMap(segments.ids.copy(), offsets), CutSpan(
        segments, IdMap(segments.ids.copy(), np.full(len(segments), epoch))
    )


@st.composite
def truncations(draw: st.DrawFn) -> TruncationRecord:
    updating = draw(st.booleans())
    cut, last = draw(spans()), draw(spans()) if updating else (IdMap(), CutSpan())
    to_delete = draw(naturals) if updating else 0
    return TruncationRecord(*cut, *last, draw(naturals), to_delete, draw(naturals), updating=updating)


@st.composite
def retention_sets(draw: st.DrawFn) -> RetentionSet:
    times = draw(ascending)
    return RetentionSet(times, draw(st.lists(int64s, min_size=len(times), max_size=len(times))))


@st.composite
def commits(draw: st.DrawFn) -> CommittingTransactions:
    ids, epoch, rolls = draw(transaction_ids), draw(st.integers(0, EPOCH_MAX - 2)), draw(st.booleans())
    return CommittingTransactions(epoch, ids, epoch if ids and rolls else None)


@st.composite
def roots(draw: st.DrawFn) -> EpochTimesRoot:
    times = draw(ascending)
    root = first_root(times[0], part_epochs=draw(st.integers(1, 3)), leaf_parts=2)
    for epoch, time_ms in enumerate(times):
        root = append(root, epoch, time_ms).root
    return show_epochs(root, draw(st.integers(1, root.epochs)))


RECORDS: dict[str, tuple[HistoryForm[Any], st.SearchStrategy[Any]]] = {
    "an epoch after any story": (codecs.EPOCH_RECORD, streams().map(lambda found: found[0].current)),
    "an epoch with any keys": (codecs.EPOCH_RECORD, epoch_records()),
    "a transition": (
        codecs.EPOCH_TRANSITION,
        st.just(EpochTransition())
        | st.builds(
            EpochTransition,
            st.integers(0, EPOCH_MAX - 1),
            naturals,
            id_sets.filter(len),
            st.just(7),
            ranges.filter(len).map(KeyRanges.of),
        ),
    ),
    "a cut": (codecs.STREAM_CUT, st.builds(StreamCutRecord, int64s, naturals, id_maps)),
    "sizes": (codecs.SEALED_SIZES, st.just(IdMap()) | id_maps),
    "a truncation": (codecs.TRUNCATION, st.just(TruncationRecord()) | truncations()),
    "recorded cuts": (codecs.RETENTION_SET, st.just(RetentionSet()) | retention_sets()),
    "a commit": (codecs.COMMITTING_TRANSACTIONS, st.just(CommittingTransactions()) | commits()),
    "the order of commits": (
        codecs.COMMIT_ORDER,
        transaction_ids.map(lambda ids: CommitOrder(2 * len(ids), tuple(range(0, 2 * len(ids), 2)), ids)),
    ),
    "a block of times": (
        codecs.EPOCH_TIMES_BLOCK,
        st.builds(
            lambda times, kind, number: BlockTimes(Block(kind, number, len(times)), array("q", times)),
            ascending,
            st.sampled_from(BlockKind),
            st.integers(0, 2**40),
        ),
    ),
    "a root of times": (codecs.EPOCH_TIMES, roots()),
}


@pytest.mark.parametrize("name", RECORDS)
@settings(deadline=None)
@given(data=st.data())
def test_any_record_is_read_back_to_the_last_bit(name: str, data: st.DataObject) -> None:
    form, records = RECORDS[name]
    record = data.draw(records)
    stored = form.encode(record)
    again = form.decode(stored, "here")
    assert again == record
    assert form.encode(again) == stored


def test_what_is_sealed_in_the_chunk_that_created_it_is_kept_once() -> None:
    """Segments from before the chunk are written out; all others are positions."""
    chunk = chunk_of_scales(2, segments=3, epochs=200)
    fields = codecs.HISTORY_CHUNK.decode_fields(codecs.HISTORY_CHUNK.encode(chunk), "here")
    assert len(fields.older) < 200
    assert len(fields.sealed) < 2 * len(chunk.sealed)
