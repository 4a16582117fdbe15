"""Whatever a stream goes through, its records come back as they were written."""

from __future__ import annotations

from array import array
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.history import records as codecs
from accel.history.records import HistoryForm
from accel.history.rules.cuts import CutSpan
from accel.history.rules.epochs import EpochRecord, EpochTransition, HistoryChunk, HistoryDelta
from accel.history.rules.retention import RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.segments import KeyRanges, Segments
from accel.history.rules.transactions import CommitOrder, CommittingTransactions
from accel.history.rules.values import EPOCH_MAX, NUMBER_MAX, IdMap, IdSet, make_id
from range_index.epoch_times import Block, BlockKind, BlockTimes, append, first_root, show_epochs
from tests.accel.history.records.building import Story, by_id, chunk_of_scales

int64s = st.integers(-(2**63), 2**63 - 1)
naturals = st.integers(0, 2**63 - 1)
epochs = st.one_of(st.integers(0, 5), st.integers(0, EPOCH_MAX))
segment_ids = st.builds(make_id, epochs, st.one_of(st.integers(0, 5), st.integers(0, NUMBER_MAX)))
id_maps = st.dictionaries(segment_ids, int64s, max_size=20).map(IdMap.of)
id_sets = st.sets(segment_ids, max_size=20).map(IdSet.of)
ascending = st.lists(int64s, min_size=1, max_size=40, unique=True).map(sorted)
keys = st.floats(0.0, 1.0)
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


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[HistoryDelta], Story]:
    """What a stream goes through, from its creation on; and the stream as it is then."""
    story = Story(draw(st.integers(0, 2**32)), draw(st.integers(1, 6)), halves=draw(st.booleans()))
    deltas = [story.begin()]
    for operations in draw(st.lists(st.integers(0, 4), max_size=15)):
        deltas += [story.scale(operations)] if operations else story.roll()
    return deltas, story


@settings(deadline=None)
@given(stories(), st.data())
def test_any_run_of_epochs_is_read_back(found: tuple[list[HistoryDelta], Story], data: st.DataObject) -> None:
    """Also where a chunk begins in the middle, and seals what was created before it or stamped anew within it."""
    deltas, _ = found
    first = data.draw(st.integers(0, len(deltas) - 1))
    stop = data.draw(st.integers(first + 1, len(deltas)))
    chunk = HistoryChunk.of(deltas[first:stop])
    again = codecs.HISTORY_CHUNK.decode(codecs.HISTORY_CHUNK.encode(chunk), "here")
    assert again == chunk
    assert list(again) == deltas[first:stop]


@settings(deadline=None)
@given(stories())
def test_a_chunk_may_be_continued_after_it_was_read(found: tuple[list[HistoryDelta], Story]) -> None:
    deltas, _ = found
    chunk = HistoryChunk.of(deltas[:1])
    for delta in deltas[1:]:
        stored = codecs.HISTORY_CHUNK.encode(chunk)
        longer = codecs.HISTORY_CHUNK.decode(stored, "here").with_delta(delta)
        assert longer is not None
        chunk = longer
    assert list(chunk) == deltas


@settings(deadline=None)
@given(stories())
def test_an_epoch_is_read_back_after_any_story(found: tuple[list[HistoryDelta], Story]) -> None:
    _, story = found
    record = EpochRecord(story.epoch, story.epoch, by_id(story.live), story.time_ms, 3, 4)
    assert codecs.EPOCH_RECORD.decode(codecs.EPOCH_RECORD.encode(record), "here") == record


@given(st.data(), epochs, st.integers(0, 2**62), st.integers(-1, 2**40), st.integers(-1, 2**40))
def test_an_epoch_with_any_keys_is_read_back(
    data: st.DataObject, epoch: int, time_ms: int, splits: int, merges: int
) -> None:
    record = EpochRecord(epoch, epoch, data.draw(tilings(epoch)), time_ms, splits, merges)
    again = codecs.EPOCH_RECORD.decode(codecs.EPOCH_RECORD.encode(record), "here")
    assert again == record
    assert again.segments.rows.tobytes() == record.segments.rows.tobytes()


@given(id_sets.filter(len), st.integers(0, EPOCH_MAX - 1), ranges.filter(len), naturals)
def test_a_transition_keeps_every_bit_of_its_ranges(
    sealed: IdSet, active_epoch: int, new: list[tuple[float, float]], time_ms: int
) -> None:
    transition = EpochTransition(active_epoch, time_ms, sealed, 7, KeyRanges.of(new))
    again = codecs.EPOCH_TRANSITION.decode(codecs.EPOCH_TRANSITION.encode(transition), "here")
    assert again.new_ranges.starts.tobytes() == transition.new_ranges.starts.tobytes()
    assert again.new_ranges.ends.tobytes() == transition.new_ranges.ends.tobytes()
    assert (again.active_epoch, again.time_ms, again.first_number) == (active_epoch, time_ms, 7)
    assert again.segments_to_seal == sealed


