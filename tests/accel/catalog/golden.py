"""One record of every form, and the bytes that an earlier release wrote for it.

The bytes lie in tests/data/tables/catalog and are never made anew: what was once written must be readable for ever. A
new version of a form gets a file of its own, beside the old one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from accel.catalog.records import (
    LIVE,
    OWNED_RANGE,
    PREPARED,
    RETIRED,
    RETIRED_STREAM_OBJECT,
    STREAM,
    STREAM_END,
    STREAM_OBJECT,
    TIME_RECORD,
    WRITER_NUMBER,
    Checkpoint,
    ListVersion,
    NodeDirectory,
    NodeList,
    StreamShard,
    make_rows,
)

FOLDER = Path(__file__).parents[2] / "data" / "tables" / "catalog"


def golden_bytes(name: str) -> bytes:
    """The bytes of one golden file."""
    return (FOLDER / f"{name}.bin").read_bytes()


def golden_list() -> NodeList:
    """A list with rows of every kind."""
    return NodeList(
        node_id=7,
        epoch=3,
        next_order_id=41,
        live=make_rows(
            LIVE,
            object_id=[1200, 950, 1311],
            order_id=[10, 31, 40],
            last_order_id=[30, 31, 40],
            data_time_ms=[1_760_000_000_123, 1_760_000_060_007, 1_760_000_121_456],
            size_bytes=[83_886_080, 8_400_123, 7_999_001],
            index_size_bytes=[324_000, 72_036, 36],
            attributes=[0, -1, 4],
            tail_checksum=[0, -1, 2**32 - 1],
            added_by=[35, 31, 40],
        ),
        prepared=make_rows(PREPARED, object_id=[1312, 1313, 2**40], deadline_ms=[1_760_086_400_000, 5, 2**62]),
        retired=make_rows(
            RETIRED,
            object_id=[900, 901],
            order_id=[10, 30],
            last_order_id=[29, 30],
            data_time_ms=[1_760_000_000_123, 1_760_000_003_000],
            size_bytes=[50_000_000, 33_886_080],
            index_size_bytes=[180_000, 144_000],
            attributes=[-1, -1],
            tail_checksum=[3_141_592_653, 271_828],
            added_by=[20, 30],
            retired_at_ms=[1_760_000_090_000, 1_760_000_090_000],
            retired_by=[35, 35],
            doomed=[0, 1],
        ),
        stream_objects=make_rows(
            STREAM_OBJECT,
            object_id=[1201, 1199],
            stream_id=[17, 420_000],
            start=[0, 1000],
            end=[900, 2**33],
            size_bytes=[9_000_000, 12_000_000],
            index_size_bytes=[36, 720],
            attributes=[0, 1],
            tail_checksum=[161_803_398, -1],
            data_time_ms=[1_760_000_000_123, 1_760_000_000_124],
            node_id=[7, 7],
            added_by=[35, 36],
        ),
        withdrawn_commits=(22, 23),
    )


def golden_bucket() -> StreamShard:
    """A bucket with rows of every kind."""
    facts = {"size_bytes": 5_000_000, "index_size_bytes": 36, "attributes": -1, "tail_checksum": 577_215_664}
    facts |= {"data_time_ms": 1_760_000_000_000}
    return StreamShard(
        bucket=5,
        streams=make_rows(STREAM, stream_id=[3, 420_000], start_offset=[100, 0]),
        ranges=make_rows(
            OWNED_RANGE,
            stream_id=[3, 3, 420_000],
            range_index=[1, 2, 0],
            epoch=[1, 4, 2],
            start=[50, 200, 0],
            end=[200, -1, 2**40],
            node_id=[7, 4, 7],
        ),
        stream_objects=make_rows(
            STREAM_OBJECT,
            object_id=[90, 91],
            stream_id=3,
            start=[80, 120],
            end=[120, 130],
            node_id=7,
            added_by=[-1, 9],
            **facts,
        ),
        retired=make_rows(
            RETIRED_STREAM_OBJECT,
            object_id=[88, 89],
            stream_id=[3, 420_000],
            start=[50, 0],
            end=[80, 10],
            node_id=[7, 7],
            added_by=[2, 3],
            retired_at_ms=[1_760_000_000_000, 1_760_000_000_001],
            doomed=[1, 0],
            **facts,
        ),
    )


def golden_checkpoint() -> Checkpoint:
    """Ends of three streams."""
    ends = make_rows(STREAM_END, stream_id=[3, 17, 420_000], end=[130, 900, 2**33])
    return Checkpoint(node_id=7, order_id=39, ends=ends)


def golden_version() -> ListVersion:
    """The list as it was."""
    return ListVersion(sequence=1234, node_list=golden_list())


def golden_directory() -> NodeDirectory:
    """Three nodes, of a catalog that was put back once."""
    generation = "01760000000000-000102030405060708090a0b0c0d0e0f"
    return NodeDirectory(np.array([0, 7, 2_000_000_000], dtype=np.int64), generation)


def golden_counter() -> int:
    """A counter beyond 32 bits."""
    return 2**40 + 1


def golden_timed_checkpoint() -> Checkpoint:
    """Ends of two streams, and times of one: the last record that has moved, and two behind it."""
    times = make_rows(
        TIME_RECORD,
        stream_id=17,
        record=[1023, 1024, 1025],
        end=[880, 890, 900],
        value=[1_760_000_000_123, 1_760_000_000_123, 1_760_000_004_096],
        commit=0,
    )
    return Checkpoint(7, 39, make_rows(STREAM_END, stream_id=[3, 17], end=[130, 900]), times)


def golden_numbered_checkpoint() -> Checkpoint:
    """As the timed one, and the numbers of two writers of one stream, of which one wrote to a segment before."""
    numbers = make_rows(
        WRITER_NUMBER,
        stream_id=17,
        writer_high=[-(2**63), 5, 5, 0],
        writer_low=[7, -1, -1, 0],
        keys_from=np.array([0.0, 0.0, 0.25, 0.0]).view(np.int64),
        keys_to=np.array([1.0, 1.0, 0.5, 0.0]).view(np.int64),
        number=[40, 2**63 - 2, 9, 900],
        settled=[38, 0, 0, 0],
        value=[1_760_000_000_123, 1_760_000_004_096, 1_760_000_004_096, 1_760_000_004_096],
        commit=0,
    )
    return replace(golden_timed_checkpoint(), numbers=numbers)
