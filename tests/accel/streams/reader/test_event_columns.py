"""Events of many batches, decoded at once, are those of each batch by itself; what is damaged is refused either way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from accel.history.rules.configuration import OffsetUnit
from accel.streams.rules.events import Event, WriterRun, decode_columns, decode_events, encode_events, span_of
from loaders.errors import CorruptObject
from loaders.format import BatchColumns, BlockRow, RecordBatch, decode_block_columns, encode_block
from tests.examples import examples

STREAM, SEGMENT = 7, 3
payloads = st.lists(st.binary(max_size=6), min_size=1, max_size=5)
units = st.sampled_from(OffsetUnit)


def runs(count: int) -> st.SearchStrategy[WriterRun]:
    """Numbers of so many events."""

    def run(writer: int, settled: int, behind: int, left_out: int) -> WriterRun:
        first = settled + behind
        return WriterRun(writer.to_bytes(16, "big"), first, first + count - 1 + left_out, settled)

    small = st.integers(0, 2**60)
    return st.builds(run, st.integers(1, 2**128 - 1), small, small, small)


@st.composite
def written(draw: st.DrawFn, unit: OffsetUnit, *, foreign: bool = True) -> list[RecordBatch]:
    """Batches that follow one another, with holes; of our writers, and of others that list no events."""
    batches, offset = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 8))):
        offset += draw(st.integers(0, 2))
        events = draw(payloads)
        if foreign and draw(st.integers(0, 5)) == 0:
            batch = RecordBatch(STREAM, 1, offset, draw(st.integers(1, 4)), draw(st.binary(max_size=3)))
        else:
            data = encode_events(events, draw(st.integers(0, 2**64 - 1)), draw(st.none() | runs(len(events))))
            batch = RecordBatch(STREAM, 1, offset, span_of(events, unit), data)
        batches.append(batch)
        offset = batch.end_offset
    return batches


def columns_of(batches: list[RecordBatch], *, apart: bool = False, prefix: bytes = b"") -> BatchColumns:
    """As they come of one row of an index, or of a row each."""
    parts = [[batch] for batch in batches] if apart else [batches]
    encoded = [encode_block(part) for part in parts]
    rows, position = [], len(prefix)
    for part, data in zip(parts, encoded, strict=True):
        rows.append(BlockRow(STREAM, part[0].base_offset, part[-1].end_offset, len(part), position, len(data)))
        position += len(data)
    body = memoryview(prefix + b"".join(encoded))[len(prefix) :]
    return decode_block_columns(body, rows, key="k", object_size_bytes=len(body))


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), units, st.booleans())
def test_batches_decoded_at_once_have_the_events_of_each(data: st.DataObject, unit: OffsetUnit, apart: bool) -> None:
    batches = data.draw(written(unit))
    columns = columns_of(batches, apart=apart, prefix=b"other segments'")
    assert list(columns) == batches
    decoded = decode_columns(columns, SEGMENT, unit)
    expected = [decode_events(batch, SEGMENT, unit) for batch in batches]
    assert [list(events) for events in decoded.batches()] == [list(events) for events, _ in expected]
    assert decoded.are_timed == all(is_timed for _, is_timed in expected)


@settings(max_examples=examples(100), deadline=None)
@given(written(OffsetUnit.RECORDS), st.integers(0, 30), st.none() | st.integers(0, 30), st.integers(1, 200))
def test_what_is_wanted_of_columns_is_what_a_reader_takes_one_by_one(
    batches: list[RecordBatch], start: int, end: int | None, max_bytes: int
) -> None:
    expected, at, left = [], start, max_bytes
    for batch in batches:
        if left > 0 and batch.end_offset > at and (end is None or batch.base_offset < end):
            expected.append(batch)
            at, left = batch.end_offset, left - max(1, len(batch.payload))
    wanted = columns_of(batches).wanted(start, end, max_bytes)
    assert list(wanted) == expected
    assert wanted.size_bytes == max_bytes - left
    assert list(wanted.owned()) == expected


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), units)
def test_a_damaged_list_is_refused_or_read_as_one_by_one(data: st.DataObject, unit: OffsetUnit) -> None:
    batches = data.draw(written(unit, foreign=False))
    number = data.draw(st.integers(0, len(batches) - 1))
    payload = bytearray(batches[number].payload)
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    batches[number] = replace(batches[number], payload=bytes(payload))
    columns = columns_of(batches)
    assert outcome(lambda: [list(events) for events in decode_columns(columns, SEGMENT, unit).batches()]) == outcome(
        lambda: [list(decode_events(batch, SEGMENT, unit)[0]) for batch in batches]
    )


def outcome(decode: Callable[[], list[list[Event]]]) -> list[list[Event]] | str:
    """What comes of it, or the text of the error."""
    try:
        return decode()
    except CorruptObject as error:
        return str(error)


def test_events_are_made_into_columns_of_arrow_without_copying_payloads() -> None:
    first, second = encode_events([b"a", b"", b"ccc"], 11), encode_events([b"dd"], 12)
    columns = columns_of([RecordBatch(STREAM, 1, 5, 3, first), RecordBatch(STREAM, 1, 8, 1, second)])
    batches = decode_columns(columns, SEGMENT, OffsetUnit.RECORDS).batches()
    for batch in (*batches, batches[0].within(6)):
        table = batch.to_arrow()
        assert [Event(*row.values()) for row in table.to_pylist()] == list(batch)
        assert table.schema.names == list(Event._fields)
        assert table.column("payload").buffers()[2].size == len(batch.data)