@given(id_maps, naturals, int64s)
def test_a_cut_and_a_shard_are_read_back(cut: IdMap, size: int, time_ms: int) -> None:
    record = StreamCutRecord(time_ms, size, cut)
    assert codecs.STREAM_CUT.decode(codecs.STREAM_CUT.encode(record), "here") == record
    assert codecs.SEALED_SIZES.decode(codecs.SEALED_SIZES.encode(cut), "here") == cut


@st.composite
def spans(draw: st.DrawFn) -> tuple[IdMap, CutSpan]:
    epoch = draw(epochs)
    segments = draw(tilings(epoch))
    offsets = draw(st.lists(int64s, min_size=len(segments), max_size=len(segments)))
    return IdMap(segments.ids.copy(), offsets), CutSpan(
        segments, IdMap(segments.ids.copy(), np.full(len(segments), epoch))
    )


@given(spans(), spans(), naturals, naturals, naturals, st.booleans())
def test_a_truncation_is_read_back(
    cut: tuple[IdMap, CutSpan], last: tuple[IdMap, CutSpan], deleted: int, to_delete: int, size: int, updating: bool
) -> None:
    last_cut, last_span = last if updating else (IdMap(), CutSpan())
    record = TruncationRecord(
        cut=cut[0],
        span=cut[1],
        last_cut=last_cut,
        last_span=last_span,
        deleted_count=deleted,
        to_delete_count=to_delete if updating else 0,
        size_till=size,
        updating=updating,
    )
    assert codecs.TRUNCATION.decode(codecs.TRUNCATION.encode(record), "here") == record


@given(ascending, st.data())
def test_recorded_cuts_are_read_back(times: list[int], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(int64s, min_size=len(times), max_size=len(times)))
    record = RetentionSet(times, sizes)
    assert codecs.RETENTION_SET.decode(codecs.RETENTION_SET.encode(record), "here") == record


@given(st.lists(st.uuids(), max_size=8, unique=True), st.booleans(), st.integers(0, EPOCH_MAX - 2))
def test_a_commit_and_the_order_of_commits_are_read_back(ids: list[UUID], rolling: bool, epoch: int) -> None:
    active_epoch = epoch if rolling and ids else None
    committing = CommittingTransactions(epoch, tuple(ids), active_epoch)
    assert (
        codecs.COMMITTING_TRANSACTIONS.decode(codecs.COMMITTING_TRANSACTIONS.encode(committing), "here") == committing
    )
    order = CommitOrder(2 * len(ids), tuple(range(0, 2 * len(ids), 2)), tuple(ids))
    assert codecs.COMMIT_ORDER.decode(codecs.COMMIT_ORDER.encode(order), "here") == order


@given(ascending, st.sampled_from(list(BlockKind)), st.integers(0, 2**40))
def test_a_block_of_times_is_read_back(times: list[int], kind: BlockKind, number: int) -> None:
    block = BlockTimes(Block(kind, number, len(times)), array("q", times))
    assert codecs.EPOCH_TIMES_BLOCK.decode(codecs.EPOCH_TIMES_BLOCK.encode(block), "here") == block


@given(ascending, st.integers(1, 3), st.data())
def test_a_root_of_times_is_read_back(times: list[int], part_epochs: int, data: st.DataObject) -> None:
    root = first_root(times[0], part_epochs=part_epochs, leaf_parts=2)
    for epoch, time_ms in enumerate(times):
        root = append(root, epoch, time_ms).root
    root = show_epochs(root, data.draw(st.integers(1, root.epochs)))
    assert codecs.EPOCH_TIMES.decode(codecs.EPOCH_TIMES.encode(root), "here") == root


@pytest.mark.parametrize(
    ("form", "empty"),
    [
        (codecs.COMMIT_ORDER, CommitOrder()),
        (codecs.TRUNCATION, TruncationRecord()),
        (codecs.EPOCH_TRANSITION, EpochTransition()),
        (codecs.COMMITTING_TRANSACTIONS, CommittingTransactions()),
        (codecs.RETENTION_SET, RetentionSet()),
        (codecs.SEALED_SIZES, IdMap()),
    ],
)
def test_empty_records_are_read_back(form: HistoryForm[Any], empty: object) -> None:
    assert form.decode(form.encode(empty), "here") == empty


def test_what_is_sealed_in_the_chunk_that_created_it_is_kept_once() -> None:
    """Segments from before the chunk are written out; all others are positions."""
    chunk = chunk_of_scales(2, segments=3, epochs=200)
    fields = codecs.HISTORY_CHUNK.decode_fields(codecs.HISTORY_CHUNK.encode(chunk), "here")
    assert len(fields.older) < 200
    assert len(fields.sealed) < 2 * len(chunk.sealed)
