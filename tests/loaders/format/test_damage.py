"""Damage anywhere is noticed, or changes nothing but the field it hit; no damage brings any other error."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loaders.errors import CorruptObject
from loaders.format import RecordBatch
from tests.loaders.format.objects import Written, blocks_of, opened, written_objects


def read_all(data: bytes) -> list[RecordBatch]:
    return [batch for block in blocks_of(data, opened(data)) for batch in block]


def spots(written: Written) -> dict[str, list[range]]:
    """Which bytes of an object mean what."""
    index = opened(written.data)
    found: dict[str, list[range]] = {"told": [], "header": [], "offset": [], "free": []}
    for row, block in zip(index, blocks_of(written.data, index), strict=True):
        found["header"].append(range(row.position, row.position + 10))
        at = row.position + 10
        for batch in block:
            found["header"] += [range(at, at + 9), range(at + 29, at + 33)]  # magic, stream id, payload length
            found["free"] += [range(at + 9, at + 17), range(at + 33, at + 33 + len(batch.payload))]  # epoch, payload
            found["offset"].append(range(at + 17, at + 29))  # base offset, count
            at += 33 + len(batch.payload)
    end = len(written.data)
    found["told"] = [range(end - 48 - index.nbytes, end - 36), range(end - 8, end)]  # rows, footer
    found["free"].append(range(end - 36, end - 8))  # the footer's reserve
    return found


def damaged(written: Written, kinds: tuple[str, ...], draw: st.DataObject) -> bytes:
    places = [place for kind in kinds for stretch in spots(written)[kind] for place in stretch]
    assume(places)
    data = bytearray(written.data)
    data[draw.draw(st.sampled_from(places))] ^= 1 << draw.draw(st.integers(0, 7))
    return bytes(data)


@given(written_objects(), st.data())
def test_a_flipped_bit_in_rows_footer_or_headers_is_always_noticed(written: Written, draw: st.DataObject) -> None:
    data = damaged(written, ("told", "header"), draw)
    with pytest.raises(CorruptObject):
        read_all(data)


@given(written_objects(), st.data())
def test_a_flipped_bit_in_offsets_is_noticed_or_stays_within_the_row_and_the_order(
    written: Written, draw: st.DataObject
) -> None:
    data = damaged(written, ("offset",), draw)
    try:
        found = read_all(data)
    except CorruptObject:
        return
    assert [batch.payload for batch in found] == [batch.payload for batch in written.batches]
    assert opened(data).object_ranges().ends.tolist() == opened(written.data).object_ranges().ends.tolist()


@given(written_objects(), st.data())
def test_a_flipped_bit_in_an_epoch_a_payload_or_the_reserve_changes_only_that(
    written: Written, draw: st.DataObject
) -> None:
    found = read_all(damaged(written, ("free",), draw))
    places = [(batch.stream_id, batch.base_offset, batch.count, len(batch.payload)) for batch in found]
    assert places == [
        (batch.stream_id, batch.base_offset, batch.count, len(batch.payload)) for batch in written.batches
    ]
