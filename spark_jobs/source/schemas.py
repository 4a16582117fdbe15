"""The tables of the data source: their columns, and what has to be read for them.

    | table         | a row is                           | what is read                                             |
    |---------------|------------------------------------|----------------------------------------------------------|
    | objects       | an object                          | the catalog, and no object                               |
    | stream_ranges | a stream in an object              | the catalog, and the index of each object: one request   |
    | blocks        | a row of an object's block index   | the same                                                 |
    | records       | a record batch                     | the blocks themselves besides                            |

Each table begins with the columns of the one above it that say which object a row is about, so that they join on
`object_id`, which is never used twice.
"""

from __future__ import annotations

from dataclasses import dataclass

OBJECT_COLUMNS = "node_id BIGINT, object_id BIGINT, order_id BIGINT"


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table.

    Args:
        name: as the option `table` has it.
        ddl: its columns, as Spark reads them.
        opens_objects: whether a row takes more than the catalog; then the objects are divided among tasks.
        objects_a_task: how many of them a task opens.
    """

    name: str
    ddl: str
    opens_objects: bool
    objects_a_task: int = 1_000_000


TABLES: dict[str, TableSchema] = {
    each.name: each
    for each in (
        TableSchema(
            "objects",
            f"{OBJECT_COLUMNS}, kind STRING, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, "
            "size_bytes BIGINT, index_size_bytes BIGINT, data_time TIMESTAMP, key STRING",
            opens_objects=False,
        ),
        TableSchema(
            "stream_ranges",
            f"{OBJECT_COLUMNS}, kind STRING, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, holed BOOLEAN, "
            "data_size_bytes BIGINT, record_count BIGINT",
            opens_objects=True,
            objects_a_task=64,
        ),
        TableSchema(
            "blocks",
            f"{OBJECT_COLUMNS}, kind STRING, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, "
            "record_count BIGINT, position BIGINT, size_bytes BIGINT, holder_id BIGINT",
            opens_objects=True,
            objects_a_task=64,
        ),
        TableSchema(
            "records",
            f"{OBJECT_COLUMNS}, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, epoch BIGINT, "
            "is_link BOOLEAN, payload BINARY",
            opens_objects=True,
            objects_a_task=4,
        ),
    )
}
"""By name."""


def table_of(name: str) -> TableSchema:
    """The table of a name, in any case.

    Raises:
        ValueError: there is no such table; the message has those that there are.
    """
    found = TABLES.get(name.lower())
    if found is None:
        raise ValueError(f"expected the option table to be one of {', '.join(TABLES)}, found {name!r}")
    return found
