"""The encoder writes what is read back, divides blocks as production does, and refuses what the format cannot say."""

from itertools import accumulate

import pytest
from hypothesis import given

from loaders.errors import FormatError, FormatLimit
from loaders.format import ObjectEncoder, RecordBatch
from tests.docs.pages import page_named
from tests.loaders.format.objects import Written, blocks_of, opened, written_objects

GOLDEN = bytes.fromhex(
    "5a020000000200000049"  # a block of two batches in 73 bytes
    "2200000000000000e90000000000000001000000000000000a000000050000000568656c6c6f"
    "2200000000000000e90000000000000001000000000000000f00000002000000026162"
    "5a020000000100000022"  # a block of one batch
    "2200000000000000ea0000000000000001000000000000000000000001000000"
    "0178"
    "00000000000000e9000000000000000a0000000700000002000000000000000000000053"  # two rows
    "00000000000000ea00000000000000000000000100000001000000000000005300" + "00002c"
    "000000000000007f00000048" + "00" * 28 + "88e241b785f4cff7"  # the footer
)


def batch(stream_id: int, base_offset: int, count: int, payload: bytes = b"") -> RecordBatch:
    return RecordBatch(stream_id, 1, base_offset, count, payload)


def test_an_object_of_two_streams_has_these_bytes() -> None:
    encoder = ObjectEncoder()
    data = encoder.write(233, [batch(233, 10, 5, b"hello"), batch(233, 15, 2, b"ab")])
    data += encoder.write(234, [batch(234, 0, 1, b"x")])
    assert data + encoder.finish() == GOLDEN
    assert encoder.size_bytes == len(GOLDEN) == 247


def test_the_documentation_shows_the_same_bytes() -> None:
    example = page_named("objects").read_text().rpartition("```\n  0  5a")[2]
    lines = [line[4:].split("   ")[0] for line in f"  0  5a{example}".splitlines()[:8]]
    assert bytes.fromhex("".join(lines)) == GOLDEN


@given(written_objects())
def test_all_that_is_written_is_in_the_index_and_in_the_blocks(written: Written) -> None:
    index = opened(written.data)
    blocks = blocks_of(written.data, index)
    assert [one for block in blocks for one in block] == written.batches
    assert list(accumulate((row.size_bytes for row in index), initial=0))[:-1] == [row.position for row in index]
    assert [row.payload_bytes for row in index] == [sum(len(one.payload) for one in block) for block in blocks]


@given(written_objects())
def test_blocks_end_at_the_threshold_or_with_the_write_and_nowhere_else(written: Written) -> None:
    expected: list[int] = []
    running = 0
    for write in written.writes:
        in_block = 0
        for one in write:
            running += len(one.payload)
            in_block += 1
            if running >= written.threshold_bytes:
                expected.append(in_block)
                running = in_block = 0
        expected += [in_block] if in_block else []
    assert [row.record_count for row in opened(written.data)] == expected


REFUSED = [
    (6, [batch(6, 0, 1)], FormatError, "a stream id of at least 7, found 6"),
    (7, [batch(7, 9, 1)], FormatError, r"stream 7 from 10 on, found \[9, 10\)"),
    (8, [batch(8, 0, 5), batch(8, 4, 5)], FormatError, r"stream 8 from 5 on, found \[4, 9\)"),
    (8, [batch(8, 0, -5), batch(8, 4, 5)], FormatError, r"stream 8 from 5 on, found \[4, 9\)"),
    (8, [batch(8, 0, 5), batch(9, 5, 5)], FormatError, "batches of stream 8, found one of stream 9"),
    (-1, [batch(-1, 0, 1)], FormatLimit, "stream id of 0"),
    (2**63, [batch(2**63, 0, 1)], FormatLimit, "stream id of 0"),
    (8, [batch(8, -1, 1)], FormatLimit, "offsets of 0"),
    (8, [batch(8, 2**63 - 1, 1)], FormatLimit, "offsets of 0"),
    (8, [batch(8, 0, 2**31)], FormatLimit, "at most 2147483647 offsets"),
    (8, [batch(8, 0, -(2**31))], FormatLimit, "at most 2147483647 offsets"),
    (8, [batch(8, 0, 2**31 - 1), batch(8, 2**31 - 1, 1)], FormatLimit, "at most 2147483647 offsets in a block"),
    (8, [RecordBatch(8, 2**63, 0, 1, b"")], FormatLimit, "an epoch of 64 bits"),
]


@pytest.mark.parametrize(("stream_id", "batches", "error", "words"), REFUSED)
def test_a_refused_write_leaves_the_encoder_as_it_was(
    stream_id: int, batches: list[RecordBatch], error: type[FormatError], words: str
) -> None:
    encoder, undisturbed = ObjectEncoder(10), ObjectEncoder(10)
    for one in (encoder, undisturbed):
        one.write(7, [batch(7, 0, 10, b"7 bytes")])
    with pytest.raises(error, match=words) as caught:
        encoder.write(stream_id, batches)
    assert type(caught.value) is error
    after = [batch(8, 0, 1, b"abc"), batch(8, 1, 1, b"d")]
    assert encoder.write(8, after) + encoder.finish() == undisturbed.write(8, after) + undisturbed.finish()


class _Huge(bytes):
    """A payload that says it is huge, without being it."""

    __slots__ = ()

    def __len__(self) -> int:
        return 2**31 - 43


def test_a_block_larger_than_its_size_field_is_refused() -> None:
    huge = RecordBatch(7, 1, 0, 1, b"")
    object.__setattr__(huge, "payload", _Huge())  # a batch that is made of it has the bytes themselves
    with pytest.raises(FormatLimit, match="at most 2147483647 bytes, found 2147483648"):
        ObjectEncoder().write(7, [huge])


def test_an_object_takes_no_more_streams_than_its_readers_are_sized_for() -> None:
    encoder = ObjectEncoder(streams_max=2)
    for stream_id in (1, 2, 2):
        encoder.write(stream_id, [batch(stream_id, encoder.size_bytes, 1)])
    with pytest.raises(FormatLimit, match="at most 2 streams"):
        encoder.write(3, [batch(3, 0, 1)])


def test_an_index_larger_than_its_size_field_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loaders.format.object_encoder._INT32_MAX", 100)
    encoder = ObjectEncoder()
    encoder.write(1, [batch(1, 0, 1)])
    encoder.write(2, [batch(2, 0, 1)])
    with pytest.raises(FormatLimit, match="an index of at most 100 bytes, found 108"):
        encoder.write(3, [batch(3, 0, 1)])


def test_a_finished_object_is_finished() -> None:
    encoder = ObjectEncoder()
    assert len(encoder.finish()) == 48
    with pytest.raises(FormatError, match="finished"):
        encoder.write(1, [batch(1, 0, 1)])
    with pytest.raises(FormatError, match="finished"):
        encoder.finish()


@pytest.mark.parametrize("threshold_bytes", [0, -1])
def test_a_threshold_that_closes_no_block_is_refused(threshold_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"found {threshold_bytes}"):
        ObjectEncoder(threshold_bytes)
