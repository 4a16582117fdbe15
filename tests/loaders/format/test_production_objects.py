"""Objects of a production writer: read to the last batch, and written again to the same bytes."""

from hashlib import sha256
from itertools import groupby
from zlib import crc32

import pytest

from loaders.errors import CorruptObject
from loaders.format import ObjectEncoder, find, open_tail
from tests.loaders.format.objects import (
    DATA,
    Case,
    blocks_of,
    encoded,
    manifest,
    opened,
    production_bytes,
    production_cases,
)

objects = pytest.mark.parametrize("case", production_cases(), ids=lambda case: str(case["objectId"]))


@objects
def test_the_index_is_read_as_its_own_reader_reads_it(case: Case) -> None:
    index = opened(production_bytes(case["objectId"]))
    found = [[n, row.stream_id, row.start, row.end - row.start, *row[3:]] for n, row in enumerate(index)]
    assert found == case["index"]
    assert index.nbytes == case["indexSize"]


@objects
def test_the_ranges_are_those_that_were_committed(case: Case) -> None:
    ranges = opened(production_bytes(case["objectId"])).object_ranges()
    columns = (ranges.stream_ids.tolist(), ranges.starts.tolist(), ranges.ends.tolist())
    assert [list(entry) for entry in zip(*columns, strict=True)] == case["streamRanges"]
    assert not len(ranges.holed)
    assert all(ranges.range_of(stream_id) is None for stream_id in case["absent"])


@objects
def test_find_answers_as_its_own_reader_answers(case: Case) -> None:
    index = opened(production_bytes(case["objectId"]))
    for question in case["find"]:
        found = find(index, *question["q"])
        expected = (
            question["blockIds"],
            question["isFulfilled"],
            question["nextStartOffset"],
            question["nextMaxBytes"],
        )
        assert (list(found.rows), *found[1:]) == expected, question


@objects
def test_the_batches_are_those_that_were_written(case: Case) -> None:
    data = production_bytes(case["objectId"])
    blocks = blocks_of(data, opened(data))
    for number, batches in case["blocks"]:
        found = [
            [one.base_offset, one.count, one.epoch, len(one.payload), crc32(one.payload)] for one in blocks[number]
        ]
        assert found == batches


@objects
def test_an_object_written_again_block_by_block_has_the_same_bytes(case: Case) -> None:
    data = production_bytes(case["objectId"])
    again = encoded(blocks_of(data, opened(data)), case["blockSizeThreshold"])
    assert sha256(again).hexdigest() == sha256(data).hexdigest() == case["sha256"]


def written_by_stream(case: Case) -> bytes:
    """Write an object again, one call a stream."""
    data = production_bytes(case["objectId"])
    batches = [one for block in blocks_of(data, opened(data)) for one in block]
    encoder = ObjectEncoder(case["blockSizeThreshold"])
    parts = [encoder.write(stream_id, group) for stream_id, group in groupby(batches, key=lambda one: one.stream_id)]
    return b"".join([*parts, encoder.finish()])


def test_one_call_a_stream_gives_the_same_bytes_but_where_a_stream_was_written_in_two() -> None:
    different = {
        case["objectId"] for case in production_cases() if sha256(written_by_stream(case)).hexdigest() != case["sha256"]
    }
    # In object 32 the first call of stream 420000 ended where the threshold closes a block anyway.
    holding = {case["objectId"] for case in production_cases() if case["kind"] == "node4-with-420000"}
    assert different == holding - {32}


def test_each_damaged_object_is_refused_with_a_message_of_its_own() -> None:
    messages: dict[str, str] = {}
    for case in manifest()["corrupt"]:
        data = (DATA / case["file"]).read_bytes()
        with pytest.raises(CorruptObject) as caught:
            open_tail(data, object_size_bytes=case["claimedSize"], key=case["file"])
        assert (caught.value.key, caught.value.size_bytes) == (case["file"], case["claimedSize"])
        messages[case["file"]] = caught.value.found
    assert messages == {
        "corrupt/truncated_tail.bin": "0x0",
        "corrupt/wrong_magic.bin": "0x88e241b785f4cff6",
        "corrupt/index_size_past_end.bin": "[35448, 40516), which runs past the end of the object",
        "corrupt/index_size_into_footer.bin": "[35448, 36456), which runs into the footer",
    }
