"""The tables, by name: their columns as Arrow types, and the requests for their rows.

    | table           | a row is                                 | requests                                        |
    |-----------------|------------------------------------------|-------------------------------------------------|
    | `objects`       | an object that the catalog lists         | those of the catalog                            |
    | `stream_ranges` | a stream in an object                    | one an object                                   |
    | `blocks`        | a row of an object's block index         | one an object                                   |
    | `records`       | a record batch                           | one an object, and one for 8 MiB of its blocks  |
    | `epochs`        | an epoch of a stream's history           | 5 a stream, 1 for 1,000 epochs, 1 a duplicate   |
    | `segments`      | a segment of a stream's history          | the same; `stream_id`: 1 a segment; `size`: 1 a |
    |                 |                                          | shard of sealed sizes                           |
    | `cuts`          | a segment in a recorded cut of a stream, | 7 a stream, 1 a cut                             |
    |                 | or in the cut that the stream begins at  |                                                 |
    | `events`        | an event of one stream                   | about 20 for the cuts, then those of reading    |
    | `job_runs`      | a run of a job: compact, build-hints, gc | 4                                               |

The first four are tables of the *catalog*: their rows are of the objects of one image. The next three are tables of
*histories*: their rows are of the streams of all scopes. Spark's data source and `accel.tables` both use these schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

_ID, _NUMBER, _NAME = pa.int64(), pa.int64(), pa.string()
_TIME = pa.timestamp("us", tz="UTC")

_OF_OBJECTS = {"node_id": _ID, "object_id": _ID, "order_id": _NUMBER}
_RANGE = {"stream_id": _ID, "start_offset": _NUMBER, "end_offset": _NUMBER}
_OF_STREAMS = {"scope": _NAME, "stream": _NAME}


class RowSource(Enum):
    """The source of a table's rows."""

    CATALOG = "catalog"
    """Only the list of objects."""
    OBJECTS = "objects"
    """The objects themselves."""
    HISTORIES = "histories"
    """The histories of streams."""
    EVENTS = "events"
    """The events of one stream."""
    RUNS = "runs"
    """The records of runs of jobs."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table. Immutable: any thread may read it.

    Args:
        name: of the table.
        columns: their names and types.
        source: the source of its rows.
    """

    name: str
    columns: pa.Schema
    source: RowSource


_ALL = (
    TableSchema(
        "objects",
        pa.schema(
            {
                **_OF_OBJECTS,
                "kind": _NAME,
                **_RANGE,
                "size_bytes": _NUMBER,
                "index_size_bytes": _NUMBER,
                "data_time": _TIME,
                "key": pa.string(),
            }
        ),
        RowSource.CATALOG,
    ),
    TableSchema(
        "stream_ranges",
        pa.schema(
            {
                **_OF_OBJECTS,
                "kind": _NAME,
                **_RANGE,
                "holed": pa.bool_(),
                "data_size_bytes": _NUMBER,
                "record_count": _NUMBER,
            }
        ),
        RowSource.OBJECTS,
    ),
    TableSchema(
        "blocks",
        pa.schema(
            {
                **_OF_OBJECTS,
                "kind": _NAME,
                **_RANGE,
                "record_count": _NUMBER,
                "position": _NUMBER,
                "size_bytes": _NUMBER,
                "holder_id": _ID,
            }
        ),
        RowSource.OBJECTS,
    ),
    TableSchema(
        "records",
        pa.schema({**_OF_OBJECTS, **_RANGE, "epoch": _NUMBER, "is_link": pa.bool_(), "payload": pa.binary()}),
        RowSource.OBJECTS,
    ),
    TableSchema(
        "epochs",
        pa.schema(
            {
                **_OF_STREAMS,
                "epoch": _NUMBER,
                "reference_epoch": _NUMBER,
                "begin_time": _TIME,
                "splits": _NUMBER,
                "merges": _NUMBER,
                "segment_count": _NUMBER,
            }
        ),
        RowSource.HISTORIES,
    ),
    TableSchema(
        "segments",
        pa.schema(
            {
                **_OF_STREAMS,
                "segment_id": _ID,
                "segment": _NAME,
                "creation_epoch": _NUMBER,
                "creation_time": _TIME,
                "sealed_epoch": _NUMBER,
                "sealed_time": _TIME,
                "key_start": pa.float64(),
                "key_end": pa.float64(),
                "size": _NUMBER,
                "stream_id": _ID,
            }
        ),
        RowSource.HISTORIES,
    ),
    TableSchema(
        "cuts",
        pa.schema(
            {
                **_OF_STREAMS,
                "kind": _NAME,
                "recording_time": _TIME,
                "size_before": _NUMBER,
                "segment_id": _ID,
                "segment": _NAME,
                "offset": _NUMBER,
            }
        ),
        RowSource.HISTORIES,
    ),
    TableSchema(
        "events",
        pa.schema({**_OF_STREAMS, "segment": _NAME, "offset": _NUMBER, "time": _TIME, "payload": pa.binary()}),
        RowSource.EVENTS,
    ),
    TableSchema(
        "job_runs",
        pa.schema(
            {
                **dict.fromkeys(("kind", "run_id", "version", "engine"), _NAME),
                **dict.fromkeys(("begin_time", "end_time"), _TIME),
                **dict.fromkeys(("outcome", "reason", "trigger"), _NAME),
                **dict.fromkeys(("items", "size_bytes", "requests", "failures", "max_objects_per_node"), _NUMBER),
            }
        ),
        RowSource.RUNS,
    ),
)

TABLES: Mapping[str, TableSchema] = MappingProxyType({table.name: table for table in _ALL})
"""The tables, by name."""


def table_of(name: str) -> TableSchema:
    """The table of a name, in any case.

    Raises:
        ValueError: there is no such table; the message lists the existing tables.
    """
    table = TABLES.get(name.lower())
    if table is None:
        raise ValueError(f"expected one of the tables {', '.join(TABLES)}, found {name!r}")
    return table
