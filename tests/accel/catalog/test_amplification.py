"""Few stored bytes cost a reader few rows and little memory, whatever they claim; what is shown is bounded as well."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
import numpy as np
import pytest
import zstandard

from accel.catalog import records
from accel.catalog.records import (
    LIVE,
    NODES_MAX,
    OWNED_RANGE,
    PREPARED,
    RETIRED,
    RETIRED_STREAM_OBJECT,
    STREAM,
    STREAM_OBJECT,
    NodeDirectory,
    NodeList,
    StreamShard,
)
from accel.history import records as codecs
from accel.history.columns import SET_ROW
from accel.history.records import RANGE
from loaders.errors import CorruptObject, FormatLimit
from loaders.tables import FormRegistry, RecordForm
from loaders.tables.columns import rows_allowed

T = TypeVar("T")

ROWS = 1 << 20
MEMORY_A_BYTE_MAX = 8 * 24 * 8
"""Of memory for a byte that is read: 8 rows of 24 columns."""

MEMORY_FREE_BYTES = 16 << 20
"""For the rows that are free, in all columns of a record, unpacked and copied."""


def packed(dtype: np.dtype[np.void], count: int, **bases: int) -> bytes:
    """So many rows in which each column is one number, or ascends by one: no bytes a row."""
    names = dtype.names or ()
    heads = [bytes([len(name)]) + name.encode() for name in names]
    kinds = [struct.pack(">BBqq", name.endswith("_id"), 0, 1, bases.get(name, 0)) for name in names]
    raw = struct.pack(">IB", count, len(names)) + b"".join(map(bytes.__add__, heads, kinds))
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    return struct.pack(">4sBI", b"ACol", 1, len(raw)) + frame


def with_rows(form: RecordForm[T], record: T, columns: dict[str, np.dtype[np.void]], count: int) -> bytes:
    """A record without rows, with so many in some of its fields."""
    rows = {name: packed(dtype, count) for name, dtype in columns.items()}
    return form.encode_fields(msgspec.structs.replace(form.decode_fields(form.encode(record), "key"), **rows))


def hostile_list(count: int) -> bytes:
    columns = {"live": LIVE, "prepared": PREPARED, "retired": RETIRED, "stream_objects": STREAM_OBJECT}
    return with_rows(records.NODE_LIST, NodeList(4, 1, 1 << 40), columns, count)


def hostile_bucket(count: int) -> bytes:
    columns = {
        "streams": STREAM,
        "ranges": OWNED_RANGE,
        "stream_objects": STREAM_OBJECT,
        "retired": RETIRED_STREAM_OBJECT,
    }
    return with_rows(records.STREAM_SHARD, StreamShard(0), columns, count)


def hostile_transition(count: int) -> bytes:
    # Ranges without segments to seal: what is refused must not be told row by row.
    fields = codecs.EPOCH_TRANSITION.struct(3, 0, packed(SET_ROW, 0), 0, packed(RANGE, count))
    return codecs.EPOCH_TRANSITION.encode_fields(fields)


Decode = Callable[[bytes, str], object]
HOSTILE: dict[str, tuple[Callable[[int], bytes], Decode]] = {
    "list": (hostile_list, records.NODE_LIST.decode),
    "bucket": (hostile_bucket, records.STREAM_SHARD.decode),
    "transition": (hostile_transition, codecs.EPOCH_TRANSITION.decode),
}


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("count", [ROWS, 1 << 16, 5000, 4096])
@pytest.mark.usefixtures("traced")
def test_what_a_reader_allocates_follows_from_the_bytes_that_it_read(what: str, count: int) -> None:
    make, decode = HOSTILE[what]
    data = make(count)
    assert len(data) < 1100
    tracemalloc.reset_peak()
    told = ""
    try:
        decode(data, "key")
    except CorruptObject as error:
        told = str(error)
    assert tracemalloc.get_traced_memory()[1] <= MEMORY_FREE_BYTES + MEMORY_A_BYTE_MAX * len(data)
    assert len(told) < 4000


@pytest.mark.parametrize("what", HOSTILE)
def test_a_million_rows_in_a_few_hundred_bytes_are_refused_with_both_counts(what: str) -> None:
    make, decode = HOSTILE[what]
    with pytest.raises(CorruptObject, match=rf"expected at most \d{{4}} rows in this number of bytes, found {ROWS}"):
        decode(make(ROWS), "key")


def test_a_directory_has_a_bound_of_its_own() -> None:
    most = NodeDirectory(np.arange(NODES_MAX))
    assert len(records.NODE_DIRECTORY.decode(records.NODE_DIRECTORY.encode(most), "key").node_ids) == NODES_MAX
    with pytest.raises(FormatLimit, match=f"at most {NODES_MAX} nodes .*found {NODES_MAX + 1}"):
        NodeDirectory(np.arange(NODES_MAX + 1))
    more = records.NODE_DIRECTORY.encode_fields(records.NODE_DIRECTORY.struct(list(range(NODES_MAX + 1)), ""))
    with pytest.raises(CorruptObject, match="length <= 65536"):
        records.NODE_DIRECTORY.decode(more, "key")


@pytest.mark.usefixtures("traced")
def test_rows_that_are_not_shown_are_not_made() -> None:
    count = 200_000
    live = np.zeros(count, dtype=LIVE)
    live["object_id"] = live["order_id"] = live["last_order_id"] = np.arange(count)
    data = records.NODE_LIST.encode(NodeList(4, next_order_id=count, live=live))
    registry = FormRegistry()
    registry.register(*records.ALL_FORMS)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    left_out: dict[str, int] = {}
    _, _, shown = registry.decode_any(data, "key", 1, left_out)
    assert tracemalloc.get_traced_memory()[1] - before <= 4 * live.nbytes, "arrays, and no dict a row"
    assert left_out == {"record.live": count - 1}
    assert msgspec.json.decode(msgspec.json.encode(shown))["live"][0]["object_id"] == 0
    assert rows_allowed(len(data)) >= count
